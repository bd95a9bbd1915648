"""The page in a real browser: what it answers, that it loads nothing, how it looks. Skips, saying why, without one."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import report_sweeps

from dwsweep.report import page as sweep_page

pytestmark = pytest.mark.slow  # a browser starts

RUNS = 500
MOST_BYTES = 2_000_000
HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror=window.hurt=1>"
STEPS = range(1, 1001, 10)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# no sandbox in a container that runs as root, and nothing that the browser itself would ask the network for
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]
COLUMN = "(fold, k) => [...fold.querySelectorAll('tbody tr')].filter((r) => !r.hidden).map((r) => r.cells[k].innerText)"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page of 500 runs, one of them with markup in its name."""
    directory = report_sweeps.sweep(tmp_path / "sweep", "one_pair", name=f"demo {HOSTILE}")
    with open(directory / "results.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for k in range(len(rows), RUNS):
        copied = rows[k % 36]
        rows.append({**copied, "seed": str(k), "run_id": f"L{copied['depth']}-d{copied['width']}-s{k}-0123abcd"})
    rows[7]["run_id"] = f"a {HOSTILE}"
    for k, row in enumerate(rows[8:], 8):
        folder = directory / "runs" / row["run_id"]
        folder.mkdir(exist_ok=True)
        lines = (json.dumps({"step": s, "loss": 2.0 + 5.0 * s**-0.4 + 1e-4 * k}) for s in STEPS)
        (folder / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report_sweeps.write_csv([{**row, "loss_stderr": "0.0031"} for row in rows], directory / "results.csv")
    return Path(sweep_page.write(directory))


@pytest.fixture
def tab(page: Path) -> Iterator[Any]:
    """The page in a browser, the system's or Playwright's own; it asks for nothing and complains of nothing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install -c constraints.txt '.[test]'")
    system = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    asked, said = [], []
    with playwright.sync_playwright() as running:
        if system is None and not Path(running.chromium.executable_path).exists():
            pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the path, and Playwright has none of its own")
        tab = running.chromium.launch(executable_path=system, args=ARGUMENTS).new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(page.as_uri(), timeout=120_000)  # a loaded machine is no failure of the page
        yield tab
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} <= {page.as_uri()}
    assert said == []


def test_five_hundred_runs_are_two_megabytes_and_are_sorted_and_filtered(page: Path, tab: Any) -> None:
    assert page.stat().st_size <= MOST_BYTES
    assert not tab.locator("details.all-runs").is_visible()
    tab.locator("nav a", has_text="Runs").click()  # a link unfolds its section
    table = tab.locator("details.all-runs")
    table.locator("summary").click()
    heads = table.locator("th").all_inner_texts()
    status, loss = (next(k for k, head in enumerate(heads) if head.startswith(name)) for name in ("status", "loss"))

    def shown(column: int) -> list[str]:
        return list(table.evaluate(COLUMN, column))

    def typed(text: str) -> None:
        tab.fill(".runs-filter", text)

    assert len(shown(0)) == RUNS
    typed("diverged")
    assert 0 < len(shown(0)) < 20 and set(shown(status)) == {"diverged"}
    assert tab.locator(".runs-shown").inner_text() == f"{len(shown(0))} of {RUNS} runs"
    typed("L12-d done")
    heading = table.locator("th", has_text="loss")
    for order in ("ascending", "descending"):
        heading.locator("button").press("Enter")
        assert heading.get_attribute("aria-sort") == order
        losses = [float(text) for text in shown(loss)]
        assert losses == sorted(losses, reverse=order == "descending") and len(losses) > 200
    # names from data are text
    typed("onerror")
    assert shown(0) == [f"a {HOSTILE}"] and HOSTILE in tab.locator("h1").inner_text()
    assert tab.evaluate("window.hurt") is None
    assert tab.locator("img:not([src^='data:'])").count() == 0 and tab.locator("script").count() == 1
