"""Recorder of a sweep: writes a pack's results into its runs' directories (``train.Recorder``).

A run that is done or diverged is frozen: when its pack resumes from an older checkpoint and passes its end a second
time, the first record stands.

Optional logs besides metrics.jsonl: TensorBoard, Weights & Biases and Trackio, off unless ``execution.loggers`` asks.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib.util
import io
import itertools
import math
import netrc
import os
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dwsweep import jsonl, paths
from dwsweep.errors import InputError, install
from dwsweep.plan import Pack
from dwsweep.plan.schedule import cooldown_start
from dwsweep.records.metrics import Metrics, MetricsRow, read_metrics
from dwsweep.records.pack import PackProgress, StartFacts
from dwsweep.records.record import to_dict
from dwsweep.records.run import DIVERGED, FINAL, INTERRUPTED, RUNNING, RunResult, RunState
from dwsweep.sweep import events
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Emit
from dwsweep.text import one_line
from dwsweep.train import Recorder

if TYPE_CHECKING:
    import trackio
    import wandb
    from tensorboardX import SummaryWriter


EVALUATING_SECONDS = 10.0  # interval between two reports during the evaluation
PROGRESS_SECONDS = 1.0  # interval between two writes of progress.json


class RunRecorder(Recorder):
    """Recorder of a pack: writes its runs' files and emits events for watchers.

    ``frozen`` are runs of the pack that another pack answers for.

    Raises:
        OSError: from every method, when a file cannot be written; training must not go on unrecorded.
    """

    def __init__(
        self,
        store: SweepStore,
        pack: Pack,
        emit: Emit,
        loggers: Sequence[Logger] = (),
        frozen: Collection[str] = (),
    ) -> None:
        self.store = store
        self.pack = pack
        self.emit = emit
        self.loggers = loggers
        self.run_ids = pack.run_ids
        self._frozen = {name for name in self.run_ids if name in frozen or store.state(name).state in FINAL}
        self._writers: dict[str, jsonl.LineWriter] = {}
        self._last_step: dict[str, int] = {}
        self._last_loss: dict[str, float | None] = {}
        self._progress = PackProgress(steps=pack.branch_steps[-1])
        self._has_step = False
        self._written_at = float("-inf")
        self._evaluated_at = float("-inf")
        self._missed: set[str] = set()  # runs whose lost rows were reported
        self._cut = False  # True once this attempt has cut records of earlier attempts beyond its start

    # interface to the trainer

    def compiling(self, microbatch: int) -> None:
        self.emit(events.Compiling(microbatch))

    def evaluating(self, share: float) -> None:
        now = time.monotonic()
        if now - self._evaluated_at >= EVALUATING_SECONDS:
            self._evaluated_at = now
            self.emit(events.Evaluating(share))

    def started(self, facts: StartFacts) -> None:
        step = facts.step
        if not self._cut:
            self.resumed(step)
        self._progress = replace(self._progress, started=facts, step=step)
        self._has_step = True
        for name in self.unfinished():
            self.store.write_state(name, RunState(RUNNING, step=step, pack_id=self.pack.pack_id))
        self._write_progress()
        self.emit(facts)

    def resumed(self, step: int) -> None:
        self._cut = True
        for name in self.unfinished():
            path = self.store.metrics_path(name)
            jsonl.LineWriter(path).flush()
            found = read_metrics(path)
            kept = [row for row in found.rows if row["step"] <= step]
            if found.lost and path.exists():
                paths.set_aside(path)
            missing = lost_rows(found, kept, self._recorded_to(name, step), self.pack.execution.log_steps)
            if missing and name not in self._missed:
                self._missed.add(name)
                self.note(f"runs/{name}/metrics.jsonl: {missing}; the run resumes from its checkpoint at step {step:,}")
            # needed even if nothing is dropped: a kill may have left half a line at the end
            if found.rows or found.lost or path.exists():
                jsonl.rewrite_lines(path, kept)
            self._last_step[name] = kept[-1]["step"] if kept else 0
            self._writers.pop(name, None)
            for logger in self.loggers:
                logger.resumed(name, step)
        self.emit(events.Resumed(step))

    def metrics(self, run_id: str, rows: list[MetricsRow]) -> None:
        if run_id in self._frozen:
            return
        last = self._last_step.get(run_id, 0)
        fresh = [row for row in rows if row["step"] > last]
        if not fresh:
            return
        if run_id not in self._writers:
            paths.make_directory(self.store.run_directory(run_id))
            self._writers[run_id] = jsonl.LineWriter(self.store.metrics_path(run_id))
        self._writers[run_id].append(fresh)
        self._last_step[run_id] = fresh[-1]["step"]
        self._last_loss[run_id] = fresh[-1].get("loss")
        for logger in self.loggers:
            logger.metrics(run_id, fresh)

    def progress(self, step: int, steps: int, tokens_per_second: float, losses: list[float]) -> None:
        self._progress = replace(
            self._progress, step=step, steps=steps, tokens_per_second=tokens_per_second, losses=tuple(losses)
        )
        self._has_step = True
        if time.monotonic() - self._written_at >= PROGRESS_SECONDS:
            self._write_progress()
        self.emit(self._progress)

    def finished(
        self, run_id: str, result: RunResult, documents: np.ndarray, params: Mapping[str, np.ndarray] | None = None
    ) -> None:
        if run_id in self._frozen:
            return
        steps = result.steps or 0
        if not math.isfinite(result.loss):  # a result is a finite loss
            self._diverged(run_id, steps, result.loss, f"held-out loss {result.loss:g} after step {steps}")
            return
        self._close(run_id)
        self.store.finish(run_id, self.pack.pack_id, result, documents, params)
        self._frozen.add(run_id)
        for logger in self.loggers:
            logger.finished(run_id, to_dict(result))

    def diverged(self, run_id: str, step: int, loss: float) -> None:
        if run_id not in self._frozen:
            self._diverged(run_id, step, loss, f"training loss {loss:g} at step {step}")

    def _diverged(self, run_id: str, step: int, loss: float, cause: str) -> None:
        self._close(run_id)
        known = loss if math.isfinite(loss) else None  # JSON has no NaN
        state = RunState(DIVERGED, step=step, loss=known, pack_id=self.pack.pack_id, cause=cause)
        self.store.write_state(run_id, state)
        self._frozen.add(run_id)
        for logger in self.loggers:
            logger.finished(run_id, {"diverged": True})
        self.emit(events.Diverged(run_id, step, cause))

    def flush(self) -> None:
        """Flush every row to its destination: rows before a checkpoint must not be lost with this host."""
        for writer in self._writers.values():
            writer.flush()

    def note(self, message: str) -> None:
        self.emit(events.Note(message))

    # interface to the worker

    def interrupted(self, cause: str) -> None:
        """Record a stop at a checkpoint: the pack's unfinished runs wait for the next ``run``."""
        step = self._progress.step if self._has_step else None
        for name in self.unfinished():
            state = RunState(
                INTERRUPTED, step=step, loss=self._last_loss.get(name), pack_id=self.pack.pack_id, cause=cause
            )
            self.store.write_state(name, state)

    def close(self) -> None:
        """Write all pending rows, and the last progress; a finished pack needs none."""
        self.flush()
        if self._has_step and self.unfinished():
            self._write_progress()
        for logger in self.loggers:
            logger.close()

    def unfinished(self) -> list[str]:
        return [name for name in self.run_ids if name not in self._frozen]

    def _recorded_to(self, run_id: str, step: int) -> int:
        """Last step whose row a run can have if its pack resumes from ``step``.

        While a token branch cools down, the runs of the longer ones have their rows up to where it left the trunk.
        """
        branches = {name: i for replica in self.pack.replicas for i, name in enumerate(replica.run_ids)}
        first = min(branches[name] for name in self.unfinished())
        if branches[run_id] == first or first == len(self.pack.branch_steps) - 1:
            return step
        return min(step, cooldown_start(self.pack.branch_steps[first], self.pack.train))

    def _close(self, run_id: str) -> None:
        """Fold the metrics of an ended run into one object where they were uploaded in segments."""
        writer = self._writers.pop(run_id, None)
        if writer is not None:
            writer.flush()
        path = self.store.metrics_path(run_id)
        if paths.is_remote(path):
            jsonl.rewrite_lines(path, jsonl.read_lines(path))

    def _write_progress(self) -> None:
        self.store.write_progress(self.pack.pack_id, self._progress)
        self._written_at = time.monotonic()


def lost_rows(found: Metrics, kept: Sequence[MetricsRow], end: int, log_steps: int) -> str:
    """Describe steps up to ``end`` missing from a run's metrics; empty if they lack nothing.

    The first step has a row, and so has every ``log_steps``-th; rows of an earlier call may lie further apart.
    """
    steps = [row["step"] for row in kept]
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    parts = []
    if found.lost:
        parts.append(f"{found.lost} damaged line{'s' * (found.lost != 1)} left out (kept in metrics.jsonl.damaged)")
    if end > 0 and not steps:
        parts.append(f"the rows of steps 1–{end:,} are lost")
    elif end > 0:
        if steps[0] > 1:
            parts.append(f"the rows of steps 1–{steps[0] - 1:,} are lost")
        if end - steps[-1] >= max(log_steps, *gaps, 1):
            parts.append(f"the rows of steps {steps[-1] + 1:,}–{end:,} are lost")
    return ", ".join(parts)


_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}


class Logger(Protocol):
    """Destination of rows of metrics besides the run's own files."""

    def resumed(self, run_id: str, step: int) -> None:
        """Resume a run at this step; rows logged beyond it come again."""

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        """Log rows with ``step`` and numbers."""

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        """Log the end of a run; ``result`` holds its figures."""

    def close(self) -> None:
        """Close; everything logged is on disk afterwards."""


LOGIN_SECONDS = 30.0  # time limit for W&B to check a key


def check(names: Sequence[str], say: Callable[[str], None] = lambda line: None) -> None:
    """Refuse loggers that are not installed, or that cannot log in, before anything trains. Without a key W&B keeps
    everything on disk, with a message through ``say``.

    Raises:
        InputError: names the extra to install, or why W&B refuses.
    """
    lines = [
        f"execution.loggers: {name!r}; its package is not installed: {install(name)}"
        for name in names
        if importlib.util.find_spec(_PACKAGES[name]) is None
    ]
    if lines:
        raise InputError(*lines)
    if "wandb" in names and os.environ.get("WANDB_MODE", "online") in ("online", "run", "shared"):
        if _has_key():
            _log_in()
        else:
            os.environ["WANDB_MODE"] = "offline"  # workers inherit it
            say("execution.loggers: wandb; there is no key, so its runs are kept on disk (WANDB_MODE=offline)")


def _has_key() -> bool:
    """True if W&B finds a key: in its variable, or in the netrc file of the user."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urllib.parse.urlparse(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    places = [os.environ["NETRC"]] if "NETRC" in os.environ else ["~/.netrc", "~/_netrc"]
    for place in map(os.path.expanduser, places):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if netrc.netrc(place).authenticators(host):
                return True
    return False


def _log_in() -> None:
    found: list[str] = []

    def log_in() -> None:
        try:
            import wandb

            wandb.login(verify=True, timeout=int(LOGIN_SECONDS))
            found.append("")
        except BaseException as error:  # the package or a dependency failed; it may even exit
            found.append(" ".join(str(error).split())[:200] or type(error).__name__)

    thread = threading.Thread(target=log_in, daemon=True)
    thread.start()
    thread.join(LOGIN_SECONDS)
    why = found[0] if found else f"no answer within {LOGIN_SECONDS:.0f} s"
    if why:
        raise InputError(
            f"execution.loggers: 'wandb'; cannot log in ({why}); correct the key, or set WANDB_MODE=offline"
        )


def make(
    names: Sequence[str], store: SweepStore, pack: Pack, say: Callable[[str], None] = lambda line: None
) -> list[Logger]:
    """The loggers by name, for the runs of one pack. A failing one is left out from then on, with a message through
    ``say``: training goes on without it."""
    makers: dict[str, Callable[[SweepStore, Pack], Logger]] = {
        **{"tensorboard": TensorBoardLogger, "wandb": WandbLogger, "trackio": TrackioLogger}
    }
    return [TolerantLogger(name, functools.partial(makers[name], store, pack), say) for name in names]


class TolerantLogger:
    """Logger whose failure ends its log, not the run."""

    def __init__(self, name: str, make: Callable[[], Logger], say: Callable[[str], None]) -> None:
        self._name, self._make, self._say = name, make, say
        self._logger: Logger | None = None
        self._failed = False

    def resumed(self, run_id: str, step: int) -> None:
        self._try(lambda logger: logger.resumed(run_id, step))

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        self._try(lambda logger: logger.metrics(run_id, rows))

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        self._try(lambda logger: logger.finished(run_id, result))

    def close(self) -> None:
        self._try(lambda logger: logger.close())

    def _try(self, call: Callable[[Logger], None]) -> None:
        if self._failed:
            return
        try:
            self._logger = self._logger or self._make()
            call(self._logger)
        except Exception as error:
            self._failed = True
            self._say(f"execution.loggers: {self._name} failed and is left out from now on: {one_line(error)}")


class TensorBoardLogger:
    """TensorBoard logger: event files under ``DIR/tensorboard/<run_id>``."""

    def __init__(self, store: SweepStore, pack: Pack) -> None:
        self.root = store.directory / "tensorboard"
        self._writers: dict[str, SummaryWriter] = {}
        self._purge: dict[str, int] = {}

    def _writer(self, run_id: str) -> SummaryWriter:
        if run_id not in self._writers:
            from tensorboardX import SummaryWriter

            # purge_step hides rows that an interrupted attempt logged beyond its checkpoint
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
    """W&B logger: one W&B run per run, under ``DIR/wandb``; ``WANDB_MODE=offline`` keeps everything on disk."""

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
                reinit="create_new",  # replicas of a pack log side by side
                settings=wandb.Settings(console="off", silent=True),
            )
        return self._runs[run_id]

    def resumed(self, run_id: str, step: int) -> None:
        """Do nothing: W&B itself ignores steps that it already has."""

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
            run.finish(exit_code=1)  # the run did not reach its end
        self._runs.clear()


class TrackioLogger:
    """Trackio logger: one Trackio run per run, in ``DIR/trackio`` or by Trackio's settings (TRACKIO_DIR, a Space)."""

    def __init__(self, store: SweepStore, pack: Pack) -> None:
        self.store = store
        self.pack = pack
        self._runs: dict[str, trackio.Run] = {}
        self._logged: dict[str, int] = {}  # last step that Trackio holds, earlier attempts included
        if not paths.is_remote(store.directory):
            os.environ.setdefault("TRACKIO_DIR", str(paths.as_path(store.directory).absolute() / "trackio"))

    def _run(self, run_id: str) -> trackio.Run:
        if run_id not in self._runs:
            import trackio  # reads TRACKIO_DIR

            config = self.store.config(run_id)
            with contextlib.redirect_stdout(io.StringIO()):
                # own context: `init` would finish the run in the present one, and
                # replicas of a pack log side by side
                self._runs[run_id] = run = contextvars.Context().run(
                    trackio.init,
                    project="dwsweep",
                    group=self.pack.shape.label,
                    name=run_id,
                    resume="allow",
                    config=to_dict(config) if config else None,
                    embed=False,
                    auto_log_gpu=False,
                    auto_log_cpu=False,
                )
            self._logged[run_id] = getattr(run, "_next_step", 0) - 1
            # rows that a killed attempt recorded and did not hand over
            self._log(run_id, read_metrics(self.store.run_directory(run_id) / "metrics.jsonl").rows)
        return self._runs[run_id]

    def resumed(self, run_id: str, step: int) -> None:
        """Do nothing: ``_log`` leaves out steps that Trackio already has."""

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        self._run(run_id)
        self._log(run_id, rows)

    def _log(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        for row in rows:
            if row["step"] > self._logged[run_id]:
                self._runs[run_id].log(dict(_scalars(row)), step=row["step"])
                self._logged[run_id] = row["step"]

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        run, steps = self._run(run_id), result.get("steps")
        figures = {f"result/{name}": value for name, value in _scalars(result)}
        run.log(figures, step=steps if isinstance(steps, int) else None)
        self._finish(self._runs.pop(run_id))

    def close(self) -> None:
        for run in self._runs.values():
            self._finish(run)
        self._runs.clear()

    def _finish(self, run: trackio.Run) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            run.finish()


def _scalars(row: Mapping[str, object]) -> list[tuple[str, float]]:
    return [(k, float(v)) for k, v in row.items() if k != "step" and isinstance(v, int | float)]
