"""The best size of each depth and the best depth at equal compute against losses whose minima are known, by simulation:
``python -m dwsweep.fit.simulations.budget_coverage --out DIR [--n 200] [--processes 2] [SCENARIO …]``.

Every simulation is one line of DIR/<scenario>.jsonl, as in coverage.py. Beside each minimum stands that of a plain
parabola through all points, with its own errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from dwsweep.fit.budgets.equal_budgets import Measured, equal_budgets
from dwsweep.fit.budgets.trained_budgets import FLOPS, TrainedBudgets
from dwsweep.fit.cells import select_runs
from dwsweep.fit.curves import Curves, build_curves
from dwsweep.fit.noise import t_two_sided
from dwsweep.fit.row_selection import Row
from dwsweep.fit.simulations.coverage import Simulated, command_line, covers, run_simulations
from dwsweep.fit.simulations.simulated_budgets import BudgetTruth, draw_budgets
from dwsweep.records.fit_rows import FitPart

CONFIDENCE = 0.95
DRAWS = 100  # nothing here rests on the draws
DEPTHS = (4, 8, 12, 18, 28)


@dataclass(frozen=True)
class Scenario:
    """5 depths, 7 sizes each over a factor of 20 about the best ones, 3 seeds, σ 0.002 nats, one budget, unless it says
    otherwise. skipped: every depth lacks other ones of its sizes."""

    truth: BudgetTruth = field(default_factory=BudgetTruth)
    budgets: tuple[float, ...] = (1.0e18,)
    depths: tuple[int, ...] = DEPTHS
    smallest: float = 2.0e7
    largest: float = 4.0e8
    sizes: int = 7
    seeds: int = 3
    sigma: float = 0.002
    luck: float = 0.0
    seed_sd: float = 0.003
    skipped: bool = False
    width_multiple: int = 16
    batch_tokens: int = 65_536

    def rows(self, rng: np.random.Generator) -> list[Row]:
        every = np.geomspace(self.smallest, self.largest, self.sizes)
        sizes = [
            [n for k, n in enumerate(every) if not self.skipped or k % 3 != place % 3]
            for place in range(len(self.depths))
        ]
        return draw_budgets(
            self.truth,
            rng,
            flops=self.budgets,
            depths=self.depths,
            sizes=sizes,
            seeds=self.seeds,
            sigma=self.sigma,
            seed_sd=self.seed_sd,
            luck=self.luck,
            width_multiple=self.width_multiple,
            batch_tokens=self.batch_tokens,
        )


def scenarios() -> dict[str, Scenario]:
    """One change each."""
    base = Scenario()
    lopsided = BudgetTruth(alpha=0.5, beta=0.2, a=7.75e3, b=94.0)
    small = BudgetTruth(depth_0=4.0, size_0=8.0e5, seq_len=128, vocab_size=1000)
    return {
        "base": base,
        "one seed": replace(base, seeds=1, seed_sd=0.0),  # what it shares cannot be told from the loss
        "two seeds, 6 sizes": replace(base, seeds=2, sizes=6),
        "luck 0.002": replace(base, luck=0.002),
        "5 sizes": replace(base, sizes=5),
        "5 sizes, luck 0.004": replace(base, sizes=5, luck=0.004),
        "3 sizes": replace(base, sizes=3),
        "sizes over a factor of 240": replace(base, smallest=5.0e6, largest=1.2e9, sizes=9),
        "uneven grids": replace(base, sizes=10, skipped=True),
        "noisy": replace(base, sigma=0.01, luck=0.004),
        "lopsided": replace(base, truth=lopsided, smallest=4.0e7, largest=1.0e9),
        "weak optimum": replace(base, truth=BudgetTruth(penalty=0.1)),
        "wiggly curves": replace(base, truth=BudgetTruth(wiggle=0.002)),
        "3 depths": replace(base, depths=(6, 12, 24)),
        "4 depths": replace(base, depths=(6, 10, 16, 26)),
        "depths 2 … 64": replace(base, depths=(2, 4, 8, 16, 32, 64)),
        "sizes end below": replace(base, smallest=1.0e7, largest=1.1e8),
        "all depths too deep": replace(base, depths=(16, 24, 36, 48)),
        "steps of 3 % of a run": replace(base, batch_tokens=30_000_000),
        "small nets": replace(
            base, truth=small, budgets=(3.0e13,), depths=(2, 3, 4, 6, 10), smallest=2.0e5, largest=4.0e6,
            width_multiple=4, batch_tokens=2048,
        ),
        "4 budgets": replace(base, budgets=(3.0e17, 1.0e18, 3.0e18, 1.0e19), sizes=7),
    }  # fmt: skip


@cache
def truth_of(name: str) -> tuple[tuple[tuple[float, float, float], dict[int, tuple[float, float]]], ...]:
    """Per budget: (L, N, loss) of the best shape, and (N, loss) of the best size of each depth. The best depth is that
    of losses without waves, which are of another phase at each depth."""
    scenario = scenarios()[name]
    smooth = replace(scenario.truth, wiggle=0.0)
    return tuple(
        (smooth.best_shape(c), {d: scenario.truth.best_size(c, d) for d in scenario.depths}) for c in scenario.budgets
    )


Point = tuple[float | None, float | None, float | None]  # value and ends of its interval; None: there is none


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated):
    """One item per budget, and of the sizes and losses of the depths one per depth in it."""

    sizes: tuple[tuple[Point, ...], ...]
    losses: tuple[tuple[Point, ...], ...]
    parabolas: tuple[tuple[Point, ...], ...]
    depth: tuple[Point, ...]
    best_size: tuple[Point, ...]
    best_loss: tuple[Point, ...]
    exponent: Point


def one(name: str, index: int) -> Simulation:
    """Simulation ``index`` of a scenario."""
    scenario = scenarios()[name]
    rows = scenario.rows(np.random.default_rng([index, *name.encode()]))
    trained = TrainedBudgets(FLOPS, "simulated", True, {})
    measured = {}
    for budget in scenario.budgets:
        near = [row for row in rows if abs(math.log(row["flops"] / budget)) < 0.2]
        runs = select_runs(near).runs
        measured[budget] = Measured(runs, build_curves(runs, None, DRAWS, np.random.default_rng(0)))
    found = equal_budgets(trained, measured, CONFIDENCE)
    assert found
    trend = next((trend for trend in found.trends if trend.quantity == "n_params"), None)
    return Simulation(
        index=index,
        sizes=tuple(
            tuple((row.n_params, row.n_params_low, row.n_params_high) for row in b.depths) for b in found.budgets
        ),
        losses=tuple(tuple((row.loss, row.loss_low, row.loss_high) for row in b.depths) for b in found.budgets),
        parabolas=tuple(_parabolas(cells) for _, cells in measured.values() if cells),
        depth=tuple((b.best.depth, b.best.depth_low, b.best.depth_high) for b in found.budgets),
        best_size=tuple((b.best.n_params, b.best.n_params_low, b.best.n_params_high) for b in found.budgets),
        best_loss=tuple((b.best.loss, b.best.loss_low, b.best.loss_high) for b in found.budgets),
        exponent=(trend.exponent, trend.exponent_low, trend.exponent_high) if trend else (None, None, None),
    )


def _parabolas(cells: Curves) -> tuple[Point, ...]:
    """N at the vertex of a weighted parabola through all sizes of each depth, with the interval of its errors."""
    found: list[Point] = []
    covariance = cells.total_covariance
    t = t_two_sided(CONFIDENCE, min(cells.noise.df.values()))
    for depth in cells.depths:
        where = cells.at(depth)
        x = cells.x[where] - cells.x[where].mean()
        X = np.stack([np.ones(len(x)), x, x**2], axis=1)
        C = np.linalg.inv(X.T @ np.linalg.solve(covariance[np.ix_(where, where)], X))
        _, b, a = C @ X.T @ np.linalg.solve(covariance[np.ix_(where, where)], cells.mean[where])
        slope = np.array([0.0, -1.0 / (2.0 * a), b / (2.0 * a**2)])
        vertex, half = -b / (2.0 * a) + cells.x[where].mean(), t * math.sqrt(slope @ C @ slope)
        inside = a > 0 and cells.x[where].min() < vertex < cells.x[where].max()
        ends = math.exp(vertex - half), math.exp(vertex + half)
        found.append((math.exp(vertex), *ends) if inside else (None, None, None))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Score(FitPart):
    """One quantity over all simulations (and depths, and budgets): reached, coverage: shares, the coverage of all
    intervals, open ones too. bias, rmse, width (median): of ln of it, of a loss in nats, where it is reached."""

    reached: float
    coverage: float
    bias: float | None
    rmse: float | None
    width: float | None


@dataclass(frozen=True, kw_only=True)
class Summary(FitPart):
    """A scenario over all simulations. depth, best_size, best_loss: of the best shape; parabola: of plain parabolas in
    place of ``size``; exponent: of N* over the budgets."""

    scenario: str
    n: int
    size: Score
    parabola: Score
    loss: Score
    depth: Score
    best_size: Score
    best_loss: Score
    exponent: Score


def score(points: Sequence[Point], truths: Sequence[float], ln: bool) -> Score:
    """The intervals of ``points`` against what is true."""
    whole = [(p, v) for p, v in zip(points, truths, strict=True) if None not in p]
    scale = math.log if ln else float
    errors = np.array([scale(p[0]) - scale(v) for p, v in whole])  # type: ignore[arg-type]
    widths = [scale(p[2]) - scale(p[1]) for p, _ in whole]  # type: ignore[arg-type]
    return Score(
        reached=len(whole) / max(len(points), 1),
        coverage=float(np.mean([covers(p[1], p[2], v) for p, v in zip(points, truths, strict=True)]))
        if points
        else 0.0,
        bias=float(errors.mean()) if whole else None,
        rmse=float(np.sqrt((errors**2).mean())) if whole else None,
        width=float(np.median(widths)) if whole else None,
    )


def summarise(name: str, rows: Sequence[Simulation]) -> Summary:
    """Everything of a scenario against its truth."""
    truths = truth_of(name)
    depths = scenarios()[name].depths
    each = [(row, b, i) for row in rows for b in range(len(truths)) for i in range(len(depths))]
    ns, losses = ([truths[b][1][depths[i]][k] for _, b, i in each] for k in (0, 1))
    over = [(row, b) for row in rows for b in range(len(truths))]
    best = [[truths[b][0][k] for _, b in over] for k in range(3)]
    exponent = math.nan
    if len(truths) > 1:
        exponent = float(np.polyfit(np.log(scenarios()[name].budgets), np.log([t[0][1] for t in truths]), 1)[0])
    return Summary(
        scenario=name,
        n=len(rows),
        size=score([row.sizes[b][i] for row, b, i in each], ns, True),
        parabola=score([row.parabolas[b][i] for row, b, i in each], ns, True),
        loss=score([row.losses[b][i] for row, b, i in each], losses, False),
        depth=score([row.depth[b] for row, b in over], best[0], True),
        best_size=score([row.best_size[b] for row, b in over], best[1], True),
        best_loss=score([row.best_loss[b] for row, b in over], best[2], False),
        exponent=score([row.exponent for row in rows], [exponent] * len(rows), False),
    )


def table(summaries: Sequence[Summary]) -> str:
    """Markdown, one row per scenario: covered, bias and rmse of each, in percent (of the loss in millinats)."""
    names = ("size", "parabola", "loss", "depth", "best_size", "best_loss")
    heads = ("N* of a depth", "by a parabola", "its loss", "best depth", "its N", "its loss", "exponent")
    lines = [
        f"| scenario | n | {' | '.join(heads)} |",
        f"| --- | --- | {' | '.join('---' for _ in heads)} |",
    ]

    def text(found: Score, scale: float) -> str:
        if found.bias is None or found.rmse is None or found.width is None:
            return f"{100 * found.coverage:.0f} (reached 0)" if found.reached == 0.0 else "–"
        numbers = f"{scale * found.bias:+.1f} ± {scale * found.rmse:.1f}, {scale * found.width:.1f} wide"
        return f"{100 * found.coverage:.0f} (reached {100 * found.reached:.0f}): {numbers}"

    for s in summaries:
        cells = [text(s[name], 1000.0 if "loss" in name else 100.0) for name in names]
        cells.append(text(s.exponent, 100.0) if s.exponent.reached else "–")
        lines.append(f"| {s.scenario} | {s.n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    args = command_line(__doc__, scenarios(), 200).parse_args()
    results = run_simulations(args.out, args.names, args.n, args.processes, one, Simulation)
    print(table([summarise(name, rows) for name, rows in results.items()]))


if __name__ == "__main__":
    main()
