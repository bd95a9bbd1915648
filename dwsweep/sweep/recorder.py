"""Recorder of a sweep: writes a pack's results into its runs' directories (``train.Recorder``).

A run that is done or diverged is frozen: when its pack resumes from an older checkpoint and passes its end a second
time, the first record stands.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from dwsweep import jsonl, paths
from dwsweep.plan import Pack
from dwsweep.records.metrics import MetricsRow, read_metrics
from dwsweep.records.pack import PackProgress, StartFacts
from dwsweep.records.record import to_dict
from dwsweep.records.run import DIVERGED, FINAL, INTERRUPTED, RUNNING, RunResult, RunState
from dwsweep.sweep import events, loggers
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Emit
from dwsweep.sweep.loggers import Logger
from dwsweep.text import one_line
from dwsweep.train import Recorder

PROGRESS_SECONDS = 1.0  # interval between two writes of progress.json


class RunRecorder(Recorder):
    """Recorder of a pack: writes its runs' files and emits events for watchers.

    ``frozen`` are runs of the pack that another pack answers for.

    Raises:
        OSError: from every method, when a file cannot be written; training must not go on unrecorded.
    """

    def __init__(self, store: SweepStore, pack: Pack, emit: Emit, frozen: Collection[str] = ()) -> None:
        self.store = store
        self.pack = pack
        self.emit = emit
        self.loggers = loggers.make(pack.execution.loggers, store, pack)
        self.run_ids = pack.run_ids
        self._frozen = {name for name in self.run_ids if name in frozen or store.state(name).state in FINAL}
        self._writers: dict[str, jsonl.LineWriter] = {}
        self._last_step: dict[str, int] = {}
        self._last_loss: dict[str, float | None] = {}
        self._progress = PackProgress(steps=pack.branch_steps[-1])
        self._written_at = float("-inf")

    # interface to the trainer

    def compiling(self, microbatch: int) -> None:
        self.emit(events.Compiling(microbatch))

    def started(self, facts: StartFacts) -> None:
        step = facts.step
        self._cut(step)
        self._progress = replace(self._progress, started=facts, step=step)
        for name in self.unfinished():
            self.store.write_state(name, RunState(RUNNING, step=step, pack_id=self.pack.pack_id))
        self._write_progress()
        self.emit(facts)

    def _cut(self, step: int) -> None:
        """Cut the metrics of earlier attempts beyond the step at which this one begins."""
        for name in self.unfinished():
            path = self.store.metrics_path(name)
            jsonl.LineWriter(path).flush()
            found = read_metrics(path)
            kept = [row for row in found.rows if row["step"] <= step]
            is_folder = not paths.is_remote(path) and path.is_dir()
            if found.lost or is_folder:
                why = "is a folder" if is_folder else f"{found.lost} damaged lines left out"
                self.note(f"runs/{name}/metrics.jsonl: {why}, kept in {paths.set_aside(path)}")
            # needed even if nothing is dropped: a kill may have left half a line at the end
            if found.rows or found.lost or path.exists():
                jsonl.rewrite_lines(path, kept)
            self._last_step[name] = kept[-1]["step"] if kept else 0
            self._writers.pop(name, None)

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
        self._log(lambda logger: logger.metrics(run_id, fresh))

    def progress(self, step: int, steps: int, tokens_per_second: float, losses: list[float]) -> None:
        self._progress = replace(
            self._progress, step=step, steps=steps, tokens_per_second=tokens_per_second, losses=tuple(losses)
        )
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
        self._log(lambda logger: logger.finished(run_id, to_dict(result)))

    def diverged(self, run_id: str, step: int, loss: float) -> None:
        if run_id not in self._frozen:
            self._diverged(run_id, step, loss, f"training loss {loss:g} at step {step}")

    def _diverged(self, run_id: str, step: int, loss: float, cause: str) -> None:
        self._close(run_id)
        known = loss if math.isfinite(loss) else None  # JSON has no NaN
        state = RunState(DIVERGED, step=step, loss=known, pack_id=self.pack.pack_id, cause=cause)
        self.store.write_state(run_id, state)
        self._frozen.add(run_id)
        self._log(lambda logger: logger.finished(run_id, {"diverged": True}))
        self.note(f"{run_id}: diverged, {cause}")

    def flush(self) -> None:
        """Flush every row to its destination: rows before a checkpoint must not be lost with this host."""
        for writer in self._writers.values():
            writer.flush()

    def note(self, message: str) -> None:
        self.emit(events.Note(message))

    # interface to the worker

    def interrupted(self, cause: str) -> None:
        """Record a stop at a checkpoint: the pack's unfinished runs wait for the next ``run``."""
        step = self._progress.step if self._progress.started else None
        for name in self.unfinished():
            state = RunState(
                INTERRUPTED, step=step, loss=self._last_loss.get(name), pack_id=self.pack.pack_id, cause=cause
            )
            self.store.write_state(name, state)

    def close(self) -> None:
        """Write all pending rows, and the last progress; a finished pack needs none."""
        self.flush()
        if self._progress.started and self.unfinished():
            self._write_progress()
        self._log(lambda logger: logger.close())

    def _log(self, call: Callable[[Logger], None]) -> None:
        """Call every logger. One that fails is left out from then on, with a note: training goes on without it."""
        for name, logger in [*self.loggers.items()]:
            try:
                call(logger)
            except Exception as error:
                del self.loggers[name]
                self.note(f"execution.loggers: {name} failed and is left out from now on: {one_line(error)}")

    def unfinished(self) -> list[str]:
        return [name for name in self.run_ids if name not in self._frozen]

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
