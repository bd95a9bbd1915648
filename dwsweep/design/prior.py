"""Prior of a design: the assumed truth, with the law of the best depth, the gain of a layer, and the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit.statistics import laws
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.fit.statistics.laws import Law
from dwsweep.fit.statistics.model import TURN
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult, Surface
from dwsweep.shapes import STANDARD
from dwsweep.text import NATS, SHORT

NOISE = 0.003  # ASSUMPTION: sd of one run's loss, nats, without the part that its seed shares with other shapes
# ASSUMPTION: sd of a shape's deviation from the curve (tuning), shared by its seeds, in units of the noise
SHAPE_RATIO = 0.5
SEED_RATIO = 1.5  # ASSUMPTION: sd of a seed's effect on all shapes, in units of the noise
SLOPE_OVER = 0.3  # distance in ln N on either side over which the slope of a fitted loss difference is taken
QUADRATURE = np.polynomial.legendre.leggauss(40)  # points and weights of the integral over layers


@dataclass(frozen=True)
class Gain:
    """Gain of one more layer at depth l and x = ln N: at_six·(l/6)^(−power)·e^(−decay·(x − size))·S(x − x_T(l)) nats,
    S(u) = u + skew·u²/√(u² + turn²), turn that of ``fit``'s model.

    The assumed numbers are slopes in ln N where two depths cross, which a design must resolve; ``guide`` prices a depth
    at a fixed size instead.
    """

    # ASSUMPTION: a power law through the slopes of the loss differences of 4/8, 8/12 and 16/24 layers in public data,
    # 0.106, 0.030 and 0.016 nats per unit of ln N
    at_six: float = 0.025
    power: float = 2.1
    # ASSUMPTION; three public tables give 0.02 to 0.07, each ± 0.2. A zero skew leaves out a fifth of the law's errors,
    # since the error of the skew then enters in second order
    skew: float = 0.0
    decay: float = 0.0  # ASSUMED with the rest: public slopes are those where depths cross
    size: float = 0.0  # ln N


@dataclass(frozen=True)
class AssumedTruth:
    """Assumed truth of a sweep.

    law: x_T(L) = ln 12L + 2·ln d(L) is the ln N at which depth L is best. noise, seed_sd: nats. shape_sd: nats, sd of a
    shape's deviation from the curve, shared by its seeds. basis: origin of each number. layer_weights: weights of a
    layer over d², of the nets that are planned.
    """

    law: Law
    noise: float
    seed_sd: float
    shape_sd: float
    basis: tuple[str, ...]
    gain: Gain = Gain()
    layer_weights: float = STANDARD

    def ln_size(self, depth: np.ndarray | float, width: np.ndarray | float) -> np.ndarray:
        """ln N of planned nets."""
        return np.log(self.layer_weights * np.asarray(depth, dtype=float) * np.asarray(width, dtype=float) ** 2)

    def transition(self, depth: np.ndarray | float) -> np.ndarray:
        """Transition x_T: ln N at which ``depth`` is best."""
        theta = np.asarray(self.law.theta)
        return np.log(12.0 * np.asarray(depth)) + 2.0 * self.law.equation.ln_width(theta, np.asarray(depth))

    def losses(self, depth: np.ndarray | float, x: np.ndarray | float) -> np.ndarray:
        """Losses without noise at depth and x = ln N, which broadcast, by Gauss–Legendre quadrature over the layers."""
        gain, (at, weight) = self.gain, QUADRATURE
        at_x = np.asarray(x, dtype=float)
        half = (np.asarray(depth, dtype=float)[..., None] - 6.0) / 2.0
        layers = 6.0 + half * (at + 1.0)
        u = at_x[..., None] - self.transition(layers)
        u = u + gain.skew * u * u / np.sqrt(u * u + TURN**2)
        lead = (gain.at_six * (layers / 6.0) ** -gain.power * u * weight * half).sum(axis=-1)
        return 1.5 + 8.0 * np.exp(-0.1 * at_x) - lead * np.exp(-gain.decay * (at_x - gain.size))

    def lead(self, shallow: int, deep: int, x: float) -> float:
        """Lead of the deeper depth at ln N = x: loss of the shallower minus loss of the deeper, nats."""
        return float(self.losses(shallow, x) - self.losses(deep, x))

    def crossing(self, shallow: int, deep: int) -> float:
        """Crossing of two depths: ln N of equal losses."""
        from scipy.optimize import brentq

        x_t = self.transition(np.array([shallow, deep], dtype=float))
        return float(brentq(lambda x: self.lead(shallow, deep, x), min(x_t) - 0.1, max(x_t) + 0.1))

    def slope(self, shallow: int, deep: int) -> float:
        """Slope of the loss difference at the crossing, nats per unit of ln N."""
        x, step = self.crossing(shallow, deep), 1e-3
        return (self.lead(shallow, deep, x + step) - self.lead(shallow, deep, x - step)) / (2 * step)


def make_prior(fit: str | Path | None, noise: float | None) -> tuple[AssumedTruth, dict[tuple[int, int], int]]:
    """Prior, and numbers of finished runs by shape (depth, width).

    fit: directory of a fit, or fit.json, with the most probable form, gains, noise, and finished runs; None: the
    published law, assumed gains. noise: sd of one run in nats; None: measured in the fit, else assumed.

    Raises:
        InputError: the noise is not positive, or ``fit`` holds no fit.
    """
    if noise is not None and not 1e-9 <= noise < 10:
        raise InputError(f"--noise: {noise}; must be nats above 0 (1e-9) and below 10, such as 0.003")
    found = fit_record.read(fit) if fit is not None else None
    law, gain = laws.published(), Gain()
    fitted = own_law(found) if found and found.axis == "n_params" else None
    if fitted and found and found.surface:
        law, gain = fitted, _gain(found.surface, fitted)
    # a law and gains of the fit are in its unit; assumed gains are in nats, and so must be the noise beside them
    unit = found.unit if fitted and found else NATS
    nats, measured = SHORT[unit], found.noise if found and found.unit == unit else None
    power_law = f"{gain.at_six:.2g}·(L/6)^{-gain.power:.2g} {nats} per unit of ln N"
    how = "as fitted" if fitted else "ASSUMED, from public data at depths 4 to 24"
    basis = [f"law: {law.name}", f"gain of a layer: {power_law}, {how}"]
    sigma, how = NOISE, "ASSUMED; give --noise, or --fit with runs of several seeds"
    if noise is not None:
        sigma, how = noise, "as given"
    elif measured is not None and measured.sigma:
        sigma, how = measured.sigma, "measured in the fit"
    basis.append(f"noise: {sigma:{'g' if noise is not None else '.2g'}} {nats} per run, {how}")
    shape_sd, how = SHAPE_RATIO * sigma, "ASSUMED"
    if measured is not None and measured.shape_sd is not None:
        shape_sd, how = measured.shape_sd, "measured in the fit"
    basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} {nats}, {how}")
    cells = [cell for cell in (found.cells if found else ()) if cell.n and not cell.excluded]
    done = {(cell.depth, int(cell.width)): cell.n for cell in cells}
    return AssumedTruth(law, sigma, SEED_RATIO * sigma, shape_sd, tuple(basis), gain), done


def own_law(found: FitResult) -> Law | None:
    """The most probable form through the best depths of a fit, as a law of blocks of 12·d² weights; None without one,
    or where the size does not grow."""
    if (surface := found.surface) is None:
        return None
    inside = [row.place for row in surface.optima if row.depth is not None]
    depths = np.array([end(span.depth for span in surface.spans) for end in (min, max)], dtype=float)
    blocks = np.log([(found.weights_at(depth) or STANDARD) / STANDARD for depth in depths.tolist()]) / 2.0
    for one in found.rivals:
        form = laws.FORMS[one.form]
        if inside and not one.rejected and one.a is not None and one.b is not None and one.b > form.least_b:
            ends = form.ln_width(np.array([one.a, one.b]), depths) + blocks
            a, b = form.through(ends, depths).tolist()
            return Law(f"own: {form.name} form of the loss surface", form.name, (a, b), min(inside), max(inside))
    return None


def _gain(record: Surface, law: Law) -> Gain:
    """Gain of a layer: means of the draws of the law's form, times the slopes of its loss differences over those of
    the form without its departures, which hold a part of every slope."""
    surface = LossSurface(record)
    draws = next(one for one in surface.posterior.forms if one.model.form.name == law.form)
    slope, skew = draws.parts["law"][:, 2].mean(), draws.parts["law"][:, 3].mean()
    power, decay = float(draws.eta["p"].mean()), float(draws.eta["a"].mean())
    middle = math.exp(draws.model.frame.y0)
    slope = max(float(slope), 1e-5)
    gain = Gain(slope / middle * (middle / 6.0) ** power, power, float(skew) / slope, decay, draws.model.frame.x0)
    prior, ratios = AssumedTruth(law, NOISE, 0.0, 0.0, (), gain), []
    for pair in pairwise(sorted({round(span.depth) for span in record.spans})):
        ends = prior.crossing(*pair) + SLOPE_OVER * np.array([-1.0, 1.0])
        if record.low <= ends[0] and ends[1] <= record.high:
            found = surface.differences(ends, [pair])[0, 1:].mean(axis=0)
            ratios.append((found[1] - found[0]) / (prior.lead(*pair, ends[1]) - prior.lead(*pair, ends[0])))
    known = [math.log(ratio) for ratio in ratios if ratio > 0.0]
    return replace(gain, at_six=gain.at_six * math.exp(float(np.mean(known)))) if known else gain
