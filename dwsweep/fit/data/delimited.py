"""Delimited text, and rows of fields from a workbook: the header behind a title or comments, and the columns below."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Any, NamedTuple

from dwsweep import numerals
from dwsweep.errors import InputError
from dwsweep.fit.data.cell import shown
from dwsweep.records.record import unquoted_text

LOOKED_AT = 40  # number of rows among which the header is found
SEPARATORS = "\t,;|"
HEAD = 1 << 22  # limit of characters for these rows, even with 100,000 columns
MOST_COLUMNS = 10_000  # more than any tracker exports: a wider text is no table of runs

Fields = Sequence[Any]


class Cells(NamedTuple):
    """Columns of cells as they were written. separator: between fields. comments: lines among the rows that begin with
    ``#``."""

    columns: Mapping[Any, Sequence[Any]]
    separator: str = ""
    comments: int = 0


def read(what: str, text: str) -> Cells:
    """Cells of delimited text; the separator is the commonest in the header: tab, comma, semicolon, bar or blanks.

    Raises:
        InputError: a name is there twice, a row has more fields than the header. csv.Error: it is no such text.
    """
    text = _of_markdown(text)
    lines = text[:HEAD].splitlines()[:LOOKED_AT]
    if len(text) > HEAD and len(lines) < LOOKED_AT:
        lines = lines[:-1] or lines
    filled = {one: _width(lines, one) for one in SEPARATORS}
    separator = max(SEPARATORS, key=lambda one: filled[one])
    if filled[separator] < 2 and any(len(line.split()) > 2 for line in lines):
        return of_fields(what, _as_long(what, (line.split() for line in text.splitlines())))
    rows = csv.reader(io.StringIO(text, newline=None), delimiter=separator, skipinitialspace=True)
    return of_fields(what, _whole(what, rows, separator), separator)


def of_fields(what: str, rows: Iterable[Fields], separator: str = "") -> Cells:
    """Cells of rows of fields, the header among them, behind a title or comments.

    what: begins the line of an error, ``table: runs.csv;``. separator: mark between the fields.
    """
    rows = iter(rows)
    first = list(islice(rows, LOOKED_AT))
    begin, header = _header(first)
    if len(header) > MOST_COLUMNS:
        header = _trimmed(header)
    if len(header) > MOST_COLUMNS:
        raise InputError(f"{what} {len(header):,} columns; must be at most {MOST_COLUMNS:,}, one row per run")
    names = _names(what, header)
    kept, comments = [], 0
    for row in chain(first[begin:], rows):
        if len(row) > len(header):
            row = _trimmed(row)
        if str(row[0] if row else "")[:1] == "#" and len(_filled(row)) == 1:
            comments += 1
        elif len(row) > len(header):
            raise InputError(f"{what} a row has more fields than the header")
        elif row != header and any(row):  # files put one behind the other repeat the header
            kept.append(row)
    columns = zip_longest(*kept)
    blank = [None] * len(kept)
    return Cells({one: list(map(_unquoted, next(columns, blank))) for one in names}, separator, comments)


def check_names(what: str, names: Iterable[Any]) -> None:
    """Refuse a name that is there twice: a dict of columns would keep only the last.

    Raises:
        InputError: so it is.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{what} column {shown(twice[0])!r} is there twice, a name must be there once")


def _of_markdown(text: str) -> str:
    """Rows of the Markdown table in a text, without their outer bars and the rule below the header; any other text
    unchanged."""
    rule = re.search(r"^(?=.*(?:--|:))[ ]*\|?[ ]*:?-+:?[ ]*(?:\|[ ]*:?-+:?[ ]*)+\|?[ ]*$", text[:HEAD], re.MULTILINE)
    if not rule:
        return text
    rows = [line.strip().replace("**", "") for line in text.splitlines() if "|" in line]
    return "\n".join(line.removeprefix("|").removesuffix("|") for line in rows if line != rule[0].strip())


def _whole(what: str, rows: Iterable[Fields], separator: str) -> Iterator[Fields]:
    """Rows of a text, none of which holds others between two quotes.

    Raises:
        InputError: a quote without its partner has swallowed rows.
    """
    width = 0
    for number, row in enumerate(rows, start=1):
        width = width or len(row) - 1
        for value in row:
            if "\n" in value and any(line.count(separator) >= max(1, width) for line in value.splitlines()[1:]):
                raise InputError(
                    f"{what} the field {value[:30]!r} of row {number:,} holds further rows: a quote without its "
                    "partner; write it twice or leave it out"
                )
        yield row


def _as_long(what: str, rows: Iterable[Fields]) -> Iterator[Fields]:
    """Rows between blanks, none of which is shorter than the longest before it: ``val loss`` counts as two names.

    Raises:
        InputError: one is shorter.
    """
    longest = 0
    for row in rows:
        if row and row[0][:1] != "#" and len(row) < longest and longest > 2:
            raise InputError(
                f"{what} a row has {len(row)} fields between blanks, another {longest}; separate by commas"
            )
        longest = max(longest, len(row) if row and row[0][:1] != "#" else 0)
        yield row


def _width(lines: Sequence[str], separator: str) -> int:
    """Columns of the header under a separator."""
    if not any(separator in line for line in lines):
        return min(1, len(lines))
    try:
        return len(_filled(_header(list(csv.reader(lines, delimiter=separator)))[1]))
    except csv.Error:  # a field of 100,000 characters
        return 0


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
        if fields[0].startswith("#"):
            bare = str(rows[k][0]).strip().lstrip("#").strip()
            names = [bare, *rows[k][1:]] if bare else rows[k]  # a lone # is the name of the first column
            if after and len(_filled(names)) == len(after) and any(map(_is_number, after)):
                return k + 1, names
        elif not (len(after) > len(fields) and not any(map(_is_number, after))):
            return k + 1, rows[k]
    return (1, rows[0]) if rows else (0, [])


def _names(what: str, header: Fields) -> list[str]:
    """Names of the columns; several without one differ in their blanks."""
    names, blanks = [], ""
    for one in header:
        name = shown("" if one is None else one)
        if not name:
            name, blanks = blanks, blanks + " "
        names.append(name)
    check_names(what, names)
    return names


def _trimmed(row: Fields) -> Fields:
    """A row without the blanks behind its last field: a spreadsheet ends each line with a comma per empty column."""
    end = len(row)
    while end and row[end - 1] in ("", None):
        end -= 1
    return row if end == len(row) else row[:end]


def _unquoted(value: Any) -> Any:
    """A cell without the apostrophe that CSV writers put before ``= + - @``."""
    return unquoted_text(value) if value.__class__ is str and value[:1] == "'" else value


def _filled(row: Fields) -> list[str]:
    return [text for value in row if value is not None and (text := str(value).strip())]


def _is_number(text: str) -> bool:
    return numerals.number(text) is not None or numerals.number(text, "comma") is not None
