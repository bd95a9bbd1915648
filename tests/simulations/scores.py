"""How good are anybody's best depths? The score of any estimator on any sweep whose best depth is known.

``python -m tests.simulations.best_depths --estimator fit|MODULE:FUNCTION [--scenario NAME …] [--sweeps 16] [--jobs 1]``

An estimator is ``answer(rows, sizes)`` or, where the sweep has several numbers of tokens,
``answer(rows, sizes, tokens)`` with one number per size. It returns (depth, low, high) per size, None for a depth that
it does not name and for an end without a bound; of a tuple the first item counts. ``fit`` is ``dwsweep.fit_table``.
"""

from __future__ import annotations

import functools
import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit.data.rows import Row
from tests.simulations.harness import Point, Simulated, Study, covers, mean, median, percent, rms, shown

Answer = Callable[..., Any]
NOTHING: Point = (None, None, None)
FIT = "fit"
DRAWS = 400


class Scored(Protocol):
    """A sweep to draw, whose best depth is known."""

    def numbered(self, index: int) -> Scored:
        """That of simulation ``index``, where a truth differs from one simulation to the next."""

    @property
    def at(self) -> Sequence[tuple[float, float | None]]:
        """The sizes, and the tokens or None, that it is asked for."""

    def rows(self, rng: np.random.Generator) -> list[Row]: ...

    def best_depth(self, n: float, tokens: float | None = None) -> float | None: ...

    def excess(self, depth: float, n: float, tokens: float | None = None) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Scores(Simulated):
    """answers, best, costs: one per point asked for. cost: nats of the depth named above the best one. failure: why
    there is no answer, where the estimator raised an error."""

    answers: tuple[Point, ...]
    best: tuple[float | None, ...]
    costs: tuple[float | None, ...]
    seconds: float
    failure: str | None = None


def by_fit(rows: list[Row], sizes: Sequence[float], tokens: Sequence[float] | None = None) -> list[Point]:
    """dwsweep's own: a fit per number of tokens. A table that it finds no law in gives no answer."""
    from dwsweep.fit.analysis import fit_transitions
    from dwsweep.fit.ask import LossSurface

    @functools.cache
    def guide(count: float | None) -> Any:
        used = rows if count is None else [row for row in rows if row["tokens"] == count]
        try:
            surface = fit_transitions(used, draws=DRAWS).surface
            return surface and LossSurface(surface)
        except InputError:
            return None

    guides = [guide(count) for count in (tokens or [None] * len(sizes))]
    found = [surface and surface.at(n) for surface, n in zip(guides, sizes, strict=True)]
    return [(one.value, one.low, one.high) if one else NOTHING for one in found]


def estimator(name: str) -> Answer:
    """``fit``, or the function of MODULE:FUNCTION, wherever Python finds the module."""
    if name == FIT:
        return by_fit
    module, _, function = name.partition(":")
    found: Answer = getattr(importlib.import_module(module), function)
    return found


def score(answer: Answer, scenario: Scored, rng: np.random.Generator, index: int = 0) -> Scores:
    """One sweep drawn and answered. An error of the estimator is no answer."""
    sizes = [n for n, _ in scenario.at]
    tokens = [count for _, count in scenario.at]
    rows = scenario.rows(rng)
    started, failure = time.perf_counter(), None
    try:
        found = answer(rows, sizes) if None in tokens else answer(rows, sizes, tokens)
        points = [_point(one) for one in (found[0] if isinstance(found, tuple) else found)]
    except Exception as error:  # of a prototype: anything
        points, failure = [NOTHING] * len(sizes), f"{type(error).__name__}: {error}"
    best = [scenario.best_depth(*at) for at in scenario.at]
    return Scores(
        index=index,
        answers=tuple(points),
        best=tuple(best),
        costs=tuple(
            None if depth is None or true is None else scenario.excess(depth, *at)
            for (depth, _, _), true, at in zip(points, best, scenario.at, strict=True)
        ),
        seconds=time.perf_counter() - started,
        failure=failure,
    )


def _point(found: Sequence[float | None]) -> Point:
    """Plain numbers; what is not finite is None."""
    depth, low, high = (None if v is None or not math.isfinite(v) else float(v) for v in found)
    return depth, low, high


def summarise(rows: Sequence[Scores]) -> list[dict[str, float | None]]:
    """Per point asked for: the median of the true best depths, the shares of the sweeps with a depth (``answers``) and
    with any bound (``bounded``), of those with either the share whose interval holds the truth, bias and rmse of ln L,
    the median of ln(high/low) (inf: no bound), and the mean cost of the depth named and that of the worst 5 %, nats."""
    return [_at_point([(row.answers[i], row.best[i], row.costs[i]) for row in rows]) for i in range(len(rows[0].best))]


def _at_point(found: Sequence[tuple[Point, float | None, float | None]]) -> dict[str, float | None]:
    answered = [(point, best) for point, best, _ in found if point != NOTHING]
    errors = [math.log(point[0] / best) for point, best in answered if point[0] and best]
    costs = [cost for _, _, cost in found if cost is not None]
    return {
        "best": median(best for _, best, _ in found if best is not None),
        "answers": mean(point[0] is not None for point, _, _ in found),
        "bounded": mean(point[1:] != (None, None) for point, _, _ in found),
        "coverage": mean(covers(point[1], point[2], best) for point, best in answered if best is not None),
        "bias": mean(errors),
        "rmse": rms(errors),
        "width": median(math.log(high / low) if low and high else math.inf for (_, low, high), _ in answered),
        "cost": mean(costs),
        "worst": float(np.quantile(costs, 0.95)) if costs else None,
    }


HEAD = (
    "scenario | n | true best depth | answers, % | any bound, % | covered, % | rmse, % of L | bias, % "
    "| ln(high/low) | cost, 1e-4 nats | worst 5 % | s per sweep | failed"
)


def cells(name: str, rows: Sequence[Scores]) -> list[list[str]]:
    """One row; a number per point: the sizes inside the data and the one outside, per number of tokens."""
    points = summarise(rows)

    def column(key: str) -> list[float | None]:
        return [point[key] for point in points]

    return [
        [
            *(name, str(len(rows)), shown(*column("best"))),
            *(percent(*column(key), digits=".0f") for key in ("answers", "bounded", "coverage")),
            *(percent(*column(key)) for key in ("rmse", "bias")),
            shown(*column("width"), digits=".2f"),
            *(shown(*column(key), scale=1e4) for key in ("cost", "worst")),
            shown(median(row.seconds for row in rows)),
            str(sum(row.failure is not None for row in rows)),
        ]
    ]


def _scored(name: str, scenario: Scored, rng: np.random.Generator, index: int = 0) -> Scores:
    return score(estimator(name), scenario.numbered(index), rng, index)


def study(name: str, scenarios: Mapping[str, Scored], n: int = 16) -> Study[Scores]:
    """The scores of the estimator of this name on every scenario."""
    estimator(name)  # a name that is wrong is refused before anything is drawn
    return Study(__doc__, scenarios, functools.partial(_scored, name), Scores, n, HEAD, cells)
