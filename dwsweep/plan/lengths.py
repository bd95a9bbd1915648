"""How long runs train: steps for tokens, the lengths of token branches, the cool-down. The one place of these facts."""

from __future__ import annotations

import math

from dwsweep.records.pack_files import Pack
from dwsweep.spec import Spec, TrainSpec


def steps_of(tokens: float, tokens_per_step: int) -> int:
    """Optimizer steps that see at least ``tokens``."""
    # the small slack keeps 1e6 tokens at 1000 per step from becoming 1001 steps through rounding of a product
    return max(1, math.ceil(tokens / tokens_per_step - 1e-9))


def total_steps(spec: Spec, n_params: int) -> int:
    """Steps of a full-length run of a shape with ``n_params`` matched parameters."""
    train = spec.train
    if train.steps is not None:
        return train.steps
    tokens = train.tokens if train.tokens is not None else (train.tokens_per_param or 0.0) * n_params
    return steps_of(tokens, train.batch_size * train.seq_len)


def branch_steps(spec: Spec, n_params: int) -> tuple[int, ...]:
    """Total steps of every finished run of one replica, ascending; the last is the full length."""
    full = total_steps(spec, n_params)
    per_step = spec.train.batch_size * spec.train.seq_len
    return tuple(sorted({steps_of(tokens, per_step) for tokens in spec.train.token_branches} | {full}))


def cooldown_steps(spec: TrainSpec, steps: int) -> int:
    """Steps of the cool-down at the end of a wsd run of ``steps`` steps."""
    return max(1, math.ceil(spec.cooldown_fraction * steps))


def cooldown_start(steps: int, train: TrainSpec) -> int:
    """First step (from 0) of the cool-down of a wsd run of ``steps`` steps; never inside the warm-up."""
    return max(min(train.warmup_steps, steps), steps - cooldown_steps(train, steps))


def pack_tokens(pack: Pack) -> int:
    """Tokens of all replicas: the full length, and the cool-down of every shorter token branch."""
    *branches, full = pack.branch_steps
    steps = full + sum(branch - cooldown_start(branch, pack.train) for branch in branches)
    return steps * pack.train.batch_size * pack.train.seq_len * len(pack.replicas)
