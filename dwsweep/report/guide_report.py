"""Report of ``dwsweep guide``: the verdict first, then the tables, then the assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from rich.console import Group

from dwsweep.guide.advice import LITTLE, Answer
from dwsweep.guide.answers import BALANCED, CONSTRAINTS, PRICES, BestDepth, BudgetAnswer, Candidate, ShapeAnswer, Trust
from dwsweep.guide.costs import is_near
from dwsweep.guide.shapes import LAYER_SECONDS, Options
from dwsweep.guide.sources import PUBLIC, SPEAKS_FOR
from dwsweep.interval import Interval, layers
from dwsweep.records.transitions import GuidelineRow
from dwsweep.report.console import render as rendered
from dwsweep.report.document import (
    INTERVAL,
    MISSING,
    Heading,
    Lines,
    Part,
    Said,
    TextTable,
    estimate,
    label,
    number,
    shown,
    soft,
)
from dwsweep.text import SHORT, format_count, format_factor, format_hours

MARK = "►"
MEASURED_LAYER = "transformers took 0.67 ms"  # at batch 1; 24 public shapes: 1.3 ms + 0.67 ms/layer + 0.30 ms/1e9


def render(answer: Answer) -> Group:
    """Output of ``dwsweep guide`` for a terminal."""
    return rendered(document(answer))


def document(answer: Answer) -> list[Part]:
    """Document of :func:`dwsweep.guide.answer`: sentences and tables; with all notes if public sources are listed."""
    parts: list[Part] = [Lines([[(f"{answer.instead}.", "bold")]])] if answer.instead else []
    parts += [Lines([f"{answer.afforded}."])] if answer.afforded else []
    for row in answer.budgets:
        parts += _budget(row, answer.assumptions)
    for verdict in answer.verdicts:
        parts += _verdict(verdict, answer.assumptions)
    if answer.overview:
        trust = {"trust": lambda row: row.trust.level}
        parts += [sizes_table("", answer.overview, trust), soft(OVERVIEW_LEGEND)]
    parts.append(Lines([f"{note}." for note in answer.notes], indent=2, apart=True))
    listed = any(row.by_source for row in answer.budgets)
    own = tuple(takewhile(lambda note: note != SPEAKS_FOR, answer.source_notes))  # notes on a fit or a law
    if notes := answer.source_notes if listed else own:
        parts += [Heading(answer.source, apart=True), soft(*notes)]
    return parts


def _said(*parts: Said) -> Lines:
    return Lines([parts], indent=2)


WASTED = f"Percent of compute wasted at equal {', '.join(at.removeprefix('equal ') for at, _ in PRICES.values())}"


def _trust(trust: Trust) -> Lines:
    """Line on trust: level, from regret and distance, and reasons."""
    reasons = "; ".join(trust.reasons)
    return _said((f"Trust: {trust.level}. ", "bold"), f"{reasons[:1].upper()}{reasons[1:]}.")


def _budget(row: BudgetAnswer, options: Options) -> list[Part]:
    best = row.optimum
    parts: list[Part] = [Heading(best.name, " non-embedding parameters")]
    waste = _little(row)
    if best.basis == "range":
        said = f"No comparison of shapes exists at {format_count(best.n_params)}. {waste} in expectation"
        parts.append(_said((said, "bold"), ": let the hardware choose."))
    parts.append(_build(row))
    free = "" if best.basis == "range" else f"{waste} at equal size."
    parts += [_said(f"{_best_depth(best)}. ", (free, "bold")), *_risk(row), _trust(best.trust)]
    if row.by_source and row.built:
        rows = "; ".join(f"{one.model} {one.depth} × {one.width}, {one.cost.less_compute:.1f} %" for one in row.built)
        said = f", with the compute that their depths waste at equal size: {rows}."
        parts.append(_said(("Built near this size", "bold"), said))
    parts.append(_shapes(row.candidates, row.recommended, row.unit, options))
    if row.by_source:
        parts += _sources(row)
    text = _legend(options) + ("" if row.by_source else " --full: sources, built models.")
    if row.loss_tag.startswith("ASSUMED"):
        text += f" {SHORT[row.unit].capitalize()} {row.loss_tag}."
    return [*parts, soft(text, apart=True)]


def _legend(options: Options) -> str:
    """Legend of a table of shapes."""
    text = f"{MARK} recommended, or judged; off: from the budget. Times: {options.training_rate}; latency: "
    if options.latency:
        text += f"{options.latency.said}."
    else:
        seconds = options.layer_seconds
        text += f"{seconds * 1e6:.3g} µs per layer" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms per layer"
        text += f" (ASSUMED; {MEASURED_LAYER}: --layer-time)." if seconds == LAYER_SECONDS else " (--layer-time)."
    if options.tokens:
        text += f" hours: of training on {format_count(options.tokens)} tokens, on {options.device}."
    return text


def _build(row: BudgetAnswer) -> Lines:
    """First line: the shape to build, and the best one at equal size alone."""
    shape = row.recommended
    if shape is None:
        why = "no shape of the depths compared is near this budget."
        return _said(("Nothing is recommended: ", "bold"), why)
    heads = f"{shape.heads} head{'s' if shape.heads > 1 else ''} of {shape.head_size}"
    if shape.kv_heads != shape.heads:
        heads += f", {shape.kv_heads} for keys and values"
    off = "" if is_near(shape) else f", {shape.mismatch:+.1%} off"  # no width comes near the budget
    built = f"{'A default:' if row.optimum.basis == 'range' else 'Build'} {shape.label}"
    projected = ", a projection" if row.optimum.basis == "projection" else ""
    return _said((built, "bold"), f" ({heads}; {format_count(shape.n_params)}{off}){projected}: {_why(row, shape)}")


def _why(row: BudgetAnswer, shape: Candidate) -> str:
    """Reason for the recommended shape, as a sentence with the best one at equal size alone."""
    at_size = PRICES["size"][0]
    if row.at != BALANCED:
        balanced = row.best[BALANCED]
        more = f"; balanced over size, FLOPs and time {balanced.label}" if balanced and balanced != shape else ""
        return f"the best at {PRICES[row.at][0]}{more}."
    worst, alone = shape.cost(BALANCED), row.best["size"]
    assert worst and alone
    text = f"at most {worst.less_compute:.1f} % of compute behind the best choice at {at_size}, FLOPs and training time"
    if alone == shape:
        return f"{text}, the least of all, and the best at {at_size} alone."
    costs = f"{alone.size.less_compute:.1f} against {shape.size.less_compute:.1f} %"
    return f"{text}, the least of all; at {at_size} alone {alone.label} is best ({costs})."


def _little(row: BudgetAnswer) -> str:
    """Whole numbers of layers that waste little, as a sentence."""
    low, high, share = row.near_best.depth_low or 1, row.near_best.depth_high, f"{100.0 * LITTLE:g} % of compute"
    if low == high:
        return f"{low} layer{'s waste' if low > 1 else ' wastes'} at most {share}"
    return f"{f'{low} or more' if high is None else f'{low} to {high}'} layers waste at most {share}"


def _risk(row: BudgetAnswer) -> list[Part]:
    """Line on the regret of the recommended shape: of its depth, or of the shape under a constraint."""
    if (risk := row.risk) is None:
        return []
    against = "depth" if row.at in ("size", BALANCED) else f"shape at {PRICES[row.at][0]}"
    share = (f"{risk.expected.less_compute:.1f} % of compute in expectation", "bold")
    bound = f", at most {risk.worst.less_compute:.1f} % (95 %)."
    return [_said(f"Regret against the best {against}, which nobody knows: ", share, bound)]


def _sources(row: BudgetAnswer) -> list[Part]:
    columns = [label("source"), number("best depth"), INTERVAL, label("words"), number("outside"), label("kind")]
    table = TextTable("", [*columns, label("sure")], ruled=False)
    for one in row.by_source:
        depth = estimate(one.depth_interval, ".1f")
        outside = f"{format_factor(one.outside)}×" if one.outside > 1 else "inside"
        table.add(f"  {one.name}", *depth, one.words, outside, one.kind, one.sure)
    legend = (
        f"Best depth of each source's own recipe at {format_count(row.optimum.n_params)}; for built models, their "
        "median depth. words: own figures, or extrapolated: up to 3 times outside the source's sizes by these, farther "
        "by all sources with this source's offset. sure: P read in the original, S quoted elsewhere, C computed from "
        "the original's figures."
    )
    return [Heading("Where public data disagree"), table, soft(legend + _by_form(row.optimum))]


def _shapes(shapes: Iterable[Candidate], chosen: Candidate | None, unit: str, options: Options) -> TextTable:
    """Table of shapes with their costs; the ``chosen`` one is marked."""
    numbers = (*(heading for _, heading in PRICES.values()), f"+{SHORT[unit]}", "heads", "N", "off", "hours")
    table = TextTable(WASTED, [label("  L × d_x"), *map(number, numbers)], ruled=False)
    for shape in shapes:
        marked = chosen is not None and shape.label == chosen.label
        heads = f"{shape.heads}×{shape.head_size}" + (f"/{shape.kv_heads}" if shape.kv_heads != shape.heads else "")
        costs = (shape.cost(constraint) for constraint in CONSTRAINTS)
        seconds = shape.training_seconds_per_token * (options.tokens or 0.0) / options.devices
        table.add(
            f"{MARK if marked else ' '} {shape.label}",
            *(MISSING if cost is None else f"{cost.less_compute:.1f}" for cost in costs),
            f"{shape.size.nats:.4f}",
            heads,
            format_count(shape.n_params),
            f"{shape.mismatch:+.1%}",
            format_hours(seconds / 3600) if options.tokens else "",
            strong=marked,
        )
    return table


def _best_depth(best: BestDepth) -> str:
    """Best depth and width with their intervals."""
    text = "Median over possible recipes: depth" if best.basis == "range" else "Best depth"
    text += f" {best.depth_interval.format(layers, MISSING)}"
    # the list of a fit has the best depths by its losses alone
    together = f", by {best.source} together" if best.source.startswith("your losses and ") else ""
    return f"{text}, width {best.width_interval.format(',.0f', MISSING)}{together}"


def _by_form(best: BestDepth) -> str:
    """Sentence on the best depth by each form."""
    return f" Best depth by form: {', '.join(f'{form} {depth:.1f}' for form, depth in best.rivals.items())}."


def _verdict(row: ShapeAnswer, options: Options) -> list[Part]:
    best, mine = row.optimum, row.judged
    size = f"{row.depth} × {row.width}, {format_count(best.n_params)}"
    others = {one.label: one for one in (*row.best.values(), mine) if one}
    shapes = _shapes(sorted(others.values(), key=lambda one: one.depth), mine, row.unit, options)
    said = (
        f"{row.depth_ratio:.2f} times as deep as the best. {_best_depth(best)}.{_by_form(best)} Loss above the best "
        f"depth: {mine.size.nats_interval.format('.4f')} {SHORT[row.unit]}, {row.loss_tag}."
    )
    heading = Heading(f"{size}: {row.verdict}", f" ({best.source})")
    return [heading, _trust(best.trust), soft(said), shapes, soft(_legend(options), apart=True)]


def sizes_table(
    title: str, rows: Sequence[BestDepth | GuidelineRow], more: Mapping[str, Callable[[Any], str]]
) -> TextTable:
    """Table of best depths and widths at sizes, of an overview or a guideline. more: further heading → cell."""
    heads = [label("model"), *map(number, ("N", "trained", "depth")), INTERVAL, number("width"), label("forms")]
    table = TextTable(title, [*heads, *map(number, ("outside", *more))])
    for row in rows:
        source = row.source if isinstance(row, BestDepth) else row.law
        forms, depth = Interval(None, row.rival_depth_min, row.rival_depth_max), row.depth_interval
        best = estimate(depth, layers, MISSING)
        if depth.value is None and depth.low and depth.high:
            best[1] = depth.ends(".0f")
        known = "public" if source.startswith(PUBLIC) else "inside"  # inside other sizes than the reader's own
        table.add(
            row.name,
            format_count(row.n_params),
            net(row.trained_depth, row.trained_width),
            *best,
            shown(row.width, ",.0f"),
            MISSING if forms.unbounded else forms.ends(".0f"),
            known if row.extrapolation_factor <= 1 else f"{format_factor(row.extrapolation_factor)}×",
            *(cell(row) for cell in more.values()),
        )
    return table


def net(depth: int | None, width: int | None) -> str:
    """Cell of a shape."""
    return MISSING if depth is None or width is None else f"{depth}×{width}"


OVERVIEW_LEGEND = (
    "N: non-embedding parameters, 12·L·d_x² of the trained shape. forms: best depths of all forms that cannot be "
    "told apart. outside: factor by which N lies outside the compared sizes; "
    "beyond 10 times no best depth can be named; the interval then holds the depths that waste at most 5 % of compute. "
    "`--params N` gives shapes to build, `--shape LxD` a verdict."
)
