"""Any table of runs, read into plain rows: a sweep directory, CSV, TSV, JSON, JSONL or Parquet, rows or columns.

Usual names of columns in other projects are understood, and the output lists the assignments.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.data import condition, source
from dwsweep.fit.data.cell import Columns, losses
from dwsweep.fit.data.names import Names, nearest, unit_named
from dwsweep.fit.data.recipes import without_repeats
from dwsweep.fit.data.roles import KNOWN, Roles, roles
from dwsweep.fit.data.rows import ARM, Row, Word, cell_text, no_loss, plain, why_no_loss
from dwsweep.fit.data.shape import settle
from dwsweep.records.columns import REQUIRED, of_type
from dwsweep.records.columns import named as column_names
from dwsweep.records.fit import FitOptions, LeftOutRows
from dwsweep.text import BITS, BITS_PER_TOKEN, NATS, PER_CHARACTER, join

MEASURED = {*column_names("size", "outcome", "identity"), "learning_rate"}  # may differ between the runs of a cell
LARGEST = {"depth": 1e5, "width": 1e9}  # larger than any net, far below the largest float
LEAST_COUNT, LARGEST_COUNT = 1e-6, 1e30  # seconds and tokens count too
LARGEST_LOSS = 1e6
COUNTS = frozenset(of_type("count"))
# trackers' words for a finished run; autoresearch discards runs without an improvement, which still have a loss
FINISHED = {"finished", "completed", "complete", "success", "succeeded", "keep", "kept", "discard", "discarded"}
DIVERGED_FLAGS = {"diverged", "is_diverged", "has_diverged", "did_diverge"}  # columns of a switch
OWN = {"run_id", "n_params", "n_params_total", "attention_kernel", "data_hash"}  # results.csv in every folder has these
OF_LOSS = {"unit", "units", "loss_unit", "loss_units", "metric_unit", "unit_of_loss"}  # columns that name it
WORDS_OF_LOSS = {
    **dict.fromkeys(("nat", "nats", "nats_per_token", "nats_token"), "nats"),
    **dict.fromkeys(("bit", "bits", "bits_per_token", "bits_token", "bpt"), "bits"),
    **dict.fromkeys(("bpb", "bits_per_byte", "bits_byte"), "bpb"),
}
UNITS = {"nats": NATS, "bits": BITS_PER_TOKEN, "bpb": BITS, "bpc": PER_CHARACTER}


@dataclass(frozen=True)
class Table:
    """Rows of a table under dwsweep's column names.

    rows: one dict per run; numbers are float or int, blanks are None.
    columns: names in order, after renaming.
    source: origin of the rows, for messages and provenance.
    sha256: hash of the content as read (before ``where``).
    directory: the sweep directory, where there is one (documents.npy lie below it).
    n_read: rows before ``where``, with lines of comments among them.
    loss_column: the table's name of the loss.
    named: columns beyond those that the analysis reads to which the user gave a name.
    taken: ``ours = theirs`` for columns that were found under another usual name.
    unit: of the losses. left_out: why runs have no loss that counts → how many.
    roles: of each column. theirs: the table's name of a column → ours. account: rows that are out already. notes:
    meanings taken for the columns. doubts: warnings about them.
    """

    rows: list[Row]
    columns: tuple[str, ...]
    source: str
    sha256: str
    directory: str | None
    n_read: int
    named: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    loss_column: str = "loss"
    unit: str = NATS
    left_out: dict[str, int] = field(default_factory=dict)
    roles: Roles = field(default_factory=dict)
    theirs: Mapping[str, str] = field(default_factory=dict)
    account: tuple[LeftOutRows, ...] = ()
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """Columns that distinguish runs of one shape, as their values show."""
        known = {*KNOWN, *self.named}
        return tuple(name for name, role in self.roles.items() if role == "setting" and name not in known)


def read_asked(table: Any, options: FitOptions) -> Table:
    """``read_table`` with the options of a fit."""
    return read_table(table, options.columns, options.where, options.unit, options.drop, options.arm)


def read_other(table: Any, options: FitOptions, option: str) -> Table:
    """``read_asked`` of a further table; an error names the option that gave it."""
    try:
        return read_asked(table, options)
    except InputError as error:
        raise InputError(*(f"{option}: {line.removeprefix('table: ')}" for line in error.templates)) from None


def read_table(
    table: Any,
    columns: Any = None,
    where: Iterable[str] = (),
    unit: str | None = None,
    drop: Iterable[str] | None = None,
    arm: str | None = None,
) -> Table:
    """Read ``table``, rename and select its rows, and determine their meaning.

    table: path of a sweep directory (its results.csv is read) or of a CSV, TSV, JSON (records or columns), JSONL or
    Parquet file; or a list of dicts; or a dict of columns; or a pandas, polars or pyarrow table; or one that
    ``source.load`` has read.
    columns: ``{ours: theirs}`` or strings ``"ours=theirs"``.
    where: expressions over the columns, by our names or the table's, such as ``"warmup == 400"``; a row stays if all
    are true.
    unit: of the losses, one of ``UNITS``; default: by the name of their column, else nats.
    drop: columns to ignore, by the table's names or ours. arm: the column that
    names the arm of a run.

    Raises InputError for a missing file, format or column, a text where a number belongs, or a bad expression.
    """
    if unit is not None and unit not in UNITS:
        raise InputError(f"{argument('unit')}: {unit!r}; must be one of {', '.join(UNITS)}")
    loaded = table if isinstance(table, source.Loaded) else source.load(table)
    n_read = len(next(iter(loaded.columns.values()), ()))
    names = Names.of(loaded.columns, columns, drop)
    names.require(loaded.source, n_read)
    held = _cleaned(names.columns if arm is None else _with_arms(names.columns, arm, names.taken))
    rows = [dict(zip(held, values, strict=True)) for values in zip(*held.values(), strict=True)]
    theirs = {their: our for our, their in (*names.asked.items(), *names.taken.items())}
    rows, account = _chosen(rows, tuple(held), theirs, where, loaded.source)
    if loaded.comments:
        account.append(LeftOutRows(rows=loaded.comments, why="begin with # and count as comments"))
    _words_to_status(rows)
    rows, left_out, unsized = _with_sizes(rows)
    account += [LeftOutRows(rows=n, why=no_loss(why)) for why, n in unsized.items()]
    _check_numbers(rows, tuple(held))
    _check_exchanged(rows, names.asked)
    trusted = loaded.directory is not None or "n_params" in names.asked or set(names.given) >= OWN
    settled = settle(rows, trusted, loaded.source, names.theirs)
    of = roles(rows, held, by_values=not loaded.directory)
    rows, again = without_repeats(rows, [name for name, role in of.items() if role == "setting" and name not in KNOWN])
    if again:
        account.append(LeftOutRows(rows=again, why="list a run again, under other labels"))
    loss = names.theirs("loss")
    given_unit = unit or _unit_in_rows(rows, tuple(held))
    of_loss = UNITS[given_unit] if given_unit else unit_named(loss)
    return Table(
        rows=rows,
        columns=tuple(held),
        source=loaded.source,
        sha256=loaded.digest,
        directory=loaded.directory,
        n_read=n_read + loaded.comments,
        named=tuple(name for name in names.asked if name not in MEASURED),
        taken=tuple(f"{ours} = {theirs}" for ours, theirs in names.taken.items()),
        loss_column=loss,
        unit=of_loss,
        left_out=left_out,
        roles=of,
        theirs=theirs,
        account=tuple(account),
        notes=(*names.of_loss(of_loss), *names.said, *settled.said),
        doubts=(*settled.doubts, *_contradicted(rows)),
    )


def _unit_in_rows(rows: Sequence[Row], names: Sequence[str]) -> str | None:
    """Unit of the losses that a column names in each row; None without one.

    Raises:
        InputError: the rows have several.
    """
    for name in (one for one in names if plain(one) in OF_LOSS):
        counts = Counter(str(row[name]) for row in rows if row[name] is not None and row["loss"] is not None)
        words = {value: WORDS_OF_LOSS.get(plain(value)) for value in counts}
        found = {word for word in words.values() if word}
        if not found or None in words.values():
            continue
        if len(found) > 1:
            shown = join(f"{value} in {count} rows" for value, count in counts.most_common())
            most = condition.equals(name, counts.most_common(1)[0][0])
            raise InputError(
                f"loss: {shown} (column {name!r}); must be in one unit: 1 nat is 1.4427 bits; "
                + example(f"where={most!r}", condition.option(most))
                + " fits one alone, "
                + example(f"drop=[{name!r}]", f"--drop {shlex.quote(name)}")
                + " takes all as they are"
            )
        return found.pop()
    return None


def _cleaned(held: Columns) -> Columns:
    """Columns in which a blank is None, a loss that is missing is a ``Word``, and the status is one of ours."""
    cleaned = {}
    for name, values in held.items():
        if name == "loss":
            cleaned[name] = losses(values)
        else:  # a frame's NaN is a blank, and NaN equals no other NaN as a key
            blank = [v.__class__ is Word or (v != v and name not in REQUIRED) for v in values]
            cleaned[name] = [None if out else v for v, out in zip(values, blank, strict=True)]
    if "status" in cleaned:
        cleaned["status"] = ["done" if str(v).lower() in FINISHED else v for v in cleaned["status"]]
    for name in (one for one in held if plain(one) in DIVERGED_FLAGS):
        status = cleaned.get("status", [None] * len(cleaned[name]))
        marks = [v in (True, 1) or str(v).lower() in ("true", "yes") for v in cleaned[name]]
        cleaned["status"] = ["diverged" if out else v for out, v in zip(marks, status, strict=True)]
    return cleaned


def _with_sizes(rows: Sequence[Row]) -> tuple[list[Row], dict[str, int], Mapping[str, int]]:
    """(rows that have a loss or a shape, reasons without a loss → rows, the same of rows without a shape)."""
    reasons = [why_no_loss(row) for row in rows]
    sized = [row["depth"] is not None and row["width"] is not None for row in rows]
    unsized = Counter(why for why, has_size in zip(reasons, sized, strict=True) if why and not has_size)
    kept = [row for row, reason, has_size in zip(rows, reasons, sized, strict=True) if has_size or not reason]
    return kept, dict(sorted(Counter(map(str, filter(None, reasons))).items())), unsized


def _contradicted(rows: Sequence[Row]) -> Iterator[str]:
    """Warning about runs whose rows differ in their losses alone, so that they contradict each other."""
    outcomes = {*column_names("outcome")}
    losses_of: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row.get("run_id") is not None and row["loss"] is not None:
            key = (str(row["run_id"]), *(_same(value) for name, value in row.items() if name not in outcomes))
            losses_of[key].add(row["loss"])
    names = list(dict.fromkeys(key[0] for key, found in losses_of.items() if len(found) > 1))
    if names:
        yield (
            f"run_id: {join(names, 3)} {'has' if len(names) == 1 else 'have'} several losses in rows that are equal "
            "otherwise; they count as replicates: check the table"
        )


def _with_arms(held: Columns, arm: str, taken: Mapping[str, str]) -> Columns:
    """The columns with the values of one as the arms."""
    name = next((ours for ours, theirs in taken.items() if theirs == arm), arm)
    if name in REQUIRED:
        raise InputError(f"{argument('arm')}: {arm!r}; is the {name} of the nets; allowed: a column that names recipes")
    if name not in held:
        raise InputError(f"{argument('arm')}: {arm!r}; not in the table{nearest(arm, tuple(held))}")
    texts = [v if isinstance(v, str) else f"{arm} {'blank' if v is None else v}" for v in held[name]]
    return {**{one: values for one, values in held.items() if one != name}, ARM: texts}


def _chosen(
    rows: list[Row], names: Sequence[str], theirs: Mapping[str, str], where: Iterable[str], source: str
) -> tuple[list[Row], list[LeftOutRows]]:
    """Distinct rows that ``where`` keeps, and an account of the others."""
    n_read, account = len(rows), []
    known = set(names)
    written = {one: our for their, our in theirs.items() for one in (their, plain(their)) if one not in known}
    written |= {one: name for name in names if (one := plain(name)) not in known and one not in written}
    expressions = [where] if isinstance(where, str) else list(where)
    for expression in expressions:
        keep = condition.compile_expression(expression, names, written)
        kept = [row for row in rows if keep(row)]
        arms = expression.startswith(f"{ARM} ==")
        why, option = ("are of other arms", "") if arms else ("are not asked for", "--where")
        if len(kept) < len(rows):
            account.append(LeftOutRows(rows=len(rows) - len(kept), why=why, option=option))
        rows = kept
    if n_read and not rows and expressions:
        raise InputError(
            f"{argument('where')}: {' and '.join(expressions)!r}; keeps none of the {n_read} rows of {source}"
        )
    once = list({tuple(map(_same, row.values())): row for row in reversed(rows)}.values())[::-1]
    if again := len(rows) - len(once):
        account.append(LeftOutRows(rows=again, why="repeat another row exactly"))
    return once, account


def _same(value: Any) -> Any:
    """A value as a key: NaN equals itself, and 1 is not True."""
    return (value.__class__.__name__, str(value)) if not isinstance(value, int | float) or value != value else value


def _words_to_status(rows: list[Row]) -> None:
    """Take a word in place of a loss, such as FAIL, for the status of a run without a more specific one."""
    for row in rows:
        word = row["loss"]
        if word.__class__ is Word:
            row["loss"] = None
            if why_no_loss(row) == "no loss":
                row["status"] = word


def _check_exchanged(rows: Sequence[Row], renamed: Mapping[str, str]) -> None:
    """Refuse a table whose nets have more layers than units, unless the user named both columns."""
    shapes = {(float(row["depth"]), float(row["width"])) for row in rows}
    if {"depth", "width"} <= set(renamed) or 2 * sum(depth > width for depth, width in shapes) <= len(shapes):
        return
    depths, widths = zip(*shapes, strict=True)
    raise InputError(
        f"depth, width: depth {min(depths):g} to {max(depths):g}, width {min(widths):g} to {max(widths):g}; they look "
        "exchanged: "
        + example("columns={'depth': 'width', 'width': 'depth'}", "--column depth=width --column width=depth")
        + " exchanges them, "
        + example("columns={'depth': 'depth', 'width': 'width'}", "--column depth=depth --column width=width")
        + " leaves them"
    )


def _check_numbers(rows: list[Row], names: Sequence[str]) -> None:
    found = []
    for order, name in enumerate(one for one in of_type("number", "count") if one in names):
        kinds = {(type(value), value) for row in rows if (value := row.get(name)) is not None or name in LARGEST}
        bad = {kind: must for kind in kinds if (must := _must(name, kind[1]))}
        for number, value in enumerate((row.get(name) for row in rows) if bad else (), start=1):
            if (kind := (type(value), value)) in bad:
                found.append((number, order, f"{name}: {cell_text(value)} in row {number}; must {bad[kind]}"))
    lines = [line for _, _, line in sorted(found)]
    if lines:
        more = [f"table: {len(lines) - 5} more bad values"] if len(lines) > 5 else []
        raise InputError(*lines[:5], *more)


def _must(name: str, value: Any) -> str:
    """Condition on a column's numbers that ``value`` breaks, in words; empty if it breaks none."""
    if isinstance(value, str | bool):
        return "be a number"
    if name in LARGEST:
        if value is None or not 1 <= value <= LARGEST[name]:
            return f"be a number from 1 to {LARGEST[name]:g}"
        if name == "depth" and not float(value).is_integer():
            return "be a whole number of layers"
    # zero or less is a blank: the row has no such count
    elif name in COUNTS and 0 < value < math.inf and not LEAST_COUNT <= value <= LARGEST_COUNT:
        return f"be from {LEAST_COUNT:g} to {LARGEST_COUNT:g}"
    elif name == "bits_per_byte" and value < 0:
        return "not be negative"
    elif name == "learning_rate" and not 0 < value < math.inf:
        return "be positive and finite"
    elif name == "loss" and math.isfinite(value) and abs(value) > LARGEST_LOSS:
        return f"be a cross-entropy, at most {LARGEST_LOSS:g} (inf marks a run that diverged)"
    return ""
