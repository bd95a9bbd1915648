"""The answers that the page holds against those of ``dwsweep.guide``."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import report_sweeps
from checkout import ROOT
from rich.console import Console
from threadpoolctl import threadpool_limits

from dwsweep import fit_table
from dwsweep.fit import output
from dwsweep.guide import Options, answer, source_of
from dwsweep.guide.answers import CONSTRAINTS, SPOKEN
from dwsweep.records import fit as fit_record
from dwsweep.report import guide_report
from dwsweep.report import page as sweep_page
from dwsweep.text import parse_count

LAPTOP = ROOT / "sweeps" / "results" / "laptop"
CASES = ["own", "published", "both"]


@pytest.fixture(scope="module", params=CASES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A fit.json and what the page holds of it: by one's own losses, by the published law, by both."""
    folder = tmp_path_factory.mktemp(request.param) / "a fit"
    if request.param == "own":
        shutil.copytree(LAPTOP / "fit", folder)
    elif request.param == "published":
        output.write(report_sweeps.fit("one_pair"), folder)
    else:
        output.write(fit_table(LAPTOP, where=["budget <= 160000"], documents=False), folder)
    file = folder / "fit.json"
    read = fit_record.read(file)
    with threadpool_limits(1, user_api="blas"):
        found = sweep_page.guide_answers(read, source_of(read, file), file, folder)
    return file, json.loads(json.dumps(found, allow_nan=False))


def said(block: dict[str, Any]) -> list[str]:
    lines = ["".join(text for text, _ in block["line"])] if "line" in block else []
    return lines + [cell for row in block.get("rows", ()) for cell in row]


def test_the_page_says_what_guide_says(page: tuple[Path, dict[str, Any]]) -> None:
    file, found = page
    last = len(found["sizes"]) - 1
    for k, at in ((0, "time"), (last // 2, "flops"), (found["start"], "time"), (last, "size")):
        n = found["sizes"][k]["n"]
        with threadpool_limits(1, user_api="blas"):
            expected = answer([n], fit=file, options=Options(at=at))
        stored = [found["blocks"][b] for b in found["answers"][at][k]]
        assert stored == json.loads(json.dumps(sweep_page.blocks(expected))), (n, at)
        # each of these words is printed by the command
        console = Console(width=4000, color_system=None, legacy_windows=False)
        with console.capture() as captured:
            console.print(guide_report.render(expected))
        printed = captured.get()
        assert all(text in printed for block in stored for text in said(block))


def test_every_size_has_an_answer_under_each_constraint(page: tuple[Path, dict[str, Any]]) -> None:
    _, found = page
    assert [name for name, _ in found["constraints"]] == list(CONSTRAINTS) == list(found["answers"])
    for at in CONSTRAINTS:
        rows = found["answers"][at]
        assert len(rows) == len(found["sizes"])
        for size, row in zip(found["sizes"], rows, strict=True):
            lines = [text for k in row for text in said(found["blocks"][k])]
            assert lines[0].startswith(f"{size['label']} non-embedding parameters")
            refused = "refused: " in lines[1]
            assert refused or f"the best at {SPOKEN[at]}" in lines[1] or lines[1].startswith("Nothing is recommended")
            ends = size in (found["sizes"][0], found["sizes"][-1])
            # between the sizes of the data and those of the published law there may be a gap
            assert not refused or ends or "below one layer" in lines[1]


def test_sizes_are_round_and_reach_from_the_data_to_where_guide_ends(page: tuple[Path, dict[str, Any]]) -> None:
    file, found = page
    fit = fit_record.read(file)
    sizes = [one["n"] for one in found["sizes"]]
    assert sizes == sorted(set(sizes)) and 10 <= len(sizes) <= sweep_page.MOST_BY_LAW + 2
    assert [parse_count(one["label"]) for one in found["sizes"]] == sizes
    smallest = min(cell.n_params for cell in fit.cells)
    assert smallest / 2 <= sizes[0] <= 5 * smallest
    source = source_of(fit, file)
    assert sizes[-1] == 1e12 or (source.refuses(sizes[-1]) and not source.refuses(sizes[-2]))
    largest = max(cell.n_params for cell in fit.cells if not cell.excluded)
    assert abs(math.log(sizes[found["start"]] / largest)) < math.log(10) / 2


def test_the_command_is_one_that_a_shell_takes_apart_again(page: tuple[Path, dict[str, Any]]) -> None:
    file, found = page
    params, at, fit = found["command"]
    assert shlex.split(f"{params}3B{at}time{fit}") == [
        *("dwsweep", "guide", "--params", "3B", "--at", "time", "--fit", str(file.parent))
    ]
