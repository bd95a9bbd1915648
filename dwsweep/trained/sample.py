"""Samples of text from a trained model: one compiled program per run reads the prompt and draws token after token, with
earlier keys and values in a cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.data.tokenizer import Tokenizer
from dwsweep.model.transformer import Cache, Model, Params, build
from dwsweep.trained.runs import TrainedRun, nested


def sample(
    run: TrainedRun, prompt: str, *, max_tokens: int, temperature: float = 1.0, top_k: int | None = None, seed: int = 0
) -> str:
    """Text that the run's model writes after ``prompt``, up to the end of a document or ``max_tokens``.

    temperature: 0 takes the likeliest token. top_k: number of tokens to draw among; None: all.

    Raises:
        InputError: the parameters are damaged, or the store with the tokenizer is not prepared on this host.
    """
    tokenizer = Tokenizer.of(run.token_store())
    model = build(run.shape, run.scales)
    params = nested(run.arrays())
    # training begins documents with it
    ids = [tokenizer.end_token, *map(int, tokenizer.encode(prompt.replace("\0", "")))]
    return tokenizer.decode(
        continuation(model, params, ids, tokenizer.end_token, max_tokens, temperature, top_k, jax.random.key(seed))
    )


def continuation(
    model: Model,
    params: Params,
    ids: list[int],
    end_token: int,
    max_tokens: int,
    temperature: float,
    top_k: int | None,
    key: jax.Array,
) -> list[int]:
    """Token ids drawn after ``ids`` (not empty), without the end token.

    When the window is full, sampling continues from its second half, whose positions then come first.
    """
    T = model.shape.seq_len
    fill = jax.jit(partial(_fill, model, end_token, min(top_k or model.shape.vocab_size, model.shape.vocab_size)))
    drawn: list[int] = []
    while len(drawn) < max_tokens:
        context = [*ids, *drawn]
        context = context if len(context) < T else context[-max(1, T // 2) :]
        n = len(context)
        window = np.zeros(T, np.int32)
        window[:n] = context
        key, own = jax.random.split(key)
        stop = min(T, n + max_tokens - len(drawn))
        window, end = jax.device_get(fill(params, window, n, stop, temperature, own))
        new = window[n:end].tolist()
        if new[-1] == end_token:
            return drawn + new[:-1]
        drawn += new
    return drawn


def _fill(
    model: Model,
    end_token: int,
    top_k: int,
    params: Params,
    window_T: Any,
    n: Any,
    stop: Any,
    temperature: Any,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Window with tokens n … end − 1 drawn, and end: at most ``stop`` > n, or after an end token."""

    def draw(logits_V: jax.Array, key: jax.Array) -> jax.Array:
        best, at = jax.lax.top_k(logits_V, top_k)
        scaled = best / jnp.maximum(temperature, 1e-6)
        return at[jnp.where(temperature > 0, jax.random.categorical(key, scaled), 0)]

    def goes_on(carry: tuple[Any, ...]) -> jax.Array:
        i, window, *_ = carry
        return (i < stop) & ((i == n) | (window[i - 1] != end_token))

    def step(carry: tuple[jax.Array, jax.Array, jax.Array, Cache]) -> tuple[jax.Array, jax.Array, jax.Array, Cache]:
        i, window, logits_V, cache = carry
        token = draw(logits_V, jax.random.fold_in(key, i))
        hidden, cache = model.continued(params, token[None, None], cache, i)
        return i + 1, window.at[i].set(token), model.logits_of(params, hidden)[0, 0], cache

    # padding follows position n − 1; its cache entries are overwritten before use
    hidden, cache = model.continued(params, window_T[None], model.empty_cache(1), 0)
    last = jax.lax.dynamic_index_in_dim(hidden, n - 1, axis=1)
    end, window, *_ = jax.lax.while_loop(
        goes_on, step, (jnp.asarray(n), window_T, model.logits_of(params, last)[0, 0], cache)
    )
    return window, end
