"""Sources against each other: each foretold by the rest, truths recovered, words of their own, a kept study, a heap."""

from __future__ import annotations

import itertools
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from bowls import Row, piled, standard
from bowls import best as at_2b
from report_sweeps import write_csv

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.errors import InputError
from dwsweep.evidence import Quantity, levels, populations, read, read_populations, recipe
from dwsweep.evidence.random_effects import BENDS, CENTRE, SLOPES, PricePopulation, curve, depth_population
from dwsweep.evidence.summary import HERE, POPULATIONS, Evidence, summarised
from dwsweep.evidence.words import words
from dwsweep.fit.statistics import laws
from dwsweep.guide import Options
from dwsweep.guide.losses import TrainingTokens
from dwsweep.guide.sources import public_source
from tests.simulations import evidence_check as check

SOURCES = {source.name: source for source in read()}


@pytest.fixture(scope="module")
def left_out() -> list[check.Foretold]:
    return check.leave_one_out(read())


def test_each_source_is_foretold_by_the_others(left_out: list[check.Foretold]) -> None:
    assert len(left_out) >= 39 and sum(row.covered for row in left_out) >= 0.94 * len(left_out)
    assert np.mean([row.ln_density for row in left_out]) >= -0.70


@pytest.mark.parametrize(("below", "least"), [(1e8, -0.52), (1e9, -0.58)])
def test_the_largest_sizes_are_foretold_by_the_smaller_ones(below: float, least: float) -> None:
    rows = check.leave_largest_out(read(), below)
    assert len(rows) >= 15 and all(row.n_params > below for row in rows)
    assert all(row.covered for row in rows)
    assert np.mean([row.ln_density for row in rows]) >= least


@pytest.mark.slow
@pytest.mark.parametrize("bend", check.SIMULATED.values(), ids=check.SIMULATED)
def test_simulated_collections_hold_the_truth_at_7b_and_70b(bend: float) -> None:
    assert all(0.88 <= share <= 1.0 for share in check.simulated(read(), bend).values())


def test_a_collection_of_one_form_is_told_from_the_other() -> None:
    """Six exact sources without differences, from 1e6 to 1e12: the bend of the truth is found."""
    n = np.geomspace(1e6, 1e12, 7)
    for bend in (0.0, 1.0):
        value = 2.8 + curve(np.log(n) - CENTRE, np.array(0.3), np.array(bend))
        exact = Quantity(tuple(n), (20.0,) * 7, tuple(value), tuple(map(tuple, 1e-3 * np.eye(7))))
        found = depth_population([exact] * 6)
        assert abs(found.bend.mean() - bend) < 0.15
        assert np.exp(found.mean(math.log(7e10) - CENTRE, 0.0).mean()) == pytest.approx(
            math.exp(2.8 + curve(np.array(math.log(7e10) - CENTRE), np.array(0.3), np.array(bend))), rel=0.1
        )


def test_the_curve_solves_its_equation() -> None:
    x = np.linspace(-8.0, 11.0, 60)
    for slope, bend in itertools.product(SLOPES, BENDS):
        u, k = curve(x, np.array(slope), np.array(bend)), 1.0 / slope - 1.0
        rest = u + k * (np.expm1(bend * u) / bend if bend else u) - x
        assert np.abs(rest[x > 0]).max() < 1e-7 and u[x <= 0] == pytest.approx(slope * x[x <= 0])
        assert np.all(np.diff(u) > 0)


@pytest.mark.parametrize(("n", "low", "high"), [(7e9, 45, 60), (7e10, 65, 95), (4.05e11, 85, 125)])
def test_best_depths_where_nobody_compared_shapes(n: float, low: float, high: float) -> None:
    assert low <= public_source().depth(n)[0] <= high


@pytest.mark.parametrize("thin", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_the_best_depth_rises_with_size_for_every_subset_of_sources(thin: int) -> None:
    """Subsets of one and two sources, some that lack one or two, and others; ``thin``: every so many of them."""
    names = list(SOURCES)
    rng = np.random.default_rng(3)
    few = [set(some) for k in (1, 2) for some in itertools.combinations(names, k)]
    subsets = few[::4] + [set(names) - some for some in few[::3]]
    subsets += [set(rng.choice(names, rng.integers(3, 9), replace=False)) for _ in range(12)]
    sizes = np.log(np.geomspace(1e5, 1e12, 80)) - CENTRE
    for subset in subsets[::thin]:
        found = recipe(depth_population([SOURCES[name].depth for name in sorted(subset)]))
        best = [float(np.median(found.at(x))) for x in sizes]
        assert all(after > before for before, after in itertools.pairwise(best)), subset


def test_rows_are_the_sources_own_words() -> None:
    everyone = read_populations()
    law = SOURCES["levine2020"]
    for n, depth in ((7e9, 55.0), (7e10, 73.1), (1e12, 94.7)):
        said = words(law, everyone, n, 20.0)
        assert (
            round(said.depth, 1) == depth and said.depth_low < depth < said.depth_high and said.words.startswith("own")
        )
        assert said.depth == pytest.approx(laws.published().depth(n)[0])
    for n, depth in ((5e7, 13.8), (3e8, 21.5), (1.5e9, 32.0)):
        assert words(SOURCES["completep"], everyone, n, 20.0).depth == pytest.approx(depth)
        assert words(SOURCES["completep"], everyone, n, 90.0).depth == pytest.approx(depth), "published optima stay"
    assert words(SOURCES["built"], everyone, 6.8e10, 20.0).depth == pytest.approx(80.0)
    few, many = (words(SOURCES["mlfoundations"], everyone, 7e7, ratio).depth for ratio in (20.0, 200.0))
    assert many / few == pytest.approx(10**0.05), "losses of a table move with the tokens"
    far = words(SOURCES["completep"], everyone, 7e10, 20.0)
    assert far.words == "all, its offset" and far.outside == pytest.approx(7e10 / 1.5e9)
    assert words(SOURCES["completep"], everyone, 3e9, 20.0).words == "extrapolated"
    # the widest of a source's words is at its own errors, the narrowest of others' is not narrower
    assert far.depth_high / far.depth_low > 3.0


def test_more_tokens_ask_for_more_depth_as_in_gemstones() -> None:
    """A quadratic in ln N, ln L and ln tokens says 20 layers at 3e8 after 11 B tokens and 29 after 100 B."""
    few, many = (public_source(tokens).depth(3e8)[0] for tokens in (TrainingTokens(11e9), TrainingTokens(100e9)))
    assert few < many < 29 / 20 * few


def test_at_equal_flops_the_interval_holds_a_study_that_is_no_source() -> None:
    """264 Llama runs had the deeper of each pair level or behind by up to 0.009 nats at equal FLOPs."""
    options, source = Options(head_size=64), public_source()
    for shallow, deep in (((10, 640), (16, 512)), ((12, 896), (15, 768)), ((24, 1408), (30, 1280))):
        shapes = [options.shape(*shape) for shape in (shallow, deep)]
        loss = source.loss(math.sqrt(shapes[0].n_params * shapes[1].n_params))
        drawn = loss.drawn(np.array([float(shallow[0]), float(deep[0])]))
        # what a shape spends for each parameter is lost to size
        spent = [math.log(training_flops_per_token(shape) / shape.n_params) for shape in shapes]
        behind = drawn[:, 1] - drawn[:, 0] + loss.slope * (spent[1] - spent[0])
        low, high = np.quantile(behind, [0.025, 0.975])
        assert low < 0.0 and high > 0.009 - 1e-3


def test_a_price_in_size_lies_where_four_sources_have_it() -> None:
    """0.08 to 0.32 between 3e7 and 1.5e9, without a common trend."""
    everyone = read_populations()
    rising = PricePopulation(np.array([-2.0]), np.array([0.03]), np.array([0.1]))
    assert rising.mean(2.0, 5.0).item() == pytest.approx(-1.94)
    for side in ("shallow", "deep"):
        found = [
            float(np.exp(np.median(recipe(getattr(everyone, side)).at(math.log(n) - CENTRE)))) for n in (3e7, 1.5e9)
        ]
        assert all(0.08 < price < 0.32 for price in found) and found[1] / found[0] == pytest.approx(1.0, abs=0.35)


def test_each_law_prices_the_sizes_at_which_it_was_fitted() -> None:
    kaplan, besiroglu = (levels.LAWS[name].slope for name in ("kaplan2020", "besiroglu2024"))
    for n, factor in ((1e6, 0.22), (5e7, 0.64), (3e8, 1.05), (1.5e9, 1.6), (7e9, 2.5), (7e10, 4.6)):
        assert kaplan(n) / besiroglu(n) == pytest.approx(factor, rel=0.06)
    assert kaplan(levels.CROSSING) == pytest.approx(besiroglu(levels.CROSSING), rel=1e-9)
    assert levels.law_at(1e8).name.startswith("Kaplan") and levels.law_at(1e9).name.startswith("Besiroglu")
    for n in (1e6, 1e8, 2.2e8, 2.4e8, 1e10):  # the level is the integral of the slope
        step = 1e-3
        fallen = levels.level(n * math.exp(-step)) - levels.level(n * math.exp(step))
        assert fallen / (2 * step) == pytest.approx(levels.slope(n), rel=0.01)


def test_the_narrow_shapes_of_completep_price_the_deep_side() -> None:
    """Its losses stay within 1 % of the best down to 12, 15 and 11.8 widths per layer: L is larger there."""
    source = SOURCES["completep"]
    assert not source.shallow and len(source.deep) == 3
    for n, value, best, ratio, loss in zip(
        source.deep.n_params, source.deep.value, (40, 50, 62), (12, 15, 11.8), (2.7, 2.4, 2.2), strict=True
    ):
        # at equal N = 12·L·d² a ratio r of d/L is −⅔·ln r in ln L
        curvature = 0.01 * loss / (2 / 3 * math.log(best / ratio)) ** 2
        assert math.exp(value) == pytest.approx(curvature / levels.LAWS["besiroglu2024"].slope(n), rel=0.05)


@pytest.mark.usefixtures("whole_grids")
def test_the_summary_of_a_table_is_what_fit_says_of_it_now() -> None:
    stored, made = SOURCES["mlfoundations"], summarised(HERE / "sources" / "mlfoundations.yaml")
    assert made.depth.n_params == stored.depth.n_params
    assert made.depth.tokens_per_param == pytest.approx(stored.depth.tokens_per_param)
    assert np.array(made.depth.value) == pytest.approx(np.array(stored.depth.value), abs=0.02)
    assert np.diag(made.depth.covariance) == pytest.approx(np.diag(stored.depth.covariance), rel=0.3)
    assert np.array(made.deep.value) == pytest.approx(np.array(stored.deep.value), abs=0.1)


def test_what_is_kept_of_all_sources_is_what_they_say_now() -> None:
    kept, made = read_populations(), populations(read())
    assert set(json.loads(POPULATIONS.read_text("utf-8"))) == {"depth", "shallow", "deep", "power", "theory"}
    for n in (1e7, 7e9, 7e10):
        x = math.log(n) - CENTRE
        for name in ("depth", "shallow", "deep", "power", "theory"):
            stored, now = (recipe(getattr(every, name)).at(x) for every in (kept, made))
            assert np.median(stored) == pytest.approx(np.median(now), abs=0.02), name


def test_every_source_says_where_it_comes_from() -> None:
    assert set(SOURCES) == {path.stem for path in (HERE / "sources").glob("*.yaml")}
    kinds = {source.kind for source in SOURCES.values()}
    assert kinds == {"losses", "optima", "slope", "pairs", "law", "built"}
    for source in SOURCES.values():
        given = yaml.safe_load((HERE / "sources" / f"{source.name}.yaml").read_text("utf-8"))
        assert all(given[name] for name in ("licence", "matched", "recipe")) and source.reference == given["reference"]
        assert source.sure in ("P", "S", "C")
        assert len(source.depth) and np.linalg.eigvalsh(np.array(source.depth.covariance)).min() > -1e-4


def test_readings_of_a_slope_and_of_pairs_follow_their_equations() -> None:
    hoffmann, falcon = SOURCES["chinchilla"].depth, SOURCES["falcon-h1"].depth
    # 24.8 layers at 1e9, growing as N^0.236; c = 0.024 at 3e8, falling as N^−0.1; slope −0.0202
    for n, value in zip(hoffmann.n_params, hoffmann.value, strict=True):
        c = 0.024 * (n / 3e8) ** -0.1
        assert value == pytest.approx(math.log(24.8) + 0.236 * math.log(n / 1e9) + 0.0202 / (2 * c), abs=1e-3)
    apart = math.log(66 / 24)
    assert falcon.value[0] == pytest.approx(0.5 * math.log(24 * 66) + 0.03 / (2 * 0.022 * apart))


# A heap of runs as a source


pytestmark = pytest.mark.usefixtures("at_equal_size_alone")

NAMES = {"depth": "blocks", "width": "d_model", "loss": "eval_loss"}
GIVEN: dict[str, Any] = {
    "reference": "made",
    "licence": "none needed",
    "kind": "losses",
    "sure": "P",
    "matched": "N and tokens, adjusted for batch and optimizer",
    "recipe": "made",
    "vocabulary": 50304,
    "context": 1024,
    "loss": "besiroglu2024",
    "table": "runs.csv",
    "columns": NAMES,
    "adjust": ["tokens"],
    "at": {"optimizer": "adamw"},
    "tokens": [1.0e9, 4.0e9],
}


def best(n: float, tokens: float) -> float:
    return at_2b(n) * (tokens / 2e9) ** 0.1


def after_tokens(row: Row, rng: np.random.Generator) -> tuple[Row, float]:
    tokens, optimizer = float(rng.choice([1e9, 2e9, 4e9])), "muon" if rng.random() < 0.3 else "adamw"
    n, t = standard(row), math.log(tokens / 2e9)
    off = math.log(row["depth"] / at_2b(n))
    nats = 0.06 * ((off - 0.1 * t) ** 2 - off**2) - 0.09 * t - 0.05 * (optimizer == "muon")
    return {"tokens": tokens, "optimizer": optimizer}, nats


def made(folder: Path, **changes: Any) -> Path:
    rows = piled(60, 8, after_tokens, noise=0.002)
    write_csv([{NAMES.get(name, name): value for name, value in row.items()} for row in rows], folder / "runs.csv")
    path = folder / "made.yaml"
    path.write_text(yaml.safe_dump({**GIVEN, **changes}), "utf-8")
    return path


@cache
def source(folder: Path) -> Evidence:
    return summarised(made(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heap")


def test_a_heap_is_a_source_by_one_file_that_names_its_columns(folder: Path) -> None:
    depth = source(folder).depth
    tokens = np.array(depth.tokens_per_param) * np.array(depth.n_params)
    assert {round(one / 1e9) for one in tokens} == {1, 4}
    for n, t, value, row in zip(depth.n_params, tokens, depth.value, np.array(depth.covariance), strict=True):
        assert abs(value - math.log(best(n, t))) < 0.08
        assert 0.0 < math.sqrt(row.max()) < 0.3
    assert source(folder).shallow and source(folder).deep


def test_the_sources_here_foretell_it_and_what_it_changes_is_told(folder: Path) -> None:
    lines = list(check.tried(read(), source(folder)))
    rows = [line for line in lines if line.startswith("| N = ")]
    assert len(rows) == len(source(folder).depth) and all("| True |" in line for line in rows)
    assert sum(line.startswith("| 7e9 |") for line in lines) == 1


def test_a_file_that_asks_what_the_table_has_not_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="adjust: 'warmup'; not in the table"):
        summarised(made(tmp_path, adjust=["warmup"]))
    with pytest.raises(InputError, match=r"made.yaml: 'were'; no key of a source; allowed: adjust, "):
        summarised(made(tmp_path, were="tokens > 1e9"))  # every run would have counted
