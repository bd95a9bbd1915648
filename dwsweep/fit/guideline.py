"""Guideline: best depth and width at a budget with interval, alternatives and limits.

A fitted best depth guides if the losses bound one (``OwnGuide``, with the interface of a law, and the forms behind
it as laws), else the published law. The first sentences of a fit, for a hurried reader, are made here too: the
best depth over all sizes, and the transition of each pair by all losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from dwsweep import published_law
from dwsweep.errors import InputError, argument
from dwsweep.fit.ask import LossSurface, accepted_forms, quantiles, transitions
from dwsweep.fit.laws import (
    EXTRAPOLATION_LIMIT,
    FORMS,
    GRID_STEP,
    Law,
    ellipse,
    law_interval,
    outside,
    published,
    published_alternatives,
)
from dwsweep.fit.noise import chi2_quantile
from dwsweep.records.fit import NO_FORM_FITS, FitResult, HeldOut, PublishedLaw, Surface
from dwsweep.records.transitions import GuidelineRow, SizedOptimum, layers
from dwsweep.shapes import STANDARD, width_at
from dwsweep.text import SHORT, format_count

AVERAGE = "average"
FORMS_ALONE = "outside the data the forms alone; `dwsweep guide --fit` adds public evidence there"
DEPTHS_FOR_A_LAW = 4  # three depths cannot contradict a law of two constants

WIDTH_MULTIPLE = 64
# scatter that a depth shares over the scatter of a shape, and its probability, from which a line names it
MUCH_SHARED, LEAST_SHARED = 0.7, 0.8
SAME_BLOCK = 0.02  # difference of ln of weights over d² of nets with equal blocks
OWN_LIMIT = 10.0  # factor outside its data up to which a fit answers; beyond it `dwsweep guide` does


@dataclass(frozen=True)
class OwnGuide:
    """The best depth by the loss surface of a sweep: its profile inside the data, the average of the forms outside.

    valid_from, valid_to: the sizes at which the best depth lies between the depths trained.
    """

    surface: LossSurface
    name: str
    valid_from: float
    valid_to: float
    form: str = AVERAGE

    def depth(self, n_params: float) -> tuple[float | None, float | None, float | None]:
        """(L*, low, high) at ``n_params``; None if there is none, or for an end without a bound."""
        found = self.surface.at(n_params)
        return found.value, found.low, found.high

    def extrapolation(self, n_params: float) -> float:
        """Factor by which ``n_params`` lies outside the valid range; 1 inside."""
        return outside(n_params, self.valid_from, self.valid_to)


def own_guide(record: Surface | None) -> OwnGuide | None:
    """None if there is no surface, where the data bound the best depth at fewer than two of their sizes, or where
    there are three depths, or a best depth that falls with size, which no form of the law can: they show a best depth
    inside the data (``optima``), and have no law."""
    if record is None or len(record.spans) < DEPTHS_FOR_A_LAW or record.falls:
        return None
    surface = LossSurface(record)
    if not surface.measured:
        return None
    inside = _answered(record)
    shares = ", ".join(f"{form.form} {form.weight:.2f}" for form in accepted_forms(record))
    name = f"own: loss of all depths, forms by evidence ({shares}); {FORMS_ALONE}"
    return OwnGuide(surface, name, min(inside), max(inside))


def _answered(record: Surface) -> list[float]:
    """Sizes at which the losses bound the best depth: between the trained depths, or at a single layer."""
    return [row.n_params for row in record.optima if row.depth is not None or row.is_one_layer]


def falling_warning(surface: Surface, axis: str) -> list[str]:
    """Warning about a best depth that falls with size, which no form of the law allows."""
    if surface.falls is None:
        return []
    small, large = surface.falls
    return [
        f"surface: the best depth falls with size, contrary to every form of the law: at least {small.depth_low:.3g} "
        f"layers at {axis} {format_count(small.n_params)}, at most {large.depth_high:.3g} at "
        f"{format_count(large.n_params)}; no answer is given outside the sizes of the losses"
    ]


def held_out_warnings(surface: Surface, axis: str) -> list[str]:
    """Warnings about a surface that fails to predict held-out shapes, or the losses of a held-out size."""
    found = surface.held_out
    lines = [held_out_line(found)] if found is not None and found.too_few else []
    if found is not None and found.jumps and found.steepest and found.steepest_at:
        deeper = "deeper" if found.steepest < 0.0 else "shallower"
        lines.append(
            f"surface: the best depth jumps near {axis} {format_count(found.steepest_at)}, where losses favour "
            f"{deeper} nets by {abs(found.steepest):.1f} standard deviations more than the other sizes predict; near "
            "it the intervals of the best depth are too narrow"
        )
    return lines


def held_out_line(found: HeldOut) -> str:
    far = "far" if found.worst is None else f"{found.worst:+.1f} standard deviations"  # None: no noise is known
    return (
        f"surface: {NO_FORM_FITS}, {found.shapes - found.inside} of {found.shapes} shapes lie outside the 95 % "
        f"intervals predicted from the other shapes; the farthest is {found.worst_depth}×{found.worst_width:.4g}, off "
        f"by {far}"
    )


def depth_scatter_warnings(surface: LossSurface, unit: str) -> list[str]:
    """Warnings about errors that all shapes of one depth share."""
    posterior, unit = surface.posterior, SHORT[unit]
    lines = [
        f"surface: depth {math.exp(y):.0f} lies {abs(off):.2g} {unit} {'above' if off > 0 else 'below'} the others at "
        f"all sizes (± {2 * sd:.1g}), which no smooth effect of depth does; the best depth rests on the other depths: "
        "check how its nets were trained"
        for y, off, sd in posterior.odd()
    ]
    ratio = posterior.of_depth / np.exp(posterior.stacked("scatter"))
    if np.mean(ratio > MUCH_SHARED) > LEAST_SHARED:
        lines.append(
            f"surface: shapes of one depth share a scatter of {np.median(posterior.of_depth):.2g} {unit} (sd), which "
            "more seeds do not average out; it widens the intervals of the best depth"
        )
    return lines


def guide_inside(record: Surface | None) -> OwnGuide | None:
    """Guide valid only inside the observed sizes: used when the data support interpolation but not extrapolation.

    None if they show no best depth.
    """
    shown = _answered(record) if record else []
    if record is None or not shown:
        return None
    return OwnGuide(LossSurface(record), "own: loss of all depths, inside the data", min(shown), max(shown))


def form_guides(guide: OwnGuide) -> list[OwnGuide]:
    """Guides by each form that is not rejected, the most probable first: inside the sizes with the data's departures
    from the form, outside them by the form alone."""
    record = guide.surface.record
    return [
        replace(guide, surface=LossSurface(record, only=form.form), name=f"own: {form.form} form", form=form.form)
        for form in accepted_forms(record)
    ]


def map_law(guide: OwnGuide, weights: float = STANDARD) -> Law | None:
    """The most probable form as a law with its confidence region: ln d at the shallowest and the deepest depth, from
    x_T there, are the surface's estimates. None if every form of the law is rejected. weights: of a layer over d²."""
    record = guide.surface.record
    form = next((form for form in accepted_forms(record) if form.form in FORMS), None)
    if form is None:
        return None
    first, last = (float(end(span.depth for span in record.spans)) for end in (min, max))
    ends = transitions(LossSurface(record, only=form.form).posterior, form.form)
    logs = (ends - np.log([weights * first, weights * last])) / 2.0
    centre, covariance = logs.mean(axis=0), np.cov(logs, rowvar=False)
    level = float(chi2_quantile(record.confidence, 1.0))
    around = ellipse((float(centre[0]), float(centre[1])), covariance + 1e-12 * np.eye(2), level, 120)
    theta = FORMS[form.form].from_ends(centre, first, last)
    return Law(
        f"own: {form.form} form of the loss surface",
        form.form,
        (float(theta[0]), float(theta[1])),
        guide.valid_from,
        guide.valid_to,
        FORMS[form.form].from_ends(around, first, last),
    )


def guides(fit: FitResult, inside: bool = False) -> tuple[OwnGuide, list[OwnGuide]] | None:
    """(guide, forms that are not rejected) of a fit, with ``inside`` for the sizes of its data alone; None if it has no
    answer of its own."""
    guide = guide_inside if inside else own_guide
    found = guide(fit.surface) if fit.curves.axis == "n_params" else None
    return None if found is None else (found, form_guides(found))


def guideline_row(
    name: str,
    n_params: float,
    trained: tuple[int, int] | None,
    law: Law | OwnGuide,
    alternatives: Sequence[Law | OwnGuide] = (),
) -> GuidelineRow:
    """One row of guideline.csv. Values that do not exist (or that the law refuses) are None, with the reason in `law`.

    rival_depth_min, rival_depth_max: over the intervals of every form that is not rejected.
    A published law has the interval of `guide --law` (``law_interval``). depth_low … width_high: at the fixed budget,
    so width_low = √(N/12·depth_high) goes with depth_high. depth_int, width_int: a shape one can build, the width
    rounded to a multiple of 64 (smaller nets: 8).
    """
    factor = law.extrapolation(n_params)
    limit = OWN_LIMIT if isinstance(law, OwnGuide) else EXTRAPOLATION_LIMIT
    if factor > limit:
        why = f"{law.name}: refused, more than {limit:g} times outside its range"
        return _row_without_number(name, n_params, trained, factor, why)
    depth, low, high = law.depth(n_params)
    if isinstance(law, Law) and depth is not None:
        forms = [law, *(form for form in alternatives if isinstance(form, Law))]
        low, high = law_interval(forms, n_params, GRID_STEP)
    if depth is None:
        why = f"{law.name}: no optimum, the loss falls up to the deepest net in its range"
        if isinstance(law, Law):
            why = f"{law.name}: no optimum, its width does not grow with depth"
        row = _row_without_number(name, n_params, trained, factor, why)
        if low is None and high is None:
            return row
        row = replace(
            row,
            law=f"{law.name}: beyond the depths trained, only a bound",
            depth_low=low,
            depth_high=high,
            width_low=width_at(n_params, high),
            width_high=width_at(n_params, low),
        )
        return row if trained is None or isinstance(law, Law) else _with_cost(row, law, trained[0])
    depth_int, width_int = nearest_shape(n_params, depth)
    ends = alternative_range(alternatives, n_params) if alternatives else (None, None)
    row = replace(
        _row_without_number(name, n_params, trained, factor, law.name),
        depth=depth,
        depth_low=low,
        depth_high=high,
        width=width_at(n_params, depth),
        width_low=width_at(n_params, high),
        width_high=width_at(n_params, low),
        depth_int=depth_int,
        width_int=width_int,
        n_params_actual=12 * depth_int * width_int**2,
        rival_depth_min=ends[0],
        rival_depth_max=ends[1],
        depth_decimals=law.surface.decimals(n_params) if isinstance(law, OwnGuide) else None,
    )
    return row if trained is None or isinstance(law, Law) else _with_cost(row, law, trained[0])


def _with_cost(row: GuidelineRow, guide: OwnGuide, depth: int) -> GuidelineRow:
    """Add the trained depth's excess loss at its size, nats with interval, and the size in percent at which the best
    depth has the same loss; nothing outside the sizes and depths of the data."""
    surface, n_params = guide.surface, row.n_params
    inside = surface.record.low <= math.log(n_params) <= surface.record.high
    if not inside or not surface.shallowest - 1e-9 <= depth <= surface.deepest + 1e-9:
        return row
    drawn = surface.penalties(n_params, np.array([depth]))[:, 0]
    low, _, high = quantiles(drawn, surface.record.confidence)
    own = surface.level(math.log(n_params)) + float(np.median(drawn))
    smaller = np.linspace(math.log(n_params), surface.record.low, 40)
    equal = next((x for x in smaller if surface.level(float(x)) >= own), None)
    return replace(
        row,
        loss_penalty=float(np.median(drawn)),
        penalty_low=float(low),
        penalty_high=float(high),
        equivalent_size_percent=None if equal is None else 100.0 * math.exp(equal - math.log(n_params)),
    )


def _row_without_number(
    name: str, n_params: float, trained: tuple[int, int] | None, factor: float, law: str
) -> GuidelineRow:
    known = {"name": name, "n_params": n_params, "law": law, "extrapolation_factor": factor}
    shape = {"trained_depth": trained[0], "trained_width": trained[1]} if trained else {}
    return GuidelineRow(**{**dict.fromkeys(GuidelineRow.keys()), **known, **shape})  # type: ignore[arg-type]


def alternative_range(laws: Sequence[Law | OwnGuide], n_params: float) -> tuple[float | None, float | None]:
    """Least and greatest end of the intervals of ``laws`` at a budget; None if one of them has no bound."""
    depths = [law.depth(n_params) for law in laws]
    low = [d[1] for d in depths if d[1] is not None]
    high = [d[2] for d in depths if d[2] is not None]
    return min(low) if len(low) == len(depths) else None, max(high) if len(high) == len(depths) else None


def nearest_shape(n_params: float, depth: float) -> tuple[int, int]:
    """(depth, width) of a shape that one can build, the width rounded to a multiple of 64 (smaller nets: 8)."""
    layers = max(1, round(depth))
    multiple = WIDTH_MULTIPLE if n_params / (12.0 * depth) >= (8 * WIDTH_MULTIPLE) ** 2 else 8
    return layers, max(multiple, multiple * round(math.sqrt(n_params / (12.0 * layers)) / multiple))


def layer_weights(result: FitResult, depth: float) -> float | None:
    """Weights of a layer over d_x², of nets like the ones that were compared: at the held inner width, else as trained
    at the depths about ``depth``; None where nets of one depth differ."""
    if result.adjusted and result.adjusted.layer_weights:
        return result.adjusted.layer_weights
    found: dict[int, list[float]] = {}
    for cell in result.cells:
        if not cell.excluded and cell.n_params:
            found.setdefault(cell.depth, []).append(math.log(cell.n_params / (cell.depth * cell.width**2)))
    if any(max(ln) - min(ln) > SAME_BLOCK for ln in found.values()):
        return None
    depths = sorted(found)
    return math.exp(np.interp(math.log(depth), np.log(depths), [float(np.mean(found[d])) for d in depths]))


def guideline_rows(
    law: Law | OwnGuide, alternatives: Sequence[Law | OwnGuide] = (), params: Iterable[float] = ()
) -> list[GuidelineRow]:
    """Rows for the GPT-3 models at their own 12·L·d², 1T, and each of ``params`` (non-embedding parameters)."""
    targets = list(published_law.targets())
    for value in params:
        try:
            n = float(value)
        except (TypeError, ValueError):
            n = math.nan
        if not (math.isfinite(n) and n > 0):
            raise InputError(f"{argument('params')}: {value!r}; must be a positive number of non-embedding parameters")
        targets.append((format_count(n), n, None))
    return [guideline_row(name, n, shape, law, alternatives) for name, n, shape in targets]


@cache
def published_record() -> PublishedLaw:
    """Published law with its guideline, for fit.json."""
    law = published()
    return PublishedLaw(
        **law.columns(),
        cov=published_law.COVARIANCE,
        cov_tag=law.error_tag,
        guideline=tuple(guideline_rows(law, published_alternatives())),
    )


def headline(record: Surface, size: str) -> str:
    """Sentence on the growth of the best depth with ``size`` (the axis in words) and its values at up to three sizes;
    empty if the data bound it nowhere."""
    if record.flat:
        return (
            f"No effect of depth is shown: losses that depend on {size} alone fit as well (p = {record.effect_p:.2g})."
        )
    known = record.bounded
    if not known:
        return ""
    below = [row for row in known if row.at_edge == "below"]
    first = below[-1] if below and known[0] is below[0] and len(below) < len(known) else known[0]
    later = [row for row in known if row.n_params > first.n_params]
    both = [row for row in later[:-1] if row.depth_interval.bounded]
    shown = [first, *both[len(both) // 2 : len(both) // 2 + 1], *later[-1:]]
    listed = [
        f"{_depth(record, row)} {'up to' if row in below else 'at'} {format_count(row.n_params)}" for row in shown
    ]
    return f"{_trend(record, known[0], known[-1], size)}: {', '.join(listed)}."


def _trend(record: Surface, small: SizedOptimum, large: SizedOptimum, size: str) -> str:
    """Direction of the trend from paired posterior draws, within the depths trained: beyond them a draw rests on the
    form of its law, which no loss has tested.

    Paired differences can be significant although the intervals overlap.
    """
    surface = LossSurface(record)
    ends = math.log(surface.shallowest), math.log(surface.deepest)
    before, after = (np.clip(surface.drawn_depths(row.ln_x), *ends) for row in (small, large))
    sure = (1.0 + record.confidence) / 2.0
    if np.mean(after > before) >= sure:
        return f"The best depth grows with {size}"
    if np.mean(after < before) >= sure:
        return f"The best depth falls with {size}"
    return f"The best depth is not shown to change with {size}"


def _depth(record: Surface, row: SizedOptimum) -> str:
    text = layers(row.digits)
    low, high = (None if end is None else text(end) for end in (row.depth_low, row.depth_high))
    best = text(row.depth) if row.depth else "1" if row.is_one_layer else record.beyond(row)
    if row.is_one_layer and (high is None or high == text(1.0)):
        return best  # an upper end of one layer only means that one layer is best
    if low and high:
        return f"{best} ({low} to {high})"
    return f"{best} (below {high})" if high else f"{best} (above {low})"
