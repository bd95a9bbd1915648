"""The files of a sweep as a whole: ``manifest.json``, and the lock that names the owner of the directory."""

from __future__ import annotations

import os
import platform
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dwsweep.records.fixed_rates import FixedRate
from dwsweep.records.pack_files import StartFacts
from dwsweep.records.reader import Count, Positive

_PACKAGES = ("dwsweep", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
_CALLS_KEPT = 100


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``: with what, where and how a sweep was made."""

    versions: dict[str, str] = field(default_factory=dict)  # of dwsweep, Python and the packages, at the last call
    calls: tuple[dict[str, Any], ...] = ()  # time, host, command, flags and git_commit of each `run`, oldest first
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)  # what workers reported, by device_kind
    rates: tuple[FixedRate, ...] = ()  # at which the lengths of runs were fixed (``train.seconds``)

    def with_call(self, **flags: Any) -> Manifest:
        """With this call added: time, host, command line, flags, versions, git commit."""
        call = {
            "time": timestamp(),
            "host": platform.node(),
            "command": sys.argv,
            "flags": flags,
            "git_commit": git_commit(),
        }
        return replace(self, versions=versions(), calls=(*self.calls, call)[-_CALLS_KEPT:])

    def with_rates(self, rates: Iterable[FixedRate]) -> Manifest:
        """With these written down now, unless they were before."""
        now = timestamp()
        return replace(self, rates=(*self.rates, *(replace(rate, fixed=rate.fixed or now) for rate in rates)))

    def with_device(self, facts: StartFacts) -> Manifest:
        """With what a worker reported of its devices, once for each kind."""
        kind = facts.device_kind
        if kind is None or kind in self.devices:
            return self
        found = {"devices": facts.devices, "attention_kernel": facts.attention_kernel}
        known = {name: value for name, value in found.items() if value is not None}
        return replace(self, devices=self.devices | {kind: known})


@dataclass(frozen=True)
class Owner:
    """``locks/shard-I-of-N.lock``: who owns a sweep directory, or a shard of it.

    The start time tells a process from a later one that was given the same number.
    """

    host: str
    pid: Positive
    started: str  # boot id and clock ticks since boot
    shard: tuple[Count, Positive]  # (index, count)
    since: Annotated[float, Field(ge=0, lt=1e11)]  # seconds since the epoch
    nonce: str

    @classmethod
    def this_process(cls, shard: tuple[int, int]) -> Owner:
        pid = os.getpid()
        return cls(platform.node(), pid, process_start(pid) or "", shard, time.time(), secrets.token_hex(8))

    @property
    def is_local(self) -> bool:
        return self.host == platform.node()

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs; on another host nobody can tell, and it counts as alive."""
        if not self.is_local:
            return True
        start = process_start(self.pid)
        return start is not None and start == self.started

    def __str__(self) -> str:
        part = "" if self.shard == (0, 1) else f", shard {self.shard[0]}/{self.shard[1]}"
        return f"host {self.host}, process {self.pid}{part}, since {time.strftime('%F %T', time.localtime(self.since))}"


def process_start(pid: int) -> str | None:
    """What tells a process from a later one of the same number; None when there is no such process.

    Not psutil's ``create_time``: that is a wall-clock time made from these ticks, and moves when the clock is set.
    """
    try:
        # the second field, the name, may hold spaces and parentheses; the start time is the 20th after it
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)  # no /proc here: the number alone
        except (ProcessLookupError, OverflowError):
            return None
        except PermissionError:
            pass
        return "unknown"
    return None if fields[0] == "Z" else f"{boot}:{fields[19]}"


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_commit() -> str | None:
    """The commit of the package's own working tree, with ``+`` where it has changes; None outside of one."""
    root = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=5, check=True, env=environment
        )
        return done.stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):
            return None  # installed into a folder of somebody else's repository
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
