"""The figures: they are there, they can be read (no text over text, in grey too), and they tell when they are empty."""

from __future__ import annotations

import functools
import itertools
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_sweeps
from matplotlib.figure import Figure
from sentences import says
from shown import words_of

from dwsweep.fit.analysis import fit_table
from dwsweep.fit.answers import answers
from dwsweep.fit.ask import LossSurface
from dwsweep.records import fit as fit_record
from dwsweep.records.adjusted import Adjustment
from dwsweep.records.answers import AnswerRow
from dwsweep.records.comparison import ComparedRow, Comparison
from dwsweep.records.transitions import RateRun
from dwsweep.report import page as sweep_page
from dwsweep.report.figures import losses, registry, style
from dwsweep.report.figures import runs as run_figures

ALWAYS = ["loss_vs_depth"]
LAWS = ["best_depth", "width_law"]
SVG = "{http://www.w3.org/2000/svg}"


@functools.cache
def drawn(case: str) -> dict[str, Figure]:
    with style.styled():
        fit = report_sweeps.fit(case)
        return {drawing.name: drawing.draw(fit) for drawing in registry.drawings(fit)}


def test_draw_writes_png_and_svg_that_parse_and_repeat(tmp_path: Path) -> None:
    fit = report_sweeps.fit("one_pair")
    first, second = registry.draw(fit, tmp_path / "a"), registry.draw(fit, tmp_path / "b")
    assert [path.name for path in first] == [f"{name}.{kind}" for name in ALWAYS for kind in ("png", "svg")]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(path.name for path in first)
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
        if one.suffix == ".svg":
            assert ET.parse(one).getroot().tag == f"{SVG}svg"
        else:
            assert one.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("case", "name"),
    [*(("law", name) for name in LAWS), *itertools.product(("law", "one_depth", "noise_unknown"), ALWAYS)],
)
def test_no_text_lies_over_text_or_outside(case: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report_sweeps.assert_readable(drawn(case)[name], monkeypatch)


def test_a_law_is_drawn_with_its_rivals_and_the_censored_pair() -> None:
    fit = report_sweeps.fit("law")
    statuses = [row.status for row in fit.verdicts]
    assert statuses[:3] == ["crossed"] * 3 and "not_reached" in statuses
    words = words_of(drawn("law")["width_law"])
    for label in ("own exponential", "own linear", "own power", "published law", "3 crossed, 1 bounded on one side"):
        assert label in words


@pytest.mark.parametrize("case", ["one_pair", "noise_unknown"])
def test_no_figure_of_a_law_where_there_is_none(case: str, tmp_path: Path) -> None:
    fit = report_sweeps.fit(case)
    assert fit.width_law is None and "width_law" not in drawn(case)
    stale = [tmp_path / "width_law.png", tmp_path / "width_law.svg"]
    for path in stale:
        path.touch()
    registry.draw(fit, tmp_path)
    assert not any(path.exists() for path in stale)


def test_the_band_clears_zero_where_the_best_depth_is_significant() -> None:
    fit = report_sweeps.fit("law")
    assert fit.surface is not None
    surface = LossSurface(fit.surface)
    for size in fit.curves.fixed_n:
        assert size.surface is not None and size.surface.optimum is not None
        depth, mean, low, high, _ = losses.surface_above(surface, size.surface, size.x, fit.curves.confidence)
        best = size.surface.optimum
        assert mean.min() == 0.0 and (low <= mean + 1e-12).all() and (mean <= high + 1e-12).all()
        if best.depth is not None and best.depth_low is not None and best.depth_high is not None:
            span = best.depth_high - best.depth_low
            far = (depth < best.depth_low - span) | (depth > best.depth_high + span)
            assert (low[far] > 0.0).all()


def marks(axes: Any) -> list[tuple[float, float]]:
    """Places and heights of the filled marks of values."""
    shown = (line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1)
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in shown]


def test_the_figure_of_best_depths_has_the_rows_of_answers() -> None:
    (axes,) = drawn("law")["best_depth"].axes
    rows = [row for row in answers(report_sweeps.fit("law")) if row.question == "best_depth" and row.depth]
    assert rows and marks(axes) == [(row.n_params, row.depth) for row in rows]


def test_best_depths_at_another_equal_quantity_have_a_panel_and_arms_a_line() -> None:
    fit = report_sweeps.fit("law")
    assert fit.surface is not None
    row, *_ = [one for one in fit.surface.optima if one.depth]
    assert row.depth is not None
    equal = AnswerRow(question="best_depth", equal="flops", cost=1e18, n_params=2e7, depth=20.0, depth_low=15.0)
    heap = Adjustment(runs=9, columns=(), depth_left=1.0, scatter=0.01, equal=(equal,))
    change = {"quantity": "best_depth", "n_params": row.n_params, "confidence": 0.95, "verdict": "deeper"}
    ends = {f"{name}{end}": 2.0 for name in ("base", "other", "change") for end in ("", "_low", "_high")}
    compared = ComparedRow(arm="b", **change, **ends)
    arms = Comparison(
        base="a", arm="b", input="b", input_sha256="", unit=fit.unit, pairing="none", answer=(),
        rows=(compared,),
    )  # fmt: skip
    with style.styled():
        made = registry.figures(replace(fit, adjusted=heap, comparisons=[arms]))["best_depth"]()
    by_size, by_flops = made.axes
    assert marks(by_flops) == [(1e18, 20.0)] and "training FLOPs" in by_flops.get_xlabel()
    assert by_size.get_legend_handles_labels()[1] == ["a", "b"]


def test_points_lie_about_the_line_whatever_all_losses_share() -> None:
    def points(fit: Any) -> list[list[float]]:
        panels = losses.against_depth(fit).axes
        return [[float(y) for line in axes.lines for y in line.get_ydata()] for axes in panels]

    fit = report_sweeps.fit("law")
    shifted = tuple(replace(one, mean=tuple(float(y or 0.0) + 0.5 for y in one.mean)) for one in fit.curves.fixed_n)
    moved = replace(fit, curves=replace(fit.curves, fixed_n=shifted))
    for before, after in zip(points(fit), points(moved), strict=True):
        assert after == pytest.approx(before, abs=1e-6)  # thousandths of a nat


def test_one_depth_says_that_there_is_nothing_to_compare() -> None:
    figures = drawn("one_depth")
    assert says(words_of(figures["loss_vs_depth"]), "report: nothing compare fixed size")
    assert "best_depth" not in figures


def test_nothing_finished_says_so() -> None:
    row = {**report_sweeps.rows((6,), 1, 1e6, 1e6, seeds=1)[0], "status": "failed", "loss": None}
    from dwsweep import fit_table

    fit = fit_table([row])
    with style.styled():
        assert [drawing.name for drawing in registry.drawings(fit)] == ALWAYS
        for drawing in registry.drawings(fit):
            drawing.draw(fit)


def test_training_curves_keep_the_mean_and_mark_what_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = [{"step": s, "loss": 3.0} for s in range(1, 2001)]
    logged += [{"step": 2001, "loss": float("nan")}, {"step": 2002}]
    curve = run_figures.training_curve("a", 6, 1e6, True, logged)
    assert curve is not None and len(curve.step) <= run_figures.BINS
    assert set(curve.loss.round(9)) == {3.0} and curve.step[0] == 1.0 and curve.step[-1] <= 2000
    assert run_figures.training_curve("b", 6, 1e6, False, [{"step": 1, "loss": None}]) is None
    other = run_figures.training_curve("c", 12, 3e6, False, [{"step": 1, "loss": 5.0}])
    assert other is not None
    with style.styled():
        figure = run_figures.training_curves([curve, other])
    assert {axes.get_title(loc="left") for axes in figure.axes[:2]} == {"L = 6   (1 run)", "L = 12   (1 run)"}
    assert any(line.get_marker() == "x" for line in figure.axes[0].lines)
    report_sweeps.assert_readable(figure, monkeypatch)  # the colour bar too


def test_lines_are_of_the_largest_size_of_each_depth_and_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(depth: int, heads: int, n: int) -> dict[str, str]:
        return {"depth": str(depth), "heads": str(heads), "n_params": str(n), "arm": ""}

    def rows(depth: int, scale: float) -> list[dict]:
        start = {"step": 1, "conditioning_at_start": [8.0 * scale] * depth}
        return [start, {"step": 10}, {"step": 40, "conditioning": [2.0 * scale] * depth}]

    runs = [run_figures.conditions(row(2, h, n), rows(2, h)) for h in (1, 4) for n in (10, 20)]
    assert run_figures.conditions(row(2, 1, 10), [{"step": 1}, {"step": 2, "conditioning": [None, 2.0]}]) is None
    kept = [run for run in runs if run]
    assert {run.n_params for members in run_figures.shown(kept).values() for run in members} == {20.0}
    with style.styled():
        figure = run_figures.over_training(kept)
        for line, heads in zip(figure.axes[0].get_lines(), (1, 4), strict=True):
            np.testing.assert_allclose(line.get_xydata(), [[0.5, 8.0 * heads], [40, 2.0 * heads]])
        report_sweeps.assert_readable(figure, monkeypatch)


# Loss against learning rate: the optimum by the parabola, seeds averaged, edges told apart, the figure drawn.


RATES = [1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2]


def sweep(best_of: dict[int, float], name: str = "completep", seeds: int = 2) -> list[dict[str, Any]]:
    """Runs whose loss is 3 + 0.1·(ln(rate/best))², with seeds a fixed ± 0.01 apart."""
    return [
        {
            "depth": depth,
            "width": 32,
            "parametrization": name,
            "learning_rate": rate,
            "seed": seed,
            "loss": 3 + 0.1 * math.log(rate / best) ** 2 + 0.01 * (2 * seed - 1),
        }
        for depth, best in best_of.items()
        for rate in RATES
        for seed in range(seeds)
    ]


def curves(rows: list[dict[str, Any]]) -> list[run_figures.RateCurve]:
    return run_figures.rate_curves([RateRun(**row) for row in rows])


def test_the_parabola_finds_an_optimum_between_the_rates_and_none_beyond_them() -> None:
    for best in (2.1e-3, 3.7e-3, 6e-3):
        (curve,) = curves(sweep({4: best}))
        rate, loss = curve.optimum
        assert rate == pytest.approx(best) and loss == pytest.approx(3.0)
        assert not curve.at_edge
        assert curve.high[0] - curve.low[0] == pytest.approx(0.02)
    (edge,) = curves(sweep({4: 3e-2}))  # nothing is extrapolated
    assert edge.at_edge and edge.optimum[0] == RATES[-1]


def test_a_fit_draws_it_where_shapes_have_several_rates_and_only_then(tmp_path: Path) -> None:
    fit_record.write(fit_table(sweep({2: 4e-3, 8: 4e-3}) + sweep({32: 4e-3})[:2], draws=100), tmp_path / "fit")
    fit = fit_record.read(tmp_path)
    assert {(row["depth"], row["parametrization"]) for row in fit.rates} == {(2, "completep"), (8, "completep")}
    assert len(fit.rates) == 2 * len(RATES) * 2
    names = {path.name for path in registry.draw(fit, tmp_path / "fit")}
    assert {"learning_rates.png", "learning_rates.svg"} <= names
    page = sweep_page.write(tmp_path).read_text()
    for drawing in registry.drawings(fit):
        assert drawing.title in page and drawing.caption in page, drawing.name
    one_rate = fit_table([row for row in sweep({2: 4e-3, 8: 4e-3}) if row["learning_rate"] == 4e-3], draws=100)
    assert one_rate.rates == []
    assert "learning_rates" not in {drawing.name for drawing in registry.drawings(one_rate)}
