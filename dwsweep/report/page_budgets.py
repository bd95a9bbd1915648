"""Runs at equal compute, in sentences and in a table of the page."""

from __future__ import annotations

from dwsweep.records.studies import REACHED, TOO_FEW, BestAtBudget, EqualBudgets
from dwsweep.report.figures.style import plain
from dwsweep.report.html import table, without_empty
from dwsweep.report.page_tables import interval, number, short, show, significant
from dwsweep.report.page_words import interval as in_words
from dwsweep.text import format_count

UNITS = {"flops": "FLOPs", "device_seconds": "device-seconds"}
NAMES = {
    "n_params": "The best N",
    "tokens": "The best number of tokens",
    "depth": "The best depth",
    "width": "The best width",
}


def best_shapes(found: EqualBudgets) -> list[str]:
    """The best shape at each budget, and the powers with which it grows."""
    lines = [_best(row) for row in found.best]
    for trend in found.trends:
        ends = in_words(trend.exponent_low, trend.exponent_high, lambda v: f"{v:.3f}")
        lines.append(f"{NAMES[trend.quantity]} grows as C^{trend.exponent:.3f} ({ends}) over {trend.budgets} budgets.")
    return lines


def _best(row: BestAtBudget) -> str:
    budget = f"{format_count(row.budget)} {UNITS[row.axis]}"
    if row.status != REACHED or row.depth is None or row.n_params is None or row.width is None:
        known = ""
        if row.status != TOO_FEW:
            known = f" ({100 * row.confidence:.0f} %: {in_words(row.depth_low, row.depth_high, lambda v: f'{v:.1f}')})"
        tried = (
            "" if row.tried_width is None else f"; the best shape tried is {row.tried_depth} × {plain(row.tried_width)}"
        )
        return f"At {budget}: best depth not reached{known}, since {row.reason}{tried}."
    ends = in_words(row.depth_low, row.depth_high, lambda v: f"{v:.1f}")
    sizes = in_words(row.n_params_low, row.n_params_high)
    tokens = f", on {row.tokens_per_param:.3g} tokens per parameter" if row.tokens_per_param else ""
    worst = ""
    if row.worst_depth is not None and row.worst_percent is not None:
        worst = f"; {row.worst_depth:g} layers at their best size lose {row.worst_percent:.2g} % of the loss"
    return (
        f"At {budget}: {row.depth:.1f} layers ({100 * row.confidence:.0f} %: {ends}), N = {format_count(row.n_params)} "
        f"({sizes}), {plain(row.width)} wide{tokens}{worst}."
    )


def depths(found: EqualBudgets) -> str:
    """The best size of each depth at each budget."""
    body = [
        [
            short(row.budget),
            str(row.depth),
            row.status.replace("_", " "),
            show(row.n_params, short),
            interval(row.n_params_low, row.n_params_high, short),
            show(row.width, plain),
            show(row.tokens, short),
            show(row.tokens_per_param, significant(3)),
            show(row.loss, number(4)),
            interval(row.loss_low, row.loss_high, number(4)),
            show(row.above_best, number(4)),
            str(row.sizes),
            show(row.reason),
        ]
        for row in found.depths
    ]
    columns = [
        *(UNITS[found.axis], "depth", "minimum", "N", "interval of N", "width", "tokens", "tokens per parameter"),
        *("loss", "interval of the loss", "above the best depth (nats)", "sizes", "remark"),
    ]
    return table(*without_empty(columns, body), left=["minimum"], long=["remark"])
