"""A short guideline: each of its nine sizes takes a second of ``guide``, whose tests ask for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

SIZES = ("125M", "350M", "13B")


@pytest.fixture(scope="module", autouse=True)
def short_guideline() -> Iterator[None]:
    from dwsweep import published_law
    from dwsweep.fit import guideline

    targets = [row for row in published_law.targets() if row[0] in SIZES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            guideline, "published_law", SimpleNamespace(**{**vars(published_law), "targets": lambda: targets})
        )
        yield
