"""A browser for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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
        pytest.skip("the package playwright is not installed: pip install -c constraints.txt '.[test]'")
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
