"""Tables of runs and of cells on a page, from the rows of a ``results.csv``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dwsweep.errors import InputError
from dwsweep.fit.data import source
from dwsweep.fit.data.table import read_asked
from dwsweep.interval import Form, written
from dwsweep.records.fit import FitOptions, FitResult
from dwsweep.records.record import Damaged
from dwsweep.report.document import Column, Fold, Table, label, number, prose
from dwsweep.report.figures.style import plain
from dwsweep.text import format_count

Row = Mapping[str, Any]
"""A run by the columns of results.csv: numbers are int or float, blanks are None."""
MANY = 600  # runs with a curve each: more are indistinguishable, and each costs a file read
# column → its name in results.csv, and the form of its numbers (None: a text)
RUN_COLUMNS: Mapping[Column, tuple[str, Form | None]] = {
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


def number_of(value: Any) -> float | None:
    """Finite number of a cell, an int if whole; else None."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else value


def drawn(rows: Sequence[Row]) -> set[str]:
    """The runs whose training curves are on the page: all, or of more than ``MANY`` the best run of each shape."""

    def rank(row: Row) -> tuple[bool, float]:
        loss = number_of(row.get("loss"))
        return row.get("status") != "done" or loss is None, loss or 0.0

    named = [row for row in rows if row.get("run_id")]
    if len(named) <= MANY:
        return {row["run_id"] for row in named}
    best = {  # the lowest loss of a shape comes last
        tuple(row.get(name) for name in ("depth", "width", "heads", "n_params")): row["run_id"]
        for row in sorted(named, key=rank, reverse=True)
    }
    return {*best.values()}


def show(value: Any, form: Form | None = None) -> str:
    """Cell text: blank if missing, a number in its form, else the text."""
    if value is None or value == "":
        return ""
    try:
        return str(value) if form is None else written(float(value), form)
    except ValueError:
        return str(value)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Runs in the order of the table of all runs."""
    return sorted(rows, key=lambda row: (float(row["depth"]), float(row["width"]), str(row.get("seed"))))


def all_runs(rows: Sequence[Row]) -> Fold:
    """Table of all runs, one row per run, which the page's script sorts and filters."""
    made = Table("", list(RUN_COLUMNS))
    for row in ordered(rows):
        made.add(*(show(row.get(name), form) for name, form in RUN_COLUMNS.values()))
    return Fold(f"All {len(rows)} runs", [made], "all-runs")


def cells(fit: FitResult) -> Table:
    """Table of the cells of a fit."""
    columns: Mapping[Column, tuple[str, Form | None]] = {
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
    made = Table("", list(columns))
    for row in fit.cells:
        made.add(*(show(getattr(row, name), form) for name, form in columns.values()))
    return made
