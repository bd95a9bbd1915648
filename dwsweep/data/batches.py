"""Which windows a step sees: a pure function of (seed, global step). And the held-out set that every evaluation sees.

The token stream is cut in windows ``tokens[i·T : i·T + T + 1]``; inputs are all but the last token, targets all but the
first, so neighbouring windows share one token and every token but the first is a target exactly once per epoch. Epoch e
visits all windows in the order of a keyed permutation of [0, n): a Feistel network on ceil(log2 n) bits, walked along
its cycle until it lands below n (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). One index costs O(1)
time and memory, so a resumed run seeks; the arithmetic is on unsigned 64-bit integers only, so the order depends on no
library's random generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dwsweep.data.token_store import ShardedTokens, Store
from dwsweep.errors import InputError

_ROUNDS = 8
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 finaliser (Steele, Lea & Flood 2014), element by element: a bijection of 64-bit integers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def n_windows(n_tokens: int, seq_len: int) -> int:
    """Number of windows of ``seq_len`` + 1 tokens at stride ``seq_len`` in ``n_tokens`` tokens."""
    return max(0, (n_tokens - 1) // seq_len)


def check_enough(n_tokens: int, seq_len: int, batch_size: int) -> int:
    """The number of windows, or InputError when the stream does not fill one batch."""
    windows = n_windows(n_tokens, seq_len)
    if windows < batch_size:
        raise InputError(
            f"data.source: {n_tokens:,} training tokens make {windows:,} windows of train.seq_len {seq_len}; "
            f"one batch needs {batch_size:,} (train.batch_size): use more text, or a smaller batch or seq_len"
        )
    return windows


def permute(positions: NDArray[np.uint64], epochs: NDArray[np.uint64], seed: int, n: int) -> NDArray[np.uint64]:
    """Place of each position in the order of its epoch: for a fixed epoch, a bijection of [0, n).

    ``positions`` and ``epochs`` are uint64 arrays of one shape, positions below ``n``.
    """
    bits = max(2, (n - 1).bit_length())
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    base = mix64(np.uint64((seed * _GOLDEN + 1) & _MASK) + mix64(epochs * np.uint64(_GOLDEN) + np.uint64(1)))

    def walk(x: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
        low, high = x & low_mask, x >> low_bits
        for r in range(_ROUNDS):
            round_key = key + np.uint64(((r + 1) * _GOLDEN) & _MASK)
            if r % 2:
                low = low ^ (mix64(high + round_key) & low_mask)
            else:
                high = high ^ (mix64(low + round_key) & high_mask)
        return (high << low_bits) | low

    out = walk(positions, base)
    outside = np.flatnonzero(out >= np.uint64(n))
    while outside.size:  # the domain is below 2n, so half of what is left comes home each time
        out.flat[outside] = walk(out.flat[outside], base.flat[outside])
        outside = outside[out.flat[outside] >= np.uint64(n)]
    return out


def window_indices(
    seed: int,
    first_step: int,
    n_steps: int,
    batch_size: int,
    n_windows: int,
) -> NDArray[np.signedinteger]:
    """Window index of each example of steps ``first_step`` … ``first_step + n_steps − 1``.

    Shape (n_steps, batch_size), int32 (int64 from 2³¹ windows on). Example j of step s is number s·batch_size + j of an
    endless stream of epochs, each of which visits every window once in a new order; a batch may straddle two epochs.
    """
    if n_windows < 1:
        raise ValueError(f"n_windows: {n_windows}; at least 1")
    if first_step < 0 or n_steps < 0:
        raise ValueError(f"first_step, n_steps: {first_step}, {n_steps}; 0 or more")
    steps = np.arange(first_step, first_step + n_steps, dtype=np.uint64)[:, None]
    columns = np.arange(batch_size, dtype=np.uint64)[None, :]
    examples = steps * np.uint64(batch_size) + columns
    epochs, positions = np.divmod(examples, np.uint64(n_windows))
    order = permute(positions, epochs, seed, n_windows)
    return order.astype(np.int32 if n_windows < 2**31 else np.int64)


def gather(tokens: np.ndarray | ShardedTokens, indices: np.ndarray, seq_len: int) -> np.ndarray:
    """The windows themselves: shape ``indices.shape + (seq_len + 1,)``, the tokens' own dtype."""
    starts = np.asarray(indices, dtype=np.int64) * seq_len
    if isinstance(tokens, ShardedTokens):
        return tokens.take_windows(starts, seq_len + 1)
    return tokens[starts[..., None] + np.arange(seq_len + 1)]


@dataclass(frozen=True)
class HeldoutSet:
    """Validation documents cut in windows: the same targets, each counted once, for every shape of a sweep.

    Loss in nats per token is Σ nll / n_tokens; bits per byte is Σ nll / (n_bytes · ln 2). The end token of a document
    is a target (the model must know when to stop) and has no bytes.
    """

    windows: np.ndarray  # (W, seq_len + 1), the store's dtype: inputs are [:, :-1], targets [:, 1:]
    document: NDArray[np.int32]  # (W, seq_len): document of each target, −1 for padding
    n_documents: int
    document_tokens: NDArray[np.int64]  # (n_documents,): targets, the end token included
    document_bytes: NDArray[np.int64]  # (n_documents,): UTF-8 bytes
    n_tokens: int  # targets in all
    n_bytes: int  # UTF-8 bytes in all


def heldout_set(store: Store, seq_len: int, max_tokens: int | None = None) -> HeldoutSet:
    """The validation documents of ``store`` in windows of ``seq_len`` targets.

    Documents come in the order of their hash, so that a prefix is a random sample, each followed by an end token; the
    stream starts with an end token, windows are ``stream[i·T : i·T + T + 1]``, and the last one is padded with end
    tokens whose document is −1. ``max_tokens`` cuts at a document's border: as many whole documents as fit, at least
    one.
    """
    if seq_len < 1:
        raise ValueError(f"seq_len: {seq_len}; at least 1")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens: {max_tokens}; at least 1, or None for all")
    records = store.documents("validation")
    lengths = records["n_tokens"].astype(np.int64) + 1
    starts = 1 + np.cumsum(lengths) - lengths
    order = np.argsort(records["digest"], kind="stable")
    if max_tokens is not None:
        fit = int(np.searchsorted(np.cumsum(lengths[order]), max_tokens, side="right"))
        order = order[: max(1, fit)]
    lengths, starts = lengths[order], starts[order]
    n_tokens = int(lengths.sum())

    tokens = store.shards("validation")
    n = -(-n_tokens // seq_len)
    stream = np.full(n * seq_len + 1, store.end_token, store.dtype)
    at = 1
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        stream[at : at + length] = tokens.read(start, start + length)
        at += length
    document = np.full(n * seq_len, -1, np.int32)
    document[:n_tokens] = np.repeat(np.arange(len(order), dtype=np.int32), lengths)
    windows = stream[np.arange(n)[:, None] * seq_len + np.arange(seq_len + 1)]
    document_bytes = records["n_bytes"][order].astype(np.int64)
    return HeldoutSet(
        windows=windows,
        document=document.reshape(n, seq_len),
        n_documents=len(order),
        document_tokens=lengths,
        document_bytes=document_bytes,
        n_tokens=n_tokens,
        n_bytes=int(document_bytes.sum()),
    )
