"""What a hostile user tries first: every refusal is one line that names the key, and no traceback."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import SWEEPS
from cli_tools import Command
from report_sweeps import rows as simulated
from report_sweeps import write_csv

from dwsweep import fit_table

pytestmark = pytest.mark.usefixtures("short_guideline", "surfaces_again")

ONE = "depth,width,loss\n2,32,4.0\n"


def test_a_table_or_a_choice_of_rows_that_cannot_be_right_is_refused(tmp_path: Path, dwsweep: Command) -> None:
    for content, where, named in (
        (f"depth,width,loss\n2,{10**200},4\n", "depth == 2", "width: 1e+200 in row 1; must be a number from"),
        (ONE, "not " * 3000 + "depth == 2", "characters, must be at most 500"),
        (ONE, "depth == 'a' * 99999999999999", "keeps none of the 1 rows"),  # and fills no memory
    ):
        (tmp_path / "t.csv").write_text(content)
        done = dwsweep("fit", tmp_path / "t.csv", "--where", where)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and named in done.stderr


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


def test_a_fit_that_is_a_pipe_or_without_end_is_refused_at_once(tmp_path: Path, dwsweep: Command) -> None:
    path = tmp_path / "fit.json"
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        make(path)
        done = dwsweep("report", tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "is a FIFO, a device" in done.stderr
        path.unlink()


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


def test_a_count_of_hundreds_of_digits_in_a_fit_is_one_line(tmp_path: Path, dwsweep: Command) -> None:
    content = json.loads((SWEEPS / "results" / "laptop" / "fit" / "fit.json").read_text("utf-8"))
    content["cells"][0]["n_params"] = 10**400
    (tmp_path / "fit.json").write_text(json.dumps(content), "utf-8")
    for command in (["report", tmp_path], ["guide", "--params", "100K", "--fit", tmp_path]):
        result = dwsweep(*command)
        assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
        assert "fit.json" in result.stderr and "10000000000000000000… has 401 digits" in result.stderr
