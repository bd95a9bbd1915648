"""Why an attempt at a pack ended: told from an exception inside the worker, or from how its process died."""

from __future__ import annotations

import errno
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwsweep.errors import InputError

DONE, INTERRUPTED = "done", "interrupted"
OOM, CRASH, ERROR, DISK_FULL = "oom", "crash", "error", "disk_full"

_LEFT_WAITING = re.compile(r"Termination timeout for `all reduce .* exceeded")
_DISK_FULL = re.compile(r"no space left on device|disk quota exceeded|\bENOSPC\b", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|out of memory|bad_alloc|MemoryError|cannot allocate memory|failed to allocate", re.IGNORECASE
)
LOG_TAIL_LINES = 30


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: ``kind`` is one of the names above, ``cause`` one line for a person."""

    kind: str
    cause: str = ""
    log_tail: str | None = None
    resumed_step: int = 0  # the step that the attempt went on from
    step: int = 0  # the last step heard of
    microbatch: int | None = None  # sequences a forward pass that the trainer used, where it came that far


def of_exception(error: BaseException) -> tuple[str, str]:
    """(kind, cause) of what a trainer raised.

    A full disk comes before an exhausted memory: storage libraries report it by the same RESOURCE_EXHAUSTED.
    Wrong input is not retried; anything else may be a fault of the device and is.
    """
    chain = list(_chain(error))
    cause = f"{type(error).__name__}: {first_line(str(error))}".rstrip(": ")
    if any(_is_disk_full(link) for link in chain):
        return DISK_FULL, f"the disk is full ({cause})"
    if any(isinstance(link, MemoryError) or _OUT_OF_MEMORY.search(str(link)) for link in chain):
        return OOM, f"out of memory ({cause})"
    if any(isinstance(link, InputError) for link in chain):
        return ERROR, first_line(str(error))
    return CRASH, cause


def of_exit(returncode: int, log_tail: str, kernel_kills: int) -> tuple[str, str]:
    """(kind, cause) of a worker process that died without a word.

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
        # a worker that came so far as to leave by itself says why on its last line
        last = next((line.strip() for line in reversed(log_tail.splitlines()) if line.strip()), "")
        cause = f"the worker exited with status {returncode}" + (f" ({first_line(last)})" if last else "")
    if returncode == -signal.SIGKILL:
        return (OOM, f"{cause}: the kernel ran out of memory") if kernel_kills else (CRASH, cause)
    if _DISK_FULL.search(log_tail):
        return DISK_FULL, f"{cause}: the disk is full"
    if _OUT_OF_MEMORY.search(log_tail):
        return OOM, f"{cause}: out of memory"
    if _LEFT_WAITING.search(log_tail):
        # a core that cannot get its memory ends without a word, and the others wait for its gradients
        return OOM, f"{cause}: a core of the CPU did not come to the sum of the gradients, most likely out of memory"
    return CRASH, cause


def kernel_oom_kills() -> int:
    """Processes that the kernel of this machine has killed for want of memory so far; 0 where it does not say."""
    try:
        text = Path("/proc/vmstat").read_text("utf-8")
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def is_disk_full(error: BaseException) -> bool:
    return any(_is_disk_full(link) for link in _chain(error))


def tail(path: str | os.PathLike[str], start: int = 0, lines: int = LOG_TAIL_LINES) -> str:
    """The last ``lines`` of a log from byte ``start`` on, of its last 16 KiB; empty when there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 16_384))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return last_lines(text, lines)


def last_lines(text: str, lines: int = LOG_TAIL_LINES) -> str:
    return "\n".join(text.splitlines()[-lines:])


def first_line(text: str, limit: int = 300) -> str:
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _is_disk_full(error: Any) -> bool:
    number = getattr(error, "errno", None)
    return number in (errno.ENOSPC, errno.EDQUOT) or bool(_DISK_FULL.search(str(error)))


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links
