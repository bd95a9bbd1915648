"""Schedule of a pack: its cool-downs, its phases, the multipliers of its learning rate. Pure NumPy, on the host.

A pack without token branches is one phase. With a wsd trunk and branches of b_1 < … < b_n steps, the trunk runs at the
peak rate; at b_i minus its cool-down the state is copied, the copy is cooled down to b_i and yields a finished run, and
the trunk goes on. The last run is the trunk's own end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dwsweep.records.pack import Pack
from dwsweep.spec import TrainSpec


def cooldown_steps(spec: TrainSpec, steps: int) -> int:
    """Steps of the cool-down at the end of a wsd run of ``steps`` steps."""
    return max(1, math.ceil(spec.cooldown_fraction * steps))


def cooldown_start(steps: int, train: TrainSpec) -> int:
    """First step (from 0) of the cool-down of a wsd run of ``steps`` steps; never inside the warm-up."""
    return max(min(train.warmup_steps, steps), steps - cooldown_steps(train, steps))


def pack_tokens(pack: Pack) -> int:
    """Tokens of all replicas in all steps of a pack: the full length, and the cool-down of every token branch."""
    *branches, full = pack.branch_steps
    steps = full + sum(branch - cooldown_start(branch, pack.train) for branch in branches)
    return steps * pack.train.batch_size * pack.train.seq_len * len(pack.replicas)


@dataclass(frozen=True)
class Phase:
    """Steps ``start`` … ``stop − 1`` of one state.

    ``branch`` is the position in ``branch_steps`` of the run that ends at ``stop``; None: the trunk goes on after it.
    ``forks``: a copy of the trunk is cooled down; the trunk itself stays at ``start``.
    """

    start: int
    stop: int
    branch: int | None
    forks: bool


def phases(branch_steps: tuple[int, ...], train: TrainSpec) -> tuple[Phase, ...]:
    """The phases of a pack in the order in which they are trained.

    ``branch_steps`` ascend, so no branch leaves the trunk after the trunk's own cool-down begins.
    """
    last = len(branch_steps) - 1
    if last == 0:
        return (Phase(0, branch_steps[0], 0, False),)
    out: list[Phase] = []
    at = 0
    for i, steps in enumerate(branch_steps):
        fork = cooldown_start(steps, train)
        if fork > at:
            out.append(Phase(at, fork, None, False))
            at = fork
        out.append(Phase(at, steps, i, i != last))
    return tuple(out)


def multipliers(first_step: int, n_steps: int, stop: int | None, train: TrainSpec) -> NDArray[np.float32]:
    """Learning rate of steps ``first_step`` … as a fraction of the peak, shape (n_steps,).

    ``stop`` is the length in steps of the run that the steps belong to; None for the trunk of a wsd run, which has no
    end. With w warm-up steps and S = ``stop``, step s (from 0) has

        warm-up   (s + 1)/w                              for s < w
        cosine    ½·(1 + cos(π·(s − w)/(S − w)))         (Loshchilov & Hutter 2017, to zero)
        wsd       1, then (S − s)/(S − s_c) from the cool-down's first step s_c (Hu et al. 2024)
        constant  1
    """
    s = np.arange(first_step, first_step + n_steps, dtype=np.float64)
    w = float(train.warmup_steps)
    if train.schedule == "cosine" and stop is not None:
        rate = 0.5 * (1 + np.cos(np.pi * np.clip((s - w) / max(stop - w, 1.0), 0, 1)))
    elif train.schedule == "wsd" and stop is not None:
        begin = cooldown_start(stop, train)
        rate = np.clip((stop - s) / max(stop - begin, 1), 0, 1)
    else:
        rate = np.ones_like(s)
    return np.where(s < w, (s + 1) / max(w, 1.0), rate).astype(np.float32)
