"""Libraries: SciPy and Matplotlib imported by a command without what only a notebook needs.

Both write docstrings while they are imported, SciPy copies NumPy's names with its Fortran compiler among them, and
Matplotlib loads axes of three dimensions: 0.35 s of CPU, a sixth of a small fit. A command calls these functions before
its first import of either; a program that imports ``dwsweep`` does not, and gets the libraries whole.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

MISSING = object()


def scipy() -> None:
    """Import special functions and LAPACK. Nothing happens where SciPy is imported already."""
    if "scipy" in sys.modules:
        return
    import numpy

    with (
        _held(numpy, "f2py", None),
        _held(numpy, "testing", None),
        contextlib.suppress(ImportError),  # another version may name these differently
    ):
        docs: Any = importlib.import_module("scipy._lib._docscrape")

        class Undocumented(docs.FunctionDoc):  # type: ignore[misc]
            def __init__(self, *_args: Any, **_options: Any) -> None:
                self._parsed_data = defaultdict[str, list[str]](list)

            def __str__(self) -> str:
                return "\n"

        with _held(docs, "FunctionDoc", Undocumented):
            for name in ("scipy.special", "scipy.linalg.lapack"):
                importlib.import_module(name)


def matplotlib() -> None:
    """Import what a figure needs. Nothing happens where Matplotlib is imported already."""
    if "matplotlib" in sys.modules:
        return
    artist: Any = importlib.import_module("matplotlib.artist")
    flat = SimpleNamespace(Axes3D=None)  # as where the toolkit cannot be imported
    with (
        _held(artist.Artist, "_update_set_signature_and_docstring", classmethod(lambda cls: None)),
        _held(artist, "kwdoc", lambda _artist: ""),
        _module("mpl_toolkits.mplot3d", flat),
    ):
        for name in ("figure", "backends.backend_agg", "backends.backend_svg"):
            importlib.import_module(f"matplotlib.{name}")
    font: Any = importlib.import_module("matplotlib.ft2font").FT2Font
    # asked for twice by each measurement of a text, and read from the file each time
    with contextlib.suppress(AttributeError, TypeError):
        font.get_sfnt_table = functools.cache(font.get_sfnt_table)


@contextlib.contextmanager
def _held(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Attribute ``name`` of ``owner`` with another value inside the block."""
    before = vars(owner).get(name, MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is not MISSING:
            setattr(owner, name, before)
        elif vars(owner).get(name, MISSING) is value:
            delattr(owner, name)


@contextlib.contextmanager
def _module(name: str, value: Any) -> Iterator[None]:
    """Module ``name`` replaced inside the block, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    modules: dict[str, ModuleType] = sys.modules
    modules[name] = value
    try:
        yield
    finally:
        modules.pop(name, None)
