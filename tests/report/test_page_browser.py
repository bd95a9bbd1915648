"""The page in a real browser: what it answers, that it loads nothing, how it looks. Skips, saying why, without one."""

from __future__ import annotations

import csv
import json
import math
import re
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


def test_a_size_is_chosen_and_its_answer_is_shown(opened: Callable[..., Any], page: Path) -> None:
    tab, guide = opened(), data_of(page)["guide"]
    assert tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") < 30_000  # ms
    sizes = guide["sizes"]
    for k in (0, len(sizes) // 2, len(sizes) - 1):
        for at in guide["spoken"]:
            tab.fill("#ask-params", sizes[k]["label"])
            tab.select_option("#ask-at", at)
            shown = tab.locator("#budget .answer:visible")
            assert shown.count() == 1 and shown.get_attribute("data-size") == str(k)
            assert shown.inner_text().replace("\xa0", " ").find(f"{sizes[k]['label']} non-embedding parameters") >= 0
            assert set(shown.locator("[data-at]:visible").evaluate_all("all => all.map(one => one.dataset.at)")) <= {at}
            assert not tab.locator("#between").is_visible()
            command = tab.locator("#guide-command").inner_text()
            assert command.startswith(f"dwsweep guide --params {sizes[k]['label']} --at {at} --fit ")


def test_between_two_sizes_their_numbers_are_interpolated(opened: Callable[..., Any], page: Path) -> None:
    """Half way in ln N the best depth is the geometric mean of its neighbours'; the answer below is a neighbour's."""
    tab, sizes = opened(), data_of(page)["guide"]["sizes"]
    k = next(k for k in range(len(sizes) - 1) if all("depth" in one and one.get("build") for one in sizes[k : k + 2]))
    a, b = sizes[k : k + 2]
    n = math.sqrt(a["n"] * b["n"])
    tab.fill("#ask-params", f"{n:.6g}")
    said = tab.locator("#between").inner_text()
    assert f"between the answers at {a['label']} and {b['label']}" in said
    assert f"best depth about {math.sqrt(a['depth'][0] * b['depth'][0]):.1f} (" in said
    depth, width = (float(x) for x in re.findall(r"at equal size about (\d+) × (\d+)", said)[0])
    ends = sorted((a["build"]["size"][0], b["build"]["size"][0]))
    assert ends[0] <= depth <= ends[1] and 0.8 < 12 * depth * width**2 / n < 1.25
    assert tab.locator("#budget .answer:visible").get_attribute("data-size") in (str(k), str(k + 1))
    assert f"--params {n:.6g} --at size" in tab.locator("#guide-command").inner_text()


def test_the_slider_and_the_field_are_one(opened: Callable[..., Any], page: Path) -> None:
    tab, sizes = opened(), data_of(page)["guide"]["sizes"]
    tab.fill("#ask-params", sizes[3]["label"])
    assert math.isclose(float(tab.input_value("#ask-slider")), math.log(sizes[3]["n"]), abs_tol=1e-3)
    move = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"
    tab.locator("#ask-slider").evaluate(move, math.log(3.3e6))
    assert tab.input_value("#ask-params") == "3.3M" and "At 3.3M:" in tab.locator("#between").inner_text()
    tab.fill("#ask-params", "9e15")
    assert "beyond the listed sizes" in tab.locator("#between").inner_text()
    tab.fill("#ask-params", "<b>three")
    assert tab.locator("#budget .wrong").inner_text().startswith("A size is a positive number")
    assert tab.get_attribute("#ask-params", "aria-invalid") == "true"


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
    tab.select_option("#losses-axis", label="training FLOPs")
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
    for typed, why in (
        ("L12-d loss<", "loss<: compare with a number"),
        ("loss<much L12-d", "loss<much: compare with a number"),
        ("colour>3", 'There is no column "colour"; the columns are run, depth, '),
        ("foo < 3 done", 'There is no column "foo"'),
    ):
        tab.fill("#runs-filter", typed)
        assert shown(0) == [] and tab.locator("#runs-shown").inner_text().startswith(why), typed
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


def test_bands_of_the_chart_are_not_cut(opened: Callable[..., Any]) -> None:
    tab = opened()
    inside = """svg => { const all = [...svg.querySelectorAll('path.band')].map(p => p.getBBox());
        const box = svg.querySelector('clipPath rect').getBBox();
        return all.length > 0 && all.every(b => b.y >= box.y && b.y + b.height <= box.y + box.height); }"""
    assert tab.locator("#losses-plot").evaluate(inside)


def test_figures_follow_the_theme(opened: Callable[..., Any], tmp_path: Path) -> None:
    """The ground of a figure is about that of its page, in the dark too."""
    for scheme in ("light", "dark"):
        tab = opened(color_scheme=scheme)
        tab.locator("#answer figure img").screenshot(path=tmp_path / "figure.png")
        ground = np.median(imread(tmp_path / "figure.png")[..., :3])
        assert ground > 0.9 if scheme == "light" else ground < 0.15


def test_the_first_screen_has_the_answer_the_next_step_and_a_figure(opened: Callable[..., Any]) -> None:
    tab = opened(viewport={"width": 1440, "height": 900})
    for part in ("#answer .answer", "#answer h3", "#answer li", "#answer figure img"):
        box = tab.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 920, part
    phone = opened(viewport={"width": 390, "height": 800})
    step, figure = (phone.locator(f"#answer {part}").first.bounding_box() for part in ("li", "figure img"))
    assert figure["y"] > step["y"] and figure["width"] > 300


def test_paper_has_all_of_the_page(browser: Any, page: Path) -> None:
    """Details are open on paper, and closed again behind it."""
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(page.as_uri(), timeout=120_000)
        closed = tab.locator("details:not([open])")
        before = closed.count()
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert before > 0 and closed.count() == 0
        tab.evaluate("dispatchEvent(new Event('afterprint'))")
        assert closed.count() == before


def test_without_script_and_on_paper(opened: Callable[..., Any]) -> None:
    tab = opened(java_script_enabled=False)
    assert tab.locator("#budget .answer:visible").count() == 1 and not tab.locator("#budget .ask").is_visible()
    assert 2 <= tab.locator("#answer .answer p").count() <= 5 and tab.locator("figure img").count() == 5
    printed = opened()
    printed.emulate_media(media="print", color_scheme="dark")
    assert printed.locator("button:visible, select:visible, nav:visible").count() == RUNS + 11  # names and headings
    assert printed.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert math.isclose(printed.evaluate("document.documentElement.scrollWidth / innerWidth"), 1.0)
