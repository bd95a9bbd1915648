"""Files as people have them, and runs of trackers: the columns that they hold, or a refusal in one line."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import os
import sys
import time
from collections import Counter
from types import ModuleType, SimpleNamespace

import dialects
import numpy as np
import pytest

from dwsweep.errors import InputError
from dwsweep.fit.data import source
from dwsweep.fit.data.impossible import without_bad_runs
from dwsweep.fit.data.rows import why_no_loss
from dwsweep.fit.data.runs import select_runs
from dwsweep.fit.data.table import read_table
from dwsweep.records.record import table_text
from dwsweep.report import runs_table

COLUMNS = {"depth": [6, 6, 12], "width": [64, 96, 48], "loss": [3.25, 3.125, 3.5]}
ROWS = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]
LABELLED = {name: {str(k): value for k, value in enumerate(values)} for name, values in COLUMNS.items()}
CSV = "depth,width,loss\n6,64,3.25\n6,96,3.125\n12,48,3.5\n"
LINES = "\n".join(map(json.dumps, ROWS))


def put(folder, name, content):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def found(table, names):
    """Columns, the rows that were read, and reasons why rows have no loss."""
    without = Counter(why for row in table.rows if (why := why_no_loss(row)))
    without += Counter({why.removeprefix("are ").removeprefix("have "): n for (why, _), n in table.account.items()})
    others = {"n_read": table.n_read, "without": without}
    return {name: others[name] if name in others else [row.get(name) for row in table.rows] for name in names}


def csv_of(headings, rows):
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([headings, *rows])
    return made.getvalue()


def parquet(table):
    pq, made = pytest.importorskip("pyarrow.parquet"), io.BytesIO()
    pq.write_table(table, made)
    return made.getvalue()


def arrow(rows):
    return pytest.importorskip("pyarrow").Table.from_pylist(rows)


def workbook_of(*titles):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "notes"
    for title in titles:
        sheet = book.create_sheet(title)
        for row in [["Shape sweep"], [*ROWS[0]], *([*row.values()] for row in ROWS)]:
            sheet.append(row)
        sheet["XFD1048576"].font = openpyxl.styles.Font(bold=True)  # of 17 billion cells, declared sizes count
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()


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
}
SURROUNDED = [
    "Shape sweep March,,\n# exported by hand\n" + CSV,
    "# exported by hand\n\n" + CSV,
    "Sweep,of March\n" + CSV,
    "# depth,width,loss\n" + CSV.partition("\n")[2],  # as NumPy writes a header
    *(CSV.replace(",", mark) for mark in ("\t", "|")),
    CSV.replace("\n", ",,\n"),  # a spreadsheet's empty columns
    CSV.replace("\n", "," * 100_000 + "\n"),
    *(CSV.replace("\n", end) for end in ("\r\n", "\r")),
    CSV.replace("6,96,3.125", '"6", "96", "3.125"'),
    CSV + ",,\n\n",
    CSV + "depth,width,loss\n",  # files put one behind the other
    CSV.replace("6,96", "# resumed here\n6,96"),
    MARKDOWN,
    MARKDOWN.replace("---: | :--- | ---", ":-: | -: | -").replace("3.5", "**3.5**"),
]
NESTED = [({"depth": row["depth"], "width": row["width"]}, {"val": {"loss": row["loss"]}}) for row in ROWS]
OBJECTS = [
    *(ROWS, COLUMNS, LABELLED),
    {"experiment": "shapes", "seed": 1, "results": ROWS},
    {"runs": ROWS, "configs": [{"a": 1}]},
    {"data": {"runs": ROWS, "version": 2}},
    {"my runs": ROWS, "note": "x"},
    *({"results": held} for held in (COLUMNS, LABELLED)),
    {"columns": [*COLUMNS], "index": [0, 1, 2], "data": [[*row.values()] for row in ROWS]},
    [{"shape": shape, "result": result} for shape, result in NESTED],
    {f"run {k}": row for k, row in enumerate(ROWS)},
    # after a sort of one column; it was joined by place
    {**LABELLED, "loss": dict(reversed(LABELLED["loss"].items()))},
]
FORMS = [
    *PACKED.items(),
    *(("t.csv", text) for text in SURROUNDED),
    *(("t.txt", text) for text in (SURROUNDED[0], MARKDOWN, LINES)),
    *(("t.json", json.dumps(held)) for held in OBJECTS),
    *(("t.json", LINES), ("t.jsonl", LINES), ("t.tsv", CSV)),
    # dicts in the cells of a table, as the interface of a tracker gives settings and last values
    *(("t.csv", csv_of(["config", "summary"], [map(write, row) for row in NESTED])) for write in (str, json.dumps)),
    *(
        ("t.csv", CSV.replace("25\n", "25,é\n").replace("loss", "loss,größe").encode(encoding))
        for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252")
    ),
]
LOSSES = {"loss": [3.21, 3.105]}
WORDS = ["FAIL", "FAIL", "OOM", "crashed", "see notes", "-", "#N/A", "", "diverged"]
SIGNS = ["-", "—", "#N/A", "n/a", "", "#REF!", "null"]
NUMBERS = [
    (
        "depth,width,params,tokens,flops,loss\n6,64,1.63M,2.1B,1.2×10^18,3.2\n"
        '6,"1,024","1,234,567",2_100_000_000,1e18,4\n',
        {"n_params_total": [1_630_000, 1_234_567], "tokens": [2.1e9] * 2, "flops": [1.2e18, 1e18], "width": [64, 1024]},
    ),
    # a comma stands before decimals where a semicolon or the column shows it
    ("depth;width;loss\n6;64;3,21\n6;96;3,105\n", LOSSES),
    ("depth;width;loss\n6;64;3,210\n6;96;3,105\n", LOSSES),  # three decimals each: the semicolon shows it
    ('depth,width,loss\n6,64,"3,21"\n6,96,"3,105"\n', LOSSES),
    # a loss of thousands of nats is none, so its comma stands before decimals
    ("depth\twidth\tval_loss\n6\t64\t3,210\n6\t96\t3,105\n", LOSSES),
    ("depth;width;loss;lr\n6;64;3,89;0.001\n6;96;3,9;0.001\n", {"loss": [3.89, 3.9]}),
    ("depth;width;loss;tokens\n6;64;3,21;1.000.000\n6;96;3,105;2.000.000\n", {**LOSSES, "tokens": [1e6, 2e6]}),
    ('depth,width,loss,tokens\n6,64,3.21,"1,000,000"\n6,96,3.105 ± 0.01,"2,000,000"\n', {"tokens": [1e6, 2e6]}),
    # a unit in the value and in the name counts once: 510M of ``tokens_M`` were 5.1e14 tokens
    (
        "depth,width,loss,tokens_M,params (M)\n6,64,3.2,510M,1.2\n6,96,3.1,1.02B,2.4\n",
        {"tokens": [510e6, 1.02e9], "n_params_total": [1.2e6, 2.4e6]},
    ),
    # words in the place of a loss are no loss and counted; a run that diverged is not one that failed
    (
        "depth,width,seed,loss\n6,64,0,3.5\n" + "".join(f"6,96,{k},{word}\n" for k, word in enumerate(WORDS)),
        {
            "without": {"FAIL": 2, "OOM": 1, "crashed": 1, "see notes": 1, "no loss": 3},
            "loss": [3.5, *[None] * 8, math.inf],
        },
    ),
    # a status says more than a sign in the place of the loss
    (
        "depth,width,loss,status\n6,64,3.5,done\n6,96,-,oom\n6,128,OOM,done\n6,128,FAIL,\n",
        {"without": {"oom": 1, "OOM": 1, "FAIL": 1}},
    ),
    (
        "State,depth,width,loss\nfinished,6,64,3\nRunning,6,96,4\ncrashed,,,\nkilled,6,64,9\nfinished,6,96,\n"
        "finished,6,128,nan\nfinished,,,\n",
        {"without": {"running": 1, "crashed": 1, "killed": 1, "no loss": 2, "loss is NaN": 1}, "n_read": 7},
    ),
    # signs of a blank are blanks in every other column, and a word is a word
    (
        "depth,width,loss,tokens,status,note\n"
        + "".join(f"6,{64 + k},3,{one},done,{one}\n" for k, one in enumerate(SIGNS)),
        {"tokens": [None] * 7, "note": [None] * 7},
    ),
    # nothing in a table steers the terminal
    ("depth,width,loss,arm\n6,64,3,\x1b]0;owned\x07\n", {"arm": [r"\x1b]0;owned\x07"]}),
]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [*((*form, COLUMNS) for form in FORMS), *(("t.csv", text, columns) for text, columns in NUMBERS)],
)
def test_a_file_holds_these_columns(tmp_path, name, content, columns):
    assert found(read_table(put(tmp_path, name, content)), columns) == columns


def test_one_table_is_read_alike_from_binary_files_folders_frames_and_streams(tmp_path, monkeypatch):
    (tmp_path / "sweep").mkdir()
    folder = put(tmp_path, "sweep/results.csv", CSV).parent
    book = put(tmp_path, "t.xlsx", workbook_of("runs"))
    nested = parquet(arrow([{**row, "config": {"heads": 2}, "history": [1.0, 2.0]} for row in ROWS]))
    file = put(tmp_path, "t.parquet", nested)
    assert read_table(file).rows == [{**row, "heads": 2} for row in ROWS]
    streams = [
        made for text in (CSV, json.dumps(ROWS), LINES) for made in (io.StringIO(text), io.BytesIO(text.encode()))
    ]
    for table in (folder, book, ROWS, COLUMNS, arrow(ROWS), *streams):
        assert read_table(table).rows == ROWS
    assert (read_table(folder).directory, read_table(file).directory) == (str(folder), None)

    class Piped:
        buffer = io.BytesIO(CSV.encode())

    monkeypatch.setattr("sys.stdin", Piped())
    for _ in range(2):  # `--along depth` asks two questions
        table = read_table("-")
        assert table.rows == ROWS and table.source == "standard input"


class Frame:
    """What pandas, polars and lazy tables have in common, and what tells them apart."""

    def __init__(self, columns, kind):
        self._held, self.columns, self._kind = columns, list(columns), kind
        if kind == "pandas":
            self.iloc = None
        if kind == "lazy":
            self.collect = lambda: Frame(columns, "polars")

    def to_dict(self, orient="dict", *, as_series=True):
        assert orient == "list" if self._kind == "pandas" else not as_series
        return self._held


def test_frames_are_known_by_what_they_can_do():
    for kind in ("pandas", "polars", "lazy"):
        assert read_table(Frame(COLUMNS, kind)).rows == ROWS
    rows = read_table(Frame({**COLUMNS, "seed": [math.nan, 1, 1], "loss": [math.nan, 3.5, 3.75]}, "pandas")).rows
    assert rows[0]["seed"] is None and math.isnan(rows[0]["loss"])
    twice = Frame(COLUMNS, "pandas")
    twice.columns = [*COLUMNS, "loss"]
    with pytest.raises(InputError, match="'loss' is there twice"):
        read_table(twice)
    masked = np.ma.array([3.0, 2.9, 2.8], mask=[True, False, False])  # it was 0
    assert found(read_table({**COLUMNS, "loss": masked}), ["without"]) == {"without": {"no loss": 1}}


QUOTE = "depth,width,loss,note\n" + "".join(f"6,{64 + 4 * k},3.{k + 10},ok\n" for k in range(28))
SWALLOWED = QUOTE.replace("3.20,ok", '3.20,"ok')
COMMAS = "\n6,64,3,21\n6,96,3,12\n12,48,3,5\n"
REFUSED = [
    ("t.csv.gz", gzip.compress(CSV.encode())[:-20], "not readable as a packed file: "),
    ("t.csv", b"\x89PNG\r\n\x1a\n\x00\x00\x01\xff\xd8\xff\x02\x03", "not readable as csv: "),
    ("t.csv", "depth,width,loss\n6,64,3,1\n", "a row has more fields than the header"),
    # every line ends in a comma, and so does a width with a comma of its own
    ("t.csv", "depth,width,loss,\n6,64,3.1,\n6,1,024,2.9,\n", "a row has more fields than the header"),
    ("t.csv", f"{'x,' * 100_002}depth\n1\n", "100,003 columns; must be at most 10,000, one row per run"),
    # an unbalanced quote swallowed rows: of 28 rows 10 were "read, all used"
    ("t.csv", SWALLOWED, "of row 12 holds further rows: a quote without its partner"),
    # a loss of 3,21 was read as 3, and its decimals as a spare column
    ("t.csv", "depth,width,loss," + COMMAS, r"is the loss 3\.21, its decimal comma a separator too\?"),
    # numbers that read both ways: 4582 nats, a width of 1.024, 4,096,000 tokens
    ("t.csv", "depth;width;loss;lr\n6;64;3,210;0.5\n", "'loss' has '3,210', .* is it 3.210 or 3210"),
    ("t.csv", "depth\twidth\tval_loss\tlr\n6\t64\t4,582\t0.5\n", "'val_loss' has '4,582', .* 4.582 or 4582"),
    ("t.csv", "depth;width;loss\n6;1,024;3.897\n6;1,536;3.890\n", "'width' has '1,024'.* 1.024 or 1024"),
    ("t.csv", "depth;width;loss;lr\n6;1.024;3,897;0.001\n6;1.536;3,89;0.001\n", "'width' has '1.024'.* 1.024 or 1024"),
    ("t.csv", "depth;width;loss;tokens\n6;64;3,89;4.096K\n6;96;3,9;8.192K\n", "'tokens' has '8.192K', .* or 8192K"),
    ("t.csv", "depth;width;loss\n6;64;3,21\n6;96;3.21\n", r"loss: '3,21' in row 1; must be a number"),  # both marks
    ("t.csv", "depth,width,loss,loss\n6,64,3,2\n", "column 'loss' is there twice"),  # the last one was taken
    ("t.json", json.dumps({"wide": ROWS, "deep": ROWS}), r"runs under 2 keys \('wide', 'deep'\)"),
    ("t.json", "[{]", "not readable as json: "),
    ("t.json", '[{"depth": 6, "depth": 12}]', "not readable as json: key 'depth' is there twice"),
    ("t.json", json.dumps(ROWS[0]), "one value; must be a list, one value per row"),
    ("t.json", "[1, 2, 3]", "must be a list of objects, one per run, or an object of columns"),
    ("t.jsonl", "[1]\n", r"t\.jsonl, line 1: '\[1\]'; must be a JSON object"),
    ("t.jsonl", '{"depth": 6}\n\n{"depth": 6, oops}\n', r"line 3: '\{\"depth\": 6, oops\}'; not JSON: "),
    ("t.jsonl", '{"loss": 3, "loss": 2}', r"line 1: .*; not JSON: key 'loss' is there twice"),
    ("t.xls", "x", r"must end in one of \.csv, \.tsv, \.txt, \.md, \.json, .*\.xlsx, or one of these and \.gz"),
    ("t.xlsx", workbook_of("runs", "more"), r"a workbook of 2 sheets \(runs, more\); must have one"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "line"), REFUSED)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path, name, content, line):
    with pytest.raises(InputError, match=line) as refused:
        read_table(put(tmp_path, name, content))
    assert len(refused.value.lines) == 1 and "\n" not in str(refused.value) and len(str(refused.value)) < 2000


def test_what_is_no_file_or_too_large_is_refused_in_a_line(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "empty" / "notes").mkdir(parents=True)
    without = r"a directory needs a results\.csv .* or a file or a folder for each run"
    for name, why in (("missing.csv", "no such file"), ("pipe.csv", "a pipe or a device"), ("empty", without)):
        with pytest.raises(InputError, match=why):
            read_table(tmp_path / name)
    book = put(tmp_path, "t.xlsx", workbook_of("runs"))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    needs = r"needs openpyxl: in a clone, pip install .*'\.\[xlsx\]'; or save the sheet as CSV"
    with pytest.raises(InputError, match=needs):
        read_table(book)
    monkeypatch.setattr(source, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="unpacks to more than 1,000 bytes"):
        read_table(put(tmp_path, "t.csv.gz", gzip.compress(CSV.encode() * 100)))


def test_texts_that_our_writers_guard_and_lines_of_comments_are_read_back(tmp_path):
    texts = ["=x", "@home", "+plus", "-minus", "''=x", "it's", "'quoted'"]
    rows = [{"depth": 6, "width": 96 + 8 * k, "loss": 3.0, "note": text} for k, text in enumerate(texts)]
    lines = table_text(rows, ["depth", "width", "loss", "note"], str).splitlines()
    assert "'=x" in lines[1]
    lines[4:4] = ["# resumed on another node,,,"]
    table = read_table(put(tmp_path, "t.csv", "\n".join(lines)))
    assert [row["note"] for row in table.rows] == texts and table.n_read == 8
    assert table.account == {("begin with # and count as comments", ""): 1}


# Shapes in names, folders of runs


@pytest.mark.parametrize(
    "names",
    [
        ("h264_numh4_numl6_lr1.0e-03", "h360_numh5_numl10_lr1.0e-03"),
        ("L6-d264", "L10-d360"),
        ("model3_6L_264d", "model3_10L_360d"),
        ("d6w264", "d10w360"),  # the depth was proposed as the width
        ("264 × 6", "360 × 10"),
        ("depth6_width264_seed0", "depth10_width360_seed0"),
    ],
)
def test_shapes_that_stand_in_names_are_read_where_one_reading_explains_all(names):
    table = read_table([{"run": name, "loss": 3.5} for name in names])
    assert [(row["depth"], row["width"]) for row in table.rows] == [(6, 264), (10, 360)]
    assert f"shapes are read in run: {names[0]!r} is depth 6, width 264" in table.notes[0]
    assert table.rows[0].get("seed") == (0 if "seed" in names[0] else None)


@pytest.mark.parametrize("names", [("L6-d264-h512", "L10-d360-h720"), ("6x264", "360x10"), ("seed-1-step-100",)])
def test_shapes_in_names_of_several_readings_are_refused(names):
    with pytest.raises(InputError, match="columns 'depth' and 'width' are missing"):
        read_table([{"run": name, "loss": 3.5} for name in names])


def test_a_folder_holds_one_file_a_run(tmp_path):
    for row in ROWS:
        curve = "".join(f"{step},{row['loss'] + 1 / step:.4f},2.5\n" for step in (100, 200)) + f"300,{row['loss']},2\n"
        put(tmp_path, f"depth{row['depth']}_width{row['width']}.csv", "step,loss/val,loss/train\n" + curve)
    put(tmp_path, ".hidden.csv", "x")
    table = read_table(tmp_path)
    ends = {(row["depth"], row["width"], row["loss"]) for row in table.rows if row["step"] == 300}
    assert ends == {tuple(row.values()) for row in ROWS}  # the held-out one of two losses by TensorBoard's tags
    assert len(table.rows) == 9 and any("shapes are read in run" in note for note in table.notes)


TRAINER = [{"step": 10, "loss": 4.0}, {"step": 20, "loss": 3.9}, {"step": 20, "train_runtime": 50.0}]


def run_of(form, loss):
    """Path of a run's settings, path and content of its losses. The seconds of an evaluation are not those of the
    training."""
    log = [*TRAINER, {"step": 20, "eval_loss": loss, "eval_runtime": 3.0}]
    summary = json.dumps({"val_loss": loss, "train_loss": 2.0, "_wandb": {"t": 1}})
    return {
        "trainer": ("config.json", "trainer_state.json", json.dumps({"log_history": log})),
        "csv": ("config.json", "metrics.csv", f"step,val_loss\n10,4.0\n20,{loss}\n"),
        "json": ("config.json", "metrics.json", summary),
        "hydra": (".hydra/config.yaml", "metrics.csv", f"step,val_loss\n10,4.0\n20,{loss}\n"),
        "wandb": ("files/config.json", "files/wandb-summary.json", summary),
    }[form]


@pytest.mark.parametrize("form", ["trainer", "csv", "json", "hydra", "wandb", "one object"])
def test_a_folder_holds_one_folder_a_run_with_its_settings(tmp_path, form):
    for k, row in enumerate(ROWS):
        settings = {"num_hidden_layers": row["depth"], "model": {"hidden_size": row["width"]}, "lr": 1e-3}
        if form == "one object":  # it was refused: "column 'val_loss' is one value"
            put(tmp_path, f"run-{k}.json", json.dumps({"config": settings, "val_loss": row["loss"]}))
            continue
        place = tmp_path / ("2026-01-01/10-00-00" if form == "hydra" else ".") / f"run-{k}"
        config, losses, content = run_of(form, row["loss"])
        for name, text in ((config, json.dumps(settings)), (losses, content)):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            put(place, name, text)
        if form == "wandb":  # beside files that are none, and a link to one of the runs
            put(place, "files/wandb-metadata.json", '{"host": "n1"}')
            (tmp_path / "latest-run").mkdir(exist_ok=True)
            put(tmp_path, "latest-run/metrics.csv", "step,val_loss\n10,9\n")
    rows = [row for row in read_table(tmp_path).rows if row.get("step", 20) == 20]
    assert [(row["depth"], row["width"], row["loss"]) for row in rows] == [tuple(row.values()) for row in ROWS]
    assert {row["learning_rate"] for row in rows} == {1e-3}
    assert {row.get("wall_seconds") for row in rows} == {50.0 if form == "trainer" else None}


def test_runs_of_a_folder_that_differ_in_a_list_are_no_replicates(tmp_path):
    """Lists of settings were left out, and two recipes were averaged."""
    for k, row in enumerate([*ROWS, *ROWS]):
        config = {"depth": row["depth"], "width": row["width"], "betas": [0.9, 0.95 + k // 3 / 25], "ids": [*range(99)]}
        (tmp_path / f"{k}").mkdir()
        put(tmp_path, f"{k}/config.json", json.dumps(config))
        put(tmp_path, f"{k}/m.json", json.dumps({"val_loss": row["loss"] + k // 3}))
    table = read_table(tmp_path)
    assert table.settings == ("config.betas",) and "config.ids" not in table.roles


def test_a_folder_of_a_run_that_is_unclear_is_refused(tmp_path):
    (place := tmp_path / "run-0").mkdir()
    state = put(place, "trainer_state.json", '{"log_history": 3}')
    with pytest.raises(InputError, match="must have a list of objects under 'log_history'"):
        read_table(tmp_path)
    state.unlink()
    for at in (500, 1000):  # checkpoints of one run are no runs
        (place / f"checkpoint-{at}").mkdir()
        put(place, f"checkpoint-{at}/trainer_state.json", json.dumps({"log_history": TRAINER}))
    with pytest.raises(InputError, match="0 runs, must be at most"):
        read_table(tmp_path)
    for name in ("a.csv", "b.csv"):
        put(place, name, CSV)
    with pytest.raises(InputError, match=r"2 tables \(a\.csv, b\.csv\); must be one a run"):
        read_table(tmp_path)


# Files of ours


def test_the_table_of_runs_of_a_page_is_read_back():
    done = {"tokens": 1_500_000, "loss": 3.25, "loss_stderr": 0.01, "bits_per_byte": 1.5, "status": "done"}
    runs = [
        {"run_id": f"L{L}-{s}", "depth": L, "width": 64, "seed": s, "learning_rate": 1e-3, "n_params": 12345678, **more}
        for L in (6, 12)
        for s, more in enumerate((done, {"tokens": 2e9, "loss": None, "status": "failed"}))
    ]
    (page,) = runs_table.all_runs(runs).parts
    read = read_table(io.StringIO(csv_of(page.heads, page.rows)))
    same = ("depth", "width", "loss", "tokens", "learning_rate")
    assert found(read, same) == {name: [row[name] for row in runs] for name in same}
    assert found(read, ["without"]) == {"without": {"failed": 2}}


def test_public_tables_come_with_the_package_by_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in source.built_in():
        table = read_table(name)
        assert len(table.rows) > 30 and table.source == f"{name} (of the package)"
        assert "licence: " in (source.SOURCES / f"{name}.yaml").read_text("utf-8")
    (tmp_path / "mlfoundations").mkdir()  # a folder of that name is the folder
    with pytest.raises(InputError, match=r"needs a results\.csv"):
        read_table("mlfoundations")


# Sizes and dialects


def test_fifty_thousand_rows_are_read_and_selected_in_seconds(tmp_path):
    seeds = 2_083
    shapes = [(depth, width) for depth in (4, 8, 16, 32) for width in (64, 96, 128, 192, 256, 384)]
    loss = np.random.default_rng(0).normal(3.0, 0.002, (24, seeds))
    lines = [f"{L},{d},{k},{v:.6f},1e9" for (L, d), own in zip(shapes, loss, strict=True) for k, v in enumerate(own)]
    file = put(tmp_path, "t.csv", "\n".join(["depth,width,seed,loss,tokens", *lines]))
    begin = time.process_time()
    selection, bad = without_bad_runs(select_runs(read_table(file).rows))
    assert len(selection.runs) == 24 * seeds and not bad
    assert time.process_time() - begin < 5.0  # about a fifth of it


@pytest.mark.parametrize("count", [100, pytest.param(1500, marks=pytest.mark.slow)])
def test_no_dialect_of_a_table_is_misread(count):
    """An eighth was: units that counted twice, labels joined by place. A dialect may be refused."""
    outcomes, misread = dialects.tried(count)
    assert not misread, misread[0]
    assert outcomes["refused"] < 0.1 * outcomes["read"]


# Runs of W&B and MLflow, read through stand-ins for their packages: no network, and nothing is imported before


SHAPES = [(2, 64, 3.1), (4, 45, 3.0), (2, 128, 2.9), (4, 90, 2.7)]
CRASHED = (2, 32, 9.0)


def finished(table):
    """Depth, width and loss of the runs that count; the table has the crashed one too, to report it."""
    assert len(table.rows) == len(SHAPES) + 1
    return sorted((row["depth"], row["width"], row["loss"]) for row in table.rows if row["status"] == "done")


def wandb():
    """A module ``wandb`` whose project has the runs of SHAPES and one that crashed."""
    runs = [
        SimpleNamespace(
            name=f"run-{k}",
            state="finished" if k < len(SHAPES) else "crashed",
            config={"model": {"n_layer": depth, "d_model": width}, "loss": "cross", "tags": ["a"], "_wandb": {"t": 1}},
            summary={"loss": loss, "_runtime": 3.0, "_step": 500, "plot": {"_type": "image-file"}},
            sweep=SimpleNamespace(id="ab12") if k == 0 else None,
        )
        for k, (depth, width, loss) in enumerate([*SHAPES, CRASHED])
    ]

    def of(place):
        if place == "me/gone":
            raise ValueError("Could not find project gone")
        return {"me/depths": runs, "me/empty": []}[place]

    module = ModuleType("wandb")
    module.Api = lambda **_: SimpleNamespace(runs=of)
    return module


def mlflow():
    runs = [
        SimpleNamespace(
            info=SimpleNamespace(run_name=f"r{k}", status="FINISHED" if k else "FAILED"),
            data=SimpleNamespace(params={"n_layer": str(depth), "d_model": str(width)}, metrics={"val_loss": loss}),
        )
        for k, (depth, width, loss) in enumerate([CRASHED, *SHAPES])
    ]
    module = ModuleType("mlflow")
    module.get_experiment_by_name = {"depth study": SimpleNamespace(experiment_id="7")}.get
    module.get_tracking_uri = lambda: "file:///tracked"
    module.search_runs = lambda experiment_ids, output_format: runs if experiment_ids == ["7"] else []
    return module


@pytest.fixture
def both(monkeypatch):
    for make in (wandb, mlflow):
        monkeypatch.setitem(sys.modules, make.__name__, make())


@pytest.mark.usefixtures("both")
def test_runs_of_a_project_and_of_an_experiment_are_a_table():
    for name in ("wandb:me/depths", "mlflow:depth study"):
        table = read_table(name)
        assert finished(table) == sorted(SHAPES) and table.source == name
        assert not any("plot" in column or "_wandb" in column for column in table.roles)
    kept = read_table("wandb:me/depths", where=["sweep_id != 'ab12'"])
    assert [row["loss"] for row in kept.rows if row["status"] == "done"] == [loss for _, _, loss in SHAPES[1:]]


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("wandb:depths", r"^table: wandb:depths; must be wandb:ENTITY/PROJECT$"),
        ("wandb:me/gone", r"^table: wandb:me/gone; cannot be read \(Could not find project gone\)$"),
        ("wandb:me/empty", r"^table: wandb:me/empty; has no runs; "),
        ("mlflow:other", r"mlflow:other; no such experiment at file:///tracked"),
    ],
)
def test_what_a_tracker_lacks_is_one_line(name, line):
    with pytest.raises(InputError, match=line):
        read_table(name)


@pytest.mark.usefixtures("both")
def test_the_fit_of_a_project_is_written_beside_the_caller_and_a_package_that_lacks_is_named(
    dwsweep, monkeypatch, tmp_path
):
    done = dwsweep("fit", "wandb:me/depths", cwd=tmp_path)
    assert done.returncode == 0 and "4 used" in done.stdout, done
    for kind, name, needed in (("wandb", "wandb:a/b", "'.[wandb]'"), ("mlflow", "mlflow:a", "pip install mlflow")):
        monkeypatch.setitem(sys.modules, kind, None)
        done = dwsweep("fit", name, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert done.stderr.startswith(f"error: table: {name}; needs the package {kind}: ") and needed in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["depths-fit"]
