"""The conditioning of attention on the page: drawn where runs logged it, and nothing where they did not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import report_sweeps

from dwsweep.report import page as sweep_page
from dwsweep.report.figures import runs as run_figures
from dwsweep.report.figures import style


def test_it_is_on_the_page_of_a_sweep_that_logged_it(tmp_path: Path) -> None:
    directory = report_sweeps.sweep(tmp_path / "sweep", "one_pair")
    assert "Conditioning of attention" not in sweep_page.write(directory).read_text()
    for folder in (directory / "runs").iterdir():
        depth = int(folder.name[1:].partition("-")[0])
        rows = [
            {"step": 1, "loss": 5.0, "conditioning_at_start": [100.0] * depth},
            {"step": 400, "loss": 2.0, "conditioning": [50.0 + layer for layer in range(depth)]},
        ]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert "Conditioning of attention" in sweep_page.write(directory).read_text()


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
        left, right = figure.axes
        for line, heads in zip(left.get_lines(), (1, 4), strict=True):
            np.testing.assert_allclose(line.get_xydata(), [[0.5, 8.0 * heads], [40, 2.0 * heads]])
        np.testing.assert_allclose(right.get_lines()[1].get_ydata(), [8.0, 8.0])
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["L 2, H 1", "L 2, H 4"]
        report_sweeps.assert_readable(figure, monkeypatch)
