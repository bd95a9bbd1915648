"""The answers: how deep and how wide at a budget, and the verdict on a shape; plain dicts for tables, ``--json``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dwsweep.errors import InputError
from dwsweep.guide.candidates import (
    FEWEST_ROWS,
    LAYER_SECONDS,
    Options,
    block_params,
    costed,
    matched,
    meets,
    near_optimal,
    shape_cost,
    shapes_near,
    thinned,
)
from dwsweep.guide.law_sources import Source, fitted_source, published_source
from dwsweep.shapes import Shape
from dwsweep.text import format_count
from dwsweep.theory import published_law

TOLERANCES = (0.001, 0.005, 0.01)
ABOUT = 0.10  # a balanced shape may differ by this from the size of the shape judged
SHOWN = TOLERANCES[1]  # the candidates span the depths within this tolerance, or more where there are few


def answer(
    params: Sequence[float] = (),
    shapes: Sequence[str] = (),
    *,
    fit: str | Path | None = None,
    compare: bool = False,
    options: Options | None = None,
) -> dict[str, Any]:
    """All that ``dwsweep guide`` says.

    Args:
        params: budgets. shapes: ``96x12288``. Neither: the GPT-3 sizes.
        fit: a fit's directory or fit.json; None: the published law. compare: both, side by side.
        options: what shapes must satisfy.

    Raises:
        InputError: numbers or shapes that are none, or no fit at ``fit``; all at once.
    """
    chosen = options or Options()
    errors = [
        f"--params: {value:g}; must be at least 1e5 (and at most 1e30) non-embedding parameters"
        for value in params
        if not (1e5 <= value <= 1e30)
    ]
    parsed = []
    for text in shapes:
        found = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", text)
        # twelve digits are beyond any net and keep 12·L·d_x² inside the range of floats
        if not found or not all(len(part) <= 12 and int(part) for part in found.groups()):
            errors.append(f"--shape: {text[:40]!r}; allowed: DEPTHxWIDTH, such as 96x12288")
        else:
            parsed.append((int(found[1]), int(found[2])))
    if errors:
        raise InputError(*errors)
    sources = [fitted_source(fit)] if fit is not None else [published_source()]
    if compare and fit is not None:
        sources.append(published_source())
    result: dict[str, Any] = {
        "sources": [{"name": source.name, "notes": list(source.notes)} for source in sources],
        "budgets": [budget(value, source, chosen) for value in params for source in sources],
        "verdicts": [verdict(*shape, source, chosen) for shape in parsed for source in sources],
        "overview": [],
        "assumptions": {
            "decode_seconds_per_layer": LAYER_SECONDS,
            "device": chosen.device,
            "context": chosen.context,
            "training_rate": "measured" if chosen.calibration else "assumed",
            "training_device": chosen.calibration.device_kind if chosen.calibration else chosen.device,
        },
    }
    if not params and not parsed:
        result["overview"] = [
            overview_row(name, n, shape, s) for name, n, shape in published_law.targets() for s in sources
        ]
    return result


def overview_row(name: str, n_params: float, trained: tuple[int, int] | None, source: Source) -> dict[str, Any]:
    """The best depth and width at one size, with what was trained for reference."""
    depth, low, high = source.law.depth(n_params)
    refused = depth is None or source.refuses(n_params)
    rivals = list(source.rival_depths(n_params).values())
    row = {
        "name": name,
        "source": source.name,
        "n_params": n_params,
        "trained_depth": trained[0] if trained else None,
        "trained_width": trained[1] if trained else None,
        "reach": source.reach(n_params),
        "extrapolation_factor": source.law.extrapolation(n_params),
        "refused": refused,
    }
    found: dict[str, Any] = dict.fromkeys(
        ("depth", "depth_low", "depth_high", "next_depth", "width", "width_low", "width_high")
    ) | dict.fromkeys(("rival_depth_min", "rival_depth_max"))
    if not refused and depth is not None:
        found |= {"depth": depth, "depth_low": low, "depth_high": high, "next_depth": depth + source.spacing}
        found |= {"width": _width(n_params, depth), "width_low": _width(n_params, high)}
        found |= {"width_high": _width(n_params, low)}
        if rivals:
            found |= {"rival_depth_min": min([*rivals, depth]), "rival_depth_max": max([*rivals, depth])}
    return row | found


def _width(n_params: float, depth: float | None) -> float | None:
    return None if depth is None else math.sqrt(n_params / (12 * depth))


def budget(n_params: float, source: Source, options: Options) -> dict[str, Any]:
    """Depth and width for a budget: the optimum, the depths that are nearly as good, and shapes to build."""
    size = block_params(n_params, options, lambda n: source.law.depth(n)[0])
    row = overview_row(format_count(n_params), size, None, source) | {"budget": n_params, "total": options.total}
    row |= {"rivals": source.rival_depths(size), "near_optimal": [], "candidates": [], "loss_tag": None}
    if row["refused"]:
        return row
    loss = source.loss(size)
    spoken = loss.depths(size)
    sets = [near_optimal(loss, size, tolerance) for tolerance in TOLERANCES]
    best = float(spoken[loss.penalties(size, spoken).argmin()])
    asked = n_params if options.total else size
    shapes: list[Shape] = []
    for near in sets[TOLERANCES.index(SHOWN) :]:  # further afield where the constraints leave hardly a shape
        low, high = near["depth_low"] or float(spoken[0]), near["depth_high"] or float(spoken[-1])
        shapes = shapes_near(asked, size, best, low, high, options)
        if sum(meets(shape, asked, options) for shape in shapes) >= FEWEST_ROWS:
            break
    candidates = costed(shapes, asked, size, source, options)
    for key in ("equal_size", "equal_flops", "equal_time"):
        known = [c for c in candidates if c["within_budget"] and c[f"nats_{key}"] is not None]
        least = min(known, key=lambda c: c[f"nats_{key}"], default=None)
        row[f"best_{key}"] = None if least is None else [least["depth"], least["width"]]
    bests = [tuple(row[f"best_{key}"]) for key in ("equal_size", "equal_flops", "equal_time") if row[f"best_{key}"]]
    return row | {
        "loss_tag": loss.tag,
        "loss_level": loss.level(size),
        "near_optimal": sets,
        "candidates": thinned(candidates, bests),
    }


def verdict(depth: int, width: int, source: Source, options: Options) -> dict[str, Any]:
    """Too deep, too shallow or balanced, by how much, the balanced shape of the same size, and what the shape costs.

    Balanced is a depth between the lower end of the law's interval at the shape's own size and its upper end plus one
    step of the law's grid: at its transition a depth ties with the next, and the best lies between the two. The size is
    12·L·d_x², or the true count of the block that ``options`` describe.
    """
    standard = options.mlp == "plain" and options.kv_heads is None and options.mlp_ratio is None
    n_params = 12 * depth * width**2 if standard else _own_block(depth, width, options)
    row = overview_row(f"{depth}x{width}", n_params, (depth, width), source)
    row |= {"verdict": "refused", "depth_ratio": None, "nats": None, "nats_interval": None, "percent_smaller": None}
    row |= {"loss_tag": None, "balanced": None}
    if row["refused"]:
        return row
    best, low, high = row["depth"], row["depth_low"], row["depth_high"]
    if high is not None and depth > high + source.spacing:
        row["verdict"] = "too deep"
    elif low is not None and depth < low:
        row["verdict"] = "too shallow"
    else:
        row["verdict"] = "balanced"
    row["depth_ratio"] = depth / best
    row |= shape_cost(depth, n_params, source) or {}
    if not options.total:
        balanced = _balanced(best, n_params, source, options)
        row["balanced"] = {"depth": balanced.depth, "width": balanced.width, "n_params": balanced.n_params}
    return row


def _balanced(best: float, n_params: float, source: Source, options: Options) -> Shape:
    """The shape to build at a size: the best depth's, or where its width is far off the size, the cheapest that meets
    it; where none does, the best depth's after all."""
    unit = options.pipeline_parallel
    first = matched(max(unit, round(best / unit) * unit), n_params, options)
    if abs(first.n_params / n_params - 1) <= ABOUT:
        return first
    near = shapes_near(n_params, n_params, best, best / 2, best * 2, options)
    costs = {shape: shape_cost(shape.depth, shape.n_params, source) for shape in near}
    known = {shape: cost["nats"] for shape, cost in costs.items() if cost and meets(shape, n_params, options)}
    return min(known, key=lambda shape: known[shape], default=first)


def _own_block(depth: int, width: int, options: Options) -> int:
    """The true count of the shape with the asked-for block.

    Raises:
        InputError: heads that do not fit the width.
    """
    try:
        return options.shape(depth, width).n_params
    except ValueError as error:
        raise InputError(f"--shape: {depth}x{width}; {error}") from None
