"""Published law of Levine et al., and the GPT-3 shapes usually compared with it.

Levine, Wies, Sharir, Bata, Shashua 2020, "The Depth-to-Width Interplay in Self-Attention" (arXiv 2006.12467):
ln d_x = a + b·L, so that at width d_x a net of depth L stops gaining from width and the next deeper one takes over:
N(L) = 12·L·exp(2a + 2bL). The two constants were found in two independent secondary sources.
"""

from __future__ import annotations

import math

A = 5.039
B = 5.55e-2
SHORT = "levine2020"
NAME = f"{SHORT} (published)"
# recalled, not verified: the errors are consistent with ±0.030 and ±1.3e-3; used for intervals, labelled as such
COVARIANCE = ((9.4e-4, -3.74e-5), (-3.74e-5, 1.7e-6))
COVARIANCE_TAG = "recalled, not verified"
DEPTHS = (6, 12, 18, 24, 30, 36, 48)
TRAINED_N_PARAMS = (1e6, 6e8)  # non-embedding parameters of the networks trained (recalled, not verified)

# name → (depth, width) as trained (Brown et al. 2020)
GPT3 = {
    "125M": (12, 768),
    "350M": (24, 1024),
    "760M": (24, 1536),
    "1.3B": (24, 2048),
    "2.7B": (32, 2560),
    "6.7B": (32, 4096),
    "13B": (40, 5140),
    "175B": (96, 12288),
}


def transition_width(depth: float) -> float:
    """Width d_x at which ``depth`` meets its transition: exp(a + b·L)."""
    return math.exp(A + B * depth)


def transition_n_params(depth: float) -> float:
    """N(L) = 12·L·exp(2a + 2bL): non-embedding parameters at which depth L starts to lose to the next one."""
    return 12 * depth * transition_width(depth) ** 2


def transition_depth(width: float) -> float:
    """Depth whose transition lies at ``width``: (ln d_x − a) / b; below 0 if no depth has so narrow a transition."""
    return (math.log(width) - A) / B


def targets() -> list[tuple[str, float, tuple[int, int] | None]]:
    """(name, N, trained shape): each GPT-3 model at its own 12·L·d², and 1T."""
    trained = ((name, 12.0 * depth * width**2, (depth, width)) for name, (depth, width) in GPT3.items())
    return [*trained, ("1T", 1.0e12, None)]
