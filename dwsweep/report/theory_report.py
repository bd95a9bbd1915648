"""Report of ``dwsweep theory``: bounds of separation ranks."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group

from dwsweep import published_law
from dwsweep.report.console import render
from dwsweep.report.document import MISSING, Lines, TextTable, label, number, prose
from dwsweep.text import format_count
from dwsweep.theory.separation_rank import DEPTH_EFFICIENT


def render_theory(facts: dict[str, Any]) -> Group:
    """Report of :func:`dwsweep.theory.separation_rank.summary`: a table of quantities, then their meaning in words."""
    width, depth, fitted = facts["width"], facts["depth"], facts["published_transition_depth"]
    rows = [
        ("width d_x, heads H", f"{width:,}, {facts['heads']}", ""),
        ("threshold depth log_3 d_x", f"{facts['threshold_depth']:.2f}", "theory, nets without softmax"),
        ("fitted transition depth", f"{fitted:.1f}" if fitted > 0 else "none", FITTED),
    ]
    needed, words = TextTable("Width that a shallower net needs", NEEDED, ruled=False), WITHOUT_DEPTH
    if depth is not None:
        low, high = facts["log3_separation_rank_lower"], facts["log3_separation_rank_upper"]
        law = "L < log_3 d_x, eq. (7)" if facts["regime"] == DEPTH_EFFICIENT else "L ≥ log_3 d_x, eq. (8)"
        n_params = format_count(facts["published_transition_n_params"])
        at, words = f"d_x = {facts['published_transition_width']:,.0f}", WITH_DEPTH
        rows += [
            ("depth L", str(depth), f"mixes (3^L − 1)/2 = {facts['mixed_inputs']:.4g} copies of the input"),
            ("regime", facts["regime"], law),
            ("log_3 separation rank", f"{max(low, 0.0):,.1f} … {high:,.1f}", "" if low > 0 else "no lower bound"),
            ("fitted transition of this depth", at, f"N = {n_params} non-embedding parameters"),
        ]
    for row in facts.get("widths_needed", ()):
        exponent, times = row["log10_width"], row["log10_width"] - math.log10(width)
        wider = [_power_of_ten(exponent), _power_of_ten(times)]
        needed.add(str(row["depth"]), *(wider if times >= 0 else [MISSING, "the bounds do not require a wider one"]))
    table = TextTable("", [label("quantity"), number("value"), prose("note")], headed=False, ruled=False)
    for quantity, value, note in rows:
        table.add(quantity, value, [(note, "dim")])
    return render([table, needed, Lines([words], apart=True)])


FITTED = f"(ln d_x − {published_law.A}) / {published_law.B}, trained nets of Levine et al. 2020, depths 6 to 48"
NEEDED = [*map(number, ("depth", "d_x at least", "times this width"))]
WITHOUT_DEPTH = "Give --depth for the regime, the bounds and the width a shallower net needs."
WITH_DEPTH = (
    "The upper bound of a net of the width that a shallower net needs reaches the lower bound of this one. Below the "
    "threshold that width grows double-exponentially with the ratio of the depths; beyond it the rank grows with "
    "d_x·L. Trained nets (the fit) pass their transition at a far greater depth."
)


def _power_of_ten(exponent: float) -> str:
    return f"10^{exponent:,.1f}" if exponent > 6 else f"{10**exponent:,.1f}" if exponent < 2 else f"{10**exponent:,.0f}"
