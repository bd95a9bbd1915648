"""What the losses along a column say, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from dwsweep.records.along_rows import NEITHER, OTHER, WORSE, AlongCurve, AlongRow, ArmsParting
from dwsweep.text import format_count, format_range

NOUNS = {"depth": "layers", "heads": "heads"}
UNITS = {"nats per token": "nats", "bits per byte": "bits per byte"}
GROUPS_SAID = 6  # of each arm


def number(value: float) -> str:
    """A value of the column: ``4``, ``124K``, ``0.002``."""
    return format_count(value) if abs(value) >= 1e4 else f"{value:g}"


def at(column: str, value: float) -> str:
    """``8 heads``, ``head_size 64``."""
    noun = NOUNS.get(column)
    return f"{number(value)} {noun if value != 1 else noun.removesuffix('s')}" if noun else f"{column} {number(value)}"


def place(depth: int | None, budget: float | None) -> str:
    """``L 2, N = 124K``; empty where the column is both."""
    parts = [f"L {depth}" if depth is not None else "", f"N = {format_count(budget)}" if budget is not None else ""]
    return ", ".join(part for part in parts if part)


def nats(value: float | None, low: float | None, high: float | None, unit: str) -> str:
    """``0.030 nats (0.010 … 0.050)``."""
    text = lambda v: f"{v:.3f}"  # noqa: E731
    if value is None:
        return "–"
    said = f"{text(value)} {UNITS[unit]}"
    return said if low is None or high is None else f"{said} ({format_range(low, high, text)})"


def loses(depth: float, percent: float, low: float | None, high: float | None, where: str) -> str:
    """How much the worst depth loses at one size: the same words whether the runs say it or the fitted loss."""
    ends = format_range(low, high, lambda v: f"{v:.2g}")
    layers = f"{depth:g} layers lose" if depth != 1 else "1 layer loses"
    return f"{layers} {percent:.2g} % ({ends}) of the loss at {where}"


def of_curve(
    curve_rows: Sequence[AlongRow], best: float, worse_from: float | None, worse_to: float | None, unit: str
) -> str:
    """Where the loss is least, and where it is shown to be worse."""
    column = curve_rows[0].column
    rows = {row.value: row for row in curve_rows}
    values = list(rows)
    tried = f"best at {at(column, best)} of {', '.join(map(number, values))}"
    if curve_rows[0].above_best_low is None:
        return f"{tried}; the noise is not known, so nothing is claimed"

    def by(value: float) -> str:
        row = rows[value]
        return nats(row.above_best, row.above_best_low, row.above_best_high, unit)

    alike = [number(v) for v in values if rows[v].verdict != WORSE and v != best]
    parts = [tried + (f" (not told apart from {', '.join(alike)})" if alike else "")]
    if worse_from is not None:
        last = "" if worse_from == values[-1] else f", by {by(values[-1])} at {number(values[-1])}"
        parts.append(f"from {at(column, worse_from)} on it is worse by {by(worse_from)}{last}: degrades")
    elif best == values[-1]:
        parts.append(f"no degradation shown up to {at(column, best)}, the most tried")
    else:
        parts.append(f"no degradation shown up to {at(column, values[-1])} (there {by(values[-1])})")
    if worse_to is not None:
        to = f"up to {at(column, worse_to)}" if worse_to != values[0] else f"at {at(column, worse_to)}"
        first = "" if worse_to == values[0] else f", by {by(values[0])} at {number(values[0])}"
        parts.append(f"{to} it is worse by {by(worse_to)}{first}")
    return "; ".join(parts)


def spread(curve: AlongCurve, unit: str) -> str:
    """How far the worst value is from the best."""
    if not curve.known or curve.spread is None:
        return "shape matters: not said, the noise is not known"
    percent, low, high = (curve.percent(v) for v in (curve.spread, curve.spread_low, curve.spread_high))
    ends = nats(curve.spread, curve.spread_low, curve.spread_high, unit)
    if percent is None or low is None:
        return f"shape matters: {ends} from the best depth to the worst; no share of a loss that is not positive"
    where = place(curve.depth, curve.budget) or "this size"
    none = "" if low > 0.0 else "; no difference between the depths is shown"
    return f"shape matters: of the depths tried, {loses(curve.worst, percent, low, high, where)}, {ends}{none}"


def of_parting(
    base: str, arm: str, column: str, ahead: str, start: float | None, after: float | None, values: Sequence[float],
    gap: str, alone: Sequence[float],
) -> str:  # fmt: skip
    """Where another arm leaves the first one. gap: the difference at ``start``; alone: values at which one of the two
    is shown ahead without a stretch to the end."""
    if ahead == NEITHER:
        held = f"; apart at {', '.join(map(number, alone))} alone" if alone else ""
        return f"where {arm} parts from {base}: not shown up to {at(column, values[-1])}{held}"
    first, second = (arm, base) if ahead == OTHER else (base, arm)
    assert start is not None
    if after is not None:
        between = f"they part between {number(after)} and {number(start)}"
    elif start == values[0]:
        between = "they part there or below, where nothing was tried"
    else:
        before = [number(value) for value in values if value < start]
        between = f"they part there or before: at {', '.join(before)} they are not told apart"
    return f"{first} is ahead of {second} from {at(column, start)} on, there by {gap}; {between}"


def listed(found: Sequence[tuple[str, str]]) -> list[str]:
    """(place, sentence) of each group as lines, the first ones; what all say alike is said once."""
    lines = [f"{where}: {sentence}" if where else sentence for where, sentence in found]
    left = len(lines) - GROUPS_SAID
    return lines if left <= 0 else [*lines[:GROUPS_SAID], f"… and {left} more, in the table"]


def answers(
    column: str, unit: str, curves: Sequence[AlongCurve], partings: Sequence[ArmsParting], several: bool
) -> list[str]:
    """All that is said, the plainest first: where the arms part, then each arm."""
    lines = listed([(place(one.depth, one.budget), one.sentence) for one in partings])
    for arm in dict.fromkeys(curve.arm for curve in curves):
        own = [curve for curve in curves if curve.arm == arm]
        said = listed([(place(curve.depth, curve.budget), curve.sentence) for curve in own])
        lines += [f"{arm}, {line}" if several else line for line in said]
        if column == "depth":
            most = max(len(curve.rows) for curve in own)
            full = [curve for curve in own if len(curve.rows) == most]
            ends = full if len(full) < 3 else [full[0], full[-1]]
            lines += [(f"{arm}: " if several else "") + spread(curve, unit) for curve in ends]
    return lines
