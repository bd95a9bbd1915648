"""A heap of runs: all rows count, the answer is at held values, and what cannot be told from depth is said."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from bowls import DEPTHS, best, level, loss, net, piled, standard
from sentences import says, shows

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit import heap as heap_module
from dwsweep.fit.analysis import fit_options
from dwsweep.fit.answers import follows
from dwsweep.fit.answers.equal_what import equal_what
from dwsweep.fit.answers.next_runs import next_runs
from dwsweep.fit.arms import compare_arms
from dwsweep.fit.data.table import read_table
from dwsweep.fit.heap import heap_of
from dwsweep.fit.statistics.ask import LossSurface, best_depth_interval
from dwsweep.records.answers import DIFFERENCE
from dwsweep.report import adjusted_report, fit_report
from tests.simulations import heaps
from tests.simulations.harness import covers

pytestmark = pytest.mark.usefixtures("surfaces_again", "at_equal_size_alone")

SIMULATED = 16  # heaps of each design in the slow tier


def heap(rows, **options):
    found = heap_of(read_table(rows), fit_options(**options))
    assert found and found.surface
    return found


fit = dwsweep.fit_table


def adjusted(rows, **options):
    """Columns that the losses are adjusted for, by the names of the table; nothing is fitted."""
    data = read_table(rows)
    found = heap_module._found(data, heap_module._asked(data, fit_options(**options)), data.rows)
    return {one.column: one for one in found.columns} if found else {}


def holds(found, sizes=(1e7, 3e7, 6e7)):
    surface = LossSurface(found.surface)
    for n in sizes:
        depth = surface.at(n)
        assert depth.low and depth.high and depth.low * 0.97 < best(n) < depth.high * 1.03, (n, depth)
        assert depth.high / depth.low < 2.2


def column(record, name):
    return next(one for one in record.columns if one.name == name)


# Columns of the simulated rows, and the nats that they add


def batches(row, rng):
    batch, tokens = int(rng.choice([64, 128, 128, 256])), float(rng.choice([1e9, 2e9, 2e9, 4e9]))
    return {"batch_size": batch, "tokens": tokens}, 0.03 * math.log(batch / 128) - 0.09 * math.log(tokens / 2e9)


def at_rate(row, rate):
    """Nats of a learning rate, best where it goes as width^−0.8."""
    return 0.05 * math.log(rate / (1.2e-3 * (512 / row["width"]) ** 0.8)) ** 2


def rated(row, rng):
    """Learning rates too, whose curve takes as long as all else."""
    columns, nats = batches(row, rng)
    rate = float(f"{1.2e-3 * math.exp(rng.uniform(-1.2, 1.2)):.3g}")
    return {**columns, "learning_rate": rate}, nats + at_rate(row, rate)


def low_rates(row, rng):
    rate = float(f"{2e-4 * math.exp(rng.uniform(-1.0, 1.0)):.3g}")
    return {"learning_rate": rate}, at_rate(row, rate)


def optimizers(row, rng):
    name = str(rng.choice(["adamw", "adamw", "muon"]))
    return {"optimizer": name}, -0.05 * (name == "muon")


def inner(row, ratio, moved=0.0):
    """(d_ff, nats) of an inner width of ``ratio`` times the width, by whose own size the loss goes."""
    n = standard(row) * (2.0 + ratio) / 6.0
    off = math.log(row["depth"] / best(n))
    nats = loss(n, row["depth"]) - loss(standard(row), row["depth"]) + 0.06 * ((off + moved) ** 2 - off**2)
    return {"d_ff": round(ratio * row["width"])}, nats


def both(*parts):
    def more(row, rng):
        found = [part(row, rng) for part in parts]
        return {name: value for columns, _ in found for name, value in columns.items()}, sum(nats for _, nats in found)

    return more


@cache
def fitted():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap_module, "equal_what", equal_what)  # next runs have its tokens
        return fit(piled(60, more=rated))


def test_all_rows_of_a_heap_count_and_give_the_truth_and_the_first_lines_say_what_is_held():
    holds(fitted())
    record = fitted().adjusted
    assert record.runs == 60 and not any("OUTSIDE" in line for line in fitted().provenance.account.notes)
    assert [row.depth for row in record.rates] == list(DEPTHS)
    first, second = fit_report.account(fitted())[:2]
    assert shows(first, "fit: all rows of a heap used", numbers=True)
    assert shows(second, "fit: held settings of a heap", numbers=True)
    batch, spread = column(record, "batch"), np.std([math.log(row["batch_size"]) for row in piled(60, more=rated)])
    assert batch.matters_low < batch.matters < batch.matters_high
    assert batch.matters == pytest.approx(0.03 * spread, rel=0.25)


@pytest.mark.parametrize(
    "bad", [{17: -0.2, 30: 1000.0}, dict(zip((3, 20, 41, 57, 70, 88), (0.3, 0.3, 0.8, 0.8, 3, 3), strict=True))]
)
def test_impossible_losses_of_a_heap_are_named_and_left_out_together(bad):
    """One widened the scatter that judged it; six in a hundred hid each other, and no effect of depth was shown."""
    rows = piled(60 if len(bad) == 2 else 100, more=batches)
    for k, nats in bad.items():
        rows[k]["loss"] += nats
    result = fit(rows)
    out = result.provenance.account.left_out
    assert all("have an impossible loss" in one.why for one in out)
    assert sum(one.rows for one in out) in (len(bad), len(bad) + 1)  # one may be averaged with a run of its kind
    holds(result)


def test_rows_of_one_run_are_averaged_and_a_net_that_has_learned_nothing_does_not_count():
    rows = [{**row, "seed": k, "vocab_size": 1000} for k, row in enumerate(piled(36, more=batches))]
    rows[7]["loss"] = 0.99 * math.log(1000)
    runs = heap([*rows, {**rows[5], "loss": rows[5]["loss"] + 0.002}]).selections[""]
    assert len(runs.runs) == 35 and runs.account == {
        ("are averaged with another row of their shape, learning rate and seed", ""): 1,
        ("are of shapes that have learned nothing", ""): 1,
    }
    (line,) = [line for line in runs.warnings if "NOT TRAINED" in line]
    assert f"{rows[7]['depth']}×{rows[7]['width']}" in line


def test_the_best_rate_follows_the_width_and_not_the_size_where_inner_widths_differ():
    """Nets of a depth and size are narrower by a fifth at d_ff / d = 4: best rates came out 6 to 8 % too high."""
    wide = lambda row, rng: inner(row, (2.0, 2.0, 4.0)[int(rng.integers(3))])  # noqa: E731
    missed = 0
    for row in heap(piled(60, seed=5, more=both(wide, rated))).record.rates:
        truth = 1.2e-3 * (512 / math.sqrt(row.n_params / 8 / row.depth)) ** 0.8
        assert row.estimate and abs(math.log(row.estimate / truth)) < 0.1
        missed += truth not in row.estimate_interval
    assert missed <= 1


def test_values_that_were_not_tried_are_said_to_lie_outside():
    said = heap(piled(60, more=low_rates)).data.notes[1]
    assert said.startswith("OUTSIDE WHAT WAS TRIED: the best learning rate of 7 of 7 depths lies above the rates tried")
    assert says(heap(piled(36, more=batches), at={"batch_size": 384}).data.notes, "fit: a value not tried")


# Which columns are adjusted for


def exported(rows):
    """Settings that a tracker keeps in sections."""
    names = {name: f"config.{name}" for name in ("batch_size", "optimizer", "depth", "width")}
    names |= {"learning_rate": "config.optim.lr"}
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def again(rows):
    """Shapes come again after other counts of tokens: an agent's log, whose runs are never pooled."""
    more = [{**row, "tokens": 2.0 * row["tokens"], "loss": row["loss"] - 0.2 * math.log(2.0)} for row in rows]
    return [*rows, *more]


def counted(row, rng):
    """Round counts of the size of a time since 1970 are counts."""
    place = int(np.clip(round(1 + 0.8 * math.log(row["depth"] / 11.3) + 0.5 * rng.standard_normal()), 0, 2))
    return {"toks": (1e9, 2e9, 4e9)[place]}, -0.09 * math.log((0.5, 1.0, 2.0)[place])


ALL = both(rated, optimizers)
ADJUSTED = [
    (lambda: piled(60, more=ALL), {"no_adjust": ["batch_size"]}, {"tokens", "learning_rate", "optimizer"}),
    (lambda: exported(piled(60, more=ALL)), {}, {"batch_size", "tokens", "learning_rate", "optimizer"}),
    (lambda: again(piled(40, 3, both(batches, optimizers))), {"no_adjust": ["batch_size"]}, {"tokens", "optimizer"}),
    (lambda: shapes_once(piled(60, more=both(low_rates, counted))), {}, {"toks", "learning_rate"}),
    (lambda: piled(more=lambda row, rng: ({"z_weight": float(rng.choice([0.1, 0.2, 0.4]))}, 0.0)), {}, {"z_weight"}),
    # deep nets that were stopped early: 16.8 layers for 22.6, and nothing said
    (lambda: piled(more=lambda row, rng: ({"global_step": int(rng.choice([900, 2000]))}, 0.0)), {}, {"global_step"}),
]


@pytest.mark.parametrize(("rows", "options", "names"), ADJUSTED)
def test_these_columns_are_adjusted_for(rows, options, names):
    assert set(adjusted(rows(), **options)) == names


def test_of_two_columns_of_one_setting_the_requested_one_is_adjusted_for_and_held():
    """The batch of a device stood for that of a step, and ``--adjust global_batch`` was refused."""

    def batches(row, rng):
        device, whole = int(rng.choice([4, 8, 16])), int(rng.choice([64, 128, 256]))
        return {"batch_size": device, "global_batch": whole}, 0.02 * math.log(whole / 64)

    rows = piled(60, more=batches)
    assert set(adjusted(rows)) == {"batch_size"} and set(adjusted(rows, adjust=["global_batch"])) == {"global_batch"}
    assert adjusted(rows, at={"global_batch": 128})["global_batch"].held == 128


def test_a_rate_is_held_where_that_is_asked():
    rate = adjusted(piled(60, more=rated), at={"learning_rate": 1.2e-3})["learning_rate"]
    assert rate.kind == "number" and rate.held == 1.2e-3


NOT_CHOSEN = {
    "run_number": lambda k, rng: k,
    "generation": lambda k, rng: k // 6,
    "date": lambda k, rng: 20260101 + k // 5 * 7,
    "year": lambda k, rng: 2019 + 2 * (k // 20),
    "final_grad_norm": lambda k, rng: round(1.0 + abs(rng.normal(0, 0.4)), 1),
    "samples_per_second": lambda k, rng: round(50 + rng.normal(0, 5)),
    "hellaswag": lambda k, rng: round(0.4 + rng.normal(0, 0.02), 2),
}


def test_a_table_in_which_nobody_chose_anything_is_no_heap():
    rng = np.random.default_rng(5)
    rows = piled(48)
    assert heap_of(read_table(rows), fit_options()) is None
    for name, value in NOT_CHOSEN.items():
        assert not adjusted([{**row, name: value(k, rng)} for k, row in enumerate(rows)]), name
    one_variable = [
        {"depth": d, "width": 64 * d, "batch_size": b, "loss": 4.0 - 0.1 * math.log(d) + 0.01 * (b == 64) + 1e-4 * d}
        for d in (2, 4, 6, 8, 10, 12, 14, 16)
        for b in (32, 64)
    ]
    assert heap_of(read_table(one_variable), fit_options()) is None


def test_a_number_of_which_each_shape_has_one_value_follows_the_shape_and_that_is_said():
    rng = np.random.default_rng(2)
    rows = []
    for row in piled(24, more=batches):
        own = {"patience": int(np.random.default_rng(row["depth"] * 10000 + row["width"]).choice([10, 20, 40]))}
        rows += [{**row, **own, "loss": row["loss"] + rng.normal(0.0, 0.003)} for _ in range(2)]
    found = heap(rows)
    assert "patience" not in {one.name for one in found.record.columns}
    assert says(found.data.notes, "fit: a column follows the shape")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adjust": ["nothing"]}, "adjust: 'nothing'; not in the table"),
        ({"adjust": ["flops"]}, "adjust: 'flops'; follows from the shape"),
        ({"adjust": ["wall_seconds"]}, "adjust: 'wall_seconds'; follows from the shape"),
        ({"at": {"batch_size": 4096}}, "at: batch=4096; allowed: from 32 to 512"),
        ({"at": "batch_size"}, "at: 'batch_size'; give column=value"),
        ({"adjust": ["batch_size"], "no_adjust": ["batch_size"]}, "also adjusted for"),
        ({"axis": "flops", "at": {"batch_size": 64}}, "axis: flops; allowed with adjust and at: n_params"),
        ({"at_tokens": 3e9, "at": {"tokens": 1e9}}, "at_tokens: 3e.09; not allowed with at tokens="),
        ({"at": ["batch=64", "batch_size=128"]}, "at: batch=64 and batch_size=128; one answer holds one value"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line(options, said):
    rows = [
        {**row, "flops": 1e20 * row["depth"], "wall_seconds": row["depth"] + k % 7}
        for k, row in enumerate(piled(more=batches))
    ]
    with pytest.raises(InputError, match=said):
        fit(rows, **options)


# Held values


def test_of_inner_widths_as_common_the_one_of_least_loss_is_held():
    """Nets of wider inner layers are best shallower, by a quarter from 0.5 to 2."""

    def more(row, rng):
        ratio = (0.5, 1.0, 2.0)[int(rng.integers(3))]
        columns, nats = inner(row, ratio, 0.2 * math.log(ratio))
        return columns, nats - 0.05 * math.log(ratio)

    record = heap(piled(90, seed=4, more=more)).record
    assert column(record, "d_ff / d").held == "d_ff / d 2"


def test_of_values_as_common_the_middle_one_is_held_where_none_is_better_however_large_they_are():
    def batch(row, rng):
        size = (64, 128, 256)[int(rng.integers(3))]
        off = math.log(row["depth"] / best(standard(row)))
        return {"batch_size": 4096 * size}, 0.06 * ((off + 0.3 * math.log2(size / 128)) ** 2 - off**2)

    assert column(heap(piled(90, seed=4, more=batch)).record, "batch").held == "batch 524K"


def test_widths_are_of_nets_with_the_inner_width_that_is_held():
    """With d_ff = 2·d a layer has 8·d² weights: widths of a standard block would be smaller by a fifth."""
    more = lambda row, rng: inner(row, float(rng.choice([2.0, 2.0, 2.0, 4.0])))  # noqa: E731
    result = fit(piled(60, more=more), at={"mlp_ratio": 2.0})
    crossed = [row for row in result.transitions if row.estimator == "surface" and row.width and row.n_params]
    assert crossed
    for row in crossed:
        assert row.width == pytest.approx(math.sqrt(row.n_params / 8.0 / row.shallow), rel=1e-3)
    shown = next(row for row in result.surface.optima if row.depth)
    assert result.weights_at(shown.depth) == pytest.approx(8.0, rel=1e-3)


def test_rates_that_every_shape_swept_are_no_average_where_the_batch_varies_too():
    """2.9 layers (below 3.5) for 4.5: the rates of each shape were averaged beside another covariate."""
    rows, rng = [], np.random.default_rng(0)
    for row in piled(28, 3, lambda row, rng: ({"batch": int(rng.choice([64, 128, 256]))}, 0.0)):
        for rate in (3e-4, 1e-3, 3e-3):
            off = 0.8 * at_rate(row, rate) + 0.02 * math.log(row["batch"] / 128) + rng.normal(0.0, 0.003)
            rows.append({**row, "learning_rate": rate, "loss": loss(standard(row), row["depth"]) + off})
    found = heap(rows)
    assert {one.column for one in found.record.columns} == {"batch_size", "learning_rate"}
    holds(found, (1e7, 3e7))


# What nothing separates


def test_a_column_that_follows_depth_in_part_is_said_with_the_option_of_the_other_reading():
    def following(row, rng):
        wanted = 2048 / row["depth"] / 8 * math.exp(rng.normal(0, 0.4))
        size = min((8, 16, 32, 64), key=lambda one: abs(math.log(one / wanted)))
        return {"heads": max(1, row["width"] // size)}, 0.0

    found = heap(piled(60, seed=2, more=following))
    (line,) = [line for line in found.data.notes if line.startswith("Head size follows depth in part (r = −0.8")]
    assert says(line, "fit: follows depth in your nets") and not found.record.inseparable


def test_what_cannot_be_told_from_depth_is_said_in_the_first_lines():
    """Head sizes that halve as depth doubles, and an effect larger than the one of depth: the loss shows their sum."""

    def heads(row, rng):
        wanted = math.log(640 / row["depth"]) + rng.normal(0, 0.15)
        size = min((8, 12, 16, 24, 32, 48, 64, 96, 128), key=lambda one: abs(math.log(one) - wanted))
        nats = 0.1 * math.log(size / 32) ** 2 + rng.normal(0, 0.015)
        return {"heads": max(1, round(row["width"] / size)), "head_size": size}, nats

    found = heap(piled(40, seed=4, more=heads))
    assert found.record.inseparable == ("head size",)
    (line,) = [line for line in found.data.notes if "cannot separate depth" in line]
    assert "depth from head size (r = −0.9" in line


def shapes_once(rows):
    """The first row of each shape: no column differs within one."""
    return list({(row["depth"], row["width"]): row for row in reversed(rows)}.values())


def confounded(row, rng):
    """Batches, and two columns that follow depth in part: a text that moves the loss, and a draw that does nothing."""
    columns, nats = batches(row, rng)
    y = math.log(row["depth"] / 11.3)
    second = bool(rng.random() < 1.0 / (1.0 + math.exp(-2.0 * y)))
    drawn = round(0.02 * math.exp(0.5 * y + 0.4 * rng.standard_normal()), 5)
    return {**columns, "mix": "web" if second else "books", "init_std": drawn}, nats + 0.05 * second


def test_a_column_that_losses_follow_though_nothing_adjusts_for_it_is_said_first_and_no_other():
    rows = shapes_once(piled(60, more=confounded))
    said = heap(rows).data.notes
    assert said[1].startswith("NOT ADJUSTED FOR: mix (") and "--adjust mix" in said[1]
    assert not any("NOT ADJUSTED FOR: init_std" in line for line in said)
    asked = heap(rows, adjust=["mix"])
    assert not any("NOT ADJUSTED" in line for line in asked.data.notes)
    holds(asked)


def test_beside_a_grid_too_columns_and_machines_that_losses_follow_are_said():
    """H100s that saw more tokens than A100s and trained shallow nets: "no effect of depth", and nothing said."""

    def placed(row, rng):
        fast = (rng.random() < 0.8) == (row["depth"] < 14)
        return {"gpu_type": "H100" if fast else "A100", "cluster": "eu"}, -0.07 * fast

    def drawn(row, rng):
        value = 0.02 * math.exp(0.5 * math.log(row["depth"] / 11.3) + 0.4 * rng.standard_normal())
        return {"init_std": round(value, 5)}, 0.03 * math.log(value / 0.02)

    assert any(
        "NOT ADJUSTED FOR: init_std" in line for line in fit_report.account(fit(shapes_once(piled(60, more=drawn))))
    )
    notes = fit(piled(56, 6, placed)).provenance.account.notes
    assert any("NOT ADJUSTED FOR: gpu_type" in note and "gpu_type follows depth" in note for note in notes)
    assert not any("cluster" in note for note in notes)


# Texts


def test_a_known_recipe_is_a_factor_with_an_offset_and_a_value_that_nothing_ties_is_left_out():
    rows = piled(more=optimizers)
    found = heap(rows)
    (one,) = found.record.columns
    truth = 0.05 * np.std([row["optimizer"] == "muon" for row in rows])
    assert one.name == "optimizer muon" and one.held == "optimizer adamw"
    assert one.matters_low < truth < one.matters_high and one.matters == pytest.approx(truth, rel=0.2)
    holds(found)
    (line, *_) = fit_report.account(fit([{**row, "optimizer": "sgd"} if k < 2 else row for k, row in enumerate(rows)]))
    assert says(line, "fit: a value that nothing ties")


def test_an_unknown_text_is_asked_about_and_adjusted_for_where_that_is_said():
    rows = [
        {**row, "mixer": mixer, "loss": row["loss"] + 0.2 * (mixer == "b")}
        for row in piled(40, more=batches)
        for mixer in ("a", "b")
    ]
    with pytest.raises(InputError, match="mixer") as caught:
        fit(rows)
    assert "--adjust mixer" in caught.value.option_lines[0]
    result = fit(rows, adjust=["mixer"], at={"mixer": "b"})
    assert ("mixer a", "mixer b") in [(one.name, one.held) for one in result.adjusted.columns]
    assert result.provenance.account.used == 80


# Two depths, tokens


def of_two_depths(tokens):
    """Nets of 6 and 16 layers, of which the deeper is ahead from 2.8e7 on; the batch, or the tokens, follow depth."""
    rng, rows = np.random.default_rng(0), []
    for k in range(48):
        depth = (6, 16)[k % 2]
        row = net(depth, 3e6 * 60 ** rng.random())
        n = standard(row)
        chosen = [32, 64, 128, 256][int(rng.choice(4, p=[0.4, 0.3, 0.2, 0.1][:: 1 if depth == 6 else -1]))]
        found = level(n) + 0.04 * math.log(depth / (8.0 * (n / 1e7) ** 0.2)) ** 2
        found += 0.02 * math.log(chosen / 64) * (-1 if tokens else 1) + rng.normal(0, 0.003)
        rows.append({**row, **({"tokens": chosen * 10**7} if tokens else {"batch_size": chosen}), "loss": found})
    return rows


@pytest.mark.parametrize("tokens", [False, True])
def test_two_depths_of_a_heap_have_a_crossing_at_held_values_and_no_best_depth(tokens):
    """Runs of the commonest setting alone were compared, or those of one budget."""
    true = 1e7 * (math.sqrt(6 * 16) / 8) ** 5
    result = fit(of_two_depths(tokens))
    (row,) = result.verdicts
    assert result.provenance.account.used == 48 and row.estimator == "surface" and row.status == "crossed"
    assert row.n_params_low < true < row.n_params_high < 4 * row.n_params_low
    said = fit_report.answer(result)
    assert said[0].startswith("Too early to ask for a best depth: ") and "6→16 at N = " in said[1]
    assert not result.surface.optima and not result.adjusted.equal and not result.adjusted.along_tokens
    assert not [row for row in result.answers if row.question == "best_depth"]


def points_of_one_run(counts, seed=3, runs=32, own=0.0075, moves=0.0):
    """Runs with one error of ``own`` after all ``counts`` of tokens, from which deep nets profit by ``moves``."""
    rng, rows = np.random.default_rng(5), piled(runs, seed, lambda row, rng: ({}, rng.normal(0.0, own)))
    return [
        {**row, "tokens": tokens, "loss": row["loss"] - slope * math.log(tokens / 4e9) + rng.normal(0.0, 0.0007)}
        for row, slope in ((row, 0.09 + moves * math.log(row["depth"] / 12)) for row in rows)
        for tokens in counts
    ]


def test_points_of_one_run_share_errors_and_best_depths_move_with_tokens():
    counts = [1e9, 4e9, 16e9]
    found = heap(points_of_one_run(counts, 5, 30, 0.002, 0.03), adjust=["tokens"], at={"tokens": 4e9})
    rows = found.record.along_tokens
    assert found.record.shared is not None and [row.tokens for row in rows] == counts
    assert rows[2].estimate_low > 1.0 and rows[2].estimate == pytest.approx(
        16.0**0.25, rel=0.4
    )  # 0.12·ln(L/L*) = 0.03·t
    posterior = LossSurface(found.surface).posterior
    few, many = (best_depth_interval(posterior, math.log(2e7), 0.95, {"tokens": v}).value for v in (-1.2, 1.2))
    assert many > few


# The model


def test_more_points_of_each_run_tell_no_more_of_depth():
    one, six = fit(points_of_one_run([2e9])), fit(points_of_one_run(np.geomspace(5e8, 8e9, 6)), adjust=["tokens"])
    assert 0.005 < six.adjusted.shared < 0.012 and six.adjusted.scatter < 0.002
    few, many = (LossSurface(each.surface).at(3e7) for each in (one, six))
    assert 0.8 < math.log(many.high / many.low) / math.log(few.high / few.low) < 1.25
    holds(six, [1e7, 3e7])
    assert [cell.n for cell in one.cells] == [cell.n for cell in six.cells]
    errors = [np.array([cell.se for cell in each.cells]) for each in (one, six)]
    assert 0.8 < np.median(errors[1] / errors[0]) < 1.25
    runs, held_out = len(points_of_one_run([2e9])), six.surface.held_out
    assert held_out.shapes == runs and held_out.inside >= 0.85 * runs


@pytest.mark.parametrize(("nats", "found"), [(0.0, False), (0.03, True)])
def test_more_points_of_each_run_tell_no_more_of_a_machine(nats, found):
    for seed in (1, 2, 13):  # each point for itself, losses would follow a machine that does nothing
        machine = np.random.default_rng(seed).choice(["a", "b", "c"], 32)
        rows = [
            {**row, "machine": machine[k // 5], "loss": row["loss"] + nats * (machine[k // 5] == "a")}
            for k, row in enumerate(points_of_one_run(np.geomspace(5e8, 8e9, 5), seed))
        ]
        data, tokens = read_table(rows), np.log([row["tokens"] for row in rows])
        assert (
            any("machine" in line for line in follows.sentences(data, data.rows, [tokens], ["tokens"], False)[0])
            == found
        )


def test_more_points_of_each_run_tell_no_more_of_two_recipes():
    widths = []
    for counts, adjust in (([2e9], []), ([5e8, 1e9, 2e9], ["tokens"])):
        arms = [points_of_one_run(counts, seed) for seed in (3, 4)]
        rows = [{**row, "arm": arm, "seed": 0} for arm in (0, 1) for row in arms[arm]]
        (found,) = compare_arms(rows, adjust=adjust).comparisons
        differences = [row.estimate_interval for row in found.rows if row.question == DIFFERENCE]
        assert all(one.low < 0.0 < one.high for one in differences)
        widths.append(np.median([one.high - one.low for one in differences]))
    assert 0.75 < widths[1] / widths[0] < 1.6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random-40", "drawn-40"])
def test_intervals_of_heaps_hold_their_truth(name, tmp_path):
    lines = heaps.STUDY.run(tmp_path, [name], SIMULATED)[name]
    print("\n" + heaps.STUDY.table({name: lines}))
    ends = [(end, true) for line in lines for (_, *end), true in zip(line.best, line.truth, strict=True)]
    held = np.mean([covers(*end, true) for end, true in ends])
    assert held > 0.95 - 3.0 * math.sqrt(0.05 * 0.95 / SIMULATED)


# The next runs


def test_the_next_runs_narrow_the_best_depth_and_each_more_than_the_one_before():
    found = next_runs(fitted(), 6e7, 5)
    left = [found.ln_depth_sd, *(row.ln_depth_sd for row in found.runs)]
    assert all(b < a for a, b in pairwise(left)) and left[-1] < 0.95 * left[0]
    sizes = np.geomspace(6e7 / 16, 6e7 * 1.5, 5)
    assert np.sort([row.n_params for row in found.runs]) == pytest.approx(sizes, rel=0.08)  # whole widths
    assert found.held == ("each net's best learning rate", "tokens 2B", "batch 128")
    assert found.tokens == pytest.approx(2e9)  # the commonest, at which each net is trained
    assert all(row.flops == pytest.approx(6.0 * row.n_params * 2e9) for row in found.runs)
    *_, last = adjusted_report.next_runs_parts(found)
    assert f"{found.ln_depth_sd:.3f} now, {found.runs[-1].ln_depth_sd:.3f} after all" in str(last)
    assert says(str(last), "fit: cost of the next runs")
    with pytest.raises(InputError, match=r"params: 1e\+15; allowed"):
        next_runs(fitted(), 1e15, 4)


def test_beyond_the_sizes_of_a_heap_next_runs_are_in_turn_shallower_and_deeper_than_the_best_depth():
    found = next_runs(fitted(), 5e8, 4)
    surface = LossSurface(fitted().surface)
    nets = sorted(found.runs, key=lambda one: one.n_params)
    for k, (one, n) in enumerate(zip(nets, np.geomspace(5e8 / 16, 5e8 * 1.5, 4), strict=True)):
        best_one = math.exp(float(np.median(surface.drawn_depths(math.log(n)))))
        assert one.depth == pytest.approx(best_one * (1.6 if k % 2 else 1 / 1.6), abs=1.0)
    assert found.beyond and not next_runs(fitted(), 6e7, 2).beyond


def test_the_next_runs_are_nets_that_can_be_built_at_the_held_values():
    def heads(row, rng):
        size = int(rng.choice([32, 64, 64]))
        row["width"] = max(1, round(row["width"] / size)) * size
        return {"heads": row["width"] // size, "d_ff": 2 * row["width"]}, 0.0

    result = fit(piled(36, more=heads))
    assert "head size 64" in next_runs(result, 3e7, 3).held
    # three matrices of a gated MLP: its inner width alone does not tell the weights of a layer
    gated = replace(result, nets=replace(result.nets, layer_weights=16.0))
    for weights, of in ((8.0, result), (16.0, gated)):
        for one in next_runs(of, 3e7, 3).runs:
            assert one.width % 64 == 0 and one.n_params == pytest.approx(weights * one.depth * one.width**2, rel=1e-6)
