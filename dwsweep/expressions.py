"""Conditions of users on rows of a table, parsed and never run as code."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
LOGIC = (ast.Compare, ast.BoolOp, ast.List, ast.Tuple, ast.And, ast.Or, ast.Not, *COMPARE)


SIGNS = (ast.BinOp, ast.UnaryOp, ast.USub, ast.UAdd, ast.Name, ast.Load)


def _allows(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool | int | float | str)
    return isinstance(node, (*SIGNS, *ARITHMETIC, *LOGIC))


def parse(text: str) -> ast.expr:
    """Read an expression.

    Raises:
        SyntaxError: the text is no expression. ValueError: a part of it is not allowed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's advice on text that resembles Python
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise SyntaxError(text) from error
    if not all(map(_allows, ast.walk(tree))):
        raise ValueError(text)
    return tree


def names(tree: ast.expr) -> list[str]:
    """Names in an expression, in order."""
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def evaluate(node: ast.AST, value_of: Callable[[str], Any]) -> Any:
    """Value of a parsed expression; None for arithmetic without a result, such as 1/0 or a text times a number.

    None is smaller and larger than nothing, equals itself alone, and differs from every other value.
    """
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return value_of(node.id)
        case ast.List() | ast.Tuple():
            return [evaluate(item, value_of) for item in node.elts]
        case ast.BoolOp():
            values = (evaluate(item, value_of) for item in node.values)
            return all(values) if isinstance(node.op, ast.And) else any(values)
        case ast.UnaryOp():
            value = evaluate(node.operand, value_of)
            if isinstance(node.op, ast.Not):
                return not value
            if value is None or isinstance(value, str | list):  # a text has no sign: its negative equals nothing
                return None
            return -value if isinstance(node.op, ast.USub) else value
        case ast.BinOp():
            return _result(ARITHMETIC[type(node.op)], *(evaluate(side, value_of) for side in (node.left, node.right)))
        case ast.Compare():
            left = evaluate(node.left, value_of)
            for op, item in zip(node.ops, node.comparators, strict=True):
                right = evaluate(item, value_of)
                try:
                    if not COMPARE[type(op)](left, right):
                        return False
                except TypeError:  # a blank or a text compared with a number
                    return False
                left = right
            return True
    raise AssertionError(node)


def _result(function: Callable[..., Any], *values: Any) -> Any:
    if any(isinstance(value, str | list) for value in values):
        return None  # texts and lists are compared, but never repeated (memory)
    try:
        return function(*values)
    except (TypeError, ValueError, ArithmeticError):
        return None
