"""Arms of a table: the recipes that its column ``arm`` tells apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dwsweep.errors import InputError, example
from dwsweep.fit.data import condition
from dwsweep.fit.data.rows import ARM, Row, listed_values


def arms(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their arm, in the order of the table; "" for those without one."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        value = row.get(ARM)
        found["" if value is None else str(value)].append(row)
    return dict(found)


def of_arm(rows: Sequence[Row]) -> str:
    """The expression of ``where`` that keeps the arm of these rows."""
    return condition.equals(ARM, rows[0].get(ARM))


def check_one_arm(rows: Sequence[Row], source: str) -> None:
    """Refuse rows of several arms: deliberate differences of recipe are no replicates."""
    found = arms(rows)
    labels = list(found)
    if len(labels) < 2:
        return
    choice = of_arm(found[labels[-1]])
    raise InputError(
        f"{ARM}: {source} holds {len(labels)} ({listed_values(labels)}), which would be averaged; compare them with "
        f"{example('compare=True', '--compare')}, or choose one with "
        + example(f"where={choice!r}", condition.option(choice))
    )
