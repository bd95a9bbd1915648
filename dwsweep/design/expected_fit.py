"""The truth that a sweep is planned against: where the best depth is expected, what a layer gains, and the noise.

What ``fit`` is expected to leave open, from runs that do not exist yet: the covariance of their cell means, the
error of the crossing of two neighbouring depths, and what it will say about the best depth at a size.

The error of a crossing is linear in the noise (the delta method): cell means → loss difference of a pair at its
crossing, g = Σ w_i·mean_i, where w is the derivative of the PCHIP interpolation at the true curves; its bias is the
interpolation's error there → sd(ln N) = sd(g) / slope.

For the best depth the posterior of ``fit`` is asked (fit/posterior.py): with the losses of the prior, free of noise, in
place of data, and the noise of the planned runs declared. The width of its draws is what ``fit`` will state; how far
their median lies from the truth is the bias of its forms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit import laws
from dwsweep.fit.ask import ONE_SD, best_depths, law, quantiles, read
from dwsweep.fit.guideline import guides, map_law
from dwsweep.fit.laws import FORMS, Law
from dwsweep.fit.model import TURN, Cells, declared
from dwsweep.fit.posterior import Posterior, weigh
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult, Surface

NOISE = 0.003  # ASSUMPTION: nats, sd of one run's loss without what its seed shares with other shapes
SHAPE_RATIO = 0.5  # ASSUMPTION: sd of what all seeds of a shape share off the curve (tuning), in units of the noise
SEED_RATIO = 1.5  # ASSUMPTION: sd of what a seed shares over all shapes, in units of the noise


@dataclass(frozen=True)
class Gain:
    """Gain of one more layer at depth l and x = ln N: at_six·(l/6)^(−power)·e^(−fall·(x − size))·S(x − x_T(l)) nats,
    S(u) = u + skew·u²/√(u² + turn²), turn that of ``fit``'s model.

    The assumed numbers are slopes in ln N where two depths cross, which is what a design has to resolve. ``guide``
    prices a depth at a fixed size instead, by 0.024·(ln L/L*)² nats of newer public data. About the published law
    these slopes make that factor 0.125 at 6 layers, 0.060 at 24 and 0.048 at 48. A cost must not be read off
    them.
    """

    # ASSUMPTION: a power law through the slopes of the loss differences of 4/8, 8/12 and 16/24 layers in public data,
    # 0.106, 0.030 and 0.016 nats per unit of ln N
    at_six: float = 0.025
    power: float = 2.1
    # ASSUMPTION; three public tables say 0.02 to 0.07, each ± 0.2. Without any, a fifth of the law's errors is left
    # out, since what a fit must find of the skew is then of second order
    skew: float = 0.0
    fall: float = 0.0  # ASSUMED with the rest: public slopes are those where depths cross
    size: float = 0.0  # ln N


@dataclass(frozen=True)
class Prior:
    """A truth to plan against.

    law: x_T(L) = ln 12L + 2·ln d(L) is the ln N at which depth L is the best one. noise, seed_sd: nats. shape_sd: nats,
    what all seeds of a shape share in addition to the curve. basis: where each comes from.
    """

    law: Law
    noise: float
    seed_sd: float
    shape_sd: float
    basis: tuple[str, ...]
    gain: Gain = Gain()

    def transition(self, depth: np.ndarray | float) -> np.ndarray:
        """x_T: ln N at which ``depth`` is the best one."""
        theta = np.asarray(self.law.theta)
        return np.log(12.0 * np.asarray(depth)) + 2.0 * self.law.equation.ln_width(theta, np.asarray(depth))

    def losses(self, depth: np.ndarray, x: np.ndarray) -> np.ndarray:
        """(K,) losses without noise at depth (K,) and x = ln N (K,), by Gauss–Legendre quadrature over the layers."""
        gain = self.gain
        at, weight = np.polynomial.legendre.leggauss(QUADRATURE)
        half = (np.asarray(depth, dtype=float) - 6.0)[:, None] / 2.0
        layers = 6.0 + half * (at + 1.0)
        u = x[:, None] - self.transition(layers)
        u = u + gain.skew * u * u / np.sqrt(u * u + TURN**2)
        lead = (gain.at_six * (layers / 6.0) ** -gain.power * u * weight * half).sum(axis=1)
        return 1.5 + 8.0 * np.exp(-0.1 * x) - lead * np.exp(-gain.fall * (x - gain.size))


@dataclass(frozen=True)
class Curves:
    """The prior's loss curves of some depths, and where neighbours cross."""

    prior: Prior
    depths: tuple[int, ...]

    def loss(self, depth: int, x: np.ndarray | float) -> np.ndarray:
        """Nats per token of ``depth`` at x = ln N (any shape)."""
        at = np.asarray(x, dtype=float)
        flat = at.ravel()
        return self.prior.losses(np.full(len(flat), float(depth)), flat).reshape(at.shape)

    def lead(self, shallow: int, deep: int, x: float) -> float:
        """Loss of the shallower depth above that of the deeper one, nats."""
        return float(self.loss(shallow, x) - self.loss(deep, x))

    def crossing(self, shallow: int, deep: int) -> float:
        """ln N at which two depths lose the same."""
        from scipy.optimize import brentq

        x_t = self.prior.transition(np.array([shallow, deep], dtype=float))
        return float(brentq(lambda x: self.lead(shallow, deep, x), min(x_t) - 0.1, max(x_t) + 0.1))

    @cached_property
    def crossings(self) -> list[float]:
        """Crossings of all neighbours, shallow to deep."""
        return [self.crossing(a, b) for a, b in pairwise(self.depths)]

    def slope(self, shallow: int, deep: int) -> float:
        """Slope of the difference at the crossing, nats per unit of ln N."""
        x, step = self.crossing(shallow, deep), 1e-3
        return (self.lead(shallow, deep, x + step) - self.lead(shallow, deep, x - step)) / (2 * step)


def make_prior(fit: str | Path | None, noise: float | None) -> tuple[Prior, dict[tuple[int, int], int]]:
    """The prior, and the finished runs by shape (depth, width) → how many.

    Args:
        fit: a fit's directory or fit.json: its most probable form (or the published law for want of an own), its
            gains, its noise, and its finished runs. None: the published law, assumed gains, nothing finished.
        noise: sd of one run in nats; None: measured in the fit, else assumed.

    Raises:
        InputError: a noise that is not positive, or no fit at ``fit``.
    """
    if noise is not None and not 1e-9 <= noise < 10:
        raise InputError(f"--noise: {noise}; must be nats above 0 (1e-9) and below 10, such as 0.003")
    found = fit_record.read(fit) if fit is not None else None
    own = guides(found) if found else None
    law, gain = laws.published(), Gain()
    if own and found and found.surface:
        fitted = map_law(own[0])
        if fitted is not None:
            law, gain = fitted, _gain(found.surface, fitted.form)
    basis = [f"law: {law.name}"]
    if own:
        basis.append(f"gain of a layer: {_power_law(gain)}, as fitted")
    else:
        basis.append(f"gain of a layer: ASSUMED, {_power_law(gain)}, from public data at depths 4 to 24")
    measured = _measured_noise(found)
    if noise is not None:
        sigma = noise
        basis.append(f"noise: {sigma:g} nats per run, as given")
    elif measured is not None:
        sigma = measured
        basis.append(f"noise: {sigma:.2g} nats per run, measured in the fit")
    else:
        sigma = NOISE
        basis.append(f"noise: {sigma:g} nats per run, ASSUMED; give --noise, or --fit with runs of several seeds")
    if found is not None and found.noise.shape_sd is not None:
        shape_sd = found.noise.shape_sd
        basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} nats, measured in the fit")
    else:
        shape_sd = SHAPE_RATIO * sigma
        basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} nats, ASSUMED")
    cells = found.cells if found else []
    done = {(cell.depth, int(cell.width)): cell.n for cell in cells if cell.n and not cell.excluded}
    return Prior(law, sigma, SEED_RATIO * sigma, shape_sd, tuple(basis), gain), done


def _gain(surface: Surface, form: str) -> Gain:
    """Means of the draws of one form."""
    (draws,) = read(surface, only=form).forms
    speed, skew = draws.parts["law"][:, 2].mean(), draws.parts["law"][:, 3].mean()
    power, fall = float(draws.eta["p"].mean()), float(draws.eta["a"].mean())
    middle = math.exp(draws.model.frame.y0)
    speed = max(float(speed), 1e-5)
    return Gain(
        speed / middle * (middle / 6.0) ** power,
        power,
        float(skew) / speed,
        fall,
        draws.model.frame.x0,
    )


def _power_law(gain: Gain) -> str:
    return f"{gain.at_six:.2g}·(L/6)^{-gain.power:.2g} nats per unit of ln N"


def _measured_noise(fit: FitResult | None) -> float | None:
    """Root mean square over depths of the fit's noise of one run."""
    values = [sigma for sigma in (fit.noise.sigma or {}).values() if sigma] if fit else []
    return float(np.sqrt(np.mean(np.square(values)))) if values else None


Planned = Mapping[tuple[int, int], frozenset[int]]
"""(depth, width) → the seeds that are run."""

SUP_T = 2.9  # typical critical value of the sup-t band at 95 %

QUADRATURE = 40  # points over the layers
ENOUGH = 150.0  # effective nodes: of an expectation


def covariance(cells: Planned, noise: float, seed_sd: float) -> np.ndarray:
    """(K, K) of the cell means, in the order of ``cells``, nats²: loss = cell + seed + noise.

    With n_i runs of cell i, and z_s the cells that seed s covers (m_s of them), the information is
    C⁻¹ = diag(n_i)/σ² − Σ_s τ²/(σ²(σ² + m_s τ²))·z_s z_sᵀ, τ the sd of what a seed shares. What all seeds of a shape
    share comes on top.
    """
    counts = np.array([len(seeds) for seeds in cells.values()], dtype=float)
    information = np.diag(counts / noise**2)
    for index in set().union(*cells.values()):
        covers = np.array([index in seeds for seeds in cells.values()], dtype=float)
        share = seed_sd**2 / (noise**2 * (noise**2 + covers.sum() * seed_sd**2))
        information -= share * np.outer(covers, covers)
    return np.linalg.inv(information)


@dataclass(frozen=True)
class PairError:
    """Expected errors of one transition under a design."""

    shallow: int
    deep: int
    n_params: float  # of the expected crossing
    width: float  # of the shallower net there
    inside: bool  # whether both depths have sizes on both sides of it
    se_ln_n: float | None
    bias_ln_n: float | None  # of interpolating between these sizes
    power: float | None  # probability that `fit` will say `crossed`


@dataclass(frozen=True)
class Design:
    """Shapes (depth, width), sorted, and the covariance C (K, K) of their means, scatter between shapes included."""

    curves: Curves
    shapes: Sequence[tuple[int, int]]
    C: np.ndarray

    @cached_property
    def nodes(self) -> Mapping[int, np.ndarray]:
        """ln N of every depth's shapes, rising."""
        return {
            depth: np.array([math.log(12 * d * w**2) for d, w in self.shapes if d == depth])
            for depth in self.curves.depths
        }

    def pairs(self) -> tuple[PairError, ...]:
        """One row per pair of neighbouring depths."""
        return tuple(
            self._pair(shallow, deep, x)
            for (shallow, deep), x in zip(pairwise(self.curves.depths), self.curves.crossings, strict=True)
        )

    def _pair(self, shallow: int, deep: int, x: float) -> PairError:
        n = math.exp(x)
        width = math.sqrt(n / (12 * shallow))
        if not all(len(at) > 1 and at[0] < x < at[-1] for at in (self.nodes[shallow], self.nodes[deep])):
            return PairError(shallow, deep, n, width, False, None, None, None)
        weights, bias = self.difference(shallow, deep, x)
        slope = self.curves.slope(shallow, deep)
        error = math.sqrt(float(weights @ self.C @ weights)) / slope
        # the crossing found is where the interpolated difference vanishes
        return PairError(shallow, deep, n, width, True, error, -bias / slope, self._power(shallow, deep, x))

    def difference(self, shallow: int, deep: int, x: float) -> tuple[np.ndarray, float]:
        """(weights (K,) of all cells in the interpolated difference at ``x``, its interpolation error in nats)."""
        weights, bias = np.zeros(len(self.shapes)), 0.0
        for depth, sign in ((shallow, 1.0), (deep, -1.0)):
            own, error = self._interpolation(depth, x)
            weights[[i for i, shape in enumerate(self.shapes) if shape[0] == depth]] += sign * own
            bias += sign * error
        return weights, bias

    def _interpolation(self, depth: int, x: float) -> tuple[np.ndarray, float]:
        """Derivative of the interpolated loss of ``depth`` at ``x`` to each of its cells, and its error there."""
        from scipy.interpolate import PchipInterpolator

        nodes = self.nodes[depth]
        values = self.curves.loss(depth, nodes)
        K, step = len(nodes), 1e-5
        stack = np.vstack([values, values + step * np.eye(K), values - step * np.eye(K)])
        at = PchipInterpolator(nodes, stack, axis=1)(x)
        return (at[1 : K + 1] - at[K + 1 :]) / (2 * step), float(at[0] - self.curves.loss(depth, x))

    def _power(self, shallow: int, deep: int, crossing: float) -> float:
        """Chance that the difference is significant on both sides: at the farthest sizes shared, and half-way there."""
        from scipy.special import ndtr  # norm.cdf without the import of scipy.stats

        a, b = self.nodes[shallow], self.nodes[deep]
        chance = 1.0
        for end in (max(a[0], b[0]), min(a[-1], b[-1])):
            best = 0.0
            for x in (end, (end + crossing) / 2):
                weights, _ = self.difference(shallow, deep, x)
                best = max(best, abs(self.curves.lead(shallow, deep, x)) / math.sqrt(float(weights @ self.C @ weights)))
            chance *= float(ndtr(best - SUP_T))
        return chance


@dataclass(frozen=True)
class ExpectedDepth:
    """Best depth at a size as ``fit`` is expected to report it.

    ln_depth: its median, ln L. stated: half of the central 68 % of its draws. a, b: sd of the constants of the prior's
    form of the law, None where that has no draws.
    """

    ln_depth: float
    stated: float
    a: float | None
    b: float | None


def expected_posterior(prior: Prior, cells: Planned) -> Posterior:
    """The posterior of the planned runs, whose losses are the prior's without noise."""
    depth = np.array([depth for depth, _ in cells], dtype=float)
    x = np.log(12.0 * depth * np.array([width for _, width in cells], dtype=float) ** 2)
    own = prior.noise**2 / np.array([len(seeds) for seeds in cells.values()], dtype=float)
    values, vectors = np.linalg.eigh(covariance(cells, prior.noise, prior.seed_sd) - np.diag(own))
    kept = values > 1e-6 * max(float(values.max()), 1e-300)
    factors = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, kept]
    given = Cells(x, np.log(depth), prior.losses(depth, x), own, factors, math.inf, declared(prior.shape_sd))
    return Posterior(given, weigh(given, enough=ENOUGH))


def expected_depth(prior: Prior, cells: Planned, target: float) -> ExpectedDepth:
    """Best depth at ``target`` (non-embedding parameters) as ``fit`` is expected to report it."""
    posterior = expected_posterior(prior, cells)
    low, middle, high = quantiles(best_depths(posterior, math.log(target)), ONE_SD)
    ties = law(posterior, prior.law.form)
    a, b = None, None
    if len(ties) > 1 and ties.shape[1] > 1:
        depths = np.exp(posterior.depths)[[0, -2]]
        ends = (ties[:, [0, -1]] - np.log(12.0 * depths)) / 2.0
        theta = FORMS[prior.law.form].from_ends(ends, *depths)
        a, b = (float(sd) for sd in theta.std(axis=0))
    return ExpectedDepth(middle, (high - low) / 2.0, a, b)
