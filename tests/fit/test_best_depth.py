"""The best depth against losses whose best depth is known: grids even and uneven, forms that hold and that do not."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sentences import says
from shown import summary

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit.ask import LossSurface
from dwsweep.fit.guideline import headline, held_out_warnings
from dwsweep.fit.model import SAME_BUDGET
from dwsweep.guide import source_of
from dwsweep.guide import sources as guide_sources
from dwsweep.guide.guideline import completed
from dwsweep.records import fit as fit_record
from dwsweep.text import format_count
from tests.simulations.scenarios import scenarios as truths
from tests.simulations.sweeps import SmoothTruth, draw

SIZES = (1e7, 3e7, 1e8)


@cache
def fitted(truth: SmoothTruth, seed: int = 0, params=(3e7,), **options):
    table = draw(truth, np.random.default_rng(seed), **options)
    return dwsweep.fit_table(table, draws=500, params=params)


@pytest.mark.parametrize("truth", [SmoothTruth(), SmoothTruth(bend=0.25)], ids=["exponential", "no form"])
def test_the_best_depth_is_where_the_loss_is_least(truth):
    """The old guideline said 8.2, 14.0 and 21.7 where 10.7, 16.6 and 24.1 are best, 10 to 27 % off."""
    surface = LossSurface(fitted(truth).surface)
    for n in SIZES:
        best, found = truth.best_depth(n), surface.at(n)
        assert abs(math.log(found.value / best)) < 0.045, n
        assert found.low * 0.985 < best < found.high * 1.015, n
        assert math.log(found.high / found.low) < 0.3


def test_a_fit_by_an_earlier_model_of_the_loss_is_not_read_as_one_by_this(tmp_path):
    result = fitted(SmoothTruth())
    fit_record.write(result, tmp_path)
    file = tmp_path / "fit.json"
    file.write_text(file.read_text().replace("E + A·N^-α", "f0(ln N)"))
    with pytest.raises(InputError, match=r"surface\.form: .*run `dwsweep fit` again"):
        fit_record.read(tmp_path)


def test_identical_curves_have_no_best_depth():
    result = fitted(SmoothTruth(effect=0.0))
    assert result.guideline[0].law.startswith("public evidence")
    assert result.surface.flat and all(row.depth is None for row in result.surface.optima)
    assert not result.surface.bounded and LossSurface(result.surface).at(3e7).value is None
    said = headline(result.surface, "N")
    assert says(said, "fit: no effect of depth")
    text = " ".join(summary(result).split())
    assert said in text and "Shape matters" not in text


def test_a_seed_that_is_worse_the_deeper_the_net_is_named_and_widens_the_errors():
    scenario = truths()["a seed worse when deep"]
    rows = scenario.rows(np.random.default_rng(2))
    result = dwsweep.fit_table(rows, draws=400)
    (line,) = (line for line in result.warnings if line.startswith("seeds: losses of seed "))
    deepest, shallowest = (pick({row["depth"] for row in rows}) for pick in (max, min))
    assert says(line, "fit: a seed drifts with depth")
    assert f"from {shallowest} to {deepest} layers" in line
    assert not any(line.startswith("seeds: losses of seed ") for line in fitted(SmoothTruth()).warnings)
    for n in scenario.at:
        found = LossSurface(result.surface).at(n)
        assert (found.low or 0.0) <= scenario.truth.best_depth(n) <= (found.high or math.inf)


def bowls(first: float, last: float):
    """Losses whose best depth goes from ``first`` to ``last`` layers as nets grow, and its true value at a size."""
    ends = np.log([1.0e6, 6.0e8]), np.log([first, last])
    rng, table = np.random.default_rng(0), []
    for depth in (6, 12, 18, 24, 30):
        for n in np.geomspace(1.0e6, 6.0e8, 9):
            width = 4 * round(np.sqrt(n / (12 * depth)) / 4)
            x = np.log(12 * depth * width**2)
            loss = 1.5 + 8.0 * np.exp(-0.1 * x) + 0.02 * (np.log(depth) - np.interp(x, *ends)) ** 2
            row = {"depth": depth, "width": width}
            table += [{**row, "seed": seed, "loss": loss + rng.normal(0.0, 0.002)} for seed in range(3)]
    return dwsweep.fit_table(table, draws=500), lambda n: float(np.exp(np.interp(np.log(n), *ends)))


@pytest.fixture(scope="module")
def falling():
    return bowls(28.0, 7.0)


def test_the_first_sentence_says_whether_the_best_depth_grows(falling):
    """Growth is said where it is true, and not where it is not; the numbers are those of the table below it."""
    result, true = bowls(7.0, 28.0)
    said = headline(result.surface, "N")
    assert says(said, "fit: growing best depth") and said in summary(result).replace("\n", " ")
    last = [row for row in result.surface.optima if row.depth_low or row.depth_high][-1]
    assert said.endswith(f" at {format_count(last.n_params)}.") and (last.depth_low or 0.0) < true(last.n_params)
    assert says(headline(falling[0].surface, "N"), "fit: falling best depth")


def test_a_best_depth_that_falls_with_size_is_told_and_not_carried_beyond_the_data(falling):
    result, true = falling
    small, large = result.surface.falls
    assert true(small.n_params) > true(large.n_params)
    assert not any("levine" in row.law for row in result.guideline)
    assert any("falls with size" in line for line in result.warnings)
    assert result.width_law is None


def test_what_all_losses_say_of_a_pair_is_told_where_its_own_two_curves_do_not_cross():
    """Two curves alone decide little where shape_sd is large; the interval from all losses holds the true crossing."""
    truth = SmoothTruth()
    table = draw(truth, np.random.default_rng(0), shape_sd=0.006)
    result = dwsweep.fit_table(table, draws=500, paper=True)
    own = {row.name for row in result.transitions if row.estimator == "pchip" and row.status == "crossed"}
    joint = [row for row in result.transitions if row.estimator == "surface" and row.status == "crossed"]
    more = [row for row in joint if row.name not in own]
    lines = summary(result).splitlines()
    assert more
    for row in more:
        # the verdict on the pair: the first row of the table that begins with its name
        verdict = next(line for line in lines if line.lstrip().startswith(row.name.replace(" ", "")))
        assert f"crossed  {format_count(row.n_params)}".split() == verdict.split()[1:3]
        assert row.n_params_low < math.exp(truth.crossing(row.shallow, row.deep)) < row.n_params_high


def test_guide_answers_inside_the_data_of_a_best_depth_that_falls(falling):
    result, true = falling
    source = source_of(result, "falling")
    assert any("falls with size" in note for note in source.notes)
    for n in (3e6, 3e7, 1e8):
        _, low, high = source.depth(n)
        assert low <= true(n) <= high
    assert source.own_at(1e11) is None


def test_trust_rests_on_regret_at_95_percent_whatever_the_confidence_of_the_intervals():
    table = draw(SmoothTruth(), np.random.default_rng(0))
    half = dwsweep.fit_table(table, draws=500, confidence=0.5)
    sure, unsure = (source_of(result, "own") for result in (fitted(SmoothTruth()), half))
    assert guide_sources.judge(sure, 3e7).level == guide_sources.judge(unsure, 3e7).level == "high"
    # the intervals of guide are of 95 % too
    assert unsure.depth(3e7) == pytest.approx(sure.depth(3e7), rel=0.01)


def test_what_the_worst_depth_loses_is_what_the_true_losses_say():
    truth = SmoothTruth()
    result = fitted(truth)
    rows = result.surface.optima
    assert len(rows) >= 7
    for row in rows:
        tried = [d.depth for d in result.surface.spans if d.low - SAME_BUDGET <= row.ln_x <= d.high + SAME_BUDGET]
        losses = {depth: float(truth.loss(depth, row.ln_x)) for depth in tried}
        fine = min(float(truth.loss(depth, row.ln_x)) for depth in np.linspace(min(tried), max(tried), 400))
        worst = max(losses, key=losses.get)
        true = 100 * (losses[worst] - fine) / fine
        assert row.worst_depth == worst
        assert row.worst_percent == pytest.approx(true, abs=0.1 + 0.05 * true)
        assert row.worst_percent_low - 0.05 <= true <= row.worst_percent_high + 0.05
    text = " ".join(summary(result).split())
    assert f"{rows[-1].worst_depth:g} layers lose {rows[-1].worst_percent:.2g} %" in text


def test_a_best_depth_that_is_surely_the_fewest_is_bounded_from_above():
    """Draws without a lowest point inside were taken for draws without a bound, on both sides."""
    truth = SmoothTruth(depths=(1, 2, 3, 4))
    rows = draw(truth, np.random.default_rng(0), budgets=lambda depth: np.geomspace(1e3, 1e5, 6), seeds=3, sigma=0.002)
    found = dwsweep.fit_table(rows, draws=400).surface
    first = found.optima[0]
    assert truth.best_depth(math.exp(first.ln_x)) < 1.01
    assert first.at_edge == "below" and first.depth_low is None and first.depth_high < 1.2


def test_three_depths_speak_of_their_own_sizes_alone():
    result = fitted(SmoothTruth(depths=(6, 12, 24)), params=(3e7, 1e10))
    known = [row for row in result.surface.optima if row.depth is not None]
    assert len(known) >= 4
    for row in known:
        assert row.depth == pytest.approx(SmoothTruth().best_depth(row.n_params), rel=0.08)
    inside = next(row for row in result.guideline if row.n_params == 3e7)
    assert inside.law.startswith("own") and result.guideline[-1].law.startswith("public evidence")


def test_what_is_written_guides_as_what_was_fitted(tmp_path):
    result = fitted(SmoothTruth())
    (tmp_path / "fit.json").write_text(result.to_json())
    again = fit_record.read(tmp_path)
    assert [row.to_dict() for row in completed(again).guideline] == [row.to_dict() for row in result.guideline]


def shallow_ahead(seed: int) -> dict[str, list[float]]:
    """Nets of 1 to 4 layers, of which one layer is the best at every size, by less as they grow; three seeds that share
    batches, and the error of a shape."""
    rng = np.random.default_rng(seed)
    batches, rows = rng.normal(0.0, 0.006, 3), []
    for depth in (1, 2, 3, 4):
        for n in np.geomspace(4e4, 8e5, 6 if depth < 3 else 3):
            shape_error = rng.normal(0.0, 0.006)
            for k in range(3):
                loss = (
                    3.6 * (n / 1e5) ** -0.06 + true_lead(depth, n) + shape_error + batches[k] + rng.normal(0.0, 0.013)
                )
                rows.append(
                    {"depth": depth, "width": math.sqrt(n / 12 / depth), "n_params": n, "seed": k, "loss": loss}
                )
    return {name: [row[name] for row in rows] for name in rows[0]}


def true_lead(depth: int, n: float) -> float:
    """Of one layer over ``depth``, nats."""
    return 0.12 * math.log(depth) * (1e5 / n) ** 0.5


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 5))])
def test_one_depth_is_ahead_at_all_sizes(seed: int) -> None:
    """Then neither the gain of a layer nor the size of a transition is known, only how far they put the depths apart;
    draws and steps of the two apart once put the best depth above four layers, or left it without a bound."""
    result = dwsweep.fit_table(shallow_ahead(seed), draws=400)
    assert result.surface is not None
    model = LossSurface(result.surface)
    for row in result.surface.optima:
        assert row.depth is None and row.at_edge == "below" and row.beyond == "1, the fewest", row
        assert row.depth_high is None or row.depth_high < 2.0
    for n in (4e4, 2e5, 8e5):
        y, drawn = model.losses(math.log(n))
        at = [int(np.abs(y - math.log(depth)).argmin()) for depth in (1, 2, 3, 4)]
        found = np.median(drawn[:, at] - drawn[:, at[:1]], axis=0)
        assert found == pytest.approx([true_lead(depth, n) for depth in (1, 2, 3, 4)], abs=0.04), n
    assert "1, the fewest" in summary(result)


def test_a_surface_that_foretells_too_few_shapes_is_said_not_to_fit():
    table = draw(SmoothTruth(depths=(6, 12, 18)), np.random.default_rng(0), sigma=0.001)
    found = dwsweep.fit_table(table, draws=200).surface
    assert found.held_out.shapes == len({(row["depth"], row["width"]) for row in table})
    assert not found.held_out.too_few and held_out_warnings(found, "N") == []
    bad = replace(found, held_out=replace(found.held_out, inside=found.held_out.shapes - 7, worst=6.0))
    (line,) = held_out_warnings(bad, "N")
    assert says(line, "fit: no form fits") and "+6.0" in line


def test_draws_honour_the_data_where_the_form_is_hardly_known():
    """Three depths and three sizes do not tell how the gain falls with depth: what is drawn of it must not move what
    the data do say, the difference of the depths at a size. Drawn from the linearised model it was within 3 to 16 %."""
    rows = shallow_rows(np.random.default_rng(0), shape_sd=0.004)
    result = dwsweep.fit_table(rows, draws=200)
    assert result.surface is not None
    cells = {(cell.depth, round(math.log(cell.n_params))): cell.mean for cell in result.cells}
    model = LossSurface(result.surface)
    for n in (1e4, 3e4, 1e5):
        for deep in (2, 6):
            drawn = model.differences(np.array([math.log(n)]), [(1, deep)])[0, 1:, 0]
            raw = cells[1, round(math.log(n))] - cells[deep, round(math.log(n))]
            low, middle, high = np.quantile(drawn, [0.025, 0.5, 0.975])
            assert middle == pytest.approx(raw, abs=0.04)  # the means' own error is 0.016
            assert high - low < 0.13


def shallow_rows(rng: np.random.Generator, shape_sd: float) -> dict[str, list[float]]:
    """Columns of a sweep of depths 1, 2 and 6, three sizes, three seeds, as the smoke sweep has them."""
    batches, rows = rng.normal(0.0, 0.02, 3), []
    for depth in (1, 2, 6):
        for n in (1e4, 3e4, 1e5):
            base = parabola(depth, n) + rng.normal(0.0, shape_sd)
            rows += [
                (depth, math.sqrt(n / 12 / depth), n, k, base + batches[k] + rng.normal(0.0, 0.02)) for k in range(3)
            ]
    names = ("depth", "width", "n_params", "seed", "loss")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


BEST_AT, BEST_SLOPE = 0.3, 0.12  # ln L of the best depth at 3e4 parameters, and what ln N adds


def parabola(depth: float, n: float) -> float:
    away = math.log(depth) - BEST_AT - BEST_SLOPE * math.log(n / 3e4)
    return 5.2 * (n / 3e4) ** -0.025 + 0.085 * away**2


def test_an_edge_at_one_size_is_not_called_the_edge_of_all_depths_tried() -> None:
    """The deepest nets are small: at large sizes 8 layers are the most, and the best depth lies above them."""
    rows = [
        {"depth": depth, "width": round(math.sqrt(n / 12 / depth)), "loss": 3.0 + 0.02 * math.log(depth / best) ** 2}
        for n, best in ((1e6, 5.0), (3e6, 8.0), (1e7, 13.0), (3e7, 20.0))
        for depth in (2, 4, 8, *((16, 32) if n < 5e6 else ()))
    ]
    fit = dwsweep.fit_table(rows, noise=0.001, draws=200)
    assert fit.surface is not None
    last = fit.surface.optima[-1]
    assert last.at_edge == "above" and last.depth_max == 8
    assert fit.surface.beyond(last) == "above the depths tried at this size"
    assert "above the depths tried at this size" in headline(fit.surface, "N")
    deepest = replace(last, depth_max=32.0)
    assert fit.surface.beyond(deepest) == "above the depths tried"
