"""What the script of the page needs, as one mapping that becomes JSON: the answers of guide, the losses with
their intervals, the training curves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from threadpoolctl import threadpool_limits

from dwsweep.guide import Source
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import DepthCurve
from dwsweep.report.figures import style
from dwsweep.report.figures.losses import AXIS_LABELS
from dwsweep.report.figures.runs import TrainingCurve
from dwsweep.report.page import guide_answers
from dwsweep.report.page.page_tables import RUN_COLUMNS

# columns of results.csv by what the script calls them
NUMBERS = {
    "depth": "depth",
    "width": "width",
    "seed": "seed",
    "learning_rate": "learning_rate",
    "n_params": "n",
    "n_params_total": "total",
    "flops": "flops",
    "device_seconds": "seconds",
    "tokens": "tokens",
    "loss": "loss",
    "loss_stderr": "stderr",
    "bits_per_byte": "bits",
}
WORDS = {"run_id": "id", "status": "status"}
DIGITS = 7
HALF_TURN = ((-0.574, 1.430, 0.144), (0.426, 0.430, 0.144), (0.426, 1.430, -0.856))  # hue-rotate(180deg)


def collected(
    fit: FitResult,
    runs: Sequence[Mapping[str, str]],
    curves: Sequence[TrainingCurve],
    source: Source | None,
    file: Any,
    directory: Any,
) -> dict[str, Any]:
    """All of it. ``runs``: rows of results.csv in the order of the page's table of runs; ``source``: what guides, made
    from the fit.json ``file``; None: a page without answers. ``directory``: what holds the fit, for a reader."""
    guide = None
    if source is not None:
        # small matrices: more threads only wait for each other
        with threadpool_limits(1, user_api="blas"):
            guide = guide_answers.collected(fit, source, file, directory)
    return {"guide": guide, "losses": _losses(fit, runs), "training": _training(curves)}


def _losses(fit: FitResult, runs: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    by_depth = {curve.depth: curve for curve in fit.curves.depths}
    depths = sorted({*by_depth, *(int(float(row["depth"])) for row in runs)})
    looks = style.depth_styles(depths)
    level = fit.curves.confidence
    # where every shape was trained to one value of the axis, the losses stand over their size
    over_size = fit.equal_budgets is not None and fit.equal_budgets.only
    axis = "n_params" if over_size else fit.curves.axis
    return {
        "axis_label": AXIS_LABELS.get(axis, fit.curves.axis_label),
        "level": f"{100 * level:.0f} %",
        "columns": [{**NUMBERS, **WORDS}[name] for name, _ in RUN_COLUMNS.values()],
        "depths": [
            {
                "depth": depth,
                "on_light": looks[depth]["color"],
                "on_dark": on_dark(looks[depth]["color"]),
                "curve": _curve(by_depth[depth], level) if depth in by_depth else None,
            }
            for depth in depths
        ],
        "cells": [
            {
                "depth": cell.depth,
                "width": cell.width,
                "fitted": cell.n_params if over_size else cell.axis_value,
                "loss": cell.mean,
                "half": None if cell.se is None else float(style.half_band([cell.se], level)[0]),
            }
            for cell in fit.cells
            if not cell.excluded
        ],
        "runs": [_run(row, axis) for row in runs],
    }


def on_dark(colour: str) -> str:
    """A colour as the style sheet turns the figures over in the dark: invert(0.92) hue-rotate(180deg) brightness(1.25),
    by the matrices of the W3C's Filter Effects, so that a depth has one colour in all drawings of a theme."""
    inverted = [0.92 - 0.84 * int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    turned = [sum(a * b for a, b in zip(row, inverted, strict=True)) for row in HALF_TURN]
    return "#" + "".join(f"{round(255 * min(max(1.25 * value, 0.0), 1.0)):02x}" for value in turned)


def _run(row: Mapping[str, str], axis: str) -> dict[str, Any]:
    values: dict[str, Any] = {name: row.get(column) or None for column, name in WORDS.items()}
    values |= {name: _number(row.get(column)) for column, name in NUMBERS.items()}
    # what a run that is not finished has lost is no loss of its shape
    if values["status"] not in (None, "done"):
        values["loss"] = None
    return {**values, "fitted": _number(row.get(axis))}


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "nan")
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _curve(curve: DepthCurve, level: float) -> dict[str, Any] | None:
    """The loss of a depth along its sizes, with half its interval."""
    smooth = curve.smooth
    if smooth is None:
        return None
    half = None if smooth.se is None else style.half_band(smooth.se, level)
    return {"x": _short(smooth.x), "mean": _short(smooth.mean), "half": None if half is None else _short(half)}


def _training(curves: Sequence[TrainingCurve]) -> dict[str, Any]:
    """{run: [which steps, losses]}; runs that were logged alike share their steps."""
    steps: dict[tuple[float | None, ...], int] = {}
    found = {}
    for curve in curves:
        at = tuple(_short(curve.step, 4))
        found[curve.run_id] = [steps.setdefault(at, len(steps)), _short(curve.loss, 5)]
    return {"steps": [list(at) for at in steps], "curves": found}


def _short(values: Any, digits: int = DIGITS) -> list[float | None]:
    """With so many significant digits; None for what is not finite."""
    numbers = style.floats(values)
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in numbers]
