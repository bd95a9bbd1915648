"""The package in a notebook: two functions, results that show themselves, errors that name arguments."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import report_sweeps
from checkout import ROOT

import dwsweep
from dwsweep.fit.analysis import fit_table
from dwsweep.guide import Options, answer
from dwsweep.guide.guideline import completed
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitKeywords, FitOptions
from dwsweep.report.document import MISSING, Table
from dwsweep.results import AlongResult, Guidance, Shown, TableResult
from tests.simulations.along import AlongStudy, draw_along

pytestmark = pytest.mark.usefixtures("short_guideline")

LAPTOP = str(ROOT / "sweeps" / "results" / "laptop")
PNG = b"\x89PNG\r\n\x1a\n"


NOTEBOOK = """
import sys
import dwsweep
assert not {"numpy", "jax"} & set(sys.modules)  # the package imports what is asked for, and no more
import dwsweep.guide                     # the room first: the name is the function all the same
from dwsweep.guide import Options
from dwsweep import guide

assert callable(guide) and dwsweep.guide is guide and sys.modules["dwsweep.guide"].Options is Options
found = dwsweep.fit_table(sys.argv[1], draws=100, where="depth < 3")  # two depths: no surface to fit
assert found.plot("loss_vs_depth")._repr_png_().startswith(b"\\x89PNG") and "<table>" in found._repr_html_()
assert "Build" in guide("3B").summary()
print(sorted({"jax", "flax", "matplotlib.pyplot", "IPython"} & set(sys.modules)))
"""


def test_a_notebook_needs_neither_jax_nor_pyplot() -> None:
    assert dir(dwsweep) == ["InputError", "__version__", "fit_table", "guide"]
    found = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, LAPTOP], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert found.stdout.strip() == "[]", found.stderr


def _small() -> list[dict]:
    return report_sweeps.rows((2, 4), 6, 1e5, 1e7)


RESULTS: dict[str, tuple[type, Callable[[], Shown]]] = {
    "table": (TableResult, lambda: dwsweep.fit_table(LAPTOP, draws=100)),
    "along the heads": (AlongResult, lambda: dwsweep.fit_table(_heads(), along="heads", draws=100)),
    "comparison": (TableResult, lambda: dwsweep.fit_table(_small(), compare=_worse(), draws=100)),
    "guide": (Guidance, lambda: dwsweep.guide(["3B", 7e9], shapes="96x12288")),
}


def _heads() -> list[dict]:
    return draw_along(AlongStudy(), np.random.default_rng(0))[0]


def _worse() -> list[dict]:
    return [{**row, "loss": row["loss"] + 0.01} for row in _small()]


@cache
def _result(name: str) -> Shown:
    return RESULTS[name][1]()


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_shows_itself(name: str) -> None:
    found = _result(name)
    assert isinstance(found, RESULTS[name][0]) and isinstance(found, Shown)
    text = found.summary()
    assert text and max(map(len, text.splitlines())) <= 100
    assert str(found) == text and repr(found).startswith(f"{type(found).__name__}: ") and "\n" not in repr(found)
    assert name != "table" or "The best depth grows with N: " in repr(found)
    assert found._repr_html_().startswith("<div>") and len(found._repr_html_()) > 200
    assert found.figures and all(
        found.plot(figure)._repr_png_().startswith(PNG)  # type: ignore[attr-defined]
        for figure in (None, found.figures[-1])
    )
    tables = found.tables()
    assert tables and all(isinstance(row, dict) for rows in tables.values() for row in rows)
    assert any(tables.values())
    json.dumps(found.to_dict(), allow_nan=False, default=str)
    with pytest.raises(dwsweep.InputError, match=r"^name: 'losses'; allowed: "):
        found.plot("losses")


def test_an_overview_prints_itself_and_names_no_best_depth_of_a_range() -> None:
    found = dwsweep.guide()
    assert found.figures == [] and len(str(found)) < 3000 and repr(found) == "Guidance: best depth at 9 sizes"
    (table,) = [part for part in found._document() if isinstance(part, Table)]
    named = [row for row in found.overview if row.basis != "range" and row.depth is not None]
    assert len([row for row in table.rows if row[table.heads.index("depth")] != MISSING]) == len(named) == 7


def test_a_result_is_the_record_that_the_command_writes() -> None:
    found, record = _result("table"), completed(fit_table(LAPTOP, draws=100))
    assert isinstance(found, TableResult) and found.to_json() == record.to_json()
    best = [row for row in found.answers if row.question == "best_depth"]
    assert found.surface is not None
    assert [(row.n_params, row.depth) for row in best] == [(row.n_params, row.depth) for row in found.surface.optima]
    assert found.tables()["answers"] == [row.to_dict() for row in found.answers]


def test_several_tables_are_compared_and_a_list_of_rows_is_one_table() -> None:
    columns = {name: [row[name] for row in _worse()] for name in ("depth", "width", "loss", "seed")}
    for other in (_worse(), [columns]):
        found = dwsweep.fit_table(_small(), compare=other, draws=100)
        assert len(found.comparisons) == 1
        (change,) = {row.reason for row in found.answers if row.question == "difference"}
        assert change == "worse"
    labelled = [*({**row, "arm": "a"} for row in _small()), *({**row, "arm": "b"} for row in _worse())]
    found = dwsweep.fit_table(labelled, compare=True, draws=100)
    assert [(one.base, one.arm) for one in found.comparisons] == [("a", "b")]
    assert len(dwsweep.fit_table(_small(), compare=[_worse(), _worse()], draws=100).comparisons) == 2


def test_guide_takes_a_result_as_it_takes_its_folder(tmp_path: Path) -> None:
    found = _result("table")
    assert isinstance(found, TableResult)
    fit_record.write(found, tmp_path)
    by_result, by_folder = (dwsweep.guide(["500K", 3e9], fit=one) for one in (found, tmp_path))
    assert by_result.tables() == by_folder.tables()
    with pytest.raises(dwsweep.InputError, match=r"^fit: holds the losses along heads and no best depth; allowed: "):
        dwsweep.guide(3e9, fit=_result("along the heads"))


@pytest.mark.parametrize(
    ("name", "instead"), [("fit_along", "along=column"), ("compare_arms", "compare="), ("plot", r"\.plot\(\)")]
)
def test_a_name_that_left_says_what_to_use(name: str, instead: str) -> None:
    with pytest.raises(ImportError, match=rf"^dwsweep\.{name} has left; use dwsweep\.fit_table\(.*{instead}"):
        getattr(dwsweep, name)
    with pytest.raises(ImportError, match=rf"^dwsweep\.{name} has left; use .*{instead}"):
        exec(f"from dwsweep import {name}")


def test_guide_takes_what_the_command_takes_and_shows_all_of_it() -> None:
    found = dwsweep.guide(flops=1e21, sources=True, at="decode", heads=16, kv_heads=8, mlp="gated", mlp_multiple=256)
    options = Options(at="decode", heads=16, kv_heads=8, mlp="gated", mlp_multiple=256)
    assert found.to_dict() == answer(flops=1e21, by_source=True, options=options).to_dict()
    assert dwsweep.guide("3B", law="levine2020").sources[0].name == answer([3e9], law="levine2020").sources[0].name
    assert dwsweep.guide(hours=1.0).afforded
    assert [v.depth for v in dwsweep.guide(shapes="96x12288").verdicts] == [96]
    assert [row.budget for row in dwsweep.guide(np.array([1e9, 3e9])).budgets] == [1e9, 3e9]
    (row,) = found.budgets
    assert row.recommended is not None and f"Build {row.recommended.label}" in found.summary()
    assert row.recommended.label.replace(" ", "\u00a0") in found._repr_html_()  # shapes do not break over a line
    tables = found.tables()
    assert {one["name"] for one in tables["sources"]} >= {"gemstones", "completep"}
    assert all(one["source"] and one["budget"] == row.budget for one in tables["built"])


def test_a_figure_can_be_drawn_on_and_what_was_drawn_is_shown(tmp_path: Path) -> None:
    made = dwsweep.guide(3e9).plot("guide")
    before = made._repr_png_()  # type: ignore[attr-defined]
    made.axes[0].set_title("mine")
    made.savefig(tmp_path / "a.png")
    assert made._repr_png_() != before  # type: ignore[attr-defined]
    with pytest.raises(dwsweep.InputError, match=r"^name: ''; allowed: none, as nothing here can be shown"):
        dwsweep.guide(shapes="96x12288").plot()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"params": 3.0}, "params: 3; must be"),
        ({"params": ["3X", 3e9, None]}, "params: '3X'; must be a positive number"),
        ({"shapes": "2560x24"}, "shapes: '2560x24'; the depth comes first"),
        ({"params": 3e9, "kv_heads": 0}, "kv_heads: 0; must be from 1 to 1e+07"),
        ({"params": 3e9, "device": "H1000"}, "device: 'H1000' is not in the table"),
        ({"params": 3e9, "fit": "/nowhere"}, "fit: /nowhere; does not exist"),
        ({"params": 3e9, "fit": 3}, "fit: 3; must be a result of fit_table, or the path of a fit"),
    ],
)
def test_an_error_names_the_argument_and_to_a_shell_the_option(arguments: dict, line: str) -> None:
    with pytest.raises(dwsweep.InputError) as error:
        dwsweep.guide(**arguments)
    assert str(error.value).startswith(line)
    options = {"shapes": "--shape", "kv_heads": "--kv-heads"}
    name, rest = line.split(":", 1)
    assert error.value.option_lines[0].startswith(f"{options.get(name, f'--{name}')}:{rest}")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dwsweep.guide(3e9, kv_head=8), r"no argument 'kv_head'; did you mean kv_heads\?"),
        (lambda: dwsweep.fit_table([], draw=9), r"no argument 'draw'; did you mean draws\?"),
        (lambda: dwsweep.fit_table([], sheds=9), r"'sheds'; did you mean seed\?"),
        (lambda: dwsweep.fit_table([], along="heads", axes="n_params"), r"'axes'; did you mean axis\?"),
        (lambda: dwsweep.fit_table([], compare=[{"depth": 1}], qqqq=1), r"no argument 'qqqq'; allowed: axis, noise, "),
    ],
)
def test_a_wrong_keyword_names_the_nearest(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_the_signature_shows_the_options() -> None:
    own = {*inspect.signature(fit_table).parameters, *inspect.signature(FitOptions).parameters} - {"table", "options"}
    assert {*FitKeywords.__annotations__} == own
    assert get_type_hints(dwsweep.fit_table)["options"].__args__ == (FitKeywords,)
    assert all(f"{name}" in (dwsweep.fit_table.__doc__ or "") for name in own)
