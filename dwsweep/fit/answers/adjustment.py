"""Adjustment of a heap: effects of its columns, best rates, best depths by tokens; and the sentences on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dwsweep.fit.data import covariates as found_in
from dwsweep.fit.data.covariates import RATE, TEXT, TOKENS, Covariate
from dwsweep.fit.data.lengths import TrainedBudgets
from dwsweep.fit.statistics import ask
from dwsweep.fit.statistics.design import Design, HeapMeans, Term
from dwsweep.interval import Interval
from dwsweep.records.adjusted import AdjustedColumn, Adjustment
from dwsweep.records.answers import BEST_DEPTH, BEST_VALUE, N_PARAMS, AnswerRow
from dwsweep.text import join, of_digits

ONE_VARIABLE = 0.95  # |r| above which two columns are inseparable: variance is inflated tenfold
TOKEN_SHARES = (0.0, 0.5, 1.0)  # quantiles of the tokens at which best depths are told, if there are many counts


def adjustment_of(means: HeapMeans, design: Design, held: ask.LossSurface, follow: tuple[str, ...]) -> Adjustment:
    """Record of the adjustment, without the answers of ``equal_what``. follow: columns that follow the shape."""
    posterior = held.posterior
    columns = tuple(dict.fromkeys(_column(term, means, held) for term in design.terms))
    close = [one.name for one in columns if abs(one.r) >= ONE_VARIABLE and one.kind != "rate"]
    return Adjustment(
        runs=len(means.of),
        columns=columns,
        follow=follow,
        scatter=math.hypot(float(np.median(np.exp(posterior.stacked("scatter")))), means.noise.sigma or 0.0),
        shared=float(np.median(np.exp(posterior.stacked("shared")))) if posterior.cells.shared is not None else None,
        inseparable=tuple(close),
        rates=_rates(means, design, held),
        along_tokens=_along_tokens(design, held),
    )


def _column(term: Term, means: HeapMeans, surface: ask.LossSurface) -> AdjustedColumn:
    one, name = term.of, term.column.name
    tuned, is_text = one.kind == RATE, one.kind == TEXT
    moved = surface.posterior.of_columns(means.x, means.y, {name: term.column.value})
    sizes = moved.std(axis=1) if not tuned else np.sqrt((moved**2).mean(axis=1))
    held = f"{one.name} {one.held}" if is_text else one.said(one.held)
    return AdjustedColumn(
        name=name if is_text else one.name,
        column=one.column,
        kind=one.kind,
        held="each net's best learning rate" if tuned else held,
        value=None if tuned or is_text else float(one.held),
        low=None if is_text else one.low,
        high=None if is_text else one.high,
        r=one.r,
        **ask.effect(sizes, surface.record.confidence).columns("matters"),
    )


def _rates(means: HeapMeans, design: Design, surface: ask.LossSurface) -> tuple[AnswerRow, ...]:
    """Best learning rate of each depth at the middle size; a rate beyond those tried is only a bound."""
    place, term = next(((k, term) for k, term in enumerate(design.terms) if term.of.kind == RATE), (0, None))
    if term is None or design.rate is None or not np.ptp(term.of.value[means.arm == 0]):
        return ()
    posterior, confidence = surface.posterior, surface.record.confidence
    frame, (level, by_size, by_depth) = posterior.frame, design.rate
    depths = np.unique(means.depth)
    u, v = frame.u(np.full(len(depths), frame.x0)), frame.v(np.log(depths.astype(float)))
    effects = [one for one in posterior.forms if one.model.form.effect]
    values = [one.tuned_values(place, u, v, {})[0] for one in effects]
    if not values:
        return ()
    ln_best = level + by_size * u + by_depth * v + term.spread * np.concatenate(values)
    first, last = (end(term.of.value[means.arm == 0]) for end in (np.min, np.max))
    rows = []
    for depth, drawn in zip(depths, ln_best.T, strict=True):
        low, middle, high = ask.quantiles(drawn, confidence)
        ends = middle if first < middle < last else None, low if low > first else None, high if high < last else None
        at: dict[str, Any] = {"equal": N_PARAMS, "n_params": math.exp(frame.x0), "depth": float(depth)}
        rate, reason = Interval(*ends).map(math.exp).columns("estimate"), "" if ends[0] else "beyond those tried"
        rows.append(AnswerRow(question=BEST_VALUE, column="learning_rate", **at, **rate, reason=reason))
    return tuple(rows)


def _along_tokens(design: Design, surface: ask.LossSurface) -> tuple[AnswerRow, ...]:
    """Best depth at the middle size after a few counts of tokens that the runs have, those of the held values of texts
    first, and its ratio to the one after the least."""
    if (term := design.tokens) is None or not surface.has_best:
        return ()
    posterior, confidence = surface.posterior, surface.record.confidence
    value, x, name = term.column.value, posterior.frame.x0, term.column.name
    texts = [text.column.value > 0.5 for text in design.terms if text.of.kind == TEXT]
    held = ~np.any(texts, axis=0) if texts else np.ones(len(value), dtype=bool)
    own = value[held] if np.ptp(value[held]) > 0.0 else value
    counts = np.unique(own.round(9))
    if len(counts) > len(TOKEN_SHARES):
        counts = np.quantile(own, TOKEN_SHARES)
    first = ask.best_depths(posterior, x, {name: float(counts[0])})
    rows: list[AnswerRow] = []
    for v in counts:
        setting = {name: float(v)}
        depth = surface.at(math.exp(x), setting)
        with np.errstate(invalid="ignore"):
            ratio = ask.best_depths(posterior, x, setting) - first
        known = ratio[np.isfinite(ratio)]
        # the first count is what others are compared with; a depth beyond those trained has a bound alone, and no ratio
        both = bool(rows) and None not in (depth.value, rows[0].depth)
        change = ask.effect(known, confidence).map(math.exp) if both and len(known) > 0.9 * len(ratio) else Interval()
        tokens = of_digits(float(np.exp(term.ln(v)) - term.of.shift))
        at: dict[str, Any] = {"equal": N_PARAMS, "n_params": math.exp(x), "tokens": tokens}
        found = depth.columns("depth") | change.columns("estimate") | {"monte_carlo_error": depth.error or None}
        rows.append(AnswerRow(question=BEST_DEPTH, **at, **found))
    return tuple(rows)


def sentences(record: Adjustment, budget: TrainedBudgets | None = None, outside: Sequence[Covariate] = ()) -> list[str]:
    """Sentences on columns that are held fixed and columns that cannot be told from depth. outside: columns held at an
    untried value."""
    held = list(dict.fromkeys(one.held for one in record.columns))
    said = [f"Depths are compared at {join(held, 12)}"] if held else []
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
    for name, own in {row.name: row for row in record.columns if row.kind != "rate"}.items():
        r = f"(r = {own.r:.2f})".replace("-", "−")
        if name in record.inseparable:
            said.append(f"This table cannot separate depth from {name} {r}: {_if_it_follows(own)}")
        elif abs(own.r) >= found_in.CONFOUNDED:
            verb = "follow" if name.endswith("s") else "follows"
            said.append(f"{name[0].upper()}{name[1:]} {verb} depth in part {r}: {_if_it_follows(own)}")
    if line := _untried_rates(record):
        said.insert(1, line)
    return said


def _if_it_follows(one: AdjustedColumn) -> str:
    return f"best depths are for {one.held}; --no-adjust {one.column} gives those of nets in which it follows depth"


def _untried_rates(record: Adjustment) -> str:
    """Sentence on depths whose best learning rate was not tried, where they are half of all or more: their losses are
    those of a parabola in ln rate, continued."""
    out = [row for row in record.rates if row.estimate is None]
    if 2 * len(out) < len(record.rates) or not out:
        return ""
    above = sum(row.estimate_low is not None for row in out)
    side = "above" if 2 * above > len(out) else "below"
    every = f"{len(out)} of {len(record.rates)}"
    return (
        f"OUTSIDE WHAT WAS TRIED: the best learning rate of {every} depths lies {side} the rates tried; losses there "
        "are by the parabola alone"
    )
