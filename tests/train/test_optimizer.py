"""The optimizer of a pack: Muon by hand, and the bits of an interrupted pack; AdamW: test_step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from train_support import FEW, make_model, make_pack, make_spec, same_bits, train

from dwsweep.cost import arithmetic
from dwsweep.data.token_store import Store
from dwsweep.train import optimizer


def orthogonal(matrix: np.ndarray) -> np.ndarray:
    """Five steps of the quintic iteration with the coefficients of Jordan et al. 2024, in float64."""
    x = matrix.astype(np.float64) / np.linalg.norm(matrix)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def test_muon_turns_each_matrix_of_each_layer() -> None:
    """Two steps by hand: q, k and v apart, momentum of Nesterov, decay, the factor of the spectral condition."""
    spec = make_spec(
        grid={"heads": {"count": 2, "size": 12}},
        model={"kv_heads": 1, "base_width": 8, "base_depth": 1},
        train={"seq_len": 8, "steps": 20, "optimizer": "muon", "grad_clip": None, "momentum": 0.9},
    )
    rate, decay = 0.02, 0.1
    model = make_model(spec, 3, 32, rate=rate)
    own = optimizer.by_leaf(model).optimizer(spec.train)
    params = model.init(jax.random.key(0))
    moments, start = own.init(params), params["blocks"]["attention"]["qkv"]["kernel"]
    random = np.random.default_rng(0)
    draws = [random.normal(size=start.shape).astype(np.float32) for _ in range(2)]
    for k, draw in enumerate(draws):
        grads = jax.tree.map(jnp.zeros_like, params)
        grads["blocks"]["attention"]["qkv"]["kernel"] = draw
        step, norm, base = jnp.int32(k), jnp.float32(1), jnp.float32(rate)
        params, moments = jax.jit(own.update)(grads, moments, params, step=step, norm=norm, rate=base)

    expected, momentum = np.array(start, np.float64), 0.0
    for draw in draws:
        momentum = 0.9 * momentum + draw
        looked_ahead = draw + 0.9 * momentum
        turned = np.zeros_like(expected)
        for layer in range(3):
            for a, b in [(0, 24), (24, 36), (36, 48)]:  # q of two heads, k and v of one
                factor = 0.2 * np.sqrt(8 * (b - a) / 32)
                turned[layer, :, a:b] = factor * orthogonal(looked_ahead[layer, :, a:b].T).T
        expected -= rate * (turned + decay * expected)
    np.testing.assert_allclose(params["blocks"]["attention"]["qkv"]["kernel"], expected, atol=3e-6)
    assert set(moments) == {"m", "v", "trace"} and moments["m"]["blocks"]["attention"]["qkv"]["kernel"] is None
    # what is no matrix of a block is Adam's
    assert moments["trace"]["embedding"] is None and moments["v"]["embedding"] is not None
    for name in optimizer.CHAINS:  # and the plan counts what is there, for whatever optimizer
        train = spec.train.model_copy(update={"optimizer": name})
        kept = optimizer.by_leaf(model).optimizer(train).init(params)
        assert sum(leaf.size for leaf in jax.tree.leaves(kept)) == arithmetic.moments(model.shape, name)


@pytest.mark.slow
@pytest.mark.optimized
def test_muon_learns_resumes_and_gives_a_replica_the_bits_that_it_has_alone(store: Store, tmp_path: Path) -> None:
    pack = make_pack(store, make_spec(model=FEW))
    pack = replace(pack, train=pack.train.model_copy(update={"optimizer": "muon"}))
    whole, parts = train(pack, store, tmp_path / "whole"), train(pack, store, tmp_path / "parts", 2)
    assert parts.resumes == [6] and whole.losses("s0-lr0.01-12")[-1] < whole.losses("s0-lr0.01-12")[0]
    same_bits(whole, parts)
    single = train(replace(pack, replicas=pack.replicas[1:]), store, tmp_path / "alone")
    name = pack.replicas[1].run_ids[0]
    assert single.results[name].loss == whole.results[name].loss
