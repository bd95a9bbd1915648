"""Extras of the package against the pinned versions, by pip's own resolver and the registry that pip is given."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pip of an empty environment; skips where no registry answers it."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = venv / "bin" / "pip"
    asked = [pip, "download", "--quiet", "--no-deps", "--dest", venv, "-c", ROOT / "constraints.txt", "packaging"]
    if subprocess.run(asked, capture_output=True, timeout=120).returncode:
        pytest.skip("no package registry answers")
    return pip


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_resolves_against_the_pinned_versions(pip: Path, extra: str) -> None:
    command = [pip, "install", "--dry-run", "--quiet", "-c", ROOT / "constraints.txt", f"{ROOT}[{extra}]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
