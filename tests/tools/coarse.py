"""Coarse grids: fits on few points and draws, in half of the time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

FEW = {"draws": 256, "enough": 100.0, "many": 32}
WHOLE: list[tuple[Any, str, Any]] = []


def coarse(patch: pytest.MonkeyPatch) -> None:
    """A quarter of the nodes and draws of a posterior, of the points of figures and of nets at equal cost, and a tenth
    of the pairs of own losses and public evidence. Every answer keeps its interval, whose ends move by a few percent of
    its width."""
    for thing, name, value in _fewer():
        WHOLE.append((thing, name, getattr(thing, name)))
        patch.setattr(thing, name, value)


def whole(patch: pytest.MonkeyPatch) -> None:
    """As a command computes: for tests of the printed digits of a fit."""
    for thing, name, value in WHOLE:
        patch.setattr(thing, name, value)


def _fewer() -> Iterator[tuple[Any, str, Any]]:
    # imported where it is used: a test without a fit does not wait for one
    from dwsweep.design import expected_fit
    from dwsweep.fit.answers import guideline, nets
    from dwsweep.fit.statistics import ask, posterior

    for function in (posterior.weigh, posterior.Posterior.of.__func__):
        code, defaults = function.__code__, function.__defaults__
        names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        yield function, "__defaults__", tuple(map(FEW.get, names, defaults))
    yield guideline, "FEWEST_NODES", 75
    yield ask, "LEVELS", 9
    yield import_module("dwsweep.evidence.joined"), "PAIRS", 20_000  # the package has a function of its name
    yield from ((expected_fit, name, value) for name, value in (("ROUGH", (60.0, 256)), ("PRECISE", (240.0, 1024))))
    yield nets, "ACROSS", 21
