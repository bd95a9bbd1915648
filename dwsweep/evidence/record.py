"""A source of evidence, and what it says in numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUMMARIES = HERE / "summaries.json"


@dataclass(frozen=True)
class Estimates:
    """One quantity of a source at K sizes, with the covariance of their errors.

    n_params: (K,) weights of the blocks, 12·L·d². tokens_per_param: (K,) tokens of training over n_params. value: (K,)
    the quantity's natural logarithm. covariance: (K, K).
    """

    n_params: tuple[float, ...]
    tokens_per_param: tuple[float, ...]
    value: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        return len(self.value)


NOTHING = Estimates((), (), (), ())


@dataclass(frozen=True)
class Evidence:
    """One source.

    kind: ``losses``, ``optima`` or ``law``. sure: of the figures; ``P`` read at the origin, ``S`` in a second place,
    ``C`` computed from the origin's figures. matched: what is equal among the nets that it compares.
    depth: ln L*, best depth. shallow, deep: ln c, curvature on either side of it, loss = c·(ln L − ln L*)² in nats.
    """

    name: str
    reference: str
    licence: str
    kind: str
    sure: str
    matched: str
    recipe: str
    vocabulary: int | None
    context: int | None
    note: str
    depth: Estimates
    shallow: Estimates = NOTHING
    deep: Estimates = NOTHING


@cache
def read(path: Path = SUMMARIES) -> tuple[Evidence, ...]:
    """The sources as the package has them, by name."""
    rows = json.loads(path.read_text("utf-8"))
    return tuple(_evidence(row) for row in rows)


def write(sources: Sequence[Evidence], path: Path = SUMMARIES) -> None:
    """Write what ``read`` reads."""
    path.write_text(json.dumps([asdict(source) for source in sources], indent=1, ensure_ascii=False) + "\n", "utf-8")


def _evidence(row: dict[str, Any]) -> Evidence:
    return Evidence(**{**row, **{name: _estimates(row[name]) for name in ("depth", "shallow", "deep")}})


def _estimates(row: dict[str, Any]) -> Estimates:
    n_params, tokens_per_param, value = (tuple(row[name]) for name in ("n_params", "tokens_per_param", "value"))
    return Estimates(n_params, tokens_per_param, value, tuple(tuple(line) for line in row["covariance"]))
