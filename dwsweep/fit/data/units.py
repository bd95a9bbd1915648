"""Unit of a count in the name of its column: ``total_tokens_M`` and ``params (B)`` hold millions and billions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dwsweep.fit.data.settings import plain
from dwsweep.records.columns import ALIASES

UNITS = {
    **dict.fromkeys(("k", "thousand", "thousands"), ("thousands", 1e3)),
    **dict.fromkeys(("m", "mio", "million", "millions"), ("millions", 1e6)),
    **dict.fromkeys(("b", "bn", "g", "billion", "billions"), ("billions", 1e9)),
    **dict.fromkeys(("t", "trillion", "trillions"), ("trillions", 1e12)),
}
MOST = {"tokens": 1e16, "n_params": 1e13, "n_params_total": 1e13, "flops": 1e30}
"""Columns that may have a unit, and the largest plausible value of each."""
SECTIONS = re.compile(r"^(?:.*[./])?")  # sections of trackers before a name: summary.total_tokens_M, eval/tokens_B


def counted(names: Iterable[str], has: Iterable[str]) -> dict[str, str]:
    """``{ours: theirs}`` of counts that a table gives only in a unit."""
    stems: dict[str, str] = {}
    for name in names:
        stem, unit = _parted(name)
        if unit:
            stems.setdefault(stem, name)
    return {
        ours: next(stems[one] for one in (ours, *ALIASES[ours]) if one in stems)
        for ours in MOST
        if ours not in set(has) and any(one in stems for one in (ours, *ALIASES[ours]))
    }


def scaled(ours: str, theirs: str, values: Sequence[Any]) -> tuple[list[Any], str]:
    """(the count ``ours`` without the unit that its column ``theirs`` names, a sentence; empty if it names none)."""
    _, unit = _parted(theirs)
    if ours not in MOST or not unit:
        return list(values), ""
    word, factor = UNITS[unit]
    numbers = [value for value in values if _is_number(value)]
    if max(numbers, default=0.0) * factor > MOST[ours]:
        return list(values), f"{theirs} is too large for {word} and is read as it is"
    found = [float(f"{value * factor:.15g}") if _is_number(value) else value for value in values]
    return found, f"{theirs} is in {word}"


def all_scaled(held: Mapping[str, list[Any]], names: Mapping[str, str]) -> tuple[dict[str, list[Any]], list[str]]:
    """(columns by our names with no count in a unit, sentences). names: ``{ours: theirs}``."""
    found, said = dict(held), []
    for ours, theirs in names.items():
        if ours in found:
            found[ours], line = scaled(ours, theirs, found[ours])
            said += [line] if line else []
    return found, said


def _parted(name: str) -> tuple[str, str]:
    """(plain name without its unit, the unit); empty without one."""
    words = plain(SECTIONS.sub("", name)).split("_")
    if len(words) < 2 or words[-1] not in UNITS:
        return "", ""
    stem = words[:-2] if words[-2] == "in" else words[:-1]
    return "_".join(stem), words[-1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
