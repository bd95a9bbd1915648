"""Adjustment of a heap as parts of a document: effect of each column, and columns inseparable from depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from dwsweep.fit.data.covariates import LARGE, value_text
from dwsweep.interval import layers
from dwsweep.records.adjusted import AdjustedColumn, Adjustment, NextRuns
from dwsweep.records.answers import EQUAL, FLOPS, N_PARAMS, SIZE_AND_FLOPS, SIZE_AND_TIME, WALL_TIME, AnswerRow
from dwsweep.report.document import INTERVAL, MISSING, Lines, Part, TextTable, ends, estimate, label, number, shown
from dwsweep.text import SHORT, format_count, format_duration, join

SYMBOLS = {"n_params": "N", "tokens": "D", "depth": "L"}
REACHED = "0.7"  # sd of ln of the best depth, over the one expected: tests/simulations/README.md


def adjusted_parts(record: Adjustment, unit: str) -> list[Part]:
    """Tables of the columns, of best depths at other equal quantities and tokens, and of the best learning rates."""
    short = SHORT[unit]
    table = TextTable(
        f"Adjusted for (matters: root mean square effect of a column on the losses of {record.runs} runs, {short}; "
        "r: correlation with ln depth at equal size)",
        [number("column"), label("held"), number("tried"), number("matters"), INTERVAL, number("r")],
    )
    for one in sorted(record.columns, key=lambda row: -row.matters):
        matters = estimate(one.matters_interval, ".2g")
        table.add(one.name, held(one), _tried(one), *matters, shown(one.r, "+.2f"))
    parts: list[Part] = [table] if record.columns else []
    if record.equal or record.along_tokens:
        parts += _answers(record)
    if record.rates:
        title = f"Best learning rate of each depth at N = {format_count(record.rates[0].n_params or 0.0)}"
        rates = TextTable(title, [number("depth"), number("rate"), INTERVAL])
        for row in record.rates:
            rates.add(f"{row.depth:g}", *estimate(row.estimate_interval, ".2g", row.reason))
        parts.append(rates)
    return parts


def _answers(record: Adjustment) -> list[Part]:
    """Table of the best depths at each kind of equality and after other tokens; and the columns or formulas behind the
    budgets."""
    rows = (*record.equal, *record.after_other_tokens)
    known = {EQUAL[row.equal].removeprefix("N and "): row.known_from for row in rows if row.known_from}
    lines = [f"{name}: {said}" for name, said in known.items()]
    equal = {row.equal for row in rows}
    if N_PARAMS in equal and equal & {SIZE_AND_FLOPS, SIZE_AND_TIME}:
        lines.append("N and FLOPs, N and wall time: the budget is the cost of the best net at equal N")
    title = "Best depth at equal size, tokens per parameter, FLOPs or wall time"
    return [best_nets(title, rows), Lines(lines, indent=2)]


def best_nets(title: str, rows: Sequence[AnswerRow]) -> TextTable:
    """Table of the best depth, size and tokens of each answer: at which equality, and of what."""
    heads = label("equal"), number("budget"), label("of"), number("depth"), INTERVAL, number("N"), INTERVAL
    table = TextTable(title, [*heads, number("tokens")])
    for row in rows:
        of = row.arm or (f"{row.column}: {row.value}" if row.column else "")
        size = [_size(row), "" if row.n_params is None else ends(row.n_params_interval)]
        best = row.depth_interval.texts(layers)[0] or MISSING, row.depth_interval.ends(layers)
        table.add(EQUAL[row.equal], budget(row), of, *best, *size, shown(row.tokens, format_count))
    return table


def at_budgets(record: Adjustment) -> list[Part]:
    """Table of the best net at each budget that the runs were trained to, and the powers with which it grows."""
    rows = record.at_budgets
    table = best_nets(f"Best net at each budget of {EQUAL[rows[0].equal]}, each depth at its best size", rows)
    powers = [f"{SYMBOLS[row.column]} ∝ C^{row.estimate_interval.format('.3f')}" for row in record.growth]
    lines = [f"over {len(rows)} budgets C: {', '.join(powers)}"] if powers else []
    return [table, Lines([*lines, f"budgets from {rows[0].known_from}"], indent=2)]


def at_budget(row: AnswerRow) -> str:
    """Sentence on the best net at a budget."""
    at = f"At {budget(row)}{' FLOPs' if row.equal == FLOPS else ''}"
    if row.depth is None and not row.n_params_interval.unbounded:
        return f"{at}: N = {row.n_params_interval.format(format_count)}, {row.reason}."
    if row.depth is None or row.n_params is None:
        known = row.depth_interval.ends(layers)
        return f"{at}: best depth not reached{f' ({known})' if not row.depth_interval.unbounded else ''}, {row.reason}."
    return f"{at}: {row.depth_interval.format(layers)} layers, N = {row.n_params_interval.format(format_count)}."


def budget(row: AnswerRow) -> str:
    """The equal quantity in its unit."""
    if row.cost is None:
        return _size(row)
    return format_duration(row.cost) if row.equal.endswith(WALL_TIME) else format_count(row.cost)


def _size(row: AnswerRow) -> str:
    if row.n_params is None:
        return MISSING if row.n_params_interval.unbounded else row.n_params_interval.ends(format_count)
    return format_count(row.n_params)


def next_runs_parts(found: NextRuns) -> list[Part]:
    """Nets to train next, in order, with the expected error after each."""
    best, size = found.best.depth_interval.format(".1f", "not known"), _size(found.best)
    lines = [f"Best depth at {size} by this table: {best}; sd of ln depth {found.ln_depth_sd:.3f}."]
    if found.held:
        lines.append(f"Train these nets at {join(found.held, 12)}.")
    heads = ("run", "depth", "width", "N", "FLOPs", "sd after")
    table = TextTable("Runs that narrow it most, in order", [*map(number, heads)])
    for place, row in enumerate(found.runs, start=1):
        net = [str(row.depth), str(row.width), format_count(row.n_params), f"{row.flops:.2g}"]
        table.add(str(place), *net, f"{row.ln_depth_sd:.3f}")
    each = "20 tokens per parameter" if found.tokens is None else f"{format_count(found.tokens)} tokens each"
    sizes = "sizes at even steps of ln N from N/16 to 1.5·N" if len(found.runs) > 1 else "size N"
    cost = f"Together {sum(row.flops for row in found.runs):.2g} FLOPs at {each}; {sizes}."
    after = found.runs[-1].ln_depth_sd
    expected = f"Expected sd of ln depth: {found.ln_depth_sd:.3f} now, {after:.3f} after all, a 95 % interval of "
    expected += f"÷ to × {math.exp(1.96 * after):.2f} about the best depth."
    if found.beyond:
        expected += f" Beyond the sizes of the table simulated heaps reached {REACHED} of the sd that was expected."
    return [Lines(lines), table, Lines([expected, cost], apart=True)]


def held(one: AdjustedColumn) -> str:
    """The held value without the name of its column."""
    return "each net's best" if one.kind == "rate" else one.held.removeprefix(f"{one.name} ").strip()


def _tried(one: AdjustedColumn) -> str:
    if one.low is None or one.high is None:
        return MISSING
    text = format_count if one.high >= LARGE else partial(value_text, one.name)
    return f"{text(one.low)} … {text(one.high)}"
