"""The answer of a fit in sentences, for people who read nothing else.

A sentence says no more than the row it comes from: what is blank there is called unbounded or not reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dwsweep.report.figures.style import plain
from dwsweep.text import format_count

REFERENCE = "pchip"  # the estimator that statuses are read from


def references(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of the reference estimator, one a pair."""
    return [row for row in rows if row.get("estimator", REFERENCE) == REFERENCE]


def interval(low: float | None, high: float | None, form: Any = format_count) -> str:
    """``2M to 5M``; an end that is None is unbounded."""
    if low is None and high is None:
        return "unbounded on both sides"
    if low is None:
        return f"up to {form(high)}, unbounded below"
    if high is None:
        return f"from {form(low)}, unbounded above"
    return f"{form(low)} to {form(high)}"


def transition(row: Mapping[str, Any], axis: str = "n_params") -> str:
    """One pair in a sentence; the size in the unit of the fit's axis, N included where the two differ."""
    pair = f"Depth {row['shallow']} → {row['deep']}"
    confidence = row.get("confidence")
    level = f"{100 * confidence:.0f} %" if confidence else "interval"
    value, low, high = (row.get(name) for name in ("n_params", "n_params_low", "n_params_high"))
    status = row["status"]
    because = f" ({row['reason']})" if row.get("reason") else ""
    if status == "crossed" and value is not None:
        width = ""
        if row.get("width") is not None:
            ends = interval(row.get("width_low"), row.get("width_high"), plain)
            width = f", where the shallower net is {plain(row['width'])} wide ({ends})"
        own = ""
        if axis != "n_params" and row.get("axis_value") is not None:
            own = f"; on the fitted axis, {axis}, that is {format_count(row['axis_value'])}"
        size = f"N = {format_count(value)} ({level}: {interval(low, high)})"
        return f"{pair}: the deeper net overtakes at {size}{width}{own}."
    if status == "not_reached":
        bound = (f" It lies above N = {format_count(low)}." if low is not None else "") + _tie(row)
        return f"{pair}: not reached; in this range only the shallower net is ever significantly ahead.{bound}"
    if status == "already_crossed":
        bound = (f" It lies below N = {format_count(high)}." if high is not None else "") + _tie(row)
        return f"{pair}: already crossed; in this range only the deeper net is ever significantly ahead.{bound}"
    if status == "ambiguous":
        return f"{pair}: ambiguous; the lead changes in no single, clear place{because}."
    return f"{pair}: undecided; neither net is significantly ahead anywhere{because}."


def _tie(row: Mapping[str, Any]) -> str:
    """What the bound does not say: beyond it the two do not differ, and the crossing may lie there."""
    low, high = row.get("tie_low"), row.get("tie_high")
    if low is None or high is None:
        return ""
    return f" From {format_count(low)} to {format_count(high)} the two tie: it may lie there too."


def law(fit: Mapping[str, Any]) -> list[str]:
    """The width law with its errors, or that there is none and why."""
    statement = str(fit.get("law_statement") or "")
    own = fit.get("width_law")
    if not own:
        lines = [f"No law of its own: {_without_prefix(statement).rstrip('.')}." if statement else "No law of its own."]
        published = fit.get("published") or {}
        if published:
            lines.append(
                f"In its place the published law stands: ln d = {published['a']:g} + {published['b']:g}·L "
                "(Levine et al. 2020). It describes their models, data and recipe, not these."
            )
        return lines
    a, b = own["a"], own["b"]
    shape = {"exponential": "ln d = a + b·L", "linear": "d = a + b·L", "power": "ln d = a + b·ln L"}
    lines = [
        f"This sweep's width law: {shape.get(own.get('form', ''), own.get('form', ''))} with a = {a:.4g} "
        f"({_ends(own.get('interval_a'))}) and b = {b:.4g} ({_ends(own.get('interval_b'))})"
        f"{_quality(own)}. d is the width at which depth L stops being the better one."
    ]
    used, censored = own.get("pairs_used"), own.get("pairs_censored")
    if used is not None:
        bounded = f"; {censored} more bound{'s' if censored == 1 else ''} it from one side" if censored else ""
        lines.append(f"It rests on {used} pair{'' if used == 1 else 's'} of depths{bounded}.")
    if own.get("valid_from") is not None and own.get("valid_to") is not None:
        lines.append(
            f"Its transitions span N = {format_count(own['valid_from'])} to {format_count(own['valid_to'])}; "
            "anything outside is extrapolation."
        )
    guiding = fit.get("guideline_law")
    if guiding not in (None, own.get("form")):
        lines.append(f"The {guiding} form fits these transitions clearly better, so the guideline follows that one.")
    return lines


def _without_prefix(statement: str) -> str:
    for prefix in ("no law of its own:", "no law of its own;", "no law of its own,"):
        if statement.lower().startswith(prefix):
            return statement[len(prefix) :].strip()
    return statement


def _ends(ends: Sequence[float | None] | None) -> str:
    if not ends:
        return "no interval"
    return interval(ends[0], ends[1], lambda value: f"{value:.4g}")


def _quality(own: Mapping[str, Any]) -> str:
    if own.get("chi2") is None or own.get("df") is None:
        return ""
    return f"; χ² = {own['chi2']:.3g} on {own['df']:.3g} degrees of freedom"


def rivals(row: Mapping[str, Any]) -> str:
    """The range of depths of the forms that are not rejected, empty where they agree (or only one is left)."""
    low, high = row.get("rival_depth_min"), row.get("rival_depth_max")
    if low is None or high is None or high < 1.02 * low:
        return ""
    return f"{low:.0f} to {high:.0f}"


def guideline(rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ("1.3B", "13B", "175B")) -> list[str]:
    """A few sizes in words: the best depth and width, how far outside the evidence, what rival laws would say."""
    lines = []
    asked = [row for row in rows if row.get("trained_depth") is None and row.get("name") != "1T"]
    for row in [*asked, *(row for row in rows if row.get("name") in names)]:
        if row.get("depth") is None:
            lines.append(f"N = {format_count(row['n_params'])}: no number ({row['law']}).")
            continue
        depth = (
            f"{row['depth']:.1f} deep ({interval(row.get('depth_low'), row.get('depth_high'), lambda v: f'{v:.1f}')})"
        )
        width = f"{plain(row['width'])} wide"
        trained = ""
        if row.get("trained_depth") is not None:
            trained = f"; GPT-3 {row['name']} was {row['trained_depth']} × {plain(row['trained_width'])}"
        factor = row.get("extrapolation_factor")
        far = f"; {plain(factor)} times outside the range of the law" if factor and factor > 1 else ""
        others = f"; the forms that fit as well say {rivals(row)} deep" if rivals(row) else ""
        lines.append(f"N = {format_count(row['n_params'])}: {depth}, {width}{trained}{far}{others}.")
    return lines
