"""``stdlib-docs``: English prose that ships inside every CPython, so that a first sweep needs no download.

The help topics of ``pydoc_data.topics`` (one document each) and the docstrings of the standard library (one document
per module, one per class). The files are parsed, never imported. About 2 MB of text; it changes a little from one
Python to the next.
"""

from __future__ import annotations

import ast
import inspect
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwsweep.data.source_items import ITEM_BYTES, Item, Skipped
from dwsweep.errors import InputError

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "lib2to3", "pydoc_data"}


@dataclass(frozen=True)
class StdlibDocs:
    """The prose of the running Python's standard library."""

    root: str
    files: tuple[tuple[str, int], ...]  # relative path and size in bytes, sorted

    @classmethod
    def find(cls) -> StdlibDocs:
        root = Path(sysconfig.get_paths()["stdlib"])
        names = []
        for folder, below, files in os.walk(root):
            below[:] = [f for f in below if f not in LEFT_OUT]
            names += [Path(folder, f).relative_to(root).as_posix() for f in files if f.endswith(".py")]
        names.sort()
        topics = "pydoc_data/topics.py"
        names = [topics] * (root / topics).exists() + names
        if not names:
            raise InputError(
                f"data.source: stdlib-docs; {root} has no .py files; a Python with its sources, or another source"
            )
        return cls(str(root), tuple((n, (root / n).stat().st_size) for n in names))

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.files)

    @property
    def parallel(self) -> bool:
        return True  # parsing Python is slow

    def identity(self) -> list[Any]:
        return [platform.python_version(), len(self.files), self.total_bytes]

    def items(self) -> Iterator[Item]:
        group: list[str] = []
        n_bytes = 0
        for name, size in self.files:
            group.append(name)
            n_bytes += size
            if n_bytes >= ITEM_BYTES:
                yield Item(tuple(group), n_bytes)
                group, n_bytes = [], 0
        if group:
            yield Item(tuple(group), n_bytes)

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for name in item.payload:
            source = Path(self.root, name).read_bytes()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # invalid escapes in old modules
                    tree = ast.parse(source)
            except (SyntaxError, ValueError):
                skipped.left_out["files that are not Python"] += 1
                continue
            if name == "pydoc_data/topics.py":
                yield from _topics(tree)
            else:
                yield from _docstrings(tree)


def _topics(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            yield from (topics[key] for key in sorted(topics))


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module in the order of its source: one document for the module and its functions, one for
    each class with its methods."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    yield _joined(tree, [node for node in tree.body if node not in classes])
    for node in classes:
        yield _joined(node, node.body)


def _joined(owner: ast.Module | ast.ClassDef, body: list[ast.stmt]) -> str:
    found = [(0, ast.get_docstring(owner, clean=False))]
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((node.lineno, ast.get_docstring(node, clean=False)))
    return "\n\n".join(inspect.cleandoc(text) for _, text in sorted(found, key=lambda f: f[0]) if text)
