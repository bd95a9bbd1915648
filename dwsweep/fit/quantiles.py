"""Quantiles and tails of the usual distributions, from scipy.special: importing scipy.stats costs about a second.

Degrees of freedom may be infinite, where t becomes normal and F becomes χ²/dfn.
"""

from __future__ import annotations

import math

import numpy as np


def t_two_sided(confidence: float, df: float) -> float:
    """t with P(|T| ≤ t) = ``confidence``."""
    from scipy.special import ndtri, stdtrit

    level = 0.5 + confidence / 2.0
    return float(stdtrit(df, level) if math.isfinite(df) else ndtri(level))


def chi2_quantile(p: np.ndarray | float, df: float) -> np.ndarray:
    """x with P(χ²_df ≤ x) = p."""
    from scipy.special import gammaincinv

    return 2.0 * gammaincinv(df / 2.0, p)


def chi2_tail(x: float, df: float) -> float:
    """P(χ²_df > x)."""
    from scipy.special import chdtrc

    return float(chdtrc(df, x))


def f_quantile(p: float, dfn: float, dfd: float) -> float:
    """x with P(F(dfn, dfd) ≤ x) = p."""
    from scipy.special import fdtri

    return float(fdtri(dfn, dfd, p)) if math.isfinite(dfd) else float(chi2_quantile(p, dfn)) / dfn


def f_tail(x: float, dfn: float, dfd: float) -> float:
    """P(F(dfn, dfd) > x)."""
    from scipy.special import fdtrc

    return float(fdtrc(dfn, dfd, x)) if math.isfinite(dfd) else chi2_tail(x * dfn, dfn)
