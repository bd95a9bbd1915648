"""Tables that are read well and mean something else: one line that says what it looks like and how to give it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit.cells import Run
from dwsweep.fit.row_filter import Row
from dwsweep.fit.table import rename
from dwsweep.records.fit_result import FitResult

STATUSES = {"done", "diverged", "failed", "oom", "interrupted", "pending", "running"}
COUNT_FACTOR = 30.0  # n_params / (12·L·d²) of any block stays well within it; thousands and millions do not
HIGHEST_LOSS = 12.0  # nats per token; the logarithm of a vocabulary of 160,000
NAMES = {  # parts of a column's name → what it holds
    "perplexity": ("ppl", "perplexity"),
    "accuracy": ("acc", "accuracy"),
    "bits": ("bpb", "bpc", "bits"),
}
LEARNED_SHARE = 0.8  # of ln V; the frequencies of tokens alone bring a net to about 0.85 of it
RISING_SHARE = 0.6  # of a depth's steps from one size to the next


def check_status(rows: Sequence[Row]) -> None:
    """Refuses a table whose statuses are all words that this package does not know, or nothing would be fitted."""
    words = Counter(str(row.get("status") or "done").lower() for row in rows)
    if rows and not STATUSES & set(words):
        shown = ", ".join(repr(word) for word, _ in words.most_common(3))
        raise InputError(
            f"status: {shown} in all {len(rows)} rows; a run counts where it is 'done' (or the column is absent or "
            f"blank): {rename('status')} or leave the column out"
        )


def check_fitted(result: FitResult) -> None:
    """Refuses a result without a single usable run: a command that has fitted nothing must not end well."""
    if not result.provenance.rows_used:
        reasons = "; ".join(sorted({cell.reason for cell in result.cells if cell.reason})[:3])
        why = f" ({reasons})" if reasons else ""
        raise InputError(f"table: {result.provenance.input}; no run with a usable loss{why}")


def check_runs(runs: Sequence[Run], loss_column: str) -> list[str]:
    """Warnings where the loss or a count looks like something else. loss_column: what the table calls the loss.

    Raises:
        InputError: it is sure to be something else.
    """
    if not runs:
        return []
    _counts(runs)
    losses = np.array([run.loss for run in runs])
    rising = _rising(runs)
    parts = loss_column.lower().replace("-", "_").replace("/", "_").split("_")
    kind = next((kind for kind, words in NAMES.items() if any(word in parts for word in words)), None)
    middle = float(np.median(losses))
    if kind == "perplexity" or middle > HIGHEST_LOSS:
        why = f"column {loss_column!r}" if kind else f"median {middle:.4g} is above ln V of any vocabulary"
        raise InputError(f"loss: {why}; it looks like perplexity, must be nats per token: give its logarithm")
    if kind == "accuracy" or (rising and losses.min() >= 0.0 and losses.max() <= 1.0):
        why = f"column {loss_column!r}" if kind else "all values from 0 to 1, and larger at larger N"
        raise InputError(f"loss: {why}; it looks like accuracy, must be nats per token ({rename('loss')})")
    lines = []
    same = [run.row.get("bits_per_byte") for run in runs]
    if kind == "bits" or all(
        bits is not None and abs(bits - run.loss) < 1e-9 for bits, run in zip(same, runs, strict=True)
    ):
        lines.append(
            "loss: it looks like bits, not nats per token; transitions stay where they are, but errors and "
            "differences are in bits (1 bit = 0.693 nats)"
        )
    lines += _near_chance(runs)
    if rising:
        lines.append(
            f"loss: it rises with N at depth {', '.join(map(str, rising))}; check the column, its sign, and that large "
            f"nets were trained long enough ({rename('loss')})"
        )
    return lines


def _near_chance(runs: Sequence[Run]) -> list[str]:
    """A warning where nets have learned little more than how frequent each token is."""
    known = [run for run in runs if run.row.get("vocab_size")]
    near = [run for run in known if run.loss > LEARNED_SHARE * math.log(run.row["vocab_size"])]
    if not near or 4 * len(near) < len(runs):
        return []
    worst = max(near, key=lambda run: run.loss)
    chance = math.log(worst.row["vocab_size"])
    what = f"({worst.loss:.3g} at {worst.depth}×{worst.width:g}, where ln V is {chance:.3g})"
    return [
        f"TOO EARLY TO ASK: {len(near)} of {len(runs)} runs have a loss above {LEARNED_SHARE:.0%} of ln V, that of "
        f"guessing {what}: which depth is ahead says little of nets that have learned; train longer"
    ]


def _counts(runs: Sequence[Run]) -> None:
    ratios = [run.n_params / (12.0 * run.depth * run.width**2) for run in runs if run.row.get("n_params") is not None]
    if len(ratios) < 2:
        return
    ratio = float(np.median(ratios))
    spread = max(ratios) / min(ratios)
    if spread < COUNT_FACTOR and not 1.0 / COUNT_FACTOR < ratio < COUNT_FACTOR:
        unit = {-3: "thousands", -6: "millions", -9: "billions"}.get(round(math.log10(ratio)), "another unit")
        run = runs[0]
        raise InputError(
            f"n_params: {run.n_params:g} at {run.depth}×{run.width:g}, where 12·L·d² is "
            f"{12 * run.depth * run.width**2:.4g}; it looks like {unit}, must be a plain count of non-embedding weights"
        )


def _rising(runs: Sequence[Run]) -> list[int]:
    """Depths, most of whose steps to the next size raise the loss, and by more in all than the others lower it; nothing
    unless that is so of most depths."""
    best: dict[int, dict[float, float]] = defaultdict(dict)
    for run in runs:
        at = best[run.depth]
        at[run.x] = min(run.loss, at.get(run.x, math.inf))
    steps = {d: np.diff([loss for _, loss in sorted(at.items())]) for d, at in best.items() if len(at) >= 3}
    up = [d for d, s in sorted(steps.items()) if (s > 0).mean() >= RISING_SHARE and s.sum() > 0.1 * np.abs(s).sum()]
    return up if 2 * len(up) > len(steps) else []
