"""dwsweep: depth-width sweeps of decoder-only language models.

At a given parameter budget, how deep and how wide? ``dwsweep run`` trains a sweep at matched 12·L·d² budgets,
``fit_table`` turns losses into transition points, a width law and a guideline, ``compare_arms`` says what another
recipe changes of them, ``fit_along`` the loss against any column, and ``guide`` says what to build; ``summary`` and
``plot`` show either. Importing this package
imports neither JAX nor SciPy: each is imported by what needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwsweep import guide
    from dwsweep.errors import InputError
    from dwsweep.fit.along.along import fit_along
    from dwsweep.fit.analysis import fit_table
    from dwsweep.fit.compare.arms import compare_arms
    from dwsweep.notebook import plot, summary
    from dwsweep.records.fit_result import FitResult

__version__ = "0.1.0"
__all__ = [
    "FitResult",
    "InputError",
    "__version__",
    "compare_arms",
    "fit_along",
    "fit_table",
    "guide",
    "plot",
    "summary",
]

_HOME = {
    "FitResult": "records.fit_result",
    "InputError": "errors",
    "compare_arms": "fit.compare.arms",
    "fit_along": "fit.along.along",
    "fit_table": "fit.analysis",
    "plot": "notebook",
    "summary": "notebook",
}


def __getattr__(name: str) -> Any:
    if name == "guide":
        return importlib.import_module("dwsweep.guide")
    if name in _HOME:
        return getattr(importlib.import_module(f"dwsweep.{_HOME[name]}"), name)
    raise AttributeError(f"module 'dwsweep' has no attribute {name!r}")
