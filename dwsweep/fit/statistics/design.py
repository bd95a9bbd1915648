"""Design of a heap: mean losses, the further columns of the posterior, and how large their effects are.

How large effects of a covariate are before the losses are seen is taken from all of them (empirical Bayes): with z the
losses free of a quadratic in ln N and ln L, and S their covariance,

    S = σ²·I + s_d²·K(x, y) + Σ_c s_c²·A_c·A_cᵀ

the restricted likelihood times a prior on ln s is maximised. A column that does nothing gets a scale near zero. The
size of interactions with depth is integrated over, by a prior that reaches to zero (``INTERACT``).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwsweep.fit.data.covariates import D_FF, NUMBER, RATE, TEXT, TOKENS, Covariate
from dwsweep.fit.data.rows import ARM, Row
from dwsweep.fit.data.runs import Run
from dwsweep.fit.statistics.curves import Means, means_of
from dwsweep.fit.statistics.model import PRIORS, UNREPLICATED, Frame, arm_column, covariate, crossed, factor, rate
from dwsweep.records.cells import Cells, ModelColumn, Prior

LEAST_SCALE, TYPICAL_SCALE, SCALE_SD = 1e-4, 0.01, 1.5  # prior of settings' effects: nats, nats, sd of ln
MOST_FOR_SCALES = 240  # most rows used for the scales; more are sampled
FEWEST_ROWS_EACH = 2.0  # rows per further coefficient
LEAST_SCATTER = 1e-3  # sd of the middle's prior, nats
RATE_T = 2.0  # standard errors by which a parabola in ln rate must open upwards
# A heap learns the size of its interactions: the prior keeps the 95 % point of ``PRIORS``, 0.7, and reaches to nothing.
# Interactions of public heaps are 0.3 to 0.6 of the effect of depth under them, 0.03 of simulated heaps without any
INTERACT = Prior(math.log(0.08), 1.3, "ln of E", "as large as in public heaps, or nothing")


@dataclass(frozen=True)
class HeapMeans(Means):
    """Means of runs that agree in depth, size and covariates. columns: covariates (K,). run: (K,) label of the run;
    points: means of each. arms: recipes that are compared, the base first; none for one recipe. arm: (K,) place of each
    mean's arm among them, rising."""

    columns: tuple[Covariate, ...]
    run: np.ndarray
    points: float
    arms: tuple[str, ...]
    arm: np.ndarray

    @property
    def members(self) -> np.ndarray:
        """(K, A) 1 for the means of each arm besides the base."""
        return (self.arm[:, None] == np.arange(1, len(self.arms))).astype(float)


def members_of(rows: Sequence[Row], arms: Sequence[str]) -> np.ndarray:
    """(n, A) 1 for the rows of each of the arms besides the base."""
    return np.array([[float(row.get(ARM) == one) for one in arms[1:]] for row in rows]).reshape(
        len(rows), max(len(arms) - 1, 0)
    )


def heap_means(
    runs: Sequence[Run],
    recipes: Sequence[Hashable],
    columns: Sequence[Covariate],
    declared: float | None,
    arms: tuple[str, ...] = (),
) -> HeapMeans:
    """Means of equal runs. recipes: (n,) of the runs, which no two points of one run differ in. declared: sd of one
    run, nats; None: that of the replicates."""
    arm = members_of([run.row for run in runs], arms) @ np.arange(1.0, max(len(arms), 1))
    block = np.unique([run.block for run in runs], return_inverse=True)[1]
    x, y = np.array([run.x for run in runs]), np.log([float(run.depth) for run in runs])
    values = np.stack([arm, x, y, block, *(one.value for one in columns)], axis=1).round(9)
    first = np.unique(values, axis=0, return_index=True)[1]
    of_run = [*range(4), *(k for k, one in enumerate(columns, start=4) if one.column != "tokens")]
    place = {recipe: k for k, recipe in enumerate(dict.fromkeys(recipes))}
    label = np.column_stack([values[:, of_run], [place[recipe] for recipe in recipes]])[first]
    run = np.unique(label, axis=0, return_inverse=True)[1].ravel()
    points = len(first) / (1.0 + run.max())
    means = means_of(runs, list(map(tuple, values.tolist())), declared, points=points)
    own = tuple(one.at_rows(first) for one in columns)
    return HeapMeans(**vars(means), columns=own, run=run, points=points, arms=arms, arm=arm[first].astype(int))


def points_of_runs(runs: Sequence[Run], means: HeapMeans) -> list[list[int]]:
    """Places of the points of each of the runs behind ``means``, which share its error: runs of one label and seed, of
    which those of one mean are different ones. Each by itself where runs have fewer than two on average: two runs may
    differ in tokens alone."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    times = Counter[tuple[Any, ...]]()
    for k, (run, mean) in enumerate(zip(runs, means.of.tolist(), strict=True)):
        found[means.run[mean], run.seed, times[mean, run.seed]].append(k)
        times[mean, run.seed] += 1
    return list(found.values()) if 2 * len(found) <= len(runs) else [[k] for k in range(len(runs))]


def scales(
    means: HeapMeans, values: Sequence[np.ndarray], frame: Frame, runs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """((C,) scale of each covariate's effects, (2,) or (0,) that of offsets and slopes of runs, sd of a mean about the
    surface), nats, by the restricted likelihood (see the module).

    values: standardised covariates (K,). runs: (2, K, R) offsets and slopes of runs of several points.
    """
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    pick = np.arange(len(means.x))
    if len(pick) > MOST_FOR_SCALES:
        pick = np.sort(rng.choice(pick, MOST_FOR_SCALES, replace=False))
    x, y = means.x[pick], means.y[pick]
    u, v = frame.u(x), frame.v(y)
    members = means.members[pick]
    of_arms = [members, members * u[:, None], members * v[:, None]]
    base = np.hstack([np.stack([np.ones_like(u), u, u * u, v, v * v, u * v], axis=1), *of_arms])
    Q = np.linalg.qr(base, mode="complete")[0][:, base.shape[1] :]
    z = Q.T @ means.mean[pick]
    lengths = (math.exp(PRIORS[name].mean) for name in ("len_x", "len_y"))
    away = sum(((one[:, None] - one) / length) ** 2 for one, length in zip((x, y), lengths, strict=True))
    parts = [np.eye(len(z)), Q.T @ np.exp(-0.5 * away) @ Q]
    parts += [Q.T @ (of_runs[pick] @ of_runs[pick].T) @ Q for of_runs in runs]
    first = len(parts)
    for one, value in zip(means.columns, values, strict=True):
        w = value[pick]
        rate = one.kind == RATE
        A = np.stack([w, (1.0 if rate else 0.4) * u * w, (1.0 if rate else 0.4) * v * w], axis=1)
        if one.kind != TEXT:
            A = np.hstack([A, ((1.0 if rate else 0.5) * (w * w - 1.0))[:, None]])
        A = Q.T @ A
        parts.append(A @ A.T)
    prior = np.full(len(parts), math.log(TYPICAL_SCALE))
    spread = max(float(z.std()), 1e-5)

    def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
        s2 = np.exp(2.0 * theta)
        S = np.tensordot(s2, np.stack(parts), 1) + 1e-10 * np.eye(len(z))
        root = np.linalg.cholesky(S)
        inverse = np.linalg.inv(S)
        a = inverse @ z
        value = 0.5 * float(z @ a) + float(np.log(np.diag(root)).sum())
        slope = np.array([s * (float((inverse * P).sum()) - float(a @ P @ a)) for s, P in zip(s2, parts, strict=True)])
        far = (theta - prior) / SCALE_SD
        far[0] = 0.0
        return value + 0.5 * float(far @ far), slope + far / SCALE_SD

    start = np.full(len(parts), math.log(spread / 2.0))
    bounds = [(math.log(LEAST_SCALE), math.log(max(10.0 * spread, 10.0 * LEAST_SCALE)))] * len(parts)
    found = minimize(negative, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 60}).x
    return np.exp(found[first:]), np.exp(found[2:first]), float(math.exp(found[0]))


def layer_weights(means: HeapMeans) -> float | None:
    """Weights of a layer over d² at the held inner width; None if inner widths are no covariate."""
    inner = next((one for one in means.columns if one.name == D_FF), None)
    if inner is None:
        return None
    order, weights = np.argsort(inner.value), means.x - means.y - 2.0 * np.log(means.width)
    return float(np.exp(np.interp(inner.at, inner.value[order], weights[order])))


def size_at_held(means: HeapMeans) -> np.ndarray:
    """(K,) ln of the size that a net of each depth and width has at the held inner width: of two nets of one depth and
    size, the one with the larger inner width is narrower, and the best learning rate follows the width."""
    held = layer_weights(means)
    return means.x if held is None else means.y + 2.0 * np.log(means.width) + math.log(held)


def best_rates(means: HeapMeans, place: int, others: Sequence[np.ndarray], frame: Frame) -> np.ndarray | None:
    """(3 + A,) β of a first estimate of ln of the best rate, β₀ + β₁u + β₂v with u of ``size_at_held``, and what each
    arm besides the base adds to β₀; None if no parabola opens upwards."""
    u, v, ln = frame.u(size_at_held(means)), frame.v(means.y), means.columns[place].value
    middle, spread = float(ln.mean()), float(ln.std())
    r = (ln - middle) / spread
    of_arms = means.members.T * r
    A = np.stack([np.ones_like(u), u, u * u, v, v * v, u * v, r, r * r, r * u, r * v, *of_arms, *others], axis=1)
    # ridge on the part that follows size, depth and arm: if rates follow too, nothing separates the two
    own = np.arange(8, 10 + len(of_arms))
    ridge = np.eye(A.shape[1])[own]
    size = float(np.std(means.mean - A[:, :6] @ np.linalg.lstsq(A[:, :6], means.mean, rcond=None)[0]))
    beta = np.linalg.lstsq(np.vstack([A, ridge * 0.3]), np.concatenate([means.mean, np.zeros(len(own))]), rcond=None)[0]
    rest = means.mean - A @ beta
    sigma2 = float(rest @ rest) / max(len(rest) - A.shape[1], 1)
    error = math.sqrt(max(means.points * sigma2 * np.linalg.pinv(A.T @ A)[7, 7], 1e-300))
    if beta[7] <= RATE_T * error or size <= 0.0:
        return None
    best = -beta[[6, *own]] / (2.0 * beta[7])
    best[3:] = np.clip(best[0] + best[3:], r.min(), r.max())
    best[0] = np.clip(best[0], r.min(), r.max())
    best[3:] -= best[0]
    reach = max(abs(best[1]) + abs(best[2]), 1e-9)
    best[1:3] *= min(1.0, 2.0 * float(np.abs(r).max()) / reach)
    return spread * best + np.eye(len(best))[0] * middle


# power of tokens in which losses are nearly straight: they fall as D^(−0.095) (Kaplan et al. 2020), D^(−0.28)
# (Hoffmann et al. 2022) or D^(−0.37) (Besiroglu et al. 2024), and the square of the column holds the difference
OF_TOKENS = 0.25


def bent(w: np.ndarray, bend: float) -> np.ndarray:
    """(1 − e^(−b·w))/b of w: with ``bend`` b of a power γ straight in D^(−γ), and of slope 1 at zero."""
    return -np.expm1(-bend * w) / bend if bend else w


@dataclass(frozen=True)
class Term:
    """Covariate in the posterior. of: its values at the means. column: (ln − held)/spread, ``bent`` for tokens, and of
    a learning rate about the best one of each net."""

    of: Covariate
    column: ModelColumn
    spread: float

    @property
    def bend(self) -> float:
        return OF_TOKENS * self.spread if self.of.name == TOKENS else 0.0

    def value(self, ln: np.ndarray | float) -> np.ndarray:
        """Values of logarithms."""
        return bent((np.asarray(ln) - self.of.at) / self.spread, self.bend)

    def ln(self, value: np.ndarray | float) -> np.ndarray:
        """Logarithms of values."""
        w = -np.log1p(-self.bend * np.asarray(value)) / self.bend if self.bend else np.asarray(value)
        return self.of.at + self.spread * w

    def at(self, where: np.ndarray) -> Term:
        """The term at the means ``where``."""
        return replace(self, of=self.of.at_rows(where), column=replace(self.column, value=self.column.value[where]))


@dataclass(frozen=True)
class Design:
    """Columns of the model. terms: of the covariates. others: further columns. rate: β of the best learning rate, None
    without one. shared: (K, R) offsets and slopes of runs of several points, with the ratio of their sizes by a first
    estimate; None without such runs. scatter, of_run: sd of a mean and of a run about the surface by that estimate,
    nats."""

    terms: tuple[Term, ...]
    others: tuple[ModelColumn, ...]
    rate: np.ndarray | None
    shared: np.ndarray | None
    scatter: float
    of_run: float

    @property
    def tokens(self) -> Term | None:
        """The term of the tokens, if runs differ in them."""
        return next((term for term in self.terms if term.of.name == TOKENS), None)


def design_of(means: HeapMeans, frame: Frame) -> Design:
    """The further columns of the posterior, with their scales."""
    values, spreads, best = [], [], None
    kinds = list(means.columns)
    for place, one in enumerate(kinds):
        others = [*means.members.T, *(two.value for k, two in enumerate(kinds) if k != place)]
        curve = best_rates(means, place, others, frame) if one.kind == RATE else None
        if one.kind == RATE and curve is None:  # no best rate is visible: hold it like other settings
            kinds[place] = one = replace(one, kind=NUMBER)
        spread = 1.0 if one.kind == TEXT else float(one.value.std())
        value = one.value - one.at
        if curve is not None:
            best = curve[:3]
            value = one.value - curve[0] - curve[1] * frame.u(size_at_held(means)) - curve[2] * frame.v(means.y)
            value = value - means.members @ curve[3:]
            for own in (means.arm == arm for arm in range(len(means.arms))):
                if not np.ptp(one.value[own]):  # losses of an arm with one rate, or none, are what they are
                    value = np.where(own, 0.0, value)
        values.append(bent(value / spread, OF_TOKENS * spread if one.name == TOKENS else 0.0))
        spreads.append(spread)
    means = replace(means, columns=tuple(kinds))
    runs = effects_of_runs(means, values)
    sizes, of_runs, scatter = scales(means, values, frame, runs)
    shared = np.hstack(runs * (of_runs / of_runs[0])[:, None, None]) if len(runs) else None
    terms = []
    for one, value, size, spread in zip(kinds, values, sizes, spreads, strict=True):
        name = f"{one.name} {one.level}".strip()
        if one.kind == RATE:
            column = rate(name, value, 1.5 * size)
        else:
            column = (factor if one.kind == TEXT else covariate)(name, value, 1.5 * size, moves_depth=True)
        terms.append(Term(one, column, spread))
    more = [arm_column(name, member, means.x) for name, member in zip(means.arms[1:], means.members.T, strict=True)]
    more += [  # recipes may profit from a number, each in its own way, and have best rates of their own
        covariate(crossed(term.column.name, arm.name), arm.value * term.column.value, term.column.sds[0])
        for arm in more
        for term in terms
        if term.of.kind == NUMBER or (term.of.kind == RATE and np.ptp(term.of.value[arm.value > 0.0]))
    ]
    design = Design(tuple(terms), tuple(more), best, shared, scatter, math.hypot(scatter, *of_runs[:1]))
    if tokens := design.tokens:  # recipes may profit from tokens, each in its own way
        both = [(term.column, min(term.column.sds[0], tokens.column.sds[0])) for term in terms if term.of.kind == TEXT]
        own = [
            factor(crossed(one.name, TOKENS), one.value * tokens.column.value, size, moves_depth=True)
            for one, size in both
        ]
        return replace(design, others=(*own, *more))
    return design


def effects_of_runs(means: HeapMeans, values: Sequence[np.ndarray]) -> np.ndarray:
    """(2, K, R) what the points of one run share over token counts: an offset, and a slope in ln tokens; (0, K, 0)
    without such runs."""
    count = np.bincount(means.run)
    if not (count > 1).any():
        return np.zeros((0, len(means.x), 0))
    member = (means.run[:, None] == np.flatnonzero(count > 1)).astype(float)
    t = next(value for one, value in zip(means.columns, values, strict=True) if one.column == "tokens")
    t = t - t.mean()
    return np.stack([member, member * t[:, None]])


def cells_of(means: HeapMeans, design: Design, levels: np.ndarray | float = 0.0) -> Cells:
    """Cells of the posterior. levels: (A,) sd of an error that all losses of an arm share, nats."""
    # start of the search for the mode: heaps scatter by 0.001 to 0.1 nats
    scatter = Prior(math.log(max(design.scatter, LEAST_SCATTER)), UNREPLICATED.sd, "ln nats", "by a first estimate")
    found = means.cells
    return replace(
        found,
        factors=np.hstack([found.factors, means.members * levels]),
        df=found.df if means.noise.sigma else 0.0,  # equal losses of runs that repeat show no noise
        scatter=scatter,
        columns=(*(term.column for term in design.terms), *design.others),
        shared=design.shared,
        learnt={"interact": INTERACT},
    )
