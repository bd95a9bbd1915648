"""Interpolation of loss curves between their sizes: monotone cubic and cubic spline, of all draws at once.

As scipy.interpolate has them, to the bit for ``pchip``; that package brings scipy.optimize, which took a twelfth of
the seconds of a fit to import, and nothing else here needs it.
"""

from __future__ import annotations

import numpy as np


def pchip(x: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """(D, G): monotone cubic interpolation (Fritsch and Butland 1984) of values (D, K) at x (K,) increasing, linear if
    K = 2; beyond the ends the cubics of the ends go on."""
    x, values = np.asarray(x, dtype=float), np.asarray(values, dtype=float)
    h = np.diff(x)
    slope = np.diff(values, axis=1) / h
    if len(x) == 2:
        return _hermite(x, values, np.repeat(slope, 2, axis=1), grid)
    before, after = slope[:, :-1], slope[:, 1:]
    first, second = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
    sign = np.sign(slope)
    turns = (sign[:, 1:] != sign[:, :-1]) | (after == 0.0) | (before == 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = 1.0 / ((first / before + second / after) / (first + second))
    tangent = np.empty_like(values)
    tangent[:, 1:-1] = np.where(turns, 0.0, mean)
    tangent[:, 0] = _end(h[0], h[1], slope[:, 0], slope[:, 1])
    tangent[:, -1] = _end(h[-1], h[-2], slope[:, -1], slope[:, -2])
    return _hermite(x, values, tangent, grid)


def spline(x: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """(D, G): not-a-knot cubic spline through values (D, K) at x (K,) increasing; the parabola for K = 3, the line for
    K = 2."""
    x, values = np.asarray(x, dtype=float), np.asarray(values, dtype=float)
    K, h = len(x), np.diff(x)
    slope = np.diff(values, axis=1) / h
    if K == 2:
        return _hermite(x, values, np.repeat(slope, 2, axis=1), grid)
    if K == 3:
        bend = (slope[:, 1:] - slope[:, :1]) / (x[2] - x[0])
        away = grid - x[0]
        found: np.ndarray = values[:, :1] + slope[:, :1] * away + bend * (away * (grid - x[1]))
        return found
    # the tangents that make second derivatives continuous, and third ones at the second knot from either end
    A, b = np.zeros((K, K)), np.empty((K, len(values)))
    inner = np.arange(1, K - 1)
    A[inner, inner - 1], A[inner, inner], A[inner, inner + 1] = h[1:], 2.0 * (h[:-1] + h[1:]), h[:-1]
    b[1:-1] = 3.0 * (h[1:] * slope[:, :-1] + h[:-1] * slope[:, 1:]).T
    both = x[2] - x[0]
    A[0, :2] = h[1], both
    b[0] = ((h[0] + 2.0 * both) * h[1] * slope[:, 0] + h[0] ** 2 * slope[:, 1]) / both
    both = x[-1] - x[-3]
    A[-1, -2:] = both, h[-2]
    b[-1] = (h[-1] ** 2 * slope[:, -2] + (2.0 * both + h[-1]) * h[-2] * slope[:, -1]) / both
    return _hermite(x, values, np.linalg.solve(A, b).T, grid)


def _end(h0: float, h1: float, slope0: np.ndarray, slope1: np.ndarray) -> np.ndarray:
    """(D,) tangent at an end by three points, cut so that the curve keeps the shape of the data (Moler 2004)."""
    found = ((2.0 * h0 + h1) * slope0 - h0 * slope1) / (h0 + h1)
    away = np.sign(found) != np.sign(slope0)
    steep = (np.sign(slope0) != np.sign(slope1)) & (np.abs(found) > 3.0 * np.abs(slope0))
    return np.where(away, 0.0, np.where(steep, 3.0 * slope0, found))


def _hermite(x: np.ndarray, values: np.ndarray, tangent: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """(D, G) cubics of ``values`` and ``tangent`` (D, K) at x (K,), on ``grid`` (G,)."""
    grid = np.asarray(grid, dtype=float)
    part = np.clip(np.searchsorted(x, grid, side="right") - 1, 0, len(x) - 2)
    out = np.empty((len(values), len(grid)))
    for k in np.unique(part):
        at, h = np.flatnonzero(part == k), x[k + 1] - x[k]
        y, d = values[:, k : k + 1], tangent[:, k : k + 1]
        slope = (values[:, k + 1 : k + 2] - y) / h
        t = (d + tangent[:, k + 1 : k + 2] - 2.0 * slope) / h
        s = grid[at] - x[k]
        z = s * s
        found = d * s
        found += y
        found += ((slope - d) / h - t) * z
        found += (t / h) * (z * s)
        out[:, slice(at[0], at[-1] + 1) if at[-1] - at[0] < len(at) else at] = found
    return out
