"""Answers of ``dwsweep guide`` for the page: of a list of sizes under each constraint, in the words of the terminal.

The script of the page looks them up. It computes no answer, and none between two sizes.
"""

from __future__ import annotations

import itertools
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dwsweep.guide import Source, answer
from dwsweep.guide.answers import CONSTRAINTS, SPOKEN, Answer
from dwsweep.records.fit import FitResult
from dwsweep.report.terminal import guide_tables
from dwsweep.report.terminal.folding import Folded
from dwsweep.text import format_count

LEAST, MOST = 1e3, 1e12  # sizes; guide takes no smaller one of a fit
BELOW = 2.0  # times below the smallest net, where the list begins
# sizes of a decade: the first of these lists that asks for no more than so many answers
DECADES = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
# by one's own losses an answer takes 0.3 s of a CPU, by a law 0.1 s: a page is to take three seconds for them
MOST_BY_LOSSES, MOST_BY_LAW = 12, 24


def collected(fit: FitResult, source: Source, file: Any, directory: Any) -> dict[str, Any]:
    """What the page's box looks up. ``file``: the fit.json that ``source`` was made from; ``directory``: what a reader
    passes to ``--fit``.

    blocks: every line and table once. answers: of each constraint and size, the numbers of its blocks.
    """
    asked = sizes(fit, source)
    found = _answered(asked, source, file)
    pool: dict[str, int] = {}
    answers = {
        at: [[pool.setdefault(json.dumps(one), len(pool)) for one in blocks(under(found[n], at))] for n in asked]
        for at in CONSTRAINTS
    }
    largest = max(_trained(fit))
    return {
        "constraints": [[at, SPOKEN[at]] for at in CONSTRAINTS],
        "sizes": [{"n": n, "label": format_count(n)} for n in asked],
        "start": min(range(len(asked)), key=lambda k: abs(math.log(asked[k] / largest))),
        "answers": answers,
        "blocks": [json.loads(one) for one in pool],
        "command": ["dwsweep guide --params ", " --at ", f" --fit {shlex.quote(str(directory))}"],
    }


def sizes(fit: FitResult, source: Source) -> list[float]:
    """Round sizes from a bit below the nets of the fit to ``MOST``, less those that guide refuses; but the refused one
    next to an answer is kept at either end, since it says where answers end."""
    low = max(LEAST, min(_trained(fit)) / BELOW)
    listed: list[float] = []
    for digits in DECADES:
        decades = range(math.floor(math.log10(low)), round(math.log10(MOST)) + 1)
        every = [float(f"{digit}e{power}") for power in decades for digit in digits]
        every = [n for n in every if low <= n <= MOST]
        guides = [source.at(n) for n in every]
        spoken = [k for k, n in enumerate(every) if not guides[k].refuses(n)]
        listed = every[max(0, spoken[0] - 1) : spoken[-1] + 2] if spoken else every[:1]
        if len(spoken) <= MOST_BY_LAW and sum(guides[k].surface is not None for k in spoken) <= MOST_BY_LOSSES:
            break
    return listed


def _trained(fit: FitResult) -> list[float]:
    """Sizes of the nets that were fitted; that of the law where there are none."""
    return [cell.n_params for cell in fit.cells if not cell.excluded] or [cell.n_params for cell in fit.cells] or [1e6]


def _answered(asked: Sequence[float], source: Source, file: Any) -> dict[float, Answer]:
    """The answer of each size as if it had been asked alone. Sizes that one source guides are asked together, which
    reads the fit once for all of them."""
    found: dict[float, Answer] = {}
    for own in (True, False):
        group = [n for n in asked if (source.at(n).surface is not None) == own]
        if group:
            whole = answer(group, fit=file)
            found |= {n: replace(whole, budgets=(row,)) for n, row in zip(group, whole.budgets, strict=True)}
    return found


def under(found: Answer, at: str) -> Answer:
    """The answer under another constraint: what is compared and what it costs is the same under all of them."""
    return replace(found, budgets=tuple(replace(row, at=at) for row in found.budgets))


def blocks(found: Answer) -> list[dict[str, Any]]:
    """The lines and tables that the terminal prints, as parts of a page: ``{"line": [[text, bold], …], "soft"}`` or
    ``{"head", "rows", "chosen"}``."""
    return list(_blocks(guide_tables.render(found).renderables))


def _blocks(parts: Sequence[RenderableType]) -> Iterator[dict[str, Any]]:
    for part in parts:
        inner = part.renderable if isinstance(part, Padding) else part
        if isinstance(inner, Folded):
            yield _table(inner.table)
        elif isinstance(inner, Text) and inner.plain:
            yield {"line": _spans(inner), "soft": inner.style == "dim"}


def _spans(said: Text) -> list[list[Any]]:
    """[[text, whether it is bold], …]"""
    bold = [span for span in said.spans if span.style == "bold"]
    whole = said.style == "bold"
    stops = sorted({0, len(said), *(span.start for span in bold), *(span.end for span in bold)})
    return [
        [said.plain[start:stop], whole or any(span.start <= start and stop <= span.end for span in bold)]
        for start, stop in itertools.pairwise(stops)
    ]


def _table(table: Table) -> dict[str, Any]:
    columns = [[str(cell).strip() for cell in column.cells] for column in table.columns]
    return {
        "head": [str(column.header).strip() for column in table.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "chosen": [k for k, row in enumerate(table.rows) if row.style == "bold"],
    }
