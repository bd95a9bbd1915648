"""The law that Levine et al. published, and the shapes of GPT-3 it is usually held against.

Levine, Wies, Sharir, Bata, Shashua 2020, "The Depth-to-Width Interplay in Self-Attention" (arXiv 2006.12467):
ln d_x = a + b·L at the transition of depth L, hence N(L) = 12·L·exp(2a + 2bL) non-embedding parameters.
"""

from __future__ import annotations

import math

import numpy as np

from dwsweep.fit.laws import Law
from dwsweep.theory.published_law import TRAINED_N_PARAMS, A, B

# recalled, not verified: the errors are consistent with ±0.030 and ±1.3e-3; used for intervals, labelled as such
COVARIANCE = ((9.4e-4, -3.74e-5), (-3.74e-5, 1.7e-6))
COVARIANCE_TAG = "recalled, not verified"
# sizes of the networks trained: about 1e6 to 6e8 (recalled, not verified)
VALID_FROM, VALID_TO = TRAINED_N_PARAMS
DEPTHS = (6, 12, 18, 24, 30, 36, 48)
NAME = "levine2020 (published)"

# name → (depth, width) as trained (Brown et al. 2020); None where no such model was described
GPT3: dict[str, tuple[int, int] | None] = {
    "125M": (12, 768),
    "350M": (24, 1024),
    "760M": (24, 1536),
    "1.3B": (24, 2048),
    "2.7B": (32, 2560),
    "6.7B": (32, 4096),
    "13B": (40, 5140),
    "175B": (96, 12288),
    "1T": None,
}
SIZES_WITHOUT_SHAPE = {"1T": 1.0e12}


def n_transition(depth: float, a: float = A, b: float = B) -> float:
    """N(L) = 12·L·exp(2a + 2bL): non-embedding parameters at which depth L starts to lose to the next one."""
    return 12.0 * depth * math.exp(2.0 * a + 2.0 * b * depth)


def optimal_depth(n_params: float, a: float = A, b: float = B) -> float:
    """L*(N) = W(2b·N·e^(−2a)/12)/(2b), W the Lambert function: the inverse of :func:`n_transition`.

    Raises ValueError for N ≤ 0 or b ≤ 0, where the law has no optimum.
    """
    from scipy.special import lambertw

    if not (n_params > 0 and b > 0):
        raise ValueError(f"n_params = {n_params}, b = {b}; both must be above 0")
    return float(lambertw(2.0 * b * n_params * math.exp(-2.0 * a) / 12.0).real) / (2.0 * b)


def optimal_width(n_params: float, depth: float) -> float:
    """d_x = √(N / 12L), the width that spends N at depth L."""
    return math.sqrt(n_params / (12.0 * depth))


def targets() -> list[tuple[str, float, tuple[int, int] | None]]:
    """(name, N, trained shape): each GPT-3 model at its own 12·L·d², and 1T."""
    rows: list[tuple[str, float, tuple[int, int] | None]] = []
    for name, shape in GPT3.items():
        n = 12.0 * shape[0] * shape[1] ** 2 if shape else SIZES_WITHOUT_SHAPE[name]
        rows.append((name, n, shape))
    return rows


def law() -> Law:
    """The published law as a :class:`~dwsweep.fit.laws.Law`, with 95 % intervals from the recalled covariance."""
    return Law(
        name=NAME,
        form="exponential",
        theta=(A, B),
        valid_from=VALID_FROM,
        valid_to=VALID_TO,
        region=ellipse((A, B), np.asarray(COVARIANCE), 1.959964**2),
        error_tag=COVARIANCE_TAG,
    )


def ellipse(centre: tuple[float, float], covariance: np.ndarray, level: float, points: int = 360) -> np.ndarray:
    """(points, 2) boundary of {θ : (θ − c)ᵀ Σ⁻¹ (θ − c) ≤ level}; extremes of a function of θ over it are its profile
    interval (exact for linear functions)."""
    angle = np.linspace(0.0, 2.0 * np.pi, points, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.asarray(centre) + math.sqrt(level) * circle @ np.linalg.cholesky(covariance).T
