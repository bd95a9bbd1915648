"""Cells of a table: the header and columns of a delimited text, and texts that become numbers, a column at a time."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise, zip_longest
from typing import Any, NamedTuple

from dwsweep import numerals
from dwsweep.errors import InputError
from dwsweep.fit.data.rows import ARM, Word, is_number, plain
from dwsweep.records.record import unquoted_text
from dwsweep.text import printable

LOOKED_AT = 40  # number of rows among which the header is found
SEPARATORS = "\t,;|"
HEAD = 1 << 22  # limit of characters for these rows, even with 100,000 columns
MOST_ITEMS = 16  # of a list that may be a setting, such as betas
MOST_COLUMNS = 10_000  # more than any tracker exports: a wider text is no table of runs
MISSING = {
    *("", "none", "null", "na", "n/a", "<na>", "nat", "-", "--", "---", "–", "—", "−", "?", "n.a.", "n.d.", "nil"),
    *("#n/a", "#na", "#null!", "#div/0!", "#value!", "#ref!", "#num!", "#name?"),
}
"""Texts and signs of a spreadsheet for a blank, in small letters."""
DIVERGED = {"diverged", "diverge", "divergence", "exploded", "unstable", "overflow"}
DECIMAL_WORDS = {"loss", "nll", "bpb"}  # words of a column whose numbers have decimals
UNITS = {
    **dict.fromkeys(("k", "thousand", "thousands"), ("thousands", 1e3)),
    **dict.fromkeys(("m", "mio", "million", "millions"), ("millions", 1e6)),
    **dict.fromkeys(("b", "bn", "g", "billion", "billions"), ("billions", 1e9)),
    **dict.fromkeys(("t", "trillion", "trillions"), ("trillions", 1e12)),
}
LARGEST_INT = 10**300  # larger integers are read as infinite
_RULE = re.compile(r"^(?=.*(?:--|:))[ ]*\|?[ ]*:?-+:?[ ]*(?:\|[ ]*:?-+:?[ ]*)+\|?[ ]*$", re.MULTILINE)  # of Markdown
_THOUSANDS_OF_A_UNIT = re.compile(r"\s*[0-9]{1,3}\.[0-9]{3}\s*[kmbgtKMBGT]\s*")
_WITH_ERROR = re.compile(r"(.+?)\s*(?:±|\+/-)\s*[0-9][0-9.,e-]*")  # 3.21 ± 0.002
_SECTIONS = re.compile(r"^(?:.*[./])?")  # sections of trackers before a name: summary.total_tokens_M, eval/tokens_B

Columns = dict[str, list[Any]]
"""Column name → values."""
Fields = Sequence[Any]


class RawCells(NamedTuple):
    """Columns of cells as they were written. separator: between fields. comments: lines among the rows that begin with
    ``#``."""

    columns: Mapping[Any, Sequence[Any]]
    separator: str = ""
    comments: int = 0


def delimited(what: str, text: str) -> RawCells:
    """Cells of delimited text, or of its Markdown table; the separator is the commonest in the header: tab, comma,
    semicolon or bar.

    Raises:
        InputError: a name is there twice, a row has more fields than the header, or holds others between two quotes.
        csv.Error: it is no such text.
    """
    if rule := _RULE.search(text[:HEAD]):
        rows = [line.strip().replace("**", "") for line in text.splitlines() if "|" in line]
        text = "\n".join(line.removeprefix("|").removesuffix("|") for line in rows if line != rule[0].strip())
    lines = text[:HEAD].splitlines()[:LOOKED_AT]
    if len(text) > HEAD and len(lines) < LOOKED_AT:
        lines = lines[:-1] or lines

    def width(separator: str) -> int:
        if not any(separator in line for line in lines):
            return min(1, len(lines))
        with contextlib.suppress(csv.Error):  # a field of 100,000 characters
            return len(_filled(_header(list(csv.reader(lines, delimiter=separator)))[1]))
        return 0

    def whole() -> Iterator[Fields]:
        most = 0
        for number, row in enumerate(reader, start=1):
            most = most or max(1, len(row) - 1)
            for value in row:
                if "\n" in value and any(line.count(separator) >= most for line in value.splitlines()[1:]):
                    raise InputError(
                        f"{what} the field {value[:30]!r} of row {number:,} holds further rows: a quote without its "
                        "partner; write it twice or leave it out"
                    )
            yield row

    separator = max(SEPARATORS, key=width)
    reader = csv.reader(io.StringIO(text, newline=None), delimiter=separator, skipinitialspace=True)
    return of_fields(what, whole(), separator)


def of_fields(what: str, rows: Iterable[Fields], separator: str = "") -> RawCells:
    """Cells of rows of fields, the header among them, behind a title or comments.

    what: begins the line of an error, ``table: runs.csv;``. separator: mark between the fields.
    """
    rows = iter(rows)
    first = list(islice(rows, LOOKED_AT))
    begin, header = _header(first)
    if len(header) > MOST_COLUMNS and len(header := _trimmed(header)) > MOST_COLUMNS:
        raise InputError(f"{what} {len(header):,} columns; must be at most {MOST_COLUMNS:,}, one row per run")
    names: list[str] = []
    for one in header:  # several without a name differ in their blanks
        name = shown("" if one is None else one)
        names.append(name or " " * sum(not other.strip() for other in names))
    check_names(what, names)
    kept, comments, most = [], 0, len(_trimmed(header))
    for row in chain(first[begin:], rows):
        surplus = len(row) > len(header)  # its last fields are blank, or a comma of a number has moved them
        row = _trimmed(row) if surplus else row
        if str(row[0] if row else "")[:1] == "#" and len(_filled(row)) == 1:
            comments += 1
        elif surplus and len(row) > most:
            raise InputError(f"{what} a row has more fields than the header")
        elif row != header and any(row):  # files put one behind the other repeat the header
            kept.append(row)
    columns = zip_longest(*kept)
    blank = [None] * len(kept)
    # CSV writers put an apostrophe before = + - @
    held = {
        name: [unquoted_text(v) if v.__class__ is str and v[:1] == "'" else v for v in next(columns, blank)]
        for name in names
    }
    return RawCells(held, separator, comments)


def check_names(what: str, names: Iterable[Any]) -> None:
    """Refuse a name that is there twice: a dict of columns would keep only the last.

    Raises:
        InputError: so it is.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{what} column {shown(twice[0])!r} is there twice, a name must be there once")


def _header(rows: Sequence[Fields]) -> tuple[int, Fields]:
    """(row at which the data begin, header) of the first rows of a table.

    A row is passed over where it begins with ``#``, unless numbers of as many columns follow it; and where fewer of its
    fields are filled than of the row after it, in which no field is a number: that is the header.
    """
    filled = [_filled(row) for row in rows]
    for k, fields in enumerate(filled):
        if not fields:
            continue
        after = next((one for one in filled[k + 1 :] if one and not one[0].startswith("#")), [])
        numbers = any(numerals.number(text) is not None or numerals.number(text, "comma") is not None for text in after)
        if fields[0].startswith("#"):
            bare = str(rows[k][0]).strip().lstrip("#").strip()
            names = [bare, *rows[k][1:]] if bare else rows[k]  # a lone # is the name of the first column
            if after and len(_filled(names)) == len(after) and numbers:
                return k + 1, names
        elif len(after) <= len(fields) or numbers:
            return k + 1, rows[k]
    return (1, rows[0]) if rows else (0, [])


def _trimmed(row: Fields) -> Fields:
    """A row without the blanks behind its last field: a spreadsheet ends each line with a comma per empty column."""
    end = len(row)
    while end and row[end - 1] in ("", None):
        end -= 1
    return row if end == len(row) else row[:end]


def _filled(row: Fields) -> list[str]:
    return [text for value in row if value is not None and (text := str(value).strip())]


# Texts as numbers


def typed(held: Mapping[Any, Sequence[Any]], what: str = "table:", separator: str = "") -> Columns:
    """Columns with numerals as numbers. All names and values of a table pass here and are made printable, so that none
    steers a terminal; the name of an arm stays a text, even if it is 7 or "none".

    what: begins the line of an error. separator: mark between the fields of a text.

    Raises:
        InputError: numbers read both ways, see ``_decimal_commas``; decimal commas separate fields too.
    """
    opened = _opened(held)
    commas = _decimal_commas(opened, what, separator)
    found = {name: _column(name, values, "comma" if name in commas else "point") for name, values in opened.items()}
    if not any(value is not None for value in found.get("", ())):
        found.pop("", None)  # a spreadsheet's empty column
    for name, after in pairwise(found) if separator == "," else ():
        # 3,21 without quotes became a loss of 3 and a spare column
        whole, rest = ([value for value in found[one] if value is not None] for one in (name, after))
        all_whole = all(value.__class__ is int and value >= 0 for value in (*whole, *rest))
        if _is_loss(name) and len(whole) > 1 and len(rest) > 1 and all_whole:
            raise InputError(
                f"{what} column {name!r} has whole numbers ({whole[0]}) and the next one too ({rest[0]}): is the loss "
                f"{whole[0]}.{rest[0]}, its decimal comma a separator too? Write it with a point, or in quotes"
            )
    return found


def as_number(value: Any, mark: numerals.Mark = "point") -> Any:
    """``value`` as int or float where it reads as one, None for a blank, else unchanged."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < LARGEST_INT else (math.inf if value > 0 else -math.inf)
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # a NumPy scalar, or the blank of a masked array
        return None if bool(getattr(value, "mask", False)) else as_number(value.item())
    text = str(value).strip()
    if mark == "point" or not {".", ","} & {*text}:
        with contextlib.suppress(ValueError):
            number = float(text)
            return int(text) if number.is_integer() and "e" not in text.lower() and "." not in text else number
    if (found := numerals.number(text, mark)) is not None:
        return as_number(found)
    if with_error := _WITH_ERROR.fullmatch(text):
        value = as_number(with_error[1], mark)
        return value if is_number(value) else text
    return None if text.lower() in MISSING else text


def losses(values: Sequence[Any]) -> list[Any]:
    """Column of losses in which words without a digit (FAIL, out of memory) are a ``Word``, the reason why the run has
    none; a run that diverged has an infinite loss."""
    found = list(values)
    for k, value in enumerate(values):
        if value.__class__ is str and not any(map(str.isdigit, value)):
            found[k] = math.inf if value.lower().strip(" .!()[]") in DIVERGED else Word(value)
    return found


def of_rows(rows: Sequence[Mapping[Any, Any]]) -> Columns:
    """Columns of rows, in the order in which their names come; None if a row has none."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def shown(name: Any) -> str:
    """The name of a column without blanks around it and without characters that steer a terminal."""
    return printable(str(name).strip())


def parted(name: str) -> tuple[str, str]:
    """(plain name without its unit, the unit); empty without one."""
    words = plain(_SECTIONS.sub("", name)).split("_")
    if len(words) < 2 or words[-1] not in UNITS:
        return "", ""
    stem = words[:-2] if words[-2] == "in" else words[:-1]
    return "_".join(stem), words[-1]


def _opened(held: Mapping[Any, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Columns by their shown names; a column of dicts, or of dicts written as texts, as trackers give the settings of
    a run, becomes one per key (config.n_layer)."""
    found: dict[str, Sequence[Any]] = {}
    for name, values in held.items():
        first = next((value for value in values if value is not None), None)
        if isinstance(first, Mapping) or (first.__class__ is str and first[:1] == "{"):
            inner: list[Any] = []
            for value in values:
                for read in (json.loads, ast.literal_eval) if value.__class__ is str else ():
                    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                        value = read(value)
                        break
                inner.append({} if value is None else value)
            if any(inner) and all(isinstance(value, Mapping) for value in inner):
                columns = of_rows([dict(flat(value, f"{name}.")) for value in inner])
                found |= {shown(key): column for key, column in columns.items()}
                continue
        found[shown(name)] = values
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Plain values by dotted names, short lists as texts; histories, and pictures and tables of W&B, are left out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from () if "_type" in value else flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            if len(value) <= MOST_ITEMS:
                yield f"{prefix}{key}", str(value)
        else:
            yield f"{prefix}{key}", value


def _column(name: str, values: Sequence[Any], mark: numerals.Mark) -> list[Any]:
    """Values of a column; each text is read once. 510M of a column of millions is 510 of them."""
    _, factor = UNITS.get(parted(name)[1], ("", 0.0))

    def cell(value: Any) -> Any:
        text = value.__class__ is str
        if name == ARM and isinstance(value, str):
            return printable(value.strip()) or None
        found = as_number(value, mark)
        if factor and text and is_number(found) and value.strip()[-1:].isalpha():
            return found / factor
        return printable(found) if found.__class__ is str else found

    texts = {text: cell(text) for text in {value for value in values if value.__class__ is str}}
    return [texts[value] if value.__class__ is str else cell(value) for value in values]


def _decimal_commas(held: Mapping[str, Iterable[Any]], what: str, separator: str) -> set[str]:
    """Columns with decimal commas. A column shows it by one number such as ``3,21``; one whose numbers read both ways
    (``3,210``) follows the other columns, and a semicolon between the fields. A loss of thousands of nats is none, so
    ``3,210`` and ``3.210`` of a loss have decimals."""
    kinds: dict[str, set[str]] = {}
    example: dict[str, str] = {}
    for name, values in held.items():
        texts = {value for value in values if value.__class__ is str and ("," in value or "." in value)}
        texts = {_WITH_ERROR.sub(r"\1", text) if "±" in text or "+/-" in text else text for text in texts}
        kinds[name] = {kind for text in texts if (kind := numerals.shows(text))}
        if kinds[name] == {"either"} and _is_loss(name) and not any("," in text for text in texts):
            kinds[name] = {"point"}
        if kinds[name] == {"either"}:
            example[name] = min((text for text in texts if numerals.shows(text)), key=lambda one: ("," not in one, one))
    commas = {name for name, found in kinds.items() if "comma" in found and "point" not in found}
    points = any("point" in found for found in kinds.values())
    decimal = [name for name, text in example.items() if "," in text and (separator == ";" or _is_loss(name))]
    asked = {name: example[name] for name in (*decimal, *(example if commas else ())) if points}
    commas.update(decimal if points else (*decimal, *(example if commas or decimal else ())))
    for name in commas:
        for text in (one for one in held[name] if one.__class__ is str and _THOUSANDS_OF_A_UNIT.fullmatch(one)):
            asked[name] = text
    for name, text in asked.items():  # one table of two marks: neither is the rule for a number that reads both ways
        mark = "," if "," in text else "."
        raise InputError(
            f"{what} column {name!r} has {text!r}, and the table has numbers or separators of the other kind: is it "
            f"{text.replace(mark, '.')} or {text.replace(mark, '')}? Write it with a decimal point, or without a mark"
        )
    return commas


def _is_loss(name: str) -> bool:
    return not DECIMAL_WORDS.isdisjoint(re.split(r"[^a-z]+", name.lower()))
