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
from dwsweep.fit.analysis import Request, answered, fit_options
from dwsweep.fit.answers import with_answers
from dwsweep.fit.ask import (
    LossSurface,
    at_depths,
    crossings,
    ends_of,
    enough,
    quantiles,
    spans_of,
    surface_of,
    surface_record,
)
from dwsweep.fit.cells import Shape
from dwsweep.fit.data.covariates import number_of
from dwsweep.fit.data.roles import roles
from dwsweep.fit.data.rows import ARM, Row, arms, check_one_arm, of_arm
from dwsweep.fit.data.table import Table, read_asked, read_other
from dwsweep.fit.heap import Heap
from dwsweep.fit.lengths import at_equal_length, largest, token_groups
from dwsweep.fit.model import PRIORS, SAME_BUDGET, Cells, arm_column, declared
from dwsweep.fit.model import of_arm as column_of
from dwsweep.fit.nodes import weigh, with_odd_depths
from dwsweep.fit.noise import t_two_sided
from dwsweep.fit.one_thread import one_thread
from dwsweep.fit.one_unit import IN_NATS, in_one_unit
from dwsweep.fit.pairing import TOLERANCE, USUAL, Arm, Pairing, pair_arms, same_documents
from dwsweep.fit.token_group import TokenGroup
from dwsweep.fit.transitions import Pair, analyse_pairs
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
from dwsweep.records.fit import DepthSpan, FitOptions, FitResult, LeftOutRows, Surface
from dwsweep.text import BITS, OF_TEXT, format_count, join

MOST_ARMS = 12  # limit, since one posterior holds them: its cost grows with the cube of their number
SIZES = 9  # number of sizes at which best depths are compared
PLACES = ("smallest", "middle", "largest")  # sizes of a depth at which losses are compared
CROSSING_POINTS = 31
DATA = ("data_hash", "dataset", "data", "corpus", "tokenizer", "vocab_size")  # columns of the text and its tokens
NOTHING = 1e-9  # share of the largest variance below which a direction of shared errors is rounding
UNEQUAL_TOKENS = math.log(1.25)  # difference in ln tokens above which two arms had unequal data
OF_OTHERS = "are of other arms"
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
    if len(tables) < 2:
        raise InputError(
            f"{argument('others', '--compare')}: {tables[0].source} has one arm; allowed: a second table, or a sweep "
            "with grid.arms"
        )
    names = labels(tables)
    # losses of another vocabulary in the nats of the first, by their bits per byte
    tables = [tables[0], *(in_one_unit([tables[0], data], of_first=True)[1] for data in tables[1:])]
    with one_thread():
        every = _in_one(tables, names) if others else _of_one(tables, names)
        asked = Request.of_heap(every, chosen, params, tuple(names))
        heap = asked.heap
        lacking = _lacking(tables, names, heap) if heap else {}
        if heap:
            tables = [replace(one, rows=heap.rows(name) or one.rows) for one, name in zip(tables, names, strict=True)]
        else:
            own_arm = () if others else (of_arm(tables[0].rows),)
            tables = [at_equal_length(data, chosen) for data in tables]
            of_base = replace(chosen, where=(*chosen.where, *own_arm))
            asked = Request.at_length(tables[0], of_base, params).of_grid()
        groups = _groups(tables, names, asked.options, heap)
        usable = {one[0]: _arm(*one) for one in zip(names, tables, groups, strict=True) if one[2].curves}
        if groups[0].curves is None:
            raise InputError(
                f"{argument('table', 'TABLE')}: {names[0]}, the base of the comparison, has no run with a "
                f"usable loss: {_why_none(groups[0])}; allowed: another table or arm first, or a {argument('where')} "
                "without it"
            )
        together = Together.of([*usable.values()], asked.options, heap, lacking)
        in_heap = [group for name, group in zip(names, groups, strict=True) if heap and name in heap.arms[1:]]
        own = together.surfaces[names[0]] if heap or enough(together.base.curves) else None
        result = answered(replace(asked, surface=own), beside, in_heap)
        found = [
            together.compare(usable[name]) if name in usable else together.nothing(name, _why_none(group))
            for name, group in zip(names[1:], groups[1:], strict=True)
        ]
        return with_answers(replace(result, comparisons=found))


def _lacking(tables: Sequence[Table], names: Sequence[str], heap: Heap) -> dict[str, str]:
    """Arm → settings of the heap that no run of the arm has."""
    found = {}
    for data, name in zip(tables, names, strict=True):
        lacks = {
            one.name
            for one in heap.record.columns
            if all(number_of(one.name, row, [one.column]) is None and row.get(one.column) is None for row in data.rows)
        }
        if lacks:
            found[name] = join(sorted(lacks))
    return found


def _of_one(arms: Sequence[Table], names: Sequence[str]) -> Table:
    """The table of which ``arms`` are the arms."""
    rows = [{**row, ARM: name} for data, name in zip(arms, names, strict=True) for row in data.rows]
    return replace(arms[0], rows=rows, account=tuple(one for one in arms[0].account if one.why != OF_OTHERS))


def _in_one(tables: Sequence[Table], names: Sequence[str]) -> Table:
    """Several tables in one. Seeds are each table's own: runs of two studies share no batches."""
    columns = tuple(dict.fromkeys(name for data in tables for name in data.columns))
    rows = [
        {**row, ARM: name, "seed": None if row.get("seed") is None else f"{name} {row['seed']}"}
        for data, name in zip(tables, names, strict=True)
        for row in data.rows
    ]

    def each(field: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(one for data in tables for one in getattr(data, field)))

    return replace(
        tables[0],
        rows=rows,
        columns=columns,
        directory=tables[0].directory if all(data.directory for data in tables) else None,
        n_read=sum(data.n_read for data in tables),
        roles=roles(rows, columns),
        theirs={their: our for data in reversed(tables) for their, our in data.theirs.items()},
        named=each("named"),
        account=tuple(line for data in tables for line in data.account),
        notes=each("notes"),
        doubts=each("doubts"),
    )


def tables_of(table: Any, others: Sequence[Any], options: FitOptions) -> list[Table]:
    """One table per arm, the first of ``table``; without ``others`` the arms of the table itself."""
    tables = [read_asked(table, options)]
    tables += [read_other(other, options, argument("others", "TABLE")) for other in others]
    for one in tables:
        check_status(one.rows)
        if others:
            check_one_arm(one.rows, one.source)
    found = tables if others else [_of_arm(tables[0], rows) for rows in arms(tables[0].rows).values()]
    if len(found) > MOST_ARMS:
        raise InputError(
            f"arm: {len(found):,} arms; at most {MOST_ARMS} are compared: choose some with {argument('where')}"
        )
    return found


def _of_arm(data: Table, rows: list[Row]) -> Table:
    left = LeftOutRows(rows=len(data.rows) - len(rows), why=OF_OTHERS)
    return replace(data, rows=rows, account=(*data.account, *([left] if left.rows else [])))


def _groups(tables: Sequence[Table], names: Sequence[str], options: FitOptions, heap: Heap | None) -> list[TokenGroup]:
    """Runs of each arm, at the first arm's token count if possible. heap: of all arms."""
    tokens: float | None = None
    found: list[TokenGroup] = []
    for data, name in zip(tables, names, strict=True):
        groups = token_groups(data.rows)
        key = tokens if found and tokens in groups else largest(groups)
        tokens = tokens if found else key
        shorter = heap is not None and heap.shorter
        try:
            found.append(TokenGroup.of(data, groups[key], options, shorter, pairs=False, heap=heap))
        except InputError as error:  # names the arm that failed
            raise InputError(*(f"{name}: {line}" for line in error.templates)) from None
    return found


def _arm(name: str, data: Table, group: TokenGroup) -> Arm:
    """The arm of a group of runs."""
    assert group.curves
    rule = group.selection.diverged_rule
    ended = ": ".join(filter(None, (_diverged(group.rows), rule)))
    warnings = [line for line in group.warnings if not rule or not line.endswith(rule)]
    return Arm(name, group.selection.runs, group.curves, group.held_out, ended, data.unit, warnings)


def _diverged(rows: Sequence[Row]) -> str:
    """Number of diverged runs in words; empty if none diverged."""
    count = sum(
        str(row.get("status")).lower() == "diverged" or (row.get("loss") is not None and not math.isfinite(row["loss"]))
        for row in rows
    )
    return f"{count} of {len(rows)} runs diverged" if count else ""


def _why_none(group: TokenGroup) -> str:
    """Reasons why no shape of a group counts, with the number of shapes."""
    counts = Counter(group.selection.excluded.values())
    reasons = [f"{reason} ({count} shapes)" for reason, count in counts.most_common(3)]
    return _diverged(group.rows) or "; ".join(reasons) or "it has no finished run"


def labels(tables: Sequence[Table]) -> list[str]:
    """Short distinct names: arms, else folders or files, else whole paths."""
    own = [list(arms(table.rows)) for table in tables]
    found = [
        (of[0] if len(of) == 1 else "") or PurePath(table.directory or table.source).stem
        for of, table in zip(own, tables, strict=True)
    ]
    if len(set(found)) < len(found):
        found = [table.directory or table.source for table in tables]
    if len(set(found)) < len(found):
        found = [f"{name} ({number})" for number, name in enumerate(found, start=1)]
    return found


def bits_of(arm: Arm) -> float | None:
    """Bits per byte of a loss of one as another arm is compared with the base; None if its own unit is the base's."""
    known = [bits / run.loss for run in arm.runs if IN_NATS in run.row and (bits := run.row.get("bits_per_byte"))]
    return float(np.median(known)) if known else None


def unequal_data(base: Arm, other: Arm, unit: str) -> tuple[str, ...]:
    """Sentence on two arms whose text, tokenizer or count of tokens differ, so that recipes cannot be compared.

    unit: of the losses that are compared; in bits per byte they compare between tokenizers."""
    found = []
    for name in DATA:
        if unit in OF_TEXT and name in ("data_hash", "tokenizer", "vocab_size"):
            continue
        values = [{str(v) for run in arm.runs if (v := run.row.get(name)) is not None} for arm in (base, other)]
        if all(values) and not values[0] & values[1]:
            shown = [join(sorted(one[:12] for one in of), 2) for of in values]
            found.append(f"{name} {shown[0]} and {shown[1]}")
    one, two = (_tokens_of(arm) for arm in (base, other))
    shared = sorted(one.keys() & two.keys())
    ends = [np.median([of[key] for key in (shared or of)]) for of in (one, two) if of]
    if len(ends) == 2 and abs(math.log(ends[1] / ends[0])) > UNEQUAL_TOKENS:
        more, less = (other, base) if ends[1] > ends[0] else (base, other)
        shown = [format_count(float(end)) for end in ends]
        found.append(
            f"tokens {shown[0]} and {shown[1]}, {max(ends) / min(ends):.3g} times as many for {more.label} as for "
            f"{less.label}"
        )
    if not found:
        return ()
    return (
        f"NOT AT EQUAL DATA: {base.label} and {other.label} differ in {'; '.join(found)}: no comparison of recipes",
    )


def _tokens_of(arm: Arm) -> dict[Shape, float]:
    """Training tokens of each shape."""
    found: dict[Shape, list[float]] = defaultdict(list)
    for run in arm.runs:
        tokens = run.row.get("tokens")
        if isinstance(tokens, int | float) and 0 < tokens < math.inf:
            found[run.shape].append(float(tokens))
    return {shape: float(np.median(counts)) for shape, counts in found.items()}


Drawn = tuple[np.ndarray, np.ndarray]
"""(D,) draws of a logarithm under the base, and under the other arm."""


def ratio(base: Interval, other: Interval, drawn: Drawn | None, confidence: float) -> Interval:
    """other / base of two logarithms. drawn: of both. If one of the two has only a bound, so has the ratio: the
    quotient of the ends that face each other."""
    if drawn is not None and base.value is not None and other.value is not None:
        value = other.value - base.value
        with np.errstate(invalid="ignore"):  # two infinities give zero
            low, _, high = quantiles(np.where(drawn[0] == drawn[1], 0.0, drawn[1] - drawn[0]), confidence)
        ends = min(low, value), max(high, value)
        found = Interval(value, *(end if math.isfinite(end) else None for end in ends))
    else:
        low_end = None if other.low is None or base.high is None else other.low - base.high
        high_end = None if other.high is None or base.low is None else other.high - base.low
        found = Interval(None, low_end, high_end)
    return found.map(math.exp)


def verdict(quantity: str, change: Interval) -> str:
    """Verdict on a ratio, or on a difference of losses."""
    nothing = 0.0 if quantity == DIFFERENCE else 1.0
    below, above = VERDICTS[quantity]
    sign = change.map(lambda value: value - nothing).sign
    return NOT_COMPARABLE if change.unbounded else {-1: below, 0: UNCHANGED, 1: above}[sign]


@dataclass(frozen=True)
class Together:
    """One posterior of all arms, the base first. surfaces: the losses of each arm by the posterior. pairings: of the
    other arms with the base. heap: of all arms, whose posterior is at held values. lacking: arm → settings of the heap
    that no run of it has."""

    arms: Sequence[Arm]
    surfaces: Mapping[str, LossSurface]
    pairings: Mapping[str, Pairing]
    options: FitOptions
    heap: Heap | None
    lacking: Mapping[str, str]

    @classmethod
    def of(
        cls,
        arms: Sequence[Arm],
        options: FitOptions,
        heap: Heap | None = None,
        lacking: Mapping[str, str] | None = None,
    ) -> Together:
        base, *others = arms
        pairings = {one.label: pair_arms(base, one) for one in others}
        record = heap.surface if heap else _surface(arms, list(pairings.values()), options)
        surfaces = {base.label: LossSurface(record)}
        for one in others:
            own = spans_of(one.curves.depth, one.curves.x)
            low, high = ends_of(own)
            there = replace(record, spans=own, low=low, high=high, optima=())
            surfaces[one.label] = LossSurface(there, setting={column_of(one.label): 1.0})
        return cls(arms, surfaces, pairings, options, heap, lacking or {})

    @property
    def base(self) -> Arm:
        return self.arms[0]

    def nothing(self, label: str, why: str) -> Comparison:
        """The comparison of an arm without a usable loss."""
        said = f"{label} has no usable loss: {why}; nothing is compared"
        return Comparison(
            base=self.base.label,
            arm=label,
            unit=self.base.unit,
            confidence=self.options.confidence,
            pairing="unpaired: one has no usable loss",
            answer=(said,),
        )

    def compare(self, other: Arm) -> Comparison:
        """``other`` against the base."""
        base, pairing = self.base, self.pairings[other.label]
        transitions, depths = list(self._transitions(other)), list(self._best_depths(other))
        unit = base.unit if bits_of(other) is None else BITS
        held = join(dict.fromkeys(one.held for one in self.heap.record.columns)) if self.heap else ""
        known = held or (base.curves.noise.known and other.curves.noise.known)
        why_not = "" if known else "the noise is not known, so no difference is claimed"
        losses = [] if why_not else list(self._losses(other))
        unequal = unequal_data(base, other, unit)
        notes = _in_bits(base, other) if unit == BITS != base.unit else []
        lacks = [(arm.label, of) for arm in (base, other) if (of := self.lacking.get(arm.label))]
        notes += [f"no run of {name} has {of}: its losses are not adjusted for it" for name, of in lacks]
        if pairing.single_seed and not why_not:
            notes.append(
                "one seed: the error that it adds to all losses alike is assumed to be as large as the noise of one run"
            )
        said = "losses (of different data, which no recipe explains): " if unequal else "losses: "
        answer = _one_shape(losses) or (
            _of_depths(depths, base.label),
            _moved(transitions),
            said + (why_not or _better(losses)),
        )
        torn = (arm for arm in (base, other) if arm.diverged)
        ended = [f"{arm.label}: {arm.diverged}; the comparison uses the other runs" for arm in torn]
        unpaired = f"both at {held}" if held else f"unpaired: {pairing.why_not}"
        return Comparison(
            base=base.label,
            arm=other.label,
            unit=unit,
            confidence=self.options.confidence,
            paired=not pairing.why_not,
            pairing=unpaired if pairing.why_not else pairing.by,
            answer=(*unequal, *ended, *answer),
            rows=(*depths, *transitions, *losses),
            notes=(*notes, *(line for line in other.warnings if line not in base.warnings)),
        )

    def _both(self, other: Arm) -> tuple[LossSurface, LossSurface]:
        return self.surfaces[self.base.label], self.surfaces[other.label]

    def _transitions(self, other: Arm) -> Iterator[AnswerRow]:
        """One row per pair of neighbouring depths that both arms have at two sizes or more."""
        surfaces, confidence = self._both(other), self.options.confidence
        if min(surface.record.high - surface.record.low for surface in surfaces) <= SAME_BUDGET:
            return
        pairs = [
            {(pair.shallow, pair.deep): pair for pair in analyse_pairs(arm.curves, confidence, surface)}
            for arm, surface in zip((self.base, other), surfaces, strict=True)
        ]
        for (shallow, deep), one in pairs[0].items():
            if two := pairs[1].get((shallow, deep)):
                both = one.crossing.interval, two.crossing.interval
                drawn = self._crossings(one, surfaces) if None not in (both[0].value, both[1].value) else None
                change = ratio(*both, drawn, confidence)
                said: dict[str, Any] = {"column": TRANSITION, "value": f"{shallow} → {deep}"}
                yield self._row(RATIO, TRANSITION, other, change, **said)

    def _crossings(self, pair: Pair, surfaces: Sequence[LossSurface]) -> Drawn:
        """ln of the size at which the deeper net overtakes the shallower; draws without one lie on either side."""
        frame, found = surfaces[0].posterior.frame, []
        x = np.linspace(frame.low, frame.high, CROSSING_POINTS)
        for surface in surfaces:
            drawn = crossings(x, surface.differences(x, [(pair.shallow, pair.deep)])[0, 1:])
            side = np.where(np.arange(len(drawn)) % 2 == 0, -np.inf, np.inf)
            found.append(np.where(np.isnan(drawn), side, drawn))
        return found[0], found[1]

    def _best_depths(self, other: Arm) -> Iterator[AnswerRow]:
        """Best depths of both arms and their ratio, at sizes of both at which the data bound at least one of them."""
        surfaces = self._both(other)
        low, high = max(one.record.low for one in surfaces), min(one.record.high for one in surfaces)
        for x in np.linspace(low, high, SIZES if high - low > SAME_BUDGET else 1).tolist() if high >= low else ():
            one, two = (surface.optimum(x) for surface in surfaces)
            if one is None or two is None or (one.depth_interval.unbounded and two.depth_interval.unbounded):
                continue
            drawn = surfaces[0].drawn_depths(x), surfaces[1].drawn_depths(x)
            a, b = (found.depth_interval.map(math.log) for found in (one, two))
            for arm, found in ((self.base, one), (other, two)):
                reason = "" if found.depth else found.beyond
                yield replace(found, equal=self.options.axis, arm=arm.label, reason=reason)
            change = ratio(a, b, drawn, self.options.confidence)
            yield self._row(RATIO, BEST_DEPTH, other, change, column=BEST_DEPTH, n_params=math.exp(x))

    def _losses(self, other: Arm) -> Iterator[AnswerRow]:
        """Differences of the losses at the smallest, middle and largest size of each depth of both arms."""
        surfaces, printed = self._both(other), bits_of(other) or 1.0
        for depth in sorted(set(self.base.curves.depths) & set(other.curves.depths)):
            x = shared_sizes(*([one.low, one.high] for one in (_span(surface, depth) for surface in surfaces)))
            if x is None:
                continue
            one, two = (
                printed * at_depths(surface.posterior, x, np.array([depth]), surface.setting)[:, :, 0]
                for surface in surfaces
            )
            for k, n in enumerate(np.exp(x).tolist()):
                drawn = two[:, k] - one[:, k]
                low, _, high = quantiles(drawn, self.options.confidence)
                change = Interval(float(drawn.mean()), low, high)
                yield self._row(DIFFERENCE, DIFFERENCE, other, change, depth=depth, n_params=n)

    def _row(self, question: str, quantity: str, other: Arm, change: Interval, **at: Any) -> AnswerRow:
        """A change of the other arm against the base."""
        of: dict[str, Any] = {"question": question, "equal": self.options.axis, "arm": other.label, **at}
        return AnswerRow(**of, **change.columns("estimate"), reason=verdict(quantity, change))


def _surface(arms: Sequence[Arm], pairings: Sequence[Pairing], options: FitOptions) -> Surface:
    """The posterior of arms that are grids, the base first."""
    cells, curves, base = pooled(arms, pairings), [one.curves for one in arms], arms[0].curves
    depth, width = (np.concatenate([vars(one)[name] for one in curves]) for name in ("depth", "width"))
    if enough(base):
        return surface_of(cells, depth, width, options.confidence, options.seed, own=len(base.x))
    cells = with_odd_depths(cells, options.seed)
    weighed = weigh(cells, options.seed)
    return surface_record(cells, weighed, spans_of(base.depth, base.x), options.confidence, options.seed)


def pooled(arms: Sequence[Arm], pairings: Sequence[Pairing]) -> Cells:
    """The cells of all arms, the base first, with a column for each other arm and the errors that they share.

    Of the variance of a run the part that arms share is an error of the shape in all of them. What else the seeds of a
    shape share between arms has a size to be estimated. The level that seeds add to an arm is as large as its degrees
    of freedom allow.
    """
    base, *others = arms
    each, names = [Cells.of(arm.curves) for arm in arms], ("x", "y", "mean", "variance")
    x, y, mean, variance = (np.concatenate([vars(one)[name] for one in each]) for name in names)
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
    factors, shape = [vectors[:, kept] * np.sqrt(values[kept])], np.zeros((len(x), len(base.curves.x)))
    linked = np.zeros_like(shape)
    most = max((float(pairing.runs.max(initial=0.0)) for pairing in pairings), default=0.0)
    for k, pairing in enumerate(pairings, start=1):
        times = t_two_sided(USUAL, pairing.level_df) / t_two_sided(USUAL, math.inf)
        level = np.zeros((len(x), 1))
        level[own[k]] = times * math.sqrt(pairing.level)
        factors.append(level)
        for i, j in pairing.cells if not pairing.why_not else ():
            linked[i, i] = linked[edges[k] + j, i] = 1.0
            shape[i, i] = math.sqrt(most)
            shape[edges[k] + j, i] = pairing.runs[i, j] / math.sqrt(most) if most else 0.0
    used = linked.any(axis=0)
    variance = np.maximum(variance - (shape**2).sum(axis=1), 0.0)
    scatter = max((one.scatter for one in each), key=lambda prior: prior.mean)
    if max(len(arm.curves.x) for arm in arms) == 1:  # of one shape the very loss is asked for, and no curve
        scatter = declared(0.0)
    member = np.repeat(np.arange(len(arms)), np.diff(edges))
    return Cells(
        x=x,
        y=y,
        mean=mean,
        variance=variance,
        factors=np.hstack([*factors, shape[:, used]]),
        df=sum(one.df for one in each if one.df > 0.0),
        scatter=scatter,
        columns=tuple(arm_column(arm.label, member == k) for k, arm in enumerate(others, start=1)),
        shared=linked[:, used] if used.any() else None,
        learnt={"shared": PRIORS["scatter"]},
    )


def _span(surface: LossSurface, depth: int) -> DepthSpan:
    return next(span for span in surface.record.spans if span.depth == depth)


def shared_sizes(one: Sequence[float], two: Sequence[float]) -> np.ndarray | None:
    """(G,) ln sizes, one per place of PLACES, that two ranges (low, high) share; their middle where each is a size near
    the other's, None where they are apart."""
    low, high = max(one[0], two[0]), min(one[1], two[1])
    if high - low > SAME_BUDGET:
        return np.linspace(low, high, len(PLACES))
    return np.array([(low + high) / 2.0]) if low - high <= TOLERANCE else None


def _one_shape(losses: Sequence[AnswerRow]) -> tuple[str, ...]:
    """Answer on a single shape of both arms; empty for more."""
    if len(losses) != 1:
        return ()
    (row,) = losses
    return (
        f"loss of {row.arm} − loss of the base at {row.depth:g} layers, N = {format_count(row.n_params or 0.0)}: "
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
        own = list(of)
        places = {
            word: [at for at, row in zip(PLACES, own, strict=False) if row.reason == word]
            for word in VERDICTS[DIFFERENCE]
        }
        parts = [
            f"{own[0].arm} is {word} at {'every' if len(at) == len(own) else 'the ' + join(at)} size"
            for word, at in places.items()
            if at
        ]
        by_claim.setdefault(", ".join(parts) or UNCHANGED, []).append(f"{depth:g}")
    if not by_claim:
        return "no depth has a curve in both arms"
    return "; ".join(f"at depth {', '.join(at)} {claim}" for claim, at in by_claim.items())


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
