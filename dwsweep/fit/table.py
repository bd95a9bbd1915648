"""Any table of runs, read into plain rows: a sweep directory, CSV, TSV, JSON, JSONL or Parquet, rows or columns.

What other projects call the columns: the usual names are understood, and what was taken for what is said.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError, argument, example
from dwsweep.fit.rows import ARM, Row, compile_expression
from dwsweep.records.columns import ALIASES, IN_ANY_CASE, REQUIRED, named, of_type

MEASURED = {*named("size", "outcome", "identity"), "learning_rate"}  # may differ between the runs of a cell
MISSING_TEXT = {"", "none", "null", "na", "n/a", "<na>", "nat"}
LARGEST = {"depth": 1e5, "width": 1e9}  # beyond any net, and far inside the range of floats
LEAST_COUNT, LARGEST_COUNT = 1e-6, 1e30  # seconds and tokens are counts here too
LARGEST_INT = 10**300  # what a float still holds
LARGEST_LOSS = 1e6
FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")


@dataclass(frozen=True)
class Table:
    """Rows of a table under dwsweep's column names.

    rows: one dict per run; numbers are float or int, blanks are None.
    columns: names in order, after renaming.
    source: where the rows came from, for messages and provenance.
    sha256: hash of the content as read (before ``where``).
    directory: the sweep directory, where there is one (documents.npy lie below it).
    n_read: rows before ``where``.
    loss_column: what the table calls the loss.
    named: columns beyond those that the analysis reads to which the user gave a name.
    taken: ``ours = theirs`` for columns that were found under another usual name.
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


def read_other(table: Any, columns: Any, where: Iterable[str], option: str) -> Table:
    """``read_table`` of a further table; an error names the option that gave it."""
    try:
        return read_table(table, columns, where)
    except InputError as error:
        raise InputError(*(f"{option}: {line.removeprefix('table: ')}" for line in error.templates)) from None


def read_table(table: Any, columns: Any = None, where: Iterable[str] = ()) -> Table:
    """Read ``table`` and rename and select its rows.

    table: path of a sweep directory (its results.csv is read) or of a CSV, TSV, JSON (records or columns), JSONL or
    Parquet file; or a list of dicts; or a dict of columns; or a pandas, polars or pyarrow table.
    columns: ``{ours: theirs}`` or strings ``"ours=theirs"``.
    where: expressions over the columns, such as ``"warmup == 400"``; a row stays if all are true.

    Raises InputError for a missing file, format or column, a text where a number belongs, or a bad expression.
    """
    rows, source, digest, directory = _load(table)
    n_read = len(rows)
    renamed = _mapping(columns)
    rows = _rename(rows, renamed)
    taken = understood(list(dict.fromkeys(name for row in rows for name in row)))
    given = dict.fromkeys(name for row in rows for name in row)
    rows = _rename(rows, taken)
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    _require(names, tuple(given), renamed, source, n_read)
    rows = [{name: _blank_if_nan(name, value) for name, value in row.items()} for row in rows]
    for expression in [where] if isinstance(where, str) else where:
        keep = compile_expression(expression, names)
        rows = [row for row in rows if keep(row)]
    if n_read and not rows and where:
        raise InputError(f"{argument('where')}: {' and '.join(where)!r}; keeps none of the {n_read} rows of {source}")
    _check_numbers(rows)
    named = tuple(name for name in renamed if name not in MEASURED)
    said = tuple(f"{ours} = {theirs}" for ours, theirs in taken.items())
    loss = {**taken, **renamed}.get("loss", "loss")
    return Table(rows, names, source, digest, directory, n_read, named, said, loss)


def _blank_if_nan(name: str, value: Any) -> Any:
    """A frame's NaN is a blank, save for the loss of a run that diverged; and NaN equals no other NaN as a key."""
    return None if name not in REQUIRED and isinstance(value, float) and math.isnan(value) else value


def as_number(value: Any) -> Any:
    """``value`` as int or float where it reads as one, None for a blank, else unchanged."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < LARGEST_INT else (math.inf if value > 0 else -math.inf)
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # a NumPy scalar
        return as_number(value.item())
    text = str(value).strip()
    if text.lower() in MISSING_TEXT:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and "e" not in text.lower() and "." not in text else number


def _load(table: Any) -> tuple[list[Row], str, str, str | None]:
    table = _columns_of_frame(table)
    if isinstance(table, Mapping):
        rows = _numbers(_of_columns("table:", table))
        return rows, "a dict of columns", _digest(rows), None
    if isinstance(table, Sequence) and not isinstance(table, str | bytes):
        if not all(isinstance(row, Mapping) for row in table):
            raise InputError("table: a list whose items are not all dicts; must be a list of dicts")
        rows = _numbers([dict(row) for row in table])
        return rows, "a list of rows", _digest(rows), None
    return _load_path(str(table))


def _columns_of_frame(table: Any) -> Any:
    """A pyarrow, polars or pandas table as a dict of columns, known by what it can do; anything else unchanged."""
    if isinstance(table, Mapping | str | PathLike):
        return table
    if hasattr(table, "to_pydict"):  # pyarrow
        return table.to_pydict()
    if not hasattr(table, "to_dict"):
        return table
    if hasattr(table, "collect") and not hasattr(table, "iloc"):  # polars, not read yet
        table = table.collect()
    if not hasattr(table, "columns"):
        raise InputError(f"table: a {type(table).__name__}; must be a table with columns")
    if len(set(table.columns)) < len(table.columns):  # pandas; a dict would keep the last one
        twice = next(name for name in table.columns if list(table.columns).count(name) > 1)
        raise InputError(f"table: column {str(twice)!r} is there twice, a name must be there once")
    return table.to_dict("list") if hasattr(table, "iloc") else table.to_dict(as_series=False)


def _load_path(name: str) -> tuple[list[Row], str, str, str | None]:
    path = paths.reachable(name)
    directory = None
    if path.is_dir():
        directory, path = str(path), path / "results.csv"
        if not path.exists():
            raise InputError(f"table: {name}; a directory needs a results.csv (a sweep directory of `dwsweep run`)")
    elif not path.exists():
        raise InputError(f"table: {name}; no such file or directory")
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"table: {name}; the name must end in one of {', '.join(FORMATS)}, or be a sweep directory")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    try:
        if suffix in (".csv", ".tsv"):
            rows = _read_csv(name, content.decode("utf-8-sig"), "\t" if suffix == ".tsv" else None)
        elif suffix == ".json":
            rows = _read_json(name, content.decode("utf-8-sig"))
        elif suffix == ".parquet":
            import pyarrow.parquet as pq

            rows = pq.read_table(io.BytesIO(content)).to_pylist()
        else:
            rows = _read_json_lines(name, content.decode("utf-8-sig"))
    except InputError:
        raise
    except (UnicodeDecodeError, ValueError, OSError, RecursionError, csv.Error) as error:
        raise InputError(f"table: {name}; not readable as {suffix[1:]}: {str(error).splitlines()[0]}") from error
    return _numbers(rows), str(path), digest, directory


def _of_columns(what: str, columns: Mapping[Any, Any]) -> list[Row]:
    """Rows of a dict of columns; a column is a sequence, or a dict by row label (what pandas writes as JSON)."""
    held = {str(name): list(v.values()) if isinstance(v, Mapping) else v for name, v in columns.items()}
    single = [name for name, values in held.items() if isinstance(values, str) or not _has_length(values)]
    if single:
        raise InputError(f"{what} column {single[0]!r} is one value; must be a list of values, one per row")
    lengths = {name: len(values) for name, values in held.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{what} columns of different lengths {lengths}; all columns need the same length")
    return [dict(zip(held, values, strict=True)) for values in zip(*held.values(), strict=True)]


def _has_length(values: Any) -> bool:
    try:
        len(values)
    except TypeError:  # a number, a generator, a NumPy array of no dimension
        return False
    return True


def _read_json(name: str, text: str) -> list[Row]:
    """Rows of a JSON file: a list of records, or an object of columns."""
    found = json.loads(text)
    if isinstance(found, dict):
        return _of_columns(f"table: {name};", found)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise InputError(f"table: {name}; must be a list of objects, one per run, or an object of columns")
    return found


def _read_json_lines(name: str, text: str) -> list[Row]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # no other line break: strings may hold them
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise InputError(f"table: {name}, line {number}: {line.strip()[:40]!r}; not JSON: {what}") from None
        if not isinstance(row, dict):
            raise InputError(f"table: {name}, line {number}: {line.strip()[:40]!r}; must be a JSON object")
        rows.append(row)
    return rows


def _read_csv(name: str, text: str, delimiter: str | None) -> list[Row]:
    """Rows of a CSV, whose fields a comma, a semicolon or a tab separates: whichever the header has most of."""
    header = text.lstrip().partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter or max(",;\t", key=header.count))
    rows = [dict(row) for row in reader]
    names = [field.strip() for field in reader.fieldnames or ()]
    twice = sorted({field for field in names if names.count(field) > 1})
    if twice:
        raise InputError(f"table: {name}; column {twice[0]!r} is there twice, a name must be there once")
    if any(None in row for row in rows):
        raise InputError(f"table: {name}; a row has more fields than the header")
    return rows


def _numbers(rows: list[Row]) -> list[Row]:
    named = [{str(name).strip(): value for name, value in row.items()} for row in rows]
    return [{name: _as_read(name, value) for name, value in row.items()} for row in named]


def _as_read(name: str, value: Any) -> Any:
    """A number where a text reads as one; but the name of an arm stays a text, be it 7 or none."""
    return value.strip() or None if name == ARM and isinstance(value, str) else as_number(value)


def _digest(rows: list[Row]) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True, default=str).encode()).hexdigest()


def _mapping(columns: Any) -> dict[str, str]:
    if not columns:
        return {}
    if isinstance(columns, Mapping):
        return {str(ours): str(theirs) for ours, theirs in columns.items()}
    pairs = {}
    for item in [columns] if isinstance(columns, str) else columns:
        ours, sign, theirs = str(item).partition("=")
        if not sign or not ours.strip() or not theirs.strip():
            raise InputError(f"{argument('columns', '--column')}: {item!r}; give ours=theirs, such as loss=val_loss")
        pairs[ours.strip()] = theirs.strip()
    return pairs


def _rename(rows: list[Row], mapping: dict[str, str]) -> list[Row]:
    if not mapping:
        return rows
    names = list(dict.fromkeys(name for row in rows for name in row))
    missing = [theirs for theirs in mapping.values() if theirs not in names]
    if missing:
        raise InputError(
            *(
                f"{argument('columns', '--column')}: {name!r}; not in the table{_nearest(name, names)}"
                for name in missing
            )
        )
    back = {theirs: ours for ours, theirs in mapping.items()}
    # a column that a renamed one displaces is dropped: loss=val_loss must win over an old "loss"
    displaced = set(mapping) - set(back)
    return [{back.get(key, key): value for key, value in row.items() if key not in displaced} for row in rows]


def rename(name: str) -> str:
    """How to say that another column is meant."""
    return "rename with " + example(f"columns={{{name!r}: 'THEIRS'}}", f"--column {name}=THEIRS")


def _require(names: Sequence[str], given: Sequence[str], renamed: dict[str, str], source: str, n_rows: int) -> None:
    """given: what the table calls its columns. renamed: what the user named already, and has to name again."""
    if not n_rows:
        raise InputError(f"table: {source}; it has no rows, at least columns {', '.join(REQUIRED)} are needed")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        pairs = {**renamed, **{name: likely(name, given) for name in missing}}
        renaming = ", ".join(f"{ours!r}: {theirs!r}" for ours, theirs in pairs.items())
        command = " ".join(f"--column {ours}={shlex.quote(theirs)}" for ours, theirs in pairs.items())
        path = f"./{source}" if source.startswith("-") else source
        how = example(f"columns={{{renaming}}}", f"dwsweep fit {shlex.quote(path)} {command}")
        if "THEIRS" in pairs.values():
            how += ", THEIRS being its name in the table"
        what = f"column{'s' if len(missing) > 1 else ''} {' and '.join(map(repr, missing))}"
        raise InputError(
            f"table: {source}; {what} {'is' if len(missing) == 1 else 'are'} missing, have {', '.join(given)}; "
            f"rename with {how}"
        )


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f", did you mean {near[0]!r}?" if near else f", it has {', '.join(names)}"


def _shown(value: Any) -> str:
    try:
        return f"{value:g}"
    except (TypeError, ValueError):  # None, or what else stands where a number should
        return str(value)[:40]
    except OverflowError:
        return "a whole number beyond all floats"


def _check_numbers(rows: list[Row]) -> None:
    lines = []
    numbers, counts = of_type("number", "count"), of_type("count")
    for number, row in enumerate(rows, start=1):
        for name in numbers:
            value = row.get(name)
            if isinstance(value, str | bool):
                lines.append(f"{name}: {str(value)[:40]!r} in row {number}; must be a number")
        for name in ("depth", "width"):
            value = row.get(name)
            if value is None or (not isinstance(value, str) and not 1 <= value <= LARGEST[name]):
                lines.append(f"{name}: {_shown(value)} in row {number}; must be a number from 1 to {LARGEST[name]:g}")
            elif name == "depth" and isinstance(value, float) and not value.is_integer():
                lines.append(f"depth: {value:g} in row {number}; must be a whole number of layers")
        for name in counts:
            value = row.get(name)
            # zero or less is a blank: the row has no such count
            if isinstance(value, int | float) and 0 < value < math.inf and not LEAST_COUNT <= value <= LARGEST_COUNT:
                lines.append(
                    f"{name}: {float(value):g} in row {number}; must be from {LEAST_COUNT:g} to {LARGEST_COUNT:g}"
                )
        value = row.get("bits_per_byte")
        if isinstance(value, int | float) and value < 0:
            lines.append(f"bits_per_byte: {value:g} in row {number}; must not be negative")
        value = row.get("learning_rate")
        if isinstance(value, int | float) and not 0 < value < math.inf:
            lines.append(f"learning_rate: {value:g} in row {number}; must be positive and finite")
        value = row.get("loss")
        if isinstance(value, int | float) and math.isfinite(value) and abs(value) > LARGEST_LOSS:
            lines.append(
                f"loss: {value:g} in row {number}; must be nats per token, at most {LARGEST_LOSS:g} "
                "(nan marks a run that diverged)"
            )
    if lines:
        more = [f"table: {len(lines) - 5} more bad values"] if len(lines) > 5 else []
        raise InputError(*lines[:5], *more)


def understood(names: Sequence[str]) -> dict[str, str]:
    """``{ours: theirs}`` for each of our columns that a table lacks and has under a usual name, whatever its case and
    whatever joins its words (``eval/loss``, ``Num-Layers``)."""
    have = {_plain(name): name for name in reversed(names)}
    free = {plain: name for plain, name in have.items() if name not in IN_ANY_CASE}
    # those without an alias first: what an alias takes is theirs under their own name
    known = {**dict.fromkeys(IN_ANY_CASE, ()), **ALIASES}
    ordered = sorted(known.items(), key=lambda item: bool(item[1]))
    found = {ours: next((free[one] for one in (ours, *usual) if one in free), None) for ours, usual in ordered}
    return {ours: theirs for ours, theirs in found.items() if theirs is not None and ours not in names}


def likely(ours: str, names: Sequence[str]) -> str:
    """The table's column that may be ours, by what its name holds; THEIRS where none does."""
    parts = {
        "depth": ("layer", "layers", "depth"),
        "width": ("width", "hidden", "embd", "model"),
        "loss": ("loss", "nll", "ce"),
    }
    found = [name for part in parts.get(ours, ()) for name in names if part in _plain(name).split("_")]
    return found[0] if found else "THEIRS"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
