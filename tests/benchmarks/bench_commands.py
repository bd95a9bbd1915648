"""Times of the commands, each beside a peer or a floor, in one table.

    python tests/benchmarks/bench_commands.py --parts start,fit  # of start, fit, sweep; default: all

CPU is user and system time of a process and all of its children, the least of ``--repeats`` turns: other work on the
machine can only add to it. Bytecode is made beforehand. The floors:

start          a program of two commands in Typer and Rich that prints its help, with NumPy where the command needs it
fit            a process that imports NumPy, SciPy, Matplotlib and Typer, and reads the table (``bench_fit``)
sweep          a process that reads every record of the directory as JSON
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks import bench_fit  # noqa: E402  # a script finds no package of its own

TOOLS = ROOT / "tests" / "tools"

BARE = """
import sys, typer
from typing import Annotated
{imports}
app = typer.Typer(rich_markup_mode="rich")
@app.command()
def one(number: Annotated[int, typer.Option(help="A number.")] = 1): pass
@app.command()
def two(number: Annotated[int, typer.Option(help="A number.")] = 1): pass
sys.argv = ["bare", "--help"]
app()
"""

SWEEP = """
import gc, json, sys
gc.set_threshold(100_000)  # as the command does
sys.path.insert(0, {tools!r})
import sweep_tools
from dwsweep import terminal
from dwsweep.report.progress import ProgressView
from dwsweep.sweep.runner import run_sweep
plan = sweep_tools.make_plan(**json.loads(sys.argv[2]))
sys.exit(run_sweep(plan, "/nowhere", sys.argv[1], view=ProgressView(terminal.console())))
"""


READ = """
import json, os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith((".json", ".jsonl")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                for line in file if name.endswith("l") else [file.read()]:
                    json.loads(line)
"""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    repeats: int
    runs: int


@dataclass(frozen=True)
class Cost:
    """Seconds of a process and its children."""

    cpu: float
    wall: float


def cost(command: Sequence[str], repeats: int = 1, **environment: str) -> Cost:
    """The least CPU and wall time of ``repeats`` turns of a command that has to end well."""
    found = []
    for _ in range(repeats):
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                list(command), stdout=output, stderr=output, cwd=ROOT, env={**os.environ, **_paths(), **environment}
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                output.seek(0)
                raise SystemExit(
                    f"{' '.join(command)[:200]}: status {process.returncode}\n{output.read().decode()[-2000:]}"
                )
        found.append(Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - began))
    return Cost(min(one.cpu for one in found), min(one.wall for one in found))


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


def dwsweep(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "dwsweep", *map(str, arguments)]


def show(what: str, measured: str, beside: str, wanted: str = "–") -> None:
    """Print a row. wanted: on two quiet cores."""
    print(f"| {what} | {measured} | {beside} | {wanted} | {os.getloadavg()[0]:.1f} |", flush=True)


def start(size: Size, folder: Path) -> None:
    """Commands whose time is that of their start."""
    repeats = size.repeats
    bare = cost([sys.executable, "-c", BARE.format(imports="")], repeats).cpu
    numeric = cost([sys.executable, "-c", BARE.format(imports="import numpy")], repeats).cpu
    floors = f"bare Typer and Rich {bare:.2f}", f"bare and NumPy {numeric:.2f}"
    few = small_sweep(folder / "few", 12)
    for arguments, floor, wanted in (
        (["--help"], floors[0], 0.27),
        (["guide", "--params", "3B"], floors[1], 0.4),
        (["plan", "levine2020"], floors[1], 0.5),
        (["status", few], floors[0], 0.3),
    ):
        shown = " ".join(map(str, arguments)).replace(str(few), "DIR (12 runs)").replace("levine2020", "of 252 runs")
        show(f"`{shown}`", f"{cost(dwsweep(*arguments), repeats).cpu:.2f} s of CPU", floor, f"{wanted}")


def fit(size: Size, folder: Path) -> None:
    """Fits with figures."""
    for name in bench_fit.CASES:
        turns = [
            bench_fit.measured(name, folder) for _ in range(size.repeats if bench_fit.CASES[name].wanted < 5 else 1)
        ]
        found, floor = (min(column) for column in zip(*turns, strict=True))
        show(
            f"`fit` of {name}",
            f"{found:.1f} s of CPU",
            f"imports and reading {floor:.1f}",
            f"{bench_fit.CASES[name].wanted:g}",
        )


def small_sweep(directory: Path, runs: int) -> Path:
    """A finished sweep of ``runs`` runs on the stand-in trainer, five seeds a shape where there are many."""
    run_standin(directory, runs)
    return directory


def run_standin(directory: Path, runs: int) -> Cost:
    seeds = 5 if runs >= 50 else 2
    shapes = runs // seeds
    depths = max(1, round(shapes**0.5))
    widths = {depth: [64 + 8 * k for k in range(shapes // depths)] for depth in range(1, depths + 1)}
    changes = {
        "grid": {"depths": [], "budgets": None, "widths": widths, "seeds": seeds},
        "train": {"steps": 20, "warmup_steps": 2},
        "execution": {"checkpoint_steps": 10},
    }
    code = SWEEP.format(tools=str(TOOLS))
    path = os.pathsep.join([str(ROOT), str(TOOLS), str(TOOLS / "standin")])
    return cost([sys.executable, "-c", code, str(directory), json.dumps(changes)], PYTHONPATH=path)


def sweep(size: Size, folder: Path) -> None:
    """A large sweep on the stand-in trainer: the cost of its bookkeeping."""
    place, runs, repeats = folder / "many", size.runs, size.repeats
    first = run_standin(place, runs)
    files = [path for path in place.rglob("*") if path.is_file()]
    blocks = sum(path.stat().st_blocks * 512 for path in files)
    read = f"its records as JSON {cost([sys.executable, '-c', READ, str(place)], repeats).cpu:.2f}"
    name, large = f"{runs:,} stand-in runs", runs >= 5000
    show(f"{name}: run", f"{first.cpu:.0f} s of CPU, parent and workers", f"{1000 * first.cpu / runs:.1f} ms a run")
    each = f"{len(files) / runs:.1f} files a run"
    show(f"{name}: directory", f"{len(files):,} files, {blocks / 1e6:.0f} MB on disk", each, "3,600" if large else "–")
    again = min((run_standin(place, runs) for _ in range(repeats)), key=lambda one: one.cpu)
    show(f"{name}: run again", f"{again.cpu:.2f} s of CPU", read, "2" if large else "–")
    show(f"{name}: status", f"{cost(dwsweep('status', place), repeats).cpu:.2f} s of CPU", read)
    page = folder / "page.html"
    seconds = cost(dwsweep("report", place, "--out", page), repeats).cpu
    megabytes = page.stat().st_size / 1e6
    show(f"{name}: report", f"{seconds:.2f} s of CPU, {megabytes:.1f} MB", read, "3, 3 MB" if large else "–")


PARTS = {"start": start, "fit": fit, "sweep": sweep}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", help="some of the parts, by commas; default: all of them")
    parser.add_argument("--repeats", type=int, default=5, help="turns; default: 5")
    parser.add_argument("--runs", type=int, default=5000, help="runs on the stand-in trainer; default: 5000")
    parser.add_argument("--keep", type=Path, help="folder to work in, kept; default: a temporary one")
    options = parser.parse_args()
    parts = options.parts.split(",") if options.parts else list(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"part {unknown[0]!r}; allowed: {', '.join(PARTS)}")
    size = Size(options.repeats, options.runs)
    # an installed package has its bytecode, whatever this environment says of writing it
    compileall.compile_dir(ROOT / "dwsweep", quiet=1)
    print("| what | measured | beside | wanted | load average |\n| --- | --- | --- | --- | --- |")
    with contextlib.nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for part in parts:
            PARTS[part](size, Path(folder))


if __name__ == "__main__":
    main()
