"""Style of all figures: colours, line styles, ticks, label placement, deterministic saving.

Depth is an ordered quantity, so depths take a perceptually uniform scale (inferno, cut where it has 3:1 of contrast to
white) whose lightness alone orders them: grey prints and colour-blind readers lose nothing. Markers and line styles
repeat the same information. Laws and verdicts take the Okabe–Ito colours.

Every figure is WIDTH inches wide and no text is below TEXT points, so that a telephone shows it at 9 px or more: a page
390 px wide leaves 335 px to a figure.

Matplotlib is imported inside the functions, and pyplot (global state, display backends) never.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dwsweep import paths
from dwsweep.interval import Interval
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Item = TypeVar("Item")

WIDTH = 4.6  # inches
TEXT = 9.0  # points
DPI = 160
LINE = 66  # characters of a line of full width
COLUMNS = 2  # most panels side by side
DEPTH_COLOURS = (0.05, 0.64)  # range of the colour map inferno
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", ">", "d")
Look = dict[str, Any]
"""Keywords of a line in Matplotlib: color, linestyle, and marker or linewidth."""
LINES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (1.5, 1.2)), (0, (9, 2, 3, 2)))
INK = "#222222"
FAINT = "#767676"
# Okabe and Ito's palette, by its meaning here
OWN = "#0072B2"  # the law of this sweep
OTHERS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00")

SETTINGS: Any = {  # beside Matplotlib's defaults
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with Matplotlib: the same figure on every machine
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # fixed place: measuring the content above takes a sixth of the drawing time
    "axes.edgecolor": "#555555",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.dpi": DPI,  # texts measured for the layout need not be measured again for the PNG
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "lines.markersize": 4.5,
    "text.color": INK,
    "text.parse_math": False,  # names of arms and tables may hold dollar signs
    "axes.labelcolor": INK,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.borderaxespad": 0.2,
    "figure.labelsize": TEXT,
    "figure.titlesize": TEXT,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "white",
    "legend.fancybox": False,
    "svg.hashsalt": "dwsweep",  # fixed salt: otherwise element ids differ from run to run
    "svg.fonttype": "path",  # letters as outlines: a page with the figure needs no font
    "path.simplify_threshold": 0.2,
}


FILES: dict[str, dict[str, Any]] = {  # no date, no version; beyond level 3 zlib takes twice as long for no fewer bytes
    "png": {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
}


def band(axes: Axes, x: Floats, low: Floats, high: Floats, color: str, alpha: float = 0.18) -> None:
    """Draw a pale area between two ends."""
    axes.fill_between(x, low, high, color=color, alpha=alpha, linewidth=0)


@contextmanager
def styled() -> Iterator[None]:
    """Context of the house style, for figures made and saved inside it, whatever the user's own settings. A character
    that the font lacks becomes a box without a warning, since Matplotlib's warning would not name the table."""
    from matplotlib import style

    with style.context(["default", SETTINGS]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        yield


def figure(height: float) -> Figure:
    """New figure of a height in inches, without a display; drawing solves its layout."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def render(made: Figure, kind: str) -> bytes:
    """Bytes of a figure as ``png`` or ``svg``, equal for equal figures (no date, fixed ids)."""
    buffer = io.BytesIO()
    made.savefig(buffer, format=kind, **FILES[kind])
    return buffer.getvalue()


def picture(draw: Callable[[], Figure], kind: str = "svg") -> bytes:
    """Bytes of the figure that ``draw`` makes in the house style."""
    with styled():
        return render(draw(), kind)


def lines(text: str, parts: int = 1) -> str:
    """Text wrapped to one of ``parts`` columns, with its own line breaks."""
    return "\n".join(
        part for line in text.replace(" %", "\u00a0%").splitlines() for part in textwrap.wrap(line, LINE // parts)
    )


def note(made: Figure, text: str) -> None:
    """Write a note on how to read the figure above its panels."""
    made.suptitle(lines(text), x=0.01, ha="left", color=FAINT)


def panels(
    number: int, height: Callable[[int], float], sharex: bool = False, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """New figure with ``number`` panels in rows of COLUMNS; the lowest of each column carries the ticks of a shared x
    axis. height: inches of so many rows."""
    columns = min(number, COLUMNS)
    rows = -(-number // columns)
    made = figure(height(rows))
    every = made.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).ravel().tolist()
    for place, axes in enumerate(every):
        if place >= number:
            axes.set_axis_off()
        elif place + columns >= number:
            axes.tick_params(labelbottom=True)
    return made, every[:number]


def files(out_dir: Path, name: str) -> list[Path]:
    """File names of a figure: ``name.png`` and ``name.svg``."""
    return [out_dir / f"{name}.png", out_dir / f"{name}.svg"]


def save(drawers: Mapping[str, Callable[[], Figure]], out_dir: Any) -> list[Path]:
    """Write the ``files`` of each figure, in this order; returns their paths."""
    folder, written = paths.as_path(out_dir), []
    if drawers:
        paths.make_directory(folder)
    with styled():
        for name, draw in drawers.items():
            made = draw()
            for path in files(folder, name):
                paths.write_atomic(path, render(made, path.suffix[1:]))
                written.append(path)
    return written


def depth_styles(depths: Sequence[float]) -> dict[float, Look]:
    """Choose the line style of each depth or size, small dark to large light."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    low, high = DEPTH_COLOURS
    scale = colormaps["inferno"]
    ordered = sorted(set(depths))
    last = max(len(ordered) - 1, 1)
    colours = [to_hex(scale(low + (high - low) * place / last)) for place in range(len(ordered))]
    return {depth: _look(place, colours) for place, depth in enumerate(ordered)}


def series(place: int) -> Look:
    """Look of a line that is no depth: of an arm, a law, a count of tokens."""
    return _look(place, (OWN, *OTHERS, INK))


def _look(place: int, colours: Sequence[str]) -> Look:
    kinds: dict[str, Sequence[Any]] = {"color": colours, "marker": MARKERS, "linestyle": LINES}
    return {name: values[place % len(values)] for name, values in kinds.items()}


def plain(value: float) -> str:
    """Format a width or a depth: 768, 12,288, 23.5."""
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def evenly(items: Sequence[Item], at_most: int) -> list[Item]:
    """At most ``at_most`` of ``items``, evenly chosen, the first and the last included."""
    if len(items) <= at_most:
        return list(items)
    return [items[round(k * (len(items) - 1) / (at_most - 1))] for k in range(at_most)]


def log_ticks(low: float, high: float, at_most: int = 7) -> list[float]:
    """Round tick places on a log axis from ``low`` to ``high`` (both > 0): the finest set with at most ``at_most``.

    Decades alone leave a narrow axis bare, and Matplotlib's own minor labels run into each other.
    """
    from matplotlib.ticker import LogLocator

    best: list[float] = []
    for subs in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        found = LogLocator(subs=subs, numticks=at_most + 2).tick_values(low, high)
        places = [float(place) for place in found if low <= place <= high]
        if len(best) < len(places) <= at_most:
            best = places
    return best or [low, high]


def log_axis(axes: Axes, side: str, low: float, high: float, label: Any = format_count, at_most: int = 7) -> None:
    """Put a log scale from ``low`` to ``high`` with round, readable ticks on ``side`` (x or y) of ``axes``."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set(**{f"{side}scale": "log", f"{side}lim": (low, high)})
    axis: Axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(log_ticks(low, high, at_most)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _place: label(value)))


def interval_mark(
    axes: Axes,
    x: float,
    interval: Interval,
    color: str = INK,
    marker: str = "o",
    face: str = "white",
    size: float = 5.5,
) -> None:
    """Draw an interval at ``x`` with its value. An open end runs to the edge of ``axes`` with an arrow, as does an end
    beyond the edge; set limits before."""
    first, last = sorted(axes.get_ylim())
    if not interval.unbounded:
        start = first if interval.low is None else interval.low
        stop = last if interval.high is None else interval.high
        if not axes.get_autoscaley_on():
            start, stop = min(max(start, first), last), max(min(stop, last), first)
        axes.plot([x, x], [start, stop], color=color, solid_capstyle="butt", zorder=3)
        for end, place, arrow in ((interval.low, start, "v"), (interval.high, stop, "^")):
            cap = "_" if end == place else arrow
            axes.plot([x], [place], marker=cap, color=color, markersize=5.5, zorder=3, clip_on=False)
    if interval.value is not None:
        axes.plot([x], [interval.value], marker=marker, markersize=size, color=face, markeredgecolor=color, zorder=4)


def estimates(
    axes: Axes,
    x: Sequence[float],
    found: Sequence[Interval],
    look: Look,
    label: str,
    filled: Callable[[Interval], bool],
) -> None:
    """Draw values joined by a line, each with its interval; a mark is open unless ``filled``."""
    values = np.array([one.value for one in found], dtype=float)  # NaN for None
    known, color, marker = np.isfinite(values), look["color"], look["marker"]
    axes.plot(np.array(x)[known], values[known], **{**look, "marker": None}, linewidth=1.0)
    for at, one in zip(x, found, strict=True):
        interval_mark(axes, at, one, color, marker=marker, face=color if filled(one) else "white", size=4.5)
    axes.plot([], [], **look, label=label)


def settle(made: Figure) -> Figure:
    """Solve the layout once, for good: otherwise every file would solve it again."""
    engine = made.get_layout_engine()
    if engine is not None:
        engine.execute(made)
    made.set_layout_engine(None)
    return made
