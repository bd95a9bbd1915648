"""A heap of runs: all rows count, the answer is at held values, and what cannot be told from depth is said."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import says, shows
from shown import summary

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit import heap as heap_module
from dwsweep.fit.analysis import fit_options
from dwsweep.fit.answers import answers
from dwsweep.fit.ask import LossSurface, best_depth_interval
from dwsweep.fit.data import covariates, steps
from dwsweep.fit.data.covariates import _held as held_value
from dwsweep.fit.data.roles import is_date
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.shape import places
from dwsweep.fit.data.table import read_table
from dwsweep.fit.equal_what import equal_what
from dwsweep.fit.guideline import layer_weights
from dwsweep.fit.heap import Heap, heap_of
from dwsweep.fit.next_runs import next_runs
from dwsweep.records import fit as fit_record
from dwsweep.report import fit_report
from tests.simulations import heaps
from tests.simulations.harness import covers

pytestmark = pytest.mark.usefixtures("surfaces_again", "at_equal_size_alone")

SIMULATED = 16  # heaps of each design in the slow tier
DRAWS = 200
DEPTHS = (4, 6, 8, 12, 16, 24, 32)


def best(n: float) -> float:
    return 17.8 * (n / 3e7) ** 0.25


def piled(runs: int = 48, seed: int = 0, more: Any = lambda row, rng: ({}, 0.0)) -> list[Row]:
    """Nets of all sizes and depths. more: (further columns, nats) of a row."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(runs):
        depth, n = DEPTHS[k % len(DEPTHS)], 4e6 * 40 ** rng.random()
        width = 16 * max(2, round(math.sqrt(n / 12 / depth) / 16))
        n = 12 * depth * width**2
        row = {"depth": depth, "width": width}
        columns, nats = more(row, rng)
        loss = 1.8 + 1.9 * (n / 3e7) ** -0.14 + 0.06 * math.log(depth / best(n)) ** 2 + nats + rng.normal(0.0, 0.003)
        rows.append({**row, **columns, "loss": loss})
    return rows


def heap(rows: list[Row], **options: Any) -> Heap:
    found = heap_of(read_table(rows), fit_options(**options))
    assert found and found.surface
    return found


def fit(rows: list[Row], **options: Any) -> dwsweep.FitResult:
    return dwsweep.fit_table(rows, draws=DRAWS, **options)


def adjusted(rows: list[Row], **options: Any) -> dict[str, Any]:
    """Columns that the losses are adjusted for, by the names of the table; nothing is fitted."""
    data = read_table(rows)
    found = heap_module._found(data, heap_module._asked(data, fit_options(**options)), data.rows, False)
    return {one.column: one for one in found.columns} if found else {}


def holds(found: Heap | dwsweep.FitResult, sizes: tuple[float, ...] = (1e7, 3e7, 6e7)) -> None:
    surface = LossSurface(found.surface)  # type: ignore[arg-type]
    for n in sizes:
        depth = surface.at(n)
        assert depth.low and depth.high and depth.low * 0.97 < best(n) < depth.high * 1.03, (n, depth)
        assert depth.high / depth.low < 2.2


def batches(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
    batch, tokens = int(rng.choice([64, 128, 128, 256])), float(rng.choice([1e9, 2e9, 2e9, 4e9]))
    return {"batch_size": batch, "tokens": tokens}, 0.03 * math.log(batch / 128) - 0.09 * math.log(tokens / 2e9)


def rated(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
    """Learning rates too, whose curve takes as long as all else."""
    columns, nats = batches(row, rng)
    rate = 1.2e-3 * math.exp(rng.uniform(-1.2, 1.2))
    far = math.log(rate / (1.2e-3 * (512 / row["width"]) ** 0.8))
    return {**columns, "learning_rate": float(f"{rate:.3g}")}, nats + 0.05 * far**2


@cache
def fitted() -> dwsweep.FitResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap_module, "equal_what", equal_what)  # next runs have its tokens
        return dwsweep.fit_table(piled(60, more=rated), draws=DRAWS)


@cache
def plain() -> Heap:
    return heap(piled(60, more=batches))


def test_all_rows_of_a_heap_count_and_give_the_truth() -> None:
    assert fitted().adjusted.runs == 60
    holds(fitted())


def test_one_impossible_loss_of_a_heap_is_named_and_left_out() -> None:
    """Of 60 runs one loss of 1 nat too much stayed in, unsaid: its own error widened the scatter that judged it."""
    rows = piled(60, more=batches)
    rows[17]["loss"] -= 0.2
    found = heap(rows)
    assert [one.rows for one in found.data.account if one.why.startswith("have an impossible loss (")] == [1]
    assert found.surface == heap([*rows[:17], *rows[18:]]).surface


def test_the_first_lines_say_what_is_held() -> None:
    first, second = fit_report.account(fitted())[:2]
    assert shows(first, "fit: all rows of a heap used", numbers=True)
    assert shows(second, "fit: held settings of a heap", numbers=True)


def test_the_rate_is_a_curve_whose_best_point_follows_the_width() -> None:
    rates = fitted().adjusted.rates
    assert [row.depth for row in rates] == list(DEPTHS)
    for row in rates:
        width = math.sqrt(row.n_params / 12 / row.depth)
        truth = 1.2e-3 * (512 / width) ** 0.8
        assert row.learning_rate and abs(math.log(row.learning_rate / truth)) < 0.25
    assert max(row.cost for row in rates) < 0.05 and min(row.cost for row in rates) >= 0.0


def test_the_best_rate_follows_the_width_and_not_the_size_where_inner_widths_differ() -> None:
    """Nets of a depth and size are narrower by a fifth at d_ff / d = 4: best rates came out 6 to 8 % too high."""

    def wide(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        ratio = (2.0, 2.0, 4.0)[int(rng.integers(3))]
        columns, nats = rated(row, rng)
        n, old = row["depth"] * row["width"] ** 2 * (4.0 + 2.0 * ratio), 12 * row["depth"] * row["width"] ** 2
        nats += 1.9 * (n / 3e7) ** -0.14 + 0.06 * math.log(row["depth"] / best(n)) ** 2
        nats -= 1.9 * (old / 3e7) ** -0.14 + 0.06 * math.log(row["depth"] / best(old)) ** 2
        return {**columns, "d_ff": round(ratio * row["width"])}, nats

    missed = 0
    for row in heap(piled(60, seed=5, more=wide)).record.rates:
        truth = 1.2e-3 * (512 / math.sqrt(row.n_params / 8 / row.depth)) ** 0.8
        assert row.learning_rate and abs(math.log(row.learning_rate / truth)) < 0.08
        missed += not (row.learning_rate_low or 0.0) < truth < (row.learning_rate_high or math.inf)
    assert missed <= 1


def test_best_rates_that_were_not_tried_are_said_to_lie_outside() -> None:
    def low(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        rate = 2e-4 * math.exp(rng.uniform(-1.0, 1.0))
        far = math.log(rate / (1.2e-3 * (512 / row["width"]) ** 0.8))
        return {"learning_rate": float(f"{rate:.3g}")}, 0.05 * far**2

    said = heap(piled(60, more=low)).record.sentences[1]
    assert said.startswith("OUTSIDE WHAT WAS TRIED: the best learning rate of 7 of 7 depths lies above the rates tried")
    assert not any("OUTSIDE" in line for line in fitted().adjusted.sentences)


def test_a_rate_that_is_asked_for_is_held_there() -> None:
    column = adjusted(piled(60, more=rated), at={"learning_rate": 1.2e-3})["learning_rate"]
    assert column.kind == "number" and column.held == 1.2e-3


def test_a_value_that_was_not_tried_is_said_to_lie_outside() -> None:
    found = heap(piled(36, more=batches), at={"batch_size": 384})
    assert says(found.record.sentences, "fit: a value not tried")
    assert not any("OUTSIDE" in line for line in fitted().adjusted.sentences)


def test_what_a_column_matters_is_its_effect() -> None:
    batch = next(one for one in fitted().adjusted.columns if one.name == "batch")
    spread = np.std([math.log(row["batch_size"]) for row in piled(60, more=rated)])
    assert batch.matters == pytest.approx(0.03 * spread, rel=0.25)
    assert batch.matters_low < batch.matters < batch.matters_high


def test_a_fit_reads_back_with_the_same_answers() -> None:
    kept = fit_record.reader.parse(fit_record.FitResult, __import__("json").loads(fitted().to_json()))
    assert kept.adjusted == fitted().adjusted
    assert LossSurface(kept.surface).at(3e7) == LossSurface(fitted().surface).at(3e7)  # type: ignore[arg-type]


def test_settings_that_a_tracker_keeps_in_sections_are_read_without_them() -> None:
    def more(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        (first, a), (second, b) = rated(row, rng), optimizers(row, rng)
        return {**first, **second}, a + b

    rows = piled(60, more=more)
    names = {name: f"config.{name}" for name in ("batch_size", "optimizer", "depth", "width")}
    names |= {"learning_rate": "config.optim.lr"}
    exported = [{names.get(name, name): value for name, value in row.items()} for row in rows]
    assert set(adjusted(rows)) == {"batch_size", "tokens", "learning_rate", "optimizer"}
    own = {"config.batch_size", "tokens", "learning_rate", "config.optimizer"}
    assert set(adjusted(exported)) == own
    assert set(adjusted(exported, no_adjust=["batch_size"])) == own - {"config.batch_size"}


def test_a_number_that_nobody_knows_is_adjusted_for_unasked() -> None:
    def decays(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        value = float(rng.choice([0.1, 0.2, 0.4]))
        return {"z_weight": value}, 0.02 * math.log(value / 0.2)

    rows = piled(48, more=decays)
    (column,) = heap(rows).record.columns
    assert column.name == "z weight" and column.held.startswith("z weight 0.")
    assert column.matters == pytest.approx(0.02 * np.std([math.log(row["z_weight"]) for row in rows]), rel=0.3)


NOT_CHOSEN = {
    "run_number": lambda k, rng: k,
    "generation": lambda k, rng: k // 6,
    "trial": lambda k, rng: 3 * (k // 3),
    "job_array": lambda k, rng: k // 4,
    "date": lambda k, rng: 20260101 + k // 5 * 7,
    "start": lambda k, rng: 1.7e9 + 86400 * (k // 5),
    "year": lambda k, rng: 2019 + 2 * (k // 20),
    "train_loss": lambda k, rng: round(2.0 + rng.normal(0, 0.03), 2),
    "final_grad_norm": lambda k, rng: round(1.0 + abs(rng.normal(0, 0.4)), 1),
    "tok/s": lambda k, rng: 1000 * round(50 + rng.normal(0, 3)),
    "samples_per_second": lambda k, rng: round(50 + rng.normal(0, 5)),
    "peak_memory": lambda k, rng: round(9 + rng.normal(0, 1.5)),
    "hellaswag": lambda k, rng: round(0.4 + rng.normal(0, 0.02), 2),
    "n_gpus": lambda k, rng: int(rng.choice([1, 2, 4, 8])),
}


@pytest.mark.parametrize("name", NOT_CHOSEN)
def test_what_nobody_chose_is_not_adjusted_for_unasked(name: str) -> None:
    rng = np.random.default_rng(5)
    rows = [{**row, name: NOT_CHOSEN[name](k, rng)} for k, row in enumerate(piled(48))]
    assert heap_of(read_table(rows), fit_options()) is None


def test_a_number_of_which_each_shape_has_one_value_follows_the_shape_and_that_is_said() -> None:
    rng = np.random.default_rng(2)
    rows = []
    for row in piled(24, more=batches):
        own = {"patience": int(np.random.default_rng(row["depth"] * 10000 + row["width"]).choice([10, 20, 40]))}
        rows += [{**row, **own, "loss": row["loss"] + rng.normal(0.0, 0.003)} for _ in range(2)]
    record = heap(rows).record
    assert "patience" not in {one.name for one in record.columns}
    assert says(record.sentences, "fit: a column follows the shape")


@pytest.mark.parametrize(
    ("counts", "held"), [((192, 183, 175, 172), 1.0), ((300, 220, 215, 210), 0.5), ((8, 6, 6), 1.0)]
)
def test_the_commonest_value_is_held_and_of_those_as_common_by_chance_the_middle_one(counts: Any, held: float) -> None:
    values = np.repeat([0.5, 1.0, 1.5, 2.0][: len(counts)], counts)
    assert held_value("d_ff / d", values, None)[0] == held


def test_of_inner_widths_as_common_the_one_of_least_loss_is_held_and_the_first_lines_say_the_others() -> None:
    """Nets of wider inner layers are best shallower, by a quarter from 0.5 to 2."""

    def inner(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        ratio = (0.5, 1.0, 2.0)[int(rng.integers(3))]
        n, old = row["depth"] * row["width"] ** 2 * (4.0 + 2.0 * ratio), 12 * row["depth"] * row["width"] ** 2
        moved = math.log(row["depth"] / best(n)) + 0.2 * math.log(ratio)
        nats_of = 1.9 * (n / 3e7) ** -0.14 + 0.06 * moved**2 - 0.05 * math.log(ratio)
        given = 1.9 * (old / 3e7) ** -0.14 + 0.06 * math.log(row["depth"] / best(old)) ** 2
        return {"d_ff": round(ratio * row["width"])}, nats_of - given

    record = heap(piled(90, seed=4, more=inner)).record
    column = next(one for one in record.columns if one.name == "d_ff / d")
    assert column.held == "d_ff / d 2" and column.best
    assert [row.value for row in column.common] == [0.5, 1.0, 2.0]
    said = "of d_ff / d are about as common, and 2 has the least loss at equal size"
    assert any(said in line for line in record.sentences)
    deep, shallow = column.common[0].depth, column.common[-1].depth
    assert deep and shallow and 0.1 < math.log(deep / shallow) < 0.45


def test_of_values_as_common_the_middle_one_is_held_where_none_is_better_however_large_they_are() -> None:
    """Batches in tokens, and tokens themselves, are written as counts, and the sentence on values as common was
    missing."""

    def batch(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        size = (64, 128, 256)[int(rng.integers(3))]
        n = 12 * row["depth"] * row["width"] ** 2
        off = math.log(row["depth"] / best(n))
        return {"batch_size": 4096 * size}, 0.06 * ((off + 0.3 * math.log2(size / 128)) ** 2 - off**2)

    record = heap(piled(90, seed=4, more=batch)).record
    said = "The values 262K, 524K, 1.05M of batch are about as common, and 524K is the middle one"
    assert any(said in line for line in record.sentences), record.sentences


def test_a_whole_number_of_a_column_is_written_in_full() -> None:
    """A context of 1024 was held at 1.02e+03."""
    rows = piled(40, more=lambda row, rng: ({"seq_len": int(rng.choice([1024, 2048]))}, 0.0))
    text = fit(rows).summary()
    assert "e+03" not in text and "1024 … 2048" in text


def test_widths_are_of_nets_with_the_inner_width_that_is_held() -> None:
    """With d_ff = 2·d a layer has 8·d² weights: widths of a standard block would be smaller by a fifth."""

    def inner(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        ratio = float(rng.choice([2.0, 2.0, 2.0, 4.0]))
        of_given = math.log((2.0 + ratio) / 6.0)  # ln N less that of 12·L·d²
        n = 12.0 * row["depth"] * row["width"] ** 2
        sizes = n, n * math.exp(of_given)
        given, truth = (1.9 * (m / 3e7) ** -0.14 + 0.06 * math.log(row["depth"] / best(m)) ** 2 for m in sizes)
        return {"d_ff": round(ratio * row["width"])}, truth - given

    result = fit(piled(60, more=inner), at={"mlp_ratio": 2.0})
    crossed = [row for row in result.transitions if row.estimator == "surface" and row.width and row.n_params]
    assert crossed and result.surface
    for row in crossed:
        assert row.width == pytest.approx(math.sqrt(row.n_params / 8.0 / row.shallow), rel=1e-3)
    shown = next(row for row in result.surface.optima if row.depth)
    assert layer_weights(result, shown.depth) == pytest.approx(8.0, rel=1e-3)


def test_runs_of_several_counts_of_tokens_are_never_pooled() -> None:
    """An agent's log: shapes come again with other optimizers after other counts of tokens."""

    def tried(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        tokens, name = float(rng.choice([3e8, 6e8, 1.2e9])), str(rng.choice(["adamw", "muon"]))
        row["width"] = 64 * max(1, round(row["width"] / 64))
        return {"tokens": tokens, "opt": name}, -0.2 * math.log(tokens / 6e8) - 0.03 * (name == "muon")

    rows = piled(40, seed=3, more=tried)
    again = [{**row, "tokens": 2.0 * row["tokens"], "loss": row["loss"] - 0.2 * math.log(2.0)} for row in rows]
    assert set(adjusted(rows + again)) == {"tokens", "opt"}


# What nothing separates


def following(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
    """Heads that grow with depth, but for some."""
    wanted = 2048 / row["depth"] / 8 * math.exp(rng.normal(0, 0.15))
    size = min((8, 16, 32, 64), key=lambda one: abs(math.log(one / wanted)))
    heads = max(1, row["width"] // size)
    return {"heads": heads}, 0.0


def test_a_column_that_follows_depth_has_two_readings() -> None:
    found = heap(piled(60, seed=2, more=following))
    assert abs(next(one for one in found.record.columns if one.name == "head size").r) > 0.8
    fixed, follows = found.record.readings[2:4]
    assert fixed.value != follows.value == "follows depth" and follows.depth


def test_what_cannot_be_told_from_depth_is_said_in_the_first_lines() -> None:
    """Head sizes that halve as depth doubles, and an effect larger than the one of depth: the loss shows their sum."""

    def heads(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        wanted = math.log(640 / row["depth"]) + rng.normal(0, 0.15)
        size = min((8, 12, 16, 24, 32, 48, 64, 96, 128), key=lambda one: abs(math.log(one) - wanted))
        nats = 0.1 * math.log(size / 32) ** 2 + rng.normal(0, 0.015)
        return {"heads": max(1, round(row["width"] / size)), "head_size": size}, nats

    found = heap(piled(40, seed=4, more=heads))
    assert found.record.inseparable == ("head size",)
    (line,) = [line for line in found.record.sentences if "cannot separate depth" in line]
    assert line.startswith("Head size ") and says(line, "fit: follows depth in your nets") and "(r = −0." in line
    assert found.record.depth_left < 0.5


@pytest.mark.parametrize("name", ["wall_seconds", "flops"])
def test_a_consequence_of_the_shape_is_never_adjusted_for(name: str) -> None:
    rows = [{**row, name: 1e20 * (10.0 * row["depth"] + k % 7)} for k, row in enumerate(piled())]
    with pytest.raises(InputError, match=f"adjust: '{name}'; follows from the shape"):
        dwsweep.fit_table(rows, adjust=[name], draws=DRAWS)


def test_width_that_follows_depth_stays_one_variable() -> None:
    rows = [
        {"depth": d, "width": 64 * d, "batch_size": b, "loss": 4.0 - 0.1 * math.log(d) + 0.01 * (b == 64) + 1e-4 * k}
        for k, (d, b) in enumerate([(d, b) for d in (2, 4, 6, 8, 10, 12, 14, 16) for b in (32, 64)])
    ]
    assert heap_of(read_table(rows), fit_options()) is None


# Texts


def optimizers(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
    name = str(rng.choice(["adamw", "adamw", "muon"]))
    return {"optimizer": name}, -0.05 * (name == "muon")


def test_a_known_recipe_is_a_factor_with_an_offset() -> None:
    rows = piled(more=optimizers)
    found = heap(rows)
    (column,) = found.record.columns
    truth = 0.05 * np.std([row["optimizer"] == "muon" for row in rows])
    assert column.name == "optimizer muon" and column.held == "optimizer adamw"
    assert column.matters_low < truth < column.matters_high and column.matters == pytest.approx(truth, rel=0.2)
    holds(found)


def test_a_value_of_a_text_that_nothing_ties_is_left_out_and_said() -> None:
    rows = [{**row, "optimizer": "sgd"} if k < 2 else row for k, row in enumerate(piled(more=optimizers))]
    (line, *_) = fit_report.account(fit(rows))
    assert says(line, "fit: a value that nothing ties")


def test_an_unknown_text_is_asked_about_and_adjusted_for_where_that_is_said() -> None:
    rows = [
        {**row, "mixer": mixer, "loss": row["loss"] + 0.2 * (mixer == "b")} for row in piled(40) for mixer in ("a", "b")
    ]
    with pytest.raises(InputError, match="mixer") as caught:
        dwsweep.fit_table(rows, draws=DRAWS)
    assert "--adjust mixer" in caught.value.option_lines[0]
    result = fit(rows, adjust=["mixer"], at={"mixer": "b"})
    assert result.adjusted and result.provenance.rows_used == 80
    assert [(one.name, one.held) for one in result.adjusted.columns] == [("mixer a", "mixer b")]


# Two depths


def of_two_depths(seed: int = 0, tokens: bool = False) -> list[Row]:
    """Nets of 6 and 16 layers, of which the deeper is ahead from 2.8e7 on; the batch, or the tokens, follow depth."""
    rng, rows = np.random.default_rng(seed), []
    for k in range(48):
        depth, n = (6, 16)[k % 2], 3e6 * 60 ** rng.random()
        width = 16 * max(2, round(math.sqrt(n / 12 / depth) / 16))
        n = 12 * depth * width**2
        chosen = [32, 64, 128, 256][int(rng.choice(4, p=[0.4, 0.3, 0.2, 0.1][:: 1 if depth == 6 else -1]))]
        loss = 1.8 + 1.9 * (n / 3e7) ** -0.14 + 0.04 * math.log(depth / (8.0 * (n / 1e7) ** 0.2)) ** 2
        loss += 0.02 * math.log(chosen / 64) * (-1 if tokens else 1) + rng.normal(0, 0.003)
        more = {"tokens": chosen * 10**7} if tokens else {"batch_size": chosen}
        rows.append({"depth": depth, "width": width, **more, "loss": loss})
    return rows


@pytest.mark.parametrize("tokens", [False, True])
def test_two_depths_of_a_heap_have_a_crossing_at_held_values_and_no_best_depth(tokens: bool) -> None:
    """Runs of the commonest setting alone were compared, or those of one budget."""
    true = 1e7 * (math.sqrt(6 * 16) / 8) ** 5
    result = fit(of_two_depths(tokens=tokens))
    (row,) = result.verdicts
    assert result.provenance.rows_used == 48 and row.estimator == "surface" and row.status == "crossed"
    assert row.n_params_low < true < row.n_params_high < 4 * row.n_params_low
    said = fit_report.answer(result)
    assert said[0].startswith("Too early to ask for a best depth: ") and "6→16 at N = " in said[1]
    assert not result.surface.optima and not result.adjusted.equal and not result.adjusted.along_tokens
    assert not [row for row in answers(result) if row.question == "best_depth"]
    bare = [{name: value for name, value in row.items() if name != "batch_size"} for row in of_two_depths()]
    as_it_is = fit(bare).verdicts[0]
    assert not (as_it_is.n_params and as_it_is.n_params_low and as_it_is.n_params_low < true), "the batch hides it"


# Tokens


@cache
def lengths() -> Heap:
    """Every net after three counts of tokens; deeper nets profit more from them."""
    rng, rows = np.random.default_rng(5), []
    for row in piled(30, seed=5):
        own = rng.normal(0, 0.003)
        for tokens in (1e9, 4e9, 16e9):
            t = math.log(tokens / 4e9)
            move = -0.03 * math.log(row["depth"] / 12) * t - 0.08 * t
            rows.append({**row, "tokens": tokens, "loss": row["loss"] + own + move + rng.normal(0, 0.001)})
    return heap(rows, adjust=["tokens"], at={"tokens": 4e9})


def test_points_of_one_run_share_errors_and_best_depths_move_with_tokens() -> None:
    found = lengths()
    assert found.record.shared is not None
    after = found.record.along_tokens
    assert [round(row.tokens / 1e9) for row in after] == [1, 4, 16]
    assert after[2].estimate_low and after[2].estimate_low > 1.0
    # 0.12·ln(L/L*) = 0.03·t
    assert math.log(after[2].estimate or 0) == pytest.approx(0.03 / 0.12 * math.log(16), abs=0.35)


def recipes(moves: float) -> Heap:
    """Every net after three counts of tokens by two recipes; deeper nets profit from tokens by the first alone, or
    ``moves`` times as much by the second."""
    rng, rows = np.random.default_rng(6), []
    for recipe, gain in (("cooled", 1.0), ("constant", moves)):
        for row in piled(20, seed=6):
            own = rng.normal(0, 0.002)
            for tokens in (1e9, 4e9, 16e9):
                t = math.log(tokens / 4e9)
                more = -0.03 * gain * math.log(row["depth"] / 12) * t - 0.08 * t + 0.04 * (recipe == "constant")
                loss = row["loss"] + own + more + rng.normal(0, 0.001)
                rows.append({**row, "tokens": tokens, "recipe": recipe, "loss": loss})
    return heap(rows, adjust=["tokens", "recipe"], at={"recipe": "cooled"})


def test_recipes_that_disagree_on_tokens_are_named_with_the_trend_of_each() -> None:
    found = recipes(moves=-1.0).record
    assert found.tokens_disagree == ("recipe constant",)
    assert says(found.sentences, "fit: recipes disagree on tokens")
    of = {name: [row for row in found.along_tokens if row.arm == name] for name in ("recipe cooled", "recipe constant")}
    assert all([round(row.tokens / 1e9) for row in rows] == [1, 4, 16] for rows in of.values())
    for name, sign in (("recipe cooled", 1.0), ("recipe constant", -1.0)):
        last = of[name][-1]
        truth = math.exp(sign * 0.03 / 0.12 * math.log(16))
        assert last.estimate_low and last.estimate_high
        assert last.estimate_low * 0.9 < truth < last.estimate_high * 1.1


@pytest.mark.slow
def test_recipes_that_agree_on_tokens_are_not_said_to_disagree() -> None:
    assert recipes(moves=1.0).record.tokens_disagree == ()


# Nothing differs, or it does not matter


def test_a_grid_without_settings_is_no_heap() -> None:
    assert heap_of(read_table(piled()), fit_options()) is None


def test_a_heap_learns_whether_its_losses_depart_from_every_form_and_whether_settings_interact() -> None:
    """Narrower intervals where nothing departs, and the effects that are there otherwise."""

    def departing(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        columns, nats = batches(row, rng)
        return columns, nats + 0.012 * math.sin(4.0 * math.log(row["depth"]))

    def interacting(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        columns, nats = batches(row, rng)
        return columns, nats + 0.03 * math.log(columns["batch_size"] / 128) * math.log(row["depth"] / 12)

    def learnt(found: Heap) -> tuple[float, float]:
        posterior = LossSurface(found.surface).posterior  # type: ignore[arg-type]
        return tuple(float(np.exp(np.median(posterior.stacked(name)))) for name in ("share", "interact"))  # type: ignore[return-value]

    smooth = learnt(plain())
    assert smooth[0] < 0.08 and smooth[1] < 0.1
    assert learnt(heap(piled(60, more=departing)))[0] > 2.0 * smooth[0]
    assert learnt(heap(piled(60, more=interacting)))[1] > 2.0 * smooth[1]


def shapes_once(rows: list[Row]) -> list[Row]:
    """The first row of each shape: no column differs within one."""
    return list({(row["depth"], row["width"]): row for row in reversed(rows)}.values())


def confounded(name: str) -> Any:
    """Batches, and two columns that follow depth in part, a text and a draw of a random search: ``name`` moves the
    loss, the other one does nothing."""

    def more(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        columns, nats = batches(row, rng)
        y = math.log(row["depth"] / 11.3)
        second = bool(rng.random() < 1.0 / (1.0 + math.exp(-2.0 * y)))
        drawn = 0.02 * math.exp(0.5 * y + 0.4 * rng.standard_normal())
        effects = {"mix": 0.05 * second, "init_std": 0.03 * math.log(drawn / 0.02)}
        return {**columns, "mix": "web" if second else "books", "init_std": round(drawn, 5)}, nats + effects[name]

    return more


@pytest.mark.parametrize(("name", "idle"), [("mix", "init_std"), ("init_std", "mix")])
def test_a_column_that_losses_follow_though_nothing_adjusts_for_it_is_said_first(name: str, idle: str) -> None:
    """And none that they do not follow."""
    rows = shapes_once(piled(60, more=confounded(name)))
    said = heap(rows).record.sentences
    assert said[1].startswith(f"NOT ADJUSTED FOR: {name} (") and f"--adjust {name}" in said[1]
    assert not any(f"NOT ADJUSTED FOR: {idle}" in line for line in said)
    asked = heap(rows, adjust=[name])
    assert not any("NOT ADJUSTED" in line for line in asked.record.sentences)
    holds(asked)
    if name == "mix":
        assert not any("NOT ADJUSTED" in line for line in heap(rows, no_adjust=[name]).record.sentences)


def test_beside_a_grid_too_a_column_that_losses_follow_is_said() -> None:
    def drawn(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        value = 0.02 * math.exp(0.5 * math.log(row["depth"] / 11.3) + 0.4 * rng.standard_normal())
        return {"init_std": round(value, 5)}, 0.03 * math.log(value / 0.02)

    rows = shapes_once(piled(60, more=drawn))
    assert any("NOT ADJUSTED FOR: init_std" in line for line in fit_report.account(fit(rows)))


def test_round_counts_of_the_size_of_a_time_since_1970_are_counts() -> None:
    assert not is_date([1e9, 2e9, 4e9]) and not is_date([8e8, 1.5e9, 3.2e9])
    assert is_date([1764115200, 1764201600]) and is_date([1764115200000, 1764201600123]) and is_date([2024, 2025])

    def counted(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        columns, nats = rated(row, rng)
        place = int(np.clip(round(1 + 0.8 * math.log(row["depth"] / 11.3) + 0.5 * rng.standard_normal()), 0, 2))
        value = (1e9, 2e9, 4e9)[place]
        return {"learning_rate": columns["learning_rate"], "toks": value}, nats - 0.09 * math.log(value / 2e9)

    assert "toks" in adjusted(shapes_once(piled(60, more=counted)))


def test_no_adjust_lets_a_column_be() -> None:
    assert set(adjusted(piled(more=rated), no_adjust=["batch_size"])) == {"learning_rate", "tokens"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adjust": ["nothing"]}, "adjust: 'nothing'; not in the table"),
        ({"at": {"batch_size": 4096}}, "at: batch=4096; allowed: from 32 to 512"),
        ({"at": "batch_size"}, "at: 'batch_size'; give column=value"),
        ({"adjust": ["batch_size"], "no_adjust": ["batch_size"]}, "also adjusted for"),
        ({"axis": "flops", "at": {"batch_size": 64}}, "axis: flops; allowed with adjust and at: n_params"),
        ({"at_tokens": 3e9, "at": {"tokens": 1e9}}, "at_tokens: 3e.09; not allowed with at tokens="),
        ({"at": ["tokens=1e9", "tokens=2e9"]}, "at: tokens=1000000000.0 and tokens=2000000000.0; one answer holds one"),
        ({"at": ["batch=64", "batch_size=128"]}, "at: batch=64 and batch_size=128; one answer holds one value"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line(options: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        dwsweep.fit_table(piled(more=batches), draws=DRAWS, **options)


def test_the_next_runs_narrow_the_best_depth_and_each_more_than_the_one_before() -> None:
    found = next_runs(fitted(), 1.5e8, 4)
    left = [found.ln_depth_sd, *(row.ln_depth_sd for row in found.runs)]
    assert len(found.runs) == 4 and all(b < a for a, b in pairwise(left)) and left[-1] < 0.95 * left[0]
    assert all(1.5e8 / 25 < row.n_params < 1.5e8 * 1.8 for row in found.runs)
    assert found.held == ("each net's best learning rate", "tokens 2B", "batch 128")


def test_the_next_runs_have_sizes_at_even_steps_and_the_output_says_their_cost() -> None:
    from dwsweep.report import adjusted_report

    found = next_runs(fitted(), 6e7, 5)
    sizes = np.geomspace(6e7 / 16, 6e7 * 1.5, 5)
    assert np.sort([row.n_params for row in found.runs]) == pytest.approx(sizes, rel=0.05)
    assert found.tokens == pytest.approx(2e9)  # the commonest, at which each net is trained
    assert all(row.flops == pytest.approx(6.0 * row.n_params * 2e9) for row in found.runs)
    *_, last = adjusted_report.next_runs_parts(found)
    assert f"{found.ln_depth_sd:.3f} now, {found.runs[-1].ln_depth_sd:.3f} after all" in str(last)
    assert says(str(last), "fit: cost of the next runs")
    alone = replace(fitted(), adjusted=replace(fitted().adjusted, equal=()))  # of a heap without an effect of depth
    assert next_runs(alone, 6e7, 5).tokens == pytest.approx(2e9)  # 20 for each parameter, beside "at tokens 2B"
    (net,) = next_runs(fitted(), 6e7, 1).runs
    assert net.n_params == pytest.approx(6e7, rel=0.05)


def test_beyond_the_sizes_of_a_heap_next_runs_are_in_turn_shallower_and_deeper_than_the_best_depth() -> None:
    found = next_runs(fitted(), 5e8, 4)
    surface = LossSurface(fitted().surface)  # type: ignore[arg-type]
    nets = sorted(found.runs, key=lambda net: net.n_params)
    for k, (net, n) in enumerate(zip(nets, np.geomspace(5e8 / 16, 5e8 * 1.5, 4), strict=True)):
        best_one = math.exp(float(np.median(surface.drawn_depths(math.log(n)))))
        assert net.depth == pytest.approx(best_one * (1.6 if k % 2 else 1 / 1.6), abs=1.0)
    assert found.beyond and not next_runs(fitted(), 6e7, 2).beyond


def test_the_next_runs_are_nets_that_can_be_built_at_the_held_values() -> None:
    def heads(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        size = int(rng.choice([32, 64, 64]))
        heads = max(1, round(row["width"] / size))
        row["width"] = heads * size
        return {"heads": heads, "d_ff": 2 * row["width"]}, 0.0

    found = next_runs(fit(piled(36, more=heads)), 3e7, 3)
    assert "head size 64" in found.held
    for net in found.runs:
        assert net.width % 64 == 0 and net.n_params == pytest.approx(8.0 * net.depth * net.width**2, rel=1e-6)


def test_a_size_far_outside_a_table_is_refused_a_proposal() -> None:
    with pytest.raises(InputError, match=r"params: 1e\+15; allowed"):
        next_runs(fitted(), 1e15, 4)


def test_the_loss_has_no_corner_at_the_largest_size_and_less_is_known_beyond() -> None:
    """A level that bends: beyond the sizes tried the loss goes on along its slope, and within its error."""

    def bent(n: float) -> float:
        return 0.03 * math.sin(0.8 * math.log(n / 3e7))

    def level(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
        columns, nats = batches(row, rng)
        return columns, nats + bent(12 * row["depth"] * row["width"] ** 2)

    posterior = LossSurface(heap(piled(60, more=level)).surface).posterior  # type: ignore[arg-type]
    edge, step = posterior.frame.high, 0.02
    inside, at, outside = (posterior.level(edge + k * step).mean() for k in (-1, 0, 1))
    assert (outside - at) / step == pytest.approx((at - inside) / step, abs=0.01)
    sds = [posterior.level(edge + away).std() for away in (0.0, 0.5, 1.0, 2.0)]
    assert sds == sorted(sds) and sds[-1] > 3.0 * sds[0]
    for away in (0.3, 0.7, 1.1):
        n = math.exp(edge + away)
        truth = 1.8 + 1.9 * (n / 3e7) ** -0.14 + bent(n)
        drawn = posterior.predict(np.array([edge + away]), np.array([math.log(best(n))]))[:, 0]
        assert abs(truth - np.median(drawn)) < 2.5 * drawn.std() + 0.002


def test_losses_beyond_the_sizes_follow_the_best_nets_and_not_the_nets_of_one_depth() -> None:
    """The best net's loss is a power law, at one depth it bends upwards as the best depth moves away from it."""
    posterior = LossSurface(fitted().surface).posterior  # type: ignore[arg-type]
    for factor, most in ((2.0, 0.01), (10.0, 0.03)):
        n = factor * math.exp(posterior.frame.high)
        drawn = posterior.predict(np.array([math.log(n)]), np.array([math.log(best(n))]))[:, 0]
        low, middle, high = np.quantile(drawn, [0.025, 0.5, 0.975])
        truth = 1.8 + 1.9 * (n / 3e7) ** -0.14
        assert low < truth < high and abs(middle - truth) < most, (factor, low, middle, high, truth)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random-40", "drawn-40"])
def test_intervals_of_heaps_hold_their_truth(name: str, tmp_path: Path) -> None:
    lines = heaps.STUDY.run(tmp_path, [name], SIMULATED)[name]
    print("\n" + heaps.STUDY.table({name: lines}))
    ends = [(end, true) for line in lines for (_, *end), true in zip(line.best, line.truth, strict=True)]
    held = np.mean([covers(*end, true) for end, true in ends])
    assert held > 0.95 - 3.0 * math.sqrt(0.05 * 0.95 / SIMULATED)


def test_the_best_depth_at_another_value_is_a_question() -> None:
    posterior = LossSurface(lengths().surface).posterior  # type: ignore[arg-type]
    a, b = (best_depth_interval(posterior, math.log(2e7), 0.95, {"tokens": v}).value for v in (-1.2, 1.2))
    assert a and b and b > a


def test_no_sentence_of_a_heap_in_bits_is_in_nats() -> None:
    rows = [{**row, "loss": row["loss"] / math.log(2.0)} for row in piled(more=rated)]
    found = fit(rows, unit="bits")
    assert any("bits (at most" in line for line in found.adjusted.sentences)
    assert "nats" not in summary(found).replace("alternatives", "")


def test_a_step_per_run_is_a_length_of_training() -> None:
    """Deep nets that were stopped early under ``global_step``: 16.8 layers for 22.6, and nothing said."""

    def stopped(row: Row, rng: Any) -> tuple[Row, float]:
        step = 9000 if row["depth"] >= 16 and rng.random() < 0.6 else 20_000
        return {"global_step": step}, -0.1 * math.log(step / 20_000)

    found = heap(piled(60, 1, stopped))
    assert [one.column for one in found.record.columns] == ["global_step"]
    assert found.record.columns[0].held == "steps 20K"
    holds(found, (1e7, 3e7))


def test_rates_that_every_shape_swept_are_no_average_where_the_batch_varies_too() -> None:
    """2.9 layers (below 3.5) for 4.5: the rates of each shape were averaged beside another covariate."""
    rows, rng = [], np.random.default_rng(0)
    for row in piled(28, 3, lambda row, rng: ({"batch": int(rng.choice([64, 128, 256]))}, 0.0)):
        top = 1.2e-3 * (512 / row["width"]) ** 0.8
        for rate in (3e-4, 1e-3, 3e-3):
            n = 12 * row["depth"] * row["width"] ** 2
            off = 0.04 * math.log(rate / top) ** 2 + 0.02 * math.log(row["batch"] / 128) + rng.normal(0.0, 0.003)
            loss = 1.8 + 1.9 * (n / 3e7) ** -0.14 + 0.06 * math.log(row["depth"] / best(n)) ** 2 + off
            rows.append({**row, "learning_rate": rate, "loss": loss})
    found = heap(rows)
    assert {one.column for one in found.record.columns} == {"batch", "learning_rate"}
    holds(found, (1e7, 3e7))


def test_one_crashed_row_makes_no_curves_of_runs_at_other_rates() -> None:
    """Rows of other rates were read as earlier points of a run that crashed."""
    rows = piled(40, 4, lambda row, rng: ({"learning_rate": 1e-3, "iter_num": 5000, "lr": rng.random() * 1e-4}, 0.0))
    crashed = {**rows[7], "learning_rate": 3e-3, "iter_num": 1200, "loss": rows[7]["loss"] + 0.9}
    assert (
        steps.curves([*rows, crashed], list(rows[0]), ()) is None
        or len(steps.curves([*rows, crashed], list(rows[0]), ())[1]) == len(rows) + 1
    )


def test_a_rate_that_was_logged_is_another_number_than_the_chosen_one() -> None:
    rows = piled(40, 5, lambda row, rng: ({"learning_rate": float(rng.choice([5e-4, 1e-3, 2e-3])), "lr": 1e-5}, 0.0))
    del rows[3]["learning_rate"]
    found = covariates.find(rows, *places(rows), covariates.request((), (), {}, {}, {}))
    rate = next(one for one in found.columns if one.column == "learning_rate")
    assert len(found.rows) == 39 and rate.low == 5e-4 and found.left_out == {("have no learning rate", ""): 1}


def test_the_machine_that_losses_follow_is_named() -> None:
    """H100s that saw more tokens than A100s and trained shallow nets: "no effect of depth", and nothing said."""

    def placed(row: Row, rng: Any) -> tuple[Row, float]:
        fast = (rng.random() < 0.8) == (row["depth"] < 14)
        return {"gpu_type": "H100" if fast else "A100", "cluster": "eu"}, -0.07 * fast

    notes = fit(piled(56, 6, placed)).provenance.account.notes
    assert any("NOT ADJUSTED FOR: gpu_type" in note and "gpu_type follows depth" in note for note in notes)
    assert not any("cluster" in note for note in notes)
