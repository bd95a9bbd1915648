"""Where things are: in this checkout, for other processes too, and on this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

TOOLS = Path(__file__).parent
ROOT = TOOLS.parents[1]
SWEEPS = ROOT / "sweeps"
SMOKE = SWEEPS / "smoke.yaml"
LAPTOP = SWEEPS / "results" / "laptop"


def free_address() -> str:
    """Free address of this machine, on which nobody listens yet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def environment(*folders: Path, **more: str) -> dict[str, str]:
    """Environment of a process that finds the package of this checkout and the modules beside this one; with
    modules from ``folders``, and with ``more`` in it."""
    path = [*map(str, folders), str(ROOT), str(TOOLS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}
