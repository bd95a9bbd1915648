"""Decisions that every process of a pack has to share: process 0's is taken.

The length of a dispatch and the moment of a checkpoint follow a clock, and each process has its own; if they drifted
apart, one would wait for ever in a collective that the others never enter.
"""

from __future__ import annotations

import jax
import numpy as np


def agreed(value: int) -> int:
    """Process 0's value in every process, all of which have to call this; its own where it is the only one."""
    if jax.process_count() == 1:
        return value
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return int(broadcast_one_to_all(np.int32(value)))


def all_agree(fact: bool) -> bool:
    """Whether the fact holds in every process, all of which have to call this."""
    if jax.process_count() == 1:
        return fact
    from jax.experimental.multihost_utils import process_allgather

    return bool(np.asarray(process_allgather(np.int32(fact))).all())
