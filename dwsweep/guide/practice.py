"""Practice: the shapes of built model families.

Shapes of families are facts from their configuration files (families.csv). Counts are of the blocks: attention and MLP
of every layer. nanochat's shapes follow from its rule of 64·L, rounded up to whole heads of 128.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("families.csv")
NEAR = 2.0  # size factor within which a model is named


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
