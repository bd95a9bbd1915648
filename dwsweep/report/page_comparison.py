"""The page's part on arms: what each changes, in sentences and in a table."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dwsweep.records.fit import FitResult
from dwsweep.records.studies import LOSS, ComparedRow, Comparison
from dwsweep.report.html import Section, box, bullets, details, paragraph, table
from dwsweep.report.page_tables import interval, number, runs, short, show
from dwsweep.report.studies_report import each_by_itself, paired

NAMES = {"transition": "transition", "best_depth": "best depth", "loss": "loss"}


def sections(fit: FitResult) -> list[Section]:
    """None where nothing was compared."""
    if not fit.comparisons:
        return []
    body = "".join(_against(one, fit.curves.size_name) for one in fit.comparisons)
    return [Section("comparison", "Does it change the answer?", body)]


def _against(found: Comparison, axis: str) -> str:
    arm, base = html.escape(found.arm), html.escape(found.base)
    body = f"<h3>{arm} against {base}</h3>" + box("answer", bullets([*found.answer, f"{paired(found)}."]))
    numbers = [row for row in found.rows if row.quantity != LOSS]
    losses = [row for row in found.rows if row.quantity == LOSS]
    if numbers:
        body += _table(found, numbers, axis)
    if losses:
        body += details(
            f"Losses at the smallest, a middle and the largest size, {found.unit}", _table(found, losses, axis)
        )
    notes = [note for note in (*found.notes, each_by_itself(found)) if note]
    return body + (paragraph(" ".join(notes), "soft") if notes else "")


def _table(found: Comparison, rows: Sequence[ComparedRow], axis: str) -> str:
    losses = rows[0].quantity == LOSS
    change = "difference" if losses else "ratio"
    ratio = number(4) if losses else number(2)
    body = []
    for row in rows:
        form: Callable[[Any], str] = {"transition": short, "best_depth": number(1), "loss": number(4)}[row.quantity]
        body.append(
            [
                NAMES[row.quantity],
                row.pair if row.deep else show(row.depth),
                show(row.n_params, short),
                _estimate(row.base, row.base_low, row.base_high, row.base_status, form),
                _estimate(row.other, row.other_low, row.other_high, row.other_status, form),
                show(row.change, ratio),
                interval(row.change_low, row.change_high, ratio),
                row.verdict,
            ]
        )
    columns = ["", "depth", f"at {axis}", found.base, found.arm, change, "interval", "change"]
    return table(columns, body, left=["", "change"])


def _estimate(
    value: float | None, low: float | None, high: float | None, status: str, form: Callable[[Any], str]
) -> str:
    ends = interval(low, high, form)
    if value is None:
        return ends if ends != "–" else status.replace("_", " ") or "–"
    return form(value) if ends == "–" else f"{form(value)} ({ends})"


def of_the_fit(every: Sequence[dict[str, str]], fit: FitResult) -> list[dict[str, str]]:
    """The runs that the fit is of: where a sweep has arms, those of the base."""
    arms = {row.get("arm") or "" for row in every}
    base = fit.comparisons[0].base if fit.comparisons else None
    return [row for row in every if len(arms) < 2 or base not in arms or row.get("arm") == base]


def other_runs(every: Sequence[Mapping[str, str]], shown: Sequence[Mapping[str, str]]) -> str:
    """The table of runs of each arm that the fit is not of."""
    left = [row for row in every if row not in shown]
    arms = dict.fromkeys(row.get("arm") or "" for row in left)
    return "".join(
        f"<h3>Of {html.escape(arm)}</h3>" + runs([row for row in left if (row.get("arm") or "") == arm]) for arm in arms
    )
