"""The answer of a fit in sentences, for people who read nothing else.

A sentence says no more than the row it comes from: what is blank there is called unbounded or not reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import GuidelineRow, Transition
from dwsweep.report.figures.style import plain
from dwsweep.text import format_count


def interval(low: float | None, high: float | None, form: Any = format_count) -> str:
    """``2M to 5M``; an end that is None is unbounded."""
    if low is None and high is None:
        return "unbounded on both sides"
    if low is None:
        return f"up to {form(high)}, unbounded below"
    if high is None:
        return f"from {form(low)}, unbounded above"
    return f"{form(low)} to {form(high)}"


def best_depths(fit: FitResult) -> list[str]:
    """The best depth at each size where the data bound it; that there is none, if so."""
    known = fit.surface.bounded if fit.surface else []
    if not known or fit.surface is None:
        return ["Not known: these losses bound it at no size."]
    size = fit.curves.size_name
    level = f"{100 * fit.surface.confidence:.0f} %"
    lines = []
    for row in known:
        ends = interval(row.depth_low, row.depth_high, lambda v: f"{v:.1f}")
        best = f"{row.depth:.1f} layers" if row.depth else row.beyond
        lines.append(f"{size} = {format_count(row.n_params)}: {best} ({level}: {ends}).")
    return lines


def transition(row: Transition, axis: str = "n_params") -> str:
    """One pair in a sentence; the size in the unit of the fit's axis, N included where the two differ."""
    pair = f"Depth {row.name}"
    because = f" ({row.reason})" if row.reason else ""
    if row.status == "crossed" and row.n_params is not None:
        width = ""
        if row.width is not None:
            ends = interval(row.width_low, row.width_high, plain)
            width = f", where the shallower net is {plain(row.width)} wide ({ends})"
        own = ""
        if axis != "n_params" and row.axis_value is not None:
            own = f"; on the fitted axis, {axis}, that is {format_count(row.axis_value)}"
        ends = interval(row.n_params_low, row.n_params_high)
        size = f"N = {format_count(row.n_params)} ({100 * row.confidence:.0f} %: {ends})"
        return f"{pair}: the deeper net overtakes at {size}{width}{own}."
    if row.status == "not_reached":
        low = row.n_params_low
        bound = (f" It lies above N = {format_count(low)}." if low is not None else "") + _tie(row)
        return f"{pair}: not reached; in this range only the shallower net is ever significantly ahead.{bound}"
    if row.status == "already_crossed":
        high = row.n_params_high
        bound = (f" It lies below N = {format_count(high)}." if high is not None else "") + _tie(row)
        return f"{pair}: already crossed; in this range only the deeper net is ever significantly ahead.{bound}"
    if row.status == "ambiguous":
        return f"{pair}: ambiguous; the lead changes in no single, clear place{because}."
    return f"{pair}: undecided; neither net is significantly ahead anywhere{because}."


def _tie(row: Transition) -> str:
    """What the bound does not say: beyond it the two do not differ, and the crossing may lie there."""
    low, high = row.tie_low, row.tie_high
    if low is None or high is None:
        return ""
    return f" From {format_count(low)} to {format_count(high)} the two tie: it may lie there too."


SHAPES = {"exponential": "ln d = a + b·L", "linear": "d = a + b·L", "power": "ln d = a + b·ln L"}


def law(fit: FitResult) -> list[str]:
    """The width law with its errors, or that there is none and why."""
    own = fit.width_law
    if own is None:
        return [
            f"{fit.law_statement[:1].upper()}{fit.law_statement[1:]}.",
            f"In its place the published law stands: ln d = {fit.published.a:g} + {fit.published.b:g}·L "
            "(Levine et al. 2020). It describes their models, data and recipe, not these.",
        ]
    lines = [
        f"This sweep's width law: {SHAPES.get(own.form, own.form)} with a = {own.a:.4g} ({_ends(own.interval_a)}) and "
        f"b = {own.b:.4g} ({_ends(own.interval_b)}); χ² = {own.chi2:.3g} on {own.df:.3g} degrees of freedom. d is the "
        "width at which depth L stops being the better one."
    ]
    bounded = f"; {own.pairs_censored} more bound{'s' if own.pairs_censored == 1 else ''} it from one side"
    lines.append(
        f"It rests on {own.pairs_used} pair{'' if own.pairs_used == 1 else 's'} of depths"
        f"{bounded if own.pairs_censored else ''}."
    )
    lines.append(
        f"Its transitions span N = {format_count(own.valid_from)} to {format_count(own.valid_to)}; anything outside is "
        "extrapolation."
    )
    lines.append(
        "A pair of depths belongs to its shallower one here, as in the published law; the best depth itself comes from "
        "the loss surface of all depths together."
    )
    return lines


def _ends(ends: tuple[float | None, float | None]) -> str:
    return interval(ends[0], ends[1], lambda value: f"{value:.4g}")


def rivals(row: GuidelineRow) -> str:
    """The range of depths of the forms that are not rejected, empty where they agree (or only one is left)."""
    low, high = row.rival_depth_min, row.rival_depth_max
    if low is None or high is None or high < 1.02 * low:
        return ""
    return f"{low:.0f} to {high:.0f}"


def guideline(rows: Sequence[GuidelineRow], names: Sequence[str] = ("1.3B", "13B", "175B")) -> list[str]:
    """A few sizes in words: the best depth and width, how far outside the evidence, what rival laws would say."""
    lines = []
    asked = [row for row in rows if row.trained_depth is None and row.name != "1T"]
    for row in [*asked, *(row for row in rows if row.name in names)]:
        if row.depth is None or row.width is None:
            lines.append(f"N = {format_count(row.n_params)}: no number ({row.law}).")
            continue
        depth = f"{row.depth:.1f} deep ({interval(row.depth_low, row.depth_high, lambda v: f'{v:.1f}')})"
        width = f"{plain(row.width)} wide"
        trained = ""
        if row.trained_width is not None:
            trained = f"; GPT-3 {row.name} was {row.trained_depth} × {plain(row.trained_width)}"
        factor = row.extrapolation_factor
        far = f"; {plain(factor)} times outside the range of the law" if factor and factor > 1 else ""
        others = f"; the forms that fit as well say {rivals(row)} deep" if rivals(row) else ""
        lines.append(f"N = {format_count(row.n_params)}: {depth}, {width}{trained}{far}{others}.")
    return lines
