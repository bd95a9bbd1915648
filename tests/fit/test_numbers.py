"""Numbers, blanks and words of a table: what is read, what is counted, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dwsweep import fit_table
from dwsweep.errors import InputError
from dwsweep.fit.data.table import read_table


def written(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text)
    return read_table(tmp_path / name)


def test_counts_are_read_as_people_write_them(tmp_path):
    table = written(
        tmp_path,
        'depth,width,params,tokens,flops,loss\n6,64,1.63M,2.1B,1.2×10^18,3.2\n6,"1,024","1,234,567",2_100_000_000,1e18,4\n',
    )
    first, second = table.rows
    assert (first["n_params_total"], first["tokens"], first["flops"]) == (1_630_000, 2_100_000_000, 1.2e18)
    assert (second["n_params_total"], second["tokens"], second["width"]) == (1_234_567, 2_100_000_000, 1024)


@pytest.mark.parametrize(
    ("text", "losses"),
    [
        ("depth;width;loss\n6;64;3,21\n6;96;3,105\n", [3.21, 3.105]),
        ("depth;width;loss\n6;64;3,210\n6;96;3,105\n", [3.21, 3.105]),  # three decimals each: the semicolon shows it
        ('depth,width,loss\n6,64,"3,21"\n6,96,"3,105"\n', [3.21, 3.105]),
        # a loss of thousands of nats is none, so its comma stands before decimals
        ("depth\twidth\tval_loss\n6\t64\t3,210\n6\t96\t3,105\n", [3.21, 3.105]),
        ('depth,width,loss\n6,64,"3,210"\n6,96,"3,105"\n', [3.21, 3.105]),
        ("depth;width;loss;lr\n6;64;3,89;0.001\n6;96;3,9;0.001\n", [3.89, 3.9]),
        ("depth;width;loss;tokens\n6;64;3,21;1.000.000\n6;96;3,105;2.000.000\n", [3.21, 3.105]),
        # with a stated error; it was no number
        ("depth;width;loss\n6;64;3,21 ± 0,02\n6;96;3,105 +/- 1e-3\n", [3.21, 3.105]),
        ('depth,width,loss,tokens\n6,64,3.21,"1,000,000"\n6,96,3.105 ± 0.01,"2,000,000"\n', [3.21, 3.105]),
    ],
)
def test_a_comma_stands_before_decimals_where_a_semicolon_or_the_column_shows_it(tmp_path, text, losses):
    table = written(tmp_path, text)
    assert [row["loss"] for row in table.rows] == losses
    assert [row.get("tokens") for row in table.rows] in ([None, None], [10**6, 2 * 10**6])


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("depth;width;loss;lr\n6;64;3,210;0.5\n", "'loss' has '3,210' beside semicolons, .* is it 3.210 or 3210"),
        # it was read as 4582 nats, and refused as a perplexity
        ("depth\twidth\tval_loss\tlr\n6\t64\t4,582\t0.5\n", "'val_loss' has '4,582', and other .* 4.582 or 4582"),
        # a width of 1.024 was read beside a loss of 3.897 and a rate of 0.001
        ("depth;width;val_loss;lr\n6;1.024;3,897;0.001\n6;1.536;3,89;0.001\n", "'width' has '1.024' .* 1.024 or 1024"),
        # 4,096,000 tokens
        ("depth;width;loss;tokens\n6;64;3,89;4.096K\n6;96;3,9;8.192K\n", "'tokens' has '4.096K', .* 4.096K or 4096K"),
        ('depth,width,loss,tokens\n6,64,"3,89",4.096K\n6,96,"3,9","8,1K"\n', "'tokens' has '4.096K'"),
        ("depth;width;loss\n6;64;3,21\n6;96;3.21\n", r"loss: '3,21' in row 1; must be a number"),  # both marks
    ],
)
def test_a_number_that_reads_both_ways_is_asked_about(tmp_path, text, asked):
    with pytest.raises(InputError, match=asked):
        written(tmp_path, text)


def test_a_unit_in_the_value_and_in_the_name_counts_once(tmp_path):
    """510M of ``tokens_M`` were 510,000,000,000,000 tokens."""
    table = written(tmp_path, "depth,width,loss,tokens_M,params (M)\n6,64,3.2,510M,1.2\n6,96,3.1,1.02B,2.4\n")
    assert [row["tokens"] for row in table.rows] == [510e6, 1.02e9]
    assert [row["n_params_total"] for row in table.rows] == [1.2e6, 2.4e6]


@pytest.mark.parametrize("word", ["Y", "on", "1", True])
def test_a_gate_is_named_by_every_word_for_yes(word):
    rows = [{"depth": 6, "width": w, "loss": 3.0 - w / 1000, "d_ff": 3 * w, "gated": word} for w in (64, 96, 128)]
    assert [row["n_params"] for row in read_table(rows).rows] == [6 * (4 + 9) * w * w for w in (64, 96, 128)]


def test_the_multiplier_of_llama_is_no_ratio_of_widths():
    """``ffn_dim_multiplier`` 1.3 is 1.3 · 8/3 times the width, of a gated MLP."""
    rows = [{"dim": w, "n_layers": 8, "loss": 3.0 - w / 1000, "ffn_dim_multiplier": 1.3} for w in (192, 384, 768)]
    found = read_table(rows)
    assert [row["n_params"] / (8 * row["width"] ** 2) for row in found.rows] == pytest.approx([4 + 3 * 1.3 * 8 / 3] * 3)
    assert any("ffn_dim_multiplier" in note for note in found.notes)


def test_one_letter_beside_a_word_for_the_width_is_asked_about():
    """D, a count of tokens, was the width of nets whose width stood in ``hidden``."""
    rows = [{"layers": 6, "hidden": w, "D": 20 * 72 * w * w, "loss": 3.0 - w / 1000} for w in (64, 96, 128)]
    with pytest.raises(InputError, match=r"width: D \(.*\) and hidden \(64\) .* columns={'width': 'hidden'} or"):
        read_table(rows)
    assert [row["width"] for row in read_table(rows, {"width": "hidden"}, drop=["D"]).rows] == [64, 96, 128]


def test_words_in_the_place_of_a_loss_are_no_loss_and_counted(tmp_path):
    words = ["FAIL", "FAIL", "OOM", "crashed", "error", "-", "—", "#N/A", "NaN", "", "Infinity", "diverged"]
    text = "depth,width,seed,loss\n6,64,0,3.5\n" + "".join(f"6,96,{k},{word}\n" for k, word in enumerate(words))
    table = written(tmp_path, text)
    assert table.left_out == {
        **{"FAIL": 2, "OOM": 1, "crashed": 1, "error": 1, "-": 1, "—": 1, "#N/A": 1},
        **{"loss is NaN": 1, "no loss": 1},
    }
    assert [row["loss"] for row in table.rows if row["loss"] is not None and row["loss"] == row["loss"]] == [
        *(3.5, math.inf, math.inf)  # a run that diverged is not one that failed
    ]


def test_a_status_says_more_than_a_sign_in_the_place_of_the_loss(tmp_path):
    table = written(tmp_path, "depth,width,loss,status\n6,64,3.5,done\n6,96,-,oom\n6,128,OOM,done\n6,128,FAIL,\n")
    assert table.left_out == {"oom": 1, "OOM": 1, "FAIL": 1}


def test_another_text_in_the_place_of_a_loss_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"loss: 'see notes' in row 2; must be a number"):
        written(tmp_path, "depth,width,loss\n6,64,FAIL\n6,96,see notes\n")


def test_signs_of_a_blank_are_blanks_in_every_other_column(tmp_path):
    signs = ["-", "—", "#N/A", "n/a", "", "#REF!", "null"]
    text = "depth,width,loss,tokens,status,note\n" + "".join(f"6,64,3,{one},done,{one}\n" for one in signs)
    assert {(row["tokens"], row["note"]) for row in written(tmp_path, text).rows} == {(None, None)}
    assert written(tmp_path, "depth,width,loss,note\n6,64,3,OOM\n").rows[0]["note"] == "OOM"  # no loss


def test_words_in_the_place_of_losses_are_counted_by_a_fit():
    shapes = [(d, w, s) for d in (2, 4, 8) for w in (64, 96, 128, 192) for s in (0, 1)]
    rows = [
        {"depth": d, "width": w, "seed": s, "loss": "OOM" if d == 8 and s else 3 - w / 1000 + d / 100 + s / 1000}
        for d, w, s in shapes
    ]
    found = fit_table(rows, draws=100)
    assert found.provenance.left_out == {"OOM": 4} and found.provenance.rows_used == 20
    with pytest.raises(InputError):
        fit_table([{**row, "loss": "FAIL"} for row in rows], draws=100)


def test_a_masked_value_of_an_array_is_a_blank():
    """It was 0: a net had "0 for a loss", and a rate of 0 was refused."""
    columns = {
        "depth": np.array([2, 2, 4, 4]),
        "width": np.array([64, 128, 64, 128]),
        "loss": np.ma.array([3.0, 2.9, 2.8, 2.7], mask=[True, False, False, False]),
        "learning_rate": np.ma.array([1e-3] * 4, mask=[False, True, False, False]),
    }
    table = read_table(columns)
    assert table.rows[0]["loss"] is None and table.rows[1]["learning_rate"] is None
    assert table.left_out == {"no loss": 1}
