"""The command line: exit statuses, one line per error, a hostile user; processes where streams are tested."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import SMOKE
from cli_tools import DWSWEEP, Command, begun, in_a_process
from report_sweeps import rows as simulated
from report_sweeps import write_csv

from dwsweep import fit_table
from dwsweep.cli import hints

pytestmark = pytest.mark.usefixtures("short_guideline", "surfaces_again")


def test_a_sweep_folder_stands_for_its_spec_and_is_its_own_directory(dwsweep: Command, tmp_path: Path) -> None:
    assert dwsweep("plan", SMOKE, "--out", tmp_path / "own").returncode == 0
    (tmp_path / "own" / "spec.yaml").write_text(SMOKE.read_text("utf-8"), "utf-8")  # `run` writes it
    of_folder = json.loads(dwsweep("plan", tmp_path / "own", "--json").stdout)
    assert of_folder == json.loads(dwsweep("plan", SMOKE, "--out", tmp_path / "own", "--json").stdout)


def test_a_removed_command_or_option_is_one_line_that_says_what_to_use(dwsweep: Command) -> None:
    for name, line in hints.INSTEAD.items():
        done = dwsweep(*name.split())
        said = name.partition(" ")[2] or name
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {said}: not in this version; {line}\n")


def test_a_terminal_that_knows_few_characters_gets_the_others_replaced() -> None:
    result = in_a_process("plan", "é", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert result.returncode == 2 and "Traceback" not in result.stderr and (result.stdout + result.stderr).isascii()


def test_a_reader_that_leaves_is_no_failure_and_a_full_disk_is_one() -> None:
    command = [*DWSWEEP, "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert (process.wait(120), process.stderr.read()) == (0, "")
    if not Path("/dev/full").exists():
        return
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (2, "error: standard output: No space left on device\n")


def test_a_target_that_cannot_be_compiled_for_is_one_line_and_exit_2(
    dwsweep: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dwsweep.train import targets

    monkeypatch.setattr(targets, "find_spec", lambda name: None)  # as where the extras are not installed
    for arguments, words in (
        (["--compile-only", "--target", "H200"], "pip install -c constraints.txt '.[cuda]'"),
        (["--compile-only", "--target", "H900"], "TPU-v5e"),
        (["--target", "H200"], "--compile-only"),
    ):
        result = dwsweep("bench", SMOKE, *arguments, "--out", tmp_path)
        assert result.returncode == 2 and result.stderr.count("\n") == 1
        assert result.stderr.startswith("error: --target: ") and words in result.stderr
    assert os.environ["JAX_NUM_CPU_DEVICES"] == "1"  # a program is compiled for one device unless its target has more


@pytest.mark.usefixtures("without_drawing")
def test_the_fit_of_a_published_table_leaves_its_folder_alone(dwsweep: Command, tmp_path: Path) -> None:
    rows = [f"{depth},{width},{3 + 0.1 * depth - width / 1e3}" for depth in (1, 2) for width in (8, 12, 16, 24, 32)]
    for name in ("table", "sweep"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.csv").write_text("\n".join(["depth,width,loss", *rows]), "utf-8")
    (tmp_path / "sweep" / "spec.yaml").write_text("name: sweep", "utf-8")
    for name in ("table", "sweep"):
        assert dwsweep("fit", tmp_path / name, cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in (tmp_path / "table").iterdir()) == ["results.csv"]
    assert (tmp_path / "fit-table" / "fit.json").exists() and (tmp_path / "sweep" / "fit" / "fit.json").exists()


def test_fit_prints_json_alone_where_it_is_asked_for(dwsweep: Command, tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("n_layer,d_model,val_loss\n2,64,3.1\n4,45,3.0\n", encoding="utf-8")
    result = dwsweep("fit", table, "--json")
    assert json.loads(result.stdout)["provenance"]["columns_taken"][0] == "depth = n_layer"
    assert str(tmp_path / "a-fit" / "fit.json") in result.stderr


# Ctrl-C, sent to the whole process group as a terminal does, or SIGTERM, at any moment: one line and exit status 3.


@pytest.mark.parametrize(
    ("command", "seconds"),
    [("run", 0.2), *(pytest.param("prepare", seconds, marks=pytest.mark.slow) for seconds in (0.0, 1.0))],
)
def test_while_the_processes_that_read_text_start(tmp_path: Path, command: str, seconds: float) -> None:
    """They are new interpreters: Ctrl-C must not reach them before they can ignore it."""
    cache = tmp_path / "cache"
    sets = ("--set", "data.workers=2")
    process = begun(command, SMOKE, *sets, cwd=tmp_path, stderr=subprocess.PIPE, group=True, DWSWEEP_CACHE=str(cache))
    while not list(cache.glob("*.lock")) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    assert process.poll() is None, "it ended before Ctrl-C"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    said = [line for line in errors.splitlines() if not line.startswith("prepare: ") and "warn" not in line]
    assert (process.returncode, said) == (3, ["error: interrupted"])
    assert not list(cache.glob("*.partial"))


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("seconds", [0.0, pytest.param(0.9, marks=pytest.mark.slow)])
def test_a_scheduler_stops_it_at_its_start(tmp_path: Path, seconds: float) -> None:
    process = begun("run", SMOKE, cwd=tmp_path, stderr=subprocess.PIPE, DWSWEEP_CACHE=str(tmp_path / "cache"))
    deadline = time.monotonic() + 5
    while not handles(process.pid, signal.SIGTERM) and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (3, "error: interrupted\n")


def test_a_file_where_a_folder_must_be_is_named_with_its_option(dwsweep: Command, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    for name, arguments in {"--out": ["guide", "--params", "1B", "--out"], "OUT": ["export", "."]}.items():
        for path in (file, file / "below"):
            result = dwsweep(*arguments, path)
            assert (result.returncode, result.stdout) == (2, "")
            line = f"error: Invalid value for '{name}': {str(path)!r}; {file} is a file; must be a folder\n"
            assert result.stderr == line
    assert file.read_text(encoding="utf-8") == "mine"


# What a hostile user tries


def steering(text: str) -> set[str]:
    """Characters that a terminal acts on."""
    return {character for character in text if not character.isprintable() and character != "\n"}


HOSTILE = "\x0eat\x1f--at\x0f\x1b]0;owned\x07\u202e"


def hostile_rows() -> list[dict[str, Any]]:
    """Losses at many counts of tokens, which raise the warnings that name options; every text in them steers."""
    return [
        {**row, "tokens": tokens, "note" + HOSTILE: HOSTILE, "run_id": f"{HOSTILE}{k}", "optimizer": HOSTILE}
        | {"loss": row["loss"] + 2.0e8 / tokens, "status": "done"}
        for tokens in (1e8 * 1.1**k for k in range(12))
        for k, row in enumerate(small_table())
    ] + [{**small_table()[0], "status": "killed" + HOSTILE, "loss": None, "tokens": 1e8}]


def texts_of(value: Any) -> Iterator[str]:
    """All texts in a value of JSON, its keys among them."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *texts_of(item))
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, str):
        yield value


def test_no_output_of_a_fit_holds_a_control_character(
    tmp_path: Path, dwsweep: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the library and by the command: text, records, tables and every file, JSON read as its reader reads it."""
    rows = hostile_rows()
    path = write_csv(rows, tmp_path / f"t{HOSTILE}.csv")
    done = dwsweep("fit", path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / f"{path.stem}-fit"
    report = dwsweep("report", out)
    assert report.returncode == 0, report.stderr
    said = [done.stdout, done.stderr, report.stdout, report.stderr]
    files = [one for one in out.rglob("*") if one.suffix in (".json", ".csv", ".md", ".html", ".svg")]
    assert {".json", ".csv", ".md", ".html"} <= {one.suffix for one in files}
    for one in files:
        text = one.read_text("utf-8")
        said += texts_of(json.loads(text)) if one.suffix == ".json" else [re.sub(r"[\r\t\xa0]", "", text)]
    found = fit_table(rows)
    assert any("--at-tokens (in Python at_tokens)" in line for line in found.warnings)
    said += [found.summary(), *found.warnings, *texts_of(json.loads(json.dumps(found.tables(), default=str)))]
    assert not [text[max(0, text.index(one) - 100) :][:200] for text in said for one in steering(text)]


def small_table() -> list[dict[str, Any]]:
    return simulated(depths=(6, 12), sizes=5, low=1e6, high=3e7, seeds=2)


@pytest.mark.usefixtures("without_drawing")
def test_a_fit_does_not_write_into_the_runs_of_a_sweep(tmp_path: Path, dwsweep: Command) -> None:
    """It would be taken for runs."""
    for name in ("runs", "packs", "locks"):
        (tmp_path / name).mkdir()
    (tmp_path / "plan.csv").write_text("")
    write_csv(small_table(), tmp_path / "results.csv")
    for out in (tmp_path / "runs", tmp_path / "runs" / "a" / "b", tmp_path / "packs", tmp_path / "locks"):
        done = dwsweep("fit", tmp_path, "--out", out)
        assert done.returncode == 2 and f"--out: {out}; the sweep keeps its " in done.stderr, done.stderr
    assert not list((tmp_path / "runs").iterdir())
    assert dwsweep("fit", tmp_path, "--out", tmp_path / "runs-fit").returncode == 0
