"""One owner per sweep directory and shard."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.locks import exclusive
from dwsweep.records import reader
from dwsweep.records.reader import Damaged
from dwsweep.records.sweep_files import Owner

Shard = tuple[int, int]  # (index, count)


def owners(directory: Any) -> list[Owner]:
    """Everyone who holds a lock of the sweep directory, dead ones included; damaged locks name nobody."""
    return [owner for _, owner in _locks(paths.as_path(directory) / "locks") if owner is not None]


def _locks(folder: Any) -> Iterator[tuple[Any, Owner | None]]:
    for name in paths.names_in(folder):
        if name.endswith(".lock"):
            yield folder / name, _read(folder / name)


def _read(path: Any) -> Owner | None:
    try:
        return reader.read(path, Owner)
    except Damaged:
        return None


@contextlib.contextmanager
def hold(
    directory: Any, shard: Shard = (0, 1), takeover: bool = False, say: Callable[[str], None] = lambda line: None
) -> Iterator[Owner]:
    """Own the sweep directory, or one shard of it, while the block runs.

    A dead owner on this host is taken over; one on another host only with ``takeover``. Owners of different shards of
    the same division live side by side; a different division would train packs twice and is refused. A lock that
    cannot be read is set aside, which ``say`` hears: a lock appears with its content or not at all.

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
        for found, other_owner in list(_locks(folder)):
            with contextlib.suppress(FileNotFoundError):
                if other_owner is None:
                    say(f"locks/{found.name}: names no owner; set aside as {paths.set_aside(found)}")
                elif other_owner.shard == shard or other_owner.shard[1] != shard[1]:
                    found.unlink()
        _create(path, json.dumps(reader.to_dict(mine)), directory)
    try:
        yield mine
    finally:
        current = _read(path)
        if current and current.nonce == mine.nonce:
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def unowned(directory: Any) -> Iterator[None]:
    """Nobody owns the sweep directory while the block runs, nor begins to: for a command that writes a file into it.

    Raises:
        InputError: somebody owns it; names host and process.
    """
    folder = paths.make_directory(paths.as_path(directory) / "locks")
    with exclusive(folder / "guard"):
        for owner in owners(directory):
            if owner.is_alive:
                raise InputError(_refusal(directory, owner))
        yield


def _create(path: Any, content: str, directory: Any) -> None:
    if paths.is_remote(path):
        path.write_text(content, "utf-8")
        return
    # written first and linked then: a lock never exists without its owner's name
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, "utf-8")
    try:
        os.link(draft, path)
    except FileExistsError:  # the guard is void on this file system, and somebody was faster
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
