"""What a shape can express: separation-rank bounds of self-attention (Levine et al. 2020, arXiv 2006.12467), for nets
without softmax; and the limits that width meets whatever the depth (the embedding's rank, the heads' rank, the
embedding's share).

The separation rank measures how far a net can go beyond summing functions of two halves of its input; the bounds hold
for any balanced partition of the positions. With L layers, width d_x, H heads, and the threshold L_th = log_3 d_x:

    L < L_th, Theorem 1, eq. (7), depth efficiency:
        3^(L−2)·(log_3(d_x − H) + a)  ≤  log_3 sep  ≤  (3^L − 1)/2 · log_3(d_x + H)           a = −L + 2 − log_3 2
    L > L_th, Theorem 2, eq. (8), depth and width alike:
        ½·d_x·L + b1 + b2  ≤  log_3 sep  ≤  2·d_x·L + c1 + c2
        b1 = −L·(H/2 + 1)    b2 = −d_x·(1 + ½·log_3((d_x − H)/2))
        c1 = L               c2 = −2·d_x·log_3(d_x / (2·√(2e))) + log_3 d_x                 (our reading of the print)

L layers mix (3^L − 1)/2 copies of the input. The theory explains the form d_x ~ exp(b·L) of the fitted law, not its
constants: ln 3 = 1.10 a layer against the fitted 0.0555.

The bounds of the theory tried: the separation rank of small random networks of the kind that it analyses, exactly.

The network of Levine et al. 2020, eq. (3), has neither softmax nor activation, norm or residual. A layer is

    y^i = Σ_j Σ_h ⟨W^Q_h x^i, W^K_h x^j⟩ W^O_h W^V_h x^j = M(G)·x^i
    G = Σ_j x^j x^jᵀ,    M(G) = Σ_h W^O_h W^V_h · G · W^K_hᵀ W^Q_h

so a layer is one matrix that depends on the inputs through G alone, and the next layer's G is M·G·Mᵀ. An output is a
polynomial of the inputs, with integer coefficients where the weights are integers.

Its separation rank with respect to a partition of the positions into two halves is the rank of the matrix whose entry
(a, b) is the output where the first half of the positions has its a-th assignment of vectors and the second half its
b-th: the grid tensor of the paper, as a matrix. For weights and vectors drawn at random that rank is reached with
probability one as soon as there are more assignments than it. Its singular values fall over many decades, so that
floating point cannot tell the last ones from rounding; the arithmetic here is that of the integers modulo a prime,
which is exact: the rank found is at most the rank over the reals, and less with a probability of about degree / prime.

Which attention matrices one head can represent (Bhojanapalli et al. 2020, arXiv 2002.07028, Theorem 1), tried.

A head of size d_p sees n positions X (d × n, of full column rank, d ≥ n). Its attention matrix is the softmax of each
column of (W_k·X)ᵀ·(W_q·X)/√d_p, and P is a positive matrix whose columns sum to one.

    d_p ≥ n        for every P there are W_k and W_q that give it: the logits may be log P itself
    d_p < n        the logits have a rank of at most d_p, and a softmax does not see what is added to a whole column. So
                   P can be had if and only if log P less its column means has a rank of at most d_p.

That rank is n − 1 for a P drawn at random: heads of n − 2 and less cannot give it. (A head of n − 1 can. The theorem as
we read it, in a secondary source, says that one below n cannot.)

What theory says before anything is trained: separation-rank bounds, bottlenecks of width, the published law.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dwsweep import published_law
from dwsweep.errors import InputError
from dwsweep.shapes import Shape

EMBEDDING_SHARE_LIMIT = 0.10

EMBEDDING_REASON = (
    "it caps the embedding's rank, so width beyond it adds less than its parameters suggest and depth is favoured "
    "(Wies et al. 2021)"
)
HEAD_SIZE_REASON = (
    "a head smaller than the window cannot represent every attention pattern (Bhojanapalli et al. 2020), and how many "
    "can changes with the width"
)
EMBEDDING_SHARE_REASON = "curves matched in non-embedding parameters then differ in all parameters, wide nets more"

DEPTH_EFFICIENT = "depth-efficient"
WIDTH_LIMITED = "depth and width alike"


@dataclass(frozen=True)
class EmbeddingCap:
    """What caps the embedding's rank at ``value``: the vocabulary, or the r of a factored embedding."""

    value: float
    is_vocabulary: bool


def embedding_cap(width: float, vocab_size: float | None, rank: float | None) -> EmbeddingCap | None:
    """The bottleneck of a width d_x > min(V, r) (Wies et al. 2021, arXiv 2105.03928); None where d_x is the least.

    vocab_size: None where it is not known; rank: None of a full embedding.
    """
    value = min(limit or math.inf for limit in (vocab_size, rank))
    return EmbeddingCap(value, value == vocab_size) if width > value else None


def head_below_window(head_size: int, seq_len: int) -> bool:
    """Whether d_p < n: the low-rank bottleneck of one head (Bhojanapalli et al. 2020, arXiv 2002.07028, Theorem 1)."""
    return head_size < seq_len


def embedding_share(shape: Shape) -> float:
    """Share of token embedding, unembedding and learned positions in all parameters."""
    return shape.embedding_params / shape.n_params_total


def log3(x: float) -> float:
    return math.log(x) / math.log(3)


def threshold_depth(width: int) -> float:
    """L_th = log_3 d_x."""
    return log3(width)


def mixed_inputs(depth: int) -> float:
    """How many copies of the input ``depth`` layers multiply: (3^L − 1)/2."""
    return (3.0**depth - 1) / 2


@dataclass(frozen=True)
class Theorem:
    """Bounds of log_3 of the separation rank; the lower one is 0 where it says nothing (a rank is at least 1)."""

    equation: int  # 7 or 8
    applies: bool  # whether L and d_x are in its regime
    lower: float
    upper: float
    constants: dict[str, float]


def theorem_1(depth: int, width: float, heads: int) -> Theorem:
    """Eq. (7), of L < log_3 d_x; needs d_x > H."""
    a = -depth + 2 - log3(2)
    lower = 3.0 ** (depth - 2) * (log3(width - heads) + a)
    upper = mixed_inputs(depth) * log3(width + heads)
    return Theorem(7, depth < log3(width), max(lower, 0.0), upper, {"a": a})


def theorem_2(depth: int, width: float, heads: int) -> Theorem:
    """Eq. (8), of L > log_3 d_x; needs d_x > H."""
    b1, b2 = -depth * (heads / 2 + 1), -width * (1 + log3((width - heads) / 2) / 2)
    c1, c2 = float(depth), -2 * width * log3(width / (2 * math.sqrt(2 * math.e))) + log3(width)
    lower, upper = width * depth / 2 + b1 + b2, 2 * width * depth + c1 + c2
    constants = {"b1": b1, "b2": b2, "c1": c1, "c2": c2}
    return Theorem(8, depth >= log3(width), max(lower, 0.0), upper, constants)


def bounds(depth: int, width: float, heads: int) -> tuple[float, float]:
    """(lower, upper) bound of log_3 of the separation rank, of the regime that L and d_x are in.

    Raises:
        InputError: d_x ≤ H, where the bounds are not defined.
    """
    if width <= heads:
        raise InputError(f"width: {width:g}; must be greater than the number of heads, {heads}")
    found = theorem_1(depth, width, heads)
    found = found if found.applies else theorem_2(depth, width, heads)
    return found.lower, found.upper


@dataclass(frozen=True)
class Needed:
    """What a shallower net needs at least to reach the lower bound of a deeper one."""

    depth: int
    log10_width: float

    @property
    def width(self) -> float:
        """d_x; infinite where it is beyond the range of floats."""
        return 10**self.log10_width if self.log10_width < 300 else math.inf


def width_needed(shallow_depth: int, depth: int, width: int, heads: int) -> Needed:
    """The least width at which the upper bound of the shallower net reaches the lower bound of the deeper one.

    In the depth-efficient regime: log_3(w + H) = 2·lower / (3^L_shallow − 1), double-exponential in the ratio of the
    depths (Corollary 1). The paper's printed example (d_x = 1000, H = 16, L = 6 gives 2e17 at L = 2 and 2e5 at L = 3)
    does not follow from eq. (7) as printed, which gives 7.3e15 and 7.6e4; this returns what the equation gives.
    """
    target = bounds(depth, width, heads)[0]
    border = 3.0**shallow_depth  # below this width the shallower net is beyond its own threshold: eq. (8) holds
    low, high = float(heads) * (1 + 1e-9), border * (1 - 1e-12)
    if low < high and bounds(shallow_depth, high, heads)[1] >= target:
        for _ in range(200):
            middle = (low + high) / 2
            if bounds(shallow_depth, middle, heads)[1] >= target:
                high = middle
            else:
                low = middle
        return Needed(shallow_depth, math.log10(high))
    log10_sum = 2 * target / (3.0**shallow_depth - 1) * math.log10(3)
    if log10_sum < 15:  # the heads are lost in rounding beyond
        log10_sum = math.log10(max(10**log10_sum - heads, border))
    return Needed(shallow_depth, max(log10_sum, math.log10(border)))


def summary(*, width: int, depth: int | None = None, heads: int = 2) -> dict[str, Any]:
    """All that the theory and the fitted law say of a width, and of a depth at it; plain values for ``--json``.

    Raises:
        InputError: sizes that are not positive, or no wider than the heads.
    """
    wrong = [
        f"{name}: {value}; must be at least 1"
        for name, value in (("width", width), ("depth", depth), ("heads", heads))
        if value is not None and value < 1
    ]
    if not wrong and width <= heads:
        wrong = [f"width: {width}; must be greater than the number of heads, {heads}"]
    if depth is not None and depth > 500:
        wrong.append(f"depth: {depth}; must be at most 500, beyond which 3^L leaves the range of floats")
    if wrong:
        raise InputError(*wrong)
    threshold = threshold_depth(width)
    facts: dict[str, Any] = {
        "width": width,
        "heads": heads,
        "threshold_depth": threshold,
        "published_transition_depth": published_law.transition_depth(width),
        "depth": depth,
    }
    if depth is None:
        return facts
    lower, upper = bounds(depth, width, heads)
    shallower = sorted({1, 2, 3, depth // 2, depth - 1} & set(range(1, depth)))
    facts |= {
        "regime": DEPTH_EFFICIENT if depth < threshold else WIDTH_LIMITED,
        "mixed_inputs": mixed_inputs(depth),
        "log3_separation_rank_lower": lower,
        "log3_separation_rank_upper": upper,
        "theorems": [asdict(theorem(depth, width, heads)) for theorem in (theorem_1, theorem_2)],
        "published_transition_width": published_law.transition_width(depth),
        "published_transition_n_params": published_law.transition_n_params(depth),
        "widths_needed": [
            {"depth": need.depth, "log10_width": need.log10_width, "times_wider": _factor(need, width)}
            for need in (width_needed(less, depth, width, heads) for less in shallower)
            if lower > 0
        ],
    }
    return facts


def _factor(need: Needed, width: int) -> float | None:
    exponent = need.log10_width - math.log10(width)
    return 10**exponent if exponent < 300 else None


PRIME = 2**31 - 1  # a product of two residues fits into 64 bits
NETWORKS = (
    *((1, width, heads) for width, heads in ((2, 1), (3, 1), (4, 1), (4, 2), (5, 1), (6, 1), (6, 2))),
    *((2, width, heads) for width, heads in ((2, 1), (3, 1), (4, 1), (4, 2))),
    (3, 2, 1),
)
"""(L, d_x, H) that take seconds."""
PARTITIONS = 3
FEWEST_ASSIGNMENTS = 32


@dataclass(frozen=True)
class RankCheck:
    """One network: its rank for each partition, beside log_3 of the bounds; what is not as stated."""

    depth: int
    width: int
    heads: int
    ranks: tuple[int, ...]
    lower: float
    upper: float
    wrong: tuple[str, ...] = ()


def check_ranks(networks: Sequence[tuple[int, int, int]] = NETWORKS, *, seed: int = 0) -> list[RankCheck]:
    """The ranks of random networks (L, d_x, H), each for several balanced partitions of its positions, judged: between
    the bounds, the same for all partitions, larger than that of the next shallower and of the next narrower network of
    the same heads."""
    rng = np.random.default_rng(seed)
    found = []
    for depth, width, heads in sorted(networks, key=lambda n: (n[2], n[0], n[1])):
        network = Network.random(depth, width, heads, rng)
        positions = 2 * width
        halves = [rng.permutation(positions)[:width].tolist() for _ in range(PARTITIONS)]
        ranks = tuple(separation_rank(network, half, positions, rng) for half in halves)
        found.append(RankCheck(depth, width, heads, ranks, *bounds(depth, width, heads)))
    return [replace(row, wrong=tuple(_wrong(row, found))) for row in found]


def _wrong(row: RankCheck, others: Sequence[RankCheck]) -> list[str]:
    wrong = []
    if len(set(row.ranks)) > 1:
        wrong.append("depends on the partition")
    if not 3**row.lower - 1e-9 <= min(row.ranks) <= max(row.ranks) <= 3**row.upper + 1e-9:
        wrong.append("outside the bounds")
    smaller = [o for o in others if o.heads == row.heads and (o.depth, o.width) != (row.depth, row.width)]
    smaller = [o for o in smaller if o.depth <= row.depth and o.width <= row.width]
    if any(max(o.ranks) >= min(row.ranks) for o in smaller):
        wrong.append("no larger than a smaller network's")
    return wrong


@dataclass(frozen=True)
class Network:
    """left, right: per layer and head, W^O_h W^V_h and W^K_hᵀ W^Q_h, (L, H, d, d) modulo the prime."""

    left: np.ndarray
    right: np.ndarray

    @classmethod
    def random(cls, depth: int, width: int, heads: int, rng: np.random.Generator) -> Network:
        """Heads of size d_x / H."""
        tall, wide = (depth, heads, width, width // heads), (depth, heads, width // heads, width)
        pairs = [(rng.integers(0, PRIME, tall), rng.integers(0, PRIME, wide)) for _ in range(2)]
        return cls(*(product(first, second) for first, second in pairs))

    @property
    def width(self) -> int:
        return int(self.left.shape[-1])

    def outputs(self, gram: np.ndarray, x: np.ndarray) -> np.ndarray:
        """(…) coordinate 0 of the position whose input is x (…, d), where Σ_j x^j x^jᵀ is ``gram`` (…, d, d)."""
        for left, right in zip(self.left, self.right, strict=True):
            heads = [product(product(u, gram), v) for u, v in zip(left, right, strict=True)]
            layer = np.sum(heads, axis=0) % PRIME
            x = product(layer, x[..., None])[..., 0]
            gram = product(product(layer, gram), np.swapaxes(layer, -1, -2))
        return x[..., 0]


def separation_rank(network: Network, half: Sequence[int], positions: int, rng: np.random.Generator) -> int:
    """Of the output at position 0 with respect to ``half`` of the positions and the rest."""
    assignments = FEWEST_ASSIGNMENTS
    while True:
        rank = _rank_of(network, half, positions, assignments, rng)
        if rank < assignments:
            return rank
        assignments *= 2  # every one told of something new: there may be more


def _rank_of(network: Network, half: Sequence[int], positions: int, assignments: int, rng: np.random.Generator) -> int:
    x = rng.integers(0, PRIME, (positions, assignments, network.width))
    squares = product(x[..., :, None], x[..., None, :])
    first = np.isin(np.arange(positions), half)
    here, there = squares[first].sum(axis=0) % PRIME, squares[~first].sum(axis=0) % PRIME
    gram = (here[:, None] + there[None]) % PRIME
    own = np.broadcast_to(x[0][:, None] if first[0] else x[0][None], (assignments, assignments, network.width))
    return rank(network.outputs(gram, own))


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product (…, m, k) × (…, k, n) modulo the prime."""
    terms = (a[..., :, k, None] * b[..., None, k, :] % PRIME for k in range(a.shape[-1]))
    return functools.reduce(lambda total, term: (total + term) % PRIME, terms)


def rank(matrix: np.ndarray) -> int:
    """Rank of a matrix of residues, by elimination."""
    rows = matrix % PRIME
    found = 0
    for column in range(rows.shape[1]):
        below = np.flatnonzero(rows[found:, column]) + found
        if not len(below):
            continue
        rows[[found, below[0]]] = rows[[below[0], found]]
        pivot = rows[found, column:] * pow(int(rows[found, column]), -1, PRIME) % PRIME
        factors = rows[found + 1 :, column, None]
        rows[found + 1 :, column:] = (rows[found + 1 :, column:] - factors * pivot % PRIME) % PRIME
        found += 1
        if found == len(rows):
            break
    return found


POSITIONS, WIDTH = 8, 12
EXACT = 1e-10
"""Largest error of an attention weight that counts as rounding, in float64."""


@dataclass(frozen=True)
class HeadCheck:
    """One head size: what it can do with an attention matrix drawn at random."""

    head_size: int
    positions: int
    needed: int  # rank of log P less its column means
    error: float  # largest error of an attention weight, by the logits' best approximation of the head's rank
    wrong: tuple[str, ...] = ()


def check_heads(positions: int = POSITIONS, width: int = WIDTH, *, seed: int = 0) -> list[HeadCheck]:
    """Head sizes from 1 to one more than the positions, on one random P, judged against the theorem."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(width, positions))
    target = rng.dirichlet(np.ones(positions), positions).T
    needed = needed_head_size(target)
    found = []
    for size in range(1, positions + 2):
        error = float(np.abs(attention(inputs, *fitted_head(target, inputs, size)) - target).max())
        possible, exact = size >= needed, error < EXACT
        wrong = () if possible == exact else ("not as the rank says",)
        found.append(HeadCheck(size, positions, needed, error, wrong))
    return found


def needed_head_size(target: np.ndarray) -> int:
    """The smallest head size that can give ``target`` (n, n), whose columns sum to one: the rank of its logits with the
    freedom of a softmax taken out."""
    return int(np.linalg.matrix_rank(_logits(target)))


def fitted_head(target: np.ndarray, inputs: np.ndarray, head_size: int) -> tuple[np.ndarray, np.ndarray]:
    """(W_k, W_q), each (head_size, d): exact where the head is large enough, else by the nearest logits of its rank.

    ``target`` (n, n): positive, columns sum to one. ``inputs`` (d, n): of full column rank.
    """
    n = target.shape[0]
    left, values, right = np.linalg.svd(_logits(target) * np.sqrt(head_size))
    rank = min(head_size, n)
    keys, queries = np.zeros((head_size, n)), np.zeros((head_size, n))
    keys[:rank] = (left[:, :rank] * np.sqrt(values[:rank])).T
    queries[:rank] = np.sqrt(values[:rank])[:, None] * right[:rank]
    back = np.linalg.pinv(inputs)  # X⁺·X = 1
    return keys @ back, queries @ back


def attention(inputs: np.ndarray, w_k: np.ndarray, w_q: np.ndarray) -> np.ndarray:
    """The head's attention matrix (n, n): the softmax of each column of (W_k·X)ᵀ·(W_q·X)/√d_p."""
    logits = (w_k @ inputs).T @ (w_q @ inputs) / np.sqrt(len(w_k))
    weights = np.exp(logits - logits.max(axis=0))
    return weights / weights.sum(axis=0)


def _logits(target: np.ndarray) -> np.ndarray:
    """log P less its column means: of all logits that give P, those of the smallest rank."""
    logs = np.log(target)
    return logs - logs.mean(axis=0)
