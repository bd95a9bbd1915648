"""How a crossing and a best depth follow the cell means they rest on: what two arms' errors have in common, carried to
their sizes and depths (the delta method)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dwsweep.fit.curves import Curves, distinct, pchip
from dwsweep.fit.pairs import Pair
from dwsweep.fit.surface.loss_forms import Frame, P, gradient
from dwsweep.fit.surface.loss_surface import forms_left
from dwsweep.records.fit_result import Surface

STEP = 1e-5  # nats, and ln depth: of the numerical derivatives
THETA_STEPS = np.array([1e-3, 1e-3, 1e-5, 1e-3, 1e-4, 1e-4])


def of_crossing(curves: Curves, pair: Pair) -> np.ndarray | None:
    """(K,) derivatives of ln N of the crossing with respect to the cell means; None where it has not crossed.

    The crossing x solves g(x) = 0, so dx = −dg(x)/g'(x).
    """
    root, slope = pair.crossing.root, pair.crossing.slope
    if root is None or not slope:
        return None
    moved = np.vstack([curves.mean, curves.mean + STEP * np.eye(len(curves.mean))])
    values = []
    for depth in (pair.shallow, pair.deep):
        where = curves.at(depth)
        values.append(pchip(*distinct(curves.x[where], moved[:, where]), np.array([root]))[:, 0])
    g = values[0] - values[1]
    return -(g[1:] - g[0]) / STEP / slope


def of_best_depth(record: Surface, gains: Mapping[str, np.ndarray], x: float, depth: float) -> np.ndarray | None:
    """(K,) derivatives of the ln of the best depth at ln axis ``x`` inside the data, about ``depth``, with respect to
    the cell means: the average over the forms that are not rejected. None where the loss has no valley there.

    With s(y; c, θ) = dloss/dy at y = ln L, linear in the coefficients c, the best depth solves s = 0, so
    dy = −(∂s/∂c·dc + ∂s/∂θ·dθ) / (∂s/∂y).
    """
    depths = [span.depth for span in record.spans]
    frame = Frame(record.low, record.high, float(min(depths)), float(max(depths)))
    y = math.log(depth) + np.array([0.0, -STEP, STEP])
    departures = frame.basis(np.full(3, x), y, derivative=True)
    steps = np.vstack([np.diag(THETA_STEPS), -np.diag(THETA_STEPS)])
    total, weights = None, 0.0
    for form in forms_left(record):
        coefficients, theta = np.array(form.mode[:-P]), np.array(form.mode[-P:])
        slope = departures @ coefficients + gradient(form.form, theta, x, y, frame)
        curvature = float(slope[2] - slope[1]) / (2.0 * STEP)
        if curvature <= 0.0:
            continue
        moved = gradient(form.form, theta + steps, x, y[:1], frame)
        by_theta = (moved[: len(theta)] - moved[len(theta) :]) / (2.0 * THETA_STEPS)
        row = np.concatenate([departures[0], by_theta])
        share = form.weight * (-(row @ gains[form.form]) / curvature)
        total = share if total is None else total + share
        weights += form.weight
    return None if total is None else total / weights
