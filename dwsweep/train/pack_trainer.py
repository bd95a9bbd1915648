"""A pack from its first step to its last held-out loss: resumable at any point, the same bits however often it was.

Three clocks: compilation, training (dispatches only, read when the device has finished them) and the rest (evaluation,
checkpoints). A run's times are those of its own path through the phases, kept in the checkpoints.
"""

from __future__ import annotations

import contextlib
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import jax
from etils import epath

from dwsweep.data.batches import heldout_set
from dwsweep.data.token_store import Store
from dwsweep.errors import InputError
from dwsweep.plan import Pack, Replica
from dwsweep.train.callbacks import Recorder
from dwsweep.train.checkpoint import Checkpoints
from dwsweep.train.consensus import agreed
from dwsweep.train.engine import Engine
from dwsweep.train.evaluate import HeldoutLoss
from dwsweep.train.lr_schedule import Phase, multipliers, phases
from dwsweep.train.precompile import AHEAD
from dwsweep.train.release_memory import release
from dwsweep.train.step import State

FORMAT = 2
"""Of the checkpoint's meta data."""


@dataclass(frozen=True)
class Outcome:
    """How ``train_pack`` ended."""

    interrupted: bool  # stopped by should_stop, checkpointed, to be resumed
    step: int  # of the state in hand
    finished: tuple[str, ...]  # run ids finished by this call
    diverged: tuple[str, ...]  # run ids that ended as diverged, all calls together


@dataclass
class Progress:
    """What a checkpoint holds beside the arrays."""

    phase: int = 0  # position in the list of phases
    tick: int = 0  # steps executed, those of branches included
    seconds: float = 0.0  # training clock of the state in hand
    trunk_seconds: float = 0.0  # of the trunk that waits while a copy of it is cooled down
    compile_seconds: float = 0.0
    losses: list[float] = field(default_factory=list)  # last training loss of each replica
    diverged: list[str] = field(default_factory=list)  # run ids told to the recorder


def train_pack(
    pack: Pack,
    store: Store,
    directory: Any,
    recorder: Recorder,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    dispatch_steps: int | None = None,
    dispatch_seconds: float = 1.0,
    following: Pack | None = None,
) -> Outcome:
    """Train ``pack`` to its end, or until ``should_stop()`` (asked between dispatches), in ``directory``.

    Goes on from the newest good checkpoint in ``directory/checkpoints``; a pack that is complete returns at once.
    ``dispatch_steps`` fixes the steps of a dispatch, otherwise they follow from ``dispatch_seconds``. ``following`` is
    the pack that this process will probably train next: its programs are compiled meanwhile.

    Raises:
        InputError: too little data, or a checkpoint of another model.
        OSError: a checkpoint could not be written; the last good one is kept.
        jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED, when the device's memory does not suffice.
    """
    try:
        return _Trainer(pack, store, directory, recorder, should_stop, dispatch_steps, dispatch_seconds).run(following)
    finally:
        release(keep_compiled=AHEAD.is_busy)


class _Trainer:
    def __init__(
        self,
        pack: Pack,
        store: Store,
        directory: Any,
        recorder: Recorder,
        should_stop: Callable[[], bool],
        dispatch_steps: int | None,
        dispatch_seconds: float,
    ) -> None:
        self.pack, self.store, self.recorder, self.should_stop = pack, store, recorder, should_stop
        self.dispatch_seconds = dispatch_seconds
        self.phases = phases(pack.branch_steps, pack.train)
        self.engine = AHEAD.take(pack, store) or Engine(pack, store)
        self.engine.fixed_steps = dispatch_steps
        self.progress = Progress(losses=[math.nan] * len(pack.replicas))
        self.finished: list[str] = []
        self.kernel: str | None = None  # of the checkpoint that is gone on with
        self.state: State = {}
        self.trunk: State | None = None
        self.checkpoints = Checkpoints(
            epath.Path(directory) / "checkpoints", pack.execution.keep_checkpoints, recorder.note
        )
        self.saved_seconds, self.saved_tick = time.monotonic(), 0
        self.mark = 0.0  # last reading of the training clock

    def run(self, following: Pack | None) -> Outcome:
        try:
            outcome = self._run(following)
        except BaseException:
            # the failure in hand matters more than a second one while a checkpoint is being finished
            with contextlib.suppress(OSError):
                self.checkpoints.close()
            raise
        self.checkpoints.close()
        return outcome

    def _run(self, following: Pack | None) -> Outcome:
        resumed = self._restore()
        if self.progress.phase < len(self.phases):
            self.recorder.compiling(self.engine.microbatch)
            layout = self.engine.layout
            self.engine.compile(self.kernel, self.recorder.compiling)
            self._note_choices()
            if resumed and self.engine.layout != layout:
                self.state, self.trunk = {}, None
                self._restore()  # once more, to where it has to lie now
            if not resumed:
                self.state = self.engine.init()
            self.progress.compile_seconds += self.engine.compile_seconds
            step = int(self.state["step"])
            self.recorder.started({**self.engine.facts, "step": step})
            if resumed:
                self.recorder.resumed(step)
            if following is not None:
                AHEAD.begin(following, self.store, self.engine)
            self.heldout = heldout_set(self.store, self.pack.shape.seq_len, self.pack.train.eval_tokens)
        while self.progress.phase < len(self.phases):
            phase = self.phases[self.progress.phase]
            if phase.forks and self.trunk is None:
                self.trunk, self.progress.trunk_seconds = self.engine.copy(self.state), self.progress.seconds
            if not self._train(phase):
                self._save()
                return self._outcome(interrupted=True)
            self._end(phase)
        return self._outcome(interrupted=False)

    def _note_choices(self) -> None:
        if self.engine.concessions:
            self.recorder.note(
                "the training program did not fit into the device's memory; compiled again with "
                + ", ".join(self.engine.concessions)
            )
        asked = self.kernel or self.pack.execution.attention
        facts = self.engine.facts
        if asked not in ("auto", facts["attention_kernel"]):
            self.recorder.note(f"attention: {facts['attention_kernel']} in place of {asked}: {facts['attention_why']}")

    def _outcome(self, interrupted: bool) -> Outcome:
        step, diverged = int(self.state["step"]), tuple(self.progress.diverged)
        return Outcome(interrupted, step, tuple(self.finished), diverged)

    def _train(self, phase: Phase) -> bool:
        """The steps of a phase; False when asked to stop before its end."""
        step = int(self.state["step"])
        # only a run with an end has a schedule that depends on it
        stop = None if phase.branch is None else self.pack.branch_steps[phase.branch]
        queued: tuple[int, int, Any] | None = None
        self.mark = time.monotonic()
        while step < phase.stop and self.alive(phase):
            if self.should_stop():
                self._read(phase, queued)
                return False
            if agreed(self._save_is_due()):
                self._read(phase, queued)
                queued = None
                self._save()
                self.mark = time.monotonic()
            n = agreed(self.engine.steps_for(self.dispatch_seconds, self._room(step, phase)))
            self.state, metrics = self.engine.dispatch(self.state, step, n, stop)
            # these steps are in the device's queue before those ahead of them are read, so that it never waits
            self._read(phase, queued)
            queued = (step, n, metrics)
            step += n
            self.progress.tick += n
        self._read(phase, queued)
        return True

    def _room(self, step: int, phase: Phase) -> int:
        """Steps until the phase ends or a checkpoint is due."""
        every = self.pack.execution.checkpoint_steps
        room = phase.stop - step
        return room if every is None else min(room, every - (self.progress.tick - self.saved_tick))

    def alive(self, phase: Phase) -> bool:
        """Whether any replica still has a run to gain from this phase."""
        return any(not self._told(run_id) for replica in self.pack.replicas for run_id in self._runs(replica, phase))

    def _runs(self, replica: Replica, phase: Phase) -> tuple[str, ...]:
        """The runs of a replica that the steps of ``phase`` belong to: on the trunk, all that have yet to leave it."""
        if phase.branch is not None:
            return (replica.run_ids[phase.branch],)
        later = [p.branch for p in self.phases[self.progress.phase :] if p.branch is not None]
        return tuple(replica.run_ids[branch] for branch in later)

    def _told(self, run_id: str) -> bool:
        return run_id in self.progress.diverged

    def _read(self, phase: Phase, queued: tuple[int, int, Any] | None) -> None:
        """Wait for a dispatch and tell the recorder what it yielded."""
        if queued is None:
            return
        step, n, metrics = queued
        metrics = jax.device_get(metrics)
        now = time.monotonic()
        seconds, self.mark = now - self.mark, now
        self.engine.timed(n, seconds)
        self.progress.seconds += seconds
        self.progress.losses = [float(x) for x in metrics["loss"][n - 1]]
        self._tell_metrics(phase, step, n, metrics)
        for i, replica in enumerate(self.pack.replicas):
            if not metrics["alive"][i]:
                for run_id in self._runs(replica, phase):
                    if not self._told(run_id):
                        self.progress.diverged.append(run_id)
                        ended, loss = int(metrics["diverged_step"][i]), float(metrics["diverged_loss"][i])
                        self.recorder.diverged(run_id, ended, loss)
        tokens = n * self.pack.train.batch_size * self.pack.train.seq_len * len(self.pack.replicas)
        self.recorder.progress(step + n, self.pack.branch_steps[-1], tokens / seconds, self.progress.losses)

    def _tell_metrics(self, phase: Phase, step: int, n: int, metrics: dict[str, Any]) -> None:
        every, train = self.pack.execution.log_steps, self.pack.train
        stop = None if phase.branch is None else self.pack.branch_steps[phase.branch]
        rates = multipliers(step, n, stop, train)
        done = [k for k in range(n) if (step + k + 1) % every == 0 or step + k + 1 in (1, phase.stop)]
        for i, replica in enumerate(self.pack.replicas):
            ended = int(metrics["diverged_step"][i])
            rows = [
                {
                    "step": step + k + 1,
                    "loss": float(metrics["loss"][k, i]),
                    "learning_rate": float(rates[k]) * replica.learning_rate,
                    "grad_norm": float(metrics["grad_norm"][k, i]),
                    "seconds": self.progress.seconds,
                }
                for k in done
                if ended < 0 or step + k + 1 <= ended
            ]
            if rows:
                for run_id in self._runs(replica, phase):
                    self.recorder.metrics(run_id, rows)

    def _end(self, phase: Phase) -> None:
        """A phase is over: if a run ends with it, evaluate and record; then go on with the trunk, if there is one."""
        if phase.branch is not None:
            for i, replica in enumerate(self.pack.replicas):
                run_id = replica.run_ids[phase.branch]
                if not self._told(run_id):
                    heldout = self._heldout()[i]
                    self.recorder.finished(run_id, self._result(phase, i, heldout), heldout.documents)
                    self.finished.append(run_id)
            self._evaluated = None
        if phase.forks:
            assert self.trunk is not None
            self.state, self.trunk = self.trunk, None
            self.progress.seconds = self.progress.trunk_seconds
        self.progress.phase += 1
        if phase.branch is not None:
            self._save()  # a finished run is not trained again

    def _heldout(self) -> list[HeldoutLoss]:
        """Of the state in hand, computed once."""
        if self._evaluated is None:
            self._evaluated = self.engine.evaluate(self.state, self.heldout)
        return self._evaluated

    _evaluated: list[HeldoutLoss] | None = None

    def _result(self, phase: Phase, i: int, heldout: HeldoutLoss) -> dict[str, Any]:
        train, facts, R = self.pack.train, self.engine.facts, len(self.pack.replicas)
        assert phase.branch is not None
        steps = self.pack.branch_steps[phase.branch]
        tokens, seconds = steps * train.batch_size * train.seq_len, self.progress.seconds
        return {
            "loss": heldout.loss,
            "loss_stderr": heldout.loss_stderr,
            "bits_per_byte": heldout.bits_per_byte,
            "train_loss": self.progress.losses[i],
            "steps": steps,
            "tokens": tokens,
            "wall_seconds": seconds,  # the training clock of the whole pack along this run's path
            "tokens_per_second": tokens * R / seconds,  # of the pack
            "device_seconds": seconds * facts["devices"] / R,
            "compile_seconds": self.progress.compile_seconds,
            "attention_kernel": facts["attention_kernel"],
            "device_kind": facts["device_kind"],
            "pack_size": R,
            "versions": versions(),
        }

    def _save_is_due(self) -> bool:
        execution = self.pack.execution
        every = execution.checkpoint_steps
        if every is not None and self.progress.tick - self.saved_tick >= every:
            return True
        return time.monotonic() - self.saved_seconds >= execution.checkpoint_seconds

    def _save(self) -> None:
        states = {"current": self.state} | ({"trunk": self.trunk} if self.trunk is not None else {})
        arrays = {name: self.engine.named(state) for name, state in states.items()}
        self.recorder.flush()  # no checkpoint is ahead of what was recorded
        self.checkpoints.save(arrays, self._meta())
        self.saved_seconds, self.saved_tick = time.monotonic(), self.progress.tick

    def _meta(self) -> dict[str, Any]:
        forked = self.trunk is not None
        return {
            "pack": self._identity(),
            "forked": forked,
            "progress": asdict(self.progress),
            "kernel": self.engine.facts["attention_kernel"],  # the last bits depend on it
        }

    def _restore(self) -> bool:
        def like(meta: dict[str, Any]) -> State:
            if meta["pack"] != self._identity():
                raise InputError(
                    f"{self.checkpoints.directory}: these checkpoints are of another pack "
                    f"({', '.join(sorted(k for k, v in self._identity().items() if meta['pack'].get(k) != v))}); "
                    "allowed: the pack that began here, or an empty directory"
                )
            names = ("current", "trunk") if meta["forked"] else ("current",)
            return dict.fromkeys(names, self.engine.abstract)

        restored = self.checkpoints.restore(like)
        if restored is None:
            return False
        arrays, meta = restored
        self.progress = Progress(**meta["progress"])
        self.kernel = meta["kernel"]
        self.saved_tick = self.progress.tick
        states = {name: self.engine.arranged(state) for name, state in arrays.items()}
        self.state, self.trunk = states["current"], states.get("trunk")
        return True

    def _identity(self) -> dict[str, Any]:
        """What must agree for a checkpoint to be gone on with, beside the arrays' shapes."""
        pack = self.pack
        return {
            "format": FORMAT,
            "replicas": [[replica.seed, replica.learning_rate] for replica in pack.replicas],
            "branch_steps": list(pack.branch_steps),
            "model": pack.model.model_dump(mode="json"),
            "train": pack.train.model_dump(mode="json"),
            "data_hash": pack.data_hash,
        }


def versions() -> dict[str, str]:
    """Of what results depend on."""
    packages = {"jax": "jax", "flax": "flax", "optax": "optax", "orbax": "orbax-checkpoint"}
    return {"python": platform.python_version(), **{name: version(package) for name, package in packages.items()}}
