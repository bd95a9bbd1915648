"""Shapes: depth, width and heads, exact parameter counts, and the width that matches a budget."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field

ROPE_THETA = 10_000.0  # Su et al. 2021
LARGEST_SIZE = 10_000_000  # bound of a width, a vocabulary or a context
MULTIPLES = range(1, LARGEST_SIZE)  # widths, in steps
PositiveFloat = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Width = Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
HeadCount = Annotated[int, Field(gt=0, le=10_000)]
STANDARD = 12.0  # weights of a layer over d², in a standard block
# families of nets by the ``model_type`` of transformers, which names their MLP whatever its activation
PLAIN_FAMILIES = {"gpt2", "gpt_neo", "gptj", "gpt_neox", "gpt_bigcode", "codegen", "opt", "bloom", "mpt", "phi"}
PLAIN_FAMILIES |= {"falcon", "refinedweb", "refinedwebmodel", "starcoder2", "nemotron", "persimmon"}
GATED_FAMILIES = ("llama", "mistral", "ministral", "mixtral", "qwen2", "qwen3", "gemma", "phi3", "olmo", "smollm")
OTHER_BLOCK = 0.05  # difference of ln of weights over d² above which blocks of two nets differ
MLP_RATIOS = (0.01, 1000.0)  # bounds of an MLP's inner width over d_x, wider than in any model


def gate_of(family: str) -> bool | None:
    """True if the MLP of a family of nets is gated, as in ``llama`` and not in ``gpt2``; None for an unknown family."""
    name = family.strip().lower().replace("-", "_")
    return False if name in PLAIN_FAMILIES else True if name.startswith(GATED_FAMILIES) else None


def width_at(n_params: float, depth: float, weights: float) -> float:
    """d_x = √(N/w·L), the width that spends N at ``depth`` with ``weights`` w of a layer over d_x²; it falls with L."""
    return math.sqrt(n_params / (weights * depth))


def are_other_blocks(weights: float, others: float) -> bool:
    """True if blocks of ``weights`` and of ``others`` over d_x² are not the same."""
    return abs(math.log(weights / others)) > OTHER_BLOCK


def attention_weights(width: float, heads: float, head_size: float, kv_heads: float) -> float:
    """Weights of one attention block: d·H·d_p each for Q and O, d·H_kv·d_p each for K and V (4·d² if standard)."""
    return 2 * width * heads * head_size + 2 * width * kv_heads * head_size


def mlp_weights(width: float, hidden: float, gated: bool) -> float:
    """Weights of one MLP: 2·d·hidden, or 3·d·hidden if gated (8·d² if standard)."""
    return (3 if gated else 2) * width * hidden


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Keys of a spec's ``model`` that a shape has with the same value. Their descriptions are the reference."""

    norm: Annotated[Literal["pre", "post"], Field(description="place of the norms")] = "pre"
    norm_type: Annotated[Literal["layernorm", "rmsnorm", "none"], Field(description="kind of norm")] = "layernorm"
    activation: Annotated[
        Literal["gelu", "relu", "silu", "relu2", "none"],
        Field(description="activation of the MLP, or of its gate if gated; relu2: the square of relu"),
    ] = "gelu"
    positions: Annotated[Literal["learned", "sinusoidal", "rotary"], Field(description="how positions enter")] = (
        "learned"
    )
    rope_theta: Annotated[PositiveFloat, Field(gt=1, description="base of rotary positions' wavelengths")] = ROPE_THETA
    attention: Annotated[
        Literal["softmax", "linear"], Field(description="linear: no softmax, the mean over positions of (q·k)·v")
    ] = "softmax"
    order: Annotated[
        Literal["interleaved", "attention_first"],
        Field(description="order of sublayers; attention_first: the attention of all blocks, then their MLPs"),
    ] = "interleaved"
    qk_norm: Annotated[bool, Field(description="RMSNorm of each head's queries and keys, before rotary positions")] = (
        False
    )
    logit_softcap: Annotated[
        Annotated[PositiveFloat, Field(ge=1e-3)] | None,
        Field(description="logits become cap·tanh(logits / cap); None: off"),
    ] = None
    z_loss: Annotated[
        float,
        Field(ge=0, le=1e3, allow_inf_nan=False),
        Field(description="weight of (log Σ exp logits)² in the training loss; the held-out loss has no such term"),
    ] = 0.0
    mlp: Annotated[Literal["plain", "gated"], Field(description="gated: three matrices, as in SwiGLU")] = "plain"
    tied_embeddings: Annotated[bool, Field(description="the unembedding is the embedding")] = False
    embedding_rank: Annotated[
        HeadCount | None,
        Field(description="rank r of a factored embedding, V × r times r × d_x (a tied unembedding too); None: full"),
    ] = None
    biases: Annotated[bool, Field(description="projections and norms have biases")] = True


@dataclass(frozen=True, kw_only=True)
class Proportions(Layer):
    """All keys of a spec's ``model`` that determine a shape: also those that follow its width or its heads."""

    mlp_ratio: Annotated[
        float,
        Field(ge=MLP_RATIOS[0], le=MLP_RATIOS[1], allow_inf_nan=False, description="inner width of the MLP / d_x"),
    ] = 4.0
    mlp_multiple: Annotated[Width, Field(description="divisor of the inner width")] = 1
    kv_heads: Annotated[
        HeadCount | None, Field(description="grouped key/value heads; None: as many as query heads")
    ] = None


@dataclass(frozen=True)
class Shape(Layer):
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
    head_size_follows_width: bool = True  # heads.count rule: d_p grows with d_x; False: heads.size fixes it

    @property
    def n_params(self) -> int:
        """Matched count: weight matrices of all blocks, 12·L·d_x² for the standard block. Biases, norms and all
        matrices of the embeddings are not counted."""
        attention = attention_weights(self.width, self.heads, self.head_size, self.kv_heads)
        return self.depth * int(attention + mlp_weights(self.width, self.mlp_hidden, self.mlp == "gated"))

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
                raise ValueError(f"the width must be a multiple of the {self.count} heads")
            return self.count, width // self.count
        if self.size is not None:
            if width % self.size:
                raise ValueError(f"the width must be a multiple of the head size {self.size}")
            return width // self.size, self.size
        raise ValueError("heads: neither count nor size is given")

    def __str__(self) -> str:
        """Text of the rule in a spec: ``{count: 2, size: 64}``."""
        given = (("count", self.count), ("size", self.size))
        return f"{{{', '.join(f'{name}: {value}' for name, value in given if value is not None)}}}"


@dataclass(frozen=True)
class BlockForm(Proportions):
    """All that determines a shape besides depth and width."""

    head_rule: HeadRule
    vocab_size: int
    seq_len: int

    def shape(self, depth: int, width: int) -> Shape:
        """Shape at this depth and width.

        Raises:
            ValueError: heads that do not divide the width, key/value heads that do not divide the heads, or an odd
                head size with rotary positions.
        """
        heads, head_size = self.head_rule.resolve(width)
        kv_heads = heads if self.kv_heads is None else self.kv_heads
        if heads % kv_heads:
            raise ValueError(f"model.kv_heads {kv_heads} must divide the heads, {heads} at width {width}")
        if self.positions == "rotary" and head_size % 2:
            raise ValueError(f"rotary positions need an even head size, not {head_size}")
        same = {field.name: getattr(self, field.name) for field in fields(Layer)}
        if self.positions != "rotary":
            same["rope_theta"] = ROPE_THETA  # unused
        return Shape(
            depth,
            width,
            heads,
            head_size,
            kv_heads,
            mlp_hidden=self.mlp_multiple * max(1, round(self.mlp_ratio * width / self.mlp_multiple)),
            vocab_size=self.vocab_size,
            seq_len=self.seq_len,
            head_size_follows_width=self.head_rule.size is None,
            **same,
        )

    def width_step(self, width_multiple: int) -> int:
        """Step between widths: the least multiple of ``width_multiple`` that the heads divide."""
        rule = self.head_rule
        both = rule.count is not None and rule.size is not None
        return width_multiple if both else math.lcm(width_multiple, rule.count or rule.size or 1)


def token_bytes(vocab_size: int) -> int:
    """Bytes of one token in a store: 16 bits, or 32 where ids go beyond 65,535."""
    return 2 if vocab_size <= 1 << 16 else 4


def match_width(depth: int, budget: float, block: BlockForm, width_multiple: int) -> Shape:
    """Shape of this depth whose matched count is nearest to ``budget``.

    The count grows with the width, so the answer is one of the two multiples around the exact solution.
    """
    step = block.width_step(width_multiple)
    above = bisect_left(MULTIPLES, budget, key=lambda k: block.shape(depth, k * step).n_params)
    candidates = [block.shape(depth, k * step) for k in MULTIPLES[max(0, above - 1) : above + 1]]
    return min(candidates, key=lambda shape: abs(shape.n_params - budget))
