"""The page's part on the loss along a column: the answer in sentences, the tables behind it."""

from __future__ import annotations

import html

from dwsweep.fit.along import value_text as column_number
from dwsweep.records.fit import FitResult
from dwsweep.records.studies import Along, AlongRow, EqualToBaseline
from dwsweep.report.html import Section, box, bullets, details, paragraph, table
from dwsweep.report.page_tables import interval, number, short, show

LEFT_OUT = ("answer", "budget", "losses", "transitions", "guideline")  # of a page that has no depths to compare


def sections(fit: FitResult) -> list[Section]:
    """None where no column was asked for."""
    if fit.along is None:
        return []
    found = fit.along
    body = box("answer", bullets(found.answer)) + _table(found)
    for one in found.equal:
        body += f"<h3>No worse than {html.escape(one.baseline)}</h3>" + _equal(one)
    body += (
        paragraph(". ".join(note[0].upper() + note[1:] for note in found.notes) + ".", "soft") if found.notes else ""
    )
    return [Section("along", f"Loss along {found.column.replace('_', ' ')}", body)]


def _table(found: Along) -> str:
    several = len(found.arms) > 1
    columns = ["arm", found.column, "depth", "at N", "width", "heads", "N", "loss", "above the best", "interval"]
    columns += [f"above {found.arms[0]}", "interval"] if several else []
    drop = {0} if not several else set()
    rows = [[cell for k, cell in enumerate(_cells(row, several)) if k not in drop] for row in found.rows]
    kept = [name for k, name in enumerate(columns) if k not in drop]
    return table(kept, rows, left=["arm"])


def _cells(row: AlongRow, several: bool) -> list[str]:
    heads = "–" if not row.heads else f"{row.heads:g}" + (f" × {row.head_size:g}" if row.head_size else "")
    cells = [
        row.arm,
        column_number(row.value),
        str(row.depth),
        show(row.budget, short),
        show(row.width, column_number),
        heads,
        show(row.n_params, short),
        show(row.loss, number(4)),
        show(row.above_best, number(3)),
        interval(row.above_best_low, row.above_best_high, number(3)),
    ]
    if several:
        cells += [show(row.above_base, number(3)), interval(row.above_base_low, row.above_base_high, number(3))]
    return cells


def _equal(one: EqualToBaseline) -> str:
    said = paragraph((f"{one.arm}: " if one.arm else "") + f"{one.sentence}.")
    columns = ["shape", "heads", "N", "saved, %", "worse", f"at most, {100 * one.confidence:.0f} %", "equal"]
    rows = [
        [
            f"{row.depth}×{row.width:g}",
            "–" if not row.heads else f"{row.heads:g}",
            show(row.n_params, short),
            f"{row.saved_percent:.0f}",
            show(row.worse, number(3)),
            show(row.worse_high, number(3)),
            "yes" if row.equal else "not shown",
        ]
        for row in one.rows
        if row.saved_percent > 0.0
    ]
    return said + (details("Every smaller shape", table(columns, rows, left=["shape", "equal"])) if rows else "")
