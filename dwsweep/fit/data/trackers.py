"""Trackers: the runs of a Weights & Biases project or of an MLflow experiment, read through the tracker's own API.

``wandb:ENTITY/PROJECT`` and ``mlflow:EXPERIMENT`` take the place of a table. A row is a run: name, status,
settings, and the last value of each metric. Server and key are found by the tracker itself (``wandb login``,
``MLFLOW_TRACKING_URI``). The package of a tracker is imported when its runs are read, and by nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dwsweep.errors import InputError, install
from dwsweep.fit.data.cell import flat
from dwsweep.text import one_line, printable

SECONDS = 60  # time limit for an answer of W&B


def tracker_of(name: str) -> str | None:
    """``wandb`` or ``mlflow`` if ``name`` names runs of it; None for anything else."""
    kind, colon, _ = name.partition(":")
    return kind if colon and kind in TRACKERS else None


def name_of(name: str) -> str:
    """Name of the project or the experiment in letters that a folder may have."""
    return re.sub(r"[^\w.-]+", "-", name.partition(":")[2].rpartition("/")[2]).strip("-.") or "runs"


def read(name: str) -> list[dict[str, Any]]:
    """Rows of the runs, one a run.

    Raises:
        InputError: the package is not installed, the form is wrong, or the tracker has no such runs or does not answer.
    """
    kind, _, place = name.partition(":")
    said = f"table: {printable(name)};"
    form, example, install_it, runs_of = TRACKERS[kind]
    if not re.fullmatch(form, place):
        raise InputError(f"{said} must be {kind}:{example}")
    try:
        rows = list(runs_of(place, said))
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("", kind):
            raise
        raise InputError(f"{said} needs the package {kind}: {install_it}") from None
    except InputError:
        raise
    except Exception as error:  # errors of the client, its HTTP library and their dependencies
        raise InputError(f"{said} cannot be read ({one_line(error)})") from None
    if not rows:
        raise InputError(f"{said} has no runs; give one with runs that log a loss, a depth and a width")
    return rows


def _wandb(place: str, said: str) -> Iterator[dict[str, Any]]:
    import wandb

    for run in wandb.Api(timeout=SECONDS).runs(place):
        config = {key: value for key, value in dict(run.config).items() if not key.startswith("_")}
        summary = {key: value for key, value in dict(run.summary).items() if not key.startswith("_") or key == "_step"}
        row = _row(run.name, run.state, config, summary)
        swept = getattr(run, "sweep", None)
        yield {**row, "sweep_id": swept.id} if swept is not None else row


def _mlflow(place: str, said: str) -> Iterator[dict[str, Any]]:
    import mlflow

    experiment = mlflow.get_experiment_by_name(place)
    if experiment is None:
        raise InputError(f"{said} no such experiment at {mlflow.get_tracking_uri()} (MLFLOW_TRACKING_URI sets another)")
    for run in mlflow.search_runs(experiment_ids=[experiment.experiment_id], output_format="list"):
        yield _row(run.info.run_name, run.info.status, run.data.params, run.data.metrics)


def _row(name: Any, status: Any, settings: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """One run: a setting with the name of a metric stands as ``config.NAME``; values in values have dotted names."""
    values = dict(flat(metrics))
    row = {"run": name, "status": str(status).lower()}
    for key, value in flat(settings):
        row[f"config.{key}" if key in values or key in row else key] = value
    return {**row, **{f"summary.{key}" if key in ("run", "status") else key: value for key, value in values.items()}}


TRACKERS: dict[str, tuple[str, str, str, Callable[[str, str], Iterator[dict[str, Any]]]]] = {
    "wandb": (r"[^/\s]+/[^/\s]+", "ENTITY/PROJECT", install("wandb"), _wandb),
    "mlflow": (r"\S.*", "EXPERIMENT", "pip install mlflow", _mlflow),
}
"""Tracker → pattern and form of a place, how to install its package, its runs at a place."""
