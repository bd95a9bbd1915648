"""Python reads this at its start, where this folder is in PYTHONPATH: a sweep's parent and its workers then watch for
the moment that ``TORTURE_ORDER`` names, a phase with a delay from its beginning, and do there what the order says.

The phases are found from outside, by functions wrapped when their module has been imported. An order is taken by the
first process that comes to its phase; it acts before that phase is over, so that none is too short to be hit. What was
done is written to ``hit.json`` beside the order.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.abc
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WRAPPED = {
    "dwsweep.train.pack_trainer": (("_Trainer", "_compile", "compile"), ("_Trainer", "_train", "step")),
    "dwsweep.train.program": (("Program", "evaluate", "evaluation"),),
    "dwsweep.sweep.directory": (("SweepStore", "finish", "result"),),
    "dwsweep.train.checkpoint": (("Checkpoints", "save", "checkpoint"),),
    "dwsweep.sweep.runner": (("", "rebuild_results", "results.csv"), ("_Sweep", "_report", "exit")),
}
BEGINS = {"dwsweep.sweep.worker": "main", "dwsweep.sweep.runner": "run_sweep"}  # whose call ends the imports

ROLE = "worker" if "dwsweep.sweep" in sys.orig_argv else "parent" if "run" in sys.orig_argv else ""
ORDER = Path(os.environ.get("TORTURE_ORDER", "/nonexistent"))
entered: list[str] = []  # the phases that this process is in


class Moment:
    """An order that this process has taken."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order, self._lock, self._done = order, threading.Lock(), False
        threading.Thread(target=self._later, daemon=True).start()

    def _later(self) -> None:
        time.sleep(self.order["after"])
        self.act()

    def act(self) -> None:
        with self._lock:
            if self._done:
                return
            self._done = True
            parent = os.getppid() if ROLE == "worker" else os.getpid()
            pids = {"worker": [os.getpid()] if ROLE == "worker" else children(), "parent": [parent]}
            pids["both"] = pids["worker"] + pids["parent"]
            action, victims = self.order["action"], pids[self.order["victim"]] or [parent]
            hit = {**self.order, "role": ROLE, "inside": [*entered]}
            draft = ORDER.with_name("hit.tmp")
            draft.write_text(json.dumps(hit))
            draft.rename(ORDER.with_name("hit.json"))
            if action == "fsync":
                self._fail_once()
                return
            names = " ".join(map(str, victims))
            if action == "full disk":
                mount = os.environ["TORTURE_MOUNT"]
                found = os.statvfs(mount)
                used = (found.f_blocks - found.f_bfree) * found.f_frsize
                script = f"mount -o remount,size={used} {mount}"
            elif action == "STOP+KILL":
                stops = "".join(f"kill -STOP {pid}; " for pid in pids["worker"])
                script = f"{stops}kill -KILL {parent}"
            else:
                script = f"kill -{action} {names}"
            subprocess.call(["sh", "-c", script], stderr=subprocess.DEVNULL)

    def _fail_once(self) -> None:
        fsync = os.fsync

        def fail(descriptor: int) -> None:
            os.fsync = fsync
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        os.fsync = fail


def children() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def taken(phase: str) -> Moment | None:
    """The order, where it is of this phase and nobody else took it."""
    with contextlib.suppress(OSError, ValueError):
        order = json.loads(ORDER.read_text())
        if order["phase"] == phase and order.get("role", ROLE) == ROLE:
            ORDER.rename(ORDER.with_name(f"taken-{os.getpid()}"))
            return Moment(order)
    return None


@contextlib.contextmanager
def phase_of(phase: str) -> Iterator[None]:
    entered.append(phase)
    moment = taken(phase)
    try:
        yield
    finally:
        if moment is not None:
            moment.act()
        entered.remove(phase)


def watched(function: Callable[..., Any], phase: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        with phase_of(phase):
            return function(*given, **named)

    return call


def beginning(function: Callable[..., Any], imports: contextlib.ExitStack) -> Callable[..., Any]:
    """The imports end where it is called; a worker's end begins where it has returned."""

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        imports.close()
        result = function(*given, **named)
        if ROLE == "worker":
            with phase_of("exit"):
                pass
        return result

    return call


class Watch(importlib.abc.MetaPathFinder):
    def __init__(self, imports: contextlib.ExitStack) -> None:
        self._imports = imports
        self._own = threading.local()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in {*WRAPPED, *BEGINS} or getattr(self._own, "busy", False):
            return None
        self._own.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._own.busy = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                self._wrap(name, module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _wrap(self, name: str, module: Any) -> None:
        for owner, attribute, phase in WRAPPED.get(name, ()):
            where = getattr(module, owner) if owner else module
            setattr(where, attribute, watched(getattr(where, attribute), phase))
        if name in BEGINS and (name == "dwsweep.sweep.worker") == (ROLE == "worker"):
            setattr(module, BEGINS[name], beginning(getattr(module, BEGINS[name]), self._imports))


if ROLE:
    imports = contextlib.ExitStack()
    imports.enter_context(phase_of("import"))
    sys.meta_path.insert(0, Watch(imports))
