"""Reading anybody's table: formats, names, selection, and one clear line for what is wrong."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from sentences import says

from dwsweep import fit_table
from dwsweep.errors import InputError
from dwsweep.fit.arms import compare_arms
from dwsweep.fit.cells import select_runs, without_bad_runs
from dwsweep.fit.data.table import read_table
from dwsweep.records import fit as fit_record
from dwsweep.report import fit_report
from dwsweep.terminal import plain_text

ROWS = [
    {"depth": 6, "width": 64, "loss": 3.25, "seed": 0, "warmup": 400, "optimizer": "adamw"},
    {"depth": 6, "width": 64, "loss": 3.5, "seed": 1, "warmup": 800, "optimizer": "adamw"},
    {"depth": 12, "width": 48, "loss": 3.75, "seed": 0, "warmup": 400, "optimizer": "lion"},
]


def test_renaming_displaces_an_old_column():
    rows = [{"L": 6, "width": 64, "loss": 9.0, "val": 3.0}]
    table = read_table(rows, ["depth=L", "loss=val"])
    assert table.rows == [{"depth": 6, "width": 64, "loss": 3.0}]
    assert table.columns == ("depth", "width", "loss")


def test_where_selects_and_names_what_is_wrong():
    assert len(read_table([*ROWS, {**ROWS[0], "depth": "mean", "width": None}], where="not depth == 'mean'").rows) == 3
    assert len(read_table(ROWS, where=["warmup == 400"]).rows) == 2
    assert len(read_table(ROWS, where=["warmup == 400", "optimizer != 'lion'"]).rows) == 1
    assert len(read_table(ROWS, where="depth in [12, 24] or seed >= 1").rows) == 2
    assert len(read_table(ROWS, where="width * depth < 500").rows) == 2
    with pytest.raises(InputError, match="keeps none of the 3 rows"):
        read_table(ROWS, where=["warmup == 1"])
    assert len(read_table(ROWS, where='-("a") != depth').rows) == 3
    for bad in (
        "\0 == 1",
        "(" * 250 + "depth" + ")" * 250,
        "warmp == 400",
        "__import__('os')",
        "depth",
        "depth ==",
        "depth.real == 6",
        "(lambda: 1)() == 1",
    ):
        with pytest.raises(InputError, match=r"^where: "):
            read_table(ROWS, where=[bad])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        ([{"depth": 6, "width": 64}], "column 'loss' is missing"),
        (
            [{"depth": 6, "width": "wide", "loss": 1.0}],
            "width: 'wide' in row 1; must be a number; where=\"not width == 'wide'",
        ),
        ([{"depth": 0, "width": 64, "loss": 1.0}], "depth: 0 in row 1"),
        ([{"depth": 6, "width": None, "loss": 1.0}], "width: None in row 1"),
        ([{"depth": 2.5, "width": 64, "loss": 1.0}], "depth: 2.5 in row 1; must be a whole number of layers"),
        (
            [{"depth": 6, "width": 64, "loss": 1.0, "n_params": 1e308}],
            r"n_params: 1e\+308 in row 1; must be from 1e-06 to 1e\+30",
        ),
        ([{"depth": 6, "width": 64, "loss": "x"}], "loss: 'x' in row 1"),
        ([{**ROWS[0], "bits_per_byte": "x"}], "bits_per_byte: 'x' in row 1; must be a number"),
        ([{**ROWS[0], "bits_per_byte": -1.0}], "bits_per_byte: -1 in row 1; must not be"),
        ([{**ROWS[0], "loss": -0.3}], "loss: -0.3 in row 1; must be a cross-entropy, not negative"),  # was a traceback
        ([1, 2], "list of dicts"),
        ({"depth": [1], "width": [1, 2]}, "different lengths"),
    ],
)
def test_bad_tables_are_one_clear_line(rows, message):
    with pytest.raises(InputError, match=message):
        read_table(rows)


def test_a_column_that_is_another_quantity_is_not_offered_as_the_width():
    """The line offered head_dim, with which every net has the width of a head."""
    row = {"n_layers": 4, "d_ff": 1024, "n_heads": 4, "head_dim": 64, "val_loss": 3.0}
    with pytest.raises(InputError, match="THEIRS being its name in the table") as caught:
        read_table([row])
    assert "'width': 'THEIRS'" in str(caught.value)


def test_messages_name_the_argument_in_python_and_the_option_on_the_command_line():
    wrong = [
        (lambda: read_table(ROWS, where=["nothing"]), "where: ", "--where: "),
        (lambda: read_table(ROWS, ["loss"]), "columns: ", "--column: "),
        (
            lambda: read_table([{"depth": 6, "width": 64}]),
            r"rename with columns=\{'loss'",
            "--column loss=THEIRS",
        ),
        (lambda: fit_table(ROWS, axis="size"), "axis: ", "--axis: "),
        (lambda: fit_table(ROWS, axis="flops"), "axis: ", "--axis: "),
        (lambda: fit_table(ROWS, noise=-1.0), "noise: ", "--noise: "),
        (lambda: fit_table(ROWS, params=[-1.0]), "params: ", "--params: "),
    ]
    for call, argument, option in wrong:
        with pytest.raises(InputError, match=argument) as caught:
            call()
        assert "--" not in str(caught.value)
        assert option in caught.value.option_lines[0]


class Frame:
    """What pandas and polars tables have in common, and what tells them apart."""

    def __init__(self, columns, **more):
        self._held, self.columns = columns, list(columns)
        self.__dict__.update(more)


class PandasLike(Frame):
    iloc = None

    def to_dict(self, orient="dict"):
        assert orient == "list"
        return self._held


class PolarsLike(Frame):
    def to_dict(self, *, as_series=True):
        assert not as_series
        return self._held


class LazyPolarsLike(Frame):
    to_dict = None

    def collect(self):
        return PolarsLike(self._held)


def test_frames_are_known_by_what_they_can_do():
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    for frame in (PandasLike(columns), PolarsLike(columns), LazyPolarsLike(columns)):
        assert read_table(frame).rows == ROWS
    blank = {**columns, "seed": [math.nan, 1, math.nan], "loss": [math.nan, 3.5, 3.75]}
    rows = read_table(PandasLike(blank)).rows
    assert rows[0]["seed"] is None and math.isnan(rows[0]["loss"])
    twice = PandasLike(columns)
    twice.columns = [*columns, "loss"]
    with pytest.raises(InputError, match="'loss' is there twice"):
        read_table(twice)


ODD = (
    *(None, math.nan, math.inf, -math.inf, 0, -1, 1e308, -1e308, 5e-324, 1e-300, 1e9, 1e5, 10**400, 2.5, True),
    *("", "text", "12", "1e5", "nan", [1], {"a": 1}, 1j, b"12", np.float32(3), np.array([1, 2]), np.str_("7")),
)
COLUMNS, OTHERS = ("depth", "width", "loss", "n_params"), ("seed", "learning_rate", "tokens", "flops", "heads")


def plain_rows():
    """Twelve shapes of two seeds."""
    noise = np.random.default_rng(0)
    return [
        {
            **{"depth": L, "width": d, "seed": seed, "learning_rate": 1e-3, "tokens": 10**7, "flops": 7e8 * L * d * d},
            **{"heads": 2, "n_params": 12 * L * d * d, "vocab_size": 1000, "seq_len": 64},
            "loss": 3 + 10 * (12 * L * d * d) ** -0.2 + noise.normal(0, 1e-3),
        }
        for L, widths in ((2, (64, 96, 144, 216)), (4, (45, 68, 102, 153)), (8, (32, 48, 72, 108)))
        for d in widths
        for seed in range(2)
    ]


def damaged_tables():
    """(name, rows): one odd value, a column of it, odd shapes of a table. Seven in eight of the odd values stand in two
    depths, which have no loss surface and take a fraction of the time."""
    rows = plain_rows()
    two_depths = [row for row in rows if row["depth"] < 8]
    odd = [*itertools.product(COLUMNS, ODD), *itertools.product(OTHERS, (None, 0, -1, math.inf, 5e-324, "x"))]
    for number, (name, value) in enumerate(odd):
        table = two_depths if number % 8 else rows
        yield f"{name} {value!r:.20}", [{**row, name: value} if k == 3 else row for k, row in enumerate(table)]
    for name, value in itertools.product(("loss", "seed", "n_params"), (None, math.nan, True, "x", 7)):
        yield f"all {name} {value!r}", [{**row, name: value} for row in rows]
    yield "one row", rows[:1]
    yield "a row often", [rows[0]] * 9
    yield "equal losses", [{**row, "loss": 3.0} for row in rows]
    yield "one size", [row for row in rows if row["width"] in (64, 45, 32)]
    yield "depth and width exchanged", [{**row, "depth": row["width"], "width": row["depth"]} for row in rows]
    yield "ragged", [{n: v for j, (n, v) in enumerate(row.items()) if (i + j) % 5} for i, row in enumerate(rows)]
    yield "very deep", [{**row, "depth": 10**5} if k > 12 else row for k, row in enumerate(rows)]
    yield "huge losses", [{**row, "loss": 1e308} for row in rows]
    yield "sizes apart", [{**row, "n_params": 1e-6 if k % 2 else 1e30} for k, row in enumerate(rows)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sixth", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 6))])
def test_odd_tables_are_refused_in_a_line_or_fitted_in_silence_and_read_back(sixth, tmp_path):
    tables = list(damaged_tables())[sixth::6]
    assert len(tables) > 25
    refused = 0
    for name, rows in tables:
        try:
            result = fit_table(rows, draws=100)
        except InputError as error:
            refused += 1
            assert error.lines and all(line.count("\n") == 0 and len(line) < 300 for line in error.lines), name
        except Exception as error:
            raise AssertionError(name) from error
        else:
            (tmp_path / "fit.json").write_text(result.to_json())
            assert fit_record.read(tmp_path).to_json() == result.to_json(), name
    assert 10 < refused < len(tables)


@pytest.mark.parametrize("vocabulary", [-1, 0, 0.5, 1, math.inf, None])
def test_a_vocabulary_that_is_none_says_nothing_of_chance(vocabulary):
    rows = [{"depth": d, "width": w, "loss": 3.0, "vocab_size": vocabulary} for d in (2, 4) for w in (64, 90, 128)]
    assert not [line for line in fit_table(rows, draws=100).warnings if "TOO EARLY" in line or "NOT TRAINED" in line]


def written(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text)
    return read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("header", "taken", "unit"),
    [
        pytest.param(
            "flops_budget,depth,model_dim,params_transformer,params_total,tokens_trained,val_bpb,train_time_sec",
            "train_flops=flops_budget width=model_dim n_params=params_transformer n_params_total=params_total "
            "tokens=tokens_trained loss=val_bpb wall_seconds=train_time_sec",
            "bits per byte",
            id="nanochat",
        ),
        pytest.param(
            "Name,State,config.n_layer,config.n_embd,summary.val_loss,summary.total_tokens",
            "depth=config.n_layer width=config.n_embd loss=summary.val_loss tokens=summary.total_tokens status=State",
            "nats per token",
            id="wandb",
        ),
        pytest.param(
            "model.num_layers,model.hidden_dim,eval/loss,parameter_count,throughput/total_tokens",
            "depth=model.num_layers width=model.hidden_dim loss=eval/loss n_params_total=parameter_count "
            "tokens=throughput/total_tokens",
            "nats per token",
            id="levanter",
        ),
        pytest.param(
            "budget,n_layer,d_model,total_params,non_embedding_params,compute,eval/bpb",
            "train_flops=budget depth=n_layer width=d_model n_params_total=total_params n_params=non_embedding_params "
            "flops=compute loss=eval/bpb",
            "bits per byte",
            id="trackio",
        ),
        pytest.param("depth,width,loss_bits,loss", "", "nats per token", id="ours"),
    ],
)
def test_the_names_of_trackers_are_read_without_a_flag(tmp_path, header, taken, unit):
    ends = {"State": "finished", "flops_budget": "1e18", "budget": "1e18"}
    table = written(tmp_path, header + "\n" + ",".join(ends.get(name, "8") for name in header.split(",")) + "\n")
    assert {line.replace(" ", "") for line in table.taken} == set(taken.split()) and table.unit == unit
    assert table.rows[0]["depth"] == 8 and not table.left_out


def test_settings_are_no_outcomes_and_training_is_not_held_out(tmp_path):
    with pytest.raises(InputError, match="column 'loss' is missing"):
        written(tmp_path, "depth,width,config.loss\n8,8,3\n")
    training = written(tmp_path, "depth,width,config.loss,train/loss\n8,8,3,3\n")
    assert says(training.notes[0], "fit: training loss by its path")
    assert written(tmp_path, "depth,width,loss,budget\n8,8,3,1e6\n").taken == ()  # of parameters


def test_a_unit_is_given_or_refused():
    assert read_table(ROWS, unit="bits").unit == "bits per token"
    with pytest.raises(InputError, match=r"unit: 'bytes'; must be one of nats, bits, bpb"):
        read_table(ROWS, unit="bytes")


@pytest.mark.parametrize("name", ["final_val_bpc", "val_bpc", "bpc", "eval/bits_per_character"])
def test_a_loss_in_bits_per_character_says_so_under_every_name(name):
    rows = [{"depth": 6, "width": w, name: 1.5 - w / 1000} for w in (64, 96)]
    for table in (read_table(rows), read_table(rows, {"loss": name})):
        assert table.unit == "bits per character" and table.rows[0]["loss"] == 1.5 - 0.064
        assert "Losses are in bits per character" in " ".join(table.notes)


def test_trials_of_a_study_have_a_value_for_a_loss():
    rows = [
        {"number": k, "value": 3.0 - k / 10, "params_n_layer": 6, "params_d_model": 64 + 32 * k, "state": "COMPLETE"}
        for k in range(3)
    ]
    assert [row["loss"] for row in read_table(rows).rows] == [3.0, 2.9, 2.8]
    with pytest.raises(InputError, match="column 'loss' is missing"):
        read_table([{name: value for name, value in row.items() if name != "state"} for row in rows])


def test_every_number_of_a_table_in_bits_per_byte_says_so(tmp_path):
    rows = [{**row, "val_bpb": row["loss"] / 3, "loss": None} for row in plain_rows()]
    for row in rows:
        del row["loss"]
    result = fit_table(rows, draws=100)
    text = plain_text(fit_report.render(result))
    assert result.unit == "bits per byte" and "bits per byte" in text and " nats" not in text
    assert not [line for line in result.warnings if " nats" in line]


def test_unfinished_runs_and_empty_losses_are_counted(tmp_path):
    table = written(
        tmp_path,
        "State,depth,width,loss\nfinished,6,64,3\nRunning,6,96,4\ncrashed,,,\nkilled,6,64,9\nfinished,6,96,\n"
        "finished,6,128,nan\nfinished,,,\n",
    )
    assert table.left_out == {"running": 1, "crashed": 1, "killed": 1, "no loss": 2, "loss is NaN": 1}
    assert len(table.rows) == 5 and table.n_read == 7
    rows = [*plain_rows(), {"depth": 4, "width": 64, "loss": 2.0, "state": "running"}]
    rows = [{"state": "finished", **row} for row in rows]
    assert fit_table(rows, draws=100).provenance.left_out == {"running": 1}


def test_nothing_in_a_table_steers_the_terminal(tmp_path):
    table = written(tmp_path, "depth,width,loss,arm,\x1b[2Jnote\n6,64,3,\x1b]0;owned\x07,\x9b31m\n")
    assert table.columns[-1] == r"\x1b[2Jnote"
    assert table.rows[0]["arm"] == r"\x1b]0;owned\x07" and table.rows[0][table.columns[-1]] == r"\x9b31m"


def test_nested_columns_of_parquet_are_skipped_and_structs_are_read(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"config": {"n_layer": 6, "n_embd": 64}, "loss": 3.0, "history": [1.0, 2.0]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").rows == [{"depth": 6, "width": 64, "loss": 3.0}]


def test_fifty_thousand_rows_are_read_and_selected_in_seconds(tmp_path):
    seeds = 2_083
    shapes = [(depth, width) for depth in (4, 8, 16, 32) for width in (64, 96, 128, 192, 256, 384)]
    loss = np.random.default_rng(0).normal(3.0, 0.002, (24, seeds))
    lines = [f"{L},{d},{k},{v:.6f}" for (L, d), own in zip(shapes, loss, strict=True) for k, v in enumerate(own)]
    (tmp_path / "t.csv").write_text("\n".join(["depth,width,seed,loss", *lines]))
    begin = time.process_time()
    selection, bad = without_bad_runs(select_runs(read_table(tmp_path / "t.csv").rows))
    assert len(selection.runs) == 24 * seeds and not bad
    assert time.process_time() - begin < 5.0  # about a fifth of it


def test_more_arms_than_can_be_compared_are_refused_in_a_line():
    rows = [{**row, "arm": f"arm {k}"} for k in range(13) for row in ROWS[:1]]
    with pytest.raises(InputError, match="arm: 13 arms; at most 12 are compared"):
        compare_arms(rows)


def test_two_columns_under_one_name_and_an_arm_that_is_the_shape_are_refused():
    with pytest.raises(InputError, match=r"^columns: loss=loss and loss=seed; one column "):
        read_table(ROWS, columns=["loss=loss", "loss=seed"])
    assert read_table(ROWS, columns=["loss=loss", "loss=loss"]).rows
    with pytest.raises(InputError, match=r"^arm: 'depth'; is the depth of the nets; allowed: a column that names"):
        read_table(ROWS, arm="depth")
    with pytest.raises(InputError, match="did you mean 'loss'"):
        read_table(ROWS, {"loss": "los"})
    with pytest.raises(InputError, match="ours=theirs"):
        read_table(ROWS, ["loss"])
