"""The errors that a set of runs leaves: on each transition, on the law, on the best depth at a target size.

It is all linear in the noise (the delta method), so a design is judged in milliseconds and thousands are compared:

1. Runs → covariance C of the cell means: loss = cell + seed + noise, the seed's share random with sd τ. With n_i runs
   of cell i, and z_s the cells that seed s covers (m_s of them), the information is
   C⁻¹ = diag(n_i)/σ² − Σ_s τ²/(σ²(σ² + m_s τ²))·z_s z_sᵀ. What all seeds of a shape share adds to the diagonal of C.
2. Cell means → loss difference of a pair at its crossing, g_k = Σ w_i·mean_i, where w is the derivative of the PCHIP
   interpolation at the true curve. Its bias is the interpolation's error there.
3. g_k → crossing: sd(ln N_k) = sd(g_k) / slope_k. Pairs share curves, so the g_k covary: Σ = W C Wᵀ.
4. Crossings → (a, b) of the law by generalised least squares on the g_k, with dg_k/da = slope_k·dln N_k/da as in
   `fit` and with the law's own scatter added to Σ; → ln L*(N) by implicit differentiation of ln 12L + 2·ln d(L) = ln N.

Only pairs whose crossing lies inside the sizes of both depths inform: `fit` also uses censored pairs, so the errors
here are on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dwsweep.fit.laws import Law, ln_width, optimal_depth
from dwsweep.fit.simulate import Truth
from dwsweep.guide.loss import SLOPE_DENSITY_AT_SIX, SLOPE_DENSITY_POWER

LAW_SCATTER = 0.05  # ASSUMPTION: sd in ln N of true transitions about the law: one pair known perfectly is not the law
SUP_T = 2.9  # typical critical value of the sup-t band at 95 %
Cells = Mapping[tuple[int, int], frozenset[int]]
"""(depth, width) → the seeds that are run."""


@dataclass(frozen=True)
class Prior:
    """A truth to plan against.

    law: where transitions are expected. slopes: nats per unit of ln N of the loss difference at its crossing, by pair
    (shallow, deep); a pair that is absent takes the assumed slope. noise, seed_sd: nats. shape_sd: nats, what all seeds
    of a shape share in addition to the curve. basis: where each comes from.
    """

    law: Law
    slopes: Mapping[tuple[int, int], float]
    noise: float
    seed_sd: float
    shape_sd: float
    basis: tuple[str, ...]

    def slope(self, shallow: int, deep: int) -> float:
        """Nats per unit of ln N: measured, or ∫ κ(l) dl with the assumed density κ(l) = 0.025·(l/6)^−2.1."""
        if (shallow, deep) in self.slopes:
            return self.slopes[shallow, deep]
        power = SLOPE_DENSITY_POWER + 1
        scale = SLOPE_DENSITY_AT_SIX * 6.0 ** (-SLOPE_DENSITY_POWER) / power
        return float(scale * (deep**power - shallow**power))

    def truth(self, depths: Sequence[int]) -> Truth:
        """Losses whose consecutive depths cross on the law with these slopes."""
        slopes = tuple(self.slope(a, b) for a, b in pairwise(depths))
        return Truth(tuple(depths), form=self.law.form, theta=self.law.theta, slopes=slopes)


@dataclass(frozen=True)
class PairError:
    """What a design leaves on one transition."""

    shallow: int
    deep: int
    n_params: float  # of the expected crossing
    width: float  # of the shallower net there
    inside: bool  # whether both depths have sizes on both sides of it
    se_ln_n: float | None
    bias_ln_n: float | None  # of interpolating between these sizes
    power: float | None  # probability that `fit` will say `crossed`


@dataclass(frozen=True)
class Errors:
    """What a design leaves on everything."""

    pairs: tuple[PairError, ...]
    se_a: float | None  # None: fewer than two pairs inform the law
    se_b: float | None
    target: float
    depth: float | None  # L*(target) by the prior law
    se_depth: float | None  # layers
    bias_depth: float | None
    rms: float = field(default=math.inf)  # of ln L*(target), bias included; without a law, of the transitions

    def to_dict(self) -> dict[str, Any]:
        content = {name: getattr(self, name) for name in ("se_a", "se_b", "target", "depth", "se_depth", "bias_depth")}
        return content | {
            "rms_ln_depth": self.rms if math.isfinite(self.rms) and self.se_a is not None else None,
            "pairs": [vars(pair) for pair in self.pairs],
        }


class Judge:
    """Judges designs against one prior and one target; keeps what does not depend on the design."""

    def __init__(self, prior: Prior, depths: Iterable[int], target: float) -> None:
        self.prior, self.target = prior, target
        self.depths = sorted(set(depths))
        self.truth: Truth = prior.truth(self.depths)
        self.crossings = [self.truth.transition(depth) for depth in self.depths[:-1]]
        self._curves: dict[Any, tuple[np.ndarray, float]] = {}
        theta = np.asarray(prior.law.theta)
        best = float(optimal_depth(prior.law.form, theta, target))
        self.best_depth = best if math.isfinite(best) else None

    @cached_property
    def _derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        """(d ln N_k / d(a, b) of every pair, (P, 2); d ln L*(target) / d(a, b), (2,)), by central differences."""
        theta, step = np.asarray(self.prior.law.theta, dtype=float), 1e-5
        crossings, to_target = np.zeros((len(self.crossings), 2)), np.zeros(2)
        for j, shift in enumerate(np.eye(2) * step):
            for k, depth in enumerate(self.depths[:-1]):
                crossings[k, j] = (self.ln_n(depth, theta + shift) - self.ln_n(depth, theta - shift)) / (2 * step)
            up, down = (float(optimal_depth(self.prior.law.form, theta + s, self.target)) for s in (shift, -shift))
            to_target[j] = (math.log(up) - math.log(down)) / (2 * step)
        return crossings, to_target

    def ln_n(self, depth: float, theta: np.ndarray) -> float:
        """ln N of the transition of ``depth`` under ``theta``."""
        return math.log(12 * depth) + 2 * float(ln_width(self.prior.law.form, theta, depth))

    def covariance(self, cells: Cells) -> np.ndarray:
        """C (K, K) of the cell means, in the order of ``cells``."""
        noise, seed = self.prior.noise**2, self.prior.seed_sd**2
        counts = np.array([len(seeds) for seeds in cells.values()], dtype=float)
        information = np.diag(counts / noise)
        for index in set().union(*cells.values()):
            covers = np.array([index in seeds for seeds in cells.values()], dtype=float)
            information -= seed / (noise * (noise + covers.sum() * seed)) * np.outer(covers, covers)
        return np.linalg.inv(information) + self.prior.shape_sd**2 * np.eye(len(counts))

    def _weights(self, depth: int, widths: tuple[int, ...], x: float) -> tuple[np.ndarray, float]:
        """Derivative of the interpolated loss of ``depth`` at ``x`` to each of its cells, and its error there."""
        key = (depth, widths, x)
        if key not in self._curves:
            from scipy.interpolate import PchipInterpolator

            nodes = np.log(12.0 * depth) + 2.0 * np.log(widths)
            values = self.truth.loss(depth, nodes)
            step = 1e-5
            stack = np.vstack([values, values + step * np.eye(len(nodes)), values - step * np.eye(len(nodes))])
            at = PchipInterpolator(nodes, stack, axis=1)(x)
            K = len(nodes)
            weights = (at[1 : K + 1] - at[K + 1 :]) / (2 * step)
            self._curves[key] = (weights, float(at[0] - self.truth.loss(depth, np.array(x))))
        return self._curves[key]

    def judge(self, cells: Cells) -> Errors:
        """All errors of a design."""
        return self._judge(cells, True)

    def rms(self, cells: Cells) -> float:
        """The one number that proposals lower: ``judge(cells).rms``, without what is not needed for it."""
        return self._judge(cells, False).rms

    def _judge(self, cells: Cells, power: bool) -> Errors:
        ordered = {shape: cells[shape] for shape in sorted(cells) if cells[shape]}
        shapes = list(ordered)
        widths = {depth: tuple(w for d, w in shapes if d == depth) for depth in self.depths}
        C = self.covariance(ordered) if shapes else np.zeros((0, 0))
        rows, biases, informed = [], [], []
        for k, (shallow, deep) in enumerate(pairwise(self.depths)):
            if not self._inside(self.crossings[k], shallow, deep, widths):
                continue
            row, bias = self._difference(shallow, deep, self.crossings[k], widths, shapes)
            rows.append(row)
            biases.append(bias)
            informed.append(k)
        W = np.array(rows).reshape(len(rows), len(shapes))
        sigma = W @ C @ W.T
        slopes = np.array([self.truth.slope(k) for k in informed])
        covariance = C if power else None
        pairs = self._pairs(widths, informed, sigma, np.array(biases), slopes, covariance, shapes)
        return self._errors(pairs, informed, sigma, np.array(biases), slopes)

    def _inside(self, x: float, shallow: int, deep: int, widths: Mapping[int, tuple[int, ...]]) -> bool:
        for depth in (shallow, deep):
            nodes = [math.log(12 * depth * width**2) for width in widths[depth]]
            if len(nodes) < 2 or not min(nodes) < x < max(nodes):
                return False
        return True

    def _difference(
        self,
        shallow: int,
        deep: int,
        x: float,
        widths: Mapping[int, tuple[int, ...]],
        shapes: list[tuple[int, int]],
    ) -> tuple[np.ndarray, float]:
        """(weights of all cells in the difference at ``x``, its interpolation error)."""
        row, bias = np.zeros(len(shapes)), 0.0
        for depth, sign in ((shallow, 1.0), (deep, -1.0)):
            weights, error = self._weights(depth, widths[depth], x)
            row[[i for i, shape in enumerate(shapes) if shape[0] == depth]] += sign * weights
            bias += sign * error
        return row, bias

    def _pairs(
        self,
        widths: Mapping[int, tuple[int, ...]],
        informed: list[int],
        sigma: np.ndarray,
        biases: np.ndarray,
        slopes: np.ndarray,
        C: np.ndarray | None,
        shapes: list[tuple[int, int]],
    ) -> tuple[PairError, ...]:
        """One row per pair; the power is left out where no covariance is given."""
        pairs = []
        for k, (shallow, deep) in enumerate(pairwise(self.depths)):
            n = math.exp(self.crossings[k])
            width = math.sqrt(n / (12 * shallow))
            if k not in informed:
                pairs.append(PairError(shallow, deep, n, width, False, None, None, None))
                continue
            i = informed.index(k)
            pairs.append(
                PairError(
                    shallow,
                    deep,
                    n,
                    width,
                    True,
                    float(math.sqrt(sigma[i, i]) / slopes[i]),
                    float(-biases[i] / slopes[i]),
                    None if C is None else self._power(shallow, deep, self.crossings[k], widths, C, shapes),
                )
            )
        return tuple(pairs)

    def _power(
        self,
        shallow: int,
        deep: int,
        crossing: float,
        widths: Mapping[int, tuple[int, ...]],
        C: np.ndarray,
        shapes: list[tuple[int, int]],
    ) -> float:
        """Chance that the difference is significant on both sides: at the farthest sizes shared, and half-way there."""
        from scipy.stats import norm

        ends = [[math.log(12 * d * w**2) for w in widths[d]] for d in (shallow, deep)]
        low, high = max(min(e) for e in ends), min(max(e) for e in ends)
        chance = 1.0
        for end in (low, high):
            best = 0.0
            for x in (end, (end + crossing) / 2):
                row, _ = self._difference(shallow, deep, x, widths, shapes)
                gap = abs(float(self.truth.loss(shallow, np.array(x)) - self.truth.loss(deep, np.array(x))))
                best = max(best, gap / math.sqrt(float(row @ C @ row)))
            chance *= float(norm.cdf(best - SUP_T))
        return chance

    def _errors(
        self,
        pairs: tuple[PairError, ...],
        informed: list[int],
        sigma: np.ndarray,
        biases: np.ndarray,
        slopes: np.ndarray,
    ) -> Errors:
        floor = [pair.se_ln_n**2 + (pair.bias_ln_n or 0.0) ** 2 for pair in pairs if pair.se_ln_n is not None]
        # an uninformed pair counts as an error of one in ln N, so that finding it is worth something
        transitions = math.sqrt((sum(floor) + len(pairs) - len(floor)) / max(len(pairs), 1))
        if len(informed) < 2 or self.best_depth is None:
            return Errors(pairs, None, None, self.target, self.best_depth, None, None, 10.0 + transitions)
        crossings, to_target = self._derivatives
        jacobian = slopes[:, None] * crossings[informed]
        weight = np.linalg.inv(sigma + np.diag((LAW_SCATTER * slopes) ** 2))
        covariance = np.linalg.inv(jacobian.T @ weight @ jacobian)
        # the crossing found is where the interpolated difference vanishes, so a bias of +e in g moves the law by −e
        shift_theta = -covariance @ jacobian.T @ weight @ biases
        variance, bias = float(to_target @ covariance @ to_target), float(to_target @ shift_theta)
        return Errors(
            pairs,
            float(math.sqrt(covariance[0, 0])),
            float(math.sqrt(covariance[1, 1])),
            self.target,
            self.best_depth,
            math.sqrt(variance) * self.best_depth,
            bias * self.best_depth,
            math.sqrt(variance + bias**2),
        )
