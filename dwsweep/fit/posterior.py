"""Posterior of the loss: draws of equal weight from its nodes (nodes.py), and the loss of any net in each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dwsweep.fit.course import Course, sizes_of
from dwsweep.fit.model import (
    FORMS,
    Cells,
    Effect,
    Frame,
    Law,
    Model,
    asymptotic,
    decay,
)
from dwsweep.fit.nodes import DRAWS, Chosen, Weighed, weigh, with_odd_depths
from dwsweep.fit.one_thread import one_thread

BRIDGE = 0.1  # sd of the loss between trained depths if no shape measures it, in e^share·E per √ln L
INSIDE, OUTSIDE = 61, 12  # points of the grid of depths, inside those trained and on either side
DEEPEST_FACTOR = 64.0  # the grid's deepest point over the deepest net
MISFIT_POINTS, LARGEST_MISFIT = 9, 3.0
MISFIT_FROM = 0.5  # distance in ln N beyond the sizes above which the misfit of a form counts in full
MOST_NUMBERS = 500_000  # most losses that are computed at once: what a processor keeps near
NEARBY = 4.0  # factor beyond the depths trained up to which a best depth counts in the course of the loss
KEPT = 6_000_000  # most numbers of profiles that are kept: some thirty sizes of a heap


@dataclass(frozen=True)
class Draws:
    """Coefficients of D draws of one form, all of equal weight.

    eta: name → (D,) hyperparameters. parts: see ``Model.split``. scramble: (D,). other: (D, M) standard normals of
    departures beyond the sizes of the data.
    """

    model: Model
    eta: dict[str, np.ndarray]
    parts: dict[str, np.ndarray]
    scramble: np.ndarray
    other: np.ndarray


Setting = Mapping[str, float]
"""Values of further columns; 0 by default: the first arm, the mean of a covariate."""


@dataclass
class _Nets:
    """Nets at x, y (n,) with values ``z`` of further columns, (n,) each. A grid of nets has few sizes and few depths:
    exponentials of each are looked up for (D, n)."""

    frame: Frame
    x: np.ndarray
    y: np.ndarray
    z: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        self.sizes, self.of_size = np.unique(self.x, return_inverse=True)
        self.depths, self.of_depth = np.unique(self.y, return_inverse=True)
        self.u, self.v = self.frame.u(self.x), self.frame.v(self.y)


class Posterior:
    """Draws of the loss of all cells together, from the nodes of ``weighed``: the same nodes give the same draws.

    grid: (G,) ln L, dense over the depths trained, which it holds, with wider steps outside.
    """

    def __init__(self, cells: Cells, weighed: Weighed, seed: int = 0) -> None:
        self.cells, self.weighed, self.seed = cells, weighed, seed
        self.frame = Frame.of(cells.x, cells.y)
        self.effect = Effect.of(cells, self.frame)
        self.depths = np.unique(cells.y)
        low, high = self.frame.first, self.frame.last
        below = np.linspace(0.0, low, OUTSIDE, endpoint=False) if low > 1e-9 else np.zeros(0)
        inside = np.unique(np.concatenate([np.linspace(low, high, INSIDE), self.depths]))
        inside = inside[np.concatenate([[True], np.diff(inside) > 1e-9])]
        above = np.linspace(high, high + math.log(DEEPEST_FACTOR), 2 * OUTSIDE + 1)[1:]
        self.grid = np.concatenate([below, inside, above])
        self.inside = slice(len(below), len(below) + len(inside))
        self._profiles: dict[tuple, np.ndarray] = {}
        self._courses: dict[tuple, Course] = {}  # by setting
        self._steep: dict[tuple, np.ndarray] = {}  # (D, 1) by form and setting: the same at every size
        self.levels: dict[tuple, np.ndarray] = {}  # levels of the best depth by range of sizes and setting

    @classmethod
    def of(cls, cells: Cells, seed: int = 0, forms: Sequence[str] = (), draws: int = DRAWS) -> Posterior:
        cells = with_odd_depths(cells, seed)
        return cls(cells, weigh(cells, seed, forms, draws), seed)

    @cached_property
    def forms(self) -> list[Draws]:
        """Draws of each form with weight."""
        with one_thread():  # a restored fit is drawn by itself
            return [self._drawn(one, k) for k, one in enumerate(self.weighed.chosen)]

    def _drawn(self, chosen: Chosen, place: int) -> Draws:
        model = Model(self.cells, FORMS[chosen.form], self.frame, self.effect, np.array(chosen.ends))
        rng = np.random.default_rng([self.seed, 7, place])
        rows = model.drawn(chosen.z, antithetic(rng, chosen.count, model.n_changing + model.X.shape[1]), chosen.count)
        eta = {name: values.repeat(chosen.count) for name, values in model.eta(chosen.z).items()}
        other = rng.standard_normal((len(rows), self.frame.waves[1]))
        return Draws(model, eta, model.split(rows), chosen.scramble.repeat(chosen.count), other)

    @cached_property
    def scramble(self) -> np.ndarray:
        """(D,) scramble of each draw."""
        return np.concatenate([one.scramble for one in self.forms])

    @property
    def n_draws(self) -> int:
        return len(self.scramble)

    def stacked(self, name: str) -> np.ndarray:
        """(D,) hyperparameter of each draw."""
        return np.concatenate([one.eta[name] for one in self.forms])

    @cached_property
    def rows(self) -> list[slice]:
        """Rows of each form among all draws."""
        edges = np.cumsum([0, *(len(one.scramble) for one in self.forms)]).tolist()
        return [slice(first, last) for first, last in pairwise(edges)]

    @cached_property
    def without_effect(self) -> np.ndarray:
        """(D,) True for a draw without an effect of depth."""
        return np.concatenate([np.full(len(one.scramble), not one.model.form.effect) for one in self.forms])

    @cached_property
    def _walks(self) -> np.ndarray:
        """(D, G) Brownian bridges between the depths trained, zero at each and outside them, per √ln L."""
        at = self.grid[self.inside]
        rng = np.random.default_rng([self.seed, 11])
        step = np.sqrt(np.diff(at)) * rng.standard_normal((len(self.scramble), len(at) - 1))
        walk = np.concatenate([np.zeros((len(step), 1)), np.cumsum(step, axis=1)], axis=1)
        known = np.searchsorted(at, self.depths - 1e-9)
        left = np.clip(np.searchsorted(self.depths, at + 1e-9) - 1, 0, len(self.depths) - 2)
        share = (at - self.depths[left]) / (self.depths[left + 1] - self.depths[left])
        walk -= walk[:, known[left]] * (1.0 - share) + walk[:, known[left + 1]] * share
        out = np.zeros((len(walk), len(self.grid)))
        out[:, self.inside] = walk
        return out

    @cached_property
    def _cosines(self) -> np.ndarray:
        """(M, G) waves in y on the grid."""
        return self.frame.in_y(self.grid).T

    @cached_property
    def _laws(self) -> list[tuple[Law, np.ndarray]]:
        """Per form: its law on the grid for each power p, and the place of the power of each draw."""
        each = [np.unique(one.eta["p"], return_inverse=True) for one in self.forms]
        return [(one.model.law(p, self.grid), of) for one, (p, of) in zip(self.forms, each, strict=True)]

    @cached_property
    def _misfits(self) -> list[np.ndarray]:
        """Per form (D,) normal draws, ln N, as wide as departures move the transitions of the depths trained."""
        found = []
        for place, one in enumerate(self.forms):
            rng = np.random.default_rng([self.seed, 13, place])
            normal = rng.standard_normal(len(one.scramble))
            found.append(normal * self._moved(place) if one.model.form.effect else 0.0 * normal)
        return found

    def _moved(self, place: int) -> np.ndarray:
        """(D,) root mean square over the depths trained of δ's slope over the gain, at the transitions inside."""
        draws, frame = self.forms[place], self.frame
        y = np.linspace(frame.first, frame.last, MISFIT_POINTS)
        k, J = draws.model.form.parts(y, frame, draws.model.ends)
        x_T = np.clip(k + (1.0 - J) * draws.model.ends[0] + J * draws.model.ends[1], frame.low, frame.high)
        waves = np.einsum("gj,djm->dgm", frame.in_x(x_T), draws.parts["departures"][:, 0])
        step = 1e-3 * frame.ys
        ends = [frame.in_y(y + side) * self.effect.scale(x_T, y)[:, None] for side in (-step, step)]
        slope = np.einsum("dgm,gm->dg", waves, (ends[1] - ends[0]) / (2.0 * step))
        gain = np.abs(draws.parts["law"][:, 2:3]) * np.exp((1.0 - draws.eta["p"])[:, None] * (y - frame.y0))
        gain = gain * decay(draws.eta["a"][:, None], x_T, frame)
        return np.sqrt((np.minimum(np.abs(slope) / np.maximum(gain, 1e-9), LARGEST_MISFIT) ** 2).mean(axis=1))

    def profile(self, x: float, setting: Setting | None = None) -> np.ndarray:
        """(D, G) effect of depth at x = ln axis, relative to the middle depth, nats; zero in a draw without one.

        Beyond the sizes of the data departures are forgotten over their own length, and all effects of depth decay
        as gains do, which moves no best depth. Beyond the nets trained a law is no steeper than among them.
        """
        key = (x, *sorted((setting or {}).items()))
        if key not in self._profiles:
            found = np.zeros((self.n_draws, len(self.grid)))
            while self._profiles and (len(self._profiles) + 1) * found.size > KEPT:
                del self._profiles[next(iter(self._profiles))]
            for place, rows in enumerate(self.rows):
                if self.forms[place].model.form.effect:
                    self._add(place, x, setting or {}, found[rows])
            self._profiles[key] = found
        return self._profiles[key]

    def _missed(self, place: int, x: float) -> np.ndarray:
        """(D, 1) x moved by the error of a form, which beyond the sizes is as large as the data's departures."""
        at = min(max(x, self.frame.low), self.frame.high)
        return x + (min(1.0, abs(x - at) / MISFIT_FROM) * self._misfits[place])[:, None]

    def _departing(self, draws: Draws, x: float, delta: np.ndarray) -> np.ndarray:
        """(D, M) waves in y of the departures ``delta`` (D, J, M) at x, forgotten beyond the sizes of the data."""
        frame, eta = self.frame, draws.eta
        at = min(max(x, frame.low), frame.high)
        waves = np.einsum("j,djm->dm", frame.in_x(np.array(at)), delta)
        if x != at:
            away = (x - at) / np.exp(eta["len_x"])
            rho = np.exp(-0.5 * away**2)[:, None]
            rough = np.exp(eta["share"])[:, None] * frame.rough_sd(eta["len_y"])
            waves = rho * waves + np.sqrt(1.0 - rho**2) * draws.other * rough
        return waves

    def _beyond(self, draws: Draws, x: float) -> np.ndarray:
        """(D, 1) further decay of depth effects beyond the largest size, at most 1."""
        found: np.ndarray = np.exp(-np.maximum(draws.eta["a"], 0.0) * max(x - self.frame.high, 0.0))[:, None]
        return found

    def _law(self, place: int, x: float, law: np.ndarray) -> np.ndarray:
        """(D, G) effect of depth by the ``law`` (D, 4) of a form at ln axis x, nats, on the grid."""
        of_power, of = self._laws[place]
        columns = [one[of] for one in of_power.columns(np.full(len(self.grid), x))]
        found = _times(columns, law)
        if not self.frame.low <= x <= self.frame.high:
            found -= (self._missed(place, x) - x) * law[:, 2:3] * (columns[0] + columns[1])
        found *= self._decayed(place, x)
        return found

    def _decayed(self, place: int, x: float) -> np.ndarray:
        """(D, 1) decay of depth effects at ln axis x."""
        return decay(self.forms[place].eta["a"], np.array(x), self.frame)[:, None]

    def _steepest(self, place: int, law: np.ndarray) -> np.ndarray:
        """(D, 1) largest slope of the ``law`` (D, 4) of a form in y among the nets trained, nats: its powers of L and
        N are not trusted to go on rising beyond them. The limit keeps signs, so it moves no best depth."""
        steps = np.diff(self.grid[self.inside])
        rows = (self._law(place, x, law)[:, self.inside] for x in (self.frame.low, self.frame.high))
        return np.concatenate([np.abs(np.diff(one, axis=1)) / steps for one in rows], axis=1).max(axis=1, keepdims=True)

    def _add(self, place: int, x: float, setting: Setting, out: np.ndarray) -> None:
        """Add a form's effect of depth at x to its rows ``out`` (D, G) of the profile."""
        draws = self.forms[place]
        eta, frame, inside = draws.eta, self.frame, self.inside
        law, delta = self._with(draws, setting)
        key = (place, *sorted(setting.items()))
        if key not in self._steep:
            self._steep[key] = self._steepest(place, law)
        steps, spacing = np.diff(self._law(place, x, law), axis=1), np.diff(self.grid)
        most = self._steep[key] * spacing
        trained = slice(inside.start, inside.stop - 1) if frame.low <= x <= frame.high else slice(0, 0)
        for beyond in (slice(0, trained.start), slice(trained.stop, None)):
            np.clip(steps[:, beyond], -most[:, beyond], most[:, beyond], out=steps[:, beyond])
        np.cumsum(steps, axis=1, out=out[:, 1:])
        at = min(max(x, frame.low), frame.high)
        waves = self._cosines * self.effect.scale(np.array(at), self.grid)
        middle = between(self.grid, out, np.array([frame.y0]))
        out += np.hstack([self._departing(draws, x, delta), -middle]) @ np.vstack([waves, np.ones(len(self.grid))])
        bridge = BRIDGE * self.effect.E * np.exp(eta["share"])[:, None] * self._decayed(place, x)
        out[:, inside] += bridge * self._walks[self.rows[place], inside]
        if self.cells.columns:
            v = frame.v(self.grid)
            free = {one.name for one in self.cells.columns} - set(setting)
            out += self._tuned(draws, frame.u(np.full(len(v), at)), v, free) + self._along_depth(draws, v, setting)
        if x > frame.high:
            out *= self._beyond(draws, x)

    def level(self, x: float, setting: Setting | None = None) -> np.ndarray:
        """(D,) level common to all depths at x, nats, to which ``profile`` adds. Beyond the sizes of the data it is the
        course of the loss (course.py), less the best depth's part of the profile."""
        frame, given = self.frame, setting or {}
        if frame.low <= x <= frame.high:
            return self._level_inside(x, given)
        key = tuple(sorted(given.items()))
        if key not in self._courses:
            inside = sizes_of(frame).tolist()
            rows = [self._level_inside(at, given) + self._least(at, given) for at in inside]
            self._courses[key] = Course(frame, np.stack(rows, axis=1), np.exp(self.stacked("level")), self.seed)
        return self._courses[key].at(x) - self._least(x, given)

    def _least(self, x: float, setting: Setting) -> np.ndarray:
        """(D,) least effect of depth at x: of the depths trained, and of others within a factor of ``NEARBY``."""
        near = (self.grid > self.frame.first - math.log(NEARBY)) & (self.grid < self.frame.last + math.log(NEARBY))
        found: np.ndarray = self.profile(x, setting)[:, near].min(axis=1)
        return found

    def _level_inside(self, x: float, setting: Setting) -> np.ndarray:
        middle = np.array([self.frame.y0])
        effect = between(self.grid, self.profile(x, setting), middle)
        return (self.losses(np.array([x]), middle, setting) - effect)[:, 0]

    def losses(self, x: np.ndarray, y: np.ndarray, setting: Mapping[str, Any] | None = None) -> np.ndarray:
        """(D, n) losses at x, y (n,) inside the sizes and depths of the data, nats. setting: values of further columns,
        a number or (n,) each; a tuned column without one is at the best value of each net."""
        return self._evaluated(x, y, setting or {}, whole=True)

    def of_columns(self, x: np.ndarray, y: np.ndarray, values: Mapping[str, Any]) -> np.ndarray:
        """(D, n) losses with further columns at ``values``, less the losses without: see ``losses``."""
        return self._evaluated(x, y, values, whole=False)

    def _evaluated(self, x: np.ndarray, y: np.ndarray, values: Mapping[str, Any], whole: bool) -> np.ndarray:
        """(D, n), by at most ``MOST_NUMBERS`` numbers at once."""
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        z = {name: np.broadcast_to(np.asarray(value, dtype=float), x.shape) for name, value in values.items()}
        most = max(1, MOST_NUMBERS // self.n_draws)
        found = []
        for cut in (slice(k, k + most) for k in range(0, max(1, len(x)), most)):
            nets = _Nets(self.frame, x[cut], y[cut], {name: value[cut] for name, value in z.items()})
            found.append(np.concatenate([self._rows(place, nets, whole) for place in range(len(self.forms))]))
        return np.concatenate(found, axis=1)

    def _rows(self, place: int, nets: _Nets, whole: bool) -> np.ndarray:
        """(D, n) losses of nets by a form; not ``whole``: what the values of the columns add to them."""
        draws, x, y, z = self.forms[place], nets.x, nets.y, nets.z
        parts, eta, model = draws.parts, draws.eta, draws.model
        level = model.level(x, y, z) if whole else model.level(x, y, z) - model.level(x, y, {})
        rows = parts["level"] @ level.T
        if whole:
            asymptote = asymptotic(np.exp(eta["alpha"])[:, None], nets.sizes, self.frame)[:, nets.of_size]
            rows += parts["asymptote"][:, None] * asymptote + model.reference(x)
        if not model.form.effect:
            return rows
        law, h = model.law(eta["p"], nets.depths), np.zeros((1, len(x)))
        if whole:
            walk = between(self.grid, self._walks[self.rows[place]], nets.depths)
            h = _times(law.columns(x, nets.of_depth), parts["law"])
            h += (BRIDGE * self.effect.E * np.exp(eta["share"])[:, None] * walk)[:, nets.of_depth]
        moving = [(z[one.name], k) for k, one in enumerate(model.moving) if one.name in z]
        straight = law.straight(x, nets.of_depth) if moving else ()
        h = sum((value * _times(straight, parts["moves"][:, k]) for value, k in moving), start=h)
        rows += h * decay(eta["a"][:, None], nets.sizes, self.frame)[:, nets.of_size]
        departing = [float(whole), *(z.get(one.name, 0.0) for one in model.departing)]
        if any(np.any(value) for value in departing):
            waves = model.departures(x, y)
            for k, value in enumerate(departing):
                rows += value * (parts["departures"][:, k].reshape(len(rows), -1) @ waves.T) if np.any(value) else 0.0
        gains = self._tuned(draws, nets.u, nets.v, [one.name for one in self.cells.columns if (one.name in z) != whole])
        return rows + gains if whole else rows - gains

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """``Model.held_out`` of the likeliest form at its mean hyperparameters."""
        k = int(np.argmax([len(one.scramble) for one in self.forms]))
        chosen = self.weighed.chosen[k]
        return self.forms[k].model.held_out(np.average(chosen.z, axis=0, weights=chosen.count))

    @staticmethod
    def _with(draws: Draws, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        """(law (D, 4), departures (D, J, M)), further columns included."""
        law, waves = draws.parts["law"].copy(), draws.parts["departures"]
        for k, one in enumerate(draws.model.moving):
            law[:, :3] += setting.get(one.name, 0.0) * draws.parts["moves"][:, k]
        values = [1.0, *(setting.get(one.name, 0.0) for one in draws.model.departing)]
        return law, sum((value * waves[:, k] for k, value in enumerate(values) if value), start=0.0 * waves[:, 0])

    def _coefficients(self, draws: Draws) -> list[dict[int, np.ndarray]]:
        """Coefficients of each covariate: place in ``Column.sds`` → (D,) coefficients."""
        found, first = [], self.frame.waves[0]
        for one in self.cells.columns:
            found.append({k: draws.parts["level"][:, first + place] for place, k in enumerate(one.kept)})
            first += len(one.kept)
        return found

    def _along_depth(self, draws: Draws, v: np.ndarray, setting: Setting) -> np.ndarray | float:
        """(D, n) slopes of further columns in v (n,) at their values."""
        found: np.ndarray | float = 0.0
        for one, of in zip(self.cells.columns, self._coefficients(draws), strict=True):
            if 4 in of and one.name in setting:
                found = found + setting[one.name] * of[4][:, None] * v
        return found

    def tuned_values(self, draws: Draws, place: int, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(best value (D, n), its loss less the loss at value 0 (D, n)) of the tuned column ``place`` at u, v (n,)."""
        one, of = self.cells.columns[place], self._coefficients(draws)[place]
        assert one.tuned
        b, bend = of[0][:, None] + of[1][:, None] * u + of[4][:, None] * v, of[3][:, None]
        low, high = one.tuned
        opens = bend > 0.0
        best = b * (-0.5 / np.where(opens, bend, 1.0))
        np.clip(best, low, high, out=best)
        if not opens.all():  # a parabola that opens downwards is least at an end
            rows = ~opens[:, 0]
            at_low, at_high = (b[rows] * end + bend[rows] * end**2 for end in (low, high))
            best[rows] = np.where(at_low < at_high, low, high)
        gain = bend * best
        gain += b
        gain *= best
        return best, gain

    def _tuned(self, draws: Draws, u: np.ndarray, v: np.ndarray, names: Collection[str]) -> np.ndarray | float:
        """(D, n) gain of nets at u, v (n,) from the best value of each tuned column in ``names``, a learning rate."""
        places = [k for k, one in enumerate(self.cells.columns) if one.tuned and one.name in names]
        return sum((self.tuned_values(draws, place, u, v)[1] for place in places), start=0.0)

    def predict(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(D, n) losses of shapes at x, y (n,), beyond the sizes and depths of the data too, nats."""
        each = zip(np.asarray(x, dtype=float).tolist(), y, strict=True)
        rows = [between(self.grid, self.profile(a), np.array([b]))[:, 0] + self.level(a) for a, b in each]
        return np.stack(rows, axis=1)

    @cached_property
    def of_depth(self) -> np.ndarray:
        """(D,) sd of the scatter that all shapes of a depth share, nats; zero where each depth has one shape."""
        one = np.exp(self.stacked("scatter") + self.stacked("depthwise"))
        return one if len(self.depths) < len(self.cells.y) else 0.0 * one

    def odd(self) -> list[tuple[float, float, float]]:
        """(ln depth, nats by which all its shapes lie above the others, sd) of each odd depth."""
        drawn = np.concatenate([one.parts["odd"] for one in self.forms])
        found = zip(self.cells.odd, drawn.mean(axis=0), drawn.std(axis=0), strict=True)
        return [(y, float(mean), float(sd)) for (y, _), mean, sd in found]


def _times(A: np.ndarray | Sequence[np.ndarray], coefficients: np.ndarray) -> np.ndarray:
    """(D, n) of A (n, v), or of v columns (D, n) each, times coefficients (D, …) of v numbers."""
    flat = coefficients.reshape(len(coefficients), -1)
    if isinstance(A, np.ndarray):
        return flat @ A.T
    found = A[0] * flat[:, :1]
    for k, column in enumerate(A[1:], start=1):
        found += column * flat[:, k : k + 1]
    return found


def antithetic(rng: np.random.Generator, count: np.ndarray, size: int) -> np.ndarray:
    """(T, size) standard normals for nodes of ``count`` (N,) draws: half of a node's rows, and their negatives, whose
    mean has no noise."""
    half = (count + 1) // 2
    drawn = rng.standard_normal((int(half.sum()), size))
    place = np.arange(int(count.sum())) - (np.cumsum(count) - count).repeat(count)
    mirrored = place >= half.repeat(count)
    row = place - half.repeat(count) * mirrored + (np.cumsum(half) - half).repeat(count)
    return drawn[row] * np.where(mirrored, -1.0, 1.0)[:, None]


def between(grid: np.ndarray, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(D, M) ``rows`` (D, G), which stand on ``grid`` (G,), at y (M,): linear between its points, constant beyond."""
    left = np.clip(np.searchsorted(grid, y - 1e-9) - 1, 0, len(grid) - 2)
    share = np.clip((y - grid[left]) / (grid[left + 1] - grid[left]), 0.0, 1.0)
    return rows[:, left] * (1.0 - share) + rows[:, left + 1] * share
