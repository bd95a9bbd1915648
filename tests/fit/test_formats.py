"""Reading of files as people have them: packed, in any encoding, behind a title, under a key; refusals by name."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile

import dialects
import pytest

from dwsweep import fit_table
from dwsweep.errors import InputError
from dwsweep.fit.data import delimited, source
from dwsweep.fit.data.table import read_table
from dwsweep.records import fit as fit_record
from dwsweep.records.sweep import plan_csv
from dwsweep.report import runs_table

ROWS = [
    {"depth": 6, "width": 64, "loss": 3.25},
    {"depth": 6, "width": 96, "loss": 3.125},
    {"depth": 12, "width": 48, "loss": 3.5},
]
CSV = "depth,width,loss\n6,64,3.25\n6,96,3.125\n12,48,3.5\n"


def rows_of(path, content, **options):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **options).rows


def zipped(files):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv.gz", gzip.compress(CSV.encode())),
        ("t.csv.xz", lzma.compress(CSV.encode())),
        ("t.csv.bz2", bz2.compress(CSV.encode())),
        ("t.gz", gzip.compress(CSV.encode())),
        ("t.csv", gzip.compress(CSV.encode())),  # renamed
        ("t.json.gz", gzip.compress(json.dumps(ROWS).encode())),
        ("t.jsonl.xz", lzma.compress("\n".join(map(json.dumps, ROWS)).encode())),
        ("t.zip", zipped({"runs.csv": CSV, "__MACOSX/runs.csv": "\0"})),
        ("t.csv.zip", zipped({"folder/runs.csv": CSV})),
    ],
)
def test_a_packed_table_is_read(tmp_path, name, content):
    assert rows_of(tmp_path / name, content) == ROWS


def test_a_zip_holds_one_table_and_a_damaged_one_is_a_line(tmp_path):
    with pytest.raises(InputError, match=r"a zip of 2 files \(a\.csv, b\.csv\); must hold one table"):
        rows_of(tmp_path / "t.zip", zipped({"a.csv": CSV, "b.csv": CSV}))
    for name, content in (("t.csv.gz", gzip.compress(CSV.encode())[:-20]), ("t.csv.xz", b"\xfd7zXZ\x00" + b"x" * 99)):
        with pytest.raises(InputError, match="not readable as ") as refused:
            rows_of(tmp_path / name, content)
        assert len(refused.value.lines) == 1 and "\n" not in str(refused.value)


def test_a_file_that_unpacks_to_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="unpacks to more than 1,000 bytes"):
        rows_of(tmp_path / "t.csv.gz", gzip.compress(CSV.encode() * 100))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"])
def test_an_encoding_is_recognised(tmp_path, encoding):
    text = CSV.replace("loss", "loss,größe").replace("25\n", "25,é\n")
    assert rows_of(tmp_path / "t.csv", text.encode(encoding))[0] == {**ROWS[0], "größe": "é"}


def test_what_is_no_text_is_refused(tmp_path):
    with pytest.raises(InputError, match="not readable as csv: "):
        rows_of(tmp_path / "t.csv", b"\x89PNG\r\n\x1a\n\x00\x00\x01\xff\xd8\xff\x02\x03")


@pytest.mark.parametrize(
    "text",
    [
        "Shape sweep March,,\n# exported by hand\n" + CSV,
        "# exported by hand\n\n" + CSV,
        "Shape sweep\n\n" + CSV,
        "Sweep,of March\n" + CSV,
        "# depth,width,loss\n" + CSV.partition("\n")[2],  # as NumPy writes a header
        CSV.replace(",", "\t"),
        CSV.replace(",", "|"),
        CSV.replace(",", " "),
        CSV.replace(",", "    "),
        CSV.replace("\n", ",,\n"),  # a spreadsheet's empty columns
        CSV.replace("\n", "\r\n"),
        CSV + ",,\n\n",
        CSV + "depth,width,loss\n",  # files put one behind the other
        CSV.replace("6,96", "# resumed here\n6,96"),
        "# Shapes\n\nsee below\n\n| depth | width | loss |\n| ---: | :--- | --- |\n"
        + "".join(f"| {line.replace(',', ' | ')} |\n" for line in CSV.splitlines()[1:]),
    ],
)
def test_what_people_put_around_a_table_is_passed_over(tmp_path, text):
    assert rows_of(tmp_path / "t.csv", text) == ROWS
    assert rows_of(tmp_path / "t.txt", text) == ROWS


def test_dicts_in_the_cells_of_a_table_are_columns(tmp_path):
    """As the interface of a tracker gives settings and last values."""
    for write in (str, json.dumps):
        shapes = [({"depth": row["depth"], "width": row["width"]}, {"val/loss": row["loss"]}) for row in ROWS]
        rows = [{"config": write(config), "summary": write(summary)} for config, summary in shapes]
        made = io.StringIO()
        table = csv.DictWriter(made, ["config", "summary"])
        table.writeheader()
        table.writerows(rows)
        assert rows_of(tmp_path / "t.csv", made.getvalue()) == ROWS


def test_a_row_that_is_longer_than_the_header_is_no_title(tmp_path):
    with pytest.raises(InputError, match="a row has more fields than the header"):
        rows_of(tmp_path / "t.csv", "depth,width,loss\n6,64,3,1\n")


@pytest.mark.parametrize(
    "held",
    [
        {"experiment": "shapes", "seed": 1, "results": ROWS},
        {"runs": ROWS, "configs": [{"a": 1}]},
        {"data": {"runs": ROWS, "version": 2}},
        {"my runs": ROWS, "note": "x"},
        {"results": {name: [row[name] for row in ROWS] for name in ROWS[0]}},
        {"results": {name: {str(k): row[name] for k, row in enumerate(ROWS)} for name in ROWS[0]}},
    ],
)
def test_runs_under_one_key_are_read(tmp_path, held):
    assert rows_of(tmp_path / "t.json", json.dumps(held)) == ROWS


def test_records_by_the_name_of_their_run_and_lines_in_a_json_file_are_read(tmp_path):
    named = {f"run {k}": row for k, row in enumerate(ROWS)}
    assert rows_of(tmp_path / "t.json", json.dumps(named)) == [{"run": f"run {k}", **r} for k, r in enumerate(ROWS)]
    assert rows_of(tmp_path / "t.json", "\n".join(map(json.dumps, ROWS))) == ROWS
    labelled = {name: {f"run {k}": row[name] for k, row in enumerate(ROWS)} for name in ROWS[0]}
    assert rows_of(tmp_path / "t.json", json.dumps(labelled)) == ROWS  # as pandas writes a frame


def test_runs_under_several_keys_are_refused_by_their_names(tmp_path):
    with pytest.raises(InputError, match=r"runs under 2 keys \('wide', 'deep'\)"):
        rows_of(tmp_path / "t.json", json.dumps({"wide": ROWS, "deep": ROWS}))


@pytest.mark.parametrize("content", [CSV, json.dumps(ROWS), "\n".join(map(json.dumps, ROWS))])
def test_standard_input_and_open_files_are_read_by_their_content(monkeypatch, content):
    class Piped:
        buffer = io.BytesIO(content.encode())

    monkeypatch.setattr("sys.stdin", Piped())
    for _ in range(2):  # `--along depth` asks two questions
        table = read_table("-")
        assert table.rows == ROWS and table.source == "standard input"
    assert read_table(io.StringIO(content)).rows == read_table(io.BytesIO(content.encode())).rows == ROWS


def workbook_of(*sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "notes"
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()


def test_a_workbook_of_one_sheet_is_read(tmp_path):
    rows = [["Shape sweep"], [*ROWS[0]], *([*row.values()] for row in ROWS), [12, 64, "OOM"]]
    for name in ("t.xlsx", "t.csv"):
        (tmp_path / name).write_bytes(workbook_of(("runs", rows)))
    table = read_table(tmp_path / "t.xlsx")
    assert table.rows[:3] == ROWS and table.left_out == {"OOM": 1}
    with pytest.raises(InputError, match=r"a workbook of 2 sheets \(runs, more\); must have one"):
        rows_of(tmp_path / "t.xlsx", workbook_of(("runs", rows), ("more", rows)))


def test_a_workbook_without_its_reader_is_refused_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(
        InputError, match=r"needs openpyxl: in a clone, pip install .*'\.\[xlsx\]'; or save the sheet as CSV"
    ):
        source._workbook("table: t.xlsx;", b"")


def test_a_format_that_is_not_read_is_refused_by_name(tmp_path):
    for name in ("t.xls", "t.ods", "t.pkl", "t.h5"):
        with pytest.raises(InputError, match=r"must end in one of \.csv, .*\.xlsx, or one of these and \.gz"):
            rows_of(tmp_path / name, b"x")


@pytest.mark.parametrize(
    "header",
    ["Step,calm-sun-3 - val_loss,calm-sun-3 - val_loss__MIN,calm-sun-3 - val_loss__MAX", "Step,a - loss,b - loss"],
)
def test_a_chart_of_wandb_is_refused_with_the_export_to_make(tmp_path, header):
    with pytest.raises(InputError, match=r"a chart of W&B, one column a run .*; export the table of runs in place"):
        rows_of(tmp_path / "t.csv", header + "\n" + ",".join("1" for _ in header.split(",")) + "\n")


def test_a_curve_of_one_run_is_refused(tmp_path):
    for header in ("step,loss", "Wall time,Step,Value"):
        with pytest.raises(InputError, match="one curve over steps"):
            rows_of(tmp_path / "t.csv", header + "\n" + ",".join("1" for _ in header.split(",")) + "\n")


@pytest.mark.parametrize(
    "names",
    [
        ("h264_numh4_numl6_lr1.0e-03", "h360_numh5_numl10_lr1.0e-03"),
        ("L6-d264", "L10-d360"),
        ("model3_6L_264d", "model3_10L_360d"),
        ("n_layer=6,d_model=264", "n_layer=10,d_model=360"),
        ("d6w264", "d10w360"),  # the depth was proposed as the width
        ("6x264", "10x360"),
        ("264 × 6", "360 × 10"),
        ("gpt-6-264", "gpt-10-360"),
        ("depth6_width264_seed0", "depth10_width360_seed0"),
    ],
)
def test_shapes_that_stand_in_names_are_read_where_one_reading_explains_all(names):
    table = read_table([{"run": name, "loss": 3.5} for name in names])
    assert [(row["depth"], row["width"]) for row in table.rows] == [(6, 264), (10, 360)]
    assert f"shapes are read in run: {names[0]!r} is depth 6, width 264" in table.notes[0]
    assert table.rows[0].get("seed") == (0 if "seed" in names[0] else None)


@pytest.mark.parametrize("names", [("L6-d264-h512", "L10-d360-h720"), ("6x264", "360x10"), ("L6-d264", "big")])
def test_shapes_in_names_of_several_readings_are_refused_with_one_to_copy(names):
    with pytest.raises(InputError, match="columns 'depth' and 'width' are missing") as refused:
        read_table([{"run": name, "loss": 3.5} for name in names])
    if "h512" in names[0]:
        assert "'run' names shapes" in str(refused.value) and "--column depth='run~L(" in refused.value.option_lines[0]


def test_a_folder_holds_one_file_a_run(tmp_path):
    for row in ROWS:
        curve = "".join(f"{step},{row['loss'] + 1 / step:.4f}\n" for step in (100, 200)) + f"300,{row['loss']}\n"
        (tmp_path / f"depth{row['depth']}_width{row['width']}.csv").write_text("step,val_loss\n" + curve)
    (tmp_path / ".hidden.csv").write_text("x")
    table = read_table(tmp_path)
    assert {(row["depth"], row["width"], row["loss"]) for row in table.rows if row["step"] == 300} == {
        tuple(row.values()) for row in ROWS
    }
    assert len(table.rows) == 9 and any("shapes are read in run" in note for note in table.notes)


def test_a_folder_holds_one_folder_a_run_with_its_settings(tmp_path):
    for k, row in enumerate(ROWS):
        (place := tmp_path / f"run-{k}").mkdir()
        (place / "config.json").write_text(json.dumps({"num_hidden_layers": row["depth"], "hidden_size": row["width"]}))
        log = [{"step": 10, "loss": 4.0}, {"step": 20, "loss": 3.9}]
        # the seconds of an evaluation are not those of the training
        log += [{"step": 20, "eval_loss": row["loss"], "eval_runtime": 3.0}, {"step": 20, "train_runtime": 50.0}]
        (place / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    found = read_table(tmp_path).rows
    assert [(row["depth"], row["width"], row["loss"], row["step"], row["wall_seconds"]) for row in found] == [
        (*row.values(), 20, 50.0) for row in ROWS
    ]
    (tmp_path / "run-0" / "trainer_state.json").write_text('{"log_history": 3}')
    with pytest.raises(InputError, match="must have a list of objects under 'log_history'"):
        read_table(tmp_path)
    (tmp_path / "run-0" / "trainer_state.json").unlink()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "run-0" / name).write_text(CSV)
    with pytest.raises(InputError, match=r"2 tables \(a\.csv, b\.csv\); must be one a run"):
        read_table(tmp_path)


def test_jobs_of_hydra_are_runs_with_their_settings(tmp_path):
    for k, row in enumerate(ROWS):
        (settings := tmp_path / "2026-01-01" / "10-00-00" / f"{k}" / ".hydra").mkdir(parents=True)
        (settings / "config.yaml").write_text(
            f"model:\n  n_layer: {row['depth']}\n  d_model: {row['width']}\nlr: 1e-3\n"
        )
        (settings.parent / "metrics.csv").write_text(f"step,val_loss\n10,4.0\n20,{row['loss']}\n")
    for place in (tmp_path, tmp_path / "2026-01-01" / "10-00-00"):
        found = [row for row in read_table(place).rows if row["step"] == 20]
        assert [(row["depth"], row["width"], row["loss"]) for row in found] == [tuple(row.values()) for row in ROWS]
        assert {row["learning_rate"] for row in found} == {1e-3}


def test_a_folder_without_runs_is_refused(tmp_path):
    (tmp_path / "notes").mkdir()
    with pytest.raises(InputError, match=r"a directory needs a results\.csv .* or a file or a folder for each run"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "why"), [("L(", "not a pattern"), ("L", "one group"), ("(L)(d)", "one group"), ("x(y)", "depth: None")]
)
def test_a_pattern_that_finds_no_number_is_a_line(pattern, why):
    with pytest.raises(InputError, match=why) as refused:
        read_table([{"run": "L6", "width": 64, "loss": 3.0}], {"depth": f"run~{pattern}"})
    assert len(refused.value.lines) == 1


def csv_of(headings, rows):
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([headings, *rows])
    return made.getvalue()


def test_the_table_of_runs_of_a_page_is_read_back(tmp_path):
    runs = [
        {"run_id": f"L{L}-{s}", "depth": L, "width": 64, "seed": s, "learning_rate": 1e-3, "n_params": 12345678, **more}
        for L in (6, 12)
        for s, more in enumerate(
            (
                {"tokens": 1_500_000, "loss": 3.25, "loss_stderr": 0.01, "bits_per_byte": 1.5, "status": "done"},
                {"tokens": 2e9, "loss": None, "status": "failed"},
            )
        )
    ]
    (page,) = runs_table.all_runs(runs).parts
    read = read_table(io.StringIO(csv_of(page.heads, page.rows)))
    assert [(row["depth"], row["width"], row["loss"], row["tokens"]) for row in read.rows] == [
        *((6, 64, 3.25, 1_500_000), (6, 64, None, 2_000_000_000)),
        *((12, 64, 3.25, 1_500_000), (12, 64, None, 2_000_000_000)),
    ]
    assert read.left_out == {"failed": 2} and read.rows[0]["learning_rate"] == 1e-3


def test_files_that_a_fit_and_a_plan_wrote_are_refused_by_name(tmp_path):
    rows = [{"depth": d, "width": w, "loss": 3 - w / 1000 + d / 100} for d in (2, 4, 8) for w in (64, 96, 128, 192)]
    fit_record.write(fit_table(rows, draws=100, params=[1e6]), tmp_path / "out")
    for name, why in (
        ("cells.csv", "cells.csv of a fit, whose means are no runs; give the results.csv of its runs"),
        ("transitions.csv", "a table of pairs of depths, which a fit wrote"),
    ):
        with pytest.raises(InputError, match=why):
            read_table(tmp_path / "out" / name)
    (tmp_path / "plan.csv").write_text(plan_csv([]) + "x" + "," * plan_csv([]).count(",") + "\n")
    with pytest.raises(InputError, match=r"plan\.csv of a sweep, whose runs have no losses yet"):
        read_table(tmp_path / "plan.csv")


def test_a_table_has_at_most_ten_thousand_columns(tmp_path):
    """A text of 100,000 took a minute, and 100,000 commas at each line's end 4.9 GB."""
    for count in (delimited.MOST_COLUMNS - 3, 100_000):
        names = ["depth", "width", "loss", *(f"metric/{k}" for k in range(count))]
        lines = [",".join(map(str, [*row.values(), *[1.5] * count])) for row in ROWS]
        (tmp_path / f"{count}.csv").write_text("\n".join([",".join(names), *lines]))
    few = tmp_path / f"{delimited.MOST_COLUMNS - 3}.csv"
    assert len(read_table(few).columns) == delimited.MOST_COLUMNS
    with pytest.raises(InputError, match=r"column 'width' is missing, have .* and 9,?969 more") as refused:
        read_table(few, drop=["width"])
    assert len(str(refused.value)) < 2000
    with pytest.raises(InputError, match="100,003 columns; must be at most 10,000, one row per run"):
        read_table(tmp_path / "100000.csv")
    assert rows_of(tmp_path / "t.csv", CSV.replace("\n", "," * 100_000 + "\n")) == ROWS


def test_a_workbook_with_a_formatted_far_cell_is_read(tmp_path):
    """Its declared size of 17 billion cells filled the memory."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [list(ROWS[0]), *(list(row.values()) for row in ROWS)]:
        book.active.append(row)
    book.active["XFD1048576"].font = openpyxl.styles.Font(bold=True)
    book.save(tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx").rows == ROWS


def test_an_unbalanced_quote_is_named_and_swallows_no_rows(tmp_path):
    """Of 28 rows 10 were "read, all used"."""
    text = "depth,width,loss,note\n" + "".join(f"6,{64 + 4 * k},3.{k + 10},ok\n" for k in range(28))
    broken = text.replace("3.20,ok", '3.20,"ok')
    with pytest.raises(InputError, match="of row 12 holds further rows: a quote without its partner"):
        rows_of(tmp_path / "t.csv", broken)
    with pytest.raises(InputError, match="of row 12 holds further rows"):  # the next quote, rows later, is its partner
        rows_of(tmp_path / "t.csv", broken.replace("3.30,ok", '3.30,"ok"'))
    assert len(rows_of(tmp_path / "t.csv", text.replace("3.20,ok", '3.20,"ok,\nresumed once"'))) == 28


def test_decimal_commas_that_separate_fields_too_are_asked_about(tmp_path):
    """A loss of 3,21 was read as 3, and its decimals as a spare column."""
    for header in ("depth,width,loss,", "depth,width,loss,note"):
        with pytest.raises(InputError, match=r"is the loss 3\.21, its decimal comma a separator too\?"):
            rows_of(tmp_path / "t.csv", f"{header}\n6,64,3,21\n6,96,3,12\n12,48,3,5\n")


def test_columns_by_row_label_are_joined_by_their_labels(tmp_path):
    """pandas' JSON by columns, after a sort of one of them, was joined by place."""
    held = {name: {str(k): row[name] for k, row in enumerate(ROWS)} for name in ROWS[0]}
    held["loss"] = dict(reversed(held["loss"].items()))
    assert rows_of(tmp_path / "t.json", json.dumps(held)) == ROWS
    del held["loss"]["1"]
    assert [row["loss"] for row in rows_of(tmp_path / "t.json", json.dumps(held))] == [3.25, None, 3.5]


def test_a_parquet_file_of_two_columns_of_one_name_is_refused(tmp_path):
    """The last of two columns ``loss`` was taken without a word."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = [pa.array(values) for values in zip(*(row.values() for row in ROWS), strict=True)]
    table = pa.Table.from_arrays([*columns, columns[2]], names=["depth", "width", "loss", "loss"])
    pq.write_table(table, tmp_path / "t.parquet")
    for given in (tmp_path / "t.parquet", table):
        with pytest.raises(InputError, match="column 'loss' is there twice"):
            read_table(given)


@pytest.mark.parametrize("count", [100, pytest.param(1500, marks=pytest.mark.slow)])
def test_no_dialect_of_a_table_is_misread(count):
    """An eighth was: units that counted twice, labels joined by place. A dialect may be refused."""
    outcomes, misread = dialects.tried(count)
    assert not misread, misread[0]
    assert outcomes["refused"] < 0.1 * outcomes["read"]


def test_public_tables_come_with_the_package_by_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in source.BUILT_IN:
        table = read_table(name)
        assert len(table.rows) > 30 and table.source == f"{name} (of the package)"
        assert "licence: " in (source.SOURCES / f"{name}.yaml").read_text("utf-8")
    where = "warmup == 400 and heads == 4 and global_batch == 64"
    assert len(read_table("mlfoundations", where=[where]).rows) == 31
    (tmp_path / "mlfoundations").mkdir()  # a folder of that name is the folder
    with pytest.raises(InputError, match=r"needs a results\.csv"):
        read_table("mlfoundations")


@pytest.mark.parametrize(("name", "why"), [("val_ppl", "natural logarithm"), ("eval/accuracy", "no cross-entropy")])
def test_a_perplexity_or_an_accuracy_is_no_loss(name, why):
    with pytest.raises(InputError, match=why):
        read_table({"depth": [2, 4], "width": [64, 48], name: [31.0, 33.0]})
