"""Draws of the model of the loss from its posterior, which is not linearised.

Given θ and the hyperparameters the model is linear: its other coefficients are Gaussian, and integrating over them
leaves a density of six numbers, φ (loss_forms.py). A population of chains samples it, each stepping along the
difference of two others, one half of them at a time (differential evolution Markov chains, ter Braak 2006). The chains
are spread over the hyperparameters in proportion to their weights, and over the noise where its variance was estimated.
"""

from __future__ import annotations

import math

import numpy as np

from dwsweep.fit.noise import chi2_quantile
from dwsweep.fit.surface.loss_forms import GAIN_FALLS, GAIN_POWERS, from_leads, least_gain, to_leads
from dwsweep.fit.surface.loss_problem import PHI_SD, GivenLeads, Problem

NODES = 16  # hyperparameters that the chains are spread over
CHAINS = 384  # a multiple of 2·NODES
STEPS = 60
LONG_STEP = 10  # every so many steps a chain may go from one mode to another
STRIDE = 2.38 / math.sqrt(2.0 * len(PHI_SD))  # of the difference of two chains, the best one for a Gaussian
EVIDENCE_DRAWS, TAILS = 2000, 5.0
LEAST_SPREAD = 1e-6
JITTER = 1e-3  # of the prior's sd


def draw_model(
    form: str,
    problem: Problem,
    nodes: np.ndarray,
    weights: np.ndarray,
    start: tuple[np.ndarray, np.ndarray],
    noise_df: float | None,
) -> np.ndarray:
    """(CHAINS, T + P) the coefficients of all terms, and θ, in an order of which any part is a fair sample.

    nodes (N, 6): hyperparameters, weights (N,) theirs, which add up to 1. start: mean (P,) and covariance (P, P) of φ
    in the linearised model. noise_df: degrees of freedom of the estimated noise; None: the noise is known.
    """
    rng = np.random.default_rng(0)
    # the middles of equal shares of the weight
    picks = np.searchsorted(np.cumsum(weights), (np.arange(NODES) + 0.5) / NODES)
    model = GivenLeads(form, problem, nodes[np.minimum(picks, len(nodes) - 1)])
    precision = np.ones(CHAINS)  # of the noise, over that estimated
    if noise_df is not None:
        pairs = CHAINS // 2
        precision = rng.permutation(chi2_quantile((np.arange(pairs) + 0.5) / pairs, noise_df) / noise_df).repeat(2)
    mean, covariance = start
    values, vectors = np.linalg.eigh(covariance)
    wide = rng.standard_normal((CHAINS, len(mean))) * np.sqrt(np.clip(values, 0.0, None))
    phi = _within_bounds(mean + wide @ vectors.T)
    halves = phi[0::2], phi[1::2]  # views
    here = [model.density(half) for half in halves]
    for step in range(STEPS):
        stride = 1.0 if step % LONG_STEP == LONG_STEP - 1 else STRIDE
        for k, (own, others) in enumerate((halves, halves[::-1])):
            a, b = rng.integers(len(others), size=(2, len(own)))
            tried = own + stride * (others[a] - others[b]) + JITTER * PHI_SD * rng.standard_normal(own.shape)
            there = model.density(tried)
            taken = np.log(rng.random(len(own))) < precision[k::2] * (there - here[k])
            own[taken], here[k][taken] = tried[taken], there[taken]
    out = np.empty((CHAINS, len(problem.free) + len(mean)))
    noise = rng.standard_normal((CHAINS // 2, len(problem.free))) / np.sqrt(precision[::2])[:, None]
    for k, half in enumerate(halves):  # the noise of one half is the other's with its sign changed: their mean has none
        coefficients = model.coefficients(half, -noise if k else noise)
        out[k::2] = np.hstack([coefficients, from_leads(half, problem.frame)])
    return out


def log_likelihood(model: GivenLeads, draws: np.ndarray) -> float:
    """Of the one node of hyperparameters of ``model``, restricted, with θ integrated out under its prior, up to the
    constant of ``Linear.log_likelihood``: by importance sampling from a Student t that is as wide as the ``draws``
    (D, P) of θ."""
    rng = np.random.default_rng(0)
    phi = to_leads(draws, model.problem.frame) / PHI_SD
    centre, covariance = phi.mean(axis=0), np.cov(phi, rowvar=False) + LEAST_SPREAD**2 * np.eye(phi.shape[1])
    root = np.linalg.cholesky(covariance)
    z = rng.standard_normal((EVIDENCE_DRAWS, len(root)))
    t = z / np.sqrt(rng.chisquare(TAILS, len(z)) / TAILS)[:, None]
    proposed = -0.5 * (TAILS + len(root)) * np.log1p((t**2).sum(axis=1) / TAILS) - np.log(np.diagonal(root)).sum()
    weight = model.density((centre + t @ root.T) * PHI_SD) - proposed
    largest = float(weight.max())
    size = len(root)
    # the t's density, and the normal's of the prior, at their middles
    middle = math.lgamma((TAILS + size) / 2.0) - math.lgamma(TAILS / 2.0) - 0.5 * size * math.log(0.5 * TAILS)
    determinants = 0.5 * float(np.log(model.precisions).sum()) + float(np.log(np.diagonal(model.half[0])).sum())
    return determinants - middle + largest + math.log(np.exp(weight - largest).mean())


def _within_bounds(phi: np.ndarray) -> np.ndarray:
    phi = phi.copy()
    phi[:, 5] = np.abs(phi[:, 5])
    phi[:, 4] = np.clip(phi[:, 4], *GAIN_FALLS)
    phi[:, 3] = np.clip(phi[:, 3], *GAIN_POWERS)
    phi[:, 2] = np.maximum(np.abs(phi[:, 2]), least_gain(phi))
    return phi
