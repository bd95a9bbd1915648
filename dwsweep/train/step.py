"""Compiled functions of a pack: many training steps of all its replicas in one dispatch, and the held-out loss by
document, on the same targets for every shape.

Dimension key: R replicas, S distinct seeds, K capacity of a dispatch in steps, B batch, T sequence.

Replicas share a step but nothing else: each has its parameters, moments, learning rate and data. The trip count is
traced, so one compilation serves every dispatch, and a step's arithmetic does not depend on where a dispatch begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from dwsweep.data.heldout import HeldoutSet
from dwsweep.model.ops import token_nll
from dwsweep.model.transformer import Model, Params
from dwsweep.spec import TrainSpec
from dwsweep.train.optimizer import ParamLayout, by_leaf

State = dict[str, Any]
"""``params`` and the optimizer's moments ``m``, ``v`` (leaves, or a vector each, with a leading R axis), ``step`` ()
int32; ``alive`` (R,) bool, ``bad_steps``, ``diverged_step`` (R,) int32 and ``diverged_loss`` (R,) float32 (−1 and NaN
until it happens)."""
REST = ("step", "alive", "bad_steps", "diverged_step", "diverged_loss")
"""Fields of the state that are neither parameters nor moments."""

DIVERGED_ABOVE = 3.0
"""Nats above ln V at which a loss counts as bad after the warm-up: e³ times worse than a uniform guess."""
PATIENCE = 50
"""Consecutive bad steps after which a replica has diverged; a loss or gradient that is not finite does it at once.
Steps, not log intervals: how a run is watched must not change it."""


def init_state(model: Model, train: TrainSpec, seeds: jax.Array, layout: ParamLayout | None = None) -> State:
    """State before the first step, in ``layout`` (None: by leaf); ``seeds`` (R,) int32.

    Equal seeds give equal parameters.
    """

    def one(seed: jax.Array) -> Params:
        return model.init(jax.random.key(seed))

    layout = layout or by_leaf(model)
    params = layout.pack(jax.vmap(one)(seeds), jnp)
    R = seeds.shape[0]
    return {
        "params": params,
        **jax.vmap(layout.optimizer(train).init)(params),
        "step": jnp.zeros((), jnp.int32),
        "alive": jnp.ones(R, bool),
        "bad_steps": jnp.zeros(R, jnp.int32),
        "diverged_step": jnp.full(R, -1, jnp.int32),
        "diverged_loss": jnp.full(R, jnp.nan, jnp.float32),
    }


def loss_and_grads(
    model: Model, laid_out: Any, windows_BxT1: jax.Array, microbatch: int, layout: ParamLayout
) -> tuple[jax.Array, Any]:
    """Mean loss (nats per token) and its gradient over a batch of windows, ``microbatch`` sequences at a time.

    Parameters and gradient are in ``layout``.
    """
    B = windows_BxT1.shape[0]
    params = layout.unpack(laid_out, jnp)

    def of(windows: jax.Array) -> tuple[jax.Array, Any]:
        loss, grads = jax.value_and_grad(model.mean_loss)(params, windows)
        return loss, layout.pack(grads, jnp)

    if microbatch >= B:
        return of(windows_BxT1)
    chunks = windows_BxT1.reshape(B // microbatch, microbatch, -1)

    def add(total: Any, chunk: jax.Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of(chunk)), None

    zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, laid_out))
    total, _ = jax.lax.scan(add, zero, chunks)
    return jax.tree.map(lambda x: x * (microbatch / B), total)


def windows_at(tokens: jax.Array, indices: jax.Array, seq_len: int) -> jax.Array:
    """Windows of ``seq_len`` + 1 tokens, shape ``indices.shape + (seq_len + 1,)``, int32."""
    return tokens[indices[..., None] * seq_len + jnp.arange(seq_len + 1)].astype(jnp.int32)


StepFunction = Callable[[Any, jax.Array], Any]
"""A step of one replica: (its state, its windows (B, T + 1)) → its new state."""
ReplicaMap = Callable[[StepFunction, Any, jax.Array], Any]
"""Applies a function of one replica to all: (function, tree with leading axes R, windows (R, B, T + 1)) → tree with
leading axes R."""


def vectorized(function: StepFunction, replicas: Any, windows: jax.Array) -> Any:
    """Map over all replicas in each operation, which fills an accelerator."""
    return jax.vmap(function)(replicas, windows)


def sequentially(function: StepFunction, replicas: Any, windows: jax.Array) -> Any:
    """Map over replicas one by one: one fills a CPU, and its activations stay in the cache."""
    return jax.lax.map(lambda both: function(*both), (replicas, windows))


def make_dispatch(
    model: Model,
    train: TrainSpec,
    seed_of: tuple[int, ...],
    capacity: int,
    microbatch: int,
    streamed: bool,
    replica_map: ReplicaMap = vectorized,
    batch_axis: str | None = None,
    layout: ParamLayout | None = None,
) -> Callable[..., tuple[State, dict[str, jax.Array]]]:
    """The function ``(state, tokens, batches, rates, learning_rates, n) → (state, metrics)`` to jit.

    ``tokens`` is the token store on the device and ``batches`` (K, S, B) window indices; if ``streamed``, ``tokens`` is
    unused and ``batches`` (K, S, B, T + 1) the windows themselves. ``rates`` (K,) are schedule multipliers,
    ``learning_rates`` (R,) the peaks, ``n`` ≤ K the steps to take. Metrics: ``loss`` and ``grad_norm`` (K, R), zero
    from row n on, and copies of ``alive``, ``diverged_step`` and ``diverged_loss``. ``seed_of`` maps a replica to its
    row of S, ``layout`` says how parameters lie in ``state`` (None: by leaf). With ``batch_axis``, ``replica_map``
    gives the function a part of a replica's windows on each device along that axis of the mesh; ``microbatch`` is then
    of a part.
    """
    bound = math.log(model.shape.vocab_size) + DIVERGED_ABOVE
    rows = np.asarray(seed_of)
    layout = layout or by_leaf(model)
    optimizer = layout.optimizer(train)

    def one(replica: tuple[Any, ...], windows: jax.Array, step: jax.Array) -> tuple[Any, ...]:
        params, moments, alive, rate = replica
        loss, grads = loss_and_grads(model, params, windows, microbatch, layout)
        if batch_axis is not None:
            loss, grads = jax.lax.pmean((loss, grads), batch_axis)
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        new = optimizer.update(grads, moments, params, step=step, norm=norm, rate=rate)
        # a replica that has ended keeps its state
        kept = jax.tree.map(lambda new, old: jnp.where(alive & finite, new, old), new, (params, moments))
        return *kept, loss, norm, finite

    def dispatch(
        state: State, tokens: jax.Array, batches: jax.Array, rates: jax.Array, learning_rates: jax.Array, n: jax.Array
    ) -> tuple[State, dict[str, jax.Array]]:
        def body(k: jax.Array, carry: tuple[State, dict[str, jax.Array]]) -> tuple[State, dict[str, jax.Array]]:
            state, metrics = carry
            picked = jax.lax.dynamic_index_in_dim(batches, k, keepdims=False)
            windows = picked.astype(jnp.int32) if streamed else windows_at(tokens, picked, model.shape.seq_len)
            step, alive = state["step"], state["alive"]
            moments = {name: arrays for name, arrays in state.items() if name not in ("params", *REST)}
            params, moments, loss, norm, finite = replica_map(
                lambda replica, windows: one(replica, windows, step),
                (state["params"], moments, alive, learning_rates * rates[k]),
                windows[rows],
            )
            bad = (loss > bound) & (step >= train.warmup_steps)
            bad_steps = jnp.where(bad, state["bad_steps"] + 1, 0)
            ends = alive & (~finite | (bad_steps >= PATIENCE))
            new = {
                "params": params,
                **moments,
                "step": step + 1,
                "alive": alive & ~ends,
                "bad_steps": jnp.where(alive, bad_steps, state["bad_steps"]),
                "diverged_step": jnp.where(ends, step + 1, state["diverged_step"]),
                "diverged_loss": jnp.where(ends, loss, state["diverged_loss"]),
            }
            rows_out = {"loss": loss, "grad_norm": norm}
            return new, {name: metrics[name].at[k].set(rows_out[name]) for name in metrics}

        zeros = jnp.zeros((capacity, len(seed_of)), jnp.float32)
        state, metrics = jax.lax.fori_loop(0, n, body, (state, {"loss": zeros, "grad_norm": zeros}))
        return state, {**metrics, **{name: state[name] for name in ("alive", "diverged_step", "diverged_loss")}}

    return dispatch


@dataclass(frozen=True)
class HeldoutLoss:
    """Held-out loss of one replica."""

    loss: float  # nats per token
    loss_stderr: float  # standard error over documents of (summed nats / summed tokens)
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
    return [heldout_loss(nats, heldout) for nats in np.sum(np.array(sums), axis=0)]


def heldout_loss(nats: NDArray[np.float64], heldout: HeldoutSet) -> HeldoutLoss:
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
