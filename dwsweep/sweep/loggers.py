"""Loggers beside metrics.jsonl: TensorBoard and Weights & Biases, off unless ``execution.loggers`` asks."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dwsweep import paths
from dwsweep.errors import InputError, install
from dwsweep.plan import Pack
from dwsweep.records.metrics import MetricsRow, read_metrics
from dwsweep.records.record import to_dict
from dwsweep.sweep.directory import SweepStore

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class Logger(Protocol):
    """Destination of the rows of metrics of a pack's runs. A run that is resumed logs some rows a second time."""

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        """Log rows with ``step`` and numbers."""

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        """Log the end of a run; ``result`` holds its figures."""

    def close(self) -> None:
        """Close; everything logged is on disk afterwards."""


def check(names: Sequence[str]) -> None:
    """Refuse loggers that are not installed, before anything trains.

    Raises:
        InputError: names the extra to install.
    """
    lines = [
        f"execution.loggers: {name!r}; its package is not installed: {install(name)}"
        for name in names
        if importlib.util.find_spec(_PACKAGES[name]) is None
    ]
    if lines:
        raise InputError(*lines)


def make(names: Sequence[str], store: SweepStore, pack: Pack) -> dict[str, Logger]:
    """The loggers by name, for the runs of one pack; each imports its package when it has something to log."""
    made: dict[str, Logger] = {"tensorboard": TensorBoardLogger(store), "wandb": WandbLogger(store, pack)}
    return {name: made[name] for name in names}


class TensorBoardLogger:
    """TensorBoard logger: event files under ``DIR/tensorboard/<run_id>``."""

    def __init__(self, store: SweepStore) -> None:
        self.root = store.directory / "tensorboard"
        self._writers: dict[str, SummaryWriter] = {}

    def _write(self, run_id: str, group: str, row: Mapping[str, object], step: Any) -> None:
        if run_id not in self._writers:
            from tensorboardX import SummaryWriter

            # files are named by the second and the host: an attempt within a second of the last would overwrite it;
            # purge_step hides rows that an interrupted attempt logged beyond its checkpoint
            suffix = f".{time.time_ns()}.{os.getpid()}"
            self._writers[run_id] = SummaryWriter(str(self.root / run_id), purge_step=step, filename_suffix=suffix)
        for name, value in _scalars(row):
            self._writers[run_id].add_scalar(f"{group}/{name}", value, step)

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        for row in rows:
            self._write(run_id, "train", row, row["step"])

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        self._write(run_id, "result", result, result.get("steps"))
        self._writers.pop(run_id).close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class WandbLogger:
    """W&B logger, under ``DIR/wandb``; ``WANDB_MODE=offline`` keeps everything on disk.

    A run here is a run there. It is logged from its metrics.jsonl where a killed attempt did not hand over all rows,
    and no step twice.
    """

    def __init__(self, store: SweepStore, pack: Pack) -> None:
        self.store, self.pack = store, pack
        self._runs: dict[str, Any] = {}
        self._next: dict[str, int] = {}  # first step that W&B does not hold

    def _begin(self, run_id: str) -> None:
        import wandb

        config = self.store.config(run_id)
        with contextlib.redirect_stdout(io.StringIO()):
            run = wandb.init(
                project="dwsweep",
                group=self.pack.shape.label,
                name=run_id,
                id=re.sub(r"[^A-Za-z0-9_-]", "_", run_id),
                config=to_dict(config) if config else None,
                resume="allow",
                dir=None if paths.is_remote(self.store.directory) else str(self.store.directory),
                reinit="create_new",  # replicas of a pack log side by side
                settings=wandb.Settings(console="off", silent=True),
            )
        self._runs[run_id], self._next[run_id] = run, run.step

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        if run_id not in self._runs:
            self._begin(run_id)
            rows = [*read_metrics(self.store.metrics_path(run_id)).rows, *rows]
        for row in rows:
            if row["step"] >= self._next[run_id]:
                self._runs[run_id].log(dict(_scalars(row)), step=row["step"])
                self._next[run_id] = row["step"] + 1

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        self.metrics(run_id, ())
        run = self._runs.pop(run_id)
        run.summary.update(dict(_scalars(result)))  # the held-out loss in place of the last training loss
        run.finish()

    def close(self) -> None:
        for run in self._runs.values():
            run.finish(exit_code=1)  # the run did not reach its end
        self._runs.clear()


def _scalars(row: Mapping[str, object]) -> list[tuple[str, float]]:
    return [(k, float(v)) for k, v in row.items() if k != "step" and isinstance(v, int | float)]
