"""Comparison of recipes: differences of their losses, transitions and best depths, with intervals.

The arms are tables of their own, or the arms of one sweep, told apart by its column ``arm``. They are fitted apart,
each as it would be alone. A ratio of two sizes or depths is a question to both arms in one posterior: the other arm has
an offset, a slope and depth effects of its own, which shrink towards the base's as far as the losses allow. The ratio
is therefore nearer to 1 than the quotient of the two answers, and its interval narrower, where the arms are alike.
If one of the two has only a bound, so has the ratio: the quotient of the ends that face each other.

The loss of one arm − the loss of another at each depth, against size, has a band and crossovers. Both curves are
interpolated as a pair of depths is (curves.py), so shapes need not have the same size. The draws behind the band
include errors that the arms share. A level that the seeds add to all sizes alike is part of every error: it cancels
between the depths of one arm, and not between arms.

Arms of different vocabularies are compared in bits per byte. A loss in nats per token is that times a constant of the
arm, ln 2 times its bytes per token, so each arm's losses and noise are scaled by it at first.
Its crossings and best depths, which are places and not losses, are the same in either unit.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import PurePath
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument, either
from dwsweep.fit.analysis import fit_options, fit_table
from dwsweep.fit.arm import Arm
from dwsweep.fit.ask import LEAST_WEIGHT, PER_NODE, LossSurface, best_depths, crossings, quantiles
from dwsweep.fit.cells import Run, Selection, Shape
from dwsweep.fit.curves import Curves, Difference, side_by_side
from dwsweep.fit.data.arms import arms, check_one_arm, of_arm
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.table import Table, read_asked, read_other
from dwsweep.fit.lengths import at_equal_length, largest, token_groups, train_section
from dwsweep.fit.model import FORMS, Cells, pooled
from dwsweep.fit.noise import t_two_sided
from dwsweep.fit.pairing import Pairing, pair_arms
from dwsweep.fit.posterior import Posterior, weigh, with_odd_depths
from dwsweep.fit.token_group import TokenGroup, joint_model
from dwsweep.fit.transitions import Pair
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
    ArmContrast,
    ArmsAtDepth,
    ComparedRow,
    Comparison,
    Divergence,
)
from dwsweep.records.fit import FitOptions, FitResult, Surface
from dwsweep.records.transitions import numbers
from dwsweep.text import BITS, NATS, OF_TEXT, format_count, join

MOST_ARMS = 50  # limit, since each arm takes a fit
NODES = 150.0  # effective draws of a ratio: another seed moves its ends by 5 % of their distance
SIZES = 9  # number of sizes at which best depths are compared
POINTS, CROSSING_POINTS = 81, 31  # points of a loss difference over the sizes of a depth; points of a crossing
SEED = 11  # seed of the draws of loss differences
DATA = ("data_hash", "dataset", "data", "corpus", "tokenizer", "vocab_size")  # columns of the text and its tokens
UNEQUAL_TOKENS = math.log(1.25)  # difference in ln tokens above which two arms had unequal data
ALONE = 4000  # draws of two crossings that share nothing
SAME_BYTES = 0.01  # relative difference of held-out texts that count as one


def compare_arms(table: Any, others: Iterable[Any] = (), **options: Any) -> FitResult:
    """``fit_table`` of the first arm, with every other arm against it.

    The comparison of an arm without a usable loss, such as one whose runs all diverged, only says so.
    """
    import scipy.linalg  # noqa: F401  a library that is loaded later is not limited
    from threadpoolctl import threadpool_limits

    others, chosen = list(others), chosen_options(**options)
    tables = tables_of(table, others, chosen)
    if len(tables) < 2:
        raise InputError(
            f"{argument('others', '--compare')}: {tables[0].source} has one arm; allowed: a second table, or a sweep "
            "with grid.arms"
        )
    own_arm = () if others else (of_arm(tables[0].rows),)
    result = fit_table(table, **{**options, "where": (*chosen.where, *own_arm)})
    tables = [at_equal_length(data, chosen) for data in tables]
    with threadpool_limits(1, user_api="blas"):
        first, *fitted = _fitted(tables, labels(tables), chosen, result.surface)
        if isinstance(first, NoCurve):
            raise InputError(
                f"{argument('table', 'TABLE')}: {first.label}, the base of the comparison, has no run with a "
                f"usable loss: {first.why}; allowed: another table or arm first, or a {argument('where')} without it"
            )
        comparisons = [compare(first, other, chosen) for other in fitted]
        if result.adjusted:
            names = join(dict.fromkeys(one.name for one in result.adjusted.columns))
            column = "" if others else chosen.arm
            comparisons = [_unadjusted(one, names, column) for one in comparisons]
        return replace(result, comparisons=comparisons)


def _unadjusted(found: Comparison, names: str, column: str | None) -> Comparison:
    """The comparison of a heap whose fit adjusts for the settings ``names``: its first line and all of its rows have
    them. The line names the option that answers for an arm of a ``column`` at held values."""
    arm, rows = found.arm, tuple(replace(row, unadjusted=names) for row in found.rows)
    said = f"NOT ADJUSTED: arms are compared as they are, and not at held values of {names}; "
    said += either(argument("where")) + " keeps one value"
    if column:
        at = either(argument("at", f"--at {column}={arm}"))
        said += f", and {at} in place of a comparison gives the best depths of {arm} at held values"
    return replace(found, answer=(said, *found.answer), rows=rows)


def chosen_options(*, params: Iterable[float] = (), beside: Iterable[Any] = (), **options: Any) -> FitOptions:
    """Options of every arm, by the keywords of ``fit_table``; params and beside serve the first arm alone.

    Raises:
        InputError: one asks to adjust for a setting, which a comparison does not do.
    """
    chosen = fit_options(**options)
    asked = {"adjust": chosen.adjust, "no_adjust": chosen.no_adjust, "at": [name for name, _ in chosen.at]}
    for name, columns in asked.items():
        if columns:
            raise InputError(
                f"{either(argument(name))}: {columns[0]!r}; arms and losses along a column are compared as they are, "
                f"and adjusted for nothing; allowed: {argument('where')} that keeps one value of it"
            )
    return chosen


def tables_of(table: Any, others: Sequence[Any], options: FitOptions) -> list[Table]:
    """One table per arm, the first of ``table``; without ``others`` the arms of the table itself."""
    tables = [read_asked(table, options)]
    tables += [read_other(other, options, argument("others", "TABLE")) for other in others]
    for one in tables:
        check_status(one.rows)
        if others:
            check_one_arm(one.rows, one.source)
    found = tables if others else [replace(tables[0], rows=rows) for rows in arms(tables[0].rows).values()]
    if len(found) > MOST_ARMS:
        raise InputError(
            f"arm: {len(found):,} arms; at most {MOST_ARMS} are compared: choose some with {argument('where')}"
        )
    return found


@dataclass(frozen=True)
class NoCurve:
    """Arm without a usable loss, and the reason."""

    label: str
    source: str
    sha256: str
    why: str


def _fitted(
    tables: Sequence[Table], names: Sequence[str], options: FitOptions, surface: Surface | None = None
) -> list[Arm | NoCurve]:
    """Runs of each arm, at the first arm's token count if possible. surface: of the first arm's fit."""

    def first_model(curves: Curves, options: FitOptions) -> LossSurface | None:
        return LossSurface(surface) if surface and is_of(surface, curves) else joint_model(curves, options)

    tokens: float | None = None
    found: list[Arm | NoCurve] = []
    for number, (data, name) in enumerate(zip(tables, names, strict=True)):
        groups = token_groups(data.rows)
        key = tokens if number and tokens in groups else largest(groups)
        tokens = tokens if number else key
        try:
            group = TokenGroup.of(data, groups[key], options, fit=model_compared if number else first_model)
        except InputError as error:  # names the arm that failed
            raise InputError(*(f"{name}: {line}" for line in error.templates)) from None
        ended = _diverged(groups[key])
        if group.curves is None:
            found.append(NoCurve(name, data.source, data.sha256, ended or "; ".join(_reasons(group.selection))))
            continue
        found.append(
            Arm(
                label=name,
                source=data.source,
                sha256=data.sha256,
                runs=group.selection.runs,
                curves=group.curves,
                pairs=group.pairs,
                surface=group.surface,
                held_out=group.held_out,
                diverged=": ".join(filter(None, (ended, group.selection.diverged_rule))),
                eval_tokens=_eval_tokens(data, group.selection.runs),
                unit=data.unit,
                warnings=tuple(group.warnings),
            )
        )
    return found


def model_compared(curves: Curves, options: FitOptions) -> LossSurface | None:
    """The joint model of an arm that is held against the first one, and has no fit.json of its own."""
    return joint_model(curves, options, compared=True)


def is_of(surface: Surface, curves: Curves) -> bool:
    """True if the ``surface`` was fitted to these cell means, and adjusted for nothing."""
    cells, own = Cells.of(curves), surface.cells
    rows = all(vars(own)[name] == tuple(vars(cells)[name].tolist()) for name in ("x", "y", "mean", "variance"))
    return rows and not own.columns


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


@dataclass(frozen=True)
class Estimate(Interval):
    """ln of a size or of a depth under one arm. se: its standard error, None if there is none."""

    se: float | None = None
    status: str = ""


@dataclass(frozen=True)
class Change(Interval):
    """Ratio of two sizes or depths, or difference of two losses. correlation: of the draws of the two."""

    correlation: float | None = None


def compare(base: Arm, other: Arm | NoCurve, options: FitOptions) -> Comparison:
    """``other`` against ``base``, both fitted with ``options``."""
    between: dict[str, Any] = {"base": base.label, "base_input": base.source}
    between |= {"arm": other.label, "input": other.source, "input_sha256": other.sha256}
    if isinstance(other, NoCurve):
        return Comparison(
            **between,
            unit=base.unit,
            pairing="unpaired: one has no usable loss",
            answer=(f"{other.label} has no usable loss: {other.why}; nothing is compared",),
        )
    pairing = pair_arms(base, other, options.noise, options.shape_noise)
    together = Together(base, other, options.seed)
    transitions = list(_transitions(base, other, together, options.confidence))
    depths = list(_best_depths(base, other, together, options.confidence))
    losses = loss_contrasts(base, other, pairing, options)
    unequal = unequal_data(base, other, losses.unit)
    said = losses.sentence
    if unequal:
        said = said.replace("losses: ", "losses (of different data, which no recipe explains): ", 1)
    torn = (arm for arm in (base, other) if arm.diverged)
    ended = [f"{arm.label}: {arm.diverged}; the comparison uses the other runs" for arm in torn]
    return Comparison(
        **between,
        unit=losses.unit,
        paired=not pairing.why_not,
        pairing=pairing.by if not pairing.why_not else f"unpaired: {pairing.why_not}",
        matched_shapes=len(pairing.cells),
        answer=(*unequal, *ended, _answer(depths, base.label), _moved(transitions), said),
        rows=(*transitions, *depths, *losses.rows),
        depths=losses.depths,
        notes=(
            *losses.notes,
            *(line for line in other.warnings if line not in base.warnings and not _is_said(line, other)),
        ),
    )


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


def ratio(base: Estimate, other: Estimate, drawn: Drawn | None, confidence: float) -> Change:
    """other / base. drawn: by the model of both arms together. If one of the two has only a bound, so has the ratio:
    the quotient of the ends that face each other."""
    correlation = None
    if drawn is not None and base.value is not None and other.value is not None:
        low, middle, high = quantiles(_less(*drawn), confidence)
        ends = (v if math.isfinite(v) else None for v in (middle, low, high))
        found = Interval(*ends)
        known = np.isfinite(drawn[0]) & np.isfinite(drawn[1])
        spread = min(each[known].std() for each in drawn) if known.sum() > 2 else 0.0
        correlation = float(np.corrcoef(drawn[0][known], drawn[1][known])[0, 1]) if spread > 0.0 else None
    else:
        low_end = None if other.low is None or base.high is None else other.low - base.high
        high_end = None if other.high is None or base.low is None else other.high - base.low
        found = Interval(None, low_end, high_end)
    found = found.map(math.exp)
    return Change(found.value, found.low, found.high, correlation=correlation)


def valued(estimates: tuple[Estimate, Estimate]) -> bool:
    """True if both have a value, and not a bound alone."""
    return all(one.value is not None for one in estimates)


def _row(
    arm: str,
    quantity: str,
    estimates: tuple[Estimate, Estimate],
    change: Change,
    confidence: float,
    depth: int | None = None,
    deep: int | None = None,
    n_params: float | None = None,
) -> ComparedRow:
    """estimates: under the base and under the other arm."""
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
        base_status=base.status,
        **base.map(size).columns("base"),
        other_status=other.status,
        **other.map(size).columns("other"),
        **change.columns("change"),
        correlation=change.correlation,
        confidence=confidence,
        verdict=NOT_COMPARABLE if change.unbounded else {-1: below, 0: UNCHANGED, 1: above}[off.sign],
        base_error=base.error,
        other_error=other.error,
    )


@dataclass(frozen=True)
class Together:
    """Joint posterior of two arms: the second is a column whose depth effects shrink towards the first's."""

    base: Arm
    other: Arm
    seed: int

    @cached_property
    def posterior(self) -> Posterior:
        """Posterior of both arms, computed at the first question: two arms of which one has only bounds need none.
        Forms that both arms reject alone are not tried again."""
        arms = self.base, self.other
        base, other = (with_odd_depths(Cells.of(arm.curves), self.seed) for arm in arms)
        cells = pooled(base, other, self.other.label)
        known = [form for arm in arms if arm.surface for form in arm.surface.record.forms]
        forms = [name for name in FORMS if any(one.form == name and one.weight >= LEAST_WEIGHT for one in known)]
        weighed = weigh(cells, self.seed, forms, enough=NODES, many=0, per_node=PER_NODE, passes=1)
        return Posterior(cells, weighed, self.seed)

    def depths(self, x: float) -> Drawn:
        """ln of the best depth at ln axis x."""
        return best_depths(self.posterior, x), best_depths(self.posterior, x, {self.other.label: 1.0})

    @cached_property
    def _losses(self) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """(x (M,), depths (n,), losses (D, M, n) under the base and under the other arm)."""
        frame = self.posterior.frame
        x, depths = np.linspace(frame.low, frame.high, CROSSING_POINTS), np.exp(self.posterior.depths)
        at = np.repeat(x, len(depths)), np.tile(self.posterior.depths, len(x))
        found = [self.posterior.losses(*at, setting) for setting in ({}, {self.other.label: 1.0})]
        base, other = (rows.reshape(len(rows), len(x), len(depths)) for rows in found)
        return x, depths, (base, other)

    def crossings(self, pair: Pair) -> Drawn:
        """ln of the size at which the deeper net overtakes the shallower."""
        x, depths, both = self._losses
        shallow, deep = (int(np.abs(depths - depth).argmin()) for depth in (pair.shallow, pair.deep))
        found = []
        for losses in both:
            drawn = crossings(x, losses[:, :, shallow] - losses[:, :, deep])
            side = np.where(np.arange(len(drawn)) % 2 == 0, -np.inf, np.inf)
            found.append(np.where(np.isnan(drawn), side, drawn))
        return found[0], found[1]


def _less(base: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Difference other − base; two infinities give zero."""
    with np.errstate(invalid="ignore"):
        return np.where(base == other, 0.0, other - base)


def _transitions(base: Arm, other: Arm, together: Together, confidence: float) -> Iterator[ComparedRow]:
    """One row per pair of neighbouring depths that both arms have."""
    of_other = {(pair.shallow, pair.deep): pair for pair in other.pairs}
    for pair in base.pairs:
        theirs = of_other.get((pair.shallow, pair.deep))
        if theirs is None:
            continue
        both = _crossing(pair), _crossing(theirs)
        drawn = _alone(*both)
        if valued(both) and pair.joint is not None and theirs.joint is not None:
            drawn = together.crossings(pair)
        found = ratio(*both, drawn, confidence)
        yield _row(other.label, TRANSITION, both, found, confidence, depth=pair.shallow, deep=pair.deep)


def _crossing(pair: Pair) -> Estimate:
    c = pair.verdict
    return Estimate(c.root, c.low, c.high, c.se, c.status, error=c.error)


def _alone(base: Estimate, other: Estimate) -> Drawn | None:
    """Independent draws of two crossings by their own curves alone."""
    if base.value is None or other.value is None or not base.se or not other.se:
        return None
    z = np.random.default_rng(SEED).standard_normal((2, ALONE))
    z = np.concatenate([z, -z], axis=1)  # their median is free of noise
    return base.value + base.se * z[0], other.value + other.se * z[1]


def _best_depths(base: Arm, other: Arm, together: Together, confidence: float) -> Iterator[ComparedRow]:
    """Compare best depths at sizes of both arms at which the data bound at least one of them."""
    if base.surface is None or other.surface is None:
        return
    surfaces = base.surface, other.surface
    low = max(surface.record.low for surface in surfaces)
    high = min(surface.record.high for surface in surfaces)
    if high <= low:
        return
    for x in np.linspace(low, high, SIZES).tolist():
        a, b = (_depth(surface, x) for surface in surfaces)
        if a and b and not (a.unbounded and b.unbounded):
            change = ratio(a, b, together.depths(x) if valued((a, b)) else None, confidence)
            yield _row(other.label, BEST_DEPTH, (a, b), change, confidence, n_params=math.exp(x))


def _depth(surface: LossSurface, x: float) -> Estimate | None:
    """ln of the best depth at ln axis ``x``; None if too few depths have shapes of that size."""
    found = surface.sized(x)
    if found is None:
        return None
    ln = found.depth_interval.map(math.log)
    status = "" if found.depth is not None else found.beyond
    return Estimate(ln.value, ln.low, ln.high, status=status, error=ln.error)


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


def _answer(rows: Sequence[ComparedRow], base: str) -> str:
    row = middle(rows)
    if row is None or row.n_params is None or row.verdict == NOT_COMPARABLE:
        return "best depth: no size has a bounded one under both arms, so no change can be shown or excluded"
    one, two = (layers(known) for found in (row.base_interval, row.other_interval) if (known := found.known.value))
    return (
        f"best depth at N = {format_count(row.n_params)}: {one} under {base}, {two} under {row.arm}; ratio "
        f"{row.change:.2f} ({span(row)}): {row.verdict}"
    )


def _moved(rows: Sequence[ComparedRow]) -> str:
    if not rows:
        return "transitions: no pair of neighbouring depths is in both arms"
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
    return f"{row.change:.2f} times the size ({span(row)})"


def span(row: ComparedRow) -> str:
    """Text of a ratio's interval, with words for an open end."""
    ends = row.change_interval.ends("{:.2f}".format)
    return ends.replace("< ", "below ").replace("> ", "above ")


@dataclass(frozen=True)
class LossContrasts:
    """rows: at the smallest, middle and largest size of each depth. sentence: the sizes at which the arms diverge, in
    words."""

    unit: str
    sentence: str
    notes: Sequence[str] = ()
    rows: Sequence[ComparedRow] = ()
    depths: tuple[ArmsAtDepth, ...] = ()


def loss_contrasts(base: Arm, other: Arm, pairing: Pairing, options: FitOptions) -> LossContrasts:
    """Compare losses at all depths of both arms; without an estimate of the noise there is no band."""
    unit = base.unit
    notes: list[str] = []
    if other.unit != unit:
        why = f"the losses of one are in {unit}, of the other in {other.unit}"
        return LossContrasts(unit, f"losses: not comparable, {why}")
    vocabularies = [{run.row.get("vocab_size") for run in arm.runs} - {None} for arm in (base, other)]
    if unit == NATS and all(vocabularies) and vocabularies[0] != vocabularies[1]:
        scales = _bits_per_nat(base), _bits_per_nat(other)
        if scales[0] is None or scales[1] is None:
            why = "the vocabularies differ, and not every run has its bits per byte"
            return LossContrasts(unit, f"losses: not comparable, {why}")
        unit, unequal = BITS, _unequal_text((base, other), (scales[0], scales[1]))
        notes = [f"losses are compared in {unit}: the vocabularies differ", *unequal]
        base, other = _scaled(base, scales[0]), _scaled(other, scales[1])
        pairing = pair_arms(base, other)
    if not (base.curves.noise.known and other.curves.noise.known):
        return LossContrasts(unit, "losses: the noise is not known, so no difference is claimed", notes)
    if pairing.single_seed:
        notes.append(
            "one seed: the error that it adds to all losses alike is assumed to be as large as the noise of one run"
        )
    rows, depths = [], []
    for d, losses in _differences(base, other, pairing, options):
        band, half = d.band(options.confidence), t_two_sided(options.confidence, d.df) * d.se
        x, low, high = np.exp(d.x), d.g - half, d.g + half
        curve = ArmContrast(
            depth=d.shallow,
            x=numbers(x),
            g=numbers(d.g),
            low=numbers(low),
            high=numbers(high),
            band_low=numbers(band.low),
            band_high=numbers(band.high),
        )
        stretches = [(side, list(places)) for side, places in groupby(range(len(x)), key=band.sign.__getitem__)]
        partings = [
            Divergence(start=float(x[places[0]]), end=float(x[places[-1]]), ahead=BASE if side > 0 else OTHER)
            for side, places in stretches
            if side
        ]
        depths.append(ArmsAtDepth(curve=curve, partings=tuple(partings)))
        for k in (0, len(x) // 2, len(x) - 1):
            one, two = (Estimate(loss) for loss in losses[:, k].tolist())
            change = Change(float(d.g[k]), float(low[k]), float(high[k]))
            found = _row(other.label, LOSS, (one, two), change, options.confidence, d.shallow, n_params=float(x[k]))
            rows.append(found)
    return LossContrasts(unit, _sentence(depths, base.label, other.label), notes, rows, tuple(depths))


def _bits_per_nat(arm: Arm) -> float | None:
    """Bits per byte of a loss of one nat per token; None if no run has its bits per byte."""
    known = [bits / run.loss for run in arm.runs if (bits := run.row.get("bits_per_byte")) and run.loss > 0]
    return float(np.median(known)) if known else None


def _scaled(arm: Arm, factor: float) -> Arm:
    """Arm with its losses and their noise in another unit."""
    curves, noise = arm.curves, arm.curves.noise
    in_unit = replace(
        noise,
        sigma={depth: None if sigma is None else factor * sigma for depth, sigma in noise.sigma.items()},
        tau=None if noise.tau is None else factor * noise.tau,
        shape_variance=factor**2 * noise.shape_variance,
    )
    values = {name: factor * vars(curves)[name] for name in ("mean", "se", "draws")}
    return replace(
        arm,
        runs=[replace(run, loss=factor * run.loss) for run in arm.runs],
        curves=replace(curves, **values, means=curves.means.scaled(factor), noise=in_unit),
    )


def _unequal_text(arms: tuple[Arm, Arm], scales: tuple[float, float]) -> list[str]:
    """Sentence on the bytes of text that arms of different vocabularies read at equal counts of tokens."""
    per_token = [1.0 / (math.log(2.0) * scale) for scale in scales]
    of_each = " and ".join(f"{size:.2f} ({arm.label})" for arm, size in zip(arms, per_token, strict=True))
    line = f"bytes per token are {of_each}: equal tokens are unequal text"
    parts = []
    for name, what in (("tokens", "trained on"), ("seq_len", "in a window")):
        counts = [{run.row.get(name) for run in arm.runs} for arm in arms]
        shared = [count for one in counts if len(one) == 1 for count in one if count is not None]
        if len(shared) == len(arms):
            shown = [format_count(count * size) for count, size in zip(shared, per_token, strict=True)]
            parts.append(f"{' and '.join(shown)} bytes {what}")
    lines = [f"{line} ({', '.join(parts)})" if parts else line]
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


def _differences(
    base: Arm, other: Arm, pairing: Pairing, options: FitOptions
) -> Iterator[tuple[Difference, np.ndarray]]:
    """(other − base, losses of both (2, G)) for each depth that both arms have at two or more sizes."""
    a, b = base.curves, other.curves
    *errors, level = pairing.drawn(options.draws, np.random.default_rng([SEED, options.seed]))
    for depth in sorted(set(a.depths) & set(b.depths)):
        found = side_by_side(a.losses(depth, errors[0]), b.losses(depth, errors[1]), POINTS)
        if found is None:
            continue
        grid, (one, two), error = found
        values = two - one
        deviations = values[1:] - values[1:].mean(axis=0) + level
        deviations = deviations + np.random.default_rng([SEED, depth]).standard_normal((options.draws, 1)) * error
        df = pairing.df(a.at(depth), b.at(depth))
        yield Difference(depth, depth, grid, values[0], deviations, df), np.stack([one[0], two[0]])


def _sentence(depths: Sequence[ArmsAtDepth], base: str, arm: str) -> str:
    """Ranges of sizes at which one arm is ahead, by depth."""
    if not depths:
        return "losses: no depth has a curve in both arms"
    by_claim: dict[str, list[str]] = {}
    for found in depths:
        ahead = [
            f"{arm if one.ahead == 'other' else base} is ahead {_stretch(found.curve, one)}" for one in found.partings
        ]
        by_claim.setdefault(", ".join(ahead) or "no difference larger than the noise", []).append(
            str(found.curve.depth)
        )
    return "losses: " + "; ".join(f"at depth {', '.join(at)} {claim}" for claim, at in by_claim.items())


def _stretch(curve: ArmContrast, one: Divergence) -> str:
    first, last = one.start == curve.x[0], one.end == curve.x[-1]
    if first and last:
        return "at every size"
    if last:
        return f"from {format_count(one.start)} on"
    if first:
        return f"up to {format_count(one.end)}"
    return f"from {format_count(one.start)} to {format_count(one.end)}"
