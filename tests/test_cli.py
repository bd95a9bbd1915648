"""The command line in a subprocess: exit statuses, one line an error, help that is instant and shows examples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SWEEPS = Path(__file__).parent.parent / "sweeps"
SMOKE = SWEEPS / "smoke.yaml"


def dwsweep(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dwsweep.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def spec_with(tmp_path: Path, old: str, new: str) -> Path:
    text = SMOKE.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds:", "sedes:", ["grid.sedes", "seeds"]),
        ("depths: [1,", "depths: [-1,", ["grid.depths[0]", "-1", "greater than 0"]),
        ("heads: {count: 2}", "heads: {count: 3}", ["grid.width_multiple", "2", "grid.heads.count 3"]),
        (" steps: 500", " steps: many", ["train.steps", "many", "integer"]),
        ("source: stdlib-docs", "source: 'text:nowhere/*.txt'", ["data.source", "nowhere/*.txt"]),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_bad_spec_is_one_line_and_exit_2(tmp_path: Path, command: str, old: str, new: str, words: list[str]) -> None:
    if command == "plan" and "nowhere" in new:
        pytest.skip("plan works before the data is there")
    result = dwsweep(command, spec_with(tmp_path, old, new), "--out", tmp_path / "out")
    lines = result.stderr.strip().splitlines()
    assert result.returncode == 2
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert all(word in lines[0] for word in words), lines[0]
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "missing.yaml"],
        ["plan", "missing.yaml"],
        ["fit", "missing.csv"],
        ["report", "missing"],
        ["status", "missing"],
        ["nonsense"],
        ["theory", "--width", "wide"],
        ["run", SMOKE, "--shard", "3/2"],
        ["run", SMOKE, "--set", "train.stepz=3"],
    ],
    ids=str,
)
def test_wrong_arguments_exit_2_without_a_traceback(tmp_path: Path, arguments: list[str | Path]) -> None:
    result = dwsweep(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "command", ["plan", "prepare", "run", "status", "bench", "fit", "guide", "design", "report", "theory"]
)
def test_help_shows_an_example(command: str) -> None:
    result = dwsweep(command, "--help")
    assert result.returncode == 0
    assert f"dwsweep {command}" in " ".join(result.stdout.split())
    assert "Example" in result.stdout


def test_theory_prints_json() -> None:
    result = dwsweep("theory", "--width", "1024", "--depth", "24", "--heads", "16", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)
