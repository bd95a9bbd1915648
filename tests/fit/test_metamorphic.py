"""Changes of a table or of an option whose effect on the answer is known without knowing the answer.

More declared noise claims no more. Another seed of the draws stays within its Monte-Carlo error. The order of the rows,
their names, and the unit of the losses say nothing about depth.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from checkout import environment

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.interval import Interval
from tests.simulations.sweeps import SmoothTruth, draw

pytestmark = pytest.mark.usefixtures("surfaces_again")

# a claim may become one that stands below it, and no other
WEAKER = {"crossed": 2, "not_reached": 1, "already_crossed": 1, "ambiguous": 0, "undecided": 0}
# shares of an interval by which its ends may move with the seed: twelve seeds moved an end by at most a tenth of the
# interval of a transition, and by 4 % of a best depth
OF_TRANSITION, OF_BEST_DEPTH = 0.15, 0.08
# as much again by which an interval may shrink where the noise grows
SLACK = 0.15
OF_UNIT = 0.05  # priors are in nats


def runs():
    """Four depths and six sizes with scatter of the runs and of the shapes, 0.002 nats each."""
    rng, sizes = np.random.default_rng(0), np.geomspace(1e6, 1e8, 6)
    return draw(SmoothTruth((6, 12, 18, 24)), rng, budgets=lambda depth: sizes, sigma=0.002, shape_sd=0.002)


@cache
def fitted(**options):
    return dwsweep.fit_table(runs(), **options)


def transitions(result):
    """(status, interval of ln N) of the verdict on each pair."""
    return [(row.status, row.n_params_interval.map(math.log)) for row in result.verdicts]


def best_depths(result, closed=False):
    """Intervals of ln L at the sizes that the fit lists. closed: an open end stands at the outermost net."""
    rows = result.surface.optima
    if closed:
        rows = [Interval(row.depth, row.depth_low or row.depth_min, row.depth_high or row.depth_max) for row in rows]
        return [row.map(math.log) for row in rows]
    return [row.depth_interval.map(math.log) for row in rows]


def differences(result):
    """(pairs, draws) loss of the shallower − the deeper net at the middle size, of every two neighbouring depths."""
    surface = LossSurface(result.surface)
    middle = np.array([(result.surface.low + result.surface.high) / 2.0])
    depths = [span.depth for span in result.surface.spans]
    return surface.differences(middle, list(pairwise(depths)))[:, 1:, 0]


def assert_no_more_is_known(less, more, what):
    """more: with more noise. Bounded ends may be lost; a width may shrink by no more than draws vary."""
    assert not (less.unbounded and more.bounded), f"{what}: {less} → {more}"
    if less.bounded and more.bounded:
        width, before = more.high - more.low, less.high - less.low
        assert width >= (1.0 - SLACK) * before, f"{what}: {before} → {width}"


def test_more_declared_noise_never_narrows_an_interval_nor_strengthens_a_claim():
    results = [fitted(noise=level) for level in (0.004, 0.06, 1.0)]
    for less, more in pairwise(results):
        for (was, before), (now, after) in zip(transitions(less), transitions(more), strict=True):
            assert WEAKER[now] <= WEAKER[was], f"{was} → {now}"
            assert_no_more_is_known(before, after, "transition")
        for before, after in zip(best_depths(less), best_depths(more), strict=True):
            assert_no_more_is_known(before, after, "best depth")
        assert more.surface.effect_p >= less.surface.effect_p
        wider = [np.median(differences(result).std(axis=-1)) for result in (less, more)]
        assert wider[1] > 1.5 * wider[0]
    assert {status for status, _ in transitions(results[0])} == {"crossed"} and not results[0].surface.flat
    last = results[-1]  # far above the differences: no effect of depth is shown
    assert last.surface.flat and {status for status, _ in transitions(last)} == {"undecided"}
    assert all(row.depth_low is None and row.depth_high is None for row in last.surface.optima)
    with pytest.raises(InputError, match=r"^noise: \{6: 0.01\}; must be the standard deviation"):
        fitted.__wrapped__(noise={6: 0.01})


def test_another_seed_of_the_draws_stays_within_its_monte_carlo_error():
    here, there = fitted(), fitted(seed=1)
    assert [status for status, _ in transitions(here)] == [status for status, _ in transitions(there)]
    moved = sum(
        assert_near(one, other, OF_TRANSITION * (one.high - one.low))
        for (_, one), (_, other) in zip(transitions(here), transitions(there), strict=True)
    )
    for one, other in zip(best_depths(here, closed=True), best_depths(there, closed=True), strict=True):
        moved += assert_near(one, other, OF_BEST_DEPTH)
    assert moved > 0.0, "the seed is not that of the draws"


def assert_near(one, other, most):
    """The sum of how far value and ends have moved."""
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("value", "low", "high")]
    moved = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    assert max(moved, default=0.0) <= most, f"{one} → {other}"
    return sum(moved)


def renamed(rows):
    """In another order, in columns under other names, with other names of seeds."""
    names = {"depth": "Num-Layers", "width": "config.hidden_size", "loss": "eval/loss"}
    rows = [{**row, "seed": "cab"[row["seed"]]} for row in random.Random(1).sample(rows, len(rows))]
    return {names.get(name, name): [row[name] for row in rows] for name in rows[0]}


SAME = {
    "order and names": (renamed, {}),
    "rows twice": (lambda rows: [*rows, *rows], {}),
    "labels": (lambda rows: [{**row, "elapsed": 10.0 + k, "host": f"n{k % 3}"} for k, row in enumerate(rows)], {}),
    "held values": (
        lambda rows: [{**row, "optimizer": "adamw", "tokens": 2_000_640_000} for row in rows],
        {"at": {"optimizer": "adamw", "tokens": 2e9}},
    ),
}


@pytest.mark.parametrize("change", SAME)
def test_what_says_nothing_of_depth_changes_nothing(change):
    changed, options = SAME[change]
    here, there = fitted(), dwsweep.fit_table(changed(runs()), **options)
    assert there.provenance.account.used == len(runs())
    for one, other in zip(numbers_of(here), numbers_of(there), strict=True):
        assert one == other or one == pytest.approx(other, rel=1e-6)


def numbers_of(result):
    for row in result.transitions:
        yield from (row.estimator, row.status, row.n_params, row.n_params_low, row.n_params_high, row.se_ln_n)
    for row in result.surface.optima:
        yield from (row.depth, row.depth_low, row.depth_high, row.worst_percent)
    yield from differences(result).mean(axis=-1).tolist()


ANSWERS = """
import json, sys, dwsweep
grid, arms = json.load(sys.stdin)
for found in (dwsweep.fit_table(grid), dwsweep.fit_table(arms, compare=True)):
    for row in (*found.answers, *found.transitions):
        print(*vars(row).values(), sep="\\n")
"""


def test_another_processor_gives_the_same_answers():
    """Its linear algebra chooses other eigenvectors, which gave other draws: a pair crossed on one machine alone."""
    arms = [{**row, "arm": "a"} for row in runs()]
    arms += [{**row, "arm": "b", "loss": row["loss"] - 0.01 - 0.001 * (k % 3)} for k, row in enumerate(runs())]
    given, found = json.dumps([runs(), arms]), []
    for processor in ("Haswell", "Sandybridge"):  # names that OpenBLAS knows; another library gives the same twice
        more = environment(OPENBLAS_CORETYPE=processor)
        done = subprocess.run([sys.executable, "-c", ANSWERS], input=given, capture_output=True, text=True, env=more)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.splitlines())
    assert len(found[0]) == len(found[1]) > 1000
    for here, there in zip(*found, strict=True):
        assert here == there or float(here) == pytest.approx(float(there), rel=1e-6)


def test_no_sentence_depends_on_the_order_of_rows_and_columns():
    """Reasons as common and values of a confound were listed in the order of the rows."""
    rows = [
        {**row, "vocab_size": (32000, 50304)[k % 2], "batch_size": 64, "tokenizer": "ab"[k % 2]}
        for k, row in enumerate(row for row in runs() if row["seed"] == 0)
    ]
    for k, lost in ((3, None), (11, "FAIL"), (16, math.nan), (19, 0)):
        rows[k]["loss"] = lost
    turned = [dict(reversed(row.items())) for row in reversed(rows)]
    assert dwsweep.fit_table(rows).summary() == dwsweep.fit_table(turned).summary()


def test_the_unit_of_the_losses_moves_no_claim():
    bits = [{**row, "loss": row["loss"] / math.log(2.0)} for row in runs()]
    here, there = fitted(), dwsweep.fit_table(bits, unit="bits")
    for (was, one), (now, other) in zip(transitions(here), transitions(there), strict=True):
        assert was == now
        assert_near(one, other, OF_UNIT)
    for one, other in zip(best_depths(here, closed=True), best_depths(there, closed=True), strict=True):
        assert_near(one, other, OF_UNIT)
    one, other = (differences(result).mean(axis=-1) for result in (here, there))
    assert np.all(np.abs(other * math.log(2.0) - one) < 0.25 * differences(here).std(axis=-1))
