"""Condition of ``--where`` on the rows of a table: parsed safely, never evaluated as Python.

``depth >= 6 and optimizer == 'adamw'``, ``tokens == 2.1B``, ```trainer/global_step` > 100``. A column goes by our name
and by the table's; one whose name is no word stands in backticks.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
import shlex
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from dwsweep import numerals
from dwsweep.errors import InputError, argument
from dwsweep.text import join

LONGEST = 500  # characters; deeper nesting would exhaust the stack
ALLOWED = "columns (`val loss` in backticks), numbers, 'texts', lists, + - * / // %, == != < <= > >= in, and, or, not"
NAMES_LISTED = 30

OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt},
    **{ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b},
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
}
_COMBINED = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.List, ast.Tuple)
_NODES = (*OPERATORS, *_COMBINED, ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd, ast.Name, ast.Load, ast.Constant)

_QUOTED = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)""")
_COUNT = re.compile(r"(?<![\w.])([0-9][0-9_]*(?:\.[0-9]+)?[kmbgt])(?![\w.])", re.ASCII | re.IGNORECASE)
_ONE_EQUALS = re.compile(r"(?<![=!<>])=(?!=)")
_STEERS_SHELL = frozenset('`$!\\"')


def compile_expression(
    expression: str, names: Sequence[str], own: Mapping[str, str] | None = None
) -> Callable[[Mapping[str, Any]], bool]:
    """A predicate over rows. A blank is smaller and larger than nothing, and differs from every value: ``state !=
    'failed'`` keeps it. A text that is a numeral equals the number that a table's text was read as.

    names: keys of the rows. own: keys that have another name in the table, by that name.

    Raises InputError for anything but comparisons of columns and constants, and for an unknown column.
    """
    if len(expression) > LONGEST:
        raise InputError(
            f"{argument('where')}: {expression[:40]!r}…; {len(expression):,} characters, must be at most {LONGEST:,}"
        )
    key_of = {**(own or {}), **{name: name for name in names}}
    refused = f"{argument('where')}: {expression!r}"
    stands_for: dict[str, str] = {}
    parts = []
    for part in _QUOTED.split(expression):
        if part[:1] == "`":
            word = f"_column_{len(stands_for)}_"
            stands_for[word] = part[1:-1]
            part = word
        elif part[:1] not in ("'", '"'):
            part = _COUNT.sub(lambda one: str(numerals.number(one[1])), part)
        parts.append(part)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's advice on text that resembles Python
            tree = ast.parse("".join(parts).strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        if _ONE_EQUALS.search("".join(_QUOTED.split(expression)[::2])):
            raise InputError(f"{refused}; equality is written ==, not =") from error
        raise InputError(f"{refused}; not an expression, allowed are {ALLOWED}") from error
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    known = all(value is None or isinstance(value, bool | int | float | str) for value in constants)
    if not (known and all(isinstance(node, _NODES) for node in ast.walk(tree))):
        raise InputError(f"{refused}; allowed are {ALLOWED}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and numerals.number(node.value) is not None:
            node.value = _Numeral(node.value)
    read = {
        name: stands_for.get(name, name) for name in (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    }
    if unknown := next((name for name in read.values() if name not in key_of), None):
        raise InputError(f"{refused}; {unknown!r} is not in the table{nearest(unknown, names, key_of)}")
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise InputError(f'{refused}; a comparison is needed, such as "warmup == 400"')
    keys = {name: key_of[named] for name, named in read.items()}
    return lambda row: bool(_value(tree, lambda name: row.get(keys[name])))


def _value(node: ast.AST, value_of: Callable[[str], Any]) -> Any:
    """Value of a parsed expression; None for arithmetic without a result, such as 1/0 or a text times a number."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return value_of(node.id)
        case ast.List() | ast.Tuple():
            return [_value(item, value_of) for item in node.elts]
        case ast.BoolOp():
            values = (_value(item, value_of) for item in node.values)
            return all(values) if isinstance(node.op, ast.And) else any(values)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, value_of)
        case ast.UnaryOp():  # a text has no sign: its negative equals nothing
            return _result(ast.Sub if isinstance(node.op, ast.USub) else ast.Add, 0, _value(node.operand, value_of))
        case ast.BinOp():
            return _result(type(node.op), _value(node.left, value_of), _value(node.right, value_of))
        case ast.Compare():
            sides = [_value(item, value_of) for item in (node.left, *node.comparators)]
            return all(map(_holds, node.ops, sides, sides[1:]))
    raise AssertionError(node)


def _holds(op: ast.cmpop, left: Any, right: Any) -> bool:
    try:
        return bool(OPERATORS[type(op)](left, right))
    except TypeError:  # a blank or a text compared with a number
        return False


def _result(op: type[ast.AST], left: Any, right: Any) -> Any:
    if isinstance(left, str | list) or isinstance(right, str | list):
        return None  # texts and lists are compared, but never repeated (memory)
    try:
        return OPERATORS[op](left, right)
    except (TypeError, ValueError, ArithmeticError):
        return None


def nearest(name: str, names: Collection[str], others: Iterable[str] = ()) -> str:
    """End of a message about a name that is not among the ``names`` of a table: the nearest of these and of the
    ``others`` by which its columns go, or the list of ``names``."""
    near = get_close_matches(name, [*names, *others][:1000], 1)
    return f", did you mean {near[0]!r}?" if near else f", it has {join(names, NAMES_LISTED)}"


def equals(name: str, value: Any) -> str:
    """Condition that a column has a value; a name that is no word stands in backticks."""
    word = name.isidentifier() and not keyword.iskeyword(name)
    return f"{name if word else f'`{name}`'} == {value!r}"


def option(*conditions: str) -> str:
    """``--where "…"`` for a shell; single quotes if the text holds double ones."""
    text = " and ".join(conditions)
    return f"--where {shlex.quote(text)}" if _STEERS_SHELL & set(text) else f'--where "{text}"'


class _Numeral(str):
    """A text that equals its number too: ``size == '125M'`` of a column whose texts were read as numbers."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return numerals.number(self) == other if not isinstance(other, str) else str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other
