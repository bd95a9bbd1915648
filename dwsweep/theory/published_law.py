"""The fitted transition law of Levine et al. 2020 (arXiv 2006.12467): the two constants and what follows from them.

ln d_x = a + b·L: at width d_x a net of depth L stops gaining from width and the next deeper one takes over, so that
N(L) = 12·L·exp(2a + 2bL). The two constants were found in two independent secondary sources. Trained sizes ran from
about 1e6 to 6e8 non-embedding parameters (recalled, not verified), at depths from 6 to 48.
"""

from __future__ import annotations

import math

A = 5.039
B = 5.55e-2
TRAINED_DEPTHS = (6, 48)
TRAINED_N_PARAMS = (1e6, 6e8)


def transition_width(depth: float) -> float:
    """Width d_x at which ``depth`` meets its transition: exp(a + b·L)."""
    return math.exp(A + B * depth)


def transition_n_params(depth: float) -> float:
    """Non-embedding parameters of the transition of ``depth``: 12·L·exp(2a + 2bL)."""
    return 12 * depth * transition_width(depth) ** 2


def transition_depth(width: float) -> float:
    """Depth whose transition lies at ``width``: (ln d_x − a) / b; below 0 where no depth has one that narrow."""
    return (math.log(width) - A) / B
