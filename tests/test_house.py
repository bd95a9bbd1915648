"""The architecture beside the contracts that ``make types`` checks: start of commands, encodings, hidden imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

import dwsweep

PACKAGE = Path(dwsweep.__file__).parent


def test_no_import_is_hidden_from_the_contracts() -> None:
    """A literal given to ``import_module`` is an arrow that import-linter does not see, and nobody needs tests."""
    hidden = re.compile(r"""import_module\([^)]*["']dwsweep|^\s*from (\.|tests\b)""", re.MULTILINE)
    assert [path for path in PACKAGE.rglob("*.py") if hidden.search(path.read_text("utf-8"))] == []


IMPORTS: list[tuple[str, set[str]]] = [
    # one process for all of them, so that what a statement brings is there for those after it
    ("import dwsweep.cli.app", {"numpy", "pydantic", "dwsweep.spec"}),
    # `status` answers at once
    ("import dwsweep.report.progress, dwsweep.report.status_report", {"numpy", "dwsweep.spec", "dwsweep.plan"}),
    ("import dwsweep.guide", {"dwsweep.spec", "dwsweep.records.fit"}),
    # the room was first: the name is the function all the same
    ("from dwsweep import guide; assert dwsweep.guide is guide and sys.modules['dwsweep.guide'].Options", set()),
    # `plan` answers without JAX
    ("import dwsweep.plan as plan, dwsweep.spec as spec, dwsweep.report.plan_report as report", set()),
    ("assert len(report.to_json(plan.build(spec.load_spec('levine2020')))['runs']) == 252", set()),
    ("import dwsweep.cost, dwsweep.theory", set()),
    ("import dwsweep.sweep.runner, dwsweep.sweep.snapshot", {"tensorflow_datasets"}),
    ("import dwsweep.data.prepare, dwsweep.data.heldout", {"scipy", "sentencepiece", "pyarrow", "etils"}),
    ("from dwsweep import fit_table; import dwsweep.fit.arms", {"matplotlib"}),
    # a notebook needs neither JAX nor pyplot
    ("found = fit_table('sweeps/results/laptop'); found._repr_html_()", set()),
    ("assert found.plot('best_depth')._repr_png_()[:4] == b'\\x89PNG'", {"matplotlib.pyplot", "IPython"}),
    ("import dwsweep.report.figures.registry, dwsweep.report.page", {"optax", "orbax"}),
    ("import dwsweep.train, dwsweep.model, dwsweep.data", {"jax", "flax"}),
    ("import dwsweep.train.pack_trainer", {"tensorflow"}),
]


@pytest.fixture(scope="module")
def loaded() -> list[set[str]]:
    """Modules and packages that are there after each statement of ``IMPORTS``."""
    code = "import sys\n" + "".join(f"{statement}\nprint(*sys.modules)\n" for statement, _ in IMPORTS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = map(str.split, done.stdout.splitlines())
    return [{*names, *(name.partition(".")[0] for name in names)} for names in lines]


def test_heavy_imports_stay_where_they_belong(loaded: list[set[str]]) -> None:
    absent: set[str] = set()
    for (statement, more), modules in zip(reversed(IMPORTS), reversed(loaded), strict=True):
        absent |= more  # what is absent after later statements is so after earlier ones
        assert not modules & absent, statement


def test_files_are_read_as_they_were_written_whatever_the_locale() -> None:
    """Text without a named encoding is written and read as the locale has it: ASCII under LC_ALL=C."""
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)) if "_text(" in text else ():
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            if name in ("read_text", "write_text"):
                assert isinstance(node, ast.Call)
                named = len(node.args) > (name == "write_text") or any(word.arg == "encoding" for word in node.keywords)
                assert named, f"{path}, line {node.lineno}: {name} without an encoding"
