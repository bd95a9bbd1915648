"""Bounds of a law's last two coefficients: the gain c is positive, and the skew s is smaller than it, |s| < most·c.

Without its bounds a skew larger than the gain makes a loss without a minimum. Both come last in the root R of the
precision (``Model.factored``), so that for independent standard normals n

    c = (b_c + n_c)/R_cc,    s = (b_s + n_s − R_cs·c)/R_ss.

The probability of the bounds is that of a wedge, by Owen's T function (Owen 1956, "Tables for computing bivariate
normal probabilities"); draws invert a sum over steps of c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

STEPS = (np.arange(96) + 0.5)[None] / 96  # shares of c's distribution at which s is integrated
LEAST, MOST = 1e-300, 1.0 - 1e-15  # probabilities that a normal has
KNOWN = 1e-12  # least probability that Owen's T tells


@dataclass(frozen=True)
class Bounded:
    """Bounds at N nodes. corner: (N, 3, 3) rows and columns of s, c and b in the roots. most: (N,) largest |s| over c,
    in units of their priors."""

    corner: np.ndarray
    most: np.ndarray

    def log_share(self) -> np.ndarray:
        """(N,) ln of the probability of the bounds, less that of their prior, atan(most)/π."""
        from scipy.special import log_ndtr, ndtr, owens_t

        (own, _, _), (across, of_c, _), (b_s, b_c, _) = self.corner.transpose(1, 2, 0)
        turn, spread = across / own, 1.0 / own
        low, high = (self.most + turn) / of_c, (self.most - turn) / of_c  # slopes of most·c ∓ s in n_c
        sides = np.stack([low * b_c - b_s / own, high * b_c + b_s / own]) / np.hypot([low, high], spread)
        rho = (low * high - spread**2) / np.hypot(low, spread) / np.hypot(high, spread)
        sides = np.where(sides == 0.0, LEAST, sides)
        h, k = sides
        slope = np.sqrt(np.maximum(1.0 - rho**2, 1e-15))
        wedge = ndtr(sides).sum(axis=0) / 2.0 - np.where(h * k > 0.0, 0.0, 0.5)
        wedge -= owens_t(h, (k / h - rho) / slope) + owens_t(k, (h / k - rho) / slope)
        likelier = np.minimum(log_ndtr(sides).min(axis=0), log_ndtr(b_c))  # each side alone
        unknown = np.minimum(likelier, math.log(KNOWN))
        found: np.ndarray = np.where(wedge > KNOWN, np.log(np.maximum(wedge, KNOWN)), unknown)
        return found - np.log(np.arctan(self.most) / math.pi)

    def cut(self, normal: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Normals of s and c within the bounds, monotonous in the unbounded ``normal`` (T, 2). count: (N,) rows of each
        node."""
        from scipy.special import ndtr, ndtri

        _, low, high = self._at(STEPS)
        edges = np.cumsum(np.maximum(high - low, LEAST), axis=1)
        edges = np.hstack([np.zeros((len(edges), 1)), edges / edges[:, -1:]])
        of, wanted = np.arange(len(count)).repeat(count), np.clip(ndtr(normal[:, 1]), LEAST, MOST)
        place = (edges[of] < wanted[:, None]).sum(axis=1) - 1
        first, last = edges[of, place], edges[of, place + 1]
        share = (place + (wanted - first) / (last - first)) / STEPS.size
        c, low, high = (one[:, 0] for one in Bounded(self.corner[of], self.most[of])._at(share[:, None]))
        return np.stack([ndtri(np.clip(low + (high - low) * ndtr(normal[:, 0]), LEAST, MOST)), c], axis=1)

    def _at(self, share: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Normals (N, Q) of c at the ``share`` (N | 1, Q) of its positive values, and the distribution (N, Q) of the
        normal of s at either bound."""
        from scipy.special import ndtr, ndtri

        b_s, b_c = self.corner[:, 2, :2].T[:, :, None]
        lost = ndtr(-b_c)
        normal = ndtri(np.clip(lost + (1.0 - lost) * share, LEAST, MOST))
        c = (b_c + normal) / self.corner[:, 1, 1, None]
        middle, away = self.corner[:, 1, 0, None] * c - b_s, (self.most * self.corner[:, 0, 0])[:, None] * c
        return normal, ndtr(middle - away), ndtr(middle + away)
