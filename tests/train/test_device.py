"""The training program on the devices of this host: `make test-device`, with a report in JSON to mail.

The reference is a plain program on one core of this host's CPU: float32, the whole batch at once, parameters as a tree,
layers in a loop. Each test compares another program with it, or with one that is closer. Without an accelerator the
devices are the CPU's cores. ``test_loop``, ``test_step`` and ``test_precision`` have further tests with this mark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from train_support import REORDERED, make_pack, make_spec

from dwsweep.data.token_store import Store
from dwsweep.model.attention import causal_attention
from dwsweep.train.choices import Hardware, at_hand
from dwsweep.train.kernel import CUDNN, XLA, choose_kernel, platform_of
from dwsweep.train.program import Blueprint, compile_program

pytestmark = [pytest.mark.device, pytest.mark.slow]
Judge = Callable[[float, float, str], None]
Losses = NDArray[np.float32]

DEPTH, WIDTH, SEEDS, STEPS, BATCH, LENGTH = 4, 64, 2, 30, 8, 64

ROUNDED = 1e-2
"""Nats by which products of rounded operands may move a loss: bfloat16 keeps 8 bits, TF32 11, and each sum averages the
roundings of 64 and more terms. Measured with a CPU's bfloat16: 7e-4."""
GRADIENT = 1e-3
"""Relative difference of the first step's gradient norm between two float32 programs."""
ATTENTION = 2e-2
"""Relative error of attention's output and gradients by cuDNN against XLA's, both in bfloat16 (8 bits: 4e-3 each)."""


@pytest.fixture
def judge(record_property: Callable[[str, object], None]) -> Judge:
    """Assert that a value is within its tolerance, and put both into the report."""

    def within(value: float, tolerance: float, unit: str) -> None:
        for name, told in (("value", value), ("tolerance", tolerance), ("unit", unit)):
            record_property(name, told)
        assert value <= tolerance  # false for a value that is no number

    return within


def curve(
    store: Store,
    exact: bool = True,
    hardware: Hardware | None = None,
    train: dict[str, Any] | None = None,
    as_vector: bool = True,
    **execution: Any,
) -> tuple[Losses, Losses]:
    """(losses (STEPS, R), gradient norms (R,) of the first step) of a program on this host's devices.

    exact: float32 products at the highest precision; else the device's own, TF32 on NVIDIA GPUs, bfloat16 on TPUs.
    """
    spec = make_spec(
        model={"base_width": WIDTH, "base_depth": DEPTH},
        train={"seq_len": LENGTH, "batch_size": BATCH, "steps": STEPS, "warmup_steps": 3, **(train or {})},
        execution=execution,
    )
    pack = make_pack(store, spec, depth=DEPTH, width=WIDTH, replicas=tuple((seed, 4e-3) for seed in range(SEEDS)))
    with jax.default_matmul_precision("highest" if exact else None):
        blueprint = Blueprint.of(pack, store, hardware)
        if not as_vector:
            blueprint = blueprint.under(replace(blueprint.choices, as_vector=False))
        program = compile_program(blueprint, store)
        state, _ = program.init()
        _, metrics = program.dispatch(state, 0, STEPS, STEPS)
    read = jax.device_get({name: metrics[name] for name in ("loss", "grad_norm")})
    return read["loss"][:STEPS], read["grad_norm"][0]


def apart(one: Losses, other: Losses) -> float:
    """Largest difference of two sets of losses; NaN if any of them is."""
    return float(np.max(np.abs(one.astype(np.float64) - other)))


@pytest.fixture(scope="module")
def exact(store: Store) -> tuple[Losses, Losses]:
    return curve(store)


@pytest.fixture(scope="module")
def core(store: Store) -> tuple[Losses, Losses]:
    """The reference."""
    plain = {"microbatch": BATCH, "unroll": 1, "attention": XLA}
    return curve(store, hardware=at_hand(jax.devices("cpu")[:1]), as_vector=False, **plain)


def test_float32_losses_are_a_cpu_cores(exact: Any, core: Any, judge: Judge) -> None:
    judge(apart(exact[0], core[0]), REORDERED, "nats")


def test_float32_gradients_are_a_cpu_cores(exact: Any, core: Any, judge: Judge) -> None:
    judge(float(np.max(np.abs(exact[1] / core[1] - 1))), GRADIENT, "relative")


def test_the_devices_own_float32_agrees(store: Store, exact: Any, judge: Judge) -> None:
    judge(apart(curve(store, exact=False)[0], exact[0]), ROUNDED, "nats")


def test_bfloat16_agrees_with_float32(store: Store, exact: Any, judge: Judge) -> None:
    losses, _ = curve(store, exact=False, train={"precision": "bfloat16"}, attention=XLA)
    assert apart(losses, exact[0]) > 0  # bfloat16 was what it compared
    judge(apart(losses, exact[0]), ROUNDED, "nats")


@pytest.mark.parametrize("axis", ["data", "fsdp"])
def test_a_state_divided_among_devices_trains_as_on_one(store: Store, exact: Any, judge: Judge, axis: str) -> None:
    among = max(n for n in range(1, jax.local_device_count() + 1) if BATCH % n == 0)
    if among < 2:
        pytest.skip("there is one device")
    judge(apart(curve(store, mesh={axis: among})[0], exact[0]), REORDERED, "nats")


def test_cudnns_attention_agrees_with_xlas(judge: Judge) -> None:
    device, (T, H, P) = at_hand().device, (LENGTH, 4, 16)
    if platform_of(device) != "cuda":
        pytest.skip(f"cuDNN takes no {device.platform}")
    shape = make_spec(grid={"heads": {"count": H}}, train={"seq_len": T}).block().shape(DEPTH, WIDTH)
    choice = choose_kernel(CUDNN, shape, "bfloat16", BATCH, device)
    assert choice.kernel == CUDNN, choice.why
    q, k, v, g = (
        jax.random.normal(key, (BATCH, T, H, P)).astype(jnp.bfloat16) for key in map(jax.random.key, range(4))
    )

    def both(kernel: str) -> list[np.ndarray]:
        out, pull = jax.vjp(lambda *qkv: causal_attention(*qkv, P**-0.5, kernel), q, k, v)
        return [np.asarray(x, np.float32) for x in (out, *pull(g))]

    pairs = zip(both(CUDNN), both(XLA), strict=True)
    judge(max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs), ATTENTION, "relative")
