"""Other estimators of the transition, shown beside the reference ``pchip`` by name. Their targets differ from its.

power   crossing of E + A·N^(−α) fitted per depth. Biased where the curves are no power laws: −0.35 … +0.15 in ln N on
        noise-free simulations of this project.
levine  the two-width rule of Levine et al. 2020: the first trained width of the shallower net that is significantly
        worse, averaged with its left neighbour, where the two are indistinguishable. The noisier the losses, the later
        a width counts as worse: biased to larger widths.
"""

from __future__ import annotations

import math

import numpy as np

from dwsweep.fit.curves import Curves, Difference, distinct, from_values, pchip, shared_grid
from dwsweep.fit.quantiles import t_two_sided
from dwsweep.fit.transitions import Crossing

EXPONENTS = np.geomspace(0.005, 3.0, 100)
POWER_DRAWS = 500


def power_difference(curves: Curves, shallow: int, deep: int) -> Difference | None:
    """Difference of E + A·N^(−α) fits per depth on the pair's grid; None with fewer than four sizes at a depth."""
    grid = shared_grid(curves, shallow, deep)
    if grid is None or min(len(curves.sizes(shallow)), len(curves.sizes(deep))) < 4:
        return None
    both = []
    for depth in (shallow, deep):
        where = curves.at(depth)
        values = np.vstack([curves.mean[where], curves.draws[:POWER_DRAWS, where]])
        x, values = distinct(curves.x[where], values)
        both.append(power_curve(x, values, grid))
    return from_values(curves, shallow, deep, grid, both[0] - both[1])


def power_curve(x: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """(D, G) least-squares fits of E + A·exp(−α(x − x̄)) to values (D, K) at x (K,).

    α is profiled: for each exponent on a grid E and A are linear, and a parabola through the best three refines α.
    """
    centre = x.mean()
    rss = np.empty((len(values), len(EXPONENTS)))
    for j, alpha in enumerate(EXPONENTS):
        X = np.stack([np.ones_like(x), np.exp(-alpha * (x - centre))], axis=1)
        q, _ = np.linalg.qr(X)
        rss[:, j] = ((values - values @ q @ q.T) ** 2).sum(axis=1)
    best = np.clip(rss.argmin(axis=1), 1, len(EXPONENTS) - 2)
    rows = np.arange(len(values))
    left, middle, right = (rss[rows, best + k] for k in (-1, 0, 1))
    curvature = left - 2 * middle + right
    shift = np.where(curvature > 0, 0.5 * (left - right) / np.where(curvature > 0, curvature, 1.0), 0.0)
    step = math.log(EXPONENTS[1] / EXPONENTS[0])
    alpha = np.exp(np.log(EXPONENTS[best]) + step * np.clip(shift, -1.0, 1.0))
    basis = np.exp(-alpha[:, None] * (x - centre))
    spread = basis - basis.mean(axis=1, keepdims=True)
    A = (spread * values).sum(axis=1) / (spread**2).sum(axis=1)
    E = values.mean(axis=1) - A * basis.mean(axis=1)
    return E[:, None] + A[:, None] * np.exp(-alpha[:, None] * (grid - centre))


def levine_crossing(curves: Curves, shallow: int, deep: int, confidence: float) -> Crossing | None:
    """The two-width rule at the trained widths of the shallower net inside the shared range.

    Both nets are compared at equal x; the deeper one's loss there is interpolated, since its widths need not match. The
    interval runs between the two widths. None without a noise estimate or a shared range.
    """
    grid = shared_grid(curves, shallow, deep)
    if grid is None or not curves.noise.known:
        return None
    a, b = curves.at(shallow), curves.at(deep)
    keep = a[(curves.x[a] >= grid[0] - 1e-9) & (curves.x[a] <= grid[-1] + 1e-9)]
    values = np.vstack([curves.mean, curves.draws])
    x, shallower = distinct(curves.x[keep], values[:, keep])
    if len(x) < 2:
        return None
    d = from_values(curves, shallow, deep, x, shallower - pchip(*distinct(curves.x[b], values[:, b]), x))
    pointwise = t_two_sided(confidence, d.df)
    t = d.g / d.se
    worse = np.flatnonzero(t > pointwise)
    changes = int(np.count_nonzero(np.diff(np.sign(d.g[d.g != 0.0]))))
    t_left, t_right = float(np.max(-t)), float(np.max(t))
    if not len(worse):
        status = "not_reached" if (t < -pointwise).any() else "undecided"
        low = float(x[-1]) if status == "not_reached" else None
        return Crossing(status, None, low, None, None, None, t_left, t_right, pointwise, None, None, changes)
    first = int(worse[0])
    if first == 0:
        return Crossing(
            "already_crossed",
            None,
            None,
            float(x[0]),
            None,
            None,
            t_left,
            t_right,
            pointwise,
            None,
            float(x[0]),
            changes,
        )
    low, high = float(x[first - 1]), float(x[first])
    ln_d = curves.ln_width_of(shallow, np.array([low, high]))
    middle = float(curves.x_of_ln_width(shallow, math.log(np.exp(ln_d).mean())))
    slope = float((d.g[first] - d.g[first - 1]) / (high - low))
    return Crossing("crossed", middle, low, high, None, slope, t_left, t_right, pointwise, low, high, changes)
