"""Chart of losses against size, run by run: points, curves and trend for the script of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dwsweep.records.columns import AXES
from dwsweep.records.transitions import Cell, DepthCurve
from dwsweep.report.figures import style
from dwsweep.report.figures.runs import TrainingCurve
from dwsweep.report.markup import on_dark
from dwsweep.report.runs_table import RUN_COLUMNS, Row, number_of
from dwsweep.text import NATS

DIGITS = 7
SIZES = {  # axes of the chart by column of a run, with their headings
    "n_params": "non-embedding parameters N",
    "n_params_total": "all parameters",
    "flops": "training FLOPs",
    "device_seconds": "device-seconds of the run",
}
Point = dict[str, Any]


def losses_chart(
    runs: Sequence[Row],
    level: float = 0.95,
    axis: str = "n_params",
    curves: Sequence[DepthCurve] = (),
    cells: Sequence[Cell] = (),
    unit: str = NATS,
) -> dict[str, Any] | None:
    """Data of the chart: points of the runs (else of the cells), and a curve per depth, over each axis that all share;
    None without a loss.

    Args:
        runs: rows of results.csv in the order of the page's table of runs.
        level: confidence of the bands.
        axis: column over which ``curves`` run.
        cells: of the fit, if it has any.
    """
    used = [cell for cell in cells if not cell.excluded]
    points = [run_point(row) for row in runs] if runs else [_cell_point(cell, axis, bool(curves)) for cell in used]
    names = [name for name in SIZES if any(one[name] and one["loss"] is not None for one in points)]
    if not runs:
        names = names[:1]
    if not names:
        return None
    by_depth = {curve.depth: curve for curve in curves}
    depths = sorted({*by_depth, *(int(one["depth"]) for one in points)})
    looks = style.depth_styles(depths)
    return {
        "level": f"{100 * level:.0f} %",
        "unit": unit,
        "axes": [_axis(name, points, by_depth, level, axis if runs else name) for name in names],
        "depths": [
            {"depth": depth, "on_light": looks[depth]["color"], "on_dark": on_dark(looks[depth]["color"])}
            for depth in depths
        ],
        "cells": [
            {
                "depth": cell.depth,
                "width": cell.width,
                "loss": cell.mean,
                "half": None if cell.se is None else float(style.half_band([cell.se], level)[0]),
            }
            for cell in used
        ],
        "points": points,
    }


def run_point(row: Row) -> Point:
    """Numbers of a run by column. An unfinished run has no loss here, since its last loss does not measure its
    shape."""
    names = [*(name for name, _ in RUN_COLUMNS.values()), "n_params_total", "flops", "device_seconds"]
    words = {name: row.get(name) or None for name in ("run_id", "status")}
    numbers = {name: number_of(row.get(name)) for name in names if name not in words}
    if words["status"] not in (None, "done"):
        numbers["loss"] = None
    return words | {name: float(f"{one:.9g}") if isinstance(one, float) else one for name, one in numbers.items()}


def _cell_point(cell: Cell, axis: str, has_curves: bool) -> Point:
    place = cell.axis_value if has_curves else cell.n_params
    name = axis if has_curves and axis in SIZES else "n_params"
    none = dict.fromkeys([*SIZES, "loss_stderr"])
    return none | {"run_id": None, "depth": cell.depth, "width": cell.width, "loss": cell.mean, name: place}


def _axis(
    name: str, points: Sequence[Point], curves: Mapping[int, DepthCurve], level: float, fitted: str
) -> dict[str, Any]:
    """Axis of the chart: the trend common to all points, and the curve of each depth on this axis."""
    drawn = [(one[name], one["loss"]) for one in points if one[name] and one["loss"] is not None]
    moved = {}
    for depth, curve in curves.items():
        smooth = curve.smooth
        at = None if smooth is None else _moved(style.floats(smooth.x), depth, points, fitted, name)
        if smooth is None or at is None:
            continue
        half = None if smooth.se is None else short(style.half_band(smooth.se, level))
        moved[str(depth)] = {"x": short(at), "mean": short(smooth.mean), "half": half}
    return {
        "column": name,
        "label": SIZES.get(name, AXES[name]),
        "trend": trend(drawn),
        "curves": moved,
    }


def trend(drawn: Sequence[tuple[float, float]]) -> list[float]:
    """Trend: coefficients in ln x of a parabola through (size, loss), constant first; a line for fewer than four sizes,
    zero for fewer than four points."""
    if len(drawn) < 4:
        return [0.0]
    at, loss = np.log([x for x, _ in drawn]), [y for _, y in drawn]
    several = len({round(float(x), 3) for x in at})
    degree = 2 if several > 3 else 0
    return [float(f"{value:.12g}") for value in np.polynomial.Polynomial.fit(at, loss, degree).convert().coef]


def _moved(x: Any, depth: int, points: Sequence[Point], fitted: str, name: str) -> Any:
    """Values of the column ``name`` at sizes ``x`` of the column ``fitted``, interpolated in logarithms along the
    shapes of a depth; None if impossible."""
    if fitted == name:
        return x
    pairs: dict[float, list[float]] = {}
    for one in points:
        if one["depth"] == depth and one.get(fitted) and one[name]:
            pairs.setdefault(math.log(one[fitted]), []).append(math.log(one[name]))
    if len(pairs) < 2:
        return None
    known = sorted(pairs)
    means = np.array([np.mean(pairs[value]) for value in known])
    return np.exp(np.interp(np.log(x), known, means, left=math.nan, right=math.nan))


def training(curves: Sequence[TrainingCurve]) -> dict[str, Any]:
    """Training curves as {run: [index of steps, losses]}; runs with equal steps share them. Of many runs only some
    appear."""
    steps: dict[tuple[float | None, ...], int] = {}
    found = {}
    for curve in curves:
        at = tuple(short(curve.step, 4))
        found[curve.run_id] = [steps.setdefault(at, len(steps)), short(curve.loss, 5)]
    return {"steps": [list(at) for at in steps], "curves": found}


def short(values: Any, digits: int = DIGITS) -> list[float | None]:
    """Number rounded to significant digits; None if not finite."""
    numbers = style.floats(values)
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in numbers]


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows with equal keys as one list per key, which saves repeating names for thousands of runs. A column of few
    values is ``{"of": values, "at": index of each row's value}``."""
    found: dict[str, Any] = {}
    for name in rows[0] if rows else ():
        column = [row[name] for row in rows]
        values = {value: place for place, value in enumerate(dict.fromkeys(column))}
        few = 2 * len(values) <= len(column)
        found[name] = {"of": list(values), "at": [values[value] for value in column]} if few else column
    return found
