"""One owner per sweep directory and shard."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.locks import exclusive

Shard = tuple[int, int]  # (index, count)


@dataclass(frozen=True)
class Owner:
    """Who holds a lock. A process is told by its start time too: its number may be given again."""

    host: str
    pid: int
    started: str  # boot id and clock ticks since boot
    shard: Shard
    since: float  # seconds since the epoch
    nonce: str

    @classmethod
    def this_process(cls, shard: Shard) -> Owner:
        pid = os.getpid()
        return cls(platform.node(), pid, process_start(pid) or "", shard, time.time(), secrets.token_hex(8))

    @classmethod
    def read(cls, path: Any) -> Owner | None:
        content = paths.read_json(path)
        if content is None:
            return None
        known = {name: content[name] for name in cls.__dataclass_fields__}
        return cls(**known | {"shard": tuple(known["shard"])})

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
    """What tells a process from a later one of the same number; None when there is no such process."""
    try:
        # the second field, the name, may hold spaces and parentheses; the start time is the 20th after it
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)  # no /proc here: the number alone
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return "unknown"
    return None if fields[0] == "Z" else f"{boot}:{fields[19]}"


def owners(directory: Any) -> list[Owner]:
    """Everyone who holds a lock of the sweep directory, dead ones included."""
    folder = paths.as_path(directory) / "locks"
    found = (Owner.read(folder / name) for name in paths.names_in(folder) if name.endswith(".lock"))
    return [owner for owner in found if owner is not None]


@contextlib.contextmanager
def hold(directory: Any, shard: Shard = (0, 1), takeover: bool = False) -> Iterator[Owner]:
    """Own the sweep directory, or one shard of it, while the block runs.

    A dead owner on this host is taken over; one on another host only with ``takeover``. Owners of different shards of
    the same division live side by side; a different division would train packs twice and is refused.

    Raises:
        InputError: somebody else holds it; names host and process.
    """
    folder = paths.make_directory(paths.as_path(directory) / "locks")
    path = folder / f"shard-{shard[0]}-of-{shard[1]}.lock"
    mine = Owner.this_process(shard)
    with exclusive(folder / "guard"):
        for other in owners(directory):
            if other.shard != shard and other.shard[1] == shard[1]:
                continue
            if other.is_alive and not (takeover and not other.is_local):
                raise InputError(_refusal(directory, other))
        for name in paths.names_in(folder):
            if not name.endswith(".lock"):
                continue
            other_owner = Owner.read(folder / name)
            # one that cannot be read is what a power cut left: a lock appears with its content or not at all
            if other_owner is None or other_owner.shard == shard or other_owner.shard[1] != shard[1]:
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).unlink()
        _create(path, json.dumps(asdict(mine)), directory)
    try:
        yield mine
    finally:
        current = Owner.read(path)
        if current and current.nonce == mine.nonce:
            with contextlib.suppress(OSError):
                path.unlink()


def _create(path: Any, content: str, directory: Any) -> None:
    if paths.is_remote(path):
        path.write_text(content)
        return
    # written first and linked then: a lock never exists without its owner's name
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content)
    try:
        os.link(draft, path)
    except FileExistsError:  # the guard is void on this file system, and somebody was faster
        other = Owner.read(path)
        raise InputError(_refusal(directory, other) if other else f"--out: {directory}; it is owned") from None
    except OSError:  # no hard links here
        os.replace(draft, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def _refusal(directory: Any, owner: Owner) -> str:
    hint = "wait for it or stop it" if owner.is_local else "if that process is gone, add --takeover"
    return f"--out: {directory}; another `dwsweep run` owns it ({owner}); {hint}"
