"""Worker (started by ``python -m dwsweep.sweep``), the only process of a sweep that imports JAX.

Commands come as lines on stdin and events leave as lines on the original stdout (``events`` has both); stdout
itself is joined to stderr, the pack's log, so that no library's print can break a line of the protocol. The end of
stdin means that the parent is gone: the worker brings its pack to a checkpoint and exits.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import platform
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.paths import FencedOff
from dwsweep.records.pack import Pack, StartFacts
from dwsweep.records.record import line_of, parse, to_dict
from dwsweep.records.run import DONE, INTERRUPTED
from dwsweep.sweep import events, policy
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Ended, Job
from dwsweep.sweep.local_worker import CORES_VARIABLE
from dwsweep.sweep.multihost import Slice
from dwsweep.sweep.recorder import RunRecorder
from dwsweep.train import Recorder

RELEASED_BY_LOSS = 3  # exit status of a slice whose process 0 lost its parent
ORPHAN_GRACE_SECONDS = 120.0  # time to reach a checkpoint once the parent is gone


class Channel:
    """Channel to and from the parent process."""

    def __init__(self) -> None:
        self._pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self.jobs: queue.Queue[events.Command | None] = queue.Queue()
        self.stop_cause: str | None = None
        self.group: Slice | None = None
        self.joining = False  # waits for other hosts: nothing to bring to a checkpoint
        self.trains = False  # the attempt has come to its first step
        threading.Thread(target=self._listen, daemon=True).start()

    def emit(self, event: events.Event) -> None:
        self.trains = self.trains or isinstance(event, StartFacts)
        with self._lock, contextlib.suppress(BrokenPipeError, ValueError):
            print(events.to_line(event), file=self._pipe, flush=True)

    def stop(self, cause: str) -> None:
        self.stop_cause = self.stop_cause or cause

    def should_stop(self) -> bool:
        """True if the pack is to stop here; on several hosts all have to ask, and all get the same answer."""
        if self.group is None:
            return self.stop_cause is not None
        by = self.group.must_stop(self.stop_cause is not None)
        if by is not None:
            self.stop(f"process {by} was asked to stop")
        return by is not None

    def _listen(self) -> None:
        try:
            for line in sys.stdin:
                command = events.from_line(line)
                if isinstance(command, events.Stop):  # a stop is heeded at once, while a pack trains
                    self.stop(command.cause)
                else:
                    self.jobs.put(command)
        except ValueError:
            pass  # half a line: the parent died while it wrote
        self.stop("the parent process is gone")
        self.jobs.put(None)
        if self.joining:
            os._exit(1)
        # the trainer looks at the flag between dispatches; a compilation, or a fault, may keep it from that for long.
        # A thread of C, which needs no turn of the interpreter, then says in the log where it stands, and ends it
        faulthandler.dump_traceback_later(ORPHAN_GRACE_SECONDS if self.trains else policy.START_SECONDS, exit=True)


def main() -> int:
    channel = Channel()
    signal.signal(signal.SIGTERM, lambda *_: channel.stop("preempted (SIGTERM)"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # commands held back during the imports
    faulthandler.enable()
    prepare_environment()
    store_path: str | None = None  # token store of this host, if it joined a slice
    while not isinstance(command := next_command(channel), events.Release):
        if isinstance(command, events.Join):
            store_path = command.store_path
            channel.joining = True
            channel.group = Slice()
            channel.joining = False
            channel.emit(events.Joined(channel.group.index, channel.group.count))
            continue
        assert isinstance(command, events.Train)
        job = command.job
        if store_path is not None:
            job = replace(job, store_path=store_path)
        channel.trains = False
        log_to(command.log, job, channel.group)
        ended = attempt(job, channel)
        channel.emit(ended)
        if ended.kind not in (DONE, INTERRUPTED):
            # a failure may have left the device in a bad state
            if channel.group is not None:
                sys.stderr.flush()
                os._exit(1)  # a clean exit waits minutes for other hosts that cannot come
            return 1
    channel.emit(events.Released(command.status))
    if channel.group is not None:
        channel.group.leave()
    return 0


def next_command(channel: Channel) -> events.Command:
    """Read the next command; the following processes of a slice receive it from process 0."""
    if channel.group is not None and channel.group.index > 0:
        return events.from_line(channel.group.share(""))
    command = channel.jobs.get() or events.Release(RELEASED_BY_LOSS)
    if channel.group is not None:
        channel.group.share(events.to_line(command))
    return command


def prepare_environment() -> None:
    """Set the environment before the import of JAX: its settings, and the cores of its threads."""
    if (cores := os.environ.get(CORES_VARIABLE)) and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, map(int, cores.split(",")))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(paths.cache_root() / "xla"))
    # JAX by default keeps no program that compiles in under a second, such as ours
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def attempt(job: Job, channel: Channel) -> Ended:
    """Train the job's pack to its end or to a stop; or until somebody else owns the directory.

    The processes of a slice that follow take the same steps, and write only their part of the checkpoints.
    """

    def should_stop() -> bool:
        if job.claim is not None:
            job.claim.check()  # before the next step
        return channel.should_stop()

    store = SweepStore(job.directory)
    directory = store.pack_directory(job.pack_id)
    try:
        pack = pack_of(store, job.pack_id, channel.group)
        with job.claim.at_work(job.directory) if job.claim is not None else contextlib.nullcontext():
            if channel.group is not None and channel.group.index > 0:
                ended = train(job, pack, directory, Recorder(), should_stop=should_stop)
                return Ended(DONE if ended else INTERRUPTED, channel.stop_cause or "")
            recorder = RunRecorder(store, pack, channel.emit, frozen=job.frozen)
            try:
                paths.make_directory(directory)
                following = pack_of(store, job.following) if job.following else None
                if not train(job, pack, directory, recorder, should_stop=should_stop, following=following):
                    cause = channel.stop_cause or "stopped"
                    recorder.interrupted(cause)
                    return Ended(INTERRUPTED, cause)
                if missing := recorder.unfinished():
                    raise RuntimeError(f"the trainer returned without a result for {', '.join(missing)}")
                return Ended(DONE)
            finally:
                with contextlib.suppress(OSError):  # a full disk: the attempt itself reports it
                    recorder.close()
    except FencedOff as error:
        return Ended(INTERRUPTED, str(error))
    except Exception as error:
        traceback.print_exc()
        return Ended(*policy.of_exception(error))
    finally:
        sys.stderr.flush()


def pack_of(store: SweepStore, pack_id: str, group: Slice | None = None) -> Pack:
    """Pack by its sealed pack.json, with the microbatch of its state.json. Process 0 of a ``group`` reads them for all:
    a network file system may show another host an older file.

    Raises:
        InputError: pack.json is missing or damaged.
    """
    if group is not None and group.index > 0:
        return parse(Pack, json.loads(group.share("")))
    if (pack := store.read(Pack, pack_id)) is None:
        raise InputError(f"{store.name_of(store.path_of(Pack, pack_id))}: is missing")
    pack = policy.with_microbatch(pack, store.pack_state(pack_id).microbatch)
    if group is not None:
        group.share(line_of(to_dict(pack)))
    return pack


def train(job: Job, pack: Pack, directory: Any, recorder: Recorder, **more: Any) -> bool:
    """Train the pack by ``train.pack_trainer``, which brings JAX: imported for the first pack, not before."""
    from dwsweep.train.pack_trainer import Store, train_pack

    return train_pack(pack, Store.open(job.store_path), directory, recorder, **more)


def log_to(path: str, job: Job, group: Slice | None = None) -> None:
    """Redirect stdout and stderr, also of C libraries, to the pack's log."""
    if group is not None and group.index > 0:
        path = str(Path(path).with_name(f"log-{group.index}.txt"))
        if not Path(path).parent.exists():
            return  # process 0 keeps its log on its own host
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stderr.flush()
    os.dup2(descriptor, 2)
    os.dup2(descriptor, 1)
    os.close(descriptor)
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(Exception):  # of a full disk, or of a bucket: the attempt reports it
        number = SweepStore(job.directory).pack_state(job.pack_id).attempts
        print(f"--- {when} attempt {number} on {platform.node()}, process {os.getpid()}", file=sys.stderr, flush=True)
