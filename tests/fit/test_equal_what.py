"""Equal what: one heap answers at equal size, tokens per parameter, FLOPs and time, and its outputs agree."""

from __future__ import annotations

import html
import math
import re
from functools import cache

import numpy as np
import pytest
from bowls import best, loss, piled, standard
from claims import table_of
from sentences import says

import dwsweep
from dwsweep.records import fit as fit_record
from dwsweep.report import page as sweep_page
from dwsweep.report.adjusted_report import EQUAL, budget
from dwsweep.text import format_count

CONTEXT, VOCABULARY = 512, 2000
TITLE = "Best depth at equal size"


def profit(tokens):
    """Nats of a count of tokens."""
    t = math.log(tokens / 1e9)
    return 0.04 * t * t - 0.27 * t


def seconds(n, depth, tokens=1.0):
    return tokens * 6.0 * n / 2e13 * (1.0 + 0.05 * depth)


def timed(runs=90, budget=None):
    """Nets of all sizes and depths after all counts of tokens, or what they cost of one budget of time."""

    def more(row, rng):
        n = standard(row)
        tokens = float(f"{budget / seconds(n, row['depth']) if budget else 1e9 * math.exp(rng.uniform(-1.8, 1.8)):.4g}")
        columns = {"tokens": tokens, "batch_size": int(rng.choice([64, 128, 128, 256])), "seq_len": CONTEXT}
        spent = seconds(n, row["depth"], tokens) * math.exp(rng.normal(0.0, 0.001 if budget else 0.05))
        columns |= {"n_params_total": n + VOCABULARY * row["width"], "wall_seconds": round(spent, 1)}
        return columns, profit(tokens)

    return piled(runs, 3, more, at=14.0, noise=0.002)


fit = dwsweep.fit_table


@cache
def fitted():
    return fit(timed())


def lines(result, equal):
    return [row for row in result.adjusted.equal if row.equal == equal]


def truth(x, tokens):
    """(n, depth) of the least loss over sizes e^x where a net sees ``tokens(n, depth)``."""
    depths = np.geomspace(3.0, 40.0, 200)
    losses = ((loss(n, d, 14.0) + profit(tokens(n, d)), n, d) for n in np.exp(x).tolist() for d in depths)
    return min(losses)[1:]


def holds(row, expected, most):
    depth = row.depth_interval
    assert depth.bounded and depth.low * 0.97 < expected < depth.high * 1.03, (row, expected)
    assert depth.high / depth.low < most, row


def holds_at_equal_time(row, most):
    """Of a size."""
    spent = lambda n, depth: row.cost / seconds(n, depth)  # noqa: E731
    holds(row, truth(np.array([math.log(row.n_params)]), spent)[1], most)


def test_a_heap_answers_every_kind_of_equality():
    equal = ["n_params", "n_params_total", "tokens_per_param", "n_params and flops", "flops"]
    equal += ["n_params and wall_time", "wall_time"]
    assert list(dict.fromkeys(row.equal for row in fitted().adjusted.equal)) == equal
    for row in fitted().adjusted.equal:
        assert (row.known_from != "") == (row.equal not in ("n_params", "tokens_per_param"))


def test_at_equal_size_it_is_the_best_depth_and_at_equal_total_size_deeper_and_at_equal_time_shallower_nets():
    """Deep nets have smaller tables of embeddings, and take longer: 0.12·ln(L/L*) is the slope of the loss in ln tokens
    times what a layer costs."""
    kinds = ("n_params", "n_params_total", "n_params and wall_time")
    for size, total, time in zip(*(lines(fitted(), kind) for kind in kinds), strict=True):
        holds(size, best(size.n_params, 14.0), 1.7)
        assert size.cost is None
        width = math.sqrt(size.n_params / 12.0 / size.depth)
        assert total.cost == pytest.approx(size.n_params + VOCABULARY * width, rel=0.02)
        assert total.depth is None or total.depth >= 0.99 * size.depth
        assert time.cost / seconds(time.n_params, size.depth) == pytest.approx(size.tokens, rel=0.1)
        holds_at_equal_time(time, 2.0)
        assert time.depth < size.depth


@pytest.mark.parametrize(
    ("equal", "cost"),
    [("wall_time", seconds), ("flops", lambda n, d: 6.0 * n + 12.0 * CONTEXT * math.sqrt(n * d / 12.0))],
)
def test_at_equal_cost_each_depth_has_its_best_size(equal, cost):
    found = [row for row in lines(fitted(), equal) if row.depth and row.n_params]
    assert found
    for row in found:
        n, depth = truth(np.linspace(math.log(4e6), math.log(1.6e8), 120), lambda a, d, c=row.cost: c / cost(a, d))
        holds(row, depth, 2.5)
        size = row.n_params_interval
        assert (size.low or 0.0) * 0.95 < n < (size.high or math.inf) * 1.05
        assert row.tokens == pytest.approx(row.cost / cost(row.n_params, row.depth), rel=0.1)


def test_runs_of_one_count_or_one_budget_answer_at_it_alone_and_two_budgets_tell_what_tokens_do():
    alone = fit([{**row, "tokens": 1e9} for row in timed(48)])
    assert {row.equal for row in alone.adjusted.equal} <= {"n_params", "n_params_total"}
    one = fit(timed(60, budget=3600.0))
    assert {row.equal for row in one.adjusted.equal} == {"n_params and wall_time"}
    assert [(row.equal, round(row.cost, -2)) for row in one.adjusted.at_budgets] == [("wall_time", 3600)]
    assert says(one.provenance.account.notes, "fit: equal wall time")
    assert "tokens" not in {column.name for column in one.adjusted.columns}
    rows = [{**row, "device_seconds": row["wall_seconds"]} for of in (600.0, 3600.0) for row in timed(30, budget=of)]
    two = fit(rows)
    assert two.provenance.account.used == 60 and "tokens" in {column.name for column in two.adjusted.columns}
    for row in lines(two, "n_params"):
        holds(row, best(row.n_params, 14.0), 2.5)
    for row in (*lines(one, "n_params and wall_time"), *lines(two, "n_params and wall_time")):
        holds_at_equal_time(row, 2.6)


def test_every_output_says_one_thing_of_equal_what(tmp_path):
    rows = fitted().adjusted.equal
    fit_record.write(fitted(), tmp_path)
    assert fit_record.read(tmp_path).adjusted == fitted().adjusted
    page = sweep_page.write(tmp_path).read_text("utf-8")
    body = page[page.index(TITLE) :].partition("</table>")[0].partition("<tbody>")[2]
    on_page = [re.split(r"(?:<[^>]*>\s*)+", html.unescape(row)) for row in body.split("</tr>")]
    for table in (table_of(fitted().summary(), TITLE), on_page):
        assert len(table) >= len(rows)
        for row, cells in zip(rows, table, strict=False):
            depth = row.depth_interval
            value = "–" if depth.value is None else f"{depth.value:.1f}"
            ends = "unbounded" if depth.unbounded else depth.ends(".1f")
            assert "".join(cells).startswith(f"{EQUAL[row.equal]}{budget(row)}{value}{ends}"), (row, cells)
            assert not row.n_params or format_count(row.n_params) in cells
