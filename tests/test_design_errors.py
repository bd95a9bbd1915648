"""What `design` predicts, against closed forms and brute force; proposals, specs, refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dwsweep.design import Judge, Prior, make_prior, propose, study
from dwsweep.design.propose import MAX_SEEDS, Costs, candidates, fragments
from dwsweep.errors import InputError
from dwsweep.fit import laws
from dwsweep.plan import build
from dwsweep.spec import Spec, load_spec, parse_spec

DEPTHS = [6, 12, 18, 24]


def spec(**grid: Any) -> Spec:
    content = {
        "name": "planned",
        "grid": {"depths": DEPTHS, "budgets": {"from": 5e5, "to": 3e8, "count": 9}, "width_multiple": 2, **grid},
        "train": {"steps": 1000},
    }
    return parse_spec(content)


def cells_of(planned: Spec) -> dict[tuple[int, int], frozenset[int]]:
    found: dict[tuple[int, int], frozenset[int]] = {}
    for run in build(planned).runs:
        key = (run.shape.depth, run.shape.width)
        found[key] = found.get(key, frozenset()) | {run.seed}
    return found


def prior(noise: float = 0.003, seed_sd: float = 0.005, shape_sd: float = 0.0) -> Prior:
    return Prior(laws.published(), {}, noise, seed_sd, shape_sd, ())


def test_error_of_a_transition_is_the_rule_of_thumb() -> None:
    """sd(ln d*) ≈ ½·√2·σ/(√S·slope) where a crossing falls on a size of both depths."""
    believed = prior()
    judge = Judge(believed, [6, 12], 1e8)
    n = math.exp(judge.crossings[0])
    # a size right at the crossing in both depths, so that interpolation reads one cell of each
    cells = {}
    for depth in (6, 12):
        middle = math.sqrt(n / (12 * depth))
        for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
            cells[depth, middle * factor] = frozenset(range(4))
    pair = judge.judge(cells).pairs[0]  # type: ignore[arg-type]
    expected = 0.5 * math.sqrt(2) * 0.003 / (math.sqrt(4) * believed.slope(6, 12))
    assert pair.se_ln_n is not None
    assert pair.se_ln_n / 2 == pytest.approx(expected, rel=0.02)


def test_shared_seeds_cancel_and_lone_seeds_do_not() -> None:
    shared = cells_of(spec(seeds=2))
    lone = {shape: frozenset({2 * i, 2 * i + 1}) for i, shape in enumerate(shared)}
    judge = Judge(prior(), DEPTHS, 1e9)
    assert judge.rms(lone) > 1.5 * judge.rms(shared)
    without = Judge(prior(seed_sd=0.0), DEPTHS, 1e9)
    assert judge.rms(shared) == pytest.approx(without.rms(shared), rel=0.02)


def test_covariance_against_the_whole_matrix() -> None:
    """The information by seeds equals generalised least squares on all runs at once."""
    judge = Judge(prior(0.003, 0.005, 0.001), DEPTHS, 1e9)
    rng = np.random.default_rng(0)
    cells = {shape: frozenset(int(s) for s in rng.choice(5, 3, replace=False)) for shape in cells_of(spec())}
    runs = [(i, seed) for i, seeds in enumerate(cells.values()) for seed in sorted(seeds)]
    X = np.zeros((len(runs), len(cells)))
    V = 0.003**2 * np.eye(len(runs))
    for r, (i, seed) in enumerate(runs):
        X[r, i] = 1
        for q, (_, other) in enumerate(runs):
            V[r, q] += 0.005**2 * (seed == other)
    whole = np.linalg.inv(X.T @ np.linalg.inv(V) @ X) + 0.001**2 * np.eye(len(cells))
    assert np.allclose(judge.covariance(cells), whole, rtol=1e-8, atol=1e-14)


def test_errors_of_transitions_against_simulated_crossings() -> None:
    """Draw losses, interpolate, find the root: its spread is the predicted one."""
    from scipy.interpolate import PchipInterpolator
    from scipy.optimize import brentq

    believed = prior(noise=0.001, seed_sd=0.0)
    judge = Judge(believed, DEPTHS, 1e9)
    cells = cells_of(spec(seeds=3))
    predicted = judge.judge(cells)
    rng = np.random.default_rng(1)
    roots: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(400):
        curves = {}
        for depth in DEPTHS:
            widths = np.array(sorted(width for d, width in cells if d == depth), dtype=float)
            x = np.log(12 * depth * widths**2)
            noise = rng.normal(0, 0.001 / math.sqrt(3), len(x))
            curves[depth] = PchipInterpolator(x, judge.truth.loss(depth, x) + noise)
        for k in roots:
            a, b = DEPTHS[k], DEPTHS[k + 1]
            at = judge.crossings[k]
            grid = np.linspace(at - 1.2, at + 1.2, 241)
            gap = PchipInterpolator(grid, curves[a](grid) - curves[b](grid))
            roots[k].append(brentq(gap, at - 1.2, at + 1.2))
    for k, found in roots.items():
        pair = predicted.pairs[k]
        assert pair.se_ln_n is not None and pair.bias_ln_n is not None
        assert np.std(found) == pytest.approx(pair.se_ln_n, rel=0.15)
        assert np.mean(found) - judge.crossings[k] == pytest.approx(pair.bias_ln_n, abs=0.15 * pair.se_ln_n + 0.004)


def test_more_of_everything_helps() -> None:
    judge = Judge(prior(), DEPTHS, 1e9)
    base = judge.judge(cells_of(spec(seeds=2)))
    more = judge.judge(cells_of(spec(seeds=8)))
    assert base.se_a is not None and more.se_a is not None
    assert more.rms < base.rms and more.se_a < base.se_a
    assert all((m.power or 0) >= (b.power or 0) for m, b in zip(more.pairs, base.pairs, strict=True))
    assert judge.rms(cells_of(spec(seeds=2))) == pytest.approx(base.rms)


def test_pairs_outside_the_sizes_say_nothing() -> None:
    judge = Judge(prior(), DEPTHS, 1e9)
    errors = judge.judge(cells_of(spec(budgets=[5e5, 1e6])))
    assert [pair.inside for pair in errors.pairs] == [False] * 3
    assert errors.se_a is None and errors.se_depth is None and math.isfinite(errors.rms)


def test_proposals_beat_more_of_the_same_at_equal_flops() -> None:
    planned = spec(seeds=1)
    judge, costs = Judge(prior(shape_sd=0.0015), DEPTHS, 3e9), Costs(planned)
    shapes = list(dict.fromkeys(run.shape for run in build(planned).runs))
    budget = sum(costs(shape) for shape in shapes)
    start = cells_of(planned)
    found = propose(judge, start, candidates(planned, judge, shapes), costs, flops=budget)
    spent = sum(item.flops for item in found)
    assert 0 < spent <= budget
    after = dict(start)
    for item in found:
        key = (item.shape.depth, item.shape.width)
        assert item.seed not in after.get(key, frozenset()) and item.seed < MAX_SEEDS
        after[key] = after.get(key, frozenset()) | {item.seed}
    assert judge.rms(after) == pytest.approx(found[-1].rms_after)
    uniform = judge.rms(cells_of(spec(seeds=2)))
    assert judge.rms(after) < 0.85 * uniform


def test_greedy_takes_the_best_single_step() -> None:
    """The first proposal is what trying every candidate gives."""
    planned = spec(seeds=2, budgets={"from": 5e5, "to": 3e8, "count": 5})
    judge, costs = Judge(prior(), DEPTHS, 3e9), Costs(planned)
    shapes = list(dict.fromkeys(run.shape for run in build(planned).runs))
    start = cells_of(planned)
    (first,) = propose(judge, start, shapes, costs, count=1)
    before = judge.rms(start)

    def gain(shape: Any) -> float:
        key = (shape.depth, shape.width)
        return (math.log(before) - math.log(judge.rms({**start, key: start[key] | {2}}))) / costs(shape)

    assert first.shape == max(shapes, key=gain)


def test_a_study_from_a_spec_alone() -> None:
    result = study(spec(), proposals=4, target=1e9)
    assert result.runs == 4 * 9 * 3 and result.flops == sum(e.flops for e in build(spec()).estimates.runs.values())
    assert any("ASSUMED" in text for text in result.prior.basis)
    names = [a.name for a in result.alternatives]
    assert "6 seeds instead of 3" in names and "17 widths per depth instead of 9" in names and "depth 30 too" in names
    doubled = result.alternatives[0]
    assert doubled.flops == result.flops and doubled.errors.rms < result.errors.rms
    assert len(result.proposals) == 4 and result.proposed is not None
    assert result.proposed.rms < result.errors.rms
    content = result.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_proposals_become_specs_that_plan_exactly_them(tmp_path: Path) -> None:
    from dwsweep.report.terminal.design_tables import write_specs

    result = study(spec(), proposals=9)
    wanted = {(p.shape.depth, p.shape.width, p.seed) for p in result.proposals}
    planned = set()
    for path in write_specs(result, tmp_path):
        for run in build(load_spec(path)).runs:
            planned.add((run.shape.depth, run.shape.width, run.seed))
    assert planned == wanted
    # a run that was planned before and is proposed again would have the same id
    (fragment, *_) = fragments(spec(), result.proposals)
    one = build(fragment).runs[0]
    assert one.steps == 1000 and one.run_id.startswith(one.shape.label)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dwsweep.fit import output
    from dwsweep.fit.analysis import fit_table
    from dwsweep.fit.simulate import Scenario, Truth, simulate

    budgets = tuple(np.geomspace(5e5, 3e8, 9))
    scenario = Scenario(Truth(tuple(DEPTHS)), budgets=budgets, seeds=3, sigma=0.001, width_multiple=2)
    out = tmp_path_factory.mktemp("fit")
    output.write(fit_table(simulate(scenario, np.random.default_rng(0)), draws=400), out)
    return out


def test_between_rounds_the_finished_runs_count(finished: Path) -> None:
    result = study(spec(seeds=4), fit=finished, proposals=2, target=1e9)
    assert any("measured in the fit" in text for text in result.prior.basis)
    assert result.prior.noise == pytest.approx(0.001, rel=0.3)
    assert result.runs == 4 * 9  # the fourth seed
    assert result.now is not None and result.errors.rms <= result.now.rms * 1.0001
    assert all(item.rms_before <= result.now.rms * 1.0001 for item in result.proposals)
    assert (6, 12) in result.prior.slopes and result.prior.slopes[6, 12] == pytest.approx(0.05, rel=0.3)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"noise": -0.1}, "--noise: -0.1"),
        ({"noise": float("nan")}, "--noise: nan"),
        ({"proposals": -1}, "--propose: -1"),
        ({"target": 0.0}, "--target: 0"),
        ({"fit": "nowhere"}, "no fit"),
    ],
)
def test_wrong_arguments(arguments: dict, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        study(spec(), **arguments)


def test_one_depth_is_refused() -> None:
    with pytest.raises(InputError, match="at least two depths"):
        study(spec(depths=[6]))


def test_tables_and_figure(tmp_path: Path) -> None:
    from rich.console import Console

    from dwsweep.report.terminal.design_tables import draw, render

    for planned, proposals in ((spec(), 3), (spec(budgets=[5e5, 1e6]), 2)):
        result = study(planned, proposals=proposals)
        console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(render(result))
        text = console.export_text()
        assert max(map(len, text.splitlines())) <= 100 and "What a change would buy" in text
        for name in ("design.png", "design.svg"):
            path = draw(result, tmp_path / name)
            assert path.stat().st_size > 2000


def test_prior_slope_is_the_integral_of_the_density() -> None:
    believed, _ = make_prior(None, None)
    l = np.linspace(12, 18, 10_001)  # noqa: E741
    assert believed.slope(12, 18) == pytest.approx(np.trapezoid(0.025 * (l / 6) ** -2.1, l), rel=1e-6)
