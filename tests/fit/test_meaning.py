"""What a table means: each kind of table that people have gives the truth that it was drawn from, or one clear line."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import says, shows
from shown import summary

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit.analysis import fit_options
from dwsweep.fit.arms import compare_arms
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.shape import BLOCK, n_params_of, weights
from dwsweep.fit.data.table import read_table
from dwsweep.fit.lengths import at_equal_length
from dwsweep.records.fit import FitResult
from dwsweep.records.record import table_text
from dwsweep.report import fit_report
from dwsweep.text import format_count

pytestmark = pytest.mark.usefixtures("surfaces_again", "at_equal_size_alone")

DEPTHS, SIZES = (6, 10, 16, 24, 36), 5e6 * 1.9 ** np.arange(7)
DRAWS = 200


def best(n: float, at_30m: float = 17.8) -> float:
    """The best depth of the truth."""
    return at_30m * (n / 3e7) ** 0.25


def loss(n: float, depth: int, at_30m: float = 17.8) -> float:
    return float(1.8 + 1.9 * (n / 3e7) ** -0.14 + 0.06 * math.log(depth / best(n, at_30m)) ** 2)


def nets(depths: tuple[int, ...] = DEPTHS, sizes: Any = SIZES) -> list[tuple[int, int]]:
    return [(depth, 8 * round(math.sqrt(n / 12 / depth) / 8)) for depth in depths for n in sizes]


def drawn(seed: int = 0, sd: float = 0.003) -> list[Row]:
    """A clean grid under names of other projects."""
    rng = np.random.default_rng(seed)
    return [
        {"n_layer": depth, "d_model": width, "val_loss": loss(12 * depth * width**2, depth) + rng.normal(0, sd)}
        for depth, width in nets()
    ]


def fitted(rows: Any, **options: Any) -> FitResult:
    return dwsweep.fit_table(rows, draws=DRAWS, **options)


def holds(result: FitResult, at_30m: float = 17.8) -> None:
    """The intervals of the best depth hold the truth at nearly every size, and are no whole range."""
    assert result.surface and not result.surface.flat
    rows = result.surface.bounded
    missed = [
        row
        for row in rows
        if not (row.depth_low or 0.0) * 0.97 <= best(row.n_params, at_30m) <= (row.depth_high or math.inf) * 1.03
    ]
    assert len(rows) >= 7 and len(missed) <= 1, [(row.n_params, row.depth_low, row.depth_high) for row in missed]
    middle = min(rows, key=lambda row: abs(math.log(row.n_params / 3e7)))
    assert middle.depth and abs(math.log(middle.depth / best(middle.n_params, at_30m))) < 0.2


def account(result: FitResult) -> str:
    return " ".join(fit_report.account(result))


@cache
def clean() -> FitResult:
    return fitted(drawn())


def test_a_clean_grid_is_all_used_and_gives_the_truth() -> None:
    assert shows(account(clean()), "fit: a clean grid", numbers=True)
    assert shows(summary(clean()), "fit: text of a clean grid")
    holds(clean())


def test_lines_of_comments_among_the_rows_are_counted(tmp_path: Path) -> None:
    lines = ["n_layer,d_model,val_loss", *(",".join(map(str, row.values())) for row in drawn())]
    lines[4:4] = ["# resumed on another node"]
    lines[20:20] = ["# the scheduler died here,,"]
    file = tmp_path / "runs.csv"
    file.write_text("\n".join(lines))
    table = read_table(file)
    assert (table.n_read, len(table.rows), table.rows) == (37, 35, read_table(drawn()).rows)
    assert [(one.rows, one.why) for one in table.account] == [(2, "begin with # and count as comments")]


def test_the_apostrophe_that_our_writers_put_before_a_formula_is_taken_off(tmp_path: Path) -> None:
    texts = ["=x", "@home", "+plus", "-minus", "''=x", "it's", "'quoted'"]
    rows = [{"depth": 6, "width": 96 + 8 * k, "loss": 3.0, "note": text} for k, text in enumerate(texts)]
    file = tmp_path / "runs.csv"
    file.write_text(table_text(rows, ["depth", "width", "loss", "note"], str))
    assert "'=x" in file.read_text()
    assert [row["note"] for row in read_table(file).rows] == texts


# Time within a run


def checkpoints(step: str = "step", name: str | None = "run") -> list[Row]:
    """Four checkpoints of every net: the loss falls along the run."""
    rng = np.random.default_rng(1)
    rows = []
    for depth, width in nets():
        end = loss(12 * depth * width**2, depth) + rng.normal(0, 0.003)
        for at, above in ((2000, 0.77), (5000, 0.36), (10000, 0.13), (20000, 0.0)):
            row = {"n_layer": depth, "d_model": width, step: at, "val_loss": end + above}
            rows.append({name: f"r-{depth}-{width}", **row} if name else row)
    return rows


@pytest.mark.parametrize("step", ["step", "_step", "global_step", "iter", "iteration", "epoch", "trainer/global_step"])
@pytest.mark.parametrize("name", ["run", None])
def test_a_checkpoint_is_no_replicate(step: str, name: str | None) -> None:
    data = at_equal_length(read_table(checkpoints(step, name)), fit_options())
    assert len(data.rows) == 35 and {row[step] for row in data.rows} == {20000}
    assert sum(one.rows for one in data.account) == 105


def test_the_last_checkpoint_is_the_loss_and_gives_the_truth() -> None:
    result = fitted(checkpoints())
    holds(result)
    assert says(account(result), "fit: last checkpoint")
    assert (result.noise.sigma or 0.0) < 0.01


def test_a_run_that_stopped_before_the_others_is_left_out() -> None:
    rows = [row for row in checkpoints() if not (row["run"] == "r-6-264" and row["step"] > 5000)]
    table = at_equal_length(read_table(rows), fit_options())
    assert [f"{one.rows} {one.why}" for one in table.account if "end at step" in one.why] == [
        "2 are of 1 runs that end at step 5,000, before 20,000"
    ]


def test_a_logged_learning_rate_is_no_setting_and_swept_ones_stay() -> None:
    """A logged rate falls along the run; two rates of a shape are two runs."""
    rates = (1e-3, 2e-3)
    logged = [{**row, "lr": 1e-3 * (1 - row["step"] / 21000)} for row in checkpoints()]
    swept = [{**row, "lr": rate} for row in checkpoints(name=None) for rate in rates]
    for rows, found in ((logged, [None] * 35), (swept, [*rates] * 35)):
        data = at_equal_length(read_table(rows), fit_options())
        assert [row["learning_rate"] for row in data.rows] == found


# Shapes


def blocks(part: str) -> list[Row]:
    rng = np.random.default_rng(2)
    rows = []
    for depth, width in nets():
        for ratio in (1, 2, 4):
            n = depth * (4 * width**2 + 2 * width * ratio * width)
            row = {"n_layer": depth, "d_model": width, "val_loss": loss(n, depth) + rng.normal(0, 0.003)}
            rows.append({**row, part: ratio * width if part not in RATIOS else ratio})
    return rows


RATIOS = ("mlp_ratio", "expansion", "ffn_mult")
WIDTHS = ("d_ff", "intermediate_size", "ffn_dim", "ffn_hidden_size", "config.model.ffn_hidden", "n_inner", "inner")


@pytest.mark.parametrize("part", [*RATIOS, *WIDTHS])
def test_an_inner_width_is_part_of_the_shape_by_any_usual_name(part: str) -> None:
    table = read_table(blocks(part))
    sizes = {(row["depth"], row["width"], row[BLOCK]): row["n_params"] for row in table.rows}
    assert len(sizes) == 105
    assert all(n == weights(row) for row, n in zip(table.rows, sizes.values(), strict=True))
    assert sorted({round(n / (d * w * w)) for (d, w, _), n in sizes.items()}) == [6, 8, 12]


def test_nets_of_one_depth_and_width_with_other_mlps_are_not_averaged() -> None:
    result = fitted(blocks("d_ff"))
    holds(result)
    assert len([cell for cell in result.cells if cell.n == 1]) == 105 and "d_ff 264" in {
        cell.block for cell in result.cells
    }
    assert not [line for line in result.warnings if "n_params" in line]


def test_key_value_heads_that_follow_depth_are_counted() -> None:
    rows, sizes = [], []
    for depth, width in nets():
        heads, groups = 4, 4 if depth < 20 else 1
        sizes.append(depth * (2 * width**2 + 2 * width**2 * groups / heads + 8 * width**2))
        rows.append({"n_layer": depth, "d_model": width, "n_head": heads, "n_kv_head": groups, "val_loss": 3.0})
    table = read_table(rows)
    assert [row["n_params"] for row in table.rows] == sizes
    assert "N is counted from depth, width, n_head, n_kv_head" in table.notes


def test_weights_are_those_of_the_trainer() -> None:
    shape = dwsweep.shapes.Block(
        dwsweep.shapes.HeadRule(count=8, size=16), vocab_size=1000, seq_len=64, kv_heads=2, mlp="gated", mlp_ratio=3.0
    ).shape(5, 256)
    row = {"depth": 5, "width": 256, "heads": 8, "head_size": 16, "kv_heads": 2, "d_ff": 768, "activation": "swiglu"}
    assert weights(row) == shape.n_params


@pytest.mark.parametrize(
    ("name", "count", "said", "weights"),
    [
        ("n_params", lambda d, w: 12 * d * w * w, "n_params agrees with 12·L·d²", 12),
        ("n_params", lambda d, w: 12 * d * w * w + 13 * d * w, "n_params agrees with 12·L·d²", 12),
        ("n_params", lambda d, w: 12 * d * w * w + 2 * 50304 * w, "2 × 50304 × width; N is 12·L·d², without them", 12),
        ("n_params", lambda d, w: 12 * d * w * w + 32000 * w, "32000 × width; N is 12·L·d², without them", 12),
        ("n_params", lambda d, w: 14 * d * w * w, "n_params is 1.17 times 12·L·d² in every row, and is used", 14),
        ("params", lambda d, w: 15 * d * w * w, "is 1.25 times 12·L·d² in every row, and is used", 15),
        ("n_params", lambda d, w: 7 * d * w * w + 2 * 50304 * w, "2 × 50304 × width; N is the rest, 7·L·d²", 7),
    ],
)
def test_a_count_is_held_against_the_blocks(name: str, count: Any, said: str, weights: int) -> None:
    """N is what the sentence says: "and is used" stood beside N without it."""
    table = read_table([{"depth": d, "width": w, "loss": 3.0, name: count(d, w)} for d, w in nets()])
    assert said in " ".join(table.notes)
    assert [n_params_of(row) for row in table.rows] == pytest.approx([weights * d * w * w for d, w in nets()])


def test_a_total_in_millions_is_not_n() -> None:
    """The best depth was answered at N = 9.8."""
    rows = [{"depth": d, "width": w, "loss": 3.0, "params": 12e-6 * d * w * w} for d, w in nets()]
    table = read_table(rows)
    assert [row["n_params"] for row in table.rows] == [12 * d * w * w for d, w in nets()]
    assert "params looks like millions; N is counted from the columns" in table.notes


def test_flops_and_tokens_in_another_unit_are_named() -> None:
    """The answer began with "At 0.1 FLOPs", and guide asked for 1e17 had 20 tokens for each parameter."""
    rows = [{"depth": d, "width": w, "loss": 3.0, "tokens": 2e9, "flops": 72.0 * d * w * w * 2e9} for d, w in nets()]
    assert not [note for note in read_table(rows).notes if "TOKENS" in note]
    with pytest.raises(InputError, match=r"flops: 0.06.* at 6×264, where 6·N·tokens are .* must be a plain count"):
        read_table([{**row, "flops": row["flops"] / 1e18} for row in rows])
    assert read_table([{**row, "flops": row["flops"] / 1e18} for row in rows], drop=["flops"]).rows
    notes = read_table([{**row, "tokens": 2.0 + row["depth"] % 4, "flops": None} for row in rows]).notes
    assert [note for note in notes if note.startswith("TOKENS ARE 2 TO 4, fewer than any training has")]


def test_a_gate_is_recognised_from_the_count() -> None:
    rows = [
        {
            "depth": d,
            "width": w,
            "d_ff": r * w,
            "params": d * (4 * w * w + 3 * w * r * w) + (48 + 2 * d) * w,
            "loss": 3.0,
        }
        for d, w in nets()
        for r in (1, 2)
    ]
    table = read_table(rows)
    assert says(table.notes, "fit: a gate recognised")
    assert table.rows[0]["n_params"] == 6 * (4 * 264**2 + 3 * 264**2)


def test_a_total_of_all_experts_shows_their_gate_and_the_experts_name_their_inner_width() -> None:
    """The inner width of an expert was passed over under its usual name, and 4·d stood for it."""
    experts = {"num_local_experts": 16, "num_experts_per_tok": 2}
    rows = [
        {"depth": d, "width": w, **experts, "moe_intermediate_size": 2 * w, "intermediate_size": 8 * w, "loss": 3.0}
        for d, w in nets()
    ]
    plain, unsaid = read_table(rows), read_table(rows, drop=["num_experts_per_tok"])
    assert "16 experts, and no column says how many a token passes: N counts one of them" in unsaid.doubts[0]
    assert plain.rows[0]["n_params"] == 6 * (4 + 2 * 2 * 2) * 264**2 and not plain.doubts
    gated = [{**row, "total_params": (4 + 16 * 3 * 2) * row["depth"] * row["width"] ** 2} for row in rows]
    assert read_table(gated).rows[0]["n_params"] == 6 * (4 + 2 * 3 * 2) * 264**2
    odd = [{**row, "total_params": 2 * row["total_params"]} for row in gated]
    assert "n_params: total_params is 2.94 times the weights of the blocks, all experts" in read_table(odd).doubts[0]


def test_a_count_that_nothing_explains_is_asked_about() -> None:
    rows = [{"depth": d, "width": w, "loss": 3.0, "n_params": 1e6 * d**0.3 * w} for d, w in nets()]
    with pytest.raises(
        InputError, match=r"n_params: .* allowed: drop=\['n_params'\].*columns=\{'n_params': 'n_params'\}"
    ):
        read_table(rows)
    assert read_table(rows, drop=["n_params"]).rows[0].get("n_params") is None
    assert read_table(rows, {"n_params": "n_params"}).rows[0]["n_params"] == rows[0]["n_params"]


def test_depth_and_width_exchanged_are_asked_about() -> None:
    rows = [{"depth": row["d_model"], "width": row["n_layer"], "loss": row["val_loss"]} for row in drawn()]
    with pytest.raises(InputError, match=r"depth 104 to 1808, width 6 to 36; they look exchanged") as caught:
        fitted(rows)
    assert says(caught.value.option_lines[0], "fit: exchanged columns")
    holds(fitted(rows, columns={"depth": "width", "width": "depth"}))


# Settings


def recipes() -> list[Row]:
    """An unknown column that moves the loss by 0.2, and a flag that goes with it."""
    rng = np.random.default_rng(4)
    rows = []
    for depth, width in nets():
        for mixer in ("softmax", "linear"):
            for seed in (0, 1):
                value = loss(12 * depth * width**2, depth) + 0.2 * (mixer == "linear") + rng.normal(0, 0.003)
                flag = int(mixer == "linear" and seed == 1)
                row = {"layers": depth, "width": width, "mixer": mixer, "qk_norm": flag, "seed": seed}
                rows.append(
                    {**row, "val_loss": value, "wall_time": 100 + rng.random(), "peak_gb": round(width / 100, 1)}
                )
    return rows


def test_an_unknown_setting_is_refused_with_what_to_copy() -> None:
    with pytest.raises(InputError) as caught:
        fitted(recipes())
    (line,) = caught.value.option_lines
    assert "mixer (linear, softmax at" in line and "qk_norm (0, 1 at" in line and "wall_time" not in line
    assert "--where \"mixer == 'softmax'\"" in line and "--arm mixer --compare" in line and "--drop mixer" in line
    assert len(read_table(recipes(), where="mixer == 'softmax'").rows) == 70


def test_arms_by_a_column_are_compared() -> None:
    rows = [row for row in recipes() if row["qk_norm"] == 0 and row["layers"] in (6, 16)]
    result = compare_arms(rows, arm="mixer", draws=DRAWS)
    (found,) = result.comparisons
    assert found.base == "softmax" and found.arm == "linear"
    assert all(0.18 < row.change < 0.22 for row in found.of("loss"))
    assert says(account(result), "fit: rows of other arms")


@pytest.mark.parametrize(
    ("name", "value", "role"),
    [
        ("mixer", lambda k, s: ("a", "b")[k % 2], "setting"),
        ("use_bias", lambda k, s: bool(k % 2), "setting"),
        ("wd_factor", lambda k, s: (0.1, 0.2, 0.4)[k % 3], "setting"),
        ("drop_path", lambda k, s: (0.0, 0.1)[k % 2], "setting"),
        ("init_std", lambda k, s: 0.02 + k * 1e-5, "label"),
        ("hostname", lambda k, s: ("n1", "n2")[k % 2], "label"),
        ("throughput", lambda k, s: 1000.0 + k * 1.37, "cost"),
        ("gpu_hours", lambda k, s: round(1.0 + (k % 12) * 0.1, 1), "cost"),
        ("memory", lambda k, s: 30.5 + k, "cost"),
        ("best_so_far", lambda k, s: 3.0 + k * 1e-3, "run"),
        ("run_name", lambda k, s: f"run {k}", "run"),
        ("end_time", lambda k, s: 1_764_143_726 + k, "run"),
        ("run_num", lambda k, s: s + 1, "seed"),
        ("global_step", lambda k, s: 100, "length"),
        ("n_layer", lambda k, s: nets()[k // 4][0], "shape"),
    ],
)
def test_a_column_has_one_role_by_its_name_and_by_how_its_values_repeat(name: str, value: Any, role: str) -> None:
    rows = [
        {"depth": d, "width": w, "seed": s, "loss": 3.0 + k * 1e-5, name: value(k, s)}
        for k, (d, w, s) in enumerate((d, w, s) for d, w in nets() for s in range(4))
    ]
    table = read_table(rows)
    assert table.roles[name] == role
    assert table.settings == ((name,) if role == "setting" else ())


def test_a_run_listed_under_several_labels_counts_once() -> None:
    rng = np.random.default_rng(5)
    rows = []
    for depth, width in nets(sizes=SIZES[:4]):
        for seed in range(2):
            row = {"depth": depth, "width": width, "seed": seed, "loss": round(rng.uniform(3, 4), 5)}
            rows += [{**row, "scaled": how} for how in (("depth", "width") if depth == 16 else ("depth",))]
            rows += [{**row, "loss": row["loss"] + 0.01, "seed": seed + 2, "scaled": "width"}]
    table = read_table(rows)
    (left_out,) = table.account
    assert left_out.rows == 8 and says(left_out.why, "fit: list a run again")


# Losses


def test_a_held_out_loss_wins_over_loss_and_is_named() -> None:
    rows = [
        {"n_layer": row["n_layer"], "n_embd": row["d_model"], "loss": row["val_loss"] - 0.04 * row["n_layer"] ** 0.5}
        | {"eval_loss": row["val_loss"]}
        for row in drawn()
    ]
    table = read_table(rows)
    assert [row["loss"] for row in table.rows] == [row["val_loss"] for row in drawn()]
    assert "loss = eval_loss" in table.taken and says(table.notes, "fit: held out and not loss")
    assert read_table(rows, {"loss": "loss"}).rows[0]["loss"] == rows[0]["loss"]


def test_a_training_loss_alone_is_said_in_the_first_line() -> None:
    rows = [{**row, "train_loss": row["val_loss"]} for row in drawn()]
    for row in rows:
        del row["val_loss"]
    first, *_ = fit_report.account(fitted(rows))
    assert says(first, "fit: a training loss")


def test_a_run_that_autoresearch_discards_has_a_loss_too() -> None:
    rows = [
        {"n_layer": row["n_layer"], "d_model": row["d_model"], "val_bpb": row["val_loss"] / 3.0}
        | {"status": ("keep", "discard")[k % 2]}
        for k, row in enumerate(drawn())
    ]
    table = read_table(rows)
    assert (len(table.rows), table.unit, table.left_out) == (35, "bits per byte", {})


@pytest.mark.parametrize(
    ("names", "factors"),
    [
        (("total_tokens_M", "num_params_M"), (1e6, 1e6)),
        (("summary.tokens_B", "params (k)"), (1e9, 1e3)),
        (("tokens_in_millions", "config.param_count_b"), (1e6, 1e9)),
    ],
)
def test_a_unit_in_the_name_of_a_count_is_read_and_said(names: tuple[str, str], factors: tuple[float, float]) -> None:
    rows = drawn()
    for row in rows:
        n = 12.0 * row["n_layer"] * row["d_model"] ** 2 + 50304 * row["d_model"]
        row |= {names[0]: 5e8 / factors[0], names[1]: n / factors[1]}
    table = read_table(rows)
    assert {row["tokens"] for row in table.rows} == {5e8}
    assert table.rows[0]["n_params_total"] == pytest.approx(rows[0][names[1]] * factors[1])
    words = {1e3: "thousands", 1e6: "millions", 1e9: "billions"}
    for name, factor in zip(names, factors, strict=True):
        assert f"{name} is in {words[factor]}" in table.notes
    assert any(f"{names[1]} holds embeddings, 50304 × width" in line for line in table.notes)


def test_a_unit_in_a_name_yields_to_a_count_without_one_and_to_a_count_too_large_for_it() -> None:
    table = read_table([{**row, "total_tokens_M": 5e11} for row in drawn()])
    assert table.rows[0]["tokens"] == 5e11 and says(table.notes, "fit: a unit too large")
    assert read_table([{**row, "tokens": 5e8, "total_tokens_M": 501.0} for row in drawn()]).rows[0]["tokens"] == 5e8


def test_a_loss_that_no_law_reaches_is_named_and_left_out() -> None:
    rows = drawn()[:12]
    rows[5]["val_loss"] = 1000
    assert shows(account(fitted(rows)), "fit: an impossible loss", numbers=True)


def test_a_quantity_that_was_asked_for_or_logged_last_is_not_the_one_spent_or_chosen() -> None:
    table = read_table([{**row, "train_flops": 1e18, "lr": 3e-5, "max_lr": 1e-3} for row in drawn()])
    assert "flops" not in table.columns and {row["learning_rate"] for row in table.rows} == {1e-3}


# Designs


@pytest.mark.parametrize(
    ("width", "how"),
    [
        (lambda d: 64 * d, r"width = 64 × depth"),
        (lambda d: 512, "width = 512 at every depth"),
        pytest.param(
            lambda d: {4: 256, 6: 448, 8: 512, 10: 704, 12: 1024}[d],
            "one width at each depth, 4×256, 6×448",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_one_width_per_depth_says_nothing_of_shape(width: Any, how: str) -> None:
    rows = [
        {"n_layer": d, "d_model": width(d), "val_loss": 3.0 - 0.05 * d - 0.1 * k, "flops": flops}
        for d in (4, 6, 8, 10, 12)
        for k, flops in enumerate((1e16, 3e16, 1e17))
    ]
    for table in (rows, [{k: v for k, v in row.items() if k != "flops"} for row in rows[::3]]):
        result = fitted(table)
        assert f"depth and width are one variable here ({how}" in fit_report.account(result)[0]
        assert (result.surface is None or result.surface.flat) and not fit_report.answer(result)


@pytest.mark.parametrize("apart", [1.0, 1.08])
def test_one_size_has_a_best_depth_without_a_flag(apart: float) -> None:
    rng = np.random.default_rng(6)
    rows = []
    for k, depth in enumerate((4, 8, 16, 24, 40)):
        width = 8 * round(math.sqrt(3e7 * apart ** (k % 2) / 12 / depth) / 8)
        for seed in range(3):
            value = loss(12 * depth * width**2, depth) + rng.normal(0, 0.003)
            rows.append({"n_layer": depth, "d_model": width, "seed": seed, "val_loss": value})
    result = fitted(rows)
    (found,) = result.surface.optima
    assert found.depth_low < best(found.n_params) < found.depth_high < 1.6 * found.depth_low
    (drawn,) = result.curves.fixed_n
    assert drawn.depth == (4, 8, 16, 24, 40) and drawn.surface.optimum.depth == pytest.approx(found.depth)
    first, _, effect, *_ = fit_report.answer(result)
    assert first.startswith("Best depth: 1") and first.endswith(f"at {format_count(found.n_params)}.")
    assert "4 layers lose" in effect


def test_a_best_depth_below_the_depths_tried_is_said_so() -> None:
    rng = np.random.default_rng(7)
    rows = [
        {"depth": d, "width": w, "seed": s, "loss": loss(12 * d * w * w, d, 5.0) + rng.normal(0, 0.003)}
        for d, w in nets((12, 16, 22, 30))
        for s in range(2)
    ]
    first, *_ = fit_report.answer(fitted(rows))
    assert says(first, "fit: best depth below the depths")


# Comparisons


def test_arms_of_different_data_are_no_comparison_of_recipes() -> None:
    one = [{**row, "tokens": 2e9, "dataset": "web", "vocab_size": 50304} for row in drawn()]
    two = [
        {**row, "val_loss": row["val_loss"] - 1.3, "tokens": 94e9, "dataset": "books", "vocab_size": 50304}
        for row in drawn(8)
    ]
    one, two = ([row for row in rows if row["n_layer"] in (6, 16)] for rows in (one, two))
    (found,) = compare_arms(one, [two], draws=DRAWS).comparisons
    first, *rest = found.answer
    assert first.startswith("NOT AT EQUAL DATA: ") and "dataset web and books" in first and "47 times as many" in first
    assert all(says(line, "fit: different data no recipe") for line in rest if line.startswith("losses"))
    (alike,) = compare_arms(one, [[{**row, "val_loss": row["val_loss"] + 0.1} for row in one]], draws=DRAWS).comparisons
    assert not any("DATA" in line for line in alike.answer)


# What changes nothing


def numbers_of(result: FitResult) -> list[tuple[Any, ...]]:
    assert result.surface
    return [(row.n_params, row.depth, row.depth_low, row.depth_high) for row in result.surface.optima]


def test_another_order_other_names_and_rows_twice_change_nothing() -> None:
    own = numbers_of(clean())
    rows = drawn()
    shuffled = [rows[k] for k in np.random.default_rng(9).permutation(len(rows))]
    named = [
        {"Num-Layers": r["n_layer"], "config.hidden_size": r["d_model"], "eval/loss": r["val_loss"]} for r in shuffled
    ]
    assert numbers_of(fitted(named)) == own
    twice = fitted([*rows, *rows])
    assert numbers_of(twice) == own and shows(account(twice), "fit: rows twice", numbers=True)
    extra = [{**row, "elapsed": 10.0 + 0.37 * k, "host": f"n{k % 3}"} for k, row in enumerate(rows)]
    assert numbers_of(fitted(extra)) == own


def test_an_account_adds_up(tmp_path: Path) -> None:
    few = [row for row in drawn() if row["n_layer"] < 16]
    rows: list[Row] = [{**row, "status": "done", "seed": 0, "activation": "gelu"} for row in few]
    rows += [{**rows[0], "seed": 1, "val_loss": None}, {**rows[1], "seed": 1, "status": "oom", "val_loss": None}]
    rows += [{**rows[2]}, {**rows[3], "seed": 2, "activation": "relu"}, {**rows[4], "seed": 3}]
    with open(tmp_path / "t.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    result = fitted(tmp_path / "t.csv", where="n_layer > 6")
    found = result.provenance.account
    assert found and found.read == len(rows) == found.used + sum(one.rows for one in found.left_out)
    assert found.left_out[0].option == "--where"
    everything = fitted(tmp_path / "t.csv").provenance.account
    assert everything and {one.why for one in everything.left_out} == {
        "have no loss",
        "are oom",
        "repeat another row exactly",
        "have activation = relu and not gelu",
    }
    assert everything.read == everything.used + sum(one.rows for one in everything.left_out)


@pytest.mark.parametrize("name", ["mixer", "steps"])
def test_a_column_with_a_value_for_each_of_eight_depths_is_named_before_the_answer(name: str) -> None:
    """Beyond six depths nothing named it, and a length under its own name had a warning below the tables alone: twice
    the depth meant twice the tokens, and the deepest net was best at every size."""
    rows = [
        {
            "n_layer": depth,
            "d_model": width,
            "val_loss": loss(12 * depth * width**2, depth) - 0.09 * math.log(depth / 16),
            name: f"m{depth}" if name == "mixer" else 125_000_000 * depth // 2**19,
        }
        for depth, width in nets((4, 6, 8, 12, 16, 20, 28, 36))
    ]
    first = fitted(rows).provenance.account.notes[0]  # type: ignore[union-attr]
    said, value = {"mixer": ("FOLLOWS DEPTH", "m4"), "steps": ("FOLLOW DEPTH", "953")}[name]
    assert first.startswith(f"{name.upper()} {said} ({value} at L 4; ") and "; 2 more)" in first
    other = [{**row, name: 2_000_000_000 + 1000 * row["n_layer"]} for row in rows]  # an incomplete last batch
    if name != "mixer":
        assert "FOLLOW DEPTH" not in account(fitted(other))


def test_a_loss_of_training_beside_a_held_out_one_of_an_unusual_name_is_said_first() -> None:
    """The training loss, which falls with depth, was fitted without a word."""
    name = "eval/wikitext/loss"
    rows = [
        {"n_layer": row["n_layer"], "d_model": row["d_model"], "loss": row["val_loss"] - 0.01 * row["n_layer"]}
        for row in drawn()
    ]
    both = [{**row, name: own["val_loss"]} for row, own in zip(rows, drawn(), strict=True)]
    said = f"THE LOSS IS THE COLUMN loss, which may be of training, and not {name}: "
    assert account(fitted(both)).startswith(f"35 rows read, all used; {said}")
    assert fitted(both, columns={"loss": name}).cells == clean().cells
    for table, chosen in ((rows, None), (both, {"loss": "loss"})):
        assert "THE LOSS" not in account(fitted(table, columns=chosen))


@pytest.mark.parametrize("name", ["_step", "epoch"])
def test_runs_of_deep_nets_that_ended_early_are_named_before_the_answer(name: str) -> None:
    ended = [{**row, name: 70 if row["n_layer"] > 16 else 100} for row in drawn()]
    assert f"{name.upper()} FOLLOWS DEPTH (100 at L 6, 10, 16; 70 at L 24, 36)" in account(fitted(ended))
    assert "FOLLOWS" not in account(fitted([{**row, name: 100 + row["n_layer"] % 2} for row in drawn()]))


@pytest.mark.parametrize(("name", "values"), [("dropout", (0.0, 0.1)), ("mixer", ("own", "usual"))])
def test_a_setting_that_follows_depth_is_named_before_the_answer(name: str, values: tuple[Any, Any]) -> None:
    """A dropout of deep nets alone cost 0.1 nats and halved the best depth, without a word."""
    rows = [{**row, name: values[row["n_layer"] > 12]} for row in drawn()]
    rows = [{**row, "val_loss": row["val_loss"] + 0.1 * (row["n_layer"] > 12)} for row in rows]
    assert f"{name.upper()} FOLLOWS DEPTH ({values[0]} at L 6, 10; {values[1]} at L 16, 24, 36)" in account(
        fitted(rows)
    )


def test_a_rate_and_heads_that_follow_depth_by_a_rule_are_no_confound() -> None:
    by_rule = [{**row, "lr": 6e-3 / row["n_layer"], "n_head": row["n_layer"] // 2} for row in drawn()]
    said = account(fitted(by_rule))
    assert "FOLLOWS DEPTH" not in said and "heads follow depth here (3 at L 6; 5 at L 10; " in said
    assert "heads" not in account(fitted([{**row, "n_head": row["d_model"] // 8} for row in drawn()]))


def test_two_columns_of_the_depth_or_the_width_are_asked_about() -> None:
    """depth won over n_layer, and n_layer was told to follow depth."""
    blocks = [{**row, "depth": 2 * row["n_layer"]} for row in drawn()]
    with pytest.raises(InputError, match=r"depth: depth \(12\) and n_layer \(6\) are both usual names of it"):
        read_table(blocks)
    same = [{**row, "depth": row["n_layer"], "l": 512} for row in drawn()]
    for rows, columns in ((blocks, {"depth": "n_layer"}), (same, None)):
        assert [row["depth"] for row in read_table(rows, columns).rows] == [row["n_layer"] for row in drawn()]


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("end_time", lambda k: 1_764_143_726_000 + 1000 * (k // 2 % 3)),  # MLflow, milliseconds
        ("start_time", lambda k: f"2026-11-26 07:55:{k // 2 % 3:02d}"),
        ("endTime", lambda k: 1_764_143_726.25 + k // 2 % 3),
        ("_runtime", lambda k: 1 + k // 2 % 3),
    ],
    ids=["milliseconds", "text", "seconds", "duration"],
)
def test_moments_that_runs_share_are_no_setting(name: str, moment: Callable[[int], Any]) -> None:
    """Two runs of a shape that ended in one second, and a third a second later, were two recipes."""
    rows = [{**row, "seed": seed} for row in drawn() for seed in range(3)]
    table = read_table([{**row, name: moment(k)} for k, row in enumerate(rows)])
    assert "setting" not in table.roles.values()


@pytest.mark.parametrize("name", ["run", "experiment.name"])
def test_a_name_for_each_depth_names_rows(name: str) -> None:
    """It had "RUN FOLLOWS DEPTH"; an unknown column of the same values still has it."""
    of_depth, other = ([{**row, column: f"net of {row['n_layer']}"} for row in drawn()] for column in (name, "mixer"))
    assert "FOLLOWS DEPTH" not in account(fitted(of_depth))
    assert "MIXER FOLLOWS DEPTH" in account(fitted(other))


def test_a_name_that_differs_within_a_shape_is_still_asked_about() -> None:
    rows = [{**row, "name": name} for row in drawn() for name in ("ours", "theirs")]
    with pytest.raises(InputError, match="name \\(ours, theirs at"):
        fitted(rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"at": {"optimizer": "muon"}}, "at: optimizer=muon; every run has adamw; allowed: optimizer=adamw"),
        ({"at": {"tokens": "3B"}}, "at: tokens=3e+09; every run has 2e+09; allowed: tokens=2e+09"),
        (
            {"at": {"n_head": 8}},
            "n_head grows with the width, so that all nets are compared at one head size",
        ),
        (
            {"at": {"batch_size": 64}},
            "for the table has 7 runs of the 9 needed, 1 depth of the 2 needed",
        ),
        (
            {"adjust": "batch_size"},
            "for the table has 7 runs of the 9 needed, 1 depth of the 2 needed",
        ),
    ],
)
def test_a_held_value_that_no_adjustment_reaches_is_refused(options: dict[str, Any], said: str) -> None:
    """Each was ignored, and the answer was for another value; 8 heads were held as a head size of 8."""
    rows = [{**row, "n_head": 4, "optimizer": "adamw", "tokens": 2 * 10**9} for row in drawn()]
    if "batch_size" in str(options):
        rows = [{**row, "batch_size": 32 + row["d_model"] % 64} for row in rows if row["n_layer"] == 6]
    with pytest.raises(InputError, match=re.escape(said)):
        fitted(rows, **options)


def test_a_held_value_that_every_run_has_changes_nothing() -> None:
    rows = [{**row, "optimizer": "adamw", "tokens": 2_000_640_000} for row in drawn()]
    held = fitted(rows, at={"optimizer": "adamw", "tokens": 2e9})
    assert held.surface == fitted(rows).surface


INSIDE, CORNER = 7, 24  # places of a loss among the shapes


@pytest.mark.parametrize(
    ("place", "off"),
    [
        (CORNER, -0.3),
        *(pytest.param(*given, marks=pytest.mark.slow) for given in ((INSIDE, 0.3), (INSIDE, -0.3), (CORNER, 0.3))),
    ],
)
def test_one_impossible_loss_of_few_sizes_per_depth_is_named_and_hides_no_effect_of_depth(
    place: int, off: float
) -> None:
    """Five sizes have no curve that tells: "no effect of depth is shown" stood where one loss of 25 was wrong."""
    rng, rows = np.random.default_rng(0), []
    for depth in (6, 10, 14, 22, 32):
        for size in np.geomspace(3e6, 9e7, 5):
            width = round(math.sqrt(size / 12 / depth) / 16) * 16
            value = loss(12 * depth * width**2, depth) + rng.normal(0, 0.003)
            rows.append({"depth": depth, "width": width, "loss": value})
    assert not fitted(rows).left_out
    rows[place]["loss"] += off
    result = fitted(rows)
    assert [(run.depth, run.width) for run in result.left_out] == [(rows[place]["depth"], rows[place]["width"])]
    assert result.surface and not result.surface.flat and any("IMPOSSIBLE" in line for line in result.warnings)


def test_a_loss_of_zero_is_of_a_run_that_was_not_measured() -> None:
    rows = drawn()
    for k in (3, 9, 20):
        rows[k]["val_loss"] = 0.0
    assert read_table(rows).left_out == {"loss is 0": 3}


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (
            ("dim", "hidden_dim"),
            "^width: hidden_dim .* and dim .* allowed: columns={'width': 'dim', 'd_ff': 'hidden_dim'",
        ),
        (("d_model", "hidden_size"), "^width: d_model .* allowed: columns={'width': 'd_model', 'd_ff': 'hidden_size'"),
    ],
)
def test_two_usual_names_of_a_width_with_other_values_are_asked_about(names: tuple[str, str], line: str) -> None:
    """``hidden_dim`` beside ``dim`` is the inner width of the MLP: as the width it made N 16 times larger."""
    own, inner = names
    rows = [
        {"n_layer": r["n_layer"], own: r["d_model"], inner: 4 * r["d_model"], "loss": r["val_loss"]} for r in drawn()
    ]
    with pytest.raises(InputError, match=line):
        read_table(rows)
    sizes = [12 * row["n_layer"] * row["d_model"] ** 2 for row in drawn()]
    for table, columns in ((rows, {"width": own, "d_ff": inner}), ([{**row, inner: row[own]} for row in rows], None)):
        assert [n_params_of(row) for row in read_table(table, columns).rows] == sizes


def test_a_copy_of_depth_under_another_name_is_no_setting() -> None:
    rows = [{**row, "config.n_layer": row["n_layer"]} for row in drawn()]
    assert "FOLLOWS" not in account(fitted(rows))


def test_rows_of_one_run_with_several_losses_are_named() -> None:
    rows = [{**row, "run_id": f"r{k}"} for k, row in enumerate(drawn()[:14])]
    again = [{**row, "val_loss": row["val_loss"] + 0.01} for row in rows]
    assert any(line.startswith("run_id: r0, r1, r2 and ") for line in fitted([*rows, *again]).warnings)
    assert not any(line.startswith("run_id") for line in fitted([*rows, *rows]).warnings)


def test_an_accuracy_in_percent_is_no_perplexity() -> None:
    rows = [{**row, "val_loss": 100 * math.exp(-row["val_loss"] / 3)} for row in drawn()]
    with pytest.raises(InputError, match=r"larger at larger N; it looks like accuracy in percent"):
        fitted(rows)


def test_other_losses_that_are_held_out_are_named_beside_the_one_taken() -> None:
    rows = [{**row, "test_loss": row["val_loss"] + 0.1} for row in drawn()]
    assert "loss = val_loss; test_loss is held out too" in read_table(rows).notes
    best = [
        {"n_layer": r["n_layer"], "d_model": r["d_model"], "loss": 2.0, "best_val_loss": r["val_loss"]} for r in rows
    ]
    assert "loss = best_val_loss, which is held out, and not the column loss" in read_table(best).notes


@pytest.mark.parametrize("mark", [True, "yes"])
def test_a_switch_that_names_a_run_diverged_leaves_it_out(mark: Any) -> None:
    rows = [{**row, "diverged": mark if k == 3 else type(mark)()} for k, row in enumerate(drawn()[:14])]
    assert "1 is of runs that diverged" in account(fitted(rows))


def test_nominal_sizes_are_no_count_of_parameters() -> None:
    """Sizes that a plan asked for stood as N, without a word in the first lines: the scatter of shapes rose tenfold
    and the answer was lost."""
    shapes = [(depth, 32 * round(math.sqrt(n / 12 / depth) / 32)) for depth in DEPTHS for n in SIZES]
    rows = [
        {"n_layer": d, "d_model": w, "val_loss": 3.0 + 0.01 * d, "n_params": n}
        for (d, w), n in zip(shapes, [*SIZES] * len(DEPTHS), strict=True)
    ]
    table = read_table(rows)
    assert "n_params is a nominal size: " in " ".join(table.notes) and "N is 12·L·d²" in " ".join(table.notes)
    assert all(row["n_params"] == 12 * row["depth"] * row["width"] ** 2 for row in table.rows)


def test_a_count_that_agrees_is_counted_and_its_slip_named() -> None:
    """A slip in one count of many that agree moved its net tenfold along N, and a rounded count moved all a little."""
    exact, rounded, slipped = (
        [{**row, "n_params": count(12 * row["n_layer"] * row["d_model"] ** 2, k)} for k, row in enumerate(drawn())]
        for count in (
            lambda n, k: n,
            lambda n, k: float(f"{n:.2g}"),
            lambda n, k: 10 * n if k == 20 else n,
        )
    )
    tables = [read_table(rows) for rows in (drawn(), exact, slipped)]
    assert len({str([n_params_of(row) for row in one.rows]) for one in tables}) == 1
    assert "n_params does not at 16×" in " ".join(tables[2].notes) and "does not" not in " ".join(tables[1].notes)
    assert [n_params_of(row) for row in read_table(rounded).rows] == [n_params_of(row) for row in tables[0].rows]


def test_a_tokenizer_that_differs_is_said_as_a_vocabulary_is_and_not_in_bits_per_byte() -> None:
    """Losses of two tokenizers were compared without a word; bits per byte compare."""
    rows = [{**row, "tokenizer": "gpt2" if row["n_layer"] < 14 else "llama"} for row in drawn()]
    result = fitted(rows)
    assert "TOKENIZER FOLLOWS DEPTH (gpt2 at L 6, 10; llama at L 16, 24, 36)" in account(result)
    result = fitted([{**row, "vocab_size": len(row["tokenizer"]) * 8000} for row in rows], unit="bpb")
    assert "FOLLOWS" not in account(result)


def test_a_column_names_the_unit_of_its_losses() -> None:
    """Losses whose column ``unit`` is bits were reported in nats, and two units were compared."""
    rows = [{**row, "unit": "bits"} for row in drawn()]
    assert read_table(rows).unit == "bits per token" and read_table(rows, unit="nats").unit == "nats per token"
    mixed = [{**row, "unit": "Nats" if k % 5 else "bits"} for k, row in enumerate(rows)]
    with pytest.raises(InputError, match=r"^loss: Nats in 28 rows, bits in 7 rows \(column 'unit'\); must be in one"):
        read_table(mixed)
    assert read_table(mixed, where=["unit == 'bits'"]).unit == "bits per token"
    assert read_table(mixed, drop=["unit"]).unit == "nats per token"
    assert read_table([{**row, "unit": "GPU 3"} for row in rows]).unit == "nats per token"


def test_a_setting_that_half_of_the_rows_lack_is_named_and_adjusted_for_on_request() -> None:
    """Two tables joined, one with a column that the other lacks: a blank counted as equal to every value, and an effect
    of 0.1 nats as one of depth."""
    half = [
        {**row, "zeta": 0.1, "val_loss": row["val_loss"] + 0.1} if row["n_layer"] > 12 else {**row, "zeta": None}
        for row in drawn()
    ]
    assert "ZETA FOLLOWS DEPTH (blank at L 6, 10; 0.1 at L 16, 24, 36)" in account(fitted(half))
    mixed = [
        {**row, "zeta": 0.1, "val_loss": row["val_loss"] + 0.1} if k % 3 else {**row, "zeta": None}
        for k, row in enumerate(drawn())
    ]
    assert "NOT ADJUSTED FOR: zeta (" in account(fitted(mixed))
    holds(fitted(mixed, adjust=["zeta"]))
    idle = [{**row, "zeta": 0.1 if k % 3 else None} for k, row in enumerate(drawn())]
    assert "zeta" not in account(fitted(idle))


def test_a_law_of_other_blocks_spans_the_sizes_of_its_transitions() -> None:
    """Nets of 8·d² weights: the law's sizes were 1.5 times those of its transitions, the law of the best depth was in
    the widths of blocks of 12·d² below widths of 8·d², and so was the guideline."""
    rows = [{**row, "d_model": row["d_model"] * math.sqrt(1.5), "mlp_ratio": 2} for row in drawn()]
    own, standard = fitted(rows), clean()
    assert own.width_law and standard.width_law
    for name in ("valid_from", "valid_to"):
        assert getattr(own.width_law, name) == pytest.approx(getattr(standard.width_law, name))
    assert own.width_law.a == pytest.approx(standard.width_law.a + math.log(1.5) / 2)
    inside = next(row for row in own.guideline if row.law.startswith("own"))
    assert inside.width == pytest.approx(math.sqrt(inside.n_params / 8 / inside.depth))


def test_rows_of_a_curve_without_a_loss_are_counted_as_such() -> None:
    """Rows of training steps between evaluations, the last of them beyond the last loss, were said to lie earlier."""
    rows = [
        {**row, "step": step, "val_loss": row["val_loss"] + 0.1 * (step < 200) if step % 100 == 0 else None}
        for row in drawn()
        for step in (50, 100, 150, 200, 250)
    ]
    found = {one.why: one.rows for one in at_equal_length(read_table(rows), fit_options()).account}
    assert found["have no loss"] == 105
    assert [n for why, n in found.items() if why.startswith("lie earlier on the curve")] == [35], found


def test_no_sentence_depends_on_the_order_of_rows_and_columns() -> None:
    """Reasons as common and values of a confound were listed in the order of the rows."""
    rows = [
        {**row, "vocab_size": (32000, 50304)[k % 2], "batch_size": 64, "tokenizer": "ab"[k % 2]}
        for k, row in enumerate(drawn()[:21])
    ]
    for k, lost in ((3, None), (11, "FAIL"), (16, math.nan), (19, 0)):
        rows[k]["val_loss"] = lost
    turned = [dict(reversed(row.items())) for row in reversed(rows)]
    assert fitted(rows).summary() == fitted(turned).summary()


@pytest.mark.parametrize(
    "named",
    [
        {"model_type": "llama"},
        {"hidden_act": "silu"},
        {"config/hidden_act": "silu"},
        {"config.activation_function": "SwiGLU"},
        {"model_type": "gemma2", "hidden_act": "gelu"},
        {"use_swiglu": "True"},
        {"config/glu": "geglu"},
    ],
)
def test_a_gate_is_named_by_the_family_and_by_the_activation_wherever_a_tracker_keeps_it(named: Row) -> None:
    """N lacked a third of the MLP, without a word."""
    rows = [{"depth": d, "width": w, "d_ff": 3 * w, "loss": 3.0, **named} for d, w in nets()]
    assert [row["n_params"] for row in read_table(rows).rows] == [13 * d * w * w for d, w in nets()]


@pytest.mark.parametrize("named", [{"activation": "silu"}, {"model_type": "starcoder2"}, {"gated": False}])
def test_an_activation_alone_and_a_family_without_a_gate_name_none(named: Row) -> None:
    rows = [{"model_type": "llama", "depth": d, "width": w, "d_ff": 3 * w, "loss": 3.0, **named} for d, w in nets()]
    if "activation" in named:
        rows = [{name: value for name, value in row.items() if name != "model_type"} for row in rows]
    assert [row["n_params"] for row in read_table(rows).rows] == [10 * d * w * w for d, w in nets()]


def test_experts_that_every_token_passes_are_counted() -> None:
    """A mixture of two kinds of experts had the N of those that are chosen."""
    experts = {"n_routed_experts": 16, "num_experts_per_tok": 2, "n_shared_experts": 1}
    rows = [{"depth": d, "width": w, **experts, "moe_intermediate_size": w, "loss": 3.0} for d, w in nets()]
    table = read_table(rows)
    assert [row["n_params"] for row in table.rows] == [(4 + 2 * 3) * d * w * w for d, w in nets()]
    assert "n_shared_experts: every token passes them, beside those of its choice, and N counts both" in table.notes


def history(blank: Any) -> list[Row]:
    """Rows of runs that are evaluated at every second step, and log a training loss at the others."""
    return [
        {**row, "_step": step, "run.id": f"r{k}", "val_loss": blank if step % 2 else row["val_loss"] + 0.1 * (4 - step)}
        for k, row in enumerate(drawn())
        for step in (1, 2, 3, 4, 5)
    ]


def test_nan_between_evaluations_is_a_blank_and_at_an_evaluation_a_divergence() -> None:
    """A history as a tracker exports it was refused, and with one blank in place of a NaN its deepest nets were
    left out as diverged."""
    rows = history("NaN")
    assert [cell.mean for cell in fitted(rows).cells] == [cell.mean for cell in fitted(history(None)).cells]
    for row in rows:
        if row["run.id"] == "r3" and row["_step"] == 4:
            row["val_loss"] = "NaN"
    out = {one.why: one.rows for one in fitted(rows).provenance.account.left_out}
    assert out["have NaN for a loss"] == 1
