"""Sample of mutants of a room: which small faults in the package does no test notice?

    python tests/tools/mutants.py dwsweep/data tests/data [MORE TESTS …] [--n 20] [--seed 0] [--timeout 300]

The tests run once with ``coverage`` (``pip install coverage``), which records the tests that reach each line. Then one
reached operator, constant, condition or statement after another is changed in a copy of the checkout, and these tests
run until one fails, the quickest first, in a fork of a process that has imported the large libraries. Lines that only
other processes reach are not mutated: coverage does not see them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTEST = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
LARGE = (
    "scipy.stats",
    "scipy.optimize",
    "jax",
    "flax.nnx",
    "optax",
    "pydantic",
    "typer",
    "matplotlib.figure",
    "pytest",
)
FLIPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip

CONTEXTS = """
import json, sys, time, coverage, pytest
seconds = {}
class Contexts:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        cover.switch_context(item.nodeid)
        began = time.monotonic()
        try:
            return (yield)
        finally:
            seconds[item.nodeid] = time.monotonic() - began
cover = coverage.Coverage(data_file="mutants.coverage", source=[sys.argv[1]], messages=False)
cover.start()
status = pytest.main(sys.argv[2:], plugins=[Contexts()])
cover.stop()
cover.save()
json.dump(seconds, open("mutants.json", "w"))
sys.exit(status)
"""


@dataclass(frozen=True)
class Mutant:
    """A changed piece of a file. tests: those that reach its line, the quickest first."""

    file: str
    line: int
    old: str
    new: str
    source: str
    tests: tuple[str, ...]


def changed(node: ast.AST) -> ast.AST | None:
    """The node with one fault; None where there is none to make."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in FLIPPED:
            new.ops = [FLIPPED[type(op)]()]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in FLIPPED:
            new.op = FLIPPED[type(op)]()
        case ast.UnaryOp(op=ast.Not()):
            return new.operand
        case ast.IfExp():
            new.body, new.orelse = new.orelse, new.body
        case ast.Constant(value=bool()):
            new.value = not new.value
        case ast.Constant(value=int() | float()):
            new.value = new.value + 1 if isinstance(new.value, int) else new.value * 2 + 0.01
        case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break():
            return ast.Pass()
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
        case _:
            return None
    return new


def candidates(node: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """Nodes in functions that can be changed; no annotations, no f-strings."""
    for name, part in ast.iter_fields(node):
        for child in part if isinstance(part, list) else [part]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns", "decorator_list"):
                if inside and changed(child) is not None:
                    yield child
                if not isinstance(child, ast.JoinedStr):
                    yield from candidates(child, inside or isinstance(node, ast.FunctionDef))


def mutants(place: Path, coverage_data: Any, seconds: dict[str, float]) -> Iterator[Mutant]:
    for file in sorted(coverage_data.measured_files()):
        reached = coverage_data.contexts_by_lineno(file)
        source = Path(file).read_bytes()
        starts = [0, *(at + 1 for at, byte in enumerate(source) if byte == ord("\n"))]
        for node in candidates(ast.parse(source)):
            tests = sorted(filter(None, reached.get(node.lineno, ())), key=lambda name: seconds.get(name, 0.0))
            begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            new = changed(node)
            if tests and new is not None:
                text = ast.unparse(new)
                text = f"({text})" if isinstance(new, ast.expr) else text
                mutated = (source[:begin] + text.encode() + source[end:]).decode()
                old = source[begin:end].decode()
                yield Mutant(str(Path(file).relative_to(place)), node.lineno, old, text, mutated, tuple(tests))


def fate(mutant: Mutant, seconds: int) -> str:
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        signal.alarm(seconds)
        sys.dont_write_bytecode = True  # a file may change twice in a second
        os._exit(bool(importlib.import_module("pytest").main([*PYTEST, *mutant.tests])))
    status = os.waitpid(child, 0)[1]
    return "timed out" if os.WIFSIGNALED(status) else "noticed" if status else "SURVIVED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", help="folder or file of the package")
    parser.add_argument("tests", nargs="+", help="folders or files of tests")
    parser.add_argument("--n", type=int, default=20, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=int, default=300, help="seconds for the tests of one mutant")
    options = parser.parse_args()
    try:
        from coverage import CoverageData
    except ImportError:
        parser.error("needs the package coverage: pip install coverage")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "checkout"
        shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(".*", "runs", "__pycache__"))
        programs = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/xla", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        environment = {**os.environ, **programs, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(place)}
        room = place / options.room
        source = room if room.is_dir() else room.parent  # coverage takes folders
        command = [sys.executable, "-c", CONTEXTS, str(source), "-n", "0", "-q", *options.tests]
        if subprocess.run(command, cwd=place, env=environment).returncode:
            parser.error("the tests fail before any change")
        data = CoverageData(str(place / "mutants.coverage"))
        data.read()
        seconds = json.loads((place / "mutants.json").read_text())
        within = [one for one in mutants(place, data, seconds) if one.file.startswith(options.room.rstrip("/"))]
        drawn = random.Random(options.seed).sample(within, min(options.n, len(within)))
        os.environ |= environment
        os.chdir(place)
        sys.path[:0] = [str(place)]
        for name in LARGE:
            importlib.import_module(name)
        fates = Counter[str]()
        for mutant in drawn:
            path = place / mutant.file
            before = path.read_text("utf-8")
            path.write_text(mutant.source, "utf-8")
            found = fate(mutant, options.timeout)
            path.write_text(before, "utf-8")
            fates[found] += 1
            print(f"{found:<9} {mutant.file}:{mutant.line}: {mutant.old!r} → {mutant.new!r}", flush=True)
        print(f"{dict(fates)} of {len(within)} mutants that can be drawn")


if __name__ == "__main__":
    main()
