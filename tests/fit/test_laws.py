"""The published law, its alternatives, and what a law says at a budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize

from dwsweep import published_law
from dwsweep.errors import InputError
from dwsweep.fit.answers.guideline import guideline_sizes
from dwsweep.fit.statistics import laws
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
