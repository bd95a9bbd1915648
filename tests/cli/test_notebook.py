"""The package in a notebook: two functions, results that show themselves, errors that name arguments."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_sweeps
from checkout import ROOT

import dwsweep
from dwsweep.fit.analysis import fit_table
from dwsweep.guide import Options, answer
from dwsweep.guide.guideline import answered
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import KEYWORDS, FitOptions
from tests.simulations.along import AlongStudy, draw_along

pytestmark = pytest.mark.usefixtures("short_guideline", "surfaces_again")

LAPTOP = str(ROOT / "sweeps" / "results" / "laptop")
PNG = b"\x89PNG\r\n\x1a\n"


def small(above: float = 0.0) -> list[dict[str, Any]]:
    return [{**row, "loss": row["loss"] + above} for row in report_sweeps.rows((2, 4), 6, 1e5, 1e7)]


@cache
def results() -> dict[str, Any]:
    heads = draw_along(AlongStudy(), np.random.default_rng(0))
    return {
        "table": dwsweep.fit_table(LAPTOP),
        "along": dwsweep.fit_table(heads, along="heads"),
        "guide": dwsweep.guide("3B", shapes="96x12288"),
    }


@pytest.mark.parametrize("name", ["table", "along", "guide"])
def test_every_result_shows_itself(name: str) -> None:
    found = results()[name]
    assert max(map(len, found.summary().splitlines())) <= 100 and str(found) == found.summary()
    assert (
        len(repr(found)) < 600 and found._repr_html_().startswith("<div>") and found.plot()._repr_png_().startswith(PNG)
    )
    assert any(found.tables().values()) and all(isinstance(row, dict) for of in found.tables().values() for row in of)
    json.dumps(found.to_dict(), allow_nan=False, default=str)
    with pytest.raises(dwsweep.InputError, match=r"^name: 'losses'; allowed: "):
        found.plot("losses")


def test_a_result_is_the_record_that_the_command_writes_and_guide_takes_either(tmp_path: Path) -> None:
    found, record = results()["table"], fit_table(LAPTOP)
    record = replace(record, guideline=answered(record, record.guideline))
    assert found.to_json() == record.to_json()
    assert found.tables()["answers"] == [row.to_dict() for row in found.answers]
    fit_record.write(found, tmp_path)
    by_result, by_folder = (dwsweep.guide("500K", fit=one) for one in (found, tmp_path))
    assert by_result.tables() == by_folder.tables()


def test_several_tables_are_compared_and_a_list_of_rows_is_one_table() -> None:
    columns = {name: [row[name] for row in small(0.01)] for name in ("depth", "width", "loss", "seed")}
    found = dwsweep.fit_table(small(), compare=[small(0.01), columns])
    assert len(found.comparisons) == 2
    assert {row.reason for row in found.answers if row.question == "difference"} == {"worse"}
    labelled = [{**row, "arm": arm} for arm in "abc" for row in small(0.01 * (arm != "a"))]
    one, two = dwsweep.fit_table(labelled, compare=True).comparisons
    assert (one.base, one.arm, two.arm) == ("a", "b", "c")
    assert [row.estimate for row in one.rows] == [row.estimate for row in found.comparisons[0].rows]


def test_guide_takes_what_the_command_takes() -> None:
    found = dwsweep.guide(
        flops=1e21, sources=True, at="decode", head_size=128, kv_heads=8, mlp="gated", mlp_multiple=256
    )
    options = Options(at="decode", head_size=128, kv_heads=8, mlp="gated", mlp_multiple=256)
    assert found.to_dict() == answer(flops=1e21, by_source=True, options=options).to_dict()
    assert {one["name"] for one in found.tables()["sources"]} >= {"gemstones", "completep"}
    assert [row.budget for row in dwsweep.guide(np.array([1e9, 3e9])).budgets] == [1e9, 3e9]


@pytest.mark.parametrize(
    ("arguments", "line", "option"),
    [
        ({"params": ["3X", 3e9, None]}, "params: ['3X', 3000000000.0, None]; must be a number or several", "--params"),
        ({"shapes": "96"}, "shapes: '96'; allowed: DEPTHxWIDTH", "--shape"),
        ({"params": 3e9, "fit": 3}, "fit: int; must be a result of fit_table with best depths, or its path", "--fit"),
    ],
)
def test_an_error_names_the_argument_and_to_a_shell_the_option(arguments: dict, line: str, option: str) -> None:
    with pytest.raises(dwsweep.InputError) as error:
        dwsweep.guide(**arguments)
    assert str(error.value).startswith(line)
    assert error.value.option_lines[0].startswith(option + line[line.index(":") :])


def test_the_docstring_shows_the_options_and_a_wrong_keyword_names_the_nearest() -> None:
    assert dir(dwsweep) == ["InputError", "__version__", "fit_table", "guide"]
    own = {*inspect.signature(fit_table).parameters, *inspect.signature(FitOptions).parameters} - {"table", "options"}
    assert {*KEYWORDS} == own
    assert all(f"{name}" in (dwsweep.fit_table.__doc__ or "") for name in own)
    with pytest.raises(TypeError, match=r"no argument 'kv_head'; did you mean kv_heads\?"):
        dwsweep.guide(3e9, kv_head=8)
    with pytest.raises(TypeError, match=r"'sheds'; did you mean seed\?"):
        dwsweep.fit_table([], sheds=9)
