"""Parent of a sweep: hands packs to workers, decides by cause of failure, never imports JAX."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dwsweep import errors, paths
from dwsweep.errors import InputError
from dwsweep.paths import FencedOff
from dwsweep.plan import Plan
from dwsweep.records.pack import REBUILT, PackEvent, PackProgress, StartFacts
from dwsweep.records.run import DIVERGED, DONE, FINAL, INTERRUPTED, RUNNING, STOPPED, RunState
from dwsweep.sweep import claim, inventory, loggers, policy, work_queue
from dwsweep.sweep.claim import Claim, Shard
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Compiling, Ended, Event, Job, Note, Post
from dwsweep.sweep.executor import Executor
from dwsweep.sweep.local_worker import WorkerProcess, local_workers
from dwsweep.sweep.multihost import handled, join_slice
from dwsweep.sweep.results_table import rebuild_results
from dwsweep.sweep.snapshot import SweepView, announcement, summary
from dwsweep.sweep.work_queue import Unit

REBUILDING = 0.02  # share of the time that results.csv may take while packs train
KILL_NOTICE = "stopping: workers write their checkpoints (Ctrl-C again: stop at once)"


def run_sweep(
    plan: Plan,
    store_path: str | Path,
    directory: str | Path,
    *,
    view: SweepView,
    shard: Shard = (0, 1),
    retry: Collection[str] = (),
    takeover: bool = False,
    executor: str = "local",
    address: str | None = None,
    distributed: bool = False,
) -> int:
    """Train the unfinished runs of a plan in ``directory``, local or ``gs://…``, on the prepared token store.

    Returns the exit status: 0: every run of this shard is done (or diverged, which is a result); 1: some failed or ran
    out of memory; 3: interrupted (Ctrl-C, SIGTERM, a full disk), resumed by the next call. The options are those of
    ``dwsweep run``; ``shard`` is (index, count).

    Raises:
        InputError: another process owns the directory, a logger is not installed, or the data is not prepared.
    """
    if plan.waits_for_data:
        raise InputError("SPEC: its data is not prepared; run `dwsweep prepare` first")
    if distributed and executor != "local":
        raise InputError(f"--distributed: with --executor {executor}; allowed: --executor local")
    loggers.check(plan.spec.execution.loggers)
    store = SweepStore(directory)
    try:
        paths.make_directory(store.directory)
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise InputError(f"--out: {directory}; must be a directory that can be written ({error.strerror})") from None
    tokens = paths.absolute(store_path)

    def lead(worker: WorkerProcess | None = None) -> int:
        sweeps: list[_Sweep] = []

        def lost(why: str, at_once: bool) -> None:
            view.say(f"{'stopped' if at_once else 'stopping'}: {why}")
            for sweep in sweeps:
                sweep.lose(why, at_once)

        try:
            with claim.hold(directory, shard, takeover, view.say, lost) as mine:
                sweeps.append(_Sweep(plan, tokens, store, shard, retry, view, mine))
                status = sweeps[0].run(executor, address, worker)
                mine.check()  # the status belongs to its owner
                return status
        except FencedOff as error:
            why = str(error)
        except Exception as error:
            kind, reason = policy.of_exception(error)
            if kind not in (INTERRUPTED, policy.DISK_FULL):
                raise
            why = f"{directory}: {reason}"
        view.say(f"stopped: {why}")
        return errors.INTERRUPTED

    return join_slice(tokens, lead, view.say) if distributed else lead()


@dataclass
class _Sweep:
    """One call of ``run``: the queue of packs and their states."""

    plan: Plan
    store_path: str
    store: SweepStore
    shard: Shard
    retry: Collection[str]
    view: SweepView
    claim: Claim
    inbox: queue.Queue[tuple[str, Event]] = field(default_factory=queue.Queue)
    waiting: deque[Unit] = field(default_factory=deque)
    active: dict[str, Unit] = field(default_factory=dict)
    stop_cause: str | None = None
    stopped_at: float = float("inf")  # clock at the first request to stop
    training: set[str] = field(default_factory=set)  # packs at work that have come to their first step
    signals: int = 0
    rebuilt_at: float = float("-inf")  # clock after the last results.csv
    rebuild_seconds: float = 0.0  # its time

    def run(self, executor: str, address: str | None, worker: WorkerProcess | None = None) -> int:
        mine = work_queue.own(self.plan, self.shard)
        inventory.mend(self.store, self.plan, mine, self.view.say)
        inventory.settle(self.store, mine)
        self.store.write_plan(self.plan)
        todo = work_queue.make(self.plan, self.store, self.shard, self.retry)
        if not todo.units:
            rebuild_results(self.store)
            return self._report({name: todo.states[name] for name in todo.run_ids}, trained=False)
        part = "" if self.shard == (0, 1) else f"{self.shard[0]}/{self.shard[1]}"
        flags = {"executor": executor, "address": address, "shard": part, "retry": sorted(self.retry)}
        self.store.update_manifest(lambda manifest: manifest.with_call(**flags))
        self.waiting.extend(work_queue.settle(todo, self.store, self.plan))
        for line in announcement(self.plan.spec.name, self.shard, todo, self.store.directory):
            self.view.say(line)
        packs = [unit.pack for unit in self.waiting]
        self.executor = self._make_executor(executor, address, len(packs), worker)
        self.view.expect(packs, self.plan.spec.name, self.plan.labels)
        with self.view, self._signals():
            try:
                self._loop()
            finally:
                if self.active:  # packs are left here only after an error
                    self.executor.kill()
                self.executor.close()
                try:
                    rebuild_results(self.store)
                except Exception as error:
                    # a full disk, or a bucket out of reach, has its own message; the directories hold the truth
                    if not isinstance(error, OSError) and paths.out_of_reach(error) is None:
                        raise
        return self._report({name: self.store.state(name) for name in todo.run_ids}, trained=True)

    def _make_executor(self, name: str, address: str | None, packs: int, worker: WorkerProcess | None) -> Executor:
        post: Post = lambda pack_id, event: self.inbox.put((pack_id, event))  # noqa: E731
        workers = self.plan.spec.execution.workers or 1
        if name == "ray":
            from dwsweep.sweep.ray_worker import RayExecutor

            return RayExecutor(address, post, workers)
        made = [worker] if worker is not None else local_workers(workers, packs, self.shard[0])
        if worker is None and len(made) < min(workers, packs):
            self.view.say(
                f"execution.workers: {workers}, but {len(made)} at work: this process may use no more cores or chips"
            )
        return Executor(iter(made).__next__, len(made), post)

    # the loop

    def _loop(self) -> None:
        while self.active or (self.waiting and not self.stop_cause):
            while self.waiting and len(self.active) < self.executor.slots and not self.stop_cause:
                self._start(self.waiting.popleft())
            with contextlib.suppress(queue.Empty):
                self._handle(*self.inbox.get(timeout=0.5))
            if time.monotonic() - self.stopped_at > policy.START_SECONDS:
                for pack_id in self.active.keys() - self.training:
                    self.executor.kill(pack_id)

    def _start(self, unit: Unit) -> None:
        pack = unit.pack
        state = self.store.pack_state(pack.pack_id)
        self.store.write(pack.pack_id, replace(state, state=RUNNING, attempts=state.attempts + 1, begun=time.time()))
        self.active[pack.pack_id] = unit
        self.view.started(pack)
        directory = paths.absolute(self.store.directory)  # workers may start elsewhere; Orbax requires it
        following = self.waiting[0].pack.pack_id if self.waiting else None
        self.executor.start(Job(pack.pack_id, directory, self.store_path, unit.frozen, following, self.claim))

    def _handle(self, pack_id: str, event: Event) -> None:
        if isinstance(event, PackProgress | StartFacts):
            self.training.add(pack_id)
        match event:
            case PackProgress():
                self.view.stepped(pack_id, event)
            case Compiling():
                self.view.compiling(pack_id)
            case StartFacts():
                self._started(pack_id, event)
            case Note(message):
                self.view.say(f"note: {message}")
            case Ended():
                self._ended(pack_id, event)

    def _started(self, pack_id: str, facts: StartFacts) -> None:
        """Record an attempt's footing, and report differences from the attempt that it resumes."""
        state = self.store.pack_state(pack_id)
        self.store.write(pack_id, state.with_start(facts))
        self.store.update_manifest(lambda manifest: manifest.with_device(facts))
        differing = state.started[-1].differences(facts) if facts.step and state.started else []
        if differing:
            label = self.plan.labels.get(pack_id, pack_id)
            self.view.say(
                f"note: {label}: resumes at step {facts.step:,} on other hardware or software "
                f"({'; '.join(differing)}): last digits may differ from those of an undisturbed run"
            )

    def _ended(self, pack_id: str, ended: Ended) -> None:
        unit = self.active.pop(pack_id)
        self.training.discard(pack_id)
        states = {name: self.store.state(name) for name in unit.runs}
        finished = {name for name, state in states.items() if state.state in FINAL} | set(unit.frozen)
        if ended.kind != DONE:  # a run may read as done although its last write failed
            for name in finished & unit.runs:
                self.store.sync(name)
        if finished >= unit.runs and ended.kind != DONE:
            # the last checkpoint failed: nothing is missing
            self.view.say(f"note: {pack_id} is finished, but {ended.cause}")
            ended = Ended(DONE)
        if ended.kind == INTERRUPTED and not self.stop_cause:
            self._stop(f"a worker was interrupted: {ended.cause}")
        max_retries = unit.pack.execution.max_retries
        before = self.store.pack_state(pack_id)
        decision = policy.decide(unit.pack, before, ended, max_retries, finished, self.store.newest_checkpoint(pack_id))
        for child in decision.queue:
            if child.pack_id != pack_id:
                self.store.write_pack(replace(child, rebuilt_from=pack_id, reason=ended.cause))
        if decision.run_state:
            tail = ended.log_tail if decision.run_state in STOPPED else None
            for name in unit.runs - finished:
                state = RunState(decision.run_state, ended.step, None, pack_id, ended.cause, tail)
                self.store.write_state(name, replace(state, loss=states[name].loss))
        self.store.write(pack_id, decision.state)
        if decision.state.state in (DONE, REBUILT):  # nothing resumes from here
            self.store.remove_progress(pack_id)
        if decision.stops_sweep:
            self._stop(ended.cause)
        queued = [Unit(child, unit.runs & {*child.run_ids}) for child in decision.queue]
        self.waiting.extendleft(reversed(queued))
        if queued and queued[0].pack.pack_id != pack_id:
            self.view.replaced(pack_id, [child.pack for child in queued])
        over = not queued and ended.kind not in (INTERRUPTED, policy.DISK_FULL)
        self.view.ended(pack_id, self._outcome(unit, ended, decision.state.events), over)
        # reading the directories costs time in proportion to the sweep, so large sweeps do it less often
        began = time.monotonic()
        if began - self.rebuilt_at >= self.rebuild_seconds / REBUILDING:
            rebuild_results(self.store)
            self.rebuilt_at = time.monotonic()
            self.rebuild_seconds = self.rebuilt_at - began

    def _outcome(self, unit: Unit, ended: Ended, events: tuple[PackEvent, ...]) -> str:
        if ended.kind != DONE:
            action = f"; {events[-1].action}" if events else ""
            return f"{ended.cause}{action}" if ended.kind != INTERRUPTED else f"interrupted ({ended.cause})"
        states = [self.store.state(name) for name in sorted(unit.runs)]
        losses = [state.loss for state in states if state.state == DONE and state.loss is not None]
        lost = sum(state.state == DIVERGED for state in states)
        mean = f", held-out loss {sum(losses) / len(losses):.4f}" if losses else ""
        return f"{len(losses)} run{'s' * (len(losses) != 1)} done{mean}" + (f", {lost} diverged" if lost else "")

    # stopping

    def _stop(self, cause: str) -> None:
        if self.stop_cause is None:
            self.stop_cause = cause
            self.stopped_at = time.monotonic()
            self.executor.stop(cause)

    def lose(self, why: str, at_once: bool) -> None:
        """Give the sweep up to another owner: after checkpoints, or at once if it already owns the directory."""
        executor: Executor | None = getattr(self, "executor", None)  # no executor while its files are mended
        if self.stop_cause is None and not at_once and executor is not None:
            self._stop(why)
            return
        self.stop_cause = self.stop_cause or why
        if at_once and executor is not None:
            executor.kill()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handle signals. First Ctrl-C or SIGTERM: checkpoints and exit 3; second: end at once, resume from the last
        checkpoint.

        A terminal that is closed (SIGHUP) takes the console along, not the sweep: `dwsweep status` shows the rest.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, _frame: Any) -> None:
            # separate thread: the handler may have interrupted a holder of the lock or console
            self.signals += 1
            if self.signals == 1:
                threading.Thread(target=stop, args=(f"stopped by {signal.Signals(number).name}",)).start()
            else:
                threading.Thread(target=self.executor.kill).start()

        def stop(cause: str) -> None:
            self._stop(cause)
            self.view.say(KILL_NOTICE)

        with handled(on_signal, signal.SIGINT, signal.SIGTERM), handled(signal.SIG_IGN, signal.SIGHUP):
            yield

    def _report(self, states: dict[str, RunState], trained: bool) -> int:
        """Say how the runs of this call ended; the exit status. ``states``: of the runs, by id."""
        for line in summary(states, self.store.results_path, trained, self.stop_cause):
            self.view.say(line)
        found = {state.state for state in states.values()}
        if found - (FINAL | STOPPED):
            return errors.INTERRUPTED
        return errors.SOME_FAILED if found & STOPPED else errors.DONE
