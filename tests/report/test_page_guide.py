"""The arithmetic of the page against ``dwsweep.guide``, on a grid of what a reader may type."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import page_script
import pytest
import report_sweeps
from rich.console import Console
from threadpoolctl import threadpool_limits

from dwsweep.fit import output
from dwsweep.guide import Options, answer, fitted_source, published_source
from dwsweep.guide.answers import CONSTRAINTS, Answer, BestDepth, Candidate
from dwsweep.report.page import loss_tables
from dwsweep.report.terminal import guide_tables

# device, key/value heads, MLP, vocabulary, constraint, width multiple, context
ASKED = [
    ("H100", None, "plain", 50257, "size", None, 2048),
    ("A100-80GB", 4, "plain", 50257, "time", None, 2048),
    ("TPU-v5e", None, "gated", 128256, "flops", None, 4096),
    ("H200", 2, "gated", 1000, "time", 256, 8192),
]
SIZES = {None: [3.5e5, 2e7, 3e9, 1.75e11, 3e12], "own": [1e7, 9e7, 3e9]}
SHAPES = {None: ["12x768", "96x12288", "4x1024"], "own": ["24x448", "40x320"]}
NATS = 2e-4


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The matrices of a surface are small: more threads only wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "fit"
    output.write(report_sweeps.fit("law"), folder)
    return folder


def options(row: tuple[Any, ...]) -> Options:
    device, kv_heads, mlp, vocabulary, at, multiple, context = row
    return Options(
        device=device,
        kv_heads=kv_heads,
        mlp=mlp,
        vocab_size=vocabulary,
        at=at,
        width_multiple=multiple,
        context=context,
    )


def typed(row: tuple[Any, ...]) -> dict[str, Any]:
    names = ("device", "kvHeads", "mlp", "vocab", "at", "widthMultiple", "context")
    return dict(zip(names, row, strict=True))


def same_optimum(found: dict[str, Any], expected: BestDepth) -> None:
    assert found["refused"] == expected.refused and found["trust"]["level"] == expected.trust.level
    assert found["factor"] == pytest.approx(expected.extrapolation_factor, rel=1e-9)
    if expected.refused:
        return
    ends = {"depth": expected.depth, "low": expected.depth_low, "high": expected.depth_high}
    ends |= {"lawLow": expected.law_low, "lawHigh": expected.law_high}
    for name, value in ends.items():
        assert (found[name] is None) == (value is None), name
        # quantiles of draws on a grid of depths are no smooth function of the size
        assert value is None or found[name] == pytest.approx(value, rel=1e-2 if name == "depth" else 2e-2), name


def same_costs(found: dict[str, Any], expected: Candidate) -> None:
    assert (found["heads"], found["headSize"], found["kvHeads"], found["hidden"], found["n"], found["total"]) == (
        *(expected.heads, expected.head_size, expected.kv_heads),
        *(expected.mlp_hidden, expected.n_params, expected.n_params_total),
    )
    for name, value in (
        ("flopsPerToken", expected.flops_per_token),
        ("seconds", expected.training_seconds_per_token),
        ("decodeSeconds", expected.decode_seconds_per_token),
    ):
        assert found[name] == pytest.approx(value, rel=1e-9), name
    for constraint in CONSTRAINTS:
        cost = expected.cost(constraint)
        assert (found[constraint] is None) == (cost is None)
        if cost is not None:
            assert found[constraint]["nats"] == pytest.approx(cost.nats, abs=NATS)
            assert found[constraint]["less"] == pytest.approx(cost.less_compute, abs=0.3)


def compare(which: str | None, fit: Path | None, change: tuple[str, str] | None = None) -> None:
    """Raises AssertionError where the page and guide differ by more than the tables can be blamed for."""
    source = published_source() if fit is None else fitted_source(fit)
    budgets = [(n, row) for n in SIZES[which] for row in ASKED]
    shapes = [(text, row) for text in SHAPES[which] for row in ASKED[::2]]
    found = page_script.arithmetic(
        {
            "tables": loss_tables.tables(source),
            "budgets": [[n, typed(row)] for n, row in budgets],
            "shapes": [[*map(int, text.split("x")), typed(row)] for text, row in shapes],
        },
        change,
    )
    built = 0
    for (n, row), got in zip(budgets, found, strict=False):
        whole = answer([n], fit=fit, options=options(row))
        expected = whole.budgets[0]
        same_optimum(got["optimum"], expected.optimum)
        if expected.optimum.refused:
            continue
        theirs, mine = expected.recommended, got["recommended"]
        assert (mine is None) == (theirs is None)
        if theirs is None:
            continue
        candidates = {(c.depth, c.width): c for c in expected.candidates}
        for candidate in got["rows"]:
            if (candidate["depth"], candidate["width"]) in candidates:
                same_costs(candidate, candidates[candidate["depth"], candidate["width"]])
        cost = theirs.cost(row[4])
        assert cost is not None
        if (mine["depth"], mine["width"]) != (theirs.depth, theirs.width):
            # two that tie within the error of the tables
            assert abs(mine[row[4]]["nats"] - cost.nats) < 1e-4, (n, row, mine["depth"], theirs.depth)
            continue
        built += 1
        same_words(got["said"], whole)
        # ends lie on a grid of depths 1 % apart
        for name, end in (("low", expected.near_best[0].depth_low), ("high", expected.near_best[0].depth_high)):
            assert (got["near"][0][name] is None) == (end is None)
            assert end is None or got["near"][0][name] == pytest.approx(end, rel=0.011)
    assert built >= 0.8 * sum(got.get("recommended") is not None for got in found[: len(budgets)])
    for (text, row), got in zip(shapes, found[len(budgets) :], strict=True):
        judged = answer(shapes=[text], fit=fit, options=options(row)).verdicts[0]
        assert got["said"] == judged.verdict and got["n"] == judged.optimum.n_params
        same_optimum(got["optimum"], judged.optimum)
        for constraint, cost in judged.costs.items():
            mine = got["costs"][constraint]
            assert (mine is None) == (cost is None)
            assert cost is None or mine["nats"] == pytest.approx(cost.nats, abs=NATS)


def same_words(said: list[str], whole: Answer) -> None:
    """The three lines of the verdict as the terminal has them, up to numbers that round the other way."""
    console = Console(width=2000, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(guide_tables.render(whole))
    printed = [line.strip() for line in captured.get().splitlines()]
    assert said[0].split(", the best")[0] == printed[1].split(", the best")[0]
    for ours, theirs in zip(said, printed[1:4], strict=True):
        assert re.sub(r"[\d.,]+", "1", ours) == re.sub(r"[\d.,]+", "1", theirs)


def test_the_page_answers_as_guide_does_by_the_published_law() -> None:
    compare(None, None)


def test_the_page_answers_as_guide_does_by_a_fit_of_ones_own(own: Path) -> None:
    compare("own", own)


@pytest.mark.slow
@pytest.mark.parametrize("which", [None, "own"])
def test_the_page_answers_as_guide_does_on_a_finer_grid(
    which: str | None, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = (11.7, 27.5) if which is None else (9.0, 24.5)  # ln N
    monkeypatch.setitem(SIZES, which, [math.exp(value) for value in np.linspace(*ends, 40)])
    compare(which, own if which else None)


@pytest.mark.parametrize(
    "change",
    [
        ("return 3 * (2 * one.n", "return 3 * (2.001 * one.n"),
        ("const gated = options.mlp", "const gated = options.at && options.mlp + options.mlp"),
        ("7 * float32 * one.total", "8 * float32 * one.total"),
        ("weight *= (x - at[j])", "weight *= (x - at[j] + 0.05)"),
        ("const cache = 2 * one.depth * one.kvHeads", "const cache = 2 * one.depth * one.heads"),
    ],
    ids=["FLOPs", "MLP", "seconds", "interpolation", "cache"],
)
def test_a_wrong_script_is_noticed(change: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, None, [3e9])
    monkeypatch.setitem(SHAPES, None, [])
    with pytest.raises(AssertionError, match=r"(?s).+"):
        compare(None, None, change)


def test_tables_hold_what_they_are_made_from() -> None:
    source = published_source()
    table = loss_tables.tables(source)
    assert math.exp(table["best"]["x"][-1]) == pytest.approx(source.law.valid_to * source.law.limit)
    row = len(table["loss"]["x"]) // 2
    n = math.exp(table["loss"]["x"][row])
    assert table["loss"]["level"][row] == pytest.approx(source.loss(n).level(n))
    assert min(table["loss"]["penalty"][row]) == pytest.approx(0.0, abs=1e-4)
