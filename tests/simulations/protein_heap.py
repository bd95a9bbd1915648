"""Public heap of protein encoders: best depths under both readings, and held-out slices against a cubic least squares.

``python -m tests.simulations.protein_heap PATH/protein_grid.csv [SLICE]``

The table (722 nets of 30 depths × heads, 21 widths and four ratios of d_ff; github.com/Victor-Mihaila/distill_prostt5,
MIT) is not part of this repository. A slice, such as one ratio of d_ff, is left out, and its losses are foretold by a
heap of the rest: share inside the 95 % intervals, and mean log density. A slice inside the hull of the others is one of
a middle value; an edge slice asks for what was not tried.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from dwsweep.fit.analysis import fit_options
from dwsweep.fit.ask import LossSurface
from dwsweep.fit.data.covariates import D_FF, HEAD_SIZE, number_of
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.shape import n_params_of
from dwsweep.fit.data.table import read_table
from dwsweep.fit.heap import heap_of

SIZES = (1.1e6, 5.4e6, 1.6e7)
WORDS = (D_FF, HEAD_SIZE)


def places(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """ln N, ln L, and ln of each covariate (n,)."""
    x = np.log([n_params_of(row) for row in rows])
    y = np.log([float(row["depth"]) for row in rows])
    return x, y, {word: np.log([number_of(word, row) or math.nan for row in rows]) for word in WORDS}


def by_heap(rest: Sequence[Row], out: Sequence[Row]) -> tuple[float, float]:
    """(share of the losses of ``out`` inside their 95 %, mean log density) by the posterior of ``rest``."""
    found = heap_of(read_table([dict(row) for row in rest]), fit_options())
    assert found and found.surface
    posterior = LossSurface(found.surface).posterior
    x, y, ln = places(out)
    values = {}
    for column in found.record.columns:
        fitted = np.array(next(one.value for one in posterior.cells.columns if one.name == column.name))
        low, high = math.log(column.at[0]), math.log(column.at[-1])
        values[column.name] = fitted.min() + (ln[column.name] - low) / (high - low) * np.ptp(fitted)
    beyond = x.min() < posterior.frame.low or x.max() > posterior.frame.high
    drawn = posterior.predict(x, y)[0] if beyond else posterior.losses(x, y)
    drawn = drawn + posterior.of_columns(x, y, values)
    loss = np.array([float(row["loss"]) for row in out])
    sd = np.exp(posterior.stacked("scatter"))[:, None]
    density = np.exp(-0.5 * ((loss - drawn) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))
    seen = drawn + sd * np.random.default_rng(0).standard_normal(drawn.shape)
    low, high = np.quantile(seen, [0.025, 0.975], axis=0)
    return float(((low <= loss) & (loss <= high)).mean()), float(np.log(density.mean(axis=0)).mean())


def by_cubic(rest: Sequence[Row], out: Sequence[Row]) -> tuple[float, float]:
    """The same by least squares, cubic in ln N and ln L, quadratic in each covariate, with its products."""
    x0, y0, ln0 = places(rest)

    def columns(rows: Sequence[Row]) -> np.ndarray:
        x, y, ln = places(rows)
        u, v = (x - x0.mean()) / x0.std(), (y - y0.mean()) / y0.std()
        found = [u**i * v**j for i in range(4) for j in range(4 - i)]
        for word in WORDS:
            z = (ln[word] - ln0[word].mean()) / ln0[word].std()
            found += [z, z * z, z * u, z * v]
        return np.stack(found, axis=1)

    A, loss = columns(rest), np.array([float(row["loss"]) for row in rest])
    beta = np.linalg.lstsq(A, loss, rcond=None)[0]
    sd = math.sqrt(float(((loss - A @ beta) ** 2).sum()) / (len(A) - A.shape[1]))
    B, seen = columns(out), np.array([float(row["loss"]) for row in out])
    wide = sd * np.sqrt(1.0 + np.einsum("nk,kl,nl->n", B, np.linalg.pinv(A.T @ A), B))
    z = (seen - B @ beta) / wide
    return float((np.abs(z) < 1.96).mean()), float((-0.5 * z * z - np.log(wide * math.sqrt(2.0 * math.pi))).mean())


def slices(rows: Sequence[Row]) -> Iterator[tuple[str, bool, np.ndarray]]:
    """(name, whether inside the hull of the rest, whether each row belongs to it)."""
    x, y, ln = places(rows)
    heads = np.array([float(row["heads"]) for row in rows])
    for count in (6, 8, 12):
        yield f"heads {count}", True, heads == count
    ratio = np.exp(ln[D_FF]).round(2)
    for value, inside in ((1.0, True), (1.5, True), (0.5, False), (2.0, False)):
        yield f"d_ff {value:g} d", inside, ratio == value
    for low, high, inside in ((0.2, 0.35, True), (0.45, 0.6, True), (0.7, 0.85, True), (0.9, 1.01, False)):
        ends = np.quantile(x, [low, min(high, 1.0)])
        of = (x >= ends[0]) & (x < ends[1] + (high > 1.0))
        yield f"N {math.exp(ends[0]):.2g} to {math.exp(ends[1]):.2g}", inside, of
    for depth in (12, 16):
        yield f"depth {depth}", True, np.abs(y - math.log(depth)) < 1e-6


def main(path: str, wanted: str = "") -> None:
    """wanted: how the name of a slice begins; empty: all."""
    options = {"drop": ["params"]}
    for title, more in (
        ("heads follow depth as in the table", {"no_adjust": ["heads"]}),
        ("the same at d_ff = d", {"no_adjust": ["heads"], "at": {"mlp_ratio": 1}}),
        ("head size held at 32", {}),
    ):
        found = heap_of(read_table(path, drop=options["drop"]), fit_options(**more))
        assert found and found.surface
        surface = LossSurface(found.surface)
        said = "; ".join(f"{n:.2g}: {surface.at(n).format('.1f')}" for n in SIZES)
        print(f"{title}: {said} ({found.record.runs} runs)", flush=True)
        if found.record.inseparable:
            print(next(line for line in found.record.sentences if "cannot separate" in line), flush=True)
    rows = read_table(path, drop=options["drop"]).rows
    print("| slice | rows | 95 % hold, heap | cubic | log score, heap | cubic |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, inside, of in slices(rows):
        if wanted and not name.startswith(wanted):
            continue
        rest, out = ([row for row, hit in zip(rows, of, strict=True) if bool(hit) == want] for want in (False, True))
        a, b = by_heap(rest, out), by_cubic(rest, out)
        where = name if inside else f"{name}, an edge"
        print(f"| {where} | {len(out)} | {100 * a[0]:.0f} | {100 * b[0]:.0f} | {a[1]:+.2f} | {b[1]:+.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
