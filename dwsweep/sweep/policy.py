"""Decisions after an attempt at a pack: the cause of its end, found from an exception inside the worker or from the way
its process ended, and a pure decision by that cause.

A new cause of failure needs a name below, a test in ``of_exception`` or ``of_exit``, and a case in ``decide``.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from dwsweep import paths
from dwsweep.cost.arithmetic import halved
from dwsweep.errors import InputError
from dwsweep.records.pack import REBUILT, Pack, PackEvent, PackState
from dwsweep.records.run import DONE, FAILED, INTERRUPTED, OOM, PENDING
from dwsweep.sweep.events import Ended

CRASH, ERROR, DISK_FULL = "crash", "error", "disk_full"

MAX_HALVINGS = 3  # halvings of the microbatch before the pack is split; each costs a compilation
LOG_TAIL_LINES = 30
START_SECONDS = 5.0  # time to heed a stop before the first step: nothing is saved then, and a compiler hears none

_LEFT_WAITING = re.compile(r"Termination timeout for `all reduce .* exceeded")
_DISK_FULL = re.compile(r"no space left on device|disk quota exceeded|file too large|\bENOSPC\b", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|out of memory|bad_alloc|MemoryError|cannot allocate memory|failed to allocate", re.IGNORECASE
)


def of_exception(error: BaseException) -> tuple[str, str]:
    """(kind, cause) of a trainer's exception.

    A full disk comes before an exhausted memory: storage libraries report it by the same RESOURCE_EXHAUSTED.
    A bucket or a file system that does not answer stops the sweep: no pack is at fault.
    Wrong input is not retried; anything else may be a fault of the device and is.
    """
    chain = paths.chain(error)
    cause = f"{type(error).__name__}: {first_line(str(error))}".rstrip(": ")
    if is_disk_full(error):
        return DISK_FULL, f"the disk is full, or files may not be as large ({cause}): free space, or raise ulimit -f"
    if reason := paths.out_of_reach(error):
        return INTERRUPTED, reason
    if any(isinstance(link, MemoryError) or _OUT_OF_MEMORY.search(str(link)) for link in chain):
        return OOM, f"out of memory ({cause})"
    if any(isinstance(link, InputError) for link in chain):
        return ERROR, first_line(str(error))
    return CRASH, cause


def of_exit(returncode: int, log_tail: str, kernel_kills: int) -> tuple[str, str]:
    """(kind, cause) of a worker process that exited without reporting.

    Args:
        returncode: as ``subprocess`` gives it; −9 for SIGKILL.
        log_tail: the last lines of its log.
        kernel_kills: processes that the kernel killed for memory while it ran; only then is a SIGKILL an
            out-of-memory, otherwise somebody else's doing and a crash.
    """
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        cause = f"the worker was killed by {name}"
    else:
        # a worker that exits by itself gives the reason in its last line
        last = next((line.strip() for line in reversed(log_tail.splitlines()) if line.strip()), "")
        cause = f"the worker exited with status {returncode}" + (f" ({first_line(last)})" if last else "")
    if returncode == -signal.SIGKILL:
        return (OOM, f"{cause}: the kernel ran out of memory") if kernel_kills else (CRASH, cause)
    if _DISK_FULL.search(log_tail):
        return DISK_FULL, f"{cause}: the disk is full"
    if _OUT_OF_MEMORY.search(log_tail):
        return OOM, f"{cause}: out of memory"
    if _LEFT_WAITING.search(log_tail):
        # a core that cannot get its memory exits without reporting, and the others wait for its gradients
        return OOM, f"{cause}: a CPU core did not reach the sum of the gradients, most likely out of memory"
    return CRASH, cause


def kernel_oom_kills() -> int:
    """Number of processes killed so far by this machine's kernel for lack of memory; 0 if the kernel gives no count."""
    try:
        text = Path("/proc/vmstat").read_text("utf-8")
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def is_disk_full(error: BaseException) -> bool:
    # EFBIG: a limit on the size of files (``ulimit -f``), which no attempt at another pack gets around either
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return any(getattr(link, "errno", None) in numbers or _DISK_FULL.search(str(link)) for link in paths.chain(error))


def tail(path: str | os.PathLike[str], start: int = 0) -> str:
    """The last 16 KiB of a log from byte ``start`` on; empty when there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 16_384))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def last_lines(text: str) -> str:
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])


def first_line(text: str, limit: int = 300) -> str:
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    return line if len(line) <= limit else line[: limit - 1] + "…"


@dataclass(frozen=True)
class Decision:
    """Decision: the pack's new state, the packs to queue in its place, and the new state of its unfinished runs."""

    state: PackState
    queue: tuple[Pack, ...] = ()
    run_state: str | None = None  # None: as the worker left it
    stops_sweep: bool = False


def decide(
    pack: Pack, state: PackState, ended: Ended, max_retries: int, finished: Collection[str] = (), checkpoint: int = 0
) -> Decision:
    """Decision for a pack; ``finished`` are its runs that have their result, ``checkpoint`` is its newest one.

    - done, interrupted: nothing to do.
    - out of memory: the microbatch is halved, at the same global batch, and the pack resumes from its checkpoint;
      after ``MAX_HALVINGS`` the pack is split in two, which start anew (a replica's last bits depend on the size of
      its pack); one replica alone is halved down to one sequence a device, then given up as ``oom``.
    - crash: tried again from its checkpoint, ``max_retries`` times without a new checkpoint.
    - error: wrong input; it fails at once.
    - disk full: the sweep stops; the pack keeps its last good checkpoint.
    """
    moved_on = checkpoint > state.checkpoint
    state = replace(state, checkpoint=max(checkpoint, state.checkpoint))

    def after(action: str, **changes: object) -> PackState:
        event = PackEvent(time.time(), ended.kind, ended.cause, action, ended.step)
        return state.with_event(event, **changes)

    if ended.kind == DONE:
        return Decision(replace(state, state=DONE))
    if ended.kind == INTERRUPTED:
        return Decision(after("resumes with the next run", state=INTERRUPTED), (), INTERRUPTED)
    if ended.kind == DISK_FULL:
        stopped = after("the sweep stops", state=INTERRUPTED)
        return Decision(stopped, (), INTERRUPTED, stops_sweep=True)
    if ended.kind == OOM:
        return _out_of_memory(pack, state, ended, finished, after)
    if ended.kind == CRASH:
        retries = 1 if moved_on else state.retries + 1
        if retries <= max_retries:
            action = f"retry {retries} of {max_retries} from the last checkpoint"
            return Decision(after(action, state=PENDING, retries=retries), (pack,), INTERRUPTED)
        given_up = f"given up after {max_retries} {'retry' if max_retries == 1 else 'retries'}"
        return Decision(after(given_up, state=FAILED), (), FAILED)
    return Decision(after("given up", state=FAILED), (), FAILED)


def _out_of_memory(
    pack: Pack, state: PackState, ended: Ended, finished: Collection[str], after: Callable[..., PackState]
) -> Decision:
    batch = pack.train.batch_size
    used = ended.microbatch or state.microbatch or pack.execution.microbatch or batch
    alone = len(pack.replicas) == 1
    # devices that share a sequence batch hold at least one sequence each: the trainer uses no fewer
    at_floor = state.microbatch is not None and used > state.microbatch
    smaller = None if at_floor else halved(batch, used)
    if smaller is not None and (alone or state.halvings < MAX_HALVINGS):
        action = f"microbatch {used} → {smaller} of {batch} sequences"
        changed = after(action, state=PENDING, microbatch=smaller, halvings=state.halvings + 1)
        return Decision(changed, (pack,), INTERRUPTED)
    if alone:
        least = "one sequence" if used == 1 else f"{used} sequences, the fewest that its devices can share"
        return Decision(after(f"given up at {least}", state=OOM, microbatch=used), (), OOM)
    children = split(pack, finished, used)
    names = tuple(child.pack_id for child in children)
    changed = after(f"split into {' and '.join(names)}", state=REBUILT, rebuilt_into=(*state.rebuilt_into, *names))
    return Decision(changed, children, PENDING)


def with_microbatch(pack: Pack, microbatch: int | None) -> Pack:
    """The pack with another microbatch than its spec's; as it is for None."""
    if microbatch is None:
        return pack
    return replace(pack, execution=pack.execution.model_copy(update={"microbatch": microbatch}))


def split(pack: Pack, finished: Collection[str] = (), microbatch: int | None = None) -> tuple[Pack, ...]:
    """Packs of half the replicas each; replicas whose runs are all finished are left out."""
    members = [replica for replica in pack.replicas if not set(replica.run_ids) <= set(finished)]
    middle = (len(members) + 1) // 2
    parts = [part for part in (members[:middle], members[middle:]) if part]
    return tuple(
        with_microbatch(replace(pack, pack_id=f"{pack.pack_id}-{letter}", replicas=tuple(part)), microbatch)
        for letter, part in zip("ab", parts, strict=False)
    )
