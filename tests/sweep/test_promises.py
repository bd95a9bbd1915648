"""Runs as long as seconds allow (``train.seconds``): steps from rates, fixed with the first plan, and what was kept."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_tools import Command
from shown import printed
from spec_tools import spec_of
from sweep_tools import run

from dwsweep import paths
from dwsweep.cost.duration import Calibration
from dwsweep.design import study
from dwsweep.errors import InputError
from dwsweep.plan import Plan, build
from dwsweep.plan.lengths import with_nominal_length
from dwsweep.records import record as reader
from dwsweep.records import run as run_record
from dwsweep.records.run import DONE, BenchRow, RunConfig, RunResult, RunState
from dwsweep.report import page as sweep_page
from dwsweep.report import plan_report, progress
from dwsweep.report.document import html_of
from dwsweep.spec import Spec
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import planned_vs_measured, sentence
from dwsweep.sweep.work_queue import check, fix_rates, plan_of_rest, with_rates_fixed, write_plan

pytestmark = pytest.mark.usefixtures("standin_here")

TOKENS: Any = SimpleNamespace(
    data_hash="f00d",
    n_train_tokens=10**6,
    n_validation_tokens=10**4,
    manifest=SimpleNamespace(splits={"validation": SimpleNamespace(n_documents=100)}),
)
SHAPES = {(1, 48): 30_000.0, (1, 92): 20_000.0, (2, 36): 24_000.0, (2, 64): 15_000.0}
"""Of the spec below, with tokens per second of a pack."""


TIMED = {
    "name": "timed",
    "grid": {"depths": [1, 2], "budgets": [3e4, 1e5], "seeds": 2},
    "train": {"seconds": 4.0, "warmup_steps": 2},
    "execution": {"checkpoint_steps": 50},
}


def spec(**sections: dict) -> Spec:
    return spec_of(TIMED, **sections)


def bench(directory: Path, factor: float = 1.0, devices: int = 1, kind: str = "cpu") -> None:
    """A bench file of the four shapes, ``factor`` times as fast as above."""
    flops = {(s.depth, s.width): 3 * (2 * s.n_params + 4 * s.depth * s.width * 128 + 2000 * s.width) for s in shapes()}
    rows = [
        BenchRow(
            device_kind=kind,
            depth=depth,
            width=width,
            devices=devices,
            tokens_per_second=factor * rate,
            flops_per_token=flops[depth, width],
        )
        for (depth, width), rate in SHAPES.items()
    ]
    run_record.write(rows, directory)


def shapes() -> list[Any]:
    planned = build(with_nominal_length(spec()))
    return list(dict.fromkeys(run.shape for run in planned.runs))


def ids(plan: Plan) -> list[str]:
    return [run.run_id for run in plan.runs]


def steps(plan: Plan) -> dict[tuple[int, int], int]:
    return {(run.shape.depth, run.shape.width): run.steps for run in plan.runs}


def warned(plan: Plan) -> str:
    return "\n".join(plan.warnings)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_run_gets_the_tokens_that_its_share_of_a_pack_trains_in_its_seconds(tmp_path: Path, devices: int) -> None:
    """Told by the clock: a pack of R replicas on D devices trains R runs in T/rate·R seconds; device-seconds of a run
    are that times D over R, as results.csv counts them."""
    bench(tmp_path, devices=devices)
    planned = plan_of_rest(spec(), TOKENS, tmp_path)
    for pack in planned.packs:
        rate = SHAPES[pack.shape.depth, pack.shape.width]  # tokens per second of the whole pack on all its devices
        (tokens,) = {run.tokens for run in planned.runs if run.pack_id == pack.pack_id}
        clock = tokens * len(pack.replicas) / rate
        device_seconds = clock * devices / len(pack.replicas)
        step = 16 * 128 * devices / rate
        assert abs(device_seconds - 4.0) <= step / 2 + 1e-5
    expected = {shape: round(4.0 * rate / devices / 2048) for shape, rate in SHAPES.items()}
    assert steps(planned) == expected
    # what the plan says of the time is the same share
    for one in planned.estimates.runs.values():
        assert one.device_seconds == pytest.approx(4.0, rel=0.02 * devices)


def test_a_rerun_after_another_bench_is_the_same_run(tmp_path: Path) -> None:
    bench(tmp_path)
    first = plan_of_rest(spec(), TOKENS, tmp_path)
    status, text = run(first, tmp_path)
    assert status == 0 and "4 device-seconds per run (train.seconds), at rates measured on cpu; fixed 20" in text
    bench(tmp_path, factor=3.0)
    again = plan_of_rest(spec(), TOKENS, tmp_path)
    assert ids(again) == ids(first) and {one.action for one in again.runs} == {"SKIP"}
    assert "by the rates that are measured now, runs would take 0.333 times that; those fixed earlier st" in warned(
        again
    )
    status, text = run(again, tmp_path)
    assert status == 0 and "nothing to train: 8 done" in text
    # without any bench, and as the command line plans it
    paths.remove(tmp_path / "bench.json")
    alone = plan_of_rest(spec(), TOKENS, tmp_path)
    assert ids(alone) == ids(first) and "by the rates that" not in warned(alone)
    # the promise is in every run's config.json, and stays what it was
    for one in first.runs:
        config = SweepStore(tmp_path).config(one.run_id)
        assert config is not None and config.promise is not None
        rate = SHAPES[one.shape.depth, one.shape.width]
        assert config.promise.seconds == pytest.approx(one.tokens / rate)
        assert (config.promise.rate.tokens_per_second, config.promise.rate.time_basis) == (rate, "measured")
        assert config.promise.rate.fixed and config.train["seconds"] == 4.0
    other = tmp_path / "other"
    bench(other, factor=3.0)
    assert not set(ids(plan_of_rest(spec(), TOKENS, other))) & set(ids(first))


def test_plan_with_out_fixes_the_rates_and_plan_alone_does_not(tmp_path: Path) -> None:
    bench(tmp_path)
    looked = plan_of_rest(spec(), TOKENS, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    written = with_rates_fixed(looked, tmp_path)
    write_plan(written, tmp_path)
    bench(tmp_path, factor=2.0)
    later = plan_of_rest(spec(), TOKENS, tmp_path)
    assert ids(later) == ids(looked)
    status, _ = run(later, tmp_path)
    assert status == 0 and set(SweepStore(tmp_path).run_ids()) == set(ids(looked))
    assert len(SweepStore(tmp_path).manifest.rates) == 4


def test_two_shards_agree_though_each_had_another_bench(tmp_path: Path) -> None:
    bench(tmp_path)
    one = plan_of_rest(spec(), TOKENS, tmp_path)
    bench(tmp_path, factor=2.0)  # between the two plans, before either wrote anything
    other = plan_of_rest(spec(), TOKENS, tmp_path)
    assert not set(ids(one)) & set(ids(other))
    assert run(one, tmp_path, shard=(0, 2))[0] == 0
    assert run(other, tmp_path, shard=(1, 2))[0] == 0
    store = SweepStore(tmp_path)
    assert set(store.run_ids()) == set(ids(one))
    assert {store.state(name).state for name in ids(one)} == {DONE}
    assert {run.action for run in plan_of_rest(spec(), TOKENS, tmp_path).runs} == {"SKIP"}


def test_of_many_that_begin_at_once_one_writes_and_all_follow(tmp_path: Path) -> None:
    plans = []
    for k in range(8):
        bench(tmp_path, factor=1.0 + k)
        plans.append(plan_of_rest(spec(), TOKENS, tmp_path))
    assert len({tuple(ids(one)) for one in plans}) == 8
    gate, settled = threading.Barrier(8), {}

    def begin(k: int) -> None:
        gate.wait()
        settled[k] = fix_rates(plans[k], SweepStore(tmp_path))

    threads = [threading.Thread(target=begin, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (agreed,) = {tuple(ids(settled[k])) for k in range(8)}
    assert list(agreed) in [ids(one) for one in plans]
    assert len(SweepStore(tmp_path).manifest.rates) == 4


@pytest.mark.parametrize("loss", ["deleted", "damaged", "by a version that does not know them"])
def test_a_manifest_that_lost_the_rates_gets_them_back_from_the_runs_and_it_is_said(tmp_path: Path, loss: str) -> None:
    bench(tmp_path)
    first = plan_of_rest(spec(), TOKENS, tmp_path)
    run(first, tmp_path, shard=(0, 2))
    bench(tmp_path, factor=2.0)
    file = tmp_path / "manifest.json"
    if loss == "deleted":
        file.unlink()
    elif loss == "damaged":
        file.write_text(file.read_text()[:100])
    else:
        content = json.loads(file.read_text())
        del content["rates"]
        file.write_text(json.dumps(content))
    said = "manifest.json has lost the rates of 4 shapes that lengths of runs were fixed at (train.seconds)"
    looked = plan_of_rest(spec(), TOKENS, tmp_path)
    assert ids(looked) == ids(first) and said in looked.warnings[0]
    status, text = run(looked, tmp_path, shard=(1, 2))
    assert status == 0 and said in text
    assert ("set aside" in text) == (loss == "damaged")
    assert said not in warned(plan_of_rest(spec(), TOKENS, tmp_path))
    assert len(SweepStore(tmp_path).manifest.rates) == 4
    assert set(SweepStore(tmp_path).run_ids()) == set(ids(first))


def test_a_damaged_config_is_written_again_with_its_promise(tmp_path: Path) -> None:
    bench(tmp_path)
    first = plan_of_rest(spec(), TOKENS, tmp_path)
    run(first, tmp_path)
    store = SweepStore(tmp_path)
    before = store.config(ids(first)[0])
    store.path_of(RunConfig, ids(first)[0]).write_text("{")
    bench(tmp_path, factor=2.0)
    run(plan_of_rest(spec(), TOKENS, tmp_path), tmp_path)
    assert store.config(ids(first)[0]) == before


def test_shapes_that_come_later_take_the_rates_of_then_and_it_is_said(tmp_path: Path) -> None:
    bench(tmp_path)
    first = plan_of_rest(spec(), TOKENS, tmp_path)
    run(first, tmp_path)
    manifest = SweepStore(tmp_path).manifest
    early = tuple(replace(rate, fixed="2026-01-01T00:00:00+0000") for rate in manifest.rates)
    reader.write(tmp_path / "manifest.json", replace(manifest, rates=early))
    bench(tmp_path, factor=2.0)
    wider = spec(grid={"budgets": [3e4, 1e5, 2e5]})
    grown = plan_of_rest(wider, TOKENS, tmp_path)
    assert set(ids(first)) < set(ids(grown))
    new = {shape: n for shape, n in steps(grown).items() if shape not in SHAPES}
    assert len(new) == 2
    text = warned(grown)
    assert "2 of 6 shapes, such as L1-d128-h2, came after the rates of the others were fixed (2026-01-01T" in text
    assert "as of now, not side by side" in text and "2 of 6 shapes were not benched" in text
    run(grown, tmp_path)
    later = plan_of_rest(wider, TOKENS, tmp_path)
    assert ids(later) == ids(grown) and "came after the rates of the others" in warned(later)
    assert "as of 20" in warned(later)
    bench(tmp_path, factor=5.0)
    assert ids(plan_of_rest(wider, TOKENS, tmp_path)) == ids(grown)
    assert len(SweepStore(tmp_path).manifest.rates) == 6


def test_another_device_has_rates_of_its_own(tmp_path: Path) -> None:
    """Asked for by name; the first one's stand beside them."""
    bench(tmp_path)
    train = {"precision": "bfloat16"}
    first = with_rates_fixed(plan_of_rest(spec(train=train), TOKENS, tmp_path), tmp_path)
    h100 = plan_of_rest(spec(train=train, execution={"device": "H100"}), TOKENS, tmp_path)
    assert not set(ids(first)) & set(ids(h100))
    assert "the rates of 4 of 4 shapes are ASSUMED for H100" in warned(h100)
    assert "before the first `run` or `plan --out` measures them" in warned(h100)
    fixed = with_rates_fixed(h100, tmp_path)
    assert "measures them" not in warned(fixed) and ids(fixed) == ids(h100)
    bench(tmp_path, kind="NVIDIA H100", factor=1e3)
    by_kind = plan_of_rest(spec(train=train, execution={"device": "NVIDIA H100 80GB HBM3"}), TOKENS, tmp_path)
    assert ids(by_kind) == ids(h100)  # the same device by another name
    assert "by the rates that are measured now" in warned(by_kind)
    assert len(SweepStore(tmp_path).manifest.rates) == 8


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({}, "no device is named"),
        ({"execution": {"device": "H900"}}, "'H900' is not in the table of devices"),
        ({"execution": {"device": "H100"}}, "the peak rate of H100 is for bfloat16 products"),
    ],
)
def test_without_a_rate_there_is_one_line_that_says_what_to_do(tmp_path: Path, sections: dict, why: str) -> None:
    for refused_by in (
        lambda: plan_of_rest(spec(**sections), TOKENS, tmp_path),
        lambda: check(spec(**sections), tmp_path),
        lambda: study(spec(**sections)),
    ):
        with pytest.raises(InputError) as refused:
            refused_by()
        (line,) = refused.value.lines
        assert line.startswith("train.seconds: 4; no rate is known that steps could follow from: ") and why in line
        assert "`dwsweep bench SPEC` measures the rates" in line and "execution.device" in line
    check(spec(train={"precision": "bfloat16"}, execution={"device": "H100"}), tmp_path)


def test_seconds_that_are_refused(tmp_path: Path) -> None:
    bench(tmp_path)
    for train, wanted in (
        (
            {"seconds": 0.1},
            "train.seconds: 0.1; gives L2-d64-h2 1 step, no more than train.warmup_steps 2; at least ",
        ),
        ({"seconds": 9e9}, "train.seconds: 9e+09; gives 131,835,937,500 steps at L1-d48-h2, at most 2,147,483,647"),
        ({"seconds": 1e11}, "train.seconds: 100000000000.0; must be less than or equal to 10,000,000,000"),
        (
            {"schedule": "wsd", "token_branches": [59_392 + 1]},
            "train.token_branches[0]: 59393; must be at most the tokens of the shortest run, 59,392",
        ),
    ):
        with pytest.raises(InputError) as refused:
            plan_of_rest(spec(train=train), TOKENS, tmp_path)
        assert len(refused.value.lines) == 1 and wanted in refused.value.lines[0], refused.value.lines


def test_branches_are_promised_their_part(tmp_path: Path) -> None:
    bench(tmp_path)
    planned = plan_of_rest(spec(train={"schedule": "wsd", "token_branches": [20_480]}), TOKENS, tmp_path)
    run(planned, tmp_path)
    store = SweepStore(tmp_path)
    for one in planned.runs:
        config = store.config(one.run_id)
        assert config is not None and config.promise is not None
        assert config.promise.seconds == pytest.approx(one.tokens / SHAPES[one.shape.depth, one.shape.width])
    assert {one.steps for one in planned.runs} == {10, *steps(planned).values()}


def test_what_is_benched_or_compiled_needs_no_rate() -> None:
    nominal = with_nominal_length(spec(train={"warmup_steps": 20_000, "schedule": "wsd", "token_branches": [1e8]}))
    assert build(nominal).packs and nominal.train.seconds is None
    for other in ({"seconds": None, "steps": 7}, {"seconds": None, "flops": 1e12}):
        assert with_nominal_length(spec(train=other)) == spec(train=other)


def test_a_design_costs_what_the_seconds_allow(tmp_path: Path) -> None:
    bench(tmp_path)
    planned = with_rates_fixed(plan_of_rest(spec(), TOKENS, tmp_path), tmp_path)
    bench(tmp_path, factor=2.0)
    judged = study(spec(), calibrations=Calibration.found_in(tmp_path), rates=planned.lengths.fixed, noise=0.003)
    assert judged.flops == sum(planned.estimates.runs[one.run_id].flops for one in planned.runs)


def test_the_plan_shows_what_the_steps_were_made_from(tmp_path: Path) -> None:
    bench(tmp_path)
    planned = with_rates_fixed(plan_of_rest(spec(), TOKENS, tmp_path), tmp_path)
    for width in (80, 100):
        lines = printed(plan_report.render(planned), width).splitlines()
        assert max(map(len, lines)) <= width
        text = " ".join(" ".join(lines).split())
        assert "length: 29 steps at L2-d64-h2 to 59 at L1-d48-h2, from 4 device-seconds per run (train.sec" in text
        assert "rates measured on cpu; fixed 20" in text and "tok/s tokens per second of one device" in text
    length = plan_report.to_json(planned)["length"]
    assert (length["key"], length["value"]) == ("seconds", 4.0)
    assert {rate["shape"]: rate["tokens_per_second"] for rate in length["rates"]} == {
        f"L{depth}-d{width}-h2": rate for (depth, width), rate in SHAPES.items()
    }


def test_promised_and_measured_time_stand_side_by_side(tmp_path: Path) -> None:
    bench(tmp_path)
    planned = plan_of_rest(spec(), TOKENS, tmp_path)
    run(planned, tmp_path)
    store = SweepStore(tmp_path)
    factor = {(1, 48): 1.0, (1, 92): 1.25, (2, 36): 0.5, (2, 64): 1.5}
    for one in planned.runs:
        result = store.result(one.run_id)
        assert result is not None
        took = (one.tokens / SHAPES[one.shape.depth, one.shape.width]) * factor[one.shape.depth, one.shape.width]
        took *= 1.1 if one.seed else 0.9
        reader.write(store.path_of(RunResult, one.run_id), replace(result, device_seconds=took))
    kept = planned_vs_measured(store, ids(planned))
    assert [(one.depth, one.width) for one in kept] == sorted(SHAPES)
    assert [one.ratio for one in kept] == pytest.approx(list(factor.values()))
    said = (
        "8 finished runs of 4 shapes took 0.50 to 1.50 times the device-seconds that train.seconds promised (rates "
        "measured for cpu); farthest off: L2-d36-h2, 2.01 s for 4.01 s; the shapes did not get equal time"
    )
    assert sentence(kept) == said
    assert said in " ".join(printed(progress.render(tmp_path), 80).split())
    promises: Any = progress.to_json(tmp_path)["promises"]
    assert [one["ratio"] for one in promises] == pytest.approx(list(factor.values()))
    shown = html_of(sweep_page.promises(kept))
    assert "<td>1.50</td>" in shown and "measured, cpu" in shown and "stand-in" in shown
    assert f"{said}." in shown and sweep_page.promises(()) == []
    first = next(run_id for run_id in ids(planned))
    config = store.config(first)
    assert config is not None
    reader.write(store.path_of(RunConfig, first), replace(config, promise=None))  # as a plan of steps made it
    assert sum(len(one.measured) for one in planned_vs_measured(store, ids(planned))) == len(planned.runs) - 1
    even = [replace(one, measured=(one.promised * k,)) for one, k in zip(kept, (0.5, 0.51, 0.52, 0.54), strict=True)]
    assert "0.50 to 0.54 times" in sentence(even) and "equal time" not in sentence(even)
    # one run less, and a sweep that was promised nothing
    store.write_state(ids(planned)[0], RunState("pending"))
    promises = progress.to_json(tmp_path)["promises"]
    assert len(promises[0]["measured"]) == 1
    assert planned_vs_measured(SweepStore(tmp_path / "nothing"), ["x"]) == () and sentence(()) == ""


def test_configs_without_a_promise_are_as_they_were(tmp_path: Path) -> None:
    planned = plan_of_rest(spec(train={"seconds": None, "steps": 5}), TOKENS, tmp_path)
    run(planned, tmp_path)
    content = json.loads((tmp_path / "runs" / ids(planned)[0] / "config.json").read_text())
    assert "promise" not in content and reader.parse(RunConfig, content).promise is None
    assert progress.to_json(tmp_path)["promises"] == []


def test_the_commands(dwsweep: Command, tmp_path: Path) -> None:
    """Plan before there is a rate, with one, written down, after another bench; a design; as a person calls them."""
    file = tmp_path / "timed.yaml"
    file.write_text(spec(data={"cache_dir": str(tmp_path / "cache")}).to_yaml())
    out = tmp_path / "runs" / "timed"
    refused = dwsweep("plan", file, "--json", cwd=tmp_path)
    assert refused.returncode == 2 and "no rate is known" in refused.stderr and refused.stderr.count("\n") == 1
    bench(out)
    looked = json.loads(dwsweep("plan", file, "--json", cwd=tmp_path).stdout)
    assert {row["steps"] for row in looked["runs"]} == {59, 39, 47, 29}
    assert not (out / "manifest.json").exists()
    assert dwsweep("plan", file, "--json", "--out", out).returncode == 0
    bench(out, factor=2.0)
    again = json.loads(dwsweep("plan", file, "--json", cwd=tmp_path).stdout)
    assert [row["steps"] for row in again["runs"]] == [row["steps"] for row in looked["runs"]]
    assert "fixed 20" in dwsweep("plan", file, cwd=tmp_path).stdout
    fresh = json.loads(dwsweep("plan", file, "--json", "--set", "train.seconds=2", cwd=tmp_path).stdout)
    assert {row["steps"] for row in fresh["runs"]} == {29, 20, 23, 15}
    assert dwsweep("design", file, "--json", cwd=tmp_path).returncode == 0
