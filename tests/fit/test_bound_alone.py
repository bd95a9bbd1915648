"""A best depth beyond the depths trained is a bound, and no number, in every output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import dwsweep
from dwsweep.fit.arms import compare_arms
from dwsweep.records.comparison import BEST_DEPTH
from tests.simulations.scenarios import grid, scenarios

pytestmark = pytest.mark.usefixtures("surfaces_again")

DEPTHS = (3, 4, 5, 6)  # the best depth of the truth is above 6 at the larger sizes


def rows(seed: int = 0) -> list[dict[str, Any]]:
    scenario = replace(scenarios()["asymmetric"], shapes=grid(DEPTHS, 6)).numbered(0)
    return scenario.rows(np.random.default_rng(seed))


def heap() -> list[dict[str, Any]]:
    return [{**row, "tokens": 1e9 * (1.0 + k % 3)} for k, row in enumerate(rows())]


ANALYSES: dict[str, Callable[[], Any]] = {
    "fit": lambda: dwsweep.fit_table(rows(), draws=200),
    "heap": lambda: dwsweep.fit_table(heap(), draws=200, adjust=["tokens"]),
    "arms": lambda: compare_arms(rows(), [rows(1)], draws=200),
    "one size": lambda: dwsweep.fit_table([row for row in rows() if row["width"] in largest()], draws=200),
}


@cache
def result(name: str) -> Any:
    return ANALYSES[name]()


def largest() -> set[float]:
    return {max(row["width"] for row in rows() if row["depth"] == depth) for depth in DEPTHS}


def records(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, dict):
        yield content
        for value in content.values():
            yield from records(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from records(value)


def best_depths(content: Any) -> Iterator[float]:
    """Every best depth by own losses that a record gives as a number."""
    for one in records(content):
        if one.get("quantity") == BEST_DEPTH:
            yield from (one[name] for name in ("base", "other") if one[name] is not None)
        elif "depth_low" in one and str(one.get("law") or one.get("name") or "own").startswith("own"):
            if "public evidence" in str(one.get("law")):
                continue  # it answers with the losses, and knows deeper nets
            of_band = one["depth"] if isinstance(one["depth"], list | tuple) else [one["depth"]]
            yield from (depth for depth in of_band if depth is not None)


@pytest.mark.parametrize("name", ["fit", pytest.param("heap", marks=pytest.mark.slow), "arms", "one size"])
def test_a_record_has_no_best_depth_beyond_those_trained(name: str) -> None:
    found = list(best_depths(result(name).to_dict()))
    assert all(DEPTHS[0] <= depth <= DEPTHS[-1] for depth in found)
    assert name == "one size" or found or name == "heap"


def test_the_largest_sizes_have_a_bound_alone() -> None:
    row = result("fit").surface.optima[-1]
    assert row.depth is None and row.depth_high is None and row.at_edge == "above"
    assert "above the depths tried" in result("fit").summary()
