"""Tables in which depth and width are one variable: each depth has one width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dwsweep.fit.data.rows import grouped
from dwsweep.fit.data.runs import Run
from dwsweep.fit.data.shape import SAME_SIZE
from dwsweep.text import join

ROUNDED = 1.05  # largest over smallest N of nets of one depth that are one size


def width_follows(runs: Sequence[Run]) -> str:
    """Reason for no statement about shape, as a sentence: each depth has one width, which rises or falls with it (or
    one width has all depths), while the sizes differ. Empty otherwise."""
    of_depth = grouped({(run.depth, run.n_params) for run in runs})
    if len(of_depth) < 2 or any(max(sizes) > ROUNDED * min(sizes) for sizes in of_depth.values()):
        return ""
    depths = sorted(of_depth)
    sizes = [float(np.mean(of_depth[depth])) for depth in depths]
    width_of = {run.depth: run.width for run in runs}
    widths = np.array([width_of[depth] for depth in depths])
    steps = np.sign(np.diff(widths))
    if np.ptp(np.log(sizes)) <= SAME_SIZE or not (np.all(steps >= 0) or np.all(steps <= 0)):
        return ""
    pairs = join((f"{depth}×{width:g}" for depth, width in zip(depths, widths, strict=True)), 4)
    said = "shape has no measured effect, which needs a size with two depths or more"
    return f"depth and width are one variable here (one width at each depth, {pairs}): {said}"
