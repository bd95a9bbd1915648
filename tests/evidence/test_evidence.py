"""Sources against each other: each foretold by the rest, truths recovered, and what a kept study measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.evidence import Estimates, Neighbour, predict, read
from dwsweep.evidence.random_effects import CENTRE, DEPTH
from dwsweep.evidence.summary import HERE, summarised
from dwsweep.guide import Options
from dwsweep.guide.losses import Tokens, of_source, public

SOURCES = {source.name: source for source in read()}


def foretold(name: str) -> list[tuple[float, float, float, float]]:
    """(N, what the source says, 95 % of what the rest say of it) at each of its sizes."""
    rest = predict([other.depth for other in SOURCES.values() if other.name != name], DEPTH)
    rows = []
    own = SOURCES[name].depth
    for n, ratio, value in zip(own.n_params, own.tokens_per_param, own.value, strict=True):
        low, high = np.quantile(rest.at(math.log(n), math.log(ratio / 20.0)), [0.025, 0.975])
        rows.append((n, value, float(low), float(high)))
    return rows


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "levine2020"])
def test_each_source_lies_where_the_others_say(name: str) -> None:
    assert all(low < value < high for _, value, low, high in foretold(name))


def test_the_law_of_2020_lies_deeper_than_the_others_say() -> None:
    rows = foretold("levine2020")
    assert all(value > (low + high) / 2 for _, value, low, high in rows)
    # one source in six: chance alone would leave one of six outside in a quarter of such collections
    assert sum(not low < value < high for _, value, low, high in rows) >= 1


def test_a_recipe_that_nobody_measured_lies_inside_as_often_as_said() -> None:
    """Recipes that differ by a factor and by a slope of their own, which the model does not have."""
    rng = np.random.default_rng(5)
    inside, widths = [], []
    for _ in range(60):
        sources = [_drawn(rng, [1e7, 1e8, 1e9][: 2 + k % 2]) for k in range(6)]
        new = _recipe(rng)
        prediction = predict(sources, DEPTH)
        for n in (1e7, 1e8, 1e9):
            low, high = np.quantile(prediction.at(math.log(n)), [0.025, 0.975])
            inside.append(low < new(n) < high)
            widths.append(high - low)
    assert 0.93 <= np.mean(inside) <= 1.0
    assert np.median(widths) < 2.0


def _recipe(rng: np.random.Generator):
    shift, slope = 0.3 * rng.standard_normal(), 0.3 + 0.05 * rng.standard_normal()
    # it bends, as ln N of a law of 2020 does
    return lambda n: 2.8 + shift + slope * math.log(n / 1e8) - 0.006 * math.log(n / 1e8) ** 2


def _drawn(rng: np.random.Generator, sizes: list[float]) -> Estimates:
    truth = _recipe(rng)
    value = tuple(truth(n) + 0.1 * rng.standard_normal() for n in sizes)
    covariance = tuple(tuple(0.01 if i == j else 0.0 for j in range(len(sizes))) for i in range(len(sizes)))
    return Estimates(tuple(sizes), (20.0,) * len(sizes), value, covariance)


def test_own_losses_lead_at_their_edge_and_fade() -> None:
    own = Neighbour(CENTRE - 2.0, CENTRE, np.full(1000, 1.0), np.full(1000, 1.5))
    depths = [source.depth for source in SOURCES.values()]
    found, alone = predict(depths, DEPTH, own), predict(depths, DEPTH)
    assert np.all(found.at(CENTRE) == pytest.approx(1.5)) and np.all(found.at(CENTRE - 2.0) == pytest.approx(1.0))
    assert np.all(found.at(CENTRE - 1.0) == pytest.approx(1.25))
    apart = [float(np.median(alone.at(CENTRE + x)) - np.median(found.at(CENTRE + x))) for x in (0.0, 1.0, 5.0, 20.0)]
    assert apart == sorted(apart, reverse=True) and apart[0] > 1.0 > 5 * apart[-1]


def test_more_tokens_ask_for_more_depth_as_in_gemstones() -> None:
    """A quadratic in ln N, ln L and ln tokens says 20 layers at 3e8 after 11 B tokens and 29 after 100 B."""
    few, many = (public(tokens).depth(3e8)[0] for tokens in (Tokens(11e9), Tokens(100e9)))
    assert few < many < 29 / 20 * few
    gemstones = of_source(SOURCES["gemstones"], read())
    assert 14 < np.exp(np.median(gemstones.at(math.log(3e8)))) < 29


@pytest.mark.parametrize(
    ("shallow", "deep"),
    [((10, 640), (16, 512)), ((12, 896), (15, 768)), ((18, 1024), (24, 896)), ((24, 1408), (30, 1280))],
)
def test_at_equal_flops_the_interval_holds_a_study_that_is_no_source(shallow, deep) -> None:
    """264 Llama runs had the deeper of each pair level or behind by up to 0.009 nats at equal FLOPs."""
    options = Options(head_size=64)
    shapes = [options.shape(*shape) for shape in (shallow, deep)]
    n = math.sqrt(shapes[0].n_params * shapes[1].n_params)
    loss = public().loss(n)
    drawn = loss.drawn(np.array([float(shallow[0]), float(deep[0])]))
    # what a shape spends for each parameter is lost to size
    spent = [math.log(training_flops_per_token(shape) / shape.n_params) for shape in shapes]
    behind = drawn[:, 1] - drawn[:, 0] + loss.slope * (spent[1] - spent[0])
    low, high = np.quantile(behind, [0.025, 0.975])
    assert low < 0.0 and high > 0.009 - 1e-3


def test_best_depth_rises_with_size_and_no_recommendation_is_dominated() -> None:
    from dwsweep.guide import answer

    rows = answer(np.geomspace(1e5, 1e12, 36).tolist()).budgets
    depths = [row.optimum.depth for row in rows]
    assert depths == sorted(depths)
    for row in rows:
        assert row.recommended is not None and row.recommended.size is not None and row.risk is not None
        costs = [c.size.less_compute for c in row.candidates if c.within_budget and c.size]
        assert row.recommended.size.less_compute <= min(costs) + 0.1
        assert 0 < row.risk.expected.nats < row.risk.worst.nats


def test_the_summary_of_a_table_is_what_fit_says_of_it_now() -> None:
    stored, made = SOURCES["mlfoundations"], summarised(HERE / "sources" / "mlfoundations.yaml")
    assert made.depth.n_params == stored.depth.n_params
    assert np.array(made.depth.value) == pytest.approx(np.array(stored.depth.value), abs=0.02)
    assert np.array(made.deep.value) == pytest.approx(np.array(stored.deep.value), abs=0.1)


def test_every_source_says_where_it_comes_from() -> None:
    assert set(SOURCES) == {path.stem for path in (HERE / "sources").glob("*.yaml")}
    for source in SOURCES.values():
        assert source.reference and source.licence and source.matched and source.recipe
        assert source.kind in ("losses", "optima", "law") and source.sure in ("P", "S", "C")
        assert len(source.depth) and np.linalg.eigvalsh(np.array(source.depth.covariance)).min() > 0
