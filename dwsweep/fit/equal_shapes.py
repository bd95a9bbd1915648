"""Shapes that equal a baseline: whose losses are shown to be no worse than its own by more than a margin.

A shape equals the baseline where the upper end of a one-sided band of its loss − the baseline's lies below the margin
(non-inferiority). The band holds for all shapes together, so any number of them may be picked from the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from dwsweep.errors import InputError, argument
from dwsweep.fit.along_cells import ArmAlong, shape_text
from dwsweep.fit.cells import number
from dwsweep.fit.curves import SimultaneousBand
from dwsweep.fit.data.condition import compile_expression
from dwsweep.records.along import EqualShape, EqualToBaseline
from dwsweep.text import SHORT

MARGIN = 0.01  # share of the baseline's loss
LEAST_SAVED = 5.0  # saving in percent below which no table is made unasked


def equal_to_baseline(
    found: Sequence[ArmAlong], baseline: str | None, margin: float | None, confidence: float
) -> tuple[EqualToBaseline, ...]:
    """One table per arm; unasked only where depths and heads vary, and a shape is smaller than the baseline.

    Raises:
        InputError: no shape of an arm is the baseline, or several are.
    """
    asked = baseline is not None or margin is not None
    tables = []
    for one in found:
        if not asked and any(len({row.get(name) for row in one.rows}) < 2 for name in ("depth", "heads")):
            continue
        table = _against(one, _baseline(one, baseline), margin, confidence)
        if table is not None and (asked or (table.rows and table.rows[0].saved_percent >= LEAST_SAVED)):
            tables.append(table)
    return tuple(tables)


def _baseline(one: ArmAlong, baseline: str | None) -> int:
    """Index of the baseline's cell."""
    if baseline is None:
        rows, sizes = one.rows, one.arm.curves.n_params
        return min(range(len(rows)), key=lambda k: (-rows[k]["depth"], rows[k].get("heads") or 0, -sizes[k]))
    columns = list(dict.fromkeys(name for row in one.rows for name in row))
    try:
        meets = compile_expression(baseline, columns)
    except InputError as error:
        where, named = (f"{argument(name)}:" for name in ("where", "baseline"))
        raise InputError(*(line.replace(where, named, 1) for line in error.templates)) from None
    places = [k for k, row in enumerate(one.rows) if meets(row)]
    if len(places) == 1:
        return places[0]
    shown = ", ".join(shape_text(one.rows[k]) for k in places[:6])
    arm = f" of {one.arm.label}" if one.arm.label else ""
    what = f"{len(places)} shapes{arm} meet it ({shown})" if places else f"no shape{arm} meets it"
    raise InputError(f"{argument('baseline')}: {baseline!r}; {what}, one must")


def _against(one: ArmAlong, place: int, margin: float | None, confidence: float) -> EqualToBaseline | None:
    curves = one.arm.curves
    base_loss, base_n = float(curves.mean[place]), float(curves.n_params[place])
    margin = margin if margin is not None else MARGIN * base_loss
    others = [k for k in range(len(curves.x)) if k != place]
    if not others:
        return None
    worse = curves.mean[others] - base_loss
    high: list[float | None] = [None] * len(others)
    if curves.noise.known:
        deviations = (curves.draws - curves.mean)[:, others] - (curves.draws - curves.mean)[:, [place]]
        band = SimultaneousBand(worse, deviations, min(curves.noise.df.values()), confidence, one_sided=True)
        high = [float(end) for end in band.high]
    rows = [
        EqualShape(
            arm=one.arm.label,
            depth=int(one.rows[k]["depth"]),
            width=number(one.rows[k]["width"]),
            heads=one.rows[k].get("heads"),
            head_size=one.rows[k].get("head_size"),
            n_params=number(float(curves.n_params[k])),
            saved_percent=100.0 * (1.0 - float(curves.n_params[k]) / base_n),
            loss=float(curves.mean[k]),
            worse=float(above),
            worse_high=end,
            equal=end is not None and end < margin,
        )
        for k, above, end in zip(others, worse, high, strict=True)
    ]
    rows.sort(key=lambda row: -row.saved_percent)
    name = shape_text(one.rows[place])
    return EqualToBaseline(
        arm=one.arm.label,
        baseline=name,
        n_params=number(base_n),
        loss=base_loss,
        margin=margin,
        confidence=confidence,
        rows=tuple(rows),
        sentence=_answer(rows, name, f"{margin:.3f} {SHORT[one.arm.unit]}", confidence),
    )


def _answer(rows: Sequence[EqualShape], baseline: str, margin: str, confidence: float) -> str:
    level = f"at {100 * confidence:.0f} %"
    found = next((row for row in rows if row.equal and row.saved_percent > 0.0), None)
    if found is None:
        return f"no smaller shape is shown to be within {margin} of {baseline}'s loss ({level})"
    heads = f" with {found.heads:g} heads" if found.heads else ""
    return (
        f"{found.depth}×{found.width:g}{heads} is no worse than {baseline} by more than {margin} ({level}; at "
        f"most {found.worse_high:+.3f}) and saves {found.saved_percent:.0f} % of its parameters"
    )
