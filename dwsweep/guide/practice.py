"""Practice: rules of thumb for a shape, and the shapes of built model families.

A rule has a name, or is an expression that is parsed and never run as code:

    width = 64 * depth        depth = 4 + 6 * log10(N)       depth = width / 128

Names: ``depth`` or ``L``, ``width`` or ``d``, ``N`` (weights of the blocks); operators + − * / ** and brackets;
functions log, log2, log10, exp, sqrt.

Shapes of families are facts from their configuration files (families.csv). Counts are of the blocks: attention and MLP
of every layer. nanochat's shapes follow from its rule of 64·L, rounded up to whole heads of 128.
"""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from dwsweep import expressions, published_law
from dwsweep.errors import InputError, argument

NAMED = {
    "gpt3": "the shapes of GPT-3's table (Brown et al. 2020), depth interpolated in ln N",
    "nanochat": "width = 64 * depth",
    "ratio-100": "width = 100 * depth",
    "ratio-128": "width = 128 * depth",
}
ALIASES = {"depth": "depth", "l": "depth", "width": "width", "d": "width", "d_x": "width", "n": "n"}
LONGEST, DEEPEST = 200, 1.0e5
GRID = np.geomspace(1.0, DEEPEST, 4001)
ALLOWED = "allowed: width = …, depth = … of depth, width and N, such as 'width = 64 * depth', or " + ", ".join(NAMED)


@dataclass(frozen=True)
class Rule:
    """Rule of thumb. name: as requested. text: the formula. depth: function of a size N = w·L·d_x² and of w,
    weights of a layer over d_x²; None if the rule gives no shape."""

    name: str
    text: str
    depth: Callable[[float, float], float | None]


def parse(text: str) -> Rule:
    """Rule of a name or an expression.

    Raises:
        InputError: the text is neither.
    """
    name = text.strip().replace("^", "**")
    for sign, plain in (("×", "*"), ("·", "*"), ("−", "-")):
        name = name.replace(sign, plain)
    if name.lower() == "gpt3":
        return Rule("gpt3", NAMED["gpt3"], lambda n_params, _: gpt3_depth(n_params))
    said = NAMED.get(name.lower(), name)
    left, equals, right = said.partition("=")
    target = ALIASES.get(left.strip().lower(), "")
    if not equals or target not in ("depth", "width") or len(said) > LONGEST:
        raise InputError(f"{argument('rules', '--rule')}: {text[:60]!r}; {ALLOWED}")
    try:
        body = expressions.parse(right, expressions.FORMULA)
        used = {ALIASES[name.lower()] for name in expressions.names(body)}
    except (SyntaxError, ValueError, KeyError):
        raise InputError(f"{argument('rules', '--rule')}: {text[:60]!r}; cannot be read; {ALLOWED}") from None
    if target in used:
        raise InputError(f"{argument('rules', '--rule')}: {text[:60]!r}; {target} stands on both sides; {ALLOWED}")

    def excess(depth: float, n_params: float, weights: float) -> float:
        """Excess: ln of the rule's value over the value at the size; NaN if the rule gives no positive number."""
        width = math.sqrt(n_params / (weights * depth))
        has = {"depth": depth, "width": width, "n": n_params}
        try:
            said_value = expressions.evaluate(body, lambda name: has[ALIASES[name.lower()]])
            # the rule's value crosses the value at the depth itself
            return math.log(said_value / width) if target == "width" else math.log(depth / said_value)
        except (ArithmeticError, ValueError, TypeError):
            return math.nan

    return Rule(name, said, lambda n_params, weights: _root(lambda depth: excess(depth, n_params, weights)))


GPT3_BEYOND = 2.0  # factor outside GPT-3's table up to which its depths count as usual


def gpt3_reaches(n_params: float) -> bool:
    """Test that GPT-3's table has a net of about this size."""
    sizes = [n for _, n, shape in published_law.targets() if shape]
    return min(sizes) / GPT3_BEYOND <= n_params <= max(sizes) * GPT3_BEYOND


def gpt3_depth(n_params: float) -> float:
    """Depth of GPT-3's table at a size, interpolated in (ln N, ln L), constant outside the table."""
    rows = [(math.log(n), math.log(shape[0])) for _, n, shape in published_law.targets() if shape]
    at, ln_depth = np.array(sorted(rows)).T
    return float(np.exp(np.interp(math.log(n_params), at, ln_depth)))


def _root(excess: Callable[[float], float]) -> float | None:
    """Root of a rule: the shallowest depth at which it holds, or None."""
    from scipy.optimize import brentq

    values = np.array([excess(float(depth)) for depth in GRID])
    changes = np.flatnonzero(np.isfinite(values[:-1]) & np.isfinite(values[1:]) & (values[:-1] * values[1:] <= 0))
    if not len(changes):
        return None
    with contextlib.suppress(ValueError):  # between the two depths the rule gives no number
        return float(brentq(excess, *GRID[changes[0] : changes[0] + 2], xtol=1e-13, rtol=1e-14))
    return None


FILE = Path(__file__).with_name("families.csv")
NEAR = 2.0  # size factor within which a model is named
ABOUT = 1.35  # size factor within which a model counts as equally large


@dataclass(frozen=True)
class Model:
    """Built model. sure: ``P`` for a shape read in the family's own repository, ``S`` in a second place. source: the
    file."""

    family: str
    model: str
    depth: int
    width: int
    heads: int
    head_size: int
    kv_heads: int
    mlp: str
    mlp_hidden: int
    sure: str
    source: str

    @property
    def n_params(self) -> int:
        """Weights of the blocks."""
        attention = 2 * self.width * self.head_size * (self.heads + self.kv_heads)
        return self.depth * (attention + (3 if self.mlp == "gated" else 2) * self.width * self.mlp_hidden)


@cache
def models() -> tuple[Model, ...]:
    """All models, in the order of the file."""
    with FILE.open(encoding="utf-8", newline="") as lines:
        return tuple(
            Model(**{name: int(text) if text.isdigit() else text for name, text in row.items()})  # type: ignore[arg-type]
            for row in csv.DictReader(lines)
        )


def near(n_params: float, factor: float = NEAR) -> list[Model]:
    """Nearest model in size of each family, within a ``factor``, the nearest first."""

    def apart(model: Model) -> float:
        return abs(math.log(model.n_params / n_params))

    found: dict[str, Model] = {}
    for model in sorted(models(), key=apart):
        if apart(model) <= math.log(factor):
            found.setdefault(model.family, model)
    return list(found.values())
