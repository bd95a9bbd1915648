"""Questions put to the posterior: functions from its draws to intervals.

Every function takes a ``Posterior`` (posterior.py) and gives what its draws say, with nothing estimated by another way.
A draw in which depth does nothing has no best depth and no crossing: half of such draws count as below everything and
half as above, so that they widen an interval and move no median.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.posterior import SCRAMBLES, Posterior, Setting, between
from dwsweep.interval import Interval

WHOLE = 16  # layers, from which on the points of the grid lie close enough for whole numbers of them


@dataclass(frozen=True)
class Answer:
    """A median and the ends of its interval, with the Monte-Carlo standard error of each: None where there is none."""

    interval: Interval
    errors: Interval


def quantiles(drawn: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """Lower end, median and upper end of draws (D,), of which some may be infinite: between two order statistics."""
    tail = (1.0 - confidence) / 2.0
    ordered = np.sort(drawn)
    found = []
    for q in (tail, 0.5, 1.0 - tail):
        place = min(max(q * len(ordered) - 0.5, 0.0), len(ordered) - 1.0)
        k = min(int(place), len(ordered) - 2)
        a, b, share = ordered[k], ordered[k + 1], place - k
        found.append(float(a if a == b or share == 0.0 else b if share == 1.0 else a + (b - a) * share))
    low, middle, high = found
    return low, middle, high


def answer(drawn: np.ndarray, scramble: np.ndarray, confidence: float) -> Answer:
    """The interval of draws (D,), and the Monte-Carlo errors of its three numbers from the scrambles' own."""
    each = np.array([quantiles(drawn[scramble == k], confidence) for k in range(SCRAMBLES) if (scramble == k).sum() > 1])
    with np.errstate(invalid="ignore"):
        # of eight numbers the standard deviation is 0.965 of the true one on average
        spread = each.std(axis=0, ddof=1) / (0.965 * math.sqrt(len(each)))
    low, middle, high = (v if math.isfinite(v) else None for v in quantiles(drawn, confidence))
    errors = [float(v) if math.isfinite(v) else None for v in spread]
    return Answer(Interval(middle, low, high), Interval(errors[1], errors[0], errors[2]))


def best_depths(posterior: Posterior, x: float, setting: Setting | None = None) -> np.ndarray:
    """(D,) ln of the best depth at x = ln axis; ±inf where the loss falls up to an end of the grid.

    A draw whose lowest loss lies between the depths trained has its best depth there, whatever its form does far
    outside; from an end of the depths trained it goes on. One layer is the least where it was trained.
    """
    rows, grid, inside = posterior.profile(x, setting), posterior.grid, posterior.inside
    first, deepest = inside.start, inside.stop - 1
    best = rows[:, inside].argmin(axis=1) + first
    beyond = rows[:, deepest:].argmin(axis=1) + deepest
    before = rows[:, : first + 1].argmin(axis=1)
    best = np.where(best == deepest, beyond, np.where(best == first, before, best))
    each, last = np.arange(len(rows)), len(grid) - 1
    k = np.clip(best, 1, last - 1)
    # the parabola through the lowest point of the grid and its neighbours
    a, b, c = (rows[each, k + step] for step in (-1, 0, 1))
    left, right = grid[k] - grid[k - 1], grid[k + 1] - grid[k]
    down, up = (b - a) / left, (c - b) / right
    bend = up - down
    turn = grid[k] - np.where(bend > 0, (down * right + up * left) / np.where(bend > 0, 2.0 * bend, 1.0), 0.0)
    turn = np.where((best > 0) & (best < last) & (bend > 0), np.clip(turn, grid[k - 1], grid[k + 1]), grid[best])
    least = 0.0 if first == 0 else -np.inf
    found = np.where(best == last, np.inf, np.where(best == 0, least, turn))
    # where depth does nothing there is no best one
    side = np.where(each % 2 == 0, -np.inf, np.inf)
    return np.where(posterior.without_effect, side, found)


def best_depth(posterior: Posterior, x: float, confidence: float, setting: Setting | None = None) -> Answer:
    """ln of the best depth at x = ln axis."""
    return answer(best_depths(posterior, x, setting), posterior.scramble, confidence)
