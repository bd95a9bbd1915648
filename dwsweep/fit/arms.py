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
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.analysis import Request, answered, fit_options
from dwsweep.fit.arm import Arm
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
from dwsweep.fit.cells import Run, Selection, Shape
from dwsweep.fit.curves import Curves, SimultaneousBand
from dwsweep.fit.data.covariates import number_of
from dwsweep.fit.data.roles import roles
from dwsweep.fit.data.rows import ARM, Row, arms, check_one_arm, of_arm
from dwsweep.fit.data.table import Table, read_asked, read_other
from dwsweep.fit.heap import Heap
from dwsweep.fit.lengths import at_equal_length, largest, token_groups, train_section
from dwsweep.fit.model import PRIORS, SAME_BUDGET, Cells, arm_column, declared
from dwsweep.fit.model import of_arm as column_of
from dwsweep.fit.noise import t_two_sided
from dwsweep.fit.one_thread import one_thread
from dwsweep.fit.one_unit import IN_NATS, in_one_unit, with_mean_of
from dwsweep.fit.pairing import TOLERANCE, USUAL, Pairing, pair_arms, same_documents
from dwsweep.fit.posterior import weigh, with_odd_depths
from dwsweep.fit.token_group import TokenGroup, joint_model
from dwsweep.fit.transitions import Pair, analyse_pairs
from dwsweep.fit.warnings import check_status
from dwsweep.interval import Interval, layers
from dwsweep.records.along import BASE, OTHER
from dwsweep.records.comparison import (
    BEST_DEPTH,
    LOSS,
    NOT_COMPARABLE,
    TRANSITION,
    UNCHANGED,
    VERDICTS,
    ComparedRow,
    Comparison,
    Lead,
)
from dwsweep.records.fit import DepthSpan, FitOptions, FitResult, LeftOutRows, Surface
from dwsweep.text import BITS, OF_TEXT, format_count, join

MOST_ARMS = 12  # limit, since one posterior holds them: its cost grows with the cube of their number
SIZES = 9  # number of sizes at which best depths are compared
POINTS, CROSSING_POINTS = 81, 31  # points of a loss difference over the sizes of a depth; points of a crossing
DATA = ("data_hash", "dataset", "data", "corpus", "tokenizer", "vocab_size")  # columns of the text and its tokens
NO_BITS = "the vocabularies differ, and not every run has its bits per byte"
NOTHING = 1e-9  # share of the largest variance below which a direction of shared errors is rounding
UNEQUAL_TOKENS = math.log(1.25)  # difference in ln tokens above which two arms had unequal data
SAME_BYTES = 0.01  # relative difference of held-out texts that count as one
OF_OTHERS = "are of other arms"


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
    tables, why_not = _like_first(tables, names)
    with one_thread():
        every = _in_one(tables, names) if others else _of_one(tables, names)
        asked = Request.of_heap(every, chosen, params, tuple(names))
        if heap := asked.heap:
            lacking = _lacking(tables, names, heap)
            tables = [replace(one, rows=heap.rows(name) or one.rows) for one, name in zip(tables, names, strict=True)]
        else:
            lacking = {}
            own_arm = () if others else (of_arm(tables[0].rows),)
            tables = [at_equal_length(data, chosen) for data in tables]
            of_base = replace(chosen, where=(*chosen.where, *own_arm))
            asked = Request.at_length(tables[0], of_base, params).of_grid()
        groups = _groups(tables, names, asked.options, heap)
        first, *fitted = [_arm(*one) for one in zip(names, tables, groups, strict=True)]
        if isinstance(first, NoCurve):
            raise InputError(
                f"{argument('table', 'TABLE')}: {first.label}, the base of the comparison, has no run with a "
                f"usable loss: {first.why}; allowed: another table or arm first, or a {argument('where')} without it"
            )
        of_arms = [one for one in fitted if isinstance(one, Arm)]
        together = Together.of(first, of_arms, asked.options, why_not, heap, lacking)
        in_heap = [group for name, group in zip(names, groups, strict=True) if heap and name in heap.arms[1:]]
        result = answered(replace(asked, model=together.model), beside, in_heap)
        return replace(result, comparisons=[together.compare(one) for one in fitted])


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
    return replace(
        tables[0],
        rows=rows,
        columns=columns,
        directory=tables[0].directory if all(data.directory for data in tables) else None,
        n_read=sum(data.n_read for data in tables),
        roles=roles(rows, columns),
        theirs={their: our for data in reversed(tables) for their, our in data.theirs.items()},
        named=tuple(dict.fromkeys(name for data in tables for name in data.named)),
        account=tuple(line for data in tables for line in data.account),
        notes=tuple(dict.fromkeys(line for data in tables for line in data.notes)),
        doubts=tuple(dict.fromkeys(line for data in tables for line in data.doubts)),
    )


def _like_first(tables: Sequence[Table], names: Sequence[str]) -> tuple[list[Table], dict[str, str]]:
    """The tables with losses in the unit of the first; arm → reason why its losses cannot be: it has their mean then,
    and places compare, such as best depths."""
    base, *others = tables
    found, why_not = [base], {}
    for data, label in zip(others, names[1:], strict=True):
        try:
            found.append(in_one_unit([base, data], of_first=True)[1])
        except InputError:
            units = f"the losses of one are in {base.unit}, of the other in {data.unit}"
            why_not[label] = f"not comparable, {NO_BITS if data.unit == base.unit else units}"
            found.append(with_mean_of(base, data))
    return found, why_not


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


@dataclass(frozen=True)
class NoCurve:
    """Arm without a usable loss, and the reason."""

    label: str
    source: str
    sha256: str
    why: str


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


def _arm(name: str, data: Table, group: TokenGroup) -> Arm | NoCurve:
    """The arm of a group of runs."""
    ended = _diverged(group.rows)
    if group.curves is None:
        return NoCurve(name, data.source, data.sha256, ended or "; ".join(_reasons(group.selection)))
    return Arm(
        label=name,
        source=data.source,
        sha256=data.sha256,
        runs=group.selection.runs,
        curves=group.curves,
        held_out=group.held_out,
        diverged=": ".join(filter(None, (ended, group.selection.diverged_rule))),
        eval_tokens=_eval_tokens(data, group.selection.runs),
        unit=data.unit,
        warnings=tuple(group.warnings),
    )


def _diverged(rows: Sequence[Row]) -> str:
    """Number of diverged runs in words; empty if none diverged."""
    count = sum(
        str(row.get("status")).lower() == "diverged" or (row.get("loss") is not None and not math.isfinite(row["loss"]))
        for row in rows
    )
    return f"{count} of {len(rows)} runs diverged" if count else ""


def _reasons(selection: Selection) -> list[str]:
    """Reasons why no shape counts, with the number of shapes."""
    counts = Counter(selection.excluded.values())
    return [f"{reason} ({count} shapes)" for reason, count in counts.most_common(3)] or ["it has no finished run"]


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


def _eval_tokens(data: Table, runs: Sequence[Run]) -> str:
    """Number of held-out tokens of the evaluations in words, from the runs' config.json; empty if none has it."""
    named = next((run.row for run in runs if run.row.get("run_id")), None)
    train = train_section(data.directory, named) if data.directory and named else {}
    if "eval_tokens" not in train:
        return ""
    return "all" if train["eval_tokens"] is None else str(train["eval_tokens"])


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
        times = max(ends) / min(ends)
        shown = [format_count(float(end)) for end in ends]
        found.append(
            f"tokens {shown[0]} and {shown[1]}, {times:.3g} times as many for {more.label} as for {less.label}"
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


def _is_said(warning: str, arm: Arm) -> bool:
    """True if a sentence of the answer holds the warning already."""
    return bool(arm.diverged) and arm.diverged.endswith(warning.removeprefix("diverged: "))


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


def _row(
    arm: str,
    quantity: str,
    estimates: tuple[Interval, Interval],
    change: Interval,
    confidence: float,
    status: tuple[str, str] = ("", ""),
    depth: int | None = None,
    deep: int | None = None,
    n_params: float | None = None,
) -> ComparedRow:
    """estimates, status: under the base and under the other arm; logarithms of sizes and depths."""
    size, unchanged = (float, 0.0) if quantity == LOSS else (math.exp, 1.0)
    below, above = VERDICTS[quantity]
    off = change.map(lambda value: value - unchanged)
    base, other = estimates
    return ComparedRow(
        arm=arm,
        quantity=quantity,
        depth=depth,
        deep=deep,
        n_params=n_params,
        base_status=status[0],
        **base.map(size).columns("base"),
        other_status=status[1],
        **other.map(size).columns("other"),
        **change.columns("change"),
        confidence=confidence,
        verdict=NOT_COMPARABLE if change.unbounded else {-1: below, 0: UNCHANGED, 1: above}[off.sign],
        base_error=base.error,
        other_error=other.error,
    )


@dataclass(frozen=True)
class Together:
    """One posterior of all arms, the base first. surfaces: the losses of each arm by the posterior. pairings: of the
    other arms with the base. why_not: arm → reason why its losses cannot be compared. heap: of all arms, which gives
    the posterior at held values. lacking: arm → settings of the heap that no run of it has."""

    arms: Sequence[Arm]
    surfaces: Sequence[LossSurface]
    pairings: Mapping[str, Pairing]
    options: FitOptions
    why_not: Mapping[str, str] = field(default_factory=dict)
    heap: Heap | None = None
    lacking: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        base: Arm,
        others: Sequence[Arm],
        options: FitOptions,
        why_not: Mapping[str, str] | None = None,
        heap: Heap | None = None,
        lacking: Mapping[str, str] | None = None,
    ) -> Together:
        arms = [base, *others]
        pairings = {one.label: pair_arms(base, one) for one in others}
        record = heap.surface if heap else _surface(arms, list(pairings.values()), options)
        surfaces = [LossSurface(record)]
        for one in others:
            own = spans_of(one.curves.depth, one.curves.x)
            low, high = ends_of(own)
            there = replace(record, spans=own, low=low, high=high, optima=())
            surfaces.append(LossSurface(there, setting={column_of(one.label): 1.0}))
        return cls(arms, surfaces, pairings, options, why_not or {}, heap, lacking or {})

    def model(self, curves: Curves, options: FitOptions) -> LossSurface | None:
        """The model of all depths of a fit: the posterior of all arms, if ``curves`` are those of the base."""
        own = self.arms[0].curves
        same = all(np.array_equal(vars(curves)[name], vars(own)[name]) for name in ("x", "mean"))
        return self.surfaces[0] if same and enough(own) else joint_model(curves, options)

    def compare(self, other: Arm | NoCurve) -> Comparison:
        """``other`` against the base."""
        base = self.arms[0]
        between: dict[str, Any] = {"base": base.label, "arm": other.label, "input": other.source}
        between["input_sha256"] = other.sha256
        if isinstance(other, NoCurve):
            return Comparison(
                **between,
                unit=base.unit,
                pairing="unpaired: one has no usable loss",
                answer=(f"{other.label} has no usable loss: {other.why}; nothing is compared",),
            )
        pairing = self.pairings[other.label]
        places = [self.surfaces[0], self.surfaces[self._place(other)]]
        transitions = list(self._transitions(other.label, places))
        depths = list(self._best_depths(other.label, places))
        why_not = self.why_not.get(other.label, "")
        unit = base.unit if why_not or bits_of(other) is None else BITS
        held = join(dict.fromkeys(one.held for one in self.heap.record.columns)) if self.heap else ""
        if not (why_not or held or (base.curves.noise.known and other.curves.noise.known)):
            why_not = "the noise is not known, so no difference is claimed"
        rows, leads = ([], []) if why_not else self._losses(other.label, places)
        unequal = unequal_data(base, other, unit)
        single = (
            "one seed: the error that it adds to all losses alike is assumed to be as large as the noise of one run"
        )
        lacks = [(arm.label, of) for arm in (base, other) if (of := self.lacking.get(arm.label))]
        torn = (arm for arm in (base, other) if arm.diverged)
        ended = [f"{arm.label}: {arm.diverged}; the comparison uses the other runs" for arm in torn]
        found = Comparison(
            **between,
            unit=unit,
            paired=not pairing.why_not,
            pairing=(f"both at {held}" if held else f"unpaired: {pairing.why_not}") if pairing.why_not else pairing.by,
            matched_shapes=len(pairing.cells),
            answer=(),
            rows=(*transitions, *depths, *rows),
            leads=tuple(leads),
            notes=(
                *(_in_bits(base, other) if unit == BITS != base.unit else ()),
                *(f"no run of {name} has {of}: its losses are not adjusted for it" for name, of in lacks),
                *([single] if pairing.single_seed and not why_not else []),
                *(line for line in other.warnings if line not in base.warnings and not _is_said(line, other)),
            ),
        )
        said = "losses (of different data, which no recipe explains): " if unequal else "losses: "
        said += why_not or _where_ahead(found)
        answer = _one_shape(rows) or (_answer(depths, base.label), _moved(transitions), said)
        return replace(found, answer=(*unequal, *ended, *answer))

    def _place(self, other: Arm) -> int:
        return [one.label for one in self.arms].index(other.label)

    def _transitions(self, label: str, surfaces: Sequence[LossSurface]) -> Iterator[ComparedRow]:
        """One row per pair of neighbouring depths that both arms have at two sizes or more."""
        if min(surface.record.high - surface.record.low for surface in surfaces) <= SAME_BUDGET:
            return
        arms = self.arms[0], next(one for one in self.arms if one.label == label)
        base, other = (
            analyse_pairs(arm.curves, self.options.confidence, surface)
            for arm, surface in zip(arms, surfaces, strict=True)
        )
        of_other = {(pair.shallow, pair.deep): pair for pair in other}
        shared = [(pair, of_other[key]) for pair in base if (key := (pair.shallow, pair.deep)) in of_other]
        for one, two in shared:
            sides = one.crossing, two.crossing
            both = sides[0].interval, sides[1].interval
            drawn = None
            if all(side.value is not None for side in both):
                drawn = self._crossings(one, surfaces)
            change = ratio(*both, drawn, self.options.confidence)
            yield _row(
                label,
                TRANSITION,
                both,
                change,
                self.options.confidence,
                (sides[0].status, sides[1].status),
                depth=one.shallow,
                deep=one.deep,
            )

    def _crossings(self, pair: Pair, surfaces: Sequence[LossSurface]) -> Drawn:
        """ln of the size at which the deeper net overtakes the shallower; draws without one lie on either side."""
        frame, found = surfaces[0].posterior.frame, []
        x = np.linspace(frame.low, frame.high, CROSSING_POINTS)
        for surface in surfaces:
            drawn = crossings(x, surface.differences(x, [(pair.shallow, pair.deep)])[0, 1:])
            side = np.where(np.arange(len(drawn)) % 2 == 0, -np.inf, np.inf)
            found.append(np.where(np.isnan(drawn), side, drawn))
        return found[0], found[1]

    def _best_depths(self, label: str, surfaces: Sequence[LossSurface]) -> Iterator[ComparedRow]:
        """Compare best depths at sizes of both arms at which the data bound at least one of them."""
        low, high = max(one.record.low for one in surfaces), min(one.record.high for one in surfaces)
        for x in np.linspace(low, high, SIZES if high - low > SAME_BUDGET else 1).tolist() if high >= low else ():
            both = [surface.optimum(x) for surface in surfaces]
            a, b = (one.depth_interval.map(math.log) if one else Interval() for one in both)
            if (a.unbounded and b.unbounded) or None in both:
                continue
            valued = a.value is not None and b.value is not None
            drawn = (surfaces[0].drawn_depths(x), surfaces[1].drawn_depths(x)) if valued else None
            change = ratio(a, b, drawn, self.options.confidence)
            said = ["" if one is None or one.depth is not None else one.beyond for one in both]
            confidence = self.options.confidence
            yield _row(label, BEST_DEPTH, (a, b), change, confidence, (said[0], said[1]), n_params=math.exp(x))

    def _losses(self, label: str, surfaces: Sequence[LossSurface]) -> tuple[list[ComparedRow], list[Lead]]:
        """Differences of the losses at the smallest, middle and largest size of each depth of both arms, and the sizes
        at which one arm is ahead."""
        base, other = self.arms[0], next(one for one in self.arms if one.label == label)
        confidence, printed = self.options.confidence, bits_of(other) or 1.0
        rows: list[ComparedRow] = []
        leads: list[Lead] = []
        for depth in sorted(set(base.curves.depths) & set(other.curves.depths)):
            x = shared_sizes(*([one.low, one.high] for one in (_span(surface, depth) for surface in surfaces)))
            if x is None:
                continue
            one, two = (
                printed * at_depths(surface.posterior, x, np.array([depth]), surface.setting)[:, :, 0]
                for surface in surfaces
            )
            drawn, at = two - one, np.exp(x).tolist()
            g = drawn.mean(axis=0)
            stretches = groupby(
                range(len(x)), key=SimultaneousBand(g, drawn - g, math.inf, confidence).sign.__getitem__
            )
            for side, places in [(side, list(places)) for side, places in stretches if side]:
                ahead = BASE if side > 0 else OTHER
                leads.append(Lead(depth=depth, start=at[places[0]], end=at[places[-1]], ahead=ahead))
            for k in sorted({0, len(x) // 2, len(x) - 1}):
                both = Interval(float(one[:, k].mean())), Interval(float(two[:, k].mean()))
                low, _, high = np.quantile(drawn[:, k], [(1.0 - confidence) / 2.0, 0.5, (1.0 + confidence) / 2.0])
                change = Interval(float(g[k]), float(low), float(high))
                rows.append(_row(label, LOSS, both, change, confidence, depth=depth, n_params=at[k]))
        return rows, leads


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
    """(G,) ln sizes that two ranges (low, high) share; their middle where each is a size near the other's, None where
    they are apart."""
    low, high = max(one[0], two[0]), min(one[1], two[1])
    if high - low > SAME_BUDGET:
        return np.linspace(low, high, POINTS)
    return np.array([(low + high) / 2.0]) if low - high <= TOLERANCE else None


def middle(rows: Sequence[ComparedRow]) -> ComparedRow | None:
    """Representative best depth: at the middle size at which both arms have one; the choice does not depend on the
    interval."""
    sized = [(math.log(row.n_params), row) for row in rows if row.n_params]
    known = [(x, row) for x, row in sized if row.change is not None]
    bounded = [(x, row) for x, row in known if row.change_interval.bounded]
    if not known:
        return None
    centre = (sized[0][0] + sized[-1][0]) / 2.0
    return min(bounded or known, key=lambda one: abs(one[0] - centre))[1]


def _one_shape(losses: Sequence[ComparedRow]) -> tuple[str, ...]:
    """Answer on a single shape of both arms; empty for more."""
    if len(losses) != 1:
        return ()
    (row,) = losses
    difference = row.change_interval.format("+.4f")
    return (
        f"loss of {row.arm} − loss of the base at {row.depth} layers, N = {format_count(row.n_params or 0.0)}: "
        f"{difference}: {row.verdict}",
        "one shape: nothing can be said of depth",
    )


def _answer(rows: Sequence[ComparedRow], base: str) -> str:
    row = middle(rows)
    if row is None or row.n_params is None or row.verdict == NOT_COMPARABLE:
        return "best depth: no size has a bounded one under both arms, so no change can be shown or excluded"
    one, two = (found.texts(layers)[0] for found in (row.base_interval, row.other_interval))
    return (
        f"best depth at N = {format_count(row.n_params)}: {one} under {base}, {two} under {row.arm}; ratio "
        f"{row.change:{row.ratio_form}} ({span(row)}): {row.verdict}"
    )


def _moved(rows: Sequence[ComparedRow]) -> str:
    if not rows:
        return "transitions: no pair of neighbouring depths has two sizes in both arms"
    moved = [f"{row.pair} at {_times(row)}" for row in rows if row.shown]
    still = [row.pair for row in rows if row.verdict == UNCHANGED]
    unknown = [row.pair for row in rows if row.verdict == NOT_COMPARABLE]
    parts = [
        ", ".join(moved),
        f"no change shown for {', '.join(still)}" if still else "",
        f"{', '.join(unknown)} not known well enough under both" if unknown else "",
    ]
    return f"transitions: {'; '.join(part for part in parts if part)}"


def _times(row: ComparedRow) -> str:
    if row.change is None:
        return f"a {row.verdict} size (ratio {span(row)})"
    return f"{row.change:{row.ratio_form}} times the size ({span(row)})"


def span(row: ComparedRow) -> str:
    """Text of a ratio's interval, with words for an open end."""
    ends = row.change_interval.ends(row.ratio_form)
    return ends.replace("< ", "below ").replace("> ", "above ")


def _in_bits(*arms: Arm) -> list[str]:
    """Sentences on losses that are in bits per byte, as vocabularies differ, and on the bytes of text that the arms
    read at equal counts of tokens."""
    per_bit = [[run.row.get(IN_NATS, run.loss) / run.row["bits_per_byte"] for run in arm.runs] for arm in arms]
    per_token = [float(np.median(one)) / math.log(2.0) for one in per_bit]
    of_each = " and ".join(f"{size:.2f} ({arm.label})" for arm, size in zip(arms, per_token, strict=True))
    line = f"bytes per token are {of_each}: equal tokens are unequal text"
    said = f"losses are compared in {BITS}: the vocabularies differ"
    parts = []
    for name, what in (("tokens", "trained on"), ("seq_len", "in a window")):
        counts = [{run.row.get(name) for run in arm.runs} for arm in arms]
        shared = [count for one in counts if len(one) == 1 for count in one if count is not None]
        if len(shared) == len(arms):
            shown = [format_count(count * size) for count, size in zip(shared, per_token, strict=True)]
            parts.append(f"{' and '.join(shown)} bytes {what}")
    lines = [said, f"{line} ({', '.join(parts)})" if parts else line]
    held = [
        float(arm.held_out.tokens.sum()) * size
        for arm, size in zip(arms, per_token, strict=True)
        if arm.held_out is not None and arm.held_out.tokens is not None
    ]
    if len(held) == len(arms) and abs(math.log(held[0] / held[1])) > SAME_BYTES:
        lines.append(
            f"the held-out texts differ ({' and '.join(map(format_count, held))} bytes): without train.eval_tokens "
            "every vocabulary is evaluated on the same"
        )
    return lines


def _where_ahead(found: Comparison) -> str:
    """Ranges of sizes at which one arm is ahead, by depth."""
    by_claim: dict[str, list[str]] = {}
    for depth in found.losses:
        claim = ", ".join(found.ahead(depth, found.base, found.arm)) or "no difference larger than the noise"
        by_claim.setdefault(claim, []).append(f"{depth}")
    if not by_claim:
        return "no depth has a curve in both arms"
    return "; ".join(f"at depth {', '.join(at)} {claim}" for claim, at in by_claim.items())
