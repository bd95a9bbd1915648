"""With which power of the budget the best size, tokens, depth and width grow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dwsweep.fit.noise import chi2_tail, t_two_sided
from dwsweep.records.budget_rows import BestAtBudget, BudgetTrend

QUANTITIES = ("n_params", "tokens", "depth", "width")
FEWEST_BUDGETS = 3
MISFIT_P_VALUE = 0.05


def trends(rows: Sequence[BestAtBudget], confidence: float) -> list[BudgetTrend]:
    """ln quantity = k + a·ln C by weighted least squares over the budgets that reach it; none with fewer than three.

    Where the points miss the line by more than their errors, those are widened, and Student's t takes the degrees of
    freedom of the line.
    """
    found = []
    for name in QUANTITIES:
        having = [row for row in rows if None not in (row[name], row[f"{name}_low"], row[f"{name}_high"])]
        if len(having) >= FEWEST_BUDGETS:
            found.append(_trend(name, having, confidence))
    return found


def _trend(name: str, rows: Sequence[BestAtBudget], confidence: float) -> BudgetTrend:
    x, y = np.log([row.budget for row in rows]), np.log([row[name] for row in rows])
    normal = t_two_sided(confidence, math.inf)
    # the intervals hold the degrees of freedom of the noise already
    sd = np.array([math.log(row[f"{name}_high"] / row[f"{name}_low"]) for row in rows]) / (2.0 * normal)
    middle = float(x.mean())
    A = np.stack([np.ones(len(x)), x - middle], axis=1) / sd[:, None]
    C = np.linalg.inv(A.T @ A)
    b = C @ A.T @ (y / sd)
    squares, df = float((((y / sd) - A @ b) ** 2).sum()), len(x) - 2
    rejected = chi2_tail(squares, df) < MISFIT_P_VALUE
    misfit = math.sqrt(squares / df) if rejected else 1.0
    half = (t_two_sided(confidence, df) if rejected else normal) * misfit * math.sqrt(float(C[1, 1]))
    return BudgetTrend(
        quantity=name,
        exponent=float(b[1]),
        exponent_low=float(b[1]) - half,
        exponent_high=float(b[1]) + half,
        budgets=len(x),
        at_budget=math.exp(middle),
        value=math.exp(float(b[0])),
        misfit=misfit,
    )
