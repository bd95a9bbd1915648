"""What ``dwsweep theory`` says, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dwsweep import published_law
from dwsweep.report.terminal.folding import Folded
from dwsweep.text import format_count
from dwsweep.theory import DEPTH_EFFICIENT, RankCheck

if TYPE_CHECKING:
    from dwsweep.theory import HeadCheck


def render(facts: dict[str, Any]) -> Group:
    """:func:`dwsweep.theory.summary`: a table of quantities, then what it means in words."""
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
        f"N = {format_count(facts['published_transition_n_params'])} non-embedding parameters",
    )
    parts: list[Any] = [Folded(table), Text(), Folded(_theorems(facts["theorems"]))]
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


def _theorems(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, title="Bounds of log_3 of the separation rank")
    for name in ("eq.", "applies", "lower", "upper", "constants"):
        table.add_column(name, justify="right" if name in ("lower", "upper") else "left", no_wrap=name != "constants")
    for row in rows:
        constants = ", ".join(f"{name} {value:,.4g}" for name, value in row["constants"].items())
        lower = f"{row['lower']:,.1f}" if row["lower"] > 0 else "empty"
        applies = "yes" if row["applies"] else "no"
        table.add_row(f"({row['equation']})", applies, lower, f"{row['upper']:,.1f}", constants)
    return table


def render_check(checks: Sequence[RankCheck], heads: Sequence[HeadCheck]) -> Group:
    """The ranks that were measured, and whether they are what the theorems say."""
    table = Table(box=None, pad_edge=False, title="Separation rank of random analysed networks, exact")
    for name in ("L", "d_x", "H", "bound ≥", "rank", "bound ≤", "partitions", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for row in checks:
        ranks = sorted(set(row.ranks))
        verdict = "; ".join(row.wrong) or "as stated"
        table.add_row(
            *map(str, (row.depth, row.width, row.heads)),
            f"{3**row.lower:,.1f}",
            " ≠ ".join(map(str, ranks)),
            f"{3**row.upper:,.0f}",
            str(len(row.ranks)),
            verdict,
        )
    wrong = sum(bool(row.wrong) for row in checks)
    words = (
        "Every rank lies between the bounds, is the same for every balanced partition, and grows with depth and width."
        if not wrong
        else f"{wrong} of {len(checks)} networks are NOT as the theorems say."
    )
    return Group(Folded(table, keys=3), Text(f"\n{words}"), _heads(heads))


def _heads(checks: Sequence[HeadCheck]) -> Group:
    """What heads of each size do with one attention matrix, and whether it is what its rank says."""
    n, needed = checks[0].positions, checks[0].needed
    table = Table(box=None, pad_edge=False, title=f"One head, {n} positions, a random attention matrix")
    for name in ("head size", "largest error", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for row in checks:
        exact = "exact" if row.head_size >= needed else "cannot: the rank of its logits is too small"
        table.add_row(str(row.head_size), f"{row.error:.1e}", "; ".join(row.wrong) or exact)
    words = (
        f"Its logits, less what a softmax does not see, have rank {needed}: a head of {needed} represents it, a "
        f"smaller one does not. A head of {n - 1} represents every attention matrix of {n} positions; Theorem 1 of "
        f"Bhojanapalli et al. 2020, as a secondary source has it, asks for {n}: the column means are the one saved."
    )
    return Group(Text(), table, Text(f"\n{words}"))


def _power_of_ten(exponent: float) -> str:
    return f"10^{exponent:,.1f}" if exponent > 6 else f"{10**exponent:,.1f}" if exponent < 2 else f"{10**exponent:,.0f}"
