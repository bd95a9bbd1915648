"""Reading of files as people have them: packed, in any encoding, behind a title, under a key; refusals by name."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
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
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
LABELLED = {name: {str(k): value for k, value in enumerate(values)} for name, values in COLUMNS.items()}
CSV = "depth,width,loss\n6,64,3.25\n6,96,3.125\n12,48,3.5\n"
LINES = "\n".join(map(json.dumps, ROWS))


def rows_of(path, content, **options):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **options).rows


def zipped(files):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def parquet(table):
    pq, made = pytest.importorskip("pyarrow.parquet"), io.BytesIO()
    pq.write_table(table, made)
    return made.getvalue()


def arrow(rows):
    return pytest.importorskip("pyarrow").Table.from_pylist(rows)


def workbook_of(*sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "notes"
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
        sheet["XFD1048576"].font = openpyxl.styles.Font(bold=True)  # of 17 billion cells, declared sizes count
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()


SHEET = [["Shape sweep"], [*ROWS[0]], *([*row.values()] for row in ROWS)]
MARKDOWN = "# Shapes\n\nsee below\n\n| depth | width | loss |\n| ---: | :--- | --- |\n" + "".join(
    f"| {line.replace(',', ' | ')} |\n" for line in CSV.splitlines()[1:]
)
PACKED = {
    "t.csv.gz": gzip.compress(CSV.encode()),
    "t.csv.xz": lzma.compress(CSV.encode()),
    "t.csv.bz2": bz2.compress(CSV.encode()),
    "t.gz": gzip.compress(CSV.encode()),
    "renamed.csv": gzip.compress(CSV.encode()),
    "t.json.gz": gzip.compress(json.dumps(ROWS).encode()),
    "t.jsonl.xz": lzma.compress(LINES.encode()),
    "t.zip": zipped({"runs.csv": CSV, "__MACOSX/runs.csv": "\0"}),
    "t.csv.zip": zipped({"folder/runs.csv": CSV}),
}
SURROUNDED = [
    "Shape sweep March,,\n# exported by hand\n" + CSV,
    "# exported by hand\n\n" + CSV,
    "Sweep,of March\n" + CSV,
    "# depth,width,loss\n" + CSV.partition("\n")[2],  # as NumPy writes a header
    CSV.replace(",", "\t"),
    CSV.replace(",", "|"),
    CSV.replace(",", "    "),
    CSV.replace("\n", ",,\n"),  # a spreadsheet's empty columns
    CSV.replace("\n", "," * 100_000 + "\n"),
    CSV.replace("\n", "\r\n"),
    CSV.replace("\n", "\r"),
    CSV.replace("6,96,3.125", '"6", "96", "3.125"'),
    CSV + ",,\n\n",
    CSV + "depth,width,loss\n",  # files put one behind the other
    CSV.replace("6,96", "# resumed here\n6,96"),
    MARKDOWN,
    MARKDOWN.replace("---: | :--- | ---", ":-: | -: | -").replace("3.5", "**3.5**"),
]
OBJECTS = [
    ROWS,
    COLUMNS,
    LABELLED,
    {"experiment": "shapes", "seed": 1, "results": ROWS},
    {"runs": ROWS, "configs": [{"a": 1}]},
    {"data": {"runs": ROWS, "version": 2}},
    {"my runs": ROWS, "note": "x"},
    {"results": COLUMNS},
    {"results": LABELLED},
    {"columns": [*COLUMNS], "index": [0, 1, 2], "data": [[*row.values()] for row in ROWS]},
    [
        {"shape": {"depth": row["depth"], "width": row["width"]}, "result": {"val": {"loss": row["loss"]}}}
        for row in ROWS
    ],
    # after a sort of one column; it was joined by place
    {**LABELLED, "loss": dict(reversed(LABELLED["loss"].items()))},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *PACKED.items(),
        *(("t.csv", text) for text in SURROUNDED),
        *(("t.txt", text) for text in (SURROUNDED[0], MARKDOWN, LINES)),
        *(("t.json", json.dumps(held)) for held in OBJECTS),
        *(("t.json", LINES), ("t.jsonl", LINES), ("t.tsv", CSV)),
    ],
)
def test_one_table_is_read_alike_from_every_form(tmp_path, name, content):
    assert rows_of(tmp_path / name, content) == ROWS


def test_one_table_is_read_alike_from_binary_files_frames_and_objects(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "results.csv").write_text(CSV)
    for name in ("t.xlsx", "book.csv"):
        (tmp_path / name).write_bytes(workbook_of(("runs", SHEET)))
    (tmp_path / "t.parquet").write_bytes(parquet(arrow(ROWS)))
    tables = [tmp_path / "sweep", tmp_path / "t.xlsx", tmp_path / "t.parquet", ROWS, COLUMNS, arrow(ROWS)]
    for table in tables:
        assert read_table(table).rows == ROWS
    assert read_table(tmp_path / "sweep").directory == str(tmp_path / "sweep")
    assert read_table(tmp_path / "t.parquet").directory is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_an_encoding_is_recognised(tmp_path, encoding):
    text = CSV.replace("loss", "loss,größe").replace("25\n", "25,é\n")
    assert rows_of(tmp_path / "t.csv", text.encode(encoding))[0] == {**ROWS[0], "größe": "é"}


CHART = "Step,calm-sun-3 - val_loss,calm-sun-3 - val_loss__MIN,calm-sun-3 - val_loss__MAX\n1,1,1,1\n"
QUOTE = "depth,width,loss,note\n" + "".join(f"6,{64 + 4 * k},3.{k + 10},ok\n" for k in range(28))
SWALLOWED = QUOTE.replace("3.20,ok", '3.20,"ok')
COMMAS = "\n6,64,3,21\n6,96,3,12\n12,48,3,5\n"
REFUSED = [
    ("t.zip", zipped({"a.csv": CSV, "b.csv": CSV}), r"a zip of 2 files \(a\.csv, b\.csv\); must hold one table"),
    ("t.csv.gz", gzip.compress(CSV.encode())[:-20], "not readable as a packed file: "),
    ("t.csv.xz", b"\xfd7zXZ\x00" + b"x" * 99, "not readable as a packed file: "),
    ("t.csv", b"\x89PNG\r\n\x1a\n\x00\x00\x01\xff\xd8\xff\x02\x03", "not readable as csv: "),
    ("t.csv", "depth,width,loss\n6,64,3,1\n", "a row has more fields than the header"),
    ("t.csv", f"{'x,' * 100_002}depth\n1\n", "100,003 columns; must be at most 10,000, one row per run"),
    # all losses were blank
    ("t.txt", "depth  width  val loss\n6 64 3.2\n", "a row has 3 fields between blanks, another 4; separate by commas"),
    # an unbalanced quote swallowed rows: of 28 rows 10 were "read, all used"
    ("t.csv", SWALLOWED, "of row 12 holds further rows: a quote without its partner"),
    ("t.csv", SWALLOWED.replace("3.30,ok", '3.30,"ok"'), "of row 12 holds further rows"),
    # a loss of 3,21 was read as 3, and its decimals as a spare column
    ("t.csv", "depth,width,loss," + COMMAS, r"is the loss 3\.21, its decimal comma a separator too\?"),
    ("t.csv", "depth,width,loss,note" + COMMAS, r"is the loss 3\.21, its decimal comma a separator too\?"),
    ("t.json", json.dumps({"wide": ROWS, "deep": ROWS}), r"runs under 2 keys \('wide', 'deep'\)"),
    ("t.json", "[{]", "not readable as json: "),
    ("t.json", '[{"depth": 6, "depth": 12}]', "not readable as json: key 'depth' is there twice"),
    ("t.json", json.dumps(ROWS[0]), "one value; must be a list of values, one per row"),
    ("t.json", "[1, 2, 3]", "must be a list of objects, one per run, or an object of columns"),
    ("t.json", "[" * 100_000, "not readable as json: "),
    ("t.jsonl", "[1]\n", r"t\.jsonl, line 1: '\[1\]'; must be a JSON object"),
    ("t.jsonl", '{"depth": 6}\n\n{"depth": 6, oops}\n', r"line 3: '\{\"depth\": 6, oops\}'; not JSON: "),
    ("t.jsonl", '{"loss": 3, "loss": 2}', r"line 1: .*; not JSON: key 'loss' is there twice"),
    ("t.parquet", "not parquet", "not readable as parquet"),
    ("t.xls", "x", r"must end in one of \.csv, \.tsv, \.txt, \.md, \.json, .*\.xlsx, or one of these and \.gz"),
    ("t.csv", CHART, r"a chart of W&B, one column a run .*; export the table of runs in place"),
    ("t.csv", "Step,a - loss,b - loss\n1,1,1\n", "a chart of W&B"),
    ("t.csv", "step,loss\n1,1\n", "one curve over steps"),
    ("t.csv", "Wall time,Step,Value\n1,1,1\n", "one curve over steps"),
    ("t.csv", "depth,width,val_ppl\n2,64,31\n", "natural logarithm"),
    ("t.csv", "depth,width,eval/accuracy\n2,64,33\n", "no cross-entropy"),
    (
        "plan.csv",
        plan_csv([]) + "x" + "," * plan_csv([]).count(",") + "\n",
        r"plan\.csv of a sweep, whose runs have no",
    ),
]


@pytest.mark.parametrize(("name", "content", "line"), REFUSED)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path, name, content, line):
    with pytest.raises(InputError, match=line) as refused:
        rows_of(tmp_path / name, content)
    assert len(refused.value.lines) == 1 and "\n" not in str(refused.value) and len(str(refused.value)) < 2000


def test_what_is_no_file_is_refused_in_a_line(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "empty" / "notes").mkdir(parents=True)
    without = r"a directory needs a results\.csv .* or a file or a folder for each run"
    for name, why in (("missing.csv", "no such file"), ("pipe.csv", "a pipe or a device"), ("empty", without)):
        with pytest.raises(InputError, match=why):
            read_table(tmp_path / name)


def test_a_file_that_unpacks_to_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="unpacks to more than 1,000 bytes"):
        rows_of(tmp_path / "t.csv.gz", gzip.compress(CSV.encode() * 100))


def test_a_workbook_has_one_sheet_and_needs_its_reader(tmp_path, monkeypatch):
    book = workbook_of(("runs", SHEET), ("more", SHEET))
    with pytest.raises(InputError, match=r"a workbook of 2 sheets \(runs, more\); must have one"):
        rows_of(tmp_path / "t.xlsx", book)
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    needs = r"needs openpyxl: in a clone, pip install .*'\.\[xlsx\]'; or save the sheet as CSV"
    with pytest.raises(InputError, match=needs):
        read_table(tmp_path / "t.xlsx")


def test_dicts_in_the_cells_of_a_table_are_columns(tmp_path):
    """As the interface of a tracker gives settings and last values."""
    shapes = [({"depth": row["depth"], "width": row["width"]}, {"val/loss": row["loss"]}) for row in ROWS]
    for write in (str, json.dumps):
        text = csv_of(["config", "summary"], [[write(config), write(summary)] for config, summary in shapes])
        assert rows_of(tmp_path / "t.csv", text) == ROWS


def test_records_by_the_name_of_their_run_and_columns_by_label_are_read(tmp_path):
    named = {f"run {k}": row for k, row in enumerate(ROWS)}
    assert rows_of(tmp_path / "t.json", json.dumps(named)) == [{"run": f"run {k}", **r} for k, r in enumerate(ROWS)]
    held = {**LABELLED, "loss": {"0": 3.25, "2": 3.5}}
    assert [row["loss"] for row in rows_of(tmp_path / "t.json", json.dumps(held))] == [3.25, None, 3.5]


@pytest.mark.parametrize("content", [CSV, json.dumps(ROWS), LINES])
def test_standard_input_and_open_files_are_read_by_their_content(monkeypatch, content):
    class Piped:
        buffer = io.BytesIO(content.encode())

    monkeypatch.setattr("sys.stdin", Piped())
    for _ in range(2):  # `--along depth` asks two questions
        table = read_table("-")
        assert table.rows == ROWS and table.source == "standard input"
    assert read_table(io.StringIO(content)).rows == read_table(io.BytesIO(content.encode())).rows == ROWS


def test_two_columns_of_one_name_are_refused(tmp_path):
    """The last of two columns ``loss`` was taken without a word."""
    held = arrow(ROWS)
    held = held.append_column("loss", held["loss"])
    (tmp_path / "t.parquet").write_bytes(parquet(held))
    for table in (held, tmp_path / "t.parquet", io.StringIO("depth,width,loss,loss\n6,64,3,2\n")):
        with pytest.raises(InputError, match="column 'loss' is there twice"):
            read_table(table)


# Shapes in names, folders of runs


@pytest.mark.parametrize(
    "names",
    [
        ("h264_numh4_numl6_lr1.0e-03", "h360_numh5_numl10_lr1.0e-03"),
        ("L6-d264", "L10-d360"),
        ("model3_6L_264d", "model3_10L_360d"),
        ("n_layer=6,d_model=264", "n_layer=10,d_model=360"),
        ("d6w264", "d10w360"),  # the depth was proposed as the width
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


@pytest.mark.parametrize(
    ("pattern", "why"), [("L(", "not a pattern"), ("L", "one group"), ("(L)(d)", "one group"), ("x(y)", "depth: None")]
)
def test_a_pattern_that_finds_no_number_is_a_line(pattern, why):
    with pytest.raises(InputError, match=why) as refused:
        read_table([{"run": "L6", "width": 64, "loss": 3.0}], {"depth": f"run~{pattern}"})
    assert len(refused.value.lines) == 1


def test_a_folder_holds_one_file_a_run(tmp_path):
    for row in ROWS:
        curve = "".join(f"{step},{row['loss'] + 1 / step:.4f},2.5\n" for step in (100, 200)) + f"300,{row['loss']},2\n"
        (tmp_path / f"depth{row['depth']}_width{row['width']}.csv").write_text("step,loss/val,loss/train\n" + curve)
    (tmp_path / ".hidden.csv").write_text("x")
    table = read_table(tmp_path)
    ends = {(row["depth"], row["width"], row["loss"]) for row in table.rows if row["step"] == 300}
    assert ends == {tuple(row.values()) for row in ROWS}  # the held-out one of two losses by TensorBoard's tags
    assert len(table.rows) == 9 and any("shapes are read in run" in note for note in table.notes)


TRAINER = [{"step": 10, "loss": 4.0}, {"step": 20, "loss": 3.9}, {"step": 20, "train_runtime": 50.0}]


@pytest.mark.parametrize("form", ["trainer_state.json", "metrics.csv", "metrics.json", "hydra", "one object", "wandb"])
def test_a_folder_holds_one_folder_a_run_with_its_settings(tmp_path, form):
    for k, row in enumerate(ROWS):
        place = tmp_path / ("2026-01-01/10-00-00" if form == "hydra" else ".") / f"run-{k}"
        place /= "files" if form == "wandb" else "."
        settings = {"num_hidden_layers": row["depth"], "model": {"hidden_size": row["width"]}, "lr": 1e-3}
        (place / ".hydra" if form == "hydra" else tmp_path if form == "one object" else place).mkdir(
            parents=True, exist_ok=True
        )
        if form == "one object":  # it was refused: "column 'val_loss' is one value"
            place.with_suffix(".json").write_text(json.dumps({"config": settings, "val_loss": row["loss"]}))
            continue
        (place / (".hydra/config.yaml" if form == "hydra" else "config.json")).write_text(json.dumps(settings))
        if form == "trainer_state.json":  # the seconds of an evaluation are not those of the training
            log = [*TRAINER, {"step": 20, "eval_loss": row["loss"], "eval_runtime": 3.0}]
            (place / form).write_text(json.dumps({"log_history": log}))
        elif form in ("metrics.json", "wandb"):  # W&B: beside files that are none, and a link to one of the runs
            name = "wandb-summary.json" if form == "wandb" else form
            (place / name).write_text(json.dumps({"val_loss": row["loss"], "train_loss": 2.0, "_wandb": {"t": 1}}))
            if form == "wandb":
                (place / "wandb-metadata.json").write_text('{"host": "n1"}')
                (tmp_path / "latest-run").mkdir(exist_ok=True)
                (tmp_path / "latest-run" / "metrics.csv").write_text("step,val_loss\n10,9\n")
        else:
            (place / "metrics.csv").write_text(f"step,val_loss\n10,4.0\n20,{row['loss']}\n")
    found = [row for row in read_table(tmp_path).rows if row.get("step", 20) == 20]
    assert [(row["depth"], row["width"], row["loss"]) for row in found] == [tuple(row.values()) for row in ROWS]
    assert {row["learning_rate"] for row in found} == {1e-3}
    assert {row.get("wall_seconds") for row in found} == ({50.0} if form == "trainer_state.json" else {None})


def test_a_folder_of_a_run_that_is_unclear_is_refused(tmp_path):
    (place := tmp_path / "run-0").mkdir()
    (place / "trainer_state.json").write_text('{"log_history": 3}')
    with pytest.raises(InputError, match="must have a list of objects under 'log_history'"):
        read_table(tmp_path)
    (place / "trainer_state.json").unlink()
    for name in ("a.csv", "b.csv"):
        (place / name).write_text(CSV)
    with pytest.raises(InputError, match=r"2 tables \(a\.csv, b\.csv\); must be one a run"):
        read_table(tmp_path)


# Files of ours


def csv_of(headings, rows):
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([headings, *rows])
    return made.getvalue()


def test_the_table_of_runs_of_a_page_is_read_back(tmp_path):
    done = {"tokens": 1_500_000, "loss": 3.25, "loss_stderr": 0.01, "bits_per_byte": 1.5, "status": "done"}
    runs = [
        {"run_id": f"L{L}-{s}", "depth": L, "width": 64, "seed": s, "learning_rate": 1e-3, "n_params": 12345678, **more}
        for L in (6, 12)
        for s, more in enumerate((done, {"tokens": 2e9, "loss": None, "status": "failed"}))
    ]
    (page,) = runs_table.all_runs(runs).parts
    read = read_table(io.StringIO(csv_of(page.heads, page.rows)))
    wanted = [(row["depth"], 64, row["loss"], row["tokens"]) for row in runs]
    assert [(row["depth"], row["width"], row["loss"], row["tokens"]) for row in read.rows] == wanted
    assert read.left_out == {"failed": 2} and read.rows[0]["learning_rate"] == 1e-3


def test_files_that_a_fit_wrote_are_refused_by_name(tmp_path):
    rows = [{"depth": d, "width": w, "loss": 3 - w / 1000 + d / 100} for d in (2, 4, 8) for w in (64, 96, 128, 192)]
    fit_record.write(fit_table(rows, draws=100, params=[1e6]), tmp_path / "out")
    for name, why in (
        ("cells.csv", "cells.csv of a fit, whose means are no runs; give the results.csv of its runs"),
        ("transitions.csv", "a table of pairs of depths, which a fit wrote"),
    ):
        with pytest.raises(InputError, match=why):
            read_table(tmp_path / "out" / name)


def test_a_table_has_at_most_ten_thousand_columns(tmp_path):
    """A text of 100,000 took a minute."""
    few = delimited.MOST_COLUMNS - 3
    lines = [",".join(map(str, [*row.values(), *[1.5] * few])) for row in ROWS]
    names = ["depth", "width", "loss", *(f"metric/{k}" for k in range(few))]
    (tmp_path / "t.csv").write_text("\n".join([",".join(names), *lines]))
    assert len(read_table(tmp_path / "t.csv").columns) == delimited.MOST_COLUMNS
    with pytest.raises(InputError, match=r"column 'width' is missing, have .* and 9,?969 more") as refused:
        read_table(tmp_path / "t.csv", drop=["width"])
    assert len(str(refused.value)) < 2000


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
    (tmp_path / "mlfoundations").mkdir()  # a folder of that name is the folder
    with pytest.raises(InputError, match=r"needs a results\.csv"):
        read_table("mlfoundations")
