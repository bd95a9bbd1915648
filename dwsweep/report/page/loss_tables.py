"""What the page needs of ``dwsweep guide`` that only the loss model can say, as tables over ln N and ln L.

The script of the page interpolates these and computes by itself only what depends on what a reader types: shapes,
counts, FLOPs, seconds. It holds no model of the loss, and no constant of guide but those that stand here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from dwsweep.cost import duration
from dwsweep.cost.devices import DEVICES
from dwsweep.fit.laws import AS_PRINTED
from dwsweep.fit.surface.loss_surface import WHOLE
from dwsweep.guide import Options, Source, advice, candidates, published_source, trust
from dwsweep.guide.answers import CONSTRAINTS
from dwsweep.guide.loss import GRID, SurfaceLoss
from dwsweep.records.fit_result import LARGEST_SIZE
from dwsweep.theory import published_law

LEAST_PUBLISHED, LEAST_OWN = 1e5, 1e3  # budgets that guide takes
STEP_OF_LAW, STEP_INSIDE, STEP_OUTSIDE = 0.12, 0.1, 0.5  # of ln N, between rows of penalties
STEP_OF_BEST, STEP_OF_FAR_BEST = 0.12, 0.3  # of ln N, between best depths: of a law or near the data, further off
NEAR_DATA = 2.0  # in ln N
DEPTHS_OF_LAW = 141
SLOPE_STEP = 0.05  # that of SurfaceLoss.slope
STRETCH_POINTS = 4  # a cubic's
STEEP, STEEP_HALVINGS, LEAST_STEP = 0.25, 4, 1e-3  # in ln L; and in ln N
HALVINGS = 10  # towards the size at which a bound begins or ends

Optional = float | None


def tables(source: Source) -> dict[str, Any]:
    """The tables of a source, with the constants and devices of guide; ``inside`` are those of what guides at the sizes
    of the data alone, if something does."""
    law, own = source.law, source.surface is not None
    parts = _of_losses(source) if own else _of_published_law()
    asked = Options().for_nets(source.nets)
    return {
        "inside": tables(source.inside) if source.inside else None,
        "source": source.name,
        "tag": source.loss(law.valid_from).tag,
        "own": own,
        "ends_agree": trust.ends_agree(source),
        "spacing": source.spacing,
        "least": LEAST_OWN if own or source.inside else LEAST_PUBLISHED,
        "limit": law.limit,
        "valid_from": law.valid_from,
        "valid_to": law.valid_to,
        "vocab": asked.vocabulary,
        "context": asked.positions,
        **parts,
        "gpt3": sorted([math.log(n), math.log(shape[0])] for _, n, shape in published_law.targets() if shape),
        "devices": [{"name": one.name, "peak_flops": one.peak_flops, "bandwidth": one.bandwidth} for one in DEVICES],
        "constants": constants(),
    }


def _ends(source: Source, least: float) -> tuple[float, float]:
    """ln of the sizes that there are numbers for; shapes up to a factor of two from a budget are compared too."""
    law = source.law
    if source.surface is not None and source.surface.trained:
        return math.log(law.valid_from / candidates.FARTHEST), math.log(law.valid_to * candidates.FARTHEST)
    return math.log(max(law.valid_from / law.limit, least / candidates.FARTHEST)), math.log(law.valid_to * law.limit)


def _of_losses(source: Source) -> dict[str, Any]:
    assert source.surface is not None
    ends = _ends(source, LEAST_OWN)
    return {"loss": _surface(source.surface, *ends), "best": _best(source, *ends)}


@cache
def _of_published_law() -> dict[str, Any]:
    """The same for every page."""
    source = published_source()
    ends = _ends(source, LEAST_PUBLISHED)
    return {"loss": _law(source, *ends), "best": _best(source, *ends)}


def constants() -> dict[str, Any]:
    return {
        "constraints": list(CONSTRAINTS),
        "tolerances": list(advice.TOLERANCES),
        "spans": list(advice.SPANS),
        "depths": GRID,
        "budget_tolerance": candidates.BUDGET_TOLERANCE,
        "tie_nats": candidates.TIE_NATS,
        "farthest": candidates.FARTHEST,
        "free_grid": candidates.FREE_GRID,
        "widest_step": candidates.WIDEST_STEP,
        "fewest_rows": candidates.FEWEST_ROWS,
        "most_rows": candidates.MOST_ROWS,
        "most_widths": candidates.MOST_WIDTHS,
        "layer_seconds": candidates.LAYER_SECONDS,
        "tokens_per_step": candidates.TOKENS_PER_STEP,
        "peak_share": duration.PEAK_SHARE,
        "bandwidth_share": duration.BANDWIDTH_SHARE,
        "activation_passes": duration.ACTIVATION_PASSES,
        "as_printed": AS_PRINTED,
        "near": trust.NEAR,
        "forms_agree": trust.FORMS_AGREE,
        "forms_apart": trust.FORMS_APART,
        "build_apart": trust.BUILD_APART,
        "recipe_factor": trust.RECIPE_FACTOR,
        "most": LARGEST_SIZE,
    }


def _law(source: Source, low: float, high: float) -> dict[str, Any]:
    """Of a law: smooth everywhere, so cubics along both axes."""
    x = np.linspace(low, high, 1 + math.ceil((high - low) / STEP_OF_LAW))
    deepest = source.law.depth(math.exp(high))[0]
    assert deepest is not None
    y = np.linspace(0.0, math.log(8.0 * deepest) + 1e-6, DEPTHS_OF_LAW)
    sizes = [math.exp(value) for value in x]
    return {
        "x": x.tolist(),
        "stretches": [[0, len(x) - 1]],
        "y": y.tolist(),
        "cubic": True,
        "penalty": [_short(source.loss(n).penalties(n, np.exp(y))) for n in sizes],
        "whole": None,
        "level": [source.loss(n).level(n) for n in sizes],
        "slope": [source.loss(n).slope(n) for n in sizes],
        "slope_step": None,
        "shallowest": None,
        "deepest": None,
        "end": None,
        "trained": False,
    }


def _surface(loss: SurfaceLoss, low: float, high: float) -> dict[str, Any]:
    """Of one's own losses: kinked where the data end and one unit of ln N beyond, linear between depths of its grid."""
    surface = loss.surface
    first, last = surface.record.low, surface.record.high
    kinks = [low, *(k for k in (first - 1.0, first, last, last + 1.0) if low < k < high), high]
    x: list[float] = []
    stretches = []
    for start, stop in itertools.pairwise(kinks):
        step = STEP_INSIDE if first <= start and stop <= last else STEP_OUTSIDE / (2 if stop - start < 1.1 else 1)
        points = np.linspace(start, stop, max(STRETCH_POINTS, 1 + math.ceil((stop - start) / step)))
        # a kink ends one stretch and begins the next
        x += points[1 if x else 0 :].tolist()
        stretches.append([len(x) - len(points), len(x) - 1])
    sizes = [math.exp(value) for value in x]
    profiles = [surface.profile_over(value, loss.trained) for value in x]
    return {
        "x": x,
        "stretches": stretches,
        "y": profiles[0][0].tolist(),
        "cubic": False,
        # above the shallowest depth; the page subtracts the lowest, which jumps from depth to depth
        "penalty": [_short(drawn.mean(axis=0)) for _, drawn in profiles],
        "whole": WHOLE,
        "level": [loss.level(n) for n in sizes],
        "slope": None,
        "slope_step": SLOPE_STEP,
        "shallowest": surface.frame.shallowest,
        "deepest": surface.frame.deepest,
        "end": math.exp(float(surface.grid[-1])),
        "trained": loss.trained,
    }


def _short(values: np.ndarray) -> list[float]:
    return [round(float(value), 7) for value in values]


def _best(source: Source, low: float, high: float) -> dict[str, Any]:
    """ln of the best depth, of its intervals and of what each form says; None where there is none."""
    forms = {rival.form: rival for rival in source.rivals if rival.form != source.law.form}
    rejected = {form.form: form for form in source.rejected}

    def row(x: float) -> list[Optional]:
        n = math.exp(x)
        others = [form.depth(n)[0] for form in (*forms.values(), *rejected.values())]
        found = source.law.depth(n)
        # one's own losses have one interval
        ends = found[1:] if source.surface is not None else trust.interval(source, n)
        return [_ln(value) for value in (*found, *ends, *others)]

    near = (low, high)
    if source.surface is not None:
        record = source.surface.surface.record
        near = (max(low, record.low - NEAR_DATA), min(high, record.high + NEAR_DATA))
    stops = sorted({low, *near, high})
    x = [low]
    for start, stop in itertools.pairwise(stops):
        step = STEP_OF_BEST if near[0] <= start and stop <= near[1] else STEP_OF_FAR_BEST
        x += np.linspace(start, stop, 1 + math.ceil((stop - start) / step))[1:].tolist()
    rows = _refined(x, row)
    columns = list(zip(*(values for _, values in rows), strict=True))
    at = 5 + len(forms)
    return {
        # draws of one's own losses take turns at being the median: no smooth line
        "cubic": source.surface is None,
        "x": [value for value, _ in rows],
        **dict(zip(("depth", "law_low", "law_high", "low", "high"), columns[:5], strict=True)),
        "rivals": dict(zip(forms, columns[5:at], strict=True)),
        "rejected": dict(zip(rejected, columns[at:], strict=True)),
    }


def _ln(value: Optional) -> Optional:
    return None if value is None or value <= 0 else round(math.log(value), 7)


def _refined(x: Sequence[float], row: Callable[[float], list[Optional]]) -> list[tuple[float, list[Optional]]]:
    """The rows at x, and two more on both sides of each place where a value begins or ceases to exist; where one rises
    steeply, as a bound does before it is lost, the rows between."""
    rows = [(value, row(value)) for value in x]
    out = rows[:1]
    for left, right in itertools.pairwise(rows):
        if _known(left[1]) != _known(right[1]):
            below, above = left, right
            for _ in range(HALVINGS):
                middle = (below[0] + above[0]) / 2.0
                found = (middle, row(middle))
                below, above = (found, above) if _known(found[1]) == _known(left[1]) else (below, found)
            out += [one for one in (below, above) if one not in (left, right)]
        out.append(right)
    return [*_between(out, row, STEEP_HALVINGS), out[-1]]


def _between(
    rows: Sequence[tuple[float, list[Optional]]], row: Callable[[float], list[Optional]], halvings: int
) -> list[tuple[float, list[Optional]]]:
    """All but the last of the rows, with those between that lie further apart than ``STEEP``."""
    out = []
    for left, right in itertools.pairwise(rows):
        out.append(left)
        steps = [abs(a - b) for a, b in zip(left[1], right[1], strict=True) if a is not None and b is not None]
        if halvings and max(steps, default=0.0) > STEEP and right[0] - left[0] > LEAST_STEP:
            middle = (left[0] + right[0]) / 2.0
            out += _between([left, (middle, row(middle)), right], row, halvings - 1)[1:]
    return out


def _known(values: Sequence[Optional]) -> list[bool]:
    return [value is not None for value in values]
