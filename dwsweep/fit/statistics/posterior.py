"""Posterior of the loss: draws of equal weight from its nodes (nodes.py), and the loss of any net in each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dwsweep.fit.statistics.model import FORMS, Effect, FormEffect, Frame, LossModel, asymptotic, crossed, decay
from dwsweep.fit.statistics.nodes import DRAWS, weigh, with_odd_depths
from dwsweep.fit.statistics.small_matrices import small_matrices
from dwsweep.records.cells import SAME, Cells
from dwsweep.records.fit import LossForm

BRIDGE = 0.1  # sd of the loss between trained depths if no shape measures it, in e^share·E per √ln L
INSIDE, OUTSIDE = 61, 12  # points of the grid of depths, inside those trained and on either side
DEEPEST_FACTOR = 64.0  # the grid's deepest point over the deepest net
LARGEST_MISFIT = 3.0  # ln N
MISFIT_FROM = 0.5  # distance in ln N beyond the sizes above which the misfit of a form counts in full
MOST_NUMBERS = 500_000  # most losses that are computed at once: what a processor keeps near
KEPT = 6_000_000  # most numbers of profiles that are kept: some thirty sizes of a heap


@dataclass(frozen=True)
class Draws:
    """D draws of one form, all of equal weight, and the losses by them.

    eta: name → (D,) hyperparameters. powers: distinct p, and the place (D,) of each draw's. parts: coefficients, by
    ``LossModel.split``. scramble: (D,). other: (D, M) standard normals of departures beyond the sizes of the data.
    misfit: (D,) ln N, by which the error of the form moves its transitions there. grid, inside: of the ``Posterior``.
    """

    model: LossModel
    eta: dict[str, np.ndarray]
    powers: tuple[np.ndarray, np.ndarray]
    parts: dict[str, np.ndarray]
    scramble: np.ndarray
    other: np.ndarray
    misfit: np.ndarray
    grid: np.ndarray
    inside: slice

    @cached_property
    def on_grid(self) -> FormEffect:
        """The form on the grid for each of its powers."""
        return self.model.law(self.powers[0], self.grid)

    def effect(self, x: np.ndarray, at: np.ndarray | None, walk: np.ndarray) -> np.ndarray:
        """(D, n) effect of depth: see ``Posterior._effect``. walk: (D, n) of ``Posterior._walks`` there."""
        if not self.model.form.effect:
            return np.zeros_like(walk)
        frame, eta, grid = self.model.frame, self.eta, self.grid if at is None else self.grid[at]
        sizes, of = np.unique(x, return_inverse=True)
        decayed = decay(eta["a"][:, None], sizes, frame)[:, of]
        out = self._law(x, at)
        out *= decayed
        if at is None:
            self._limit(frame.inside(x[0]) == x[0], out)
        waves = frame.in_y(grid).T * self.model.effect.scale(np.clip(x, frame.low, frame.high), grid)
        for k, size in enumerate(sizes.tolist()):
            same = slice(None) if len(sizes) == 1 else np.flatnonzero(of == k)
            out[:, same] += self._departing(size) @ waves[:, same]
        out += (BRIDGE * self.model.effect.E * np.exp(eta["share"]))[:, None] * walk * decayed
        out += self.tuned(np.clip(frame.u(x), -1.0, 1.0), frame.v(grid), {})
        if (beyond := x[0] - frame.high) > 0.0:  # further decay beyond the largest size
            out *= np.exp(-np.maximum(eta["a"], 0.0) * beyond)[:, None]
        return out

    def _law(self, x: np.ndarray, at: np.ndarray | None) -> np.ndarray:
        """(D, n) effect of depth by the form alone, nats, before its decay with size. Beyond the sizes x is moved by
        the error of the form, which there is as large as the data's departures."""
        law = self.parts["law"]
        columns = [one[self.powers[1]] for one in self.on_grid.columns(x, at)]
        found = _times(columns, law)
        if away := abs(x[0] - self.model.frame.inside(x[0])):
            moved = (min(1.0, away / MISFIT_FROM) * self.misfit)[:, None]
            found -= moved * law[:, 2:3] * (columns[0] + columns[1])
        return found

    def _limit(self, among_sizes: bool, out: np.ndarray) -> None:
        """Limit the slopes in y of ``out`` (D, G), the effect by the form: beyond the depths trained, and everywhere
        unless ``among_sizes``, none is steeper than among the nets trained. Powers of L and N are not trusted to go on
        rising beyond them. The limit keeps signs, so it moves no best depth."""
        steps, most = np.diff(out, axis=1), self._steepest * np.diff(self.grid)
        kept = slice(self.inside.start, self.inside.stop - 1) if among_sizes else slice(0, 0)
        for beyond in (slice(0, kept.start), slice(kept.stop, None)):
            np.clip(steps[:, beyond], -most[:, beyond], most[:, beyond], out=steps[:, beyond])
        out[:, 0] = 0.0
        np.cumsum(steps, axis=1, out=out[:, 1:])
        out -= between(self.grid, out, np.array([self.model.frame.y0]))

    @cached_property
    def _steepest(self) -> np.ndarray:
        """(D, 1) largest slope in y of the effect by the form among the nets trained."""
        slopes, frame = [], self.model.frame
        for x in (frame.low, frame.high):
            effect = self._law(np.full(len(self.grid), x), None) * decay(self.eta["a"][:, None], np.array(x), frame)
            slopes.append(np.abs(np.diff(effect[:, self.inside], axis=1) / np.diff(self.grid[self.inside])))
        return np.concatenate(slopes, axis=1).max(axis=1, keepdims=True)

    def _departing(self, x: float) -> np.ndarray:
        """(D, M) waves in y of the departures at x, forgotten beyond the sizes of the data."""
        frame, eta, delta = self.model.frame, self.eta, self.parts["departures"][:, 0]
        at = frame.inside(x)
        waves = np.einsum("j,djm->dm", frame.in_x(np.array(at)), delta)
        if x != at:
            away = (x - at) / np.exp(eta["len_x"])
            rho = np.exp(-0.5 * away**2)[:, None]
            rough = np.exp(eta["share"])[:, None] * frame.rough_sd(eta["len_y"])
            waves = rho * waves + np.sqrt(1.0 - rho**2) * self.other * rough
        return waves

    def level(self, x: np.ndarray) -> np.ndarray:
        """(D, n) level common to all depths at x (n,), nats."""
        model, middle = self.model, np.full(len(x), self.model.frame.y0)
        rows = self.parts["level"] @ model.level(x, middle, {}).T + model.reference(x)
        level = asymptotic(np.exp(self.eta["alpha"])[:, None], x, model.frame)
        return rows + self.parts["asymptote"][:, None] * level

    def of_columns(self, x: np.ndarray, y: np.ndarray, z: Mapping[str, np.ndarray]) -> np.ndarray:
        """(D, n): see ``Posterior.of_columns``. z: (n,) values."""
        parts, model, frame = self.parts, self.model, self.model.frame
        rows: np.ndarray = parts["level"] @ (model.level(x, y, z) - model.level(x, y, {})).T
        if moving := [(z[one.name], k) for k, one in enumerate(model.moving) if one.name in z]:
            (sizes, of_size), (depths, of_depth) = (np.unique(one, return_inverse=True) for one in (x, y))
            straight = [one[self.powers[1]] for one in model.law(self.powers[0], depths).straight(x, of_depth)]
            h = sum((value * _times(straight, parts["moves"][:, k]) for value, k in moving), start=0.0)
            rows += h * decay(self.eta["a"][:, None], sizes, frame)[:, of_size]
        if departing := [(z[one.name], k) for k, one in enumerate(model.departing, start=1) if one.name in z]:
            waves = model.departures(x, y).T
            for value, k in departing:
                rows += value * (parts["departures"][:, k].reshape(len(rows), -1) @ waves)
        return rows + (self.tuned(frame.u(x), frame.v(y), z) - self.tuned(frame.u(x), frame.v(y), {}))

    def tuned(self, u: np.ndarray, v: np.ndarray, z: Mapping[str, np.ndarray]) -> np.ndarray | float:
        """(D, n) gain of nets at u, v (n,) from the best value of each tuned column, a learning rate, that ``z`` does
        not name. Nets of an arm without different values, which are all 0, gain nothing."""
        columns = self.model.cells.columns
        members = {one.name: one.value > 0.5 for one in columns if one.own_departures}
        shares: dict[str, Any] = {name: z[name] for name in members if name in z}
        shares[""], members[""] = 1.0 - sum(shares.values()), ~np.any([*members.values()], axis=0)
        gain: np.ndarray | float = 0.0
        for place, one in enumerate(columns):
            if one.tuned and one.name not in z:
                share = sum(share for arm, share in shares.items() if one.value[members[arm]].any())
                gain = gain + share * self.tuned_values(place, u, v, z)[1]
        return gain

    def tuned_values(
        self, place: int, u: np.ndarray, v: np.ndarray, z: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(best value (D, n), its loss less the loss at value 0 (D, n)) of the tuned column ``place`` at u, v (n,) and
        values ``z`` of arms, (n,) each."""
        columns = self.model.cells.columns
        one = columns[place]
        assert one.tuned
        of = self._coefficients(place)
        b, bend = of[0] + of[1] * u + of[4] * v, of[3]
        own = {crossed(one.name, name): value for name, value in z.items()}
        for k, other in enumerate(columns):
            if (value := own.get(other.name)) is not None:
                of = self._coefficients(k)
                b, bend = b + (of[0] + of[1] * u) * value, bend + of[3] * value
        low, high = one.tuned
        opens = bend > 0.0
        best = b * (-0.5 / np.where(opens, bend, 1.0))
        np.clip(best, low, high, out=best)
        if not opens.all():  # a parabola that opens downwards is least at an end
            at_low, at_high = (b * end + bend * end**2 for end in (low, high))
            best = np.where(opens, best, np.where(at_low < at_high, low, high))
        gain = bend * best
        gain += b
        gain *= best
        return best, gain

    def _coefficients(self, place: int) -> dict[int, np.ndarray]:
        """Coefficients (D, 1) of the further column ``place``, by their place in ``ModelColumn.sds``, nats."""
        columns = self.model.cells.columns
        first = self.model.frame.waves[0] + sum(len(before.kept) for before in columns[:place])
        return dict(zip(columns[place].kept, self.parts["level"][:, first:].T[..., None], strict=False))


Setting = Mapping[str, float]
"""Values of further columns; 0 by default: the first arm, the mean of a covariate."""


class Posterior:
    """Draws of the loss of all cells together, from the nodes of ``weighed``: the same nodes give the same draws.

    grid: (G,) ln L, dense over the depths trained, which it holds, with wider steps outside.
    """

    def __init__(self, cells: Cells, weighed: Sequence[LossForm], seed: int = 0) -> None:
        self.cells, self.weighed, self.seed = cells, weighed, seed
        self.chosen = [one for one in weighed if one.has_draws]
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
        self.levels: dict[tuple, Any] = {}  # polynomials of the best depth's loss by range of sizes and setting

    @classmethod
    def of(cls, cells: Cells, seed: int = 0, draws: int = DRAWS) -> Posterior:
        cells = with_odd_depths(cells, seed)
        return cls(cells, weigh(cells, seed, draws=draws)[0], seed)

    @cached_property
    def forms(self) -> list[Draws]:
        """Draws of each form with weight."""
        with small_matrices():  # a restored fit is drawn by itself
            return [self._drawn(one, k) for k, one in enumerate(self.chosen)]

    def _drawn(self, chosen: LossForm, place: int) -> Draws:
        model = LossModel(self.cells, FORMS[chosen.form], self.frame, self.effect, np.array(chosen.ends))
        rng = np.random.default_rng([self.seed, 7, place])
        normal = antithetic(rng, chosen.counts, model.n_changing + model.X.shape[1])
        rows = model.drawn(chosen.nodes, normal, chosen.counts)
        eta = {name: values.repeat(chosen.counts) for name, values in model.eta(chosen.nodes).items()}
        other = rng.standard_normal((len(rows), self.frame.waves[1]))
        powers, parts = np.unique(eta["p"], return_inverse=True), model.split(rows)
        # as wide as departures move a transition: the sd of their slope in y over the gain at the middle depth
        slope = math.sqrt(3.0) * math.hypot(self.effect.E, self.effect.rough) * np.exp(eta["share"] - eta["len_y"])
        sd = np.minimum(slope / np.maximum(np.abs(parts["law"][:, 2]), 1e-9), LARGEST_MISFIT)
        misfit = sd * np.random.default_rng([self.seed, 13, place]).standard_normal(len(sd))
        scramble = chosen.scrambles.repeat(chosen.counts)
        return Draws(model, eta, powers, parts, scramble, other, misfit, self.grid, self.inside)

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
    def without_effect(self) -> np.ndarray:
        """(D,) True for a draw without an effect of depth."""
        return np.concatenate([np.full(len(one.scramble), not one.model.form.effect) for one in self.forms])

    @cached_property
    def _walks(self) -> list[np.ndarray]:
        """Per form (D, G) Brownian bridges between the depths trained, zero at each and outside them, per √ln L."""
        at = self.grid[self.inside]
        rng = np.random.default_rng([self.seed, 11])
        step = np.sqrt(np.diff(at)) * rng.standard_normal((len(self.scramble), len(at) - 1))
        walk = np.concatenate([np.zeros((len(step), 1)), np.cumsum(step, axis=1)], axis=1)
        known = np.searchsorted(at, self.depths - 1e-9)
        walk -= between(self.depths, walk[:, known], at)
        out = np.zeros((len(walk), len(self.grid)))
        out[:, self.inside] = walk
        return np.split(out, np.cumsum([len(one.scramble) for one in self.forms])[:-1])

    def profile(self, x: float, setting: Setting | None = None) -> np.ndarray:
        """(D, G) effect of depth at x = ln axis, relative to the middle depth, nats; zero in a draw without one.

        Beyond the sizes of the data departures are forgotten over their own length, and all effects of depth decay
        as gains do, which moves no best depth. Beyond the nets trained a law is no steeper than among them.
        """
        key = (x, *sorted((setting or {}).items()))
        if key not in self._profiles:
            found = self._effect(np.full(len(self.grid), x), None)
            if setting:
                found += self._of_setting(np.full(len(self.grid), x), self.grid, setting)
                found -= self._of_setting(np.array([x]), np.array([self.frame.y0]), setting)
            while self._profiles and (len(self._profiles) + 1) * found.size > KEPT:
                del self._profiles[next(iter(self._profiles))]
            self._profiles[key] = found
        return self._profiles[key]

    def _of_setting(self, x: np.ndarray, y: np.ndarray, setting: Setting) -> np.ndarray:
        """(D, n) effect of a setting at x, y (n,), nats; beyond the sizes of the data that at their end."""
        return self.of_columns(np.clip(x, self.frame.low, self.frame.high), y, setting)

    def _effect(self, x: np.ndarray, at: np.ndarray | None) -> np.ndarray:
        """(D, n) ``profile`` at x (n,), inside the sizes and depths of the data, and at places ``at`` (n,) of the grid;
        None: at one size, and on the whole grid."""
        if self.without_effect.all():  # one depth has no bridges
            return np.zeros((self.n_draws, len(x)))
        own = slice(None) if at is None else at
        both = zip(self.forms, self._walks, strict=True)
        return np.concatenate([one.effect(x, at, walk[:, own]) for one, walk in both])

    def level(self, x: np.ndarray, setting: Setting | None = None) -> np.ndarray:
        """(D, n) level common to all depths at x (n,), nats, to which ``profile`` adds. Beyond the sizes of the data
        its asymptote alone goes on, which compares nets there and foretells no loss."""
        found = np.concatenate([one.level(x) for one in self.forms])
        return found + self._of_setting(x, np.full(len(x), self.frame.y0), setting) if setting else found

    def losses(self, x: np.ndarray, y: np.ndarray, setting: Setting | None = None) -> np.ndarray:
        """(D, n) losses of nets at x, y (n,), beyond the sizes and depths of the data too, nats. Between places of the
        grid, which holds the depths trained, they are straight in y. setting: values of further columns; a tuned column
        without one is at the best value of each net."""
        x, y, frame = np.asarray(x, dtype=float), np.asarray(y, dtype=float), self.frame
        inside = (frame.low <= x) & (x <= frame.high) & (frame.first - SAME <= y) & (y <= frame.last + SAME)
        found = np.empty((self.n_draws, len(x)))
        for k in np.flatnonzero(~inside).tolist():
            effect = between(self.grid, self.profile(float(x[k])), y[k : k + 1])
            found[:, k : k + 1] = effect + self.level(x[k : k + 1])
        most, by_size = max(1, MOST_NUMBERS // self.n_draws), np.lexsort((y, x))
        by_size = by_size[inside[by_size]]
        for cut in (by_size[k : k + most] for k in range(0, len(by_size), most)):
            found[:, cut] = self._inside(x[cut], y[cut])
        return found + self._of_setting(x, y, setting) if setting else found

    def _inside(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """``losses`` inside the sizes and depths of the data."""
        after = np.searchsorted(self.grid, y - SAME)
        rows = self._effect(x, after)
        if (off := np.flatnonzero(self.grid[after] - y > SAME)).size:
            right, left = self.grid[after[off]], self.grid[after[off] - 1]
            share = (right - y[off]) / (right - left)
            rows[:, off] += share * (self._effect(x[off], after[off] - 1) - rows[:, off])
        sizes, of = np.unique(x, return_inverse=True)
        rows += self.level(sizes)[:, of]
        return rows

    def of_columns(self, x: np.ndarray, y: np.ndarray, values: Mapping[str, Any]) -> np.ndarray:
        """(D, n) losses of nets at x, y (n,) inside the sizes and depths of the data with further columns at
        ``values``, a number or (n,) each, less the losses without, nats; by at most ``MOST_NUMBERS`` numbers at
        once."""
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        z = {name: np.broadcast_to(np.asarray(value, dtype=float), x.shape) for name, value in values.items()}
        most = max(1, MOST_NUMBERS // self.n_draws)
        found = []
        for cut in (slice(k, k + most) for k in range(0, max(1, len(x)), most)):
            own = {name: value[cut] for name, value in z.items()}
            found.append(np.concatenate([one.of_columns(x[cut], y[cut], own) for one in self.forms]))
        return np.concatenate(found, axis=1)

    def held_out(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``LossModel.held_out`` of the likeliest form at its mean hyperparameters."""
        k = int(np.argmax([len(one.scramble) for one in self.forms]))
        mean = np.average(self.chosen[k].nodes, axis=0, weights=self.chosen[k].counts)
        return self.forms[k].model.held_out(mean)

    def odd(self) -> list[tuple[float, float, float]]:
        """(ln depth, nats by which all its shapes lie above the others, sd) of each odd depth."""
        drawn = np.concatenate([one.parts["odd"] for one in self.forms])
        found = zip(self.cells.odd, drawn.mean(axis=0), drawn.std(axis=0), strict=True)
        return [(y, float(mean), float(sd)) for (y, _), mean, sd in found]


def _times(columns: Sequence[np.ndarray], coefficients: np.ndarray) -> np.ndarray:
    """(D, n) sum of v columns (D, n) times coefficients (D, v)."""
    found = columns[0] * coefficients[:, :1]
    for k, column in enumerate(columns[1:], start=1):
        found += column * coefficients[:, k : k + 1]
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
