"""For the tests of figures and page: simulated sweeps, rows of results.csv with the published law's
transitions."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep import fit_table
from dwsweep.fit import analysis
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult
from tests.simulations.sweeps import SmoothTruth, draw


def rows(depths: Sequence[int], sizes: int, low: float, high: float, seeds: int = 3) -> list[dict[str, Any]]:
    """Losses with the transitions of the published law and half of its differences; σ = 0.001 nats, seeds shared."""
    budgets, rng = np.geomspace(low, high, sizes).tolist(), np.random.default_rng(1)
    found = draw(SmoothTruth(tuple(depths), effect=0.5), rng, budgets=budgets, seeds=seeds, sigma=0.001, seed_sd=0.002)
    for row in found:
        depth, width = row["depth"], row["width"]
        n = 12 * depth * width**2
        row |= {"run_id": f"L{depth}-d{width}-s{row['seed']}", "heads": 2, "head_size": width // 2}
        row |= {"learning_rate": 1e-3, "parametrization": "completep"}
        row |= {"status": "done", "n_params": n, "n_params_total": n + 2000 * width, "flops": 6e8 * n}
        row |= {"tokens": 10**8, "steps": 400, "wall_seconds": 100.0, "tokens_per_second": 1e6}
        row |= {"vocab_size": 1000, "data_hash": "0123abcd"}
    return found


def write_csv(content: Sequence[dict[str, Any]], path: Path) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(content[0]))
        writer.writeheader()
        writer.writerows(content)
    return path


CASES: dict[str, dict[str, Any]] = {
    "law": {"depths": (6, 12, 18, 24, 30), "sizes": 8, "low": 1e6, "high": 1e8},  # crossed thrice, then not reached
    "one_pair": {"depths": (6, 12), "sizes": 6, "low": 1e6, "high": 3e7},
    "one_depth": {"depths": (6,), "sizes": 5, "low": 1e6, "high": 3e7},
}


@functools.cache
def fit(case: str) -> FitResult:
    """The fit of a case, without its guideline."""
    return analysis.fit_table(rows(**CASES[case]))


def sweep(directory: Path, case: str, name: str = "demo") -> Path:
    """A sweep directory with results.csv, spec.yaml, manifest.json, metrics and fit/, as the commands leave it."""
    content = rows(**CASES[case])
    content[1] |= {"status": "diverged", "loss": None}
    directory.mkdir(parents=True)
    write_csv(content, directory / "results.csv")
    (directory / "spec.yaml").write_text(json.dumps({"name": name}), encoding="utf-8")
    manifest = {"versions": {"dwsweep": "0.1.0", "jax": "0.10.2"}, "devices": {"TPU v4": {"device_count": 4}}}
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    for row in content:
        folder = directory / "runs" / row["run_id"]
        folder.mkdir(parents=True)
        lines = [json.dumps({"step": s, "loss": 2.0 + 5.0 * s**-0.4, "learning_rate": 1e-3}) for s in range(1, 401, 5)]
        # the row that a kill left unfinished
        (folder / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 4']), encoding="utf-8")
    fit_record.write(fit_table(directory), directory / "fit")
    return directory
