"""Report of ``dwsweep guide``: the verdict first, then the tables, then the assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from rich.console import Group

from dwsweep import published_law
from dwsweep.guide.answers import (
    BALANCED,
    CONSTRAINTS,
    PRICES,
    Answer,
    Assumptions,
    BestDepth,
    BudgetAnswer,
    Candidate,
    ShapeAnswer,
    Trust,
)
from dwsweep.guide.costs import is_near
from dwsweep.guide.shapes import BUDGET_TOLERANCE, FREE_GRID, LAYER_SECONDS
from dwsweep.guide.sources import PUBLIC, SPEAKS_FOR
from dwsweep.interval import Interval
from dwsweep.records.transitions import GuidelineRow, layers
from dwsweep.report.console import render as rendered
from dwsweep.report.document import (
    INTERVAL,
    MISSING,
    Column,
    Heading,
    Lines,
    Part,
    Said,
    Table,
    estimate,
    label,
    number,
    shown,
)
from dwsweep.text import SHORT, format_count, format_factor, format_hours

MARK = "►"
MEASURED_LAYER = "transformers took 0.67 ms"  # at batch 1; 24 public shapes: 1.3 ms + 0.67 ms/layer + 0.30 ms/1e9
NEAR_BUDGET = f"{100 * BUDGET_TOLERANCE:.0f} %"


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
        parts += [sizes_table("", answer.overview, trust), _soft(OVERVIEW_LEGEND)]
    if answer.notes:
        parts.append(Lines([f"{note}." for note in answer.notes], indent=2, apart=True))
    listed = any(row.by_source for row in answer.budgets)
    for source in answer.sources:
        own = tuple(takewhile(lambda note: note != SPEAKS_FOR, source.notes))  # notes on a fit or a law
        if notes := source.notes if listed else own:
            parts += [Heading(source.name, apart=True), _soft(*notes)]
    return parts


def _soft(*lines: str, apart: bool = False) -> Lines:
    """Explanations, indented by two columns."""
    return Lines(lines, soft=True, indent=2, apart=apart)


def _said(*parts: Said) -> Lines:
    return Lines([parts], indent=2)


def _estimate(found: Interval, decimals: int | None = None) -> str:
    """Text of a value with its interval: ``48.5 (47.4 … 49.6)``. decimals: known ones; None: one."""
    digits = 1 if decimals is None else decimals
    return found.format(lambda value: f"{round(value, digits):,.{max(digits, 0) if value < 99.95 else 0}f}", MISSING)


WASTED = f"Percent of compute wasted at equal {', '.join(at.removeprefix('equal ') for at, _ in PRICES.values())}"


def _table(columns: Sequence[Column], title: str = "") -> Table:
    return Table(title, columns, ruled=False)


def _begins(unit: str) -> str:
    """Short form of a unit of losses, at the beginning of a sentence."""
    return SHORT[unit][:1].upper() + SHORT[unit][1:]


def _trust(trust: Trust) -> Lines:
    """Line on trust: level, from regret and distance, and reasons."""
    reasons = "; ".join(trust.reasons)
    return _said((f"Trust: {trust.level}. ", "bold"), f"{reasons[:1].upper()}{reasons[1:]}.")


def _on_device(assumptions: Assumptions) -> str:
    return f"one {assumptions.training_device}, rate {assumptions.training_rate}"


def _budget(row: BudgetAnswer, assumptions: Assumptions) -> list[Part]:
    best = row.optimum
    parts: list[Part] = [Heading(best.name, " non-embedding parameters")]
    if best.refused:
        return [*parts, _soft(best.reach)]
    if best.basis == "range":
        parts.append(_range(row))
    parts += [_build(row), *_free(row), *_risk(row), _trust(best.trust)]
    if row.by_source:
        parts += _built(row)
    parts.append(_candidates(row, assumptions))
    if row.by_source:
        parts += _sources(row)
    return [*parts, _soft(_legend(row, assumptions), apart=True)]


def _legend(row: BudgetAnswer, assumptions: Assumptions) -> str:
    """Legend of the table of shapes."""
    text = f"{MARK} recommended; off: from the budget. "
    if row.by_source:
        text += f"Within {NEAR_BUDGET} of the budget a shape pays for a quarter of the difference. "
    text += f"Times: {_on_device(assumptions)}; latency: {_layer_time(assumptions)}."
    if assumptions.tokens:
        devices = "one device" if assumptions.devices == 1 else f"{assumptions.devices} devices"
        text += f" hours: of training on {format_count(assumptions.tokens)} tokens, on {devices}."
    if row.loss_tag and row.loss_tag.startswith("ASSUMED"):
        text += f" {_begins(row.unit)} {row.loss_tag}."
    return text + ("" if row.by_source else " --full: sources, built models.")


def _build(row: BudgetAnswer) -> Lines:
    """First line: the shape to build, and the best one at equal size alone."""
    shape = row.recommended
    if shape is None:
        why = f"no shape of the depths compared is between half the budget and {NEAR_BUDGET} above it."
        if any(candidate.within_budget for candidate in row.candidates):
            why = "the source gives no prices for shapes of about this budget."
        return _said(("Nothing is recommended: ", "bold"), why)
    heads = f"{shape.heads} head{'s' if shape.heads > 1 else ''} of {shape.head_size}"
    if shape.kv_heads != shape.heads:
        heads += f", {shape.kv_heads} for keys and values"
    count = format_count(shape.n_params)
    built = f"{'A default:' if row.optimum.basis == 'range' else 'Build'} {shape.label}"
    projected = ", a projection" if row.optimum.basis == "projection" else ""
    return _said((built, "bold"), f" ({heads}; {count}{_off(shape)}){projected}: {_why(row, shape)}")


def _why(row: BudgetAnswer, shape: Candidate) -> str:
    """Reason for the recommended shape, as a sentence with the best one at equal size alone."""
    at_size = PRICES["size"][0]
    if row.at != BALANCED:
        balanced = row.best[BALANCED]
        more = f"; balanced over size, FLOPs and time {balanced.label}" if balanced and balanced != shape else ""
        return f"the best at {PRICES[row.at][0]}{more}."
    worst, alone = shape.cost(BALANCED), row.best["size"]
    assert worst is not None
    text = f"wastes at most {worst.less_compute:.1f} % of compute at {at_size}, FLOPs and training time, the least"
    if alone is None or alone == shape or alone.size is None or shape.size is None:
        return f"{text}, and is the best at {at_size} alone."
    return (
        f"{text}; at {at_size} alone {alone.label}{_off(alone)} is best ({alone.size.less_compute:.1f} against "
        f"{shape.size.less_compute:.1f} %)."
    )


def _range(row: BudgetAnswer) -> Lines:
    """Lines for a size without compared shapes."""
    low, high = _little(row)
    last = MISSING if high is None else f"{high:.0f}"
    return _said(
        (f"No comparison of shapes exists at {format_count(row.optimum.n_params)}.", "bold"),
        (f" {low:.0f} to {last} layers waste at most {_allowed(row):g} % of compute in expectation", "bold"),
        ": let the hardware choose. --sources lists the law, built models and extrapolated recipes.",
    )


def _allowed(row: BudgetAnswer) -> float:
    """Percent of compute that the named range of depths may waste."""
    return row.near_best[1].less_compute


def _little(row: BudgetAnswer) -> tuple[int, int | None]:
    """Range of whole numbers of layers that waste little, narrowed to depths whose own table row agrees."""
    near = row.near_best[1]
    low = 1 if near.depth_low is None else max(1, math.ceil(near.depth_low - FREE_GRID))
    high = None if near.depth_high is None else max(low, math.floor(near.depth_high + FREE_GRID))
    costs = {c.depth: c.size.less_compute for c in row.candidates if c.within_budget and c.size}
    while low in costs and costs[low] > near.less_compute and (high is None or low < high):
        low += 1
    while high is not None and high in costs and costs[high] > near.less_compute and high > low:
        high -= 1
    return low, high


def _off(shape: Candidate) -> str:
    """Distance of a shape from the budget, if no width comes near it."""
    return "" if is_near(shape) else f", {shape.mismatch:+.1%} off"


def _risk(row: BudgetAnswer) -> list[Part]:
    """Line on the regret of the recommended shape: of its depth, or of the shape under a constraint."""
    risk = row.risks.get(row.at)
    if risk is None:
        return []
    expected, worst = risk.expected.less_compute, risk.worst.less_compute
    of_size = row.at in ("size", BALANCED)
    at = "" if of_size else f" at {PRICES[row.at][0]}"
    share = (f"{expected:.1f} % of compute in expectation", "bold")
    bound = f", at most {worst:.1f} % (95 %)."
    if expected > worst:  # a mean over draws, of which a few lose without bound at untrained depths
        bound = f"; at most {worst:.1f} % in 95 % of the draws of the fit, and far more in the others."
    against = f"Regret against the best {'depth' if not at else 'shape'}{at}, which nobody knows: "
    return [_said(against, share, bound)]


def _sources(row: BudgetAnswer) -> list[Part]:
    columns = [label("source"), number("best depth"), INTERVAL, label("words"), number("outside"), label("kind")]
    table = _table([*columns, label("sure")])
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
    # the forms of a law are its own, and not those of all sources
    if not row.optimum.source.startswith(published_law.SHORT):
        legend += _by_form(row.optimum)
    return [Heading("Where public data disagree"), table, _soft(legend)]


def _free(row: BudgetAnswer) -> list[Part]:
    """Lines on the best depth and the depths that waste little."""
    low, high = _little(row)
    parts: list[Said] = [f"{_best_depth(row.optimum)}. "]
    if row.optimum.basis != "range":
        depths = f"Depths {low} to {'all depths of the data' if high is None else high} waste"
        parts += [(f"Only a depth of {low} wastes" if low == high else depths, "bold")]
        parts += [f" at most {_allowed(row):g} % of compute at equal size. "]
    return [_said(*parts)]


def _built(row: BudgetAnswer) -> list[Part]:
    """Line on built models of about this size, with the cost of their depths."""
    rows = [f"{one.model} {one.label}, {one.cost.less_compute:.1f} %" for one in row.built if one.cost is not None]
    if not rows:
        return []
    return [
        _said(
            ("Built near this size", "bold"),
            f", with the compute that their depths waste at equal size: {'; '.join(rows)}.",
        )
    ]


def _candidates(row: BudgetAnswer, assumptions: Assumptions) -> Table:
    numbers = (*(heading for _, heading in PRICES.values()), f"+{SHORT[row.unit]}", "heads", "N", "off")
    table = _table([label("  L × d_x"), *map(number, (*numbers, *(["hours"] if assumptions.tokens else [])))], WASTED)
    chosen = row.recommended
    for shape in row.candidates:
        marked = chosen is not None and (shape.depth, shape.width) == (chosen.depth, chosen.width)
        heads = f"{shape.heads}×{shape.head_size}" + (f"/{shape.kv_heads}" if shape.kv_heads != shape.heads else "")
        costs = (shape.cost(constraint) for constraint in CONSTRAINTS)
        table.add(
            f"{MARK if marked else ' '} {shape.label}",
            *(MISSING if cost is None else f"{cost.less_compute:.1f}" for cost in costs),
            MISSING if shape.size is None else f"{shape.size.nats:.4f}",
            heads,
            format_count(shape.n_params),
            f"{shape.mismatch:+.1%}",
            *([_hours(shape, assumptions)] if assumptions.tokens else []),
            strong=marked,
        )
    return table


def _hours(shape: Candidate, assumptions: Assumptions) -> str:
    seconds = shape.training_seconds_per_token * (assumptions.tokens or 0.0) / assumptions.devices
    return format_hours(seconds / 3600)


def _best_depth(best: BestDepth) -> str:
    """Best depth and width with their intervals."""
    text = "Median over possible recipes: depth" if best.basis == "range" else "Best depth"
    text += f" {_estimate(best.depth_interval, best.depth_decimals)}"
    # the list of a fit has the best depths by its losses alone
    together = f", by {best.source} together" if best.source.startswith("your losses and ") else ""
    return f"{text}, width {_estimate(best.width_interval, 0)}{together}"


def _by_form(best: BestDepth) -> str:
    """Sentence on the best depth by each form; empty where the forms agree."""
    named = ", ".join(f"{form} {depth:.1f}" for form, depth in best.rivals.items())
    return f" Best depth by form: {named}." if named else ""


def _layer_time(assumptions: Assumptions) -> str:
    """Time of a layer in decoding, and its origin."""
    if assumptions.latency:
        return assumptions.latency
    seconds = assumptions.decode_seconds_per_layer
    text = f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"
    if seconds != LAYER_SECONDS:
        return f"{text} per layer (--layer-time)"
    return f"{text} per layer (ASSUMED; {MEASURED_LAYER}: --layer-time)"


def _verdict(row: ShapeAnswer, assumptions: Assumptions) -> list[Part]:
    best = row.optimum
    size = f"{row.depth} × {row.width}, {format_count(best.n_params)}"
    if row.verdict == "refused":
        return [Heading(size, f": no verdict; {best.reach}")]
    lines: list[Part] = [Heading(f"{size}: {row.verdict}", f" ({best.source})")]
    for constraint in CONSTRAINTS:
        cost, better = row.costs[constraint], row.best[constraint]
        if cost is None:
            lines.append(_said(f"At {PRICES[constraint][0]}: not known, outside the depths of the source."))
            continue
        interval = cost.nats_interval
        text = f" ({cost.nats:.4f} {SHORT[row.unit]}" + (f", {interval.ends('.4f')})" if interval.bounded else ")")
        if better is None or (better.depth, better.width) == (row.depth, row.width):
            text += "; no shape of about this size that can be built costs less"
        else:
            text += f"; best {better.label} ({format_count(better.n_params)})"
        on = f" ({_on_device(assumptions)})" if constraint == "time" else ""
        less = (f"{cost.less_compute:.1f} % of compute", "bold")
        lines.append(_said(f"At {PRICES[constraint][0]}{on} it wastes ", less, text))
    lines.append(_trust(best.trust))
    lines += [_soft(f"{row.depth_ratio:.2f} times as deep as the best. {_best_depth(best)}.{_by_form(best)}")]
    if row.verdict == "undecided":
        beyond = "deep" if (row.depth_ratio or 1.0) > 1 else "shallow"
        lines.append(_soft(f"Too {beyond} by the likeliest best depth, but inside its interval."))
    return [*lines, _soft(f"{_begins(row.unit)} {row.loss_tag}.")]


def sizes_table(
    title: str, rows: Sequence[BestDepth | GuidelineRow], more: Mapping[str, Callable[[Any], str]]
) -> Table:
    """Table of best depths and widths at sizes, of an overview or a guideline. more: further heading → cell."""
    heads = [label("model"), *map(number, ("N", "trained", "depth")), INTERVAL, number("width"), label("forms")]
    table = Table(title, [*heads, *map(number, ("outside", *more))])
    of_public = [_source(row).startswith(PUBLIC) for row in rows]
    for row, public in zip(rows, of_public, strict=True):
        forms = Interval(None, row.rival_depth_min, row.rival_depth_max)
        known = "inside"
        if public and (isinstance(row, GuidelineRow) or not all(of_public)):  # inside other sizes than the reader's own
            known = "public"
        table.add(
            row.name,
            format_count(row.n_params),
            net(row.trained_depth, row.trained_width),
            *_best(row),
            shown(None if _is_range(row) else row.width, ",.0f"),
            MISSING if forms.unbounded else forms.ends(".0f"),
            known if row.extrapolation_factor <= 1 else f"{format_factor(row.extrapolation_factor)}×",
            *(cell(row) for cell in more.values()),
        )
    return table


def net(depth: int | None, width: int | None) -> str:
    """Cell of a shape."""
    return MISSING if depth is None or width is None else f"{depth}×{width}"


def _source(row: BestDepth | GuidelineRow) -> str:
    return row.source if isinstance(row, BestDepth) else row.law


def _is_range(row: BestDepth | GuidelineRow) -> bool:
    """True if a size has a range of depths and no known best depth."""
    return row.basis == "range" if isinstance(row, BestDepth) else row.depth is None and row.depth_interval.bounded


def _best(row: BestDepth | GuidelineRow) -> list[str]:
    """Cells of the best depth and its interval; only a range without a known best depth."""
    if _is_range(row):
        return [MISSING, row.depth_interval.ends(".0f")]
    refused = row.refused if isinstance(row, BestDepth) else "refused" in row.law
    return estimate(row.depth_interval, layers(row.depth_decimals), "refused" if refused else MISSING)


OVERVIEW_LEGEND = (
    "N: non-embedding parameters, 12·L·d_x² of the trained shape. forms: best depths of all forms that cannot be "
    "told apart and are more than a tenth apart. outside: factor by which N lies outside the compared sizes; "
    "beyond 10 times no best depth can be named, and `--params N` gives a range. `--params N` gives shapes to build, "
    "`--shape LxD` a verdict."
)
