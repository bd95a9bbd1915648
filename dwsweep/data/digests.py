"""Digests of texts: 64-bit hashes that decide duplicates, the split, and the order of samples."""

from __future__ import annotations

import hashlib
import math

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


def fraction_for(digest: NDArray[np.uint64], wanted: int) -> tuple[float, int]:
    """Fraction of fewest digits, two or more, that holds out ``wanted`` of these documents and not all of them, and the
    number that it holds out."""
    drawn = np.sort(mix64(digest).astype(np.float64)) / 2.0**64  # draws below a fraction are held out
    for figures in range(2, 18):
        last = float(drawn[wanted - 1])
        step = 10.0 ** (math.floor(math.log10(last)) - figures + 1)
        fraction = float(f"{(math.floor(last / step) + 1) * step:.{figures}g}")
        held_out = int((validation_mark(digest, fraction) == VALIDATION).sum())
        if fraction < 1 and wanted <= held_out < len(digest):
            return fraction, held_out
    raise AssertionError("two documents of one hash are one document")


def sample_order(digest: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Rank of each text in the tokenizer's sample, smallest first; independent of the split."""
    salt = mix64(np.array([(seed + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)], np.uint64))
    return mix64(digest ^ salt)
