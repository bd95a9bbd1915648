"""Shapes: depth, width and heads, exact parameter counts, and the width that matches a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROPE_THETA = 10_000.0  # Su et al. 2021
LARGEST_SIZE = 10_000_000  # bound of a width, a vocabulary or a context
STANDARD = 12.0  # weights of a layer over d², in a standard block
OTHER_BLOCK = 0.05  # difference of ln of weights over d² above which blocks of two nets differ
MLP_RATIOS = (0.01, 1000.0)  # bounds of an MLP's inner width over d_x, wider than in any model


def width_at(n_params: float, depth: float | None, weights: float = STANDARD) -> float | None:
    """d_x = √(N/w·L), the width that spends N at ``depth`` with ``weights`` w of a layer over d_x²; None for None."""
    return None if depth is None else math.sqrt(n_params / (weights * depth))


def are_other_blocks(weights: float, others: float) -> bool:
    """True if blocks of ``weights`` and of ``others`` over d_x² are not the same."""
    return abs(math.log(weights / others)) > OTHER_BLOCK


def attention_weights(width: float, heads: float, head_size: float, kv_heads: float) -> float:
    """Weights of one attention block: d·H·d_p each for Q and O, d·H_kv·d_p each for K and V (4·d² if standard)."""
    return 2 * width * heads * head_size + 2 * width * kv_heads * head_size


def mlp_weights(width: float, hidden: float, gated: bool) -> float:
    """Weights of one MLP: 2·d·hidden, or 3·d·hidden if gated (8·d² if standard)."""
    return (3 if gated else 2) * width * hidden


@dataclass(frozen=True)
class Shape:
    """Architecture of one decoder-only model.

    All sizes are counts: ``depth`` L blocks, ``width`` d_x, ``heads`` H query heads of ``head_size`` d_p each,
    ``kv_heads`` key/value heads (H unless grouped), ``mlp_hidden`` the inner width of the MLP (4·d_x by default),
    ``seq_len`` the number of input positions.
    """

    depth: int
    width: int
    heads: int
    head_size: int
    kv_heads: int
    mlp_hidden: int
    vocab_size: int
    seq_len: int
    norm: str = "pre"  # pre | post
    activation: str = "gelu"  # gelu | relu | silu | relu2 | none
    mlp: str = "plain"  # plain | gated
    positions: str = "learned"  # learned | sinusoidal | rotary
    tied_embeddings: bool = False
    biases: bool = True
    head_size_follows_width: bool = True  # heads.count rule: d_p grows with d_x; False: heads.size fixes it
    norm_type: str = "layernorm"  # layernorm | rmsnorm | none
    qk_norm: bool = False  # queries and keys of each head are normalised
    rope_theta: float = ROPE_THETA  # base of rotary positions' wavelengths
    attention: str = "softmax"  # softmax | linear
    logit_softcap: float | None = None  # logits are capped at ± this value
    z_loss: float = 0.0  # weight of (log Σ exp logits)² in the training loss
    embedding_rank: int | None = None  # r: the token embedding is a V × r matrix times an r × d_x matrix; None: V × d_x
    order: str = "interleaved"  # interleaved | attention_first: all attention sublayers before all MLPs

    @property
    def attention_params(self) -> int:
        """Weights of one attention block, see ``attention_weights``."""
        return int(attention_weights(self.width, self.heads, self.head_size, self.kv_heads))

    @property
    def mlp_params(self) -> int:
        """Weights of one MLP, see ``mlp_weights``."""
        return int(mlp_weights(self.width, self.mlp_hidden, self.mlp == "gated"))

    @property
    def n_params(self) -> int:
        """Matched count: weight matrices of all blocks, 12·L·d_x² for the standard block. Biases, norms and all
        matrices of the embeddings are not counted."""
        return self.depth * (self.attention_params + self.mlp_params)

    @property
    def embedding_params(self) -> int:
        """Token embedding (both matrices of a factored one), unembedding unless tied, and learned positions."""
        rank, full = self.embedding_rank, self.vocab_size * self.width
        embedding = full if rank is None else rank * (self.vocab_size + self.width)
        positions = self.seq_len * self.width if self.positions == "learned" else 0
        return embedding + (0 if self.tied_embeddings else full) + positions

    @property
    def bias_and_norm_params(self) -> int:
        """Biases of every projection, and the gains of every norm (a LayerNorm has biases too).

        A pre-norm model has two norms per block and one before the unembedding; a post-norm model two per block. Where
        queries and keys are normalised, a block's heads share a gain for each.
        """
        norms = 0 if self.norm_type == "none" else 2 * self.depth + (1 if self.norm == "pre" else 0)
        norm_params = norms * self.width * (2 if self.biases and self.norm_type == "layernorm" else 1)
        norm_params += 2 * self.depth * self.head_size if self.qk_norm else 0
        if not self.biases:
            return norm_params
        attention = (self.heads + 2 * self.kv_heads) * self.head_size + self.width
        mlp = self.mlp_hidden * (2 if self.mlp == "gated" else 1) + self.width
        return norm_params + self.depth * (attention + mlp)

    @property
    def n_params_total(self) -> int:
        """Parameters of the built model, with embeddings, biases and norms."""
        return self.n_params + self.embedding_params + self.bias_and_norm_params

    @property
    def label(self) -> str:
        return f"L{self.depth}-d{self.width}-h{self.heads}"

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class HeadRule:
    """Rule that derives heads from the width: by ``count``, by ``size``, or by both (head size independent of d_x /
    H)."""

    count: int | None = None
    size: int | None = None

    def resolve(self, width: int) -> tuple[int, int]:
        """Heads and head size at a width.

        Raises:
            ValueError: the rule does not divide the width.
        """
        if self.count is not None and self.size is not None:
            return self.count, self.size
        if self.count is not None:
            if width % self.count:
                raise ValueError(f"heads.count {self.count} does not divide width {width}")
            return self.count, width // self.count
        if self.size is not None:
            if width % self.size:
                raise ValueError(f"heads.size {self.size} does not divide width {width}")
            return width // self.size, self.size
        raise ValueError("heads: neither count nor size is given")

    def gives(self, shape: Shape) -> bool:
        """Test that a shape has the heads of this rule at its width."""
        try:
            return self.resolve(shape.width) == (shape.heads, shape.head_size)
        except ValueError:
            return False

    def __str__(self) -> str:
        """Text of the rule in a spec: ``{count: 2, size: 64}``."""
        given = (("count", self.count), ("size", self.size))
        return f"{{{', '.join(f'{name}: {value}' for name, value in given if value is not None)}}}"


@dataclass(frozen=True)
class Block:
    """Block of a model: the options of ``model`` and ``grid.heads`` that, with depth and width, determine a shape."""

    head_rule: HeadRule
    vocab_size: int
    seq_len: int
    mlp_ratio: float = 4.0
    kv_heads: int | None = None
    norm: str = "pre"
    activation: str = "gelu"
    mlp: str = "plain"
    positions: str = "learned"
    tied_embeddings: bool = False
    biases: bool = True
    mlp_multiple: int = 1  # the inner width of the MLP is rounded to a multiple of this
    norm_type: str = "layernorm"
    qk_norm: bool = False
    rope_theta: float = ROPE_THETA
    attention: str = "softmax"
    logit_softcap: float | None = None
    z_loss: float = 0.0
    embedding_rank: int | None = None
    order: str = "interleaved"

    def shape(self, depth: int, width: int) -> Shape:
        """Shape at this depth and width.

        Raises:
            ValueError: heads that do not divide the width, key/value heads that do not divide the heads, or an odd
                head size with rotary positions.
        """
        heads, head_size = self.head_rule.resolve(width)
        kv_heads = heads if self.kv_heads is None else self.kv_heads
        if heads % kv_heads:
            raise ValueError(f"model.kv_heads {kv_heads} does not divide the {heads} heads at width {width}")
        if self.positions == "rotary" and head_size % 2:
            raise ValueError(f"rotary positions need an even head size, and width {width} gives {head_size}")
        ours = {"head_rule", "mlp_ratio", "mlp_multiple"}
        same = {name: value for name, value in vars(self).items() if name not in ours}
        follows = {
            "kv_heads": kv_heads,
            "mlp_hidden": self.mlp_multiple * max(1, round(self.mlp_ratio * width / self.mlp_multiple)),
            "head_size_follows_width": self.head_rule.size is None,
            "rope_theta": self.rope_theta if self.positions == "rotary" else ROPE_THETA,  # unused otherwise
        }
        return Shape(depth, width, heads, head_size, **same | follows)

    def width_step(self, width_multiple: int) -> int:
        """Step between widths: the least multiple of ``width_multiple`` that the heads divide."""
        rule = self.head_rule
        need = 1
        if rule.count is None or rule.size is None:
            need = rule.count or rule.size or 1
        step = width_multiple
        while step % need:
            step += width_multiple
        return step


def token_bytes(vocab_size: int) -> int:
    """Bytes of one token in a store: 16 bits, or 32 where ids go beyond 65,535."""
    return 2 if vocab_size <= 1 << 16 else 4


def match_width(
    depth: int,
    budget: float,
    block: Block,
    width_multiple: int,
    count: Callable[[Shape], int] = lambda shape: shape.n_params,
) -> Shape:
    """Shape of this depth whose ``count`` (the matched count by default) is nearest to ``budget``.

    The count grows with the width, so the answer is one of the two multiples around the exact solution.
    The mismatch is ``count(shape) / budget - 1``.
    """
    step = block.width_step(width_multiple)
    low, high = 1, 1
    while count(block.shape(depth, high * step)) < budget:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if count(block.shape(depth, middle * step)) < budget:
            low = middle
        else:
            high = middle
    candidates = [block.shape(depth, k * step) for k in sorted({low, high})]
    return min(candidates, key=lambda shape: abs(count(shape) - budget))
