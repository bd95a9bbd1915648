"""dwsweep: depth-width sweeps of decoder-only language models.

At a given parameter budget, how deep and how wide? ``dwsweep run`` trains a sweep at matched 12·L·d² budgets. Each
question has a function, and its result has ``summary()``, ``plot()``, ``tables()`` and ``to_dict()``:

- ``fit_table``: everything that a table of losses answers.
- ``fit_transitions``: where each deeper net overtakes, the best depth at each size, the width law.
- ``fit_budgets``: the best size and depth at equal compute.
- ``fit_along``: the loss along any column, such as heads.
- ``compare``: the change of the answer under another recipe.
- ``guide``: the shape to build, and the cost of others.

Importing this package imports neither JAX nor SciPy: each is imported on first use.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwsweep.errors import InputError
    from dwsweep.fit.arms import compare_arms
    from dwsweep.records.fit import FitResult
    from dwsweep.results import compare, fit_along, fit_budgets, fit_table, fit_transitions, guide, plot, summary

__version__ = "0.1.0"
__all__ = [
    "FitResult",
    "InputError",
    "__version__",
    "compare",
    "compare_arms",
    "fit_along",
    "fit_budgets",
    "fit_table",
    "fit_transitions",
    "guide",
    "plot",
    "summary",
]


def __getattr__(name: str) -> Any:
    """Import a name at its first use (PEP 562)."""
    found: Any
    match name:
        case "FitResult":
            from dwsweep.records.fit import FitResult

            found = FitResult
        case "InputError":
            from dwsweep.errors import InputError

            found = InputError
        case "compare_arms":
            from dwsweep.fit.arms import compare_arms as found
        case "compare" | "fit_along" | "fit_budgets" | "fit_table" | "fit_transitions" | "guide" | "plot" | "summary":
            from dwsweep import results

            found = getattr(results, name)
        case _:
            raise AttributeError(f"module 'dwsweep' has no attribute {name!r}")
    return found


class _Package(ModuleType):
    """This package, in which ``guide`` is the function and not the room of that name.

    Python makes each submodule that is imported an attribute of its package. The room ``dwsweep/guide`` is left out, so
    that ``dwsweep.guide`` is found by ``__getattr__``; ``from dwsweep.guide import Options`` needs no attribute.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "guide" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
