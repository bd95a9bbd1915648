"""Report of ``dwsweep theory``: bounds of separation ranks."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group

from dwsweep import published_law
from dwsweep.report.console import render
from dwsweep.report.document import MISSING, Lines, Part, Table, label, number, prose
from dwsweep.text import format_count
from dwsweep.theory import DEPTH_EFFICIENT


def render_theory(facts: dict[str, Any]) -> Group:
    """Report of :func:`dwsweep.theory.summary`: a table of quantities, then their meaning in words."""
    table = Table("", [label("quantity"), number("value"), prose("note")], headed=False, ruled=False)

    def add(quantity: str, value: str, note: str = "") -> None:
        table.add(quantity, value, [(note, "dim")])

    width, depth = facts["width"], facts["depth"]
    add("width d_x, heads H", f"{width:,}, {facts['heads']}")
    add("threshold depth log_3 d_x", f"{facts['threshold_depth']:.2f}", "theory, nets without softmax")
    fitted = facts["published_transition_depth"]
    add(
        "fitted transition depth",
        f"{fitted:.1f}" if fitted > 0 else "none",
        f"(ln d_x − {published_law.A}) / {published_law.B}, trained nets of Levine et al. 2020, depths 6 to 48",
    )
    if depth is None:
        more = "Give --depth for the regime, the bounds and the width a shallower net needs."
        return render([table, Lines([more], apart=True)])
    efficient = facts["regime"] == DEPTH_EFFICIENT
    low, high = facts["log3_separation_rank_lower"], facts["log3_separation_rank_upper"]
    add("depth L", str(depth), f"mixes (3^L − 1)/2 = {facts['mixed_inputs']:.4g} copies of the input")
    add("regime", facts["regime"], "L < log_3 d_x, eq. (7)" if efficient else "L ≥ log_3 d_x, eq. (8)")
    add("log_3 separation rank ≥", f"{low:,.1f}" if low > 0 else "0", "" if low > 0 else "the bound is empty")
    add("log_3 separation rank ≤", f"{high:,.1f}")
    add(
        "fitted transition of this depth",
        f"d_x = {facts['published_transition_width']:,.0f}",
        f"N = {format_count(facts['published_transition_n_params'])} non-embedding parameters",
    )
    parts: list[Part] = [table]
    if facts["widths_needed"]:
        needed = Table(
            "Width that a shallower net needs",
            [*map(number, ("depth", "d_x at least", "times this width"))],
            ruled=False,
        )
        for row in facts["widths_needed"]:
            exponent, times = row["log10_width"], row["log10_width"] - math.log10(width)
            if times < 0:
                needed.add(str(row["depth"]), MISSING, "the bounds do not require a wider one")
            else:
                needed.add(str(row["depth"]), _power_of_ten(exponent), _power_of_ten(times))
        parts += [needed, Lines(["for its upper bound to reach the lower bound of this net"], soft=True)]
    words = (
        "Below the threshold a net of fewer layers must be wider by a factor that grows double-exponentially with the "
        "ratio of the depths; beyond it the rank grows with d_x·L. Trained nets (the fit) pass their transition at a "
        "far greater depth."
    )
    return render([*parts, Lines([words], apart=True)])


def _power_of_ten(exponent: float) -> str:
    return f"10^{exponent:,.1f}" if exponent > 6 else f"{10**exponent:,.1f}" if exponent < 2 else f"{10**exponent:,.0f}"
