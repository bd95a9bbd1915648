"""All consecutive depths: their differences, crossings, thresholds and other estimators, as rows of transitions.csv."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwsweep.errors import argument
from dwsweep.fit.curves import Curves, Difference, difference
from dwsweep.fit.estimators import levine_crossing, power_difference
from dwsweep.fit.transitions import NO_CURVE, NO_SHARED_RANGE, NOISE_UNKNOWN, Crossing, classify, no_crossing
from dwsweep.text import format_count

THRESHOLDS = (0.001, 0.003)


@dataclass(frozen=True)
class Pair:
    """A pair of consecutive depths. difference: None where they share no range of sizes. crossing: the reference
    (pchip). others: (estimator, threshold in nats, crossing)."""

    shallow: int
    deep: int
    difference: Difference | None
    crossing: Crossing
    others: tuple[tuple[str, float, Crossing], ...]


def analyse_pairs(curves: Curves, confidence: float, estimators: bool = True) -> list[Pair]:
    """Every pair of consecutive depths, shallow to deep."""
    pairs = []
    for shallow, deep in zip(curves.depths[:-1], curves.depths[1:], strict=True):
        d = difference(curves, shallow, deep)
        if d is None:
            pairs.append(Pair(shallow, deep, None, _no_range(curves, shallow, deep), ()))
            continue
        if not curves.noise.known:
            reason = (
                curves.noise.why_unknown
                or f"no estimate of the noise: more seeds, four sizes per depth, or {argument('noise')}"
            )
            pairs.append(Pair(shallow, deep, d, no_crossing(reason, NOISE_UNKNOWN), ()))
            continue
        others: list[tuple[str, float, Crossing]] = []
        if estimators:
            others += [(f"pchip>{delta:g}", delta, classify(d, confidence, delta)) for delta in THRESHOLDS]
            power = power_difference(curves, shallow, deep)
            if power is not None:
                others.append(("power", 0.0, classify(power, confidence)))
            levine = levine_crossing(curves, shallow, deep, confidence)
            if levine is not None:
                others.append(("levine", 0.0, levine))
        pairs.append(Pair(shallow, deep, d, classify(d, confidence), tuple(others)))
    return pairs


def _no_range(curves: Curves, shallow: int, deep: int) -> Crossing:
    for depth in (shallow, deep):
        if len(curves.sizes(depth)) < 2:
            return no_crossing(f"depth {depth} has a single size: no curve", NO_CURVE)
    return no_crossing("the two depths share no range of sizes", NO_SHARED_RANGE)


def tie_warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line about the pairs whose bound is no evidence about the sizes beyond it, from rows of transitions.csv."""
    tied = [row for row in rows if row["estimator"] == "pchip" and row["tie_low"] is not None]
    if not tied:
        return []
    listed = ", ".join(
        f"{row['shallow']}→{row['deep']} ({row['status'].replace('_', ' ')}) from {format_count(row['tie_low'])} to "
        f"{format_count(row['tie_high'])}"
        for row in tied
    )
    return [
        f"ties: {listed}: there the two depths do not differ by more than the noise, so the bound says where the last "
        f"significant lead ends, not that the lead goes on; the crossing may lie inside"
    ]


def transition_rows(curves: Curves, pairs: Sequence[Pair], confidence: float) -> list[dict[str, Any]]:
    """Rows of transitions.csv: per pair ``pchip`` first, then the thresholds (``pchip>0.001``: where the deeper is
    ahead by 0.001 nats), ``power`` and ``levine``. Widths are the shallower net's; a None end is unbounded."""
    rows = []
    for pair in pairs:
        for estimator, threshold, crossing in (("pchip", 0.0, pair.crossing), *pair.others):
            rows.append(_row(curves, pair, estimator, threshold, crossing, confidence))
    return rows


def _row(
    curves: Curves, pair: Pair, estimator: str, threshold: float, c: Crossing, confidence: float
) -> dict[str, Any]:
    both = np.concatenate([curves.at(pair.shallow), curves.at(pair.deep)])
    sigmas = [curves.noise.sigma.get(d) for d in (pair.shallow, pair.deep)]
    known = [s for s in sigmas if s is not None]
    x = (c.root, c.low, c.high, c.tie_low, c.tie_high)
    n = [None if v is None else _n_params(curves, pair.shallow, v) for v in x]
    width = [None if v is None else float(np.exp(curves.ln_width_of(pair.shallow, v))) for v in x]
    axis = [None if v is None else math.exp(v) for v in x]
    method = "" if c.critical is None else "two trained widths" if estimator == "levine" else "band inversion"
    return {
        "shallow": pair.shallow,
        "deep": pair.deep,
        "estimator": estimator,
        "status": c.status,
        "n_params": n[0],
        "n_params_low": n[1],
        "n_params_high": n[2],
        "width": width[0],
        "width_low": width[1],
        "width_high": width[2],
        "se_ln_n": c.se,
        "slope_difference": c.slope,
        "sup_t_left": c.t_left,
        "sup_t_right": c.t_right,
        "sign_changes": c.sign_changes,
        "n_seeds": int(curves.n[both].min()),
        "sigma": math.sqrt(sum(s * s for s in known) / len(known)) if known else curves.noise.tau,
        "df": None if pair.difference is None or not math.isfinite(pair.difference.df) else pair.difference.df,
        "confidence": confidence,
        "interval_method": method,
        "threshold": threshold,
        "sup_t_critical": c.critical,
        "axis_value": axis[0],
        "axis_low": axis[1],
        "axis_high": axis[2],
        "reason": c.reason,
        "cause": c.cause,
        "tie_low": n[3],
        "tie_high": n[4],
    }


def _n_params(curves: Curves, depth: int, x: float) -> float:
    """N of the net of ``depth`` at ln-axis ``x``: e^x itself on the default axis, interpolated on the others."""
    where = curves.at(depth)
    offset = np.log(curves.n_params[where]) - curves.x[where]
    return float(math.exp(x + np.interp(x, curves.x[where], offset)))
