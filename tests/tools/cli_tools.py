"""``dwsweep`` as a command: in this process, without a new interpreter; in one of its own; and begun in one, to go on.

The first is the fixture ``dwsweep``. All take the arguments as a person types them, paths as they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess, Popen

import pytest
from checkout import environment

from dwsweep.cli import app

DWSWEEP = [sys.executable, "-m", "dwsweep"]

Command = Callable[..., CompletedProcess[str]]


def in_this_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``dwsweep(arguments…, cwd=…)``; ``DWSWEEP_…`` and the like are set with ``monkeypatch``."""

    def dwsweep(*arguments: str | Path, cwd: Path | None = None) -> CompletedProcess[str]:
        texts = list(map(os.fspath, arguments))
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["dwsweep", *texts])
            if cwd is not None:
                patched.chdir(cwd)
            with pytest.raises(SystemExit) as ended:
                app.main()
        out, err = capsys.readouterr()
        return CompletedProcess(texts, int(ended.value.code or 0), out, err)

    return dwsweep


def in_a_process(*arguments: object, seconds: float = 120, **more: str) -> CompletedProcess[str]:
    """Streams, encodings and exit status as a shell has them; ``more`` for its environment."""
    command = [*DWSWEEP, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment(**more))


def begun(
    *arguments: str | Path, cwd: Path | None = None, stderr: int = subprocess.STDOUT, group: bool = False, **more: str
) -> Popen[str]:
    """One that goes on beside the test; with ``group`` in a group of its own, to be sent what a terminal sends."""
    return Popen(
        [*DWSWEEP, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment(**more),
        cwd=cwd,
        start_new_session=group,
    )
