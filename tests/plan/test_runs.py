"""Spec → runs and packs: ids that hash what changes a result and nothing else, drops, packs, branches, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sentences import says
from spec_tools import BASE, DATA, filled, only, spec_of

from dwsweep.errors import InputError
from dwsweep.plan import DROP, RUN, SKIP, DataFacts, Plan, Run, build
from dwsweep.plan.schedule import Phase, phases
from dwsweep.spec import DataSpec, ModelSpec, Spec, TrainSpec
from dwsweep.text import format_count


def by_id(plan: Plan) -> dict[str, Run]:
    return {run.run_id: run for run in plan.runs}


def ids(facts: DataFacts | None = DATA, **sections: dict) -> list[str]:
    return [run.run_id for run in build(spec_of(**sections), data=facts).runs]


@pytest.mark.parametrize(
    "change",
    [
        *({"train": keys} for keys in ({"batch_size": 16}, {"steps": 101}, {"seq_len": 64}, {"eval_tokens": 5000})),
        *({"model": keys} for keys in ({"base_width": 32}, {"base_depth": 4}, {"preset": "llama"}, {"qk_norm": True})),
        *({"model": keys} for keys in ({"attention": "linear"}, {"mlp_multiple": 24}, {"mlp_ratio": 3.0})),
        *({"grid": {"heads": heads}} for heads in ({"count": 4}, {"count": 2, "size": 32})),
        *({"grid": {"learning_rates": [2e-3]}}, {"grid": {"seeds": [7, 8]}}, {"data": {"vocab_size": 512}}),
    ],
    ids=json.dumps,
)
def test_what_changes_a_result_changes_every_id(change: dict) -> None:
    assert not set(ids()) & set(ids(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"cache_dir": "/elsewhere", "workers": 3}},
        {"data": {"source": "text:moved/*.txt"}},  # the content's hash stands for it
        {"execution": {"log_steps": 1, "checkpoint_seconds": 5, "microbatch": 4, "max_replicas": 1, "remat": True}},
        {"execution": {"device": "H100", "loggers": ["tensorboard"], "workers": 2}},
        {"execution": {"keep_params": "all"}},
        {"grid": {"max_mismatch": 0.5}},
        {"train": {"steps": None, "tokens": 100 * 8 * 128}},  # the same 100 steps
        {"train": {"cooldown_fraction": 0.5}},  # no wsd, no cool-down
        {"train": {"conditioning": True}},
    ],
    ids=json.dumps,
)
def test_what_changes_no_result_changes_no_id(change: dict) -> None:
    assert ids(**change) == ids()


def test_a_preset_is_nothing_but_its_values() -> None:
    spelled = {
        **{"norm_type": "rmsnorm", "activation": "silu", "mlp": "gated", "mlp_ratio": 8 / 3, "mlp_multiple": 8},
        **{"positions": "rotary", "biases": False, "qk_norm": True, "rope_theta": 1e6},
    }
    assert ids(model={"preset": "qwen3"}) == ids(model=spelled)
    assert ids(model={"preset": "gpt2"}) == ids()
    # a value that is given wins
    assert ids(model={"preset": "llama", "activation": "gelu"}) != ids(model={"preset": "llama"})
    assert ids(model={"preset": "qwen3", "qk_norm": False, "rope_theta": 1e4}) == ids(model={"preset": "llama"})


def test_a_key_counts_only_where_another_key_uses_it() -> None:
    for needed, key in (
        ({"positions": "rotary"}, {"rope_theta": 500.0}),
        ({"parametrization": "mup"}, {"base_width": 8}),
        ({"parametrization": "completep"}, {"base_depth": 1}),
    ):
        assert ids(model={"parametrization": "standard", **key}) == ids(model={"parametrization": "standard"})
        assert not set(ids(model=needed)) & set(ids(model={**needed, **key}))


def test_the_data_is_part_of_the_id() -> None:
    assert not set(ids()) & set(ids(DataFacts("1" * 64, 700_000, 20_000)))


def test_ids_stay_the_same_between_versions() -> None:
    """A change of this value orphans everybody's finished runs: raise HASH_VERSION only where results change."""
    assert ids()[0] == "L2-d64-h2-lr0.001-s0-046342a7"


class Train(TrainSpec):
    dropout: float = 0.0


class Model(ModelSpec):
    memory: int | None = None


class Data(DataSpec):
    lowercase: bool = False


class Later(Spec):
    """The spec of a later version, with a key more in each section and a section more."""

    train: Train
    model: Model = Model()
    data: Data = Data()
    curriculum: str = "none"


@pytest.mark.parametrize(
    "change",
    [
        {"train": {"dropout": 0.3}},
        {"model": {"memory": 4}},
        {"data": {"lowercase": True}},
        {"curriculum": "short first"},
    ],
    ids=json.dumps,
)
def test_a_key_that_nobody_listed_counts_unless_it_has_its_default(change: dict) -> None:
    def found(**changes: object) -> list[str]:
        return [run.run_id for run in build(Later.model_validate(filled(BASE, **changes)), data=DATA).runs]

    assert found() == ids()
    assert not set(found(**change)) & set(ids())


@pytest.mark.parametrize(
    ("grid", "count"),
    [
        ({}, 8),
        ({"arms": [{}, {"train.weight_decay": 0.0}]}, 16),
        # shapes of one label, whose hashes alone would tell them apart
        ({"heads": [{"count": 2, "size": 32}, {"count": 2, "size": 64}], **only({2: [64]})}, 4),
    ],
)
def test_before_prepare_the_ids_say_so_and_differ(grid: dict, count: int) -> None:
    plan = build(spec_of(grid=grid))
    assert plan.waits_for_data
    assert all(run.run_id.endswith("-unhashed") for run in plan.runs)
    assert len({run.run_id for run in plan.runs}) == len(plan.runs) == count
    assert {*plan.estimates.packs} == {pack.pack_id for pack in plan.packs} == {run.pack_id for run in plan.runs}
    assert all(plan.estimates.runs[run.run_id].epochs is None for run in plan.runs)


def test_a_pack_holds_every_seed_and_rate_of_its_shape() -> None:
    plan = build(spec_of(grid={"learning_rates": [1e-3, 2e-3]}), data=DATA)
    assert len(plan.packs) == 4
    for pack in plan.packs:
        assert [(r.seed, r.learning_rate) for r in pack.replicas] == [(0, 1e-3), (1, 1e-3), (0, 2e-3), (1, 2e-3)]
        named = {name for replica in pack.replicas for name in replica.run_ids}
        assert named == {run.run_id for run in plan.runs if run.pack_id == pack.pack_id}
        assert all(by_id(plan)[name].shape == pack.shape for name in named)


@pytest.mark.parametrize("data", [DATA, None])
def test_max_replicas_splits_packs_and_keeps_runs(data: DataFacts | None) -> None:
    whole, split = build(spec_of(), data=data), build(spec_of(execution={"max_replicas": 1}), data=data)
    assert [len(pack.replicas) for pack in split.packs] == [1] * 8
    assert len({pack.pack_id for pack in split.packs}) == 8
    assert [run.run_id for run in whole.runs] == [run.run_id for run in split.runs]


def test_token_branches_are_runs_of_their_own() -> None:
    plan = build(spec_of(train={"schedule": "wsd", "token_branches": [25_600, 51_200]}), data=DATA)
    pack = plan.packs[0]
    assert pack.branch_steps == (25, 50, 100) and phases((100,), pack.train) == (Phase(0, 100, 0, False),)
    runs = [by_id(plan)[name] for name in pack.replicas[0].run_ids]
    assert [run.steps for run in runs] == [25, 50, 100]
    assert [run.tokens for run in runs] == [25_600, 51_200, 102_400]
    assert ["-t2.56e4-" in run.run_id for run in runs] == [True, False, False]
    # the full length is the run that it would be without branches
    alone = build(spec_of(train={"schedule": "wsd"}), data=DATA)
    assert runs[-1].run_id in by_id(alone)
    assert pack.pack_id != alone.packs[0].pack_id


def test_tokens_are_met_in_whole_steps() -> None:
    plan = build(spec_of(train={"schedule": "wsd", "steps": None, "tokens": 100_000}), data=DATA)
    assert {run.tokens for run in plan.runs} == {98 * 1024}
    plan = build(spec_of(train={"steps": None, "tokens_per_param": 20}), data=DATA)
    assert all(0 <= run.tokens - 20 * run.shape.n_params < 1024 for run in plan.runs)


def test_finished_runs_are_skipped_with_the_reason() -> None:
    names = ids()
    states = {names[0]: "done", names[1]: "diverged", names[2]: "failed", names[3]: "oom", names[4]: "interrupted"}
    plan = build(spec_of(), data=DATA, finished=states)
    assert [run.action for run in plan.runs] == [SKIP] * 4 + [RUN] * 4
    assert "--retry diverged" in plan.runs[1].reason and "--retry failed" in plan.runs[3].reason
    assert "checkpoint" in plan.runs[4].reason
    # the packs of finished runs stay in the plan, and cost nothing more
    assert len(plan.packs) == 4 and plan.estimates.n_packs == 2


def test_two_budgets_of_one_width_leave_the_nearer() -> None:
    plan = build(spec_of(grid={"depths": [4], "budgets": [90e3, 98e3, 3e5]}), data=DATA)
    first, second = (next(run for run in plan.runs if run.budget == budget) for budget in (90e3, 98e3))
    assert first.shape == second.shape
    kept, dropped = sorted((first, second), key=lambda run: abs(run.shape.n_params - run.budget))
    assert (kept.action, dropped.action) == (RUN, DROP)
    assert format_count(kept.budget) in dropped.reason and "width_multiple" in dropped.reason
    assert len(by_id(plan)) == len(plan.runs) and dropped.pack_id == ""


def test_a_far_budget_warns_or_drops_and_a_plan_of_nothing_says_so() -> None:
    grid = {"depths": [24], "budgets": [5e4], "width_multiple": 16}
    (loose, *_) = build(spec_of(grid=grid), data=DATA).runs
    strict = build(spec_of(grid={**grid, "strict_budgets": True}), data=DATA)
    assert loose.action == RUN and "max_mismatch" in loose.reason
    assert strict.runs[0].action == DROP and "strict_budgets" in strict.runs[0].reason
    assert not strict.packs and says(strict.warnings[0], "plan: nothing to train")
    assert strict.estimates.flops == 0 and strict.estimates.device_seconds in (0, None)


COUNT_3 = {"grid": {"heads": {"count": 3}}, "train": {"schedule": "wsd", "token_branches": [1e9]}}
WIDTHS = {"depths": [], "budgets": None, "widths": {2: [63, 64], 4: [2]}}
MESH = {"mesh": {"replica": 2, "data": 3, "fsdp": 2}, "max_replicas": 4}
NINE = {"depths": [2, 4, 8], "budgets": [1e5, 3e5, 1e6]}


def heads(*rules: Any) -> dict[str, Any]:
    return {"grid": {"depths": [2], "budgets": [2 * 12 * 8**2], "heads": list(rules)}}


def flops(value: float, **train: Any) -> dict[str, Any]:
    return {"grid": NINE, "train": {"steps": None, "flops": value, **train}}


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        (
            {"grid": WIDTHS, "model": {"positions": "rotary"}},
            [
                "grid.widths.2: 63; grid.heads {count: 2}: the width must be a multiple of the 2 heads",
                "grid.widths.4: 2; grid.heads {count: 2}: rotary positions need an even head size, not 1",
            ],
        ),
        (
            {"grid": {"heads": {"size": 64}, "width_multiple": 64}, "model": {"kv_heads": 2}},
            ["grid.width_multiple: 64; grid.heads {size: 64}: model.kv_heads 2 must divide the heads, 1 at width 64"],
        ),
        (
            {**COUNT_3, "execution": {"microbatch": 3}},
            [
                "grid.width_multiple: 4; grid.heads {count: 3}: the width must be a multiple of the 3 heads",
                "execution.microbatch: 3; must divide train.batch_size 8",
                "train.token_branches[0]: 1e+09; must be at most the tokens of the shortest run, 102,400",
            ],
        ),
        (
            {"grid": {"seeds": 5, "learning_rates": [1e-3]}, "execution": MESH},
            [
                "execution.mesh: data 3, fsdp 2; data · fsdp must divide train.batch_size 8",
                "execution.mesh.replica: 2; must divide the replicas of every pack, here 1 and 4",
            ],
        ),
        (heads({"count": 2}, {"count": 2}), ["grid: `heads` has a value twice: ['{count: 2}', '{count: 2}']"]),
        (heads({"count": 2}, {}), ["grid.heads[1]: give `count` or `size`, or both"]),
        ({"grid": {"heads": 7}}, ["grid.heads: 7; must be a mapping with the keys count, size"]),
        (
            heads({"count": 2}, {"count": 3}),
            ["grid.width_multiple: 4; grid.heads[1] {count: 3}: the width must be a multiple of the 3 heads"],
        ),
        (
            heads({"count": 2}, {"size": 4}),
            ["grid.heads[1]: {size: 4}; gives L2-d8-h2 with head size 4 as grid.heads[0] {count: 2} does"],
        ),
        (
            flops(2e10, warmup_steps=20),
            [
                "train.flops: 2e+10; gives L8-d104-h2 2 steps, no more than train.warmup_steps 20;"
                " at least 1.76e+11 here"
            ],
        ),
        (flops(1e30), ["train.flops: 1e+30; gives 894,366,629,300,744,355,840 steps at L4-d44-h2"]),
        (
            flops(3e12, schedule="wsd", token_branches=[1e7]),
            ["train.token_branches[0]: 1e+07; must be at most the tokens of the shortest run, "],
        ),
    ],
)
def test_combinations_that_are_refused_all_at_once(sections: dict, wanted: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        build(spec_of(**sections))
    assert len(caught.value.lines) == len(wanted)
    assert all(line.startswith(start) for line, start in zip(caught.value.lines, wanted, strict=True))
