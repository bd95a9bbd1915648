"""The page in a real browser: what it answers, that it loads nothing, how it looks. Skips, saying why, without one."""

from __future__ import annotations

import csv
import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import page_browser
import pytest
import report_sweeps
from matplotlib.image import imread
from shown import data_of

from dwsweep.report import page as sweep_page
from dwsweep.report import runs_table

RUNS = 500
MOST_BYTES = 3_000_000
HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror=window.hurt=1>"
STEPS = range(1, 1001, 10)
COLUMN = "(fold, k) => [...fold.querySelectorAll('tbody tr')].filter((r) => !r.hidden).map((r) => r.cells[k].innerText)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 500 runs, one of them with markup in its name."""
    directory = report_sweeps.sweep(tmp_path_factory.mktemp("browser") / "sweep", "one_pair", name=f"demo {HOSTILE}")
    with open(directory / "results.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    noise = np.random.default_rng(0).normal(0.0, 0.02, (RUNS, len(STEPS)))
    trained = len(rows)
    for k in range(trained, RUNS):
        copied = rows[k % trained]
        rows.append({**copied, "seed": str(k), "run_id": f"L{copied['depth']}-d{copied['width']}-s{k}-0123abcd"})
    rows[7]["run_id"] = f"a {HOSTILE}"
    for k, row in enumerate(rows[8:], 8):
        folder = directory / "runs" / row["run_id"]
        folder.mkdir(exist_ok=True)
        lines = [{"step": s, "loss": 2.0 + 5.0 * s**-0.4 + noise[k, i]} for i, s in enumerate(STEPS)]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with open(directory / "results.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], "loss_stderr"])
        writer.writeheader()
        writer.writerows({**row, "loss_stderr": "0.0031"} for row in rows)
    return Path(sweep_page.write(directory))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with page_browser.chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page; afterwards, whatever was done with it, it has asked for nothing and complained of nothing."""
    contexts, asked, said = [], [], []

    def open_page(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(page.as_uri(), timeout=120_000)  # a loaded machine is no failure of the page
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} <= {page.as_uri()}
    assert said == []


def test_five_hundred_runs_are_at_most_three_megabytes(page: Path) -> None:
    assert page.stat().st_size <= MOST_BYTES


def words(guide: dict[str, Any], size: int, at: str) -> list[str]:
    """The lines of an answer, and the cells of its table."""
    blocks = [guide["blocks"][k] for k in guide["answers"][at][size]]
    said = ["".join(text for text, _ in block["line"]) for block in blocks if "line" in block]
    return said + [cell for block in blocks for row in block.get("rows", ()) for cell in row]


def test_a_size_is_chosen_and_its_stored_words_are_shown(opened: Callable[..., Any], page: Path) -> None:
    tab, guide = opened(), data_of(page)["guide"]
    assert tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") < 30_000  # ms
    verdict, command = tab.locator("#verdict"), tab.locator("#guide-command")
    labels = [one["label"] for one in guide["sizes"]]
    assert tab.locator("#ask-size option").all_inner_texts() == labels
    for k in (0, len(labels) // 2, len(labels) - 1):
        for at, _ in guide["constraints"]:
            tab.select_option("#ask-size", str(k))
            tab.select_option("#ask-at", at)
            assert all(line in verdict.text_content() for line in words(guide, k, at))
            assert verdict.locator("p").count() == sum("line" in guide["blocks"][b] for b in guide["answers"][at][k])
            assert command.inner_text().startswith(f"dwsweep guide --params {labels[k]} --at {at} --fit ")


def test_a_typed_size_shows_the_nearest_of_the_list(opened: Callable[..., Any], page: Path) -> None:
    tab, guide = opened(), data_of(page)["guide"]
    near = min(range(len(guide["sizes"])), key=lambda k: abs(math.log(guide["sizes"][k]["n"] / 3.1e9)))
    label = guide["sizes"][near]["label"]
    for typed in ("3.1e9", "3.1B"):
        tab.fill("#ask-params", typed)
        assert tab.locator("#shown").inner_text().startswith(f"Shown: {label}, the listed size nearest to {typed}.")
        assert words(guide, near, "size")[1] in tab.locator("#verdict").text_content()
        assert f"--params {typed} --at size" in tab.locator("#guide-command").inner_text()
    tab.fill("#ask-params", label)
    assert tab.locator("#shown").inner_text() == f"Shown: {label}."
    tab.fill("#ask-params", "<b>three")
    assert tab.locator("#budget .wrong").inner_text().startswith("A size is a positive number")
    assert tab.get_attribute("#ask-params", "aria-invalid") == "true"
    assert f"--params {label} " in tab.locator("#guide-command").inner_text()


def test_the_chart_by_pointer_and_by_keys(opened: Callable[..., Any], tmp_path: Path) -> None:
    tab = opened()
    dots, readout = tab.locator("#losses-plot circle.dot"), tab.locator("#losses .readout")
    every = dots.count()
    assert RUNS - 20 < every < RUNS  # all but those that diverged
    tab.focus("#losses-plot")
    tab.keyboard.press("ArrowLeft")
    said = readout.inner_text()
    assert said.startswith("L12-d") and "± 0.0031" in said and "95 %" in said
    box = dots.first.bounding_box()
    tab.mouse.move(box["x"] + 3, box["y"] + 3)
    assert readout.inner_text().startswith("L6-d")
    tab.locator("#losses .toggle", has_text="L = 6").locator("input").uncheck()
    assert dots.count() < 0.6 * every
    assert tab.locator("#losses-axis option").all_inner_texts() == [
        *("non-embedding parameters N", "all parameters", "training FLOPs")
    ]
    tab.select_option("#losses-axis", "flops")
    assert tab.locator("#losses-plot .label", has_text="training FLOPs").count() == 1
    for label, name in (("Chart as SVG", "losses.svg"), ("Runs shown as CSV", "losses.csv")):
        with tab.expect_download() as download:
            tab.get_by_role("button", name=label).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    with open(tmp_path / "losses.csv", newline="", encoding="utf-8") as file:
        saved = list(csv.DictReader(file))
    assert len(saved) == dots.count() and {row["depth"] for row in saved} == {"12"}
    drawing = ET.parse(tmp_path / "losses.svg").getroot()
    fills = {node.get("fill") for node in drawing.iter("{http://www.w3.org/2000/svg}circle")}
    assert all(str(fill).startswith("rgb") for fill in fills - {"none"}) and drawing.get("width")


def test_the_table_of_runs_is_sorted_filtered_and_looked_into(opened: Callable[..., Any]) -> None:
    tab = opened()
    table = tab.locator("details.all-runs")

    def shown(column: int) -> list[str]:
        return list(table.evaluate(COLUMN, column))

    assert len(shown(0)) == RUNS
    tab.fill("#runs-filter", "diverged")
    assert 0 < len(shown(0)) < 20 and set(shown(10)) == {"diverged"}
    assert tab.locator("#runs-shown").inner_text() == f"{len(shown(0))} of {RUNS} runs"
    tab.fill("#runs-filter", "L12-d done")
    heading = table.locator("th", has_text="loss")
    for order in ("ascending", "descending"):
        heading.locator("button").press("Enter")
        assert heading.get_attribute("aria-sort") == order
        losses = [float(text) for text in shown(7)]
        assert losses == sorted(losses, reverse=order == "descending") and len(losses) > 200
    table.locator("tbody tr:visible button.run").first.press("Enter")
    assert tab.locator("#run-curve path.line").count() == 1
    assert tab.locator("#run-curve-title").inner_text().startswith("L12-d")
    every = dict(zip(shown(0), map(float, shown(7)), strict=True))
    middle = sorted(every.values())[len(every) // 2]
    for typed, keeps in (
        (f"loss<{middle:.5f} L12-d done", lambda loss: loss < middle),
        (f"L12-d done Loss >= {middle:.5f}", lambda loss: loss >= middle),
        (f"loss={middle:.5f} L12-d done", lambda loss: loss == middle),
    ):
        tab.fill("#runs-filter", typed)
        assert set(shown(0)) == {row for row, loss in every.items() if keeps(loss)} and shown(0)
    tab.fill("#runs-filter", "learning rate=0.001 depth>6 n>1M n<=30M diverged")
    assert {name[:4] for name in shown(0)} <= {"L12-"}
    for typed in ("loss<", "loss<much", "colour>3"):
        tab.fill("#runs-filter", f"{typed} L12-d")
        assert len(shown(0)) > 200 and tab.locator("#runs-shown").inner_text().endswith(f"of a column: {typed}")
        assert tab.get_attribute("#runs-filter", "aria-invalid") == "true"
    # names from data are text
    tab.fill("#runs-filter", "onerror")
    assert shown(0) == [f"a {HOSTILE}"]
    table.locator("tbody tr:visible button.run").press("Enter")
    assert HOSTILE in tab.locator("#run-curve-title").inner_text() and HOSTILE in tab.locator("h1").inner_text()
    assert tab.evaluate("window.hurt") is None
    assert tab.locator("img:not([src^='data:'])").count() == 0 and tab.locator("script").count() == 2


@pytest.mark.parametrize(
    ("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")], ids=["light", "dark", "phone"]
)
def test_looks(opened: Callable[..., Any], tmp_path: Path, width: int, scheme: str) -> None:
    tab = opened(viewport={"width": width, "height": 800}, color_scheme=scheme, device_scale_factor=0.5)
    # tables scroll in their boxes, the page itself does not
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    tab.screenshot(path=tmp_path / "page.png", full_page=True)
    pixels = imread(tmp_path / "page.png")[..., :3]
    light = pixels.mean(axis=2)
    # nearly all of it is ground: no white boxes in the dark, no dark ones in the light
    assert (light > 0.5).mean() > 0.93 if scheme == "light" else (light < 0.5).mean() > 0.93
    ink = (np.abs(pixels - pixels[0, 0]).max(axis=2) > 0.2).mean(axis=1)
    # drawn from top to bottom: nowhere is a screen empty, as behind an image that failed to load
    assert all(ink[start : start + 400].mean() > 0.004 for start in range(0, len(ink) - 400, 200))
    # the figures of the fit are there
    assert tab.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 100)")


def test_without_script_and_on_paper(opened: Callable[..., Any]) -> None:
    tab = opened(java_script_enabled=False)
    assert tab.locator("#budget").inner_text().count("dwsweep guide --params N") == 1
    assert 2 <= tab.locator("#answer p").count() <= 5 and tab.locator("figure img").count() == 5
    printed = opened()
    printed.emulate_media(media="print", color_scheme="dark")
    assert printed.locator("button:visible, select:visible, nav:visible").count() == RUNS + 11  # names and headings
    assert printed.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert math.isclose(printed.evaluate("document.documentElement.scrollWidth / innerWidth"), 1.0)


def test_the_script_makes_the_table_of_many_runs(
    browser: Any, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the one that stands in the page of fewer; without scripts a line says where they are."""
    monkeypatch.setattr(runs_table, "MANY", RUNS - 1)
    many = sweep_page.write(page.parent, tmp_path / "many.html")
    cells = "table => [...table.rows].map(row => [...row.cells].map(cell => [cell.textContent, cell.className]))"
    found = []
    for path in (page, many):
        with browser.new_context() as context:
            tab = context.new_page()
            tab.goto(path.as_uri(), timeout=120_000)
            found.append(tab.locator("details.all-runs table").evaluate(cells))
    assert found[0] == found[1] and len(found[0]) == RUNS + 1
    assert many.stat().st_size < page.stat().st_size
    with browser.new_context(java_script_enabled=False) as context:
        tab = context.new_page()
        tab.goto(many.as_uri(), timeout=120_000)
        assert "they are in results.csv" in tab.locator("details.all-runs").text_content()
