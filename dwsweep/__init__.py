"""dwsweep: depth-width sweeps of decoder-only language models.

At a given parameter budget, how deep and how wide? ``dwsweep run`` trains a sweep at matched 12·L·d² budgets. The
library has two functions, whose results have ``summary()``, ``plot()``, ``tables()``, ``frame()`` and ``to_dict()``:

- ``fit_table``: what a table of losses answers; ``along`` a column, or ``compare``-d with other tables.
- ``guide``: the shape to build, and the cost of others.

Importing this package imports neither JAX nor SciPy: each is imported on first use.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwsweep.errors import InputError
    from dwsweep.results import fit_table, guide

__version__ = "0.1.0"
__all__ = ["InputError", "__version__", "fit_table", "guide"]


def __getattr__(name: str) -> Any:
    """Import a name at its first use (PEP 562).

    Raises:
        AttributeError: there is no such name.
    """
    if name == "InputError":
        from dwsweep.errors import InputError

        return InputError
    if name in ("fit_table", "guide"):
        from dwsweep import results

        return getattr(results, name)
    raise AttributeError(f"module 'dwsweep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Class of this package, whose attribute ``guide`` is the function and not the subpackage.

    Python makes each submodule that is imported an attribute of its package. The room ``dwsweep/guide`` is left out, so
    that ``dwsweep.guide`` is found by ``__getattr__``; ``from dwsweep.guide import Options`` needs no attribute.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "guide" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
