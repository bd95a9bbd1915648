"""The figures: they are drawn from the numbers of the fit, and only where there are any."""

from __future__ import annotations

import functools
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import report_sweeps
from matplotlib.figure import Figure
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


def test_a_law_is_drawn_with_its_rivals_and_the_censored_pair() -> None:
    fit = report_sweeps.fit("law")
    statuses = [row.status for row in fit.verdicts]
    assert statuses[:3] == ["crossed"] * 3 and "not_reached" in statuses
    words = words_of(drawn("law")["width_law"])
    for label in ("own exponential", "own linear", "own power", "published law", "3 crossed, 1 bounded on one side"):
        assert label in words


def test_a_fit_without_a_law_or_without_losses_has_no_figure_of_it_and_none_of_an_earlier_fit(tmp_path: Path) -> None:
    fit = report_sweeps.fit("one_pair")
    stale = tmp_path / "width_law.png"
    stale.touch()
    assert fit.width_law is None
    registry.draw(fit, tmp_path)
    assert not stale.exists()
    for rows in (report_sweeps.rows(**report_sweeps.CASES["one_depth"]), [{"depth": 6, "width": 8, "loss": None}]):
        assert registry.drawings(fit_table(rows, draws=100)) == []


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


def test_training_curves_keep_the_mean_of_the_finite_losses_and_tell_what_diverged() -> None:
    logged = [{"step": s, "loss": 3.0} for s in range(1, 2001)]
    logged += [{"step": 2001, "loss": float("nan")}, {"step": 2002}]
    run = {"depth": 6, "n_params": 1e6, "status": "diverged"}
    curve = run_figures.training_curve(run, logged)
    assert curve is not None and len(curve.step) <= run_figures.BINS and curve.diverged
    assert set(curve.loss.round(9)) == {3.0} and curve.step[0] == 1.0 and curve.step[-1] <= 2000
    assert run_figures.training_curve(run, [{"step": 1, "loss": None}]) is None
    other = run_figures.training_curve({"depth": 12, "n_params": 3e6}, [{"step": 1, "loss": 5.0}])
    assert other is not None
    with style.styled():
        figure = run_figures.training_curves([curve, other])
    assert [line.get_linestyle() for axes in figure.axes for line in axes.lines] == ["--", "-"]


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
