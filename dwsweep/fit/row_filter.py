"""Row selection: ``where="depth >= 6 and optimizer == 'adamw'"``, compared safely, never evaluated as Python."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from dwsweep.errors import InputError, argument

Row = dict[str, Any]
"""One run of anybody's table, under whatever columns it has."""

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
NODES = (
    *(ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.List, ast.Tuple),
    *(ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd, ast.Load),
    *COMPARE,
    *ARITHMETIC,
)
LONGEST = 500  # characters; deeper nesting than that fits in would exhaust the stack
ALLOWED = "column names, numbers, 'texts', lists, + - * / // %, == != < <= > >= in, and, or, not"


def compile_expression(expression: str, columns: Sequence[str]) -> Callable[[Row], bool]:
    """A predicate over rows. A comparison with a blank is false, except ``== None`` and ``!= None``.

    Raises InputError for anything but comparisons of columns and constants, and for an unknown column.
    """
    if len(expression) > LONGEST:
        raise InputError(
            f"{argument('where')}: {expression[:40]!r}…; {len(expression):,} characters, must be at most {LONGEST:,}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own advice on what only looks like Python
            tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InputError(f"{argument('where')}: {expression!r}; not an expression, allowed are {ALLOWED}") from error
    _check(tree, expression, set(columns))
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise InputError(f'{argument("where")}: {expression!r}; a comparison is needed, such as "warmup == 400"')
    return lambda row: bool(_value(tree, row))


def _check(node: ast.AST, expression: str, columns: set[str]) -> None:
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            if child.id not in columns:
                raise InputError(
                    f"{argument('where')}: {child.id!r} in {expression!r}; columns are {', '.join(sorted(columns))}"
                )
        elif isinstance(child, ast.Constant):
            if not (child.value is None or isinstance(child.value, bool | int | float | str)):
                raise InputError(f"{argument('where')}: {expression!r}; allowed are {ALLOWED}")
        elif not isinstance(child, NODES):
            raise InputError(f"{argument('where')}: {expression!r}; allowed are {ALLOWED}")


def _value(node: ast.AST, row: Row) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return row.get(node.id)
        case ast.List() | ast.Tuple():
            return [_value(item, row) for item in node.elts]
        case ast.BoolOp():
            values = (_value(item, row) for item in node.values)
            return all(values) if isinstance(node.op, ast.And) else any(values)
        case ast.UnaryOp():
            value = _value(node.operand, row)
            if isinstance(node.op, ast.Not):
                return not value
            if value is None or isinstance(value, str | list):  # a text has no sign: nothing equals what it gives
                return None
            return -value if isinstance(node.op, ast.USub) else value
        case ast.BinOp():
            left, right = _value(node.left, row), _value(node.right, row)
            try:
                if isinstance(left, str | list) or isinstance(right, str | list):
                    return None  # texts and lists are compared, never repeated to fill the memory
                return ARITHMETIC[type(node.op)](left, right)
            except (TypeError, ZeroDivisionError, OverflowError):
                return None
        case ast.Compare():
            left = _value(node.left, row)
            for op, item in zip(node.ops, node.comparators, strict=True):
                right = _value(item, row)
                try:
                    if not COMPARE[type(op)](left, right):
                        return False
                except TypeError:  # a blank or a text against a number
                    return False
                left = right
            return True
    raise AssertionError(node)
