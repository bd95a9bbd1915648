"""manifest.json: with what, where and how a sweep was made."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import dwsweep
from dwsweep.locks import exclusive
from dwsweep.sweep.sweep_directory import SweepStore

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
_CALLS_KEPT = 100


def record_call(store: SweepStore, **flags: Any) -> None:
    """Add this call to the manifest: time, host, command line, flags, versions, git commit."""
    call = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": platform.node(),
        "command": sys.argv,
        "flags": flags,
        "git_commit": git_commit(),
    }
    with guarded(store):
        manifest = store.manifest
        calls = (*manifest.calls, call)[-_CALLS_KEPT:]
        store.write_manifest(replace(manifest, versions=versions(), calls=calls))


def record_device(store: SweepStore, facts: dict[str, Any]) -> None:
    """Add what a worker reported of its devices, once for each kind."""
    kind = facts.get("device_kind")
    with guarded(store):
        manifest = store.manifest
        if kind is None or kind in manifest.devices:
            return
        found: dict[str, Any] = {name: facts[name] for name in ("devices", "attention_kernel") if name in facts}
        store.write_manifest(replace(manifest, devices=manifest.devices | {kind: found}))


def guarded(store: SweepStore) -> contextlib.AbstractContextManager[None]:
    """Shards add to one manifest."""
    return exclusive(store.directory / "locks" / "manifest.guard")


def versions() -> dict[str, str]:
    found = {"dwsweep": dwsweep.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_commit() -> str | None:
    """The commit of the package's own working tree, with ``+`` where it has changes; None outside of one."""
    root = Path(dwsweep.__file__).parent

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
