"""Cells of a table: texts become numbers, blanks and words, a column at a time, once."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dwsweep import numerals
from dwsweep.errors import InputError
from dwsweep.fit.data.rows import ARM, Word, is_number, plain
from dwsweep.text import printable

Columns = dict[str, list[Any]]
"""Column name → values."""

MISSING = {"", "none", "null", "na", "n/a", "<na>", "nat"}
DASHES = {
    *("-", "--", "---", "–", "—", "−", "?", "n.a.", "n.d.", "nil"),
    *("#n/a", "#na", "#null!", "#div/0!", "#value!", "#ref!", "#num!", "#name?"),
}
"""Signs of a spreadsheet that a cell has no number, in small letters."""
NO_LOSS = {
    *("fail", "failed", "failure", "oom", "out of memory", "crash", "crashed", "error", "err", "killed", "timeout"),
    *("timed out", "preempted", "cancelled", "canceled", "aborted", "interrupted", "stopped", "dnf", "not finished"),
    *("unfinished", "not run", "skipped", "missing", "pending", "queued", "running", "in progress", "todo", "tbd"),
}
"""Words in place of a loss, in small letters, for a run without one."""
DIVERGED = {"diverged", "diverge", "divergence", "exploded", "unstable", "overflow"}
DECIMAL_WORDS = {"loss", "nll", "bpb"}  # words of a column whose numbers have decimals
UNITS = {
    **dict.fromkeys(("k", "thousand", "thousands"), ("thousands", 1e3)),
    **dict.fromkeys(("m", "mio", "million", "millions"), ("millions", 1e6)),
    **dict.fromkeys(("b", "bn", "g", "billion", "billions"), ("billions", 1e9)),
    **dict.fromkeys(("t", "trillion", "trillions"), ("trillions", 1e12)),
}
LARGEST_INT = 10**300  # larger integers are read as infinite
_THOUSANDS_OF_A_UNIT = re.compile(r"\s*[0-9]{1,3}\.[0-9]{3}\s*[kmbgtKMBGT]\s*")
_WITH_ERROR = re.compile(r"(.+?)\s*(?:±|\+/-)\s*[0-9][0-9.,e-]*")  # 3.21 ± 0.002
_SECTIONS = re.compile(r"^(?:.*[./])?")  # sections of trackers before a name: summary.total_tokens_M, eval/tokens_B


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
    if separator == ",":
        _check_commas(what, found)
    return found


def as_number(value: Any, mark: numerals.Mark = "point") -> Any:
    """``value`` as int or float where it reads as one, None for a blank, a ``Word`` for a sign of none, else
    unchanged."""
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
    small = text.lower()
    return Word(text) if small in DASHES else None if small in MISSING else text


def losses(values: Sequence[Any]) -> list[Any]:
    """Column of losses in which a reason for a missing loss is a ``Word``; a run that diverged has an infinite loss."""
    found = list(values)
    for k, value in enumerate(values):
        if value.__class__ is str:
            small = value.lower().strip(" .!()[]")
            found[k] = math.inf if small in DIVERGED else Word(value) if small in NO_LOSS else value
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
    """Columns by their shown names; a column of dicts, or of dicts written as texts, becomes one per key
    (config.n_layer)."""
    found: dict[str, Sequence[Any]] = {}
    for name, values in held.items():
        first = next((value for value in values if value is not None), None)
        if isinstance(first, Mapping) or (first.__class__ is str and first[:1] == "{"):
            inner = [{} if value is None else _of_text(value) for value in values]
            if any(inner) and all(isinstance(value, Mapping) for value in inner):
                found |= {f"{shown(name)}.{key}": column for key, column in _opened(of_rows(inner)).items()}
                continue
        found[shown(name)] = values
    return found


def _of_text(value: Any) -> Any:
    """A dict that is written as a text, as trackers give the settings of a run; anything else unchanged."""
    if value.__class__ is str and value[:1] == "{" and value[-1:] == "}":
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                return read(value)
    return value


def _column(name: str, values: Sequence[Any], mark: numerals.Mark) -> list[Any]:
    """Values of a column; each text is read once."""
    _, factor = UNITS.get(parted(name)[1], ("", 0.0))
    texts: dict[str, Any] = {}
    for text in {value for value in values if value.__class__ is str}:
        number = _cell(name, text, mark)
        # 510M of a column of millions is 510 of them
        lettered = factor and is_number(number) and text.strip()[-1:].isalpha()
        texts[text] = number / factor if lettered else number
    return [texts[value] if value.__class__ is str else _cell(name, value, mark) for value in values]


def _cell(name: str, value: Any, mark: numerals.Mark) -> Any:
    if name == ARM and isinstance(value, str):
        return printable(value.strip()) or None
    found = as_number(value, mark)
    return printable(found) if found.__class__ is str else found


def _decimal_commas(held: Mapping[str, Iterable[Any]], what: str, separator: str) -> set[str]:
    """Columns with decimal commas. A column shows it by one number such as ``3,21``; one whose numbers read both ways
    (``3,210``) follows the other columns, and a semicolon between the fields. A loss of thousands of nats is none, so
    ``3,210`` of a loss has decimals.

    Raises:
        InputError: numbers read both ways, and the other columns have both marks, or the semicolon or the loss
        contradicts them; thousands of a unit (``4.096K``) beside decimal commas.
    """
    kinds: dict[str, set[str]] = {}
    example: dict[str, str] = {}
    for name, values in held.items():
        texts = {value for value in values if value.__class__ is str and ("," in value or "." in value)}
        texts = {_WITH_ERROR.sub(r"\1", text) if "±" in text or "+/-" in text else text for text in texts}
        kinds[name] = {kind for text in texts if (kind := numerals.shows(text))}
        if kinds[name] == {"either"}:
            example[name] = min((text for text in texts if numerals.shows(text)), key=lambda one: ("," not in one, one))
    commas = {name for name, found in kinds.items() if "comma" in found and "point" not in found}
    points = any("point" in found for found in kinds.values())
    decimal = [name for name, text in example.items() if "," in text and (separator == ";" or _is_loss(name))]
    if points and (commas or decimal):  # one table of two marks: neither is the rule for what reads both ways
        asked = [*decimal, *(name for name in example if commas)]
        if asked:
            beside = " beside semicolons" if separator == ";" else ""
            others = "both marks" if commas else "decimal points"
            raise InputError(_question(what, asked[0], example[asked[0]], f"{beside}, and other columns have {others}"))
    commas.update(decimal)
    if commas and not points:
        commas.update(example)
    for name in commas:
        for text in (one for one in held[name] if one.__class__ is str and _THOUSANDS_OF_A_UNIT.fullmatch(one)):
            raise InputError(_question(what, name, text, ", and decimal commas stand beside it"))
    return commas


def _question(what: str, name: str, text: str, beside: str) -> str:
    """Line about a number that reads both ways."""
    mark = "," if "," in text else "."
    return (
        f"{what} column {name!r} has {text!r}{beside}: is it {text.replace(mark, '.')} or {text.replace(mark, '')}? "
        "Write it with a decimal point, or without a mark"
    )


def _check_commas(what: str, held: Columns) -> None:
    """Refuse a text whose decimal commas are its separators too: ``3,21`` became a loss of 3 and a spare column.

    Raises:
        InputError: all losses are whole, and the next column has whole numbers alone.
    """
    for name, after in pairwise(held):
        whole, rest = ([value for value in held[one] if value is not None] for one in (name, after))
        all_whole = all(value.__class__ is int and value >= 0 for value in (*whole, *rest))
        if _is_loss(name) and len(whole) > 1 and len(rest) > 1 and all_whole:
            raise InputError(
                f"{what} column {name!r} has whole numbers ({whole[0]}) and the next one too ({rest[0]}): is the loss "
                f"{whole[0]}.{rest[0]}, its decimal comma a separator too? Write it with a point, or in quotes"
            )


def _is_loss(name: str) -> bool:
    return not DECIMAL_WORDS.isdisjoint(re.split(r"[^a-z]+", name.lower()))
