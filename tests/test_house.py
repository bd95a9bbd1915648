"""The architecture, checked on the source: data flows one way down, and heavy imports stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dwsweep

PACKAGE = Path(dwsweep.__file__).parent
# a room may import from its own level and from those below
LEVELS = [
    {"errors", "folding", "locks", "paths", "strict_yaml", "terminal", "text"},
    {"spec", "shapes", "theory", "records"},
    {"data", "model", "cost"},
    {"plan"},
    {"train"},
    {"sweep"},
    {"fit"},
    {"design", "guide"},
    {"report"},
    {"parameters"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


def imported(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            base = node.module or ""
            modules.update(f"{base}.{alias.name}" for alias in node.names)
    return modules


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_room_is_named() -> None:
    assert {room_of(path) for path in SOURCES} <= set(LEVEL)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nobody_calls_upward(path: Path) -> None:
    level = LEVEL[room_of(path)]
    rooms = {name.split(".")[1] for name in imported(path) if name.startswith("dwsweep.") and name.count(".") >= 1}
    upward = {room for room in rooms if LEVEL.get(room, 0) > level}
    assert not upward, f"{path.name} is below {upward} and imports it"


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import dwsweep.cli", {"jax", "flax", "scipy", "matplotlib", "pydantic", "tensorflow_datasets"}),
        ("import dwsweep.plan, dwsweep.cost, dwsweep.theory", {"jax", "flax", "scipy", "tensorflow_datasets"}),
        ("import dwsweep.sweep.runner, dwsweep.sweep.sweep_directory, dwsweep.sweep.status", {"jax", "flax", "orbax"}),
        ("from dwsweep import fit_table; import dwsweep.fit.output", {"jax", "flax", "optax", "orbax"}),
        ("import dwsweep.report.figures.registry, dwsweep.report.page.sweep_page", {"jax", "flax", "optax", "orbax"}),
        ("import dwsweep.train, dwsweep.model, dwsweep.data", {"jax", "flax", "tensorflow"}),
        ("import dwsweep.train.pack_trainer", {"tensorflow"}),
    ],
)
def test_heavy_imports_stay_where_they_belong(statement: str, absent: set[str]) -> None:
    assert not loaded_after(statement) & absent
