"""Held-out loss: the same targets for every shape, with the loss of each document kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dwsweep.data.batches import HeldoutSet
from dwsweep.model.ops import token_nll
from dwsweep.model.transformer import Model, Params


@dataclass(frozen=True)
class HeldoutLoss:
    """Of one replica."""

    loss: float  # nats per token
    loss_stderr: float  # over documents, of the ratio of summed nats to summed tokens
    bits_per_byte: float
    documents: NDArray[np.float64]  # (n_documents, 2): summed nats, tokens


def make_evaluate(model: Model) -> Callable[[Params, jax.Array], jax.Array]:
    """The function (parameters of R replicas, windows (B, T + 1)) → nats of each target (R, B, T) to jit."""

    def one(params: Params, windows: jax.Array) -> jax.Array:
        windows = windows.astype(jnp.int32)
        return token_nll(model.logits(params, windows[:, :-1]), windows[:, 1:])

    return jax.vmap(one, in_axes=(0, None))


def heldout_losses(
    evaluate: Callable[[Params, Any], jax.Array], params: Params, heldout: HeldoutSet, batch: int
) -> list[HeldoutLoss]:
    """The held-out loss of each replica; sums in float64, in the fixed order of the set."""
    n, sums = len(heldout.windows), []
    for start in range(0, n, batch):
        windows = np.zeros((batch, heldout.windows.shape[1]), heldout.windows.dtype)
        part = heldout.windows[start : start + batch]
        windows[: len(part)] = part
        document = heldout.document[start : start + batch].reshape(-1)
        counted = document >= 0
        nll = jax.device_get(evaluate(params, windows))[:, : len(part)]
        sums.append(
            [
                np.bincount(document[counted], row.reshape(-1)[counted].astype(np.float64), heldout.n_documents)
                for row in nll
            ]
        )
    return [summarise(nats, heldout) for nats in np.sum(np.array(sums), axis=0)]


def summarise(nats: NDArray[np.float64], heldout: HeldoutSet) -> HeldoutLoss:
    """Loss and its standard error from the summed nats of each document.

    The loss is a ratio of sums over n documents, ℓ = Σ nats_i / Σ tokens_i, whose standard error to first order is
    √(n/(n − 1)·Σ (nats_i − ℓ·tokens_i)²) / Σ tokens_i (Cochran 1977, Sampling Techniques, §6.4); NaN for one document.
    """
    tokens = heldout.document_tokens.astype(np.float64)
    total, n = tokens.sum(), len(tokens)
    loss = nats.sum() / total
    residuals = nats - loss * tokens
    stderr = math.sqrt(n / (n - 1) * np.square(residuals).sum()) / total if n > 1 else math.nan
    bits = nats.sum() / math.log(2) / heldout.n_bytes if heldout.n_bytes else math.nan
    return HeldoutLoss(float(loss), float(stderr), float(bits), np.stack([nats, tokens], axis=1))
