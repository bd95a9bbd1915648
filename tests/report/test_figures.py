"""The figures: they are there, they can be read (no text over text, in grey too), and they tell when they are empty."""

from __future__ import annotations

import functools
import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import report_sweeps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from shown import words_of

from dwsweep.report.figures import losses, registry, style
from dwsweep.report.figures import runs as run_figures
from dwsweep.text import format_count

ALWAYS = ["loss_vs_depth", "loss_vs_size", "differences", "width_law", "guideline"]
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
    [("two_lengths", "tokens"), *itertools.product(report_sweeps.CASES, ALWAYS)],
)
def test_no_text_lies_over_text_or_outside(case: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report_sweeps.assert_readable(drawn(case)[name], monkeypatch)


def test_a_law_is_drawn_with_its_rivals_and_the_censored_pair() -> None:
    fit = report_sweeps.fit("law")
    statuses = [row.status for row in fit.transitions if row.is_reference]
    assert statuses[:3] == ["crossed"] * 3 and "not_reached" in statuses
    words = words_of(drawn("law")["width_law"])
    for label in ("own exponential", "own linear", "own power", "published law", "3 crossed, 1 bounded on one side"):
        assert label in words
    assert "inside the data" in words_of(drawn("law")["guideline"])


@pytest.mark.parametrize("case", ["one_pair", "not_reached", "one_depth"])
def test_without_a_law_the_figures_say_so_and_show_the_published_one(case: str) -> None:
    assert "No width law fitted" in words_of(drawn(case)["width_law"])
    words = words_of(drawn(case)["guideline"])
    assert "by the published law (this sweep's own does not extrapolate)" in words and "own exponential" not in words


def test_the_trend_of_few_sizes_does_not_swing_between_them() -> None:
    """Matched budgets cluster: three sizes at slightly different N a depth must not carry a cubic."""
    fit = report_sweeps.fit("one_pair")
    curves = [
        replace(
            row,
            x=tuple((1.0 + 0.002 * row.depth) * n for n in (1e4, 3e4, 1e5)),
            mean=(5.25, 5.24, 5.25 + 0.002 * row.depth),
            width=(1.0,) * 3,
            n_params=(1.0,) * 3,
            n=(3,) * 3,
            se=None,
            smooth=None,
        )
        for row in fit.curves.depths
    ]
    trend = losses._trend(curves)
    import numpy as np

    assert np.ptp(trend(np.geomspace(1e4, 1e5, 100))) < 0.03


def test_several_token_counts_have_a_figure_of_their_own() -> None:
    assert "tokens" not in drawn("one_pair")
    axes = drawn("two_lengths")["tokens"].axes[0]
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [list(line.get_xdata()) for line in marks] == [[1e8, 2e8]]
    assert "6 → 12" in words_of(drawn("two_lengths")["tokens"])


def test_one_depth_says_that_there_is_nothing_to_compare() -> None:
    figures = drawn("one_depth")
    assert "No two depths to compare" in words_of(figures["differences"])
    assert "one depth: no pair" in words_of(figures["loss_vs_size"])
    assert "nothing to compare at fixed size" in words_of(figures["loss_vs_depth"])


def test_unknown_noise_draws_no_band() -> None:
    figures = drawn("noise_unknown")
    assert "no band: the noise is not known" in words_of(figures["loss_vs_size"])
    assert words_of(figures["differences"]).count("(noise unknown)") == 2
    assert not figures["differences"].axes[0].collections  # a band would be one


def test_nothing_finished_says_so() -> None:
    row = {**report_sweeps.rows((6,), 1, 1e6, 1e6, seeds=1)[0], "status": "failed", "loss": None}
    from dwsweep import fit_table

    fit = fit_table([row])
    with style.styled():
        assert "No finished run" in words_of(losses.against_size(fit))
        assert [drawing.name for drawing in registry.drawings(fit)] == ALWAYS
        for drawing in registry.drawings(fit):
            drawing.draw(fit)


@pytest.mark.parametrize("number", [1, 2, 7, 11])
def test_depths_differ_in_grey_and_without_colour(number: int) -> None:
    looks = style.depth_styles(range(2, 2 + number)).values()
    grey = [sum(w * c for w, c in zip((0.299, 0.587, 0.114), to_rgb(look["color"]), strict=True)) for look in looks]
    assert all(later - earlier > 0.03 for earlier, later in itertools.pairwise(grey))
    assert grey[-1] < 0.75  # still seen on white
    shapes = [(look["marker"], str(look["linestyle"])) for look in looks]
    assert len(set(shapes)) == number


@pytest.mark.parametrize(
    ("value", "shown"),
    [(950, "950"), (3.0e4, "30K"), (999_600, "1M"), (1.3e9, "1.3B"), (1e12, "1T"), (2.5e18, "2.5e18"), (0.5, "0.5")],
)
def test_counts_are_written_as_people_write_them(value: float, shown: str) -> None:
    assert format_count(value) == shown


@pytest.mark.parametrize(
    ("low", "high"), [(1e6, 6e8), (9.5e5, 3.2e6), (180, 2300), (200, 260), (1e3, 1e15), (120, 130), (3e17, 4e19)]
)
def test_log_ticks_are_few_and_inside(low: float, high: float) -> None:
    ticks = style.log_ticks(low, high)
    assert 2 <= len(ticks) <= 7
    assert all(low <= tick <= high for tick in ticks) and ticks == sorted(ticks)
    labels = [format_count(tick) for tick in ticks]
    assert len(set(labels)) == len(labels)


def test_spread_moves_labels_apart_as_little_as_needed() -> None:
    assert style.spread([5.0, 1.0, 9.0], 1.0, 0.0, 10.0) == [5.0, 1.0, 9.0]
    placed = style.spread([5.0, 5.0, 5.1, 0.0], 1.0, 0.0, 10.0)
    assert placed[3] == 0.0
    assert sorted(placed[:3]) == pytest.approx([4.0333333, 5.0333333, 6.0333333])
    crowded = style.spread([9.9, 9.8, 9.7], 1.0, 0.0, 10.0)
    assert max(crowded) <= 10.0 and min(abs(a - b) for a, b in itertools.combinations(crowded, 2)) >= 1.0 - 1e-9


def test_training_curves_keep_the_mean_and_mark_what_diverged() -> None:
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


def test_dollar_signs_in_a_name_are_text_and_log_ticks_have_none() -> None:
    with style.styled():
        made = style.figure(4.0, 3.0)
        axes = made.subplots()
        axes.plot([1.0, 3e5], [0.02, 0.05], label="a $\\frac{$ b")
        style.log_scale(axes, "x", "y")
        axes.legend()
        style.render(made, "svg")
        ticks = [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels(which="both"))]
    assert {"1", "100K", "0.02"} <= set(ticks) and not any("$" in text for text in ticks)
