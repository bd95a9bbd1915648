"""What every test of a figure or page can rely on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dwsweep.fit import surface


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    """A tenth of a surface's draws: intervals are coarser, and what is drawn and answered of them takes less."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surface, "DRAWS", 100)
        yield
