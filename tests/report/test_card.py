"""report --card: a folder that the Hub takes for a data set, and that says what its columns are."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from sentences import says

from dwsweep.errors import InputError
from dwsweep.fit.cells import select_runs
from dwsweep.fit.data.table import read_table
from dwsweep.records.columns import COLUMNS, RESULTS
from dwsweep.report import card

LAPTOP = Path(__file__).parents[2] / "sweeps" / "results" / "laptop"


def header(folder: Path) -> dict:
    text = (folder / "README.md").read_text("utf-8")
    assert text.startswith("---\n")
    return yaml.safe_load(text.split("---\n")[1])


def test_a_published_study_and_its_columns(tmp_path: Path) -> None:
    assert card.write(LAPTOP, tmp_path) == [str(tmp_path / "results.parquet"), str(tmp_path / "README.md")]
    table, found = pq.read_table(tmp_path / "results.parquet"), header(tmp_path)
    with open(LAPTOP / "results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert table.column_names == list(rows[0]) and table.num_rows == len(rows) == 96
    for name in ("loss", "flops", "n_params", "seed", "status", "run_id"):
        assert [str(value) for value in table[name].to_pylist()] == [row[name] for row in rows]
    assert found["license"] == "cc-by-4.0" and found["size_categories"] == ["n<1K"]
    assert found["configs"][0]["data_files"] == [{"split": "train", "path": "results.parquet"}]
    units = {field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in table.schema}
    text = (tmp_path / "README.md").read_text("utf-8")
    for name, unit in (("loss", "nats per token"), ("tokens", "tokens"), ("device_seconds", "s"), ("flops", "FLOPs")):
        assert units[name] == unit and f"| `{name}` | {table.schema.field(name).type} | {unit} |" in text
    assert says(text, "report: best depth grows with") and "8374eedc" in text and "Wikipedia" in text
    # a fit takes from it the very runs that it takes from results.csv
    runs, own = (
        select_runs(read_table(path).rows).runs for path in (tmp_path / "results.parquet", LAPTOP / "results.csv")
    )
    assert runs == own and len(own) == 96


def test_every_column_of_results_has_a_meaning() -> None:
    assert [column.name for column in COLUMNS if column.name in RESULTS and not column.meaning] == ["embedding_rank"]


def write_sweep(folder: Path, lines: list[str]) -> None:
    folder.mkdir()
    (folder / "results.csv").write_text("\n".join(lines) + "\n", "utf-8")


def test_large_counts_blank_fields_and_an_unknown_licence(tmp_path: Path) -> None:
    lines = [
        "run_id,depth,width,loss,flops,arm,seed,own",
        "a,1,8,,1e3,,0,x",
        f"b,2,8,2.5,{10**22},,1,",
        "1,2,8,2,5,,1,",
    ]
    write_sweep(tmp_path / "mine", lines)
    card.write(tmp_path / "mine", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "results.parquet")
    assert table.to_pydict() == {
        **{"run_id": ["a", "b", "1"], "depth": [1, 2, 2], "width": [8, 8, 8], "loss": [None, 2.5, 2.0]},
        **{"flops": [1e3, 1e22, 5.0], "seed": [0, 1, 1], "own": ["x", None, None]},
    }
    assert header(tmp_path / "out")["license"] == "unknown"
    assert says((tmp_path / "out" / "README.md").read_text("utf-8"), "report: no licence")


def test_it_is_written_anew_but_over_nothing_else(tmp_path: Path) -> None:
    card.write(LAPTOP, tmp_path, "mit")
    card.write(LAPTOP, tmp_path, "apache-2.0")
    assert header(tmp_path)["license"] == "apache-2.0"
    (tmp_path / "README.md").write_text("of somebody")
    with pytest.raises(InputError, match=r"--out: .*README\.md is there already and is not a card"):
        card.write(LAPTOP, tmp_path)
    assert (tmp_path / "README.md").read_text() == "of somebody"
    (tmp_path / "README.md").unlink()
    with pytest.raises(InputError, match=r"--out: .*results\.parquet is there already and is not a card"):
        card.write(LAPTOP, tmp_path)
    with pytest.raises(InputError, match=r"results\.parquet; is a file; allowed with --card: a folder"):
        card.write(LAPTOP, tmp_path / "results.parquet")


def test_wrong_input_is_one_line(tmp_path: Path) -> None:
    write_sweep(tmp_path / "empty", ["run_id,depth,width,loss"])
    for directory, licence, message in (
        (tmp_path, None, "no results.csv"),
        (tmp_path / "empty", None, "has no rows"),
        (LAPTOP, "CC BY", "--license: 'CC BY'; must be an identifier"),
    ):
        with pytest.raises(InputError, match=message):
            card.write(directory, tmp_path / "out", licence)
    assert not (tmp_path / "out").exists()


def test_the_command_leaves_a_published_study_as_it_is_and_draws_no_page(tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in LAPTOP.rglob("*")}
    done = subprocess.run(
        [sys.executable, "-m", "dwsweep", "report", str(LAPTOP), "--card"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["card-laptop/results.parquet", "card-laptop/README.md"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["README.md", "card-laptop", "results.parquet"]
    assert before == {path: path.stat().st_mtime_ns for path in LAPTOP.rglob("*")}
