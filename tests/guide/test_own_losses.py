"""Own losses and public evidence together: bounds of one side, the edge of the own sizes, and their reach."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from bowls import swept
from checkout import ROOT
from sentences import says

from dwsweep.errors import InputError
from dwsweep.evidence import OwnDepths, joined, read_populations
from dwsweep.evidence.joined import contradicted
from dwsweep.evidence.random_effects import CENTRE
from dwsweep.fit.analysis import fit_table
from dwsweep.guide import Source, answer, public_source, source_of
from dwsweep.guide.guideline import answered
from dwsweep.guide.losses import TrainingTokens
from dwsweep.guide.sources import judge
from dwsweep.records.fit import FitResult


@cache
def sign_change() -> Source:
    """Depth hurts below 6e7 parameters and helps above, among 5 to 28 layers."""
    rows = swept(
        np.geomspace(3e6, 8e8, 8),
        [5, 8, 12, 18, 28],
        lambda n, depth: -0.02 * math.log(n / 6e7) * math.log(depth / 12),
        noise=0.002,
    )
    return source_of(fit_table(rows, noise=0.002), "own")


@cache
def toy() -> FitResult:
    """36 nets of 28K to 307K parameters with a best depth of 1 to 2 layers."""
    rows = swept(
        np.geomspace(3e4, 3e5, 6),
        [1, 2, 3, 4, 5, 6],
        lambda n, depth: 0.08 * math.log(depth / (1.3 * (n / 1e5) ** 0.3)) ** 2,
        noise=0.005,
    )
    return fit_table(rows, noise=0.005)


def built(source: Source, n: float) -> float:
    """Whole number of layers of least expected loss."""
    loss = source.loss(n)
    whole = np.arange(1.0, 200.0)
    return float(whole[loss.penalties(whole).argmin()])


def test_a_fit_answers_below_public_evidence_only_near_its_own_losses() -> None:
    assert answer([3e4], fit="own", source=source_of(toy(), "own")).budgets[0].recommended
    with pytest.raises(
        InputError, match="from 100K to 1T non-embedding parameters, or within 30 times of the sizes of your own losses"
    ):
        answer([3e4], fit="own", source=sign_change())
    with pytest.raises(InputError, match=r"params: 5; must be from 1K to 1T non-embedding parameters$"):
        answer([5.0], fit="own", source=source_of(toy(), "own"))


def test_bounds_of_one_side_are_kept_at_their_sizes_and_no_depth_is_absurd() -> None:
    """`guide --params 5M --fit` built 407 × 32, trust medium, where deep nets lose."""
    source = sign_change()
    assert built(source, 5e6) <= 5 and source.depth(5e6)[2] <= 5.0
    assert 28 <= built(source, 6e8) <= 56 and source.depth(6e8)[1] >= 28.0


def test_losses_that_contradict_public_evidence_say_so_and_are_trusted_little() -> None:
    source = sign_change()
    for n in (5e6, 6e8, 3e9):
        found = judge(source, n)
        assert found.level == "low" and any("contradict public evidence" in one for one in found.reasons)


def test_a_toy_sweep_changes_no_answer_beyond_30_times_its_sizes() -> None:
    source, alone = source_of(toy(), "toy"), public_source()
    assert says(source.reach(3e6), "guide: times outside your own")
    assert any("public evidence" in note for note in source.notes)
    for n in (3e9, 7e10):
        assert source.depth(n) == alone.depth(n) and judge(source, n) == judge(alone, n)
    (row,) = answered(toy(), [row for row in toy().guideline if row.name == "2.7B"])
    assert row.law == "public evidence"
    assert (row.depth, row.depth_low, row.depth_high) == pytest.approx(alone.depth(row.n_params))


def test_at_the_edge_of_the_laptop_study_the_answer_keeps_its_kind() -> None:
    """2.01M had 3.7 (> 1.5) and a regret of 6.9 %, 2.05M 2.9 (2.2 to 3.7) and 13 %."""
    source = source_of(fit_table(ROOT / "sweeps" / "results" / "laptop", documents=False), "laptop")
    assert source.own is not None
    edge = source.own.high
    rows = []
    for n in edge * np.array([0.94, 0.97, 0.9999, 1.0001, 1.03, 1.06]):
        loss = source.loss(float(n))
        chosen = loss.drawn(np.array([3.0]))[:, 0]
        rows.append([*np.log(source.depth(float(n))), loss.cost(float(chosen.mean())).less_compute / 10])
    steps = np.abs(np.diff(rows, axis=0))
    assert (steps[2] <= np.maximum(steps[[0, 1, 3, 4]].max(axis=0), 0.01)).all(), steps


def test_tokens_beyond_the_sources_are_trusted_little_and_named() -> None:
    """7B after 15T tokens was trusted as 7B after 140B; no source near has over 100 tokens per parameter."""
    levels = {}
    for tokens in (1.4e11, 1.5e13):
        source = public_source(TrainingTokens(tokens))
        levels[tokens] = judge(source, 7e9)
    assert levels[1.4e11].level == "medium" and levels[1.5e13].level == "low"
    assert "tokens per parameter" in levels[1.5e13].reasons[0]


def test_a_depth_far_from_own_and_public_depths_is_trusted_little() -> None:
    source = source_of(toy(), "toy")
    shallow, deep = source.depths_near(3e5)
    assert (shallow, deep) == (1.0, pytest.approx(6.0))
    for depth, low in ((11.0, False), (13.0, True)):
        found = judge(source, 3e5, depth)
        assert ("more than twice beyond" in " ".join(found.reasons)) == low and found.level == "low"


def test_a_known_best_depth_is_the_fits_and_a_bound_is_public_evidence_on_its_side() -> None:
    everyone = read_populations()
    x = np.log([1e7, 1e8]) - CENTRE
    best = np.random.default_rng(1).normal([2.0, 2.6], 0.05, (400, 2))
    ends, known = np.log([[2.0, 2.0], [16.0, 16.0]]), np.ones(400, dtype=bool)
    own = OwnDepths(x, *ends, best, np.full((400, 2), 0.3), known)
    found = joined(everyone, own)
    assert np.median(found.depth.at(0.0)) == pytest.approx(2.6, abs=0.05)
    beyond = best + np.array([0.0, 9.0])  # at the larger size beyond the deepest net
    bounded = joined(everyone, OwnDepths(x, *ends, beyond, np.full((400, 2), 0.3), known))
    assert bounded.depth.at(0.0).min() >= math.log(16.0) - 2e-3
    assert np.median(bounded.depth.at(x[0])) == pytest.approx(2.0, abs=0.06)
    assert contradicted(everyone, own) is None


def test_a_bound_far_away_moves_a_small_size_little() -> None:
    """One score per recipe let a bound at 600M move the answer at 3M as far."""
    everyone = read_populations()
    x = np.log([6e8]) - CENTRE
    ends = np.log([4.0]), np.log([60.0])
    own = OwnDepths(x, *ends, np.full((100, 1), 9.0), np.full((100, 1), 0.3), np.ones(100, dtype=bool))
    found = joined(everyone, own).depth
    free = public_source()
    moved = [float(np.median(found.at(math.log(n) - CENTRE)) - math.log(free.depth(n)[0])) for n in (6e8, 3e6)]
    assert moved[0] > 0.8 and 0.0 < moved[1] < 0.75 * moved[0]
