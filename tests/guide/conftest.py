"""Public sources are made once for a file: they keep what they priced at each size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(scope="module", autouse=True)
def sources_again() -> Iterator[None]:
    from dwsweep.guide import question

    with pytest.MonkeyPatch.context() as patch:
        for name in ("published_source", "public_source"):
            patch.setattr(question, name, cache(getattr(question, name)))
        yield
