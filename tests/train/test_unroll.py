"""Layers of a GPU's program are written out where that saves more seconds than it takes to compile."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from checkout import SWEEPS

from dwsweep.cost.compiled import LAUNCH_SECONDS
from dwsweep.cost.devices import find
from dwsweep.plan import Pack, build
from dwsweep.spec import load_spec
from dwsweep.train.choices import (
    STACK_KERNELS,
    UNROLLED_ON_GPU,
    Hardware,
    choose,
    seconds_saved_per_layer,
    written_out_seconds,
)

TEXT: Any = SimpleNamespace(n_train_tokens=1 << 20, dtype=np.dtype(np.uint16))


def accelerator(kind: str, platform: str = "gpu") -> Hardware:
    """As much of a device as the choices look at, in the place of this CPU."""
    device: Any = SimpleNamespace(platform=platform, device_kind=kind)
    return Hardware(tuple(jax.local_devices()[:1]), device, None, on_cpu=False, is_here=False)


def mini(*overrides: str) -> list[Pack]:
    return list(build(load_spec(SWEEPS / "levine-mini.yaml", overrides)).packs)


def unrolled(pack: Pack, kind: str = "NVIDIA H200", platform: str = "gpu") -> int:
    return choose(pack, TEXT, accelerator(kind, platform)).compute.unroll


def test_a_long_pack_writes_its_layers_out_and_a_short_one_does_not() -> None:
    h200 = find("H200")
    assert h200 is not None
    for pack in mini("grid.budgets=[1.0e6, 1.0e7]"):
        (steps,) = pack.branch_steps
        depth = pack.shape.depth
        enough = steps * written_out_seconds(depth) / (depth * seconds_saved_per_layer(pack, 1, h200))
        longer, shorter = (replace(pack, branch_steps=(round(part * enough),)) for part in (1.01, 0.99))
        assert unrolled(longer) == depth and unrolled(shorter) == 1
        assert unrolled(shorter, "NVIDIA A100-SXM4-80GB") == depth  # its memory is slower: more is saved
        assert unrolled(longer, "TPU v5 lite", "tpu") == 1
        # a GPU that is not in the table of devices has no bandwidth to count with
        assert unrolled(shorter, "AMD Instinct MI300X") == depth


@pytest.mark.parametrize(
    ("depth", "width", "saved_ms"), [(6, 116, 3.46), (12, 196, 9.98), (18, 68, 7.6), (18, 372, 25.3)]
)
def test_what_a_step_saves_is_what_the_compiled_programs_differ_by(depth: int, width: int, saved_ms: float) -> None:
    """Roofline of a step with layers in a loop less that with layers written out, both compiled for an H200."""
    h200 = find("H200")
    assert h200 is not None
    (pack,) = (one for one in mini() if (one.shape.depth, one.shape.width) == (depth, width))
    (steps,) = pack.branch_steps
    assert 1e3 * depth * seconds_saved_per_layer(pack, 1, h200) / steps == pytest.approx(saved_ms, rel=0.05)
    on_three = seconds_saved_per_layer(pack, 3, h200)
    launches = steps * STACK_KERNELS * LAUNCH_SECONDS["gpu"]  # as many on each of three devices
    assert on_three - launches == pytest.approx((seconds_saved_per_layer(pack, 1, h200) - launches) / 3)


def test_the_spec_and_the_depth_come_first() -> None:
    (pack,) = mini("grid.depths=[6]", "grid.budgets=[1.0e6]", "execution.unroll=3", "train.steps=1000000")
    assert unrolled(pack) == 3
    (deep,) = mini(f"grid.depths=[{UNROLLED_ON_GPU + 2}]", "grid.budgets=[1.0e7]", "train.steps=1000000")
    assert unrolled(deep) == 1
