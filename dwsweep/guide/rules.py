"""Rules of thumb for a shape: by name, or as an expression that is parsed and never run as code.

    width = 64 * depth        depth = 4 + 6 * log10(N)       depth = width / 128

Names: ``depth`` or ``L``, ``width`` or ``d``, ``N`` (weights of the blocks); operators + − * / ** and brackets;
functions log, log2, log10, exp, sqrt.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dwsweep import published_law
from dwsweep.errors import InputError, argument

NAMED = {
    "gpt3": "the shapes of GPT-3's table (Brown et al. 2020), depth interpolated in ln N",
    "nanochat": "width = 64 * depth",
    "ratio-100": "width = 100 * depth",
    "ratio-128": "width = 128 * depth",
}
ALIASES = {"depth": "depth", "l": "depth", "width": "width", "d": "width", "d_x": "width", "n": "n"}
OPERATORS: Mapping[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "log": math.log,
    "ln": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "exp": math.exp,
    "sqrt": math.sqrt,
}
LONGEST, DEEPEST = 200, 1.0e5
GRID = np.geomspace(1.0, DEEPEST, 4001)
ALLOWED = "allowed: width = …, depth = … of depth, width and N, such as 'width = 64 * depth', or " + ", ".join(NAMED)


@dataclass(frozen=True)
class Rule:
    """name: as asked for. text: what it says. depth: of a size N = 12·L·d_x²; None where the rule has no shape."""

    name: str
    text: str
    depth: Callable[[float], float | None]


def parse(text: str) -> Rule:
    """The rule of a name or an expression.

    Raises:
        InputError: neither.
    """
    name = text.strip().replace("^", "**")
    for sign, plain in (("×", "*"), ("·", "*"), ("−", "-")):
        name = name.replace(sign, plain)
    if name.lower() == "gpt3":
        return Rule("gpt3", NAMED["gpt3"], gpt3_depth)
    said = NAMED.get(name.lower(), name)
    left, equals, right = said.partition("=")
    target = ALIASES.get(left.strip().lower(), "")
    if not equals or target not in ("depth", "width") or len(said) > LONGEST:
        raise InputError(f"{argument('rules', '--rule')}: {text[:60]!r}; {ALLOWED}")
    try:
        body = ast.parse(right.strip(), mode="eval").body
        used = _names(body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{argument('rules', '--rule')}: {text[:60]!r}; cannot be read; {ALLOWED}") from None
    if target in used:
        raise InputError(f"{argument('rules', '--rule')}: {text[:60]!r}; {target} stands on both sides; {ALLOWED}")

    def excess(depth: float, n_params: float) -> float:
        """ln of what the rule says over what the size has; NaN where the rule says no positive number."""
        width = math.sqrt(n_params / (12.0 * depth))
        try:
            said_value = _value(body, {"depth": depth, "width": width, "n": n_params})
            # the rule's value falls behind, or runs ahead of, what the depth itself has
            return math.log(said_value / width) if target == "width" else math.log(depth / said_value)
        except (ArithmeticError, ValueError, TypeError):
            return math.nan

    return Rule(name, said, lambda n_params: _root(lambda depth: excess(depth, n_params)))


def gpt3_depth(n_params: float) -> float:
    """Depth of GPT-3's table at a size, interpolated in (ln N, ln L); that of the smallest and largest beyond."""
    rows = [(math.log(n), math.log(shape[0])) for _, n, shape in published_law.targets() if shape]
    at, ln_depth = np.array(sorted(rows)).T
    return float(np.exp(np.interp(math.log(n_params), at, ln_depth)))


def _root(excess: Callable[[float], float]) -> float | None:
    """The shallowest depth at which the rule holds, to 1e-9 in ln L; None without one."""
    values = np.array([excess(float(depth)) for depth in GRID])
    changes = np.flatnonzero(np.isfinite(values[:-1]) & np.isfinite(values[1:]) & (values[:-1] * values[1:] <= 0))
    if not len(changes):
        return None
    low, high = (float(GRID[changes[0] + k]) for k in (0, 1))
    rising = excess(high) > excess(low)
    for _ in range(60):
        middle = math.sqrt(low * high)
        if (excess(middle) > 0) == rising:
            high = middle
        else:
            low = middle
    return math.sqrt(low * high)


def _names(node: ast.AST) -> set[str]:
    """The quantities that an expression reads.

    Raises:
        ValueError: it holds something else than numbers, these quantities, operators and functions.
    """
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float) or not abs(node.value) < 1e30:
            raise ValueError
        return set()
    if isinstance(node, ast.Name) and node.id.lower() in ALIASES:
        return {ALIASES[node.id.lower()]}
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return _names(node.left) | _names(node.right)
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return _names(node.operand)
    called = node.func if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else None
    if isinstance(node, ast.Call) and isinstance(called, ast.Name) and called.id.lower() in FUNCTIONS:
        return _names(node.args[0])
    raise ValueError


def _value(node: ast.AST, at: Mapping[str, float]) -> float:
    """The expression, which ``_names`` has checked, in floats."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.Name):
        return at[ALIASES[node.id.lower()]]
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left, at), _value(node.right, at))
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](_value(node.operand, at))
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return FUNCTIONS[node.func.id.lower()](_value(node.args[0], at))
