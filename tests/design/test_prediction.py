"""What ``design`` predicts against what ``fit`` then finds, on simulated sweeps whose truth is known (slow tier)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dwsweep.design.judge import Judge
from dwsweep.design.prior import Prior
from dwsweep.fit import laws
from dwsweep.fit.ask import LossSurface, fit_loss_model
from dwsweep.fit.cells import select_runs
from dwsweep.fit.curves import build_curves
from dwsweep.fit.scatter import judged
from dwsweep.fit.transitions import analyse_pairs
from tests.simulations.sweeps import SmoothTruth, draw, widths

NOISE, SEED_SD, SHAPE_SD = 0.002, 0.003, 0.001
BUDGETS = tuple(np.geomspace(1.0e6, 6.0e8, 9))
INSIDE, OUTSIDE = 1e8, 1e9
SIMULATIONS = 100


@pytest.mark.slow
def test_what_fit_finds_is_what_design_predicts() -> None:
    """rmse of the best depth, what `fit` states of it, rmse of the crossings and how many are `crossed`."""
    truth = SmoothTruth()
    cells = {(d, w): frozenset(range(3)) for d in truth.depths for w in widths(d, BUDGETS, 4)}
    prior = Prior(laws.published(), NOISE, SEED_SD, SHAPE_SD, ())
    predicted = {target: Judge(prior, truth.depths, target).judge(cells) for target in (INSIDE, OUTSIDE)}
    misses: dict[float, list[float]] = {target: [] for target in predicted}
    stated: dict[float, list[float]] = {target: [] for target in predicted}
    roots: list[list[float]] = [[] for _ in truth.depths[1:]]
    crossed = np.zeros(len(roots))
    for index in range(SIMULATIONS):
        rows = draw(
            truth, np.random.default_rng(index), budgets=BUDGETS, shape_sd=SHAPE_SD, sigma=NOISE, seed_sd=SEED_SD
        )
        curves = judged(build_curves(select_runs(rows).runs, None, 500, np.random.default_rng(0)))
        surface = LossSurface(fit_loss_model(curves, 0.95))
        for target in predicted:
            # the median of the draws, which `fit` keeps to itself where most lie beyond the depths trained
            found = float(np.median(surface.drawn_depths(math.log(target))))
            misses[target].append(found - math.log(truth.best_depth(target)))
            stated[target].append(surface.spread(math.log(target)))
        for k, pair in enumerate(analyse_pairs(curves, 0.95, surface)):
            crossed[k] += pair.verdict.status == "crossed"
            if pair.verdict.root is not None:
                roots[k].append(pair.verdict.root - truth.crossing(pair.shallow, pair.deep))
    rmse = {target: math.sqrt(float(np.mean(np.square(found)))) for target, found in misses.items()}
    median = {target: float(np.median(found)) for target, found in stated.items()}
    for target, errors in predicted.items():
        assert errors.stated is not None and errors.depth is not None
        print(f"{target:g}: rmse {rmse[target]:.4f} predicted {errors.rms:.4f}", end="; ")
        print(f"stated {median[target]:.4f} predicted {errors.stated / errors.depth:.4f}")
    pairs = predicted[INSIDE].pairs
    for pair, found, share in zip(pairs, roots, crossed / SIMULATIONS, strict=True):
        print(f"{pair.shallow}/{pair.deep}: rmse {np.std(found):.3f} predicted {pair.se_ln_n:.3f}", end="; ")
        print(f"crossed {share:.2f} predicted {pair.power:.2f}")
    for target, errors in predicted.items():
        assert errors.stated is not None and errors.depth is not None
        # outside, half of the sweeps are sure of a form and state little; the prediction is of all
        close = 0.35 if target == INSIDE else 0.75
        assert median[target] == pytest.approx(errors.stated / errors.depth, rel=close)
    assert rmse[INSIDE] == pytest.approx(predicted[INSIDE].rms, rel=0.35)
    # outside it hangs on the few sweeps that take a wrong form for the true one
    assert 0.4 < rmse[OUTSIDE] / predicted[OUTSIDE].rms < 2.5
    for pair, found, share in zip(pairs, roots, crossed / SIMULATIONS, strict=True):
        assert pair.se_ln_n is not None and pair.power is not None
        assert np.std(found) == pytest.approx(pair.se_ln_n, rel=0.35)
        assert share == pytest.approx(pair.power, abs=0.25)
