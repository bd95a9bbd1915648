"""The page: whole, self-contained, escaped, and in words that say no more than the fit."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import report_sweeps
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
from dwsweep.report.document import Fold, Table, number
from dwsweep.report.figures import registry
from dwsweep.report.markup import html_of
from dwsweep.sweep.snapshot import RunView, Snapshot
from dwsweep.text import format_count, format_factor

pytestmark = pytest.mark.usefixtures("short_guideline")

VOID = {"meta", "img", "br", "link", "hr", "input"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and insists that every tag is closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> while {self.open[-3:]} are open"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text += data.replace("\xa0", " ")


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def law(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = report_sweeps.sweep(tmp_path_factory.mktemp("sweeps") / "law", "law", name="a <b>bold</b> & 'name'")
    assert sweep_page.write(directory) == directory / "report.html"
    return directory


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = report_sweeps.sweep(tmp_path_factory.mktemp("sweeps") / "one_pair", "one_pair")
    sweep_page.write(directory)
    return directory


@pytest.fixture
def without_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For pages whose answers nobody reads."""
    report_sweeps.without_answers(monkeypatch)


def copy(directory: Path, to: Path) -> Path:
    """Copy of a directory with its times, by which figures count as current."""
    return Path(shutil.copytree(directory, to))


def test_page_is_whole_and_loads_nothing(law: Path) -> None:
    page = read(law / "report.html")
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert (
        len(images) == len(registry.drawings(fit_record.read(law))) + 1
    )  # the figures of a fit, and the training curves
    for image in images:
        kind, content = (image["src"] or "").split(",", 1)
        assert kind == "data:image/svg+xml;base64" and image["alt"]
        assert ET.fromstring(base64.b64decode(content)).tag.endswith("svg")
    script = markup.asset("page.js")
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}]  # the page's policy has its hash
    policy = next(a["content"] or "" for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ") and f"script-src 'sha256-{digest}'" in policy
    assert f"<script>{script}</script>" in (law / "report.html").read_text(encoding="utf-8")
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "object"}
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert not re.search(r"url\([^)]*\)|@import", (law / "report.html").read_text(encoding="utf-8"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp", script)
    assert "</script" not in script and "<!--" not in script
    anchors = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert anchors == {f"#{attributes['id']}" for tag, attributes in page.tags if tag == "section"}


def test_page_escapes_what_it_is_given(law: Path) -> None:
    page = read(law / "report.html")
    assert "a <b>bold</b> & 'name': how deep and how wide" in page.text
    assert "b" not in {tag for tag, _ in page.tags}
    hostile = Table("", [number("<i>")])
    hostile.add('"><script>')
    assert not re.search("<i>|<script>", html_of([hostile]))
    hostile_page = markup.page('"<script>', "<script>", [markup.Section('"x', "<script>", "")])
    assert hostile_page.count("<script>") == 1  # the page's own


def test_page_says_the_answer_and_where_it_comes_from(law: Path) -> None:
    text = read(law / "report.html").text
    fit = fit_record.read(law)
    answer = fit_report.answer(fit)
    assert 3 <= len(answer) <= fit_report.ANSWER_LINES and all(text.count(line) == 1 for line in answer)
    page = (law / "report.html").read_text("utf-8")
    headings = list(
        dict.fromkeys(html.unescape(one) for one in re.findall(r"<(?:h[1-6]|summary)\b[^>]*>([^<]+)", page))
    )
    assert shows(headings, "report: headings of a page") and text.index(answer[0]) < text.index("What to do next")
    for row in fit.verdicts:
        size = row.n_params_interval
        said = (
            f"at N = {size.format(format_count)}"
            if size.value
            else f"not reached, then a tie ({size.ends(format_count)})"
        )
        assert f"{row.shallow}→{row.deep} {said}" in answer[1]
    assert f"Width law: {fit.law_statement}" in text
    assert "All 120 runs" in text and "diverged" in text
    for fact in ("0123abcd", "TPU v4", "0.10.2", fit.provenance.input_sha256, *fit.warnings):
        assert fact in text, fact


def test_page_without_a_law_says_so(pair: Path) -> None:
    text = read(pair / "report.html").text
    assert says(text, "report: no width law") and says(text, "report: published law for reference")
    assert "Width law: " not in text


@pytest.mark.usefixtures("without_answers")
def test_page_warns_of_runs_without_a_result_and_of_a_fit_that_is_out_of_date(pair: Path, tmp_path: Path) -> None:
    directory = copy(pair, tmp_path / "sweep")
    results = directory / "results.csv"
    before = read(directory / "report.html").text
    assert "unfinished" not in before and "stale" not in before and "LINES LEFT OUT" not in before
    results.write_text(results.read_text(encoding="utf-8").replace(",diverged,", ",interrupted,"), encoding="utf-8")
    after = read(sweep_page.write(directory)).text
    assert says(after, "report: unfinished runs")
    assert says(after, "report: stale not one that")


@pytest.mark.parametrize("change", [("\n6,", "\n# a note,,,\n6,"), (",", ";"), ("3.2", "FAIL")])
def test_a_page_reads_results_as_a_fit_does(tmp_path: Path, change: tuple[str, str]) -> None:
    """With a comment among the rows, semicolons between the fields, or a word in the place of a loss."""
    table = "depth,width,n_params,loss,status\n2,64,98304,3.4,done\n6,64,294912,3.2,done\n"
    (tmp_path / "results.csv").write_text(table.replace(*change))
    rows = runs_table.rows_of(tmp_path / "results.csv")
    assert [(row["depth"], row["n_params"]) for row in rows] == [(2, 98304), (6, 294912)]
    assert rows[0]["loss"] == 3.4 and rows[1]["loss"] == ("FAIL" if change[1] == "FAIL" else 3.2)
    assert "3.4" in html_of([runs_table.all_runs(rows)])


def test_a_fit_must_come_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run `dwsweep fit .*` first"):
        sweep_page.write(tmp_path)
    with pytest.raises(InputError, match="an existing sweep directory"):
        sweep_page.write(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_that_is_not_fitted_has_a_page_of_its_runs(pair: Path, tmp_path: Path) -> None:
    directory = copy(pair, tmp_path / "sweep")
    shutil.rmtree(directory / "fit")
    page = tmp_path / "pages" / "mine.html"
    assert sweep_page.write(directory, page) == page
    text = read(page).text
    assert f"Fit the losses: dwsweep fit {directory}" in text and "All 36 runs" in text
    assert "Training loss against step" in page.read_text("utf-8")


def row(**facts: object) -> Transition:
    given = {"shallow": 6, "deep": 12, "estimator": "pchip", "confidence": 0.95, "reason": "", **facts}
    return Transition(**{**dict.fromkeys(Transition.keys()), **given})  # type: ignore[arg-type]


def test_a_pair_has_one_verdict_and_the_papers_estimates_only_where_they_are_asked_for(pair: Path) -> None:
    own = row(status="not_reached", n_params_low=2e7)
    joint = row(estimator="surface", status="crossed", n_params=4e7, n_params_low=3e7, n_params_high=5e7)
    fit = replace(fit_record.read(pair), transitions=[joint, own])
    assert len({anchor: parts for anchor, _, parts in fit_report.sections(fit)}["transitions"]) == 1
    asked = replace(fit.provenance, options=replace(fit.provenance.options, paper=True))
    fit = replace(fit, provenance=asked)
    table, fold = {anchor: parts for anchor, _, parts in fit_report.sections(fit)}["transitions"]
    assert isinstance(table, Table) and table.rows == [["6→12", "crossed", "40M", "30M … 50M", "–", "", "all losses"]]
    assert isinstance(fold, Fold) and fold.parts[0].rows == [["6→12", "not reached", "> 20M"]]  # type: ignore[union-attr]
    assert fit_report.answer(fit)[1].count("6→12") == 1


def test_guideline_marks_extrapolation_refusal_and_rivals(law: Path) -> None:
    fit = fit_record.read(law)
    rows = {entry.name: entry for entry in fit.guideline}
    table = fit_report.guideline(fit)
    (big,) = (cells for cells in table.rows if cells[0] == "13B")
    factor = rows["13B"].extrapolation_factor
    assert factor > 1 and big[table.heads.index("outside")] == f"{format_factor(factor)}×"
    # the law is said once, above the table
    assert rows["13B"].law in table.title and not any(rows["13B"].law in cell for cells in table.rows for cell in cells)
    none = dict.fromkeys(("depth", "depth_low", "depth_high", "width"))
    refused = replace(rows["350M"], **none, law="own: refused, more than 2000 times outside its range")
    (cells,) = fit_report.guideline(replace(fit, guideline=[refused])).rows
    assert cells[table.heads.index("depth") :][:3] == ["refused", "", "–"]
    for low, high, said in ((40.0, 75.2, "40 … 75"), (40.0, None, "> 40"), (None, None, "–")):
        one = replace(rows["350M"], rival_depth_min=low, rival_depth_max=high)
        assert fit_report.guideline(replace(fit, guideline=[one])).rows[0][table.heads.index("forms")] == said


def test_the_table_of_runs_names_every_state_and_keeps_every_digit_of_a_size() -> None:
    rows = [dict(row) for row in report_sweeps.rows((6,), 2, 1e6, 3e6)]
    rows[0] |= {"status": "failed", "loss": None}
    (table,) = runs_table.all_runs(rows).parts
    assert isinstance(table, Table) and len(table.rows) == 6
    assert [row[table.heads.index("status")] for row in table.rows].count("failed") == 1
    assert {row[table.heads.index("N")] for row in table.rows} == {str(row["n_params"]) for row in rows}


def test_the_fit_of_a_table_has_a_page_too(
    law: Path, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mine-fit"
    fit_record.write(fit_record.read(law), table)
    assert sweep_page.write(table) == table / "report.html"
    text = (table / "report.html").read_text()
    assert says(text, "report: mine how deep how") and says(text, "report: best depth each size")
    assert "Training curves" not in text and "no table of runs" not in text and "runs finished" not in text
    with pytest.raises(InputError, match=r"and no fit\.json"):
        sweep_page.write(tmp_path)
    with pytest.raises(InputError, match=r"--out: .*; is a folder; allowed: a file, such as .*report\.html"):
        sweep_page.write(table, tmp_path)
    report_sweeps.without_answers(monkeypatch)
    directory = copy(pair, tmp_path / "sweep")  # and the folder of a fit of a sweep is that sweep
    assert sweep_page.write(directory / "fit") == directory / "report.html"


def words_in(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def test_the_page_begins_with_the_shape_that_guide_builds_at_the_largest_size(law: Path) -> None:
    largest = max(cell.n_params for cell in fit_record.read(law).cells)
    found = answer([largest], fit=law / "fit" / "fit.json")
    shape = found.budgets[0].recommended
    assert shape is not None
    first, _, rest = (law / "report.html").read_text("utf-8").partition('<section id="warnings"')
    assert f"Build {shape.label}" in words_in(first)
    # the whole answer is a fold below
    assert words_in(html_of(guide_report.document(found))) in words_in(rest)


def test_each_listed_size_has_the_shape_of_the_guideline(law: Path) -> None:
    page = (law / "report.html").read_text("utf-8").partition('<section id="shapes"')[2]
    body = page[page.index("<tbody>") : page.index("</tbody>")]
    rows = [[words_in(cell) for cell in re.findall(r"<td\b[^>]*>(.*?)</td>", row)] for row in body.split("</tr>")[:-1]]
    fit = fit_record.read(law)
    assert [row[0] for row in rows] == [row.name for row in fit.guideline]
    for cells, row in zip(rows, fit.guideline, strict=True):
        assert f"{row.depth_int}×{row.width_int}" in cells


@pytest.mark.usefixtures("without_drawing")
def test_nets_below_the_least_size_of_guide_have_a_page(tmp_path: Path) -> None:
    rows = [{"depth": depth, "width": 2 * k, "loss": 4.0 - 0.1 * k} for depth in (1, 2) for k in (1, 2)]
    fit_record.write(fit_table(rows), tmp_path)
    assert max(cell.n_params for cell in fit_record.read(tmp_path).cells) < sweep_page.LEAST
    assert "Shape to build at 1K" in sweep_page.write(tmp_path).read_text("utf-8")


def test_the_next_steps_are_commands_that_the_sweep_has(law: Path, pair: Path, tmp_path: Path) -> None:
    """A fit is to be used, a sweep that is not fitted to be fitted, one with unfinished runs to be finished."""
    directory = copy(pair, tmp_path / "a sweep")
    fit = fit_record.read(directory)
    every = runs_table.rows_of(directory / "results.csv")
    assert sweep_page.next_steps(fit, every, directory)[0] == f"{fit_report.next_step(fit, directory)}."
    every[3]["status"] = every[4]["status"] = "interrupted"
    assert sweep_page.next_steps(fit, every, directory)[0].startswith("Finish 2 runs: `dwsweep run ")


def test_of_many_runs_the_best_of_each_shape_is_drawn_and_of_many_shapes_evenly_spread_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs_table, "MANY", 30)
    monkeypatch.setattr(runs_table, "MOST_CURVES", 5)
    rows = [
        {"run_id": f"L{depth}-s{seed}", "depth": depth, "width": 8, "n_params": 100 * depth, "loss": 9.0 - seed}
        for depth in range(40, 0, -1)
        for seed in (0, 1)
    ]
    rows = [row | {"status": "done"} for row in rows]
    assert runs_table.drawn(rows) == {f"L{depth}-s1" for depth in (1, 11, 21, 30, 40)}
    assert runs_table.drawn(rows[:20]) == {row["run_id"] for row in rows[:20]}
    rows[1]["status"] = "diverged"
    assert "L40-s0" in runs_table.drawn(rows)


@pytest.mark.usefixtures("without_answers", "without_drawing")
def test_the_page_has_the_conditioning_that_runs_logged_and_names_logs_that_lack_lines(
    pair: Path, tmp_path: Path
) -> None:
    directory = copy(pair, tmp_path / "sweep")
    assert "Conditioning of attention" not in (directory / "report.html").read_text("utf-8")
    for folder in (directory / "runs").iterdir():
        depth = int(folder.name[1:].partition("-")[0])
        start = {"step": 1, "conditioning_at_start": [8.0] * depth}
        broken = {"step": 400, "conditioning": [None] * depth}
        end = {"step": 300, "conditioning": [2.0] * (depth - 1) + [32.0]}
        jsonl.rewrite_lines(folder / "metrics.jsonl", [start, end, broken])
    chosen = sorted((directory / "runs").iterdir())[0]
    write(chosen / "result.json", RunResult(2.0, metrics_rows=100))
    page = sweep_page.write(directory).read_text("utf-8")
    found = page.partition('id="conditioning"')[2]
    row = re.findall(r"<td[^>]*>(.*?)</td>", found[found.index("<tbody>") :].partition("</tr>")[0])
    assert [row[0], *row[-3:]] == ["6", "8", "3.17", "32"]  # 3.17: (2^5 · 32)^(1/6)
    assert page.count("LINES LEFT OUT") == 1 and f"runs/{chosen.name}/metrics.jsonl: 97 of 100 lines" in page


@pytest.mark.usefixtures("without_answers")
def test_a_page_that_follows_a_sweep_reloads_until_nobody_works_on_it(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress and the losses so far come first, and no earlier fit; the last page is the usual one."""
    directory = copy(pair, tmp_path / "sweep")
    rows = runs_table.rows_of(directory / "results.csv")
    same = {"pack_id": "p", "action": RUN, "steps": 400, "tokens": 10**8, "flops": 6e14, "heads": 2}
    plans = [PlanRow(**same, **{name: row[name] for name in ("run_id", "depth", "width", "n_params")}) for row in rows]
    states = [RunState(RUNNING if k == 0 else PENDING if k == 1 else "done", 3, 2.5, "p") for k in range(len(plans))]
    views = tuple(RunView(*pair_of) for pair_of in zip(plans, ["p"] * len(plans), states, strict=True))
    now = Snapshot("demo", views, 0, {"p": PackProgress(step=3, steps=400)}, (("me", True),), 0.0)  # type: ignore[arg-type]
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
    assert 'http-equiv="refresh" content="10"' in during and 'id="progress"' in during and "demo: 36 runs" in during
    assert ": 34 of 36 runs finished</title>" in during and "runs finished" not in last
    assert rows[0]["run_id"] in during and rows[1]["run_id"] not in during  # begun, and still waiting
    assert "Best depth at each size" not in during
    assert "refresh" not in last and 'id="progress"' not in last and "Transitions (where" in last
