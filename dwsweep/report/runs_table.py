"""Tables of runs and of cells on a page, from the rows of a ``results.csv``."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dwsweep.errors import InputError
from dwsweep.fit.data import formats
from dwsweep.fit.data.table import read_asked
from dwsweep.interval import Form, written
from dwsweep.records.fit import FitOptions, FitResult
from dwsweep.records.record import Damaged
from dwsweep.records.transitions import Cell
from dwsweep.report.document import MISSING, Column, Fold, Heading, Part, Table, label, number, prose
from dwsweep.report.figures.style import plain
from dwsweep.text import format_count

Row = Mapping[str, Any]
"""A run by the columns of results.csv: numbers are int or float, blanks are None."""
# curves on a page of more than MANY runs: more are indistinguishable, and each costs a file read
MANY, MOST_CURVES = 600, 120
# column → its name in results.csv, and the form of its numbers (None: a text)
RUN_COLUMNS: Mapping[Column, tuple[str, Form | None]] = {
    label("run"): ("run_id", None),
    number("depth"): ("depth", plain),
    number("width"): ("width", plain),
    number("seed"): ("seed", None),
    number("learning rate"): ("learning_rate", ".3g"),
    number("N"): ("n_params", format_count),
    number("tokens"): ("tokens", format_count),
    number("loss"): ("loss", ",.5f"),
    number("± (documents)"): ("loss_stderr", ",.5f"),
    number("bits/byte"): ("bits_per_byte", ",.4f"),
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
        table = formats.load(path)
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


def of_the_fit(every: Sequence[Row], fit: FitResult) -> list[Row]:
    """Runs of the fit: of a sweep with arms, the runs of the base."""
    arms = {row.get("arm") or "" for row in every}
    base = fit.comparisons[0].base if fit.comparisons else None
    return [row for row in every if len(arms) < 2 or base not in arms or row.get("arm") == base]


def shapes_of(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """The runs by shape, in their order."""
    shapes: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("run_id"):
            shapes[tuple(row.get(name) for name in ("depth", "width", "heads"))].append(row)
    return shapes


def drawn(rows: Sequence[Row]) -> set[str]:
    """The runs whose training curves are on the page: all, or of more than ``MANY`` runs ``MOST_CURVES``.

    These are equally many of each shape, its lowest losses first. If there are more shapes than curves, evenly spaced
    ones are taken in the order of depth and size, ends included.
    """

    def rank(row: Row) -> tuple[bool, float]:
        loss = number_of(row.get("loss"))
        return row.get("status") != "done" or loss is None, loss or 0.0

    def size(group: Sequence[Row]) -> tuple[float, float]:
        return number_of(group[0].get("depth")) or 0.0, number_of(group[0].get("n_params")) or 0.0

    shapes = shapes_of(rows)
    groups = list(shapes.values())
    if len(groups) > MOST_CURVES and sum(map(len, groups)) > MANY:
        groups.sort(key=size)
        groups = [groups[k * (len(groups) - 1) // (MOST_CURVES - 1)] for k in range(MOST_CURVES)]
    by_loss = [sorted(group, key=rank) for group in groups]
    in_turn = [row["run_id"] for turn in itertools.zip_longest(*by_loss) for row in turn if row is not None]
    return set(in_turn if len(in_turn) <= MANY and len(groups) == len(shapes) else in_turn[:MOST_CURVES])


def show(value: Any, form: Form | None = None) -> str:
    """Cell text: – if missing, a number in its form, else the text."""
    if value is None or value == "":
        return MISSING
    try:
        return str(value) if form is None else written(float(value), form)
    except ValueError:
        return str(value)


def spread(values: Sequence[Any], form: Form) -> str:
    """Range of values as text: ``5`` or ``5 … 9``; – without values."""
    known = sorted({float(value) for value in values if value is not None})
    return " … ".join(written(end, form) for end in dict.fromkeys((known[0], known[-1]))) if known else MISSING


def runs(rows: Sequence[Row]) -> list[Part]:
    """Tables of runs: one row per shape, and all runs folded; empty without runs, as for the fit of a table."""
    if not rows:
        return []
    shapes: dict[tuple[float, float], list[Row]] = defaultdict(list)
    for row in rows:
        shapes[float(row["depth"]), float(row["width"])].append(row)
    columns = [
        *map(number, ("depth", "width", "N", "seeds", "learning rate", "tokens", "loss")),
        label("status"),
        number("tokens/s"),
        number("device-seconds (sum)"),
    ]
    made = Table("", columns, whole=True)
    for (depth, width), group in sorted(shapes.items()):
        done = [row for row in group if row.get("status") == "done" and isinstance(row.get("loss"), int | float)]
        states = Counter(str(row.get("status") or "unknown") for row in group)
        ordered_states = sorted(states.items(), key=lambda item: (item[0] != "done", item[0]))
        made.add(
            plain(depth),
            plain(width),
            spread([row.get("n_params") for row in group], format_count),
            str(len({row.get("seed") for row in group})),
            spread([row.get("learning_rate") for row in group], ".3g"),
            spread([row.get("tokens") for row in group], format_count),
            spread([row.get("loss") for row in done], ",.4f"),
            ", ".join(f"{n} {state}" for state, n in ordered_states),
            spread([row.get("tokens_per_second") for row in done], format_count),
            f"{sum(map(_device_seconds, done)):,.0f}" if done else MISSING,
        )
    return [made, Fold(f"All {len(rows)} runs", [all_runs(rows)], "all-runs")]


def _device_seconds(row: Row) -> float:
    """Seconds of devices that a run took: its share of its pack, whose runs train side by side and all have the pack's
    wall_seconds; in a table without shares the wall time."""
    return float(row.get("device_seconds") or row.get("wall_seconds") or 0.0)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Runs in the order of the table of all runs."""
    return sorted(rows, key=lambda row: (float(row["depth"]), float(row["width"]), str(row.get("seed"))))


def all_runs(rows: Sequence[Row]) -> Table:
    """Table of all runs, one row per run."""
    made = Table("", list(RUN_COLUMNS), whole=True)
    for row in ordered(rows):
        made.add(*(show(row.get(name), form) for name, form in RUN_COLUMNS.values()))
    return made


def cells(rows: Sequence[Cell], axis: str = "") -> Table:
    """Table of the cells of a fit. axis: heading of ``axis_value``, if cells differ in it."""
    columns: Mapping[Column, tuple[str, Form | None]] = {
        **({number(axis): ("axis_value", format_count)} if axis else {}),
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
    made = Table("", list(columns), whole=True)
    for row in rows:
        made.add(*(show(getattr(row, name), form) for name, form in columns.values()))
    return made


def other_runs(every: Sequence[Row], shown: Sequence[Row]) -> list[Part]:
    """Tables of the runs of every arm outside the fit."""
    there = {id(row) for row in shown}
    left = [row for row in every if id(row) not in there]
    parts: list[Part] = []
    for arm in dict.fromkeys(row.get("arm") or "" for row in left):
        parts += [Heading(f"Runs of {arm}"), *runs([row for row in left if (row.get("arm") or "") == arm])]
    return parts
