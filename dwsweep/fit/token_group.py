"""The rows of one token count, analysed up to the transitions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwsweep.errors import example
from dwsweep.fit.cells import Selection, Shape, select_runs
from dwsweep.fit.confounds import confounds
from dwsweep.fit.curves import FEW_SIZES, Curves, build_curves
from dwsweep.fit.documents import document_covariance
from dwsweep.fit.learned import still_falling
from dwsweep.fit.pairs import Pair, analyse_pairs
from dwsweep.fit.table import Table


@dataclass(frozen=True)
class Part:
    """The analysis of the rows of one token count, up to the transitions."""

    selection: Selection
    curves: Curves | None
    pairs: list[Pair]
    warnings: list[str]
    documents: str | None

    @classmethod
    def of(
        cls,
        data: Table,
        rows: list[dict[str, Any]],
        axis: str,
        noise: float | None,
        draws: int,
        seed: int,
        confidence: float,
        documents: bool,
    ) -> Part:
        selection = select_runs(rows, axis)
        warnings = list(selection.warnings)
        if not selection.runs:
            return cls(selection, None, [], [*warnings, "no finished run with a usable loss: nothing to fit"], None)
        held_out = document_covariance(data.directory, selection.runs) if documents and data.directory else None
        curves = build_curves(selection.runs, noise, draws, np.random.default_rng(seed), held_out)
        if held_out:
            warnings += held_out.warnings
        if data.directory:
            warnings += still_falling(data.directory, selection.runs)
        warnings += _noise_warnings(curves)
        warnings += confounds(selection.runs, curves, axis)
        return cls(selection, curves, analyse_pairs(curves, confidence), warnings, held_out.note if held_out else None)

    def rate_rows(self) -> list[dict[str, Any]]:
        """The runs of the shapes that were trained at several learning rates: the curves over the rate."""
        tried: dict[Shape, set[float | None]] = defaultdict(set)
        for run in self.selection.runs:
            tried[run.shape].add(run.learning_rate)
        return [
            {
                "parametrization": run.row.get("parametrization"),
                "depth": run.depth,
                "width": _whole(run.width),
                "learning_rate": run.learning_rate,
                "seed": run.seed,
                "loss": run.loss,
            }
            for run in self.selection.runs
            if len(tried[run.shape]) > 1
        ]

    def cell_rows(self) -> list[dict[str, Any]]:
        rows = []
        if self.curves:
            c = self.curves
            for k in range(len(c.mean)):
                shape = (int(c.depth[k]), c.width[k])
                rows.append(
                    {
                        "depth": int(c.depth[k]),
                        "width": _whole(c.width[k]),
                        "n_params": _whole(c.n_params[k]),
                        "mean": float(c.mean[k]),
                        "se": float(c.se[k]) if c.noise.known else None,
                        "n": int(c.n[k]),
                        "learning_rate": c.learning_rate[k],
                        "excluded": False,
                        "reason": self.selection.notes.get(shape, ""),
                        "axis_value": float(math.exp(c.x[k])),
                    }
                )
        for (depth, width), reason in self.selection.excluded.items():
            rows.append(
                {
                    "depth": depth,
                    "width": _whole(width),
                    "n_params": _whole(12.0 * depth * width**2),
                    **dict.fromkeys(("mean", "se")),
                    "n": 0,
                    "learning_rate": None,
                    "excluded": True,
                    "reason": reason,
                    "axis_value": None,
                }
            )
        return sorted(rows, key=lambda row: (row["depth"], row["width"]))

    def noise_dict(self) -> dict[str, Any]:
        if not self.curves:
            return {"source": "none"}
        n = self.curves.noise
        return {
            "source": n.source,
            "sigma": {str(d): s for d, s in n.sigma.items()},
            "df": {str(d): v for d, v in n.df.items()},
            "pooled": n.pooled,
            "bartlett_p": n.bartlett_p,
            "tau": n.tau,
            "tau_df": n.tau_df,
            "shape_sd": math.sqrt(n.shape_variance),
            "paired_seeds": self.curves.paired,
            "documents": self.documents,
            "diverged_rule": self.selection.diverged_rule,
        }


def _noise_warnings(curves: Curves) -> list[str]:
    lines = []
    noise = curves.noise
    if not noise.known and not noise.why_unknown:
        lines.append(
            "noise: one run a shape and fewer than four sizes a depth leave nothing to estimate the noise from; no "
            f"transition is claimed (repeat with more seeds, or give {example('noise=SIGMA', '--noise SIGMA')} in nats)"
        )
    elif noise.source == "scatter":
        lines.append(
            f"noise: one run a shape, so the error is judged by the scatter about smooth curves alone "
            f"(τ = {noise.tau:.2g} nats, {noise.tau_df:.0f} degrees of freedom)"
        )
    elif noise.source == "declared" and noise.tau is not None:
        sigma = next(iter(noise.sigma.values())) or 0.0
        per_mean = sigma / math.sqrt(float(np.median(curves.n)))
        if noise.tau > 2.0 * per_mean:
            lines.append(
                f"noise: the declared σ gives ±{per_mean:.2g} nats a mean, the cells scatter by {noise.tau:.2g} about "
                f"smooth curves; the errors are likely too small"
            )
    counts = Counter(int(n) for n in curves.n)
    if noise.source != "scatter" and len(counts) > 1 and 1 in counts:
        lines.append(f"seeds: {counts[1]} shapes have a single run")
    few = {d: len(curves.sizes(d)) for d in curves.depths if 2 <= len(curves.sizes(d)) <= FEW_SIZES}
    if few and len(curves.depths) > 1:
        listed = ", ".join(f"{count} at L {d}" for d, count in few.items())
        lines.append(
            f"sizes: {listed}; a crossing then rests on how the curve bends between sizes, which its interval "
            f"covers only roughly (six sizes a depth or more are advised)"
        )
    if max(curves.n) > 1 and not curves.paired:
        lines.append("seeds: not shared between shapes (or not named), so their common part does not cancel")
    return lines


def _whole(value: float) -> Any:
    return round(value) if abs(value - round(value)) < 1e-6 else float(value)
