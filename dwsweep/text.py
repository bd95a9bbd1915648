"""Text of numbers: counts, bytes, durations and rates in one form for every table, figure and message."""

from __future__ import annotations

from collections.abc import Iterable

from dwsweep import numerals
from dwsweep.errors import InputError


def of_digits(value: float) -> float:
    """``value`` to nine significant digits: a count that went through logarithms is whole again."""
    return float(f"{value:.9g}")


def format_count(value: float) -> str:
    """Text of a count with at most three significant digits: ``950``, ``30K``, ``1.02M``, ``65.5B``, ``2.5e18``."""
    if abs(value) >= 0.9995e15:  # FLOPs
        return f"{value:.3g}".replace("e+", "e")
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        # 999.9e3 rounds to 1M, not to 1000K
        if abs(value) >= 0.9995 * size:
            return f"{float(f'{value / size:.3g}'):g}{letter}"
    return f"{float(f'{value:.3g}'):g}"


NATS, BITS_PER_TOKEN, BITS, PER_CHARACTER = "nats per token", "bits per token", "bits per byte", "bits per character"
"""Units of a loss."""
OF_TEXT = {BITS, PER_CHARACTER}  # compare between vocabularies
SHORT = {NATS: "nats", BITS_PER_TOKEN: "bits", BITS: "bits per byte", PER_CHARACTER: "bits per character"}
"""Short form of each unit, to follow a number."""


def arm_letter(number: int) -> str:
    """Letter of an arm: A for the base, B, C … for the others."""
    return chr(ord("A") + number) if number < 26 else f"arm {number + 1}"


def format_factor(value: float) -> str:
    """Text of a factor with three significant digits and no exponent: ``1.13``, ``41.7``, ``1,670``."""
    if value >= 1e7:
        return f"{value:.3g}".replace("e+", "e")
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def format_bytes(value: float) -> str:
    """Text of a size in decimal units, as data sheets count: ``512 MB``."""
    for power, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= power * 0.9995:
            return f"{value / power:.3g} {unit}"
    return f"{value:.0f} B"


def format_duration(seconds: float) -> str:
    """Text of a duration in its largest fitting unit: ``45 s``, ``12 min``, ``3.4 h``, ``21 d``."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    for size, unit, until in ((60, "min", 99.5), (3600, "h", 47.5)):
        if seconds / size < until:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:,.3g} d" if seconds < 86400 * 999 else f"{seconds / 86400:,.0f} d"


def format_hours(hours: float) -> str:
    """Text of a number of hours: ``0.28``, ``17.5``, ``15,384``."""
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def format_rate(value: float) -> str:
    """Text of a learning rate or a factor: ``1.5e-4``, ``0.012``, ``2``."""
    if value and abs(value) < 0.01:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{value:.3g}"


LARGEST_COUNT = 1e300  # whole numbers beyond it do not fit into a float


def parse_count(text: str) -> float:
    """Number written as ``1.3e9``, ``60k``, ``125M``, ``3B`` (or ``3G``), ``1T`` or ``1,234,567``.

    Raises:
        InputError: not a numeral above 0 and at most LARGEST_COUNT.
    """
    value = numerals.number(text)
    if value is None or not 0 < value <= LARGEST_COUNT:
        raise InputError(f"{text[:40]!r}; must be a positive number, such as 1.3e9, 60k, 125M, 3B or 1T")
    return float(value)


def join(texts: Iterable[str], most: int = 6, separator: str = ", ") -> str:
    """First ``most`` of ``texts``, joined, followed by the number of the others."""
    every = list(texts)
    return separator.join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def printable(text: str, keep: str = "") -> str:
    """Text with control and format characters spelled out (``\\x1b``), except those in ``keep``, so that no file steers
    the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c in keep or c == " " or c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(error: BaseException, limit: int = 300) -> str:
    """Message of an exception on one line; the exception's type if it has no message."""
    return " ".join(str(error).split())[:limit] or type(error).__name__
