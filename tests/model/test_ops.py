"""Hand-written derivatives against automatic differentiation of the plain forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from train_support import compile_for

from dwsweep.model import ops
from dwsweep.model.attention import causal_attention, rotary, sinusoids
from dwsweep.model.ops import mean_nll, token_nll


def normal(seed: int, *shape: int) -> np.ndarray:
    """Of NumPy: JAX compiles a program for each shape it draws."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def agree(ours: Callable[..., Any], plain: Callable[..., Any], *arguments: Any, tolerance: float = 2e-5) -> None:
    """Values and all gradients of a random projection agree."""
    weights = normal(99, *jax.eval_shape(plain, *arguments).shape)
    which = tuple(i for i, x in enumerate(arguments) if x is not None)

    @jax.jit
    def both(*x: Any) -> list[Any]:
        def projected(function: Callable[..., Any], *x: Any) -> Any:
            value = function(*x)
            return jnp.sum(value * weights), value

        return [
            # the value without differentiation too: a hand-written derivative has another forward pass
            (function(*x), jax.grad(partial(projected, function), argnums=which, has_aux=True)(*x))
            for function in (ours, plain)
        ]

    (value, (gradients, beside)), (reference, (wanted, _)) = both(*arguments)
    for found in (value, beside):
        np.testing.assert_allclose(found, reference, atol=tolerance, rtol=tolerance)
    for got, want in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=tolerance * float(np.abs(want).max() + 1))


@pytest.fixture(params=["cpu", "cuda", "tpu"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is written for each platform, run here."""
    taken = compile_for(request.param, monkeypatch)
    yield
    assert taken


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("outputs", [3, 20])  # both orientations of the weight's gradient
def test_a_linear_map_has_the_derivatives_of_its_plain_form(outputs: int) -> None:
    x, w = normal(0, 2, 5, 8), normal(1, 8, outputs)
    agree(lambda x, w: ops.linear(x, w, None, "float32", "float32"), lambda x, w: x @ w, x, w)
    with_bias = x, w, normal(2, outputs)
    agree(lambda x, w, b: ops.linear(x, w, b, "float32", "float32"), lambda x, w, b: x @ w + b, *with_bias)


PLAIN: dict[str, Callable[[Any], Any]] = {
    "gelu": lambda h: 0.5 * h * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))),
    "relu": lambda h: jnp.maximum(h, 0.0),
    "silu": lambda h: h / (1 + jnp.exp(-h)),
    "relu2": lambda h: jnp.maximum(h, 0.0) ** 2,
    "none": lambda h: h,
}


EACH_ACTIVATION = [("cpu", act, gated, not gated) for act in ops.ACTIVATIONS for gated in (True, False)]


@pytest.mark.parametrize(
    ("platform", "activation", "gated", "bias"),
    [*EACH_ACTIVATION, *((name, "gelu", gated, True) for name in ("cuda", "tpu") for gated in (True, False))],
    indirect=["platform"],
)
def test_an_mlp_has_the_derivatives_of_its_plain_form(platform: None, activation: str, gated: bool, bias: bool) -> None:
    act = PLAIN[activation]
    inner = 14 if gated else 7
    x, up, down = normal(0, 2, 5, 8), normal(1, 8, inner), normal(2, 7, 6)
    up_bias, down_bias = (normal(3, inner), normal(4, 6)) if bias else (None, None)

    def plain(x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any) -> Any:
        h = x @ up if up_bias is None else x @ up + up_bias
        y = (act(h[..., :7]) * h[..., 7:] if gated else act(h)) @ down
        return y if down_bias is None else y + down_bias

    def ours(x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any) -> Any:
        return ops.mlp(x, (up, up_bias), (down, down_bias), activation, gated, "float32")

    agree(ours, plain, x, up, up_bias, down, down_bias, tolerance=4e-5)


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize(("kind", "bias"), [("layer", True), ("layer", False), ("rms", False)])
def test_a_norm_has_the_derivatives_of_its_plain_form(kind: str, bias: bool) -> None:
    x, gain = 3 + 2 * normal(0, 4, 7, 12), normal(1, 12)

    def plain(x: Any, gain: Any, *b: Any) -> Any:
        x = x - x.mean(-1, keepdims=True) if kind == "layer" else x
        return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + ops.NORM_EPSILON) * gain + sum(b)

    def ours(x: Any, gain: Any, *b: Any) -> Any:
        return ops.layer_norm(x, gain, *(b or (None,))) if kind == "layer" else ops.rms_norm(x, gain)

    agree(ours, plain, x, gain, *([normal(2, 12)] if bias else []))


def test_the_norm_of_bfloat16_heads_counts_in_float32() -> None:
    x, gain = jnp.asarray(normal(0, 4, 8), jnp.bfloat16), normal(1, 8)
    y, pull = jax.vjp(ops.rms_norm, x, gain)
    assert y.dtype == jnp.float32 and pull(y)[0].dtype == jnp.bfloat16
    np.testing.assert_array_equal(y, ops.rms_norm(x.astype(jnp.float32), gain))


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("distance", [1e2, 1e4])
def test_statistics_of_rows_far_from_zero(distance: float) -> None:
    """Of rows whose mean is far away, and of a row with one value far from the others, the first."""
    x = distance + normal(0, 50, 64)
    x[0, 0] *= 1e3
    found = jax.jit(lambda x: ops.layer_norm(x, np.ones(64, np.float32), None))(x)
    exact = (x - x.mean(-1, keepdims=True, dtype=float)) / x.std(-1, keepdims=True, dtype=float)
    np.testing.assert_allclose(found, exact, atol=2e-7 * distance + 1e-4)
    same = jax.jit(lambda x: ops.layer_norm(x, np.ones(64, np.float32), None))(np.full((1, 64), 3e9, np.float32))
    assert np.abs(same).max() <= 1.0


@pytest.mark.parametrize(("kv_heads", "keep"), [(1, True), (2, False), (4, True)])
def test_attention_is_that_of_jax_nn(kv_heads: int, keep: bool) -> None:
    q, k, v = normal(0, 2, 9, 4, 6), normal(1, 2, 9, kv_heads, 6), normal(2, 2, 9, kv_heads, 6)

    def plain(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, scale=0.7, is_causal=True, implementation="xla")

    agree(lambda q, k, v: causal_attention(q, k, v, 0.7, keep=keep), plain, q, k, v)


def test_linear_attention_is_a_mean_over_the_past() -> None:
    q, k, v = normal(0, 2, 9, 4, 6), normal(1, 2, 9, 2, 6), normal(2, 2, 9, 2, 6)

    def plain(q: Any, k: Any, v: Any) -> Any:
        k, v = (jnp.repeat(x, 2, axis=2) for x in (k, v))
        of = [jnp.einsum("bhp,bshp,bshr->bhr", q[:, t], k[:, : t + 1], v[:, : t + 1]) / (t + 1) for t in range(9)]
        return 0.7 * jnp.stack(of, axis=1)

    agree(lambda q, k, v: causal_attention(q, k, v, 0.7, kind="linear"), plain, q, k, v)


@pytest.mark.parametrize("keep", [True, False])
def test_attention_survives_large_logits(keep: bool) -> None:
    q = 1e4 * normal(0, 1, 8, 2, 4)
    out, gradient = jax.jit(jax.value_and_grad(lambda q: causal_attention(q, q, q, 1.0, keep=keep).sum()))(q)
    assert jnp.isfinite(out) and jnp.isfinite(gradient).all()


@pytest.mark.parametrize(("softcap", "z_loss"), [(None, 0.0), (3.0, 0.1)])
def test_the_loss_is_optaxs_with_its_derivatives(softcap: float | None, z_loss: float) -> None:
    x, table = normal(0, 30, 8), normal(1, 50, 8)
    targets = np.random.default_rng(2).integers(0, 50, 30)

    def plain(x: Any, table: Any) -> Any:
        logits = x @ table.T
        logits = logits if softcap is None else softcap * jnp.tanh(logits / softcap)
        z = jnp.log(jnp.exp(logits).sum(-1))
        return (optax.softmax_cross_entropy_with_integer_labels(logits, targets) + z_loss * z**2).mean()

    agree(lambda x, table: mean_nll(x, table, targets, "float32", softcap, z_loss), plain, x, table)
    per_token = jax.jit(optax.softmax_cross_entropy_with_integer_labels)(x @ table.T, targets)
    np.testing.assert_allclose(jax.jit(token_nll)(x @ table.T, targets), per_token, rtol=1e-5)


@pytest.mark.parametrize("contract", [(-1, -2), (-1, -1), (-2, -2), (-2, -1)])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(5, 12, 9), (8, 16, 3)])
def test_a_gpus_padded_product_is_the_product(
    contract: tuple[int, int], rows: int, inner: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = normal(0, 2, *((rows, inner) if contract[0] == -1 else (inner, rows)))
    b = normal(1, 2, *((inner, columns) if contract[1] == -2 else (columns, inner)))
    expected = ops.product(a, b, "bfloat16", contract)
    assert compile_for("cuda", monkeypatch) == []
    found = jax.make_jaxpr(lambda a, b: ops.product(a, b, "bfloat16", contract))(a, b)
    (one,) = _products(found.jaxpr)
    assert all(n % 8 == 0 for v in one.invars for n in v.aval.shape[-2:])
    # zeros add nothing, in whatever order
    np.testing.assert_allclose(jax.core.eval_jaxpr(found.jaxpr, found.consts, a, b)[0], expected, rtol=1e-6, atol=1e-6)


def test_only_16_bit_operands_whose_rows_are_no_whole_tiles_are_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = compile_for("cuda", monkeypatch)
    ops.product(normal(0, 8, 16), normal(1, 16, 24), "bfloat16")
    ops.product(normal(0, 5, 12), normal(1, 12, 9), "float32")
    assert taken == []
    ops.product(normal(0, 8, 16), normal(1, 16, 9), "bfloat16")
    assert taken == ["cuda"]


@pytest.mark.parametrize(("kv_heads", "size"), [(1, 6), (4, 8)])
def test_heads_of_any_size_are_padded_for_cudnn(kv_heads: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By XLA in its place: what matters is what cuDNN is given."""
    sizes, attend = [], jax.nn.dot_product_attention

    def as_cudnn(q: Any, *others: Any, implementation: str, **settings: Any) -> Any:
        assert implementation == "cudnn"
        sizes.append(q.shape[-1])
        return attend(q, *others, implementation="xla", **settings)

    monkeypatch.setattr(jax.nn, "dot_product_attention", as_cudnn)
    q, k, v = normal(0, 2, 9, 4, size), normal(1, 2, 9, kv_heads, size), normal(2, 2, 9, kv_heads, size)
    agree(
        lambda q, k, v: causal_attention(q, k, v, 0.7, "cudnn"),
        lambda q, k, v: causal_attention(q, k, v, 0.7),
        *(q, k, v),
    )
    assert set(sizes) == {8}


def test_backward_products_are_bfloat16_too() -> None:
    """An accelerator has no fast product of a float32 cotangent with a bfloat16 weight."""
    x, w, b = normal(0, 64, 32), normal(1, 32, 16), normal(2, 16)
    table, targets = normal(3, 50, 16), jnp.zeros(64, jnp.int32)

    def loss(x: Any, w: Any) -> Any:
        h = ops.linear(x, w, b, "bfloat16", "bfloat16")
        h = ops.mlp(h, (normal(4, 16, 16), b), (normal(5, 16, 16), b), "gelu", False, "bfloat16")
        q = h.astype(jnp.bfloat16).reshape(2, 32, 2, 8)
        return mean_nll(causal_attention(q, q, q, 1.0).reshape(64, 16), table, targets, "bfloat16")

    products = _products(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(x, w).jaxpr)
    kinds = [{v.aval.dtype.name for v in equation.invars} for equation in products]
    sums = [e for e in products if e.invars[0].aval.shape == (1, 64)]  # of bias gradients, in float32 on purpose
    assert len(products) - len(sums) == kinds.count({"bfloat16"}) >= 15
    # what the stream, a softmax or the optimizer reads is written as float32, what a product reads as bfloat16
    assert {e.outvars[0].aval.dtype.name for e in products} == {"float32", "bfloat16"}
    over_rows = [e for e in products if e.params["dimension_numbers"][0] == ((0,), (0,))]  # gradients of weights
    assert len(over_rows) >= 3 and all(e.outvars[0].aval.dtype == jnp.float32 for e in over_rows)


def _products(jaxpr: Any) -> list[Any]:
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found.append(equation)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += _products(inner)
    return found


def test_rotary_depends_on_distance_only() -> None:
    q, k = np.broadcast_to(normal(0, 8), (1, 12, 1, 8)), np.broadcast_to(normal(1, 8), (1, 12, 1, 8))
    turned = jax.jit(rotary)
    scores = np.einsum("bthp,bshp->ts", turned(q), turned(k))
    for distance in (-3, 0, 5):
        diagonal = np.diagonal(scores, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-4, atol=1e-5)
    assert np.ptp(scores) > 0.1


def test_rotary_turns_by_its_base() -> None:
    """The pair i of P/2 turns by base^(−2i/P) a position: the last one by base^(−1/2) where there are two."""
    turned = jax.jit(rotary, static_argnums=1)(np.array([0, 1.0, 0, 0], np.float32) * np.ones((1, 9, 1, 1)), 100.0)
    angle = np.arctan2(turned[0, :, 0, 3], turned[0, :, 0, 1])
    np.testing.assert_allclose(angle, 0.1 * np.arange(9), rtol=1e-5)


def test_sinusoids_have_their_wavelengths() -> None:
    table = np.asarray(jax.jit(sinusoids, static_argnums=(0, 1))(64, 10))
    np.testing.assert_allclose(table[:, 0], np.sin(np.arange(64)), atol=1e-5)
    np.testing.assert_allclose(table[:, 9], np.cos(np.arange(64) / 1e4), atol=1e-5)
    assert np.mean(np.square(table)) == pytest.approx(0.5, abs=0.02)
