"""What is believed before the sweep: a law, the slopes of loss differences at its transitions, the noise of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit import laws
from dwsweep.fit.guideline import guiding_laws
from dwsweep.fit.laws import Law
from dwsweep.fit.simulate import Truth
from dwsweep.guide.loss import SLOPE_DENSITY_AT_SIX, SLOPE_DENSITY_POWER
from dwsweep.records import fit_result
from dwsweep.records.fit_result import FitResult
from dwsweep.records.fit_rows import references

NOISE = 0.003  # ASSUMPTION: nats, sd of one run's loss beside what its seed shares with other shapes
SHAPE_RATIO = 0.5  # ASSUMPTION: sd of what all seeds of a shape share beside the curve (tuning), in units of the noise
LAW_SCATTER = 0.05  # ASSUMPTION: sd in ln N of true transitions about the law: one pair known perfectly is not the law
SEED_RATIO = 1.5  # ASSUMPTION: sd of what a seed shares over all shapes, in units of the noise


@dataclass(frozen=True)
class Prior:
    """A truth to plan against.

    law: where transitions are expected. slopes: nats per unit of ln N of the loss difference at its crossing, by pair
    (shallow, deep); a pair that is absent takes the assumed slope. noise, seed_sd: nats. shape_sd: nats, what all seeds
    of a shape share beside the curve. basis: where each comes from.
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


def make_prior(fit: str | Path | None, noise: float | None) -> tuple[Prior, dict[tuple[int, int], int]]:
    """The prior, and the finished runs by shape (depth, width) → how many.

    Args:
        fit: a fit's directory or fit.json: its law (or the published one for want of an own), its slopes, its noise,
            and its finished runs. None: the published law, assumed slopes, nothing finished.
        noise: sd of one run in nats; None: measured in the fit, else assumed.

    Raises:
        InputError: a noise that is not positive, or no fit at ``fit``.
    """
    if noise is not None and not 1e-9 <= noise < 10:
        raise InputError(f"--noise: {noise}; must be nats above 0 (1e-9) and below 10, such as 0.003")
    found = fit_result.read(fit) if fit is not None else None
    law = guiding_laws(found)[0] if found else laws.published()
    basis = [f"law: {law.name}"]
    slopes = {
        (row.shallow, row.deep): row.slope_difference
        for row in references(found.transitions if found else ())
        if row.status == "crossed" and row.slope_difference is not None and row.slope_difference > 0
    }
    if slopes:
        basis.append("slopes: measured at " + ", ".join(f"{a}/{b}" for a, b in sorted(slopes)) + ", else ASSUMED")
    else:
        basis.append("slopes: ASSUMED, 0.025·(L/6)^−2.1 nats per ln N and layer, from public data at depths 4 to 24")
    measured = _measured_noise(found)
    if noise is not None:
        sigma = noise
        basis.append(f"noise: {sigma:g} nats a run, as given")
    elif measured is not None:
        sigma = measured
        basis.append(f"noise: {sigma:.2g} nats a run, measured in the fit")
    else:
        sigma = NOISE
        basis.append(f"noise: {sigma:g} nats a run, ASSUMED; give --noise, or --fit with runs of several seeds")
    if found is not None and found.noise.shape_sd is not None:
        shape_sd = found.noise.shape_sd
        basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} nats, measured in the fit")
    else:
        shape_sd = SHAPE_RATIO * sigma
        basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} nats, ASSUMED")
    basis.append(f"scatter of true transitions about any law: {LAW_SCATTER:g} in ln N, ASSUMED")
    cells = found.cells if found else []
    done = {(cell.depth, int(cell.width)): cell.n for cell in cells if cell.n and not cell.excluded}
    return Prior(law, slopes, sigma, SEED_RATIO * sigma, shape_sd, tuple(basis)), done


def _measured_noise(fit: FitResult | None) -> float | None:
    """Root mean square over depths of the fit's noise of one run."""
    values = [sigma for sigma in (fit.noise.sigma or {}).values() if sigma] if fit else []
    return float(np.sqrt(np.mean(np.square(values)))) if values else None
