"""Comparison of recipes: differences of their losses, transitions and best depths, with intervals.

The arms are tables of their own, or the arms of one sweep, told apart by its column ``arm``. They are a factor of one
design: one posterior holds the losses of all of them, each with a smooth level and depth effects of its own, which
shrink towards the base's as far as the losses allow. Every number of a comparison is a question to its draws, the
fit of the base too: a ratio is that of the two numbers beside it, and its interval is narrower where arms are alike. If
one of the two has only a bound, so has the ratio: the quotient of the ends that face each other.

What the errors of two arms have in common cancels in their differences, and is part of the posterior's data: noise of
runs that share a seed and documents (pairing.py), and the scatter of a shape, whose shared part is estimated. A level
that the seeds add to all sizes alike does not cancel between arms.

Another arm's losses are put into the unit of the base at first: losses per token of another vocabulary by the bytes
that a token stands for, so that such arms are compared in bits per byte.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.analysis import Request, answered, fit_options, one_recipe
from dwsweep.fit.answers.transitions import analyse_pairs
from dwsweep.fit.arm import Arm, analysed
from dwsweep.fit.data.covariates import number_of
from dwsweep.fit.data.lengths import at_equal_length, largest, token_groups
from dwsweep.fit.data.one_unit import IN_NATS, in_one_unit
from dwsweep.fit.data.roles import LENGTHS, roles
from dwsweep.fit.data.rows import ARM, are_alike, arms, positive
from dwsweep.fit.data.shape import SAME_SIZE
from dwsweep.fit.data.table import Table, read_asked
from dwsweep.fit.heap import Heap
from dwsweep.fit.pairing import USUAL, Pairing, differing, pair_arms, same_documents
from dwsweep.fit.statistics.ask import LossSurface, at_depths, enough, quantiles, spans_of, surface_of
from dwsweep.fit.statistics.model import PRIORS, SAME_BUDGET, arm_column, declared
from dwsweep.fit.statistics.model import of_arm as column_of
from dwsweep.fit.statistics.noise import t_two_sided
from dwsweep.fit.statistics.small_matrices import small_matrices
from dwsweep.fit.warnings import check_status
from dwsweep.interval import Interval, layers
from dwsweep.records.answers import (
    BEST_DEPTH,
    DIFFERENCE,
    NOT_COMPARABLE,
    RATIO,
    TRANSITION,
    UNCHANGED,
    AnswerRow,
    Comparison,
)
from dwsweep.records.cells import Cells
from dwsweep.records.fit import FitOptions, FitResult
from dwsweep.text import BITS, OF_TEXT, format_count, join

MOST_ARMS = 12  # limit, since one posterior holds them: its cost grows with the cube of their number
MOST_DENSE = 5_000  # most shapes of all arms, whose covariance is formed in full
SIZES = 9  # number of sizes at which best depths are compared
PLACES = ("smallest", "middle", "largest")  # sizes of a depth at which losses are compared
OF_TOKENS = ("data_hash", "tokenizer", "vocab_size")  # losses in bits per byte compare between these
DATA = (*OF_TOKENS, "dataset", "data", "corpus")  # columns of the text and its tokens
NOTHING = 1e-9  # share of the largest variance below which a direction of shared errors is rounding
UNEQUAL_TOKENS = math.log(1.25)  # difference in ln tokens above which two arms had unequal data
VERDICTS = {  # quantity → verdict if the interval lies below no change, and if it lies above
    TRANSITION: ("smaller", "larger"),
    BEST_DEPTH: ("shallower", "deeper"),
    DIFFERENCE: ("better", "worse"),
}


def compare_arms(
    table: Any, others: Iterable[Any] = (), *, params: Iterable[float] = (), beside: Iterable[Any] = (), **options: Any
) -> FitResult:
    """``fit_table`` of the first arm, with every other arm against it.

    The comparison of an arm without a usable loss, such as one whose runs all diverged, only says so.
    """
    others, chosen = list(others), fit_options(**options)
    tables = tables_of(table, others, chosen)
    names = labels(tables)
    # losses of another vocabulary in the nats of the first, by their bits per byte
    tables = [tables[0], *(in_one_unit([tables[0], data], of_first=True)[1] for data in tables[1:])]
    with small_matrices():
        asked = Request.of_heap(_in_one(tables, bool(others), names), chosen, tuple(names))
        heap = asked.heap
        if heap is None:
            left = Counter({("are of other arms", ""): 0 if others else sum(len(data.rows) for data in tables[1:])})
            first = replace(tables[0], account=tables[0].account + left)
            asked = Request.at_length(first, chosen).of_grid()
        every = _analysed(asked, tables, names)
        base = every[0]
        if not base.runs:
            raise InputError(
                f"{argument('table', 'TABLE')}: {base.label}, the base of the comparison, has no run with a "
                f"usable loss: {base.why_none}; allowed: another table or arm first, or a {argument('where')} "
                "without it"
            )
        together = Together.of([arm for arm in every if arm.runs], asked.options, heap)
        own = together.surfaces[base.label] if heap or enough(base.curves) else None
        in_heap = [arm for arm in every[1:] if heap and arm.label in heap.arms]
        result = answered(replace(asked, surface=own), params, beside, in_heap)
        comparisons = [
            together.compare(arm, unequal_tuning(tables[0], data, base.label, arm.label, heap))
            for arm, data in zip(every[1:], tables[1:], strict=True)
        ]
        return replace(result, comparisons=comparisons)


def tables_of(table: Any, others: Sequence[Any], options: FitOptions) -> list[Table]:
    """One table per arm, the first of ``table``; without ``others`` the arms of the table itself."""
    if others:
        tables = [one_recipe(table, options)]
        tables += [one_recipe(other, options, argument("others", "TABLE")) for other in others]
    else:
        data = read_asked(table, options)
        check_status(data.rows)
        tables = [replace(data, rows=rows) for rows in arms(data.rows).values()]
    if not 1 < len(tables) <= MOST_ARMS:
        raise InputError(
            f"arm: {len(tables):,} in {tables[0].source}; 2 to {MOST_ARMS} arms are compared: give a further "
            f"table ({argument('others', '--compare')}), the column of the arms ({argument('arm')}), or "
            f"{argument('where')}, which chooses arms"
        )
    return tables


def labels(tables: Sequence[Table]) -> list[str]:
    """Short distinct names: arms, else folders or files, else numbered paths."""
    own = [list(arms(table.rows)) for table in tables]
    whole = [table.directory or table.source for table in tables]
    short = [(of[0] if len(of) == 1 else "") or PurePath(path).stem for of, path in zip(own, whole, strict=True)]
    return short if len({*short}) == len(short) else [f"{name} ({k})" for k, name in enumerate(whole, start=1)]


def _in_one(tables: Sequence[Table], apart: bool, names: Sequence[str]) -> Table:
    """All arms in one table. apart: each arm was read from a table of its own: the runs of two studies share no
    batches, so that a seed belongs to its table."""

    def seed(name: str, given: Any) -> Any:
        return f"{name} {given}" if apart and given is not None else given

    rows = [
        {**row, ARM: name, "seed": seed(name, row.get("seed"))}
        for data, name in zip(tables, names, strict=True)
        for row in data.rows
    ]
    if not apart:
        return replace(tables[0], rows=rows)

    def each(field: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(one for data in tables for one in getattr(data, field)))

    return replace(
        tables[0],
        rows=rows,
        directory=tables[0].directory if all(data.directory for data in tables) else None,
        n_read=sum(data.n_read for data in tables),
        roles=roles(rows, each("roles")),
        theirs={ours: theirs for data in reversed(tables) for ours, theirs in data.theirs.items()},
        named=each("named"),
        account=sum((data.account for data in tables), Counter()),
        notes=each("notes"),
        doubts=each("doubts"),
    )


def _lacks(data: Table, name: str, options: FitOptions, heap: Heap | None) -> str:
    """Settings of the heap that no run of an arm has."""

    def has(name: str, column: str) -> bool:
        return any(number_of(name, row, [column]) is not None or row.get(column) is not None for row in data.rows)

    lacks = sorted({one.name for one in heap.record.columns if not has(one.name, one.column)}) if heap else []
    if options.at_tokens is not None and "tokens" in lacks:
        given = f"{argument('at_tokens')}: {options.at_tokens:g}"
        raise InputError(f"{given}; no run of {name} has a count of tokens; allowed: without that arm")
    return join(lacks)


def _analysed(asked: Request, tables: Sequence[Table], names: Sequence[str]) -> list[Arm]:
    """Runs of each arm, at the first arm's token count if possible."""
    tokens: float | None = None
    found: list[Arm] = []
    for data, name in zip(tables, names, strict=True):
        lacks = _lacks(data, name, asked.options, asked.heap)
        data = data if asked.heap else at_equal_length(data, asked.options)
        groups = token_groups(data, (asked.heap and asked.heap.rows(name)) or data.rows)
        key = tokens if tokens in groups else largest(groups)
        tokens = tokens if found else key
        try:
            arm = analysed(data, groups[key], asked.options, name, alone=False, heap=asked.heap)
        except InputError as error:  # names the arm that failed
            raise InputError(*(f"{name}: {line}" for line in error.templates)) from None
        found.append(replace(arm, lacks=lacks))
    return found


def bits_of(arm: Arm) -> float | None:
    """Bits per byte of a loss of one as another arm is compared with the base; None if its own unit is the base's."""
    known = [bits / run.loss for run in arm.runs if IN_NATS in run.row and (bits := run.row.get("bits_per_byte"))]
    return float(np.median(known)) if known else None


def unequal_data(base: Arm, other: Arm, unit: str) -> tuple[str, ...]:
    """Sentence on two arms whose text, tokenizer or count of tokens differ, so that recipes cannot be compared.

    unit: of the losses that are compared; in bits per byte they compare between tokenizers."""
    names = [name for name in DATA if unit not in OF_TEXT or name not in OF_TOKENS]
    found = [
        f"{name} {join(one, 2)} and {join(two, 2)}" for name, one, two in differing(base, other, names, apart=True)
    ]
    for name in LENGTHS:  # steps of another batch are another length
        lengths = [
            {run.shape: float(count) for run in arm.runs if positive(count := run.row.get(name))}
            for arm in (base, other)
        ]
        if all(lengths) and not (name == "steps" and any(differing(base, other, ["batch_size"], apart=True))):
            break
    else:
        lengths = [{}, {}]
    shared = lengths[0].keys() & lengths[1].keys()
    ends = [float(np.median([of[shape] for shape in (shared or of)])) for of in lengths if of]
    if len(ends) == 2 and abs(math.log(ends[1] / ends[0])) > UNEQUAL_TOKENS:
        more, less = (other, base) if ends[1] > ends[0] else (base, other)
        one, two = (format_count(end) for end in ends)
        times = f"{max(ends) / min(ends):.3g} times as many for {more.label} as for {less.label}"
        found.append(f"{name} {one} and {two}, {times}")
    if not found:
        return ()
    return (
        f"NOT AT EQUAL DATA: {base.label} and {other.label} differ in {'; '.join(found)}: no comparison of recipes",
    )


def unequal_tuning(base: Table, other: Table, name: str, other_name: str, heap: Heap | None) -> tuple[str, ...]:
    """Sentence on two arms, one of which has a single learning rate for most shapes, and not the other's. heap: where
    both have several, each of its nets is compared at its best one."""
    several = all(len({row.get("learning_rate") for row in data.rows}) > 1 for data in (base, other))
    if heap and heap.record.rates and several:
        return ()
    tried: tuple[dict[tuple[Any, Any], list[float]], ...] = (defaultdict(list), defaultdict(list))
    for data, rates in zip((base, other), tried, strict=True):
        for row in data.rows:
            if positive(rate := row.get("learning_rate")):
                rates[row.get("depth"), row.get("width")].append(float(rate))
    shared = tried[0].keys() & tried[1].keys()
    single = [{shape for shape in shared if are_alike(rates[shape])} for rates in tried]
    alike = {shape for shape in single[0] & single[1] if are_alike(tried[0][shape] + tried[1][shape])}
    apart = (single[0] | single[1]) - alike
    if 2 * len(apart) <= len(shared):
        return ()
    each = ["one learning rate" if 2 * len(of) > len(shared) else "several learning rates" for of in single]
    each[1] = "another one" if each[0] == each[1] else each[1]
    return (
        f"NOT AT EQUAL TUNING: most shapes of {name} have {each[0]}, of {other_name} {each[1]}: part of the "
        "differences may be the learning rate's",
    )


def ratio(base: Interval, other: Interval, drawn: Sequence[np.ndarray], confidence: float) -> Interval:
    """other / base of two logarithms. drawn: (D,) of each. If one of the two has only a bound, so has the ratio: the
    quotient of the ends that face each other."""
    if base.value is not None and other.value is not None:
        value = other.value - base.value
        with np.errstate(invalid="ignore"):  # two infinities give zero
            low, _, high = quantiles(np.where(drawn[0] == drawn[1], 0.0, drawn[1] - drawn[0]), confidence)
        ends = (end if math.isfinite(end) else None for end in (min(low, value), max(high, value)))
        return Interval(value, *ends).map(math.exp)
    low_end = None if other.low is None or base.high is None else other.low - base.high
    high_end = None if other.high is None or base.low is None else other.high - base.low
    return Interval(None, low_end, high_end).map(math.exp)


def verdict(quantity: str, change: Interval) -> str:
    """Verdict on a ratio, or on a difference of losses."""
    nothing = 0.0 if quantity == DIFFERENCE else 1.0
    below, above = VERDICTS[quantity]
    sign = change.map(lambda value: value - nothing).sign
    return NOT_COMPARABLE if change.unbounded else {-1: below, 0: UNCHANGED, 1: above}[sign]


@dataclass(frozen=True)
class Together:
    """One posterior of all arms. surfaces: the losses of each arm by it. held: values at which the arms
    of a heap are compared, in words; empty for grids. pairings: of the other arms of grids with the base."""

    base: Arm
    surfaces: Mapping[str, LossSurface]
    held: str
    pairings: Mapping[str, Pairing]
    options: FitOptions

    @classmethod
    def of(cls, arms: Sequence[Arm], options: FitOptions, heap: Heap | None = None) -> Together:
        base, *others = arms
        held = join(dict.fromkeys(one.held for one in heap.record.columns)) if heap else ""
        pairings = {} if held else {one.label: pair_arms(base, one) for one in others}
        if heap:
            record = heap.surface
        else:
            cells, curves = pooled(arms, list(pairings.values())), [one.curves for one in arms]
            depth, width = (np.concatenate([vars(one)[name] for one in curves]) for name in ("depth", "width"))
            record = surface_of(cells, depth, width, options.confidence, options.seed, own=len(curves[0].x))
        surfaces = {base.label: LossSurface(record)}
        for one in others:
            own = spans_of(one.curves.depth, one.curves.x)
            there = replace(record, spans=own, optima=())
            surfaces[one.label] = LossSurface(there, setting={column_of(one.label): 1.0})
        return cls(base, surfaces, held, pairings, options)

    def compare(self, other: Arm, unfair: Sequence[str] = ()) -> Comparison:
        """``other`` against the base. unfair: see ``unequal_tuning``."""
        if not other.runs:
            said = f"{other.label} has no usable loss: {other.why_none}; nothing is compared"
            why = "unpaired: one has no usable loss"
            return self._comparison(other.label, self.base.unit, pairing=why, answer=(said,))
        base, pairing = self.base, self.pairings.get(other.label)
        depths, transitions = list(self._best_depths(other)), list(self._transitions(other))
        noises = base.curves.noise, other.curves.noise
        known = bool(self.held) or (any(one.known for one in noises) and not any(one.why_unknown for one in noises))
        losses = list(self._losses(other)) if known else []
        unit = base.unit if bits_of(other) is None else BITS
        unequal = unequal_data(base, other, unit)
        notes = _in_bits(base, other) if unit == BITS != base.unit else []
        both = base, other
        notes += [
            f"no run of {arm.label} has {arm.lacks}: its losses are not adjusted for it" for arm in both if arm.lacks
        ]
        if pairing and pairing.single_seed and known:
            notes.append(
                "one seed: the error that it adds to all losses alike is assumed to be as large as the noise of one run"
            )
        told_by_runs = ", as far as their runs tell," if unfair or any(arm.lacks for arm in both) else ""
        told = *base.warnings, *(line for line in other.warnings if line.startswith("diverged: "))
        notes += [line for line in other.warnings if line not in told]
        of_data = " (of different data, which no recipe explains)" if unequal else ""
        better = _better(losses) if known else "the noise is not known, so no difference is claimed"
        answer = _one_shape(losses, base.label) or (
            _of_depths(depths, base.label),
            _moved(transitions),
            f"losses{of_data}: {better}",
        )
        ended = [f"{arm.label}: {arm.ended}; the comparison uses the other runs" for arm in both if arm.ended]
        return self._comparison(
            other.label,
            unit,
            pairing=pairing.how if pairing else f"both{told_by_runs} at {self.held}",
            answer=(*unequal, *unfair, *ended, *answer),
            rows=(*depths, *transitions, *losses),
            notes=tuple(notes),
        )

    def _comparison(self, label: str, unit: str, **found: Any) -> Comparison:
        return Comparison(base=self.base.label, arm=label, unit=unit, confidence=self.options.confidence, **found)

    def _both(self, other: Arm) -> tuple[LossSurface, LossSurface]:
        return self.surfaces[self.base.label], self.surfaces[other.label]

    def _transitions(self, other: Arm) -> Iterator[AnswerRow]:
        """One row per pair of neighbouring depths that both arms have at two sizes or more."""
        surfaces, confidence = self._both(other), self.options.confidence
        if min(surface.record.high - surface.record.low for surface in surfaces) <= SAME_BUDGET:
            return
        both = zip((self.base, other), surfaces, strict=True)
        pairs = [analyse_pairs(arm.curves, confidence, own) for arm, own in both]
        for pair, one in pairs[0].items():
            if two := pairs[1].get(pair):
                change = ratio(one.interval, two.interval, [one.drawn, two.drawn], confidence)
                yield self._row(RATIO, TRANSITION, other, change, column=TRANSITION, value=f"{pair[0]} → {pair[1]}")

    def _best_depths(self, other: Arm) -> Iterator[AnswerRow]:
        """Best depths of both arms and their ratio, at sizes of both at which the data bound at least one of them."""
        surfaces = self._both(other)
        low, high = max(one.record.low for one in surfaces), min(one.record.high for one in surfaces)
        for x in _sizes(low, high, SIZES):
            found = [one for surface in surfaces if (one := surface.optimum(x))]
            depths = [one.depth_interval for one in found]
            if len(found) < 2 or all(one.unbounded for one in depths):
                continue
            for arm, one in zip((self.base, other), found, strict=True):
                yield replace(one, equal=self.options.axis, arm=arm.label, reason="" if one.depth else one.beyond)
            a, b = (depth.map(math.log) for depth in depths)
            change = ratio(a, b, [surface.drawn_depths(x) for surface in surfaces], self.options.confidence)
            yield self._row(RATIO, BEST_DEPTH, other, change, column=BEST_DEPTH, n_params=math.exp(x))

    def _losses(self, other: Arm) -> Iterator[AnswerRow]:
        """Differences of the losses at the smallest, middle and largest size of each depth of both arms."""
        surfaces, printed = self._both(other), bits_of(other) or 1.0
        spans = [{span.depth: span for span in surface.record.spans} for surface in surfaces]
        for depth in sorted(spans[0].keys() & spans[1].keys()):
            one, two = (of[depth] for of in spans)
            x = _sizes(max(one.low, two.low), min(one.high, two.high), len(PLACES))
            if not x:
                continue
            losses = [at_depths(of.posterior, np.array(x), np.array([depth]), of.setting)[:, :, 0] for of in surfaces]
            for at, drawn in zip(x, (printed * losses[1] - printed * losses[0]).T, strict=True):
                low, _, high = quantiles(drawn, self.options.confidence)
                change = Interval(float(drawn.mean()), low, high)
                yield self._row(DIFFERENCE, DIFFERENCE, other, change, depth=depth, n_params=math.exp(at))

    def _row(self, question: str, quantity: str, other: Arm, change: Interval, **at: Any) -> AnswerRow:
        """A change of the other arm against the base."""
        of: dict[str, Any] = {"question": question, "equal": self.options.axis, "arm": other.label, **at}
        return AnswerRow(**of, **change.columns("estimate"), reason=verdict(quantity, change))


def _sizes(low: float, high: float, count: int) -> list[float]:
    """ln sizes, ``count`` of them, between two ends that arms share; the middle one of shapes of one size, none if they
    are apart."""
    if high - low > SAME_BUDGET:
        return np.linspace(low, high, count).tolist()
    return [(low + high) / 2.0] if low - high <= SAME_SIZE else []


def pooled(arms: Sequence[Arm], pairings: Sequence[Pairing]) -> Cells:
    """The cells of all arms, the base first, with a column for each other arm and the errors that they share.

    Of the variance of a run the part that arms share is an error of the shape in all of them. What else the seeds of a
    shape share between arms has a size to be estimated. The level that seeds add to an arm is as large as its degrees
    of freedom allow. The runs of an arm without replicates are as noisy as those of the others.
    """
    each = [arm.curves.cells for arm in arms]
    replicated = [arm.curves.noise for arm in arms if arm.curves.noise.sigma and math.isfinite(arm.curves.noise.df)]
    if df := sum(one.replicate_df for one in replicated):
        sigma2 = sum(one.replicate_df * (one.sigma or 0.0) ** 2 for one in replicated) / df
        each = [
            own if own.df > 0.0 else replace(own, variance=sigma2 / arm.curves.n, scatter=PRIORS["scatter"])
            for own, arm in zip(each, arms, strict=True)
        ]
    x, y, mean, variance = (
        np.concatenate([vars(one)[name] for one in each]) for name in ("x", "y", "mean", "variance")
    )
    if len(x) > MOST_DENSE:
        raise InputError(
            f"table: {len(x):,} shapes; at most {MOST_DENSE:,} are compared at once: choose some with "
            + argument("where")
        )
    edges = np.cumsum([0, *(len(one.x) for one in each)])
    own = [slice(a, b) for a, b in pairwise(edges)]
    known = np.zeros((len(x), len(x)))
    for k, one in enumerate(each):
        known[own[k], own[k]] = one.factors @ one.factors.T
        for m in range(k):
            known[own[m], own[k]] = same_documents(arms[m], arms[k])
            known[own[k], own[m]] = known[own[m], own[k]].T
    values, vectors = np.linalg.eigh(known)
    kept = values > NOTHING * max(float(values.max()), NOTHING)
    factors = [vectors[:, kept] * np.sqrt(values[kept])]
    shape = np.zeros((len(x), len(each[0].x)))  # the part of a run that arms share, by shape of the base
    linked = np.zeros_like(shape)
    most = max((float(pairing.runs.max(initial=0.0)) for pairing in pairings), default=0.0)
    for k, pairing in enumerate(pairings, start=1):
        times = t_two_sided(USUAL, pairing.level_df) / t_two_sided(USUAL, math.inf)
        level = np.zeros((len(x), 1))
        level[own[k]] = times * math.sqrt(pairing.level)
        factors.append(level)
        for (i, j), of_run in zip(pairing.cells, pairing.runs, strict=True):
            linked[i, i] = linked[edges[k] + j, i] = 1.0
            shape[i, i] = math.sqrt(most)
            shape[edges[k] + j, i] = of_run / math.sqrt(most) if most else 0.0
    used = linked.any(axis=0)
    arm_of = np.repeat(np.arange(len(arms)), np.diff(edges))
    alone = max(len(one.x) for one in each) == 1  # of one shape the very loss is asked for, and no curve
    return Cells(
        x=x,
        y=y,
        mean=mean,
        variance=np.maximum(variance - (shape**2).sum(axis=1), 0.0),
        factors=np.hstack([*factors, shape[:, used]]),
        df=sum(one.df for one in each if one.df > 0.0),
        scatter=declared(0.0) if alone else max((one.scatter for one in each), key=lambda prior: prior.mean),
        columns=tuple(arm_column(arm.label, arm_of == k, x) for k, arm in enumerate(arms[1:], start=1)),
        shared=linked[:, used] if used.any() else None,
        learnt={"shared": PRIORS["scatter"]},
    )


def _one_shape(losses: Sequence[AnswerRow], base: str) -> tuple[str, ...]:
    """Answer on a single shape of both arms; empty for more."""
    if len(losses) != 1:
        return ()
    (row,) = losses
    return (
        f"loss of {row.arm} − loss of {base} at {row.depth:g} layers, N = {format_count(row.n_params or 0.0)}: "
        f"{row.estimate_interval.format('+.4f')}: {row.reason}",
        "one shape: nothing can be said of depth",
    )


def _of_depths(rows: Sequence[AnswerRow], base: str) -> str:
    """Answer on the best depth, at the middle size at which both arms have one; the choice does not depend on the
    interval."""
    changes = [row for row in rows if row.question == RATIO]
    known = [row for row in changes if row.estimate is not None]
    if not known:
        return "best depth: no size has a bounded one under both arms, so no change can be shown or excluded"
    centre = math.log((changes[0].n_params or 1.0) * (changes[-1].n_params or 1.0)) / 2.0
    bounded = [row for row in known if row.estimate_interval.bounded]
    row = min(bounded or known, key=lambda one: abs(math.log(one.n_params or 1.0) - centre))
    of = {one.arm: one.depth_interval for one in rows if one.question == BEST_DEPTH and one.n_params == row.n_params}
    one, two = (of[arm].texts(layers)[0] for arm in (base, row.arm))
    return (
        f"best depth at N = {format_count(row.n_params or 0.0)}: {one} under {base}, {two} under {row.arm}; ratio "
        f"{row.estimate_interval.format('.2f')}: {row.reason}"
    )


def _moved(rows: Sequence[AnswerRow]) -> str:
    """Answer on the transitions, by verdict."""
    if not rows:
        return "transitions: no pair of neighbouring depths has two sizes in both arms"
    still = {of: [str(row.value) for row in rows if row.reason == of] for of in (UNCHANGED, NOT_COMPARABLE)}
    said = [
        f"{row.value} at {row.reason} sizes, ratio {row.estimate_interval.format('.2f')}"
        for row in rows
        if row.reason not in still
    ]
    said += [f"{of} for {', '.join(pairs)}" for of, pairs in still.items() if pairs]
    return f"transitions: {'; '.join(said)}"


def _better(rows: Sequence[AnswerRow]) -> str:
    """Answer on the losses: the depths and sizes at which the other arm is better or worse."""
    by_claim: dict[str, list[str]] = {}
    for depth, of in groupby(rows, key=lambda row: row.depth or 0.0):
        own, parts = list(of), []
        for word in VERDICTS[DIFFERENCE]:
            if at := [place for place, row in zip(PLACES, own, strict=False) if row.reason == word]:
                parts.append(f"{own[0].arm} is {word} at {'every' if len(at) == len(own) else 'the ' + join(at)} size")
        by_claim.setdefault(", ".join(parts) or UNCHANGED, []).append(f"{depth:g}")
    said = "; ".join(f"at depth {', '.join(at)} {claim}" for claim, at in by_claim.items())
    return said or "no depth has a curve in both arms"


def _in_bits(*arms: Arm) -> list[str]:
    """Sentences on losses that are in bits per byte, as vocabularies differ."""
    per_bit = [[run.row.get(IN_NATS, run.loss) / run.row["bits_per_byte"] for run in arm.runs] for arm in arms]
    per_token = [float(np.median(one)) / math.log(2.0) for one in per_bit]
    of_each = " and ".join(f"{size:.2f} ({arm.label})" for arm, size in zip(arms, per_token, strict=True))
    return [
        f"losses are compared in {BITS}: the vocabularies differ",
        f"bytes per token are {of_each}: equal tokens are unequal text, in training, in a window, and held out unless "
        "the whole set is evaluated",
    ]
