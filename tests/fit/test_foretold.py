"""Smaller sizes foretell a large one, and a law that turns between them is shown to have misled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from shown import summary

import dwsweep

DEPTHS = (4, 6, 8, 12, 16, 24, 32)


def drawn(power_above, sizes=7):
    """Best depth 12·(N/1e7)^0.25 up to 1e7, and with another power above it; noise 0.002."""
    rng, rows = np.random.default_rng(1), []
    for size in np.geomspace(1e6, 1e8, sizes):
        for depth in DEPTHS:
            width = 8 * max(2, round(math.sqrt(size / 12 / depth) / 8))
            n = 12 * depth * width**2
            best = 12.0 * (n / 1e7) ** (0.25 if n < 1e7 else power_above)
            loss = 2.0 + 1.5 * (n / 1e7) ** -0.15 + 0.06 * math.log(depth / best) ** 2 + rng.normal(0.0, 0.002)
            rows.append({"depth": depth, "width": width, "loss": loss})
    return rows


def test_smaller_sizes_foretell_the_depth_of_a_law_that_goes_on():
    fit = dwsweep.fit_table(drawn(0.25))
    found = fit.foretold
    assert found.up_to < 1.2e7 and found.n_params > 4e7
    assert found.found == pytest.approx(12.0 * (found.n_params / 1e7) ** 0.25, rel=0.12)
    assert found.found in found.depth_interval and found.percent < 0.3
    assert f"alone foretold {found.depth:.1f} (" in summary(fit).replace("\n", " ")


def test_smaller_sizes_that_misled_are_said_to_have_and_a_depth_beyond_those_trained_has_no_price():
    """Above 1e7 the best depth falls: the loss of building what the smaller sizes say is that of the truth. The loss of
    the deepest net trained stood for that of a deeper one."""
    found = dwsweep.fit_table(drawn(-0.5)).foretold
    assert found.depth > 1.7 * found.found
    truth = 12.0 * (found.n_params / 1e7) ** -0.5
    built = 0.06 * math.log(round(found.depth) / truth) ** 2 / (2.0 + 1.5 * (found.n_params / 1e7) ** -0.15)
    assert found.percent == pytest.approx(100.0 * built, rel=0.35)
    found = dwsweep.fit_table([row for row in drawn(-0.5) if row["depth"] <= 16]).foretold
    assert found.depth > 16.5 and found.percent is None
    assert dwsweep.fit_table(drawn(0.25, sizes=2)).foretold is None
