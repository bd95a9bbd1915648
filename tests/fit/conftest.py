"""A short guideline, and nothing foretold: tests of these have them whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

WHOLE = ("test_foretold", "test_meaning")  # the second shows the text of a fit


@pytest.fixture(scope="module", autouse=True)
def few_sizes(short_guideline: None) -> None:
    """``short_guideline`` for every file."""


@pytest.fixture(scope="module", autouse=True)
def nothing_foretold(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fits without the best depth that half of the sizes foretold, which takes another posterior."""
    from dwsweep.fit import analysis

    with pytest.MonkeyPatch.context() as patch:
        if not request.module.__name__.endswith(WHOLE):
            patch.setattr(analysis, "foretold", lambda *_: None)
        yield
