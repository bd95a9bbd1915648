"""Parabola through three neighbouring points: its lowest place and the value there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Lowest(NamedTuple):
    """place, value: (…) of the lowest point. edge: (…) −1, 1 where it is the first or the last point, else 0."""

    place: np.ndarray
    value: np.ndarray
    edge: np.ndarray


def vertex(y: np.ndarray, rows: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(place, value), (…) each, of the lowest point of the parabola through ``rows`` (…, n) over y (n,) at k (…), inner
    places, and their neighbours: between these; y[k] where the parabola opens downwards or a point is infinite."""
    a, b, c = (np.take_along_axis(rows, (k + step)[..., None], axis=-1)[..., 0] for step in (-1, 0, 1))
    left, right = y[k] - y[k - 1], y[k + 1] - y[k]
    with np.errstate(invalid="ignore"):
        down, up = (b - a) / left, (c - b) / right
        opens = np.isfinite(up - down) & (up > down)
        bend = np.where(opens, up - down, 1.0)
        slope = np.where(opens, down * right + up * left, 0.0)
    place = np.clip(y[k] - slope / (2.0 * bend), y[k - 1], y[k + 1])
    shift = place - y[k]
    return place, b + np.where(opens, (slope + bend * shift) * shift / (left + right), 0.0)


def lowest(y: np.ndarray, rows: np.ndarray) -> Lowest:
    """Lowest place and value of ``rows`` (…, n) over y (n,), by the parabola through the least of at least three points
    and its neighbours; at an end, that end."""
    last = len(y) - 1
    k = rows.argmin(axis=-1)
    place, value = vertex(y, rows, np.clip(k, 1, last - 1))
    edge = (k == last).astype(int) - (k == 0)
    return Lowest(np.where(edge == 0, place, y[k]), np.where(edge == 0, value, rows.min(axis=-1)), edge)
