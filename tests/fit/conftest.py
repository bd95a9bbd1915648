"""A short guideline for every file."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def few_sizes(short_guideline: None) -> None:
    """``short_guideline`` for every file."""
