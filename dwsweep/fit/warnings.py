"""Warnings of a fit: weak noise estimates, confounds between the curves, ties, losses that still fell.

A table whose numbers mean another quantity is refused in one line, which names the likely quantity and the remedy.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dwsweep import paths
from dwsweep.errors import InputError, either
from dwsweep.fit.data.impossible import BadRun, named
from dwsweep.fit.data.names import rename
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.runs import Run, TableShape, chance_loss
from dwsweep.fit.data.table import Table
from dwsweep.fit.statistics.curves import Curves
from dwsweep.fit.statistics.noise import SCATTER
from dwsweep.records.fit import FitResult
from dwsweep.records.metrics import Metrics, metrics_of
from dwsweep.text import NATS, SHORT, join
from dwsweep.theory import bottlenecks

KNOWN_STATUSES = {
    *("done", "diverged", "failed", "oom", "interrupted", "pending", "running"),
    *("crashed", "killed", "preempted", "preempting", "canceled", "cancelled", "error", "timeout"),
}
HIGHEST_LOSS = 12.0  # nats per token: ln of a vocabulary of 160,000
OTHER_QUANTITIES = {  # parts of a column's name → quantity in it
    "perplexity": ("ppl", "perplexity"),
    "accuracy": ("acc", "accuracy"),
}
NEAR_CHANCE = 0.8  # share of ln V; shapes above 0.9 of it have learned nothing and are left out before (runs.py)
BEYOND_DECLARED = math.sqrt(3.0)  # scatter over a declared error above which a warning is given
FALLING_SHARE = 0.05  # relative fall of the loss over the last fifth of training
FEWEST_POINTS = 5  # fewest points of a training curve that show its fall
RISING_SHARE = 0.6  # share of the steps from one size to the next at a depth


def check_status(rows: Sequence[Row]) -> None:
    """Refuse a table whose statuses are all unknown words."""
    words = Counter(str(row.get("status") or "done").lower() for row in rows)
    if rows and not KNOWN_STATUSES & set(words):
        shown = ", ".join(repr(word) for word, _ in words.most_common(3))
        raise InputError(
            f"status: {shown} in all {len(rows)} rows; a run counts where it is 'done' (or the column is absent or "
            f"blank): {rename('status')} or leave the column out"
        )


def check_fitted(result: FitResult) -> None:
    """Refuse a result without a usable run: a command that fitted nothing must fail."""
    if not result.provenance.account.used:
        reasons = "; ".join(sorted({cell.reason for cell in result.cells if cell.reason})[:3])
        why = f" ({reasons})" if reasons else ""
        raise InputError(f"table: {result.provenance.input}; no run with a usable loss{why}")


def check_runs(runs: Sequence[Run], data: Table, shorter: bool = False) -> Iterator[str]:
    """Warnings about a loss or a count that looks like another quantity. data: table of the runs.
    shorter: larger nets were trained on less, so that the loss may rise with N.

    Raises:
        InputError: it is sure to be something else.
    """
    if not runs:
        return
    losses = np.array([run.loss for run in runs])
    rising = [] if shorter else _rising(runs)
    loss_column = data.theirs.get("loss", "loss")
    parts = loss_column.lower().replace("-", "_").replace("/", "_").split("_")
    kind = next((kind for kind, words in OTHER_QUANTITIES.items() if any(word in parts for word in words)), None)
    middle = float(np.median(losses))
    if kind is None and rising and middle > HIGHEST_LOSS and losses.max() <= 100.0:
        raise InputError(
            f"loss: median {middle:.4g}, and larger at larger N; it looks like accuracy in percent, must be nats per "
            f"token ({rename('loss')})"
        )
    if kind == "perplexity" or middle > HIGHEST_LOSS:
        why = f"column {loss_column!r}" if kind else f"median {middle:.4g} is above ln V of any vocabulary"
        raise InputError(f"loss: {why}; it looks like perplexity, must be nats per token: give its logarithm")
    if kind == "accuracy" or (rising and losses.max() <= 1.0):
        why = f"column {loss_column!r}" if kind else "all values from 0 to 1, and larger at larger N"
        raise InputError(f"loss: {why}; it looks like accuracy, must be nats per token ({rename('loss')})")
    bits = [run.row.get("bits_per_byte") for run in runs]
    same = all(value is not None and abs(value - run.loss) < 1e-9 for value, run in zip(bits, runs, strict=True))
    if same and data.unit == NATS:
        yield (
            "loss: equal to bits_per_byte, so it looks like bits per byte, not nats per token; unit bpb labels all "
            "numbers as such"
        )
    yield from _near_chance(runs, data.unit)
    if rising:
        yield (
            f"loss: it rises with N at depth {join(map(str, rising))}; check the column, its sign, and that large "
            f"nets were trained long enough ({either(rename('loss'))})"
        )


def _near_chance(runs: Sequence[Run], unit: str) -> Iterator[str]:
    """Warning about nets that have learned little more than token frequencies."""
    known = [(run, chance) for run in runs if (chance := chance_loss(run, unit)) is not None]
    near = [(run, chance) for run, chance in known if run.loss > NEAR_CHANCE * chance]
    if near and 4 * len(near) >= len(runs):
        worst, chance = max(near, key=lambda pair: pair[0].loss)
        what = f"({worst.loss:.3g} at {worst.row['depth']:g}×{worst.width:g}, where ln V is {chance:.3g})"
        yield (
            f"TOO EARLY TO ASK: {len(near)} of {len(runs)} runs have a loss above {NEAR_CHANCE:.0%} of ln V, the loss "
            f"of a uniform guess {what}: another depth may be ahead once the nets have learned; train longer"
        )


def _rising(runs: Sequence[Run]) -> list[int]:
    """Depths whose loss mostly rises with size, by more than it falls; empty unless that holds for most depths."""
    best: dict[int, dict[float, float]] = defaultdict(dict)
    for run in runs:
        at = best[int(run.row["depth"])]
        at[run.x] = min(run.loss, at.get(run.x, math.inf))
    steps = {d: np.diff([loss for _, loss in sorted(at.items())]) for d, at in best.items() if len(at) >= 3}
    up = [d for d, s in sorted(steps.items()) if (s > 0).mean() >= RISING_SHARE and s.sum() > 0.1 * np.abs(s).sum()]
    return up if 2 * len(up) > len(steps) else []


def noise_warnings(curves: Curves, unit: str) -> Iterator[str]:
    """Warnings about weakly supported errors. unit: of losses."""
    nats, noise = SHORT[unit], curves.noise
    if not noise.known and not noise.why_unknown:
        yield (
            "noise: one run per shape and fewer than four sizes per depth leave nothing to estimate the noise from "
            "(repeat with more seeds, or declare the noise of one run)"
        )
    elif noise.source == SCATTER:
        yield (
            f"noise: one run per shape, so errors are estimated from the scatter of shapes alone (τ = {noise.tau:.2g} "
            f"{nats})"
        )
    elif noise.source == "declared" and noise.tau is not None:
        per_mean = (noise.sigma or 0.0) / math.sqrt(float(np.median(curves.n)))
        if noise.tau > BEYOND_DECLARED * per_mean:
            yield (
                f"noise: the declared σ gives ±{per_mean:.2g} {nats} per mean, the cells scatter by {noise.tau:.2g} "
                f"beyond it; the declared σ is likely too small"
            )
    if max(curves.n) > 1 < len(curves.n) and not curves.paired:
        yield "seeds: shapes have different seeds (or none is named), so errors of a seed do not cancel between shapes"


def left_out_line(bad: Sequence[BadRun]) -> str:
    """Sentence that names the impossible runs."""
    return (
        f"IMPOSSIBLE LOSS, left out: {join(map(named, bad), 3, '; ')} ({bad[0].deviations:,.0f} robust standard "
        "deviations off)"
    )


def rate_warnings(runs: Sequence[Run], curves: Curves, lost: Mapping[TableShape, set[float]]) -> Iterator[str]:
    """Warnings about learning rates. lost: those of a shape whose runs have no loss, since they diverged."""
    by_depth: dict[int, set[float]] = defaultdict(set)
    highest: dict[tuple[int, float], float] = defaultdict(float)
    least: dict[tuple[int, float], float] = defaultdict(lambda: math.inf)
    for run in runs:
        if run.learning_rate is not None:
            by_depth[run.depth].add(run.learning_rate)
            least[run.depth, run.width] = min(least[run.depth, run.width], run.learning_rate)
    for shape, values in lost.items():
        if shape.depth in by_depth:
            by_depth[shape.depth] |= values
            highest[shape.depth, shape.width] = max(values)
    rates = set[float]().union(*by_depth.values())
    rules = {run.row.get("parametrization") for run in runs}
    if len(rates) == 1 and len(curves.depths) > 1 and not rules & {"completep", "mup", "depth-mup"}:
        yield (
            f"confound learning_rate: one rate ({next(iter(rates)):g}) at every depth without a rule that transfers it "
            f"over depth; a deep net may be behind because of its learning rate (Dey et al. 2025)"
        )
    if len(rates) > 1 and len({frozenset(v) for v in by_depth.values()}) > 1:
        yield "confound learning_rate: the rates tried differ between depths"
    if edges := [(d, w, rate) for d, w, rate in curves.rate_edge if rate >= highest[d, w] or rate <= least[d, w]]:
        shapes = join((f"{d}×{w:g} at {rate:g}" for d, w, rate in edges), 4)
        yield f"learning_rate: the best rate is at the edge of the tried rates for {shapes}; the optimum may lie beyond"


def width_warnings(runs: Sequence[Run]) -> Iterator[str]:
    """Warnings about widths beyond what the embedding can carry."""
    wide: dict[str, set[TableShape]] = defaultdict(set)
    for run in runs:
        if cap := bottlenecks.embedding_cap(run.width, run.row.get("vocab_size"), run.row.get("embedding_rank")):
            wide[f"{'vocab_size' if cap.is_vocabulary else 'embedding_rank'} {cap.value:,.0f}"].add(run.shape)
    for most, shapes in wide.items():
        yield f"embedding: d_x > {most} at {len(shapes)} shapes (from {min(shapes)}); {bottlenecks.EMBEDDING_REASON}"


def still_falling(directory: str, runs: Sequence[Run]) -> list[str]:
    """A warning where the loss still fell steeply at the end of training, judged at the largest shape of each depth
    (the smaller ones settle earlier), and one for each training curve that was judged without all of its lines;
    nothing if the directory holds no training curves."""
    falls, warnings = {}, []
    for depth in sorted({int(run.row["depth"]) for run in runs}):
        run = max((run for run in runs if run.row["depth"] == depth), key=lambda run: run.x)
        if (run_id := run.row.get("run_id")) is None:
            continue
        metrics = metrics_of(paths.as_path(directory) / "runs" / str(run_id))
        if left_out := metrics.left_out(str(run_id)):
            warnings.append(left_out)
        fall = last_fall(metrics)
        if fall is not None and fall > FALLING_SHARE:
            falls[f"{depth}×{run.width:g}"] = fall
    if not falls:
        return warnings
    steep = join(f"{shape} by {100 * fall:.0f} %" for shape, fall in falls.items())
    return [
        *warnings,
        f"STILL FALLING: the last fifth of training lowered the training loss steeply ({steep}); which depth is ahead "
        f"may change with longer training",
    ]


def last_fall(metrics: Metrics) -> float | None:
    """Share of the mean training loss by which it fell from the fourth to the last fifth of a run's steps; None where
    fewer than ``FEWEST_POINTS`` were logged."""
    logged = ((row["step"], row.get("loss")) for row in metrics.rows)
    points = [(step, loss) for step, loss in logged if loss is not None and math.isfinite(loss)]
    if len(points) < FEWEST_POINTS:
        return None
    end = max(step for step, _ in points)
    before = [loss for step, loss in points if 0.6 * end < step <= 0.8 * end]
    last = [loss for step, loss in points if step > 0.8 * end]
    if not before or not last:
        return None
    means = [math.fsum(losses) / len(losses) for losses in (before, last)]
    return (means[0] - means[1]) / means[0] if means[0] > 0 else None
