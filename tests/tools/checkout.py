"""Where things are: in this checkout, for other processes too, and on this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

TOOLS = Path(__file__).parent
ROOT = TOOLS.parents[1]
SWEEPS = ROOT / "sweeps"
SMOKE = SWEEPS / "smoke.yaml"


def free_address() -> str:
    """Of this machine, where nobody listens yet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def environment(**more: str) -> dict[str, str]:
    """Of a process that finds the package of this checkout and the modules beside this one, with ``more`` in it."""
    path = [str(ROOT), str(TOOLS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}
