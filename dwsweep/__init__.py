"""dwsweep: depth-width sweeps of decoder-only language models.

At a given parameter budget, how deep and how wide? ``dwsweep run`` trains a sweep at matched 12·L·d² budgets,
``fit_table`` turns losses into transition points, a width law and a guideline, ``compare_arms`` says what another
recipe changes of them, ``fit_along`` the loss against any column, and ``guide`` says what to build; ``summary`` and
``plot`` show either. Importing this package imports neither JAX nor SciPy: each is imported by what needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwsweep import guide
    from dwsweep.errors import InputError
    from dwsweep.fit.along import fit_along
    from dwsweep.fit.analysis import fit_table
    from dwsweep.fit.arms import compare_arms
    from dwsweep.notebook import plot, summary
    from dwsweep.records.fit import FitResult

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


def __getattr__(name: str) -> Any:
    """Import what is asked for (PEP 562)."""
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
        case "fit_along":
            from dwsweep.fit.along import fit_along as found
        case "fit_table":
            from dwsweep.fit.analysis import fit_table as found
        case "guide":
            import dwsweep.guide as found
        case "plot":
            from dwsweep.notebook import plot as found
        case "summary":
            from dwsweep.notebook import summary as found
        case _:
            raise AttributeError(f"module 'dwsweep' has no attribute {name!r}")
    return found
