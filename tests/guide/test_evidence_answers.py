"""Answers of public evidence by size, what one's own fit changes, and numbers that nobody lends to others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bowls import bowl, swept
from sentences import says, shows
from shown import printed, summary

from dwsweep import fit_table as complete_fit
from dwsweep.evidence import levels
from dwsweep.fit.analysis import fit_table
from dwsweep.guide import answer, public_source
from dwsweep.guide import sources as guide_sources
from dwsweep.guide.advice import LITTLE
from dwsweep.guide.answers import AT
from dwsweep.guide.sources import judge
from dwsweep.records import fit as fit_record
from dwsweep.report import guide_report
from dwsweep.terminal import plain_text

pytestmark = pytest.mark.usefixtures("short_guideline")


def text(found: Any) -> str:
    return " ".join(printed(guide_report.render(found), 400).split())


losses = partial(swept, np.geomspace(3e6, 3e8, 7), seeds=2)


def test_up_to_15b_a_projection_and_beyond_it_no_best() -> None:
    found = answer([1e9, 1.5e9, 7e9, 1.5e10, 7e10, 1e12], by_source=True)
    assert [row.optimum.basis for row in found.budgets] == ["compared"] * 2 + ["projection"] * 2 + ["range"] * 2
    said = [text(replace(found, budgets=(row,))) for row in found.budgets]
    assert all(("a projection" in one) == (k in (2, 3)) for k, one in enumerate(said))
    assert all(("No comparison of shapes exists" in one) == (k > 3) for k, one in enumerate(said))
    assert all(says(one, "guide: scope of the evidence") for one in said)
    big = found.budgets[4]
    low, high = big.near_best.depth_low, big.near_best.depth_high
    assert low < 60 and high > 100
    assert big.recommended and low <= big.recommended.depth <= high and "A default: " in said[4]


def test_percentages_do_not_depend_on_the_law_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [3e8, 7e10]

    def percentages() -> list[dict[tuple[str, int, int], float]]:
        rows = []
        for row in answer(sizes, source=public_source()).budgets:  # one that kept no prices
            risk = row.risk
            found = {("expected", 0, 0): risk.expected.less_compute, ("worst", 0, 0): risk.worst.less_compute}
            for c in row.candidates:
                costs = ((at, c.cost(at)) for at in AT)
                found.update({(at, c.depth, c.width): cost.less_compute for at, cost in costs if cost})
            rows.append(found)
        return rows

    before = percentages()
    slopes = dict(levels.LAWS)
    for other in ("gemstones2025", "kaplan2020"):
        monkeypatch.setattr(levels, "law_at", lambda n, other=other: slopes[other])
        after = percentages()
        for mine, theirs in zip(before, after, strict=True):
            # a shape at the edge of the list may stand in one of the two
            both = mine.keys() & theirs.keys()
            assert len(both) > 0.85 * max(len(mine), len(theirs))
            assert max(abs(mine[key] - theirs[key]) for key in both) < 1.0


def test_trust_falls_with_regret_and_distance() -> None:
    source = public_source()
    levels_found = {n: judge(source, n).level for n in (1e7, 1e9, 7e9, 2e10, 1e12)}
    assert levels_found == {1e7: "medium", 1e9: "medium", 7e9: "medium", 2e10: "low", 1e12: "low"}


@cache
def flat() -> Any:
    return complete_fit(losses([2, 4, 6], bowl(4.0, rise=0.0), noise=0.05), params=[7e10])


@pytest.mark.parametrize(("depths", "side"), [([12, 16, 22, 30], "below"), ([1, 2, 3, 4], "above")])
def test_losses_that_bound_the_best_depth_on_one_side_hold_it_on_that_side(
    tmp_path: Path, depths: list[int], side: str
) -> None:
    """Five layers are best where depths from 12 on were trained, or twenty where up to 4 were."""
    best = 5.0 if side == "below" else 20.0
    found = fit_table(losses(depths, bowl(best)))
    assert found.surface and {row.at_edge for row in found.surface.optima} == {side}
    assert f"{side} the depths tried" in summary(found) and not any(row.depth for row in found.answers)
    fit_record.write(found, tmp_path)
    n = 3e7
    row = answer([n], fit=tmp_path).budgets[0]
    assert row.optimum.trust.level != "high" and row.recommended and row.risk
    assert row.optimum.depth_low < best < row.optimum.depth_high
    assert row.optimum.depth_high <= 12 if side == "below" else row.optimum.depth_low >= 4
    # what the depth really loses, in nats, is at most what is named
    assert 0.06 * math.log(row.recommended.depth / best) ** 2 <= row.risk.worst.nats
    assert says(text(answer([n], fit=tmp_path)), "guide: bounds best depth on")


FITS: dict[str, Callable[[], Any]] = {
    "inside its data alone": lambda: complete_fit(losses([4, 6, 9], bowl(6.0)), params=[3e7, 7e10]),
    "no effect of depth": flat,
}


@pytest.mark.parametrize("name", FITS)
def test_fit_and_guide_print_one_answer_for_one_size(name: str, tmp_path: Path) -> None:
    """`fit` said 23 × 576 by the law of 2020 where `guide --fit` built 10 × 832."""
    found = FITS[name]()
    fit_record.write(found, tmp_path)
    public, own = [any(row.law.startswith(of) for row in found.guideline) for of in ("public", "own")]
    assert public and own == (name != "no effect of depth")
    assert not any("levine" in row.law for row in found.guideline)
    answers = answer([row.n_params for row in found.guideline], fit=tmp_path).budgets
    for row, budget in zip(found.guideline, answers, strict=True):
        best, shape = budget.optimum, budget.recommended
        assert shape and (row.depth_int, row.width_int, row.n_params_actual) == (
            shape.depth,
            shape.width,
            shape.n_params,
        )
        if best.basis == "range":
            assert row.depth is None and says(row.law, "guide: no best depth named")
            assert (row.depth_low, row.depth_high) == (budget.near_best.depth_low, budget.near_best.depth_high)
        else:
            for name in ("depth", "depth_low", "depth_high", "width", "width_low", "width_high"):
                assert getattr(row, name) == pytest.approx(getattr(best, name))
    printed = summary(found)
    assert ("Guideline" in printed) == own
    for row in found.guideline if own else ():
        assert f"{row.depth_int}×{row.width_int}" in printed


def test_depths_are_called_cheap_only_where_their_own_row_is() -> None:
    for n in (*np.geomspace(1e5, 1e9, 9), 3e9):
        (row,) = answer([float(n)]).budgets
        low, high = row.near_best.depth_low, row.near_best.depth_high
        for c in row.candidates:
            if c.depth in (low, high) and abs(c.mismatch) < 1e-3:  # a net off the budget pays for the difference, too
                assert c.size.less_compute <= 100 * LITTLE + 0.05, (n, c.label)


def test_sizes_beyond_all_comparisons_have_one_range_in_both_tables() -> None:
    """The overview had 32 to 273 layers at 174B, an interval of the best depth, beside 64 to 139."""
    ranged = [row for row in answer().overview if row.basis == "range"]
    assert ranged
    for row in ranged:
        near = answer([row.n_params]).budgets[0].near_best
        assert (row.depth_low, row.depth_high) == (near.depth_low, near.depth_high)


def test_the_percentages_of_shapes_are_named_above_them() -> None:
    assert shows(plain_text(guide_report.render(answer([1e9], by_source=True))), "guide: text at 1B by public evidence")


def test_regret_and_trust_name_one_number() -> None:
    """Trust is judged by the shape to build, not by the depth of least expected loss beside it."""
    (row,) = answer([6e5]).budgets
    assert row.optimum.trust.level == "low"
    expected = row.risk.expected.less_compute
    assert f"regret at equal size is {expected:.1f} % of compute in expectation" in row.optimum.trust.reasons[0]


def test_trust_is_low_where_the_worst_regret_is_grave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader who sees `medium` must not find that half of the compute may be wasted."""
    source = public_source()
    assert judge(source, 3e9).level == "medium"
    monkeypatch.setattr(guide_sources, "GRAVE", 10.0)
    found = judge(source, 3e9)
    assert found.level == "low" and re.match(r"the regret at equal size may be 1\d\.\d % of compute", found.reasons[0])
