"""Rooflines of steps whose kernels and exchanges are known."""

from __future__ import annotations

import pytest

from dwsweep.cost.devices import find
from dwsweep.cost.roofline import LAUNCH_SECONDS, Collective, Kernel, StepCost, roofline


def kernel(times: int, bytes: float = 0.0, flops: float = 0.0) -> Kernel:
    return Kernel("k", times, flops, bytes)


def test_a_roofline_adds_up_kernels_and_says_what_binds() -> None:
    h200, v5e = find("H200"), find("TPU-v5e")
    assert h200 is not None and v5e is not None
    launch = LAUNCH_SECONDS["gpu"]
    traffic, product, small = kernel(2, 4.8e9), kernel(1, 1e6, 989e9), kernel(4)
    found = roofline(StepCost((traffic, product, small), ()), h200, "bfloat16")
    assert found.roofline_seconds == pytest.approx(2 * 1e-3 + 1e-3 + 4 * launch)
    assert found.bound == "traffic" and found.link_seconds == 0.0
    assert found.traffic_seconds == pytest.approx(2e-3 + 1e6 / 4.8e12)
    assert roofline(StepCost((small,), ()), h200, "bfloat16").bound == "launches"
    # float32 at half the rate of a GPU, and at the full rate of a TPU, which rounds it
    one = StepCost((kernel(1, flops=197e9),), ())
    assert roofline(one, h200, "float32").products_seconds == pytest.approx(2 * 197 / 989 * 1e-3)
    assert roofline(one, v5e, "float32").roofline_seconds == pytest.approx(1e-3)


def test_links_carry_sums_twice() -> None:
    v5e, l4 = find("TPU-v5e"), find("L4")
    assert v5e is not None and l4 is not None
    groups = ((0, 1, 2, 3),)
    summed, gathered = Collective("all-reduce", 1, 200e6, groups), Collective("all-gather", 2, 200e6, groups)
    assert roofline(StepCost((), (summed,)), v5e, "bfloat16").roofline_seconds == pytest.approx(1e-3 * 2 * 3 / 4)
    found = roofline(StepCost((), (gathered,)), v5e, "bfloat16")
    assert found.roofline_seconds == pytest.approx(2e-3 * 3 / 4) and found.bound == "links"
    assert roofline(StepCost((), (summed,)), l4, "bfloat16").link_seconds is None  # its links are not in the table
