"""Coverage by simulation: ``python -m dwsweep.fit.coverage --out DIR [--n 400] [--processes 2] [SCENARIO …]``.

Every simulation is one line of DIR/<scenario>.jsonl, seeded by its number, so an interrupted run goes on where it
stopped and any number of processes gives the same table.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from dwsweep.fit.cells import select_runs
from dwsweep.fit.curves import build_curves
from dwsweep.fit.guideline import rival_range
from dwsweep.fit.law_selection import fit_laws
from dwsweep.fit.laws import FORMS, optimal_depth
from dwsweep.fit.pairs import analyse_pairs
from dwsweep.fit.simulate import Scenario, Truth, scenarios, simulate
from dwsweep.records.fit_rows import plain

BUDGETS = (1.0e7, 1.0e8, 3.0e9)
CONFIDENCE = 0.95
# the oracle is only asked for its median width
ORACLE_SIMULATIONS = 100


def one(name: str, index: int, draws: int = 2000) -> dict[str, Any]:
    """Simulation ``index`` of a scenario: statuses, intervals, laws, and the oracle's intervals."""
    scenario = scenarios()[name]
    rng = np.random.default_rng([index, *name.encode()])
    rows = simulate(scenario, rng)
    out: dict[str, Any] = {"index": index, **_analyse(scenario, rows, None, draws)}
    if index < ORACLE_SIMULATIONS:
        known = _analyse(scenario, rows, scenario.oracle_sigma(), draws)
        out["oracle"] = {"pairs": known["pairs"], "law": known["law"]}
    return out


def _analyse(scenario: Scenario, rows: list[dict[str, Any]], declared: Any, draws: int) -> dict[str, Any]:
    curves = build_curves(select_runs(rows).runs, declared, draws, np.random.default_rng(0))
    pairs = analyse_pairs(curves, CONFIDENCE, estimators=False)
    report = fit_laws(curves, pairs, CONFIDENCE, FORMS if declared is None else FORMS[:1], held_out=False)
    law = report.width_law
    guide = report.guideline_law
    return {
        "noise": curves.noise.source,
        "pairs": [
            {
                "status": p.crossing.status,
                "root": p.crossing.root,
                "low": p.crossing.low,
                "high": p.crossing.high,
            }
            for p in pairs
        ],
        "law": None
        if law is None
        else {key: plain(law[key]) for key in ("a", "b", "interval_a", "interval_b", "winner")},
        "depths": [list(guide.depth(n)) for n in BUDGETS] if guide else None,
        "ranges": [list(rival_range([guide, *report.rival_laws], n)) for n in BUDGETS] if guide else None,
        "guide": guide.form if guide else None,
    }


def run(out: str | Path, names: Iterable[str], n: int, processes: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Complete DIR/<scenario>.jsonl up to ``n`` simulations each, and return all of them."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    # spawned, since the caller may hold threads that a fork would break
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for name in names:
            path = folder / f"{name}.jsonl"
            done = {row["index"]: row for row in _read(path)}
            todo = [i for i in range(n) if i not in done]
            with path.open("a", encoding="utf-8") as file:
                rows = pool.map(one, [name] * len(todo), todo, [2000] * len(todo), chunksize=4)
                for row in track(rows, name, len(todo), console=Console(stderr=True)):
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    done[row["index"]] = row
            results[name] = [done[i] for i in range(n)]
    return results


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:  # the last line of a run that was cut off
            continue
    return rows


def summarise(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Coverage (every simulation counted: what has no bound on a side covers on that side), widths and shares."""
    truth = scenarios()[name].truth
    pairs = [
        _pair_summary(
            [row["pairs"][k] for row in rows],
            [row["oracle"]["pairs"][k] for row in rows if "oracle" in row],
            depth,
            truth,
        )
        for k, depth in enumerate(truth.depths[:-1])
    ]
    laws = [row["law"] for row in rows]
    known = [row["oracle"]["law"] for row in rows if "oracle" in row]
    out: dict[str, Any] = {
        "scenario": name,
        "n": len(rows),
        "pairs": pairs,
        "crossed": float(np.mean([p["crossed"] for p in pairs])),
        "law": _share(law is not None for law in laws),
        "winner": {f: _share(bool(law) and law["winner"] == f for law in laws) for f in FORMS},
        "depth_coverage": {},
        "range_coverage": {},
    }
    for i, key in enumerate(("a", "b")):
        ends = [tuple(law[f"interval_{key}"]) if law else (None, None) for law in laws]
        oracle = [tuple(law[f"interval_{key}"]) for law in known if law]
        exponential = truth.form == "exponential"
        out[f"coverage_{key}"] = (
            _share(covers(low, high, truth.theta[i]) for low, high in ends) if exponential else None
        )
        out[f"ratio_{key}"] = _ratio(ends, oracle)
    for i, n in enumerate(BUDGETS):
        best = float(optimal_depth(truth.form, np.asarray(truth.theta), n))
        own = [row["depths"][i][1:] if row["depths"] else (None, None) for row in rows]
        beside = [row["ranges"][i] if row["ranges"] else (None, None) for row in rows]
        out["depth_coverage"][f"{n:g}"] = _share(covers(low, high, best) for low, high in own)
        out["range_coverage"][f"{n:g}"] = _share(covers(low, high, best) for low, high in beside)
    return out


def _pair_summary(
    pairs: list[dict[str, Any]], oracle: list[dict[str, Any]], depth: int, truth: Truth
) -> dict[str, Any]:
    x = truth.transition(depth)
    roots = [p["root"] for p in pairs if p["root"] is not None]
    ends = [(p["low"], p["high"]) for p in pairs]
    return {
        "shallow": depth,
        "crossed": _share(p["status"] == "crossed" for p in pairs),
        "coverage": _share(covers(low, high, x) for low, high in ends),
        "unbounded": _share(None in e for e in ends),
        "bias": float(np.mean(roots)) - x if roots else None,
        "ratio": _ratio(ends, [(p["low"], p["high"]) for p in oracle]),
    }


def _ratio(ends: Sequence[tuple], oracle: Sequence[tuple]) -> float | None:
    """Median width of the bounded intervals over that of the oracle's."""
    ours, theirs = ([e[1] - e[0] for e in some if None not in e] for some in (ends, oracle))
    return float(np.median(ours) / np.median(theirs)) if ours and theirs else None


def covers(low: float | None, high: float | None, value: float) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else math.nan


def table(summaries: Sequence[dict[str, Any]]) -> str:
    """Markdown: one row a scenario; coverages in percent, transitions per pair."""
    lines = [
        "| scenario | n | crossed by pair | transitions covered by pair | unbounded by pair | width / oracle by pair "
        "| a | b | a, b width / oracle | L*(1e7, 1e8, 3e9) | same, all forms not rejected | law |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    percent = lambda v: "–" if v is None else f"{100 * v:.1f}"  # noqa: E731
    ratio = lambda v: "–" if v is None else f"{v:.2f}"  # noqa: E731
    for s in summaries:
        pairs = s["pairs"]
        lines.append(
            f"| {s['scenario']} | {s['n']} | {' '.join(percent(p['crossed']) for p in pairs)} "
            f"| {' '.join(percent(p['coverage']) for p in pairs)} | {' '.join(percent(p['unbounded']) for p in pairs)} "
            f"| {' '.join(ratio(p['ratio']) for p in pairs)} | {percent(s['coverage_a'])} | {percent(s['coverage_b'])} "
            f"| {ratio(s['ratio_a'])} {ratio(s['ratio_b'])} "
            f"| {' '.join(percent(v) for v in s['depth_coverage'].values())} "
            f"| {' '.join(percent(v) for v in s['range_coverage'].values())} | {percent(s['law'])} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(scenarios()))
    parser.add_argument("--out", required=True)
    parser.add_argument("--n", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    results = run(args.out, args.names, args.n, args.processes)
    print(table([summarise(name, rows) for name, rows in results.items()]))


if __name__ == "__main__":
    main()
