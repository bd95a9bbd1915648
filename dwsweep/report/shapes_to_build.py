"""Shapes to build on a page: the answers of ``guide`` at a fit's largest size and at round sizes beyond it."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from threadpoolctl import threadpool_limits

from dwsweep.guide import Source, answer
from dwsweep.guide.answers import Answer, BudgetAnswer
from dwsweep.records.fit import FitResult
from dwsweep.report import guide_report
from dwsweep.report.document import INTERVAL, MISSING, Fold, Heading, Lines, Part, Table, estimate, label, number
from dwsweep.text import format_count, format_factor

LEAST, MOST = 1e3, 1e12  # smallest and largest sizes listed; with a fit the smallest is guide's limit
DIGITS = (1, 3)  # sizes per decade: an answer takes 0.1 to 0.3 s of a CPU, a page may spend 3 s
FIRST = 3  # paragraphs of the answer on the first screen: the shape, the best depth, the risk


@dataclass(frozen=True)
class Built:
    """Shapes to build. first: the shape at the largest trained size, for the first screen. parts: every listed size."""

    first: list[Part]
    parts: list[Part]


def built(fit: FitResult, source: Source, file: Any, directory: Any) -> Built:
    """Shapes to build by a fit. ``file``: the fit.json of ``source``; ``directory``: the reader's ``--fit``."""
    largest = max(LEAST, *trained_sizes(fit))
    with threadpool_limits(1, user_api="blas"):  # small matrices: threads would wait for each other
        found = answered([largest, *sizes(fit, source)], source, file)
    at_largest = guide_report.document(found.pop(largest))
    size = format_count(largest)
    first: list[Part] = [Heading(f"Shape to build at {size}, the largest size trained"), *_begin(at_largest)]
    command = f"`dwsweep guide --params 3B --fit {shlex.quote(str(directory))}`"
    listed = _table([one.budgets[0] for one in found.values()])
    whole = Fold(f"The whole answer at {size}", at_largest)
    return Built(first, [listed, Lines([f"{command} answers at any size, with the price of other shapes."]), whole])


def _begin(document: Sequence[Part]) -> list[Part]:
    """First paragraphs of an answer, and the reason before its heading where public evidence answers instead."""
    said: list[Part] = [part for part in document if isinstance(part, Lines)]
    before = sum(1 for _ in itertools.takewhile(lambda part: isinstance(part, Lines), document))
    return said[: before + FIRST]


def _table(rows: Sequence[BudgetAnswer]) -> Table:
    """Table with a row per size: the shape, the best depth, the depths that cost little, and the trust."""
    columns = [
        number("N"),
        label("build"),
        number("best depth"),
        INTERVAL,
        number("depths within 5 %"),
        number("waste"),
    ]
    title = "By size: shape to build, best depth (95 %), depths that waste at most 5 % of compute, expected waste"
    table = Table(title, [*columns, label("trust"), number("outside the data")])
    for row in rows:
        best, shape, risk = row.optimum, row.recommended, row.risk
        near = row.near_best[1] if len(row.near_best) > 1 else None
        low, high = (near.depth_low, near.depth_high) if near else (None, None)
        factor = best.extrapolation_factor
        table.add(
            format_count(row.budget),
            shape.label if shape else MISSING,
            *(["none known", ""] if row.no_best else estimate(best.depth_interval, ".1f")),
            f"{low or 1:.0f} … {high:.0f}" if high else MISSING,
            f"{risk.expected.less_compute:.1f} %" if risk else MISSING,
            best.trust.level,
            f"{format_factor(factor)} times" if factor > 1 else "inside",
        )
    return table


def sizes(fit: FitResult, source: Source) -> list[float]:
    """Round sizes from about the smallest trained net to ``MOST`` at which the source answers."""
    low = max(LEAST, min(trained_sizes(fit)))
    decades = range(math.floor(math.log10(low)), round(math.log10(MOST)) + 1)
    every = [float(f"{digit}e{power}") for power in decades for digit in DIGITS]
    return [n for n in every if low <= n <= MOST and not source.refuses(n)]


def trained_sizes(fit: FitResult) -> list[float]:
    """Sizes of the fitted nets; else of the excluded nets; 1M without nets."""
    return [cell.n_params for cell in fit.cells if not cell.excluded] or [cell.n_params for cell in fit.cells] or [1e6]


def answered(asked: Sequence[float], source: Source, file: Any) -> dict[float, Answer]:
    """Answers at each size, equal to separate calls."""
    whole = answer(asked, fit=file, source=source)
    return {n: replace(whole, budgets=(row,)) for n, row in zip(asked, whole.budgets, strict=True)}
