"""The published law and its alternatives; status, root and interval of one difference curve, by closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from dwsweep import published_law
from dwsweep.errors import InputError
from dwsweep.fit.answers.crossing import classify
from dwsweep.fit.answers.guideline import guideline_sizes
from dwsweep.fit.statistics import laws
from dwsweep.fit.statistics.curves import SimultaneousBand
from dwsweep.fit.statistics.laws import EXPONENTIAL, FORMS, Law


def test_interval_at_fixed_size_is_far_narrower_than_at_fixed_depth():
    """sd of ln d at L = 48: 3.6 % at fixed L; at fixed N 0.6 %, with depth ± 0.54."""
    law = laws.published()
    ends = law.equation.ln_width(law.region, 48.0)
    assert (ends.max() - ends.min()) / 2 / 1.959964 == pytest.approx(0.036, abs=0.002)
    _, low, high = law.depth(published_law.transition_n_params(48.0))
    assert (high - low) / 2 / 1.959964 == pytest.approx(0.54, abs=0.03)
    assert 0.5 * math.log(high / low) / 2 / 1.959964 == pytest.approx(0.0056, abs=0.0007)


def test_rivals_of_the_published_law_part_ways_at_3e9():
    """Refits to its own points at depths 6 … 36 give depth 48 (exponential), and 75 for linear and power."""
    depths = np.array([6.0, 12, 18, 24, 30, 36])
    target = published_law.A + published_law.B * depths
    found = {"exponential": laws.published().depth(3e9)[0]}
    for law in laws.published_alternatives():
        form = law.equation
        fit = scipy.optimize.least_squares(
            lambda ends, form=form: form.ln_width(form.through(ends, np.array([6.0, 36.0])), depths) - target,
            target[[0, -1]],
        )
        assert law.theta == pytest.approx(form.through(fit.x, np.array([6.0, 36.0])), rel=1e-4)
        found[law.form] = law.depth(3e9)[0]
    assert found["exponential"] == pytest.approx(48.0, abs=0.5)
    assert found["linear"] == pytest.approx(75.0, abs=6.0) and found["power"] == pytest.approx(75.0, abs=12.0)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_pass_through_their_ends_and_invert(form):
    ends = np.array([5.3, 7.2])
    theta = form.through(ends, np.array([6.0, 40.0]))
    np.testing.assert_allclose(form.ln_width(theta, np.array([6.0, 40.0])), ends)
    n = 12.0 * 20.0 * math.exp(2.0 * float(form.ln_width(theta, 20.0)))
    assert float(form.optimal_depth(theta, n)) == pytest.approx(20.0, rel=1e-9)


def test_a_law_whose_size_does_not_grow_with_depth_has_no_optimum():
    assert np.isnan(EXPONENTIAL.optimal_depth(np.array([5.0, -0.01]), 1e8))
    law = Law("own", "exponential", (5.0, 0.01), 1e6, 1e8, np.array([[5.0, 0.01], [5.5, -0.01]]))
    depth, low, high = law.depth(1e7)
    assert depth is not None and low is not None and high is None


def test_sizes_are_named_and_those_that_guide_refuses_are_refused():
    rows = guideline_sizes([1.3e9, 125e6, 3e4, 999_950])
    assert [row["name"] for row in rows[-4:]] == ["1.3B", "125M", "30K", "1M"]
    for bad in (0, -5, float("nan"), "big", 1e-320, 1e13, 10**400):
        with pytest.raises(InputError, match=r"^params: .*; must be from 1K to 1T non-embedding parameters$"):
            guideline_sizes([bad])


# One difference curve, against closed forms


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
