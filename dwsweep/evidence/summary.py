"""What each public source says, in numbers: ``summaries.json``, and how it is made from the files of ``sources/``.

Each table is fitted as ``dwsweep fit`` fits it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep.evidence.random_effects import TOKENS_PER_PARAM, Estimates
from dwsweep.fit import laws
from dwsweep.records import record as reader

if TYPE_CHECKING:
    from dwsweep.fit.ask import LossSurface

HERE = Path(__file__).parent
SUMMARIES = HERE / "summaries.json"

SIZES = 4  # of a table at which it is asked, at most
STEP = math.log(2.0)  # in ln L, to either side of the best depth, over which the curvature is read
ONE_SD = 0.1587  # share of a normal distribution below −1 sd
# ASSUMED: correlation of the errors of one table's answers after different tokens: the shapes are the same
SAME_SHAPES = 0.8
META = ("reference", "licence", "kind", "sure", "matched", "recipe", "vocabulary", "context")


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
    found = reader.read(path, tuple[Evidence, ...])
    assert found is not None
    return found


def write(sources: Sequence[Evidence], path: Path = SUMMARIES) -> None:
    """Write what ``read`` reads."""
    path.write_text(json.dumps([asdict(source) for source in sources], indent=1, ensure_ascii=False) + "\n", "utf-8")


def summaries() -> list[Evidence]:
    """Every source with its numbers, by name."""
    return [summarised(path) for path in sorted((HERE / "sources").glob("*.yaml"))]


def summarised(path: Path) -> Evidence:
    """One source with its numbers."""
    import yaml

    given = yaml.safe_load(path.read_text("utf-8"))
    meta = {name: given[name] for name in META} | {"name": path.stem, "note": given.get("note", "")}
    if "optima" in given:
        rows = given["optima"]
        other = given.get("another_axis", 0.0)
        return Evidence(
            **meta,
            depth=_independent(
                [(r["n_params"], r["tokens_per_param"], math.log(r["depth"]), r["sd"]) for r in rows], other
            ),
            shallow=_independent(
                [
                    (r["n_params"], r["tokens_per_param"], math.log(r["curvature_shallow"]), r["curvature_sd"])
                    for r in rows
                    if "curvature_shallow" in r
                ]
            ),
        )
    if "law" in given:
        law = laws.published()
        found = [(n, law.depth(n)[0]) for n in given["sizes"]]
        # a law has no count of tokens: it is read at the usual one
        read = [(n, TOKENS_PER_PARAM, math.log(depth), given["sd"]) for n, depth in found if depth]
        return Evidence(**meta, depth=_independent(read, given["sd"]))
    said = _answers(_fitted(given), given.get("tokens_per_param"))
    return Evidence(**meta, depth=said["depth"], shallow=said["shallow"], deep=said["deep"])


def _fitted(given: dict[str, Any]) -> list[tuple[LossSurface, float | None]]:
    from dwsweep.fit.analysis import fit_transitions
    from dwsweep.fit.ask import LossSurface
    from dwsweep.records import fit as fit_record

    if "fit" in given:
        found = fit_record.read(given["fit"], "fit")
        assert found.surface is not None
        return [(LossSurface(found.surface), given.get("tokens", 6.0e6))]
    rows, where = [], [given["where"]] if "where" in given else []
    for tokens in given.get("tokens", [None]):
        at = {} if tokens is None else {"at_tokens": tokens}
        record = fit_transitions(HERE / "sources" / given["table"], where=where, **at)
        assert record.surface is not None
        rows.append((LossSurface(record.surface), tokens))
    return rows


def _independent(rows: Sequence[tuple[float, float, float, float]], shared: float = 0.0) -> Estimates:
    """Of rows (N, tokens per parameter, value, sd): errors of their own, and one of sd ``shared`` that all have."""
    if not rows:
        return NOTHING
    n, tokens, value, sd = (tuple(column) for column in zip(*rows, strict=True))
    return Estimates(n, tokens, value, _lists(np.diag(np.array(sd) ** 2) + shared**2))


def _answers(tables: Sequence[tuple[LossSurface, float | None]], ratio: float | None) -> dict[str, Estimates]:
    """What fitted tables say, each at its tokens, or at a ``ratio`` of tokens to parameters."""
    rows = [
        (table, x, tokens / math.exp(x) if tokens else ratio or 20.0) for table, tokens in tables for x in _sizes(table)
    ]
    drawn = [quantities(table, x) for table, x, _ in rows]
    first = [id(table) for table, _, _ in rows]
    same = np.equal.outer(first, first)
    found = {}
    for name in ("depth", "shallow", "deep"):
        draws = np.array([one[name] for one in drawn])
        low, middle, high = np.quantile(draws, [ONE_SD, 0.5, 1 - ONE_SD], axis=1)
        sd = (high - low) / 2.0
        # ranks, since some draws lie at an end
        ranks = draws.argsort(axis=1).argsort(axis=1)
        correlation = np.corrcoef(ranks) * np.where(same, 1.0, 0.0)
        for i, (_, x, _) in enumerate(rows):
            for j, (_, other, _) in enumerate(rows):
                if not same[i, j]:
                    correlation[i, j] = SAME_SHAPES * math.exp(-abs(x - other))
        covariance = _positive(correlation * np.outer(sd, sd))
        found[name] = Estimates(
            tuple(round(math.exp(x)) for _, x, _ in rows),
            tuple(float(f"{tokens:.3g}") for _, _, tokens in rows),
            tuple(float(f"{value:.4f}") for value in middle),
            _lists(covariance),
        )
    return found


def _sizes(surface: LossSurface) -> list[float]:
    """ln N of up to SIZES sizes at which the losses bound the best depth on both sides."""
    rows = surface.record.optima
    bounded = [row.ln_x for row in rows if None not in (row.depth, row.depth_low, row.depth_high)]
    return (
        [bounded[k] for k in sorted(set(np.linspace(0, len(bounded) - 1, SIZES).round().astype(int)))]
        if bounded
        else []
    )


def quantities(surface: LossSurface, x: float) -> dict[str, np.ndarray]:
    """(D,) ln of the best depth and of the curvature to either side of it, of each draw of the fit, at ln N = x."""
    grid, rows = surface.grid, surface.profile(x)
    best = np.clip(surface.drawn_depths(x), grid[0], grid[-1])
    least = rows.min(axis=1)

    def curvature(step: float) -> np.ndarray:
        at = np.clip(best + step, grid[0], grid[-1])
        risen = np.array([np.interp(y, grid, row) for y, row in zip(at, rows, strict=True)]) - least
        square = np.maximum((at - best) ** 2, 0.01)
        return np.log(np.maximum(risen / square, 1e-4))

    return {"depth": best, "shallow": curvature(-STEP), "deep": curvature(STEP)}


def _positive(covariance: np.ndarray) -> np.ndarray:
    """The nearest covariance whose eigenvalues are all above nothing."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return (vectors * np.maximum(values, 1e-4)) @ vectors.T


def _lists(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(f"{value:.4g}") for value in row) for row in matrix)
