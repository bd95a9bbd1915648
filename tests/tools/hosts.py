"""Processes on what looks like another host."""

from __future__ import annotations

import shutil
import subprocess

import pytest

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
HOST = [*UNSHARE, "--uts", "--net", "sh", "-c", 'hostname another-host && exec "$@"', "sh"]


def can_unshare(command: list[str]) -> bool:
    return bool(shutil.which("unshare")) and not subprocess.run([*command, "true"], capture_output=True).returncode


own_host = pytest.mark.skipif(
    not can_unshare(HOST), reason="needs the right to make spaces of process numbers and names"
)
