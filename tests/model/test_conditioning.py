"""The condition number of a block's attention: of which matrix it is, and what float32 can tell of it."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from train_support import make_spec

from dwsweep.model.attention import condition_number
from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import build


@pytest.mark.parametrize("order", ["interleaved", "attention_first"])
def test_it_is_of_the_heads_outputs_side_by_side(order: str) -> None:
    """An output matrix that is the identity writes them to the stream, where they can be read."""
    spec = make_spec(
        grid={"heads": {"count": 4, "size": 4}},
        model={"order": order, "positions": "rotary", "parametrization": "standard"},
    )
    shape = spec.block().shape(1, 16)
    model = build(shape, resolve(shape, spec.model, spec.train, 1e-2))
    params = jax.device_get(model.init(jax.random.key(0)))
    attention, mlp = params["blocks"]["attention"], params["blocks"]["mlp"]
    attention["out"]["kernel"] = np.eye(16, dtype=np.float32)[None]
    mlp["down"]["kernel"] = np.zeros_like(mlp["down"]["kernel"])
    tokens = np.random.default_rng(1).integers(0, 256, (3, 24)).astype(np.int32)
    written = np.float64(jax.jit(model.residual)(params, tokens)) - params["embedding"][tokens]
    found = condition_number(np.asarray(jax.jit(model.heads)(params, tokens)))
    assert found.shape == (1, 3)
    np.testing.assert_allclose(found[0], np.linalg.cond(written), rtol=1e-3)


def test_more_columns_than_rows_bring_it_towards_one() -> None:
    """Of Gaussian matrices κ is near (√C + √N)/(√C − √N): the argument for more heads of a given size."""
    rng = np.random.default_rng(0)
    for columns in (512, 4096):
        wanted = (math.sqrt(columns) + 8) / (math.sqrt(columns) - 8)
        assert condition_number(rng.normal(size=(64, columns))) == pytest.approx(wanted, rel=0.05)


def test_what_float32_cannot_resolve_is_the_floor() -> None:
    tall = np.random.default_rng(0).normal(size=(40, 3)) @ np.ones((3, 10))  # rank 1
    assert condition_number(tall) == pytest.approx(1 / (np.finfo(np.float32).eps * 40), rel=1e-3)
    assert np.isnan(condition_number(np.zeros((4, 3)))) and np.isnan(condition_number(np.full((4, 3), np.nan)))
