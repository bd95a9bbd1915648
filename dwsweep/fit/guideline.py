"""How deep and how wide at a budget: a law's optimum with its interval, the rivals beside it, and its limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from dwsweep.errors import InputError, argument
from dwsweep.fit import published
from dwsweep.fit.laws import Law
from dwsweep.text import format_count

# beyond this factor outside the range of its transitions a law gives no number; 1T is 1,667 times the published range
EXTRAPOLATION_LIMIT = 2000.0
DEFAULT_WIDTH_MULTIPLE = 64


def guideline_row(
    name: str,
    n_params: float,
    trained: tuple[int, int] | None,
    law: Law,
    rivals: Sequence[Law] = (),
    surface: Any = None,
    width_multiple: int | None = None,
) -> dict[str, Any]:
    """One row of guideline.csv. Values that do not exist (or that the law refuses) are None, with the reason in `law`.

    rival_depth_min, rival_depth_max: over the intervals of every form that is not rejected.
    depth_low … width_high: at the fixed budget, so width_low = √(N/12·depth_high) goes with depth_high. depth_int,
    width_int: a shape one can build, the width rounded to ``width_multiple`` (64; smaller nets: 8).
    """
    row: dict[str, Any] = {
        "name": name,
        "n_params": n_params,
        "trained_depth": trained[0] if trained else None,
        "trained_width": trained[1] if trained else None,
        **dict.fromkeys(
            ("depth", "depth_low", "depth_high", "width", "width_low", "width_high", "depth_int", "width_int")
        ),
        "n_params_actual": None,
        "law": law.name,
        "rival_depth_min": None,
        "rival_depth_max": None,
        "extrapolation_factor": law.extrapolation(n_params),
        **dict.fromkeys(("loss_penalty", "penalty_low", "penalty_high", "equivalent_size_percent")),
    }
    if row["extrapolation_factor"] > EXTRAPOLATION_LIMIT:
        row["law"] = f"{law.name}: refused, more than {EXTRAPOLATION_LIMIT:g} times outside its range"
        return row
    depth, low, high = law.depth(n_params)
    if depth is None:
        row["law"] = f"{law.name}: no optimum, its width does not grow with depth"
        return row
    depth_int = max(1, round(depth))
    wide = n_params / (12.0 * depth) >= (8 * DEFAULT_WIDTH_MULTIPLE) ** 2
    multiple = width_multiple or (DEFAULT_WIDTH_MULTIPLE if wide else 8)
    width_int = max(multiple, multiple * round(math.sqrt(n_params / (12.0 * depth_int)) / multiple))
    row |= {
        "depth": depth,
        "depth_low": low,
        "depth_high": high,
        "width": width_at(n_params, depth),
        "width_low": width_at(n_params, high),
        "width_high": width_at(n_params, low),
        "depth_int": depth_int,
        "width_int": width_int,
        "n_params_actual": 12 * depth_int * width_int**2,
    }
    row["rival_depth_min"], row["rival_depth_max"] = rival_range([law, *rivals], n_params) if rivals else (None, None)
    if surface is not None and trained is not None:
        row |= surface.penalty(n_params, trained[0])
    return row


def rival_range(laws: Sequence[Law], n_params: float) -> tuple[float | None, float | None]:
    """Shallowest and deepest end of the intervals of ``laws`` at a budget; None where one of them has no bound."""
    depths = [law.depth(n_params) for law in laws]
    low = [d[1] for d in depths if d[1] is not None]
    high = [d[2] for d in depths if d[2] is not None]
    return min(low) if len(low) == len(depths) else None, max(high) if len(high) == len(depths) else None


def width_at(n_params: float, depth: float | None) -> float | None:
    """d_x = √(N/12L), the width that spends N at ``depth``; None for None."""
    return None if depth is None else math.sqrt(n_params / (12.0 * depth))


def guideline_rows(
    law: Law,
    rivals: Sequence[Law] = (),
    params: Iterable[float] = (),
    surface: Any = None,
    trained: Sequence[tuple[str, float, tuple[int, int] | None]] | None = None,
) -> list[dict[str, Any]]:
    """Rows for the GPT-3 models at their own 12·L·d², 1T, and each of ``params`` (non-embedding parameters)."""
    targets = list(published.targets() if trained is None else trained)
    for value in params:
        try:
            n = float(value)
        except (TypeError, ValueError):
            n = math.nan
        if not (math.isfinite(n) and n > 0):
            raise InputError(
                f"{argument('params')}: {value!r}; a positive number of non-embedding parameters is allowed"
            )
        targets.append((format_count(n), n, None))
    return [guideline_row(name, n, shape, law, rivals, surface) for name, n, shape in targets]


def format_factor(value: float) -> str:
    """``1.13``, ``41.7``, ``1,670``: three significant digits and no exponent."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(rows: Sequence[dict[str, Any]], notes: Sequence[str]) -> str:
    """guideline.md: the same rows as a table, with what must be known to read them."""
    lines = [
        "# Guideline: depth and width at a budget",
        "",
        "| model | N | trained L × d | it costs, nats | best L | best d | build | rivals' L | out of range by | law |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        trained = f"{row['trained_depth']} × {row['trained_width']}" if row["trained_depth"] else "–"
        build = f"{row['depth_int']} × {row['width_int']}" if row["depth_int"] else "–"
        rivals = "–"
        if row["rival_depth_min"] is not None or row["rival_depth_max"] is not None:
            ends = [_end(row[name], 1) for name in ("rival_depth_min", "rival_depth_max")]
            rivals = f"{ends[0]} … {ends[1]}"
        factor = row["extrapolation_factor"]
        cost = _interval(row["loss_penalty"], row["penalty_low"], row["penalty_high"], 4)
        lines.append(
            f"| {row['name']} | {row['n_params']:.4g} | {trained} | {cost} "
            f"| {_interval(row['depth'], row['depth_low'], row['depth_high'], 1)} "
            f"| {_interval(row['width'], row['width_low'], row['width_high'], 0)} "
            f"| {build} | {rivals} | {'inside' if factor <= 1 else f'{format_factor(factor)}×'} | {row['law']} |"
        )
    return "\n".join([*lines, "", *[f"- {note}" for note in notes], ""])


def _interval(value: float | None, low: float | None, high: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}f} ({_end(low, digits)} … {_end(high, digits)})"


def _end(value: float | None, digits: int) -> str:
    return "unbounded" if value is None else f"{value:.{digits}f}"
