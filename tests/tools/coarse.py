"""Coarse grids: fits on few points and draws, in a third of the time."""

from __future__ import annotations

import pytest

# imported where it is used: a test without a fit does not wait for one


def coarse(patch: pytest.MonkeyPatch) -> None:
    """Guidelines of figures on a quarter of their points, nets at equal cost on a quarter of theirs, curves at half of
    their sizes, and heaps of as many draws as plain tables. Best depths are read from none of the curves, and every
    answer keeps its interval."""

    from dwsweep.fit import drawn_curves, heap_design, nets

    patch.setattr(nets, "ACROSS", 21)
    patch.setattr(nets, "UP", 31)
    patch.setattr(heap_design, "TIMES", 1)
    patch.setattr(drawn_curves, "FIXED_SIZES", 3)
