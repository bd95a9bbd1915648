"""Interval: an estimate with its confidence interval, whose ends may be open."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

Form = str | Callable[[float], str]
"""Form of a number's text: a format such as ``.1f``, or a function."""


def written(value: float, text: Form) -> str:
    """One number as text."""
    return format(value, text) if isinstance(text, str) else text(value)


@dataclass(frozen=True)
class Interval:
    """Value with the ends of its interval, all in one unit.

    A number that does not exist is None. A missing value was not reached; a missing end is unbounded.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def around(cls, value: float, half: float) -> Interval:
        """Centre the interval on ``value``; unbounded where ``half`` is not finite."""
        return cls(value, value - half, value + half) if math.isfinite(half) else cls(value)

    def columns(self, name: str) -> dict[str, Any]:
        """Name the three numbers as a table's columns: the inverse of ``IntervalOf``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def map(self, function: Callable[[float], float]) -> Interval:
        """Apply a rising function to every number present."""
        return Interval(*(None if x is None else function(x) for x in (self.value, self.low, self.high)))

    def __neg__(self) -> Interval:
        """Change the sign of every number present."""
        return Interval(*(None if x is None else -x for x in (self.value, self.high, self.low)))

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
        low, high = (end if end is None else written(end, text) for end in (self.low, self.high))
        if low is None:
            return "unbounded" if high is None else f"< {high}"
        return f"> {low}" if high is None else f"{low} … {high}"

    def format(self, text: Form, missing: str = "not reached") -> str:
        """``2M (1M … 3M)``; without a value the ends alone, without either ``missing``."""
        if self.value is None:
            return missing if self.unbounded else self.ends(text)
        return f"{written(self.value, text)} ({self.ends(text)})"


class IntervalOf:
    """Attribute ``NAME_interval`` of a record: its columns ``NAME``, ``NAME_low`` and ``NAME_high`` as an Interval.

    Files and ``dict(row)`` have only the three numbers, since this is no field.

    Raises:
        TypeError: when the class is made, if it lacks one of the columns.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        value = name.removesuffix("_interval")
        self.columns = (value, f"{value}_low", f"{value}_high")
        known = {field for base in owner.__mro__ for field in inspect.get_annotations(base)}
        if missing := [column for column in self.columns if column not in known]:
            raise TypeError(f"{owner.__name__}.{name}: no column {', '.join(missing)}")

    @overload
    def __get__(self, row: None, owner: type) -> IntervalOf: ...

    @overload
    def __get__(self, row: object, owner: type | None = None) -> Interval: ...

    def __get__(self, row: object | None, owner: type | None = None) -> Interval | IntervalOf:
        if row is None:
            return self
        return Interval(*(getattr(row, column) for column in self.columns))
