"""Posterior of the loss: hyperparameters on importance nodes, draws of equal weight, Monte-Carlo errors.

For each form of the model (model.py) Newton's method by differences finds the mode of η. Shifted lattices through a
normal a little wider than the one at the mode are its nodes, with importance weights; if few nodes carry the weight,
the normal is moved to them. The weights of all nodes of a form add up to its evidence, so one list of weights
weighs forms and η alike. Forms that matter get more nodes.

Draws are taken from the nodes in proportion to the weights, by systematic resampling inside each scramble. Every draw
then counts the same, and the eight scrambles are eight independent answers to any question: their spread is its
Monte-Carlo error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dwsweep.fit.course import Course, sizes_of
from dwsweep.fit.lattice import lattice
from dwsweep.fit.model import (
    FORMS,
    NO_SCATTER,
    SAME,
    Cells,
    Effect,
    Frame,
    Law,
    Model,
    asymptotic,
    decay,
    models,
)
from dwsweep.fit.one_thread import one_thread

SCRAMBLES = 8
FEW, MANY, MOST = 16, 64, 512  # nodes per scramble of a form: at first, with weight, and at most
AGAIN = 3  # most times that a form is sampled at the most nodes, each time if the last nodes found weight
ENOUGH = 400.0  # effective nodes of all forms together up to which more are taken
LEAST_SHARE, MUCH = 0.01, 0.1  # weights of a form above which it gets more nodes, or many
TEMPER = 0.5  # power to which the evidence of forms counts
DEPTHS_OF_A_CURVE = 4  # depths that remain beside each odd one and the one that it is measured against
SHAPES_OF_A_DEPTH = 3  # fewest shapes that show that a depth is odd, and not a shape
ODD_T, ODD_TRIED = 5.0, 2  # standard errors of an offset by least squares above which a depth is tried, and how many
ODDS = 300.0  # the evidence, by its root as between forms, that makes a depth odd
DRAWS = 1024
DIGITS = 6  # significant digits of a node in files
WIDER = 1.15  # scale of the first nodes' normal over the normal at the mode
TAILS = 8.0  # degrees of freedom of the nodes' t
LEAST_ESS, LEAST_POWER = (
    3.0,
    0.1,
)  # effective nodes per hyperparameter below which weights are tempered, down to a power
LEAST_SPREAD = 1e-9  # least spread of the nodes, in units of the normal that gave them
SHRINK = 2.0  # weight of the prior of zero correlations, in effective nodes per hyperparameter
ROUNDS, MOVES = 12, 1
PASSES = 2  # searches for a mode, each linearised where the last one ended
BRIDGE = 0.1  # sd of the loss between trained depths if no shape measures it, in e^share·E per √ln L
INSIDE, OUTSIDE = 61, 12  # points of the grid of depths, inside those trained and on either side
DEEPEST_FACTOR = 64.0  # the grid's deepest point over the deepest net
MISFIT_POINTS, LARGEST_MISFIT = 9, 3.0
MISFIT_FROM = 0.5  # distance in ln N beyond the sizes above which the misfit of a form counts in full
MOST_NUMBERS = 500_000  # most losses that are computed at once: what a processor keeps near
NEARBY = 4.0  # factor beyond the depths trained up to which a best depth counts in the course of the loss
KEPT = 6_000_000  # most numbers of profiles that are kept: some thirty sizes of a heap


@dataclass(frozen=True)
class Nodes:
    """Hyperparameters of one form. ends: x_T about which it is linearised. z: (N, n) standardised η. log_weight: (N,)
    of the posterior, up to a constant that all forms share. scramble: (N,)."""

    form: str
    ends: tuple[float, float]
    z: np.ndarray
    log_weight: np.ndarray
    scramble: np.ndarray

    @property
    def ess(self) -> float:
        """Effective number of nodes."""
        w = np.exp(self.log_weight - self.log_weight.max())
        return float(w.sum() ** 2 / (w**2).sum())


@dataclass(frozen=True)
class Chosen:
    """Nodes of one form that have draws: z (N, n), their counts (N,) of draws, the scramble (N,) of each."""

    form: str
    ends: tuple[float, float]
    z: np.ndarray
    count: np.ndarray
    scramble: np.ndarray

    def scatter(self, cells: Cells) -> float:
        """Scatter between shapes, nats: the median of the draws."""
        names = Model.names_of(cells, FORMS[self.form])
        z = np.repeat(self.z[:, names.index("scatter")], self.count)
        return float(math.exp(cells.scatter.mean + cells.scatter.sd * np.median(z)))


@dataclass(frozen=True)
class Weighed:
    """Sums over importance nodes. chosen: nodes with draws. weights: form → its posterior probability. ess:
    effective number of nodes, 1/Σw²."""

    chosen: tuple[Chosen, ...]
    weights: dict[str, float]
    ess: float


def newton(
    density: Callable[[np.ndarray], np.ndarray], z: np.ndarray, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(mode (n,), root (n, n)) of a log density: root·rootᵀ is the covariance of the normal at the mode.

    Newton's method by central differences, in units of the root so far: all points of a round are one call.
    """
    n = len(z)
    pairs = np.array(np.tril_indices(n, -1)).T
    unit = np.eye(n)
    stencil = np.concatenate(
        [np.zeros((1, n)), unit, -unit, np.array([unit[i] + unit[j] for i, j in pairs]).reshape(-1, n)]
    )
    shares = np.array([1.0, 0.5, 0.2, 0.05])
    for _ in range(ROUNDS):
        value = density(z + stencil @ root.T)
        here, up, down = value[0], value[1 : n + 1], value[n + 1 : 2 * n + 1]
        H = np.diag(2.0 * here - up - down)
        for (i, j), both in zip(pairs, value[2 * n + 1 :], strict=True):
            H[i, j] = H[j, i] = up[i] + up[j] - here - both
        curvature, axes = np.linalg.eigh(H)
        slope = axes.T @ (up - down) / 2.0
        step = root @ axes @ np.clip(slope / np.maximum(curvature, 0.3), -2.5, 2.5)
        tried = z + shares[:, None] * step
        there = density(tried)
        best = int(there.argmax())
        root = root @ axes / np.sqrt(np.clip(curvature, 0.15, 8.0))
        # no direction is wider than its prior, whose sd is 1
        root = root * np.minimum(1.0, 1.2 / np.linalg.norm(root, axis=0))
        if there[best] > here:
            z = tried[best]
        if there[best] - here < 0.02 and curvature.max() < 2.5 and curvature.min() > 0.3:
            break
    return z, root


class Sampler:
    """The nodes of one form."""

    def __init__(self, model: Model, start: np.ndarray, seed: int, passes: int = PASSES) -> None:
        self.model, self.seed = model, seed
        n = len(model.names)
        z, root = start, 0.35 * np.eye(n)
        model.locate(z)
        for _ in range(passes if model.form.effect else 1):
            z, root = newton(model.density, z, root)
            model.locate(z)
        self.mode = z
        self.centre, self.root = z, WIDER * root
        for _ in range(MOVES):
            self.nodes = self._sampled(FEW)
            self._move()

    def more(self, each: int) -> None:
        """Take ``each`` nodes per scramble around the weight found so far."""
        self._move()
        self.nodes = self._sampled(each)

    def _move(self) -> None:
        """Centre and shape the normal on the weight of the nodes."""
        t = np.linalg.solve(self.root, (self.nodes.z - self.centre).T).T
        n = t.shape[1]
        log_weight, power = self.nodes.log_weight - self.nodes.log_weight.max(), 1.0
        while True:  # tempered weights: a few heavy nodes do not give a spread
            w = np.exp(power * log_weight)
            ess = float(w.sum() ** 2 / (w**2).sum())
            if ess >= LEAST_ESS * n or power < LEAST_POWER:
                break
            power /= 2.0
        w /= w.sum()
        mean = w @ t
        covariance = ((t - mean) * w[:, None]).T @ (t - mean)
        # one node with all the weight gives no spread and no direction
        sds = np.sqrt(np.maximum(np.diag(covariance), LEAST_SPREAD**2))
        correlation = covariance / np.outer(sds, sds) * ess / (ess + SHRINK * n)
        np.fill_diagonal(correlation, 1.0)
        sds = np.clip(sds, 0.5, 2.0)
        self.centre = self.centre + self.root @ mean
        self.root = self.root @ (sds[:, None] * np.linalg.cholesky(correlation))

    def _sampled(self, each: int) -> Nodes:
        from scipy.special import gammaincinv, ndtri

        n = len(self.centre)
        cube = [lattice(each, n + 1, np.random.default_rng([self.seed, k])) for k in range(SCRAMBLES)]
        cube = np.clip(np.concatenate(cube), 1e-6, 1.0 - 1e-6)
        # a Student t: the posterior of a scale has a long tail towards zero
        spread = np.sqrt(TAILS / (2.0 * gammaincinv(TAILS / 2.0, cube[:, n])))
        t = ndtri(cube[:, :n]) * spread[:, None]
        z = self.centre + t @ self.root.T
        proposed = -0.5 * (TAILS + n) * np.log1p((t**2).sum(axis=1) / TAILS) - np.linalg.slogdet(self.root)[1]
        middle = math.lgamma((TAILS + n) / 2.0) - math.lgamma(TAILS / 2.0) - 0.5 * n * math.log(TAILS / 2.0)
        log_weight = self.model.density(z) - proposed - middle - math.log(len(t))
        ends = (float(self.model.ends[0]), float(self.model.ends[1]))
        return Nodes(self.model.form.name, ends, z, log_weight, np.repeat(np.arange(SCRAMBLES), each))


def weigh(
    cells: Cells,
    seed: int = 0,
    forms: Sequence[str] = (),
    draws: int = DRAWS,
    enough: float = ENOUGH,
    many: int = MANY,
    per_node: int = 1,
    passes: int = PASSES,
) -> Weighed:
    """Importance nodes of every form, and the number of draws of each. forms: by default all that the depths can tell
    apart: of two depths every law is a power. enough: effective nodes up to which more are
    taken. many: nodes per scramble of a form with much weight, from the second time it is sampled. per_node: least
    number of draws of a node that has any; ``draws`` is a multiple of it. passes: see ``PASSES``."""
    samplers: list[Sampler] = []
    start: dict[str, float] = {}
    depths = len(np.unique(cells.y))
    known = ("none",) if depths == 1 else ("power", "free", "none") if depths == 2 else tuple(FORMS)
    for model in models(cells, forms or known).values():
        z = np.array([start.get(name, 0.0) for name in model.names])
        samplers.append(Sampler(model, z, seed, passes))
        start.update(zip(model.names, samplers[-1].mode, strict=True))
    each = dict.fromkeys(range(len(samplers)), FEW)
    left = dict.fromkeys(each, AGAIN)  # times left that a form may be sampled at its most nodes
    while True:
        nodes = [one.nodes for one in samplers]
        share = _shares(nodes)
        weight = _weights(nodes, share)
        ess = float(1.0 / (weight**2).sum())
        if max(each.values()) == FEW:
            wanted = [k for k, part in enumerate(share) if part > LEAST_SHARE]
        elif ess >= enough:
            break
        else:  # forms with the largest part of 1/ess
            lost = [part**2 / one.ess for part, one in zip(share, nodes, strict=True)]
            wanted = [k for k in each if lost[k] > 0.5 / (enough * len(each)) and left[k]]
        if not wanted:
            break
        for k in wanted:
            left[k] -= each[k] == MOST
            each[k] = min(MOST, max(2 * each[k], many if share[k] > MUCH else 0))
            samplers[k].more(each[k])
    scramble = np.concatenate([one.scramble for one in nodes])
    count = per_node * _systematic(weight, scramble, draws // per_node, seed)
    chosen, at = [], 0
    for one in nodes:
        own = slice(at, at + len(one.z))
        at += len(one.z)
        has = count[own] > 0
        if has.any():
            z = one.z[has].round(DIGITS)
            ends = (round(one.ends[0], DIGITS), round(one.ends[1], DIGITS))
            chosen.append(Chosen(one.form, ends, z, count[own][has], one.scramble[has]))
    return Weighed(tuple(chosen), dict(zip((one.form for one in nodes), share, strict=True)), ess)


def with_odd_depths(cells: Cells, seed: int = 0) -> Cells:
    """``cells`` with the depths named whose shapes all lie off the others (``Cells.odd``): for each the evidence of the
    form without a law is ``ODDS`` times as much with an offset of its own. Least squares choose which are tried."""
    (depths, at), frame = np.unique(cells.y, return_inverse=True), Frame.of(cells.x, cells.y)
    u, v = frame.u(cells.x), frame.v(cells.y)
    smooth = [np.ones_like(u), u, u * u, u**3, v, v * v, v**3, u * v, u * v * v, u * u * v]
    columns = np.hstack([np.stack(smooth, axis=1), *(one.columns(one.value, u, v) for one in cells.columns)])
    known = None
    while len(cells.odd) < (len(depths) - DEPTHS_OF_A_CURVE) // 2:
        tried = []
        for y in depths[np.bincount(at) >= SHAPES_OF_A_DEPTH]:
            own = [np.abs(cells.y - one) < SAME for one in (*(one for one, _ in cells.odd), y)]
            A = np.hstack([columns, np.stack(own, axis=1)])
            found, _, rank, _ = np.linalg.lstsq(A, cells.mean, rcond=1e-9)
            if rank == A.shape[1] < len(A):
                away = cells.mean - A @ found
                root = np.asarray(np.linalg.qr(A, mode="r"))
                sd = math.sqrt(away @ away / (len(A) - rank)) / abs(float(root[-1, -1]))
                tried.append((abs(found[-1]) / max(sd, NO_SCATTER), float(y), abs(float(found[-1]))))
        more = [replace(cells, odd=(*cells.odd, (y, sd))) for t, y, sd in sorted(tried)[-ODD_TRIED:] if t > ODD_T]
        if not more:
            break
        known = _evidence(cells, seed) if known is None else known
        gain, best = max(((_evidence(one, seed), one) for one in more), key=lambda one: one[0])
        if TEMPER * (gain - known) < math.log(ODDS):
            break
        cells, known = best, gain
    return cells


def _evidence(cells: Cells, seed: int) -> float:
    """ln of the evidence of the form without a law, up to a constant of the table."""
    model = models(cells, ("free",))["free"]
    nodes = Sampler(model, np.zeros(len(model.names)), seed, passes=1).nodes
    return float(np.logaddexp.reduce(nodes.log_weight))


def _shares(nodes: Sequence[Nodes]) -> list[float]:
    """Weights of the forms: each is a priori as likely as the others, and evidence between forms in which depth does
    something counts by its root. Evidence assumes that one of the forms is true; if none is true, it prefers one just
    as strongly, and outside the data the wrong one."""
    top = max(float(one.log_weight.max()) for one in nodes)
    evidence = np.array([np.exp(one.log_weight - top).sum() for one in nodes])
    effect = np.array([FORMS[one.form].effect for one in nodes])
    tempered = np.where(effect, evidence**TEMPER, 0.0)
    if effect.any():
        evidence = np.where(effect, tempered / tempered.sum() * evidence[effect].sum(), evidence)
    return (evidence / evidence.sum()).tolist()


def _weights(nodes: Sequence[Nodes], share: Sequence[float]) -> np.ndarray:
    """(N,) weights of all nodes: the weights of a form add up to its share."""
    own = [np.exp(one.log_weight - one.log_weight.max()) for one in nodes]
    return np.concatenate([part * w / w.sum() for part, w in zip(share, own, strict=True)])


def _systematic(weight: np.ndarray, scramble: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """(N,) counts of draws in proportion to ``weight``: within each scramble at even steps of the running sum."""
    count = np.zeros(len(weight), dtype=int)
    own = np.array([weight[scramble == k].sum() for k in range(SCRAMBLES)])
    exact = draws * own / own.sum()
    # scrambles of a good proposal weigh about the same: a heavier one gets more draws
    edges = np.round(np.cumsum(np.concatenate([[0.0], exact]))).astype(int)
    start = np.random.default_rng([seed, 99]).random(SCRAMBLES)
    for k in range(SCRAMBLES):
        places, n = np.flatnonzero(scramble == k), int(edges[k + 1] - edges[k])
        if n:
            running = np.cumsum(weight[places]) / own[k]
            picked = np.searchsorted(running, (np.arange(n) + start[k]) / n)
            count[places] += np.bincount(np.minimum(picked, len(places) - 1), minlength=len(places))
    return count


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
