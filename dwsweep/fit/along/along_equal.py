"""Which shapes equal a baseline's loss, and the parameters that they save: non-inferiority, all shapes at once.

A shape is equal where the upper end of a one-sided band of its loss − the baseline's lies below the margin (the band
holds for all shapes together, so any number of them may be picked from the table).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.along.along_cells import ArmAlong
from dwsweep.fit.along.along_losses import band
from dwsweep.fit.cells import number
from dwsweep.fit.row_selection import compile_expression
from dwsweep.records.along_rows import EqualShape, EqualToBaseline

MARGIN = 0.01  # of the baseline's loss
LEAST_SAVED = 5.0  # percent, below which no table is made unasked


def equal_to_baseline(
    found: Sequence[ArmAlong], baseline: str | None, margin: float | None, confidence: float
) -> tuple[EqualToBaseline, ...]:
    """Of each arm; unasked only where depths and heads vary, and a shape is smaller than the baseline.

    Raises:
        InputError: no shape of an arm is the baseline, or several are.
    """
    asked = baseline is not None or margin is not None
    tables = []
    for one in found:
        if not asked and any(len({row.get(name) for row in one.rows}) < 2 for name in ("depth", "heads")):
            continue
        table = _against(one, _place(one, baseline), margin, confidence)
        if table is not None and (asked or (table.rows and table.rows[0].saved_percent >= LEAST_SAVED)):
            tables.append(table)
    return tuple(tables)


def _place(one: ArmAlong, baseline: str | None) -> int:
    """Index of the cell that is the baseline."""
    if baseline is None:
        order = [
            (-row["depth"], row.get("heads") or 0, -float(n))
            for row, n in zip(one.rows, one.arm.curves.n_params, strict=True)
        ]
        return min(range(len(order)), key=order.__getitem__)
    columns = list(dict.fromkeys(name for row in one.rows for name in row))
    try:
        meets = compile_expression(baseline, columns)
    except InputError as error:
        name = argument("where")
        raise InputError(*(line.replace(f"{name}:", f"{argument('baseline')}:", 1) for line in error.lines)) from None
    places = [k for k, row in enumerate(one.rows) if meets(row)]
    if len(places) == 1:
        return places[0]
    shown = ", ".join(_shape(one, k) for k in places[:6])
    arm = f" of {one.arm.label}" if one.arm.label else ""
    what = f"{len(places)} shapes{arm} meet it ({shown})" if places else f"no shape{arm} meets it"
    raise InputError(f"{argument('baseline')}: {baseline!r}; {what}, one must")


def _shape(one: ArmAlong, k: int) -> str:
    row = one.rows[k]
    heads = f", {row['heads']:g} heads" if row.get("heads") else ""
    return f"{row['depth']:g}×{row['width']:g}{heads}"


def _against(one: ArmAlong, place: int, margin: float | None, confidence: float) -> EqualToBaseline | None:
    curves = one.arm.curves
    base_loss, base_n = float(curves.mean[place]), float(curves.n_params[place])
    margin = margin if margin is not None else MARGIN * base_loss
    others = np.array([k for k in range(len(curves.x)) if k != place])
    if not len(others):
        return None
    worse = curves.mean[others] - base_loss
    high: list[float | None] = [None] * len(others)
    if curves.noise.known:
        deviations = (curves.draws - curves.mean)[:, others] - (curves.draws - curves.mean)[:, [place]]
        _, ends = band(worse, deviations, min(curves.noise.df.values()), confidence, one_sided=True)
        high = [float(end) for end in ends]
    rows = []
    for k, above, end in zip(others, worse, high, strict=True):
        row = one.rows[k]
        rows.append(
            EqualShape(
                arm=one.arm.label,
                depth=int(row["depth"]),
                width=number(row["width"]),
                heads=row.get("heads"),
                head_size=row.get("head_size"),
                n_params=number(float(curves.n_params[k])),
                saved_percent=100.0 * (1.0 - float(curves.n_params[k]) / base_n),
                loss=float(curves.mean[k]),
                worse=float(above),
                worse_high=end,
                equal=end is not None and end < margin,
            )
        )
    rows.sort(key=lambda row: -row.saved_percent)
    name = _shape(one, place)
    return EqualToBaseline(
        arm=one.arm.label,
        baseline=name,
        n_params=number(base_n),
        loss=base_loss,
        margin=margin,
        confidence=confidence,
        rows=tuple(rows),
        sentence=_sentence(rows, name, margin, confidence),
    )


def _sentence(rows: Sequence[EqualShape], baseline: str, margin: float, confidence: float) -> str:
    level = f"at {100 * confidence:.0f} %"
    found = next((row for row in rows if row.equal and row.saved_percent > 0.0), None)
    if found is None:
        return f"no smaller shape is shown to be within {margin:.3f} nats of {baseline}'s loss ({level})"
    heads = f" with {found.heads:g} heads" if found.heads else ""
    return (
        f"{found.depth}×{found.width:g}{heads} is no worse than {baseline} by more than {margin:.3f} nats ({level}; at "
        f"most {found.worse_high:+.3f}) and saves {found.saved_percent:.0f} % of its parameters"
    )
