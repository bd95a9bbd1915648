"""Changes of a table or of an option whose effect on the answer is known without knowing the answer.

More declared noise claims no more. Another seed of the draws stays within its Monte-Carlo error. The order of the rows,
their names, and the unit of the losses say nothing about depth.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit.ask import LossSurface
from dwsweep.interval import Interval
from tests.simulations.sweeps import SmoothTruth, draw

DRAWS = 500
# a claim may become one that stands below it, and no other
WEAKER = {"crossed": 2, "not_reached": 1, "already_crossed": 1, "ambiguous": 0, "undecided": 0}
# shares of an interval by which its ends may move with the seed: twelve seeds moved an end by at most a tenth of the
# interval of a transition, and by 4 % of a best depth
OF_TRANSITION, OF_BEST_DEPTH = 0.15, 0.08
# as much again by which an interval may shrink where the noise grows
SLACK = 0.15
OF_UNIT = 0.05  # priors are in nats


def runs() -> list[dict[str, Any]]:
    """Four depths and six sizes with scatter of the runs and of the shapes, 0.002 nats each."""
    rng, sizes = np.random.default_rng(0), np.geomspace(1e6, 1e8, 6)
    return draw(SmoothTruth((6, 12, 18, 24)), rng, budgets=lambda depth: sizes, sigma=0.002, shape_sd=0.002)


@cache
def fitted(**options: Any) -> Any:
    return dwsweep.fit_table(runs(), draws=DRAWS, **options)


def transitions(result: Any) -> list[tuple[str, Interval]]:
    """(status, interval of ln N) of the verdict on each pair."""
    return [(row.status, row.n_params_interval.map(math.log)) for row in result.verdicts]


def best_depths(result: Any) -> list[Interval]:
    """Intervals of ln L at the sizes that the fit lists."""
    return [row.depth_interval.map(math.log) for row in result.surface.optima]


def assert_no_more_is_known(less: Interval, more: Interval, what: str) -> None:
    """more: with more noise. Bounded ends may be lost; a width may shrink by no more than draws vary."""
    assert not (less.unbounded and more.bounded), f"{what}: {less} → {more}"
    if less.bounded and more.bounded:
        width, before = more.high - more.low, less.high - less.low  # type: ignore[operator]
        assert width >= (1.0 - SLACK) * before, f"{what}: {before} → {width}"


@pytest.mark.parametrize(
    ("option", "levels"),
    [("shape_noise", (0.0, 0.01, 0.05)), ("noise", (0.004, 0.06, 1.0))],
    ids=["scatter of a shape", "noise of a run"],
)
def test_more_declared_noise_never_narrows_an_interval_nor_strengthens_a_claim(
    option: str, levels: Sequence[float]
) -> None:
    results = [fitted(**{option: level}) for level in levels]
    for less, more in pairwise(results):
        for (was, before), (now, after) in zip(transitions(less), transitions(more), strict=True):
            assert WEAKER[now] <= WEAKER[was], f"{option}: {was} → {now}"
            assert_no_more_is_known(before, after, option)
        for before, after in zip(best_depths(less), best_depths(more), strict=True):
            assert_no_more_is_known(before, after, option)
        assert more.surface.effect_p >= less.surface.effect_p
        before, after = (errors_of_differences(result) for result in (less, more))
        assert np.all(after >= (1.0 - SLACK) * before)
    first, last = results[0], results[-1]
    assert {status for status, _ in transitions(first)} == {"crossed"}
    assert "crossed" not in {status for status, _ in transitions(last)[1:]}


def differences(result: Any) -> np.ndarray:
    """(pairs, draws) loss of the shallower − the deeper net at the middle size, of every two neighbouring depths."""
    surface = LossSurface(result.surface)
    middle = np.array([(result.surface.low + result.surface.high) / 2.0])
    depths = [span.depth for span in result.surface.spans]
    return surface.differences(middle, list(pairwise(depths)))[:, 1:, 0]


def errors_of_differences(result: Any) -> np.ndarray:
    return differences(result).std(axis=-1)


def test_each_declared_scatter_gives_another_answer() -> None:
    """The joint model takes the scatter that is declared: it kept its own, and 0.05 claimed more than none."""
    widths = []
    for level in (0.0, 0.01, 0.05):
        result = fitted(shape_noise=level)
        assert result.noise.shape_sd == level and result.noise.shape_source == "declared"
        assert result.surface.forms[0].tau == pytest.approx(max(level, 1e-5), rel=0.05)
        widths.append(np.median(errors_of_differences(result)))
    assert widths[1] > 1.5 * widths[0] and widths[2] > 2.5 * widths[1]


def test_noise_far_above_the_differences_shows_no_effect_of_depth() -> None:
    result = fitted(noise=1.0)
    assert result.surface.flat and {status for status, _ in transitions(result)} == {"undecided"}
    assert all(row.depth_low is None and row.depth_high is None for row in result.surface.optima)
    assert not fitted(noise=0.004).surface.flat


def test_a_noise_that_is_no_number_is_refused_in_a_line() -> None:
    for name in ("noise", "shape_noise"):
        with pytest.raises(InputError, match=rf"^{name}: \{{6: 0.01\}}; must be the standard deviation"):
            dwsweep.fit_table(runs(), draws=DRAWS, **{name: {6: 0.01}})


def test_another_seed_of_the_draws_stays_within_its_monte_carlo_error() -> None:
    here, there = fitted(), fitted(seed=1)
    assert [status for status, _ in transitions(here)] == [status for status, _ in transitions(there)]
    moved = 0.0
    for (_, one), (_, other) in zip(transitions(here), transitions(there), strict=True):
        moved += assert_near(one, other, OF_TRANSITION * (one.high - one.low))  # type: ignore[operator]
    for one, other in zip(here.surface.optima, there.surface.optima, strict=True):
        # an end beside the outermost net may be open by the other seed
        pair = [
            Interval(row.depth, row.depth_low or row.depth_min, row.depth_high or row.depth_max) for row in (one, other)
        ]
        moved += assert_near(*(each.map(math.log) for each in pair), OF_BEST_DEPTH)
    assert moved > 0.0, "the seed is not that of the draws"


def assert_near(one: Interval, other: Interval, most: float) -> float:
    """The sum of how far value and ends have moved."""
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("value", "low", "high")]
    moved = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    assert max(moved, default=0.0) <= most, f"{one} → {other}"
    return sum(moved)


def between_the_nets(depth: Interval) -> Interval:
    """With an open end at the outermost net, beyond which nothing is claimed."""
    first, last = (math.log(end(row["depth"] for row in runs())) for end in (min, max))
    return replace(
        depth, low=first if depth.low is None else depth.low, high=last if depth.high is None else depth.high
    )


def test_order_and_names_of_the_rows_and_of_seeds_change_nothing() -> None:
    names = {"depth": "n_layer", "width": "d_model", "loss": "val_loss"}
    rows = [{**row, "seed": "cab"[row["seed"]]} for row in random.Random(1).sample(runs(), len(runs()))]
    columns = {names.get(name, name): [row[name] for row in rows] for name in rows[0]}
    here, there = fitted(), dwsweep.fit_table(columns, draws=DRAWS)
    for one, other in zip(numbers_of(here), numbers_of(there), strict=True):
        assert one == other or one == pytest.approx(other, rel=1e-6)


def numbers_of(result: Any) -> Iterator[Any]:
    for row in result.transitions:
        yield from (row.estimator, row.status, row.n_params, row.n_params_low, row.n_params_high, row.se_ln_n)
    for row in result.surface.optima:
        yield from (row.depth, row.depth_low, row.depth_high, row.loss)
    yield from differences(result).mean(axis=-1).tolist()


def test_the_unit_of_the_losses_moves_no_claim() -> None:
    bits = [{**row, "loss": row["loss"] / math.log(2.0)} for row in runs()]
    here, there = fitted(), dwsweep.fit_table(bits, unit="bits", draws=DRAWS)
    for (was, one), (now, other) in zip(transitions(here), transitions(there), strict=True):
        assert was == now
        assert_near(one, other, OF_UNIT)
    for one, other in zip(best_depths(here), best_depths(there), strict=True):
        assert_near(*map(between_the_nets, (one, other)), OF_UNIT)
    one, other = (differences(result).mean(axis=-1) for result in (here, there))
    assert np.all(np.abs(other * math.log(2.0) - one) < 0.25 * errors_of_differences(here))


def test_a_declared_scatter_that_no_posterior_takes_is_refused_in_a_line() -> None:
    """Without a second seed, or where losses are adjusted, it changed no interval and no output named it."""
    alone = [row for row in runs() if row["seed"] == 0]
    with pytest.raises(InputError, match=r"^shape_noise: 0.05; no shape has two seeds, .* allowed: with noise, "):
        dwsweep.fit_table(alone, shape_noise=0.05, draws=DRAWS)
    wide = dwsweep.fit_table(alone, noise=0.004, shape_noise=0.05, draws=DRAWS)
    assert wide.surface.forms[0].tau == pytest.approx(0.05, rel=0.05)
    heap = [{**row, "batch_size": 32 * 2 ** (k % 3), "seed": None} for k, row in enumerate(alone)]
    with pytest.raises(InputError, match=r"^shape_noise: 0.05; losses are adjusted for batch_size, .* allowed: noise$"):
        dwsweep.fit_table(heap, shape_noise=0.05, draws=DRAWS)
