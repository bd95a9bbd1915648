"""Reading anybody's table: formats, names, selection, and one clear line for what is wrong."""

from __future__ import annotations

import csv
import json
import math

import pytest

from dwsweep.errors import InputError
from dwsweep.fit.table import read_table
from dwsweep.fit.where import compile_expression

ROWS = [
    {"depth": 6, "width": 64, "loss": 3.25, "seed": 0, "warmup": 400, "optimizer": "adamw"},
    {"depth": 6, "width": 64, "loss": 3.5, "seed": 1, "warmup": 800, "optimizer": "adamw"},
    {"depth": 12, "width": 48, "loss": 3.75, "seed": 0, "warmup": 400, "optimizer": "lion"},
]


def write_csv(path, rows=ROWS):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_every_format_gives_the_same_rows(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_csv(tmp_path / "t.csv")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "t.parquet")
    (tmp_path / "sweep").mkdir()
    write_csv(tmp_path / "sweep" / "results.csv")
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    tables = [tmp_path / "t.csv", tmp_path / "t.jsonl", tmp_path / "t.parquet", tmp_path / "sweep"]
    (tmp_path / "t.tsv").write_text((tmp_path / "t.csv").read_text().replace(",", "\t"))
    (tmp_path / "records.json").write_text(json.dumps(ROWS))
    (tmp_path / "columns.json").write_text(json.dumps(columns))
    labelled = {name: {str(k): value for k, value in enumerate(values)} for name, values in columns.items()}
    (tmp_path / "pandas.json").write_text(json.dumps(labelled))
    tables += [tmp_path / name for name in ("t.tsv", "records.json", "columns.json", "pandas.json")]
    for table in [*tables, ROWS, columns, pa.Table.from_pylist(ROWS)]:
        assert read_table(table).rows == ROWS
    assert read_table(tmp_path / "sweep").directory == str(tmp_path / "sweep")
    assert read_table(tmp_path / "t.csv").directory is None


def test_blanks_nan_and_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("depth,width,loss,learning_rate\n6,64,,1e-3\n6,64,nan,0.001\n6,64,3,\n")
    rows = read_table(tmp_path / "t.csv").rows
    assert rows[0]["loss"] is None and math.isnan(rows[1]["loss"]) and rows[2]["loss"] == 3
    assert rows[0]["learning_rate"] == rows[1]["learning_rate"] == 0.001 and rows[2]["learning_rate"] is None


def test_renaming_displaces_an_old_column():
    rows = [{"L": 6, "width": 64, "loss": 9.0, "val": 3.0}]
    table = read_table(rows, ["depth=L", "loss=val"])
    assert table.rows == [{"depth": 6, "width": 64, "loss": 3.0}]
    assert table.columns == ("depth", "width", "loss")


def test_where_selects_and_names_what_is_wrong():
    assert len(read_table(ROWS, where=["warmup == 400"]).rows) == 2
    assert len(read_table(ROWS, where=["warmup == 400", "optimizer != 'lion'"]).rows) == 1
    assert len(read_table(ROWS, where="depth in [12, 24] or seed >= 1").rows) == 2
    assert len(read_table(ROWS, where="width * depth < 500").rows) == 2
    with pytest.raises(InputError, match="keeps none of the 3 rows"):
        read_table(ROWS, where=["warmup == 1"])
    for bad in ("warmp == 400", "__import__('os')", "depth", "depth ==", "depth.real == 6", "(lambda: 1)() == 1"):
        with pytest.raises(InputError, match="--where"):
            read_table(ROWS, where=[bad])


def test_a_comparison_with_a_blank_or_a_text_is_false():
    row = {"a": None, "b": "x", "c": 2}
    for expression, expected in (("a > 1", False), ("b > 1", False), ("a == None", True), ("not c == 3", True)):
        assert compile_expression(expression, tuple(row))(row) is expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        ([{"depth": 6, "width": 64}], "column 'loss' is missing"),
        ([{"depth": 6, "width": "wide", "loss": 1.0}], "width: 'wide' in row 1"),
        ([{"depth": 0, "width": 64, "loss": 1.0}], "depth: 0 in row 1"),
        ([{"depth": 6, "width": None, "loss": 1.0}], "width: None in row 1"),
        ([{"depth": 2.5, "width": 64, "loss": 1.0}], "depth: 2.5 in row 1; a whole number of layers"),
        ([{"depth": 6, "width": 64, "loss": 1.0, "n_params": 1e308}], r"n_params: 1e\+308 in row 1; at most 1e\+40"),
        ([{"depth": 6, "width": 64, "loss": "x"}], "loss: 'x' in row 1"),
        ([1, 2], "list of dicts"),
        ({"depth": [1], "width": [1, 2]}, "different lengths"),
    ],
)
def test_bad_tables_are_one_clear_line(rows, message):
    with pytest.raises(InputError, match=message):
        read_table(rows)


def test_bad_files_are_one_clear_line(tmp_path):
    (tmp_path / "t.parquet").write_text("not parquet")
    (tmp_path / "t.jsonl").write_text("[1]\n")
    (tmp_path / "t.xlsx").write_text("")
    (tmp_path / "bad.jsonl").write_text('{"depth": 6}\n\n{"depth": 6, oops}\n')
    (tmp_path / "t.json").write_text("[{]")
    (tmp_path / "one.json").write_text('{"depth": 6, "width": 64, "loss": 3}')
    (tmp_path / "three.json").write_text("[1, 2, 3]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("missing.csv", "no such file"),
        ("t.parquet", "not readable as parquet"),
        ("t.jsonl", r"t\.jsonl, line 1: '\[1\]'; a JSON object is allowed"),
        ("bad.jsonl", r"bad\.jsonl, line 3: '\{\"depth\": 6, oops\}'; not JSON: "),
        ("t.json", "not readable as json: "),
        ("one.json", "one value; a list of values, one a row, is allowed"),
        ("three.json", "a list of objects, one a run, or an object of columns is allowed"),
        ("deep.json", "not readable as json: "),
        ("t.xlsx", r"must end in one of \.csv, \.tsv, \.json, \.jsonl, \.ndjson, \.parquet, or be a sweep directory"),
        ("empty", "needs a results.csv"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            read_table(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="did you mean 'loss'"):
        read_table(ROWS, {"loss": "los"})
    with pytest.raises(InputError, match="ours=theirs"):
        read_table(ROWS, ["loss"])
