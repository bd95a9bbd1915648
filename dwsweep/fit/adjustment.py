"""Adjustment of a heap: effects of its columns, readings under confounding, best rates, best depths by tokens; and the
sentences on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dwsweep.fit import ask
from dwsweep.fit.data import covariates as found_in
from dwsweep.fit.data.covariates import TEXT, TOKENS, Covariate, Covariates, value_text
from dwsweep.fit.equal_what import Budget
from dwsweep.fit.heap_design import Design, Means, Scale, layer_weights, surface_of
from dwsweep.fit.model import Cells
from dwsweep.fit.posterior import Posterior
from dwsweep.interval import Interval
from dwsweep.records.adjusted import AdjustedColumn, Adjustment, BestRate
from dwsweep.records.answers import BEST_DEPTH, FOLLOWS, N_PARAMS, SIZE_AND_FLOPS, SIZE_AND_TIME, AnswerRow
from dwsweep.records.fit import FitOptions, Surface
from dwsweep.records.transitions import layers
from dwsweep.text import NATS, SHORT, format_count, join

ONE_VARIABLE = 0.95  # |r| above which two columns are inseparable: variance is inflated tenfold
MOVES = 0.1  # shift of ln L by another common value above which it is mentioned
WIDER = 1.5  # widening of the interval by a held column above which the two are inseparable
TOKEN_SHARES = (0.0, 0.5, 1.0)  # quantiles of the tokens at which best depths are told, if there are many counts
LEAST_SHARED = 2.0  # last over first token count shared by a text's values that are compared there


def adjustment_of(
    means: Means,
    design: Design,
    posterior: Posterior,
    surface: Surface,
    found: Covariates,
    options: FitOptions,
    cells: Cells,
) -> Adjustment:
    """Record of the adjustment, without what is equal and without sentences. A column that follows depth is read twice:
    held, and left out by a second posterior of ``cells``."""
    size = found_in.quadratic(means.x, means.y)[:, [0, 1, 3]]
    depth_left = found_in.share_left(means.y, np.hstack([size, *(one[:, None] for one in design.values)]))
    held = ask.LossSurface(surface)
    columns = tuple(_column(k, means, design, held) for k in range(len(design.names)))
    columns = tuple(dict.fromkeys(columns))
    close = [one for one in columns if abs(one.r) >= found_in.CONFOUNDED and one.kind != "rate"]
    readings: list[AnswerRow] = []
    inseparable: list[str] = []
    for one in close:
        if not held.has_best:  # no best depth to read
            inseparable += [one.name] if abs(one.r) >= ONE_VARIABLE else []
            continue
        rest = (k for k in cells.columns if not k.name.startswith(one.name) and not k.name.endswith(f"× {one.name}"))
        other = ask.LossSurface(surface_of(replace(cells, columns=tuple(rest)), means, options))
        readings += _readings(one, held, other)
        widths = [_width(of, n) for n in _thirds(held) for of in (held, other)]
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
        **_along_tokens(means, design, held),
    )


def _thirds(surface: ask.LossSurface) -> list[float]:
    """Sizes at which columns that follow depth are read twice."""
    low, high = surface.record.low, surface.record.high
    return [math.exp(low + share * (high - low)) for share in (0.25, 0.5, 0.75)]


def _width(surface: ask.LossSurface, n: float) -> float:
    """Width of the interval of the best depth at a size, in ln L, with ends that no loss bounds."""
    found = surface.at(n)
    return math.log((found.high or 1e4) / (found.low or 1.0))


def _readings(one: AdjustedColumn, held: ask.LossSurface, follows: ask.LossSurface) -> list[AnswerRow]:
    """Best depth at a few sizes under both readings: column held, and column following depth as in the table."""
    return [
        _best(n, surface.at(n), surface.decimals(n), column=one.name, value=value)
        for n in _thirds(held)
        for surface, value in ((held, one.held), (follows, FOLLOWS))
    ]


def _best(n: float, depth: Interval, decimals: int | None, **where: Any) -> AnswerRow:
    """Best depth at a size, and ``where`` else."""
    at: dict[str, Any] = {"question": BEST_DEPTH, "equal": N_PARAMS, "n_params": n, **where}
    return AnswerRow(**at, **depth.columns("depth"), decimals=decimals)


def _column(k: int, means: Means, design: Design, surface: ask.LossSurface) -> AdjustedColumn:
    posterior, confidence = surface.posterior, surface.record.confidence
    one, value, name = means.columns[k], design.values[k], design.names[k]
    tuned = design.columns[k].tuned is not None
    moved = posterior.of_columns(means.x, means.y, {name: value})
    sizes = moved.std(axis=1) if not tuned else np.sqrt((moved**2).mean(axis=1))
    matters = ask.effect(sizes, confidence)
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
        common=() if tuned else _at_common(one, name, design.scales[k], surface),
        best=one.best,
    )


def _at_common(one: Covariate, name: str, scale: Scale, surface: ask.LossSurface) -> tuple[AnswerRow, ...]:
    """Best depths at the middle size, with a column at each of its equally common values."""
    found, x = [], surface.posterior.frame.x0
    for value in one.common:
        settings = {name: float(scale.value(np.log(value + one.shift)))}
        found.append(_best(math.exp(x), *surface.at_setting(x, settings), column=name, value=value))
    return tuple(found)


def _rates(means: Means, design: Design, posterior: Posterior, confidence: float) -> dict[str, Any]:
    """Best learning rate of each depth at the middle size, and the cost of the best common rate."""
    place = next((k for k, one in enumerate(design.columns) if one.tuned), None)
    if place is None or design.rate is None:
        return {}
    frame, beta, spread = posterior.frame, design.rate, design.scales[place].spread
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
    y, rated = np.log(depths.astype(float)), ((grid[:, None] - first) / spread).ravel()
    flat = posterior.of_columns(np.tile(x, len(grid)), np.tile(y, len(grid)), {design.names[place]: rated})
    cost = np.moveaxis(flat.reshape(len(flat), len(grid), -1), 1, 0)  # (rates, D, depths)
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


def _along_tokens(means: Means, design: Design, surface: ask.LossSurface) -> dict[str, Any]:
    """Best depth at the middle size after a few counts of tokens that the runs have: for the held value of a text and
    for each other that has several counts, at the same counts where these overlap."""
    place = next((k for k, one in enumerate(means.columns) if one.name == TOKENS), None)
    if place is None or not surface.has_best:
        return {}
    posterior, confidence = surface.posterior, surface.record.confidence
    value, one, x = design.values[place], means.columns[place], posterior.frame.x0
    scale = design.scales[place]
    name = design.names[place]
    texts = {design.names[k]: design.values[k] > 0.5 for k, text in enumerate(means.columns) if text.kind == TEXT}
    held = ~np.any(list(texts.values()), axis=0) if texts else np.ones(len(value), dtype=bool)
    has = {label: member for label, member in texts.items() if np.ptp(value[member]) > 0.0}
    groups = {"": held, **has} if np.ptp(value[held]) > 0.0 else {"": np.ones(len(value), dtype=bool)}
    low, high = (f([g(value[of]) for of in groups.values()]) for f, g in ((max, np.min), (min, np.max)))
    first, last = scale.ln(np.array([low, high])).tolist()
    shared = last - first >= math.log(LEAST_SHARED)
    if len(groups) == 1 or not shared:
        groups = {"": groups[""]}
    of_held = next((f"{row.name} {row.held}" for row in means.columns if row.kind == TEXT), "")

    def after(label: str, counts: np.ndarray, of: str) -> tuple[list[AnswerRow], np.ndarray]:
        """(best depths after ``counts``, (D,) ln of the last over the first)."""
        settings = [{name: float(v)} for v in counts]
        if label:
            settings = [{**own, label: 1.0, f"{label} × {TOKENS}": own[name]} for own in settings]
        drawn = [ask.best_depths(posterior, x, own) for own in settings]
        rows: list[AnswerRow] = []
        for v, found, own in zip(counts, drawn, settings, strict=True):
            depth, decimals = surface.at_setting(x, own)
            with np.errstate(invalid="ignore"):
                ratio = found - drawn[0]
            known = ratio[np.isfinite(ratio)]
            # a depth beyond those trained has a bound alone, and so no ratio
            both = depth.value is not None and (not rows or rows[0].depth is not None)
            ratios = both and len(known) > 0.9 * len(ratio)
            change = ask.effect(known, confidence).map(math.exp) if ratios else Interval()
            tokens = float(np.exp(scale.ln(v)) - one.shift)
            where = {"tokens": tokens, "arm": of, **change.columns("estimate")}
            rows.append(_best(math.exp(x), depth, decimals, **where))
        return rows, ratio

    shared_counts = scale.value(np.linspace(first, last, 3))
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
    said = [f"Depths are compared at {join(held, 12)}"] if held else []
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
            f"{format_count(follows.n_params or 0.0)}; at {column_of.held}: {_depth(held_row)}"
        )
        if name in record.inseparable:
            line += f": {_inseparable(column_of)}"
        said.append(line)
    unread = {one.name: one for one in record.columns if one.name in record.inseparable and not record.readings}
    said += [f"T{_inseparable(one)[1:]}" for one in unread.values()]
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


def _inseparable(column: AdjustedColumn) -> str:
    return f"this table cannot separate depth from {column.name} (r = {column.r:.2f})".replace("-0", "−0")


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

    def text(row: AnswerRow) -> str:
        return value_text(column.name, float(row.value or 0.0))

    own = next((row for row in known if f"{column.name} {text(row)}" == column.held), None)
    if own is None:
        return ""
    ln = [math.log((row.depth or 1.0) / (own.depth or 1.0)) for row in known]
    far = known[int(np.argmax(np.abs(ln)))]
    if max(map(abs, ln)) < MOVES:
        return ""
    values = join(list(map(text, column.common)))
    why = "has the least loss at equal size" if column.best else "is the middle one"
    return (
        f"The values {values} of {column.name} are about as common, and {text(own)} {why}; at "
        f"{format_count(own.n_params or 0.0)} the best depth is {_depth(own)} there and {_depth(far)} at {text(far)} "
        "(--at)"
    )


def _tokens_said(record: Adjustment) -> list[str]:
    """Sentences on the best depth against tokens, and on recipes that disagree about it."""
    ends: dict[str, list[AnswerRow]] = {}
    for row in record.along_tokens:
        ends.setdefault(row.arm, []).append(row)
    said: list[str] = []
    for of, rows in ends.items():
        first, last = rows[0], rows[-1]
        if len(rows) > 1 and last.estimate is not None:
            ratio = last.estimate_interval.format(".2f")
            n, after, before = (format_count(value or 0.0) for value in (last.n_params, last.tokens, first.tokens))
            recipe = f"{of[0].upper()}{of[1:]}: " if of else ""
            said.append(f"{recipe}at {n} the best depth after {after} tokens is {ratio} times the one after {before}")
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
        name: {row.n_params: row for row in record.equal if row.equal == equal and row.n_params and row.depth}
        for equal, name in ((N_PARAMS, "N"), (SIZE_AND_FLOPS, "N and FLOPs"), (SIZE_AND_TIME, "N and wall time"))
    }
    told = [set(of) for of in rows.values() if of]
    shared = sorted(set.intersection(*told)) if len(told) > 1 else []
    if not shared:
        return ""
    n = shared[len(shared) // 2]
    found = {name: of[n] for name, of in rows.items() if n in of}
    texts = [f"{_depth(row)} at equal {name}" for name, row in found.items()]
    return f"Equal what: at {format_count(n)} the best depth is {join(texts)}"


def middle_readings(record: Adjustment, name: str) -> tuple[AnswerRow, AnswerRow]:
    """Both readings of a column at its middle size: held, and following depth."""
    rows = [row for row in record.readings if row.column == name]
    middle = len(rows) // 4 * 2
    return rows[middle], rows[middle + 1]


def _depth(row: AnswerRow) -> str:
    return row.depth_interval.format(layers(row.decimals))
