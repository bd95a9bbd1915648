"""Practice: the shapes of built model families, facts from their configuration files (families.csv).

Counts are of the blocks: attention and MLP of every layer. nanochat's shapes follow from its rule of 64·L, rounded
up to whole heads of 128.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("families.csv")
NEAR = 2.0  # size factor within which a model is named


@dataclass(frozen=True)
class BuiltModel:
    """Built model. n_params: weights of the blocks. sure: ``P`` for a shape read in the family's own repository, ``S``
    in a second place. source: the file. cost: of its depth at its own size, in an answer."""

    family: str
    model: str
    depth: int
    width: int
    n_params: int
    heads: int
    head_size: int
    kv_heads: int
    mlp: str
    mlp_hidden: int
    sure: str
    source: str
    cost: Any = None

    @classmethod
    def of(cls, row: dict[str, Any]) -> BuiltModel:
        one: dict[str, Any] = {name: int(text) if text.isdigit() else text for name, text in row.items()}
        attention = 2 * one["width"] * one["head_size"] * (one["heads"] + one["kv_heads"])
        mlp = (3 if one["mlp"] == "gated" else 2) * one["width"] * one["mlp_hidden"]
        return cls(**one, n_params=one["depth"] * (attention + mlp))


@cache
def models() -> tuple[BuiltModel, ...]:
    """All models, in the order of the file."""
    with FILE.open(encoding="utf-8", newline="") as lines:
        return tuple(map(BuiltModel.of, csv.DictReader(lines)))


def near(n_params: float) -> list[BuiltModel]:
    """Nearest model in size of each family, within a factor of ``NEAR``, the nearest first."""
    found: dict[str, BuiltModel] = {}
    for model in sorted(models(), key=lambda one: abs(math.log(one.n_params / n_params))):
        if 1.0 / NEAR <= model.n_params / n_params <= NEAR:
            found.setdefault(model.family, model)
    return list(found.values())
