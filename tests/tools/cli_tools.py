"""The command line in this process: what it prints and the status it exits with, without a new interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from dwsweep import cli

Command = Callable[..., CompletedProcess[str]]


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``dwsweep(arguments…, cwd=…)``; ``DWSWEEP_…`` and the like are set with ``monkeypatch``."""

    def dwsweep(*arguments: str | Path, cwd: Path | None = None) -> CompletedProcess[str]:
        texts = list(map(os.fspath, arguments))
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["dwsweep", *texts])
            if cwd is not None:
                patched.chdir(cwd)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = capsys.readouterr()
        return CompletedProcess(texts, int(ended.value.code or 0), out, err)

    return dwsweep
