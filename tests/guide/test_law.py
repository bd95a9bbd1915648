"""The guide's numbers recomputed from the formulas: the published table, verdicts, true counts, limits, intervals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sentences import says, shows

from dwsweep.cost.arithmetic import decode_bytes_per_token
from dwsweep.cost.devices import find
from dwsweep.errors import InputError
from dwsweep.evidence import levels
from dwsweep.fit.analysis import fit_table
from dwsweep.fit.statistics import laws
from dwsweep.guide import Options, answer, export, exported, practice, published_source
from dwsweep.guide import sources as guide_sources
from dwsweep.guide.advice import Answer
from dwsweep.guide.answers import CONSTRAINTS
from dwsweep.guide.costs import TIE_NATS
from dwsweep.guide.guideline import answered
from dwsweep.guide.own import OWN_REACH
from dwsweep.guide.shapes import LAYER_SECONDS, matched, step
from dwsweep.guide.sources import LAW_PRICE, LAW_PRICE_ENDS, fitted_source
from dwsweep.records import fit as fit_record
from dwsweep.report import guide_report
from tests.simulations.sweeps import SmoothTruth, draw


def by_law(*args: Any, **asked: Any) -> Answer:
    """Answer by the published law alone."""
    return answer(*args, law="levine2020", **asked)


# the law evaluated at the GPT-3 shapes' own 12·L·d²: optimal L, d
TABLE = {
    "125M": (23.0, 554),
    "13B": (59.6, 4212),
    "1T": (94.7, 29657),
}


def test_overview_is_the_published_table() -> None:
    rows = {row.name: row for row in by_law().overview}
    for name, (depth, width) in TABLE.items():
        row = rows[name]
        assert row.depth == pytest.approx(depth, abs=0.05)
        assert row.width == pytest.approx(width, rel=1e-3)
        # the one interval holds every rival
        assert row.depth_low < row.depth < row.depth_high
        assert all(row.depth_low < rival < row.depth_high for rival in row.rivals.values())
        # at a fixed size the narrow end goes with the deep end
        assert row.width_low == pytest.approx(math.sqrt(row.n_params / 12 / row.depth_high))
        assert 12 * row.depth * row.width**2 == pytest.approx(row.n_params)


@pytest.mark.parametrize(
    ("shape", "verdict"),
    [
        ("96x12288", "balanced"),  # deeper than the law's 80, for 0.6 % of compute
        ("24x2048", "too shallow"),
        ("64×512", "too deep"),
    ],
)
def test_verdicts(shape: str, verdict: str) -> None:
    (row,) = by_law([], [shape]).verdicts
    depth, width = (int(part) for part in shape.replace("×", "x").split("x"))
    assert (row.depth, row.width, row.optimum.n_params) == (depth, width, 12 * depth * width**2)
    assert row.verdict == verdict
    size = row.judged.costs["size"]
    assert size.nats >= 0 and size.nats_low <= size.nats <= size.nats_high
    assert size.less_compute == pytest.approx(
        published_source().loss(row.optimum.n_params).cost(size.nats).less_compute
    )
    for constraint in CONSTRAINTS:
        best = row.best[constraint]
        # fast decoding is worth some of the size
        assert (0.85 if constraint == "decode" else 0.9) < best.n_params / row.optimum.n_params <= 1.05
        mine = row.judged.costs[constraint]
        assert mine is None or best.cost(constraint).nats <= mine.nats + 1e-4


def test_the_cost_of_a_depth_by_the_law_is_its_price_times_the_square_of_its_distance() -> None:
    """w = κ·(ln L − ln L*)², κ = 0.19 in 0.08 to 0.32, for recipes that shift the law by up to 4 times in N."""
    law, n = laws.published(), 1.2e9
    model = published_source().loss(n)
    best = law.depth(n)[0]
    depths = np.array([10.0, 24.0, 60.0, 120.0])
    assert model.best_depth[0] == best == pytest.approx(math.exp(np.median(model.ln_depth)), rel=0.01)
    assert model.penalties(depths) == pytest.approx(model.slope * LAW_PRICE * np.log(depths / best) ** 2, rel=0.1)
    drawn = np.exp(np.quantile(model.ln_depth, [0.025, 0.975]))
    assert drawn == pytest.approx([law.depth(n / 4)[0], law.depth(n * 4)[0]], rel=0.02)
    far = model.drawn(np.array([1e4]))[:, 0] / model.slope / (math.log(1e4) - model.ln_depth) ** 2
    assert np.quantile(far, [0.025, 0.5, 0.975]) == pytest.approx(
        [LAW_PRICE_ENDS[0], LAW_PRICE, LAW_PRICE_ENDS[1]], rel=0.05
    )


@pytest.mark.parametrize(
    "options",
    [
        Options(vocab_size=128_000),
        Options(head_size=64, tensor_parallel=4),
        Options(mlp="gated", kv_heads=4, head_size=64),
    ],
    ids=str,
)
def test_candidates_have_true_counts_and_fit_the_hardware(options: Options) -> None:
    row = by_law([3e9], options=options).budgets[0]
    assert len(row.candidates) >= 4
    for c in row.candidates:
        d, L = c.width, c.depth
        attention = 2 * d * c.heads * c.head_size + 2 * d * c.kv_heads * c.head_size
        mlp = (3 if options.mlp == "gated" else 2) * d * c.mlp_hidden
        assert c.n_params == L * (attention + mlp)
        assert c.n_params_total == c.n_params + 2 * options.vocabulary * d + (2 * L + 1) * d
        assert d % step(d) == 0 and d == c.heads * c.head_size
        assert c.heads <= 16 or c.heads % (2 if c.heads <= 32 else 4) == 0
        assert c.heads % options.tensor_parallel == 0
        assert c.mlp_hidden % (8 * options.tensor_parallel) == 0
        # no other width is nearer to the budget, but one that is above it by too much
        widths, counts = options.widths.counts(L)
        assert counts[list(widths).index(d)] == c.n_params
        assert abs(c.n_params - 3e9) <= np.abs(counts[counts <= 1.05 * 3e9] - 3e9).min()


@pytest.mark.parametrize(
    ("options", "ranks", "multiple"),
    [({"tensor_parallel": 8}, 8, 64), ({"mlp_multiple": 1024}, 1, 1024), ({"mlp_multiple": 96}, 1, 96), ({}, 1, 256)],
)
def test_the_inner_width_can_be_dealt_out(options: dict[str, int], ranks: int, multiple: int) -> None:
    """8/3 of 2048 are 5461, which eight ranks cannot share evenly."""
    shape = Options(mlp="gated", **options).shape(32, 2048)
    assert shape.mlp_hidden % multiple == 0 and shape.mlp_hidden % (8 * ranks) == 0
    assert shape.mlp_hidden == pytest.approx(8 / 3 * 2048, rel=0.13)
    assert 256 in Options(mlp_multiple=1024).widths.counts(4)[0], "one multiple is the whole inner width there"


def test_models_of_families_are_facts_with_a_source() -> None:
    """Their counts are those that the families state for all parameters, less embeddings."""
    models = {model.model: model for model in practice.models()}
    assert len({model.family for model in models.values()}) == 13
    for model in models.values():
        assert model.sure in ("P", "S") and "/" in model.source
        assert model.heads % model.kv_heads == 0
    vocabulary = {"Llama 3.1 8B": (8.03e9, 2 * 128256), "SmolLM3 3B": (3.08e9, 128256), "Qwen3 4B": (4.02e9, 151936)}
    for name, (total, tables) in vocabulary.items():
        assert models[name].n_params + tables * models[name].width == pytest.approx(total, rel=0.005)
    assert {"SmolLM3 3B", "Llama 3.2 3B"} <= {m.model for m in practice.near(3e9)} and not practice.near(1e4)


def test_a_shape_costs_the_same_in_the_table_and_by_itself() -> None:
    options = Options(vocab_size=16_384, kv_heads=8, mlp="gated")
    row = by_law([3e9], options=options).budgets[0]
    some = row.candidates[::4]
    verdicts = by_law([], [f"{c.depth}x{c.width}" for c in some], options=options).verdicts
    for c, alone in zip(some, verdicts, strict=True):
        assert alone.optimum.n_params == c.n_params
        assert alone.judged.costs["size"].nats + c.missing_nats == pytest.approx(c.size.nats, rel=5e-3, abs=1e-4)
    assert all(best.mismatch <= 0.05 for best in row.best.values() if best)


def test_costs_at_equal_size_flops_and_time() -> None:
    row = by_law([3e9], options=Options(tokens=6e10)).budgets[0]
    for constraint in ("flops", "time"):
        assert 0 <= min(c.cost(constraint).nats for c in row.candidates) < TIE_NATS
    # wide wins per hour: the best shape at equal time is not deeper than at equal size
    assert row.best["time"].depth < row.best["size"].depth
    h100 = find("H100")
    for c in row.candidates:
        shape = matched(c.depth, 3e9, Options())
        wanted = decode_bytes_per_token(shape, 2048) / (0.8 * h100.bandwidth) + c.depth * LAYER_SECONDS
        assert c.decode_seconds_per_token == pytest.approx(wanted)


def test_a_shape_that_spends_as_much_is_as_good_as_its_cost_says() -> None:
    """Equal FLOPs, from first principles: give every shape the same FLOPs per token by scaling its size along its own
    aspect, and the losses differ by what the table says."""
    n, source = 3e9, published_source()
    row = by_law([n]).budgets[0]
    model = source.loss(n)
    slope = model.slope
    compared = [c for c in row.candidates if c.costs["flops"]]
    spent = 6 * n  # FLOPs per token that everybody may spend
    losses = [c.size.nats - slope * math.log(spent / (c.flops_per_token / c.n_params) / n) for c in compared]
    for c, loss in zip(compared, losses, strict=True):
        assert c.costs["flops"].nats == pytest.approx(loss - min(losses), abs=TIE_NATS)
        assert levels.level(n * (1 - c.costs["flops"].less_compute / 100)) - levels.level(n) == pytest.approx(
            c.costs["flops"].nats, rel=0.05, abs=1e-6
        )


def test_configurations_hold_the_shape() -> None:
    plain = Options().shape(48, 2304)
    gated = Options(mlp="gated", kv_heads=8, head_size=128).shape(30, 3072)
    gpt = {"n_layer": 48, "n_embd": 2304, "n_head": 18, "vocab_size": 50_257}
    gpt2 = {"model_type": "gpt2", **gpt, "n_inner": 9216, "n_positions": 2048, "tie_word_embeddings": False}
    llama = {"model_type": "llama", "num_hidden_layers": 30, "hidden_size": 3072, "intermediate_size": 8192}
    llama |= {"num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 2048}
    assert export.fields(plain, "hf") == gpt2
    assert export.fields(plain, "nanochat") == {**gpt, "n_kv_head": 18, "sequence_len": 2048}
    assert export.fields(gated, "hf") == {**llama, "vocab_size": 50_257, "tie_word_embeddings": False}
    for shape, project in ((gated, "nanochat"), (Options(kv_heads=2, head_size=64).shape(8, 512), "hf")):
        with pytest.raises(InputError, match="project: "):
            export.fields(shape, project)
    # what is exported is the row that was recommended, heads included
    found = by_law([3e9])
    row = found.budgets[0].recommended
    assert json.loads(exported(found, "hf"))["n_head"] == row.heads
    assert f"n_layer={row.depth}" in exported(found, "nanochat")
    assert json.loads(exported(by_law([], ["8x512"]), "hf"))["n_embd"] == 512
    several = r"prints one configuration, and .* allowed: one size"
    refused = (
        (by_law(), "no shape is recommended"),
        (by_law([1e9, 3e9]), several),
        (by_law([3e9], ["32x2816"]), several),
    )
    for asked, said in refused:
        with pytest.raises(InputError, match=said):
            exported(asked, "hf")


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({"params": [-1.0, math.nan], "shapes": ["96"]}, ["--params: -1;", "--params: nan;", "--shape: '96';"]),
        ({"shapes": ["0x5", "axb"]}, ["--shape: '0x5';", "--shape: 'axb';"]),
        ({"params": [5e12]}, ["--params: 5T; must be from 100K to 1T"]),
        ({"shapes": ["200x70000", "1x2"]}, ["--shape: 200x70000; must be from 100K to 1T", "--shape: 1x2; must be fr"]),
        ({"flops": 5e26}, ["--flops: 5e+26; "]),
        ({"shapes": ["12x768"], "tensor_parallel": 5}, ["--shape: 12x768; 6 heads are no multiple of --tensor-p"]),
        ({"params": [1e9], "flops": 1e20}, ["--flops: 1e+20; stands in place of --params; allowed: one of them"]),
        ({"flops": 1e21, "hours": 3.0}, ["--hours: a budget is in FLOPs or in hours; allowed: one of them"]),
        ({"flops": -1.0}, ["--flops: -1; must be above 0"]),
        ({"hours": math.inf}, ["--hours: inf; must be above 0"]),
        ({"flops": 1e3}, ["--flops: 1000; pays for no net of 100K parameters"]),
        ({"params": [1e5], "law": "levine2020"}, ["--params: 100K; must be from 319K to 1.2T"]),
        ({"shapes": ["400x40000"], "law": "levine2020"}, ["--shape: 400x40000; must be from 319K to 1.2T"]),
        ({"params": [1e9], "law": "kaplan"}, ["--law: 'kaplan'; allowed: levine2020"]),
        ({"shapes": ["32x2816"], "by_source": True}, ["--sources: lists answers at a size; allowed with one of --p"]),
        ({"params": [1e9], "tokens": 6e10, "tokens_per_param": 100.0}, ["--tokens, --tokens-per-param: both"]),
        (
            {"head_size": 64, "at": "time"},
            ["--head-size, --at: has no effect without a size; allowed with one of --params, --flops, --hours, --sh"],
        ),
        (
            {"head_size": 0, "tensor_parallel": -1, "mlp": "fancy", "device": "H999"},
            ["--head-size: 0;", "--tensor-parallel: -1;", "--mlp: 'fancy';", "--device: 'H999' is not"],
        ),
        ({"device": "H100:0"}, ["--device: 'H100:0'; must be from 1"]),
        ({"params": [3e9], "head_size": 10**5 + 1}, ["--head-size: 100,001; no width up to 1,048,576 has"]),
        ({"kv_heads": 3, "tensor_parallel": 2}, ["--kv-heads: 3; must divide --tensor-parallel 2"]),
    ],
)
def test_a_question_that_cannot_be_answered_is_a_line_for_each_reason(asked: dict[str, Any], lines: list[str]) -> None:
    options = {name: value for name, value in asked.items() if name in Options.__dataclass_fields__}
    with pytest.raises(InputError) as caught:
        answer(**{name: asked[name] for name in asked.keys() - options.keys()}, options=Options(**options))
    said = caught.value.option_lines
    assert [line[: len(wanted)] for line, wanted in zip(said, lines, strict=True)] == lines


def test_where_options_leave_no_shape_nothing_is_recommended() -> None:
    found = answer([1e9], options=Options(mlp_multiple=10**6))
    assert found.budgets[0].recommended is None
    assert "Nothing is recommended" in str(guide_report._build(found.budgets[0]))
    assert answer(options=Options(tokens_per_param=100.0, device="A100")).overview, "these change no shape"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A fit of a simulated sweep on the published law, with the row of 125M of its guideline, written to disk."""
    rows = draw(SmoothTruth(), np.random.default_rng(3), sigma=0.0005, seed_sd=0.001)
    out, fit = tmp_path_factory.mktemp("fit"), fit_table(rows)
    row = next(row for row in fit.guideline if row.name == "125M")
    fit_record.write(replace(fit, guideline=answered(fit, [row])), out)
    return out


def test_an_own_fit_guides_as_the_law_that_it_was_drawn_from(fitted: Any) -> None:
    own, theirs = answer([1e8], fit=fitted).budgets[0], by_law([1e8]).budgets[0]
    ours, published = own.optimum, theirs.optimum
    assert ours.source != published.source
    # the simulated truth is the published law
    assert ours.depth == pytest.approx(published.depth, rel=0.02)
    assert ours.depth_low < SmoothTruth().best_depth(ours.n_params) < ours.depth_high
    surface = fitted_source(fitted).loss(ours.n_params)
    assert surface.best == pytest.approx(ours.depth, rel=0.1), "the table is least where the depth is best"
    assert shows(own.loss_tag, "guide: loss by a surface", numbers=True) and theirs.loss_tag.startswith("ASSUMED")
    assert (ours.trust.level, published.trust.level) == ("high", "low")
    assert answer([3e9], fit=fitted).budgets[0].optimum.trust.level != "high"


def test_beyond_the_data_an_own_fit_goes_over_into_the_evidence_without_a_jump(fitted: Any) -> None:
    source = fitted_source(fitted)
    edge = source.own.high
    depths = np.array([8.0, 12.0, 24.0, 48.0])
    for inside, beyond in ((0.9999 * edge, 1.03 * edge), (0.998 * OWN_REACH * edge, 1.002 * OWN_REACH * edge)):
        for say in (
            lambda n: np.array(source.depth(n)),
            lambda n: 1.0 + source.loss(n).penalties(depths),
            lambda n: np.array([source.loss(n).slope]),
        ):
            assert say(beyond) == pytest.approx(say(inside), rel=0.06)
    best = [source.depth(edge * factor) for factor in (1.1, 10.0, 100.0)]
    widths = [math.log(high / low) for _, low, high in best]
    assert widths == sorted(widths), "what is left of one's own losses fades"
    assert all(a[0] < b[0] for a, b in pairwise(best))
    low, high = best[1][1:]
    assert low < SmoothTruth().best_depth(edge * 10.0) < high
    assert [guide_sources.judge(source, n).level for n in (edge / 10.0, 2e11)] == ["high", "low"]


def test_a_fit_that_contradicts_every_form_is_not_trusted_most(fitted: Any) -> None:
    source = fitted_source(fitted)
    n = math.sqrt(source.own.low * source.own.high)
    assert guide_sources.judge(source, n).level == "high"
    contradicted = guide_sources.judge(replace(source, misfit=True), n)
    assert contradicted.level == "medium" and says(contradicted.reasons[0], "guide: form fits your losses")
