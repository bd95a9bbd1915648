"""What a table means: each kind of table that people have gives the truth that it was drawn from, or one clear line."""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np
import pytest
from bowls import best, loss
from report_sweeps import write_csv
from sentences import says, shows
from shown import summary

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit.analysis import fit_options
from dwsweep.fit.arms import compare_arms
from dwsweep.fit.data.lengths import at_equal_length
from dwsweep.fit.data.table import read_table
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.report import fit_report
from dwsweep.report.figures.losses import measured
from dwsweep.text import format_count

pytestmark = pytest.mark.usefixtures("surfaces_again", "at_equal_size_alone")

DEPTHS, SIZES = (6, 10, 16, 24, 36), 5e6 * 1.9 ** np.arange(7)
GONE = ...  # in place of a value: the column leaves


def nets(depths=DEPTHS, sizes=SIZES):
    return [(depth, 8 * round(math.sqrt(n / 12 / depth) / 8)) for depth in depths for n in sizes]


def drawn(seed=0, change=lambda row, k: {}):
    """A clean grid under names of other projects. change: columns of a row, by the row and its place."""
    rng = np.random.default_rng(seed)
    rows = [
        {"n_layer": depth, "d_model": width, "val_loss": loss(12 * depth * width**2, depth) + rng.normal(0, 0.003)}
        for depth, width in nets()
    ]
    rows = [{**row, **change(row, k)} for k, row in enumerate(rows)]
    return [{name: value for name, value in row.items() if value is not GONE} for row in rows]


fitted = dwsweep.fit_table


def holds(result):
    """The intervals of the best depth hold the truth at nearly every size, and are no whole range."""
    assert result.surface and not result.surface.flat
    rows = result.surface.bounded
    missed = [
        row
        for row in rows
        if not (row.depth_low or 0.0) * 0.97 <= best(row.n_params) <= (row.depth_high or math.inf) * 1.03
    ]
    assert len(rows) >= 7 and len(missed) <= 1, [(row.n_params, row.depth_low, row.depth_high) for row in missed]
    middle = min(rows, key=lambda row: abs(math.log(row.n_params / 3e7)))
    assert middle.depth and abs(math.log(middle.depth / best(middle.n_params))) < 0.2


def account(result):
    return " ".join(fit_report.account(result))


@cache
def clean():
    return fitted(drawn())


def test_a_clean_grid_is_all_used_and_gives_the_truth():
    assert shows(account(clean()), "fit: a clean grid", numbers=True)
    assert shows(summary(clean()), "fit: text of a clean grid")
    holds(clean())


# What is said before the answer


def halves(name, shallow, deep):
    """A column with one value in the shallow nets and another in the deep ones."""
    return lambda row, k: {name: deep if row["n_layer"] > 12 else shallow}


WIKITEXT = lambda row, k: {"val_loss": GONE, "loss": row["val_loss"], "eval/wikitext/loss": row["val_loss"] + k}  # noqa: E731
SAID = [
    # a column that follows depth: losses may follow it
    (halves("dropout", 0.0, 0.1), {}, "DROPOUT FOLLOWS DEPTH (0.0 at L 6, 10; 0.1 at L 16, 24, 36)", ""),
    (halves("mixer", "own", "usual"), {}, "MIXER FOLLOWS DEPTH (own at L 6, 10; usual at L 16, 24, 36)", ""),
    (halves("_step", 100, 70), {}, "_STEP FOLLOWS DEPTH (100 at L 6, 10; 70 at L 16, 24, 36)", ""),
    (halves("zeta", None, 0.1), {}, "ZETA FOLLOWS DEPTH (blank at L 6, 10; 0.1 at L 16, 24, 36)", ""),
    (lambda row, k: {"steps": 125_000_000 * row["n_layer"] // 2**19}, {}, "STEPS FOLLOW DEPTH (1430 at L 6; ", ""),
    # names, copies, an incomplete last batch, a rule that goes by depth, losses in bits per byte
    (lambda row, k: {"run": f"net of {row['n_layer']}"}, {}, "", "FOLLOWS"),
    (lambda row, k: {"config.n_layer": row["n_layer"]}, {}, "", "FOLLOWS"),
    (lambda row, k: {"steps": 2_000_000_000 + 1000 * row["n_layer"]}, {}, "", "FOLLOW DEPTH"),
    (lambda row, k: {"zeta": 0.1 if k % 3 else None}, {}, "", "zeta"),
    (lambda row, k: {"n_head": row["d_model"] // 8}, {}, "", "heads"),
    (
        lambda row, k: {"lr": 6e-3 / row["n_layer"], "n_head": row["n_layer"] // 2},
        {},
        "heads follow depth here (3 at L 6; 5 at L 10; ",
        "FOLLOWS DEPTH",
    ),
    (
        lambda row, k: {**halves("tokenizer", "gpt2", "llama")(row, k), **halves("vocab_size", 32000, 40000)(row, k)},
        {"unit": "bpb"},
        "",
        "FOLLOWS",
    ),
    # a loss that may be of training
    (WIKITEXT, {}, "35 rows read, all used; THE LOSS IS THE COLUMN loss, which may be of training, and not eval/", ""),
    # runs that are out
    (lambda row, k: {"diverged": k == 3}, {}, "1 is of runs that diverged", ""),
]  # fmt: skip


@pytest.mark.parametrize(("change", "options", "said", "unsaid"), SAID)
def test_the_lines_before_the_answer_say_this(change, options, said, unsaid):
    text = account(fitted(drawn(change=change), **options))
    assert said in text and (not unsaid or unsaid not in text), text


def test_a_setting_that_some_rows_lack_is_named_and_adjusted_for_on_request():
    """A blank counted as equal to every value, and an effect of 0.1 nats as one of depth."""
    mixed = drawn(change=lambda row, k: {"zeta": 0.1, "val_loss": row["val_loss"] + 0.1} if k % 3 else {"zeta": None})
    assert "NOT ADJUSTED FOR: zeta (" in account(fitted(mixed))
    holds(fitted(mixed, adjust=["zeta"]))


def test_an_account_adds_up(tmp_path):
    few = [row for row in drawn() if row["n_layer"] < 16]
    rows = [{**row, "status": "done", "seed": 0, "activation": "gelu"} for row in few]
    rows += [{**rows[0], "seed": 1, "val_loss": None}, {**rows[1], "seed": 1, "status": "oom", "val_loss": None}]
    rows += [{**rows[2], "seed": 4, "val_loss": "OOM"}]
    rows += [{**rows[2]}, {**rows[3], "seed": 2, "activation": "relu"}, {**rows[4], "seed": 3}]
    table = write_csv(rows, tmp_path / "t.csv")
    words = {"have no loss", "are oom", "have OOM for a loss"}
    for where, whys in (
        ((), {*words, "repeat another row exactly", "have activation = relu and not gelu"}),
        ("n_layer > 6", {*words, "repeat another row exactly"}),
    ):
        found = fitted(table, where=where).provenance.account
        assert found.read == len(rows) == found.used + sum(one.rows for one in found.left_out)
        assert where or {one.why for one in found.left_out} == whys
        assert not where or found.left_out[0].option == "--where"


# Time within a run


def curves(change=lambda row, step, k: {}, steps=(2000, 5000, 10000, 20000)):
    """Rows of every net at each step, along which the loss falls."""
    return [
        {**row, "step": step, "val_loss": row["val_loss"] + 0.4 * (1 - step / steps[-1]), **change(row, step, k)}
        for k, row in enumerate(drawn(1))
        for step in steps
    ]


def last_of(rows):
    """(rows that count, why → rows of the others)."""
    data = at_equal_length(read_table(rows), fit_options())
    return data.rows, {why: rows for (why, _), rows in data.account.items()}


@pytest.mark.parametrize("step", ["step", "iter", "epoch", "trainer/global_step"])
@pytest.mark.parametrize("name", ["run", None])
def test_a_checkpoint_is_no_replicate(step, name):
    rows = curves(lambda row, at, k: {step: at, **({name: f"r{k}"} if name else {})})
    if step != "step":
        rows = [{key: value for key, value in row.items() if key != "step"} for row in rows]
    kept, out = last_of(rows)
    assert len(kept) == 35 and {row[step] for row in kept} == {20000} and sum(out.values()) == 105


def test_which_rows_of_a_curve_count():
    early = [row for row in curves(lambda row, at, k: {"run": f"r{k}"}) if row["run"] != "r3" or row["step"] <= 5000]
    assert last_of(early)[1]["are of 1 runs that end at step 5,000, before 20,000"] == 2
    # two rates of a shape are two runs
    swept = [{**row, "lr": rate} for row in curves() for rate in (1e-3, 2e-3)]
    assert [row["learning_rate"] for row in last_of(swept)[0]] == [1e-3, 2e-3] * 35
    # a row of another rate that crashed was read as an earlier point of a run
    ended = drawn(change=lambda row, k: {"learning_rate": 1e-3, "iter_num": 5000, "lr": 1e-5 * k})
    crashed = {**ended[7], "learning_rate": 3e-3, "iter_num": 1200}
    assert not read_table([*ended, crashed]).step
    # rows of training steps between evaluations, the last of them beyond the last loss, were said to lie earlier
    between = curves(lambda row, at, k: {} if at % 100 == 0 else {"val_loss": None}, (50, 100, 150, 200, 250))
    out = last_of(between)[1]
    assert out["have no loss"] == 105
    assert [n for why, n in out.items() if why.startswith("lie earlier on the curve")] == [35]


def test_nan_between_evaluations_is_a_blank_and_at_an_evaluation_a_divergence():
    """A history as a tracker exports it was refused, and with one blank in place of a NaN its deepest nets were left
    out as diverged."""
    of = lambda blank: lambda row, at, k: {"run.id": f"r{k}", **({"val_loss": blank} if at % 2 else {})}  # noqa: E731
    rows = curves(of("NaN"), range(1, 6))
    assert [cell.mean for cell in fitted(rows).cells] == [
        cell.mean for cell in fitted(curves(of(None), range(1, 6))).cells
    ]
    (one,) = (row for row in rows if row["run.id"] == "r3" and row["step"] == 4)
    one["val_loss"] = "NaN"
    out = {one.why: one.rows for one in fitted(rows).provenance.account.left_out}
    assert out["have NaN for a loss"] == 1


# Shapes and settings


def test_nets_of_one_depth_and_width_with_other_mlps_are_not_averaged():
    rng, rows = np.random.default_rng(2), []
    for depth, width in nets():
        for ratio in (1, 2, 4):
            value = loss(depth * width**2 * (4 + 2 * ratio), depth) + rng.normal(0, 0.003)
            rows.append({"n_layer": depth, "d_model": width, "d_ff": ratio * width, "val_loss": value})
    result = fitted(rows)
    holds(result)
    assert len([cell for cell in result.cells if cell.n == 1]) == 105
    assert "d_ff 264" in {cell.block for cell in result.cells}


def test_a_law_of_other_blocks_spans_the_sizes_of_its_transitions():
    """Nets of 8·d² weights: sizes of the law and widths of the guideline were those of blocks of 12·d²."""
    own = fitted(drawn(change=lambda row, k: {"d_model": row["d_model"] * math.sqrt(1.5), "mlp_ratio": 2}))
    standard = clean().width_law
    for name in ("valid_from", "valid_to"):
        assert getattr(own.width_law, name) == pytest.approx(getattr(standard, name))
    assert own.width_law.a == pytest.approx(standard.a + math.log(1.5) / 2)
    inside = next(row for row in own.guideline if row.law.startswith("own"))
    assert inside.width == pytest.approx(math.sqrt(inside.n_params / 8 / inside.depth))


def recipes():
    """An unknown column that moves the loss by 0.2, and a flag that goes with it."""
    rng = np.random.default_rng(4)
    return [
        {
            **{"layers": depth, "width": width, "mixer": mixer, "qk_norm": int(mixer == "linear" and seed == 1)},
            **{"seed": seed, "wall_time": 100 + rng.random()},
            "val_loss": loss(12 * depth * width**2, depth) + 0.2 * (mixer == "linear") + rng.normal(0, 0.003),
        }
        for depth, width in nets((6, 16))
        for mixer in ("softmax", "linear")
        for seed in (0, 1)
    ]


def test_an_unknown_setting_is_refused_with_what_to_copy_and_its_values_are_compared_as_arms():
    with pytest.raises(InputError) as caught:
        fitted(recipes())
    (line,) = caught.value.option_lines
    assert "mixer (linear, softmax at" in line and "qk_norm (0, 1 at" in line and "wall_time" not in line
    assert (
        "--where \"mixer == 'softmax' and qk_norm == 0\"" in line
        and "--arm mixer --compare" in line
        and "--drop mixer" in line
    )
    result = compare_arms([row for row in recipes() if row["qk_norm"] == 0], arm="mixer")
    (found,) = result.comparisons
    assert (found.base, found.arm) == ("softmax", "linear")
    assert all(0.18 < row.change < 0.22 for row in found.of("loss"))
    assert says(account(result), "fit: rows of other arms")
    with pytest.raises(InputError, match=r"name \(ours, theirs at"):
        fitted([{**row, "name": name} for row in drawn() for name in ("ours", "theirs")])


def test_arms_of_different_data_are_no_comparison_of_recipes():
    one, two = (
        [
            {**row, "val_loss": row["val_loss"] - less, "tokens": tokens, "dataset": data, "vocab_size": 50304}
            for row in drawn(seed)
            if row["n_layer"] in (6, 16)
        ]
        for seed, less, tokens, data in ((0, 0.0, 2e9, "web"), (8, 1.3, 94e9, "books"))
    )
    (found,) = compare_arms(one, [two]).comparisons
    first, *rest = found.answer
    assert first.startswith("NOT AT EQUAL DATA: ") and "dataset web and books" in first and "47 times as many" in first
    assert all(says(line, "fit: different data no recipe") for line in rest if line.startswith("losses"))
    (alike,) = compare_arms(one, [[{**row, "val_loss": row["val_loss"] + 0.1} for row in one]]).comparisons
    assert not any("DATA" in line for line in alike.answer)


def test_a_run_listed_under_several_labels_counts_once():
    rng = np.random.default_rng(5)
    rows = []
    for depth, width in nets(sizes=SIZES[:4]):
        for seed in range(2):
            row = {"depth": depth, "width": width, "seed": seed, "loss": round(rng.uniform(3, 4), 5)}
            rows += [{**row, "scaled": how} for how in (("depth", "width") if depth == 16 else ("depth",))]
            rows += [{**row, "loss": row["loss"] + 0.01, "seed": seed + 2, "scaled": "width"}]
    (((why, _), count),) = read_table(rows).account.items()
    assert count == 8 and says(why, "fit: list a run again")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"at": {"optimizer": "muon"}}, "at: optimizer=muon; every run has adamw; allowed: optimizer=adamw"),
        ({"at": {"tokens": "3B"}}, "at: tokens=3e+09; every run has 2e+09; allowed: tokens=2e+09"),
        ({"at": {"n_head": 8}}, "n_head grows with the width, so that all nets are compared at one head size"),
        ({"at": {"batch_size": 64}}, "an adjustment takes 9 runs, 3 sizes and 2 depths, the table has 7, 7 and 1"),
        ({"adjust": "batch_size"}, "an adjustment takes 9 runs, 3 sizes and 2 depths, the table has 7, 7 and 1"),
    ],
)
def test_a_held_value_that_no_adjustment_reaches_is_refused(options, said):
    """Each was ignored, and the answer was for another value; 8 heads were held as a head size of 8."""
    rows = drawn(change=lambda row, k: {"n_head": 4, "optimizer": "adamw", "tokens": 2 * 10**9})
    if "batch_size" in str(options):
        rows = [{**row, "batch_size": 32 + row["d_model"] % 64} for row in rows if row["n_layer"] == 6]
    with pytest.raises(InputError, match=re.escape(said)):
        fitted(rows, **options)


# Losses that cannot be


def test_a_loss_that_no_law_reaches_is_named_and_left_out():
    rows = drawn()[:12]
    rows[5]["val_loss"] = 1000
    assert shows(account(fitted(rows)), "fit: an impossible loss", numbers=True)


@pytest.mark.parametrize(("place", "off"), [(24, -0.3), pytest.param(7, 0.3, marks=pytest.mark.slow)])
def test_one_impossible_loss_of_few_sizes_per_depth_is_named_and_hides_no_effect_of_depth(place, off):
    """Five sizes have no curve that tells: "no effect of depth is shown" stood where one loss of 25 was wrong."""
    rng = np.random.default_rng(0)
    shapes = [
        (d, 16 * round(math.sqrt(n / 12 / d) / 16)) for d in (6, 10, 14, 22, 32) for n in np.geomspace(3e6, 9e7, 5)
    ]
    rows = [{"depth": d, "width": w, "loss": loss(12 * d * w * w, d) + rng.normal(0, 0.003)} for d, w in shapes]
    assert not any("impossible" in cell.reason for cell in fitted(rows).cells)
    rows[place]["loss"] += off
    result = fitted(rows)
    assert [(cell.depth, cell.width) for cell in result.cells if "impossible" in cell.reason] == [shapes[place]]
    assert result.surface and not result.surface.flat and any("IMPOSSIBLE" in line for line in result.warnings)


# Designs


@pytest.mark.parametrize("width", [lambda d: 64 * d, lambda d: 512])
def test_one_width_per_depth_says_nothing_of_shape(width):
    rows = [
        {"n_layer": d, "d_model": width(d), "val_loss": 3.0 - 0.05 * d - 0.1 * k, "flops": flops}
        for d in (4, 6, 8, 10, 12)
        for k, flops in enumerate((1e16, 3e16, 1e17))
    ]
    for table in (rows, [{k: v for k, v in row.items() if k != "flops"} for row in rows[::3]]):
        result = fitted(table)
        shapes = f"(one width at each depth, 4×{width(4)}, 6×{width(6)}, "
        assert f"depth and width are one variable here {shapes}" in fit_report.account(result)[0]
        assert (result.surface is None or result.surface.flat) and not fit_report.answer(result)


def test_sizes_that_hardly_differ_are_one_and_have_a_best_depth_without_a_flag():
    rng, rows = np.random.default_rng(6), []
    for k, depth in enumerate((4, 8, 16, 24, 40)):
        width = 8 * round(math.sqrt(3e7 * 1.08 ** (k % 2) / 12 / depth) / 8)
        for seed in range(3):
            value = loss(12 * depth * width**2, depth) + rng.normal(0, 0.003)
            rows.append({"n_layer": depth, "d_model": width, "seed": seed, "val_loss": value})
    result = fitted(rows)
    (found,) = result.surface.optima
    assert found.depth_low < best(found.n_params) < found.depth_high < 1.6 * found.depth_low
    assert [*measured(result, LossSurface(result.surface), found.ln_x)] == [4, 8, 16, 24, 40]
    first, _, effect, *_ = fit_report.answer(result)
    assert first.startswith("Best depth: 1") and first.endswith(f"at {format_count(found.n_params)}.")
    assert "4 layers lose" in effect
