"""The figure of ``dwsweep guide``: what each shape one can build costs, at equal size, FLOPs and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from dwsweep import paths
from dwsweep.report.figures import style
from dwsweep.text import format_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# label, key of a candidate, colour, line, marker: told apart in grey too
CURVES = (
    ("equal size", "nats_equal_size", "#0072B2", "-", "o"),
    ("equal FLOPs", "nats_equal_flops", "#D55E00", (0, (6, 1.5)), "s"),
    ("equal time", "nats_equal_time", "#009E73", (0, (1.5, 1.5)), "^"),
)


# two widths above the panel are at least this share of its width apart
LABEL_GAP = 0.08


def draw(answer: Mapping[str, Any], out_dir: str | PathLike[str]) -> list[Any]:
    """``guide.png`` and ``guide.svg``: one panel per budget, nats above the best shape against depth.

    ``answer`` is that of :func:`dwsweep.guide.answer`; no file where it holds no budget with shapes.
    """
    rows = [row for row in answer["budgets"] if row.get("candidates")]
    if not rows:
        return []
    with style.styled():
        figure = style.figure(6.4, 0.5 + 3.5 * len(rows))
        for axes, row in zip(figure.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
            _panel(axes, row, answer["assumptions"])
        return style.save(figure, paths.make_directory(paths.as_path(out_dir)), "guide")


def _panel(axes: Axes, row: Mapping[str, Any], assumptions: Mapping[str, Any]) -> None:
    shapes = sorted(row["candidates"], key=lambda shape: shape["depth"])
    depths = [shape["depth"] for shape in shapes]
    top = 0.0
    for label, key, colour, line, marker in CURVES:
        points = [(depth, shape[key]) for depth, shape in zip(depths, shapes, strict=True) if shape[key] is not None]
        if not points:
            continue
        top = max(top, *(value for _, value in points))
        if key == "nats_equal_time":
            label += f" on one {assumptions['training_device']}, rate {assumptions['training_rate']}"
        axes.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker=marker, label=label)
    if row["depth_low"] is not None and row["depth_high"] is not None:
        axes.axvspan(
            row["depth_low"], row["depth_high"], color="#0072B2", alpha=0.12, label="best depth at equal size, 95 %"
        )
    top = 1.06 * top or 1e-3
    axes.set_ylim(-0.04 * top, top)  # the best shapes lie on zero: their markers are shown whole
    for near in row["near_optimal"]:
        if near["nats"] < top:
            axes.axhline(near["nats"], color=style.FAINT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            share, across = f" {near['percent']:g} % of the loss", axes.get_yaxis_transform()
            axes.text(1.0, near["nats"], share, transform=across, va="center", fontsize=7.5, color=style.FAINT)
    _widths(axes, shapes)
    counted = "parameters, embeddings included" if row["total"] else "non-embedding parameters"
    far = "" if row["extrapolation_factor"] <= 1 else f", a projection by {format_factor(row['extrapolation_factor'])}×"
    basis = "" if not row["loss_tag"].startswith("ASSUMED") else "; nats from ASSUMED slopes"
    axes.set_title(f"{row['name']} {counted}\n{row['source']}{far}{basis}", loc="left")
    axes.set_xlabel("depth L")
    axes.set_ylabel("nats above the best shape")
    axes.legend(loc="upper center", frameon=True)


def _widths(axes: Axes, shapes: Sequence[Mapping[str, Any]]) -> None:
    """The width of each shape above its depth, those left out that would touch a neighbour."""
    low, high = axes.get_xlim()
    kept: list[Mapping[str, Any]] = []
    for shape in shapes:
        if not kept or shape["depth"] - kept[-1]["depth"] >= LABEL_GAP * (high - low):
            kept.append(shape)
    above = axes.secondary_xaxis("top")
    above.set_xticks([shape["depth"] for shape in kept], [f"{shape['width']}" for shape in kept])
    above.tick_params(length=2)
    above.set_xlabel("width d_x of the shapes")
