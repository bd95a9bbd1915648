"""Budget box of a page: answers of ``guide`` at listed sizes, as markup of which the script shows one, and numbers for
interpolation between two sizes."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from threadpoolctl import threadpool_limits

from dwsweep.guide import Source, answer
from dwsweep.guide.answers import CONSTRAINTS, SPOKEN, Answer, BudgetAnswer
from dwsweep.records.fit import FitResult
from dwsweep.report import guide_report
from dwsweep.report.markup import escaped, html_of
from dwsweep.text import format_count

LEAST, MOST = 1e3, 1e12  # smallest and largest sizes of the box; with a fit the smallest is guide's limit
BELOW = 2.0  # factor below the smallest net at which the list begins
# sizes per decade: the first density with few enough answers counts
DECADES = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
# an answer takes 0.3 s of a CPU with own losses, 0.1 s with a law; a page may spend 3 s
MOST_BY_LOSSES, MOST_BY_LAW = 12, 24


@dataclass(frozen=True)
class AnswersBox:
    """Answers box. markup: the controls and every answer, all but one hidden. data: numbers that the script
    interpolates."""

    markup: str
    data: dict[str, Any]


def answers_box(fit: FitResult, source: Source, file: Any, directory: Any) -> AnswersBox:
    """Answers box of a fit. ``file``: the fit.json of ``source``; ``directory``: argument of ``--fit`` for the
    reader."""
    with threadpool_limits(1, user_api="blas"):  # small matrices: threads would wait for each other
        found = answered(sizes(fit, source), source, file)
    largest = max(trained_sizes(fit))
    start = min(found, key=lambda n: abs(math.log(n / largest)))
    command = ["dwsweep guide --params ", " --at ", f" --fit {shlex.quote(str(directory))}"]
    told = [one_answer(found[n]) for n in found]
    shared = common_end(told)
    shown = "".join(
        f'<div class="answer" data-size="{k}"{"" if n == start else " hidden"}>'
        f"{''.join(told[k][: len(told[k]) - shared])}</div>"
        for k, n in enumerate(found)
    )
    notes = "".join(told[0][len(told[0]) - shared :])
    said = (
        f"The answers of <code>dwsweep guide</code> at {len(found)} sizes, from {format_count(min(found))} to "
        f"{format_count(max(found))} non-embedding parameters, computed when this page was written. Between two of "
        "them the page interpolates; the command below answers any size by itself, and <code>dwsweep guide "
        "--help</code> lists its options for heads, vocabulary, devices and shapes."
    )
    line = escaped(f"{command[0]}{format_count(start)}{command[1]}{CONSTRAINTS[0]}{command[2]}")
    markup = (
        f'<p class="soft">{said}</p>{_controls(list(found), start)}'
        '<p class="wrong" role="alert" hidden></p><p id="between" role="status" aria-live="polite" hidden></p>'
        f'{shown}{notes}<pre id="guide-command">{line}</pre>'
    )
    points = [_point(n, found[n].budgets[0]) for n in found]
    return AnswersBox(markup, {"sizes": points, "spoken": {at: SPOKEN[at] for at in CONSTRAINTS}, "command": command})


def _controls(listed: Sequence[float], start: float) -> str:
    """Controls of the box: a field, a slider over ln N and a list of constraints; hidden without scripts."""
    ends = f'min="{math.log(listed[0]):.6f}" max="{math.log(listed[-1]):.6f}" value="{math.log(start):.6f}"'
    marks = "".join(f'<option value="{math.log(n):.6f}"></option>' for n in listed)
    choices = "".join(f'<option value="{at}">{escaped(SPOKEN[at])}</option>' for at in CONSTRAINTS)
    return (
        '<div class="ask" role="group" aria-label="Your budget">'
        '<label for="ask-params"><span>Size N</span><input type="text" id="ask-params" autocomplete="off" '
        f'spellcheck="false" value="{format_count(start)}"></label>'
        f'<label for="ask-slider" class="wide"><span>any size</span><input type="range" id="ask-slider" {ends} '
        f'step="any" list="ask-sizes"></label><datalist id="ask-sizes">{marks}</datalist>'
        f'<label for="ask-at"><span>Best at</span><select id="ask-at">{choices}</select></label></div>'
    )


def common_end(lists: Sequence[Sequence[str]]) -> int:
    """Number of last parts that all lists share: notes on the sources, which a page shows once. Each list keeps at
    least one part."""
    most, first = min(map(len, lists)) - 1, lists[0]
    same = itertools.takewhile(lambda k: all(one[-k] == first[-k] for one in lists), range(1, most + 1))
    return len(list(same)) if len(lists) > 1 else 0


def one_answer(found: Answer) -> list[str]:
    """Markup of the answer at one size, part by part: a part that depends on the constraint has one version per
    constraint, all but the first hidden."""
    told = [[html_of([part]) for part in guide_report.document(under(found, at))] for at in CONSTRAINTS]
    if len({len(parts) for parts in told}) > 1:
        told = [["".join(parts)] for parts in told]
    out = []
    for parts in zip(*told, strict=True):
        if len(set(parts)) == 1:
            out.append(parts[0])
            continue
        hidden = ["", *[" hidden"] * (len(CONSTRAINTS) - 1)]
        each = zip(CONSTRAINTS, hidden, parts, strict=True)
        out.append("".join(f'<div data-at="{at}"{attribute}>{part}</div>' for at, attribute, part in each))
    return out


def _point(n: float, row: BudgetAnswer) -> dict[str, Any]:
    """Numbers of an answer for interpolation over N: the best depth with its interval, or the range of depths that
    waste little, and per constraint the shape to build with its expected waste in percent."""
    best = row.optimum
    point: dict[str, Any] = {"n": n, "label": format_count(n)}
    if best.refused:
        return point
    if row.no_best is None:
        point["depth"] = [best.depth, best.depth_low, best.depth_high]
    else:
        near = row.near_best[1]
        point["range"] = [near.depth_low, near.depth_high, near.less_compute]
    point["build"] = {}
    for at in CONSTRAINTS:
        shape, risk = replace(row, at=at).recommended, row.risks.get(at)
        if shape is not None:
            wasted = None if risk is None else risk.expected.less_compute
            point["build"][at] = [shape.depth, shape.width, wasted]
    return point


def sizes(fit: FitResult, source: Source) -> list[float]:
    """Round sizes from slightly below the nets of the fit to ``MOST``. Refused sizes are dropped, except one next to an
    answer at either end, which shows where answers end."""
    low = max(LEAST, min(trained_sizes(fit)) / BELOW)
    listed: list[float] = []
    for digits in DECADES:
        decades = range(math.floor(math.log10(low)), round(math.log10(MOST)) + 1)
        every = [float(f"{digit}e{power}") for power in decades for digit in digits]
        every = [n for n in every if low <= n <= MOST]
        guides = [source.at(n) for n in every]
        spoken = [k for k, n in enumerate(every) if not guides[k].refuses(n)]
        listed = every[max(0, spoken[0] - 1) : spoken[-1] + 2] if spoken else every[:1]
        if len(spoken) <= MOST_BY_LAW and sum(guides[k].own is not None for k in spoken) <= MOST_BY_LOSSES:
            break
    return listed


def trained_sizes(fit: FitResult) -> list[float]:
    """Sizes of the fitted nets; else of the excluded nets; 1M without nets."""
    return [cell.n_params for cell in fit.cells if not cell.excluded] or [cell.n_params for cell in fit.cells] or [1e6]


def answered(asked: Sequence[float], source: Source, file: Any) -> dict[float, Answer]:
    """Answers at each size, equal to separate calls. Sizes with one source share a call, so that the fit is read
    once."""
    found: dict[float, Answer] = {}
    for own in (True, False):
        group = [n for n in asked if (source.at(n).own is not None) == own]
        if group:
            whole = answer(group, fit=file)
            found |= {n: replace(whole, budgets=(row,)) for n, row in zip(group, whole.budgets, strict=True)}
    return {n: found[n] for n in asked}


def under(found: Answer, at: str) -> Answer:
    """Answer under another constraint; candidates and costs are equal under all constraints."""
    return replace(found, budgets=tuple(replace(row, at=at) for row in found.budgets))
