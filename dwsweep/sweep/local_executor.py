"""Where attempts run: the interface of an executor, and the worker processes of this host, each started when it is
needed, kept while healthy, replaced when it is not."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from dwsweep import paths
from dwsweep.records.run_files import DONE, INTERRUPTED
from dwsweep.sweep import policy
from dwsweep.sweep.core_shares import CORES_VARIABLE, shares
from dwsweep.sweep.events import (
    Begun,
    Command,
    Compiling,
    Emit,
    Ended,
    Event,
    Job,
    Join,
    Joined,
    Post,
    Progress,
    Release,
    Released,
    Resumed,
    Started,
    Stop,
    Train,
    command_line,
    read_event,
)
from dwsweep.sweep.sweep_directory import SweepStore

EXIT_SECONDS = 10.0  # for an idle worker to leave


class WorkerProcess:
    """One child at a time. ``train`` blocks; ``stop`` and ``kill`` may come from another thread.

    ``environment`` is added to this process's own: which devices the child sees. ``cores`` limits it to these CPUs.
    With ``slice_store``, the token store of this host, each child joins the slice of hosts when it starts.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        cores: frozenset[int] | None = None,
        slice_store: str | None = None,
    ) -> None:
        self.environment = dict(environment or {})
        self.cores = cores
        self.slice_store = slice_store
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._stop_cause: str | None = None
        self._kernel_kills = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def train(self, job: Job, on_event: Emit) -> Ended:
        """Run one attempt to its end and say how it ended; events other than the end go to ``on_event``."""
        store = SweepStore(job.directory)
        final_log = store.log_path(job.pack.pack_id)
        paths.make_directory(final_log.parent)
        with contextlib.ExitStack() as cleanup:
            if paths.is_remote(final_log):
                log = Path(cleanup.enter_context(tempfile.TemporaryDirectory())) / "log.txt"
                cleanup.callback(_append, final_log, log)
            else:
                log = final_log
            start = log.stat().st_size if log.exists() else 0
            return self._attempt(job, on_event, log, start)

    def _attempt(self, job: Job, on_event: Emit, log: Path, start: int) -> Ended:
        heard = Ended(INTERRUPTED)  # what is known of the attempt so far
        try:
            process = self._ensure(log)
            self._send(Train(job, os.fspath(log)))
            if self._stop_cause:  # it came while the process was starting
                self._send(Stop(self._stop_cause))
        except OSError as error:
            self.kill()
            kind, cause = policy.of_exception(error)
            return Ended(kind, f"no worker could be started: {cause}")
        on_event(Begun(process.pid))
        for event in self._events(process):
            if isinstance(event, Ended):
                healthy = event.kind in (DONE, INTERRUPTED)
                tail = None if healthy else policy.tail(log, start)
                if not healthy:
                    self._reap()
                return replace(heard, kind=event.kind, cause=event.cause, log_tail=tail)
            if isinstance(event, Resumed):
                heard = replace(heard, resumed_step=event.step, step=event.step)
            elif isinstance(event, Progress):
                heard = replace(heard, step=event.step)
            elif isinstance(event, Compiling):
                heard = replace(heard, microbatch=event.microbatch)
            elif isinstance(event, Started):
                heard = replace(heard, microbatch=event.facts.microbatch)
            on_event(event)
        returncode = self._reap()
        whole = policy.tail(log, start, lines=1000)  # the stacks of a fatal error fill a tail
        if self._stop_cause and returncode == -9:
            return replace(heard, kind=INTERRUPTED, cause=self._stop_cause)
        kind, cause = policy.of_exit(returncode, whole, policy.kernel_oom_kills() - self._kernel_kills)
        return replace(heard, kind=kind, cause=cause, log_tail=policy.last_lines(whole))

    def join(self, log: Path) -> Joined:
        """Start the child and wait until it has joined the slice.

        Raises:
            RuntimeError: it has not; says why.
        """
        for event in self._events(self._ensure(log)):
            if isinstance(event, Joined):
                return event
        self._reap()
        raise RuntimeError(policy.first_line("\n".join(reversed(policy.tail(log).splitlines()))))

    def follow(self) -> int | None:
        """Wait, as a process of the slice that follows; the exit status by which process 0 let it go, or None.

        None: the child died, or ended because another did.
        """
        assert self._process is not None
        status = None
        for event in self._events(self._process):
            if isinstance(event, Released):
                status = event.status
        self._reap()
        return status

    def release(self, status: int, log: Path) -> None:
        """Let the slice go, with the exit status that all its processes shall end with."""
        self._ensure(log)
        self._send(Release(status))
        self.follow()

    @staticmethod
    def _events(process: subprocess.Popen[str]) -> Iterator[Event]:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                event = read_event(line)
            except ValueError:
                continue  # the last line of a killed worker
            yield event

    def stop(self, cause: str) -> None:
        """Ask for a checkpoint and an end."""
        self._stop_cause = cause
        with contextlib.suppress(OSError, ValueError):
            self._send(Stop(cause))

    def kill(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def close(self) -> None:
        """Let an idle worker leave."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError, ValueError):
            if process.stdin:
                process.stdin.close()
        try:
            process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        self._reap()

    def _ensure(self, log: Path) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        environment = {**os.environ, **self.environment}
        if self.cores:
            environment[CORES_VARIABLE] = ",".join(map(str, sorted(self.cores)))
        with open(log, "ab") as stderr:
            self._kernel_kills = policy.kernel_oom_kills()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dwsweep.sweep.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                errors="replace",
                env=environment,
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        if self.slice_store is not None:
            self._send(Join(self.slice_store))
        return self._process

    def _send(self, command: Command) -> None:
        with self._lock:
            if self._process is None or self._process.stdin is None:
                return
            self._process.stdin.write(command_line(command) + "\n")
            self._process.stdin.flush()

    def _reap(self) -> int:
        """Wait for the process's end and forget it."""
        process = self._process
        assert process is not None
        try:
            returncode = process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            returncode = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()
        self._process = None
        return returncode


def _append(final_log: Any, log: Path) -> None:
    """Bring the log of one attempt to the bucket, behind those of earlier ones."""
    with contextlib.suppress(OSError):
        earlier = final_log.read_text("utf-8") if final_log.exists() else ""
        final_log.write_text(earlier + log.read_text("utf-8", errors="replace"), "utf-8")


class Executor(Protocol):
    """Posts the events of each job; the last one is ``Ended``."""

    @property
    def slots(self) -> int:
        """Jobs that run at the same time."""

    def start(self, job: Job) -> None:
        """Begin an attempt; returns at once."""

    def stop(self, cause: str) -> None:
        """Ask all running attempts for a checkpoint and an end."""

    def kill(self, pack_id: str | None = None) -> None:
        """End the attempt at a pack, or all of them, now."""

    def close(self) -> None:
        """Release everything; no attempt is running any more."""


class LocalExecutor:
    """Worker processes on this host, one thread here for each.

    ``keep`` leaves them running when the executor is closed: whoever made them lets them go.
    """

    def __init__(self, workers: Sequence[WorkerProcess], post: Post, keep: bool = False) -> None:
        self.slots = len(workers)
        self._post = post
        self._keep = keep
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._workers = list(workers)
        self._serving: dict[WorkerProcess, str | None] = dict.fromkeys(self._workers)  # the pack of each
        self._threads = [threading.Thread(target=self._serve, args=(w,), daemon=True) for w in self._workers]
        for thread in self._threads:
            thread.start()

    def start(self, job: Job) -> None:
        self._jobs.put(job)

    def stop(self, cause: str) -> None:
        for worker in self._workers:
            worker.stop(cause)

    def kill(self, pack_id: str | None = None) -> None:
        for worker, serves in list(self._serving.items()):
            if pack_id in (None, serves):
                worker.kill()

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, worker: WorkerProcess) -> None:
        while (job := self._jobs.get()) is not None:
            pack_id = job.pack.pack_id
            self._serving[worker] = pack_id
            try:
                ended = worker.train(job, partial(self._post, pack_id))
            except Exception as error:  # a fault in here must not leave the sweep waiting for ever
                worker.kill()
                ended = Ended(*policy.of_exception(error))
            self._serving[worker] = None
            self._post(pack_id, ended)
        if not self._keep:
            worker.close()


def local_workers(workers: int, packs: int, first: int = 0) -> list[WorkerProcess]:
    """Worker processes on this host for so many packs: each with the part of its devices that one of ``workers`` has.

    ``first`` is the part to begin with: shards on one host that have a pack each take different parts.
    """
    parts = shares(workers)
    chosen = [parts[(first + k) % len(parts)] for k in range(min(packs, len(parts)))]
    return [WorkerProcess(part.environment, part.cores) for part in chosen]
