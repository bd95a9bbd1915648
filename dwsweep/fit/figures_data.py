"""What the figures draw, as plain lists (the key ``curves`` of fit.json; its layout is documented in files.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dwsweep.fit import published
from dwsweep.fit.cells import AXES
from dwsweep.fit.curves import Curves, distinct, pchip
from dwsweep.fit.guideline import EXTRAPOLATION_LIMIT, width_at
from dwsweep.fit.law_selection import LawReport
from dwsweep.fit.laws import Law
from dwsweep.fit.pairs import Pair
from dwsweep.fit.surface import Surface

SMOOTH_POINTS = 81
GUIDELINE_POINTS = 61
FIXED_SIZES = 6


def curves_dict(
    curves: Curves | None,
    pairs: Sequence[Pair],
    report: LawReport,
    surface: Surface | None,
    axis: str,
    confidence: float,
) -> dict[str, Any]:
    """Everything that report/ needs, layout in files.py."""
    laws = {**report.laws, "published": published.law()}
    return {
        "axis": axis,
        "axis_label": AXES[axis],
        "confidence": confidence,
        "depths": [_depth(curves, d) for d in curves.depths] if curves else [],
        "pairs": [_pair(p) for p in pairs if p.difference is not None],
        "laws": {name: _band(law, curves) for name, law in laws.items()},
        "fixed_n": _fixed(curves, surface) if curves else [],
        "guideline": {name: _guideline(law) for name, law in laws.items()},
        "gpt3": [
            {"name": name, "n_params": n, "depth": shape[0], "width": shape[1]}
            for name, n, shape in published.targets()
            if shape
        ],
    }


def _depth(curves: Curves, depth: int) -> dict[str, Any]:
    where = curves.at(depth)
    known = curves.noise.known
    out: dict[str, Any] = {
        "depth": depth,
        "x": np.exp(curves.x[where]).tolist(),
        "width": curves.width[where].tolist(),
        "n_params": curves.n_params[where].tolist(),
        "mean": curves.mean[where].tolist(),
        "se": curves.se[where].tolist() if known else None,
        "n": curves.n[where].tolist(),
        "smooth": None,
    }
    if len(where) >= 2:
        x, values = distinct(curves.x[where], np.vstack([curves.mean[where], curves.draws[:, where]]))
        if len(x) >= 2:
            grid = np.linspace(x[0], x[-1], SMOOTH_POINTS)
            fitted = pchip(x, values, grid)
            se = fitted[1:].std(axis=0)
            out["smooth"] = {
                "x": np.exp(grid).tolist(),
                "mean": fitted[0].tolist(),
                "se": se.tolist() if known else None,
            }
    return out


def _pair(pair: Pair) -> dict[str, Any]:
    d, c = pair.difference, pair.crossing
    assert d is not None
    critical = c.critical
    return {
        "shallow": pair.shallow,
        "deep": pair.deep,
        "status": c.status,
        "x": np.exp(d.x).tolist(),
        "g": d.g.tolist(),
        "se": d.se.tolist() if critical is not None else None,
        "low": (d.g - critical * d.se).tolist() if critical is not None else None,
        "high": (d.g + critical * d.se).tolist() if critical is not None else None,
        "critical": critical,
        "root": _exp(c.root),
        "root_low": _exp(c.low),
        "root_high": _exp(c.high),
        "reason": c.reason,
    }


def _band(law: Law, curves: Curves | None) -> dict[str, Any]:
    depths = curves.depths if curves else list(published.DEPTHS)
    top = max(depths) * 1.15
    grid = np.linspace(max(1.0, min(depths) * 0.7), top, SMOOTH_POINTS)
    with np.errstate(over="ignore"):  # an exponential law at a thousand layers has no width that a float holds
        best, low, high = (np.exp(values) for values in law.ln_width_band(grid))
    return {
        "name": law.name,
        "form": law.form,
        "depth": grid.tolist(),
        "width": best.tolist(),
        "width_low": low.tolist(),
        "width_high": high.tolist(),
        "error_tag": law.error_tag,
    }


def _fixed(curves: Curves, surface: Surface | None) -> list[dict[str, Any]]:
    """Loss against depth at sizes where at least three depths (or two, if there are no more) have data."""
    spans = {d: (curves.x[curves.at(d)][0], curves.x[curves.at(d)][-1]) for d in curves.depths}
    low, high = min(s[0] for s in spans.values()), max(s[1] for s in spans.values())
    need = min(3, len(spans))
    out = []
    for x in np.linspace(low, high, FIXED_SIZES + 2)[1:-1]:
        present = [d for d, s in spans.items() if s[0] <= x <= s[1] and len(curves.sizes(d)) >= 2]
        if len(present) < need:
            continue
        mean, se = [], []
        for d in present:
            where = curves.at(d)
            xs, values = distinct(curves.x[where], np.vstack([curves.mean[where], curves.draws[:, where]]))
            at = pchip(xs, values, np.array([x]))[:, 0]
            mean.append(float(at[0]))
            se.append(float(at[1:].std()))
        row: dict[str, Any] = {
            "x": math.exp(x),
            "depth": present,
            "mean": mean,
            "se": se if curves.noise.known else None,
            "surface": None,
        }
        y = surface.depths_at(float(x)) if surface else None
        if surface is not None and y is not None:
            y = y[::4]
            B = surface.basis(float(x), y)
            drawn = surface.draws @ B.T
            tail = (1.0 - surface.confidence) / 2.0
            low_q, high_q = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
            row["surface"] = {
                "depth": np.exp(y).tolist(),
                "mean": (B @ surface.coefficients).tolist(),
                "low": low_q.tolist(),
                "high": high_q.tolist(),
                "optimum": surface.optimum(float(x)),
            }
        out.append(row)
    return out


def _guideline(law: Law) -> dict[str, Any]:
    low = law.valid_from / 10.0
    high = law.valid_to * EXTRAPOLATION_LIMIT
    n = np.geomspace(low, high, GUIDELINE_POINTS)
    rows = [law.depth(float(v)) for v in n]
    width = [[width_at(float(v), r[k]) for r, v in zip(rows, n, strict=True)] for k in range(3)]
    return {
        "name": law.name,
        "n_params": n.tolist(),
        "depth": [r[0] for r in rows],
        "depth_low": [r[1] for r in rows],
        "depth_high": [r[2] for r in rows],
        "width": width[0],
        "width_low": width[2],
        "width_high": width[1],
        "valid_from": law.valid_from,
        "valid_to": law.valid_to,
    }


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
