"""A worker process seen from its parent: started when it is needed, kept while healthy, replaced when it is not."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dwsweep import paths
from dwsweep.sweep import causes
from dwsweep.sweep.causes import Ended
from dwsweep.sweep.store import SweepStore
from dwsweep.sweep.worker import CORES_VARIABLE, Job

OnEvent = Callable[[dict[str, Any]], None]
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

    def train(self, job: Job, on_event: OnEvent) -> Ended:
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

    def _attempt(self, job: Job, on_event: OnEvent, log: Path, start: int) -> Ended:
        heard: dict[str, Any] = {"resumed_step": 0, "step": 0, "microbatch": None}
        try:
            process = self._ensure(log)
            self._send({"command": "train", "job": job.to_dict(), "log": os.fspath(log)})
            if self._stop_cause:  # it came while the process was starting
                self._send({"command": "stop", "cause": self._stop_cause})
        except OSError as error:
            self.kill()
            kind, cause = causes.of_exception(error)
            return Ended(kind, f"no worker could be started: {cause}")
        on_event({"event": "begun", "pid": process.pid})
        for event in self._events(process):
            kind = event["event"]
            if kind == "ended":
                healthy = event["kind"] in (causes.DONE, causes.INTERRUPTED)
                tail = None if healthy else causes.tail(log, start)
                if not healthy:
                    self._reap()
                return Ended(event["kind"], event["cause"], tail, **heard)
            if kind == "resumed":
                heard |= {"resumed_step": event["step"], "step": event["step"]}
            elif kind == "progress":
                heard["step"] = event["step"]
            elif kind == "compiling":
                heard["microbatch"] = event["microbatch"]
            elif kind == "started":
                heard["microbatch"] = event["facts"].get("microbatch")
            on_event(event)
        returncode = self._reap()
        whole = causes.tail(log, start, lines=1000)  # the stacks of a fatal error fill a tail
        if self._stop_cause and returncode == -9:
            return Ended(causes.INTERRUPTED, self._stop_cause, None, **heard)
        kind, cause = causes.of_exit(returncode, whole, causes.kernel_oom_kills() - self._kernel_kills)
        return Ended(kind, cause, causes.last_lines(whole), **heard)

    def join(self, log: Path) -> dict[str, Any]:
        """Start the child and wait until it has joined the slice: ``process`` and ``processes``.

        Raises:
            RuntimeError: it has not; says why.
        """
        for event in self._events(self._ensure(log)):
            if event["event"] == "joined":
                return event
        self._reap()
        raise RuntimeError(causes.first_line("\n".join(reversed(causes.tail(log).splitlines()))))

    def follow(self) -> int | None:
        """Wait, as a process of the slice that follows; the exit status by which process 0 let it go, or None.

        None: the child died, or ended because another did.
        """
        assert self._process is not None
        status = None
        for event in self._events(self._process):
            if event["event"] == "released":
                status = event["status"]
        self._reap()
        return status

    def release(self, status: int, log: Path) -> None:
        """Let the slice go, with the exit status that all its processes shall end with."""
        self._ensure(log)
        self._send({"command": "release", "status": status})
        self.follow()

    @staticmethod
    def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of a killed worker
            yield event

    def stop(self, cause: str) -> None:
        """Ask for a checkpoint and an end."""
        self._stop_cause = cause
        with contextlib.suppress(OSError, ValueError):
            self._send({"command": "stop", "cause": cause})

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
            self._kernel_kills = causes.kernel_oom_kills()
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
            self._send({"command": "join", "store_path": self.slice_store})
        return self._process

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            if self._process is None or self._process.stdin is None:
                return
            self._process.stdin.write(json.dumps(message) + "\n")
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
