"""The coordinate check: how far the residual stream and the logits move in a few steps, over width and over depth.

Under completep both stay where they are at the base shape, so one learning rate serves all shapes. Under standard they
grow with the width (each hidden update adds up over the fan-in) and with the depth (each block adds its own).
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from train_support import make_spec

from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import build
from dwsweep.train.optimizer import by_leaf

STEPS, RATE = 4, 2e-3


@cache
def movement(parametrization: str, depth: int, width: int) -> tuple[float, float, float]:
    """Root mean squares: of the stream at the start, of its change in ``STEPS`` steps, of the logits' change."""
    spec = make_spec(
        model={"parametrization": parametrization, "base_width": 32, "base_depth": 2}, train={"grad_clip": None}
    )
    shape = spec.block().shape(depth, width)
    model = build(shape, resolve(shape, spec.model, spec.train, RATE))
    optimizer = by_leaf(model).optimizer(spec.train)
    windows = np.random.default_rng(1).integers(0, 256, (4, 17)).astype(np.int32)

    @jax.jit
    def measure(key: jax.Array) -> tuple[jax.Array, ...]:
        start = model.init(key)

        def step(carry: tuple, k: jax.Array) -> tuple[tuple, None]:
            params, moments = carry
            grads = jax.grad(model.mean_loss)(params, windows)
            norm, rate = jnp.float32(1), jnp.float32(RATE)  # nothing is clipped
            return optimizer.update(grads, moments, params, step=k, norm=norm, rate=rate), None

        (end, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), jnp.arange(STEPS))
        tokens = windows[:, :-1]
        before, after = model.residual(start, tokens), model.residual(end, tokens)
        logits = model.logits(end, tokens) - model.logits(start, tokens)
        return tuple(jnp.sqrt(jnp.mean(jnp.square(x))) for x in (before, after - before, logits))

    values = jnp.mean(jnp.array([measure(jax.random.key(seed)) for seed in range(2)]), axis=0)
    first, second, third = (float(value) for value in values)
    return first, second, third


def ratios(parametrization: str, depth: int, width: int) -> list[float]:
    """Stream, its change and the logits' change, relative to the base shape L2 d32."""
    base = movement(parametrization, 2, 32)
    return [a / b for a, b in zip(movement(parametrization, depth, width), base, strict=True)]


@pytest.mark.parametrize(("depth", "width"), [(2, 256), (48, 32)])
def test_completep_moves_every_shape_alike(depth: int, width: int) -> None:
    for ratio in ratios("completep", depth, width):
        assert 0.55 < ratio < 1.6


@pytest.mark.parametrize(("depth", "width"), [(2, 256), pytest.param(48, 32, marks=pytest.mark.slow)])
def test_standard_moves_large_shapes_more(depth: int, width: int) -> None:
    _, stream, logits = ratios("standard", depth, width)
    assert stream > 3 or logits > 3


@pytest.mark.slow
def test_the_check_over_a_grid_of_widths_and_depths() -> None:
    for depth, width in [(2, 64), (2, 128), (2, 512), (6, 32), (12, 32), (24, 32), (12, 128), (48, 128)]:
        print(depth, width, ratios("completep", depth, width), ratios("standard", depth, width))
        assert all(0.5 < ratio < 1.8 for ratio in ratios("completep", depth, width)), (depth, width)


@pytest.mark.slow
def test_mup_is_flat_over_width_but_not_over_depth() -> None:
    assert all(0.5 < ratio < 1.8 for ratio in ratios("mup", 2, 512))
    assert ratios("mup", 48, 32)[1] > 5
