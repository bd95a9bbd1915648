"""Coverage by simulation:
``python -m dwsweep.fit.simulations.coverage --out DIR [--n 400] [--processes 2] [SCENARIO …]``.

Every simulation is one line of DIR/<scenario>.jsonl, seeded by its number, so an interrupted run goes on where it
stopped and any number of processes gives the same table.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track

from dwsweep.fit.bad_runs import without_bad_runs
from dwsweep.fit.cells import select_runs
from dwsweep.fit.curves import build_curves
from dwsweep.fit.law_selection import fit_laws
from dwsweep.fit.laws import FORMS
from dwsweep.fit.pairs import analyse_pairs
from dwsweep.fit.row_selection import Row
from dwsweep.fit.simulations.simulated_sweeps import Truth, scenarios, simulate
from dwsweep.records.fit_rows import FitPart
from dwsweep.records.reader import parse

CONFIDENCE = 0.95
# the oracle is only asked for its median width
ORACLE_SIMULATIONS = 100

Line = TypeVar("Line", bound="Simulated")


Interval = tuple[float | None, float | None]  # None: no bound on that side


@dataclass(frozen=True, kw_only=True)
class Simulated(FitPart):
    """One line of a scenario's file."""

    index: int  # of the simulation: it seeds it


@dataclass(frozen=True, kw_only=True)
class FoundPair(FitPart):
    """The crossing of a pair, in ln N."""

    status: str
    root: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class FoundLaw(FitPart):
    """The exponential law, and the form that fits clearly better than the others."""

    a: float
    b: float
    interval_a: Interval
    interval_b: Interval
    winner: str | None


@dataclass(frozen=True, kw_only=True)
class Found(FitPart):
    """What one fit says."""

    pairs: tuple[FoundPair, ...]
    law: FoundLaw | None


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated, Found):
    """A sweep as it was fitted, and as the oracle fits it, who knows its noise."""

    noise: str  # what the errors rest on
    oracle: Found | None = None


@dataclass(frozen=True, kw_only=True)
class PairSummary(FitPart):
    """The crossing of a pair over all simulations; shares of them from 0 to 1."""

    shallow: int
    crossed: float
    coverage: float
    unbounded: float
    bias: float | None  # of ln N
    ratio: float | None  # median width of the interval over the oracle's


@dataclass(frozen=True, kw_only=True)
class Summary(FitPart):
    """A scenario over all simulations; shares of them from 0 to 1."""

    scenario: str
    n: int
    pairs: tuple[PairSummary, ...]
    crossed: float  # of all pairs
    claimed: float  # pairs of which anything is said
    law: float  # a width law was fitted
    winner: dict[str, float]  # by form
    coverage_a: float | None  # None: the truth is no exponential law
    coverage_b: float | None
    ratio_a: float | None
    ratio_b: float | None


def one(name: str, index: int, draws: int = 2000) -> Simulation:
    """Simulation ``index`` of a scenario: statuses, intervals, laws, and the oracle's intervals."""
    scenario = scenarios()[name]
    rng = np.random.default_rng([index, *name.encode()])
    rows = simulate(scenario, rng)
    noise, found = _analyse(rows, None, draws)
    oracle = _analyse(rows, scenario.oracle_sigma(), draws)[1] if index < ORACLE_SIMULATIONS else None
    return Simulation(index=index, noise=noise, pairs=found.pairs, law=found.law, oracle=oracle)


def _analyse(rows: list[Row], declared: dict[int, float] | None, draws: int) -> tuple[str, Found]:
    """(what the errors rest on, what the fit says)."""
    runs = without_bad_runs(select_runs(rows))[0].runs
    luck = None if declared is None else 0.0  # the oracle's σ holds it
    curves = build_curves(runs, declared, draws, np.random.default_rng(0), luck=luck)
    pairs = analyse_pairs(curves, CONFIDENCE, estimators=False)
    report = fit_laws(curves, pairs, CONFIDENCE, FORMS if declared is None else FORMS[:1], held_out=False)
    law = report.width_law
    found = Found(
        pairs=tuple(
            FoundPair(status=p.crossing.status, root=p.crossing.root, low=p.crossing.low, high=p.crossing.high)
            for p in pairs
        ),
        law=None
        if law is None
        else FoundLaw(a=law.a, b=law.b, interval_a=law.interval_a, interval_b=law.interval_b, winner=law.winner),
    )
    return curves.noise.source, found


def run(out: str | Path, names: Iterable[str], n: int, processes: int = 1) -> dict[str, list[Simulation]]:
    """``run_simulations`` of this module's scenarios."""
    return run_simulations(out, names, n, processes, one, Simulation)


def run_simulations(
    out: str | Path,
    names: Iterable[str],
    n: int,
    processes: int,
    simulation: Callable[[str, int], Line],
    kind: type[Line],
) -> dict[str, list[Line]]:
    """Complete DIR/<scenario>.jsonl up to ``n`` simulations each, and return all of them."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    # spawned, since the caller may hold threads that a fork would break
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for name in names:
            path = folder / f"{name}.jsonl"
            done = {row.index: row for row in _read(path, kind)}
            todo = [i for i in range(n) if i not in done]
            with path.open("a", encoding="utf-8") as file:
                rows = pool.map(simulation, [name] * len(todo), todo, chunksize=4)
                for row in track(rows, name, len(todo), console=Console(stderr=True)):
                    file.write(json.dumps(row.to_dict()) + "\n")
                    file.flush()
                    done[row.index] = row
            results[name] = [done[i] for i in range(n)]
    return results


def _read(path: Path, kind: type[Line]) -> list[Line]:
    if not path.exists():
        return []
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            content = json.loads(line)
        except ValueError:  # the last line of a run that was cut off
            continue
        rows.append(parse(kind, content))
    return rows


def summarise(name: str, rows: Sequence[Simulation]) -> Summary:
    """Coverage (every simulation counted: what has no bound on a side covers on that side), widths and shares."""
    truth = scenarios()[name].truth
    pairs = [
        _pair_summary(
            [row.pairs[k] for row in rows],
            [row.oracle.pairs[k] for row in rows if row.oracle],
            depth,
            truth,
        )
        for k, depth in enumerate(truth.depths[:-1])
    ]
    laws = [row.law for row in rows]
    known = [row.oracle.law for row in rows if row.oracle and row.oracle.law]
    ends_a = [law.interval_a if law else (None, None) for law in laws]
    ends_b = [law.interval_b if law else (None, None) for law in laws]
    exponential = truth.form == "exponential"
    return Summary(
        scenario=name,
        n=len(rows),
        pairs=tuple(pairs),
        crossed=float(np.mean([pair.crossed for pair in pairs])),
        claimed=_share(pair.status != "undecided" for row in rows for pair in row.pairs),
        law=_share(law is not None for law in laws),
        winner={form: _share(law is not None and law.winner == form for law in laws) for form in FORMS},
        coverage_a=_share(covers(*ends, truth.theta[0]) for ends in ends_a) if exponential else None,
        coverage_b=_share(covers(*ends, truth.theta[1]) for ends in ends_b) if exponential else None,
        ratio_a=_ratio(ends_a, [law.interval_a for law in known]),
        ratio_b=_ratio(ends_b, [law.interval_b for law in known]),
    )


def _pair_summary(pairs: Sequence[FoundPair], oracle: Sequence[FoundPair], depth: int, truth: Truth) -> PairSummary:
    x = truth.transition(depth)
    roots = [pair.root for pair in pairs if pair.root is not None]
    ends = [(pair.low, pair.high) for pair in pairs]
    return PairSummary(
        shallow=depth,
        crossed=_share(pair.status == "crossed" for pair in pairs),
        coverage=_share(covers(low, high, x) for low, high in ends),
        unbounded=_share(None in e for e in ends),
        bias=float(np.mean(roots)) - x if roots else None,
        ratio=_ratio(ends, [(pair.low, pair.high) for pair in oracle]),
    )


def _ratio(ends: Sequence[Interval], oracle: Sequence[Interval]) -> float | None:
    """Median width of the bounded intervals over that of the oracle's."""
    ours, theirs = (
        [high - low for low, high in some if low is not None and high is not None] for some in (ends, oracle)
    )
    return float(np.median(ours) / np.median(theirs)) if ours and theirs else None


def covers(low: float | None, high: float | None, value: float) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else math.nan


def table(summaries: Sequence[Summary]) -> str:
    """Markdown: one row a scenario; coverages in percent, transitions per pair."""
    lines = [
        "| scenario | n | any claim | crossed by pair | transitions covered by pair | unbounded by pair "
        "| width / oracle by pair | a | b | a, b width / oracle | law |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    percent = lambda v: "–" if v is None else f"{100 * v:.1f}"  # noqa: E731
    ratio = lambda v: "–" if v is None else f"{v:.2f}"  # noqa: E731
    for s in summaries:
        pairs = s.pairs
        lines.append(
            f"| {s.scenario} | {s.n} | {percent(s.claimed)} "
            f"| {' '.join(percent(p.crossed) for p in pairs)} "
            f"| {' '.join(percent(p.coverage) for p in pairs)} | {' '.join(percent(p.unbounded) for p in pairs)} "
            f"| {' '.join(ratio(p.ratio) for p in pairs)} | {percent(s.coverage_a)} | {percent(s.coverage_b)} "
            f"| {ratio(s.ratio_a)} {ratio(s.ratio_b)} "
            f"| {percent(s.law)} |"
        )
    return "\n".join(lines)


def command_line(doc: str | None, names: Iterable[str], n: int) -> argparse.ArgumentParser:
    """What the modules that simulate take: names of scenarios, --out, --n and --processes."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("names", nargs="*", default=list(names))
    parser.add_argument("--out", required=True)
    parser.add_argument("--n", type=int, default=n)
    parser.add_argument("--processes", type=int, default=2)
    return parser


def main() -> None:
    args = command_line(__doc__, scenarios(), 400).parse_args()
    results = run(args.out, args.names, args.n, args.processes)
    print(table([summarise(name, rows) for name, rows in results.items()]))


if __name__ == "__main__":
    main()
