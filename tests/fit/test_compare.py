"""Two arms held against each other: what they share, ratios of transitions and best depths, loss differences."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import report_sweeps
from bowls import level, net, standard
from report_sweeps import write_csv
from sentences import says, shows

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit.arms import compare_arms, ratio
from dwsweep.fit.pairing import pair_arms, same_documents
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.interval import Interval
from dwsweep.records import fit as fit_record
from dwsweep.records.answers import BEST_DEPTH, DIFFERENCE, RATIO, TRANSITION, UNCHANGED
from dwsweep.report import page as sweep_page
from tests.simulations.arms import STUDY, Drawn, TwoArms, draw_arms, fitted, summarise, true_change
from tests.simulations.harness import CONFIDENCE
from tests.simulations.sweeps import SmoothTruth

SIX_SIZES = tuple(np.geomspace(1.0e6, 1.0e8, 6))
MOVED = TwoArms(factor=1.5)
SMALL = TwoArms(SmoothTruth((6, 12)), budgets=SIX_SIZES)  # too small for a loss surface, which takes most of the time


def tables(scenario, seed=0):
    return [drawn.rows for drawn in draw_arms(scenario, np.random.default_rng(seed))]


def compare(base, *others, **options):
    """The first comparison."""
    return compare_arms(base, others, **options).comparisons[0]


@pytest.fixture(scope="module")
def compared():
    base, other = tables(MOVED)
    return compare_arms(base, [other])


def test_arms_read_back_from_a_file_have_the_same_draws(compared, tmp_path):
    """A column of an arm was shrunk towards zero once it had been in a file, and towards least squares before."""
    fit_record.write(compared, tmp_path)
    for setting in (None, {"arm " + compared.comparisons[0].arm: 1.0}):
        one, two = (LossSurface(fit.surface, setting=setting) for fit in (compared, fit_record.read(tmp_path)))
        assert one.posterior is not two.posterior
        assert np.array_equal(one.losses(math.log(1e7))[1], two.losses(math.log(1e7))[1])


# The interval of a ratio


def test_a_bound_against_a_bound_is_a_bound():
    crossed, not_reached = Interval(10.0, 9.9, 10.2), Interval(None, 12.0, None)
    found = ratio(crossed, not_reached, None, CONFIDENCE)
    assert found.value is None and found.high is None and found.low == pytest.approx(math.exp(12.0 - 10.2))
    back = ratio(not_reached, crossed, None, CONFIDENCE)
    assert back.low is None and back.high == pytest.approx(math.exp(10.2 - 12.0))


def losses(found):
    return found.of(DIFFERENCE)


def assert_ratios_are_those_of_the_fit(result):
    """Best depths of 18.14 and 18.64 stood beside a ratio of 1.001: each came from a model of its own."""
    surface, (found,) = LossSurface(result.surface), result.comparisons
    of = {(row.arm, row.n_params): row for row in found.of(BEST_DEPTH)}
    for row in found.of(RATIO, BEST_DEPTH):
        base, other, at = (
            *(of[arm, row.n_params] for arm in (found.base, found.arm)),
            surface.optimum(math.log(row.n_params)),
        )
        assert (base.depth, base.depth_low, base.depth_high) == pytest.approx((at.depth, at.depth_low, at.depth_high))
        if row.estimate is not None:
            assert row.estimate == pytest.approx(other.depth / base.depth) and row.estimate in row.estimate_interval


# What is shared


@pytest.mark.parametrize(("shared", "low", "high"), [(0.8, 0.65, 0.9), (0.0, -0.2, 0.2)])
def test_what_the_arms_share_is_found(shared, low, high):
    found = []
    for seed in range(3):
        a, b = (fitted(d, "A") for d in draw_arms(TwoArms(shared=shared), np.random.default_rng(seed)))
        pairing = pair_arms(a, b)
        own = [curves.covariance.diagonal for curves in (a.curves, b.curves)]
        found.append(pairing.runs.mean() / math.sqrt(own[0].mean() * own[1].mean()))
        assert len(pairing.cells) == 24
    assert low < np.mean(found) < high


def test_documents_are_shared_where_both_arms_were_evaluated_on_the_same():
    scenario = TwoArms(documents=100, sigma=1e-4, seed_sd=0.0, text_sd=0.06, budgets=SIX_SIZES)
    drawn = draw_arms(scenario, np.random.default_rng(1))
    a, b = (fitted(one, "A") for one in drawn)
    other_set = replace(b, held_out=b.held_out._replace(tokens=2 * np.ones(100)))
    other_seeds = fitted(Drawn([{**row, "seed": row["seed"] + 10} for row in drawn[1].rows], drawn[1].documents), "A")
    same, apart, unpaired = (pair_arms(a, one) for one in (b, other_set, other_seeds))
    assert unpaired.how.startswith("unpaired but for 100 held-out documents") and not unpaired.runs.any()
    assert "100 held-out documents" in same.how and "documents" not in apart.how
    of_means = [arm.curves.covariance for arm in (a, b)]
    total = sum(one.diagonal.sum() + (one.factors**2).sum() for one in of_means) / 2
    i, j = np.array(same.cells).T
    assert same_documents(a, b)[i, j].sum() > 0.9 * total  # what documents add to all shapes is most of it


def test_a_table_against_itself_differs_by_nothing_and_against_other_seeds_is_not_paired():
    base, other = tables(SMALL)
    found = compare(base, base)
    assert all(row.estimate == pytest.approx(1.0, abs=0.01) for row in found.of(RATIO, TRANSITION))
    assert all(abs(row.estimate) < 1e-4 and 0.0 in row.estimate_interval for row in losses(found))
    assert {row.reason for row in (*found.of(RATIO), *losses(found))} == {UNCHANGED}
    shifted = compare(base, [{**row, "seed": row["seed"] + 10} for row in other])
    assert shifted.pairing.startswith("unpaired: ") and says(shifted.pairing, "fit: no seed in both")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "studies"), [("same", 16), ("moved by 1.5", 10)])
def test_changes_between_arms_are_covered(name, studies):
    """And best depths of arms that are alike have narrower ratios than those of two sweeps."""
    rows = [row for index in range(studies) for row in STUDY.one(name, index).rows]
    found = {kind: summarise(rows, kind) for kind in (TRANSITION, BEST_DEPTH, DIFFERENCE)}
    assert all((one["coverage"] or 0.0) >= 0.85 for one in found.values())
    changed = found[TRANSITION]["changed"] or 0.0
    assert changed <= 0.12 if name == "same" else changed >= 0.9
    assert name != "same" or found[BEST_DEPTH]["wide"] < 0.16


# Recipes in a heap


def heap_of_arms(seed=0, runs=45):
    """Two recipes whose best depths part by 1.5; the batch, which costs 0.05 nats per unit of its logarithm, follows
    depth in the second alone. Wings of the loss are kinked, as no form of the fit has them."""
    rng, rows = np.random.default_rng(seed), []
    for arm, factor in (("plain", 1.0), ("gated", 1.5)):
        for _ in range(runs):
            depth = int(rng.choice([3, 4, 6, 8, 12, 16, 24, 32]))
            row = net(depth, 4e6 * 50 ** rng.random())
            n = standard(row)
            chances = [0.25] * 4 if arm == "plain" else [0.0, 0.2, 0.3, 0.5] if depth > 8 else [0.5, 0.3, 0.2, 0.0]
            batch = int(rng.choice([32, 64, 128, 256], p=chances))
            loss = level(n) + wing(n, depth, factor) - 0.03 * (arm == "gated") + 0.05 * math.log(batch / 64)
            rows.append({"arm": arm, **row, "batch_size": batch, "loss": loss + rng.normal(0.0, 0.004)})
    return rows


def wing(n, depth, factor):
    return 0.05 * (math.sqrt(1.0 + 4.0 * math.log(depth / (10.0 * factor * (n / 3e7) ** 0.25)) ** 2) - 1.0)


@cache
def of_heap(**at):
    return compare_arms(heap_of_arms(), at=at or None)


def test_arms_of_a_heap_are_compared_at_held_values():
    result = of_heap()
    (found,) = result.comparisons
    assert found.pairing.startswith("both at batch ") and result.provenance.account.used == 90
    ratios = [row for row in found.of(RATIO, BEST_DEPTH) if row.estimate_interval.bounded]
    assert len(ratios) >= 5 and all(1.5 in row.estimate_interval for row in ratios)
    truths = [wing(row.n_params, row.depth, 1.5) - wing(row.n_params, row.depth, 1.0) - 0.03 for row in losses(found)]
    assert np.mean([truth in row.estimate_interval for row, truth in zip(losses(found), truths, strict=True)]) >= 0.8
    assert_ratios_are_those_of_the_fit(result)


def test_a_comparison_of_a_heap_holds_the_value_that_is_asked_for():
    """The loss at another batch moves by as much in both arms, and no difference does."""
    (usual,), (found,) = of_heap().comparisons, of_heap(batch_size=256).comparisons
    assert found.pairing == "both at batch 256"
    held = float(usual.pairing.split()[-1])
    pairs = list(zip(losses(usual), losses(found), strict=True))
    assert held < 256 and np.mean([b.estimate - a.estimate for a, b in pairs]) == pytest.approx(0.0, abs=1e-3)
    levels = [LossSurface(of_heap(**at).surface).level(math.log(3e7)) for at in ({}, {"batch_size": 256})]
    assert levels[1] - levels[0] == pytest.approx(0.05 * math.log(256 / held), abs=0.02)
    with pytest.raises(InputError, match=r"zeta"):
        compare_arms(heap_of_arms(), adjust=["zeta"])


def own_settings(more):
    """Two recipes in which shapes do the same. more: (columns, nats) of a run of an arm."""
    rng, rows = np.random.default_rng(1), []
    for row in heap_of_arms(1):
        columns, nats = more(row["arm"], rng)
        n, shape = standard(row), {name: row[name] for name in ("arm", "depth", "width")}
        loss = level(n) + wing(n, row["depth"], 1.0) + nats + rng.normal(0.0, 0.004)
        rows.append({**shape, **columns, "loss": loss})
    return rows


def assert_losses_differ_by(nats, result):
    (found,) = result.comparisons
    assert np.mean([nats in row.estimate_interval for row in losses(found)]) >= 0.8
    assert np.mean([row.estimate for row in losses(found)]) == pytest.approx(nats, abs=0.01)


@pytest.mark.parametrize("middle", [2e-3, 3e-2])  # rates of the second arm overlap those of the first, or do not
def test_each_arm_of_a_heap_is_compared_at_its_own_best_rate(middle):
    def rates(arm, rng):
        rate = (middle if arm == "gated" else 1e-3) * math.exp(rng.uniform(-1.5, 1.5))
        return {"learning_rate": rate}, 0.05 * math.log(rate / (1.5 * middle if arm == "gated" else 1e-3)) ** 2

    result = compare_arms(own_settings(rates))
    assert result.comparisons[0].pairing == "both at each net's best learning rate"
    assert_losses_differ_by(0.0, result)


@pytest.mark.parametrize("tokens", [1e8, 1e9])
def test_arms_of_a_heap_profit_from_tokens_each_in_its_own_way(tokens):
    def lengths(arm, rng):
        count = float(rng.choice([1e8, 3e8, 1e9]))
        return {"tokens": count}, 20.0 * count**-0.2 - 0.05 * (arm == "gated") * math.log(count / 1e8)

    assert_losses_differ_by(-0.05 * math.log(tokens / 1e8), compare_arms(own_settings(lengths), at={"tokens": tokens}))


def test_tables_of_a_heap_are_its_arms_and_one_without_a_setting_is_compared_as_it_is_which_is_said():
    rows = [{**row, "batch_size": None} if row["arm"] == "gated" else row for row in heap_of_arms(3, 24)]
    result = compare_arms(rows)
    assert {one.name for one in result.adjusted.columns} == {"batch"}
    assert "no run of gated has batch: its losses are not adjusted for it" in result.comparisons[0].notes
    base, other = ([row for row in rows if row["arm"] == arm] for arm in ("plain", "gated"))
    apart = compare_arms(base, [other]).comparisons[0]
    assert [row.estimate for row in apart.rows] == [row.estimate for row in result.comparisons[0].rows]


def test_an_impossible_loss_of_an_arm_is_no_reason_of_the_base():
    rows = heap_of_arms()
    next(row for row in rows if row["arm"] == "gated")["loss"] = 50.0
    result = compare_arms(rows)
    assert "1 has an impossible loss" in result.provenance.account.sentence
    assert not any(cell.reason for cell in result.cells)


# Through the front door


def test_what_a_comparison_says(compared):
    assert_ratios_are_those_of_the_fit(compared)
    (found,) = compared.comparisons
    assert found.pairing == "paired by 3 seeds over 24 shapes" and found.unit == "nats per token"
    first, second, third = found.answer
    assert first.startswith("best depth at N = ") and "; ratio 0.8" in first
    assert second.startswith("transitions: 6 → 12 at larger sizes, ratio 1.")
    assert third.startswith("losses: at depth 6 ") and " is better at every size; " in third  # by 0.03 nats
    (row, _) = found.of(RATIO, TRANSITION)
    assert 1.5 in row.estimate_interval and row.reason == "larger"
    assert sorted({row.depth for row in losses(found)}) == [6, 12, 18]
    truths = [true_change(MOVED, one) for one in losses(found)]
    assert np.mean([true in one.estimate_interval for one, true in zip(losses(found), truths, strict=True)]) >= 0.9
    assert json.loads(compared.to_json())["comparisons"][0]["rows"][0]["question"] == BEST_DEPTH


def test_a_fit_beside_another_arm_has_the_cells_of_its_own_and_its_answers_hardly_move(compared):
    alone = dwsweep.fit_table(tables(MOVED)[0])
    assert alone.comparisons == [] and [row.mean for row in compared.cells] == [row.mean for row in alone.cells]
    for one, other in zip(compared.verdicts, alone.verdicts, strict=True):
        width = math.log(other.n_params_high / other.n_params_low)
        assert abs(math.log(one.n_params / other.n_params)) < 0.25 * width
        assert math.log(one.n_params_high / one.n_params_low) < 1.2 * width


def test_one_shape_with_several_arms_gets_their_differences():
    """Four paired seeds: −0.031, +0.19 and −0.012 beside noise of 0.009 that the arms share."""
    rng, true = np.random.default_rng(3), {"plain": 0.0, "gated": -0.031, "ternary": 0.19, "rope": -0.012}
    luck = rng.normal(0.0, 0.009, 4)
    rows = [
        {"depth": 6, "width": 384, "arm": arm, "seed": k, "loss": 1.52 + effect + luck[k] + rng.normal(0.0, 0.001)}
        for arm, effect in true.items()
        for k in range(4)
    ]
    with pytest.raises(InputError, match=r"arm: .* holds 4 \(gated, plain, rope, .*compare=True.*where=") as caught:
        dwsweep.fit_table(rows)
    assert says(caught.value.option_lines[0], "fit: several arms to choose from")
    result = compare_arms(rows)
    assert [(one.base, one.arm) for one in result.comparisons] == [("plain", arm) for arm in list(true)[1:]]
    for one in result.comparisons:
        (row,) = losses(one)
        assert true[one.arm] in row.estimate_interval and row.reason in ("better", "worse")
        assert row.estimate_high - row.estimate_low < 0.02
        assert one.answer[0].startswith(f"loss of {one.arm} − ") and "nothing can be said of depth" in one.answer[1]


@pytest.mark.parametrize("budgets", [(3e7,), (1e7, 1e8)])
def test_one_or_two_sizes_leave_no_slope_to_the_rounding_of_widths(budgets):
    """Differences of 0.005 to 0.03 nats were 0.5, with intervals of a tenth: an arm had the slope, or the curvature,
    that fits sizes which differ by the rounding of their widths."""
    scenario = TwoArms(budgets=budgets, factor=1.3)
    found = losses(compare(*tables(scenario)))
    assert len(found) == 3 * len(budgets) + 3 * (len(budgets) > 1)
    for row in found:
        assert row.estimate == pytest.approx(true_change(scenario, row), abs=0.015)
        assert row.estimate_high - row.estimate_low < 0.2  # widest between the two sizes


def of_data(rows, scale=1.0, bytes_per_token=2.0, **more):
    """Rows of ``scale`` times the loss, whose bits per byte are those of so many bytes per token."""
    return [
        {**row, "loss": scale * row["loss"], "bits_per_byte": row["loss"] / bytes_per_token, **more} for row in rows
    ]


def test_an_arm_in_another_unit_compares_as_it_does_in_its_own():
    """Twice the nats per token under another vocabulary, the same bits per byte: nothing but the unit is another.

    A fit has floors in nats, which twice the nats are a little further from."""
    base, other = tables(SMALL)
    here = of_data(base, vocab_size=1000, data_hash="here", seq_len=100)
    in_nats = compare(here, of_data(other, vocab_size=1000, data_hash="there", seq_len=100))
    in_bits = compare(here, of_data(other, 2.0, vocab_size=8000, data_hash="there", seq_len=100))
    assert (in_nats.unit, in_bits.unit) == ("nats per token", "bits per byte")
    assert shows(in_nats.pairing, "fit: unpaired by data", numbers=True)
    assert "different vocabularies" in in_bits.pairing
    for one, same in zip(in_nats.rows, in_bits.rows, strict=True):
        factor = 0.5 if one.question == DIFFERENCE else 1.0
        for name in ("estimate", "estimate_low", "estimate_high"):
            wanted = getattr(one, name)
            wanted = wanted if wanted is None else pytest.approx(factor * wanted, rel=0.01, abs=1e-6)
            assert getattr(same, name) == wanted, name
    assert in_bits.answer[-1].removeprefix("losses: ") in in_nats.answer[-1]
    text = "\n".join(in_bits.notes)
    assert says(text, "fit: bytes per token") and "and 5.77" in text
    with pytest.raises(InputError, match=r"vocab_size: 1000, 8000; .* or bits_per_byte in every row"):
        compare(here, [{**row, "vocab_size": 8000} for row in other])


def test_an_arm_that_diverged_is_said_and_the_others_are_compared():
    base, other = tables(SMALL)
    ended = {"loss": None, "status": "diverged"}
    gone = [{**row, **ended, "arm": "gone"} for row in base]
    # the largest size of L12 in one seed of three
    largest = max(row["width"] for row in other if row["depth"] == 12)
    torn = [
        {**row, **(ended if (row["depth"], row["width"], row["seed"]) == (12, largest, 1) else {}), "arm": "torn"}
        for row in other
    ]
    labelled = [{**row, "arm": "whole"} for row in base]
    first, second = compare_arms([*labelled, *gone, *torn]).comparisons
    assert first.answer == (f"gone has no usable loss: {len(gone)} of {len(gone)} runs diverged; nothing is compared",)
    assert not first.rows
    assert first.pairing.startswith("unpaired: ") and says(first.pairing, "fit: one has no usable loss")
    assert second.answer[0].startswith(f"torn: 1 of {len(torn)} runs diverged: ") and second.rows
    assert "censored" in second.answer[0]
    with pytest.raises(InputError, match=r"gone.*no run with a usable loss: .* runs diverged; allowed: another"):
        compare_arms([*gone, *labelled])


@pytest.mark.parametrize("names", [("none", "nan"), (math.nan, 1)])
def test_whatever_arms_are_called_they_are_told_apart(names, tmp_path):
    """Names that read as numbers or blanks: texts stay texts in a file, and other values what they are."""
    rows = [
        {**row, "arm": name}
        for name, arm in zip(names, tables(SMALL), strict=True)
        for row in arm
        if row["depth"] == 6 and row["seed"] < 2
    ]
    table = rows
    if isinstance(names[0], str):
        table = write_csv(rows, tmp_path / "arms.csv")
        with pytest.raises(InputError, match=rf"choose one with where=.arm == '{names[1]}'"):
            dwsweep.fit_table(table)
    result = compare_arms(table)
    assert result.provenance.account.used == len(rows) / 2 and len(result.comparisons) == 1
    assert result.comparisons[0].arm == str(names[1]) and losses(result.comparisons[0])


@pytest.mark.usefixtures("without_drawing")
def test_it_is_kept_tabled_and_reported(dwsweep, tmp_path):
    directory = report_sweeps.sweep(tmp_path / "mine", "one_pair")
    beside = report_sweeps.sweep(tmp_path / "theirs", "one_pair")
    result = dwsweep("fit", directory, beside, "--compare")
    assert result.returncode == 0, result.stderr
    assert says(result.stdout, "fit: heading of two tables")
    assert fit_record.read(directory).comparisons[0].arm == "theirs"
    sweep_page.write(directory)
    page = (directory / "report.html").read_text("utf-8")
    assert says(page, "fit: does it change answer") and "theirs against mine" in page
    for arguments, line in (
        ((directory, "--compare"), "2 to 12 arms are compared"),
        ((directory, tmp_path / "nowhere.json", "--compare"), "nowhere.json; no such file"),
    ):
        refused = dwsweep("fit", *arguments)
        assert refused.returncode == 2 and line in refused.stderr


def test_without_noise_nothing_is_compared():
    scenario = replace(SMALL, budgets=(1e6, 1e7), seeds=1)
    found = compare(*tables(scenario))
    assert not losses(found) and says(found.answer[-1], "fit: noise of arms not known")


def test_an_arm_of_other_depths_leaves_the_law_of_the_base():
    """Ends of the law stood at the depths of the base and came from those of all arms; of other pairs there was a
    traceback."""
    base, other = tables(TwoArms(SmoothTruth((6, 10, 14, 18, 24, 32)), factor=1.5, budgets=SIX_SIZES, seeds=2))
    depths = sorted({row["depth"] for row in base})[1:-1]
    inner = [row for row in base if row["depth"] in depths]
    alone, beside = dwsweep.fit_table(inner), compare_arms(inner, [other])
    for name in ("width_law", "pairs_law"):
        one, two = getattr(alone, name), getattr(beside, name)
        assert one and two
        widths = [law.a + law.b * np.array(depths) for law in (one, two)]
        assert widths[1] == pytest.approx(widths[0], abs=0.1)
