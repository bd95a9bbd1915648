"""Loss against learning rate: the optimum by the parabola, seeds averaged, edges told apart, the figure drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from dwsweep.fit import output
from dwsweep.fit.analysis import fit_table
from dwsweep.records import fit as fit_record
from dwsweep.records.transitions import RateRun
from dwsweep.report import page as sweep_page
from dwsweep.report.figures import registry, style
from dwsweep.report.figures import runs as run_figures

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


def test_the_parabola_finds_an_optimum_between_the_rates() -> None:
    for best in (2.1e-3, 3.7e-3, 6e-3):
        (curve,) = curves(sweep({4: best}))
        rate, loss = curve.optimum
        assert rate == pytest.approx(best) and loss == pytest.approx(3.0)
        assert not curve.at_edge
        assert curve.high[0] - curve.low[0] == pytest.approx(0.02)


def test_rates_need_not_be_evenly_spaced() -> None:
    uneven = [row for row in sweep({4: 3e-3}) if row["learning_rate"] != 4e-3]
    assert curves(uneven)[0].optimum[0] == pytest.approx(3e-3)


def test_the_edge_is_told_and_nothing_is_extrapolated() -> None:
    (curve,) = curves(sweep({4: 3e-2}))
    assert curve.at_edge and curve.optimum[0] == RATES[-1]


def test_runs_without_a_loss_and_shapes_with_few_rates_are_left_out() -> None:
    rows = sweep({2: 4e-3, 8: 4e-3})
    for row in rows:
        if row["depth"] == 8 and row["learning_rate"] > 2e-3:
            row["loss"] = math.nan
        if row["depth"] == 2 and row["learning_rate"] == 8e-3 and row["seed"] == 0:
            row["loss"] = None
    (curve,) = curves(rows)
    assert curve.depth == 2 and len(curve.rate) == len(RATES)


def panels(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible() and axes.lines]


def test_a_panel_a_parametrization_and_the_optima_in_words() -> None:
    rows = sweep({2: 4e-3, 32: 4e-3}) + sweep({2: 4e-3, 32: 1e-4}, "standard")
    with style.styled():
        figure = run_figures.against_rate(curves(rows))
    assert panels(figure) == ["completep, d = 32", "standard, d = 32"]
    words = "\n".join(text.get_text() for text in figure.findobj(Text))
    assert words.count("L = 2: 0.004") == 2 and "L = 32: 0.001 (edge)" in words


def test_a_fit_draws_it_where_shapes_have_several_rates_and_only_then(tmp_path: Path) -> None:
    output.write(fit_table(sweep({2: 4e-3, 8: 4e-3}) + sweep({32: 4e-3})[:2], draws=100), tmp_path / "fit")
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
