"""Time: the table of devices, the named assumption, the calibration by `bench`; unknown stays unknown."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import says
from spec_tools import spec_of

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.devices import DEVICES, find
from dwsweep.cost.duration import Calibration, Rate, assumed_mfu, recipe_of
from dwsweep.errors import InputError
from dwsweep.plan import Plan, build
from dwsweep.plan.units import to_rows
from dwsweep.records import bench as bench_record
from dwsweep.records.bench import BenchRow
from dwsweep.shapes import BlockForm, HeadRule
from dwsweep.train import targets


def test_devices_by_name_and_by_kind() -> None:
    kinds = ("NVIDIA H100 80GB HBM3", "h200", "NVIDIA A100-SXM4-40GB", "NVIDIA L4", "TPU v5 lite", "TPU v6 lite")
    devices = [(device.name, device.peak_flops) for device in map(find, kinds) if device]
    assert devices == [
        *(("H100", 989e12), ("H200", 989e12), ("A100-40GB", 312e12), ("L4", 121e12), ("TPU-v5e", 197e12)),
        ("TPU-v6e", 918e12),
    ]


def test_what_is_not_in_the_table_is_unknown() -> None:
    no_kinds = ("cpu", "", None, "NVIDIA A10G", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "TPU v4 lite", "NVIDIA H100 NVL")
    no_rates = ("tflops=1,gb=1", "tflops=0,gb=1,gbps=1", "tflops=x,gb=1,gbps=1", "tflops=1,gb=1,gbps=1,x=1", "a=1")
    assert [find(kind) for kind in (*no_kinds, *no_rates)] == [None] * 12


@pytest.mark.parametrize("name", sorted(targets.GPUS))
def test_a_gpu_is_described_to_its_compiler_under_a_name_of_the_table(name: str) -> None:
    """Its program is that of a device of the table by the name that JAX then gives it."""
    assert {*targets.TPUS} <= {device.name for device in DEVICES}
    device = find(name)
    found = re.search(r'device_description_str: "([^"]+)"', targets.gpu_config(device))
    assert found and find(found.group(1)) == device


FITTED = {
    # vocabulary, window, heads, replicas: (depth, width, milliseconds of a step of 32,768 tokens each, cuDNN)
    (50_304, 1024, HeadRule(size=64), 1): [
        *((6, 192, 15.0, True), (3, 384, 17.7, True), (6, 384, 23.1, True), (12, 384, 34.1, True)),
        *((12, 576, 51.9, True), (6, 768, 43.7, True)),
    ],
    (1000, 128, HeadRule(count=2), 3): [
        *((6, 372, 31.7, True), (12, 264, 46.4, False), (18, 216, 47.6, True), (24, 64, 18.4, True)),
        (12, 64, 14.6, False),
    ],
}
"""`bench` with JAX 0.11.2, driver 580, bfloat16, AdamW, 2026-11-26; the assumption's constants were fitted to them."""

TRAINED = {
    (1000, 128, HeadRule(count=2), 3): [
        *((2, 364, 11.9, True), (2, 484, 16.7, True), (2, 644, 25.0, False), (2, 868, 35.9, False)),
        *((4, 260, 16.8, True), (4, 340, 20.6, True), (4, 456, 26.9, True), (4, 612, 41.9, False)),
        *((8, 184, 18.8, True), (8, 240, 22.8, True), (8, 324, 38.5, True)),
        (8, 432, 46.8, True),  # XLA's attention was measured to be faster here
        *((16, 128, 22.4, True), (16, 172, 36.2, True), (16, 228, 47.3, True), (16, 308, 69.1, True)),
    ]
}
"""Whole runs of 700 steps by `run`, the same day, after the constants were fitted: outside the fit. cuDNN assumed."""


@pytest.mark.parametrize(
    ("measured", "worst", "usual"), [(FITTED, 1.18, 0.1), (TRAINED, 1.2, 0.08)], ids=["fitted", "trained"]
)
def test_assumed_times_are_those_of_an_h200(measured: dict[Any, Any], worst: float, usual: float) -> None:
    h200 = find("NVIDIA H200")
    ratios = []
    for (vocabulary, window, heads, replicas), steps in measured.items():
        for depth, width, milliseconds, fused in steps:
            shape = BlockForm(heads, vocabulary, window).shape(depth, width)
            mfu = assumed_mfu(shape, h200, tokens_per_step=32_768, precision="bfloat16", fused=fused)
            flops = replicas * 32_768 * training_flops_per_token(shape)
            ratios.append(flops / (mfu * h200.peak_flops) / (milliseconds * 1e-3))
    off = np.abs(np.log(ratios))
    assert off.max() < math.log(worst) and np.sqrt(np.mean(off**2)) < usual, ratios


TWO_DEPTHS = {"name": "t", "grid": {"depths": [6, 12], "budgets": [1e6, 4e6], "seeds": 2}, "train": {"steps": 100}}


def plan(**execution: Any) -> Plan:
    precision = execution.pop("precision", "bfloat16")
    calibration = execution.pop("calibration", None)
    return build(spec_of(TWO_DEPTHS, train__precision=precision, execution=execution), calibration=calibration)


def test_times_on_a_named_device_are_called_an_assumption() -> None:
    estimates = plan(device="H100").estimates
    assert estimates.basis.startswith("ASSUMED") and estimates.device_seconds is not None
    packs = sum(pack.device_seconds or 0 for pack in estimates.packs.values())
    runs = sum(run.device_seconds or 0 for run in estimates.runs.values())
    assert estimates.device_seconds == pytest.approx(packs) == pytest.approx(runs)


@pytest.mark.parametrize(
    ("execution", "why"),
    [
        ({}, "no device is named"),
        ({"device": "H900"}, "'H900' is not in the table"),
        ({"precision": "float32", "device": "H100"}, "bfloat16"),
    ],
)
def test_unknown_times_stay_unknown_and_say_why(execution: dict, why: str) -> None:
    estimates = plan(**execution).estimates
    assert estimates.device_seconds is None and why in estimates.basis
    assert all(run.device_seconds is None for run in estimates.runs.values())
    assert estimates.flops > 0


def row(depth: int, width: int, rate: float, kind: str = "cpu", **more: int) -> BenchRow:
    flops = 3 * (2 * 12 * depth * width**2 + 4 * depth * width * 128 + 2000 * width)
    return BenchRow(
        device_kind=kind, depth=depth, width=width, tokens_per_second=rate / flops, flops_per_token=flops, **more
    )


def test_a_calibration_gives_times_on_a_device_without_a_peak(tmp_path: Path) -> None:
    path = bench_record.write([row(6, 118, 2e10), row(12, 168, 3e10)], tmp_path)
    estimates = plan(calibration=Calibration.read(path)).estimates
    assert estimates.device == "cpu" and "measured" in estimates.basis
    # each shape has the rate of the benchmarked one that is nearest in (ln L, ln d_x)
    nearest = {"L6-d116": 2e10, "L6-d236": 2e10, "L12-d84": 3e10, "L12-d168": 3e10}
    found = {pack_id: pack.flops / pack.device_seconds for pack_id, pack in estimates.packs.items()}
    for pack_id, rate in found.items():
        assert rate == pytest.approx(nearest.pop("-".join(pack_id.split("-")[:2])))
    assert not nearest


def test_a_rate_of_the_same_recipe_comes_before_a_nearer_one() -> None:
    changes = ({}, {"biases": False}, {"embedding_rank": 8}, {"embedding_rank": 16}, {"attention": "linear"})
    shapes = [BlockForm(HeadRule(count=2), 1000, 128, **one).shape(6, 128) for one in changes]
    recipes = [recipe_of(shape, "adamw") for shape in shapes]
    assert recipes[0] == "pre-layernorm, plain gelu 4, learned, adamw" and "no biases" in recipes[1]
    measured = Calibration("cpu", tuple(Rate(24 + k, 512, 1.0 + k, name) for k, name in enumerate(recipes)))
    assert [measured.flops_per_second(shape) for shape in shapes] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert measured.flops_per_second(shapes[0], "muon") == 1.0


def test_rates_of_several_devices_count_for_one_each() -> None:
    kind = "NVIDIA H100 80GB HBM3"
    alone = plan(device="H100", calibration=Calibration.of([row(6, 118, 2e14, kind)])).estimates
    three = plan(device="H100", calibration=Calibration.of([row(6, 118, 6e14, kind, devices=3)])).estimates
    assert three.packs == alone.packs and three.device_seconds == pytest.approx(alone.device_seconds)
    assert "3 × NVIDIA" in three.basis and "1/3" in three.basis


def test_times_are_measured_on_the_same_device_before_they_are_assumed(tmp_path: Path) -> None:
    """Every row of plan.csv names the basis of its time."""

    def bases(**execution: Any) -> tuple[set[str | None], Plan]:
        planned = plan(calibration=Calibration.read(tmp_path), **execution)
        return {row.time_basis for row in to_rows(planned)}, planned

    assert bases(device="H100")[0] == {"assumed"} and bases(device="H900")[0] == {None}
    bench_record.write([row(6, 118, 4e13, "NVIDIA H100 80GB HBM3")], tmp_path)
    label, planned = bases(device="H100")
    assert label == {"measured"} and "measured" in planned.estimates.basis
    assert planned.estimates.device_seconds == pytest.approx(planned.estimates.flops / 4e13)
    assert bases(device="H200")[0] == {"assumed"}


def test_a_bench_of_several_devices_is_refused(tmp_path: Path) -> None:
    bench_record.write([row(6, 118, 4e13, "NVIDIA H100 80GB HBM3"), row(6, 118, 1e13, "NVIDIA A10")], tmp_path)
    with pytest.raises(InputError, match="device_kind: NVIDIA A10, NVIDIA H100 80GB HBM3; allowed: one kind"):
        Calibration.read(tmp_path)


def test_a_missing_calibration_is_none_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    assert Calibration.read(path) is Calibration.read(tmp_path) is Calibration.of([]) is None
    for text, wanted in (
        ("{", "is not valid JSON"),
        ("{}", "a valid array"),
        ('[{"device_kind": "x", "depth": 0, "width": 8}]', r"\[0\]\.depth: 0; "),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=wanted):
            plan(calibration=Calibration.read(path))
    bench_record.write([row(6, 118, 4e13, "NVIDIA H100 80GB HBM3"), row(6, 118, 1e13, "NVIDIA A10")], tmp_path)
    with pytest.raises(InputError, match="device_kind: NVIDIA A10, NVIDIA H100 80GB HBM3; allowed: one kind"):
        Calibration.read(tmp_path)


def test_what_does_not_fit_is_said() -> None:
    small = plan(device="T4", microbatch=16, max_replicas=None)
    assert not any("not fit" in text for text in small.warnings)
    large = {"name": "t", "grid": {"depths": [48], "budgets": [6e9], "seeds": 3}, "train": {"steps": 100}}
    big = build(spec_of(large, train__precision="bfloat16", execution={"device": "L4"}))
    assert says(big.warnings[0], "cost: a pack too large")


def test_a_device_may_be_given_by_its_rates() -> None:
    found = find("tflops=165.2,gb=24,gbps=1008")
    known = find("rtx 4090")
    assert found and known and find("NVIDIA GeForce RTX 4090") is known is find("RTX4090")
    for device in (found, known):
        assert (device.peak_flops, device.memory_bytes, device.bandwidth) == (165.2e12, 24e9, 1008e9)
    # rates of a device are a GPU's, unless a name says otherwise
    named, given = (plan(device=device).estimates for device in ("H200", "tflops=989,gb=141,gbps=4800"))
    assert named.device_seconds == given.device_seconds is not None
