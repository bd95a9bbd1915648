"""Extras of the package against the pinned versions, by pip's own resolver and the registry that pip is given."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


@pytest.mark.slow
def test_all_extras_resolve_against_the_pinned_versions(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    pip, pinned = tmp_path / "bin" / "pip", ["-c", ROOT / "constraints.txt"]
    asked = [pip, "download", "--quiet", "--no-deps", "--dest", tmp_path, *pinned, "packaging"]
    if subprocess.run(asked, capture_output=True, timeout=120).returncode:
        pytest.skip("no package registry answers")
    for extra in EXTRAS:
        command = [pip, "install", "--dry-run", "--quiet", *pinned, f"{ROOT}[{extra}]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, (extra, done.stderr[-2000:])
