"""Digests of texts: 64-bit hashes that decide duplicates, the split, and the order of samples."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Splitmix64 finaliser (Steele, Lea & Flood 2014), element by element: a bijection of 64-bit integers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


DROPPED, TRAIN, VALIDATION = 0, 1, 2
FEWEST_HELDOUT = 30  # fewer documents give no reliable standard error of a loss


def digest(text: bytes) -> int:
    """Digest of a text's UTF-8: first 8 bytes of BLAKE2b, the key of duplicates, the split and the held-out order."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def validation_mark(digest: NDArray[np.uint64], fraction: float) -> NDArray[np.uint8]:
    """Side of each text (TRAIN or VALIDATION), by its own digest alone: more texts move no other text."""
    limit = np.uint64(min(int(fraction * 2**64), 2**64 - 1))
    return np.where(mix64(digest) < limit, VALIDATION, TRAIN).astype(np.uint8)


def sample_order(digest: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Rank of each text in the tokenizer's sample, smallest first; independent of the split."""
    salt = mix64(np.array([(seed + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)], np.uint64))
    return mix64(digest ^ salt)
