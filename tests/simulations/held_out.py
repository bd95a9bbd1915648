"""Held-out shapes of public tables: how well does the posterior foretell a shape that it has not seen?

``python -m tests.simulations.held_out [--seed 0]``

The shapes of a table fall into five folds. Each fold is foretold from the others by the posterior, by a quadratic in
ln N and ln L, and by E + A·N^(−α) with a parabola in ln L, whose predictive densities are Student's. Score: mean log
density of the loss, in nats, and rmse of the median. Then a half and a third of the shapes foretell the others.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.analysis import fit_options
from dwsweep.fit.cells import select_runs, without_bad_runs
from dwsweep.fit.curves import build_curves
from dwsweep.fit.data.table import read_asked
from dwsweep.fit.model import Cells
from dwsweep.fit.posterior import Posterior

FOLDS = 5
SHARES = {"four fifths": FOLDS, "half": 2, "a third": 3}
FEWEST = 15  # shapes of a table
ALPHAS = np.geomspace(0.02, 1.0, 30)
TABLES = {
    "laptop": ("sweeps/results/laptop", [()]),
    "open_lm_morph": ("open-lm-morph", [("tokens_per_param == 20",)]),
    "mlfoundations": (
        "mlfoundations",
        # the longest warm-up that has three counts of heads: with shorter ones some shapes diverged
        [(f"warmup == 400 and heads == {heads} and global_batch == 64 and width >= 488",) for heads in (4, 8, 16)],
    ),
    "gemstones": (
        "gemstones",
        [(f"recipe == 'cooled' and tokens > {k - 0.5} * 11e9 and tokens < {k + 0.5} * 11e9",) for k in range(1, 11)],
    ),
}
MODELS = ("posterior", "quadratic", "asymptotic")


@dataclass(frozen=True)
class Score:
    """log: (n,) log density of each held-out loss, in nats. error: (n,) loss less its prediction, nats."""

    log: np.ndarray
    error: np.ndarray


def tables(name: str) -> Iterator[Cells]:
    """The cell means of each group of comparable runs."""
    source, filters = TABLES[name]
    for where in filters:
        data = read_asked(source, fit_options(where=where))
        selection = without_bad_runs(select_runs(data.rows, "n_params", data.named, data.unit, data.settings))[0]
        cells = Cells.of(build_curves(selection.runs, None, 200, np.random.default_rng(0)))
        if len(cells.x) >= FEWEST:
            yield cells


def folds(n: int, seed: int, share: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(seen, unseen) masks (n,): this share of the shapes foretells the rest."""
    parts = SHARES[share]
    place = np.random.default_rng(seed).permutation(n) % parts
    for k in range(place.max() + 1):
        yield (place != k, place == k) if parts == FOLDS else (place == k, place != k)


def by_posterior(cells: Cells, seen: np.ndarray, unseen: np.ndarray) -> Score:
    """A mixture of normals, one per draw, about the loss with the scatter of a shape and the noise of its runs."""
    posterior = Posterior.of(cells.at(seen))
    losses, scatter = posterior.predict(cells.x[unseen], cells.y[unseen])
    variance = scatter[:, None] ** 2 + cells.variance[unseen]
    away = cells.mean[unseen] - losses
    log = -0.5 * (away**2 / variance + np.log(2.0 * math.pi * variance))
    top = log.max(axis=0)
    return Score(top + np.log(np.exp(log - top).mean(axis=0)), cells.mean[unseen] - np.median(losses, axis=0))


def by_least_squares(columns: np.ndarray, y: np.ndarray, seen: np.ndarray, unseen: np.ndarray) -> tuple[Score, float]:
    """The score, and the residual sum of squares of the shapes seen."""
    A, B = columns[seen], columns[unseen]
    found = np.linalg.lstsq(A, y[seen], rcond=None)[0]
    rss, df = float(((y[seen] - A @ found) ** 2).sum()), len(A) - A.shape[1]
    scale = rss / df * (1.0 + ((B @ np.linalg.pinv(A)) ** 2).sum(axis=1))
    error = y[unseen] - B @ found
    log = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * np.log(df * math.pi * scale)
    return Score(log - (df + 1) / 2 * np.log1p(error**2 / (df * scale)), error), rss


def by_formula(name: str, cells: Cells, seen: np.ndarray, unseen: np.ndarray) -> Score:
    x, y = cells.x - cells.x.mean(), cells.y - cells.y.mean()
    depth = [y, y * y, x * y]
    if name == "quadratic":
        columns = np.stack([np.ones_like(x), x, x * x, *depth], axis=1)
        return by_least_squares(columns, cells.mean, seen, unseen)[0]
    found = [
        by_least_squares(np.stack([np.ones_like(x), np.exp(-a * x), *depth], axis=1), cells.mean, seen, unseen)
        for a in ALPHAS
    ]
    return min(found, key=lambda one: one[1])[0]


def scored(name: str, seed: int, share: str) -> dict[str, Score]:
    """Per model, the score of all shapes of a table's groups; nothing where the share has too few shapes."""
    each: dict[str, list[Score]] = {model: [] for model in MODELS}
    for cells in tables(name):
        for seen, unseen in folds(len(cells.x), seed, share):
            if len(np.unique(cells.y[seen])) < 3 or seen.sum() < 9:
                continue
            each["posterior"].append(by_posterior(cells, seen, unseen))
            for model in MODELS[1:]:
                each[model].append(by_formula(model, cells, seen, unseen))
    return {
        model: Score(np.concatenate([one.log for one in found]), np.concatenate([one.error for one in found]))
        for model, found in each.items()
        if found
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    print("| shapes of | foretold by | shapes | " + " | ".join(MODELS) + " | rmse, mnats: " + ", ".join(MODELS) + " |")
    print("| " + " | ".join(["---"] * 7) + " |")
    for share in SHARES:
        every: dict[str, list[Score]] = {model: [] for model in MODELS}
        for name in TABLES:
            found = scored(name, seed, share)
            if not found:
                continue
            row(name, share, {model: [one] for model, one in found.items()})
            for model, one in found.items():
                every[model].append(one)
        row("all", share, every)


def row(name: str, share: str, scores: dict[str, list[Score]]) -> None:
    logs = {model: np.concatenate([one.log for one in found]) for model, found in scores.items()}
    errors = {model: np.concatenate([one.error for one in found]) for model, found in scores.items()}
    count = len(logs["posterior"])
    rmse = " ".join(f"{1e3 * math.sqrt(np.mean(errors[model] ** 2)):.1f}" for model in MODELS)
    means = " | ".join(f"{logs[model].mean():.2f}" for model in MODELS)
    print(f"| {name} | {share} | {count} | {means} | {rmse} |", flush=True)


if __name__ == "__main__":
    main()
