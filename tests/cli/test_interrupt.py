"""Ctrl-C, sent to the whole process group as a terminal does, or SIGTERM, at any moment: one line and exit status 3."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import SMOKE
from cli_tools import begun


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
    sets = ("--set", "data.workers=2")
    process = begun(command, SMOKE, *sets, cwd=tmp_path, stderr=subprocess.PIPE, group=True, DWSWEEP_CACHE=str(cache))
    while not list(cache.glob("*.lock")) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (3, "error: interrupted\n")
    assert not list(cache.glob("*.partial"))


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.9])
def test_a_scheduler_stops_it_at_its_start(tmp_path: Path, seconds: float) -> None:
    process = begun("run", SMOKE, cwd=tmp_path, stderr=subprocess.PIPE, DWSWEEP_CACHE=str(tmp_path / "cache"))
    deadline = time.monotonic() + 5
    while not handles(process.pid, signal.SIGTERM) and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (3, "error: interrupted\n")
