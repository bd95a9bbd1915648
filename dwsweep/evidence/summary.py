"""Summaries: answers of each public source in numbers, their reading from ``sources/``, and all answers together.

A kind of source is one likelihood (``READINGS``): a function of a few lines from a YAML file to ``Quantity``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep.errors import InputError
from dwsweep.evidence.levels import LAWS
from dwsweep.evidence.random_effects import (
    BENDS,
    DRAWS,
    TOKENS_PER_PARAM,
    Population,
    PricePopulation,
    Quantity,
    depth_population,
    price_population,
)
from dwsweep.fit.statistics import laws
from dwsweep.records import record as reader

if TYPE_CHECKING:
    from dwsweep.fit.statistics.ask import LossSurface

HERE = Path(__file__).parent
SUMMARIES, POPULATIONS = HERE / "summaries.json", HERE / "populations.json"

SIZES = 4  # most sizes of a table at which its answer is taken
# distance in ln L from the best depth over which the curvature on either side is read
STEPS = {"shallow": -math.log(2.0), "deep": math.log(2.0)}
ONE_SD = 0.1587  # share of a normal distribution below −1 sd
BEYOND = 0.05  # share of draws beyond either end of the depths that leaves the central 68 %, and so the sd, whole
# ASSUMED: correlation of the errors of one table's answers after different tokens: the shapes are the same
SAME_SHAPES = 0.8
ONE_LAYER = 0.1  # ln L up to which a draw counts as one layer
SLOPE_SD = 0.1  # ASSUMED: error of ln of the slope over which a curvature is taken
FLATTEST = 1e-3  # slope of a surface, nats, below which noise is read
SLOPE_STEP = 0.3  # distance in ln N to either side over which a surface's own slope is taken
META = ("reference", "kind", "sure")


NOTHING = Quantity((), (), (), ())


@dataclass(frozen=True)
class Evidence:
    """One source.

    kind: of ``READINGS``. sure: of the figures (README.md). depth: ln L*, best depth. shallow, deep: ln κ, the price of
    a depth on either side of it. shift: ln of the best depth over the depths that the source names.
    """

    name: str
    reference: str
    kind: str
    sure: str
    depth: Quantity
    shallow: Quantity = NOTHING
    deep: Quantity = NOTHING
    shift: float = 0.0


@cache
def read(path: Path = SUMMARIES) -> tuple[Evidence, ...]:
    """The sources as the package has them, by name."""
    found = reader.read(path, tuple[Evidence, ...])
    assert found is not None
    return found


@dataclass(frozen=True)
class Populations:
    """Populations over all sources: of the best depth, of its price on either side, and by one form of the curve."""

    depth: Population
    shallow: PricePopulation
    deep: PricePopulation
    power: Population
    theory: Population


def populations(sources: Iterable[Evidence]) -> Populations:
    """Fit the populations of ``sources``."""
    given = list(sources)
    depths, deep = [source.depth for source in given], [source.deep for source in given]
    shallow, deeper = (  # separate order: draws of a price are independent of draws of the depth
        price_population(side).taken(np.random.default_rng(k).permutation(DRAWS))
        for k, side in enumerate(([source.shallow for source in given], deep))
    )
    power, theory = (depth_population(depths, bends) for bends in (BENDS[:1], BENDS[-1:]))
    return Populations(depth_population(depths), shallow, deeper, power, theory)


@cache
def read_populations(path: Path = POPULATIONS) -> Populations:
    """Populations over the package's sources, saved with the summaries."""
    kept = json.loads(path.read_text("utf-8"))
    made: dict[str, Any] = {}
    for one, draws in kept.items():
        kind = PricePopulation if one in ("shallow", "deep") else Population
        made[one] = kind(**{name: np.array(values) for name, values in draws.items()})
    return Populations(**made)


def write(sources: Sequence[Evidence], path: Path = SUMMARIES, fitted: Path = POPULATIONS) -> None:
    """Write the files of ``read`` and ``read_populations``."""
    reader.write(path, list(sources))
    found = reader.plain(populations(read.__wrapped__(path)))
    kept = {one: dict(zip(draws, _lists(draws.values()), strict=True)) for one, draws in found.items()}
    fitted.write_text(reader.line_of(kept) + "\n", "utf-8")


def summarised(path: Path) -> Evidence:
    """One source with its numbers, from its YAML file."""
    from dwsweep.spec.bounded_yaml import load_yaml_file  # a guide without a spec starts without it

    given = load_yaml_file(path)
    if unknown := sorted(given.keys() - KEYS):
        raise InputError(f"{path.name}: {unknown[0]!r}; no key of a source; allowed: {', '.join(sorted(KEYS))}")
    meta = {name: given[name] for name in META} | {"name": path.stem}
    read: dict[str, Any] = {**READINGS[given["kind"]](given | {"folder": path.parent})}
    return Evidence(**meta, **read, shift=given.get("below", 0.0))


Read = dict[str, Quantity]  # estimates by field of Evidence


def _losses(given: dict[str, Any]) -> Read:
    """Best depths of the surface that ``dwsweep fit`` fits to a table, with the fit's covariance."""
    return answers(_fitted(given), given.get("tokens_per_param"), given["loss"])


def _optima(given: dict[str, Any]) -> Read:
    """Published best depths, each with its own error, and a shared error; or median depths built near a size:
    shallower than the best by a factor that all teams share, since time, latency and parallelism count as well."""
    rows, below = given["optima"], given.get("below", 0.0)
    found = {"depth": _independent(rows, [math.log(row["depth"]) + below for row in rows], given.get("shared", 0.0))}
    for side in ("shallow", "deep"):
        priced = [row | {"sd": row[f"{side}_sd"] + SLOPE_SD} for row in rows if side in row]
        prices = [row[side] / LAWS[given["loss"]].slope(row["n_params"]) for row in priced]
        found[side] = _independent(priced, [math.log(price) for price in prices])
    return found


def _slope(given: dict[str, Any]) -> Read:
    """A slope g of the loss along a ladder of depths L: ln L* = ln L − g/2c, c its curvature.

    The variance of the error has a part of the slope, (s_g / 2c)², and half of the distance g/2c at all sizes, since c
    is known to a factor of 1.6.
    """
    ladder, slope, curvature = given["ladder"], given["slope"], given["curvature"]
    n = np.array([row["n_params"] for row in given["sizes"]])
    x = np.log(n / ladder["n_params"])
    c = curvature["value"] * (n / curvature["n_params"]) ** curvature["power"]
    distance = -slope["value"] / (2.0 * c)
    of_slope = slope["sd"] ** 2 + slope["covariance"] * (x[:, None] + x) + slope["power_sd"] ** 2 * np.outer(x, x)
    covariance = of_slope / (4.0 * np.outer(c, c)) + np.outer(distance, distance) / 4.0
    value = math.log(ladder["depth"]) + ladder["power"] * x + distance
    tokens = tuple(float(row["tokens_per_param"]) for row in given["sizes"])
    return {"depth": Quantity(tuple(n.tolist()), tokens, tuple(value.tolist()), _lists(covariance))}


def _pairs(given: dict[str, Any]) -> Read:
    """Two depths A < B of which B gains Δ nats: ln L* = ½·ln(A·B) + Δ / (2c·ln(B/A)); or a reading that is held, where
    Δ is beyond what any curvature explains or is no loss."""

    def value(row: dict[str, float]) -> float:
        if "held" in row:
            return math.log(row["held"])
        apart = math.log(row["deep"] / row["shallow"])
        return 0.5 * math.log(row["shallow"] * row["deep"]) + row["gain"] / (2.0 * row["curvature"] * apart)

    return {"depth": _independent(given["pairs"], list(map(value, given["pairs"])), given["shared"])}


def _law(given: dict[str, Any]) -> Read:
    """A law at every size for which it was published; beyond the sizes that it trained its error grows with ln N."""
    n = np.array(given["sizes"])
    value = np.array([math.log(law_depth(size)) for size in n])
    far = np.maximum(0.0, np.log(n / given["trained_to"]))
    covariance = given["shared"] ** 2 + np.diag(np.full(len(n), given["sd"] ** 2))
    covariance += given["drift"] ** 2 * np.outer(far, far)
    # a law has no count of tokens: read it at the usual count
    tokens = (TOKENS_PER_PARAM,) * len(n)
    return {"depth": Quantity(tuple(n.tolist()), tokens, tuple(value.tolist()), _lists(covariance))}


def law_depth(n_params: float) -> float:
    """Best depth by the published law, at any size."""
    depth = laws.published().depth(n_params)[0]
    assert depth is not None
    return depth


READINGS: Mapping[str, Callable[[dict[str, Any]], Read]]
READINGS = {"losses": _losses, "optima": _optima, "slope": _slope, "pairs": _pairs, "law": _law, "built": _optima}


OPTIONS = ("columns", "where", "drop", "unit", "adjust", "no_adjust", "at")
"""Keys of a source's YAML that are options of the fit."""
KEYS = {
    *META,
    *("licence", "matched", "recipe", "vocabulary", "context", "note", "law"),  # for people
    *("loss", "table", "tokens", "tokens_per_param", *OPTIONS),
    *("optima", "below", "pairs", "shared", "ladder", "slope", "curvature", "sizes", "trained_to", "sd", "drift"),
}


def _fitted(given: dict[str, Any]) -> list[tuple[LossSurface, float | None]]:
    from dwsweep.fit.analysis import fit_table
    from dwsweep.fit.statistics.ask import LossSurface

    options, rows = {name: given[name] for name in OPTIONS if name in given}, []
    if isinstance(options.get("where"), str):
        options["where"] = [options["where"]]
    for tokens in given.get("tokens", [None]):
        # each count of tokens by itself: the population finds the effect of tokens, over all sources
        asked = dict(options)
        if tokens is not None and {"adjust", "at"} & set(given):
            asked["at"] = {**options.get("at", {}), "tokens": tokens}
        elif tokens is not None:
            near = f"tokens > {0.98 * tokens:g} and tokens < {1.02 * tokens:g}"
            asked["where"] = [*options.get("where", ()), near]
        record = fit_table(given["folder"] / given["table"], **asked)
        if record.surface is None:
            raise InputError(f"table: {given['table']}; too few runs; allowed: nine shapes of three depths and sizes")
        rows.append((LossSurface(record.surface), tokens))
    return rows


def _independent(rows: Sequence[dict[str, float]], values: Sequence[float], shared: float = 0.0) -> Quantity:
    """Estimates of ``values`` at rows of sizes and tokens: an error per row, and a shared error of sd ``shared``."""
    n, tokens, sd = (tuple(float(row[name]) for row in rows) for name in ("n_params", "tokens_per_param", "sd"))
    return Quantity(n, tokens, tuple(values), _lists(np.diag(np.array(sd) ** 2) + shared**2))


def answers(tables: Sequence[tuple[LossSurface, float | None]], ratio: float | None, loss: str) -> Read:
    """Estimates of fitted tables, each at its tokens, or at a ``ratio`` of tokens to parameters; ``loss`` names the law
    whose slope prices a depth, or is ``own``. A curvature needs shapes on both sides of the best depth at its size."""
    found = {}
    for name, sizes in (("depth", _sizes), ("shallow", _both_sided), ("deep", _both_sided)):
        rows = [
            (table, x, tokens / math.exp(x) if tokens else ratio or 20.0)
            for table, tokens in tables
            for x in _spread(sizes(table))
        ]
        found[name] = _answers(name, rows, loss) if rows else NOTHING
    return found


def _answers(name: str, rows: Sequence[tuple[LossSurface, float, float]], loss: str) -> Quantity:
    """One ``quantity`` at rows of (table, ln N, tokens per parameter)."""
    draws = np.array([quantity(name, table, x) for table, x, _ in rows])
    low, middle, high = np.quantile(draws, [ONE_SD, 0.5, 1 - ONE_SD], axis=1)
    sd = (high - low) / 2.0
    same = np.equal.outer(*[[id(table.posterior) for table, _, _ in rows]] * 2)
    # ranks, since some draws lie at an end
    correlation = np.atleast_2d(np.corrcoef(draws.argsort(axis=1).argsort(axis=1))) * np.where(same, 1.0, 0.0)
    for i, (_, x, _) in enumerate(rows):
        for j, (_, other, _) in enumerate(rows):
            if not same[i, j]:
                correlation[i, j] = SAME_SHAPES * math.exp(-abs(x - other))
    covariance = _positive(correlation * np.outer(sd, sd))
    if name != "depth":
        slopes = [own_slope(table, x) if loss == "own" else LAWS[loss].slope(math.exp(x)) for table, x, _ in rows]
        middle, covariance = middle - np.log(slopes), covariance + SLOPE_SD**2
    return Quantity(
        tuple(round(math.exp(x)) for _, x, _ in rows),
        tuple(float(f"{tokens:.3g}") for _, _, tokens in rows),
        tuple(float(f"{value:.4f}") for value in middle),
        _lists(covariance),
    )


def own_slope(surface: LossSurface, x: float) -> float:
    """−dloss/d ln N of the best depth by a fitted surface, nats, at ln N = x inside its data."""
    record = surface.record
    step = min(SLOPE_STEP, (record.high - record.low) / 2.0) or SLOPE_STEP  # one size has the published slope
    middle = min(max(x, record.low + step), record.high - step)
    return max((surface.level(middle - step) - surface.level(middle + step)) / (2.0 * step), FLATTEST)


def _sizes(surface: LossSurface) -> list[float]:
    """ln N of the sizes at which the losses bound the best depth between the depths of the table; at one layer, the
    least depth, there is no lower bound."""
    ends = np.log([surface.shallowest, surface.deepest])
    bounded = []
    for row in surface.record.optima:
        low, high = np.quantile(surface.drawn_depths(row.ln_x), [BEYOND, 1.0 - BEYOND], method="inverted_cdf")
        if row.depth is not None and max(ends[0], ONE_LAYER) < low and high < ends[1]:
            bounded.append(row.ln_x)
    return bounded


def _both_sided(surface: LossSurface) -> list[float]:
    """ln N of the sizes at which losses bound the best depth between the depths with shapes of that size."""
    rows = surface.record.optima
    return [row.ln_x for row in rows if None not in (row.depth, row.depth_low, row.depth_high)]


def _spread(sizes: Sequence[float]) -> list[float]:
    """At most SIZES sizes, evenly spaced."""
    if not sizes:
        return []
    return [sizes[k] for k in sorted(set(np.linspace(0, len(sizes) - 1, SIZES).round().astype(int)))]


def quantity(name: str, surface: LossSurface, x: float) -> np.ndarray:
    """(D,) at ln N = x: ln of the best ``depth``, or ln of the curvature on its ``shallow`` or its ``deep`` side."""
    grid = surface.grid
    best = np.clip(surface.drawn_depths(x), grid[0], grid[-1])
    if name == "depth":
        return best
    rows = surface.profile(x)
    at = np.clip(best + STEPS[name], grid[0], grid[-1])
    risen = interpolated(at[:, None], grid, rows)[:, 0] - rows.min(axis=1)
    square = np.maximum((at - best) ** 2, 0.01)
    return np.log(np.maximum(risen / square, 1e-4))


def interpolated(at: np.ndarray, grid: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values (D, M) of ``rows`` (D, G) over ``grid`` (G,), interpolated at the places ``at`` (D, M) of each row."""
    place = np.interp(at, grid, np.arange(len(grid)))
    left = np.minimum(place.astype(np.intp), len(grid) - 2)
    share = place - left
    left += len(grid) * np.arange(len(rows))[:, None]  # places in the flat rows: two thirds of the time of two indices
    flat = rows.ravel()
    low = flat.take(left)
    return np.asarray(low + share * (flat.take(left + 1) - low))


def _positive(covariance: np.ndarray) -> np.ndarray:
    """Nearest covariance with positive eigenvalues."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return (vectors * np.maximum(values, 1e-4)) @ vectors.T


def _lists(matrix: Iterable[Iterable[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(f"{value:.4g}") for value in row) for row in matrix)
