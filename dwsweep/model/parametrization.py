"""Parametrizations: learning rates, initial scales and forward multipliers of a shape. Pure Python: `plan` uses it too.

Let m_N = d / d_base, m_L = L / L_base (base shape from the spec), base learning rate η, weight decay λ and Adam's ε:

    quantity                            standard      mup           completep (α = 1)
    residual  x + c·F(LN(x)),  c        1             1             m_L^(−α)
    hidden weights, init variance       σ²            σ²/m_N        σ²/m_N
    hidden weights, learning rate       η             η/m_N         η·m_N^(−1)·m_L^(α−1)
    hidden weights, weight decay        λ             λ·m_N         λ·m_N
    hidden biases, block norms, rate    η             η             η·m_L^(α−1)
    embedding, final norm, unembedding  η             η             η
    matrix of a factored embedding      η             η/max(1, r/d_base), as a hidden matrix of fan-in r
    unembedding, forward                1             m_N^(−1)      m_N^(−1)
    ε in the blocks                     ε             ε/m_N         ε·m_N^(−1)·m_L^(−α)
    ε elsewhere                         ε             ε/m_N         ε/m_N
    attention logits, head size d_p     1/√d_p        √d_p0 / d_p   √d_p0 / d_p

`completep` is the table of Dey et al. 2025 (arXiv 2505.01618) with its recommended α = 1; `mup` is the same table
without its depth factors (Yang & Hu et al. 2022, "Tensor Programs V"), from which the attention scale comes too: d_p0
is the head size at the base width where the head size follows the width, and d_p itself (so 1/√d_p) where it is fixed.
ε follows the size of the gradients: all carry the unembedding's m_N^(−1), those inside a block its m_L^(−α) as well.

Muon's update of a hidden matrix is an orthogonal one, of spectral norm 1, so that its learning rate is η·m_L^(α−1) and
its decay λ at every width, and the update is multiplied by

    mup, completep   0.2·√(d_base·n_out/n_in)    the spectral condition ‖ΔW‖ ∝ √(n_out/n_in) of Yang et al. 2023
                                                 (arXiv 2310.17813), under which features move alike at every width
    standard         0.2·√(max(n_in, n_out))     the root mean square of Adam's updates (Liu et al. 2025, arXiv
                                                 2502.16982), at every width

The two agree for a square matrix at the base width, so that one base rate η serves Muon and the Adam beside it, and a
grid of rates that was chosen for AdamW is one for Muon. Depth enters as for Adam, whose updates are normalised too.

`standard` is GPT-2's: σ = 0.02 everywhere, and 0.02/√(2L) for the two matrices of a block that write to the residual
stream. For `mup` and `completep` the σ of hidden matrices is GPT-2's 0.02 at its width 768 carried to the base width by
1/√d, so that the initial function does not depend on which base width was chosen. Unembedding and tied embeddings
start at 0.02 under all three, free embeddings under `mup` and `completep` at 0.3: at α = 1 the blocks add O(1/√L) to
the initial stream, and only where the embedding outweighs that is its scale the same at every depth (measured, L48
over L2: 0.24 with 0.02, 0.61 with 0.3; the losses of 200 steps differ by less than the seeds). A factored embedding is
a table (V, r) with the scale of a full one times a matrix (r, d_x) of variance 1/r, so that the product's entries have
that scale too. Its fan-in r is the same at every width, so none of its settings follows the width; AdamW updates both
even under Muon, which serves the blocks only. Decay is decoupled, p ← p − η_t·λ·p (Loshchilov & Hutter 2019), on
matrices and tables only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwsweep.shapes import Shape
from dwsweep.spec import OPTIMIZERS, ModelSpec, TrainSpec

ADAM_UPDATE = 0.2
"""Root mean square of an update by Adam over its learning rate, as Liu et al. 2025 take it."""
ALPHA = 1.0
"""CompleteP's depth exponent, under which every layer keeps learning non-linear features."""
TABLE_STD = 0.02
EMBEDDING_STD = 0.3
GPT2_WIDTH = 768


@dataclass(frozen=True)
class ParameterGroup:
    """Settings shared by one kind of parameters."""

    learning_rate: float  # peak of the schedule
    init_std: float  # sd of a normal at 0; norms start at gain 1 and biases at 0, whatever this value
    weight_decay: float  # λ of p ← p − learning_rate·λ·p
    epsilon: float  # Adam's ε


@dataclass(frozen=True)
class Scales:
    """Scales of one shape at one base learning rate."""

    learning_rate: float  # base η
    embedding: ParameterGroup  # token embedding (the tied table too), learned positions
    embedding_projection: ParameterGroup  # the (r, d_x) matrix of a factored embedding
    hidden: ParameterGroup  # matrices that read the residual stream: q, k, v, up, gate
    residual: ParameterGroup  # matrices that write to the residual stream: attention output, down; rates as for hidden
    block_vector: ParameterGroup  # biases and norms inside the blocks
    final_norm: ParameterGroup
    unembedding: ParameterGroup
    residual_multiplier: float
    unembedding_multiplier: float
    attention_scale: float  # logits = scale · q·k
    orthogonal_width: float | None = None  # d_base of Muon's factor; None: the standard one

    def groups(self) -> dict[str, ParameterGroup]:
        """Groups by name."""
        names = ("embedding", "embedding_projection", "hidden", "residual", "block_vector", "final_norm", "unembedding")
        return {name: getattr(self, name) for name in names}

    def orthogonal_factor(self, n_in: int, n_out: int) -> float:
        """Factor of an orthogonal update of a matrix, besides its learning rate."""
        if self.orthogonal_width is None:
            return ADAM_UPDATE * math.sqrt(max(n_in, n_out))
        return ADAM_UPDATE * math.sqrt(self.orthogonal_width * n_out / n_in)


def resolve(shape: Shape, model: ModelSpec, train: TrainSpec, learning_rate: float) -> Scales:
    """Scales of ``shape`` at base rate ``learning_rate`` under ``model.parametrization``."""
    scaled = model.parametrization != "standard"
    m_N = shape.width / model.base_width if scaled else 1.0
    m_L = shape.depth / model.base_depth if model.parametrization == "completep" else 1.0
    depth_rate = m_L ** (ALPHA - 1)
    decay = train.weight_decay

    embedding_std = EMBEDDING_STD if scaled and not shape.tied_embeddings else TABLE_STD
    hidden_std = TABLE_STD * math.sqrt(GPT2_WIDTH / model.base_width / m_N) if scaled else TABLE_STD
    residual_std = hidden_std if scaled else TABLE_STD / math.sqrt(2 * shape.depth)
    m_fan = 1.0 if OPTIMIZERS[train.optimizer].orthogonal else m_N
    hidden_rate = learning_rate / m_fan * depth_rate
    inside, outside = train.epsilon / m_N * m_L**-ALPHA, train.epsilon / m_N
    rank = shape.embedding_rank or 1
    rank_rate = learning_rate / (max(1.0, rank / model.base_width) if scaled else 1.0)

    base_head_size = shape.head_size / m_N if shape.head_size_follows_width else shape.head_size
    return Scales(
        learning_rate=learning_rate,
        embedding=ParameterGroup(learning_rate, embedding_std, decay, outside),
        embedding_projection=ParameterGroup(rank_rate, 1.0 / math.sqrt(rank), decay, outside),
        hidden=ParameterGroup(hidden_rate, hidden_std, decay * m_fan, inside),
        residual=ParameterGroup(hidden_rate, residual_std, decay * m_fan, inside),
        block_vector=ParameterGroup(learning_rate * depth_rate, 0.0, 0.0, inside),
        final_norm=ParameterGroup(learning_rate, 0.0, 0.0, outside),
        unembedding=ParameterGroup(learning_rate, TABLE_STD, decay, outside),
        residual_multiplier=m_L**-ALPHA,
        unembedding_multiplier=1.0 / m_N,
        attention_scale=math.sqrt(base_head_size) / shape.head_size,
        orthogonal_width=model.base_width if scaled else None,
    )
