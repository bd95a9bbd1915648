"""What `bench` measures, on a tiny sweep: real programs, consistent numbers, a file that `plan` takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import pytest
from sentences import says, shows
from shown import printed
from train_support import FEW, make_spec

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.duration import Calibration
from dwsweep.data.token_store import Store
from dwsweep.plan import DataFacts, build
from dwsweep.records import bench as bench_record
from dwsweep.report import bench_report
from dwsweep.train.bench import bench
from dwsweep.train.compile_only import compile_only
from dwsweep.train.program import Blueprint
from dwsweep.train.targets import here


def test_rows_are_consistent_and_calibrate_the_plan(store: Store, tmp_path) -> None:
    spec = make_spec(grid={"widths": {1: [8]}, "seeds": 2}, model=FEW)
    plan = build(spec, data=DataFacts.of(store))
    rows = list(bench(plan, store))
    assert [(row.depth, row.width) for row in rows] == [(1, 8)]
    for row, pack in zip(rows, plan.packs, strict=True):
        tokens = row.replicas * spec.train.batch_size * spec.train.seq_len
        assert row.replicas == 2
        assert row.tokens_per_second == pytest.approx(tokens / row.step_seconds)
        assert row.flops_per_token == training_flops_per_token(pack.shape)
        assert row.mfu == pytest.approx(row.achieved_flops / row.peak_flops / row.devices)
        assert row.memory_bytes > 2 * 3 * 4 * pack.shape.n_params_total  # parameters and two moments, two replicas
    path = bench_record.write(rows, tmp_path)
    assert bench_record.read(path) == rows
    assert build(spec, data=DataFacts.of(store)).estimates.device_seconds is None
    calibrated = build(spec, data=DataFacts.of(store), calibration=Calibration.read(path)).estimates
    assert calibrated.device_seconds > 0


def test_compiling_alone_reports_memory_and_the_devices_there_are(store: Store, tmp_path) -> None:
    spec = make_spec(grid={"widths": {1: [8]}, "seeds": 2}, model=FEW)
    plan = build(spec, data=DataFacts.of(store))
    rows = list(compile_only(plan, store, [here(plan)]))
    assert [(row.depth, row.width) for row in rows] == [(1, 8)]
    for row, pack in zip(rows, plan.packs, strict=True):
        # float32 parameters and two moments of two replicas, beside a few scalars
        state = 2 * 3 * 4 * pack.shape.n_params_total
        assert state < row.state_bytes < state + 100
        assert row.memory_bytes > row.state_bytes and row.microbatch == spec.train.batch_size
        step = pack.train.batch_size * pack.train.seq_len * len(pack.replicas)
        assert row.step_flops == step * training_flops_per_token(pack.shape)
        assert row.xla_flops and row.refused is None and row.unroll == 1
    small = build(spec)
    (bare,) = compile_only(small, None, [here(small)])  # needs no text
    assert bare.state_bytes == rows[0].state_bytes and bare.n_train_tokens is None
    assert bare.memory_bytes == rows[0].memory_bytes - store.dtype.itemsize * (
        store.n_train_tokens - spec.train.batch_size * spec.train.seq_len - 1
    )
    assert shows(printed(bench_report.render_compiled([bare])), "train: compiled programs")


def test_a_shape_that_fits_nowhere_is_a_row_that_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = build(make_spec(grid={"widths": {1: [8, 16]}, "seeds": 1}, model=FEW))
    real = Blueprint.compiled_dispatch

    def compiled(blueprint: Blueprint) -> Any:
        if blueprint.pack.shape.width == 8:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of HBM: 21.30G of 15.75G.\n\n  the rest")
        return real(blueprint)

    monkeypatch.setattr(Blueprint, "compiled_dispatch", compiled)
    refused, other = compile_only(plan, None, [replace(here(plan), memory_bytes=1000)])
    assert refused.refused == "Out of HBM: 21.30G of 15.75G." and refused.xla_flops is None
    assert (refused.microbatch, refused.remat) == (1, True)
    assert "it takes" in other.refused and other.xla_flops  # by its own analysis only
    assert says(printed(bench_report.render_compiled([refused, other])), "train: does not fit")
