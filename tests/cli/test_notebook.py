"""The package in a notebook: one function per question, results that show themselves, errors that name arguments."""

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
from dwsweep.records.fit import FitKeywords, FitOptions
from dwsweep.results import AlongResult, BudgetsResult, ComparisonResult, Guidance, Shown, TransitionsResult
from tests.simulations.along import AlongStudy, draw_along
from tests.simulations.budgets import BudgetSweep

LAPTOP = str(ROOT / "sweeps" / "results" / "laptop")
PNG = b"\x89PNG\r\n\x1a\n"


def test_every_name_is_there_and_none_imports_more_than_it_needs() -> None:
    assert all(getattr(dwsweep, name) is not None for name in dwsweep.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = dwsweep.nothing
    code = (
        "import sys, dwsweep; light = set(sys.modules); dwsweep.guide(3e9); "
        "print(sorted({'numpy', 'jax'} & light), sorted({'jax', 'matplotlib'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[0] == "[] []"


NOTEBOOK = """
import sys
import dwsweep.guide                     # the room first: the name is the function all the same
from dwsweep.guide import Options
from dwsweep import guide
import dwsweep

assert callable(guide) and dwsweep.guide is guide and sys.modules["dwsweep.guide"].Options is Options
found = dwsweep.fit_transitions(sys.argv[1], draws=100, where="depth < 3")  # two depths: no surface to fit
assert found.plot("differences")._repr_png_().startswith(b"\\x89PNG") and "<pre>" in found._repr_html_()
assert "Build" in guide("3B").summary()
print(sorted({"jax", "flax", "matplotlib.pyplot", "IPython"} & set(sys.modules)))
"""


def test_a_notebook_needs_neither_jax_nor_pyplot() -> None:
    found = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, LAPTOP], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert found.stdout.strip() == "[]", found.stderr


def _small() -> list[dict]:
    return report_sweeps.rows((2, 4), 6, 1e5, 1e7)


RESULTS: dict[str, tuple[type, Callable[[], Shown]]] = {
    "transitions": (TransitionsResult, lambda: dwsweep.fit_transitions(LAPTOP, draws=100)),
    "transitions of a small table": (TransitionsResult, lambda: dwsweep.fit_transitions(_small(), draws=100)),
    "budgets": (BudgetsResult, lambda: dwsweep.fit_budgets(_budgets(), draws=100)),
    "along the depth": (AlongResult, lambda: dwsweep.fit_along(LAPTOP, "depth", draws=100)),
    "along the heads": (AlongResult, lambda: dwsweep.fit_along(_heads(), "heads", draws=100)),
    "comparison": (ComparisonResult, lambda: dwsweep.compare(_small(), [_worse()], draws=100)),
    "table": (dwsweep.FitResult, lambda: dwsweep.fit_table(LAPTOP, draws=100)),
    "guide": (Guidance, lambda: dwsweep.guide(["3B", 7e9], rules="gpt3", shapes="96x12288")),
}


def _budgets() -> list[dict]:
    return BudgetSweep().rows(np.random.default_rng(0))


def _heads() -> list[dict]:
    return draw_along(AlongStudy(), np.random.default_rng(0))[0]


def _worse() -> list[dict]:
    return [{**row, "loss": row["loss"] + 0.01} for row in _small()]


@cache
def _result(name: str) -> Shown:
    return RESULTS[name][1]()


AGAIN = ("transitions of a small table", "along the depth")  # kinds of a result that another table has, too


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in AGAIN else ()) for n in RESULTS])
def test_every_result_shows_itself(name: str) -> None:
    found = _result(name)
    assert isinstance(found, RESULTS[name][0]) and isinstance(found, Shown)
    text = found.summary()
    assert text and max(map(len, text.splitlines())) <= 100
    assert str(found) == text and 20 < len(repr(found)) < 300 and "\n" not in repr(found)
    shown = found._repr_html_()
    tag = "<div>" if isinstance(found, Guidance) else "<pre>"
    assert shown.startswith(tag) and len(shown) > 200
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


def test_an_overview_prints_and_draws_itself_and_names_no_best_depth_of_a_range() -> None:
    found = dwsweep.guide()
    assert found.figures == ["overview"] and len(str(found)) < 3000 and repr(found) == "Guidance: 9 overview"
    (axes,) = found.plot().axes
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(marks) == sum(row.basis != "range" and row.depth is not None for row in found.overview) == 7


def test_a_result_has_the_tables_of_its_own_question() -> None:
    found, shown = _result("transitions"), _result("table")
    record = completed(fit_table(LAPTOP, draws=100))
    assert (found.transitions, found.guideline, found.width_law) == (
        record.transitions,
        record.guideline,
        record.width_law,
    )
    assert [row["n_params"] for row in found.tables()["best_depths"]] == [row.n_params for row in found.best_depths]
    assert not {"along", "comparisons", "equal_budgets"} & {*found.to_dict(), *dir(found)}
    assert shown.to_json() == record.to_json() and shown.summary() == dwsweep.summary(record)
    assert shown.plot("differences").axes[0].get_title() == dwsweep.plot(record, "differences").axes[0].get_title()


def test_a_table_that_cannot_answer_is_refused() -> None:
    rows = _budgets()
    with pytest.raises(dwsweep.InputError, match=r"^axis: flops; every shape of .* allowed: another axis, or dwsweep"):
        dwsweep.fit_transitions(rows, axis="flops", draws=100)
    with pytest.raises(dwsweep.InputError, match=r"no three shapes .* at equal compute; .* dwsweep.fit_transitions"):
        dwsweep.fit_budgets(LAPTOP, draws=100)
    assert _result("budgets").best == dwsweep.fit_budgets(rows, axis="flops", draws=100).best


def test_guide_answers_as_the_command_does() -> None:
    found = dwsweep.guide(3e9, kv_heads=8, mlp="gated")
    assert found.to_dict() == answer([3e9], options=Options(kv_heads=8, mlp="gated")).to_dict()
    (row,) = found.budgets
    assert row.recommended is not None and f"Build {row.recommended.label}" in dwsweep.summary(found)
    assert [row.budget for row in dwsweep.guide(["1B", 3e9]).budgets] == [1e9, 3e9]
    assert dwsweep.guide("3B").to_dict() == dwsweep.guide(3e9).to_dict()
    assert [v.depth for v in dwsweep.guide(shapes="96x12288").verdicts] == [96]
    assert len(dwsweep.guide(rules="width = 64 * depth").rules) == 1


def test_guide_takes_what_the_command_takes_and_shows_all_of_it() -> None:
    found = dwsweep.guide(flops=1e21, sources=True, at="decode", heads=16, mlp_multiple=256)
    options = Options(at="decode", heads=16, mlp_multiple=256)
    assert found.to_dict() == answer(flops=1e21, by_source=True, options=options).to_dict()
    assert dwsweep.guide("3B", law="levine2020").sources[0].name == answer([3e9], law="levine2020").sources[0].name
    assert dwsweep.guide(hours=1.0).afforded
    (row,) = found.budgets
    assert row.recommended is not None
    shown = found._repr_html_()
    for words in ("equal decode latency", "Where public data disagree", "gemstones", "Built near this size"):
        assert words in shown
    # shapes do not break over a line
    assert row.recommended.label.replace(" ", "\u00a0") in shown and row.recommended.label not in shown
    tables = found.tables()
    assert {one["name"] for one in tables["sources"]} >= {"gemstones", "completep"}
    assert all(one["source"] and one["budget"] == row.budget for one in tables["built"])
    assert found.figures == ["guide", "sources"]


def test_a_figure_can_be_drawn_on_and_what_was_drawn_is_shown(tmp_path: Path) -> None:
    fit, found = report_sweeps.fit("one_pair"), dwsweep.guide(3e9)
    for made in (dwsweep.plot(fit), dwsweep.plot(fit, "differences"), found.plot(), dwsweep.plot(found, "guide")):
        before = made._repr_png_()  # type: ignore[attr-defined]
        made.axes[0].set_title("mine")
        made.savefig(tmp_path / "a.png")
        assert made._repr_png_() != before  # type: ignore[attr-defined]
    with pytest.raises(dwsweep.InputError, match=r"^figure: 'loss'; allowed: loss_vs_depth, loss_vs_size, differences"):
        dwsweep.plot(fit, "loss")
    with pytest.raises(dwsweep.InputError, match=r"^figure: ''; allowed: none, as nothing here can be drawn"):
        dwsweep.plot(dwsweep.guide(shapes="96x12288"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"params": 3.0}, "params: 3; must be"),
        ({"params": ["3X", 3e9, None]}, "params: '3X'; must be a positive number"),
        ({"shapes": "2560x24"}, "shapes: '2560x24'; the depth comes first"),
        ({"rules": "width = import"}, "rules: 'width = import'; "),
        ({"params": 3e9, "kv_heads": 0}, "kv_heads: 0; must be at least 1"),
        ({"params": 3e9, "device": "H1000"}, "device: 'H1000' is not in the table"),
        ({"params": 3e9, "compare": True}, "compare: compares a fit of your own with the published law; allowed"),
        ({"params": 3e9, "fit": "/nowhere"}, "fit: /nowhere; does not exist"),
    ],
)
def test_an_error_names_the_argument_and_to_a_shell_the_option(arguments: dict, line: str) -> None:
    with pytest.raises(dwsweep.InputError) as error:
        dwsweep.guide(**arguments)
    assert str(error.value).startswith(line)
    options = {"shapes": "--shape", "rules": "--rule", "kv_heads": "--kv-heads"}
    name, rest = line.split(":", 1)
    assert error.value.option_lines[0].startswith(f"{options.get(name, f'--{name}')}:{rest}")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dwsweep.guide(3e9, kv_head=8), r"no argument 'kv_head'; did you mean kv_heads\?"),
        (lambda: dwsweep.fit_table([], draw=9), r"no argument 'draw'; did you mean draws\?"),
        (lambda: dwsweep.fit_transitions([], sheds=9), r"'sheds'; did you mean seed\?"),
        (lambda: dwsweep.fit_budgets([], axes="flops"), r"no argument 'axes'; did you mean axis\?"),
        (lambda: dwsweep.compare([], qqqq=1), r"no argument 'qqqq'; allowed: axis, noise, "),
    ],
)
def test_a_wrong_keyword_names_the_nearest(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_the_signature_shows_the_options() -> None:
    own = {*inspect.signature(fit_table).parameters, *inspect.signature(FitOptions).parameters} - {"table", "options"}
    assert {*FitKeywords.__annotations__} == own
    for function in (dwsweep.fit_table, dwsweep.fit_transitions, dwsweep.fit_budgets, dwsweep.fit_along):
        assert get_type_hints(function)["options"].__args__ == (FitKeywords,)
        assert function.__doc__
    assert all(f"{name}" in (dwsweep.fit_table.__doc__ or "") for name in own)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["guide", "--seq-len", "4096"], "error: --seq-len: no such option; did you mean --context?"),
        (["guide", "--kv_heads", "8"], "error: --kv_heads: no such option; did you mean --kv-heads?"),
        (["fit", "x.csv", "--colum", "a=b"], "error: --colum: no such option; did you mean --column?"),
        (["guide", "--qqqq", "1"], "error: No such option: --qqqq"),
    ],
)
def test_the_command_line_names_the_nearest_option(dwsweep: Callable, arguments: list[str], line: str) -> None:
    done = dwsweep(*arguments)
    assert done.returncode == 2 and done.stderr.strip() == line
