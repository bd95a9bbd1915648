"""A fit that bounds the best depth on one side only: own losses and public evidence answer together, and far away
public evidence alone."""

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

from dwsweep.errors import InputError
from dwsweep.fit.analysis import fit_table
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.guide import Options, answer, exported, source_of
from dwsweep.guide.guideline import answered
from dwsweep.guide.sources import Source
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult
from dwsweep.report import guide_report
from dwsweep.terminal import plain_text

pytestmark = pytest.mark.usefixtures("surfaces_again", "at_equal_size_alone")

LAPTOP = Path(__file__).parents[2] / "sweeps" / "results" / "laptop"
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
    assert found.surface is not None
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
