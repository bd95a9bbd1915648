"""Held-out set: the validation documents in windows, equal for every evaluation of a sweep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dwsweep.data.token_store import Store


@dataclass(frozen=True)
class HeldoutSet:
    """Held-out windows: every shape of a sweep sees the same targets, each counted once.

    Loss in nats per token is Σ nll / Σ document_tokens; bits per byte is Σ nll / (n_bytes · ln 2). The end token of a
    document is a target (the model must know when to stop) and has no bytes.
    """

    windows: np.ndarray  # (W, seq_len + 1), the store's dtype: inputs are [:, :-1], targets [:, 1:]
    document: NDArray[np.int32]  # (W, seq_len): document of each target, −1 for padding
    n_documents: int
    document_tokens: NDArray[np.int64]  # (n_documents,): targets, the end token included
    n_bytes: int  # UTF-8 bytes in all


def heldout_set(store: Store, seq_len: int, max_tokens: int | None = None) -> HeldoutSet:
    """Held-out set of ``store``: the validation documents in windows of ``seq_len`` targets.

    Documents come in the order of their hash, so that a prefix is a random sample, each followed by an end token; the
    stream starts with an end token, windows are ``stream[i·T : i·T + T + 1]``, and the last one is padded with end
    tokens whose document is −1. ``max_tokens`` cuts at a document's border: as many whole documents as fit, at least
    one.
    """
    records = store.documents("validation")
    lengths = records["n_tokens"].astype(np.int64) + 1
    starts = 1 + np.cumsum(lengths) - lengths
    order = np.argsort(records["digest"], kind="stable")
    if max_tokens is not None:
        fit = int(np.searchsorted(np.cumsum(lengths[order]), max_tokens, side="right"))
        order = order[: max(1, fit)]
    lengths, starts = lengths[order], starts[order]
    n_tokens = int(lengths.sum())

    tokens = store.tokens("validation")
    n = -(-n_tokens // seq_len)
    stream = np.full(n * seq_len + 1, store.end_token, store.dtype)
    at = 1
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        stream[at : at + length] = tokens[start : start + length]
        at += length
    document = np.full(n * seq_len, -1, np.int32)
    document[:n_tokens] = np.repeat(np.arange(len(order), dtype=np.int32), lengths)
    return HeldoutSet(
        windows=stream[np.arange(n)[:, None] * seq_len + np.arange(seq_len + 1)],
        document=document.reshape(n, seq_len),
        n_documents=len(order),
        document_tokens=lengths,
        n_bytes=int(records["n_bytes"][order].sum(dtype=np.int64)),
    )
