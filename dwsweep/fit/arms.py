"""Several recipes, compared: where their losses, transitions and best depths part, with intervals.

The arms are tables of their own, or the arms of one sweep, told apart by its column ``arm``. They are fitted apart,
each as it would be alone. What their errors share (pairing.py) narrows the intervals of what is compared. A ratio of
two sizes or depths has the interval of a difference of logarithms, from the intervals of the two, which may be lopsided
or open, and the correlation r of their errors (Zou 2007, Psychological Methods 12; Zou and Donner 2008, Statistics in
Medicine 27): with d₁ and d₂ the distances from the two estimates to the ends that face each other,

    distance from the ratio to its end = √(d₁² + d₂² − 2·r·d₁·d₂)

r is what the two arms' cell means have in common, carried to a crossing or a best depth by how that follows the cell
means (the delta method). Where one of the two has only a bound, so has the ratio: the quotient of the ends that face
each other.

A best depth errs also by what the cells do not show of δ. Two arms over the same sizes and depths are believed to
depart from a form alike in part: their waves of δ have the correlation SHARED_DEPARTURES, the middle of all that it may
be. It is no estimate. In simulated arms the evidence leans to more (0.97 is 2.5 to 20 times as probable as 0, the
medians of four truths of 16 studies), and averaging over it would narrow intervals by another tenth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from dwsweep import paths
from dwsweep.errors import InputError, argument
from dwsweep.fit.analysis import TokenGroup, fit_table
from dwsweep.fit.bands import losses_apart
from dwsweep.fit.cells import Run, Selection
from dwsweep.fit.curves import Curves, distinct, pchip
from dwsweep.fit.lengths import at_equal_length, largest, token_groups
from dwsweep.fit.noise import t_two_sided
from dwsweep.fit.pairing import TOLERANCE, Arm, Pairing, pair_arms
from dwsweep.fit.rows import Row, arms, check_one_arm, of_arm
from dwsweep.fit.surface import LossSurface, accepted_forms, fit_with_gains
from dwsweep.fit.surface_model import DERIVATIVE_STEPS, Frame, P, gradient
from dwsweep.fit.table import Table, read_other, read_table
from dwsweep.fit.transitions import Crossing, Pair
from dwsweep.interval import Interval
from dwsweep.records import record as reader
from dwsweep.records.fit import FitOptions, FitResult, Surface
from dwsweep.records.run import RunConfig
from dwsweep.records.studies import BEST_DEPTH, NOT_COMPARABLE, TRANSITION, UNCHANGED, VERDICTS, ComparedRow, Comparison
from dwsweep.records.transitions import Optimum
from dwsweep.text import format_count


def compare_arms(table: Any, others: Iterable[Any] = (), **options: Any) -> FitResult:
    """``fit_table`` of the first arm, and every other arm against it (``comparisons``), as ``dwsweep.compare`` asks.

    An arm without a usable loss, such as one whose runs all diverged, is a comparison that says so and nothing else.
    """
    from threadpoolctl import threadpool_limits

    others, where = list(others), options.pop("where", ())
    where = [where] if isinstance(where, str) else list(where)
    base, *rest = _tables(table, others, options.get("columns"), where, options.get("unit"))
    if not others:
        where = [*where, of_arm(base.rows)]
    result = fit_table(table, where=where, **options)
    chosen = result.provenance.options
    tables = [at_equal_length(data, chosen) for data in (base, *rest)]
    with threadpool_limits(1, user_api="blas"):
        first, *fitted = _fitted(tables, labels(tables), chosen)
        if isinstance(first, NoCurve):
            raise InputError(
                f"{argument('table', 'TABLE')}: {first.label}, which the others are held against, has no run with a "
                f"usable loss: {first.why}; allowed: another table or arm first, or a {argument('where')} without it"
            )
        comparisons = [
            without_curve(first, other) if isinstance(other, NoCurve) else compare(first, other, chosen)
            for other in fitted
        ]
        return replace(result, comparisons=comparisons)


def _tables(table: Any, others: Sequence[Any], columns: Any, where: Sequence[str], unit: str | None) -> list[Table]:
    """One table per arm, the base first."""
    data = read_table(table, columns, where, unit)
    if not others:
        found = arms(data.rows)
        if len(found) < 2:
            raise InputError(
                f"{argument('others', '--compare')}: {data.source} has one arm; allowed: a second table, or a sweep "
                "with grid.arms"
            )
        check_few(len(found))
        return [replace(data, rows=rows) for rows in found.values()]
    tables = [data, *(read_other(other, columns, where, argument("others", "--compare"), unit) for other in others)]
    check_few(len(tables))
    for one in tables:
        check_one_arm(one.rows, one.source)
    return tables


def check_few(arms: int) -> None:
    if arms > MOST_ARMS:
        raise InputError(f"arm: {arms:,} arms; at most {MOST_ARMS} are compared: choose some with {argument('where')}")


def _fitted(tables: Sequence[Table], names: Sequence[str], options: FitOptions) -> list[Arm | NoCurve]:
    """Each arm by itself, at the token count of the first where it has that."""
    tokens: float | None = None
    found: list[Arm | NoCurve] = []
    for number, (data, name) in enumerate(zip(tables, names, strict=True)):
        groups = token_groups(data.rows)
        if number == 0 or tokens not in groups:
            key = largest(groups)
            tokens = key if number == 0 else tokens
        else:
            key = tokens
        try:
            group = TokenGroup.of(data, groups[key], options)
        except InputError as error:  # which of them it is about
            raise InputError(*(f"{name}: {line}" for line in error.templates)) from None
        ended = _diverged(groups[key])
        if group.curves is None:
            found.append(NoCurve(name, data.source, data.sha256, ended or "; ".join(_reasons(group.selection))))
            continue
        surface, gains = fit_with_gains(group.curves, options.confidence) or (None, {})
        found.append(
            Arm(
                label=name,
                source=data.source,
                sha256=data.sha256,
                runs=group.selection.runs,
                curves=group.curves,
                pairs=group.pairs,
                surface=surface,
                gains=gains,
                held_out=group.held_out,
                diverged=": ".join(filter(None, (ended, group.selection.diverged_rule))),
                eval_tokens=_eval_tokens(data, group.selection.runs),
                unit=data.unit,
                warnings=tuple(group.warnings),
            )
        )
    return found


def _diverged(rows: Sequence[Row]) -> str:
    """How many of the runs diverged, in words; empty where none did."""
    count = sum(
        str(row.get("status")).lower() == "diverged" or (row.get("loss") is not None and not math.isfinite(row["loss"]))
        for row in rows
    )
    return f"{count} of {len(rows)} runs diverged" if count else ""


def _reasons(selection: Selection) -> list[str]:
    """Why no shape counts: each reason with how many shapes have it."""
    counts = Counter(selection.excluded.values())
    return [f"{reason} ({count} shapes)" for reason, count in counts.most_common(3)] or ["it has no finished run"]


def labels(tables: Sequence[Table]) -> list[str]:
    """Short names that differ: of the arms, else of the folders or files, else the whole paths."""
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
    """How many held-out tokens the runs were evaluated on, as their config.json has it; empty where none says so."""
    run_id = next((run.row.get("run_id") for run in runs if run.row.get("run_id")), None)
    if data.directory is None or run_id is None:
        return ""
    try:
        config = reader.read(paths.as_path(data.directory) / "runs" / str(run_id) / "config.json", RunConfig)
    except (InputError, OSError):  # what others left there
        return ""
    if config is None or "eval_tokens" not in config.train:
        return ""
    tokens = config.train["eval_tokens"]
    return "all" if tokens is None else str(tokens)


MOST_ARMS = 50  # each is a fit of its own
SHARED_DEPARTURES = 0.5
SIZES = 9  # at which best depths are compared


@dataclass(frozen=True)
class Estimate(Interval):
    """ln of a size or of a depth under one arm. se: its standard error, None where there is none; along: how it follows
    the arm's cell means (K,), and a best depth the waves of δ too (K + W,); None: not known."""

    se: float | None = None
    along: np.ndarray | None = None
    status: str = ""


@dataclass(frozen=True)
class Ratio(Interval):
    """Ratio of two sizes or depths. correlation: of the errors of the two estimates."""

    correlation: float | None = None


def compare(base: Arm, other: Arm, options: FitOptions) -> Comparison:
    """``other`` against ``base``, both fitted with ``options``."""
    pairing = pair_arms(base, other, options.noise, options.shape_noise)
    transitions = list(_transitions(base, other, pairing, options.confidence))
    depths = list(_best_depths(base, other, pairing, options.confidence))
    losses = losses_apart(base, other, pairing, options)
    rows = (*transitions, *depths, *losses.rows)
    return Comparison(
        base=base.label,
        base_input=base.source,
        arm=other.label,
        input=other.source,
        input_sha256=other.sha256,
        unit=losses.unit,
        paired=not pairing.why_not,
        pairing=pairing.by if not pairing.why_not else f"unpaired: {pairing.why_not}",
        matched_shapes=len(pairing.cells),
        answer=(*_ended(base, other), _answer(depths, base.label), _moved(transitions), *losses.sentences),
        rows=rows,
        depths=losses.depths,
        notes=(
            *losses.notes,
            *(line for line in other.warnings if line not in base.warnings and not _is_said(line, other)),
        ),
    )


@dataclass(frozen=True)
class NoCurve:
    """An arm of which no run has a usable loss, and why."""

    label: str
    source: str
    sha256: str
    why: str


def without_curve(base: Arm, other: NoCurve) -> Comparison:
    """The comparison with an arm that has no loss: it says so, and nothing else."""
    return Comparison(
        base=base.label,
        base_input=base.source,
        arm=other.label,
        input=other.source,
        input_sha256=other.sha256,
        unit=base.unit,
        paired=False,
        pairing="unpaired: one has no usable loss",
        matched_shapes=0,
        answer=(f"{other.label} has no usable loss: {other.why}; nothing is compared",),
        rows=(),
        depths=(),
    )


def _ended(*arms: Arm) -> list[str]:
    """One line per arm with diverged runs, saying how many were left out."""
    return [f"{arm.label}: {arm.diverged}; what is compared rests on the other runs" for arm in arms if arm.diverged]


def _is_said(warning: str, arm: Arm) -> bool:
    """Whether the answer already says what the warning says."""
    return bool(arm.diverged) and arm.diverged.endswith(warning.removeprefix("diverged: "))


def ratio(base: Estimate, other: Estimate, cross: np.ndarray, widened: float = 1.0) -> Ratio:
    """other / base. cross: covariance of what their ``along`` follow. widened: factor on the distances to the ends."""
    low, high = _less(other.low, base.high), _less(other.high, base.low)
    if base.value is None or other.value is None:  # a bound of the one against a bound of the other
        ends = Interval(None, low, high).map(math.exp)
        return Ratio(None, ends.low, ends.high)
    r = 0.0
    if base.along is not None and other.along is not None and base.se and other.se:
        r = float(np.clip(base.along @ cross @ other.along / (base.se * other.se), -1.0, 1.0))
    middle = other.value - base.value
    if low is not None and base.high is not None and other.low is not None:
        low = middle - widened * _distance(other.value - other.low, base.high - base.value, r)
    if high is not None and base.low is not None and other.high is not None:
        high = middle + widened * _distance(other.high - other.value, base.value - base.low, r)
    found = Interval(middle, low, high).map(math.exp)
    return Ratio(found.value, found.low, found.high, r)


def _distance(one: float, other: float, r: float) -> float:
    return math.sqrt(max(0.0, one**2 + other**2 - 2.0 * r * one * other))


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _row(
    arm: str,
    quantity: str,
    base: Estimate,
    other: Estimate,
    found: Ratio,
    confidence: float,
    pair: tuple[int | None, int | None] = (None, None),
    n_params: float | None = None,
) -> ComparedRow:
    below, above = VERDICTS[quantity]
    verdict = UNCHANGED
    if found.unbounded:
        verdict = NOT_COMPARABLE
    elif found.low is not None and found.low > 1.0:
        verdict = above
    elif found.high is not None and found.high < 1.0:
        verdict = below
    return ComparedRow(
        arm=arm,
        quantity=quantity,
        depth=pair[0],
        deep=pair[1],
        n_params=n_params,
        base_status=base.status,
        **base.map(math.exp).columns("base"),
        other_status=other.status,
        **other.map(math.exp).columns("other"),
        **found.columns("change"),
        correlation=found.correlation,
        confidence=confidence,
        verdict=verdict,
    )


def _transitions(base: Arm, other: Arm, pairing: Pairing, confidence: float) -> Iterator[ComparedRow]:
    """One row per two neighbouring depths that both have."""
    theirs = {(pair.shallow, pair.deep): pair for pair in other.pairs}
    for pair in base.pairs:
        found = theirs.get((pair.shallow, pair.deep))
        if found is None:
            continue
        a, b = _crossing(base, pair), _crossing(other, found)
        widened = _widened(pairing, (pair, found), confidence)
        depths = pair.shallow, pair.deep
        yield _row(other.label, TRANSITION, a, b, ratio(a, b, pairing.cross, widened), confidence, depths)


def _crossing(arm: Arm, pair: Pair) -> Estimate:
    c: Crossing = pair.crossing
    return Estimate(c.root, c.low, c.high, c.se, of_crossing(arm.curves, pair), c.status)


def _widened(pairing: Pairing, pairs: Sequence[Pair], confidence: float) -> float:
    """Where the noise of a difference rests on fewer degrees of freedom than the arms' own, by how much its t is
    larger."""
    if pairing.noise is None:
        return 1.0
    own = min(pair.difference.df if pair.difference else math.inf for pair in pairs)
    apart = min(pairing.noise.df.get(depth, math.inf) for depth in (pairs[0].shallow, pairs[0].deep))
    return max(1.0, t_two_sided(confidence, apart) / t_two_sided(confidence, own)) if min(own, apart) > 0 else 1.0


def _best_depths(base: Arm, other: Arm, pairing: Pairing, confidence: float) -> Iterator[ComparedRow]:
    """Compare best depths at sizes that both arms have, where the data bound one of the two at least."""
    if base.surface is None or other.surface is None:
        return
    surfaces = LossSurface(base.surface), LossSurface(other.surface)
    low = max(surface.record.low for surface in surfaces)
    high = min(surface.record.high for surface in surfaces)
    if high <= low:
        return
    cross = _with_departures(pairing.cross, *(surface.frame for surface in surfaces))
    for x in np.linspace(low, high, SIZES):
        found = [_depth(arm, surface, float(x)) for arm, surface in zip((base, other), surfaces, strict=True)]
        if None in found:
            continue
        a, b = (one for one in found if one is not None)
        if a.unbounded and b.unbounded:
            continue
        of_depths = ratio(a, b, cross)
        yield _row(other.label, BEST_DEPTH, a, b, of_depths, confidence, n_params=math.exp(float(x)))


def _with_departures(cross: np.ndarray, a: Frame, b: Frame) -> np.ndarray:
    """``cross`` (K_A, K_B) with what the waves of δ of two arms share (K_A + W, K_B + W): nothing over other sizes or
    depths, where a wave is another one."""
    from scipy.linalg import block_diag

    alike = max(abs(a.low - b.low), abs(a.high - b.high)) < TOLERANCE
    alike &= (a.shallowest, a.deepest) == (b.shallowest, b.deepest)
    return block_diag(cross, alike * SHARED_DEPARTURES * np.eye(int((a.terms[:, 1] > 0).sum())))


def _depth(arm: Arm, surface: LossSurface, x: float) -> Estimate | None:
    """ln of the best depth at ln axis ``x``; None where too few depths have shapes of that size."""
    found: Optimum | None = surface.optimum(x)
    if found is None:
        return None
    ln = Interval.of(found, "depth").map(math.log)
    if found.depth is None:
        return Estimate(ln.value, ln.low, ln.high, status=found.beyond)
    spread = surface.spread(x)
    se = spread if math.isfinite(spread) else None
    along = of_best_depth(surface.record, arm.gains, x, found.depth) if arm.gains else None
    if along is not None and se:  # draws that end with the depths trained spread less than the linear model says
        unseen = along[len(arm.curves.x) :]
        unseen *= min(1.0, se / max(float(np.linalg.norm(unseen)), 1e-12))
    return Estimate(ln.value, ln.low, ln.high, se, along)


def middle(rows: Sequence[ComparedRow]) -> ComparedRow | None:
    """The best depth that stands for all: where both arms have one, in the middle of the sizes; the choice does not
    look at what the interval says."""
    sizes = [math.log(row.n_params) for row in rows if row.n_params]
    known = [row for row in rows if row.change is not None and row.n_params]
    bounded = [row for row in known if row.change_low is not None and row.change_high is not None]
    if not known:
        return None
    centre = (sizes[0] + sizes[-1]) / 2.0
    return min(bounded or known, key=lambda row: abs(math.log(row.n_params or 1.0) - centre))


def _answer(rows: Sequence[ComparedRow], base: str) -> str:
    row = middle(rows)
    if row is None or row.n_params is None or row.verdict == NOT_COMPARABLE:
        return "best depth: not bounded under both at any size, so whether it changes cannot be said"
    return (
        f"best depth at N = {format_count(row.n_params)}: {row.base:.1f} under {base}, {row.other:.1f} under "
        f"{row.arm}; ratio {row.change:.2f} ({span(row)}): {row.verdict}"
    )


def _moved(rows: Sequence[ComparedRow]) -> str:
    if not rows:
        return "transitions: no two neighbouring depths that both have"
    moved = [f"{row.pair} at {_times(row)}" for row in rows if row.shown]
    still = [row.pair for row in rows if row.verdict == UNCHANGED]
    unknown = [row.pair for row in rows if row.verdict == NOT_COMPARABLE]
    parts = [
        ", ".join(moved),
        f"no change shown of {', '.join(still)}" if still else "",
        f"{', '.join(unknown)} not known well enough under both" if unknown else "",
    ]
    return f"transitions: {'; '.join(part for part in parts if part)}"


def _times(row: ComparedRow) -> str:
    if row.change is None:
        return f"a {row.verdict} size (ratio {span(row)})"
    return f"{row.change:.2f} times the size ({span(row)})"


def span(row: ComparedRow) -> str:
    """The interval of a ratio, in words where an end is open."""
    ends = Interval.of(row, "change").ends("{:.2f}".format)
    return ends.replace("< ", "below ").replace("> ", "above ")


STEP = 1e-5  # nats, and ln depth: of the numerical derivatives


def of_crossing(curves: Curves, pair: Pair) -> np.ndarray | None:
    """(K,) derivatives of ln N of the crossing with respect to the cell means; None where it has not crossed.

    The crossing x solves g(x) = 0, so dx = −dg(x)/g'(x).
    """
    root, slope = pair.crossing.root, pair.crossing.slope
    if root is None or not slope:
        return None
    moved = np.vstack([curves.mean, curves.mean + STEP * np.eye(len(curves.mean))])
    values = []
    for depth in (pair.shallow, pair.deep):
        where = curves.at(depth)
        values.append(pchip(*distinct(curves.x[where], moved[:, where]), np.array([root]))[:, 0])
    g = values[0] - values[1]
    return -(g[1:] - g[0]) / STEP / slope


def of_best_depth(record: Surface, gains: Mapping[str, np.ndarray], x: float, depth: float) -> np.ndarray | None:
    """(K + W,) derivatives of the ln of the best depth at ln axis ``x`` inside the data, about ``depth``, with respect
    to the cell means and to the waves of δ that they do not show: the average over the forms that are not rejected.
    None where the loss has no valley there.

    With s(y; c, θ) = dloss/dy at y = ln L, linear in the coefficients c, the best depth solves s = 0, so
    dy = −(∂s/∂c·dc + ∂s/∂θ·dθ) / (∂s/∂y).
    """
    depths = [span.depth for span in record.spans]
    frame = Frame(record.low, record.high, float(min(depths)), float(max(depths)))
    y = math.log(depth) + np.array([0.0, -STEP, STEP])
    departures = frame.basis(np.full(3, x), y, derivative=True)
    steps = np.vstack([np.diag(DERIVATIVE_STEPS), -np.diag(DERIVATIVE_STEPS)])
    total, weights = None, 0.0
    for form in accepted_forms(record):
        coefficients, theta = np.array(form.mode[:-P]), np.array(form.mode[-P:])
        slope = departures @ coefficients + gradient(form.form, theta, x, y, frame)
        curvature = float(slope[2] - slope[1]) / (2.0 * STEP)
        if curvature <= 0.0:
            continue
        moved = gradient(form.form, theta + steps, x, y[:1], frame)
        by_theta = (moved[: len(theta)] - moved[len(theta) :]) / (2.0 * DERIVATIVE_STEPS)
        row = np.concatenate([departures[0], by_theta])
        share = form.weight * (-(row @ gains[form.form]) / curvature)
        total = share if total is None else total + share
        weights += form.weight
    return None if total is None else total / weights
