"""The figure of ``dwsweep guide``: what each shape one can build costs, at equal size, FLOPs and time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dwsweep.report import style

# label, key of a candidate, colour, line, marker: told apart in grey too
CURVES = (
    ("equal size", "nats_equal_size", "#0072B2", "-", "o"),
    ("equal FLOPs", "nats_equal_flops", "#D55E00", (0, (6, 1.5)), "s"),
    ("equal time", "nats_equal_time", "#009E73", (0, (1.5, 1.5)), "^"),
)


def draw(answer: Mapping[str, Any], out_dir: Path) -> list[Path]:
    """``guide.png`` and ``guide.svg``: one panel a budget, nats above the best shape against depth.

    ``answer`` is that of :func:`dwsweep.guide.answer`; no file where it holds no budget with shapes.
    """
    rows = [row for row in answer["budgets"] if row.get("candidates")]
    if not rows:
        return []
    with style.styled():
        figure = style.figure(6.4, 0.6 + 3.0 * len(rows))
        for axes, row in zip(figure.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
            shapes = sorted(row["candidates"], key=lambda shape: shape["depth"])
            depths = [shape["depth"] for shape in shapes]
            for label, key, colour, line, marker in CURVES:
                points = [
                    (depth, shape[key]) for depth, shape in zip(depths, shapes, strict=True) if shape[key] is not None
                ]
                if points:
                    axes.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker=marker, label=label)
            if row["depth_low"] is not None and row["depth_high"] is not None:
                axes.axvspan(row["depth_low"], row["depth_high"], color="#0072B2", alpha=0.12, label="best depth, 95 %")
            axes.set_title(f"{row['name']} non-embedding parameters, {row['source']}", loc="left")
            axes.set_xlabel("depth L")
            axes.set_ylabel("nats above the best")
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False)
        out_dir.mkdir(parents=True, exist_ok=True)
        return style.save(figure, out_dir, "guide")
