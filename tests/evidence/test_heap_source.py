"""A heap of runs as a source: one file that names its columns is enough, and its draws are its answers."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from report_sweeps import write_csv

from dwsweep.errors import InputError
from dwsweep.evidence import read
from dwsweep.evidence.summary import Evidence, summarised
from tests.simulations import evidence_check as check

pytestmark = pytest.mark.usefixtures("at_equal_size_alone")

DEPTHS = (4, 6, 8, 12, 16, 24, 32)
GIVEN: dict[str, Any] = {
    "reference": "made",
    "licence": "none needed",
    "kind": "losses",
    "sure": "P",
    "matched": "N and tokens, adjusted for batch and optimizer",
    "recipe": "made",
    "vocabulary": 50304,
    "context": 1024,
    "loss": "besiroglu2024",
    "table": "runs.csv",
    "columns": {"depth": "blocks", "width": "d_model", "loss": "eval_loss"},
    "adjust": ["tokens"],
    "at": {"optimizer": "adamw"},
    "tokens": [1.0e9, 4.0e9],
}


def best(n: float, tokens: float) -> float:
    return 17.8 * (n / 3e7) ** 0.25 * (tokens / 2e9) ** 0.1


def made(folder: Path, **changes: Any) -> Path:
    rng, rows = np.random.default_rng(8), []
    for k in range(60):
        depth, n = DEPTHS[k % len(DEPTHS)], 4e6 * 40 ** rng.random()
        width = 16 * max(2, round(math.sqrt(n / 12 / depth) / 16))
        n, tokens = 12 * depth * width**2, float(rng.choice([1e9, 2e9, 4e9]))
        loss = 1.8 + 1.9 * (n / 3e7) ** -0.14 - 0.09 * math.log(tokens / 2e9)
        loss += 0.06 * math.log(depth / best(n, tokens)) ** 2 + rng.normal(0.0, 0.002)
        optimizer = "muon" if rng.random() < 0.3 else "adamw"
        row = {"blocks": depth, "d_model": width, "tokens": tokens, "optimizer": optimizer}
        rows.append({**row, "eval_loss": loss - 0.05 * (optimizer == "muon")})
    write_csv(rows, folder / "runs.csv")
    path = folder / "made.yaml"
    path.write_text(yaml.safe_dump({**GIVEN, **changes}), "utf-8")
    return path


@cache
def source(folder: Path) -> Evidence:
    return summarised(made(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heap")


def test_a_heap_is_a_source_by_one_file_that_names_its_columns(folder: Path) -> None:
    depth = source(folder).depth
    tokens = np.array(depth.tokens_per_param) * np.array(depth.n_params)
    assert {round(one / 1e9) for one in tokens} == {1, 4}
    for n, t, value, row in zip(depth.n_params, tokens, depth.value, np.array(depth.covariance), strict=True):
        assert abs(value - math.log(best(n, t))) < 0.08
        assert 0.0 < math.sqrt(row.max()) < 0.3
    assert source(folder).shallow and source(folder).deep


def test_the_sources_here_foretell_it_and_what_it_changes_is_told(folder: Path) -> None:
    lines = list(check.tried(read(), source(folder)))
    rows = [line for line in lines if line.startswith("| N = ")]
    assert len(rows) == len(source(folder).depth) and all("| True |" in line for line in rows)
    assert sum(line.startswith("| 7e9 |") for line in lines) == 1


def test_a_file_that_asks_what_the_table_has_not_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="adjust: 'warmup'; not in the table"):
        summarised(made(tmp_path, adjust=["warmup"]))
    with pytest.raises(InputError, match=r"made.yaml: 'were'; no key of a source of kind 'losses'"):
        summarised(made(tmp_path, were="tokens > 1e9"))  # every run would have counted
