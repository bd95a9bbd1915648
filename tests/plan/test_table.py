"""The plan as a person and a program read it, and the sweeps that ship: within their budgets, their costs in sight."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from checkout import SWEEPS
from sentences import says
from shown import printed
from spec_tools import DATA, spec_of

from dwsweep.plan import DataFacts, Plan, build
from dwsweep.plan.units import to_rows
from dwsweep.records.record import columns_of
from dwsweep.records.sweep import PlanRow, parse_plan_csv
from dwsweep.report import plan_report
from dwsweep.spec import load_spec
from dwsweep.sweep.directory import SweepStore
from dwsweep.text import format_count, format_duration

MISMATCHED = {
    "name": "t",
    "grid": {"depths": [2, 4, 12], "budgets": [3e4, 4e4, 3e5], "seeds": 2},
    "train": {"steps": 100},
}


def text_of(plan: Plan) -> str:
    return printed(plan_report.render(plan))


def plan_of(**sections: Any) -> Plan:
    return build(spec_of(MISMATCHED, **sections), data=DATA)


def test_isoflop_spends_the_same_on_every_net_and_spans_the_balance_of_size_and_tokens() -> None:
    for name in ("isoflop", "isoflop-smoke"):
        plan = build(load_spec(SWEEPS / f"{name}.yaml"))
        budget = plan.spec.train.flops
        assert budget is not None
        assert all(abs(one.flops / budget - 1) < 0.01 for one in plan.estimates.runs.values())
        ratios = [run.tokens / run.shape.n_params_total for run in plan.runs]
        assert min(ratios) < 20 / 5 and max(ratios) > 20 * 4
        assert not any("miss the budget" in line or "mismatch" in line for line in plan.warnings)
        assert all(pack.fits is not False for pack in plan.estimates.packs.values())


def test_the_text_has_every_warning_reason_and_shape_and_the_total() -> None:
    assert says(text_of(build(load_spec("smoke"))), "plan: total of a plan")
    for plan in (build(load_spec(SWEEPS / "levine-mini.yaml")), plan_of(), plan_of(execution={"device": "H200"})):
        text = " ".join(text_of(plan).split())
        reasons = {run.reason for run in plan.runs if run.reason}
        assert all(" ".join(line.split()) in text for line in (*plan.warnings, *reasons))
        assert all(f"{run.shape.depth}×{run.shape.width}" in text for run in plan.runs)


def test_a_narrow_terminal_cuts_no_number() -> None:
    wide, narrow = ([*map(str.rstrip, printed(plan_report.render(plan_of()), n).splitlines())] for n in (200, 60))
    rows = {line for line in wide if "2 RUN" in line}
    assert rows and rows <= {*narrow}


def test_rows_hold_the_resolved_learning_rates() -> None:
    rows = to_rows(plan_of(model={"base_depth": 2, "base_width": 64}))
    for row in rows:
        assert row.hidden_learning_rate == pytest.approx(1e-3 * 64 / row.width)
        assert row.residual_multiplier == pytest.approx(2 / row.depth)
        assert row.epochs == pytest.approx(row.tokens / 700_000)


def test_csv_and_json_hold_every_run(tmp_path: Path) -> None:
    plan = plan_of()
    path = SweepStore(tmp_path / "new").write_plan_table(plan)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == columns_of(PlanRow)
    assert [row["run_id"] for row in rows] == [run.run_id for run in plan.runs]
    content = plan_report.to_json(plan)
    assert content["runs"] == [asdict(row) for row in to_rows(plan)]
    assert list(parse_plan_csv(path.read_text())) == to_rows(plan)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["totals"]["flops"] == sum(row["flops"] for row in content["runs"] if row["action"] == "RUN")


def test_a_shared_trunk_is_paid_once() -> None:
    train = {"schedule": "wsd", "token_branches": [50 * 16 * 128]}
    plan = plan_of(grid={"budgets": [3e5]}, train=train)
    alone = plan_of(grid={"budgets": [3e5]}, train={"schedule": "wsd"})
    # 100 steps, and the 10 cool-down steps of the branch at 50
    assert plan.estimates.tokens == pytest.approx(alone.estimates.tokens * 1.1)
    assert plan.estimates.flops == pytest.approx(alone.estimates.flops * 1.1)


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        *((format_count, n, text) for n, text in ((950, "950"), (999_600, "1M"), (6.55e10, "65.5B"))),
        *((format_duration, s, text) for s, text in ((7.25, "7.2 s"), (99.7, "1.66 min"), (86400 * 852, "852 d"))),
    ],
)
def test_units(function: Any, value: float, text: str) -> None:
    assert function(value) == text


# Each scientific warning appears where it should, with its reason, and not where it should not.


QUIET: dict[str, Any] = {
    "name": "quiet",
    "grid": {
        "depths": [6, 12, 18, 24],
        "budgets": {"from": 3e5, "to": 4e8, "count": 16},
        "width_multiple": 8,
        "max_mismatch": 0.2,
        "heads": {"count": 2, "size": 64},
    },
    "model": {"tied_embeddings": True},
    "data": {"vocab_size": 256},
    "train": {"seq_len": 32, "steps": 1000},
}


def warnings(**sections: dict) -> str:
    return "\n".join(build(spec_of(QUIET, **sections)).warnings)


def test_a_sound_plan_warns_of_width_only() -> None:
    assert says(warnings(data={"vocab_size": 50_000}), "plan: large embeddings")
    tuned = {"model": {"parametrization": "standard"}, "grid": {"learning_rates": [1e-3, 2e-3, 4e-3]}}
    assert "deep nets may look worse" not in warnings(**tuned)
    text = warnings()
    assert "d_x above" in text and "embeddings" not in text
    assert "learning rate" not in text and "seed" not in text and "head size" not in text


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        (
            {"model": {"parametrization": "standard"}},
            "does not carry the learning rate over depth, and the grid has 1 learning rate:",
        ),
        ({"train": {"steps": None, "tokens_per_param": 20}}, "tokens grow with the size"),
        ({"train": {"warmup_steps": 1000}}, "never reaches its peak"),
        (
            {"train": {"warmup_steps": 900, "schedule": "wsd"}},
            "reaches into the cool-down of the shortest run, which is its last 200 of 1,000 steps",
        ),
        ({"grid": {"depths": [6, 12]}}, "2 depths: a width law needs at least three pairs"),
        ({"grid": {"depths": [6]}}, "one depth (6)"),
        ({"grid": {"seeds": 1}}, "one seed"),
        ({}, "d_x above the vocabulary of 256"),
        ({"model": {"embedding_rank": 16}}, "d_x above model.embedding_rank 16"),
        ({"train": {"seq_len": 65}}, "head size below the window of 65"),
        ({"grid": {"width_multiple": 64, "max_mismatch": 0.05}}, "further than max_mismatch 5%"),
    ],
)
def test_each_warning(sections: dict, wanted: str) -> None:
    assert wanted in warnings(**sections)


def test_more_than_one_epoch() -> None:
    for tokens, said in ((1000 * 16 * 32, False), (500 * 16 * 32, True)):
        warned = build(spec_of(QUIET), data=DataFacts("a" * 64, tokens, 1000)).warnings
        assert ("2.0 epochs" in "\n".join(warned)) == said == ("epochs" in "\n".join(warned))


@pytest.mark.parametrize(
    ("held_out", "caution", "eval_tokens", "wanted"),
    [
        (100, None, None, ""),
        (100, None, 3000, ""),
        (100, None, 2999, "train.eval_tokens 2,999: .* need 30 held-out documents or more, about 3,000 tokens"),
        (3, "three held out", 50, "three held out"),
    ],
)
def test_too_little_held_out(held_out: int, caution: str | None, eval_tokens: int | None, wanted: str) -> None:
    facts = DataFacts("a" * 64, 10**9, 100 * held_out, held_out, caution)
    found = build(spec_of(QUIET, train={"eval_tokens": eval_tokens}), data=facts).warnings
    lines = [line for line in found if "held" in line]
    assert len(lines) == bool(wanted) and all(re.search(wanted, line) for line in lines)


@pytest.mark.parametrize(
    ("needed", "sections"),
    [
        ("train.momentum 0.5 has no effect: it belongs to train.optimizer: muon", {"train": {"momentum": 0.5}}),
        ("model.rope_theta 500.0 has no effect", {"model": {"rope_theta": 500.0}}),
        ("data.text_field body has no effect", {"data": {"text_field": "body"}}),
        ("data.seed 3 has no effect", {"data": {"seed": 3, "tokenizer": "bytes", "vocab_size": 256}}),
        ("", {"train": {"momentum": 0.5, "optimizer": "muon"}, "data": {"source": "jsonl:a", "text_field": "body"}}),
    ],
)
def test_a_key_without_effect_is_named_with_the_key_that_it_belongs_to(needed: str, sections: dict) -> None:
    found = [line for line in warnings(**sections).splitlines() if "has no effect" in line]
    assert [line.startswith(needed) for line in found] == [True] * bool(needed)


@pytest.mark.parametrize(
    ("second", "named"), [({"train.optimizer": "muon"}, False), ({"train.weight_decay": 0.0}, True)]
)
def test_a_key_that_one_arm_needs_has_an_effect(second: dict[str, Any], named: bool) -> None:
    found = warnings(train={"momentum": 0.5}, grid={"arms": [{}, second]})
    assert ("train.momentum 0.5 has no effect" in found) == named and "base: train.momentum" not in found
