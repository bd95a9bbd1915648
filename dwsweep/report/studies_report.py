"""Budgets, the loss along a column and arms against each other, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dwsweep.fit.along import value_text
from dwsweep.records import transitions
from dwsweep.records.studies import (
    BEST_DEPTH,
    NOT_COMPARABLE,
    NOT_REACHED_HIGH,
    NOT_REACHED_LOW,
    REACHED,
    TOO_FEW,
    TRANSITION,
    UNCHANGED,
    WORSE,
    Along,
    AlongRow,
    ArmsAtDepth,
    BestAtBudget,
    ComparedRow,
    Comparison,
    DepthAtBudget,
    EqualBudgets,
    EqualShape,
    EqualToBaseline,
)
from dwsweep.report.terminal import Folded, empty_table
from dwsweep.text import format_count, format_duration, format_range
from dwsweep.text import format_range as between

if TYPE_CHECKING:
    from rich.console import RenderableType


MILLI = 1e3  # nats → 10⁻³ nats
SYMBOLS = {"n_params": "N", "tokens": "D", "depth": "L", "width": "d"}
HEADS = {"flops": "FLOPs", "device_seconds": "time"}
DEPTHS_FILE, BUDGETS_FILE = "equal_budget_depths.csv", "equal_budgets.csv"


def render_budgets(found: EqualBudgets) -> list[RenderableType]:
    """The parts of the page, in the order that they are read in."""
    from rich.padding import Padding
    from rich.text import Text

    level = round(100 * found.budgets[0].best.confidence)
    parts: list[RenderableType] = []
    lines = [*shape_matters(found), *trend_lines(found)]
    if any(row.status != TOO_FEW for row in found.best):
        table = Folded(_budget_best(found, level), beside="interval", optional=("tokens/N",), file=BUDGETS_FILE)
        parts += [table, *(Padding(Text(line), (0, 0, 0, 2)) for line in lines)]
    if any(row.status != TOO_FEW for row in found.depths):
        several = len(found.budgets) > 1
        table = Folded(
            _budget_depths(found, level, several),
            keys=2 if several else 1,
            beside="interval",
            optional=("width", "tokens", "tokens/N", "loss"),
            file=DEPTHS_FILE,
        )
        parts += [Text(""), table] if parts else [table]
        parts += [Padding(Text(line), (0, 0, 0, 2)) for line in to_bracket(found)]
    short = [row for row in found.best if row.status == TOO_FEW]
    if short:
        parts += [Text("")] if parts else []
        parts += [Text(f"{tried(row)}; best depth not known: {row.reason}") for row in short]
    parts.append(Text(f"budgets from {found.known_from}"))
    return parts


def _budget_best(found: EqualBudgets, level: int) -> Any:
    table = empty_table(
        f"Best depth at each budget, every depth at its best size ({level} % intervals)",
        f"{HEADS[found.axis]}> depth> interval< N> interval< width> interval< tokens> tokens/N> loss> interval<",
    )
    for row in found.best:
        if row.status != TOO_FEW:
            table.add_row(budget_text(row), *_best_cells(row))
    return table


def _best_cells(row: BestAtBudget) -> list[str]:
    depth = f"{row.depth:.1f}" if row.depth else _word(row.status)
    cells = [depth, between(row.depth_low, row.depth_high, lambda v: f"{v:.1f}")]
    if row.depth is None or row.n_params is None:
        return [*cells, *["–", "", "–", "", "–", "–", "–", ""]]
    return [
        *cells,
        format_count(row.n_params),
        between(row.n_params_low, row.n_params_high, format_count),
        f"{row.width:.0f}",
        between(row.width_low, row.width_high, lambda v: f"{v:.0f}"),
        format_count(row.tokens) if row.tokens else "–",
        f"{row.tokens_per_param:.3g}" if row.tokens_per_param else "–",
        f"{row.loss:.4f}",
        between(row.loss_low, row.loss_high, lambda v: f"{v:.4f}"),
    ]


def _budget_depths(found: EqualBudgets, level: int, several: bool) -> Any:
    unit = "" if found.axis == "device_seconds" else " FLOPs"
    where = "at each budget" if several else f"at {budget_text(found.budgets[0].best)}{unit}"
    table = empty_table(
        f"Best size of each depth {where} ({level} % intervals; above the best depth in 10⁻³ nats)",
        (f"{HEADS[found.axis]}> " if several else "")
        + "depth> N> interval< width> tokens> tokens/N> loss> above> interval<",
    )
    last = None
    for row in found.depths:
        budget = [budget_text(row) if row.budget != last else ""] if several else []
        last = row.budget
        table.add_row(*budget, str(row.depth), *_depth_cells(row))
    return table


def _depth_cells(row: DepthAtBudget) -> list[str]:
    above = ["–", ""]
    if row.above_best is not None and row.above_best_low is not None and row.above_best_high is not None:
        ends = between(MILLI * row.above_best_low, MILLI * row.above_best_high, lambda v: f"{v:.1f}")
        above = [f"{MILLI * row.above_best:.1f}", ends]
    return [
        format_count(row.n_params) if row.n_params else _word(row.status),
        between(row.n_params_low, row.n_params_high, format_count) if row.status != TOO_FEW else "",
        f"{row.width:.0f}" if row.width else "–",
        format_count(row.tokens) if row.tokens else "–",
        f"{row.tokens_per_param:.3g}" if row.tokens_per_param else "–",
        f"{row.loss:.4f}" if row.loss else "–",
        *above,
    ]


def _word(status: str) -> str:
    return {NOT_REACHED_LOW: "not reached", NOT_REACHED_HIGH: "not reached", TOO_FEW: "few sizes"}.get(status, status)


def budget_text(row: BestAtBudget | DepthAtBudget) -> str:
    """``1e18`` FLOPs, or a time."""
    return format_duration(row.budget) if row.axis == "device_seconds" else format_count(row.budget)


def tried(row: BestAtBudget) -> str:
    """The best shape that was trained at a budget."""
    shape = f"{row.tried_depth}×{row.tried_width:g}" if row.tried_width is not None else "none"
    loss = f", loss {row.tried_loss:.4f}" if row.tried_loss is not None else ""
    return f"best shape tried at {budget_text(row)}: {shape}{loss}"


def shape_matters(found: EqualBudgets) -> list[str]:
    """What the worst depth loses, at the smallest and the largest budget; why a best depth was not reached."""
    rows = [row for row in found.best if row.worst_percent is not None and row.status == REACHED]

    def said(row: BestAtBudget) -> str:
        assert row.worst_nats is not None
        ends = between(row.worst_nats_low, row.worst_nats_high, lambda v: f"{v:.2g}")
        return (
            f"{row.worst_depth:g} layers lose {row.worst_percent:.2g} % of the loss ({row.worst_nats:.2g} nats, "
            f"{ends}) at {budget_text(row)}"
        )

    lines = []
    if rows:
        ends = [rows[0]] if len(rows) == 1 else [rows[0], rows[-1]]
        lines.append("depth matters: each at its best size, " + ", ".join(map(said, ends)))
    for row in found.best:
        if row.status not in (REACHED, TOO_FEW):
            lines.append(f"best depth not reached at {budget_text(row)}: {row.reason}; {tried(row)}")
    return lines


def to_bracket(found: EqualBudgets) -> list[str]:
    """What to train where a minimum is not reached."""
    lines = []
    for budget in found.budgets:
        wanted = []
        for status, what in ((NOT_REACHED_LOW, "smaller"), (NOT_REACHED_HIGH, "larger")):
            depths = [str(row.depth) for row in budget.depths if row.status == status]
            if depths:
                wanted.append(f"{what} sizes at L {', '.join(depths)}")
            if budget.best.status == status:
                wanted.append("shallower nets" if status == NOT_REACHED_LOW else "deeper nets")
        if wanted:
            lines.append(f"to reach the minima at {budget_text(budget.best)}: {', '.join(wanted)}")
    return lines


def trend_lines(found: EqualBudgets) -> list[str]:
    """The powers with which the best shape grows, in one line; that three budgets are needed, where there are two."""
    if not found.trends:
        return []
    level = round(100 * found.budgets[0].best.confidence)
    powers = [
        f"{SYMBOLS[trend.quantity]} ∝ C^{trend.exponent:.3f} "
        f"({between(trend.exponent_low, trend.exponent_high, lambda v: f'{v:.3f}')})"
        for trend in found.trends
    ]
    used = max(trend.budgets for trend in found.trends)
    widened = [SYMBOLS[trend.quantity] for trend in found.trends if trend.misfit > 1.0]
    note = f"; no power law passes {_and(widened)}: errors widened" if widened else ""
    return [f"over {used} budgets C ({level} %): {', '.join(powers)}{note}"]


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


EQUAL_SHOWN = 12


def render_along(found: Along) -> list[Any]:
    """Answer, table, shapes that equal the baseline, notes."""
    arms = len(found.arms) > 1
    parts: list[Any] = [Text(f"Loss along {found.column}")]
    parts += [Padding(Text(line), (0, 0, 0, 2)) for line in found.answer]
    parts += [Text(""), Folded(_along_table(found, arms), keys=2 if arms else 1, beside="interval")]
    for arm in found.arms[1:]:
        table = _against(found, arm)
        parts += [Text(""), Folded(table, beside="interval")] if table.rows else []
    for one in found.equal:
        parts += [Text(""), *_along_equal(one, arms)]
    if found.notes:
        parts += [Text(""), *(Padding(Text(f"{note}."), (0, 0, 0, 2)) for note in found.notes)]
    return parts


def _along_table(found: Along, arms: bool) -> Table:
    """One row per value of every group; a line between groups."""
    level = round(100 * found.confidence)
    columns = ("arm< " if arms else "") + f"{found.column}> "
    columns += "" if found.column == "depth" else "L> "
    sized = any(curve.budget is not None for curve in found.curves)
    columns += ("N> " if sized else "") + "shape< loss> above_the_best> interval<"
    table = empty_table(f"{found.unit.capitalize()} at equal size; {level} % intervals, of a group together", columns)
    for curve in found.curves:
        for row in curve.rows:
            cells = [_short(row.arm)] if arms else []
            cells += [value_text(row.value)] + ([] if found.column == "depth" else [str(row.depth)])
            cells += [format_count(curve.budget)] if curve.budget is not None else [""] if sized else []
            cells += [_shape(row), "–" if row.loss is None else f"{row.loss:.4f}"]
            cells += _along_ends(row.above_best, row.above_best_low, row.above_best_high, row.verdict == WORSE)
            table.add_row(*cells, end_section=row is curve.rows[-1])
    return table


def _against(found: Along, arm: str) -> Table:
    """An arm − the first one, at the values that both have."""
    columns = f"{found.column}> " + ("" if found.column == "depth" else "L> ") + f"N> loss> {_short(found.arms[0])}> "
    title = f"Loss of {arm} − that of {found.arms[0]}: below zero {arm} is ahead"
    table = empty_table(title, f"{columns}difference> interval<")
    for curve in found.curves:
        rows = [row for row in curve.rows if row.arm == arm and row.above_base is not None]
        for row in rows:
            low, high = row.above_base_low, row.above_base_high
            shown = low is not None and high is not None and (low > 0.0 or high < 0.0)
            cells = [value_text(row.value)] + ([] if found.column == "depth" else [str(row.depth)])
            cells += ["" if curve.budget is None else format_count(curve.budget)]
            if row.loss is not None and row.above_base is not None:
                cells += [f"{row.loss:.4f}", f"{row.loss - row.above_base:.4f}"]
            table.add_row(*cells, *_along_ends(row.above_base, low, high, shown), end_section=row is rows[-1])
    return table


def _along_ends(value: float | None, low: float | None, high: float | None, shown: bool) -> list[str]:
    """A value with its interval; a star where it is shown not to be zero."""
    if value is None:
        return ["", ""]
    ends = "" if low is None or high is None else format_range(low, high, lambda v: f"{v:+.3f}")
    return [f"{value:+.3f}{'*' if shown else ' '}", ends]


def _shape(row: AlongRow | EqualShape) -> str:
    heads = f" {row.heads:g}×{row.head_size:g}" if row.heads and row.head_size else ""
    return f"{row.depth}×{row.width:g}{heads}"


def _along_equal(one: EqualToBaseline, arms: bool) -> list[Any]:
    level = round(100 * one.confidence)
    table = empty_table(
        f"No worse than {one.baseline} by more than {one.margin:.3f} nats? {level} %, all shapes at once",
        "shape< N> saved> worse> at_most> equal<",
    )
    smaller = [row for row in one.rows if row.saved_percent > 0.0]
    for row in smaller[:EQUAL_SHOWN]:
        table.add_row(
            _shape(row),
            format_count(row.n_params),
            f"{row.saved_percent:.0f} %",
            "–" if row.worse is None else f"{row.worse:+.3f}",
            "–" if row.worse_high is None else f"{row.worse_high:+.3f}",
            "yes" if row.equal else "not shown",
        )
    sentence = Padding(Text((f"{one.arm}: " if arms else "") + one.sentence), (0, 0, 0, 2))
    if not smaller:
        return [sentence]
    left = len(smaller) - EQUAL_SHOWN
    more = [Text(f"{left} more in along_equal.csv")] if left > 0 else []
    return [sentence, Folded(table), *more]


def _short(name: str) -> str:
    return name.replace(" ", "_") if len(name) <= 16 else f"{name[:15]}…".replace(" ", "_")


MILLI = 1e3
STATUSES = {status.replace("_", " ") for status in transitions.STATUSES}


def render_comparison(found: Comparison, letter: str, axis: str) -> RenderableType:
    """letter: of the arm, the base's is A. axis: how a value of the axis is called."""
    parts: list[Any] = [
        Text(f"Does it change the answer? {letter}, {found.arm}, against A, {found.base}"),
        *(Padding(Text(line), (0, 0, 0, 2)) for line in (*found.answer, paired(found))),
    ]
    level = round(100 * found.rows[0].confidence) if found.rows else 95
    for quantity, title, key, text in (
        (BEST_DEPTH, f"Best depth at each size, {level} % intervals", axis, lambda v: f"{v:.1f}"),
        (TRANSITION, f"Transitions, {level} % intervals", "pair", format_count),
    ):
        if rows := found.of(quantity):
            parts += [Text(""), Folded(_ratios(rows, letter, title, key, text), beside="interval")]
    if found.depths:
        parts += [Text(""), Folded(_losses(found, letter))]
    if notes := [*found.notes, each_by_itself(found)]:
        parts += [Text(""), *(Padding(Text(line), (0, 0, 0, 2)) for line in notes if line)]
    return Group(*parts)


def paired(found: Comparison) -> str:
    """What the arms share."""
    return f"paired by {found.pairing}" if found.paired else found.pairing


def each_by_itself(found: Comparison) -> str:
    """What several intervals mean together."""
    compared = sum(row.verdict != NOT_COMPARABLE for row in found.rows)
    if compared < 2:
        return ""
    level = round(100 * found.rows[0].confidence)
    return (
        f"Each interval holds by itself: of {compared} comparisons whose truth is no change, {100 - level} % are "
        "expected to show one."
    )


def _ratios(rows: Sequence[ComparedRow], letter: str, title: str, key: str, text: Callable[[float], str]) -> Table:
    table = empty_table(title, f"{key}> A< {letter}< {letter}/A> interval< change<")
    for row in rows:
        name = f"{row.depth}→{row.deep}" if row.deep else format_count(row.n_params or 0.0)
        open_ended = row.change_low is None and row.change_high is None
        table.add_row(
            name,
            estimate(row.base, row.base_low, row.base_high, row.base_status, text),
            estimate(row.other, row.other_low, row.other_high, row.other_status, text),
            "–" if row.change is None else f"{row.change:.2f}",
            "" if open_ended else format_range(row.change_low, row.change_high, lambda v: f"{v:.2f}"),
            {UNCHANGED: "not shown", NOT_COMPARABLE: "–"}.get(row.verdict, row.verdict),
        )
    return table


def estimate(
    value: float | None, low: float | None, high: float | None, status: str, text: Callable[[float], str]
) -> str:
    """With its interval, or the bound that there is."""
    interval = "" if low is None and high is None else format_range(low, high, text)
    if value is None:
        known = status.replace("_", " ")
        return " ".join(filter(None, ("" if interval and known not in STATUSES else known, interval)))
    return f"{text(value)} ({interval or 'unbounded'})"


def _losses(found: Comparison, letter: str) -> Table:
    table = empty_table(
        f"Loss of {letter} − A, 10⁻³ {found.unit}: below zero {letter} is ahead",
        "depth> at_the_smallest_N> at_the_largest_N> ahead<",
    )
    for one in found.depths:
        table.add_row(str(one.curve.depth), _loss_end(one, 0), _loss_end(one, -1), ahead(one, letter))
    return table


def _loss_end(one: ArmsAtDepth, k: int) -> str:
    g, low, high = (values[k] for values in (one.curve.g, one.curve.low, one.curve.high))
    thousandths = lambda v: f"{MILLI * v:+.1f}"  # noqa: E731
    return estimate(g, low, high, "", thousandths)


def ahead(one: ArmsAtDepth, letter: str) -> str:
    """Which arm is ahead where, by the simultaneous band."""
    x = one.curve.x
    said = []
    for part in one.partings:
        who = letter if part.ahead == "other" else "A"
        first, last = part.start == x[0], part.end == x[-1]
        where = "everywhere" if first and last else f"from {format_count(part.start)}" if last else ""
        where = where or (f"to {format_count(part.end)}" if first else "")
        said.append(f"{who} {where or f'{format_count(part.start)} … {format_count(part.end)}'}")
    return ", ".join(said) or "neither"
