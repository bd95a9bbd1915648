"""The figure of ``dwsweep theory --check``: ranks of small random networks beside the bounds of the theory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dwsweep import paths
from dwsweep.report.figures import style

if TYPE_CHECKING:
    from dwsweep.theory.rank_check import RankCheck


def draw(checks: Sequence[RankCheck], out_dir: Path) -> list[Path]:
    """``theory.png`` and ``theory.svg``: log_3 of the rank against width, a panel per number of heads; the bars reach
    from the lower to the upper bound."""
    heads = sorted({row.heads for row in checks})
    folder = paths.make_directory(paths.as_path(out_dir))
    with style.styled():
        import numpy as np

        made = style.figure(3.2 + 2.4 * len(heads), 3.6)
        looks = style.depth_styles([row.depth for row in checks])
        for axes, number in zip(style.panels(made, len(heads), len(heads), sharey=True), heads, strict=True):
            for place, depth in enumerate(sorted(looks)):
                rows = [row for row in checks if row.heads == number and row.depth == depth]
                if not rows:
                    continue
                x = np.array([row.width for row in rows]) + 0.12 * (place - 1)
                low, high = ([getattr(row, end) for row in rows] for end in ("lower", "upper"))
                axes.vlines(x, low, high, color=looks[depth]["color"], linewidth=5, alpha=0.25)
                ranks = [np.log(max(row.ranks)) / np.log(3) for row in rows]
                axes.plot(x, ranks, **looks[depth], label=f"L = {depth}")
            axes.set_title(f"{number} head{'s' if number > 1 else ''}")
            axes.set_xlabel("width d_x")
            axes.set_xticks(sorted({row.width for row in checks if row.heads == number}))
            axes.legend(fontsize=8)
        made.supylabel("log₃ of the separation rank", fontsize=9)
        note = "Points: measured, exact. Bars: from the lower to the upper bound."
        made.suptitle(note, x=0.01, ha="left", fontsize=7.5, color=style.FAINT)
        return style.save(style.settle(made), folder, "theory")
