"""Batches: token windows of a training step, a pure function of (seed, global step).

The token stream is cut in windows ``tokens[i·T : i·T + T + 1]``. Inputs are all tokens of a window but the last,
targets all but the first: neighbouring windows share one token, and an epoch has every token but the first once as a
target. Epoch e visits the windows in the order of a keyed permutation of [0, n): a Feistel network on ceil(log2 n)
bits, walked along its cycle until the index is below n (Black & Rogaway 2002, "Ciphers with arbitrary finite domains").
An index costs O(1) time and memory, so a resumed run seeks. The arithmetic uses unsigned 64-bit integers only, so the
order depends on no library's random generator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dwsweep.data.digests import mix64
from dwsweep.errors import InputError

_ROUNDS = 8
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def check_enough(n_tokens: int, seq_len: int, batch_size: int) -> int:
    """Number of windows of ``seq_len`` + 1 tokens at stride ``seq_len``; InputError if they do not fill one batch."""
    windows = (n_tokens - 1) // seq_len
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
    while outside.size:  # the domain is smaller than 2n: each pass finds at least half of the missing places
        out.flat[outside] = walk(out.flat[outside], base.flat[outside])
        outside = outside[out.flat[outside] >= np.uint64(n)]
    return out


def window_indices(
    seed: int, first_step: int, n_steps: int, batch_size: int, n_windows: int
) -> NDArray[np.signedinteger]:
    """Window index of each example of steps ``first_step`` … ``first_step + n_steps − 1``.

    Shape (n_steps, batch_size), int32 (int64 from 2³¹ windows on). Example j of step s is number s·batch_size + j of an
    endless stream of epochs, each of which visits every window once in a new order; a batch may straddle two epochs.
    """
    steps = np.arange(first_step, first_step + n_steps, dtype=np.uint64)[:, None]
    columns = np.arange(batch_size, dtype=np.uint64)[None, :]
    examples = steps * np.uint64(batch_size) + columns
    epochs, positions = np.divmod(examples, np.uint64(n_windows))
    order = permute(positions, epochs, seed, n_windows)
    return order.astype(np.int32 if n_windows < 2**31 else np.int64)
