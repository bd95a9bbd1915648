"""Ownership of a sweep directory, or of a shard of it: one owner at a time, enforced at every write.

locks/shard-I-of-N.lock   the owner: host, process, epoch, nonce, and when it was last renewed
locks/shard-I-of-N.claim  who waits to take the lock over
locks/epoch               the last epoch that was given out

In a bucket the epoch stands in the lock's name, ``shard-I-of-N.EPOCH.lock``: each object has one writer, is made by a
condition that it is not there yet (``paths.create``), and the highest epoch owns. Nothing has to be written over, which
would need a condition on the generation that was read, and a late renewal never hides the next owner's lock.

An owner renews its lock every ``HEARTBEAT_SECONDS``. Whoever finds a lock judges its owner: on this host, in this
space of process numbers, by whether its process lives; elsewhere by the renewal of its lock, watched for
``LEASE_SECONDS`` by the clock of the waiting process. A takeover puts down a claim. The owner that sees it brings its
packs to a checkpoint and answers by removing its lock; without that answer the lease decides.

A lease alone does not stop an owner that slept through it. So every write into the directory, of the parent and of its
workers, first asks the fence whether the lock still names this owner (Kleppmann, "How to do distributed locking", 2016:
a token that grows, checked where the write is done). The loser stops by itself before it trains another step.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.paths import FencedOff, exclusive
from dwsweep.records import record as reader
from dwsweep.records.record import Damaged
from dwsweep.records.sweep import Owner
from dwsweep.sweep.directory import set_aside_unless_file

Shard = tuple[int, int]  # (index, count)
Say = Callable[[str], None]


def _seconds(name: str, default: float) -> float:
    with contextlib.suppress(ValueError):
        return max(0.5, float(os.environ.get(name, "")))
    return default


LEASE_SECONDS = _seconds("DWSWEEP_LEASE_SECONDS", 60.0)  # age of a lock after which an unseen owner counts as gone
HEARTBEAT_SECONDS = LEASE_SECONDS / 6
WORD_SECONDS = 15 * 60.0  # time for an owner that still renews its lock to bring its packs to a checkpoint
LOOK_SECONDS = 1.0  # interval between two looks at a lock in a bucket, since each look is a request


def owners(directory: Any) -> list[Owner]:
    """Holders of a lock of the sweep directory, dead ones included; damaged locks name nobody."""
    return [owner for _, owner in _locks(paths.as_path(directory) / "locks") if owner is not None]


def _locks(folder: Any) -> Iterator[tuple[Any, Owner | None]]:
    for name in paths.names_in(folder) if not paths.is_link(folder) else ():
        if name.endswith(".lock"):
            yield folder / name, _read(folder / name)


def _read(path: Any) -> Owner | None:
    try:
        return reader.read(path, Owner)
    except Damaged:
        return None


def _folder_of_locks(directory: Any, say: Say) -> Any:
    """Folder ``locks``, created if missing. What stands in its place or in a lock's, a link to elsewhere or
    another kind of file, is set aside: it is never followed."""
    folder = paths.as_path(directory) / "locks"
    if paths.is_remote(folder):
        return paths.make_directory(folder)
    if paths.is_link(folder) or (folder.exists() and not folder.is_dir()):
        say(f"locks: must be a folder and no link; set aside as {paths.set_aside(folder)}")
    paths.make_directory(folder)
    for name in paths.names_in(folder):
        if not name.endswith(".damaged"):
            set_aside_unless_file(folder / name, f"locks/{name}", say)
    return folder


@dataclass(frozen=True)
class Fence:
    """Fence, the right to write into a sweep directory: the lock's file, and the nonce and epoch that it must hold."""

    lock: str
    nonce: str
    epoch: int

    def check(self) -> None:
        """
        Raises:
            FencedOff: the lock names another owner, or nobody.
        """
        path = paths.as_path(self.lock)
        mark: Any
        if paths.is_remote(path):
            # this clock goes on while the process is stopped
            mark = int(time.monotonic() / LOOK_SECONDS)
        else:
            try:
                found = os.stat(path)
            except FileNotFoundError:
                raise FencedOff(f"this process does not own it any more ({self.lock} is gone)") from None
            mark = found.st_ino, found.st_mtime_ns, found.st_size
        if _seen.get(self) == mark:
            return
        if by := _superseded(path, self.epoch) if paths.is_remote(path) else self._other():
            raise FencedOff(f"this process does not own the sweep any more ({by}); it writes nothing more")
        _seen[self] = mark

    def _other(self) -> str:
        """Owner that the lock names instead of this one; empty if it names this one."""
        owner = _read(paths.as_path(self.lock))
        if owner is not None and owner.nonce == self.nonce:
            return ""
        return f"{owner}, epoch {owner.epoch}" if owner else "its lock is gone"


def fence_of(directory: Any, owner: Owner) -> Fence:
    """The fence of an owner; of a path that any process can use."""
    folder = paths.as_path(paths.absolute(directory)) / "locks"
    return Fence(os.fspath(_lock_of(folder, owner)), owner.nonce, owner.epoch)


def _lock_of(folder: Any, owner: Owner) -> Any:
    epoch = f".{owner.epoch}" if paths.is_remote(folder) else ""
    return folder / f"shard-{owner.shard[0]}-of-{owner.shard[1]}{epoch}.lock"


_LOCK_IN_BUCKET = re.compile(r"shard-(\d+)-of-(\d+)\.(\d+)\.lock")


def _superseded(lock: Any, epoch: int) -> str:
    """Later owner of a sweep in a bucket, by the names of the locks; empty for nobody."""
    names = paths.names_in(lock.parent)
    if lock.name not in names:
        return "its lock is gone"
    shard, count, _ = _LOCK_IN_BUCKET.fullmatch(lock.name).groups()  # type: ignore[union-attr]
    for name in names:
        other = _LOCK_IN_BUCKET.fullmatch(name)
        if other and int(other[3]) > epoch and (other[1] == shard or other[2] != count):
            return f"{_read(lock.parent / name) or name}, epoch {other[3]}"
    return ""


_seen: dict[Fence, Any] = {}  # last seen state of the lock that names this owner


@contextlib.contextmanager
def hold(
    directory: Any,
    shard: Shard = (0, 1),
    takeover: bool = False,
    say: Say = lambda line: None,
    lost: Callable[[str, bool], None] = lambda why, at_once: None,
) -> Iterator[Owner]:
    """Own the sweep directory, or one shard of it, while the block runs.

    A dead owner on this host is taken over; an owner elsewhere only with ``takeover``, once it has answered or has not
    renewed its lock for ``LEASE_SECONDS``. Owners of different shards of the same division live side by side; a
    different division would train packs twice and is refused. An unreadable lock is set aside, with a message through
    ``say``: a lock appears with its content or not at all.

    ``lost`` is called by another thread: with False when a process claims the lock and waits for this owner's answer,
    with True when another process owns it.

    Raises:
        InputError: somebody else holds it; names host and process.
    """
    folder = _folder_of_locks(directory, say)
    mine = _take(directory, folder, shard, takeover, say)
    path = _lock_of(folder, mine)
    fence = fence_of(directory, mine)
    ended = threading.Event()
    beat = threading.Thread(target=_renew, args=(path, mine, fence, lost, ended), daemon=True)
    try:
        with fenced(directory, fence):
            beat.start()
            yield mine
    finally:
        ended.set()
        beat.join()
        current = _read(path)
        if current and current.nonce == mine.nonce:
            with contextlib.suppress(OSError):
                path.unlink()


def fenced(directory: Any, fence: Fence | None) -> contextlib.AbstractContextManager[None]:
    """Check the owner's fence before every write of this process into the directory, while the block runs; without a
    fence, as in a slice's process that owns nothing, no write is checked."""
    return paths.fence(paths.as_path(directory), fence.check) if fence is not None else contextlib.nullcontext()


def _take(directory: Any, folder: Any, shard: Shard, takeover: bool, say: Say) -> Owner:
    """Lock of the directory, once nobody else owns it."""
    gone: set[str] = set()  # nonces of owners that do not renew their locks
    while True:
        with exclusive(folder / "guard"):
            watched = None
            for found, other in list(_locks(folder)):
                if other is None or (other.shard != shard and other.shard[1] == shard[1]) or other.nonce in gone:
                    continue
                if other.is_local:
                    if other.is_alive:
                        raise InputError(_refusal(directory, other))
                elif not takeover and not (other.is_of_this_name and other.is_late(LEASE_SECONDS)):
                    raise InputError(_refusal(directory, other))
                elif other.renewed is not None or takeover:
                    watched = found, other
            if watched is None:
                if mine := _create_owner(directory, folder, shard, say):
                    return mine
                continue  # another process was faster
        if _watch(*watched, shard, takeover, say):
            gone.add(watched[1].nonce)
        elif not takeover:
            raise InputError(_refusal(directory, watched[1]))


def _create_owner(directory: Any, folder: Any, shard: Shard, say: Say) -> Owner | None:
    """Lock of this process, which replaces expired ones; None if another process made the
    lock of this epoch."""
    epoch = 0
    old: list[Any] = []
    for found, other in list(_locks(folder)):
        named = _LOCK_IN_BUCKET.fullmatch(found.name)
        epoch = max(epoch, other.epoch if other else 0, int(named[3]) if named else 0)
        with contextlib.suppress(FileNotFoundError):
            if other is None:
                say(f"locks/{found.name}: names no owner; set aside as {paths.set_aside(found)}")
            elif other.shard == shard or other.shard[1] != shard[1]:
                old.append(found)
    counter = folder / "epoch"
    with contextlib.suppress(OSError, ValueError):
        epoch = max(epoch, int(paths.read_bytes(counter, 100)))
    mine = replace(Owner.this_process(shard), epoch=epoch + 1)
    paths.write_atomic(counter, f"{mine.epoch}\n")
    if paths.is_remote(folder):
        lock = _lock_of(folder, mine)
        if not paths.create(lock, reader.text_of(mine)):
            return None
        if _superseded(lock, mine.epoch):  # a process that read the counter a moment later took over
            _remove([lock])
            return None
        _remove(old)  # removed last: an owner that wakes finds a higher epoch
    else:
        _remove(old)
        _create(_lock_of(folder, mine), mine, directory)
    return mine


def _remove(locks: list[Any]) -> None:
    for lock in locks:
        with contextlib.suppress(FileNotFoundError):
            lock.unlink()


def _watch(path: Any, other: Owner, shard: Shard, takeover: bool, say: Say) -> bool:
    """Wait for the answer of an owner on another host, or for the end of its lease; whether it is gone.

    With ``takeover`` a claim asks for its answer. Without, the owner lives if it renews its lock once.
    """
    claim = path.with_suffix(".claim")
    say(
        f"locks/{path.name}: held by {other}; waiting for its answer, or for {LEASE_SECONDS:.0f} s without a "
        "renewal of its lock"
    )
    mine = Owner.this_process(shard)
    if takeover:
        reader.write(claim, mine)
    state, since, begun = other, time.monotonic(), time.monotonic()
    try:
        while time.monotonic() - begun < WORD_SECONDS:
            time.sleep(min(0.5, HEARTBEAT_SECONDS / 4))
            found = _read(path)
            if found is None or found.nonce != other.nonce:
                return True  # that owner answered; any other owner is judged anew
            if found != state:
                if not takeover:
                    return False
                state, since = found, time.monotonic()
            elif time.monotonic() - since >= LEASE_SECONDS:
                return True
        return True  # the owner renews its lock but does not answer: the fence stops it
    finally:
        current = _read(claim)
        if takeover and current and current.nonce == mine.nonce:
            with contextlib.suppress(OSError):
                claim.unlink()


def _renew(path: Any, mine: Owner, fence: Fence, lost: Callable[[str, bool], None], ended: threading.Event) -> None:
    """Renew the lock until the block is over or somebody else owns it."""
    beats, asked = 0, False
    while not ended.wait(HEARTBEAT_SECONDS):
        try:
            try:
                fence.check()
            except FencedOff as error:
                lost(str(error), True)
                return
            claim = _read(path.with_suffix(".claim"))
            if claim is not None and not asked:
                asked = True
                lost(f"{claim} takes the sweep over", False)
            beats += 1
            reader.write(path, replace(mine, renewed=time.time(), beats=beats))
        except OSError:
            continue  # a full disk, or a bucket out of reach: a waiting process sees no renewal


@contextlib.contextmanager
def unowned(directory: Any) -> Iterator[None]:
    """Keep the sweep directory free of owners while the block runs, for a command that writes a file into it.

    Raises:
        InputError: somebody owns it; names host and process.
    """
    folder = paths.as_path(directory) / "locks"
    if paths.is_link(folder):
        raise InputError(f"--out: {directory}; its locks is a link to elsewhere, which `dwsweep run` sets aside")
    paths.make_directory(folder)
    with exclusive(folder / "guard"):
        for owner in owners(directory):
            if owner.is_alive:
                raise InputError(_refusal(directory, owner))
        yield


def _create(path: Any, owner: Owner, directory: Any) -> None:
    # written first and linked then: a lock never exists without its owner's name
    draft = path.with_name(f".{path.name}.{owner.nonce}.{os.getpid()}.tmp")
    reader.write(draft, owner)
    try:
        os.link(draft, path)
    except FileExistsError:  # this file system voids the guard, and another process was faster
        other = _read(path)
        raise InputError(_refusal(directory, other) if other else f"--out: {directory}; it is owned") from None
    except OSError:  # no hard links here
        os.replace(draft, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def _refusal(directory: Any, owner: Owner) -> str:
    hint = "wait for it or stop it" if owner.is_local else "if that process is gone, add --takeover"
    return f"--out: {directory}; another `dwsweep run` owns it ({owner}); {hint}"
