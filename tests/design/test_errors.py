"""The errors that `design` predicts, against closed forms, brute force and fits of simulated sweeps; refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import says, shows
from shown import printed
from spec_tools import spec_of

from dwsweep.design import fill, filling, make_prior, study
from dwsweep.design.expected_fit import covariance
from dwsweep.design.judge import judge
from dwsweep.design.prior import NOISE, AssumedTruth
from dwsweep.errors import InputError
from dwsweep.fit.analysis import fit_table
from dwsweep.fit.answers.transitions import analyse_pairs
from dwsweep.fit.answers.width_law import Points
from dwsweep.fit.data.runs import select_runs
from dwsweep.fit.statistics import laws
from dwsweep.fit.statistics.ask import ONE_SD, LossSurface, fit_loss_model, quantiles
from dwsweep.fit.statistics.curves import build_curves
from dwsweep.fit.statistics.laws import EXPONENTIAL
from dwsweep.fit.statistics.scatter import judged
from dwsweep.plan import build
from dwsweep.records import fit as fit_record
from dwsweep.records.answers import BEST_DEPTH
from dwsweep.spec import Spec, load_spec
from dwsweep.text import BITS_PER_TOKEN
from tests.simulations.harness import rms
from tests.simulations.sweeps import SmoothTruth, draw, widths

DEPTHS = [6, 12, 18, 24]
PLANNED = {
    "name": "planned",
    "grid": {"depths": DEPTHS, "budgets": {"from": 5e5, "to": 3e8, "count": 9}, "width_multiple": 2},
    "train": {"steps": 1000},
}


def spec(**grid: Any) -> Spec:
    return spec_of(PLANNED, grid=grid)


@cache
def usual() -> Any:
    """The study of the planned spec for nets beyond its sizes."""
    return study(spec(), target=1e9)


def errors_alone(planned: Spec, **asked: Any) -> Any:
    """A study without its alternatives, which take nine tenths of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(study.__globals__, "alternatives", lambda *_: ())
        return study(planned, **asked)


def cells_of(planned: Spec) -> dict[tuple[int, int], frozenset[int]]:
    found: dict[tuple[int, int], frozenset[int]] = {}
    for run in build(planned).runs:
        key = (run.shape.depth, run.shape.width)
        found[key] = found.get(key, frozenset()) | {run.seed}
    return found


def prior(noise: float = 0.003, seed_sd: float = 0.005, shape_sd: float = 0.0) -> AssumedTruth:
    return AssumedTruth(laws.published(), noise, seed_sd, shape_sd, ())


def test_nets_of_other_blocks_are_judged_at_their_own_sizes() -> None:
    """Nets of 16·d² weights were judged at three quarters of their size."""
    cells = cells_of(spec(budgets={"from": 5e5, "to": 3e8, "count": 5}))
    wider = {(depth, width * 2): seeds for (depth, width), seeds in cells.items()}
    one, other = prior(), replace(prior(), layer_weights=3.0)
    found = [judge(p, c, 1e8) for p, c in ((one, cells), (other, wider))]
    assert found[0].se_depth == pytest.approx(found[1].se_depth) and found[0].reason == found[1].reason
    for a, b in zip(found[0].pairs, found[1].pairs, strict=True):
        assert a.n_params == pytest.approx(b.n_params) and 2 * a.width == pytest.approx(b.width)
        assert a.se_ln_n == pytest.approx(b.se_ln_n) and a.power == pytest.approx(b.power)
    gated = spec_of(PLANNED, grid={"budgets": [5e5, 1e6]}, model={"activation": "silu", "mlp": "gated"})
    assert errors_alone(gated).prior.layer_weights == pytest.approx(16.0) and usual().prior.layer_weights == 12.0


def test_the_law_of_a_fit_of_other_blocks_ties_where_the_fit_does(tmp_path: Path) -> None:
    """The law of the user's widths was taken for one of 12·d² weights: ties lay a quarter too low."""
    truth = SmoothTruth(tuple(DEPTHS))
    rows = draw(truth, np.random.default_rng(0), sigma=0.001)
    narrow = [{**row, "n_params": 12 * row["depth"] * row["width"] ** 2, "width": row["width"] / 2} for row in rows]
    fit_record.write(fit_table(narrow), tmp_path)
    believed, _ = make_prior(tmp_path, None)
    for pair in pairwise(DEPTHS[:-1]):
        assert believed.crossing(*pair) == pytest.approx(truth.crossing(*pair), abs=0.1)


def test_covariance_against_the_whole_matrix() -> None:
    """The information by seeds equals generalised least squares on all runs at once."""
    rng = np.random.default_rng(0)
    cells = {shape: frozenset(int(s) for s in rng.choice(5, 3, replace=False)) for shape in cells_of(spec())}
    runs = [(i, seed) for i, seeds in enumerate(cells.values()) for seed in sorted(seeds)]
    X = np.zeros((len(runs), len(cells)))
    V = 0.003**2 * np.eye(len(runs))
    for r, (i, seed) in enumerate(runs):
        X[r, i] = 1
        for q, (_, other) in enumerate(runs):
            V[r, q] += 0.005**2 * (seed == other)
    whole = np.linalg.inv(X.T @ np.linalg.inv(V) @ X)
    assert np.allclose(covariance(cells, 0.003, 0.005), whole, rtol=1e-8, atol=1e-14)


def test_errors_of_transitions_against_the_draws_of_a_fit() -> None:
    """`design` said ± 0.044 by the pair's own two curves where all losses together left 0.023."""
    believed = prior(0.002, 0.003, 0.001)
    cells = dict(sorted(cells_of(spec(seeds=3)).items()))
    errors = judge(believed, cells, 3e7)
    predicted, curves = errors.pairs, simulated(cells)
    surface = LossSurface(fit_loss_model(curves, 0.95))
    line = Points.of_best_depth(curves, surface).line(curves, surface, EXPONENTIAL, BEST_DEPTH, 0.95)
    low, high = np.quantile(line.drawn, [0.159, 0.841], axis=0)
    assert [errors.se_a, errors.se_b] == pytest.approx((high - low) / 2.0, rel=0.5)
    for pair in predicted:
        if pair.inside:
            lead = surface.differences(np.log([pair.n_params]), [(pair.shallow, pair.deep)])[0, 1:, 0]
            assert pair.se_ln_n == pytest.approx(lead.std() / believed.slope(pair.shallow, pair.deep), rel=0.5)
            assert abs(pair.bias_ln_n) < pair.se_ln_n
    assert sum(pair.inside for pair in predicted) >= 2


def simulated(cells: Any) -> Any:
    """Curves of runs drawn from the prior's truth: three seeds of each shape."""
    rows = draw(SmoothTruth(tuple(DEPTHS)), np.random.default_rng(0), shapes=list(cells), shape_sd=0.001)
    return build_curves(select_runs(rows).runs, None, np.random.default_rng(0))


def test_three_depths_give_no_law() -> None:
    """Inside the sizes of the data three depths have a best depth, outside they have none, and two have none at all."""
    planned = spec(depths=[6, 12, 18], budgets={"from": 5e5, "to": 3e8, "count": 3})  # the fewest shapes that have any
    inside, outside = errors_alone(planned, target=2e7), study(planned, target=1e9)
    assert inside.errors.se_depth is not None and inside.errors.se_a is None
    assert "no law" in inside.errors.reason
    assert outside.errors.se_depth is None and says(outside.errors.reason, "design: too few depths for a law")
    assert usual().errors.reason == ""
    two = errors_alone(spec(depths=[6, 12]), target=1e7)
    assert two.errors.se_depth is None and "three depths" in two.errors.reason
    # a fourth depth lets one be given
    assert next(one for one in outside.alternatives if one.name == "depth 24 too").errors.known


@pytest.mark.usefixtures("whole_grids")
def test_a_study_from_a_spec_alone() -> None:
    result = usual.__wrapped__()
    assert result.runs == 4 * 9 * 3 and result.flops == sum(e.flops for e in build(spec()).estimates.runs.values())
    assert any("ASSUMED" in text for text in result.prior.basis)
    names = [a.name for a in result.alternatives]
    assert "6 seeds instead of 3" in names and "17 widths per depth instead of 9" in names and "depth 30 too" in names
    doubled = result.alternatives[0]
    assert doubled.flops == result.flops
    # beyond the sizes the bias of the forms, 15 layers, is most of the error: seeds do not change it, nodes by a share
    assert doubled.errors.rms_ln_depth < 1.01 * result.errors.rms_ln_depth
    few, many = (errors_alone(spec(seeds=seeds), target=2e7).errors.se_depth for seeds in (3, 12))
    assert many < 0.95 * few
    base = result.errors
    assert base.rms_ln_depth == pytest.approx(math.hypot(base.se_depth, base.bias_depth) / base.depth)  # of ln L
    content = result.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, budgets = np.random.default_rng(0), np.geomspace(5e5, 3e8, 9)
    rows = draw(SmoothTruth(tuple(DEPTHS)), rng, budgets=budgets, sigma=0.001, multiple=2)
    out = tmp_path_factory.mktemp("fit")
    fit_record.write(fit_table(rows), out)
    return out


def test_between_rounds_the_finished_runs_count(finished: Path) -> None:
    result = errors_alone(spec(seeds=4), fit=finished, target=1e9)
    assert says(result.prior.basis, "design: noise measured in the fit")
    assert result.prior.noise == pytest.approx(0.001, rel=0.3)
    assert result.runs == 4 * 9  # the fourth seed
    of_names = errors_alone(spec(seeds=[7, 8, 9, 10]), fit=finished, target=1e9)
    assert of_names.runs == result.runs  # whatever seeds are called
    assert result.errors.rms_ln_depth <= errors_alone(spec(), target=1e9).errors.rms_ln_depth
    assert any("as fitted" in text for text in result.prior.basis)
    assert_slopes(result.prior, SmoothTruth(tuple(DEPTHS)), 0.1)


def test_the_noise_of_a_fit_in_another_unit_than_its_gains_is_not_used(finished: Path, tmp_path: Path) -> None:
    """A fit without a law of its own has gains assumed in nats: its noise in bits was taken for nats."""
    fit_record.write(replace(fit_record.read(finished), unit=BITS_PER_TOKEN, surface=None), tmp_path)
    believed, _ = make_prior(tmp_path, None)
    assert believed.noise == NOISE and "ASSUMED" in believed.basis[2] and "nats" in believed.basis[2]


def test_gains_of_a_fit_have_the_slopes_of_its_losses(tmp_path: Path) -> None:
    """Where leads level off, the form alone had half of the slopes."""
    truth = SmoothTruth(tuple(DEPTHS), level_off=1.0)
    fit_record.write(fit_table(draw(truth, np.random.default_rng(0), sigma=0.001)), tmp_path)
    assert_slopes(make_prior(tmp_path, None)[0], truth, 0.4)


def assert_slopes(believed: AssumedTruth, truth: SmoothTruth, near: float) -> None:
    for shallow, deep in pairwise(DEPTHS):
        x = truth.crossing(shallow, deep) + np.array([-1e-3, 1e-3])
        slope = np.diff(truth.loss(shallow, x) - truth.loss(deep, x)).item() / 2e-3
        assert believed.slope(shallow, deep) == pytest.approx(slope, rel=near)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"noise": -0.1}, "--noise: -0.1"),
        ({"noise": float("nan")}, "--noise: nan"),
        ({"target": 1e16}, "--target: 1e.16; must be a number of non-embedding parameters above 1e3 and at most 1e.15"),
        ({"target": float("nan")}, "--target: nan"),
        ({"fit": "nowhere"}, "does not exist"),
        ({"depths": [6]}, "at least two depths"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        study(spec(depths=arguments.pop("depths", DEPTHS)), **arguments)


def test_tables() -> None:
    from dwsweep.report.design_report import render_design

    two_sizes = study(spec(budgets=[5e5, 1e6]))
    for result, key in ((usual(), "design: a study"), (two_sizes, "design: a study of two sizes")):
        text = printed(render_design(result))
        assert max(map(len, text.splitlines())) <= 100
        assert shows(text, key)


def test_the_prior_loses_least_at_its_best_depth() -> None:
    believed, truth = prior(), SmoothTruth(tuple(DEPTHS))
    for depth in DEPTHS:
        x = np.array([14.0, 17.0, 20.0])
        gap = believed.losses(depth, x) - believed.losses(6, x)
        np.testing.assert_allclose(gap, truth.loss(depth, x) - truth.loss(6, x), atol=1e-5)
    assert believed.law.depth(1e8)[0] == pytest.approx(truth.best_depth(1e8), rel=1e-4)
    assert believed.crossing(12, 18) == pytest.approx(truth.crossing(12, 18), abs=1e-3)


def test_a_time_is_filled_with_a_sweep_that_can_be_planned(tmp_path, monkeypatch) -> None:
    """The written spec, planned again from its file, takes nine tenths of the time; more time buys larger sizes."""
    prior = make_prior(None, None)[0]
    largest = []
    for hours, candidates in ((1.0, filling.CANDIDATES[2:4]), (30.0, [(4, 8, 16)])):
        monkeypatch.setattr(filling, "CANDIDATES", candidates)
        filled = fill(hours, "H100", prior)
        (tmp_path / "spec.yaml").write_text(filled.text, encoding="utf-8")
        spec = load_spec(tmp_path / "spec.yaml")
        assert spec == filled.spec
        seconds = build(spec).estimates.device_seconds
        assert 0.8 < seconds / (0.9 * 3600 * hours) <= 1.0
        largest.append(spec.grid.budgets.stop)
        assert float(f"{largest[-1]:.2g}") == largest[-1], "people read a spec"
    assert sum((pair.power or 0.0) >= 0.8 for pair in errors_alone(spec).errors.pairs) >= 2
    assert largest[1] > 2 * largest[0]
    assert spec.grid.depths == [4, 8, 16]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, "abacus"), "--device: 'abacus'"),
        ((float("nan"), "H100"), "--hours: nan"),
        ((1.0, "H100"), "--hours: 1 on one H100 reach no decade"),
        ((2.0, "H100", "grid.depths=[2,4]"), "--set: 'grid.depths=.*allowed: other keys"),
        ((2.0, "H100", "train.precision=float32"), "train.precision: float32; allowed: bfloat16"),
        ((2.0, "H100", "data.sorce=x"), "data.sorce: unknown key; did you mean `source`"),
    ],
)
def test_a_time_that_fills_nothing_is_one_clear_line(arguments, message, monkeypatch) -> None:
    hours, device, *overrides = arguments
    monkeypatch.setattr(filling, "CANDIDATES", [(40, 48)])
    with pytest.raises(InputError, match=message):
        fill(hours, device, make_prior(None, None)[0], overrides)


def test_a_filled_sweep_takes_other_keys(monkeypatch) -> None:
    prior = make_prior(None, None)[0]
    monkeypatch.setattr(filling, "CANDIDATES", [(2, 4, 6)])
    plain, changed = (
        fill(2.0, "H100", prior, overrides)
        for overrides in (
            (),
            ("data.source=text:./a/*.txt", "grid.seeds=9", "model.preset=llama", "model.mlp_ratio=4"),
        )
    )
    spec = changed.spec
    assert (spec.data.source, spec.grid.seeds, spec.model.mlp, spec.model.mlp_ratio) == (
        "text:./a/*.txt", 9, "gated", 4.0,
    )  # fmt: skip
    assert spec.grid.budgets.stop < plain.spec.grid.budgets.stop  # three times the seeds in the same time
    assert 0.8 < changed.seconds / (0.9 * 3600 * 2.0) <= 1.0


# What `design` predicts against what `fit` then finds, on simulated sweeps whose truth is known (slow tier)


SIGMA, SEED_SD, SHAPE_SD = 0.002, 0.003, 0.001
BUDGETS = tuple(np.geomspace(1.0e6, 6.0e8, 9))
INSIDE, OUTSIDE = 1e8, 1e9
SIMULATIONS = 24  # of each truth
# the prior of `fit` leaves room for losses that depart from every form: one truth follows its form, two depart
TRUTHS = SmoothTruth(), SmoothTruth(bend=0.3), SmoothTruth(level_off=2.0)


def found_of(truth: SmoothTruth) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of simulated fits: errors of ln L and stated sds at the two targets (2, n), errors of ln N of each pair (4, n),
    NaN where it is not crossed."""
    crossings = [truth.crossing(*pair) for pair in pairwise(truth.depths)]
    targets = {target: math.log(truth.best_depth(target)) for target in (INSIDE, OUTSIDE)}
    misses, stated, roots = [], [], []
    for index in range(SIMULATIONS):
        rng = np.random.default_rng(index)
        rows = draw(truth, rng, budgets=BUDGETS, shape_sd=SHAPE_SD, sigma=SIGMA, seed_sd=SEED_SD)
        curves = judged(build_curves(select_runs(rows).runs, None, np.random.default_rng(0)))
        surface = LossSurface(fit_loss_model(curves, 0.95))
        # the median of the draws, which `fit` keeps to itself where most lie beyond the depths trained
        found = [quantiles(surface.drawn_depths(math.log(target)), ONE_SD) for target in targets]
        misses.append([middle - true for (_, middle, _), true in zip(found, targets.values(), strict=True)])
        stated.append([(high - low) / 2.0 for low, _, high in found])
        pairs = analyse_pairs(curves, 0.95, surface).values()
        at = [pair.root if pair.status == "crossed" else None for pair in pairs]
        roots.append([math.nan if x is None else x - true for x, true in zip(at, crossings, strict=True)])
    return np.array(misses).T, np.array(stated).T, np.array(roots).T


@pytest.mark.slow
def test_what_fit_finds_is_what_design_predicts() -> None:
    """The prediction of an error is one of all truths that the prior holds: of one that follows its form `fit` errs
    less, and of those that depart more."""
    smooth = TRUTHS[0]
    cells = {(d, w): frozenset(range(3)) for d in smooth.depths for w in widths(d, BUDGETS, 4)}
    prior = AssumedTruth(laws.published(), SIGMA, SEED_SD, SHAPE_SD, ())
    misses, stated, roots = (np.stack(part) for part in zip(*map(found_of, TRUTHS), strict=True))
    # outside, half of the sweeps are sure of a form and state little, and a few take a wrong form for the true one
    for k, (target, close, factor) in enumerate(((INSIDE, 0.35, 1.35), (OUTSIDE, 0.75, 2.5))):
        predicted = judge(prior, cells, target)
        assert np.median(stated[0, k]) == pytest.approx(predicted.se_depth / predicted.depth, rel=close)
        assert 1.0 / factor < rms(misses[:, k].ravel()) / predicted.rms_ln_depth < factor
        assert rms(misses[0, k]) < predicted.rms_ln_depth
    for k, pair in enumerate(judge(prior, cells, INSIDE).pairs):
        off = roots[:, k]
        assert 0.5 < rms(off[np.isfinite(off)]) / pair.se_ln_n < 2.0
        assert np.isfinite(off[0]).mean() == pytest.approx(pair.power, abs=0.25)
