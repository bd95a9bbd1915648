"""The page: whole, self-contained, escaped, and in words that say no more than the fit."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import report_sweeps
from claims import first_rows, in_cells, in_html, in_sentence, of_row
from sentences import says, shows

from dwsweep import fit_table, jsonl
from dwsweep.errors import InputError
from dwsweep.guide import answer
from dwsweep.records import fit as fit_record
from dwsweep.records.pack import PackProgress
from dwsweep.records.record import write
from dwsweep.records.run import PENDING, RUNNING, RunResult, RunState
from dwsweep.records.sweep import RUN, PlanRow
from dwsweep.records.transitions import Transition
from dwsweep.report import fit_report, guide_report, markup, runs_table
from dwsweep.report import page as sweep_page
from dwsweep.report.document import Fold, TextTable, number
from dwsweep.report.figures import registry
from dwsweep.report.markup import html_of
from dwsweep.sweep.snapshot import RunView, Snapshot

pytestmark = pytest.mark.usefixtures("short_guideline", "surfaces_again")


def words_in(markup: str) -> str:
    """Text of a page or a part of it, without its script and style."""
    markup = re.sub(r"<(script|style)>.*?</\1>", "", markup, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def read(path: Path) -> str:
    return words_in(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def law(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = report_sweeps.sweep(tmp_path_factory.mktemp("sweeps") / "law", "law", name="a <b>bold</b> & 'name'")
    assert sweep_page.write(directory) == directory / "report.html"
    return directory


@pytest.fixture
def without_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For pages whose answers of ``guide`` nobody reads: a third of the time."""
    monkeypatch.setattr(sweep_page, "built", lambda *_: None)


def copy(directory: Path, to: Path) -> Path:
    return Path(shutil.copytree(directory, to))


def test_page_is_whole_and_loads_nothing(law: Path) -> None:
    page, script = (law / "report.html").read_text(encoding="utf-8"), markup.asset("page.js")
    images = re.findall(r'<img alt="[^"]+" src="data:image/svg\+xml;base64,([^"]+)">', page)
    assert len(images) == len(registry.drawings(fit_record.read(law))) + 1  # and the training curves
    assert all(ET.fromstring(base64.b64decode(image)).tag.endswith("svg") for image in images)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'; " in page and f"script-src 'sha256-{digest}'" in page  # the page's policy
    assert page.count("<script") == 1 and f"<script>{script}</script>" in page
    assert not re.search(r"<(link|iframe|object)|url\([^)]*\)|@import", page)
    links = set(re.findall(r'(?:href|src)="([^"]*)"', page))
    assert {link for link in links if not link.startswith("data:")} == {
        f"#{anchor}" for anchor in re.findall(r'<section id="([^"]*)"', page)
    }
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp", script)
    for tag in ("div", "table", "tr", "td", "p", "ul", "details", "section", "code"):
        assert len(re.findall(rf"<{tag}\b", page)) == page.count(f"</{tag}>"), tag


def test_page_escapes_what_it_is_given(law: Path) -> None:
    assert "<h1>a &lt;b&gt;bold&lt;/b&gt; &amp; " in (law / "report.html").read_text(encoding="utf-8")
    hostile = TextTable("", [number("<i>")])
    hostile.add('"><script>')
    assert not re.search("<i>|<script>", html_of([hostile]))
    hostile_page = markup.page('"<script>', "<script>", [markup.PageSection('"x', "<script>", "")])
    assert hostile_page.count("<script>") == 1  # the page's own


def test_page_says_the_answer_and_where_it_comes_from(law: Path) -> None:
    text = read(law / "report.html")
    fit = fit_record.read(law)
    answer = fit_report.answer(fit)
    assert 3 <= len(answer) <= fit_report.ANSWER_LINES and all(text.count(line) == 1 for line in answer)
    page = (law / "report.html").read_text("utf-8")
    headings = dict.fromkeys(html.unescape(one) for one in re.findall(r"<(?:h[1-6]|summary)\b[^>]*>([^<]+)", page))
    assert shows([*headings], "report: headings of a page") and text.index(answer[0]) < text.index("What to do next")
    pairs = {pair: of_row(row) for pair, row in first_rows((law / "fit" / "transitions.csv").read_text()).items()}
    for found in (in_cells(in_html(page, "Transitions (where")), in_sentence(page)):
        assert {*found} == {*pairs} and all(claim.agrees(pairs[pair]) for pair, claim in found.items())
    assert f"Width law: {fit.law_statement}" in text
    assert "All 120 runs" in text and "diverged" in text
    for fact in ("0123abcd", "TPU v4", "0.10.2", fit.provenance.input_sha256, *fit.warnings):
        assert fact in text, fact


@pytest.mark.usefixtures("without_answers", "without_drawing")
def test_page_warns_of_missing_results_lines_and_fits_and_has_the_conditioning_that_runs_logged(
    law: Path, tmp_path: Path
) -> None:
    directory = copy(law, tmp_path / "sweep")
    results, before = directory / "results.csv", read(law / "report.html")
    assert not [word for word in ("unfinished", "stale", "LINES LEFT OUT", "Conditioning") if word in before]
    results.write_text(results.read_text(encoding="utf-8").replace(",diverged,", ",interrupted,"), encoding="utf-8")
    for folder in (directory / "runs").iterdir():
        depth = int(folder.name[1:].partition("-")[0])
        start = {"step": 1, "conditioning_at_start": [8.0] * depth}
        broken = {"step": 400, "conditioning": [None] * depth}
        end = {"step": 300, "conditioning": [2.0] * (depth - 1) + [32.0]}
        jsonl.rewrite_lines(folder / "metrics.jsonl", [start, end, broken])
    chosen = sorted((directory / "runs").iterdir())[0]
    write(chosen / "result.json", RunResult(2.0, metrics_rows=100))
    page = sweep_page.write(directory)
    after, whole = read(page), page.read_text("utf-8")
    assert says(after, "report: unfinished runs") and says(after, "report: stale not one that")
    found = whole.partition('id="conditioning"')[2]
    row = re.findall(r"<td[^>]*>(.*?)</td>", found[found.index("<tbody>") :].partition("</tr>")[0])
    assert [*row[:2], *row[-3:]] == ["6", "2", "8", "3.17", "32"]  # 3.17: (2^5 · 32)^(1/6)
    assert whole.count("LINES LEFT OUT") == 1 and f"runs/{chosen.name}/metrics.jsonl: 97 of 100 lines" in whole


def test_a_page_reads_results_as_a_fit_does(tmp_path: Path) -> None:
    """With a comment among the rows, semicolons between the fields, or a word in the place of a loss."""
    table = "depth,width,n_params,loss,status\n2,64,98304,3.4,done\n6,64,294912,3.2,done\n"
    for old, new in (("\n6,", "\n# a note,,,\n6,"), (",", ";"), ("3.2", "FAIL")):
        (tmp_path / "results.csv").write_text(table.replace(old, new))
        rows = runs_table.rows_of(tmp_path / "results.csv")
        assert [(row["depth"], row["n_params"]) for row in rows] == [(2, 98304), (6, 294912)]
        assert rows[0]["loss"] == 3.4 and rows[1]["loss"] == ("FAIL" if new == "FAIL" else 3.2)
        rows[0] |= {"status": "failed", "loss": None}
        (shown,) = runs_table.all_runs(rows).parts
        assert [row[shown.heads.index("N")] for row in shown.rows] == ["98304", "294912"]  # every digit of a size
        assert [row[shown.heads.index("status")] for row in shown.rows] == ["failed", "done"]


def test_a_page_that_cannot_be_written_is_refused(law: Path, tmp_path: Path) -> None:
    for directory, out, line in (
        (tmp_path, None, r"run `dwsweep fit .*` first"),
        (tmp_path / "nowhere", None, "an existing sweep directory"),
        (law, tmp_path, r"--out: .*; is a folder; allowed: a file, such as .*report\.html"),
    ):
        with pytest.raises(InputError, match=line):
            sweep_page.write(directory, out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_drawing")
def test_a_sweep_that_is_not_fitted_has_a_page_of_its_runs(law: Path, tmp_path: Path) -> None:
    directory = copy(law, tmp_path / "sweep")
    shutil.rmtree(directory / "fit")
    page = tmp_path / "pages" / "mine.html"
    assert sweep_page.write(directory, page) == page
    text = read(page)
    assert f"Fit the losses: dwsweep fit {directory}" in text and "All 120 runs" in text
    assert "Training loss against step" in page.read_text("utf-8")


def test_a_pair_has_one_verdict_and_the_papers_estimates_only_where_they_are_asked_for(law: Path) -> None:
    fit = fit_record.read(law)
    none = {**dict.fromkeys(Transition.keys()), "shallow": 6, "deep": 12, "confidence": 0.95, "reason": ""}
    own = Transition(**{**none, "estimator": "pchip", "status": "not_reached", "n_params_low": 2e7})
    sizes = {"n_params": 4e7, "n_params_low": 3e7, "n_params_high": 5e7}
    fit = replace(fit, transitions=[Transition(**{**none, "estimator": "surface", "status": "crossed", **sizes}), own])
    assert len({anchor: parts for anchor, _, parts in fit_report.sections(fit)}["transitions"]) == 1
    asked = replace(fit.provenance, options=replace(fit.provenance.options, paper=True))
    fit = replace(fit, provenance=asked)
    table, fold = {anchor: parts for anchor, _, parts in fit_report.sections(fit)}["transitions"]
    assert isinstance(table, TextTable) and table.rows == [["6→12", "crossed", "40M", "30M … 50M", "–", ""]]
    assert isinstance(fold, Fold) and fold.parts[0].rows == [["6→12", "not reached", "> 20M"]]  # type: ignore[union-attr]
    assert fit_report.answer(fit)[1].count("6→12") == 1
    assert "transitions" not in {anchor for anchor, *_ in fit_report.sections(replace(fit, transitions=[]))}


@pytest.mark.usefixtures("without_answers", "without_drawing")
def test_the_fit_of_a_table_has_a_page_too_and_the_folder_of_a_fit_is_its_sweep(law: Path, tmp_path: Path) -> None:
    fit_record.write(fit_record.read(law), tmp_path / "mine-fit")
    text = sweep_page.write(tmp_path / "mine-fit").read_text()
    assert says(text, "report: mine how deep how") and "Best depth at each size" in text
    assert "Training curves" not in text and "All " not in text
    assert sweep_page.write(law / "fit", tmp_path / "a.html").read_text().count("All 120 runs") == 1


def test_the_page_begins_with_the_shape_that_guide_builds_and_lists_those_of_the_guideline(law: Path) -> None:
    fit, page = fit_record.read(law), (law / "report.html").read_text("utf-8")
    found = answer([max(cell.n_params for cell in fit.cells)], fit=law / "fit" / "fit.json")
    shape = found.budgets[0].recommended
    first, _, rest = page.partition('<section id="warnings"')
    assert shape is not None and f"Build {shape.label}" in words_in(first)
    assert words_in(html_of(guide_report.document(found))) in words_in(rest)  # the whole answer is a fold below
    rows = words_in(page.partition('<section id="shapes"')[2].partition("</table>")[0])
    assert all(f"{row.name} " in rows and f" {row.depth_int}×{row.width_int}" in rows for row in fit.guideline)


@pytest.mark.usefixtures("without_drawing")
def test_nets_below_the_least_size_of_guide_have_a_page(tmp_path: Path) -> None:
    rows = [{"depth": depth, "width": 2 * k, "loss": 4.0 - 0.1 * k} for depth in (1, 2) for k in (1, 2)]
    fit_record.write(fit_table(rows), tmp_path)
    assert max(cell.n_params for cell in fit_record.read(tmp_path).cells) < 1e3
    assert "Shape to build at 100K<" in sweep_page.write(tmp_path).read_text("utf-8")


def test_the_next_steps_are_commands_that_the_sweep_has(law: Path) -> None:
    """A fit is to be used, and unfinished runs are to be finished."""
    fit, every = fit_record.read(law), runs_table.rows_of(law / "results.csv")
    assert sweep_page.next_steps(fit, every, law) == [f"{fit_report.next_step(fit, law)}."]
    assert fit_report.next_step(fit, law).startswith("`dwsweep guide ")
    every[3]["status"] = every[4]["status"] = "interrupted"
    assert sweep_page.next_steps(fit, every, law)[0].startswith("Finish 2 runs: `dwsweep run ")


@pytest.mark.usefixtures("without_answers", "without_drawing")
def test_a_page_that_follows_a_sweep_reloads_until_nobody_works_on_it(
    law: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress and the losses so far come first, and no earlier fit; the last page is the usual one."""
    directory = copy(law, tmp_path / "sweep")
    rows = runs_table.rows_of(directory / "results.csv")
    same = {"pack_id": "p", "action": RUN, "steps": 400, "tokens": 10**8, "flops": 6e14, "heads": 2}
    plans = [PlanRow(**same, **{name: row[name] for name in ("run_id", "depth", "width", "n_params")}) for row in rows]
    states = [RunState(RUNNING if k == 0 else PENDING if k == 1 else "done", 3, 2.5, "p") for k in range(len(plans))]
    views = tuple(RunView(*pair_of) for pair_of in zip(plans, ["p"] * len(plans), states, strict=True))
    now = Snapshot("demo", views, 0, {"p": PackProgress(step=3, steps=400)}, (("me", True),))  # type: ignore[arg-type]
    written: list[str] = []
    moments = iter([now, replace(now, owners=())])
    monkeypatch.setattr(sweep_page, "snapshot", lambda _: next(moments))
    monkeypatch.setattr(
        sweep_page.time, "sleep", lambda _: written.append((directory / "report.html").read_text("utf-8"))
    )
    results = directory / "results.csv"
    lines = results.read_text("utf-8").splitlines()
    results.write_text("\n".join([lines[0], *lines[3:]]), "utf-8")
    last = sweep_page.follow(directory).read_text("utf-8")
    (during,) = written
    assert 'http-equiv="refresh" content="10"' in during and 'id="progress"' in during and "demo: 120 runs" in during
    assert ": 118 of 120 runs finished</title>" in during and "runs finished" not in last
    assert rows[0]["run_id"] in during and rows[1]["run_id"] not in during  # begun, and still waiting
    assert "Best depth at each size" not in during
    assert "refresh" not in last and 'id="progress"' not in last and "Transitions (where" in last
