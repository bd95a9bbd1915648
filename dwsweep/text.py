"""Counts as people write them: one form for every table, figure and message."""

from __future__ import annotations

import math
import re

from dwsweep.errors import InputError

POWERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def format_count(value: float) -> str:
    """``950``, ``30K``, ``1.02M``, ``65.5B``, ``1T``, ``2.5e18``; at most three significant digits."""
    if abs(value) >= 0.9995e15:  # FLOPs
        return f"{value:.3g}".replace("e+", "e")
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        # 999.9e3 rounds to 1M, not to 1000K
        if abs(value) >= 0.9995 * size:
            return f"{float(f'{value / size:.3g}'):g}{letter}"
    return f"{float(f'{value:.3g}'):g}"


def format_factor(value: float) -> str:
    """``1.13``, ``41.7``, ``1,670``: three significant digits and no exponent."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def parse_count(text: str) -> float:
    """``1.3e9``, ``60k``, ``125M``, ``3B`` (or ``3G``), ``1T`` → the number; small or capital letters.

    Raises:
        InputError: not a positive, finite number of that form.
    """
    found = re.fullmatch(r"\s*([0-9_.]+(?:e[+-]?[0-9]+)?)\s*([kmbgt]?)\s*", text, re.ASCII | re.IGNORECASE)
    try:
        value = float(found[1]) * POWERS[found[2].upper()] if found else math.nan
    except ValueError:  # two points, or an underscore at an end
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"{text[:40]!r}; must be a positive number, such as 1.3e9, 60k, 125M, 3B or 1T")
    return value


def printable(text: str, keep: str = "") -> str:
    """``text`` with control and format characters spelled out (``\\x1b``), except those in ``keep``: what a file
    holds must not steer the terminal that shows it."""
    return "".join(c if c in keep or c == " " or c.isprintable() else ascii(c)[1:-1] for c in text)
