"""dwsweep: depth-width sweeps of decoder-only language models.

At a given parameter budget, how deep and how wide? ``dwsweep run`` trains a sweep at matched 12·L·d² budgets, and
``fit_table`` turns the losses into transition points, a width law and a guideline. Importing this package imports
neither JAX nor SciPy: each is imported by what needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwsweep.fit.analysis import fit_table
    from dwsweep.records.fit_result import FitResult

__version__ = "0.1.0"
__all__ = ["FitResult", "__version__", "fit_table"]


def __getattr__(name: str) -> Any:
    if name in ("FitResult", "fit_table"):
        from dwsweep.fit import analysis

        return getattr(analysis, name)
    raise AttributeError(f"module 'dwsweep' has no attribute {name!r}")
