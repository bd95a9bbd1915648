"""The decoder-only transformer (Flax NNX): built once, split once, then used as pure functions.

Dimension key: B batch, T sequence, D width d_x, L depth, H query heads, K key/value heads, P head size, V
vocabulary.

The residual stream, norms, softmax statistics, logits and master weights are float32; only matrix products take the
``compute`` dtype (products accumulate in float32). In bfloat16 a residual stream would lose more the deeper the net is:
a bias against depth.

A module declares its parameters by ``parameter``; the group and the kind of start are metadata of the ``nnx.Param``,
which outlive the module (``nnx.split``). Their values are parts of one long draw, in the order of their names: a draw
per module would be another sequence, and take six times as long to compile. The generator (Salmon et al. 2011,
Threefry-2×32) computes element i from (key, i) alone, so a divided initialisation never holds the whole draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.extend.random import threefry2x32_p
from jax.sharding import NamedSharding

from dwsweep.model import attention, ops
from dwsweep.model.parametrization import Scales
from dwsweep.shapes import Shape


@dataclass(frozen=True)
class Placement:
    """Constraints on the placement of a divided model's parts; the partitioner infers the rest."""

    stream: NamedSharding  # sharding of the residual stream, (B, T, D)
    weights: NamedSharding | None  # sharding of a layer's parameters during its computation; None: as they are stored


@dataclass(frozen=True)
class Compute:
    """Compute options of the model: arithmetic, kernel, memory. None changes its result beyond rounding."""

    dtype: str = "float32"  # type of matrix products: float32 | bfloat16
    kernel: str = "xla"  # attention kernel: xla | cudnn
    keep_weights: bool = False  # keep XLA attention's weights for the backward pass; else recompute them
    remat: bool = False  # recompute a block's activations in the backward pass
    unroll: int = 1  # layers unrolled in the scan
    placement: Placement | None = None  # None: the model is on one device


class Linear(nnx.Module):
    """The parameters of x·W (+ b), W one matrix or several side by side."""

    def __init__(self, n_in: int, *n_out: int, bias: bool, group: str) -> None:
        self.kernel = parameter(group, n_in, sum(n_out), matrices=Matrices(n_in, n_out))
        self.bias = parameter("block_vector", sum(n_out), start=ZEROS) if bias else None

    def values(self) -> tuple[jax.Array, jax.Array | None]:
        return self.kernel[...], None if self.bias is None else self.bias[...]


class LayerNorm(nnx.Module):
    """(x − mean)/√(var + ε)·gain (+ bias) over the last axis."""

    def __init__(self, width: int, *, bias: bool, group: str) -> None:
        self.gain = parameter(group, width, start=ONES)
        self.bias = parameter(group, width, start=ZEROS) if bias else None

    def __call__(self, x: jax.Array, out: str = "float32") -> jax.Array:
        return ops.layer_norm(x, self.gain[...], None if self.bias is None else self.bias[...], out)


class RMSNorm(nnx.Module):
    """x/√(mean x² + ε)·gain over the last axis, rounded to ``out`` whatever x is."""

    def __init__(self, width: int, *, group: str) -> None:
        self.gain = parameter(group, width, start=ONES)

    def __call__(self, x: jax.Array, out: str = "float32") -> jax.Array:
        return ops.rms_norm(x, self.gain[...], out)


class NoNorm(nnx.Module):
    """x, with no parameters."""

    def __call__(self, x: jax.Array, out: str = "float32") -> jax.Array:
        return x


def _norm(shape: Shape, group: str) -> LayerNorm | RMSNorm | NoNorm:
    """Norm of the residual stream."""
    if shape.norm_type == "layernorm":
        return LayerNorm(shape.width, bias=shape.biases, group=group)
    return RMSNorm(shape.width, group=group) if shape.norm_type == "rmsnorm" else NoNorm()


class Attention(nnx.Module):
    """Multi-head causal self-attention; q, k and v come from one product."""

    def __init__(self, shape: Shape, scales: Scales, compute: Compute) -> None:
        H, K, P = shape.heads, shape.kv_heads, shape.head_size
        self.qkv = Linear(shape.width, H * P, K * P, K * P, bias=shape.biases, group="hidden")
        self.out = Linear(H * P, shape.width, bias=shape.biases, group="residual")
        # norms of each head, before positions, as in Qwen3
        self.q_norm = RMSNorm(P, group="block_vector") if shape.qk_norm else None
        self.k_norm = RMSNorm(P, group="block_vector") if shape.qk_norm else None
        self.sizes = (H, K, P)
        self.rotary_base = shape.rope_theta if shape.positions == "rotary" else None
        self.kind = shape.attention
        self.scale, self.compute = scales.attention_scale, compute

    def __call__(self, x_BxTxD: jax.Array) -> jax.Array:
        return ops.linear(self.heads(x_BxTxD), *self.out.values(), self.compute.dtype, "float32")

    def heads(self, x_BxTxD: jax.Array) -> jax.Array:
        """Outputs of the heads side by side, (B, T, H·P), before the output matrix mixes them."""
        B, T, _ = x_BxTxD.shape
        H, K, P = self.sizes
        dtype = self.compute.dtype
        qkv = ops.linear(x_BxTxD, *self.qkv.values(), dtype, dtype).reshape(B, T, H + 2 * K, P)
        # split, not slices: the derivative of three slices pads each to the whole and adds them
        q, k, v = jax.lax.split(qkv, (H, K, K), axis=2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q, dtype), self.k_norm(k, dtype)
        if self.rotary_base is not None:
            q, k = attention.rotary(q, self.rotary_base), attention.rotary(k, self.rotary_base)
        how = self.compute.kernel, self.kind, self.compute.keep_weights
        return attention.causal_attention(q, k, v, self.scale, *how).reshape(B, T, H * P)


class Mlp(nnx.Module):
    """act(x·up)·down, or (act(x·gate) ⊙ x·up)·down if gated; gate and up are the halves of one matrix."""

    def __init__(self, shape: Shape, compute: Compute) -> None:
        self.gated = shape.mlp == "gated"
        inner = [shape.mlp_hidden] * (2 if self.gated else 1)
        self.up = Linear(shape.width, *inner, bias=shape.biases, group="hidden")
        self.down = Linear(shape.mlp_hidden, shape.width, bias=shape.biases, group="residual")
        self.activation, self.dtype = shape.activation, compute.dtype

    def __call__(self, x_BxTxD: jax.Array) -> jax.Array:
        return ops.mlp(x_BxTxD, self.up.values(), self.down.values(), self.activation, self.gated, self.dtype)


class Block(nnx.Module):
    """One layer. Pre-norm: x + c·F(norm(x)); post-norm: norm(x + c·F(x)); c the residual multiplier."""

    def __init__(self, shape: Shape, scales: Scales, compute: Compute) -> None:
        self.attention_norm = _norm(shape, "block_vector")
        self.attention = Attention(shape, scales, compute)
        self.mlp_norm = _norm(shape, "block_vector")
        self.mlp = Mlp(shape, compute)
        self.pre = shape.norm == "pre"
        self.multiplier = scales.residual_multiplier
        self.dtype = compute.dtype  # type of the products' operands

    def attend(self, x: jax.Array) -> jax.Array:
        """Apply the attention half of the block."""
        if self.pre:
            return x + self.multiplier * self.attention(self.attention_norm(x, self.dtype))
        return self.attention_norm(x + self.multiplier * self.attention(x))

    def heads(self, x: jax.Array) -> jax.Array:
        """Outputs of its attention's heads, (B, T, H·P)."""
        return self.attention.heads(self.attention_norm(x, self.dtype) if self.pre else x)

    def transform(self, x: jax.Array) -> jax.Array:
        """Apply the MLP half of the block."""
        if self.pre:
            return x + self.multiplier * self.mlp(self.mlp_norm(x, self.dtype))
        return self.mlp_norm(x + self.multiplier * self.mlp(x))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.transform(self.attend(x))


PASSES: dict[str, tuple[Callable[..., jax.Array], ...]] = {
    "interleaved": (Block.__call__,),
    "attention_first": (Block.attend, Block.transform),
}
"""Passes over the blocks: each pass applies one operation block by block, first to last, before the next begins."""


def _constrained(tree: Any, sharding: NamedSharding | None) -> Any:
    if sharding is None:
        return tree
    inside = jax.sharding.get_abstract_mesh()  # the mesh without its replica axis, if replicas are divided by hand
    placed = sharding if inside.empty else NamedSharding(inside, sharding.spec)
    return jax.lax.with_sharding_constraint(tree, placed)


class Transformer(nnx.Module):
    """Token ids (B, T) → the residual stream after the last block, (B, T, D).

    The parameters of all blocks are stacked along a leading layer axis and scanned, so compile time does not grow with
    depth.

    With an ``embedding_rank`` r the token embedding is a table (V, r) times a matrix (r, D): the input of the blocks
    then has rank at most min(V, r), the bottleneck of Wies et al. 2021 (arXiv 2105.03928). Positions are added to it at
    full width. A tied unembedding is the same two, transposed. A free one stays (V, D): their argument is about the
    rank of the input, and logits of rank r would be another limit, on the output.
    """

    def __init__(self, shape: Shape, scales: Scales, compute: Compute) -> None:
        V, T, D = shape.vocab_size, shape.seq_len, shape.width
        R = shape.embedding_rank
        self.embedding = parameter("embedding", V, D if R is None else R)
        self.embedding_projection = None if R is None else parameter("embedding_projection", R, D)
        self.positions = parameter("embedding", T, D) if shape.positions == "learned" else None
        self.blocks = nnx.vmap(lambda _: Block(shape, scales, compute))(jnp.arange(shape.depth))
        self.final_norm = _norm(shape, "final_norm") if shape.norm == "pre" else NoNorm()
        self.unembedding = None if shape.tied_embeddings else parameter("unembedding", V, D)
        # the root mean square of a fixed table is the initial one of a learned table
        self.sinusoid_amplitude = scales.embedding.init_std * 2**0.5 if shape.positions == "sinusoidal" else 0.0
        self.passes = PASSES[shape.order]
        self.compute = compute

    def __call__(self, tokens_BxT: jax.Array) -> jax.Array:
        x = self.embedded(tokens_BxT)
        for apply in self.passes:
            x, _ = self.through_blocks(x, apply)
        return x

    def heads(self, tokens_BxT: jax.Array) -> jax.Array:
        """Outputs of the heads of each block's attention, side by side, (L, B, T, H·P)."""
        first = self.passes[0]  # the pass that holds the attention
        return self.through_blocks(self.embedded(tokens_BxT), first, Block.heads)[1]

    def embedded(self, tokens_BxT: jax.Array) -> jax.Array:
        """Embedded tokens, the input of the first block, (B, T, D)."""
        T = tokens_BxT.shape[1]
        x = self.embedding[...][tokens_BxT]
        if self.embedding_projection is not None:
            x = ops.linear(x, self.embedding_projection[...], None, self.compute.dtype, "float32")
        if self.positions is not None:
            x = x + self.positions[...][:T]
        elif self.sinusoid_amplitude:
            x = x + self.sinusoid_amplitude * attention.sinusoids(T, x.shape[-1])
        placed = self.compute.placement
        return _constrained(x, placed.stream if placed else None)

    def through_blocks(
        self,
        x: jax.Array,
        apply: Callable[[Block, jax.Array], jax.Array],
        observe: Callable[[Block, jax.Array], Any] = lambda block, x: None,
    ) -> tuple[jax.Array, Any]:
        """(stream (B, T, D) after all blocks, observations before each block (L, …))."""
        graph, layers = nnx.split(self.blocks)
        placed = self.compute.placement

        def layer(x: jax.Array, params: nnx.State) -> tuple[jax.Array, Any]:
            # gather a layer's weights here, one layer at a time, and not the activations of all
            params = _constrained(params, placed.weights if placed else None)
            block = nnx.merge(graph, params)
            return _constrained(apply(block, x), placed.stream if placed else None), observe(block, x)

        # in a loop the compiler cannot see that a layer is computed twice
        step = jax.checkpoint(layer, prevent_cse=self.compute.unroll > 1) if self.compute.remat else layer
        return jax.lax.scan(step, x, layers, unroll=self.compute.unroll)

    def normalised(self, tokens_BxT: jax.Array) -> jax.Array:
        """Input of the unembedding, (B, T, D): with pre-norm blocks the stream still has to be normalised."""
        return self.final_norm(self(tokens_BxT))


@dataclass(frozen=True)
class Model:
    """Transformer as pure functions of a plain dict of parameters."""

    shape: Shape
    scales: Scales
    compute: Compute
    declared: Params  # shape and dtype of each parameter
    groups: Params  # the parametrization's group of each, by name
    matrices: Params  # the ``Matrices`` of each
    init: Callable[[jax.Array], Params]  # PRNG key → parameters
    module: Callable[[Params], Transformer]  # parameters → the module that holds them

    def hidden(self, params: Params, tokens: jax.Array) -> jax.Array:
        """Input of the unembedding, (B, T, D) of tokens (B, T)."""
        return self.module(params).normalised(tokens)

    def heads(self, params: Params, tokens: jax.Array) -> jax.Array:
        """Outputs of the heads of all blocks, (L, B, T, H·P) of tokens (B, T)."""
        return self.module(params).heads(tokens)

    def unembedded(self, params: Params, x_BxTxD: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(x (B·T, K), table (V, K)), with logits x·tableᵀ: K is D, or the rank r of a tied factored embedding."""
        # multiplied before it is reshaped: the other way round XLA fuses otherwise on a CPU, which moves the last bits
        # of a loss, and a sweep that was begun so would not end as it began
        x = (x_BxTxD * self.scales.unembedding_multiplier).reshape(-1, x_BxTxD.shape[-1])
        if not self.shape.tied_embeddings:
            return x, params["unembedding"]
        if self.shape.embedding_rank is not None:
            x = ops.linear(x, params["embedding_projection"].T, None, self.compute.dtype, "float32")
        return x, params["embedding"]

    def logits(self, params: Params, tokens: jax.Array) -> jax.Array:
        """Next-token logits (B, T, V), float32."""
        x, table = self.unembedded(params, self.hidden(params, tokens))
        logits = ops.product(x, table, self.compute.dtype, (-1, -1))
        return ops.softcapped(logits, self.shape.logit_softcap).reshape(*tokens.shape, -1)

    def mean_loss(self, params: Params, windows: jax.Array) -> jax.Array:
        """Training loss over windows (B, T + 1): inputs are all but the last token, targets all but the first.

        Mean nats per token, and the z-loss where the shape has one.
        """
        x, table = self.unembedded(params, self.hidden(params, windows[:, :-1]))
        cap, z_loss = self.shape.logit_softcap, self.shape.z_loss
        return ops.mean_nll(x, table, windows[:, 1:].reshape(-1), self.compute.dtype, cap, z_loss)


def build(shape: Shape, scales: Scales, compute: Compute = Compute()) -> Model:
    """Model of ``shape``: its module is split once, here, into pure functions to jit."""
    graph, abstract = nnx.split(nnx.eval_shape(lambda: Transformer(shape, scales, compute)))

    @jax.jit
    def init(key: jax.Array) -> Params:
        return initial_values(key, abstract, scales, divided=compute.placement is not None)

    def module(params: Params) -> Transformer:
        state = jax.tree.map(lambda leaf: leaf, abstract)
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(graph, state)

    declared, groups, matrices = nnx.to_pure_dict(abstract), metadata(abstract, "group"), metadata(abstract, "matrices")
    return Model(shape, scales, compute, declared, groups, matrices, init, module)


Params = dict[str, Any]
"""Nested dict with one value per parameter."""

NORMAL, ONES, ZEROS = "normal", "ones", "zeros"


@dataclass(frozen=True)
class Matrices:
    """The matrices of one array (…, n_in, Σ n_out), side by side; none for parameters outside the blocks."""

    n_in: int = 0
    n_out: tuple[int, ...] = ()


def parameter(group: str, *shape: int, start: str = NORMAL, matrices: Matrices = Matrices()) -> nnx.Param:
    """A parameter of the parametrization's ``group``, which starts from a normal of the group's scale, ones or zeros.

    The value here only gives its shape: modules are built abstractly and filled by ``initial_values``.
    """
    return nnx.Param(jnp.zeros(shape), group=group, start=start, matrices=matrices)


def metadata(declared: nnx.State, name: str) -> Params:
    """Collect the metadata ``name`` of each parameter."""
    found = jax.tree.map(lambda p: p.get_metadata(name), declared, is_leaf=lambda x: isinstance(x, nnx.Variable))
    return nnx.to_pure_dict(found)


def initial_values(key: jax.Array, declared: nnx.State, scales: Scales, *, divided: bool) -> Params:
    """The parameters of one replica, float32, from a typed key of the default generator.

    On one device all is drawn at once. If the model is ``divided``, no device has room for it: there each
    array draws its own part, and each device its share. The bits are the same.
    """
    shapes, starts, groups = nnx.to_pure_dict(declared), metadata(declared, "start"), scales.groups()
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(starts), strict=True)
    drawn = sum(leaf.size for leaf, start in leaves if start == NORMAL)
    whole = None if divided else jax.random.normal(key, (drawn,))
    at = 0

    def noise(start: int, shape: tuple[int, ...]) -> jax.Array:
        """Part of one normal draw from ``start`` on, in ``shape``."""
        if whole is None:
            return normal_part(key, start, shape)
        return whole[start : start + math.prod(shape)].reshape(shape)

    def fill(leaf: jax.ShapeDtypeStruct, start: str, group: str) -> jax.Array:
        nonlocal at
        if start != NORMAL:
            return jnp.ones(leaf.shape) if start == ONES else jnp.zeros(leaf.shape)
        at += leaf.size
        return groups[group].init_std * noise(at - leaf.size, leaf.shape)

    return jax.tree.map(fill, shapes, starts, metadata(declared, "group"))


def normal_part(key: jax.Array, start: int, shape: tuple[int, ...]) -> jax.Array:
    """Elements ``start`` … of ``jax.random.normal(key, (n,))``, any n large enough, in ``shape``: float32, bit by bit.

    That is JAX's partitionable Threefry: a normal deviate is √2·erf⁻¹(u), u uniform in (−1, 1) from 23 random bits.
    ``key`` is a typed key of the default generator.
    """
    k1, k2 = jax.random.key_data(key)
    high, low = _counters(start, shape)
    first, second = threefry2x32_p.bind(k1, k2, high, low)
    one_to_two = jax.lax.bitcast_convert_type((first ^ second) >> 9 | np.uint32(0x3F800000), jnp.float32)
    least = np.nextafter(np.float32(-1), np.float32(0))
    u = jnp.maximum(least, (one_to_two - 1) * (np.float32(1) - least) + least)
    # the barrier: a compiler may join this factor with the caller's, and round once where two products round twice
    return jax.lax.optimization_barrier(np.float32(math.sqrt(2)) * jax.lax.erf_inv(u))


def _counters(start: int, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Upper and lower 32 bits of start + position in ``shape``: a large model has more elements than 32 bits count."""
    with jax.enable_x64(True):
        at = jnp.full(shape, start, jnp.uint64)
        stride = 1
        for axis in reversed(range(len(shape))):
            at += jax.lax.broadcasted_iota(jnp.uint64, shape, axis) * np.uint64(stride)
            stride *= shape[axis]
        return (at >> np.uint64(32)).astype(jnp.uint32), at.astype(jnp.uint32)
