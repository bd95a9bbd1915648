"""Interval: an estimate with its confidence interval, whose ends may be open, and the error of its draws.

A number is printed to the digits that it knows. An error of the draws above a tenth of the interval's width costs
digits: numbers are then rounded as if the error were a twentieth of the width, so that rounding moves no end by more
than a quarter of it. By the whole error 4.6 … 5.4 to ± 0.1 would be printed as 5 … 5.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

NORMAL_95 = 1.959964  # standard deviations of a normal distribution that hold 95 %
WITHOUT_DIGITS, ROUNDED_TO = 0.1, 0.05  # shares of the width: the error that costs digits, the error counted then

Form = str | Callable[[float], str]
"""Form of a number's text: a format such as ``.1f``, or a function."""


def layers(value: float) -> str:
    """A best depth as text, to one decimal at most: a whole number is a net, or known to no decimal."""
    return f"{value:.0f}" if math.isclose(value, round(value)) or value >= 99.95 else f"{value:.1f}"


def written(value: float, text: Form) -> str:
    """One number as text."""
    return format(value, text) if isinstance(text, str) else text(value)


def both_ends(values: Collection[float], text: Form, to: str = " … ") -> str:
    """The smallest and the largest of ``values`` as text, once if they read alike."""
    return to.join(dict.fromkeys(written(end, text) for end in (min(values), max(values))))


@dataclass(frozen=True)
class Interval:
    """Value with the ends of its interval, all in one unit.

    A number that does not exist is None. A missing value was not reached; a missing end is unbounded. error: largest
    Monte-Carlo standard error of the numbers, in their unit; 0 where there is none.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    error: float = field(default=0.0, kw_only=True)

    @property
    def share(self) -> float:
        """The error as a share of the width."""
        return self.error / self._width if self._width else 0.0

    def with_share(self, share: float) -> Interval:
        """The interval with an error that is a ``share`` of its width."""
        return replace(self, error=share * self._width)

    def columns(self, name: str) -> dict[str, Any]:
        """Name the three numbers as a table's columns: the inverse of ``IntervalOf``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def map(self, function: Callable[[float], float | None], falling: bool = False) -> Interval:
        """Apply a rising or a ``falling`` function to every number present; the error keeps its share of the width."""
        numbers = (self.value, self.high, self.low) if falling else (self.value, self.low, self.high)
        return Interval(*(None if x is None else function(x) for x in numbers)).with_share(self.share)

    @property
    def _width(self) -> float:
        """Width; with an open end twice the distance of the value from the other; 0 without two numbers."""
        if self.low is not None and self.high is not None:
            return self.high - self.low
        end = self.high if self.low is None else self.low
        return 0.0 if self.value is None or end is None else 2.0 * abs(self.value - end)

    @property
    def decimals(self) -> int | None:
        """Decimals that the error leaves: one for an error of 0.03, −1 for 3; None if it costs no digit."""
        costs = self.error > WITHOUT_DIGITS * self._width and self._width > 0.0
        return -math.ceil(math.log10(ROUNDED_TO * self._width)) if costs else None

    @property
    def known(self) -> Interval:
        """The numbers without the digits that the error takes; their first digits stay."""
        if self.decimals is None:
            return self
        return Interval(*(x and round(x, self._places(x)) for x in (self.value, self.low, self.high)))

    def _places(self, x: float) -> int:
        """Decimals of one of the numbers: as many as the error leaves, and its first digit."""
        return max(self.decimals or 0, -math.floor(math.log10(abs(x)))) if x else 0

    def texts(self, text: Form) -> list[str | None]:
        """The three numbers as text, to their known digits."""
        most = self.decimals
        found = self if most is not None and most > 0 and callable(text) else self.known
        fixed = re.fullmatch(r"\.(\d+)f", text) if most is not None and isinstance(text, str) else None

        def form(x: float) -> Form:
            return f".{max(0, min(int(fixed[1]), self._places(x)))}f" if fixed else text

        return [None if x is None else written(x, form(x)) for x in (found.value, found.low, found.high)]

    @property
    def sign(self) -> int:
        """Sign of the interval: 1 if it lies above zero, −1 if below, 0 if it may contain zero."""
        return (self.low is not None and self.low > 0.0) - (self.high is not None and self.high < 0.0)

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def unbounded(self) -> bool:
        return self.low is None and self.high is None

    def __contains__(self, x: float) -> bool:
        return (self.low is None or self.low <= x) and (self.high is None or x <= self.high)

    def ends(self, text: Form) -> str:
        """``1M … 3M``, ``< 3M``, ``> 1M`` or ``unbounded``."""
        _, low, high = self.texts(text)
        if low is None:
            return "unbounded" if high is None else f"< {high}"
        return f"> {low}" if high is None else f"{low} … {high}"

    def format(self, text: Form, missing: str = "not reached") -> str:
        """``2M (1M … 3M)``; without a value the ends alone, without either ``missing``."""
        if self.value is None:
            return missing if self.unbounded else self.ends(text)
        return f"{self.texts(text)[0]} ({self.ends(text)})"


class IntervalOf:
    """Attribute ``NAME_interval`` of a record: its columns ``NAME``, ``NAME_low`` and ``NAME_high`` as an Interval.

    ``NAME_error``, or the column ``error``, is its Monte-Carlo error where there is one; ``ln``: that of its logarithm.

    Files and ``dict(row)`` have only the three numbers, since this is no field.
    """

    def __init__(self, ln: bool = False, error: str = "") -> None:
        self.ln, self.error = ln, error

    def __set_name__(self, owner: type, name: str) -> None:
        value = name.removesuffix("_interval")
        self.columns = (value, f"{value}_low", f"{value}_high")
        self.error = self.error or f"{value}_error"

    def __get__(self, row: object, owner: type | None = None) -> Interval:
        found = Interval(*(getattr(row, column) for column in self.columns))
        error = getattr(row, self.error, None) or 0.0
        if not self.ln or not error:
            return replace(found, error=error)
        return found.with_share(replace(found.map(math.log), error=error).share)
