"""The claim on a sweep directory, or on a shard of it: one owner at a time, whose end is seen however it comes.

Where the file system has the kernel's locks (flock), the claim is such a lock, free when its process is dead:

locks/shard-I-of-N.lock     locked by the owner, and names it
locks/shard-I-of-N.workers  locked in common by the workers while they train: the next owner waits for them
locks/shard-I-of-N.request  locked by a process that waits to take over: the request dies with its maker

In a bucket, and where locks reach no other host, the claim is a lease: an object whose name holds an epoch and that is
made on the condition that it is not there (``paths.create``). The highest epoch owns; the owner writes its object anew
every ``HEARTBEAT_SECONDS``, and one that stands still for ``LEASE_SECONDS``, by the clock of who waits, is nobody's.

locks/shard-I-of-N.EPOCH.lock  the owner, and when it was last there; the last one stays, for its epoch
locks/shard-I-of-N.request     a process that waits to take over, heeded only while it is written anew

A lease alone does not stop an owner that slept through it, so every write into the directory first asks
``Claim.check``: a token that grows, checked where the write is done (Kleppmann 2016).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.locks import TRY_SECONDS, locked, opened
from dwsweep.paths import FencedOff
from dwsweep.records import record as reader
from dwsweep.records.record import Count, Damaged, Positive

Shard = tuple[int, int]  # (index, count)
Say = Callable[[str], None]
Lost = Callable[[str, bool], None]


def _seconds(name: str, default: float) -> float:
    with contextlib.suppress(ValueError):
        return max(0.5, float(os.environ.get(name, "")))
    return default


LEASE_SECONDS = _seconds("DWSWEEP_LEASE_SECONDS", 60.0)  # silence after which an owner counts as asleep or gone
HEARTBEAT_SECONDS = LEASE_SECONDS / 6
ANSWER_SECONDS = 15 * 60.0  # time for a living owner to bring its packs to a checkpoint
ORPHAN_SECONDS = 180.0  # time for workers of a dead owner, which end by themselves sooner
LOOK_SECONDS = 1.0  # interval between two looks at the locks of a bucket, since each look is a request
FORGOTTEN_SECONDS = 600.0  # age of a lease, by clocks that may differ, beyond which `status` names no owner
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
_OWN_LOCKS = {"local_lock=all", "local_lock=flock", "localflock"}  # mounts whose locks no other host sees
_LOCK = re.compile(r"shard-(\d+)-of-(\d+)(?:\.(\d+))?\.lock")


@dataclass(frozen=True)
class Owner:
    """Process that owns a sweep directory or waits for it, as its lock or request names it."""

    host: str
    pid: Positive
    shard: tuple[Count, Positive]  # (index, count)
    since: Annotated[float, Field(ge=0, lt=1e11)]  # seconds since the epoch
    nonce: str
    epoch: Count = 0  # of a lease: grows with every owner
    renewed: Annotated[float, Field(ge=0, lt=1e11)] | None = None  # of a lease: seconds since the epoch
    ended: bool = False  # of a lease: given back

    @classmethod
    def this_process(cls, shard: Shard, epoch: int = 0) -> Owner:
        return cls(platform.node(), os.getpid(), shard, time.time(), secrets.token_hex(8), epoch, time.time())

    def __str__(self) -> str:
        part = "" if self.shard == (0, 1) else f", shard {self.shard[0]}/{self.shard[1]}"
        return f"host {self.host}, process {self.pid}{part}, since {time.strftime('%F %T', time.localtime(self.since))}"


@dataclass(frozen=True)
class Claim:
    """Right to write into a sweep directory; parent and workers have the same."""

    lock: str  # file of the lock
    nonce: str  # of its owner
    epoch: int = 0  # of a lease; 0: a lock of the kernel
    inode: int = 0  # of the kernel's lock

    def check(self) -> None:
        """
        Raises:
            FencedOff: the directory has another owner, or the lock is gone.
        """
        if self.epoch:
            look = int(time.monotonic() / LOOK_SECONDS)  # this clock goes on while the process is stopped
            if _looked.get(self) == look:
                return
            by = _superseded(paths.as_path(self.lock), self.epoch)
            _looked[self] = look
        else:
            by = "" if _inode(self.lock) == self.inode else f"{self.lock} is gone"
        if by:
            _looked.pop(self, None)
            raise FencedOff(f"this process does not own the sweep any more ({by}); it writes nothing more")

    def guard(self, directory: Any) -> contextlib.AbstractContextManager[None]:
        """Check the claim before every write of this process into the directory, while the block runs."""
        return paths.fence(paths.as_path(directory), self.check)

    @contextlib.contextmanager
    def at_work(self, directory: Any) -> Iterator[None]:
        """A worker's part of the claim: while the block runs, no other owner begins.

        Raises:
            FencedOff: the directory has another owner.
        """
        with contextlib.ExitStack() as held:
            if not self.epoch:
                lock = held.enter_context(opened(_beside(self.lock, "workers")))
                if not locked(lock, fcntl.LOCK_SH):
                    raise FencedOff("the next owner of the sweep has begun; this process writes nothing more")
                if (owner := _read(Path(self.lock))) is None or owner.nonce != self.nonce:
                    raise FencedOff(f"this process does not own the sweep any more ({owner}); it writes nothing more")
            self.check()
            held.enter_context(self.guard(directory))
            yield


_looked: dict[Claim, int] = {}  # time of the last look at each lease


@contextlib.contextmanager
def hold(
    directory: Any,
    shard: Shard = (0, 1),
    takeover: bool = False,
    say: Say = lambda line: None,
    lost: Lost = lambda why, at_once: None,
) -> Iterator[Claim]:
    """Own the sweep directory, or one shard of it, while the block runs.

    A directory that nobody holds is taken. With ``takeover`` an owner is asked to let go. Owners of different shards of
    the same division live side by side; another division would train packs twice, and is refused.

    ``lost`` is called by another thread: with False when a process asks for the directory, with True when another owns
    it.

    Raises:
        InputError: somebody else holds it; names host and process.
    """
    kind = _Lock if _has_locks(folder := _folder_of_locks(directory), say) else _Lease
    held = kind(directory, folder, shard, takeover, say)
    try:
        claim = held.take()
    except OSError as error:
        error.filename = error.filename or str(folder)  # a write to an open file names none
        raise
    ended = threading.Event()
    beat = threading.Thread(target=_renew, args=(held, claim, lost, ended), daemon=True)
    try:
        with claim.guard(directory):
            beat.start()
            yield claim
    finally:
        ended.set()
        beat.join()
        held.release()


def owners(directory: Any) -> list[Owner]:
    """Owners of a sweep directory that hold it now."""
    folder = paths.as_path(directory) / "locks"
    found = []
    for name in paths.names_in(folder) if not paths.is_link(folder) else ():
        if not (named := _LOCK.fullmatch(name)):
            continue
        owner = _read(folder / name)
        if named[3] is None:
            alive = _is_locked(folder / name)
        else:
            alive = owner is not None and not owner.ended and time.time() - (owner.renewed or 0.0) < FORGOTTEN_SECONDS
        if alive:  # an owner is unknown for the moment in which it writes its name
            found.append(owner or Owner("unknown", 1, (int(named[1]), int(named[2])), 0.0, ""))
    return found


def _renew(held: _Lock | _Lease, claim: Claim, lost: Lost, ended: threading.Event) -> None:
    """Give signs of life, until the block is over or somebody else owns the directory."""
    asked = False
    while not ended.wait(HEARTBEAT_SECONDS):
        try:
            claim.check()
            held.renew()
            if not asked and (by := held.asked()):
                asked = True
                lost(f"{by} takes the sweep over", False)
        except FencedOff as error:
            lost(str(error), True)
            return
        except Exception as error:  # a full disk, or a bucket out of reach: a waiting process sees no sign of life
            if not (isinstance(error, OSError) or paths.is_of_a_client(error)):
                raise


def _refusal(directory: Any, owner: Owner | None) -> InputError:
    return InputError(
        f"--out: {directory}; another `dwsweep run` owns it ({owner or 'no name'}); wait for it or stop it, or add "
        "--takeover, which asks it to let go at a checkpoint"
    )


def _folder_of_locks(directory: Any) -> Any:
    """Folder ``locks``, created if missing.

    Raises:
        InputError: a link is in its place or in a lock's: it may lead to somebody else's file.
    """
    folder = paths.as_path(paths.absolute(directory)) / "locks"
    if not paths.is_remote(folder):
        for path in (folder, *(folder / name for name in paths.names_in(folder))):
            if paths.is_link(path):
                raise InputError(f"--out: {path}; must be no link: remove it")
        paths.make_directory(folder)
    return folder


def _read(path: Any) -> Owner | None:
    try:
        return reader.read(path, Owner)
    except Damaged:
        return None


def _beside(lock: Any, kind: str) -> Any:
    """File of the same shard: its ``workers``, its ``request``."""
    path = paths.as_path(lock)
    return path.with_name(f"{path.name.partition('.')[0]}.{kind}")


def _conflicts(name: str, shard: Shard) -> re.Match[str] | None:
    """Match of the name of a lock beside which ``shard`` cannot be owned: its own, or one of another division."""
    found = _LOCK.fullmatch(name)
    return found if found and (int(found[2]) != shard[1] or int(found[1]) == shard[0]) else None


# locks of the kernel


def _has_locks(folder: Any, say: Say) -> bool:
    """True where the file system has locks that every host sees."""
    if paths.is_remote(folder):
        return False
    with opened(folder / "guard") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            why = os.strerror(error.errno)
        else:
            why = ", ".join(_OWN_LOCKS & _mount_options(folder))
    if why:
        say(f"locks: this file system has no locks across hosts ({why}); the sweep is owned by a lease in their place")
    return not why


def _mount_options(folder: Path, table: Path = Path("/proc/self/mounts")) -> set[str]:
    """Options of the mount that holds the folder; none where the kernel has no such table."""
    best, found = "", ""
    with contextlib.suppress(OSError):
        place = f"{os.path.realpath(folder)}/"
        for line in table.read_text("utf-8", errors="replace").splitlines():
            point, options = line.split(" ")[1].replace("\\040", " ").rstrip("/") + "/", line.split(" ")[3]
            if place.startswith(point) and len(point) >= len(best):
                best, found = point, options
    return set(found.split(","))


def _is_locked(path: Any) -> bool:
    """True if a process holds the lock of a file; a file that cannot be opened is nobody's."""
    with contextlib.suppress(OSError), opened(path, os.O_RDONLY) as lock:
        return not locked(lock, fcntl.LOCK_SH, 0.0)
    return False


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


class _Lock:
    """Lock of the kernel on the file of a shard."""

    def __init__(self, directory: Any, folder: Path, shard: Shard, takeover: bool, say: Say) -> None:
        self.directory, self.folder, self.shard, self.takeover, self.say = directory, folder, shard, takeover, say
        self.path = folder / f"shard-{shard[0]}-of-{shard[1]}.lock"
        self._open = contextlib.ExitStack()

    def take(self) -> Claim:
        with contextlib.ExitStack() as undo:
            undo.callback(self._open.close)
            for rival in self._rivals():  # first, so that of two divisions neither waits with a lock in its hands
                with contextlib.ExitStack() as moment:
                    self._lock(rival, moment)
            self.descriptor = lock = self._lock(self.path, self._open)
            for rival in self._rivals():
                if _is_locked(rival):
                    raise _refusal(self.directory, _read(rival))
            mine = Owner.this_process(self.shard)
            data = reader.text_of(mine).encode()
            os.pwrite(lock, data, 0)
            os.ftruncate(lock, len(data))
            for path in (self.path, *self._rivals()):
                self._wait_for_workers(path)
            undo.pop_all()
        return Claim(str(self.path), mine.nonce, inode=os.fstat(lock).st_ino)

    def renew(self) -> None:
        """Renew the time of change, by which a host without locks sees that the owner lives."""
        os.utime(self.descriptor)

    def asked(self) -> str:
        path = _beside(self.path, "request")  # locked a moment before its maker's name is in it: the next look reads it
        return str(_read(path) or "") if _is_locked(path) else ""

    def release(self) -> None:
        self._open.close()

    def _rivals(self) -> list[Path]:
        """Locks of other divisions.

        Raises:
            InputError: one is a lease, of a host on which this file system has no locks.
        """
        found = []
        for name in paths.names_in(self.folder):
            if not (named := _conflicts(name, self.shard)):
                continue
            owner = _read(self.folder / name)
            if named[3] is not None and (owner is None or not owner.ended):
                raise InputError(
                    f"--out: {self.directory}; {owner or 'another process'} owns it by a lease, since its host sees no "
                    f"locks in this file system; if that process is gone, remove {self.folder / name}"
                )
            if named[3] is None and name != self.path.name:
                found.append(self.folder / name)
        return found

    def _lock(self, path: Path, keep: contextlib.ExitStack) -> int:
        """Lock the file of a shard, with ``takeover`` once its owner has let go; the descriptor, which ``keep``
        closes."""
        while True:
            lock = keep.enter_context(opened(path))
            if not locked(lock, fcntl.LOCK_EX):
                if not self.takeover:
                    raise _refusal(self.directory, _read(path))
                self._ask(path, lock)
            if _inode(str(path)) == os.fstat(lock).st_ino:  # else somebody removed the file
                return lock

    def _ask(self, path: Path, lock: int) -> None:
        """Ask the owner to let go, and wait until it has.

        Raises:
            InputError: it does not, or another process asks already; names the process to end.
        """
        request = _beside(path, "request")
        with opened(request) as asking:
            if not locked(asking, fcntl.LOCK_EX):
                raise InputError(f"--takeover: {self.directory}; another process waits for it ({_read(request)})")
            data = reader.text_of(Owner.this_process(self.shard)).encode()
            os.pwrite(asking, data, 0)
            os.ftruncate(asking, len(data))
            owner = _read(path) or "another process"
            self.say(f"locks/{path.name}: held by {owner}; waiting until it lets go at a checkpoint")
            if not locked(lock, fcntl.LOCK_EX, ANSWER_SECONDS):
                raise self._stuck(path, f"has not let go for {ANSWER_SECONDS / 60:.0f} min")

    def _wait_for_workers(self, lock: Path) -> None:
        """Wait for workers of an earlier owner: each writes its last checkpoint and ends.

        Raises:
            InputError: one does not.
        """
        path = _beside(lock, "workers")
        with opened(path) as workers:
            if locked(workers, fcntl.LOCK_EX, 0.0):
                return
            self.say(f"locks/{path.name}: waits for the worker of an earlier run to reach its checkpoint")
            if not locked(workers, fcntl.LOCK_EX, ORPHAN_SECONDS):
                raise self._stuck(path, f"has not ended for {ORPHAN_SECONDS:.0f} s after its parent's death")

    def _stuck(self, path: Path, why: str) -> InputError:
        return InputError(
            f"--out: {self.directory}; the process that holds {path} {why}: end it on its host "
            f"({_read(path) or f'a worker; `fuser -k {path}`'}), and run again"
        )


# leases


class _Lease:
    """Lease by an object of a bucket, or a file where the kernel has no locks."""

    def __init__(self, directory: Any, folder: Any, shard: Shard, takeover: bool, say: Say) -> None:
        self.directory, self.folder, self.shard, self.takeover, self.say = directory, folder, shard, takeover, say
        self._gone: set[str] = set()  # nonces of owners that stood still for a lease, or texts that name none
        self._request: str | None = None  # last text of the request that was seen

    def take(self) -> Claim:
        while True:
            rivals = self._rivals()
            if not rivals:
                if claim := self._create():
                    return claim
                time.sleep(random.uniform(0.0, TRY_SECONDS))  # another process was as fast
                continue
            path, text = rivals[0]
            if self._is_gone(path, text):
                continue
            raise _refusal(self.directory, _read(path))

    def renew(self) -> None:
        reader.write(self.path, replace(self.mine, renewed=time.time()))

    def asked(self) -> str:
        path = _beside(self.path, "request")
        before, self._request = self._request, _text(path)
        # a request that does not change is a dead process's
        is_alive = None not in (before, self._request) and before != self._request
        return str(_read(path) or "another process") if is_alive else ""

    def release(self) -> None:
        with contextlib.suppress(OSError):  # the next owner waits for the end of the lease
            if not _superseded(self.path, self.mine.epoch):
                reader.write(self.path, replace(self.mine, ended=True))

    def _rivals(self) -> list[tuple[Any, str]]:
        """(lock, its text) beside which the shard cannot be owned: the newest of each shard, unless given back.

        Raises:
            InputError: one is a lock of the kernel, of a host on which this file system has locks.
        """
        newest: dict[Shard, tuple[int, str]] = {}
        for name in paths.names_in(self.folder):
            if not (named := _conflicts(name, self.shard)):
                continue
            if named[3] is None and not paths.is_remote(self.folder):
                if time.time() - os.stat(self.folder / name).st_mtime < FORGOTTEN_SECONDS:
                    raise _refusal(self.directory, _read(self.folder / name))
                continue
            key = int(named[1]), int(named[2])
            newest[key] = max(newest.get(key, (0, "")), (int(named[3] or 0), name))
        found = []
        for _, name in newest.values():
            text, owner = _text(self.folder / name), _read(self.folder / name)
            if text is not None and not (owner and owner.ended) and not {owner.nonce if owner else text} & self._gone:
                found.append((self.folder / name, text))
        return found

    def _create(self) -> Claim | None:
        """Lease of the next epoch; None if another process has a right to the directory by now."""
        names = [name for name in paths.names_in(self.folder) if _LOCK.fullmatch(name)]
        epoch = 1 + max((int(named[3] or 0) for name in names if (named := _LOCK.fullmatch(name))), default=0)
        mine = Owner.this_process(self.shard, epoch)
        path = self.folder / f"shard-{self.shard[0]}-of-{self.shard[1]}.{epoch}.lock"
        if not paths.create(path, reader.text_of(mine)):
            return None
        if any(other.name != path.name for other, _ in self._rivals()) or _superseded(path, epoch):
            paths.remove(path)  # of two that make a lock at once, each sees the other's
            return None
        old = [name for name in names if _conflicts(name, self.shard)]
        for name in old:
            paths.remove(self.folder / name)
        if old:
            time.sleep(2 * LOOK_SECONDS)  # workers of the owner before see by then that they have lost it
        self.path, self.mine = path, mine
        return Claim(os.fspath(path), mine.nonce, epoch)

    def _is_gone(self, path: Any, text: str) -> bool:
        """Wait for the end of a lease; with ``takeover`` ask for it. False if its owner lives and does not let go."""
        owner, request = _read(path), _beside(path, "request")
        self.say(
            f"locks/{path.name}: held by {owner or 'another process'}; waiting until it "
            + ("lets go at a checkpoint, or " if self.takeover else "")
            + f"gives no sign of life for {LEASE_SECONDS:.0f} s"
        )
        mine = Owner.this_process(self.shard)
        since = begun = time.monotonic()
        written = float("-inf")
        try:
            while time.monotonic() - since < LEASE_SECONDS and time.monotonic() - begun < ANSWER_SECONDS:
                if self.takeover and time.monotonic() - written >= HEARTBEAT_SECONDS / 2:
                    written = time.monotonic()
                    reader.write(request, replace(mine, renewed=time.time()))
                time.sleep(min(0.5, HEARTBEAT_SECONDS / 4))
                found, now = _text(path), _read(path)
                if found is None or now is None or now.ended or (owner is not None and now.nonce != owner.nonce):
                    return True  # any other owner is judged anew
                if found != text:
                    if not self.takeover:
                        return False
                    text, since = found, time.monotonic()
            self._gone.add(owner.nonce if owner else text)  # one that lives and keeps it is stopped by its own checks
            return True
        finally:
            if self.takeover:
                paths.remove(request)


def _superseded(lock: Any, epoch: int) -> str:
    """Later owner of a sweep, by the names of the leases; empty for nobody."""
    names = paths.names_in(lock.parent)
    named = _LOCK.fullmatch(lock.name)
    if lock.name not in names or named is None:
        return "its lock is gone"
    for name in names:
        other = _conflicts(name, (int(named[1]), int(named[2])))
        if other and int(other[3] or 0) > epoch:
            return f"{_read(lock.parent / name) or name}, epoch {other[3]}"
    return ""


def _text(path: Any) -> str | None:
    try:
        return str(paths.read_bytes(path).decode(errors="replace"))
    except OSError:
        return None
