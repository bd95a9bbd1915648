"""Nodes of the posterior: hyperparameters by importance sampling, forms by their evidence.

For each form of the model (model.py) shifted lattices through a t a little wider than the normal at the mode of η are
its nodes, with importance weights; if few nodes carry the weight, the t is moved to them. The weights of all nodes of a
form add up to its evidence, so one list of weights weighs forms and η alike. Draws of equal weight are taken within
each of eight scrambles, which are eight independent answers to any question: their spread is its Monte-Carlo error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dwsweep.fit.statistics.model import FORMS, NO_SCATTER, Frame, LossModel, models
from dwsweep.records.cells import SAME, Cells
from dwsweep.records.fit import LossForm

SCRAMBLES = 8
FEW, MANY, MOST = 16, 64, 512  # nodes per scramble of a form: at first, with weight, and at most
TRIES = 7  # most times that a form is sampled anew, each time if the last nodes found weight
ENOUGH = 400.0  # effective nodes of all forms together up to which more are taken
LEAST_SHARE = 0.01  # weight of a form above which it gets more nodes
TEMPER = 0.5  # power to which the evidence of forms counts
DEPTHS_OF_A_CURVE = 4  # depths that remain beside each odd one and the one that it is measured against
SHAPES_OF_A_DEPTH = 3  # fewest shapes that show that a depth is odd, and not a shape
ODD_T, ODD_TRIED = 5.0, 2  # standard errors of an offset by least squares above which a depth is tried, and how many
ODDS = 300.0  # the evidence, by its root as between forms, that makes a depth odd
DRAWS = 1024
LEAST_WEIGHT = 0.01  # weight below which a form is rejected
DIGITS = 6  # significant digits of a node in files
WIDER = 1.15  # scale of the first nodes' normal over the normal at the mode
TAILS = 8.0  # degrees of freedom of the nodes' t
LEAST_ESS = 3.0  # effective nodes per hyperparameter below which weights are tempered
LEAST_POWER = 0.1  # power down to which they are
LEAST_SPREAD = 1e-9  # least spread of the nodes, in units of the normal that gave them
SHRINK = 2.0  # weight of the prior of zero correlations, in effective nodes per hyperparameter
ROUNDS = 12
LONGEST_STEP = 5.0  # of a search for a mode, in units of the root so far
PASSES = 2  # searches for a mode, each linearised where the last one ended
UNBIASED = 0.965  # mean of the standard deviation of eight normal numbers, over the true one
# generating vector of lattices of any power of two up to 2²⁰ (Cools, Kuo and Nuyens 2006, "Constructing embedded
# lattice rules for multivariate integration", the first of exod2_base2_m20); importing Sobol points takes a second
VECTOR = np.array(
    [1, 182667, 469891, 498753, 110745, 446247, 250185, 118627, 245333, 283199, 408519, 391023, 246327, 126539]
)


def newton(
    density: Callable[[np.ndarray], np.ndarray], z: np.ndarray, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(mode (n,), root (n, n)) of a log density: root·rootᵀ is the covariance of the normal at the mode.

    Newton's method by central differences, in units of the root so far: all points of a round are one call. Steps and
    roots are functions of the Hessian alone, and of no choice of its eigenvectors, whose signs the processor decides:
    another one would have other nodes.
    """
    n = len(z)
    pairs = np.array(np.tril_indices(n, -1)).T
    unit = np.eye(n)
    stencil = np.concatenate(
        [np.zeros((1, n)), unit, -unit, np.array([unit[i] + unit[j] for i, j in pairs]).reshape(-1, n)]
    )
    shares = np.array([1.0, 0.5, 0.2, 0.05])
    for _ in range(ROUNDS):
        points = z + stencil @ root.T
        value = density(points)
        here, up, down = value[0], value[1 : n + 1], value[n + 1 : 2 * n + 1]
        H = np.diag(2.0 * here - up - down)
        for (i, j), both in zip(pairs, value[2 * n + 1 :], strict=True):
            H[i, j] = H[j, i] = up[i] + up[j] - here - both
        curvature, axes = np.linalg.eigh(H)
        step = axes @ (axes.T @ (up - down) / 2.0 / np.maximum(curvature, 0.3))
        tried = z + shares[:, None] * (root @ step) * min(1.0, LONGEST_STEP / max(float(np.linalg.norm(step)), 1e-300))
        # at a saddle no step leads up, but a point of the differences may lie higher
        tried, there = np.concatenate([tried, points]), np.concatenate([density(tried), value])
        best = int(there.argmax())
        root = root @ (axes / np.sqrt(np.clip(curvature, 0.15, 8.0))) @ axes.T
        # no direction is wider than its prior, whose sd is 1
        left, wide, right = np.linalg.svd(root)
        root = left @ (np.minimum(wide, 1.2)[:, None] * right)
        if there[best] > here:
            z = tried[best]
        if there[best] - here < 0.02 and curvature.max() < 2.5 and curvature.min() > 0.3:
            break
    return z, root


class Sampler:
    """Nodes of one form. z: (N, n) their standardised η. log_weight: (N,) of the posterior, up to a constant that all
    forms share. scramble: (N,)."""

    z: np.ndarray
    log_weight: np.ndarray
    scramble: np.ndarray

    def __init__(self, model: LossModel, start: np.ndarray, seed: int, passes: int = PASSES) -> None:
        self.model, self.seed = model, seed
        n = len(model.names)
        z, root = start, 0.35 * np.eye(n)
        model.locate(z)
        for _ in range(passes if model.form.effect else 1):
            z, root = newton(model.density, z, root)
            model.locate(z)
        self.mode = z
        self.centre, self.root = z, WIDER * root
        self._sample(FEW)
        self._move()

    def more(self, each: int) -> None:
        """Take ``each`` nodes per scramble around the weight found so far."""
        self._move()
        self._sample(each)

    @property
    def weight(self) -> np.ndarray:
        """(N,) weights, of which the largest is 1."""
        return np.exp(self.log_weight - self.log_weight.max())

    def _move(self) -> None:
        """Centre and shape the normal on the weight of the nodes."""
        t = np.linalg.solve(self.root, (self.z - self.centre).T).T
        n, power = t.shape[1], 1.0
        while True:  # tempered weights: a few heavy nodes do not give a spread
            w = self.weight**power
            if (ess := effective(w)) >= LEAST_ESS * n or power < LEAST_POWER:
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

    def _sample(self, each: int) -> None:
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
        self.z, self.scramble = z, np.repeat(np.arange(SCRAMBLES), each)
        self.log_weight = self.model.density(z) - proposed - middle - math.log(len(t))


def lattice(n: int, dimensions: int, rng: np.random.Generator) -> np.ndarray:
    """(n, dimensions) points in the unit cube, n a power of two: the fractional parts of i·v/n + a shift of ``rng``
    (Cranley and Patterson 1976), v the numbers of ``VECTOR`` in an order of ``rng``: of few points two dimensions may
    share a number, and then do so in one shift and not in another."""
    vector = rng.permutation(VECTOR)[:dimensions]
    even = np.arange(n)[:, None] * (vector % n) % n / n
    return (even + rng.random(dimensions)) % 1.0


def standard_error(answers: np.ndarray) -> np.ndarray:
    """(…) standard error of the answer of all shifts, by the ``answers`` (S, …), S ≥ 2, that each gives alone."""
    return answers.std(axis=0, ddof=1) / (UNBIASED * np.sqrt(len(answers)))


def effective(weight: np.ndarray) -> float:
    """Effective number of nodes of ``weight`` (N,)."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def weigh(
    cells: Cells, seed: int = 0, forms: Sequence[str] = (), draws: int = DRAWS, enough: float = ENOUGH
) -> tuple[tuple[LossForm, ...], float]:
    """Importance nodes of every form with the number of draws of each, and the effective number of all nodes. forms: by
    default all that the depths can tell apart: of two depths every law is a power. enough: effective nodes up to which
    more are taken."""
    samplers: list[Sampler] = []
    start: dict[str, float] = {}
    depths = len(np.unique(cells.y))
    known = ("none",) if depths == 1 else ("power", "free", "none") if depths == 2 else tuple(FORMS)
    for model in models(cells, forms or known).values():
        z = np.array([start.get(name, 0.0) for name in model.names])
        samplers.append(Sampler(model, z, seed))
        start.update(zip(model.names, samplers[-1].mode, strict=True))
    each = dict.fromkeys(range(len(samplers)), FEW)
    left = dict.fromkeys(each, TRIES)
    while True:
        share = _shares(samplers)
        own = [one.weight for one in samplers]
        weight = np.concatenate([part * one / one.sum() for part, one in zip(share, own, strict=True)])
        ess = effective(weight)
        if max(each.values()) == FEW:
            wanted = [k for k, part in enumerate(share) if part > LEAST_SHARE]
        elif ess >= enough:
            break
        else:  # forms with the largest part of 1/ess
            lost = [part**2 / effective(one) for part, one in zip(share, own, strict=True)]
            wanted = [k for k in each if lost[k] > 0.5 / (enough * len(each)) and left[k]]
        if not wanted:
            break
        for k in wanted:
            left[k] -= 1
            each[k] = min(MOST, max(2 * each[k], MANY))
            samplers[k].more(each[k])
    scramble = np.concatenate([one.scramble for one in samplers])
    count = _systematic(weight, scramble, draws, seed)
    counts = np.split(count, np.cumsum([len(one) for one in own])[:-1])
    return tuple(_form(*each) for each in zip(samplers, share, counts, strict=True)), ess


def _form(sampler: Sampler, weight: float, count: np.ndarray) -> LossForm:
    """Record of a form. count: (N,) draws of each node; nodes without a draw are left out."""
    has, model = count > 0, sampler.model
    low, high = model.ends.round(DIGITS).tolist()
    return LossForm(
        form=model.form.name,
        weight=weight,
        rejected=weight < LEAST_WEIGHT or not model.form.effect,
        ends=(low, high),
        names=tuple(model.names),
        nodes=sampler.z[has].round(DIGITS),
        counts=count[has],
        scrambles=sampler.scramble[has],
    )


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
    return float(np.logaddexp.reduce(Sampler(model, np.zeros(len(model.names)), seed, passes=1).log_weight))


def _shares(samplers: Sequence[Sampler]) -> list[float]:
    """Weights of the forms: each is a priori as likely as the others, and evidence between forms in which depth does
    something counts by its root. Evidence assumes that one of the forms is true; if none is true, it prefers one just
    as strongly, and outside the data the wrong one."""
    top = max(float(one.log_weight.max()) for one in samplers)
    evidence = np.array([np.exp(one.log_weight - top).sum() for one in samplers])
    effect = np.array([one.model.form.effect for one in samplers])
    tempered = np.where(effect, evidence**TEMPER, 0.0)
    if effect.any():
        evidence = np.where(effect, tempered / tempered.sum() * evidence[effect].sum(), evidence)
    return (evidence / evidence.sum()).tolist()


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
