"""Arms of one sweep: keys of the spec that they set, and the plan that trains them one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from sentences import says
from shown import printed
from spec_tools import DATA, spec_of

from dwsweep.errors import InputError
from dwsweep.plan import build
from dwsweep.plan.units import run_config, to_rows
from dwsweep.records.columns import RESULTS
from dwsweep.records.record import columns_of
from dwsweep.records.sweep import PlanRow, parse_plan_csv, plan_csv
from dwsweep.report import plan_report
from dwsweep.spec import Spec, arms_of, load_spec, parse_spec

STANDARD = {"model.parametrization": "standard"}
GATED = {"model.mlp": "gated", "model.mlp_ratio": 2.6667}


def with_arms(*arms: Any, **sections: dict) -> Spec:
    grid = {**sections.pop("grid", {}), "arms": list(arms)}
    return spec_of(grid=grid, **sections)


def refusal(*arms: Any, **sections: dict) -> str:
    with pytest.raises(InputError) as error:
        build(with_arms(*arms, **sections))
    return str(error.value)


def test_an_arm_sets_keys_of_the_spec() -> None:
    found = arms_of(
        with_arms({}, GATED, {"name": "decayed", "model": {"norm": "post"}, "train": {"weight_decay": 0.0}})
    )
    assert [name for name, _ in found] == ["base", "model.mlp=gated,model.mlp_ratio=2.6667", "decayed"]
    base, gated, decayed = (arm for _, arm in found)
    assert base == spec_of() and base.grid.arms is None
    assert (gated.model.mlp, gated.model.norm, gated.grid) == ("gated", "pre", base.grid)
    assert (decayed.model.norm, decayed.train.weight_decay, decayed.train.steps) == ("post", 0.0, 100)
    assert arms_of(spec_of()) == [("", spec_of())]
    numbers = arms_of(with_arms({}, {"train.weight_decay": 0.0, "model.kv_heads": 1}, {"model.biases": False}))
    assert [name for name, _ in numbers] == ["base", "train.weight_decay=0.0,model.kv_heads=1", "model.biases=false"]


def test_the_tables_of_arms_say_in_which_keys_they_differ() -> None:
    """The header has the recipe of the spec alone."""
    decayed = {"name": "decayed", "model": {"norm": "post"}, "train": {"weight_decay": 0.0}}
    said = printed(plan_report.render(build(with_arms({}, GATED, decayed)))).splitlines()
    titles = ("base", "model.mlp=gated,model.mlp_ratio=2.6667", "decayed: model.norm post, train.weight_decay 0.0")
    assert {*titles} <= {line.rstrip() for line in said}


def test_a_written_spec_has_its_arms_in_full(tmp_path: Path) -> None:
    """What an arm means does not depend on the code that reads it again, and an override reaches every arm. The rule of
    the heads is set in part or whole."""
    whole = {"name": "c", "grid.heads": {"size": 4}}
    arms = {"name": "a"}, {"name": "b", "grid.heads.size": 32, "train.grad_clip": None}, whole
    made = with_arms(*arms, grid={"heads": {"count": 2}})
    found = [arm.grid.heads for _, arm in arms_of(made)]
    assert [(heads.count, heads.size) for heads in found] == [(2, None), (2, 32), (None, 4)]
    path = tmp_path / "spec.yaml"
    path.write_text(made.to_yaml(), encoding="utf-8")
    again = load_spec(path)
    assert again == made and arms_of(again) == arms_of(made)
    assert yaml.safe_load(path.read_text("utf-8"))["grid"]["arms"][1]["grid.heads"] == {"count": 2, "size": 32}
    moved = arms_of(load_spec(path, ["train.weight_decay=0.3"]))
    assert [arm.train.weight_decay for _, arm in moved] == [0.3] * 3 and moved[1][1].train.grad_clip is None


@pytest.mark.parametrize(
    ("arms", "line"),
    [
        ([{}], "grid.arms: must be a list of at least two mappings"),
        ([{}, {"model.mpl": "gated"}], "grid.arms[1].model.mpl: unknown key; did you mean `mlp`?"),
        ([{}, {"train.steps": 50}], "grid.arms[1].train.steps: all arms share this key"),
        ([{}, {"data.vocab_size": 512}], "grid.arms[1].data.vocab_size: not a key of an arm; allowed: name, model.*"),
        ([GATED, GATED], "grid.arms[1]: the same recipe as grid.arms[0]"),
        ([{"name": ""}, GATED], "grid.arms[0].name: ''; must be a text of 1 to"),
        ([{"name": "a"}, {"name": "a", **GATED}], "grid.arms: a, a; every arm must have a name of its own"),
        ([{}, {"model": {"mlp": "gated"}, "model.mlp": "plain"}], "grid.arms[1].model.mlp: given twice"),
        ([{}, {"grid.heads.count": 3}], "grid.arms[1].grid.width_multiple: 4; grid.heads {count: 3}: "),
        ([STANDARD, {**STANDARD, "name": "x", "model.base_width": 8}], "grid.arms[1]: x trains the same runs as"),
    ],
)  # fmt: skip
def test_what_an_arm_may_not_be_is_said_in_a_line(arms: list, line: str) -> None:
    assert line in refusal(*arms)


def test_a_preset_in_an_arm_replaces_a_block_that_is_spelled_out() -> None:
    """As `--set model.preset` does; a key that the arm gives beside it wins, and a base's preset may be left."""
    spelled = spec_of(model={"activation": "relu", "positions": "sinusoidal"}).model_dump(mode="json")
    content = {**spelled, "grid": {**spelled["grid"], "arms": [{}, {"model.preset": "llama", "model.biases": True}]}}
    (_, base), (_, llama) = arms_of(parse_spec(content))
    assert (base.model.activation, base.model.positions) == ("relu", "sinusoidal")
    assert (llama.model.activation, llama.model.positions, llama.model.biases) == ("silu", "rotary", True)
    again = arms_of(parse_spec(parse_spec(content).model_dump(mode="json", by_alias=True)))
    assert [arm for _, arm in again] == [base, llama]


def test_arms_follow_each_other_with_the_ids_that_they_have_alone() -> None:
    plan = build(with_arms({"name": "a"}, {"name": "b", **GATED}), data=DATA)
    alone = [build(spec_of(), data=DATA), build(spec_of(model={"mlp": "gated", "mlp_ratio": 2.6667}), data=DATA)]
    assert [r.run_id for r in plan.runs] == [r.run_id for one in alone for r in one.runs]
    assert [p.pack_id for p in plan.packs] == [p.pack_id for one in alone for p in one.packs]
    assert [r.arm for r in plan.runs] == ["a"] * 8 + ["b"] * 8
    assert plan.estimates.flops == sum(one.estimates.flops for one in alone)
    configs = [run_config(r, plan) for r in plan.runs]
    assert [(c.arm, c.model["mlp"]) for c in configs] == [("a", "plain")] * 8 + [("b", "gated")] * 8
    assert plan.labels[plan.packs[0].pack_id] == f"a {plan.packs[0].shape.label}"
    rows = list(parse_plan_csv(plan_csv(to_rows(plan))))
    assert columns_of(PlanRow)[-1] == RESULTS[-1] == "arm" and [row.arm for row in rows] == [r.arm for r in plan.runs]


def test_a_warning_of_one_arm_names_it() -> None:
    plan = build(with_arms({"name": "tuned"}, {"name": "naive", "model.parametrization": "standard"}), data=DATA)
    assert says(plan.warnings, "plan: warning of one arm")
    assert any(line.startswith("2 depths: a width law") for line in plan.warnings)
