"""Warnings that a reader must see before believing a crossing: noise, what else differed between the curves, ties."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from dwsweep.errors import argument, example
from dwsweep.fit.cells import Run
from dwsweep.fit.curves import FEW_SIZES, Curves
from dwsweep.fit.table import rename
from dwsweep.records.fit_rows import Transition, references
from dwsweep.text import format_count

SHOULD_AGREE = {
    "tokens": "the curves were trained on different amounts of text",
    "steps": "different numbers of optimizer steps",
    "batch_size": "different batch sizes",
    "seq_len": "different sequence lengths",
    "schedule": "different learning-rate schedules",
    "optimizer": "different optimizers",
    "parametrization": "different learning-rate rules",
    "vocab_size": "different vocabularies: losses per token are not comparable",
    "precision": "different arithmetic",
    "data_hash": "different data: losses are not comparable",
    "attention_kernel": "different attention kernels",
}
COUNT_TOLERANCE = 0.02
FLOPS_TOLERANCE = 0.10


def noise_warnings(curves: Curves) -> list[str]:
    """What the errors rest on, where that is little."""
    lines = []
    noise = curves.noise
    if not noise.known and not noise.why_unknown:
        lines.append(
            "noise: one run per shape and fewer than four sizes per depth leave nothing to estimate the noise from; no "
            f"transition is claimed (repeat with more seeds, or give {example('noise=SIGMA', '--noise SIGMA')} in nats)"
        )
    elif noise.source == "scatter":
        lines.append(
            f"noise: one run per shape, so the error is judged by the scatter about smooth curves alone "
            f"(τ = {noise.tau:.2g} nats, {noise.tau_df:.0f} degrees of freedom)"
        )
    elif noise.source == "declared" and noise.tau is not None:
        sigma = next(iter(noise.sigma.values())) or 0.0
        per_mean = sigma / math.sqrt(float(np.median(curves.n)))
        if noise.tau > 2.0 * per_mean:
            lines.append(
                f"noise: the declared σ gives ±{per_mean:.2g} nats per mean, the cells scatter by {noise.tau:.2g} "
                f"about smooth curves; the errors are likely too small"
            )
    counts = Counter(int(n) for n in curves.n)
    if noise.source != "scatter" and len(counts) > 1 and 1 in counts:
        lines.append(f"seeds: {counts[1]} shapes have a single run")
    few = {d: len(curves.sizes(d)) for d in curves.depths if 2 <= len(curves.sizes(d)) <= FEW_SIZES}
    if few and len(curves.depths) > 1:
        listed = ", ".join(f"{count} at L {d}" for d, count in few.items())
        lines.append(
            f"sizes: {listed}; a crossing then rests on how the curve bends between sizes, which its interval "
            f"covers only roughly (six sizes per depth or more are advised)"
        )
    if max(curves.n) > 1 and not curves.paired:
        lines.append("seeds: not shared between shapes (or not named), so their common part does not cancel")
    return lines


def tie_warnings(rows: Sequence[Transition]) -> list[str]:
    """A line about the pairs whose bound is no evidence about the sizes beyond it, from rows of transitions.csv."""
    tied = [(row, row.tie_low, row.tie_high) for row in references(rows) if row.tie_low and row.tie_high]
    if not tied:
        return []
    listed = ", ".join(
        f"{row.shallow}→{row.deep} ({row.status.replace('_', ' ')}) from {format_count(low)} to {format_count(high)}"
        for row, low, high in tied
    )
    return [
        f"ties: {listed}: there the two depths do not differ by more than the noise, so the bound says where the last "
        f"significant lead ends, not that the lead goes on; the crossing may lie inside"
    ]


def confounds(runs: Sequence[Run], curves: Curves, axis: str) -> list[str]:
    """Warnings about ``runs``, one line each."""
    warnings = [*_negative(runs), *_differing(runs), *_counting(runs), *_learning_rates(runs, curves), *_capacity(runs)]
    if axis == "n_params":
        warnings += _flops(runs)
    return warnings


def _negative(runs: Sequence[Run]) -> list[str]:
    below = [run for run in runs if run.loss < 0]
    if not below:
        return []
    worst = min(below, key=lambda run: run.loss)
    return [
        f"loss: {len(below)} of {len(runs)} losses are negative, down to {worst.loss:.4g} at {worst.depth}×"
        f"{worst.width:g}; a cross-entropy in nats per token never is: check the column "
        f"({rename('loss')})"
    ]


def _differing(runs: Sequence[Run]) -> list[str]:
    lines = []
    for name, meaning in SHOULD_AGREE.items():
        by_value: dict[Any, set[int]] = defaultdict(set)
        for run in runs:
            if run.row.get(name) is not None:
                by_value[run.row[name]].add(run.depth)
        if len(by_value) > 1:
            values = ", ".join(f"{_short(v)} (L {_depths(d)})" for v, d in list(by_value.items())[:4])
            more = f" and {len(by_value) - 4} more" if len(by_value) > 4 else ""
            lines.append(f"confound {name}: {meaning}: {values}{more}")
    return lines


def _counting(runs: Sequence[Run]) -> list[str]:
    ratios: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        if run.row.get("n_params") is not None:
            ratios[run.depth].append(run.n_params / (12.0 * run.depth * run.width**2))
    if not ratios:
        return []
    low, high = min(map(min, ratios.values())), max(map(max, ratios.values()))
    if high / low - 1.0 <= COUNT_TOLERANCE:
        return []
    return [
        f"confound n_params: n_params / (12·L·d²) runs from {low:.3g} to {high:.3g}; parameters are counted "
        f"differently (or the blocks differ) between the shapes compared"
    ]


def _learning_rates(runs: Sequence[Run], curves: Curves) -> list[str]:
    lines = []
    rates = {run.learning_rate for run in runs if run.learning_rate is not None}
    rules = {run.row.get("parametrization") for run in runs}
    if len(rates) == 1 and len(curves.depths) > 1 and not rules & {"completep", "mup", "depth-mup"}:
        lines.append(
            f"confound learning_rate: one rate ({next(iter(rates)):g}) at every depth without a rule that transfers it "
            f"over depth; a deep net may lose to its learning rate (Dey et al. 2025)"
        )
    by_depth: dict[int, set[float]] = defaultdict(set)
    for run in runs:
        if run.learning_rate is not None:
            by_depth[run.depth].add(run.learning_rate)
    if len(rates) > 1 and len({frozenset(v) for v in by_depth.values()}) > 1:
        lines.append("confound learning_rate: the rates tried differ between depths")
    if curves.rate_edge:
        shapes = ", ".join(f"{d}×{w:g} at {rate:g}" for d, w, rate in curves.rate_edge[:4])
        more = f" and {len(curves.rate_edge) - 4} more" if len(curves.rate_edge) > 4 else ""
        lines.append(
            f"learning_rate: the best rate is at the edge of those tried for {shapes}{more}; the optimum may lie beyond"
        )
    return lines


def _capacity(runs: Sequence[Run]) -> list[str]:
    lines = []
    wide = {run.shape for run in runs if run.row.get("vocab_size") and run.width > run.row["vocab_size"]}
    if wide:
        lines.append(
            f"vocabulary: d_x > vocab_size at {len(wide)} shapes (from {_shape(min(wide))}); the embedding's rank caps "
            f"what width adds and favours depth (Wies et al. 2021)"
        )
    narrow = set()
    for run in runs:
        size, length = run.row.get("head_size"), run.row.get("seq_len")
        if size is None and run.row.get("heads"):
            size = run.width / run.row["heads"]
        if size and length and size < length:
            narrow.add(run.shape)
    if narrow:
        lines.append(
            f"head size: head_size < seq_len at {len(narrow)} shapes (such as {_shape(min(narrow))}); such heads "
            f"cannot represent every attention pattern (Bhojanapalli et al. 2020)"
        )
    return lines


def _flops(runs: Sequence[Run]) -> list[str]:
    """Training FLOPs per parameter at equal N differ between depths (attention): say by how much."""
    per: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        flops, tokens = run.row.get("flops"), run.row.get("tokens")
        if flops and tokens and 0 < flops < math.inf and 0 < tokens < math.inf:
            per[run.depth].append((run.x, math.log(flops / tokens) - run.x))
    if len(per) < 2:
        return []
    low = max(min(x for x, _ in values) for values in per.values())
    means = {}
    for depth, values in per.items():
        near = min(values, key=lambda v: abs(v[0] - low))
        means[depth] = near[1]
    spread = math.exp(max(means.values()) - min(means.values())) - 1.0
    if spread <= FLOPS_TOLERANCE:
        return []
    top = max(means, key=lambda d: means[d])
    return [
        f"flops: at N ≈ {math.exp(low):.3g} depth {top} costs {100 * spread:.0f} % more FLOPs per token than the "
        f"cheapest depth; equal N is not equal compute (see {argument('axis')} flops)"
    ]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _depths(depths: set[int]) -> str:
    return ", ".join(map(str, sorted(depths)))


def _shape(shape: tuple[int, float]) -> str:
    return f"{shape[0]}×{shape[1]:g}"
