"""Own losses and public evidence together: best depths bounded on one side or on both, and their reach."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bowls import bowl, swept
from checkout import LAPTOP
from sentences import says

from dwsweep.errors import InputError
from dwsweep.evidence import OwnDepths, joined, read_populations
from dwsweep.evidence.joined import contradicted
from dwsweep.evidence.random_effects import CENTRE
from dwsweep.fit.analysis import fit_table
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.guide import Options, Source, answer, exported, public_source, source_of
from dwsweep.guide.guideline import answered
from dwsweep.guide.losses import TrainingTokens
from dwsweep.guide.sources import judge
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult
from dwsweep.report import guide_report
from dwsweep.terminal import plain_text

pytestmark = pytest.mark.usefixtures("surfaces_again", "at_equal_size_alone")

FAR = 3.0e9


@pytest.fixture(scope="module")
def found() -> FitResult:
    return fit_table(LAPTOP, where=["budget <= 160000"], documents=False)


@pytest.fixture(scope="module")
def source(found: FitResult) -> Source:
    made = source_of(found, "laptop")
    assert made.own is not None, "no such fit: the tests below would say nothing"
    return made


@pytest.fixture(scope="module")
def largest(found: FitResult) -> float:
    """The largest size at which the fit shows a best depth."""
    return [row.n_params for row in found.surface.optima if row.depth is not None][-1]


def test_inside_the_data_guide_goes_by_the_losses_of_the_sweep(
    found: FitResult, source: Source, largest: float
) -> None:
    """The published law puts two layers 0.14 nats behind one where the runs have them level or ahead."""
    assert source.own_at(largest) is not None and source.own_at(FAR) is None
    assert "your losses" in source.reach(largest) and "law" not in source.reach(largest)
    one, two = source.loss(largest).penalties(np.array([1.0, 2.0]))
    drawn = LossSurface(found.surface).differences(np.log([largest]), [(1, 2)])[0, 1:, 0]
    assert abs((one - two) - drawn.mean()) < 2.0 * drawn.std()


def test_guide_assumes_the_vocabulary_and_the_context_of_the_nets_that_were_fitted(
    found: FitResult, tmp_path: Path
) -> None:
    assert (found.nets.vocab_size, found.nets.seq_len) == (1000, 128)
    fit_record.write(found, tmp_path)
    nets = answer([1.5e5], fit=tmp_path)
    one, width = nets.budgets[0].candidates[0], nets.budgets[0].candidates[0].width
    assert nets.assumptions.vocabulary == 1000 and nets.assumptions.positions == 128
    assert one.n_params_total - one.n_params == pytest.approx(2 * 1000 * width, rel=0.01)
    assert answer([1.5e5], fit=tmp_path, options=Options(vocab_size=256)).assumptions.vocabulary == 256
    assert answer([FAR]).assumptions.vocabulary == 50_257
    assert json.loads(exported(nets, "hf"))["vocab_size"] == 1000


def test_a_fit_without_a_best_depth_says_first_that_others_answer(found: FitResult, tmp_path: Path) -> None:
    rows = [{"depth": d, "width": w, "loss": 3.0 + d / w} for d in (1, 2) for w in (32, 48, 64)]
    fit_record.write(fit_table(rows), tmp_path)
    for asked in ({"params": [2e5]}, {"shapes": ["4x64"]}):
        first = guide_report.document(answer(**asked, fit=tmp_path))[0]
        assert f"{tmp_path}: this fit shows no best depth: public evidence answers." in str(first)
    fit_record.write(found, tmp_path)
    assert "no best depth" not in str(guide_report.document(answer([2e5], fit=tmp_path))[0])


def grid() -> list[dict[str, Any]]:
    return swept(np.geomspace(3e6, 2e8, 7), (4, 8, 14, 22, 32), bowl(17.8), tokens=5e8)


@cache
def own_grid() -> FitResult:
    return fit_table(grid())


@cache
def of_block(weights: float, **more: float) -> FitResult:
    """Fit of nets with ``weights``·d² in a layer, whose best depth is 15·(N/3e7)^¼."""
    rows = swept((1e7, 2e7, 4e7, 8e7), (4, 8, 16, 32), bowl(15.0, rise=0.05), noise=0.0, weights=weights, **more)
    return fit_table(rows, noise=0.001)


@pytest.mark.parametrize(("weights", "top_k", "idle"), [(20.0, 2, 48.0), (12.0, 1, 56.0)])
def test_shapes_and_prices_of_a_fit_have_its_own_block(tmp_path: Path, weights: float, top_k: int, idle: float) -> None:
    """Nets of 20·L·d² active weights, 2 of 8 experts, and nets of 12·L·d², 1 of 8, were answered by dense ones of
    12·L·d²."""
    fit = of_block(weights, experts=8, top_k=top_k)
    assert fit.nets.layer_weights == pytest.approx(weights)
    fit_record.write(fit, tmp_path)
    found = answer([3e7], fit=tmp_path)
    row, said = found.budgets[0], found.notes[0]
    assert f"{top_k} of 8 experts" in said and (weights == 12.0 or f"{weights:g}·d² weights in a layer" in said)
    assert row.optimum.width == pytest.approx(math.sqrt(3e7 / weights / row.optimum.depth))
    for one in row.candidates:
        assert one.n_params == pytest.approx(weights * one.depth * one.width**2, rel=0.05)
        others = one.n_params_total - one.n_params - 2 * 50_257 * one.width
        assert others == pytest.approx(idle * one.depth * one.width**2, rel=0.05)
    assert answered(fit, fit.guideline[:1])[0].n_params_actual == pytest.approx(8.5e7, rel=0.06)
    (judged,) = answer([], ["16x384"], fit=tmp_path).verdicts
    assert judged.optimum.n_params == pytest.approx(weights * 16 * 384**2, rel=0.03)
    with pytest.raises(InputError, match="project: the shapes here have the blocks of your fit's nets"):
        exported(found, "hf")


def test_a_block_that_was_asked_for_replaces_that_of_dense_nets(tmp_path: Path) -> None:
    fit_record.write(of_block(20.0), tmp_path)
    asked = answer([3e7], fit=tmp_path, options=Options(mlp_ratio=4.0)).budgets[0].recommended
    assert asked.n_params / (asked.depth * asked.width**2) == pytest.approx(12.0)


@pytest.mark.parametrize(("name", "value"), [("mlp", "gated"), ("mlp_ratio", 4.0), ("kv_heads", 2)])
def test_no_dense_block_is_answered_by_the_losses_of_a_mixture(tmp_path: Path, name: str, value: Any) -> None:
    """`guide --fit` of 2 of 8 experts with `--mlp gated` built dense nets, trust high, without a word."""
    fit_record.write(of_block(20.0, experts=8, top_k=2), tmp_path)
    said = f"^{name}: asks for dense nets, and those of fit have 8 experts; allowed: one of them"
    with pytest.raises(InputError, match=said):
        answer([3e7], fit=tmp_path, options=Options(**{name: value}))


@pytest.mark.parametrize(
    ("weights", "more", "said"),
    [
        (3.0, {}, "fit: its nets have 3·d² weights in a layer, fewer than attention of 4·d²"),
        (
            68.0,
            {"experts": 8, "top_k": None},
            "fit: its nets have 8 experts, and no column says how many a token passes",
        ),
        (None, {}, "fit: its nets have 8 experts, and no one number of weights in a layer"),
    ],
)
def test_a_block_that_weights_alone_do_not_describe_has_no_shape(
    tmp_path: Path, weights: float | None, more: dict[str, Any], said: str
) -> None:
    made = of_block(20.0, experts=8, top_k=2)
    fit = replace(made, nets=replace(made.nets, layer_weights=weights, **more))
    fit_record.write(fit, tmp_path)
    with pytest.raises(InputError, match=said):
        answer([3e7], fit=tmp_path)
    (row,) = answered(fit, fit.guideline[:1])
    assert row.depth and row.depth_int is None


def test_losses_in_bits_are_priced_in_bits_and_labelled_so(tmp_path: Path) -> None:
    """Numbers of a fit in bits were printed as nats, 1.44 times too large."""
    in_bits = [{**row, "loss": row["loss"] / math.log(2.0)} for row in grid()]
    built = []
    for unit, fit in (("nats", own_grid()), ("bits", fit_table(in_bits, unit="bits"))):
        fit_record.write(fit, tmp_path / unit)
        found = answer([3e7, 3e9], fit=tmp_path / unit)
        built.append([row.recommended.label for row in found.budgets])
        printed = plain_text(guide_report.render(found))
        assert f"+{unit}" in printed
        assert unit == "nats" or "nats" not in printed.lower()
    assert built[0] == built[1]


def test_tokens_far_from_those_of_the_losses_are_named_move_the_best_depth_and_cost_trust(tmp_path: Path) -> None:
    fit_record.write(own_grid(), tmp_path)
    near, far = (answer([3e7], fit=tmp_path, options=Options(tokens=t)).budgets[0].optimum for t in (6e8, 1e11))
    assert near.trust.level == "high" and far.trust.level == "medium"
    assert near.depth < far.depth < 1.6 * near.depth
    assert far.trust.reasons[0] == (
        "your losses are after 500M tokens; the best depth is moved to 100B by the trend of public sources"
    )
    by_time = answer(hours=2.0, fit=tmp_path).budgets[0].optimum.trust
    assert by_time.level != "high" and any("after 500M tokens" in reason for reason in by_time.reasons)


def test_a_guideline_has_one_confidence_inside_the_data_and_by_public_evidence() -> None:
    """`fit --confidence 0.5` printed intervals of 50 % and of 95 % in one column."""
    fits = own_grid(), fit_table(grid(), confidence=0.5)
    sizes = [row for row in fits[0].guideline if row.name in ("125M", "6.7B", "13B")]
    wide, narrow = (answered(fit, sizes) for fit in fits)
    shares = [
        math.log(b.depth_high / b.depth_low) / math.log(a.depth_high / a.depth_low)
        for a, b in zip(wide, narrow, strict=True)
        if a.depth is not None and a.depth_high and a.depth_low and b.depth_high and b.depth_low
    ]
    assert any(row.law.startswith("public") and row.depth for row in wide) and len(shares) >= 2
    # of a normal distribution 0.34; less where a part of the draws rests on own losses and the rest does not
    assert all(0.05 < share < 0.5 for share in shares)


# Bounds of one side, the edge of the own sizes, and their reach


@cache
def sign_change() -> Source:
    """Depth hurts below 6e7 parameters and helps above, among 5 to 28 layers."""
    rows = swept(
        np.geomspace(3e6, 8e8, 8),
        [5, 8, 12, 18, 28],
        lambda n, depth: -0.02 * math.log(n / 6e7) * math.log(depth / 12),
        noise=0.002,
    )
    return source_of(fit_table(rows, noise=0.002), "own")


@cache
def toy() -> FitResult:
    """36 nets of 28K to 307K parameters with a best depth of 1 to 2 layers."""
    rows = swept(
        np.geomspace(3e4, 3e5, 6),
        [1, 2, 3, 4, 5, 6],
        lambda n, depth: 0.08 * math.log(depth / (1.3 * (n / 1e5) ** 0.3)) ** 2,
        noise=0.005,
    )
    return fit_table(rows, noise=0.005)


def built(source: Source, n: float) -> float:
    """Whole number of layers of least expected loss."""
    loss = source.loss(n)
    whole = np.arange(1.0, 200.0)
    return float(whole[loss.penalties(whole).argmin()])


def test_a_fit_answers_below_public_evidence_only_near_its_own_losses() -> None:
    assert answer([3e4], fit="own", source=source_of(toy(), "own")).budgets[0].recommended
    with pytest.raises(
        InputError, match="from 100K to 1T non-embedding parameters, or within 30 times of the sizes of your own losses"
    ):
        answer([3e4], fit="own", source=sign_change())
    with pytest.raises(InputError, match=r"params: 5; must be from 1K to 1T non-embedding parameters$"):
        answer([5.0], fit="own", source=source_of(toy(), "own"))


def test_bounds_of_one_side_are_kept_at_their_sizes_and_no_depth_is_absurd() -> None:
    """`guide --params 5M --fit` built 407 × 32, trust medium, where deep nets lose."""
    source = sign_change()
    assert built(source, 5e6) <= 5 and source.depth(5e6)[2] <= 5.0
    assert 28 <= built(source, 6e8) <= 56 and source.depth(6e8)[1] >= 28.0


def test_losses_that_contradict_public_evidence_say_so_and_are_trusted_little() -> None:
    source = sign_change()
    for n in (5e6, 6e8, 3e9):
        found = judge(source, n)
        assert found.level == "low" and any("contradict public evidence" in one for one in found.reasons)


def test_a_toy_sweep_changes_no_answer_beyond_30_times_its_sizes() -> None:
    source, alone = source_of(toy(), "toy"), public_source()
    assert says(source.reach(3e6), "guide: times outside your own")
    assert any("public evidence" in note for note in source.notes)
    for n in (3e9, 7e10):
        assert source.depth(n) == alone.depth(n) and judge(source, n) == judge(alone, n)
    (row,) = answered(toy(), [row for row in toy().guideline if row.name == "2.7B"])
    assert row.law == "public evidence"
    assert (row.depth, row.depth_low, row.depth_high) == pytest.approx(alone.depth(row.n_params))


def test_at_the_edge_of_the_laptop_study_the_answer_keeps_its_kind() -> None:
    """2.01M had 3.7 (> 1.5) and a regret of 6.9 %, 2.05M 2.9 (2.2 to 3.7) and 13 %."""
    source = source_of(fit_table(LAPTOP, documents=False), "laptop")
    edge = source.own.high
    rows = []
    for n in edge * np.array([0.94, 0.97, 0.9999, 1.0001, 1.03, 1.06]):
        loss = source.loss(float(n))
        chosen = loss.drawn(np.array([3.0]))[:, 0]
        rows.append([*np.log(source.depth(float(n))), loss.cost(float(chosen.mean())).less_compute / 10])
    steps = np.abs(np.diff(rows, axis=0))
    assert (steps[2] <= np.maximum(steps[[0, 1, 3, 4]].max(axis=0), 0.01)).all(), steps


def test_tokens_beyond_the_sources_are_trusted_little_and_named() -> None:
    """7B after 15T tokens was trusted as 7B after 140B; no source near has over 100 tokens per parameter."""
    levels = {}
    for tokens in (1.4e11, 1.5e13):
        source = public_source(TrainingTokens(tokens))
        levels[tokens] = judge(source, 7e9)
    assert levels[1.4e11].level == "medium" and levels[1.5e13].level == "low"
    assert "tokens per parameter" in levels[1.5e13].reasons[0]


def test_a_depth_far_from_own_and_public_depths_is_trusted_little() -> None:
    source = source_of(toy(), "toy")
    shallow, deep = source.depths_near(3e5)
    assert (shallow, deep) == (1.0, pytest.approx(6.0))
    for depth, low in ((11.0, False), (13.0, True)):
        found = judge(source, 3e5, depth)
        assert ("more than twice beyond" in " ".join(found.reasons)) == low and found.level == "low"


def test_a_known_best_depth_is_the_fits_and_a_bound_is_public_evidence_on_its_side() -> None:
    everyone = read_populations()
    x = np.log([1e7, 1e8]) - CENTRE
    best = np.random.default_rng(1).normal([2.0, 2.6], 0.05, (400, 2))
    ends, known = np.log([[2.0, 2.0], [16.0, 16.0]]), np.ones(400, dtype=bool)
    own = OwnDepths(x, *ends, best, np.full((400, 2), 0.3), known)
    found = joined(everyone, own)
    assert np.median(found.depth.at(0.0)) == pytest.approx(2.6, abs=0.05)
    beyond = best + np.array([0.0, 9.0])  # at the larger size beyond the deepest net
    bounded = joined(everyone, OwnDepths(x, *ends, beyond, np.full((400, 2), 0.3), known))
    assert bounded.depth.at(0.0).min() >= math.log(16.0) - 2e-3
    assert np.median(bounded.depth.at(x[0])) == pytest.approx(2.0, abs=0.06)
    assert contradicted(everyone, own) is None


def test_a_bound_far_away_moves_a_small_size_little() -> None:
    """One score per recipe let a bound at 600M move the answer at 3M as far."""
    everyone = read_populations()
    x = np.log([6e8]) - CENTRE
    ends = np.log([4.0]), np.log([60.0])
    own = OwnDepths(x, *ends, np.full((100, 1), 9.0), np.full((100, 1), 0.3), np.ones(100, dtype=bool))
    found = joined(everyone, own).depth
    free = public_source()
    moved = [float(np.median(found.at(math.log(n) - CENTRE)) - math.log(free.depth(n)[0])) for n in (6e8, 3e6)]
    assert moved[0] > 0.8 and 0.0 < moved[1] < 0.75 * moved[0]
