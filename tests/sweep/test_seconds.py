"""Runs as long as seconds allow (``train.seconds``): steps from rates that the first plan saves, and time kept."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_tools import Command
from sentences import says, shows
from shown import printed
from spec_tools import spec_of
from sweep_tools import run, work_in

from dwsweep import paths
from dwsweep.cost.duration import Calibration
from dwsweep.design import study
from dwsweep.errors import InputError
from dwsweep.plan import Plan, build
from dwsweep.plan.lengths import with_nominal_length
from dwsweep.records import bench as bench_record
from dwsweep.records import record as reader
from dwsweep.records.bench import BenchRow
from dwsweep.records.run import DONE, RunResult
from dwsweep.report import plan_report, status_report
from dwsweep.spec import Spec
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import time_kept
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
    bench_record.write(rows, directory)


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
    assert status == 0 and says(text, "sweep: rates of a run")
    bench(tmp_path, factor=3.0)
    again = plan_of_rest(spec(), TOKENS, tmp_path)
    assert ids(again) == ids(first) and {one.action for one in again.runs} == {"SKIP"}
    status, text = run(again, tmp_path)
    assert status == 0 and work_in(text) == (0, 0, 8)
    # without any bench, and as the command line plans it
    paths.remove(tmp_path / "bench.json")
    alone = plan_of_rest(spec(), TOKENS, tmp_path)
    assert ids(alone) == ids(first)
    # plan.csv has the rate of every run, and where it comes from
    for row in SweepStore(tmp_path).planned():
        assert row.rate == SHAPES[row.depth, row.width] and row.tokens / row.rate == pytest.approx(4.0, rel=0.02)
        assert row.rate_origin is not None and says(row.rate_origin, "sweep: origin of a rate")
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


def test_shapes_that_come_later_take_the_rates_of_then(tmp_path: Path) -> None:
    bench(tmp_path)
    first = plan_of_rest(spec(), TOKENS, tmp_path)
    run(first, tmp_path)
    bench(tmp_path, factor=2.0)
    wider = spec(grid={"budgets": [3e4, 1e5, 2e5]})
    grown = plan_of_rest(wider, TOKENS, tmp_path)
    assert set(ids(first)) < set(ids(grown))
    assert len({shape for shape in steps(grown) if shape not in SHAPES}) == 2
    assert says(warned(grown), "sweep: rates of other shapes")
    run(grown, tmp_path)
    bench(tmp_path, factor=5.0)
    later = plan_of_rest(wider, TOKENS, tmp_path)
    assert ids(later) == ids(grown) and "`dwsweep bench SPEC` before" not in warned(later)
    assert len(SweepStore(tmp_path).manifest.rates) == 6


def test_another_device_has_rates_of_its_own(tmp_path: Path) -> None:
    """Asked for by name; the first one's stand beside them."""
    bench(tmp_path)
    train = {"precision": "bfloat16"}
    first = with_rates_fixed(plan_of_rest(spec(train=train), TOKENS, tmp_path), tmp_path)
    h100 = plan_of_rest(spec(train=train, execution={"device": "H100"}), TOKENS, tmp_path)
    assert not set(ids(first)) & set(ids(h100))
    assert says(warned(h100), "sweep: assumed rates")
    assert says(warned(h100), "sweep: assumed rates mended")
    fixed = with_rates_fixed(h100, tmp_path)
    assert "measures them" not in warned(fixed) and ids(fixed) == ids(h100)
    bench(tmp_path, kind="NVIDIA H100", factor=1e3)
    by_kind = plan_of_rest(spec(train=train, execution={"device": "NVIDIA H100 80GB HBM3"}), TOKENS, tmp_path)
    assert ids(by_kind) == ids(h100)  # the same device by another name
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


def test_what_is_benched_or_compiled_needs_no_rate() -> None:
    nominal = with_nominal_length(spec(train={"warmup_steps": 20_000, "schedule": "wsd", "token_branches": [1e8]}))
    assert build(nominal).packs and nominal.train.seconds is None
    for other in ({"seconds": None, "steps": 7}, {"seconds": None, "flops": 1e12}):
        assert with_nominal_length(spec(train=other)) == spec(train=other)


def test_a_design_costs_what_the_seconds_allow(tmp_path: Path) -> None:
    bench(tmp_path)
    planned = with_rates_fixed(plan_of_rest(spec(), TOKENS, tmp_path), tmp_path)
    bench(tmp_path, factor=2.0)
    judged = study(spec(), calibrations=Calibration.found_in(tmp_path), rates=planned.lengths.saved, noise=0.003)
    assert judged.flops == sum(planned.estimates.runs[one.run_id].flops for one in planned.runs)


def test_the_plan_shows_what_the_steps_were_made_from(tmp_path: Path) -> None:
    bench(tmp_path)
    planned = with_rates_fixed(plan_of_rest(spec(), TOKENS, tmp_path), tmp_path)
    for width in (80, 100):
        lines = printed(plan_report.render(planned), width).splitlines()
        assert max(map(len, lines)) <= width
        text = " ".join(" ".join(lines).split())
        assert says(text, "sweep: length of a timed plan")
        assert says(text, "sweep: origin of the rates") and "tok/s tokens per second of one device" in text
    length = plan_report.to_json(planned)["length"]
    assert (length["key"], length["value"]) == ("seconds", 4.0)
    assert {rate["shape"]: rate["tokens_per_second"] for rate in length["rates"]} == {
        f"L{depth}-d{width}-h2": rate for (depth, width), rate in SHAPES.items()
    }


def test_planned_and_measured_time_stand_side_by_side(tmp_path: Path) -> None:
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
    said = (
        "8 finished runs of 4 shapes took 0.50 to 1.50 times the device-seconds of train.seconds; farthest off: "
        "L2-d36-h2; the shapes did not get equal time"
    )
    assert time_kept(store, store.planned()) == said
    assert said in " ".join(printed(status_report.render(tmp_path), 80).split())
    assert status_report.to_json(tmp_path)["time_kept"] == said
    even = [row for row in store.planned() if row.depth == 1 and row.width == 48]
    assert shows(time_kept(store, even), "sweep: time kept", numbers=True)
    # a run that is not done any more, and a sweep whose steps are given
    store.path_of(RunResult, ids(planned)[0]).unlink()
    assert time_kept(store, store.planned()).startswith("7 finished runs")
    assert time_kept(store, [replace(row, rate=None) for row in store.planned()]) == ""


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
