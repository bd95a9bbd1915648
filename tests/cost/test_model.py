"""FLOPs, memory and disk: against formulas written out here, and against the model that is built. All products of a
traced model: ``plan/test_budgets``."""

from __future__ import annotations

import itertools

import pytest

from dwsweep.cost.arithmetic import (
    INDEXABLE_TOKENS,
    checkpoint_bytes,
    decode_bytes_per_token,
    estimate,
    fitting_microbatch,
    flops_6nd,
    forward_flops_per_token,
    recomputed_bytes_per_token,
    resident_bytes,
    training_flops,
)
from dwsweep.records.pack import Pack, Replica
from dwsweep.shapes import BlockForm, HeadRule, Shape
from dwsweep.spec import ExecutionSpec, ModelSpec, TrainSpec


def shape(depth: int = 6, width: int = 128, **changes: object) -> Shape:
    options: dict = {"head_rule": HeadRule(count=2), "vocab_size": 1000, "seq_len": 128}
    return BlockForm(**{**options, **changes}).shape(depth, width)


def pack(shape: Shape, replicas: int, **train: object) -> Pack:
    members = tuple(Replica(seed, 1e-3, (f"s{seed}",)) for seed in range(replicas))
    return Pack("p", shape, members, (1,), ModelSpec(), TrainSpec(steps=1, **train), ExecutionSpec(), "0" * 64)


def test_flops_of_gpt3_are_its_6nd_and_little_more() -> None:
    gpt3 = BlockForm(HeadRule(count=96), vocab_size=50257, seq_len=2048).shape(96, 12288)
    ratio = training_flops(gpt3, 300_000_000_000) / flops_6nd(gpt3, 300_000_000_000)
    attention, unembedding = 2048 / (6 * 12288), 50257 / (12 * 96 * 12288)
    assert ratio == pytest.approx(1 + attention + unembedding)


def test_the_matrix_of_a_factored_embedding_is_a_product() -> None:
    full, free = shape(), shape(embedding_rank=16)
    tied = shape(embedding_rank=16, tied_embeddings=True)
    assert forward_flops_per_token(free) == forward_flops_per_token(full) + 2 * 16 * 128
    assert forward_flops_per_token(tied) == forward_flops_per_token(full) - 2 * 1000 * 128 + 2 * 16 * (1000 + 2 * 128)


def test_memory_adds_up() -> None:
    some = pack(shape(), 3, precision="bfloat16")
    memory = estimate(some, 8, data_bytes=500)
    P = some.shape.n_params_total
    assert (memory.parameters, memory.optimizer, memory.gradients) == (3 * 6 * P, 3 * 8 * P, 3 * 8 * P)
    assert memory.total == 3 * 22 * P + memory.activations + 500
    assert estimate(some, 16).activations == 2 * memory.activations
    assert estimate(some, 8, remat=True).activations < memory.activations / 1.5


def test_weights_of_attention_heads_before_their_norm_and_both_halves_of_a_gated_mlp_take_memory() -> None:
    def activations(keep: bool, **changes: object) -> int:
        return estimate(pack(shape(**changes), 1), 1, keep_weights=keep).activations

    assert activations(True) - activations(False) == 128 * 6 * 4 * 2 * 128  # T, L, bytes, H, T
    assert activations(False, qk_norm=True) - activations(False) == 128 * 6 * 4 * (2 + 2) * 64
    assert activations(True, attention="linear") == activations(False, attention="linear")
    assert recomputed_bytes_per_token(shape(mlp="gated", mlp_ratio=2.0)) == 8 * (2 * 256 + 2 * 128)


def test_checkpoints_hold_three_floats_a_parameter() -> None:
    assert checkpoint_bytes(shape(), 5) == 5 * 12 * shape().n_params_total


def test_tokens_lie_on_the_device_where_they_fit_or_are_asked_to() -> None:
    assert resident_bytes(1000, 2, None, None) == resident_bytes(1000, 2, 1.0, True) == 2000
    assert resident_bytes(1000, 2, 1.0, None) == resident_bytes(1000, 2, None, False) == 0
    assert resident_bytes(INDEXABLE_TOKENS, 1, 1e18, True) == 0 < resident_bytes(INDEXABLE_TOKENS - 1, 1, 1e18, True)


@pytest.mark.parametrize(("memory_gb", "microbatch"), [(None, 48), (1000.0, 48), (1.2, 24), (0.001, 1)])
def test_the_largest_microbatch_that_fits(memory_gb: float | None, microbatch: int) -> None:
    some = pack(shape(), 3, batch_size=48)
    found = fitting_microbatch(some, 0, memory_gb and memory_gb * 1e9)
    assert found.microbatch == microbatch
    if memory_gb == 1.2:
        assert found.total <= 0.9 * 1.2e9
        assert estimate(some, 48).total > 0.9 * 1.2e9


def test_a_decoding_step_reads_weights_and_cache() -> None:
    s = shape(4, 64, head_rule=HeadRule(count=4), kv_heads=1)
    assert decode_bytes_per_token(s, 1000) == 2 * (s.n_params + 1000 * 64 + 2 * 4 * 16 * 1000)


OPTIONS = [
    {},
    {"mlp": "gated", "mlp_ratio": 8 / 3},
    {"positions": "rotary", "qk_norm": True, "norm_type": "rmsnorm", "logit_softcap": 15.0},
    {"norm": "post"},
    {"biases": False},
    {"embedding_rank": 16, "tied_embeddings": True},
    {"head_rule": HeadRule(count=8), "kv_heads": 2},
    {"head_rule": HeadRule(count=3, size=40)},
]


# of the four programs of each second option one in the quick tier, another one for the next option
PROGRAMS = [
    pytest.param(changes, *program, id=f"{changes}-{program}", marks=() if k % 8 == one else pytest.mark.slow)
    for k, changes in enumerate(OPTIONS)
    for one, program in enumerate(itertools.product(("float32", "bfloat16"), (True, False)))
]


@pytest.mark.parametrize(("changes", "precision", "keep_weights"), PROGRAMS)
def test_activations_as_automatic_differentiation_keeps_them(changes: dict, precision: str, keep_weights: bool) -> None:
    """The part that grows with depth and batch, within a third; the model may come to keep less than it did."""
    kept = {depth: _kept_bytes(shape(depth, 96, **changes), precision, 16, keep_weights) for depth in (2, 6)}
    packs = {depth: pack(shape(depth, 96, **changes), 1, precision=precision) for depth in (2, 6)}
    estimated = {depth: estimate(one, 16, keep_weights=keep_weights).activations for depth, one in packs.items()}
    assert estimated[6] - estimated[2] == pytest.approx(kept[6] - kept[2], rel=0.35)


def _abstract(s: Shape) -> dict:
    import jax

    from dwsweep.model.transformer import build

    return jax.eval_shape(build(s, _scales(s)).init, jax.random.key(0))


def _scales(s: Shape):
    from dwsweep.model.parametrization import resolve

    return resolve(s, ModelSpec(), TrainSpec(steps=1), 1.0)


def _kept_bytes(s: Shape, precision: str, batch: int, keep_weights: bool) -> int:
    """Bytes of all that the forward pass hands to the backward pass; nothing is computed."""
    import jax
    import jax.numpy as jnp

    from dwsweep.model.ops import token_nll
    from dwsweep.model.transformer import Compute, build

    model = build(s, _scales(s), Compute(precision, keep_weights=keep_weights))
    windows = jax.ShapeDtypeStruct((batch, s.seq_len + 1), jnp.int32)

    def backward(params: dict, windows: jax.Array):
        def loss(params: dict) -> jax.Array:
            return jnp.mean(token_nll(model.logits(params, windows[:, :-1]), windows[:, 1:]))

        return jax.vjp(loss, params)[1]

    leaves = jax.tree.leaves(jax.eval_shape(backward, _abstract(s), windows))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
