"""Worker processes of this host, started on demand, kept while healthy, else replaced.

How a host's devices are shared among worker processes, found without JAX: from device files and the environment.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records.footing import cores
from dwsweep.records.pack import PackProgress, StartFacts
from dwsweep.records.run import DONE, INTERRUPTED
from dwsweep.sweep import events, policy
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Ended, Job

EXIT_SECONDS = 10.0  # time for an idle worker to leave


class WorkerProcess:
    """Worker of one child process at a time. ``train`` blocks; ``stop`` and ``kill`` may come from another thread.

    ``environment`` is added to this process's own: which devices and cores the child uses. With ``slice_store``, the
    token store of this host, each child joins the slice of hosts when it starts.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, slice_store: str | None = None) -> None:
        self.environment = dict(environment or {})
        self.slice_store = slice_store
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._stop_cause: str | None = None
        self._kernel_kills = 0

    def train(self, job: Job, on_event: events.Emit) -> Ended:
        """Run one attempt and return its end; events other than the end go to ``on_event``."""
        store = SweepStore(job.directory)
        final_log = store.log_path(job.pack_id)
        paths.make_directory(final_log.parent)
        with contextlib.ExitStack() as cleanup:
            if paths.is_remote(final_log):
                log = Path(cleanup.enter_context(tempfile.TemporaryDirectory())) / "log.txt"
                cleanup.callback(_append, final_log, log)
            else:
                log = final_log
            start = log.stat().st_size if log.exists() else 0
            return self._attempt(job, on_event, log, start)

    def _attempt(self, job: Job, on_event: events.Emit, log: Path, start: int) -> Ended:
        heard = Ended(INTERRUPTED)  # last known state of the attempt
        try:
            process = self._ensure(log)
            self._send(events.Train(job, os.fspath(log)))
            if self._stop_cause:  # the stop came while the process was starting
                self._send(events.Stop(self._stop_cause))
        except OSError as error:
            self.kill()
            kind, cause = policy.of_exception(error)
            return Ended(kind, f"no worker could be started: {cause}")
        for event in self._events(process):
            if isinstance(event, Ended):
                healthy = event.kind in (DONE, INTERRUPTED)
                tail = None if healthy else policy.last_lines(policy.tail(log, start))
                if not healthy:
                    self._reap()
                return replace(heard, kind=event.kind, cause=event.cause, log_tail=tail)
            if isinstance(event, PackProgress | StartFacts):
                heard = replace(heard, step=event.step)
            if isinstance(event, events.Compiling | StartFacts):
                heard = replace(heard, microbatch=event.microbatch)
            on_event(event)
        returncode = self._reap()
        whole = policy.tail(log, start)  # stacks of a fatal error fill a log's last lines
        if self._stop_cause and returncode == -9:
            return replace(heard, kind=INTERRUPTED, cause=self._stop_cause)
        kind, cause = policy.of_exit(returncode, whole, policy.kernel_oom_kills() - self._kernel_kills)
        return replace(heard, kind=kind, cause=cause, log_tail=policy.last_lines(whole))

    def join(self, log: Path) -> events.Joined:
        """Start the child and wait until it has joined the slice.

        Raises:
            RuntimeError: it has not; says why.
        """
        for event in self._events(self._ensure(log)):
            if isinstance(event, events.Joined):
                return event
        self._reap()
        raise RuntimeError(policy.first_line("\n".join(reversed(policy.tail(log).splitlines()))))

    def follow(self) -> int | None:
        """Wait as a following process of the slice; the exit status by which process 0 let it go, or None.

        None: the child died, or ended because another did.
        """
        assert self._process is not None
        status = None
        for event in self._events(self._process):
            if isinstance(event, events.Released):
                status = event.status
        self._reap()
        return status

    def release(self, status: int, log: Path) -> None:
        """Release the slice: all its processes end with this exit status."""
        self._ensure(log)
        self._send(events.Release(status))
        self.follow()

    @staticmethod
    def _events(process: subprocess.Popen[str]) -> Iterator[events.Event]:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):  # last line of a killed worker
                yield events.from_line(line)

    def stop(self, cause: str) -> None:
        """Ask for a checkpoint and an end."""
        self._stop_cause = cause
        with contextlib.suppress(OSError, ValueError):
            self._send(events.Stop(cause))

    def kill(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def close(self) -> None:
        """Let an idle worker leave; one of a slice is released by its maker."""
        process = self._process
        if process is None or self.slice_store is not None:
            return
        with contextlib.suppress(OSError, ValueError):
            if process.stdin:
                process.stdin.close()
        self._reap()

    def _ensure(self, log: Path) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        with open(log, "ab") as stderr:
            self._kernel_kills = policy.kernel_oom_kills()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dwsweep.sweep"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, **self.environment},
                process_group=0,  # the parent handles Ctrl-C; another session would escape its niceness
            )
        if self.slice_store is not None:
            self._send(events.Join(self.slice_store))
        return self._process

    def _send(self, command: events.Command) -> None:
        with self._lock:
            if self._process is None or self._process.stdin is None:
                return
            self._process.stdin.write(events.to_line(command) + "\n")
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
    """Append the log of one attempt to the log in the bucket."""
    with contextlib.suppress(OSError):
        earlier = final_log.read_text("utf-8") if final_log.exists() else ""
        final_log.write_text(earlier + log.read_text("utf-8", errors="replace"), "utf-8")


def local_workers(workers: int, packs: int, first: int = 0) -> list[WorkerProcess]:
    """Workers of this host for a number of packs: each process has one share of ``workers`` of its devices.

    ``first`` is the part to begin with: shards on one host that have a pack each take different parts.
    """
    parts = shares(workers)
    return [WorkerProcess(parts[(first + k) % len(parts)]) for k in range(min(packs, len(parts)))]


CORES_VARIABLE = "DWSWEEP_CORES"  # CPU cores on which a worker stays, such as 0,2
CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
CPU_THREADS = "NPROC"  # XLA's name for the size of its thread pool


def gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """NVIDIA GPUs that this process may use, by names for CUDA_VISIBLE_DEVICES."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return [str(k) for k in range(len(list(devices.glob("nvidia[0-9]*"))))]


def tpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """TPU chips of this host, by names for TPU_VISIBLE_CHIPS."""
    visible = environment.get("TPU_VISIBLE_CHIPS")
    if visible:
        return visible.split(",")
    chips = len(list(devices.glob("accel[0-9]*"))) or len(list(devices.glob("vfio/[0-9]*")))
    return [str(k) for k in range(chips)]


def each_core_a_device(count: int, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment, before JAX is imported, under which each of ``count`` CPU cores is a device, with as many threads in
    XLA's pool, since sums of other parts round otherwise. A number that the user set has priority.

    Raises:
        InputError: the user's number of devices is no number.
    """
    env = os.environ if environment is None else environment
    said = env.get(CPU_DEVICES, "").strip()
    if said and not (said.isdecimal() and said.isascii() and int(said) > 0):
        raise InputError(f"{CPU_DEVICES}: {said!r}; allowed: a number of devices from 1 on")
    found = {} if env.get(CPU_THREADS, "").strip() else {CPU_THREADS: str(max(1, count))}
    if not (said or "xla_force_host_platform_device_count" in env.get("XLA_FLAGS", "")):
        found[CPU_DEVICES] = str(max(1, count))
    return found


def shares(
    workers: int, environment: Mapping[str, str] | None = None, devices: Path = Path("/dev")
) -> list[dict[str, str]]:
    """Divide the host among ``workers`` processes, by the environment of each: equal parts, even if some are idle.

    Each gets whole GPUs or TPU chips where there are enough (one chip each), a part of a GPU's memory where workers
    outnumber GPUs, and on a host without either its own CPU cores. What does not divide evenly stays idle.

    The last bits of a result depend on a pack's devices and threads. Both follow from ``execution.workers`` and the
    host alone, never from the number of packs left: even a single worker has only its part.
    """
    env = dict(os.environ) if environment is None else environment
    workers = max(1, workers)
    own = cores()
    each = max(1, len(own) // workers)
    host = each_core_a_device(each, env)
    if workers == 1:
        return [host]
    on_cpu = env.get("JAX_PLATFORMS") == "cpu"
    if not on_cpu and (cards := gpus(env, devices)):
        if len(cards) >= workers:
            visible = [cards[k::workers][: len(cards) // workers] for k in range(workers)]
            return [{"CUDA_VISIBLE_DEVICES": ",".join(part)} for part in visible]
        memory = part_of_a_gpu(-(-workers // len(cards)))
        return [{"CUDA_VISIBLE_DEVICES": cards[k % len(cards)], **memory} for k in range(workers)]
    if not on_cpu and (chips := tpus(env, devices)):
        # a chip belongs to one process; workers beyond the chips would only wait
        one_chip = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}
        return [{**one_chip, "TPU_VISIBLE_CHIPS": chip} for chip in chips[:workers]]
    parts = [own[k * each : (k + 1) * each] for k in range(min(workers, len(own)))]
    return [{**host, CORES_VARIABLE: ",".join(map(str, part))} for part in parts]


def part_of_a_gpu(sharing: int) -> dict[str, str]:
    """Environment that limits each of ``sharing`` processes on a GPU to its part of the memory; JAX takes
    most of it by default."""
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / sharing:.3f}"}
