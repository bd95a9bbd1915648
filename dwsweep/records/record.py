"""Reading and writing of records: one validating reader and one writer for all files of a sweep directory.

A record is a frozen dataclass. Its file is a JSON object with the fields' names as keys, or a row of a CSV with the
fields as columns, in their order. Unknown keys are passed over, since a later version may add some; fields that default
to None are left out of the file while they are None.

The last key of a JSON object is ``content_sha256``, the hash of the text without that key, compared on reading: a file
that changed after it was written is damaged. Files of earlier versions have no such key and are still read.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from dwsweep import paths
from dwsweep.errors import InputError

Kind = TypeVar("Kind")

LEAVES = {str, int, bool, type(None)}
MOST_DIGITS = 300  # digit limit of a whole number: JSON has none, and floats end here

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=255)]  # name of a run or a pack
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def one_of(*names: str) -> AfterValidator:
    """Type of a text that is one of these."""

    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value

    return AfterValidator(check)


def holding(**kinds: type) -> AfterValidator:
    """Type of an object of any keys; these keys, where present, hold texts or positive integers."""

    def check(content: dict[str, Any]) -> dict[str, Any]:
        for key, kind in kinds.items():
            value = content.get(key)
            if key in content and (type(value) is not kind or (isinstance(value, int) and value <= 0)):
                raise ValueError(f"{key} must be {'a text' if kind is str else 'a positive integer'}")
        return content

    return AfterValidator(check)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _finite_amount(value: float | None) -> float | None:
    if (found := _finite(value)) is not None and found < 0:
        raise ValueError("must not be negative")
    return found


Number = Annotated[float | None, AfterValidator(_finite)]
"""Number, or None if unknown: JSON has no NaN, so a non-finite value reads as None."""
Amount = Annotated[float | None, AfterValidator(_finite_amount)]
"""Non-negative number, or None if unknown: seconds, a rate."""


class Damaged(InputError):
    """Damaged file; the message names the file, the field and the fault."""

    def __init__(self, name: str, why: str) -> None:
        self.why = why
        super().__init__(f"{name}: {why}")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Part of a fit: plain values only, None for a non-finite number. Read by attribute or as ``row["status"]``;
    ``dict(row)`` has its columns."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float):
                object.__setattr__(self, name, _finite(value))

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Name the columns."""
        return columns_of(cast(Any, cls))

    def to_dict(self) -> dict[str, Any]:
        """JSON form of the part for fit.json."""
        return to_dict(self)


@cache  # rows of results.csv and files of thousands of runs ask for it
def columns_of(kind: Any) -> tuple[str, ...]:
    """Name the columns of a record's CSV: its fields, in their order."""
    return tuple(field.name for field in fields(kind))


def csv_text(rows: Iterable[Any], kind: Any, number: Callable[[float], str] = "{:.10g}".format) -> str:
    """Write records of a ``kind`` as CSV, its fields as columns. ``number`` formats a float."""
    return table_text(map(vars, rows), columns_of(kind), number)


def table_text(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], number: Callable[[float], str] = "{:.10g}".format
) -> str:
    """Write rows as CSV; None and missing values are blank. ``number`` formats a float."""

    def shown(value: Any) -> Any:
        if isinstance(value, str):
            return quoted_text(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        return number(value) if isinstance(value, float) else value

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([shown(row.get(name)) for name in columns] for row in rows)
    return buffer.getvalue()


_FORMULA = re.compile(r"'*[=+\-@\t\r]")  # signs with which a spreadsheet formula begins
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-](inf|nan)")


def quoted_text(text: str) -> str:
    """Cell of a CSV for a text: an apostrophe precedes a text that begins like a formula and is no number."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unquoted_text(cell: str) -> str:
    """Text of a cell: the inverse of ``quoted_text``."""
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell[1:]) else cell


SEAL = "content_sha256"  # last key of the JSON object of a record
_SEALED = re.compile(rb'\n "([^"\n]{1,40})": "([^"\n]{64})"\n\}\n')


def sealed(text: str) -> str:
    """Text of a JSON object, indented by one, with its own hash as the last key."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    body = text.rstrip("\n").removesuffix("}").rstrip("\n")
    return f'{body}{"," * (body != "{")}\n "{SEAL}": "{digest}"\n}}\n'


def fault_of_seal(data: bytes, known: Collection[str] = ()) -> str:
    """Reason why the bytes of a record differ from those written; empty if they are, or have no hash because an
    earlier version wrote them. ``known``: keys that the record has."""
    line = data.rfind(b'\n "')  # the last key
    found = _SEALED.fullmatch(data, line) if line >= 0 else None
    if found and found[1] == SEAL.encode():
        start = data[:line].removesuffix(b",")
        original = b"{}\n" if start == b"{" else start + b"\n}\n"
        if hashlib.sha256(original).hexdigest().encode() == found[2]:
            return ""
    elif not (SEAL.encode() in data or (found and found[1].decode(errors="replace") not in known)):
        return ""
    return f"{SEAL}: is not the hash of the content; the file was changed or damaged after it was written"


def read(path: Any, kind: type[Kind], name: str | None = None, *, strict: bool = True) -> Kind | None:
    """Read the record, or a list of them, in a file; None if there is no file. ``name``: of the path in errors.

    Raises:
        Damaged: the file is not JSON of that kind, or a field is missing or has a value that it cannot have; or it was
        changed since it was written.
        OSError: the file cannot be read.
    """
    shown = name or str(path)
    try:
        data = paths.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise Damaged(shown, "is a folder") from None
    except paths.NotAFile as error:
        raise Damaged(shown, str(error.strerror)) from None
    try:
        found = _adapter(kind).validate_json(data, strict=strict)
    except ValidationError as error:
        raise Damaged(shown, _describe(error)) from None
    fault = fault_of_seal(data, columns_of(kind) if is_dataclass(kind) else ()) if data[:1] == b"{" else ""
    if fault or SEAL.encode() not in data:  # a file with its own hash is ours and has each key once
        try:
            _decoder.decode(data.decode())
        except ValueError as error:
            raise Damaged(shown, str(error)) from None
    if fault:
        raise Damaged(shown, fault)
    return found


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make the object, as ``object_pairs_hook`` of ``json.loads``, which by itself takes the last value of a key.

    Raises:
        ValueError: a key is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is there twice; must be there once")
    return found


def _of_some_digits(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:20]}… has {len(text):,} digits; allowed: at most {MOST_DIGITS}")
    return int(text)


# json.loads would make one for each of thousands of files
_decoder = json.JSONDecoder(object_pairs_hook=each_key_once, parse_int=_of_some_digits)


def parse(kind: type[Kind], content: Mapping[str, Any]) -> Kind:
    """Read the record with this content, as one process sends it to another.

    Raises:
        InputError: a field is missing or has a value that it cannot have.
    """
    try:
        return _adapter(kind).validate_python(dict(content))
    except ValidationError as error:
        raise InputError(f"{kind.__name__}: {_describe(error)}") from None


def write(path: Any, content: Any, *, durable: bool = False) -> None:
    """Write a record, or a list of records, atomically. ``durable``: wait until it is on the disk.

    Raises:
        OSError: the disk is full or the folder cannot be written; the old content is still there.
    """
    paths.write_atomic(path, text_of(content), durable=durable)


def text_of(content: Any) -> str:
    """Text of the file of a record, or of a list of records: valid JSON, null for missing numbers, each list of numbers
    on one line; an object has its hash."""
    found = [to_dict(one) for one in content] if isinstance(content, list | tuple) else to_dict(content)
    text = _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", _indented(found)) + "\n"
    return sealed(text) if isinstance(found, dict) else text


def line_of(content: Mapping[str, Any]) -> str:
    """Keys of a record as one line of JSON, in ASCII, since some readers end lines at other characters too."""
    return json.dumps(plain(content), allow_nan=False, default=str)


def to_dict(record: Any) -> dict[str, Any]:
    """Content of the record's file: without fields that are None by default, except in rows of a table."""
    if isinstance(record, Record) or not is_dataclass(record):
        return cast(dict[str, Any], plain(record))
    return {
        field.name: plain(getattr(record, field.name))
        for field in fields(record)
        if not (field.default is None and getattr(record, field.name) is None)
    }


def plain(value: Any) -> Any:
    """JSON form of a value, all the way down: records as dicts, tuples and arrays as lists, a non-finite number as
    None."""
    if type(value) in LEAVES:  # most values are leaves, and the checks below are slow
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in columns_of(type(value))}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if set(map(type, value)) == {float}:
            return [item if math.isfinite(item) else None for item in value]
        return [plain(item) for item in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else value


# json.dumps would make an encoder per call
_encoded = json.JSONEncoder(allow_nan=False, ensure_ascii=False, default=str).encode
_NUMBERS = {int, float, type(None)}
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, as in some file names: UTF-8 has none


def _indented(value: Any, end: str = "\n") -> str:
    """``value`` as JSON, one space deeper at each level. ``end``: text before the closing bracket."""
    if not value or not isinstance(value, dict | list):
        return _encoded(value)
    if isinstance(value, list) and set(map(type, value)) <= _NUMBERS:
        return f"[ {_encoded(value)[1:-1]} ]"
    deeper = end + " "
    if isinstance(value, dict):
        return f"{{{','.join(f'{deeper}{_encoded(key)}: {_indented(v, deeper)}' for key, v in value.items())}{end}}}"
    return f"[{','.join(deeper + _indented(v, deeper) for v in value)}{end}]"


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def _describe(error: ValidationError) -> str:
    """Describe the first error: field, value, allowed values."""
    first, *others = error.errors(include_url=False)
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    message = str(first["msg"]).removeprefix("Value error, ").replace("Input should", "must", 1)
    if first["type"] == "json_invalid":
        return "is not valid JSON"
    if first["type"] == "missing":
        text = f"{field}: is missing"
    elif first["type"] in ("dataclass_type", "dataclass_exact_type", "dict_type", "model_type"):
        text = f"{field}: must be an object".removeprefix(": ")
    else:
        value = first.get("input")
        shown = "" if isinstance(value, Mapping) else repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        text = "; ".join(part for part in (shown, message[:1].lower() + message[1:]) if part)
        text = f"{field}: {text}" if field else text
    return text + (f" (and {len(others)} more)" if others else "")
