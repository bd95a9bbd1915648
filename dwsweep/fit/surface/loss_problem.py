"""What is to be estimated: the priors, the cell means as a linear model, and its density given θ.

Given θ and the hyperparameters the model is linear: its other coefficients are Gaussian, and integrating over them
leaves a density of six numbers, φ (loss_forms.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.surface.loss_forms import GAIN_FALLS, GAIN_POWERS, Frame, from_leads, height, least_gain

# Priors of φ (loss_forms.py): sd of c·(x_T − x₀) at the ends in nats, 6 units of ln N at a gain of 0.05; of c, p, a, s.
# κ's power 2.1 and a gain of 0.02 nats per unit of ln N and ln L are those of public data (design/prior.py), and so is
# that gains fall as N^(−0.3).
PHI_SD = np.array([0.3, 0.3, 0.05, 0.8, 0.3, 0.25])
GAIN, GAIN_POWER, GAIN_FALL = 0.02, 2.1, 0.3
PRIOR_PHI = np.array([0.0, 0.0, GAIN, GAIN_POWER, GAIN_FALL, 0.0])
# hyperparameters: ln amplitude and logit of the rate for f0; the same for δ, with a rate for x and one for y; ln τ.
# (mean, sd) of the normal prior, and bounds. δ: 0.0025 nats within a factor of 4.5; a polynomial in y has 0.45 (0.27 …
# 0.65) of the amplitude of the one before. Few depths hardly tell that rate, for they cannot see what happens between
# them. Where the law makes a wave of 10 % in N over five depths, intervals held the best depth in 82 to 98 % of sweeps;
# with a rate of 0.38 in 72 to 85 %, at 0.85 times the width; with more and slower falling departures in 88 to 98 %, but
# three depths then said next to nothing (tests/simulations/best_depths.py). τ: luck of a shape, 0.001 nats within a
# factor of 3: reruns agree to 0.001, shapes of public sweeps scatter by 0.002 to 0.004.
PRIOR = ((-3.0, 3.0), (-0.5, 1.0), (-6.0, 1.5), (-0.5, 1.0), (-0.2, 0.8), (math.log(1.0e-3), 1.1))
BOUNDS = ((-14.0, 4.0), (-4.0, 3.0), (-16.0, 4.0), (-4.0, 3.0), (-4.0, 3.0), (-14.0, -2.0))
START = (-1.5, -0.8, -6.0, -1.0, -0.5, math.log(7e-4))
JITTER = 1e-12  # nats²: losses kept as float32 are no better


@dataclass(frozen=True)
class Problem:
    """Cell means in the basis where their covariance is diagonal.

    rotation: (K, K), or None where it is diagonal as it stands. means, variances: (K,). B: (K, T). free: (T,) which
    terms are not shrunk.
    """

    frame: Frame
    x: np.ndarray
    y: np.ndarray
    rotation: np.ndarray | None
    means: np.ndarray
    variances: np.ndarray
    B: np.ndarray
    free: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, depth: np.ndarray, means: np.ndarray, C: np.ndarray, frame: Frame) -> Problem:
        y = np.log(depth.astype(float))
        B = frame.basis(x, y)
        free = (frame.terms[:, 1] == 0) & (frame.terms[:, 0] <= 2)
        if np.allclose(C, np.diag(np.diagonal(C)), rtol=0.0, atol=1e-12):
            return cls(frame, x, y, None, means, np.diagonal(C).copy(), B, free)
        values, Q = np.linalg.eigh((C + C.T) / 2.0)
        return cls(frame, x, y, Q.T, Q.T @ means, np.maximum(values, 0.0), Q.T @ B, free)

    def rotated(self, columns: np.ndarray) -> np.ndarray:
        return columns if self.rotation is None else self.rotation @ columns

    @property
    def n_free(self) -> int:
        return int(self.free.sum())

    def prior_sd(self, h: np.ndarray) -> np.ndarray:
        """Of the shrunk polynomials: amplitude · rate_x^j · rate_l^k."""
        rate0, rate_x, rate_l = (-math.log1p(math.exp(-h[i])) for i in (1, 3, 4))
        j, k = self.frame.terms[~self.free].T
        return np.exp(np.where(k == 0, h[0] + j * rate0, h[2] + j * rate_x + k * rate_l))

    def scale(self, h: np.ndarray) -> np.ndarray:
        """(T,) of the free and the shrunk coefficients in standard units."""
        return np.concatenate([np.ones(self.n_free), self.prior_sd(h)])

    @property
    def order(self) -> np.ndarray:
        """(T,) the terms as the linear model has them: the free ones, then the shrunk."""
        return np.concatenate([np.flatnonzero(self.free), np.flatnonzero(~self.free)])

    def in_order(self, columns: np.ndarray) -> np.ndarray:
        """(…, T) of the free and the shrunk coefficients, in the order of the terms."""
        return columns[..., np.argsort(self.order)]

    def weighed(
        self, h: np.ndarray, columns: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(A, d, A/d, root): the columns of the free and the shrunk coefficients in standard units, with ``columns``
        (K, …) beside them, the variances of the means, and the Cholesky factor of the coefficients' precision.

        Raises:
            np.linalg.LinAlgError: the precision is singular.
        """
        d = self.variances + math.exp(2.0 * h[5]) + JITTER
        A = np.hstack(
            [self.B[:, self.free], self.B[:, ~self.free] * self.prior_sd(h), *(() if columns is None else [columns])]
        )
        weighted = A / d[:, None]
        precision = A.T @ weighted
        precision.flat[:: len(precision) + 1] += np.arange(len(precision)) >= self.n_free
        return A, d, weighted, np.linalg.cholesky(precision)


class GivenLeads:
    """The model of one form given φ and hyperparameters, which is linear in its other coefficients.

    nodes (N, 6): hyperparameters. Of C·N rows of φ each takes the next node, in turn.

    Raises:
        np.linalg.LinAlgError: the precision of the coefficients is singular.
    """

    def __init__(self, form: str, problem: Problem, nodes: np.ndarray) -> None:
        self.form, self.problem = form, problem
        found = [problem.weighed(h) for h in nodes]
        self.precisions = np.array([1.0 / d for _, d, _, _ in found])  # (N, K) of the means
        roots = np.array([root for *_, root in found])
        self.half = np.linalg.inv(roots)  # (N, T, T)
        self.explaining = self.half @ np.array([weighted.T for _, _, weighted, _ in found])  # (N, T, K)
        self.scales = np.array([problem.scale(h) for h in nodes])  # (N, T)

    def _rest(self, phi: np.ndarray) -> np.ndarray:
        """(N, C, K) of each node's chains: means less h."""
        h = height(self.form, from_leads(phi, self.problem.frame), self.problem.x, self.problem.y, self.problem.frame)
        return self._by_node(self.problem.means - self.problem.rotated(h.T).T)

    def _by_node(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(-1, len(self.precisions), rows.shape[1]).swapaxes(0, 1)

    def density(self, phi: np.ndarray) -> np.ndarray:
        """(C·N,) log posterior of φ, the coefficients integrated out, up to a constant of each node."""
        inside = (phi[:, 5] >= 0.0) & (phi[:, 2] >= least_gain(phi))
        inside &= (phi[:, 4] >= GAIN_FALLS[0]) & (phi[:, 4] <= GAIN_FALLS[1])
        inside &= (phi[:, 3] >= GAIN_POWERS[0]) & (phi[:, 3] <= GAIN_POWERS[1])
        rest = self._rest(phi)
        explained = rest @ self.explaining.swapaxes(1, 2)
        misfit = (rest**2 @ self.precisions[:, :, None])[..., 0] - (explained**2).sum(axis=-1)
        away = (phi - PRIOR_PHI) / PHI_SD
        return np.where(inside, -0.5 * (misfit.T.reshape(-1) + (away**2).sum(axis=1)), -math.inf)

    def coefficients(self, phi: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """(C·N, T) those of all terms, in their order: their mean given φ, with ``noise`` (C·N, T) of unit variance."""
        standard = self._rest(phi) @ self.explaining.swapaxes(1, 2)
        if noise is not None:
            standard += self._by_node(noise)
        found = (standard @ self.half) * self.scales[:, None, :]
        return self.problem.in_order(found.swapaxes(0, 1).reshape(len(phi), -1))
