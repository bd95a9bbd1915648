"""A best depth beyond the depths trained is a bound, and no number, in every output."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from shown import summary

import dwsweep
from dwsweep.fit.arms import compare_arms
from tests.simulations.scenarios import grid, scenarios

DEPTHS = (3, 4, 5, 6)  # the best depth of the truth is above 6 at the larger sizes


def rows(seed=0):
    scenario = replace(scenarios()["asymmetric"], shapes=grid(DEPTHS, 6), seeds=2).numbered(0)
    return scenario.rows(np.random.default_rng(seed))


def records(content):
    if isinstance(content, dict):
        yield content
        content = list(content.values())
    if isinstance(content, list | tuple):
        for value in content:
            yield from records(value)


def best_depths(content):
    """Every best depth by own losses that a record gives as a number."""
    for one in records(content):
        if "depth_low" in one and str(one.get("law") or one.get("name") or "own").startswith("own"):
            if "public evidence" in str(one.get("law")):
                continue  # it answers with the losses, and knows deeper nets
            of_band = one["depth"] if isinstance(one["depth"], list | tuple) else [one["depth"]]
            yield from (depth for depth in of_band if depth is not None)


@pytest.mark.parametrize("kind", ["arms", pytest.param("heap", marks=pytest.mark.slow)])
def test_a_record_has_no_best_depth_beyond_those_trained_and_the_largest_sizes_have_a_bound_alone(kind):
    if kind == "heap":
        piled = [{**row, "tokens": 1e9 * (1.0 + k % 3)} for k, row in enumerate(rows())]
        result = dwsweep.fit_table(piled, adjust=["tokens"])
    else:
        result = compare_arms(rows(), [rows(1)])
    found = list(best_depths(result.to_dict()))
    assert all(DEPTHS[0] <= depth <= DEPTHS[-1] for depth in found) and (found or kind == "heap")
    row = result.surface.optima[-1]
    assert row.depth is None and row.depth_high is None and row.at_edge == "above"
    assert "above the depths tried" in summary(result)
