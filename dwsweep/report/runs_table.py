"""Tables of runs and of cells on a page, from the rows of a ``results.csv``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dwsweep.errors import InputError
from dwsweep.fit.data import source
from dwsweep.fit.data.table import read_asked
from dwsweep.interval import Form, written
from dwsweep.records.fit import FitOptions, FitResult
from dwsweep.records.record import Damaged
from dwsweep.report.document import Fold, TextColumn, TextTable, label, number, prose
from dwsweep.report.figures.style import plain
from dwsweep.text import format_count

Row = Mapping[str, Any]
"""A run by the columns of results.csv: numbers are int or float, blanks are None."""
# column → its name in results.csv, and the form of its numbers (None: a text)
RUN_COLUMNS: Mapping[TextColumn, tuple[str, Form | None]] = {
    label("run"): ("run_id", None),
    label("arm"): ("arm", None),
    number("depth"): ("depth", plain),
    number("width"): ("width", plain),
    number("seed"): ("seed", None),
    number("learning rate"): ("learning_rate", ".3g"),
    number("N"): ("n_params", ".0f"),
    number("tokens"): ("tokens", format_count),
    number("loss"): ("loss", ",.5f"),
    number("± (documents)"): ("loss_stderr", ",.5f"),
    number("bits/byte"): ("bits_per_byte", ",.4f"),
    number("device-seconds"): ("device_seconds", ".0f"),
    label("status"): ("status", None),
}
CELL_COLUMNS: Mapping[TextColumn, tuple[str, Form | None]] = {
    number("depth"): ("depth", plain),
    number("width"): ("width", plain),
    number("N"): ("n_params", format_count),
    number("mean loss"): ("mean", ",.5f"),
    number("± se"): ("se", ",.5f"),
    number("runs"): ("n", None),
    number("learning rate"): ("learning_rate", ".3g"),
    label("used"): ("excluded", lambda excluded: "no" if excluded else "yes"),
    prose("remark"): ("reason", None),
}


def rows_of(path: Any) -> list[dict[str, Any]]:
    """Rows of ``path`` in their order, read as a fit reads them; empty if the file is missing.

    Raises:
        InputError: the file is no CSV, lacks depth, width or loss, or holds a text in place of a number.
    """
    if not path.exists():
        return []
    try:
        table = source.load(path)
        rows = table.rows
        if rows:
            read_asked(table, FitOptions())
    except Damaged:
        raise
    except InputError as error:
        lines = (line if line.startswith("table: ") else f"table: {path}: {line}" for line in error.templates)
        raise InputError(*(f"DIR: {line.removeprefix('table: ')}" for line in lines)) from None
    for row in rows:
        if row.get("run_id") is not None:
            row["run_id"] = str(row["run_id"])  # name of the run's folder, which may be a number
    return rows


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Runs in the order of the table of all runs."""
    return sorted(rows, key=lambda row: (float(row["depth"]), float(row["width"]), str(row.get("seed"))))


def all_runs(rows: Sequence[Row]) -> Fold:
    """Table of all runs, one row per run, which the page's script sorts and filters."""
    return Fold(f"All {len(rows)} runs", [_table(ordered(rows), RUN_COLUMNS)], "all-runs")


def cells(fit: FitResult) -> TextTable:
    """Table of the cells of a fit."""
    return _table([vars(row) for row in fit.cells], CELL_COLUMNS)


def _table(rows: Sequence[Row], columns: Mapping[TextColumn, tuple[str, Form | None]]) -> TextTable:
    made = TextTable("", list(columns))
    for row in rows:
        made.add(*(_shown(row.get(name), form) for name, form in columns.values()))
    return made


def _shown(value: Any, form: Form | None) -> str:
    """Cell text: blank if missing, a number in its form, else the text."""
    if value is None or form is None or isinstance(value, str):
        return "" if value is None else str(value)
    return written(value, form)
