"""One harness for all studies: sweeps whose truth is known, drawn in parallel, and a table of what intervals hold it.

A study is a module beside this one: ``calibration``, ``budgets``, ``arms``, ``along``, ``heaps``.
Each is run from the root of a checkout:

    python -m tests.simulations.calibration --out DIR [--n 100] [--processes 2] [SCENARIO …]

Every simulation is one line of DIR/<scenario>.jsonl. The name of the scenario and the number of the simulation seed it.
An interrupted run therefore goes on where it stopped, and any number of processes gives the same table. Studies have
scenarios of the same name, so each needs a DIR of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track

from dwsweep.records.fit import FitOptions
from dwsweep.records.record import Record, parse

CONFIDENCE = 0.95
OPTIONS = FitOptions(confidence=CONFIDENCE)

Point = tuple[float | None, float | None, float | None]  # a value and the ends of its interval; None: there is none


@dataclass(frozen=True, kw_only=True)
class Simulated(Record):
    """One line of a scenario's file."""

    index: int  # of the simulation


Line = TypeVar("Line", bound=Simulated)


@dataclass(frozen=True)
class Study(Generic[Line]):
    """What a module simulates.

    simulate: it draws a scenario, fits what it drew, and keeps what the fit found, of type ``kind``. n: simulations per
    scenario. head: the columns of the table. cells: the rows of one scenario in it.
    """

    doc: str | None
    scenarios: Mapping[str, Any]
    simulate: Callable[[Any, np.random.Generator, int], Line]
    kind: type[Line]
    n: int
    head: str
    cells: Callable[[str, Sequence[Line]], Iterable[Sequence[str]]]

    def one(self, name: str, index: int) -> Line:
        """Simulation ``index`` of a scenario."""
        return self.simulate(self.scenarios[name], np.random.default_rng([index, *name.encode()]), index)

    def run(self, out: str | Path, names: Iterable[str], n: int, processes: int = 1) -> dict[str, list[Line]]:
        """Completes DIR/<scenario>.jsonl up to ``n`` simulations each, and returns all of them."""
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        results = {}
        # spawned, since the caller may hold threads that a fork would break
        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
            for name in names:
                path = folder / f"{name}.jsonl"
                done = {row.index: row for row in self.read(path)}
                todo = [i for i in range(n) if i not in done]
                with path.open("a", encoding="utf-8") as file:
                    rows = pool.map(self.one, [name] * len(todo), todo, chunksize=4)
                    for row in track(rows, name, len(todo), console=Console(stderr=True)):
                        file.write(json.dumps(row.to_dict()) + "\n")
                        file.flush()
                        done[row.index] = row
                results[name] = [done[i] for i in range(n)]
        return results

    def read(self, path: Path) -> list[Line]:
        """The simulations that a file holds."""
        rows = []
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            try:
                content = json.loads(line)
            except ValueError:  # the last line of a run that was cut off
                continue
            rows.append(parse(self.kind, content))
        return rows

    def table(self, results: Mapping[str, Sequence[Line]]) -> str:
        """The coverage table in Markdown."""
        heads = self.head.split(" | ")
        rows = [row for name, simulations in results.items() for row in self.cells(name, simulations)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))

    def main(self) -> None:
        parser = argparse.ArgumentParser(
            description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        parser.add_argument("names", nargs="*", metavar="SCENARIO", help="all of them where none is named")
        parser.add_argument("--out", help="folder that keeps the simulations; by default none does")
        parser.add_argument("--n", type=int, help="simulations per scenario")
        parser.add_argument("--processes", type=int, default=2)
        args = parser.parse_args()
        names = args.names or list(self.scenarios)
        if unknown := [name for name in names if name not in self.scenarios]:
            parser.error(f"scenario {unknown[0]!r}; allowed: {', '.join(map(repr, self.scenarios))}")
        with tempfile.TemporaryDirectory() as folder:
            print(self.table(self.run(args.out or folder, names, args.n or self.n, args.processes)))


def covers(low: float | None, high: float | None, value: float) -> bool:
    """A side without a bound covers."""
    return (low is None or low <= value) and (high is None or value <= high)


def mean(values: Iterable[float]) -> float | None:
    """The mean of numbers, or the share of flags; None where there are none."""
    found = np.array(list(values), dtype=float)
    return float(found.mean()) if len(found) else None


def rms(values: Iterable[float]) -> float | None:
    found = mean(np.array(list(values), dtype=float) ** 2)
    return None if found is None else float(np.sqrt(found))


def median(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.median(found)) if found else None


def shown(*values: float | None, digits: str = ".1f", scale: float = 1.0) -> str:
    """The numbers of a cell; a dash where there is none."""
    return " ".join("–" if v is None else f"{scale * v:{digits}}" for v in values)


def percent(*values: float | None, digits: str = ".1f") -> str:
    return shown(*values, digits=digits, scale=100.0)
