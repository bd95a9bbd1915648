"""The mixed model of the loss, linearised at θ: its restricted likelihood, and Gauss–Newton steps of θ."""

from __future__ import annotations

import math

import numpy as np

from dwsweep.fit.surface.loss_forms import GAIN_FALLS, Frame, P, by_leads, from_leads, least_gain, linearised, to_leads
from dwsweep.fit.surface.loss_problem import PHI_SD, PRIOR, PRIOR_PHI, GivenLeads, Problem

LARGEST_STEP = np.array([0.1, 0.1, 0.03, 0.5, 0.2, 0.2])
HALVINGS = 6


class Linear:
    """The mixed model of one form linearised at θ."""

    def __init__(self, problem: Problem, form: str, theta: np.ndarray) -> None:
        self.problem, self.form, self.theta = problem, form, theta
        value, columns = linearised(form, theta, problem.x, problem.y, problem.frame)
        self.phi = to_leads(theta, problem.frame)
        self.offset = PRIOR_PHI - self.phi  # the mean of the prior, seen from here
        self.columns = problem.rotated(columns @ by_leads(theta, problem.frame)) * PHI_SD
        self.means = problem.means - problem.rotated(value) - self.columns @ (self.offset / PHI_SD)

    def log_posterior(self, h: np.ndarray) -> float:
        """Restricted log likelihood times the priors of the hyperparameters, up to a constant."""
        return self.value_and_gradient(h)[0]

    def log_likelihood(self, h: np.ndarray) -> float:
        """The first of the two, up to the same constant."""
        mean, sd = np.array(PRIOR).T
        return self.log_posterior(h) + 0.5 * float((((h - mean) / sd) ** 2).sum())

    def value_and_gradient(self, h: np.ndarray) -> tuple[float, np.ndarray]:
        """:meth:`log_posterior` and its derivative (6,) with respect to ``h``.

        With C and u the covariance and the mean of the standardised coefficients (Henderson's equations), P_m the
        projection that restricted likelihood works with and a_t = p_t·sd_t: a_t'·P_m·a_t = 1 − C_tt and
        a_t'·P_m·y = u_t, so that d ln p / d ln sd_t = u_t² − 1 + C_tt, and d ln p / d ln τ = τ²·(|P_m·y|² − tr P_m).
        """
        mean, sd = np.array(PRIOR).T
        luck = math.exp(2.0 * h[5])
        try:
            A, d, root, C, u = self._solved(h)
        except np.linalg.LinAlgError:
            return -1e10, np.zeros(len(h))
        residual = self.means - A @ u
        projected = residual / d
        n_free = self.problem.n_free
        shrunk = len(self.problem.free) - n_free
        # y'·P_m·y as a sum of squares: no digits are lost where there is hardly any noise
        squares = residual @ projected + u[n_free:] @ u[n_free:]
        deviance = np.log(d).sum() + 2.0 * np.log(np.diag(root)).sum() + squares
        value = -0.5 * float(deviance + (((h - mean) / sd) ** 2).sum())
        weighted = A / d[:, None]
        trace = (1.0 / d).sum() - np.einsum("km,km->", weighted @ C, weighted)
        each = (u**2 - 1.0 + np.diagonal(C))[n_free : n_free + shrunk]
        j, k = self.problem.frame.terms[~self.problem.free].T
        own, shared = np.where(k == 0, 0.0, each), np.where(k == 0, each, 0.0)
        slope = 1.0 / (1.0 + np.exp(h[[1, 3, 4]]))  # of the log rates with respect to their logits
        gradient = np.array(
            [
                shared.sum(),
                (shared * j).sum() * slope[0],
                own.sum(),
                (own * j).sum() * slope[1],
                (own * k).sum() * slope[2],
                luck * (projected @ projected - trace),
            ]
        )
        return value, gradient - (h - mean) / sd**2

    def _solved(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(A, d, root, C, u): the columns of free, shrunk and θ coefficients in standard units, the variances of the
        means, the Cholesky factor of the coefficients' precision, their covariance and mean."""
        A, d, weighted, root = self.problem.weighed(h, self.columns)
        half = np.linalg.inv(root)
        C = half.T @ half
        return A, d, root, C, C @ (weighted.T @ self.means)

    def gain(self, h: np.ndarray) -> np.ndarray:
        """(T + P, K) derivatives of the means of the coefficients and φ with respect to the cell means."""
        A, d, _, C, _ = self._solved(h)
        columns = C @ (A / d[:, None]).T
        if self.problem.rotation is not None:
            columns = columns @ self.problem.rotation
        return (self._scale(h)[:, None] * columns)[self._back]

    def _scale(self, h: np.ndarray) -> np.ndarray:
        """Of free, shrunk and φ in standard units."""
        return np.concatenate([self.problem.scale(h), PHI_SD])

    @property
    def _back(self) -> np.ndarray:
        """From free, shrunk and φ to all terms in their order, and φ."""
        order = self.problem.order
        return np.argsort(np.concatenate([order, len(order) + np.arange(len(PHI_SD))]))

    def coefficients(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, covariance) of the coefficients of all terms, in their order, and of φ."""
        _, _, _, covariance, mean = self._solved(h)
        scale = self._scale(h)
        mean = scale * mean + np.concatenate([np.zeros(len(self.problem.free)), self.phi + self.offset])
        covariance = covariance * scale * scale[:, None]
        back = self._back
        return mean[back], covariance[np.ix_(back, back)]

    def expected(self, h: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """(:meth:`log_posterior`, mean, covariance, sampling) where ``means`` are free of noise, the first on average
        over the noise; the next two as :meth:`coefficients` has them. sampling: the part of the covariance C that the
        noise of the means makes; the rest is what the priors allow.

        E y'·P_m·y = m'·P_m·m + tr P_m·D, and with Q the precisions of the priors tr P_m·D = K − tr (1 − C·Q).
        """
        mean, covariance = self.coefficients(h)
        prior = np.zeros(len(mean))  # precisions
        n = len(PHI_SD)
        prior[:-n][~self.problem.free] = self.problem.prior_sd(h) ** -2.0
        prior[-n:] = PHI_SD**-2.0
        noise = len(self.means) - (1.0 - np.diagonal(covariance) * prior).sum()
        sampling = covariance - covariance @ (prior[:, None] * covariance)
        return self.log_posterior(h) - 0.5 * float(noise), mean, covariance, sampling

    def leads(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean (P,), covariance (P, P)) of φ."""
        mean, covariance = self.coefficients(h)
        n = len(PHI_SD)
        return mean[-n:], covariance[-n:, -n:]


def start_theta(frame: Frame) -> np.ndarray:
    theta = from_leads(PRIOR_PHI, frame)
    theta[:2] += np.array([-0.5, 0.5]) * frame.scale[0]
    return theta


def in_theta(theta: np.ndarray, rows: np.ndarray, frame: Frame) -> np.ndarray:
    """Derivatives (T + P, …) of the coefficients and φ as those of the coefficients and θ, at ``theta`` (P,)."""
    return np.concatenate([rows[:-P], by_leads(theta, frame) @ rows[-P:]])


def newton_steps(form: str, problem: Problem, theta: np.ndarray, h: np.ndarray, steps: int) -> np.ndarray:
    """θ after at most ``steps`` of Gauss–Newton with the hyperparameters ``h``, each halved until it is one uphill:
    far from the transitions a full step overshoots, to the other side and back."""
    given = GivenLeads(form, problem, h[None])
    here = given.density(to_leads(theta, problem.frame)[None])[0]
    for _ in range(steps):
        mean, covariance = Linear(problem, form, theta).coefficients(h)
        if mean[-1] < 0.0:  # the saturation is not negative: the others go where they belong with none
            mean = mean - covariance[:, -1] / covariance[-1, -1] * mean[-1]
        phi = to_leads(theta, problem.frame)
        step = np.clip(mean[-P:] - phi, -LARGEST_STEP, LARGEST_STEP)
        for share in 0.5 ** np.arange(HALVINGS):
            there = phi + share * step
            there[2:] = np.maximum(there[2:], np.array([least_gain(there), -2.0, GAIN_FALLS[0], 0.0]))
            there[4] = min(there[4], GAIN_FALLS[1])
            density = given.density(there[None])[0]
            if density > here:
                break
        else:
            break
        moved = np.abs(there - phi)
        theta, here = from_leads(there, problem.frame), density
        if (moved / PHI_SD).max() < 1e-4:
            break
    return theta
