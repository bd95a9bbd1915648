"""The loss of all depths together, estimated: restricted likelihood, one fit per form, weighed by their evidence.

The terms (loss_surface.py) enter a mixed linear model of the cell means,

    mean = F·b + P·u + e,    u ~ N(0, 1),    e ~ N(0, C + τ²·I)

F: the parabola of f0, free. P: all shrunk polynomials, whose prior sd falls geometrically with their powers (amplitude
and rates, for f0 and for δ, are hyperparameters), and the derivatives with respect to θ, linearised at the optimum
(Gauss–Newton) with wide priors. C: the covariance of the means (seeds, documents). τ: what the seeds of a shape share,
its own hyperparameter. The hyperparameters maximise restricted likelihood times weak priors; their uncertainty is a
quasi-random sample of the Laplace approximation, weighed by importance. The coefficients and θ are then drawn from the
model as it is, not linearised (loss_draws.py). A form that the data contradict is not lost: δ makes up for it inside
the data, at a wider interval; its evidence says how much less probable it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.curves import Curves
from dwsweep.fit.laws import FORMS
from dwsweep.fit.surface.linearised_loss import Linear, in_theta, newton_steps, start_theta
from dwsweep.fit.surface.loss_draws import draw_model, log_likelihood
from dwsweep.fit.surface.loss_forms import Frame, P, from_leads, to_leads
from dwsweep.fit.surface.loss_problem import BOUNDS, START, GivenLeads, Problem
from dwsweep.fit.surface.loss_surface import with_optima
from dwsweep.records.fit_result import LOSS_FORM, DepthSpan, LossForm, Surface

FEWEST_DEPTHS, FEWEST_CELLS, FEWEST_SIZES = 3, 9, 3
# a form whose evidence is 100 times less than the best form's is rejected
REJECTED_DEFICIT = math.log(100.0)

# medians over fits of simulated sweeps (tests/simulations/sweeps.py), all but τ: what a fit is expected to find
TYPICAL = (-2.4, -0.8, -5.1, -0.5, 0.0)
# of δ: with the true form fits find −6.2, with others −4.9 and −4.7, each within 1 to 1.3
AMPLITUDES = (-8.0, -6.8, -5.6, -4.4, -3.2)
ROUNDS = 12  # at most, of θ given the hyperparameters, and they given θ
SETTLED = 0.01  # change of the log posterior from one round to the next, at which they end
NODES = 40
LEAST_CURVATURE = 0.25  # of the log posterior along an axis: its sd is at most 2


def fit_loss_model(curves: Curves, confidence: float) -> Surface | None:
    """The model with every form; None with fewer than three depths, too few cells, or no noise estimate."""
    found = fit_with_gains(curves, confidence)
    return found[0] if found else None


def fit_with_gains(curves: Curves, confidence: float) -> tuple[Surface, dict[str, np.ndarray]] | None:
    """The model, and of each form how its coefficients and θ (T + P) follow the cell means (K): nats⁻¹ for each."""
    sizes = [len(curves.sizes(d)) for d in curves.depths]
    enough = len(curves.x) >= FEWEST_CELLS and sum(n >= FEWEST_SIZES for n in sizes) >= 2
    if len(sizes) < FEWEST_DEPTHS or not enough or not curves.noise.known:
        return None
    frame = surface_frame(curves)
    problem = Problem.of(curves.x, curves.depth, curves.mean, curves.covariance, frame)
    df = curves.noise.replicate_df
    noise_df = df if 0.0 < df < math.inf else None
    fits = [_fit_form(form, problem, noise_df) for form in FORMS]
    record = with_optima(surface_record(curves, frame, fits, noise_df, confidence))
    return record, {fit.form: fit.gain for fit in fits if fit.gain is not None}


def surface_frame(curves: Curves) -> Frame:
    return Frame(float(curves.x.min()), float(curves.x.max()), float(curves.depths[0]), float(curves.depths[-1]))


def surface_record(
    curves: Curves, frame: Frame, fits: Sequence[_Fit], noise_df: float | None, confidence: float
) -> Surface:
    best = max(fit.log_evidence for fit in fits)
    weights = np.exp([fit.log_evidence - best for fit in fits])
    return Surface(
        form=LOSS_FORM,
        terms=tuple((int(j), int(k)) for j, k in frame.terms),
        low=frame.low,
        high=frame.high,
        spans=tuple(
            DepthSpan(depth=d, low=float(curves.sizes(d)[0]), high=float(curves.sizes(d)[-1])) for d in curves.depths
        ),
        noise_df=noise_df,
        confidence=confidence,
        forms=tuple(
            LossForm(
                form=fit.form,
                weight=float(weight / weights.sum()),
                log_evidence=fit.log_evidence,
                rejected=best - fit.log_evidence >= REJECTED_DEFICIT,
                tau=fit.tau,
                mode=tuple(_short(v, 9) for v in fit.mode),
                draws=tuple((*row[:-P].round(6).tolist(), *(_short(v, 5) for v in row[-P:])) for row in fit.draws),
            )
            for fit, weight in zip(fits, weights, strict=True)
        ),
        optima=(),
    )


def _short(value: float, digits: int) -> float:
    """As many digits as the file needs to give the same depths."""
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class _Fit:
    """mode (T + P,): the coefficients of all terms and θ at the most probable θ. draws (D, T + P) of them. gain
    (T + P, K): how they follow the cell means there (``Linear.gain``)."""

    form: str
    log_evidence: float
    tau: float
    mode: np.ndarray
    draws: np.ndarray
    gain: np.ndarray


@dataclass(frozen=True)
class Expected:
    """What a fit of one form is expected to find.

    mean, covariance: of the coefficients of all terms and of θ. sampling: the part of the covariance that the noise of
    the runs makes; the rest is what the model allows for departures from the form. log_evidence: up to a constant that
    the forms share.
    """

    log_evidence: float
    theta: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    sampling: np.ndarray


def expected_fits(
    frame: Frame,
    x: np.ndarray,
    depth: np.ndarray,
    means: np.ndarray,
    covariance: np.ndarray,
    tau: float,
    start: Mapping[str, np.ndarray],
    steps: int,
) -> dict[str, Expected]:
    """The model of every form in ``start`` with typical hyperparameters on noise-free means (K,), for designs.

    The covariances do not depend on the losses but for θ, about which the form is linearised: it takes ``steps`` steps
    from ``start``. covariance: (K, K) of the means, without the luck τ of a shape (nats).
    """
    problem, h = Problem.of(x, depth, means, covariance, frame), np.array([*TYPICAL, math.log(max(tau, 1e-6))])
    found = {}
    for form, theta in start.items():
        theta = newton_steps(form, problem, theta, h, steps)
        model = Linear(problem, form, theta)
        # a fit averages over its hyperparameters, and the amplitude of δ is the one that tells a true form from others
        nodes = [np.concatenate([h[:2], [amplitude], h[3:]]) for amplitude in AMPLITUDES]
        evidence, *moments = (np.array(each) for each in zip(*map(model.expected, nodes), strict=True))
        weights = np.exp(evidence - evidence.max())
        mean, C, sampling = (np.tensordot(weights / weights.sum(), each, 1) for each in moments)
        mean = np.concatenate([mean[:-P], from_leads(mean[-P:], frame)])
        C, sampling = (in_theta(mean[-P:], in_theta(mean[-P:], V, frame).T, frame) for V in (C, sampling))
        found[form] = Expected(evidence.max() + math.log(weights.sum()), theta, mean, C, sampling)
    return found


def _fit_form(form: str, problem: Problem, noise_df: float | None) -> _Fit:
    from scipy.optimize import minimize

    def uphill(v: np.ndarray, model: Linear) -> tuple[float, np.ndarray]:
        value, gradient = model.value_and_gradient(v)
        return -value, -gradient

    theta = start_theta(problem.frame)
    h = np.array(START)
    before = -math.inf
    for turn in range(ROUNDS):
        theta = newton_steps(form, problem, theta, h, 6 if turn == 0 else 3)
        found = minimize(
            uphill,
            h,
            (Linear(problem, form, theta),),
            method="L-BFGS-B",
            jac=True,
            bounds=BOUNDS,
            options={"maxiter": 60},
        )
        h = found.x
        if abs(-found.fun - before) < SETTLED:
            break
        before = -found.fun
    model = Linear(problem, form, theta)
    nodes, weights, log_evidence = _nodes(model, h)
    return with_draws(model, h, nodes, weights, log_evidence, noise_df)


def with_draws(
    model: Linear,
    h: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
    log_evidence: float = 0.0,
    noise_df: float | None = None,
) -> _Fit:
    problem, form = model.problem, model.form
    means, covariances = zip(*(model.leads(node) for node in nodes), strict=True)
    mean = np.einsum("n,ni->i", weights, means)
    spread = np.array(means) - mean
    covariance = np.einsum("n,nij->ij", weights, covariances) + np.einsum("n,ni,nj->ij", weights, spread, spread)
    draws = draw_model(form, problem, nodes, weights, (mean, covariance), noise_df)
    given = GivenLeads(form, problem, h[None])
    mode = np.concatenate([given.coefficients(to_leads(model.theta, problem.frame)[None])[0], model.theta])
    # what linearising θ gave, put right
    log_evidence += log_likelihood(given, draws[:, -P:]) - model.log_likelihood(h)
    gain = in_theta(model.theta, model.gain(h), problem.frame)
    return _Fit(form, log_evidence, math.exp(h[5]), mode, draws, gain)


def _nodes(model: Linear, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Hyperparameters (N, 6) about their optimum, their importance weights, and the log evidence (Laplace)."""
    from scipy.special import ndtri

    step, size = 0.05, len(h)
    here = model.log_posterior(h)
    H = np.array([model.value_and_gradient(h + s)[1] - model.value_and_gradient(h - s)[1] for s in np.eye(size) * step])
    H = (H + H.T) / (4.0 * step)
    curvature, axes = np.linalg.eigh(-H)
    curvature = np.maximum(curvature, LEAST_CURVATURE)
    # points that fill the unit cube evenly (an additive recurrence, Roberts 2018)
    golden = 2.0
    for _ in range(50):
        golden = (1.0 + golden) ** (1.0 / (size + 1))
    cube = (0.5 + np.arange(1, NODES + 1)[:, None] * golden ** -np.arange(1.0, size + 1)) % 1.0
    z = ndtri(cube * 0.998 + 0.001)
    nodes = np.clip(h + (z / np.sqrt(curvature)) @ axes.T, *np.array(BOUNDS).T)
    log_weight = np.array([model.log_posterior(node) for node in nodes]) + 0.5 * (z**2).sum(axis=1)
    weights = np.exp(log_weight - log_weight.max())
    return nodes, weights / weights.sum(), here - 0.5 * float(np.log(curvature).sum())
