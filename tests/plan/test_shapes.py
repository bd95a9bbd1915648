"""Shapes: counts, widths that match a budget, heads as an axis of the grid."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from spec_tools import DATA, spec_of

from dwsweep.design import study
from dwsweep.errors import InputError
from dwsweep.plan import build
from dwsweep.shapes import BlockForm, HeadRule, match_width
from dwsweep.spec import Spec, load_spec


def block(**changes: object) -> BlockForm:
    options: dict = {"head_rule": HeadRule(count=2), "vocab_size": 1000, "seq_len": 128}
    return BlockForm(**{**options, **changes})


def test_counts_are_those_of_gpt2_small_and_of_the_built_model() -> None:
    """For any other block: ``test_transformer`` builds it."""
    gpt2 = BlockForm(HeadRule(count=12), vocab_size=50257, seq_len=1024, tied_embeddings=True).shape(12, 768)
    assert gpt2.n_params == 12 * 12 * 768**2 and gpt2.n_params_total == 124_439_808  # as every implementation has it


GATED = block(head_rule=HeadRule(size=64), kv_heads=1, mlp="gated", mlp_ratio=2.75)


@pytest.mark.parametrize(("of", "multiples"), [(block(), (8, 64)), (GATED, (64,))], ids=["standard", "gated"])
def test_matched_width_is_the_nearest_of_all(of: BlockForm, multiples: tuple[int, ...]) -> None:
    for depth, budget, multiple in itertools.product((1, 48), (1e5, 8.5e7), multiples):
        found = match_width(depth, budget, of, multiple)
        best = min((of.shape(depth, k * multiple) for k in range(1, 1000)), key=lambda s: abs(s.n_params - budget))
        assert found == best


# Heads as an axis of the grid: several rules, each with shapes of its own, matched to the budgets by true sizes.


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


@pytest.mark.parametrize(
    ("grid", "line"),
    [
        ({"heads": [{"count": 2}, {"count": 4}]}, "grid.heads: 2 rules; one is judged, allowed: --set 'grid.heads="),
        ({"arms": [{}, {"model.mlp": "gated"}]}, "grid.arms: "),
    ],
)
def test_a_design_judges_one_rule_of_one_arm(grid: dict, line: str) -> None:
    with pytest.raises(InputError, match="--set") as error:
        study(spec_of(grid=grid))
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(("name", "within", "heads"), [("heads", 0.03, 5), ("heads-smoke", 0.1, 4)])
def test_the_shipped_sweep_of_heads_matches_both_arms_in_size(name: str, within: float, heads: int) -> None:
    made = load_spec(name)
    plan = build(made)
    assert all(run.budget and abs(run.shape.n_params / run.budget - 1) < within for run in plan.runs)
    standard, fixed = plan.parts["standard"], plan.parts["fixed"]
    assert {len({run.shape.heads for run in arm}) for arm in (standard, fixed)} == {heads}
    assert {run.shape.head_size for run in fixed} == {made.train.seq_len}
    assert all(run.shape.heads * run.shape.head_size == run.shape.width for run in standard)
    assert min(run.shape.head_size for run in standard) < made.train.seq_len / 2
