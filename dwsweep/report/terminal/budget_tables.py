"""Runs at equal compute for people: the best shape at each budget, the best size of each depth, the powers between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dwsweep.records.studies import (
    NOT_REACHED_HIGH,
    NOT_REACHED_LOW,
    REACHED,
    TOO_FEW,
    BestAtBudget,
    DepthAtBudget,
    EqualBudgets,
)
from dwsweep.report.terminal.folding import Folded, empty_table
from dwsweep.text import format_count, format_duration
from dwsweep.text import format_range as between

if TYPE_CHECKING:
    from rich.console import RenderableType


MILLI = 1e3  # nats → 10⁻³ nats
SYMBOLS = {"n_params": "N", "tokens": "D", "depth": "L", "width": "d"}
HEADS = {"flops": "FLOPs", "device_seconds": "time"}
DEPTHS_FILE, BUDGETS_FILE = "equal_budget_depths.csv", "equal_budgets.csv"


def render(found: EqualBudgets) -> list[RenderableType]:
    """The parts of the page, in the order that they are read in."""
    from rich.padding import Padding
    from rich.text import Text

    level = round(100 * found.budgets[0].best.confidence)
    parts: list[RenderableType] = []
    lines = [*shape_matters(found), *trend_lines(found)]
    if any(row.status != TOO_FEW for row in found.best):
        table = Folded(_best(found, level), beside="interval", optional=("tokens/N",), file=BUDGETS_FILE)
        parts += [table, *(Padding(Text(line), (0, 0, 0, 2)) for line in lines)]
    if any(row.status != TOO_FEW for row in found.depths):
        several = len(found.budgets) > 1
        table = Folded(
            _depths(found, level, several),
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


def _best(found: EqualBudgets, level: int) -> Any:
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


def _depths(found: EqualBudgets, level: int, several: bool) -> Any:
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
