"""Separation-rank bounds of self-attention without softmax (Levine et al. 2020, arXiv 2006.12467).

The separation rank measures how far a net can go beyond summing functions of two halves of its input; the bounds hold
for any balanced partition of the positions. With L layers, width d_x, H heads, and the threshold L_th = log_3 d_x:

    L < L_th, Theorem 1, eq. (7), depth efficiency:
        3^(L−2)·(log_3(d_x − H) + a)  ≤  log_3 sep  ≤  (3^L − 1)/2 · log_3(d_x + H)           a = −L + 2 − log_3 2
    L > L_th, Theorem 2, eq. (8), depth and width alike:
        ½·d_x·L + b1 + b2  ≤  log_3 sep  ≤  2·d_x·L + c1 + c2
        b1 = −L·(H/2 + 1)    b2 = −d_x·(1 + ½·log_3((d_x − H)/2))
        c1 = L               c2 = −2·d_x·log_3(d_x / (2·√(2e))) + log_3 d_x                 (our reading of the print)

L layers multiply (3^L − 1)/2 copies of the input. The theory explains the form d_x ~ exp(b·L) of the fitted law, not
its constants: ln 3 = 1.10 a layer against the fitted 0.0555.
"""

from __future__ import annotations

import math
from typing import Any

from dwsweep import published_law
from dwsweep.errors import InputError

DEPTH_EFFICIENT = "depth-efficient"
WIDTH_LIMITED = "depth and width alike"


def log3(x: float) -> float:
    return math.log(x) / math.log(3)


def mixed_inputs(depth: int) -> float:
    """Number of copies of the input that ``depth`` layers multiply: (3^L − 1)/2."""
    return (3.0**depth - 1) / 2


def bounds(depth: int, width: float, heads: int) -> tuple[float, float]:
    """Lower and upper bound of log_3 of the separation rank, by the theorem of the regime that holds (L, d_x).

    A lower bound below 0 is 0, since every rank is at least 1.

    Raises:
        InputError: d_x ≤ H, where the bounds are not defined.
    """
    if width <= heads:
        raise InputError(f"width: {width:g}; must be greater than the number of heads, {heads}")
    if depth < log3(width):  # Theorem 1
        a = -depth + 2 - log3(2)
        lower = 3.0 ** (depth - 2) * (log3(width - heads) + a)
        return max(lower, 0.0), mixed_inputs(depth) * log3(width + heads)
    b1, b2 = -depth * (heads / 2 + 1), -width * (1 + log3((width - heads) / 2) / 2)
    c1, c2 = float(depth), -2 * width * log3(width / (2 * math.sqrt(2 * math.e))) + log3(width)
    return max(width * depth / 2 + b1 + b2, 0.0), 2 * width * depth + c1 + c2


def width_needed(shallow_depth: int, depth: int, width: int, heads: int) -> float:
    """log_10 of the least width at which the upper bound of the shallower net reaches the lower bound of the deeper.

    In the depth-efficient regime: log_3(w + H) = 2·lower / (3^L_shallow − 1), double-exponential in the ratio of the
    depths (Corollary 1). The paper's printed example (d_x = 1000, H = 16, L = 6 gives 2e17 at L = 2 and 2e5 at L = 3)
    does not follow from eq. (7) as printed, which gives 7.3e15 and 7.6e4; this function follows the equation.
    """
    target = bounds(depth, width, heads)[0]
    border = 3.0**shallow_depth  # narrower, L exceeds log_3 d_x and eq. (8) holds
    low, high = float(heads) * (1 + 1e-9), border * (1 - 1e-12)
    if low < high and bounds(shallow_depth, high, heads)[1] >= target:
        for _ in range(200):
            middle = (low + high) / 2
            if bounds(shallow_depth, middle, heads)[1] >= target:
                high = middle
            else:
                low = middle
        return math.log10(high)
    log10_sum = 2 * target / (3.0**shallow_depth - 1) * math.log10(3)
    if log10_sum < 15:  # rounding beyond 10^15 hides the subtraction of the heads
        log10_sum = math.log10(max(10**log10_sum - heads, border))
    return max(log10_sum, math.log10(border))


def summary(*, width: int, depth: int | None = None, heads: int = 2) -> dict[str, Any]:
    """Facts about a width, and about one depth at that width, by the theory and the fitted law; JSON-able.

    Raises:
        InputError: a size is not positive, or the width is at most the number of heads.
    """
    wrong = [
        f"{name}: {value}; must be at least 1"
        for name, value in (("width", width), ("depth", depth), ("heads", heads))
        if value is not None and value < 1
    ]
    if not wrong and width <= heads:
        wrong = [f"width: {width}; must be greater than the number of heads, {heads}"]
    if depth is not None and depth > 500:
        wrong.append(f"depth: {depth}; must be at most 500, beyond which 3^L leaves the range of floats")
    if wrong:
        raise InputError(*wrong)
    threshold = log3(width)
    facts: dict[str, Any] = {
        "width": width,
        "heads": heads,
        "threshold_depth": threshold,
        "published_transition_depth": published_law.transition_depth(width),
        "depth": depth,
    }
    if depth is None:
        return facts
    lower, upper = bounds(depth, width, heads)
    shallower = sorted({1, 2, 3, depth // 2, depth - 1} & set(range(1, depth)))
    facts |= {
        "regime": DEPTH_EFFICIENT if depth < threshold else WIDTH_LIMITED,
        "mixed_inputs": mixed_inputs(depth),
        "log3_separation_rank_lower": lower,
        "log3_separation_rank_upper": upper,
        "published_transition_width": published_law.transition_width(depth),
        "published_transition_n_params": published_law.transition_n_params(depth),
        "widths_needed": [
            {"depth": less, "log10_width": need, "times_wider": 10**wider if wider < 300 else None}
            for less in shallower
            for need in [width_needed(less, depth, width, heads)]
            for wider in [need - math.log10(width)]
            if lower > 0
        ],
    }
    return facts
