"""Benchmark of ``dwsweep fit``: CPU seconds of a table, and of the floor beneath it.

``python -m tests.benchmarks.bench_fit [CASE …] [--list]``

Every case is one process with one thread of linear algebra, figures included; its seconds are user plus system time.
The floor is a process that imports NumPy, SciPy, Matplotlib and Typer and reads the file with Python's csv module. A
busy machine raises both: compare a case with its floor.
"""

from __future__ import annotations

import argparse
import compileall
import csv
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.simulations.truths import TRUTHS

ROOT = Path(__file__).parents[2]
FLOOR = (
    "import csv, sys, numpy, scipy.special, matplotlib.figure, matplotlib.backends.backend_agg, "
    "matplotlib.backends.backend_svg, typer\n"
    "for name in sys.argv[1:]:\n"
    "    sum(1 for _ in csv.reader(open(name)))\n"
)
SIGMA = 0.002  # nats
Row = tuple[object, ...]


@dataclass(frozen=True)
class Case:
    """A table and how it is fitted. rows: of a file to write, its head first; path: of one that there is. wanted: CPU
    seconds on a quiet machine."""

    wanted: float
    rows: Callable[[], Iterator[Row]] | None = None
    path: str = ""
    options: Sequence[str] = ()


def net(depth: int, width: int, rng: np.random.Generator, effect: float = 1.0) -> tuple[int, int, float]:
    """Depth, width and loss of one run."""
    truth = TRUTHS["asymmetric"]
    n = 12.0 * depth * width**2
    return depth, width, truth.loss(1.0, n) + effect * float(truth.above(np.array(depth), n)) - float(
        truth.above(np.array(1.0), n)
    ) + float(rng.normal(0.0, SIGMA))  # fmt: skip


def shapes(count: int) -> Iterator[Row]:
    """``count`` different shapes, anywhere."""
    rng, seen = np.random.default_rng(0), set[tuple[int, int]]()
    multiple = 8 if count <= 5000 else 1  # of widths: there are 9,860 shapes in multiples of 8
    yield "depth", "width", "loss"
    while len(seen) < count:
        depth = int(np.exp(rng.uniform(np.log(2.0), np.log(60.0))))
        shape = depth, multiple * int(8 / multiple * np.exp(rng.uniform(2.5, 5.2)))
        if shape not in seen:
            seen.add(shape)
            yield net(*shape, rng)


def grid(depths: int, sizes: int) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    yield "depth", "width", "loss"
    for depth in range(1, depths + 1):
        for width in np.geomspace(64, 1024, sizes).astype(int) + depth % 7:
            yield net(depth, int(width), rng)


def arms(count: int) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    yield "arm", "depth", "width", "loss", "seed"
    for arm in range(count):
        for depth in (3, 6, 12, 24):
            for width in (128, 256, 512):
                yield f"arm {arm}", *net(depth, width, rng, 1.0 + 0.2 * (arm % 3)), 0


def repeated(rows: int, count: int) -> Iterator[Row]:
    """``rows`` seeds of ``count`` shapes."""
    rng = np.random.default_rng(0)
    each = [
        net(depth, width, rng) for depth in (3, 6, 12, 24) for width in np.geomspace(96, 1024, count // 4).astype(int)
    ]
    noise = rng.normal(0.0, SIGMA, rows)
    yield "depth", "width", "loss", "seed"
    for k in range(rows):
        depth, width, loss = each[k % count]
        yield depth, int(width), round(loss + noise[k], 6), k // count


CASES = {
    "laptop": Case(2.0, path="sweeps/results/laptop"),
    "smoke": Case(1.5, lambda: grid(3, 3)),
    "2,000 shapes": Case(10.0, lambda: shapes(2000)),
    "4,000 shapes": Case(30.0, lambda: shapes(4000)),
    "5,000 shapes": Case(60.0, lambda: shapes(5000)),
    "50,000 shapes": Case(60.0, lambda: shapes(50_000)),
    "200 depths of 6 widths": Case(15.0, lambda: grid(200, 6)),
    "50 arms": Case(20.0, lambda: arms(50), options=("--compare",)),
    "1,000,000 rows of 24 shapes": Case(30.0, lambda: repeated(1_000_000, 24)),
}


def seconds(command: Sequence[str]) -> float:
    """User and system time of a process, which must end well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(name: str, folder: Path) -> tuple[float, float]:
    """(CPU seconds of the fit, of its floor)."""
    case = CASES[name]
    table = ROOT / case.path
    if case.rows:
        table = folder / "table.csv"
        with table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(case.rows())
    read = [str(table)] if table.is_file() else [str(table / "results.csv")]
    out = ("--out", str(folder / "out"))
    fit = seconds([sys.executable, "-m", "dwsweep", "fit", str(table), *case.options, *out])
    return fit, seconds([sys.executable, "-c", FLOOR, *read])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CASE", help="all of them where none is named")
    parser.add_argument("--list", action="store_true", help="the names of the cases")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in CASES]:
        parser.error(f"case {unknown[0]!r}; allowed: {', '.join(map(repr, CASES))}")
    if args.list:
        print("\n".join(CASES))
        return
    compileall.compile_dir(ROOT / "dwsweep", quiet=1)  # an installed package has its bytecode
    print("| table | CPU seconds | floor | load average | wanted on a quiet machine |\n| --- | --- | --- | --- | --- |")
    for name in args.names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            fit, floor = measured(name, Path(folder))
        load = os.getloadavg()[0]  # of the last minute
        print(f"| {name} | {fit:.1f} | {floor:.1f} | {load:.1f} | {CASES[name].wanted:g} |", flush=True)


if __name__ == "__main__":
    main()
