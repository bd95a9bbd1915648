"""Row of a table: whether ``where`` keeps it, whether it has a loss, and its arm.

``where="depth >= 6 and optimizer == 'adamw'"`` is compared safely, never evaluated as Python.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dwsweep import expressions
from dwsweep.errors import InputError, argument, example
from dwsweep.text import listed

Row = dict[str, Any]
"""One run of anybody's table, under whatever columns it has."""

LONGEST = 500  # characters; deeper nesting than that fits in would exhaust the stack
ALLOWED = "column names, numbers, 'texts', lists, + - * / // %, == != < <= > >= in, and, or, not"

VALUES_LISTED = 6
ARM = "arm"  # the column that tells apart the arms of one sweep


def compile_expression(
    expression: str, names: Sequence[str], theirs: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Row], bool]:
    """A predicate over rows. A comparison with a blank is false, except ``== None`` and ``!= None``. theirs: what the
    table calls a column → our name of it; both may be written.

    Raises InputError for anything but comparisons of columns and constants, and for an unknown column.
    """
    if len(expression) > LONGEST:
        raise InputError(
            f"{argument('where')}: {expression[:40]!r}…; {len(expression):,} characters, must be at most {LONGEST:,}"
        )
    refused = f"{argument('where')}: {expression!r}"
    try:
        tree = expressions.parse(expression, expressions.CONDITION)
    except SyntaxError as error:
        raise InputError(f"{refused}; not an expression, allowed are {ALLOWED}") from error
    except ValueError as error:
        raise InputError(f"{refused}; allowed are {ALLOWED}") from error
    known = {*names, *theirs}
    if unknown := next((name for name in expressions.names(tree) if name not in known), None):
        raise InputError(f"{argument('where')}: {unknown!r} in {expression!r}; columns are {', '.join(sorted(known))}")
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise InputError(f'{refused}; a comparison is needed, such as "warmup == 400"')
    ours = {name: theirs.get(name, name) if name not in names else name for name in known}
    return lambda row: bool(expressions.evaluate(tree, lambda name: row.get(ours[name])))


def why_no_loss(row: Row) -> str:
    """Why a row has no loss that counts, apart from one that diverged; empty where it has one."""
    status, loss = row.get("status") or "done", row.get("loss")
    if status != "done" and (status := str(status).lower()) not in ("done", "diverged"):
        return status
    if status == "done" and loss is None:
        return "no loss"
    return "loss is NaN" if status == "done" and loss != loss else ""


def no_loss(why: str) -> str:
    """``have no loss``, ``are oom``: a reason of ``why_no_loss`` in a sentence about rows."""
    return {"no loss": "have no loss", "loss is NaN": "have NaN for a loss"}.get(why, f"are {why}")


def arms(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their arm, in the order of the table; "" for those without one."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        value = row.get(ARM)
        found["" if value is None else str(value)].append(row)
    return dict(found)


def of_arm(rows: Sequence[Row]) -> str:
    """The expression of ``where`` that keeps the arm of these rows."""
    return f"{ARM} == {rows[0].get(ARM)!r}"


def check_one_arm(rows: Sequence[Row], source: str) -> None:
    """Refuses rows of several arms: they were trained by different recipes on purpose, and are no replicates."""
    found = arms(rows)
    labels = list(found)
    if len(labels) < 2:
        return
    choice = of_arm(found[labels[-1]])
    raise InputError(
        f"{ARM}: {source} holds {len(labels)} ({listed_values(labels)}), which would be averaged; compare them with "
        f"{example('dwsweep.compare_arms', '--compare')}, or choose one with "
        + example(f"where={choice!r}", f"--where {chr(34)}{choice}{chr(34)}")
    )


def listed_values(values: Iterable[Any]) -> str:
    """Values of a column in their order, for a message."""
    shown = sorted(set(values), key=lambda v: (0, v, "") if isinstance(v, int | float) else (1, 0, str(v)))
    texts = ["blank" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in shown]
    return listed(texts, VALUES_LISTED)
