"""What a hostile user tries first: every refusal is one line that names the key, and no traceback."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import SWEEPS
from cli_tools import Command
from report_sweeps import rows as simulated

from dwsweep import fit_table, paths
from dwsweep.cost.arithmetic import fitting_microbatch
from dwsweep.errors import InputError
from dwsweep.fit.data.table import read_table
from dwsweep.guide import Options, answer
from dwsweep.plan import DataFacts, build
from dwsweep.shapes import Block, HeadRule
from dwsweep.spec import load_spec

SPEC = """
name: small
grid:
  depths: [1, 2]
  budgets: [1.0e4, 3.0e4]
  heads: {count: 2}
  seeds: 1
train: {seq_len: 64, batch_size: 4, steps: 5}
"""


def spec_file(tmp_path: Path, text: str = SPEC) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


def refused(tmp_path: Path, named: str, text: str = SPEC, override: str = "", plan: bool = False) -> None:
    """Assert that a spec is refused in one line that names the key."""
    with pytest.raises(InputError) as error:
        spec = load_spec(spec_file(tmp_path, text), [override] if override else [])
        if plan:
            build(spec)
    assert len(error.value.lines) == 1 and named in error.value.lines[0], error.value.lines


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (SPEC + "name: other\n", 'found duplicate key "name"; a key must be given once; again in line 9'),
        (SPEC.replace("  seeds: 1", "  seeds: 1\n  seeds: 4"), 'duplicate key "seeds"'),
        (SPEC.replace("name: small", "name: " + "x" * 200), "name: "),
        ("x: " + "{a: " * 400 + "1" + "}" * 400, "nested deeper than 50 levels in line 1"),
        ("a: &a [1]\ngrid: {depths: *a}\n", "an alias in line 2; the value must be written out"),
        ("name: " + "x" * 4_000_001, "is larger than 4,000,000 bytes"),
    ],
    ids=["name", "seeds", "long name", "nested", "alias", "large"],
)
def test_a_spec_that_would_be_misread_is_refused(tmp_path: Path, text: str, named: str) -> None:
    refused(tmp_path, named, text)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("train.steps=true", "train.steps: True; must not be true or false"),
        ("execution.keep_params=false", "execution.keep_params: False; must be 'none', 'best' or 'all'"),
        ("grid.depths=[1, true]", "grid.depths: [1, True]"),
        ("grid.seeds=1000000000000000000000000000000", "grid.seeds"),
        (f"grid.depths=[{10**400}]", "grid.depths[0]"),
        ("grid.widths={}", "widths"),
        ("train.weight_decay=.inf", "train.weight_decay: inf"),
        ("grid.depths=[1000000000000]", "grid.depths[0]: 1000000000000; must be less than or equal to 10,000"),
        ("grid.budgets=[1.0e-300]", "grid.budgets[0]: 1e-300; must be greater than or equal to 100"),
        ("train.tokens=1.0e+300", "train.tokens: 1e+300; must be less than or equal to"),
        ("data.seed=18446744073709551616", "data.seed: 18446744073709551616; must be less than 9,223"),
        ('data.cache_dir="a\\0b"', "data.cache_dir: 'a\\x00b'; must not hold a null character"),
        (f"train.steps={'9' * 5000}", "is not valid YAML: Exceeds the limit"),
        (f"train.steps=0x{'f' * 5000}", "train.steps: "),
        ("train.steps=2024-13-01", "is not valid YAML: month must be in 1..12"),
        ("train.steps=!!bool perhaps", "is not valid YAML: a value does not fit its tag"),
        ("train..steps=5", "--set: 'train..steps=5'; must be KEY=VALUE"),
    ],
    ids=lambda text: text[:40],
)
def test_values_beyond_anything_built_are_one_line(tmp_path: Path, override: str, named: str) -> None:
    refused(tmp_path, named, override=override)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("train.tokens=1.0e+18", "train.tokens: 1e+18; gives 3,906,250,000,000,000 steps, at most 2,147,483,647"),
        ("model.mlp_ratio=0.01", "model.mlp_ratio: 0.01; leaves no MLP at width 4"),
        (
            f"grid={{depths: {list(range(1, 101))}, budgets: [1.0e5, 1.0e6], seeds: 10000}}",
            "grid: makes 2,000,000 runs",
        ),
    ],
)
def test_plans_beyond_counting_are_one_line(tmp_path: Path, override: str, named: str) -> None:
    refused(tmp_path, named, override=override, plan=True)


def test_a_text_too_short_for_one_batch_is_refused_before_anything_trains(tmp_path: Path) -> None:
    spec = load_spec(spec_file(tmp_path), ["train.batch_size=100000"])
    build(spec)  # before `prepare` nobody knows
    with pytest.raises(InputError, match=r"data.source: 900,000 training tokens make"):
        build(spec, data=DataFacts("0" * 64, 900_000, 10_000))


def test_the_divisors_of_a_huge_batch_are_found_at_once() -> None:
    shape = Block(HeadRule(count=2), vocab_size=1000, seq_len=64).shape(1, 8)
    common: dict[str, Any] = {"replicas": 1, "precision": "float32", "remat": False, "data_bytes": 0}
    assert fitting_microbatch(shape, batch_size=10**12, memory_bytes=None, **common).microbatch == 10**12


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("depth,width,loss\n2,inf,4\n", "width: inf in row 1"),
        (f"depth,width,loss\n2,{10**200},4\n", "width: 1e+200 in row 1; must be a number from 1 to 1e+09"),
        ("depth,width,loss\n2,32,1e308\n", "loss: 1e+308 in row 1"),
        ("depth;width;loss\n2;32;4,5\n4;32;4.5\n", "loss: '4,5' in row 1"),
    ],
)
def test_a_table_that_cannot_be_right_is_refused(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(InputError) as refused:
        read_table(path)
    assert len(refused.value.lines) == 1 and named in refused.value.lines[0]


@pytest.mark.parametrize("expression", ["not " * 3000 + "depth == 2", "-" * 3000 + "1 == depth"])
def test_an_expression_that_would_exhaust_the_stack_is_refused(expression: str) -> None:
    with pytest.raises(InputError, match=r"where: .* characters, must be at most 500"):
        read_table([{"depth": 2, "width": 32, "loss": 4.0}], where=[expression])


def test_a_text_is_not_repeated_to_fill_the_memory() -> None:
    with pytest.raises(InputError, match=r"keeps none of the 1 rows"):
        read_table([{"depth": 2, "width": 32, "loss": 4.0}], where=["depth == 'a' * 99999999999999"])


@pytest.mark.parametrize("shape", ["9" * 400 + "x5", "5x" + "9" * 13])
def test_shapes_beyond_floats_are_refused(shape: str) -> None:
    with pytest.raises(InputError, match=r"^shapes: "):
        answer((), [shape])


@pytest.mark.parametrize("ratio", [float("inf"), 1e30, 0.0])
def test_an_mlp_ratio_beyond_reason_is_refused(ratio: float) -> None:
    with pytest.raises(InputError, match=r"^mlp_ratio: "):
        Options(mlp_ratio=ratio)


def test_a_plan_of_models_with_trillions_of_parameters(tmp_path: Path) -> None:
    grid = "grid={depths: [96, 1000], budgets: [1.0e+12, 1.0e+14], width_multiple: 128, heads: {size: 128}}"
    plan = build(load_spec(spec_file(tmp_path), [grid, "train.tokens=1.0e+14", "train.batch_size=4096"]))
    assert {round(np.log10(run.shape.n_params), 1) for run in plan.runs} == {12.0, 14.0}


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
    path = csv_of(rows, tmp_path / f"t{HOSTILE}.csv")
    done = dwsweep("fit", path, "--draws", "200")
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
    found = fit_table(rows, draws=200)
    assert any("--at-tokens (in Python at_tokens)" in line for line in found.warnings)
    said += [repr(found), found.summary(), *found.warnings, *texts_of(json.loads(found.to_json()))]
    said += texts_of(json.loads(json.dumps(found.tables(), default=str)))
    assert not [text[max(0, text.index(one) - 100) :][:200] for text in said for one in steering(text)]


def csv_of(rows: list[dict[str, Any]], path: Path) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def small_table() -> list[dict[str, Any]]:
    return simulated(depths=(6, 12), sizes=5, low=1e6, high=3e7, seeds=2)


@pytest.mark.usefixtures("without_drawing")
def test_a_fit_does_not_write_into_the_runs_of_a_sweep(tmp_path: Path, dwsweep: Command) -> None:
    """It would be taken for runs."""
    for name in ("runs", "packs", "locks"):
        (tmp_path / name).mkdir()
    (tmp_path / "plan.csv").write_text("")
    csv_of(small_table(), tmp_path / "results.csv")
    for out in (tmp_path / "runs", tmp_path / "runs" / "a" / "b", tmp_path / "packs", tmp_path / "locks"):
        done = dwsweep("fit", tmp_path, "--out", out)
        assert done.returncode == 2 and f"--out: {out}; the sweep keeps its " in done.stderr, done.stderr
    assert not list((tmp_path / "runs").iterdir())
    assert dwsweep("fit", tmp_path, "--out", tmp_path / "runs-fit", "--draws", "200").returncode == 0


def test_a_disk_that_fills_while_figures_are_drawn_is_said(
    tmp_path: Path, dwsweep: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv_of(small_table(), tmp_path / "t.csv")
    write, room = paths.write_atomic, [1]

    def full(path: Any, content: Any, **more: Any) -> None:
        if path.suffix in (".png", ".svg"):
            if not room[0]:
                raise OSError(28, "No space left on device", str(path))
            room[0] -= 1
        write(path, content, **more)

    monkeypatch.setattr(paths, "write_atomic", full)
    done = dwsweep("fit", tmp_path / "t.csv", "--draws", "200")
    assert done.returncode == 2
    assert "loss_vs_depth.svg: No space left on device" in done.stderr
    assert json.loads((tmp_path / "t-fit" / "fit.json").read_text())


@pytest.mark.parametrize("part", ["cells", "guideline"])
def test_a_count_of_hundreds_of_digits_in_a_fit_is_one_line(part: str, tmp_path: Path, dwsweep: Command) -> None:
    content = json.loads((SWEEPS / "results" / "laptop" / "fit" / "fit.json").read_text("utf-8"))
    content[part][0]["n_params"] = 10**400
    (tmp_path / "fit.json").write_text(json.dumps(content), "utf-8")
    for command in (["report", tmp_path], ["guide", "--params", "100K", "--fit", tmp_path]):
        result = dwsweep(*command)
        assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
        assert "fit.json" in result.stderr and "10000000000000000000… has 401 digits" in result.stderr
