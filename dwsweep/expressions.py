"""Expressions of users, parsed and never run as code: conditions on rows of a table, formulas of a shape."""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    ast.Pow: lambda a, b: float(a) ** float(b),  # a power of whole numbers may fill the memory
}
FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "log": math.log,
    "ln": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "exp": math.exp,
    "sqrt": math.sqrt,
}
LARGEST = 1e30  # bound of a formula's numbers
LOGIC = (ast.Compare, ast.BoolOp, ast.List, ast.Tuple, ast.And, ast.Or, ast.Not, *COMPARE)


@dataclass(frozen=True)
class Grammar:
    """Syntax allowed in an expression besides names, numbers and signs.

    operators: of two numbers. functions: by name. logic: comparisons, and, or, not, texts, None and lists.
    """

    operators: tuple[type[ast.operator], ...]
    functions: Mapping[str, Callable[[float], float]] = field(default_factory=dict)
    logic: bool = False

    def allows(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Constant):
            if self.logic:
                return node.value is None or isinstance(node.value, bool | int | float | str)
            if isinstance(node.value, bool) or not isinstance(node.value, int | float):
                return False
            return abs(node.value) < LARGEST
        if isinstance(node, ast.Call):
            named = isinstance(node.func, ast.Name) and node.func.id.lower() in self.functions
            return named and len(node.args) == 1 and not node.keywords
        plain = (ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.USub, ast.UAdd, *self.operators)
        return isinstance(node, plain) or (self.logic and isinstance(node, LOGIC))


CONDITION = Grammar((ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod), logic=True)
FORMULA = Grammar((ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow), FUNCTIONS)


def parse(text: str, grammar: Grammar) -> ast.expr:
    """Read an expression.

    Raises:
        SyntaxError: the text is no expression. ValueError: a part of it is not in the grammar.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's advice on text that resembles Python
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise SyntaxError(text) from error
    if not all(map(grammar.allows, ast.walk(tree))):
        raise ValueError(text)
    return tree


def names(tree: ast.expr) -> list[str]:
    """Names in an expression, in order."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]


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
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return _result(FUNCTIONS[name.lower()], evaluate(argument, value_of))
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
