"""Numerals: numbers as people write them, ``1.63M``, ``2B``, ``1,234,567``, ``1_000``, ``1.2×10^21``, read as numbers.

Tables, specs, ``--set`` and the options of the command line read the same numerals.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal

POWERS = {"": 0, "K": 3, "M": 6, "B": 9, "G": 9, "T": 12}
"""Power of ten by the letter behind a number, small or capital."""
LONGEST = 400  # characters; floats have no more digits

Mark = Literal["point", "comma"]
"""Sign before the decimals. The other one, a blank or an apostrophe may separate groups of three digits."""

_MINUS = str.maketrans({"−": "-", "＋": "+", "\u00a0": " ", "\u2007": " ", "\u2009": " ", "\u202f": " ", "’": "'"})
_SWAPPED = str.maketrans(",.", ".,")
_NUMERAL = re.compile(
    r"""(?P<digits> [+-]? (?: [0-9][0-9_]*\.?[0-9_]* | \.[0-9]+ ))
        (?: e (?P<exponent>[+-]?[0-9]{1,4}) | \ *[x×*·]\ *10 (?:\^|\*\*) (?P<power>[+-]?[0-9]{1,4}) )?
        \ * (?P<letter>[kmbgt]?)""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_GROUPS = re.compile(r"([+-]?[0-9]{1,3})([, '])([0-9]{3}(?:\2[0-9]{3})*)(?![0-9])", re.ASCII)
_EXPONENT = r"(?:e[+-]?[0-9]{1,4})?\ *[kmbgt]?"
_SHOWS_POINT = re.compile(
    # 3.21 and 0.125 and 1234.567, but neither 3.210 nor 1.234.567; 1,234.5; 1,234,567
    rf"[+-]?(?:[0-9]*\.(?![0-9]{{3}}(?![0-9]))[0-9]+|0\.[0-9]+|[0-9]{{4,}}\.[0-9]+"
    rf"|[0-9]{{1,3}}(?:,[0-9]{{3}})+\.[0-9]+|[0-9]{{1,3}}(?:,[0-9]{{3}}){{2,}}){_EXPONENT}",
    re.ASCII | re.IGNORECASE,
)
_EITHER = re.compile(rf"[+-]?[1-9][0-9]{{0,2}}[.,][0-9]{{3}}{_EXPONENT}", re.ASCII | re.IGNORECASE)


def number(text: str, mark: Mark = "point") -> int | float | None:
    """Number written as ``text``, or None: an int if whole and written without decimals or a power. ``inf`` and
    ``nan`` are words.

    mark: the sign before the decimals.
    """
    if not text or len(text) > LONGEST:
        return None
    text = text.strip().translate(_MINUS)
    if mark == "comma":
        text = text.translate(_SWAPPED)
    if not (found := _NUMERAL.fullmatch(text)):
        text = _GROUPS.sub(lambda one: one[1] + one[3].replace(one[2], ""), text, count=1)
        if not (found := _NUMERAL.fullmatch(text)):
            return None
    digits, letter = found["digits"], found["letter"].upper()
    exponent = found["exponent"] or found["power"]
    try:
        if not letter and not found["power"]:
            value = float(f"{digits}e{exponent}" if exponent else digits)
            return int(digits) if exponent is None and "." not in digits else value
        exact = Decimal(digits).scaleb(int(exponent or 0) + POWERS[letter])
        return int(exact) if exact == exact.to_integral_value() and exact < 10**30 else float(exact)
    except (ValueError, ArithmeticError):  # an underscore at an end, more digits than Python turns into an int
        return None


def shows(text: str) -> Mark | Literal["either"] | None:
    """Decimal mark that the form of a numeral implies: ``3,21`` a comma, ``3.21`` and ``1,234,567`` a point, ``3,210``
    and ``3.210`` either; None for a whole number, or for a text that is no number."""
    text = text.strip()
    if "," not in text and "." not in text:
        return None
    if _EITHER.fullmatch(text):
        return "either"
    if _SHOWS_POINT.fullmatch(text):
        return "point"
    whole = text.lstrip("+-")[:1] != ","  # .21 has a point, and ,21 is no number
    return "comma" if whole and _SHOWS_POINT.fullmatch(text.translate(_SWAPPED)) else None
