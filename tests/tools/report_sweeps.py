"""For the tests of figures and page: simulated sweeps, rows of results.csv with the published law's
transitions."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep import fit_table
from dwsweep.fit import analysis
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult

A, B = 5.039, 0.0555


def rows(
    depths: Sequence[int], sizes: int, low: float, high: float, seeds: int = 3, effect: float = 0.012
) -> list[dict[str, Any]]:
    """Losses E + A·N^(−α) less ``effect``·tanh at every transition passed; σ = 0.001 nats, seeds shared."""
    rng = np.random.default_rng(1)
    shared = rng.normal(0.0, 0.002, seeds)
    out = []
    for depth in depths:
        for budget in np.geomspace(low, high, sizes):
            width = 4 * round(math.sqrt(budget / 12 / depth) / 4)
            n = 12 * depth * width**2
            loss = 1.6 + 1.3 * (n / 1e6) ** -0.16
            for shallow, deep in itertools.pairwise(depths):
                if deep <= depth:
                    loss -= effect * math.tanh(0.5 * math.log(n / (12 * shallow)) - A - B * shallow)
            for seed in range(seeds):
                row = {"run_id": f"L{depth}-d{width}-s{seed}", "depth": depth, "width": width, "seed": seed, "heads": 2}
                row |= {"head_size": width // 2, "learning_rate": 1e-3, "parametrization": "completep"}
                row |= {"status": "done", "n_params": n, "n_params_total": n + 2000 * width, "flops": 6e8 * n}
                row |= {"tokens": 10**8, "steps": 400, "wall_seconds": 100.0, "tokens_per_second": 1e6}
                row |= {"vocab_size": 1000, "data_hash": "0123abcd"}
                out.append(row | {"loss": loss + shared[seed] + rng.normal(0.0, 0.001)})
    return out


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
