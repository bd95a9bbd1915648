"""The architecture beside the contracts that ``make types`` checks: start of commands, encodings, hidden imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from checkout import ROOT

import dwsweep

PACKAGE = Path(dwsweep.__file__).parent


@cache
def modules() -> dict[str, ast.Module]:
    """The source of each, by its path; parsed by whoever asks, not by every process that only collects."""
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}


def test_no_import_is_hidden_from_the_contracts() -> None:
    """A literal given to ``import_module`` is an arrow that import-linter does not see, and nobody needs tests."""
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                given = [str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)]
                assert not any("dwsweep" in text for text in given), f"{module}, line {node.lineno}"
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0 and (node.module or "").split(".")[0] != "tests", f"{module}, line {node.lineno}"


IMPORTS: list[tuple[str, set[str]]] = [
    # one process for all of them, so that what a statement brings is there for those after it
    ("import dwsweep.cli.app", {"numpy", "pydantic", "dwsweep.spec"}),
    # `status` answers at once
    ("import dwsweep.report.progress, dwsweep.report.status_report", {"numpy", "dwsweep.spec", "dwsweep.plan"}),
    ("import dwsweep.guide", {"dwsweep.spec", "dwsweep.records.fit"}),
    ("import dwsweep.plan, dwsweep.cost, dwsweep.theory", set()),
    ("import dwsweep.sweep.runner, dwsweep.sweep.snapshot", {"tensorflow_datasets"}),
    ("import dwsweep.data.prepare, dwsweep.data.heldout", {"scipy", "sentencepiece", "pyarrow", "etils"}),
    ("from dwsweep import fit_table; import dwsweep.fit.arms", {"matplotlib"}),
    ("import dwsweep.report.figures.registry, dwsweep.report.page", {"optax", "orbax"}),
    ("import dwsweep.train, dwsweep.model, dwsweep.data", {"jax", "flax"}),
    ("import dwsweep.train.pack_trainer", {"tensorflow"}),
]


@pytest.fixture(scope="module")
def loaded() -> list[set[str]]:
    """Modules and packages that are there after each statement of ``IMPORTS``."""
    code = "import sys\n" + "".join(f"{statement}\nprint(*sys.modules)\n" for statement, _ in IMPORTS)
    lines = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
    return [{*line.split(), *(name.partition(".")[0] for name in line.split())} for line in lines]


def test_heavy_imports_stay_where_they_belong(loaded: list[set[str]]) -> None:
    absent: set[str] = set()
    for (statement, more), modules in zip(reversed(IMPORTS), reversed(loaded), strict=True):
        absent |= more  # what is absent after later statements is so after earlier ones
        assert not modules & absent, statement


def test_files_are_read_as_they_were_written_whatever_the_locale() -> None:
    """Text without a named encoding is written and read as the locale has it: ASCII under LC_ALL=C."""
    for module, tree in modules().items():
        for node in ast.walk(tree):
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            if name in ("read_text", "write_text"):
                assert isinstance(node, ast.Call)
                named = len(node.args) > (name == "write_text") or any(word.arg == "encoding" for word in node.keywords)
                assert named, f"{module}, line {node.lineno}: {name} without an encoding"


def test_the_files_that_are_dealt_out_first_are_there() -> None:
    """``LONGEST`` of the tests' conftest."""
    (names,) = (
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "tests" / "conftest.py").read_text("utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LONGEST"
    )
    assert names and not [name for name in names if not (ROOT / "tests" / name).is_file()]
