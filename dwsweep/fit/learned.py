"""Whether training had settled, from the training curves of a sweep directory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dwsweep import paths
from dwsweep.fit.cells import Run

FALLING_SHARE = 0.05  # of the loss, from the fifth of training before the last to the last
FEWEST_POINTS = 5


def still_falling(directory: str, runs: Sequence[Run]) -> list[str]:
    """A warning where the loss still fell steeply at the end of training, judged at the largest shape of each depth
    (the smaller ones settle earlier); nothing where the directory holds no training curves."""
    falls = {}
    for depth in sorted({run.depth for run in runs}):
        run = max((run for run in runs if run.depth == depth), key=lambda run: run.x)
        fall = last_fall(directory, run)
        if fall is not None and fall > FALLING_SHARE:
            falls[f"{run.depth}×{run.width:g}"] = fall
    if not falls:
        return []
    listed = ", ".join(f"{shape} by {100 * fall:.0f} %" for shape, fall in falls.items())
    return [
        f"STILL FALLING: the last fifth of training lowered the training loss steeply ({listed}); which depth is ahead "
        f"may change with longer training"
    ]


def last_fall(directory: str, run: Run) -> float | None:
    """By what share of it the mean training loss fell from the fourth to the last fifth of a run's steps."""
    run_id = run.row.get("run_id")
    if run_id is None:
        return None
    points = []
    for row in paths.read_lines(paths.as_path(directory) / "runs" / str(run_id) / "metrics.jsonl"):
        step, loss = row.get("step"), row.get("loss")
        if isinstance(step, int) and isinstance(loss, int | float) and math.isfinite(loss):
            points.append((step, float(loss)))
    if len(points) < FEWEST_POINTS:
        return None
    end = max(step for step, _ in points)
    before = [loss for step, loss in points if 0.6 * end < step <= 0.8 * end]
    last = [loss for step, loss in points if step > 0.8 * end]
    if not before or not last:
        return None
    means = [math.fsum(losses) / len(losses) for losses in (before, last)]
    return (means[0] - means[1]) / means[0] if means[0] > 0 else None
