"""Heap of runs: best depths from a table whose runs differ in more than depth and size.

Each row (or group of equal rows) is a mean loss of the posterior with a further column for each covariate
(``data.covariates``): a value of zero is the held one, so that every answer of the surface holds there. A learning rate
is a parabola, and each draw is evaluated at its lowest point.

How large effects of a covariate are before the losses are seen is taken from all of them (empirical Bayes): with z the
losses free of a quadratic in ln N and ln L, and S their covariance,

    S = σ²·I + s_d²·K(x, y) + Σ_c s_c²·A_c·A_cᵀ

the restricted likelihood times a prior on ln s is maximised. A column that does nothing gets a scale near zero. The
size of interactions with depth is integrated over, by a prior that reaches to zero (``INTERACT``), and so is the size
of departures from the forms of a law if nets count at their best learning rates (``SHARE``). The scatter of runs is
estimated for each value of a text if these differ (F test).

The loss that cells, pairs and figures show is the run's own less the mean effect of its covariates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument, example
from dwsweep.fit import ask
from dwsweep.fit.cells import LARGEST_SHARE, beyond_all
from dwsweep.fit.data import covariates as found_in
from dwsweep.fit.data.covariates import D_FF, HEAD_SIZE, NUMBER, RATE, TEXT, TOKENS, Covariate, Covariates
from dwsweep.fit.data.rows import Row, no_loss, why_no_loss
from dwsweep.fit.data.shape import BLOCK, n_params_of
from dwsweep.fit.data.table import Table
from dwsweep.fit.equal_what import Budget, Runs, equal_what, near, spent_by_all
from dwsweep.fit.lengths import FARTHEST, TrainedBudgets, token_groups
from dwsweep.fit.model import UNREPLICATED, Cells, Column, Frame, Prior, covariate, factor, rate
from dwsweep.fit.posterior import Posterior
from dwsweep.fit.unadjusted import unadjusted
from dwsweep.interval import Interval
from dwsweep.records.adjusted import AdjustedColumn, Adjustment, BestRate, DepthAfter, DepthHeld, Reading
from dwsweep.records.fit import FitOptions, LeftOutRows, Surface
from dwsweep.text import NATS, SHORT, format_count, join

LEAST_SCALE, TYPICAL_SCALE, SCALE_SD = 1e-4, 0.01, 1.5  # prior of settings' effects: nats, nats, sd of ln
MOST_FOR_SCALES = 240  # most rows used for the scales; more are sampled
LENGTH_X, LENGTH_Y = 2.5, 0.8  # correlation lengths of departures, in ln N and ln L
ONE_VARIABLE = 0.95  # |r| above which two columns are inseparable: variance is inflated tenfold
MOVES = 0.1  # shift of ln L by another common value above which it is mentioned
WIDER = 1.5  # widening of the interval by a held column above which the two are inseparable
NOISIER = 2.0  # ratio of two text values' scatters above which each value has its own scatter
LEAST_F = 0.01  # probability of the F test
FEWEST_ROWS_EACH = 2.0  # rows per further coefficient
BUDGETS_APART = 2.0  # largest over smallest budget of compute above which budgets show the effect of tokens
CURVE_POINTS = 25
TOKEN_SHARES = (0.0, 0.5, 1.0)  # quantiles of the tokens at which best depths are told, if there are many counts
LEAST_SHARED = 2.0  # last over first token count shared by a text's values that are compared there
LEAST_SCATTER = 1e-3  # sd of the middle's prior, nats
RATE_T = 2.0  # standard errors by which a parabola in ln rate must open upwards
FAR_Z = 8.0  # standard deviations from the prediction at which a run is impossible
# draws of a node, two antithetic pairs. Where the loss hardly changes with depth an end of an interval is the 97.5 % of
# a long tail: in the heap of proteins, 33.6 layers at 16M, moved by 3.6 with the seed by one draw of a node, and by 1.6
# by four, which cost a tenth of the time of that fit, and a second where rates differ
TIMES = 4
ROUNDS = 3  # rounds of fits, between which impossible runs are left out
# Sizes that a heap learns: these priors keep the 95 % points of ``PRIORS``, 0.7 and 0.4, and reach down to nothing.
# Interactions of public heaps are 0.3 to 0.6 of the effect of depth under them, 0.03 of simulated heaps without any
INTERACT = Prior(math.log(0.08), 1.3, "ln of E", "as large as in public heaps, or nothing")
# Departures, if each net counts at its best learning rate. A rate that is not transferred over depth costs nets 12 to
# 34 % of their compute (Dey et al. 2025): departures of public sweeps, which have one rule for their rates, hold such
# costs. No other setting changes their prior, so that an idle column leaves the answer as it is. By a median of 0.05
# and an sd of 1.25 intervals were 3 to 5 % narrower, and held 90 and not 94 % of 120 drawn truths of 40 runs
SHARE = Prior(math.log(0.08), 1.0, "ln of S", "as large as in public sweeps, or nothing")


@dataclass(frozen=True)
class Heap:
    """``data``: the table with each loss moved to the held values. surface: the posterior at these. record: the
    adjustment."""

    data: Table
    surface: Surface | None
    record: Adjustment


def heap_of(data: Table, options: FitOptions, trained: TrainedBudgets | None = None) -> Heap | None:
    """Heap in a table; None if its runs differ only in depth, size, seed and columns of a grid.

    trained: budgets of compute that all runs were trained to: tokens then follow from the shape, and are no setting.

    Raises:
        InputError: an option names a column that is no setting, or a value that the table does not have.
    """
    asked = found_in.request(options.adjust, options.no_adjust, dict(options.at), data.theirs, data.columns)
    if options.at_tokens is not None:
        if TOKENS in asked.at:
            asked_twice = f"{argument('at_tokens')}: {options.at_tokens:g}"
            raise InputError(f"{asked_twice}; not allowed with {argument('at')} tokens=…")
        more = {TOKENS: "tokens"} if "tokens" in data.columns else {}
        asked = replace(asked, at={TOKENS: options.at_tokens, **asked.at}, adjust={**more, **asked.adjust})
    explicit = bool(asked.adjust)
    if (data.directory and not explicit) or options.axis != "n_params":
        if explicit and options.axis != "n_params":
            both = f"{argument('adjust')} and {argument('at')}"
            raise InputError(f"{argument('axis')}: {options.axis}; allowed with {both}: n_params")
        return None
    budget = spent_by_all(data.rows, {ours: theirs for theirs, ours in data.theirs.items()}, trained)
    if budget and TOKENS in asked.adjust:
        raise InputError(
            f"{argument('adjust', '--adjust')}: 'tokens'; runs were trained at equal compute, so that tokens follow "
            "from the shape; adjusting for them would remove a part of the effect of depth"
        )
    rows, out = _usable(trained.rows[trained.main] if budget and trained else data.rows)
    if len(rows) < ask.FEWEST_CELLS:
        return None
    if others := len(data.rows) - len(rows) - sum(out.values()):
        out[f"were trained to other values of {trained.axis if trained else 'time'}"] = others
    x, y = _places(rows)
    swept = found_in.swept_rates(rows)
    curved = len(token_groups(rows)) > 1 or any("curve_of_run" in row for row in rows)

    def usual(name: str) -> bool:
        if name == TOKENS:
            return not budget and not curved
        return not (name == found_in.LEARNING_RATE and swept)

    unknown = found_in.unknown_numbers(rows, data.settings)
    found = found_in.find(rows, x, y, asked, usual, unknown)
    if not found.columns:
        return None
    if curved and not budget:  # counts of tokens alone make no heap, but none pools runs of several
        found = found_in.find(rows, x, y, asked, lambda name: name == TOKENS or usual(name), unknown)
    if trained and len(trained.rows) > 1 and max(trained.rows) >= BUDGETS_APART * min(trained.rows):
        # two budgets give a net two token counts, which show the effect of tokens: all rows count
        every, why = _usable(data.rows)
        unknown = found_in.unknown_numbers(every, data.settings)
        all_of = found_in.find(every, *_places(every), asked, lambda name: name == TOKENS or usual(name), unknown)
        if any(one.name == TOKENS for one in all_of.columns):
            found, out, budget = all_of, why, None
    x, y = _places(found.rows)
    sizes, depths = ask.distinct_sizes(x), len(np.unique(y))
    enough = len(found.rows) >= ask.FEWEST_CELLS + FEWEST_ROWS_EACH * len(found.columns)
    if sizes < ask.FEWEST_SIZES or depths < ask.FEWEST_DEPTHS or not enough or _one_variable(x, y):
        return None
    _refuse_unknown(data, found, asked.leave)
    return _fitted(data, options, found, x, y, out, budget)


def over_tokens(data: Table, options: FitOptions) -> Heap | None:
    """The heap at the tokens that ``options`` ask for, where runs of many lengths lie on one surface over ln tokens;
    None if not requested, if runs are measured near those tokens, or if they have one length."""
    if options.at_tokens is None or TOKENS in options.no_adjust or data.directory:
        return None
    counts = [float(row["tokens"]) for row in data.rows if found_in.positive(row.get("tokens"))]
    far = [count for count in counts if abs(math.log(count / options.at_tokens)) > FARTHEST]
    if TOKENS not in options.adjust and not far:  # read losses near those tokens, or move them by published laws
        return None
    heap = heap_of(data, options)
    return heap if heap and any(one.column == TOKENS for one in heap.record.columns) else None


def check_answered(data: Table, options: FitOptions, heap: Heap | None) -> None:
    """Check that losses are adjusted for every column that ``options.adjust`` and ``options.at`` name.

    Raises:
        InputError: they are not: the answer would be for another value than the requested one.
    """
    asked = found_in.request(options.adjust, (), dict(options.at), data.theirs, data.columns)
    adjusted = {one.column for one in heap.record.columns} if heap else set()
    following = set(heap.record.follow) if heap else set()
    for word, column in asked.adjust.items():
        values = {row.get(column) for row in data.rows} - {None}
        held = asked.at.get(word)
        same = next(iter(values)) if len(values) == 1 else None
        if column in adjusted or (held is None and (same is not None or word in following)) or _alike(held, same):
            continue
        why, allowed = _why_unadjusted(data, word), example("where=...", "--where")
        if same is not None:
            why, allowed = f"every run has {_shown(same)}", f"{word}={_shown(same)}"
        elif word == TOKENS:
            allowed = argument("at_tokens")
        option, given = ("adjust", repr(word)) if held is None else ("at", f"{word}={_shown(held)}")
        raise InputError(f"{argument(option)}: {given}; {why}; allowed: {allowed}")


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _alike(held: Any, same: Any) -> bool:
    """True if ``held`` is the value of all runs."""
    numbers = [found_in.number_of("", {"": value}, [""]) for value in (held, same)]
    if None in numbers:
        return same is not None and str(held) == str(same)
    low, high = sorted(float(number or 0.0) for number in numbers)
    return high <= low * found_in.SAME_NUMBER


def _why_unadjusted(data: Table, word: str) -> str:
    """Reason why the losses of a table are not adjusted for a column that varies."""
    rows, _ = _usable(data.rows)
    x, y = _places(rows)
    found = {"runs": len(rows), "sizes": ask.distinct_sizes(x) if rows else 0, "depths": len(np.unique(y))}
    needed = {"runs": ask.FEWEST_CELLS, "sizes": ask.FEWEST_SIZES, "depths": ask.FEWEST_DEPTHS}
    if few := [name for name, least in needed.items() if found[name] < least]:
        lacks = join(f"{found[name]} {name} of the {needed[name]} needed" for name in few)
        return f"losses are not adjusted, for the table has {lacks}"
    return f"losses are not adjusted for {word}: it follows from depth and size, or too few runs have other values"


def _one_variable(x: np.ndarray, y: np.ndarray) -> bool:
    """True if the depth follows from the size."""
    return found_in.share_left(y, found_in.quadratic(x, y)[:, [0, 1, 3]]) < found_in.LEAST_OWN / 2.0


def _usable(rows: Sequence[Row]) -> tuple[list[Row], dict[str, int]]:
    """Rows with a loss, and reasons why others have none."""
    kept: list[Row] = []
    out: dict[str, int] = defaultdict(int)
    for row in rows:
        reason = why_no_loss(row)
        loss = row.get("loss")
        size = n_params_of(row)
        if reason:
            out[no_loss(reason)] += 1
        elif not 0.0 < size < math.inf:
            out["have no n_params"] += 1
        elif str(row.get("status")).lower() == "diverged" or loss is None or not math.isfinite(loss):
            out["are of runs that diverged"] += 1
        else:
            kept.append(row)
    bad = {place for place, _, _ in beyond_all([float(row["loss"]) for row in kept])}
    if bad:
        out["have an impossible loss"] += len(bad)
        kept = [row for k, row in enumerate(kept) if k not in bad]
    return kept, dict(out)


def _places(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """(ln N, ln L) of rows."""
    return np.log([n_params_of(row) for row in rows]), np.log([float(row["depth"]) for row in rows])


def _refuse_unknown(data: Table, found: Covariates, left: Collection[str]) -> None:
    """Refuse a heap in which an unknown setting distinguishes rows of one shape and is neither adjusted for nor
    ``left`` out by the user."""
    from dwsweep.fit.data.settings import one_recipe

    taken = {one.column for one in found.columns}
    unknown = [name for name in data.settings if name not in taken and found_in.word_of(name) not in left]
    unknown = [name for name in unknown if not found_in.is_date({row.get(name) for row in found.rows} - {None})]
    if not unknown:
        return
    cells = [((row["depth"], row["width"], row.get(BLOCK, "")), None) for row in found.rows]
    plain = [{name: row.get(name) for name in unknown} for row in found.rows]
    one_recipe(plain, cells, len(plain), (), unknown)


@dataclass(frozen=True)
class Means:
    """Rows that agree in depth, size and covariates, averaged. of: (n,) place of each row. x, y, mean, variance: (K,);
    df: of the replicates. depth, width: of the nets. columns: covariates (K,). run: (K,) label of the run."""

    of: np.ndarray
    x: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    df: float
    depth: np.ndarray
    width: np.ndarray
    columns: tuple[Covariate, ...]
    run: np.ndarray


def means_of(rows: Sequence[Row], x: np.ndarray, y: np.ndarray, columns: Sequence[Covariate], noise: Any) -> Means:
    """Means of equal rows. noise: declared sd of one run, nats; None: that of the replicates."""
    blocks = {block: k for k, block in enumerate(sorted({str(row.get(BLOCK, "")) for row in rows}))}
    block = np.array([float(blocks[str(row.get(BLOCK, ""))]) for row in rows])
    values = np.stack([x, y, block, *(one.value for one in columns)], axis=1).round(9)
    _, first, of, count = np.unique(values, axis=0, return_index=True, return_inverse=True, return_counts=True)
    of = of.ravel()
    loss = np.array([float(row["loss"]) for row in rows])
    mean = np.bincount(of, loss) / count
    df = float(len(rows) - len(mean))
    variance, known = np.zeros(len(mean)), 0.0
    if isinstance(noise, int | float):
        variance, known = float(noise) ** 2 / count, math.inf
    elif df >= 2.0:
        squares = float(((loss - mean[of]) ** 2).sum())
        variance, known = squares / df / count, df if squares > 0.0 else 0.0
    shape = np.array([one.column != "tokens" for one in columns], dtype=bool)
    label = values[first][:, np.concatenate([[True, True, True], shape])]
    _, run = np.unique(label, axis=0, return_inverse=True)
    return Means(
        of,
        x[first],
        y[first],
        mean,
        variance,
        known,
        np.array([int(rows[k]["depth"]) for k in first]),
        np.array([float(rows[k]["width"]) for k in first]),
        tuple(one.at_rows(first) for one in columns),
        run.ravel(),
    )


def scales(
    means: Means, values: Sequence[np.ndarray], frame: Frame, runs: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """((C,) scale of each covariate's effects, sd of a mean about the surface), nats, by the restricted likelihood (see
    the module).

    values: standardised covariates (K,). runs: (K, R) effects that points of one run share.
    """
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    pick = np.arange(len(means.x))
    if len(pick) > MOST_FOR_SCALES:
        pick = np.sort(rng.choice(pick, MOST_FOR_SCALES, replace=False))
    x, y = means.x[pick], means.y[pick]
    u, v = frame.u(x), frame.v(y)
    base = np.stack([np.ones_like(u), u, u * u, v, v * v, u * v], axis=1)
    Q = np.linalg.qr(base, mode="complete")[0][:, base.shape[1] :]
    z = Q.T @ means.mean[pick]
    away = ((x[:, None] - x) / LENGTH_X) ** 2 + ((y[:, None] - y) / LENGTH_Y) ** 2
    parts = [np.eye(len(z)), Q.T @ np.exp(-0.5 * away) @ Q]
    if runs is not None:
        parts.append(Q.T @ (runs[pick] @ runs[pick].T) @ Q)
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
    return np.exp(found[first:]), float(math.exp(found[0]))


def layer_weights(means: Means) -> float | None:
    """Weights of a layer over d² at the held inner width; None if inner widths are no covariate."""
    inner = next((one for one in means.columns if one.name == D_FF), None)
    if inner is None:
        return None
    order, weights = np.argsort(inner.value), means.x - means.y - 2.0 * np.log(means.width)
    return float(np.exp(np.interp(inner.at, inner.value[order], weights[order])))


def size_at_held(means: Means) -> np.ndarray:
    """(K,) ln of the size that a net of each depth and width has at the held inner width: of two nets of one depth and
    size, the one with the larger inner width is narrower, and the best learning rate follows the width."""
    held = layer_weights(means)
    return means.x if held is None else means.y + 2.0 * np.log(means.width) + math.log(held)


def best_rates(means: Means, place: int, others: Sequence[np.ndarray], frame: Frame) -> np.ndarray | None:
    """(3,) β of a first estimate of ln of the best rate, β₀ + β₁u + β₂v with u of ``size_at_held``; None if no parabola
    opens upwards."""
    u, v, ln = frame.u(size_at_held(means)), frame.v(means.y), means.columns[place].value
    middle, spread = float(ln.mean()), float(ln.std())
    r = (ln - middle) / spread
    A = np.stack([np.ones_like(u), u, u * u, v, v * v, u * v, r, r * r, r * u, r * v, *others], axis=1)
    # ridge on the part that follows size and depth: if rates follow too, nothing separates the two
    ridge = np.zeros((2, A.shape[1]))
    size = float(np.std(means.mean - A[:, :6] @ np.linalg.lstsq(A[:, :6], means.mean, rcond=None)[0]))
    ridge[[0, 1], [8, 9]] = 1.0
    beta = np.linalg.lstsq(np.vstack([A, ridge * 0.3]), np.concatenate([means.mean, np.zeros(2)]), rcond=None)[0]
    rest = means.mean - A @ beta
    sigma2 = float(rest @ rest) / max(len(rest) - A.shape[1], 1)
    error = math.sqrt(max(sigma2 * np.linalg.pinv(A.T @ A)[7, 7], 1e-300))
    if beta[7] <= RATE_T * error or size <= 0.0:
        return None
    best = -np.array([beta[6], beta[8], beta[9]]) / (2.0 * beta[7])
    best[0] = np.clip(best[0], r.min(), r.max())
    reach = max(abs(best[1]) + abs(best[2]), 1e-9)
    best[1:] *= min(1.0, 2.0 * float(np.abs(r).max()) / reach)
    return np.array([middle + spread * best[0], spread * best[1], spread * best[2]])


@dataclass(frozen=True)
class Design:
    """Columns of the model. values: standardised covariates (K,), zero at the held value. spread: of each. rate: β of
    the best learning rate, None without one. columns: columns of the posterior. shared: see ``shared_effects``.
    scatter: sd of a mean about the surface by a first estimate, nats."""

    values: tuple[np.ndarray, ...]
    spread: tuple[float, ...]
    names: tuple[str, ...]
    rate: np.ndarray | None
    columns: tuple[Column, ...]
    shared: np.ndarray | None
    scatter: float


def design_of(means: Means, frame: Frame) -> Design:
    """The further columns of the posterior, with their scales."""
    values, spread, best = [], [], None
    kinds = list(means.columns)
    for place, one in enumerate(kinds):
        others = [two.value for k, two in enumerate(kinds) if k != place]
        curve = best_rates(means, place, others, frame) if one.kind == RATE else None
        if one.kind == RATE and curve is None:  # no best rate is visible: hold it like other settings
            kinds[place] = one = replace(one, kind=NUMBER)
        if curve is not None:
            best = curve
            at = curve[0] + curve[1] * frame.u(size_at_held(means)) + curve[2] * frame.v(means.y)
        else:
            at = np.full(len(means.x), one.at)
        scale = 1.0 if one.kind == TEXT else float(one.value.std())
        values.append((one.value - at) / scale)
        spread.append(scale)
    means = replace(means, columns=tuple(kinds))
    shared = shared_effects(means, values)
    sizes, scatter = scales(means, values, frame, shared)
    columns, names = [], []
    for one, value, size in zip(means.columns, values, sizes, strict=True):
        name = f"{one.name} {one.level}".strip()
        names.append(name)
        if one.kind == RATE:
            columns.append(rate(name, value, 1.5 * size))
        elif one.kind == TEXT:
            columns.append(factor(name, value, 1.5 * size, interacts=True))
        else:
            columns.append(covariate(name, value, 1.5 * size, interacts=True))
    of_tokens = next((k for k, one in enumerate(means.columns) if one.name == TOKENS), None)
    if of_tokens is not None:  # recipes may profit from tokens, each in its own way
        for k, one in enumerate(means.columns):
            if one.kind == TEXT:
                value = values[k] * values[of_tokens]
                size = 1.5 * min(sizes[k], sizes[of_tokens])
                columns.append(factor(f"{names[k]} × {TOKENS}", value, size, interacts=True))
    return Design(tuple(values), tuple(spread), tuple(names), best, tuple(columns), shared, scatter)


def shared_effects(means: Means, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """(K, R) factors that the points of one run share over token counts: an offset, and half as large a slope in ln
    tokens; None without such runs."""
    count = np.bincount(means.run)
    if not (count > 1).any():
        return None
    member = (means.run[:, None] == np.flatnonzero(count > 1)).astype(float)
    t = next(value for one, value in zip(means.columns, values, strict=True) if one.column == "tokens")
    t = t - t.mean()
    return np.hstack([member, 0.5 * member * t[:, None]])


def _fitted(
    data: Table,
    options: FitOptions,
    found: Covariates,
    x: np.ndarray,
    y: np.ndarray,
    out: Mapping[str, int],
    budget: Budget | None,
) -> Heap:
    rows, columns, impossible = list(found.rows), found.columns, list[Row]()
    for round_ in range(ROUNDS):
        means = means_of(rows, x, y, columns, options.noise)
        frame = Frame.of(means.x, means.y)
        design = design_of(means, frame)
        cells = _cells(means, design, options)
        surface = _surface(cells, means, options)
        posterior = ask.read(surface)
        z = posterior.held_out()
        far = np.abs(z) > FAR_Z
        if round_ == ROUNDS - 1 or not far.any() or too_many_far(far):
            break
        stays = ~far[means.of]
        impossible += [row for row, stay in zip(rows, stays, strict=True) if not stay]
        rows, x, y = [row for row, stay in zip(rows, stays, strict=True) if stay], x[stays], y[stays]
        columns = tuple(one.at_rows(stays) for one in columns)
    record = _record(means, design, posterior, surface, found, options, cells)
    runs = _runs(data, rows, x, y, means, design)
    record = replace(record, equal=equal_what(ask.LossSurface(surface), runs, options.seed, budget))
    outside = [one for one in columns if one.kind == NUMBER and not one.low <= float(one.held) <= one.high]
    said = sentences(record, budget, outside, data.unit)
    given = found_in.request(options.adjust, options.no_adjust, dict(options.at), data.theirs, data.columns)
    taken = [*(one.column for one in columns), *_named_by(given.leave, data)]
    said[1:1] = unadjusted(rows, x, y, [one[means.of] for one in design.values], taken)
    record = replace(record, sentences=tuple(said))
    account = [
        *(LeftOutRows(rows=n, why=why) for why, n in out.items()),
        *([LeftOutRows(rows=len(impossible), why=_impossible(impossible))] if impossible else []),
        *(LeftOutRows(rows=n, why=why, option=option) for (why, option), n in found.left_out.items()),
    ]
    settings = dict(zip(design.names, design.values, strict=True))
    moved = posterior.of_columns(means.x, means.y, settings).mean(axis=0)
    gone = {one.column for one in columns} | {name for names in found_in.NUMBERS.values() for name in names}
    gone |= {*data.settings, *found_in.TEXTS}
    gone |= {"heads", "head_size", "steps"} if any(one.name == HEAD_SIZE for one in columns) else {"steps"}
    gone -= {"d_ff", "mlp_ratio"}
    adjusted = [
        {**{name: value for name, value in row.items() if name not in gone}, "loss": float(row["loss"] - moved[k])}
        for row, k in zip(rows, means.of, strict=True)
    ]
    adjusted = [{**row, "seed": None} for row in adjusted]
    table = replace(
        data,
        rows=adjusted,
        settings=(),
        named=(),
        account=(*data.account, *account),
        notes=(*record.sentences, *data.notes),
    )
    return Heap(table, surface, record)


def _surface(cells: Cells, means: Means, options: FitOptions) -> Surface:
    return ask.surface_of(cells, means.depth, means.width, options.confidence, options.seed, times=TIMES)


def _named_by(words: Collection[str], data: Table) -> list[str]:
    """Columns of a table with these names in words."""
    return [column for column in data.columns if found_in.word_of(column) in words]


def _runs(data: Table, rows: Sequence[Row], x: np.ndarray, y: np.ndarray, means: Means, design: Design) -> Runs:
    """Runs in the form of ``equal_what``."""
    kinds = list(enumerate(means.columns))
    others = [design.values[k][means.of] for k, one in kinds if one.name != TOKENS and one.kind != RATE]
    k = next((k for k, one in kinds if one.name == TOKENS), None)
    return Runs(
        rows=rows,
        x=x,
        y=y,
        others=np.stack(others, axis=1) if others else np.zeros((len(rows), 0)),
        column="" if k is None else design.names[k],
        at=0.0 if k is None else means.columns[k].at,
        spread=1.0 if k is None else design.spread[k],
        theirs={ours: theirs for theirs, ours in data.theirs.items()},
    )


def too_many_far(far: np.ndarray) -> bool:
    """True if so many runs lie far off that the noise is large, and none is left out."""
    return bool(far.sum() > max(1.0, LARGEST_SHARE * len(far)))


def _impossible(rows: Sequence[Row]) -> str:
    """Reason for leaving out runs far from their prediction, with the first three."""
    named = [f"{row['depth']:g}×{row['width']:g}: {row['loss']:.4g}" for row in rows[:3]]
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return f"have a loss more than {FAR_Z:g} standard deviations off ({', '.join(named)}{more})"


def _cells(means: Means, design: Design, options: FitOptions) -> Cells:
    """Cells of the posterior; the scatter of values of a text that scatter more is theirs."""
    # start of the search for the mode: heaps scatter by 0.001 to 0.1 nats
    scatter = Prior(math.log(max(design.scatter, LEAST_SCATTER)), UNREPLICATED.sd, "ln nats", "by a first estimate")
    cells = Cells(
        means.x,
        means.y,
        means.mean,
        means.variance,
        np.zeros((len(means.x), 0)),
        means.df,
        scatter,
        design.columns,
        design.shared,
        {"interact": INTERACT, **({} if design.rate is None else {"share": SHARE})},
    )
    return replace(cells, variance=cells.variance + noisier(means, design))


def noisier(means: Means, design: Design) -> np.ndarray:
    """(K,) extra variance of runs whose text value scatters more than others, by least-squares residuals."""
    u, v = found_in.quadratic(means.x, means.y)[:, 1], found_in.quadratic(means.x, means.y)[:, 2]
    A = np.stack([np.ones_like(u), u, u * u, v, v * v, u * v, *design.values], axis=1)
    texts = [k for k, one in enumerate(means.columns) if one.kind == TEXT]
    extra = np.zeros(len(u))
    if not texts or len(u) < 2 * A.shape[1]:
        return extra
    from dwsweep.fit.noise import f_tail

    rest = found_in.left(means.mean, np.hstack([A, *(A[:, 1:6] * design.values[k][:, None] for k in texts)]))
    for k in texts:
        member = design.values[k] > 0.5
        if min(member.sum(), (~member).sum()) < 2 * FEWEST_ROWS_EACH + 6:
            continue
        base = np.all([design.values[j] < 0.5 for j in texts], axis=0)
        a, b = float((rest[member] ** 2).mean()), float((rest[base] ** 2).mean())
        if a > NOISIER**2 * b and f_tail(a / max(b, 1e-300), float(member.sum() - 6), float(base.sum() - 6)) < LEAST_F:
            extra[member] = np.maximum(extra[member], a - b)
    return extra


def _record(
    means: Means,
    design: Design,
    posterior: Posterior,
    surface: Surface,
    found: Covariates,
    options: FitOptions,
    cells: Cells,
) -> Adjustment:
    size = found_in.quadratic(means.x, means.y)[:, [0, 1, 3]]
    depth_left = found_in.share_left(means.y, np.hstack([size, *(one[:, None] for one in design.values)]))
    columns = tuple(_column(k, means, design, posterior, options.confidence) for k in range(len(design.names)))
    columns = tuple(dict.fromkeys(columns))
    close = [one for one in columns if abs(one.r) >= found_in.CONFOUNDED and one.kind != "rate"]
    readings: list[Reading] = []
    inseparable: list[str] = []
    for one in close:
        keep = [k for k, name in enumerate(design.names) if not name.startswith(one.name)]
        without = replace(cells, columns=tuple(design.columns[k] for k in keep))
        other = ask.LossSurface(_surface(without, means, options))
        pairs = _readings(one.name, ask.LossSurface(surface), other)
        readings += pairs
        widths = [_width(row) for row in pairs]
        # nearly no variance of depth is left: the prior of the column's effect bounds the interval
        if abs(one.r) >= ONE_VARIABLE or np.median(widths[0::2]) > WIDER * np.median(widths[1::2]):
            inseparable.append(one.name)
    return Adjustment(
        runs=len(means.of),
        columns=columns,
        follow=found.follow,
        depth_left=depth_left,
        scatter=float(np.median(np.exp(posterior.stacked("scatter")))),
        shared=float(np.median(np.exp(posterior.stacked("shared")))) if cells.shared is not None else None,
        inseparable=tuple(inseparable),
        readings=tuple(readings),
        layer_weights=layer_weights(means),
        **_rates(means, design, posterior, options.confidence),
        **_along_tokens(means, design, posterior, options.confidence),
    )


def _width(row: Reading) -> float:
    """Width of a reading's interval, in ln L."""
    low, high = row.depth_low or 1.0, row.depth_high or 1e4
    return math.log(high / low)


def _readings(name: str, held: ask.LossSurface, follows: ask.LossSurface) -> list[Reading]:
    """Best depth at a few sizes under both readings: column held, and column following depth as in the table."""
    low, high = held.record.low, held.record.high
    found = []
    for share in (0.25, 0.5, 0.75):
        n = math.exp(low + share * (high - low))
        for surface, following in ((held, False), (follows, True)):
            depth = near(surface.at(n), surface.deepest)
            found.append(
                Reading(
                    column=name,
                    follows=following,
                    n_params=n,
                    depth=depth.value,
                    depth_low=depth.low,
                    depth_high=depth.high,
                )
            )
    return found


def _column(k: int, means: Means, design: Design, posterior: Posterior, confidence: float) -> AdjustedColumn:
    one, value, name = means.columns[k], design.values[k], design.names[k]
    tuned = design.columns[k].tuned is not None
    moved = posterior.of_columns(means.x, means.y, {name: value})
    sizes = moved.std(axis=1) if not tuned else np.sqrt((moved**2).mean(axis=1))
    matters = ask.effect(sizes, confidence)
    frame = posterior.frame
    steps = np.array([0.0, 1.0]) if one.kind == TEXT else np.linspace(value.min(), value.max(), CURVE_POINTS)
    x, y = np.full(len(steps), frame.x0), np.full(len(steps), frame.y0)
    curve = posterior.of_columns(x, y, {name: steps})
    tail = (1.0 - confidence) / 2.0
    low, middle, high = np.quantile(curve, [tail, 0.5, 1.0 - tail], axis=0)
    at = steps
    if one.kind != TEXT:
        centre = design.rate[0] if tuned and design.rate is not None else one.at
        at = np.exp(centre + steps * design.spread[k]) - one.shift
    held = f"{one.name} {one.held}" if one.kind == TEXT else one.said(one.held)
    return AdjustedColumn(
        name=name if one.kind == TEXT else one.name,
        column=one.column,
        kind="rate" if tuned else "text" if one.kind == TEXT else "number",
        held="each net's best learning rate" if tuned else held,
        low=None if one.kind == TEXT else one.low,
        high=None if one.kind == TEXT else one.high,
        own=one.own,
        r=one.r,
        matters=matters.value or 0.0,
        matters_low=matters.low or 0.0,
        matters_high=matters.high or 0.0,
        at=tuple(at.tolist()),
        effect=tuple(middle.tolist()),
        effect_low=tuple(low.tolist()),
        effect_high=tuple(high.tolist()),
        common=() if tuned else _at_common(one, name, design.spread[k], posterior, confidence),
        best=one.best,
    )


def _at_common(
    one: Covariate, name: str, spread: float, posterior: Posterior, confidence: float
) -> tuple[DepthHeld, ...]:
    """Best depths at the middle size, with a column at each of its equally common values."""
    found, x, deepest = [], posterior.frame.x0, math.exp(posterior.frame.last)
    for value in one.common:
        setting = {name: (math.log(value + one.shift) - one.at) / spread}
        depth = near(ask.best_depth(posterior, x, confidence, setting).interval.map(math.exp), deepest)
        found.append(DepthHeld(value=value, n_params=math.exp(x), **depth.columns("depth")))
    return tuple(found)


def _rates(means: Means, design: Design, posterior: Posterior, confidence: float) -> dict[str, Any]:
    """Best learning rate of each depth at the middle size, and the cost of the best common rate."""
    place = next((k for k, one in enumerate(design.columns) if one.tuned), None)
    if place is None or design.rate is None:
        return {}
    frame, beta, spread = posterior.frame, design.rate, design.spread[place]
    depths = np.unique(means.depth)
    x = np.full(len(depths), frame.x0)
    u, v = frame.u(x), frame.v(np.log(depths.astype(float)))
    first = beta[0] + beta[1] * u + beta[2] * v
    effects = [one for one in posterior.forms if one.model.form.effect]
    values = [posterior.tuned_values(one, place, u, v) for one in effects]
    if not values:
        return {}
    best = np.concatenate([value for value, _ in values])
    ln_best = first + spread * best
    tail = (1.0 - confidence) / 2.0
    low, middle, high = np.quantile(ln_best, [tail, 0.5, 1.0 - tail], axis=0)
    tried = means.columns[place].value
    grid = np.linspace(tried.min(), tried.max(), 121)
    costs = []
    for r in grid:
        name = design.names[place]
        costs.append(posterior.of_columns(x, np.log(depths.astype(float)), {name: (r - first) / spread}))
    cost = np.stack(costs)  # (rates, D, depths)
    shared = int(cost.mean(axis=1).max(axis=1).argmin())
    rows = []
    for k, depth in enumerate(depths):
        inside = tried.min() < middle[k] < tried.max()
        own = cost[shared, :, k]
        rows.append(
            BestRate(
                depth=int(depth),
                n_params=float(math.exp(x[k])),
                learning_rate=float(math.exp(middle[k])) if inside else None,
                learning_rate_low=float(math.exp(low[k])) if low[k] > tried.min() else None,
                learning_rate_high=float(math.exp(high[k])) if high[k] < tried.max() else None,
                cost=float(np.median(own)),
                cost_high=float(np.quantile(own, 1.0 - tail)),
            )
        )
    return {"rates": tuple(rows), "shared_rate": float(math.exp(grid[shared]))}


def _along_tokens(means: Means, design: Design, posterior: Posterior, confidence: float) -> dict[str, Any]:
    """Best depth at the middle size after a few counts of tokens that the runs have: for the held value of a text and
    for each other that has several counts, at the same counts where these overlap."""
    place = next((k for k, one in enumerate(means.columns) if one.name == TOKENS), None)
    if place is None:
        return {}
    value, one, x = design.values[place], means.columns[place], posterior.frame.x0
    name, deepest = design.names[place], math.exp(posterior.frame.last)
    texts = {design.names[k]: design.values[k] > 0.5 for k, text in enumerate(means.columns) if text.kind == TEXT}
    held = ~np.any(list(texts.values()), axis=0) if texts else np.ones(len(value), dtype=bool)
    has = {label: member for label, member in texts.items() if np.ptp(value[member]) > 0.0}
    groups = {"": held, **has} if np.ptp(value[held]) > 0.0 else {"": np.ones(len(value), dtype=bool)}
    low, high = (f([g(value[of]) for of in groups.values()]) for f, g in ((max, np.min), (min, np.max)))
    shared = math.exp((high - low) * design.spread[place]) >= LEAST_SHARED
    if len(groups) == 1 or not shared:
        groups = {"": groups[""]}
    of_held = next((f"{row.name} {row.held}" for row in means.columns if row.kind == TEXT), "")

    def after(label: str, counts: np.ndarray, of: str) -> tuple[list[DepthAfter], np.ndarray]:
        """(best depths after ``counts``, (D,) ln of the last over the first)."""
        settings = [{name: float(v)} for v in counts]
        if label:
            settings = [{**own, label: 1.0, f"{label} × {TOKENS}": own[name]} for own in settings]
        drawn = [ask.best_depths(posterior, x, own) for own in settings]
        rows: list[DepthAfter] = []
        for v, found, own in zip(counts, drawn, settings, strict=True):
            depth = near(ask.best_depth(posterior, x, confidence, own).interval.map(math.exp), deepest)
            with np.errstate(invalid="ignore"):
                ratio = found - drawn[0]
            known = ratio[np.isfinite(ratio)]
            # a depth beyond those trained has a bound alone, and so no ratio
            both = depth.value is not None and (not rows or rows[0].depth is not None)
            ratios = both and len(known) > 0.9 * len(ratio)
            change = ask.effect(known, confidence).map(math.exp) if ratios else Interval()
            rows.append(
                DepthAfter(
                    tokens=float(math.exp(one.at + v * design.spread[place]) - one.shift),
                    n_params=float(math.exp(x)),
                    **depth.columns("depth"),
                    **change.columns("ratio"),
                    of=of,
                )
            )
        return rows, ratio

    shared_counts = np.array([low, (low + high) / 2.0, high])
    found = {label: after(label, shared_counts, label or of_held) for label in groups} if len(groups) > 1 else {}
    apart = []
    for label, (_, ratio) in found.items():
        with np.errstate(invalid="ignore"):
            away = ratio - found[""][1]
        known = away[np.isfinite(away)]
        if label and len(known) > 0.9 * len(away) and ask.effect(known, confidence).sign:
            apart.append(label)
    if apart:
        rows = [row for label in ("", *apart) for row in found[label][0]]
        return {"along_tokens": tuple(rows), "tokens_disagree": tuple(apart)}
    counts = np.unique(value[groups[""]].round(9))
    if len(counts) > len(TOKEN_SHARES):
        counts = np.quantile(value[groups[""]], TOKEN_SHARES)
    return {"along_tokens": tuple(after("", counts, "")[0])}


def sentences(
    record: Adjustment, budget: Budget | None = None, outside: Sequence[Covariate] = (), unit: str = NATS
) -> list[str]:
    """Sentences on columns that are held fixed and columns that cannot be told from depth.

    outside: columns held at an untried value. unit: of the losses.
    """
    held = list(dict.fromkeys(one.held for one in record.columns))
    said = [f"Depths are compared at {join(held, 12)}"]
    said += [line for one in record.columns if one.name not in record.inseparable and (line := _held_said(one))]
    for column in outside:
        tried = f"{column.said(column.low).removeprefix(column.name).strip()} to "
        tried += column.said(column.high).removeprefix(column.name).strip()
        said.append(
            f"OUTSIDE WHAT WAS TRIED: {column.said(column.held)}, the runs have {tried}; trust intervals less there"
        )
    if budget:
        said.append(
            f"ALL RUNS HAD EQUAL {budget.unit.upper()} ({budget.shown}): depths are compared at this budget, at which "
            "larger and dearer nets saw fewer tokens, and not at equal tokens"
        )
    if record.follow:
        one = len(record.follow) == 1 and record.follow[0] != TOKENS
        line = f"{join(record.follow)} follow{'s' if one else ''} the shape here: best depths hold for nets "
        said.append(f"{line[0].upper()}{line[1:]}in which {'it does' if one else 'they do'} so too")
    for name in dict.fromkeys(row.column for row in record.readings):
        held_row, follows = middle_readings(record, name)
        column_of = next(one for one in record.columns if one.name == name)
        apart = follows.depth is None or follows.depth not in held_row.depth_interval
        if name not in record.inseparable and not apart:
            continue
        line = (
            f"{name[0].upper()}{name[1:]} follows depth here; if it does so in your nets: {_depth(follows)} layers at "
            f"{format_count(follows.n_params)}; at {column_of.held}: {_depth(held_row)}"
        )
        if name in record.inseparable:
            line += f": this table cannot separate depth from {name} (r = {column_of.r:.2f})".replace("-0", "−0")
        said.append(line)
    said += _tokens_said(record)
    if line := _equal_sentence(record):
        said.append(line)
    if line := _untried_rates(record):
        said.insert(1, line)
    if record.rates and record.shared_rate is not None:
        worst = max(record.rates, key=lambda row: row.cost)
        said.append(
            f"At {format_count(worst.n_params)} one learning rate for all depths ({record.shared_rate:.2g}) costs "
            f"{worst.depth} layers the most, {worst.cost:.4f} {SHORT[unit]} (at most {worst.cost_high:.4f})"
        )
    return said


def _untried_rates(record: Adjustment) -> str:
    """Sentence on depths whose best learning rate was not tried, where they are half of all or more: their losses are
    those of a parabola in ln rate, continued."""
    out = [row for row in record.rates if row.learning_rate is None]
    if 2 * len(out) < len(record.rates) or not out:
        return ""
    above = sum(row.learning_rate_low is not None for row in out)
    side = "above" if 2 * above > len(out) else "below"
    every = f"{len(out)} of {len(record.rates)}"
    return (
        f"OUTSIDE WHAT WAS TRIED: the best learning rate of {every} depths lies {side} the rates tried; losses there "
        "are by the parabola alone"
    )


def _held_said(column: AdjustedColumn) -> str:
    """Sentence on a column with several equally common values, if another one moves the best depth by a tenth and both
    depths have an interval; else empty."""
    known = [row for row in column.common if row.depth and row.depth_low and row.depth_high]
    own = next((row for row in known if f"{column.name} {row.value:.3g}" == column.held), None)
    if own is None:
        return ""
    ln = [math.log((row.depth or 1.0) / (own.depth or 1.0)) for row in known]
    far = known[int(np.argmax(np.abs(ln)))]
    if max(map(abs, ln)) < MOVES:
        return ""
    values = join([f"{row.value:.3g}" for row in column.common])
    why = "has the least loss at equal size" if column.best else "is the middle one"
    return (
        f"The values {values} of {column.name} are about as common, and {own.value:.3g} {why}; at "
        f"{format_count(own.n_params)} the best depth is {own.depth_interval.format('.1f')} there and "
        f"{far.depth_interval.format('.1f')} at {far.value:.3g} (--at)"
    )


def _tokens_said(record: Adjustment) -> list[str]:
    """Sentences on the best depth against tokens, and on recipes that disagree about it."""
    ends: dict[str, list[DepthAfter]] = {}
    for row in record.along_tokens:
        ends.setdefault(row.of, []).append(row)
    said: list[str] = []
    for of, rows in ends.items():
        first, last = rows[0], rows[-1]
        if len(rows) > 1 and last.ratio is not None:
            ratio = last.ratio_interval.format(".2f")
            said.append(
                f"{'' if not of else f'{of[0].upper()}{of[1:]}: '}at {format_count(last.n_params)} the best depth "
                f"after {format_count(last.tokens)} tokens is {ratio} times the one after {format_count(first.tokens)}"
            )
    said = [line[0].upper() + line[1:] for line in said]
    if record.tokens_disagree:
        both = " and ".join(ends)
        said.append(
            f"{both[0].upper()}{both[1:]} DISAGREE on how tokens move the best depth: neither trend holds for the other"
        )
    return said


def _equal_sentence(record: Adjustment) -> str:
    """Best depths at the middle size of each kind of equality at equal size."""
    rows = {
        name: {row.n_params: row for row in record.equal if row.equal == name and row.n_params and row.depth}
        for name in ("N", "N and FLOPs", "N and wall time")
    }
    told = [set(of) for of in rows.values() if of]
    shared = sorted(set.intersection(*told)) if len(told) > 1 else []
    if not shared:
        return ""
    n = shared[len(shared) // 2]
    found = {name: of[n] for name, of in rows.items() if n in of}
    texts = [f"{row.depth_interval.format('.1f')} at equal {name}" for name, row in found.items()]
    return f"Equal what: at {format_count(n)} the best depth is {join(texts)}"


def middle_readings(record: Adjustment, name: str) -> tuple[Reading, Reading]:
    """Both readings of a column at its middle size: held, and following depth."""
    rows = [row for row in record.readings if row.column == name]
    middle = len(rows) // 4 * 2
    return rows[middle], rows[middle + 1]


def _depth(row: Reading) -> str:
    return row.depth_interval.format(".0f")
