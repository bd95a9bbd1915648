"""The parent of a sweep: hands packs to workers, decides by cause what follows, never imports JAX."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from dwsweep import paths, terminal
from dwsweep.errors import InputError
from dwsweep.plan import Plan
from dwsweep.sweep import causes, loggers, manifest, ownership, repair, work_queue
from dwsweep.sweep import retry as policy
from dwsweep.sweep.causes import Ended
from dwsweep.sweep.executors import Executor, LocalExecutor, Post, local_workers
from dwsweep.sweep.follower import join_slice
from dwsweep.sweep.progress import ProgressView
from dwsweep.sweep.silence import Silence
from dwsweep.sweep.states import DIVERGED, DONE, FAILED, FINAL, OOM, REBUILT, RUNNING, STOPPED, PackEvent, RunState
from dwsweep.sweep.sweep_directory import SweepStore
from dwsweep.sweep.work_queue import Unit
from dwsweep.sweep.worker import Job
from dwsweep.sweep.worker_process import WorkerProcess

Shard = tuple[int, int]
ALL_DONE, SOME_FAILED, STOPPED_EARLY = 0, 1, 3  # exit statuses
KILL_NOTICE = "stopping: workers write their checkpoints (Ctrl-C again: stop at once)"


def parse_shard(text: str | None, environment: Mapping[str, str] | None = None) -> Shard:
    """``I/N`` → (I, N), counted from 0; ``slurm``: from the variables of a Slurm array; None: the whole sweep.

    Raises:
        InputError: not of that form, or I not below N.
    """
    if text is None:
        return 0, 1
    env = os.environ if environment is None else environment
    allowed = "allowed: I/N with 0 ≤ I < N, such as 0/8, or `slurm` inside a Slurm array"
    if text == "slurm":
        try:
            number, first = int(env["SLURM_ARRAY_TASK_ID"]), int(env.get("SLURM_ARRAY_TASK_MIN", "0"))
            count, step = int(env["SLURM_ARRAY_TASK_COUNT"]), int(env.get("SLURM_ARRAY_TASK_STEP", "1"))
        except (KeyError, ValueError) as error:
            raise InputError(f"--shard: 'slurm', but {error} is not set as Slurm sets it; {allowed}") from None
        if step < 1 or (number - first) % step or not 0 <= (number - first) // step < count:
            raise InputError(
                f"--shard: 'slurm', but task {number} of {count} from {first} in steps of {step} is not one of a "
                f"regular array; {allowed}"
            )
        return (number - first) // step, count
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if not (found and int(found[1]) < int(found[2])):
        raise InputError(f"--shard: {text[:40]!r}; {allowed}")
    return int(found[1]), int(found[2])


def run_sweep(
    plan: Plan,
    store_path: str | Path,
    directory: str | Path,
    *,
    shard: Shard = (0, 1),
    retry: Collection[str] = (),
    takeover: bool = False,
    executor: str = "local",
    address: str | None = None,
    distributed: bool = False,
    console: Console | None = None,
) -> int:
    """Train what is left of a plan in ``directory``; returns the exit status.

    0: every run of this shard is done (or diverged, which is a result); 1: some failed or ran out of memory;
    3: interrupted (Ctrl-C, SIGTERM, a full disk), the next call goes on.

    Args:
        plan: built with the facts of the data.
        store_path: the prepared token store.
        directory: the sweep directory, local or ``gs://…``.
        shard: (index, count): this call trains every count-th pack from the index-th.
        retry: states to try again: ``failed`` (and oom), ``diverged``.
        takeover: take the lock of an owner on another host.
        executor: ``local`` or ``ray``, with ``address`` of the cluster.
        distributed: this host is one of several that train each pack together (``jax.distributed``).
        console: where progress goes; default stdout.

    Raises:
        InputError: another process owns the directory, a logger is not installed, the data is not prepared.
    """
    if plan.waits_for_data:
        raise InputError("SPEC: its data is not prepared; run `dwsweep prepare` first")
    loggers.check(plan.spec.execution.loggers)
    console = console or terminal.console()
    store = SweepStore(directory)
    try:
        paths.make_directory(store.directory)
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise InputError(f"--out: {directory}; must be a directory that can be written ({error.strerror})") from None
    tokens = paths.absolute(store_path)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def lead(worker: WorkerProcess | None = None) -> int:
        try:
            with ownership.hold(directory, shard, takeover, say):
                return _Sweep(plan, tokens, store, shard, retry, console).run(executor, address, worker)
        except OSError as error:
            if not causes.is_disk_full(error):
                raise
            say(f"stopped: the disk of {directory} is full ({error}); free some space and run again")
            return STOPPED_EARLY

    if not distributed:
        return lead()
    if executor != "local":
        raise InputError(f"--distributed: with --executor {executor}; allowed: --executor local")
    return join_slice(tokens, lead, console)


class _Sweep:
    """One call of ``run``: the queue of packs and what is happening to each."""

    def __init__(
        self, plan: Plan, store_path: str, store: SweepStore, shard: Shard, retry: Collection[str], console: Console
    ) -> None:
        self.plan = plan
        self.store_path = store_path
        self.store = store
        self.shard = shard
        self.retry = retry
        self.console = console
        self.inbox: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.waiting: deque[Unit] = deque()
        self.active: dict[str, Unit] = {}
        self.stop_cause: str | None = None
        self.silence = Silence()
        self.signals = 0
        self.finished_since_rebuild = 0

    def run(self, executor: str, address: str | None, worker: WorkerProcess | None = None) -> int:
        mine = work_queue.own(self.plan, self.shard)
        repair.repair(self.store, self.plan, mine, self._say)
        if not self.plan.spec.execution.keep_finished_checkpoints:
            repair.remove_checkpoints(self.store, mine, self._say)
        self.store.write_plan(self.plan)
        todo = work_queue.make(self.plan, self.store, self.shard, self.retry)
        if not todo.units:
            self.store.rebuild_results()
            return self._report(todo.run_ids, trained=False)
        part = "" if self.shard == (0, 1) else f"{self.shard[0]}/{self.shard[1]}"
        manifest.record_call(self.store, executor=executor, address=address, shard=part, retry=sorted(self.retry))
        self.waiting.extend(work_queue.settle(todo, self.store, self.plan))
        self._announce(todo)
        packs = [unit.pack for unit in self.waiting]
        self.executor = self._make_executor(executor, address, len(packs), worker)
        with ProgressView(self.console, packs, self.plan.spec.name) as self.view, self._signals():
            try:
                self._loop()
            finally:
                if self.active:  # only on an error in here
                    self.executor.kill()
                self.executor.close()
                with contextlib.suppress(OSError):  # a full disk has its own message; the directories are the truth
                    self.store.rebuild_results()
        return self._report(todo.run_ids, trained=True)

    def _make_executor(self, name: str, address: str | None, packs: int, worker: WorkerProcess | None) -> Executor:
        post: Post = lambda pack_id, event: self.inbox.put((pack_id, event))  # noqa: E731
        workers = self.plan.spec.execution.workers or 1
        if name == "ray":
            from dwsweep.sweep.ray_executor import RayExecutor

            return RayExecutor(address, post, workers)
        if worker is not None:
            return LocalExecutor([worker], post, keep=True)
        return LocalExecutor(local_workers(workers, packs, self.shard[0]), post)

    # the loop

    def _loop(self) -> None:
        while self.active or (self.waiting and not self.stop_cause):
            while self.waiting and len(self.active) < self.executor.slots and not self.stop_cause:
                self._start(self.waiting.popleft())
            with contextlib.suppress(queue.Empty):
                self._handle(*self.inbox.get(timeout=0.5))
            for notice in self.silence.notices():
                self.view.say(notice)
            for pack_id in self.silence.deaf():
                self.executor.kill(pack_id)

    def _start(self, unit: Unit) -> None:
        pack = unit.pack
        state = self.store.pack_state(pack.pack_id)
        self.store.write_pack_state(pack.pack_id, replace(state, state=RUNNING, attempts=state.attempts + 1))
        self.active[pack.pack_id] = unit
        self.view.started(pack)
        self.silence.begin(pack.pack_id, pack.shape.label, self.store.log_path(pack.pack_id))
        directory = paths.absolute(self.store.directory)  # a worker may stand elsewhere, and Orbax wants it so
        following = self.waiting[0].pack if self.waiting else None
        self.executor.start(Job(pack, directory, self.store_path, state.attempts + 1, unit.frozen, following))

    def _handle(self, pack_id: str, event: dict[str, Any]) -> None:
        kind = event["event"]
        self.silence.heard(pack_id, event)
        if kind == "progress":
            self.view.stepped(pack_id, event)
        elif kind == "compiling":
            self.view.compiling(pack_id)
        elif kind == "started":
            manifest.record_device(self.store, event["facts"])
        elif kind == "note":
            self.view.say(f"note: {event['message']}")
        elif kind == "diverged":
            self.view.say(f"{event['run_id']}: diverged, {event['cause']}")
        elif kind == "ended":
            self._ended(pack_id, event["ended"])

    def _ended(self, pack_id: str, ended: Ended) -> None:
        unit = self.active.pop(pack_id)
        self.silence.end(pack_id)
        states = {name: self.store.state(name) for name in unit.runs}
        finished = {name for name, state in states.items() if state.state in FINAL} | set(unit.frozen)
        if finished >= unit.runs and ended.kind != causes.DONE:
            # it fell over its last checkpoint: nothing is missing
            self.view.say(f"note: {pack_id} is finished, but {ended.cause}")
            ended = Ended(causes.DONE)
        if ended.kind == causes.INTERRUPTED and not self.stop_cause:
            self._stop(f"a worker was interrupted: {ended.cause}")
        max_retries = unit.pack.execution.max_retries
        before = self.store.pack_state(pack_id)
        decision = policy.decide(unit.pack, before, ended, max_retries, finished, self.store.newest_checkpoint(pack_id))
        for child in decision.queue:
            if child.pack_id != pack_id:
                self.store.write_pack(child, rebuilt_from=pack_id, reason=ended.cause)
        if decision.run_state:
            tail = ended.log_tail if decision.gives_up else None
            for name in unit.runs - finished:
                state = RunState(decision.run_state, ended.step, None, pack_id, decision.cause, tail)
                self.store.write_state(name, replace(state, loss=states[name].loss))
        self.store.write_pack_state(pack_id, decision.state)
        if decision.state.state in (DONE, REBUILT) and not unit.pack.execution.keep_finished_checkpoints:
            self.store.remove_checkpoints(pack_id)  # nothing resumes from them any more
        if decision.stops_sweep:
            self._stop(ended.cause)
        queued = [self._unit_of(child, unit) for child in decision.queue]
        self.waiting.extendleft(reversed(queued))
        if queued and queued[0].pack.pack_id != pack_id:
            self.view.replaced(pack_id, [child.pack for child in queued])
        over = not queued and ended.kind not in (causes.INTERRUPTED, causes.DISK_FULL)
        self.view.ended(pack_id, self._outcome(unit, ended, decision.state.events), over)
        self.finished_since_rebuild += 1
        # reading the directories costs time in proportion to the sweep, so large sweeps do it less often
        if self.finished_since_rebuild * 20 >= len(self.plan.packs):
            self.store.rebuild_results()
            self.finished_since_rebuild = 0

    @staticmethod
    def _unit_of(pack: Any, parent: Unit) -> Unit:
        names = {name for replica in pack.replicas for name in replica.run_ids}
        return Unit(pack, parent.runs & names)

    def _outcome(self, unit: Unit, ended: Ended, events: tuple[PackEvent, ...]) -> str:
        if ended.kind != causes.DONE:
            action = f"; {events[-1].action}" if events else ""
            return f"{ended.cause}{action}" if ended.kind != causes.INTERRUPTED else f"interrupted ({ended.cause})"
        states = [self.store.state(name) for name in sorted(unit.runs)]
        losses = [state.loss for state in states if state.state == DONE and state.loss is not None]
        lost = sum(state.state == DIVERGED for state in states)
        mean = f", held-out loss {sum(losses) / len(losses):.4f}" if losses else ""
        return f"{len(losses)} run{'s' * (len(losses) != 1)} done{mean}" + (f", {lost} diverged" if lost else "")

    # stopping

    def _stop(self, cause: str) -> None:
        if self.stop_cause is None:
            self.stop_cause = cause
            self.silence.stop_asked()
            self.executor.stop(cause)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """First Ctrl-C or SIGTERM: checkpoints and exit 3; second: at once, from the last checkpoint next time.

        A terminal that is closed (SIGHUP) takes the console along, not the sweep: `dwsweep status` shows the rest.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, _frame: Any) -> None:
            # in a thread of its own: the handler may have interrupted whoever holds a lock or writes to the console
            self.signals += 1
            if self.signals == 1:
                threading.Thread(target=stop, args=(f"stopped by {signal.Signals(number).name}",)).start()
            else:
                threading.Thread(target=self.executor.kill).start()

        def stop(cause: str) -> None:
            self._stop(cause)
            self.view.say(KILL_NOTICE)

        old = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        old[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    # words

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _announce(self, todo: work_queue.Schedule) -> None:
        finished = sum(state.state in FINAL for name, state in todo.states.items() if name in set(todo.run_ids))
        runs = sum(len(unit.runs) for unit in todo.units)
        part = "" if self.shard == (0, 1) else f" (shard {self.shard[0]}/{self.shard[1]})"
        skipped = f"; {finished} finished before" if finished else ""
        self.console.print(
            f"{self.plan.spec.name}{part}: {runs} runs in {len(todo.units)} packs to train{skipped} → "
            f"{self.store.directory}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        if todo.orphans:
            count = len(todo.orphans)
            say = f"{count} runs in the directory are" if count > 1 else "1 run in the directory is"
            say += " not in this plan: kept, in orphans.csv and left out of results.csv; --out DIR keeps sweeps apart"
            self.console.print(say, markup=False, highlight=False, soft_wrap=True)

    def _report(self, run_ids: tuple[str, ...], trained: bool) -> int:
        states = {name: self.store.state(name) for name in run_ids}
        counts: dict[str, int] = {}
        for state in states.values():
            counts[state.state] = counts.get(state.state, 0) + 1
        text = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        if not trained:
            text = f"nothing to train: {text or 'no runs'}"
        say = self._say
        say(f"{text} → {self.store.results_path}")
        for reason, names in _by_cause(states).items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            say(f"  {names[0]}{more}: {reason}")
        if any(state.state not in FINAL | STOPPED for state in states.values()):
            say(f"interrupted{f': {self.stop_cause}' if self.stop_cause else ''}; the same command goes on from here")
            return STOPPED_EARLY
        if any(state.state in STOPPED for state in states.values()):
            say("some runs failed; --retry failed tries them again")
            return SOME_FAILED
        return ALL_DONE


def _by_cause(states: dict[str, RunState]) -> dict[str, list[str]]:
    """Runs that failed, ran out of memory or diverged, by state and cause."""
    found: dict[str, list[str]] = {}
    for name, state in states.items():
        if state.state in (FAILED, OOM, DIVERGED):
            found.setdefault(f"{state.state}: {state.cause}", []).append(name)
    return found
