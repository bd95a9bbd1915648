"""Logs of a sweep on its page: training curves, and the conditioning of attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dwsweep.records.metrics import metrics_of
from dwsweep.report.document import Figure, Lines, Part, TextTable, label, number
from dwsweep.report.figures import style
from dwsweep.report.figures.runs import training_curve, training_curves
from dwsweep.report.runs_table import Row
from dwsweep.text import format_count

MOST_RUNS = 600  # runs with a curve each: more are indistinguishable, and each costs a file read


def logged(runs: Sequence[Row], root: Any) -> tuple[list[Part], list[Part], list[str]]:
    """Training curves and conditioning of attention of at most ``MOST_RUNS`` runs, evenly chosen, and a warning per log
    that lacks lines."""
    curves, left_out = [], []
    logs: list[tuple[Row, list[float], list[float]]] = []
    for row in style.evenly([row for row in runs if row.get("run_id")], MOST_RUNS):
        metrics = metrics_of(root / "runs" / row["run_id"])
        if curve := training_curve(row, metrics.rows):
            curves.append(curve)
        names = ("conditioning_at_start", "conditioning")
        start, end = (_last(metrics.rows, name, int(row["depth"])) for name in names)
        logs += [(row, start, end)] if end else []
        left_out += [line] if (line := metrics.left_out(row["run_id"])) else []
    figure: list[Part] = []
    if curves:
        caption = "One thin line per run, averaged over bins of ln step; lighter is larger. Dashed: diverged."
        if len(curves) < len(runs):
            caption += f" {len(curves):,} of {len(runs):,} runs are drawn."
        drawn = style.picture(lambda: training_curves(curves))
        figure.append(Figure(drawn, "Training loss against step, one panel per depth", caption))
    return figure, conditioning(logs), left_out


def conditioning(logs: Sequence[tuple[Row, list[float], list[float]]]) -> list[Part]:
    """Table of the conditioning of attention at the start and the end of training, by arm, depth, heads and size."""
    groups: dict[tuple[Any, ...], list[tuple[list[float], list[float]]]] = {}
    for row, *kappa in logs:
        key = row.get("arm") or "", int(row["depth"]), row.get("heads") or 0, float(row["n_params"])
        groups.setdefault(key, []).append((kappa[0], kappa[1]))
    table = TextTable(
        "", [label("arm"), *map(number, ("depth", "heads", "N", "at the start", "at the end", "worst layer"))]
    )
    for (arm, depth, heads, size), runs in sorted(groups.items()):
        start, end = (np.log([run[k] for run in runs if run[k]]) for k in (0, 1))
        at_start = f"{np.exp(start.mean()):.3g}" if len(start) else ""
        ends = (f"{np.exp(found):.3g}" for found in (end.mean(), end.mean(axis=0).max()))
        table.add(arm, str(depth), str(heads), format_count(size), at_start, *ends)
    legend = (
        "Condition number of the outputs of a block's heads, side by side, over the positions of a window: the ratio "
        "of its largest to its smallest singular value (geometric mean over held-out windows, layers and runs). "
        "Narrower nets have fewer columns: compare at one width."
    )
    return [table, Lines([legend], soft=True)] if table.rows else []


def _last(lines: Sequence[Mapping[str, Any]], name: str, depth: int) -> list[float]:
    """The last usable condition numbers of a log, one per layer."""
    found = (line.get(name) for line in reversed(lines))
    whole = (values for values in found if isinstance(values, list) and len(values) == depth)
    return next((v for v in whole if all(isinstance(one, int | float) and 1.0 <= one < math.inf for one in v)), [])
