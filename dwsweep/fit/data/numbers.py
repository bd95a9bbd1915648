"""Numbers of a table: texts that are numerals, read as numbers; blanks; and words in the place of a loss."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dwsweep import numerals
from dwsweep.errors import InputError
from dwsweep.fit.data.rows import ARM, Word, plain
from dwsweep.text import printable

Columns = dict[str, list[Any]]
"""Column name → values."""

MISSING_TEXT = {"", "none", "null", "na", "n/a", "<na>", "nat"}
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
_THOUSANDS_OF_A_UNIT = re.compile(r"\s*[0-9]{1,3}\.[0-9]{3}\s*[kmbgtKMBGT]\s*")
SECTIONS = re.compile(r"^(?:.*[./])?")  # sections of trackers before a name: summary.total_tokens_M, eval/tokens_B
UNITS = {
    **dict.fromkeys(("k", "thousand", "thousands"), ("thousands", 1e3)),
    **dict.fromkeys(("m", "mio", "million", "millions"), ("millions", 1e6)),
    **dict.fromkeys(("b", "bn", "g", "billion", "billions"), ("billions", 1e9)),
    **dict.fromkeys(("t", "trillion", "trillions"), ("trillions", 1e12)),
}
LARGEST_INT = 10**300  # larger integers are read as infinite


def in_columns(
    held: Mapping[Any, list[Any]], what: str = "table:", marks: Mapping[str, numerals.Mark] | None = None
) -> Columns:
    """Columns with numerals as numbers. All names and values of a table pass here and are made
    printable, so that none steers a terminal; the name of an arm stays a text, even if it is 7 or "none". A column of
    dicts becomes one column per key (config.n_layer).

    what: begins the line of an error. marks: before the decimals of a column's numbers; default: as its texts show.
    """
    if marks is None:
        marks = decimal_marks({shown(name): values for name, values in held.items()}, what)
    found: Columns = {}
    for name, values in held.items():
        ours = shown(name)
        inner = [{} if value is None else _opened(value) for value in values]
        if any(inner) and all(isinstance(value, Mapping) for value in inner):
            found |= {f"{ours}.{key}": column for key, column in in_columns(of_rows(inner), what).items()}
            continue
        read: dict[Any, Any] = {}
        mark = marks.get(ours, "point")
        _, factor = UNITS.get(parted(ours)[1], ("", 0.0))
        column = []
        for value in values:
            if value.__class__ is not str:
                column.append(value if value.__class__ is float else _as_read(ours, value, mark))
                continue
            if value not in read:
                number = _as_read(ours, value, mark)
                # 510M of a column of millions is 510 of them
                lettered = factor and number.__class__ in (int, float) and value.strip()[-1:].isalpha()
                read[value] = number / factor if lettered else number
            column.append(read[value])
        found[ours] = column
    return found


def check_names(what: str, names: Iterable[Any]) -> None:
    """Refuse a name that is there twice: a dict of columns would keep only the last.

    Raises:
        InputError: so it is.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{what} column {shown(twice[0])!r} is there twice, a name must be there once")


def _opened(value: Any) -> Any:
    """A dict that is written as a text, as trackers give the settings of a run; anything else unchanged."""
    if value.__class__ is str and value[:1] == "{" and value[-1:] == "}":
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                return read(value)
    return value


def shown(name: Any) -> str:
    """The name of a column without blanks around it and without characters that steer a terminal."""
    return printable(str(name).strip())


def of_rows(rows: Sequence[Mapping[Any, Any]]) -> Columns:
    """Columns of rows, in the order in which their names come; None if a row has none."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def decimal_marks(
    held: Mapping[str, Iterable[Any]], what: str = "table:", separator: str = ""
) -> dict[str, numerals.Mark]:
    """Columns with decimal commas. A column shows it by one number such as ``3,21``; one whose
    numbers read both ways (``3,210``) follows the other columns, and a semicolon between the fields. A loss of
    thousands of nats is none, so ``3,210`` of a loss has decimals.

    Raises:
        InputError: numbers read both ways, and the other columns have both marks, or the semicolon or the loss
        contradicts them; thousands of a unit (``4.096K``) beside decimal commas.
    """
    kinds: dict[str, set[str]] = {}
    example: dict[str, str] = {}
    for name, values in held.items():
        texts = {value for value in values if value.__class__ is str and ("," in value or "." in value)}
        if not texts:
            continue
        kinds[name] = {kind for text in texts if (kind := numerals.shows(text))}
        if kinds[name] == {"either"}:
            example[name] = min((text for text in texts if numerals.shows(text)), key=lambda one: ("," not in one, one))
    commas = {name for name, found in kinds.items() if "comma" in found and "point" not in found}
    points = any("point" in found for found in kinds.values())
    decimal = [name for name, text in example.items() if "," in text and (separator == ";" or is_loss(name))]
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
        if text := next(
            (one for one in held[name] if one.__class__ is str and _THOUSANDS_OF_A_UNIT.fullmatch(one)), ""
        ):
            raise InputError(_question(what, name, text, ", and decimal commas stand beside it"))
    return dict.fromkeys(commas, "comma")


def _question(what: str, name: str, text: str, beside: str) -> str:
    """Line about a number that reads both ways."""
    mark = "," if "," in text else "."
    return (
        f"{what} column {name!r} has {text!r}{beside}: is it {text.replace(mark, '.')} or {text.replace(mark, '')}? "
        "Write it with a decimal point, or without a mark"
    )


def is_loss(name: str) -> bool:
    """True if a column's name is of a loss."""
    return not DECIMAL_WORDS.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def losses(values: Sequence[Any]) -> list[Any]:
    """Column of losses in which a reason for a missing loss is a ``Word``; a run that diverged
    has an infinite loss."""
    if not any(isinstance(value, str) for value in values):
        return list(values)
    found = []
    for value in values:
        if isinstance(value, str) and not isinstance(value, Word):
            plain = value.lower().strip(" .!()[]")
            value = math.inf if plain in DIVERGED else Word(value) if plain in NO_LOSS else value
        found.append(value)
    return found


def parted(name: str) -> tuple[str, str]:
    """(plain name without its unit, the unit); empty without one."""
    words = plain(SECTIONS.sub("", name)).split("_")
    if len(words) < 2 or words[-1] not in UNITS:
        return "", ""
    stem = words[:-2] if words[-2] == "in" else words[:-1]
    return "_".join(stem), words[-1]


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
    if mark == "point":
        try:
            number = float(text)
        except ValueError:
            pass
        else:
            return int(number) if number.is_integer() and "e" not in text.lower() and "." not in text else number
    found = numerals.number(text, mark)
    if found is not None:
        return as_number(found)
    plain = text.lower()
    if plain in DASHES:
        return Word(text)
    if plain in MISSING_TEXT:
        return None
    return float(plain) if plain.lstrip("+-") in ("inf", "infinity", "nan") else text


def _as_read(name: str, value: Any, mark: numerals.Mark) -> Any:
    if name == ARM:
        return printable(value.strip()) or None if isinstance(value, str) else as_number(value)
    read = as_number(value, mark)
    return printable(read) if isinstance(read, str) and not isinstance(read, Word) else read
