"""What ``dwsweep theory`` says, for a terminal."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dwsweep.report.terminal.folding import Folded
from dwsweep.theory import published_law
from dwsweep.theory.limits import DEPTH_EFFICIENT


def render(facts: dict[str, Any]) -> Group:
    """:func:`dwsweep.theory.limits.summary`: a table of quantities, then what it means in words."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("quantity", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("note", style="dim", overflow="fold")
    width, depth = facts["width"], facts["depth"]
    table.add_row("width d_x, heads H", f"{width:,}, {facts['heads']}")
    table.add_row("threshold depth log_3 d_x", f"{facts['threshold_depth']:.2f}", "theory, nets without softmax")
    fitted = facts["published_transition_depth"]
    table.add_row(
        "fitted transition depth",
        f"{fitted:.1f}" if fitted > 0 else "none",
        f"(ln d_x − {published_law.A}) / {published_law.B}, trained nets of Levine et al. 2020, depths 6 to 48",
    )
    if depth is None:
        more = Text("\nGive --depth for the regime, the bounds and the width a shallower net needs.")
        return Group(Folded(table), more)
    eq = "7" if facts["regime"] == DEPTH_EFFICIENT else "8"
    low, high = facts["log3_separation_rank_lower"], facts["log3_separation_rank_upper"]
    table.add_row("depth L", str(depth), f"mixes (3^L − 1)/2 = {facts['mixed_inputs']:.4g} copies of the input")
    table.add_row("regime", facts["regime"], f"L {'<' if eq == '7' else '≥'} log_3 d_x, eq. ({eq})")
    table.add_row("log_3 separation rank ≥", f"{low:,.1f}" if low > 0 else "0", "" if low > 0 else "the bound is empty")
    table.add_row("log_3 separation rank ≤", f"{high:,.1f}")
    table.add_row(
        "fitted transition of this depth",
        f"d_x = {facts['published_transition_width']:,.0f}",
        f"N = {facts['published_transition_n_params']:.3g} non-embedding parameters",
    )
    parts: list[Any] = [Folded(table)]
    if facts["widths_needed"]:
        needed = Table(box=None, pad_edge=False, title="\nWidth that a shallower net needs", title_justify="left")
        needed.add_column("depth", justify="right")
        needed.add_column("d_x at least", justify="right")
        needed.add_column("times this width", justify="right", overflow="fold")
        for row in facts["widths_needed"]:
            exponent, times = row["log10_width"], row["log10_width"] - math.log10(width)
            if times < 0:
                needed.add_row(str(row["depth"]), "–", "the bounds do not require a wider one")
            else:
                needed.add_row(str(row["depth"]), _power_of_ten(exponent), _power_of_ten(times))
        parts += [needed, Text("for its upper bound to reach the lower bound of this net", style="dim")]
    if facts["regime"] == DEPTH_EFFICIENT:
        words = (
            "Below the threshold: depth is used well. A net of fewer layers must be wider by a factor that grows "
            "double-exponentially with the ratio of the depths."
        )
    else:
        words = (
            "Beyond the threshold: the rank grows with d_x·L, so that a layer more and width in proportion do about "
            "the same."
        )
    parts.append(Text(f"\n{words} Trained nets (the fit) pass their transition at a far greater depth than log_3 d_x."))
    return Group(*parts)


def _power_of_ten(exponent: float) -> str:
    return f"10^{exponent:,.1f}" if exponent > 6 else f"{10**exponent:,.1f}" if exponent < 2 else f"{10**exponent:,.0f}"
