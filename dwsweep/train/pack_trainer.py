"""Training of a pack, from its first step to its last held-out loss: resumable at any point, with the same bits.

Three clocks: compilation, training (dispatches only, read when the device has finished them) and the rest (evaluation,
checkpoints). A run's times count its own path through the phases, and are kept in the checkpoints.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
from etils import epath

from dwsweep.cost.arithmetic import training_flops
from dwsweep.data.heldout import heldout_set
from dwsweep.data.token_store import Store
from dwsweep.plan import Pack, Replica
from dwsweep.plan.schedule import Phase, multipliers, phases
from dwsweep.records.footing import versions
from dwsweep.records.metrics import MetricsRow
from dwsweep.records.run import RunResult
from dwsweep.train import Recorder
from dwsweep.train.ahead import AHEAD, release
from dwsweep.train.checkpoint import Checkpoints, Meta, Progress, check_identity, identity
from dwsweep.train.mesh import agreed
from dwsweep.train.program import Blueprint, Program, compile_program
from dwsweep.train.step import HeldoutLoss, State


def finite(values: np.ndarray) -> list[float | None]:
    """Replace non-finite numbers by None, for JSON."""
    return [float(value) if math.isfinite(value) else None for value in values]


class DispatchLength:
    """Number of steps in the next dispatch: a fixed number, or about a second of them, growing gently from 1."""

    def __init__(self, fixed_steps: int | None = None) -> None:
        self.fixed_steps = fixed_steps
        self.last_steps = 1
        self.step_seconds: float | None = None

    def next_steps(self, room: int, capacity: int) -> int:
        """Number of steps in the next dispatch, at most ``room``."""
        if self.fixed_steps is not None:
            return min(self.fixed_steps, capacity, room)
        wanted = self.last_steps if self.step_seconds is None else int(1.0 / self.step_seconds)
        self.last_steps = max(1, min(wanted, 4 * self.last_steps, capacity))
        return min(self.last_steps, room)

    def timed(self, steps: int, seconds: float) -> None:
        """Record the time of a dispatch of ``steps`` steps."""
        self.step_seconds = seconds / steps


CONDITIONING = (1 / 64, 1 / 16, 1 / 4)
"""Shares of the longest run after which attention's conditioning is measured, besides the start and each end."""


@dataclass(frozen=True)
class Dispatch:
    """Dispatch: steps in the device's queue, read after it has finished them."""

    phase: Phase
    step: int  # first step
    n: int
    metrics: Any


def train_pack(
    pack: Pack,
    store: Store,
    directory: Any,
    recorder: Recorder,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    dispatch_steps: int | None = None,
    following: Pack | None = None,
) -> bool:
    """Train ``pack`` to its end, or until ``should_stop()`` (asked between dispatches), in ``directory``; True at its
    end, False if it was stopped, with a checkpoint to resume from.

    Resumes from the newest good checkpoint in ``directory/checkpoints``; a pack that is complete returns at once.
    ``dispatch_steps`` fixes the steps per dispatch, otherwise one takes about a second. ``following`` is the pack that
    this process will probably train next: its program is compiled meanwhile.

    Raises:
        InputError: too little data, or a checkpoint of another model.
        OSError: a checkpoint could not be written; the last good one is kept.
        jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED, when the device's memory does not suffice.
    """
    try:
        return _Trainer(pack, store, directory, recorder, should_stop, DispatchLength(dispatch_steps)).run(following)
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
        pace: DispatchLength,
    ) -> None:
        self.pack, self.store, self.recorder, self.should_stop, self.pace = pack, store, recorder, should_stop, pace
        self.phases = phases(pack.branch_steps, pack.train)
        self.ready = AHEAD.take(pack, store)
        self.blueprint = self.ready.blueprint if self.ready else Blueprint.of(pack, store)
        if self.blueprint.choices.hardware.on_cpu and pack.train.precision == "bfloat16":
            recorder.note("train.precision: bfloat16 on a CPU takes up to three times as long as float32")
        self.progress = Progress(losses=[math.nan] * len(pack.replicas))
        self.kernel: str | None = None  # kernel of the checkpoint that training resumes from
        self.state: State = {}
        self.trunk: State | None = None
        kept_in = epath.Path(directory) / "checkpoints"
        self.checkpoints = Checkpoints(kept_in, pack.execution.keep_checkpoints, recorder.note)
        self.saved_seconds, self.saved_tick = time.monotonic(), 0
        self.mark = 0.0  # last reading of the training clock
        self.steps_here, self.seconds_here = 0, 0.0  # of this process
        self.measured: frozenset[int] = frozenset()  # steps after which the conditioning is measured
        if pack.train.conditioning:
            longest = pack.branch_steps[-1]
            self.measured = frozenset({*(max(1, round(part * longest)) for part in CONDITIONING), *pack.branch_steps})
        self.at_start: np.ndarray | None = None  # (R, L) before the first step

    def run(self, following: Pack | None) -> bool:
        try:
            ended = self._run(following)
        except BaseException:
            # the present failure matters more than a second one during the last checkpoint
            with contextlib.suppress(OSError):
                self.checkpoints.close()
            raise
        self.checkpoints.close()
        return ended

    def _run(self, following: Pack | None) -> bool:
        resumed = self._restore()
        if self._is_complete():
            return True
        self.program = self._compile()
        self._begin(resumed)
        if following is not None:
            AHEAD.begin(following, self.store, self.program)
        self.heldout = heldout_set(self.store, self.pack.shape.seq_len, self.pack.train.eval_tokens)
        while not self._is_complete():
            phase = self.phases[self.progress.phase]
            if phase.forks and self.trunk is None:
                self.trunk, self.progress.trunk_seconds = self.program.copy(self.state), self.progress.seconds
            if not self._train(phase):
                self._save()
                return False
            if phase.branch is not None:
                self._finish_runs(phase.branch)
            if phase.forks:
                self._return_to_trunk()
            self.progress.phase += 1
            if phase.branch is not None and not self._is_complete():
                self._save()  # a finished run is not trained again; of a complete pack the results prove it
        return True

    def _is_complete(self) -> bool:
        return self.progress.phase >= len(self.phases)

    # program and its first state

    def _compile(self) -> Program:
        self.recorder.compiling(self.blueprint.choices.microbatch)
        if self.ready is not None and self.kernel in (None, self.ready.choices.compute.kernel):
            program = self.ready
        else:
            first = self.blueprint.under(self.ready.first) if self.ready else self.blueprint
            program = compile_program(first, self.store, self.kernel, self.recorder.compiling)
        if program.concessions:
            self.recorder.note(
                "the training program did not fit into the device's memory; compiled again with "
                + ", ".join(program.concessions)
            )
        asked, chosen = self.kernel or self.pack.execution.attention, program.choices
        if asked not in ("auto", chosen.compute.kernel):
            self.recorder.note(f"attention: {chosen.compute.kernel} in place of {asked}: {chosen.attention_why}")
        return program

    def _begin(self, resumed: bool) -> None:
        """State at the start of training, with its records."""
        before, self.blueprint = self.blueprint, self.program.blueprint
        seconds = self.program.compile_seconds
        if not resumed:
            self.state, init_seconds = self.program.init()
            seconds += init_seconds
        elif self.blueprint.layout != before.layout:
            self.state, self.trunk = {}, None
            self._restore()  # copied once more, to its final place
        self.progress.compile_seconds += seconds
        self.recorder.started(self.program.facts(seconds, int(self.state["step"])))

    def _restore(self) -> bool:
        def like(meta: Meta) -> State:
            check_identity(meta["pack"], self.pack, self.checkpoints.directory)
            names = ("current", "trunk") if meta["forked"] else ("current",)
            return dict.fromkeys(names, self.blueprint.abstract)

        restored = self.checkpoints.restore(like)
        if restored is None:
            return False
        arrays, meta = restored
        self.progress, self.kernel = Progress(**meta["progress"]), meta["kernel"]
        self.saved_tick = self.progress.tick
        states = {name: self.blueprint.laid_out(state) for name, state in arrays.items()}
        self.state, self.trunk = states["current"], states.get("trunk")
        return True

    def _save_is_due(self) -> bool:
        execution = self.pack.execution
        every = execution.checkpoint_steps
        if every is not None and self.progress.tick - self.saved_tick >= every:
            return True
        return time.monotonic() - self.saved_seconds >= execution.checkpoint_seconds

    def _save(self) -> None:
        states = {"current": self.state} | ({"trunk": self.trunk} if self.trunk is not None else {})
        arrays = {name: self.blueprint.named(state) for name, state in states.items()}
        meta = {
            "pack": identity(self.pack),
            "forked": self.trunk is not None,
            "progress": asdict(self.progress),
            "kernel": self.blueprint.choices.compute.kernel,  # the last bits depend on it
        }
        self.recorder.flush()  # no checkpoint is ahead of the records
        self.checkpoints.save(arrays, meta)
        self.saved_seconds, self.saved_tick = time.monotonic(), self.progress.tick

    # steps of a phase

    def _train(self, phase: Phase) -> bool:
        """The steps of a phase; False when asked to stop before its end."""
        step = int(self.state["step"])
        queued: Dispatch | None = None
        if self.measured and not step:
            self.at_start = self.program.conditions(self.state, self.heldout)
        self.mark = time.monotonic()
        while step < phase.stop and self._is_needed(phase):
            if self.should_stop():
                self._read(queued)
                return False
            if agreed(self._save_is_due()):
                self._read(queued)
                queued = None
                self._save()
                self.mark = time.monotonic()
            n = agreed(self.pace.next_steps(self._room(step, phase), self.program.choices.capacity))
            self.state, metrics = self.program.dispatch(self.state, step, n, self._end_of(phase))
            # these steps are in the device's queue before those ahead of them are read, so that it never waits
            self._read(queued)
            queued = Dispatch(phase, step, n, metrics)
            step += n
            self.progress.tick += n
            if step in self.measured:  # conditioning of this state, read before the next steps replace it
                self._read(queued)
                queued = None
        self._read(queued)
        return True

    def _end_of(self, phase: Phase) -> int | None:
        """The length of the run that ends with a phase: only such a run has a schedule that depends on its end."""
        return None if phase.branch is None else self.pack.branch_steps[phase.branch]

    def _room(self, step: int, phase: Phase) -> int:
        """Steps until the phase ends, a checkpoint is due or something is measured."""
        every = self.pack.execution.checkpoint_steps
        room = min((stop for stop in self.measured if stop > step), default=phase.stop)
        room = min(room, phase.stop) - step
        return room if every is None else min(room, every - (self.progress.tick - self.saved_tick))

    def _is_needed(self, phase: Phase) -> bool:
        """True if any replica still has a run that needs this phase."""
        runs = (run_id for replica in self.pack.replicas for run_id in self._runs(replica, phase))
        return any(run_id not in self.progress.diverged for run_id in runs)

    def _runs(self, replica: Replica, phase: Phase) -> tuple[str, ...]:
        """Runs of a replica to which the steps of ``phase`` belong: on the trunk, all that have yet to leave it."""
        if phase.branch is not None:
            return (replica.run_ids[phase.branch],)
        later = [p.branch for p in self.phases[self.progress.phase :] if p.branch is not None]
        return tuple(replica.run_ids[branch] for branch in later)

    # what is reported

    def _read(self, queued: Dispatch | None) -> None:
        """Wait for a dispatch and report its results to the recorder."""
        if queued is None:
            return
        n, metrics = queued.n, jax.device_get(queued.metrics)
        now = time.monotonic()
        seconds, self.mark = now - self.mark, now
        self.pace.timed(n, seconds)
        self.progress.seconds += seconds
        self.steps_here, self.seconds_here = self.steps_here + n, self.seconds_here + seconds
        self.progress.losses = [float(x) for x in metrics["loss"][n - 1]]
        conditions = None
        if queued.step + n in self.measured:  # the current state follows these steps
            conditions = self.program.conditions(self.state, self.heldout)
            self.mark = time.monotonic()
        self._report_metrics(queued, metrics, conditions)
        for i, replica in enumerate(self.pack.replicas):
            if metrics["alive"][i]:
                continue
            ended, loss = int(metrics["diverged_step"][i]), float(metrics["diverged_loss"][i])
            for run_id in self._runs(replica, queued.phase):
                if run_id not in self.progress.diverged:
                    self.progress.diverged.append(run_id)
                    self.recorder.diverged(run_id, ended, loss)
        # the rate of all steps: where a loop on the device keeps the host, as on NVIDIA GPUs, the next dispatch has
        # finished before this one is read, and the last one seems to take no time
        tokens = self.steps_here * self.pack.train.batch_size * self.pack.train.seq_len * len(self.pack.replicas)
        steps = self.pack.branch_steps[-1]
        self.recorder.progress(queued.step + n, steps, tokens / self.seconds_here, self.progress.losses)

    def _report_metrics(
        self, queued: Dispatch, metrics: Mapping[str, np.ndarray], conditions: np.ndarray | None
    ) -> None:
        """Report the metrics of a dispatch. conditions: (R, L) after the last step."""
        every, step, phase = self.pack.execution.log_steps, queued.step, queued.phase
        rates = multipliers(step, queued.n, self._end_of(phase), self.pack.train)
        always = {1, phase.stop, *self.measured}
        done = [k for k in range(queued.n) if (step + k + 1) % every == 0 or step + k + 1 in always]
        for i, replica in enumerate(self.pack.replicas):
            ended = int(metrics["diverged_step"][i])
            rows: list[MetricsRow] = [
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
            if rows and self.at_start is not None and rows[0]["step"] == 1:
                rows[0]["conditioning_at_start"] = finite(self.at_start[i])
            if rows and conditions is not None and rows[-1]["step"] == step + queued.n:
                rows[-1]["conditioning"] = finite(conditions[i])
            if rows:
                for run_id in self._runs(replica, phase):
                    self.recorder.metrics(run_id, rows)

    def _finish_runs(self, branch: int) -> None:
        """Evaluate and record the runs that end with a phase."""
        ended = [i for i, r in enumerate(self.pack.replicas) if r.run_ids[branch] not in self.progress.diverged]
        heldout = self.program.evaluate(self.state, self.heldout) if ended else []
        params = self._params_to_keep({i: loss.loss for i, loss in enumerate(heldout) if i in ended})
        for i in ended:
            run_id = self.pack.replicas[i].run_ids[branch]
            self.recorder.finished(run_id, self._result(branch, i, heldout[i]), heldout[i].documents, params.get(i))

    def _params_to_keep(self, losses: Mapping[int, float]) -> dict[int, dict[str, np.ndarray]]:
        """Parameters by name of the replicas whose runs keep theirs; ``losses``: of the runs that end here."""
        keep = self.pack.execution.keep_params
        finite_losses = {i: loss for i, loss in losses.items() if math.isfinite(loss)}  # the others have diverged
        if keep == "none" or not finite_losses:
            return {}
        best = min(finite_losses, key=lambda i: (finite_losses[i], i))
        return self.program.params(self.state, sorted(finite_losses) if keep == "all" else [best])

    def _return_to_trunk(self) -> None:
        """Return to the trunk's state after a branch has cooled a copy down."""
        assert self.trunk is not None
        self.state, self.trunk = self.trunk, None
        self.progress.seconds = self.progress.trunk_seconds

    def _result(self, branch: int, i: int, heldout: HeldoutLoss) -> RunResult:
        train, choices, R = self.pack.train, self.program.choices, len(self.pack.replicas)
        steps, seconds = self.pack.branch_steps[branch], self.progress.seconds
        tokens = steps * train.batch_size * train.seq_len
        return RunResult(
            loss=heldout.loss,
            loss_stderr=heldout.loss_stderr,
            bits_per_byte=heldout.bits_per_byte,
            train_loss=self.progress.losses[i],
            steps=steps,
            tokens=tokens,
            wall_seconds=seconds,
            tokens_per_second=tokens * R / seconds,
            device_seconds=seconds * choices.layout.size / R,
            compile_seconds=self.progress.compile_seconds,
            flops=training_flops(self.pack.shape, tokens),
            attention_kernel=choices.compute.kernel,
            device_kind=choices.hardware.device.device_kind,
            pack_size=R,
            versions=versions(),
            heldout_tokens=int(heldout.documents[:, 1].sum()),
        )
