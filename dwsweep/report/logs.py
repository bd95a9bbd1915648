"""Logs of a sweep on its page: training curves, and the conditioning of attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dwsweep import paths
from dwsweep.records.metrics import metrics_of
from dwsweep.report import runs_table
from dwsweep.report.document import Figure, Part
from dwsweep.report.figures import runs as run_figures
from dwsweep.report.figures import style
from dwsweep.report.figures.runs import Conditions, TrainingCurve
from dwsweep.report.runs_table import Row


class Logged(NamedTuple):
    """Logs of a sweep, as far as its page draws them."""

    curves: list[TrainingCurve]
    conditions: list[Conditions]
    left_out: list[str]  # one warning per log that lacks lines


def logged(every: Sequence[Row], shown: Sequence[Row], root: Any) -> Logged:
    """Training curves of the ``drawn`` runs among ``shown``, and the conditioning logged by any run of ``every``. No
    other log is read."""
    curves, conditions, left_out = [], [], []
    chosen = runs_table.drawn(shown)
    for row in every:
        run_id = row.get("run_id")
        if not run_id:
            continue
        folder = root / "runs" / run_id
        if run_id not in chosen and not _logs_conditioning(folder / "metrics.jsonl"):
            continue
        metrics = metrics_of(folder)
        rows = metrics.rows
        if warning := metrics.left_out(run_id):
            left_out.append(warning)
        if found := run_figures.conditions(row, rows):
            conditions.append(found)
        if run_id not in chosen:
            continue
        diverged = row.get("status") == "diverged"
        curve = run_figures.training_curve(run_id, int(row["depth"]), float(row["n_params"]), diverged, rows)
        if curve is not None:
            curves.append(curve)
    return Logged(curves, conditions, left_out)


def _logs_conditioning(path: Any) -> bool:
    """Test that a log may hold conditioning, by its first row; a log in a bucket is always read whole."""
    if paths.is_remote(path):
        return True
    try:
        paths.check_file(path)
        with open(path, "rb") as file:
            return b'"conditioning' in file.readline(1 << 20)
    except OSError:
        return False


def conditioning(logged: Sequence[Conditions]) -> list[Part]:
    """Figure of the conditioning of attention, all arms together; empty if no run logged it."""
    if not logged:
        return []
    drawn = style.svg(lambda: run_figures.over_training(logged))
    caption = (
        "Condition number of the outputs of a block's heads, side by side, over the positions of a window: the ratio "
        "of its largest to its smallest singular value (geometric mean over held-out windows, layers and runs). "
        "Each depth and number of heads has its largest size; narrower nets have fewer columns, compare at one width."
    )
    return [Figure(drawn, "Condition number of attention", caption)]


def training_figure(curves: Sequence[TrainingCurve], runs: Sequence[Row]) -> list[Part]:
    """Figure of training curves; ``runs``: those on the page."""
    if not curves:
        return []
    drawn = style.svg(lambda: run_figures.training_curves(curves))
    caption = "One thin line per run, averaged over bins of ln step; lighter is larger. Dashed with a cross: diverged."
    if len(curves) < len(runs):
        caption += f" {len(curves):,} of {len(runs):,} runs: of each shape drawn, the run of lowest held-out loss."
    return [Figure(drawn, "Training loss against step, one panel per depth", caption)]
