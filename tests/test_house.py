"""The architecture, checked on the source: data flows one way down, and heavy imports stay where they belong.

Every import counts, the ones inside functions and under ``TYPE_CHECKING`` too: they are arrows for whoever reads.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dwsweep

PACKAGE = Path(dwsweep.__file__).parent
MAX_LINES = 400

GROUND = [
    {"errors", "text"},
    {"paths", "terminal"},
    {"locks", "shapes", "exit_status"},
    {"spec"},
    {"records", "theory", "cost"},
]
TRAINING = [{"data", "model"}, {"plan"}, {"train"}, {"sweep"}]
ANALYSIS = [{"fit"}, {"design", "guide"}]
ABOVE = [{"report"}, {"parameters", "notebook", "__init__"}, {"cli_analysis"}, {"cli"}, {"__main__"}]
# a room may import from its own level and from those below; that the two halves do not meet is a rule of its own
LEVEL = {room: level for level, rooms in enumerate([*GROUND, *TRAINING, *ANALYSIS, *ABOVE]) for room in rooms}
TRAINING_ROOMS, ANALYSIS_ROOMS = set().union(*TRAINING), set().union(*ANALYSIS)
MAY_MEET = {("design", "plan")}  # an error is designed for the runs that are planned

JAX = {"jax", "jaxlib", "flax", "optax", "orbax"}
# who alone may import what is heavy; TensorFlow is nobody's, nor are the tests and their simulations
IMPORTERS = {
    **{name: {"model", "train", "sweep"} for name in JAX},
    "tensorflow_datasets": {"data/tfds"},
    "tensorflow": set(),
    "tests": set(),
    "ray": {"sweep"},
    "matplotlib": {"report", "notebook"},
}

# Rooms that are still being rebuilt. An entry goes when its arrow does: one that is no longer needed fails too.
ARROWS_LEFT: set[tuple[str, str]] = set()
CIRCLES_LEFT: set[frozenset[str]] = set()
TOO_LONG_LEFT: set[str] = set()
TWICE_LEFT: set[str] = set()


def module_name(path: Path) -> str:
    """``fit/cells``, ``paths``, ``plan/__init__``."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


MODULES = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def room(module: str) -> str:
    return module.split("/")[0]


def imported(module: str) -> Iterator[str]:
    """Dotted names of everything that a module imports, wherever in it."""
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def target(name: str) -> str | None:
    """The module of this package that gives a dotted name; None for other packages."""
    parts = name.split(".")
    if parts[0] != "dwsweep":
        return None
    for stop in range(len(parts), 0, -1):
        path = "/".join(parts[1:stop])
        for found in (path, f"{path}/__init__".lstrip("/")):
            if found in MODULES:
                return found
    return None


ARROWS = {(module, to) for module in MODULES for name in imported(module) if (to := target(name)) and to != module}


def unlisted(found: set, left: set) -> str:
    """What is wrong and not listed above, and what is listed and no longer wrong."""

    def shown(items: set) -> list[str]:
        return sorted(" → ".join(item if isinstance(item, tuple) else sorted(item)) for item in items)

    return "".join(
        f"\n{what}: {line}" for what, items in (("new", found - left), ("gone", left - found)) for line in shown(items)
    )


def test_every_room_has_its_level_and_nobody_calls_upward() -> None:
    assert {room(module) for module in MODULES} <= set(LEVEL)
    upward = {arrow for arrow in ARROWS if LEVEL[room(arrow[1])] > LEVEL[room(arrow[0])]}
    across = {
        (a, b)
        for a, b in ARROWS
        for half, other in ((TRAINING_ROOMS, ANALYSIS_ROOMS), (ANALYSIS_ROOMS, TRAINING_ROOMS))
        if room(a) in half and room(b) in other and (room(a), room(b)) not in MAY_MEET
    }
    wrong = unlisted(upward | across, ARROWS_LEFT)
    assert not wrong, f"imports upward, or from one half into the other:{wrong}"


def circles() -> set[frozenset[str]]:
    """The strongly connected sets of modules of more than one (Tarjan 1972)."""
    below: dict[str, list[str]] = {module: [] for module in MODULES}
    for a, b in sorted(ARROWS):
        below[a].append(b)
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in below[module]:
            if other not in order:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            circle = stack[stack.index(module) :]
            del stack[-len(circle) :]
            if len(circle) > 1:
                found.add(frozenset(circle))

    for module in MODULES:
        if module not in order:
            visit(module)
    return found


def test_no_circles() -> None:
    wrong = unlisted(circles(), CIRCLES_LEFT)
    assert not wrong, f"modules that import each other:{wrong}"


def test_modules_are_short_and_no_file_name_stands_twice() -> None:
    lines = {module: (PACKAGE / f"{module}.py").read_text("utf-8").count("\n") for module in MODULES}
    wrong = unlisted({(module,) for module, n in lines.items() if n > MAX_LINES}, {(name,) for name in TOO_LONG_LEFT})
    assert not wrong, f"longer than {MAX_LINES} lines:{wrong}"
    names = Counter(module.split("/")[-1] for module in MODULES)
    wrong = unlisted({(name,) for name, n in names.items() if n > 1}, {("__init__",), *((n,) for n in TWICE_LEFT)})
    assert not wrong, f"file names that stand twice:{wrong}"


def test_heavy_packages_have_few_importers() -> None:
    wrong = {
        f"{module} imports {name}"
        for module in MODULES
        for name in imported(module)
        if not {room(module), module} & IMPORTERS.get(name.split(".")[0], {room(module)})
    }
    assert not wrong


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import dwsweep.cli", {"jax", "flax", "scipy", "matplotlib", "pydantic", "tensorflow_datasets"}),
        ("import dwsweep.plan, dwsweep.cost, dwsweep.theory", {"jax", "flax", "scipy", "tensorflow_datasets"}),
        (
            "import dwsweep.sweep.runner, dwsweep.sweep.snapshot",
            {"jax", "flax", "orbax"},
        ),
        ("from dwsweep import fit_table; import dwsweep.fit.output", {"jax", "flax", "optax", "orbax"}),
        ("import dwsweep.report.figures.registry, dwsweep.report.page.sweep_page", {"jax", "flax", "optax", "orbax"}),
        ("import dwsweep.train, dwsweep.model, dwsweep.data", {"jax", "flax", "tensorflow"}),
        ("import dwsweep.train.pack_trainer", {"tensorflow"}),
    ],
)
def test_heavy_imports_stay_where_they_belong(statement: str, absent: set[str]) -> None:
    assert not loaded_after(statement) & absent


def test_files_are_read_as_they_were_written_whatever_the_locale() -> None:
    """Text without a named encoding is written and read as the locale has it: ASCII under LC_ALL=C."""
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            if name in ("read_text", "write_text"):
                assert isinstance(node, ast.Call)
                named = len(node.args) > (name == "write_text") or any(word.arg == "encoding" for word in node.keywords)
                assert named, f"{module}, line {node.lineno}: {name} without an encoding"
