"""Any table of runs, read into plain rows: a sweep directory, CSV, TSV, JSON, JSONL or Parquet, rows or columns.

Usual names of columns in other projects are understood, and the output says what was taken for what.
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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError, argument, example
from dwsweep.fit.rows import ARM, Row, compile_expression, why_no_loss
from dwsweep.records.columns import ALIASES, IN_ANY_CASE, REQUIRED, named, of_type
from dwsweep.records.record import each_key_once
from dwsweep.text import BITS, BITS_PER_TOKEN, NATS, printable

Columns = dict[str, list[Any]]

MEASURED = {*named("size", "outcome", "identity"), "learning_rate"}  # may differ between the runs of a cell
MISSING_TEXT = {"", "none", "null", "na", "n/a", "<na>", "nat"}
LARGEST = {"depth": 1e5, "width": 1e9}  # beyond any net, and far inside the range of floats
LEAST_COUNT, LARGEST_COUNT = 1e-6, 1e30  # seconds and tokens are counts here too
LARGEST_INT = 10**300  # what a float still holds
LARGEST_LOSS = 1e6
ROWS_AT_A_TIME = 50_000
COUNTS = frozenset(of_type("count"))
FINISHED = {"finished", "completed", "complete", "success", "succeeded"}  # what trackers call a run that is done
CONFIG = {"config", "params", "hparams", "args", "model", "trainer", "optimizer"}  # where trackers put settings
SUMMARY = {"summary", "metrics", "final", "throughput"}  # … what a run ended with, or was
EVAL = {"eval", "val"}  # … and its held-out losses
BUDGETS = {"flops_budget", "compute_budget", "budget"}  # what a run was to spend
MOST_PARAMETERS = 1e13  # beyond any net: a budget above it is of FLOPs
UNITS = {"nats": NATS, "bits": BITS_PER_TOKEN, "bpb": BITS}
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
    unit: of the losses. left_out: why runs have no loss that counts → how many.
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


def read_other(table: Any, columns: Any, where: Iterable[str], option: str, unit: str | None = None) -> Table:
    """``read_table`` of a further table; an error names the option that gave it."""
    try:
        return read_table(table, columns, where, unit)
    except InputError as error:
        raise InputError(*(f"{option}: {line.removeprefix('table: ')}" for line in error.templates)) from None


def read_table(table: Any, columns: Any = None, where: Iterable[str] = (), unit: str | None = None) -> Table:
    """Read ``table`` and rename and select its rows.

    table: path of a sweep directory (its results.csv is read) or of a CSV, TSV, JSON (records or columns), JSONL or
    Parquet file; or a list of dicts; or a dict of columns; or a pandas, polars or pyarrow table.
    columns: ``{ours: theirs}`` or strings ``"ours=theirs"``.
    where: expressions over the columns, such as ``"warmup == 400"``; a row stays if all are true.
    unit: of the losses, one of ``UNITS``; default: what the name of their column says, else nats.

    Raises InputError for a missing file, format or column, a text where a number belongs, or a bad expression.
    """
    if unit is not None and unit not in UNITS:
        raise InputError(f"{argument('unit')}: {unit!r}; must be one of {', '.join(UNITS)}")
    held, source, digest, directory = _load(table)
    n_read = len(next(iter(held.values()), ()))
    renamed = _mapping(columns)
    held = _rename(held, renamed)
    given = tuple(held)
    taken = understood(given)
    known = {*held, *taken}
    asked = [n for n in given if _plain(n).removeprefix("config_") in BUDGETS and n not in taken.values()]
    spent = [value for name in asked[:1] for value in held[name] if isinstance(value, int | float)]
    if "train_flops" not in known and min(spent, default=0.0) > MOST_PARAMETERS:  # of compute: no net has as many
        taken["train_flops"] = asked[0]
    if "bits_per_byte" in known and "loss" not in known:
        taken["loss"] = taken.pop("bits_per_byte", "bits_per_byte")
    held = _rename(held, taken)
    _require(tuple(held), given, renamed, source, n_read)
    for name, values in held.items():
        if name not in REQUIRED:  # a frame's NaN is a blank, and NaN equals no other NaN as a key
            held[name] = [None if value != value else value for value in values]
    if "status" in held:
        held["status"] = ["done" if str(v).lower() in FINISHED else v for v in held["status"]]
    rows = [dict(zip(held, values, strict=True)) for values in zip(*held.values(), strict=True)]
    for expression in [where] if isinstance(where, str) else where:
        keep = compile_expression(expression, tuple(held))
        rows = [row for row in rows if keep(row)]
    if n_read and not rows and where:
        raise InputError(f"{argument('where')}: {' and '.join(where)!r}; keeps none of the {n_read} rows of {source}")
    reasons = [why_no_loss(row) for row in rows]
    left_out = Counter(filter(None, reasons))
    sized = [row["depth"] is not None and row["width"] is not None for row in rows]
    rows = [row for row, reason, has_size in zip(rows, reasons, sized, strict=True) if has_size or not reason]
    _check_numbers(rows, tuple(held))
    named = tuple(name for name in renamed if name not in MEASURED)
    said = tuple(f"{ours} = {theirs}" for ours, theirs in taken.items())
    loss = {**taken, **renamed}.get("loss", "loss")
    of_loss = UNITS[unit] if unit else unit_named(loss)
    return Table(rows, tuple(held), source, digest, directory, n_read, named, said, loss, of_loss, dict(left_out))


def unit_named(column: str) -> str:
    """Unit of the losses, by the name of their column; nats per token where it says nothing."""
    words = _plain(column).split("_")
    if "bpb" in words or "bits_per_byte" in _plain(column):
        return BITS
    return BITS_PER_TOKEN if "bits" in words else NATS


def as_number(value: Any) -> Any:
    """``value`` as int or float where it reads as one, None for a blank, else unchanged."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < LARGEST_INT else (math.inf if value > 0 else -math.inf)
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # a NumPy scalar
        return as_number(value.item())
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return None if text.lower() in MISSING_TEXT else text
    return int(number) if number.is_integer() and "e" not in text.lower() and "." not in text else number


def _load(table: Any) -> tuple[Columns, str, str, str | None]:
    table = _columns_of_frame(table)
    if isinstance(table, Mapping):
        held, source = _numbers(_of_columns("table:", table)), "a dict of columns"
    elif isinstance(table, Sequence) and not isinstance(table, str | bytes):
        if not all(isinstance(row, Mapping) for row in table):
            raise InputError("table: a list whose items are not all dicts; must be a list of dicts")
        held, source = _numbers(_of_rows(table)), "a list of rows"
    else:
        return _load_path(str(table))
    return held, source, hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest(), None


def _of_rows(rows: Sequence[Mapping[Any, Any]]) -> Columns:
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


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


def _load_path(name: str) -> tuple[Columns, str, str, str | None]:
    path = paths.reachable(name)
    directory = None
    if path.is_dir():
        directory, path = str(path), path / "results.csv"
        if not path.exists():
            raise InputError(f"table: {name}; a directory needs a results.csv (a sweep directory of `dwsweep run`)")
    elif not path.exists():
        raise InputError(f"table: {name}; no such file or directory")
    elif not path.is_file():
        raise InputError(f"table: {name}; a pipe or a device, must be a file or a sweep directory")
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"table: {name}; the name must end in one of {', '.join(FORMATS)}, or be a sweep directory")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    try:
        if suffix in (".csv", ".tsv"):
            held = _read_csv(name, content.decode("utf-8-sig"))
        elif suffix == ".json":
            held = _numbers(_read_json(name, content.decode("utf-8-sig")))
        elif suffix == ".parquet":
            held = _numbers(_read_parquet(content))
        else:
            held = _numbers(_of_rows(_read_json_lines(name, content.decode("utf-8-sig"))))
    except InputError:
        raise
    except (UnicodeDecodeError, ValueError, OSError, RecursionError, csv.Error) as error:
        raise InputError(f"table: {name}; not readable as {suffix[1:]}: {str(error).splitlines()[0]}") from error
    return held, str(path), digest, directory


def _read_parquet(content: bytes) -> Columns:
    """Columns of plain values and of structs (config.n_layer); lists and maps hold nothing that a fit reads, and take
    long."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(content))
    plain = [one.name for one in file.schema_arrow if pa.types.is_struct(one.type) or not pa.types.is_nested(one.type)]
    return file.read(columns=plain).to_pydict()


def _of_columns(what: str, columns: Mapping[Any, Any]) -> Columns:
    """Columns of one length; a column is a sequence, or a dict by row label (what pandas writes as JSON)."""
    held = {str(name): list(v.values()) if isinstance(v, Mapping) else v for name, v in columns.items()}
    single = [name for name, values in held.items() if isinstance(values, str) or not _has_length(values)]
    if single:
        raise InputError(f"{what} column {single[0]!r} is one value; must be a list of values, one per row")
    lengths = {name: len(values) for name, values in held.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{what} columns of different lengths {lengths}; all columns need the same length")
    return {name: list(values) for name, values in held.items()}


def _has_length(values: Any) -> bool:
    try:
        len(values)
    except TypeError:  # a number, a generator, a NumPy array of no dimension
        return False
    return True


def _read_json(name: str, text: str) -> Columns:
    """Columns of a JSON file: a list of records, or an object of columns."""
    found = json.loads(text, object_pairs_hook=each_key_once)
    if isinstance(found, dict):
        return _of_columns(f"table: {name};", found)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise InputError(f"table: {name}; must be a list of objects, one per run, or an object of columns")
    return _of_rows(found)


def _read_json_lines(name: str, text: str) -> list[Row]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # no other line break: strings may hold them
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=each_key_once)
        except ValueError as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise InputError(f"table: {name}, line {number}: {line.strip()[:40]!r}; not JSON: {what}") from None
        if not isinstance(row, dict):
            raise InputError(f"table: {name}, line {number}: {line.strip()[:40]!r}; must be a JSON object")
        rows.append(row)
    return rows


def _read_csv(name: str, text: str) -> Columns:
    """Columns of a CSV or TSV, whose fields a comma, a semicolon or a tab separates: what the header has most of."""
    header = text.lstrip().partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=max("\t,;", key=header.count))
    lines = filter(None, reader)
    names = [printable(one.strip()) for one in next(lines, [])]
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise InputError(f"table: {name}; column {twice[0]!r} is there twice, a name must be there once")
    held: Columns = {one: [] for one in names}
    while rows := list(islice(lines, ROWS_AT_A_TIME)):
        if any(len(row) > len(names) for row in rows):
            raise InputError(f"table: {name}; a row has more fields than the header")
        columns = zip_longest(*rows)
        texts = {one: list(next(columns, [None] * len(rows))) for one in names}
        for one, column in _numbers(texts).items():
            held[one] += column
    return held


def _numbers(held: Mapping[Any, list[Any]]) -> Columns:
    """The columns as numbers where texts read as some. What a table calls its columns and holds in them enters here,
    so that nothing of it steers a terminal; the name of an arm stays a text, be it 7 or none. A column of dicts is as
    many as they have keys (config.n_layer)."""
    found: Columns = {}
    for name, values in held.items():
        ours = printable(str(name).strip())
        inner = [{} if value is None else value for value in values]
        if any(inner) and all(isinstance(value, Mapping) for value in inner):
            found |= {f"{ours}.{key}": column for key, column in _numbers(_of_rows(inner)).items()}
            continue
        read: dict[Any, Any] = {}
        column = []
        for value in values:
            if value.__class__ is not str:
                column.append(value if value.__class__ is float else _as_read(ours, value))
                continue
            if value not in read:
                read[value] = _as_read(ours, value)
            column.append(read[value])
        found[ours] = column
    return found


def _as_read(name: str, value: Any) -> Any:
    read = value.strip() or None if name == ARM and isinstance(value, str) else as_number(value)
    return printable(read) if isinstance(read, str) else read


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


def _rename(held: Columns, mapping: dict[str, str]) -> Columns:
    missing = [theirs for theirs in mapping.values() if theirs not in held]
    if missing:
        name = argument("columns", "--column")
        raise InputError(*(f"{name}: {one!r}; not in the table{_nearest(one, tuple(held))}" for one in missing))
    back = {theirs: ours for ours, theirs in mapping.items()}
    # a column that a renamed one displaces is dropped: loss=val_loss must win over an old "loss"
    displaced = set(mapping) - set(back)
    return {back.get(name, name): values for name, values in held.items() if name not in displaced}


def rename(name: str) -> str:
    """Advice on how to name another column."""
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
    if isinstance(value, str | bool):
        return repr(str(value)[:40])
    try:
        return f"{value:g}"
    except (TypeError, ValueError):  # None, or what else stands where a number should
        return str(value)[:40]
    except OverflowError:
        return "a whole number beyond all floats"


def _check_numbers(rows: list[Row], names: Sequence[str]) -> None:
    found = []
    for order, name in enumerate(one for one in of_type("number", "count") if one in names):
        kinds = {(type(value), value) for row in rows if (value := row.get(name)) is not None or name in LARGEST}
        bad = {kind: must for kind in kinds if (must := _must(name, kind[1]))}
        for number, value in enumerate((row.get(name) for row in rows) if bad else (), start=1):
            if (kind := (type(value), value)) in bad:
                found.append((number, order, f"{name}: {_shown(value)} in row {number}; must {bad[kind]}"))
    lines = [line for _, _, line in sorted(found)]
    if lines:
        more = [f"table: {len(lines) - 5} more bad values"] if len(lines) > 5 else []
        raise InputError(*lines[:5], *more)


def _must(name: str, value: Any) -> str:
    """What a number of the column must be and ``value`` is not; empty where nothing is wrong."""
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


def understood(names: Sequence[str]) -> dict[str, str]:
    """``{ours: theirs}`` for each of our columns that a table lacks and has under a usual name, whatever its case and
    whatever joins its words (``eval/loss``, ``Num-Layers``), also where a tracker keeps it (``config.n_layer``)."""
    free = {plain: name for name in reversed(names) if name not in IN_ANY_CASE and (plain := _plain(name))}
    settings, ends = dict(free), dict(free)
    for plain, name in list(free.items()):
        words = plain.removesuffix("_value").split("_")
        while len(words) > 1 and words[0] in CONFIG | SUMMARY | EVAL:
            place = words.pop(0)
            if place not in EVAL:
                settings.setdefault("_".join(words), name)
            if place not in CONFIG:
                ends.setdefault("_".join(words), name)
    outcomes = named("outcome")
    # those without an alias first: what an alias takes is theirs under their own name
    known = {**dict.fromkeys(IN_ANY_CASE, ()), **ALIASES}
    found = {}
    for ours, usual in sorted(known.items(), key=lambda item: bool(item[1])):
        among = ends if ours in outcomes else settings
        theirs = next((among[one] for one in (ours, *usual) if one in among), None)
        if theirs is not None and ours not in names:
            found[ours] = theirs
    return found


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
