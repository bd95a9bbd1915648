"""Text fields: the field of a JSON record, or the column of a table, that holds the text."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from typing import Any

from dwsweep.data.records import RecordBlock, Skipped, decode
from dwsweep.errors import InputError

TEXT_FIELDS = ("text", "content", "article", "body", "document", "maintext")
"""Names of text fields, tried in this order if ``data.text_field`` is not given."""


def json_records(block: RecordBlock, skipped: Skipped) -> Iterator[tuple[dict[str, Any], str]]:
    """JSON objects of a block, one per line, with their places; other lines are counted as bad."""
    at = block.offset
    for line in block.data.split(b"\n"):
        where, at = f"{block.path}, byte {at}", at + len(line) + 1
        if not line.strip():
            continue
        text = decode(line, where, skipped)
        if text is None:
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield record, where
        else:
            skipped.add_bad("not a JSON object", where)


def field_of(record: dict[str, Any], text_field: str | None, where: str, skipped: Skipped) -> str | None:
    """Text of a record; None, counted as bad, if the field is missing or not a string."""
    names = (text_field,) if text_field else TEXT_FIELDS
    for name in names:
        if isinstance(record.get(name), str):
            return record[name]
    fields = ", ".join(map(str, record)) or "none"
    skipped.add_bad(f"no text field ({' or '.join(names)})", f"{where}; fields found: {fields}")
    return None


def text_column(kinds: Mapping[str, str], texts: Container[str], wanted: str | None, what: str) -> str:
    """Name of the text column: ``wanted``, else the first of TEXT_FIELDS, if it is one of ``texts``.

    ``kinds``: kind of every column by name. ``what``: kind and place of a text column, for the message.

    Raises:
        InputError: no column holds text; the message names the columns.
    """
    names = (wanted,) if wanted else TEXT_FIELDS
    for name in names:
        if name in texts:
            return name
    found = ", ".join(f"{name} ({kind})" for name, kind in kinds.items()) or "none"
    raise InputError(f"data.text_field: {' or '.join(names)}; no such {what} found: {found}")
