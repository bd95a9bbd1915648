"""The script of the page, run: its arithmetic under Node or in a browser, the page itself in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dwsweep.report.page import html

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# no sandbox in a container that runs as root, and nothing that the browser itself would ask the network for
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser by Playwright: the system's, else Playwright's own; skips the test where there is none."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        pytest.skip("the package playwright is not installed: pip install 'dwsweep[test]'")
    system = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        if system is None and not own.exists():
            pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the path, and Playwright has none of its own")
        try:
            browser = playwright.chromium.launch(executable_path=system, args=ARGUMENTS)
        except Error as error:
            pytest.skip(f"{system or own} does not start: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


def arithmetic(asked: dict[str, Any], change: tuple[str, str] | None = None) -> list[dict[str, Any]]:
    """What guide.js answers, in the words of words.js.

    ``asked``: {tables, budgets: [[n, options], …], shapes: [[depth, width, options], …]}. ``change``: one
    text of the script for another, to see that a wrong script is noticed.
    """
    source = "".join(html.asset(name) for name in ("numbers.js", "loss.js", "guide.js", "words.js"))
    if change is not None:
        assert source.count(change[0]) == 1, change
        source = source.replace(*change)
    body = f"""{source}
        const guide = makeGuide(asked.tables), K = asked.tables.constants;
        const trust = (optimum) => trustLine(optimum, guide.source(optimum.n));
        const said = (a, o) => a.error || a.optimum.refused ? null
            : [buildLine(a, o, K), freeLine(a, o, K), trust(a.optimum)].map((line) => line.join(""));
        const budget = (n, o) => {{ const a = guide.budget(n, o); return {{ ...a, said: said(a, o) }}; }};
        return [...asked.budgets.map(([n, o]) => budget(n, o)),
            ...asked.shapes.map(([depth, width, o]) => guide.verdict(depth, width, o))];"""
    node = shutil.which("node")
    if node:
        program = f"const answer = (asked) => {{ {body} }};\n"
        program += "console.log(JSON.stringify(answer(JSON.parse(require('fs').readFileSync(0, 'utf8')))));"
        ran = subprocess.run(
            [node, "-e", program], input=json.dumps(asked), capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
        return list(json.loads(ran.stdout))
    with chromium() as browser:
        return list(browser.new_page().evaluate(f"(asked) => {{ {body} }}", asked))
