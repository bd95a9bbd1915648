"""A ``results.csv`` as texts, for the tables of the page and of the card."""

from __future__ import annotations

import csv
import io
from typing import Any

from dwsweep.errors import InputError
from dwsweep.fit.table import read_other


def rows_of(path: Any) -> list[dict[str, str]]:
    """The rows of ``path``, in their order; none where it is not there.

    Raises:
        InputError: it is no CSV, lacks depth, width or loss, or has texts where a number belongs.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
    except FileNotFoundError:
        return []
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"DIR: {path}; not readable as CSV: {error}") from None
    if rows:
        read_other(path, None, (), f"DIR: {path}")
    return rows
