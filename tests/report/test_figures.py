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
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.records import fit as fit_record
from dwsweep.records.adjusted import Adjustment
from dwsweep.records.answers import AnswerRow
from dwsweep.records.transitions import RateRun
from dwsweep.report import fit_report
from dwsweep.report import page as sweep_page
from dwsweep.report.figures import losses, registry, style
from dwsweep.report.figures import runs as run_figures
from dwsweep.terminal import plain_text


@functools.cache
def drawn(case: str) -> dict[str, Figure]:
    with style.styled():
        fit = report_sweeps.fit(case)
        return {drawing.name: drawing.draw(fit) for drawing in registry.drawings(fit)}


def test_draw_writes_png_and_svg_that_parse_and_repeat(tmp_path: Path) -> None:
    fit = replace(report_sweeps.fit("law"), width_law=None)
    first, second = registry.draw(fit, tmp_path), registry.draw(fit, tmp_path / "b")
    names = ("loss_vs_depth", "best_depth")
    assert [path.name for path in first] == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"\x89PNG") and ET.parse(first[1]).getroot().tag.endswith("}svg")
    for case in ("one_depth", "one_pair"):
        assert registry.drawings(report_sweeps.fit(case)) == []


def test_a_law_is_drawn_with_its_rivals_and_the_censored_pair() -> None:
    fit = report_sweeps.fit("law")
    statuses = [row.status for row in fit.verdicts]
    assert statuses[:3] == ["crossed"] * 3 and "not_reached" in statuses
    words = words_of(drawn("law")["width_law"])
    for label in ("own exponential", "own linear", "own power", "published law", "3 crossed, 1 bounded on one side"):
        assert label in words


def test_forms_stand_in_the_text_where_the_exponential_is_no_law() -> None:
    """A linear law of weight 97 % was not printed."""
    fit = replace(report_sweeps.fit("law"), width_law=None)
    text = plain_text(fit_report.render(fit))
    assert "Width law:" not in text and all(f"  {row.form}, weight" in text for row in fit.rivals)


def test_the_band_clears_zero_where_the_best_depth_is_significant() -> None:
    fit = report_sweeps.fit("law")
    surface = LossSurface(fit.surface)
    for best in fit.surface.optima:
        depth, mean, low, high = losses.surface_above(surface, best, fit.confidence)
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
    rows = [row for row in report_sweeps.fit("law").answers if row.question == "best_depth" and row.depth]
    assert rows and marks(axes) == [(row.n_params, row.depth) for row in rows]


def test_best_depths_at_another_equal_quantity_have_a_panel() -> None:
    fit = report_sweeps.fit("law")
    equal = AnswerRow(question="best_depth", equal="flops", cost=1e18, n_params=2e7, depth=20.0, depth_low=15.0)
    heap = Adjustment(runs=9, columns=(), scatter=0.01, equal=(equal,))
    with style.styled():
        _, by_flops = registry.figures(replace(fit, adjusted=heap))["best_depth"]().axes
    assert marks(by_flops) == [(1e18, 20.0)] and "training FLOPs" in by_flops.get_xlabel()


def test_training_curves_keep_the_mean_of_the_finite_losses_and_tell_what_diverged() -> None:
    logged = [{"step": s, "loss": 3.0} for s in range(1, 2001)]
    logged += [{"step": 2001, "loss": float("nan")}, {"step": 2002}]
    run = {"depth": 6, "n_params": 1e6, "status": "diverged"}
    curve = run_figures.training_curve(run, logged)
    assert curve is not None and len(curve.step) <= run_figures.BINS and curve.diverged
    assert set(curve.loss.round(9)) == {3.0} and curve.step[0] == 1.0 and curve.step[-1] <= 2000
    assert run_figures.training_curve(run, [{"step": 1, "loss": None}]) is None
    other = run_figures.training_curve({"depth": 12, "n_params": 3e6}, [{"step": 1, "loss": 5.0}])
    with style.styled():
        figure = run_figures.training_curves([curve, other])
    assert [line.get_linestyle() for axes in figure.axes for line in axes.lines] == ["--", "-"]


RATES = [1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2]


def sweep(best_of: dict[int, float]) -> list[dict[str, Any]]:
    """Runs of two seeds whose loss is 3 + 0.1·(ln(rate/best))² ± 0.01."""
    given = {"width": 32, "parametrization": "completep"}
    return [
        {**given, "depth": depth, "learning_rate": rate, "seed": seed, "loss": 3 + 0.1 * math.log(rate / best) ** 2 + e}
        for depth, best in best_of.items()
        for rate in RATES
        for seed, e in enumerate((-0.01, 0.01))
    ]


def test_the_best_rate_lies_between_the_rates_and_never_beyond_them() -> None:
    runs = [RateRun(**row) for row in sweep({2: 2.1e-3, 4: 6e-3, 8: 3e-2})]
    *inside, edge = run_figures.rate_curves(runs)
    assert [one.optimum for one in inside] == [pytest.approx((2.1e-3, 3.0)), pytest.approx((6e-3, 3.0))]
    assert edge.at_edge and edge.optimum[0] == RATES[-1] and not inside[0].at_edge
    assert edge.high[0] - edge.low[0] == pytest.approx(0.02)


def test_rates_are_drawn_where_shapes_have_several(tmp_path: Path) -> None:
    fit_record.write(fit_table(sweep({2: 4e-3, 8: 4e-3}) + sweep({32: 4e-3})[:2]), tmp_path / "fit")
    fit = fit_record.read(tmp_path)
    assert {row.depth for row in fit.rates} == {2, 8} and len(fit.rates) == 2 * len(RATES) * 2
    page = sweep_page.write(tmp_path).read_text()
    assert "learning_rates" in registry.figures(fit)
    assert all(drawing.title in page and drawing.caption in page for drawing in registry.drawings(fit))
    one_rate = fit_table([row for row in sweep({2: 4e-3, 8: 4e-3}) if row["learning_rate"] == 4e-3])
    assert one_rate.rates == [] and "learning_rates" not in registry.figures(one_rate)
