"""Ctrl-C, sent to the whole process group as a terminal does, at any moment: one line and exit status 3."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SMOKE = Path(__file__).parent.parent / "sweeps" / "smoke.yaml"


def test_while_the_command_line_is_imported() -> None:
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from dwsweep.__main__ import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (3, "error: interrupted\n")


@pytest.mark.parametrize(("command", "seconds"), [("prepare", 0.0), ("run", 0.2), ("prepare", 1.0)])
def test_while_the_processes_that_read_text_start(tmp_path: Path, command: str, seconds: float) -> None:
    """They are new interpreters: Ctrl-C must not reach them before they can ignore it."""
    cache = tmp_path / "cache"
    arguments = [command, str(SMOKE), "--set", "data.workers=2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dwsweep", *arguments],
        env={**os.environ, "DWSWEEP_CACHE": str(cache)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(cache.glob("*.lock")) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (3, "error: interrupted\n")
    assert not list(cache.glob("*.partial"))
