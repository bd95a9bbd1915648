"""Status, root and interval of one difference curve, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from dwsweep.fit.answers.crossing import classify
from dwsweep.fit.statistics.curves import SimultaneousBand

X = np.linspace(14.0, 20.0, 161)


def curve(g, sd=0.001, df=math.inf, draws=4000):
    """A difference whose errors are a smooth Gaussian process of equal variance."""
    at_knots = np.random.default_rng(0).normal(0.0, 1.0, (draws, 9))
    deviations = np.stack([np.interp(X, np.linspace(14.0, 20.0, 9), row) for row in at_knots])
    deviations *= sd / deviations.std(axis=0)
    return SimultaneousBand(np.asarray(g), deviations, df, 0.95)


@pytest.mark.parametrize(("df", "t"), [(math.inf, 1.959964), (8.0, scipy.stats.t.ppf(0.975, 8.0))])
def test_linear_difference_gives_fieller_s_interval(df, t):
    slope, sd = 0.01, 0.001
    c = classify(X, curve(slope * (X - 17.0), sd, df))
    assert c.status == "crossed" and c.sign_changes == 1
    assert c.root == pytest.approx(17.0, abs=0.005)
    assert c.low == pytest.approx(17.0 - t * sd / slope, abs=0.015)  # 4,000 draws know a quantile to 0.005
    assert c.high == pytest.approx(17.0 + t * sd / slope, abs=0.015)
    assert c.se == pytest.approx(sd / slope, rel=0.05) and c.slope == pytest.approx(slope)


@pytest.mark.parametrize(
    ("g", "status", "low", "high"),
    [
        (0.01 * (X - 25.0), "not_reached", True, False),
        (0.01 * (X - 10.0), "already_crossed", False, True),
        (0.0 * X, "undecided", False, False),
        (0.02 * (17.0 - X), "ambiguous", False, False),
        (0.02 * np.sin(2 * np.pi * (X - 14) / 4 + 0.3), "ambiguous", False, False),
    ],
)
def test_statuses(g, status, low, high):
    c = classify(X, curve(g))
    assert (c.status, c.root) == (status, None)
    assert (c.low is not None, c.high is not None) == (low, high)
    assert c.cause == ("noise" if status == "undecided" else "")


def test_two_nets_without_a_difference_claim_a_bound_as_often_as_an_interval_is_wrong():
    """The least of an integral that wiggles about zero lies inside: a third of such pairs claimed something."""
    knots, claims = np.linspace(14.0, 20.0, 9), 0
    for seed in range(100):
        g = 0.001 * np.interp(X, knots, np.random.default_rng([seed, 1]).standard_normal(9))
        claims += classify(X, curve(g, draws=1000)).status != "undecided"
    assert claims <= 5 + 3.0 * math.sqrt(100 * 0.05 * 0.95)


def test_a_bound_is_where_the_last_lead_ends():
    for side in (1, -1):  # ahead on one side, equal on the other
        c = classify(X, curve(-side * 0.01 * np.maximum(0.0, side * (17.0 - X))))
        assert 16.5 < (c.low if side > 0 else c.high) < 17.5
    lead = -0.01 * (np.exp(-((X - 15.0) ** 2) / 0.1) + np.exp(-((X - 18.0) ** 2) / 0.1))
    for side in (1, -1):
        c = classify(X, curve(side * lead[::side]))
        assert c.status == ("not_reached" if side > 0 else "already_crossed")
        assert (c.low > 18.0) if side > 0 else (c.high < 16.0)


def test_curves_that_coincide_at_small_sizes_have_one_root():
    """The paper's shape: no difference, then the shallower ahead, then the deeper. The touch on the left is no root."""
    g = np.where(X < 16, 0.0, -0.02 * np.sin(np.pi * (X - 16) / 2.0) * (X < 18) + 0.02 * (X - 18) * (X >= 18))
    c = classify(X, curve(g, 0.0005))
    assert c.status == "crossed" and c.root == pytest.approx(18.0, abs=0.05)
    assert 17.5 < c.low < 18.0 < c.high < 18.5


def test_a_simultaneous_band_covers_the_whole_curve():
    critical = curve(np.zeros_like(X)).critical
    assert 1.96 < critical < math.sqrt(scipy.stats.chi2.ppf(0.95, 9))
    knots = np.linspace(14, 20, 9)
    fresh = np.stack([np.interp(X, knots, row) for row in np.random.default_rng(9).normal(size=(3000, 9))])
    inside = (np.abs(fresh / fresh.std(axis=0)) <= critical).all(axis=1).mean()
    assert inside == pytest.approx(0.95, abs=0.015)
    assert curve(np.zeros_like(X), df=5.0).critical > critical * 1.2
