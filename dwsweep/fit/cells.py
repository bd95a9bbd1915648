"""Cells: runs that count, one group per shape, and the reasons for leaving out others.

Runs whose loss is impossible are named, left out and reported. Robust scales find them, so that a bad run cannot hide
behind its own spread. A loss above twice the median and 20 robust sds is dropped. A run is compared with the other
seeds of its cell, after the part that a seed shares over all cells, at a t quantile of the scale's degrees of freedom:
with normal noise one of 1,000 sweeps loses a run by its seeds, whatever the number of shapes and seeds; with t₃ tails
every sixth sweep of 135 runs does. A whole cell is compared with a polynomial in ln N and ln L through all others,
whose residuals must vanish without it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.data.roles import one_recipe
from dwsweep.fit.data.rows import LeftOut, Row, no_loss, why_no_loss
from dwsweep.fit.data.shape import BLOCK, n_params_of
from dwsweep.records.columns import AXES
from dwsweep.text import BITS_PER_TOKEN, NATS, OF_TEXT, join

CENSORED_SHARE = 0.25
LEARNED_SHARE = 0.1  # share of ln V that unigram frequencies alone save, roughly


class Shape(NamedTuple):
    """A shape of a table. block: mark among nets of its depth and width, or empty."""

    depth: int
    width: float
    block: str = ""

    def __str__(self) -> str:
        return f"{self.depth}×{self.width:g}{f' ({self.block})' if self.block else ''}"


class Candidate(NamedTuple):
    """A shape at one learning rate."""

    shape: Shape
    learning_rate: float | None

    @property
    def order(self) -> tuple[Shape, float]:
        """Place among the candidates of a table."""
        return self.shape, -1.0 if self.learning_rate is None else self.learning_rate


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run: a shape, a learning rate, a seed and its held-out loss.

    seed: None if the table names none (the run is then a replicate without a partner at other shapes).
    loss: nats per token. x: ln of the axis (ln N for the default axis). n_params: weights of the blocks.
    """

    depth: int
    width: float
    learning_rate: float | None
    seed: Hashable
    loss: float
    x: float
    n_params: float
    row: Row
    block: str = ""

    @property
    def shape(self) -> Shape:
        return Shape(self.depth, self.width, self.block)

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.shape, self.learning_rate)


@dataclass
class Selection:
    """``runs``: runs that count. excluded: shape → reason, for shapes without any run left. notes: shape → the part
    left out of a shape that stays. diverged_rule: how diverged replicas were treated, or None if there were none.
    account: rows that are out, by reason. sizes: N of each shape. lost_rates: learning rates of a shape whose runs
    diverged or have NaN for a loss. diverged: runs to be treated; missing: reasons of rows that are out, by shape."""

    runs: list[Run] = field(default_factory=list)
    excluded: dict[Shape, str] = field(default_factory=dict)
    notes: dict[Shape, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    diverged_rule: str | None = None
    account: Counter[LeftOut] = field(default_factory=Counter)
    sizes: dict[Shape, float] = field(default_factory=dict)
    lost_rates: dict[Shape, set[float]] = field(default_factory=lambda: defaultdict(set))
    diverged: list[Run] = field(default_factory=list)
    missing: dict[Shape, list[str]] = field(default_factory=lambda: defaultdict(list))


def number(value: float) -> Any:
    """``value`` as an int where it is whole, for names and keys that people read."""
    return int(value) if float(value).is_integer() else float(value)


def select_runs(
    rows: list[Row],
    axis: str = "n_params",
    named: Iterable[str] = (),
    unit: str = NATS,
    settings: Collection[str] = (),
) -> Selection:
    """Choose the rows that count as losses. named: columns that the user has named, each part of a run's recipe; unit:
    of the losses; settings: columns found to tell recipes apart.

    Rows that failed, are not finished or have NaN for a loss are missing at random: their seeds keep their pairing. A
    diverged replica (or an infinite loss) is not at random, and averaging only the good seeds of a deep net would
    flatter depth: a learning rate that diverged is no candidate while another one stayed finite at that shape. If none
    did, the cell is censored, unless that would take more than a quarter of a depth's sizes: then the seed is
    dropped at every depth, provided that two seeds remain.
    """
    if axis not in AXES:
        raise InputError(f"{argument('axis')}: {axis!r}; must be one of {', '.join(AXES)}")
    if axis != "n_params" and not any(row.get(axis) is not None for row in rows):
        raise InputError(f"{argument('axis')}: {axis!r}; the table has no column of that name with values in it")
    parts = _sort(rows, axis)
    _one_recipe(parts, named, settings)
    _merge_duplicates(parts)
    parts.diverged_rule = _treat_diverged(parts)
    _leave_out_untrained(parts, unit)
    kept = {run.shape for run in parts.runs}
    for shape, reasons in parts.missing.items():
        text = "; ".join(f"{count} × {reason}" if count > 1 else reason for reason, count in Counter(reasons).items())
        if shape in kept:
            parts.notes[shape] = text
        else:
            parts.excluded.setdefault(shape, text)
    return parts


def _sort(rows: list[Row], axis: str) -> Selection:
    parts = Selection()
    shapes: dict[tuple[Any, Any, str], Shape] = {}
    for row in rows:
        key = row["depth"], row["width"], row.get(BLOCK, "")
        if key not in shapes:
            shapes[key] = Shape(number(key[0]), number(key[1]), key[2])
            parts.sizes[shapes[key]] = n_params_of(row)
        shape = shapes[key]
        value: Any = n_params_of(row) if axis == "n_params" else row.get(axis)
        loss: Any = row.get("loss")
        rate = row.get("learning_rate")
        diverged = str(row.get("status")).lower() == "diverged" or (isinstance(loss, float) and math.isinf(loss))
        if rate is not None and (diverged or loss != loss):
            parts.lost_rates[shape].add(rate)
        if reason := why_no_loss(row):
            parts.missing[shape].append(reason)
            parts.account[no_loss(reason), ""] += 1
        elif value is None or not math.isfinite(value) or value <= 0:
            parts.missing[shape].append(f"no {axis}")
            parts.account[f"have no {axis}", ""] += 1
        else:
            run = Run(
                depth=shape.depth,
                width=shape.width,
                block=shape.block,
                learning_rate=rate,
                seed=row.get("seed"),
                loss=math.nan if diverged else float(loss),
                x=math.log(value),
                n_params=n_params_of(row),
                row=row,
            )
            (parts.diverged if diverged else parts.runs).append(run)
    return parts


def _one_recipe(parts: Selection, named: Iterable[str], settings: Collection[str]) -> None:
    """Leave out runs whose recipe differs from the rest of their cell."""
    both = [*parts.runs, *parts.diverged]
    cells = [(run.shape, run.learning_rate) for run in both]
    count = len(parts.runs)
    out, warnings = one_recipe([run.row for run in both], cells, count, named, settings)
    for k, (name, value, used) in out.items():
        if k < count:
            parts.missing[both[k].shape].append(f"{name} = {value}")
        parts.account[f"have {name} = {value} and not {used}", f'--where "{name} == {value!r}"'] += 1
    kept = [(k < count, run) for k, run in enumerate(both) if k not in out]
    parts.runs, parts.diverged = ([run for finished, run in kept if finished == side] for side in (True, False))
    parts.warnings += warnings


def _merge_duplicates(parts: Selection) -> None:
    """Several rows of one shape, learning rate and seed are one run: identical ones repeat, others are averaged."""
    first: dict[tuple[Any, ...], int] = {}
    merged: list[Run] = []
    several: dict[int, list[Run]] = {}
    for run in parts.runs:
        place = len(merged) if run.seed is None else first.setdefault((run.candidate, run.seed), len(merged))
        if place == len(merged):
            merged.append(run)
        else:
            several.setdefault(place, [merged[place]]).append(run)
    averaged = repeated = 0
    for place, runs in several.items():
        losses = {run.loss for run in runs}
        repeated += len(runs) - len(losses)
        averaged += len(losses) - 1
        mean, x = math.fsum(losses) / len(losses), math.fsum(run.x for run in runs) / len(runs)
        merged[place] = replace(runs[0], loss=mean, x=x)
    parts.runs = merged
    if repeated:
        parts.account["repeat the run of another row", ""] += repeated
        parts.warnings.append(f"{repeated} row(s) repeat another row exactly; each run counts once")
    if averaged:
        parts.account["are averaged with another row of their shape, learning rate and seed", ""] += averaged
        parts.warnings.append(
            f"{averaged} row(s) have the shape, learning rate and seed of another row and a different loss; averaged "
            "(if they differ in a recipe, choose one with a `where` expression)"
        )


def _treat_diverged(parts: Selection) -> str | None:
    if not parts.diverged:
        return None
    bad = {run.candidate for run in parts.diverged}
    stayed = {run.shape for run in parts.runs if run.candidate not in bad}  # shapes that keep other rates
    dropped = [candidate for candidate in bad if candidate.shape in stayed]
    before = len(parts.runs)
    rules = []
    if dropped:
        rules.append(f"{len(dropped)} diverged learning rates are excluded at their shape")
        for shape, rate in dropped:
            parts.missing[shape].append("diverged" if rate is None else f"learning rate {rate:g} diverged")
        parts.runs = [run for run in parts.runs if run.candidate not in dropped]
    left = [run for run in parts.diverged if run.candidate not in dropped]
    if left:
        rules.append(_censor_or_drop(parts, left))
    parts.account["are of runs that diverged", ""] += len(parts.diverged)
    if before > len(parts.runs):
        parts.account["are of a shape, a rate or a seed that diverged elsewhere", ""] += before - len(parts.runs)
    parts.warnings.append("diverged: " + "; ".join(rules))
    return "; ".join(rules)


def chance_loss(run: Run, unit: str) -> float | None:
    """ln V, the loss of a uniform guess; None if the table names no vocabulary, or its losses are not per token."""
    vocabulary = run.row.get("vocab_size")
    if unit in OF_TEXT or not vocabulary or not 1 < vocabulary < math.inf:
        return None
    return math.log(vocabulary) / (math.log(2.0) if unit == BITS_PER_TOKEN else 1.0)


def _leave_out_untrained(parts: Selection, unit: str) -> None:
    """A net near ln V guesses the next token almost uniformly: its loss says nothing about depth."""
    losses: dict[Shape, dict[float | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    uniform: dict[Shape, float] = {}
    for run in parts.runs:
        chance = chance_loss(run, unit)
        if chance is not None:
            losses[run.shape][run.learning_rate].append(run.loss)
            uniform[run.shape] = chance
    best = {shape: min(math.fsum(v) / len(v) for v in by_rate.values()) for shape, by_rate in losses.items()}
    shapes = sorted(shape for shape, loss in best.items() if loss > (1.0 - LEARNED_SHARE) * uniform[shape])
    if not shapes:
        return
    n_shapes = len({run.shape for run in parts.runs})
    for shape in shapes:
        parts.excluded[shape] = f"not trained: loss {best[shape]:.3f}, ln(vocab_size) = {uniform[shape]:.3f}"
    before = len(parts.runs)
    parts.runs = [run for run in parts.runs if run.shape not in parts.excluded]
    parts.account["are of shapes that have learned nothing", ""] += before - len(parts.runs)
    first, percent = shapes[0], 100 * LEARNED_SHARE
    example = f"{first}: {best[first]:.3f}, ln V = {uniform[first]:.3f}"
    parts.warnings.append(
        f"NOT TRAINED: {len(shapes)} of {n_shapes} shapes have a loss within {percent:.0f} % of ln(vocab_size), the "
        f"loss of a uniform guess, or above it (such as {example}); they are left out of every answer: train longer, "
        f"or check that the loss is in {unit}"
    )


def _censor_or_drop(parts: Selection, diverged: list[Run]) -> str:
    shapes = {run.shape for run in diverged}
    seeds = {run.seed for run in diverged}
    remaining_seeds = {run.seed for run in parts.runs} - seeds
    sizes = Counter(shape.depth for shape in {run.shape for run in parts.runs} | shapes)
    lost = Counter(shape.depth for shape in shapes)
    heavy = any(lost[depth] > CENSORED_SHARE * sizes[depth] for depth in lost)
    if None not in seeds and len(remaining_seeds) >= 2 and heavy:
        parts.runs = [run for run in parts.runs if run.seed not in seeds]
        for run in diverged:
            parts.missing[run.shape].append(f"seed {run.seed} diverged")
        named = join(str(number(seed)) if isinstance(seed, float) else str(seed) for seed in sorted(seeds, key=str))
        return f"seed {named} diverged at {len(shapes)} shapes and is left out at every depth"
    parts.runs = [run for run in parts.runs if run.shape not in shapes]
    for shape, count in Counter(run.shape for run in diverged).items():
        parts.excluded[shape] = f"{count} replicas diverged: the cell is censored"
    named = join(map(str, sorted(shapes)))
    return f"{named}: replicas diverged, the whole cell is censored"


IMPOSSIBLE = 8.0  # fewest robust standard deviations
FALSE_ALARM = 1e-3  # share of sweeps with normal noise in which a good run may be called impossible
MAD_EFFICIENCY = 0.37  # degrees of freedom of a median absolute deviation, over those of a standard deviation
LEAST_NATS = 1e-3  # misfit below which no run is called impossible, however small the noise
LARGEST_SHARE, DIVERGED_SHARE = 0.05, 0.15  # of all runs; the second if all lie above: see ``too_many``
FEWEST = 6  # fewest losses, or gaps between seeds, that have a robust scale
DEGREES = (4, 3, 2)  # of the polynomial through shapes
FARTHER = (
    4.0  # multiples of the next residual at which a shape is off the polynomial: none of 1,050 clean grids has one
)
# multiples of the farthest other residual at which several shapes diverged: 1 of 1,500 clean tables has such shapes, in
# a corner where depth costs most
TOGETHER = 6.0
MOST_STEPS = 20  # of each of the two searches for runs that diverged
MOST_TRIED = 5  # shapes of the largest residuals that may be the bad one
MOST_GAPS = 10  # most gaps from a run to later runs of its cell that enter the spread
BEYOND, TIMES = 20.0, 2.0  # threshold in robust standard deviations, and in median losses if no law reaches the cell
NORMAL = 1.4826  # standard deviation per median absolute deviation


@dataclass(frozen=True)
class BadRun:
    """``expected``: loss by the other seeds or the other shapes, nats. ``deviations``: distance in robust sds."""

    run: Run
    expected: float
    deviations: float


def without_bad_runs(selection: Selection) -> tuple[Selection, list[BadRun]]:
    """(selection without impossible runs, impossible runs). If there are too many, nothing is left out and a warning is
    given."""
    runs = selection.runs
    bad, warning = impossible(runs)
    if not bad:
        return replace(selection, warnings=[*warning, *selection.warnings]), []
    out = {id(found.run) for found in bad}
    kept = [run for run in runs if id(run) not in out]
    left = {run.shape for run in kept}
    notes, excluded = dict(selection.notes), dict(selection.excluded)
    for found in bad:
        where = notes if found.run.shape in left else excluded
        text = f"impossible loss {found.run.loss:.4g} left out"
        where[found.run.shape] = "; ".join(filter(None, (where.get(found.run.shape), text)))
    return replace(selection, runs=kept, notes=notes, excluded=excluded), bad


def impossible(runs: Sequence[Run]) -> tuple[list[BadRun], list[str]]:
    """(the impossible runs, the worst first; a warning where they are so many that the noise model is wrong, not the
    runs: none is left out then)."""
    bad = find_bad_runs(runs)
    if not too_many([one.run.loss - one.expected for one in bad], len(runs)):
        return bad, []
    return [], [all_count(len(bad), len(runs), f"the other seeds of their shape or the other shapes ({named(bad[0])})")]


def too_many(off: Sequence[float], runs: int) -> bool:
    """True if so many losses are ``off``, above or below the expected ones, that the model of the noise is wrong, and
    not the losses. Runs that diverged, or were not finished, lie above; noise lies on both sides."""
    return len(off) > max(1.0, (DIVERGED_SHARE if off and min(off) > 0.0 else LARGEST_SHARE) * runs)


def all_count(bad: int, runs: int, others: str) -> str:
    """Warning about impossible losses that are too many. others: from which they are off, in words."""
    return (
        f"impossible losses: {bad} of {runs} runs lie at least {IMPOSSIBLE:g} robust standard deviations off {others}; "
        "too many to leave out, so all count: check the table"
    )


def named(found: BadRun) -> str:
    run = found.run
    which = "" if run.seed is None else f" seed {run.seed}"
    return f"{run.row['depth']:g}×{run.width:g}{which}: loss {run.loss:.4g}, expected {found.expected:.4g}"


def find_bad_runs(runs: Sequence[Run]) -> list[BadRun]:
    """Impossible runs, the worst first; more than LARGEST_SHARE of ``runs`` are a statement about the noise."""
    found: list[BadRun] = []
    for test in (_against_all, _against_seeds, _against_surface):
        out = {id(one.run) for one in found}
        found += test([run for run in runs if id(run) not in out])
    return sorted(found, key=lambda one: -one.deviations)


def _against_all(runs: Sequence[Run]) -> list[BadRun]:
    """Runs that no scaling law reaches, whatever the table."""
    losses = [run.loss for run in runs]
    return [BadRun(runs[k], middle, away) for k, middle, away in beyond_all(losses)]


def beyond_all(losses: Sequence[float]) -> list[tuple[int, float, float]]:
    """(place, median, distance in robust standard deviations) of losses far above the median."""
    if len(losses) < FEWEST:
        return []
    values = np.array(losses)
    middle = float(np.median(values))
    away = values - middle
    scale = NORMAL * float(np.median(np.abs(away)))
    far = np.flatnonzero((away > max(BEYOND * scale, LEAST_NATS)) & (values > TIMES * middle) & (middle > 0.0))
    return [(int(k), middle, float(away[k]) / max(scale, 1e-12)) for k in far]


def _threshold(df: float, count: int) -> float:
    """Robust standard deviations beyond which the farthest of ``count`` values is impossible, by a scale of ``df``
    degrees of freedom: 386 of three shapes with three seeds, 33 with five, 8 of many."""
    from scipy.special import stdtrit

    return max(IMPOSSIBLE, float(stdtrit(MAD_EFFICIENCY * max(df, 1.0), 1.0 - FALSE_ALARM / (2.0 * count))))


def _against_seeds(runs: Sequence[Run]) -> list[BadRun]:
    cells: dict[Hashable, list[Run]] = defaultdict(list)
    for run in runs:
        cells[run.candidate].append(run)
    several = {key: members for key, members in cells.items() if len(members) > 1}
    if not several:
        return []
    seed: dict[Hashable, list[float]] = defaultdict(list)
    for members in several.values():
        middle = median([run.loss for run in members])
        for run in members:
            seed[run.seed].append(run.loss - middle)
    # a seed of a cell or two would take the loss that is off for its own part
    shared = {name: median(values) if name is not None and len(values) > 2 else 0.0 for name, values in seed.items()}
    losses = {key: np.array([run.loss - shared[run.seed] for run in members]) for key, members in several.items()}
    gaps = np.concatenate([np.abs(v[k:] - v[:-k]) for v in losses.values() for k in range(1, min(len(v), MOST_GAPS))])
    if len(gaps) < FEWEST:
        return []
    scale = NORMAL * float(np.median(gaps)) / math.sqrt(2.0)
    count = sum(map(len, several.values()))
    linked = sum(value != 0.0 for value in shared.values())
    far = _threshold(count - len(several) - max(linked - 1, 0), count)
    shapes = _of_shapes(runs)
    x, loss = (np.array([at[k] for at in shapes.values()]) for k in (0, 1))
    surface = _Surface.of(x, np.log([float(shape.depth) for shape in shapes]), loss, np.zeros((len(x), 0)))
    by_others = dict(zip(shapes, surface.expected.tolist(), strict=True)) if surface else {}
    found: list[BadRun] = []
    for key, members in several.items():
        values, left = losses[key], np.arange(len(members))
        while len(left) > 1:
            others = _medians_of_others(values[left])
            off = np.abs(values[left] - others)
            sd = scale * math.sqrt(1.0 + 1.0 / (len(left) - 1))
            if off.max() <= max(far * sd, LEAST_NATS):
                break
            # a few runs move the middle of few others: remove the worst first
            many = len(left) > MOST_GAPS
            worst = np.flatnonzero(off > max(far * sd, LEAST_NATS)) if many else [off.argmax()]
            if len(left) == 2:  # two seeds cannot say which of the two is wrong, but other shapes may
                if (expected := by_others.get(members[0].shape)) is None:
                    break
                worst = [np.argmax([abs(members[k].loss - expected) for k in left])]
            for k in worst:
                run = members[left[k]]
                found.append(BadRun(run, float(others[k]) + shared[run.seed], float(off[k]) / max(sd, 1e-12)))
            left = np.delete(left, worst)
    return found


def _medians_of_others(values: np.ndarray) -> np.ndarray:
    """(n,) median of all other values, for each value."""
    order = np.argsort(values, kind="stable")
    ranked, place = values[order], np.empty(len(values), int)
    place[order] = np.arange(len(values))
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2
    return (ranked[low + (place <= low)] + ranked[high + (place <= high)]) / 2.0


def _of_shapes(runs: Sequence[Run]) -> dict[Shape, tuple[float, float]]:
    """(x, median loss) of each shape at its best learning rate."""
    of: dict[Candidate, list[Run]] = defaultdict(list)
    for run in runs:
        of[run.candidate].append(run)
    best: dict[Shape, tuple[float, float]] = {}
    for candidate, members in of.items():
        loss, x = median([run.loss for run in members]), math.fsum(run.x for run in members) / len(members)
        if candidate.shape not in best or loss < best[candidate.shape][1]:
            best[candidate.shape] = (x, loss)
    return dict(sorted(best.items()))


def _against_surface(runs: Sequence[Run]) -> list[BadRun]:
    """Runs of shapes that lie off a polynomial in ln N and ln L through all other shapes."""
    of = _of_shapes(runs)
    shapes = list(of)
    x, loss = (np.array([at[k] for at in of.values()]) for k in (0, 1))
    off = off_surface(x, np.log([float(shape.depth) for shape in shapes]), loss)
    return [BadRun(run, expected, away) for k, expected, away in off for run in runs if run.shape == shapes[k]]


def off_surface(
    x: np.ndarray, y: np.ndarray, loss: np.ndarray, others: np.ndarray | None = None
) -> list[tuple[int, float, float]]:
    """(place, loss by all others, distance in robust sds) of losses (K,) off a polynomial in x and y, the worst first.

    others: (K, ·) further terms of the polynomial.
    """
    terms = np.zeros((len(x), 0)) if others is None else others
    whole = _Surface.of(x, y, loss, terms)
    found = _far_above(whole, x, y, loss, terms) if whole else []
    left = np.delete(np.arange(len(x)), [k for k, _, _ in found])
    while whole := _Surface.of(x[left], y[left], loss[left], terms[left]) if found else whole:
        # a bad loss spoils the residuals of others: without it the rest agrees best
        rests = []
        for k in np.argsort(-np.abs(whole.residual))[:MOST_TRIED]:
            kept = np.delete(left, k)
            if rest := _Surface.of(x[kept], y[kept], loss[kept], terms[kept]):
                rests.append((float(np.abs(rest.residual).max()), int(k), rest))
        if not rests:
            break
        next_, k, rest = min(rests, key=lambda one: one[0])
        off = abs(float(whole.residual[k]))
        if off <= max(_threshold(rest.df, len(left)) * rest.scale, FARTHER * next_, LEAST_NATS):
            break
        found.append((int(left[k]), float(whole.expected[k]), off / max(rest.scale, 1e-12)))
        left = np.delete(left, k)
    return found


def _far_above(
    whole: _Surface, x: np.ndarray, y: np.ndarray, loss: np.ndarray, terms: np.ndarray
) -> list[tuple[int, float, float]]:
    """Losses of runs that diverged, as in ``off_surface``: together they hide each other. All lie above the polynomial
    through the rest, and far from it. whole: the polynomial through all."""
    columns, weight, above = whole.columns(x, y, terms), np.ones(len(x)), np.zeros(len(x), dtype=bool)
    for step in range(2 * MOST_STEPS):  # least absolute distances first, then least squares of the rest
        root = np.sqrt(weight)
        expected = columns @ np.linalg.lstsq(columns * root[:, None], loss * root, rcond=None)[0]
        off = loss - expected
        scale = NORMAL * float(np.median(np.abs(off[~above])))
        if step < MOST_STEPS:
            weight = 1.0 / np.maximum(np.abs(off), max(scale / 10.0, 1e-12))
            continue
        known, above = above, off > max(_threshold(whole.df - above.sum(), len(x)) * scale, LEAST_NATS)
        weight = np.where(above, 0.0, 1.0)
        if (above == known).all() or above.sum() > DIVERGED_SHARE * len(x):
            break
    if above.sum() > DIVERGED_SHARE * len(x):
        return []
    order = np.argsort(-off)
    for n in range(int(above.sum()), 1, -1):  # the largest group that is far from all others
        if off[order[n - 1]] > TOGETHER * np.abs(off[order[n:]]).max():
            return [(int(k), float(expected[k]), float(off[k]) / max(scale, 1e-12)) for k in order[:n]]
    return []


@dataclass(frozen=True)
class _Surface:
    """Polynomial through losses (K,). expected: (K,) loss by all others, nats. residual: (K,) studentised distance from
    it, nats. scale: its robust sd, nats. df: its degrees of freedom. columns: (n, ·) its terms at x, y (n,) and further
    terms (n, ·)."""

    expected: np.ndarray
    residual: np.ndarray
    scale: float
    df: int
    columns: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, loss: np.ndarray, terms: np.ndarray) -> _Surface | None:
        """The polynomial in x and y of the highest degree that leaves as many degrees of freedom as it has, with the
        ``terms`` (K, ·); None if a parabola does not."""
        if len(x) < FEWEST:
            return None
        middle, spread = np.array([[f(one) for one in (x, y)] for f in (np.mean, np.std)])

        def columns(degree: int, x: np.ndarray, y: np.ndarray, terms: np.ndarray) -> np.ndarray:
            u, v = (np.stack([x, y]) - middle[:, None]) / np.maximum(spread, 1e-12)[:, None]
            powers = [u**a * v**b for a in range(degree + 1) for b in range(degree + 1 - a)]
            return np.column_stack([*powers, terms])

        for degree in DEGREES:
            left, size, _ = np.linalg.svd(columns(degree, x, y, terms), full_matrices=False)
            basis = left[:, size > 1e-9 * size.max()]
            if basis.shape[1] > 1 and len(x) >= 2 * basis.shape[1]:
                free = np.maximum(1.0 - (basis**2).sum(axis=1), 1e-6)
                rest = loss - basis @ (basis.T @ loss)
                residual = rest / np.sqrt(free)
                scale = NORMAL * float(np.median(np.abs(residual)))
                of_degree = partial(columns, degree)
                return cls(loss - rest / free, residual, scale, len(x) - basis.shape[1], of_degree)
        return None
