"""Heads as an axis of the grid: several rules, each with shapes of its own, matched to the budgets by true sizes."""

from __future__ import annotations

from typing import Any

import pytest
from spec_tools import DATA, spec_of

from dwsweep.design import study
from dwsweep.errors import InputError
from dwsweep.plan import build
from dwsweep.report import plan_report
from dwsweep.spec import Spec, load_spec, parse_spec
from dwsweep.terminal import plain_text

STANDARD = [{"count": 1}, {"count": 2}, {"count": 4}]
FIXED = [{"count": 1, "size": 40}, {"count": 2, "size": 40}, {"count": 4, "size": 40}]


def with_heads(*rules: Any, **grid: Any) -> Spec:
    return spec_of(grid={"heads": list(rules), **grid})


@pytest.mark.parametrize("rules", [STANDARD, FIXED])
def test_a_rule_has_the_runs_that_it_has_by_itself(rules: list[dict]) -> None:
    """The ids too: what a sweep with one rule has trained, a sweep with several has trained."""
    several = build(with_heads(*rules), data=DATA)
    alone = [build(spec_of(grid={"heads": rule}), data=DATA) for rule in rules]
    assert sorted(run.run_id for run in several.runs) == sorted(run.run_id for plan in alone for run in plan.runs)
    assert sorted(p.pack_id for p in several.packs) == sorted(p.pack_id for plan in alone for p in plan.packs)
    assert len({run.run_id for run in several.runs}) == len(several.runs)
    one = build(with_heads({"count": 2}), data=DATA)
    assert [run.run_id for run in one.runs] == [run.run_id for run in build(spec_of(), data=DATA).runs]


def test_each_rule_is_matched_by_its_true_size() -> None:
    plan = build(with_heads(*FIXED, depths=[2], budgets=[1e5, 4e5]), data=DATA)
    assert all(abs(run.shape.n_params / run.budget - 1) < 0.1 for run in plan.runs if run.budget)
    widths = {(run.shape.heads, run.budget): run.shape.width for run in plan.runs}
    assert widths[1, 1e5] > widths[2, 1e5] > widths[4, 1e5]  # what the heads take is taken from the width


def test_ids_differ_before_the_text_is_prepared() -> None:
    """Shapes of one label, whose hashes alone would tell them apart."""
    rules = {"count": 2, "size": 32}, {"count": 2, "size": 64}
    plan = build(spec_of(grid={"heads": list(rules), "widths": {2: [64]}, "depths": [], "budgets": None}))
    ids = [run.run_id for run in plan.runs]
    assert len(set(ids)) == len(ids) == 2 * len({run.seed for run in plan.runs})
    assert len({pack.pack_id for pack in plan.packs}) == 2
    assert all(run.run_id in plan.estimates.runs for run in plan.runs)


def test_arms_have_rules_of_their_own(tmp_path: Any) -> None:
    arms = [{"name": "standard", "grid.heads": STANDARD}, {"name": "fixed", "grid.heads": FIXED}]
    made = spec_of(grid={"arms": arms})
    plan = build(made, data=DATA)
    assert {arm: len({run.shape.heads for run in one.runs}) for arm, one in plan.arms.items()} == {
        "standard": 3,
        "fixed": 3,
    }
    path = tmp_path / "spec.yaml"
    path.write_text(made.to_yaml(), encoding="utf-8")
    assert load_spec(path) == made


def test_the_table_has_the_heads_of_a_depth_in_their_order() -> None:
    text = plain_text(plan_report.render(build(with_heads(*FIXED, depths=[2], budgets=[1e5]), data=DATA)))
    assert text.index("1×40") < text.index("2×40") < text.index("4×40")
    assert "there is nothing to compare it with" not in text


@pytest.mark.parametrize(
    ("heads", "line"),
    [
        ([], "grid: `heads` is empty; give at least one"),
        ([{"count": 2}, {"count": 2}], "grid: `heads` has a value twice: ['{count: 2}', '{count: 2}']"),
        ([{"count": 2}, {}], "grid.heads[1]: give `count` or `size`, or both"),
        ([{"count": 2}, {"cuont": 2}], "grid.heads[1].cuont: unknown key; did you mean `count`? allowed: count, size"),
        ([{"count": 2}, 4], "grid.heads[1]: 4; must be a mapping with the keys count, size"),
        ([{"count": 0}], "grid.heads[0].count: 0; must be greater than 0"),
        (7, "grid.heads: 7; must be a mapping with the keys count, size"),
    ],
)
def test_rules_that_are_wrong_are_named(heads: Any, line: str) -> None:
    with pytest.raises(InputError) as error:
        parse_spec({"name": "x", "grid": {"depths": [2], "budgets": [1e5], "heads": heads}, "train": {"steps": 10}})
    assert str(error.value) == line


def test_a_rule_that_a_width_does_not_suit_is_named() -> None:
    with pytest.raises(InputError) as error:
        build(with_heads({"count": 2}, {"count": 3}))
    assert str(error.value) == "grid.width_multiple: 4; must be a multiple of 3: grid.heads[1].count 3"


def test_two_rules_that_give_one_shape_are_refused() -> None:
    with pytest.raises(InputError) as error:
        build(with_heads({"count": 2}, {"size": 32}, widths={2: [64]}, depths=[], budgets=None))
    expected = r"grid.heads[1]: {size: 32}; gives L2-d64-h2 with head size 32 as grid.heads[0] {count: 2} does"
    assert str(error.value).startswith(expected)


def test_a_design_judges_one_rule() -> None:
    with pytest.raises(InputError) as error:
        study(with_heads({"count": 2}, {"count": 4}))
    assert str(error.value) == "grid.heads: 2 rules; one is judged, allowed: --set 'grid.heads={count: 2}'"


@pytest.mark.parametrize(("name", "within", "heads"), [("heads", 0.03, 5), ("heads-smoke", 0.1, 4)])
def test_the_shipped_sweep_of_heads_matches_both_arms_in_size(name: str, within: float, heads: int) -> None:
    made = load_spec(name)
    plan = build(made)
    assert all(run.budget and abs(run.shape.n_params / run.budget - 1) < within for run in plan.runs)
    standard, fixed = plan.arms["standard"], plan.arms["fixed"]
    assert {len({run.shape.heads for run in arm.runs}) for arm in (standard, fixed)} == {heads}
    assert {run.shape.head_size for run in fixed.runs} == {made.train.seq_len}
    assert all(run.shape.heads * run.shape.head_size == run.shape.width for run in standard.runs)
    assert min(run.shape.head_size for run in standard.runs) < made.train.seq_len / 2
