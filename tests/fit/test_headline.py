"""The first sentence of a fit says nothing that the table of best depths below it contradicts."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import dwsweep
from dwsweep.fit.answers.guideline import headline
from dwsweep.interval import layers
from dwsweep.text import format_count

WIDTHS = (128, 192, 256, 384, 512, 768, 1024, 1536)
CLAUSE = re.compile(
    r"(?P<best>[\d.]+|1, the fewest|(?:above|below) the depths tried(?: at this size)?)"
    r"(?: \((?:(?P<low>[\d.]+) to (?P<high>[\d.]+)|below (?P<below>[\d.]+)|above (?P<above>[\d.]+))\))?"
    r" (?P<word>at|up to) (?P<size>[\d.]+[A-Z]?)"
)


def losses(shapes, best_at_30m, rate=0.25):
    """Surface of one run a shape: a bowl of the depth, 0.003 nats of noise."""
    rng, rows = np.random.default_rng(0), []
    for depth, width in shapes:
        size = 12 * depth * width**2 / 3e7
        bowl = 0.06 * math.log(depth / (best_at_30m * size**rate)) ** 2
        rows.append({"depth": depth, "width": width, "loss": 1.8 + 1.9 * size**-0.14 + bowl + rng.normal(0.0, 0.003)})
    return dwsweep.fit_table(rows).surface


@cache
def rectangle():
    """Every depth at every width: the deep nets alone reach the largest sizes, the shallow ones the smallest."""
    return losses([(depth, width) for depth in (4, 6, 9, 14, 20, 30) for width in WIDTHS], 8.0)


def contradictions(sentence, record):
    """Clauses of the sentence that the table of best depths does not bear out."""
    found = []
    clauses = list(CLAUSE.finditer(sentence))
    for clause in clauses:
        rows = [row for row in record.optima if format_count(row.n_params) == clause["size"]]
        if not rows:
            found.append(f"no such size: {clause[0]}")
        elif clause["word"] == "at" and not any(_agrees(clause, row, record) for row in rows):
            found.append(clause[0])
        elif clause["word"] == "up to":
            found += [clause[0] for row in record.optima if row.n_params <= rows[-1].n_params * (1 + 1e-9)
                      if row.at_edge != "below" or row.depth_high is None
                      or (clause["below"] and row.depth_high > _at_most(clause["below"]))]  # fmt: skip
    return found if clauses else ["no clause"]


def _at_most(number):
    """Largest number that is given so, with the digits that are known."""
    return float(number) + 0.51 * 10.0 ** -len(number.partition(".")[2])


def _agrees(clause, row, record):
    value, *both = row.depth_interval.texts(layers)
    best = value or ("1" if row.is_one_layer else record.beyond(row))
    low, high = clause["low"] or clause["above"], clause["high"] or clause["below"]
    return clause["best"] == best and (row.is_one_layer or [low, high] == both)


def test_the_first_sentence_agrees_with_the_table_on_any_geometry():
    for surface in (
        rectangle(),
        losses([(d, d * k) for d in (4, 6, 9, 14, 20, 30) for k in (16, 24, 32, 48, 64)], 9.0),
        losses([(d, w) for d in (4, 6, 9, 14, 20) for w in WIDTHS[: 4 + d // 5]], 9.0),
    ):
        said = headline(surface, "N")
        assert said.startswith("No effect") or not surface.bounded or not contradictions(said, surface), said


def test_the_first_sentence_agrees_with_any_pattern_of_edges():
    """Rows of every kind in any order: a bound, an optimum, an edge of some depths or of all, a size without either."""
    record, rng = rectangle(), np.random.default_rng(3)
    kinds = [
        {"depth": None, "depth_low": None, "depth_high": 5.1, "at_edge": "below", "depth_min": 4.0},
        {"depth": None, "depth_low": None, "depth_high": 3.2, "at_edge": "below", "depth_min": 4.0},
        {"depth": None, "depth_low": None, "depth_high": 11.3, "at_edge": "below", "depth_min": 9.0},
        {"depth": None, "depth_low": None, "depth_high": None, "at_edge": None, "depth_min": 4.0},
        {"depth": None, "depth_low": 31.2, "depth_high": None, "at_edge": "above", "depth_max": 30.0},
        {"depth": None, "depth_low": 8.2, "depth_high": None, "at_edge": "above", "depth_max": 8.0},
        {"depth": 8.2, "depth_low": 7.4, "depth_high": 9.3, "at_edge": None},
        {"depth": 8.2, "depth_low": None, "depth_high": 9.3, "at_edge": None},
    ]
    for _ in range(300):
        rows = [replace(row, **kinds[rng.integers(len(kinds))]) for row in record.optima]
        one = replace(record, optima=tuple(rows))
        said = headline(one, "N")
        assert not one.bounded or not contradictions(said, one), (said, rows)
    ends = {kind["depth_max"]: record.beyond(replace(record.optima[-1], **kind)) for kind in kinds[4:6]}
    assert ends == {30.0: "above the depths tried", 8.0: "above the depths tried at this size"}


@pytest.mark.parametrize("best", [2.0, 60.0])
def test_growth_is_not_claimed_from_depths_that_one_of_two_sizes_lacks(best):
    """The small nets have 4 to 9 layers, the large ones 14 to 30; all are too deep, or all too shallow."""
    record = losses([(depth, width) for depth in (4, 6, 9, 14, 20, 30) for width in WIDTHS[::2]], best, 0.0)
    rows = [row for row in record.optima if not row.depth_interval.bounded]
    assert "not shown to change" in headline(replace(record, optima=tuple(rows)), "N")


def test_growth_is_claimed_where_it_is_true():
    """At the smallest size of the rectangle the interval is open below, at the largest above: ends between show it. And
    11 layers at the smallest size and 18 at the next were "not shown to change", for the largest had 8 at most."""
    record = rectangle()
    assert headline(record, "N").startswith("The best depth grows with N")
    bounds = [row for row in record.optima if not row.depth_interval.bounded]
    assert "not shown to change" in headline(replace(record, optima=(bounds[0], bounds[-1])), "N")
    nets = [(depth, n) for depth in (4, 6, 8, 12, 16, 24, 32) for n in (4e6, 9e6, 2e7, 4.5e7)]
    shapes = [(d, 16 * max(2, round(math.sqrt(n / 12 / d) / 16))) for d, n in [*nets, (4, 1.8e8), (8, 1.8e8)]]
    assert headline(losses(shapes, 17.8), "N").startswith("The best depth grows with N")
