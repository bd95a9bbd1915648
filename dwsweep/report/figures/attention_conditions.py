"""How well conditioned the attention of each block is: through training, and by layer at its end.

κ is the condition number of what a block's heads put out, which runs log where ``train.conditioning`` asks for it (see
``dwsweep.model.conditioning``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dwsweep.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import Floats

BEFORE = 0.5  # where the start is drawn on an axis of ln step
MOST_LINES = 12
COLOURS = (style.OWN, *style.RIVALS, "#56B4E9", style.INK)


@dataclass(frozen=True)
class Conditions:
    """Of one run: steps (P,), 0 the start; kappa (P, L)."""

    arm: str
    depth: int
    heads: int
    n_params: float
    step: Floats
    kappa: Floats


def conditions(row: Mapping[str, str], metrics: Iterable[Mapping[str, Any]]) -> Conditions | None:
    """Of a run, by its row of results.csv and its metrics.jsonl; None where none was logged."""
    import numpy as np

    depth, found = int(float(row["depth"])), dict[int, list[float]]()
    for line in metrics:
        for step, name in ((0, "conditioning_at_start"), (line.get("step"), "conditioning")):
            if isinstance(step, int) and _usable(line.get(name), depth):
                found[step] = line[name]
    if not found:
        return None
    steps = sorted(found)
    return Conditions(
        row.get("arm") or "",
        depth,
        int(float(row.get("heads") or 0)),
        float(row["n_params"]),
        np.array(steps, float),
        np.array([found[step] for step in steps]),
    )


def _usable(values: Any, depth: int) -> bool:
    if not isinstance(values, list) or len(values) != depth:
        return False
    return all(isinstance(value, int | float) and 1.0 <= value < math.inf for value in values)


def shown(runs: Sequence[Conditions]) -> dict[tuple[str, int, int], list[Conditions]]:
    """(arm, depth, heads) → its runs of the largest size: the lines of the figure, at most ``MOST_LINES``."""
    groups: dict[tuple[str, int, int], list[Conditions]] = defaultdict(list)
    for run in runs:
        groups[run.arm, run.depth, run.heads].append(run)
    kept = list(groups)[:MOST_LINES]
    return {key: [r for r in groups[key] if r.n_params == max(s.n_params for s in groups[key])] for key in kept}


def over_training(runs: Sequence[Conditions]) -> Figure:
    """Left: κ against step, the geometric mean over layers and runs. Right: at the end, by layer."""
    from matplotlib.ticker import MaxNLocator

    lines = shown(runs)
    named = {
        "arm": len({arm for arm, _, _ in lines}) > 1,
        "heads": len({heads for _, _, heads in lines}) > 1,
    }
    arms = list(dict.fromkeys(arm for arm, _, _ in lines))
    looks = style.depth_styles(sorted({depth for _, depth, _ in lines}))
    made = style.figure(8.0, 3.6 + 0.13 * len(lines))
    left, right = style.panels(made, 2, 2, sharey=True)
    for (arm, depth, heads), members in lines.items():
        colour = COLOURS[arms.index(arm) % len(COLOURS)] if named["arm"] else looks[depth]["color"]
        label = ", ".join([*([arm] if named["arm"] else []), f"L {depth}", *([f"H {heads}"] if named["heads"] else [])])
        _line(left, right, members, colour, looks[depth]["linestyle"], label)
    style.log_scale(left, "x", "y")
    left.set_xlabel("optimizer step (leftmost: before the first)")
    left.set_ylabel("condition number κ of a block's attention")
    right.set_xlabel("layer, at the end of training")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    made.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return style.settle(made)


def _line(left: Axes, right: Axes, members: Sequence[Conditions], colour: Any, linestyle: Any, label: str) -> None:
    import numpy as np

    longest = max(members, key=lambda run: run.step[-1]).step
    whole = [run for run in members if np.array_equal(run.step, longest)]  # a run that ended early has fewer steps
    logs = np.log(np.stack([run.kappa for run in whole]))  # (runs, P, L)
    over_layers = np.exp(logs.mean(axis=(0, 2)))
    left.plot(np.maximum(longest, BEFORE), over_layers, color=colour, linestyle=linestyle, marker="o", label=label)
    layers = np.arange(1, logs.shape[2] + 1)
    right.plot(layers, np.exp(logs[:, -1].mean(axis=0)), color=colour, linestyle=linestyle, marker="o")
