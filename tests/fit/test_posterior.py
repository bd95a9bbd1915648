"""The posterior of the loss: its algebra against matrices in full, its errors against other seeds, its columns."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import dwsweep
from dwsweep.fit.data.runs import select_runs
from dwsweep.fit.statistics import ask
from dwsweep.fit.statistics.bounded import Bounded
from dwsweep.fit.statistics.curves import build_curves
from dwsweep.fit.statistics.model import (
    FARTHEST,
    FORMS,
    MOST_SKEW,
    NO_SCATTER,
    budget_column,
    covariate,
    models,
    rooted,
)
from dwsweep.fit.statistics.nodes import SCRAMBLES, weigh
from dwsweep.fit.statistics.posterior import Posterior
from dwsweep.records.cells import Cells
from tests.simulations.scenarios import grid, scenarios
from tests.simulations.truths import TRUTHS

N = 3.0e7


def cells_of(name: str = "asymmetric", index: int = 1, **changes: object) -> Cells:
    scenario = replace(scenarios()[name], **changes).numbered(index)  # type: ignore[arg-type]
    runs = select_runs(scenario.rows(np.random.default_rng(index))).runs
    return build_curves(runs, None, np.random.default_rng(0)).cells


@cache
def posterior(name: str = "asymmetric", seed: int = 0) -> Posterior:
    return Posterior.of(cells_of(name), seed)


@pytest.mark.parametrize("form", FORMS)
def test_hyperparameters_far_from_their_priors_are_the_same_ones_everywhere(form: str) -> None:
    """Losses of diverged runs put the scatter there: coefficients, residuals and draws have to be of one scatter."""
    model = models(cells_of(shapes=grid((6, 12, 18, 24), 4)), (form,))[form]
    away = np.zeros((1, len(model.names)))
    at_the_end, beyond = away.copy(), away.copy()
    place = model.names.index("scatter")
    at_the_end[0, place], beyond[0, place] = FARTHEST, FARTHEST + 2.0
    for name, value in model.eta(at_the_end).items():
        assert model.eta(beyond)[name] == pytest.approx(value)
    # the search for the mode went 15 sds out, where nothing drew it back
    assert model.density(beyond)[0] == pytest.approx(model.density(at_the_end)[0] - 14.0)
    for one, other in zip(model.held_out(beyond[0]), model.held_out(at_the_end[0]), strict=True):
        assert one == pytest.approx(other) and np.isfinite(one).all()


@pytest.mark.parametrize("form", FORMS)
def test_evidence_draws_and_held_out_shapes_are_those_of_the_full_covariance(form: str) -> None:
    """Against the Gaussian of all cell means at once; the bounds of a law's gain and skew are a factor of the
    evidence."""
    cells = cells_of(shapes=grid((6, 12, 18, 24), 4))
    model = models(cells, (form,))[form]
    rng = np.random.default_rng(0)
    z = 0.5 * rng.standard_normal((2, len(model.names)))
    model.locate(z[0])
    found = model.density(z)
    full = []
    for row in z:
        eta = model.eta(row[None])
        s = model.prior_sds(eta)[0]
        changing = model.changing(eta)[0]
        end = changing.shape[1] - model.tail
        A = np.hstack([changing[:, :end], model.X, changing[:, end:]]) * s
        noise = np.exp(2 * eta["scatter"]) + NO_SCATTER**2 + np.exp(2 * eta["scale"]) * cells.variance
        C = A @ A.T + np.diag(noise)
        value = -0.5 * (np.linalg.slogdet(C)[1] + model.y @ np.linalg.solve(C, model.y) + row @ row)
        value -= cells.df * (eta["scale"][0] + 0.5 * math.exp(-2 * eta["scale"][0]))
        gain = A.T @ np.linalg.solve(C, model.y)
        spread = np.eye(len(s)) - A.T @ np.linalg.solve(C, A)
        if model.form.law:
            skew, c = (gain[-2:] + rng.standard_normal((400_000, 2)) @ np.linalg.cholesky(spread[-2:, -2:]).T).T
            most = MOST_SKEW * s[-1] / s[-2]
            value += math.log((np.abs(skew) < most * c).mean()) - math.log(math.atan(most) / math.pi)
        full.append(value)
    assert found[1] - found[0] == pytest.approx(full[1] - full[0], rel=1e-3, abs=2e-2)
    alone = np.linalg.inv(C)
    away = alone @ model.y / np.sqrt(np.diagonal(alone))
    _, unseen, slopes = model.held_out(z[1])
    assert unseen == pytest.approx(away, abs=2e-2) and len(slopes) == 4
    largest = np.abs(cells.x - cells.x.max()) < 0.5
    B = np.stack([largest, largest * (cells.y - cells.y[largest].mean())], axis=1)
    spread_of = np.linalg.inv(B.T @ alone @ B)
    assert slopes[-1, 1] == pytest.approx((spread_of @ B.T @ alone @ model.y)[1] / math.sqrt(spread_of[1, 1]), abs=2e-2)
    drawn = model.drawn(z[1:], np.zeros((1, len(s))), np.ones(1, dtype=int))[0]
    shifted = np.zeros(len(s))
    shifted[end] = model.shift[0]
    assert drawn == pytest.approx(s * gain + shifted, abs=1e-3 + 1e-3 * np.abs(s * gain).max())


@pytest.mark.parametrize("b_s, b_c, most", [(0.5, 4.0, 0.4), (3.0, 2.0, 1.5), (-2.5, 1.0, 0.6), (0.0, -1.0, 3.0)])
def test_bounded_gains_and_skews_are_the_ones_that_rejection_leaves(b_s: float, b_c: float, most: float) -> None:
    root = np.array([[1.3, 0.0, 0.0], [0.7, 1.1, 0.0], [b_s, b_c, 1.0]])
    bounded = Bounded(root[None], np.array([most]))

    def both(normal: np.ndarray) -> np.ndarray:
        return np.linalg.solve(root[:2, :2].T, (normal + root[2, :2]).T).T

    free = both(np.random.default_rng(1).standard_normal((3_000_000, 2)))
    left = free[np.abs(free[:, 0]) < most * free[:, 1]]
    share = math.log(len(left) / len(free)) - math.log(math.atan(most) / math.pi)
    assert bounded.log_share()[0] == pytest.approx(share, abs=0.05)
    drawn = both(bounded.cut(np.random.default_rng(2).standard_normal((100_000, 2)), np.array([100_000])))
    assert (np.abs(drawn[:, 0]) < most * drawn[:, 1] * (1.0 + 1e-9)).all()
    for statistic in (np.mean, np.std):
        assert statistic(drawn, axis=0) == pytest.approx(statistic(left, axis=0), rel=0.05, abs=0.02)


def test_the_nodes_of_a_record_give_the_same_draws() -> None:
    cells = cells_of("asymmetric, laptop")
    one, two = Posterior.of(cells, 3), Posterior.of(cells, 3)
    assert (one.profile(12.0) == two.profile(12.0)).all() and one.n_draws == two.n_draws > 200
    assert set(one.scramble) == set(range(SCRAMBLES))


BOTH = ("asymmetric", "asymmetric, gemstones")


@pytest.mark.slow  # in the quick tier ``test_metamorphic`` asks one other seed
@pytest.mark.usefixtures("whole_grids")
@pytest.mark.parametrize("names", [BOTH[:1], BOTH])
def test_ends_of_other_seeds_lie_within_their_monte_carlo_errors(names: tuple[str, ...]) -> None:
    """Two standard errors hold 90 % or more of the medians and ends of twelve seeds, at three sizes, and four of five
    errors are below a tenth of the interval."""
    within, small = [], []
    for name in names:
        each = [Posterior.of(cells_of(name), seed) for seed in range(12)]
        for x in (each[0].frame.low, each[0].frame.x0, each[0].frame.high):
            answers = [ask.answer(ask.best_depths(one, x), one.scramble, 0.95) for one in each]
            for number in ("low", "value", "high"):
                found = [getattr(one, number) for one in answers]
                if None in found or np.std(found) < 1e-9:  # no end, or the end of the depths trained
                    continue
                errors = np.array([one.error for one in answers])  # the largest of the three
                within += list(np.abs(found - np.mean(found)) * math.sqrt(12 / 11) <= 2.0 * errors)
                widths = [one.high - one.low for one in answers if one.bounded]
                small += list(errors < 0.1 * np.median(widths)) if widths else []
    assert len(within) >= 60 and np.mean(within) >= 0.9 and np.mean(small) > 0.8


def test_losses_of_the_shapes_are_the_design_of_their_data_times_the_coefficients() -> None:
    """But for what shapes of one depth share, which is an error and no loss of other nets."""
    found = posterior("asymmetric, laptop")
    rows = found.losses(found.cells.x, found.cells.y)
    edges = np.cumsum([len(one.scramble) for one in found.forms])[:-1]
    for draws, own in zip(found.forms, np.split(rows, edges), strict=True):
        model, eta = draws.model, draws.eta
        law, n = draws.parts["law"], len(draws.scramble)
        parts = [draws.parts["asymptote"][:, None], law[:, [0, 1, 3]], law[:, 2:3]] if model.form.effect else []
        changing = np.hstack(parts or [draws.parts["asymptote"][:, None]])
        expected = np.einsum("nkv,nv->nk", model.changing(eta), changing)
        expected += draws.parts["level"] @ model.X[:, : model.n_level].T + model.reference(found.cells.x)
        if model.form.effect:
            waves = model.departures(found.cells.x, found.cells.y)
            expected += draws.parts["departures"].reshape(n, -1) @ waves.T
        assert own == pytest.approx(expected, abs=1e-9), model.form.name
    assert ask.best_depths(found, math.log(1e3)).min() == 0.0  # one layer is the least


def test_depths_far_from_the_best_one_do_not_widen_its_interval() -> None:
    near, far = (
        ask.best_depth_interval(Posterior.of(cells_of(index=0, shapes=grid(depths, 6))), math.log(N), 0.95)
        for depths in ((6, 12, 18, 24, 30), (6, 12, 18, 24, 30, 60, 100))
    )
    assert far.high - far.low < 1.1 * (near.high - near.low)


def weight_of_none(found: Posterior) -> float:
    return next(one.weight for one in found.weighed if one.form == "none")


@pytest.mark.parametrize(("name", "n"), [("flat, laptop", 3e5), ("flat, scatter along a depth", N)])
def test_where_depth_does_nothing_nothing_bounds_a_best_depth(name: str, n: float) -> None:
    """Also where shapes scatter by 0.004 nats, correlated by 0.8 between neighbouring sizes of a depth; beside such
    luck an effect of depth is shown."""
    found = posterior(name)
    assert weight_of_none(found) > 0.05
    at = ask.best_depth_interval(found, math.log(n), 0.95)
    assert at.low in (None, 0.0) and at.high is None
    if "along" in name:
        assert weight_of_none(posterior("asymmetric, scatter along a depth")) < 1e-6


def test_luck_that_follows_a_depth_is_named_beside_an_effect_of_depth() -> None:
    """Luck of each shape by itself is not."""
    said, found = {}, scenarios()
    plain = replace(found["bent"], noise=replace(found["bent"].noise, shape_sd=0.004))
    for name, scenario in (("bent, scatter along a depth", found["bent, scatter along a depth"]), ("bent", plain)):
        rows = scenario.numbered(3).rows(np.random.default_rng(3))
        warnings = dwsweep.fit_table(rows).warnings
        said[name] = [line for line in warnings if "shapes of one depth share a scatter" in line]
    (line,) = said.pop("bent, scatter along a depth")
    sd = float(line.partition("scatter of ")[2].split()[0])
    assert 0.001 < sd < 0.006  # shapes share 0.004, of which departures hold a part
    assert not any(said.values())


def test_a_budget_of_another_level_is_a_column() -> None:
    """Cells of two levels, of which the second falls with another slope: the best depth is that of either alone. And a
    covariate that does nothing leaves the answer."""
    cells = cells_of(shapes=grid((6, 12, 18, 24, 30), 6))
    shift = 0.3 - 0.1 * (cells.x - cells.x.mean())
    rows = {name: np.tile(vars(cells)[name], 2) for name in ("x", "y", "variance")}
    member, factors = np.repeat([0.0, 1.0], len(cells.x)), np.kron(np.eye(2), cells.factors)
    mean = np.concatenate([cells.mean, cells.mean + shift])
    two = replace(cells, **rows, mean=mean, factors=factors, columns=(budget_column("other", member),))
    value = np.random.default_rng(0).standard_normal(len(cells.x))
    idle = replace(cells, columns=(covariate("rate", value, 0.02, moves_depth=True),))
    level, *others = (Posterior.of(one, draws=4096) for one in (two, cells, idle))
    both, alone, beside = (ask.best_depth_interval(one, math.log(N), 0.95) for one in (level, *others))
    assert [both.value, beside.value] == pytest.approx([alone.value] * 2, abs=0.03)
    assert beside.high - beside.low < 1.35 * (alone.high - alone.low)
    apart = np.median(level.level(math.log(N), {"other": 1.0}) - level.level(math.log(N)))
    assert apart == pytest.approx(0.3 - 0.1 * (math.log(N) - cells.x.mean()), abs=0.02)


def test_more_nodes_are_taken_where_few_carry_the_weight() -> None:
    cells = cells_of("asymmetric, laptop")
    few, many = (weigh(cells, enough=enough)[1] for enough in (50.0, 800.0))
    assert few < 800.0 <= many


def test_where_most_draws_lie_beyond_the_depths_a_bound_is_all() -> None:
    found = ask.best_depth_interval(posterior(), math.log(1e11), 0.95)
    assert found.value is None and found.high is None and found.low is not None
    assert np.median(ask.best_depths(posterior(), math.log(1e11))) > math.log(60.0)  # the search goes on
    assert math.exp(found.low) < TRUTHS["asymmetric"].best_depth(1e11)


EXTREME = {
    "one loss far off": (1e3, lambda depth, width: (depth, width) == (1, 16)),
    "two losses far off": (1e4, lambda depth, width: depth < 3 and width == 16),
    "a depth far off": (1e6, lambda depth, width: depth == 1),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", EXTREME)
def test_losses_far_beyond_their_noise_have_an_answer(kind: str) -> None:
    value, far = EXTREME[kind]
    rows = [
        {"depth": depth, "width": width, "loss": value if far(depth, width) else 3.0}
        for depth, width in itertools.product((1, 2, 3), (16, 24, 32, 40))
    ]
    surface = dwsweep.fit_table(rows).surface
    assert surface and all(np.isfinite(ask.LossSurface(surface).losses(row.ln_x)[1]).all() for row in surface.optima)


def test_a_precision_without_a_root_gets_some_more_of_its_diagonal() -> None:
    v = np.array([1e9, 2e9, 3e9])
    singular, sound = np.outer(v, v) - np.diag([0.0, 1e3, 1e3]), np.diag([1.0, 2.0, 3.0])
    roots = rooted(np.stack([singular, sound]))
    assert roots[0] @ roots[0].T == pytest.approx(singular, rel=1e-9)
    assert np.array_equal(roots[1], np.linalg.cholesky(sound))
