"""Optional logs besides metrics.jsonl: TensorBoard and Weights & Biases, off unless ``execution.loggers`` asks."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.plan import Pack
from dwsweep.records.reader import to_dict
from dwsweep.records.run_files import MetricsRow
from dwsweep.sweep.sweep_directory import SweepStore

if TYPE_CHECKING:
    import wandb
    from tensorboardX import SummaryWriter

_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class Logger(Protocol):
    """Where rows of metrics go besides the run's own files."""

    def resumed(self, run_id: str, step: int) -> None:
        """The run resumes from this step; what was logged beyond it comes again."""

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        """Rows with ``step`` and numbers."""

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        """The run ended; ``result`` holds its figures."""

    def close(self) -> None:
        """Everything logged is on disk afterwards."""


def check(names: Sequence[str]) -> None:
    """Refuse loggers that are not installed, before anything trains.

    Raises:
        InputError: names the extra to install.
    """
    lines = [
        f"execution.loggers: {name!r}; its package is not installed: pip install 'dwsweep[{name}]'"
        for name in names
        if importlib.util.find_spec(_PACKAGES[name]) is None
    ]
    if lines:
        raise InputError(*lines)


def make(names: Sequence[str], store: SweepStore, pack: Pack) -> list[Logger]:
    """The loggers by name, for the runs of one pack."""
    check(names)
    makers: dict[str, Callable[[SweepStore, Pack], Logger]] = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}
    return [makers[name](store, pack) for name in names]


class TensorBoardLogger:
    """Event files under ``DIR/tensorboard/<run_id>``."""

    def __init__(self, store: SweepStore, pack: Pack) -> None:
        self.root = store.directory / "tensorboard"
        self._writers: dict[str, SummaryWriter] = {}
        self._purge: dict[str, int] = {}

    def _writer(self, run_id: str) -> SummaryWriter:
        if run_id not in self._writers:
            from tensorboardX import SummaryWriter

            # purge_step hides what an interrupted attempt had logged beyond its checkpoint
            purge = self._purge.get(run_id)
            # files are named by the second and the host: an attempt within a second of the last would overwrite it
            suffix = f".{time.time_ns()}.{os.getpid()}"
            self._writers[run_id] = SummaryWriter(str(self.root / run_id), purge_step=purge, filename_suffix=suffix)
        return self._writers[run_id]

    def resumed(self, run_id: str, step: int) -> None:
        self._purge[run_id] = step + 1

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        writer = self._writer(run_id)
        for row in rows:
            for name, value in _scalars(row):
                writer.add_scalar(f"train/{name}", value, row["step"])

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        writer = self._writer(run_id)
        for name, value in _scalars(result):
            writer.add_scalar(f"result/{name}", value, result.get("steps"))
        self._writers.pop(run_id).close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class WandbLogger:
    """One W&B run per run, under ``DIR/wandb``; ``WANDB_MODE=offline`` keeps everything on disk."""

    def __init__(self, store: SweepStore, pack: Pack) -> None:
        self.store = store
        self.pack = pack
        self._runs: dict[str, wandb.Run] = {}

    def _run(self, run_id: str) -> wandb.Run:
        if run_id not in self._runs:
            import wandb

            root, config = self.store.directory, self.store.config(run_id)
            folder = None if paths.is_remote(root) else str(root)
            self._runs[run_id] = wandb.init(
                project="dwsweep",
                group=self.pack.shape.label,
                name=run_id,
                id=re.sub(r"[^A-Za-z0-9_-]", "_", run_id),
                resume="allow",
                config=to_dict(config) if config else None,
                dir=folder,
                reinit="create_new",  # the replicas of a pack log side by side
                settings=wandb.Settings(console="off", silent=True),
            )
        return self._runs[run_id]

    def resumed(self, run_id: str, step: int) -> None:
        """Nothing: W&B itself ignores steps that it already has."""

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        run = self._run(run_id)
        for row in rows:
            run.log(dict(_scalars(row)), step=row["step"])

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        run = self._run(run_id)
        run.summary.update(dict(_scalars(result)))
        self._runs.pop(run_id).finish()

    def close(self) -> None:
        for run in self._runs.values():
            run.finish(exit_code=1)  # it did not reach its end
        self._runs.clear()


def _scalars(row: Mapping[str, object]) -> list[tuple[str, float]]:
    return [(k, float(v)) for k, v in row.items() if k != "step" and isinstance(v, int | float)]
