"""What a fit leaves: the curves that its figures draw, as records; fit.json and the tables as their records write them;
and guideline.md for people.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dwsweep import paths, published_law
from dwsweep.errors import InputError
from dwsweep.fit import laws
from dwsweep.fit.curves import Curves, Difference, distinct, pchip
from dwsweep.fit.guideline import OwnGuide, width_at
from dwsweep.fit.laws import EXTRAPOLATION_LIMIT, Law
from dwsweep.fit.surface import LossSurface
from dwsweep.fit.transitions import Pair
from dwsweep.fit.width_law import LawReport
from dwsweep.records import fit as fit_record
from dwsweep.records.columns import AXES
from dwsweep.records.fit import TABLES, FitResult, Surface
from dwsweep.records.record import csv_text
from dwsweep.records.studies import AlongRow, BestAtBudget, ComparedRow, DepthAtBudget, EqualShape
from dwsweep.records.transitions import (
    DepthCurve,
    FitCurves,
    FixedSize,
    GuidelineBand,
    GuidelineRow,
    LawBand,
    PairCurve,
    SmoothCurve,
    SurfaceCut,
    TokenTransition,
    TrainedModel,
    numbers,
)
from dwsweep.text import format_factor

SMOOTH_POINTS = 81
GUIDELINE_POINTS = 29
FIXED_SIZES = 6


def fit_curves(
    curves: Curves | None,
    pairs: Sequence[Pair],
    report: LawReport,
    surface: Surface | None,
    guide: OwnGuide | None,
    guide_forms: Sequence[OwnGuide],
    axis: str,
    confidence: float,
) -> FitCurves:
    """Everything that the figures need; ``curves``: None where there is no usable run."""
    forms = {**report.laws, "published": laws.published()}
    guiding: dict[str, Law | OwnGuide] = {guide.form: guide} if guide else {}
    guiding |= {**{form.form: form for form in guide_forms}, "published": laws.published()}
    return FitCurves(
        axis=axis,
        axis_label=AXES[axis],
        confidence=confidence,
        depths=tuple(_depth(curves, d) for d in curves.depths) if curves else (),
        pairs=pair_curves(pairs),
        laws={name: _band(law, curves) for name, law in forms.items()},
        fixed_n=tuple(_fixed(curves, LossSurface(surface) if surface else None)) if curves else (),
        guideline={name: _guideline(law) for name, law in guiding.items()},
        gpt3=tuple(
            TrainedModel(name=name, n_params=n, depth=shape[0], width=shape[1])
            for name, n, shape in published_law.targets()
            if shape
        ),
    )


def _depth(curves: Curves, depth: int) -> DepthCurve:
    where = curves.at(depth)
    known = curves.noise.known
    smooth = None
    if len(where) >= 2:
        x, values = distinct(curves.x[where], np.vstack([curves.mean[where], curves.draws[:, where]]))
        if len(x) >= 2:
            grid = np.linspace(x[0], x[-1], SMOOTH_POINTS)
            fitted = pchip(x, values, grid)
            se = numbers(fitted[1:].std(axis=0)) if known else None
            smooth = SmoothCurve(x=numbers(np.exp(grid)), mean=numbers(fitted[0]), se=se)
    return DepthCurve(
        depth=depth,
        x=numbers(np.exp(curves.x[where])),
        width=numbers(curves.width[where]),
        n_params=numbers(curves.n_params[where]),
        mean=numbers(curves.mean[where]),
        se=numbers(curves.se[where]) if known else None,
        n=tuple(curves.n[where].tolist()),
        smooth=smooth,
    )


def pair_curves(pairs: Sequence[Pair]) -> tuple[PairCurve, ...]:
    """The difference curves of the pairs that have one."""
    return tuple(_pair(pair, pair.difference) for pair in pairs if pair.difference is not None)


def _pair(pair: Pair, d: Difference) -> PairCurve:
    c = pair.crossing
    critical = c.critical
    return PairCurve(
        shallow=pair.shallow,
        deep=pair.deep,
        status=c.status,
        x=numbers(np.exp(d.x)),
        g=numbers(d.g),
        se=None if critical is None else numbers(d.se),
        low=None if critical is None else numbers(d.g - critical * d.se),
        high=None if critical is None else numbers(d.g + critical * d.se),
        critical=critical,
        root=_exp(c.root),
        root_low=_exp(c.low),
        root_high=_exp(c.high),
        reason=c.reason,
    )


def _band(law: Law, curves: Curves | None) -> LawBand:
    depths = curves.depths if curves else list(published_law.DEPTHS)
    top = max(depths) * 1.15
    grid = np.linspace(max(1.0, min(depths) * 0.7), top, SMOOTH_POINTS)
    with np.errstate(over="ignore"):  # an exponential law at a thousand layers has no width that a float holds
        best, low, high = (np.exp(values) for values in law.ln_width_band(grid))
    return LawBand(
        name=law.name,
        form=law.form,
        depth=numbers(grid),
        width=numbers(best),
        width_low=numbers(low),
        width_high=numbers(high),
        error_tag=law.error_tag,
    )


def _fixed(curves: Curves, surface: LossSurface | None) -> list[FixedSize]:
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
        out.append(
            FixedSize(
                x=math.exp(x),
                depth=tuple(present),
                mean=numbers(mean),
                se=numbers(se) if curves.noise.known else None,
                surface=_cut(surface, float(x)) if surface else None,
            )
        )
    return out


def _cut(surface: LossSurface, x: float) -> SurfaceCut | None:
    optimum = surface.optimum(x)
    if optimum is None:
        return None
    y, drawn = surface.losses(x)
    kept = np.flatnonzero((np.exp(y) >= optimum.depth_min - 1e-9) & (np.exp(y) <= optimum.depth_max + 1e-9))[::2]
    tail = (1.0 - surface.record.confidence) / 2.0
    low, high = np.quantile(drawn[:, kept], [tail, 1.0 - tail], axis=0)
    return SurfaceCut(
        depth=numbers(np.exp(y[kept])),
        mean=numbers(drawn[:, kept].mean(axis=0)),
        low=numbers(low),
        high=numbers(high),
        optimum=optimum,
    )


def _guideline(law: Law | OwnGuide) -> GuidelineBand:
    reach = min(10.0, law.limit)
    n = np.geomspace(law.valid_from / reach, law.valid_to * law.limit, GUIDELINE_POINTS)
    best, low, high = zip(*(law.depth(float(v)) for v in n), strict=True)
    width, narrow, wide = ([width_at(float(v), d) for v, d in zip(n, ds, strict=True)] for ds in (best, high, low))
    return GuidelineBand(
        name=law.name,
        n_params=numbers(n),
        depth=numbers(best),
        depth_low=numbers(low),
        depth_high=numbers(high),
        width=numbers(width),
        width_low=numbers(narrow),
        width_high=numbers(wide),
        valid_from=law.valid_from,
        valid_to=law.valid_to,
    )


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)


def write(result: FitResult, out_dir: Any) -> list[str]:
    """Write fit.json, cells.csv, transitions.csv, guideline.csv and guideline.md (and transitions_by_tokens.csv where
    there are several token counts, equal_budgets.csv and equal_budget_depths.csv where runs were trained at equal
    compute, comparison.csv where arms were compared, along.csv and along_equal.csv of a column, which are alone where
    nothing else was fitted), each atomically; returns the paths.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    out = paths.make_directory(paths.as_path(out_dir))
    texts = {}
    if not result.along_only:
        texts = {f"{name}.csv": csv_text(getattr(result, name), kind) for name, kind in TABLES.items()}
        texts["guideline.md"] = markdown(result.guideline, guideline_notes(result))
    texts["fit.json"] = result.to_json()
    if result.along:
        texts["along.csv"] = csv_text(result.along.rows, AlongRow)
        if result.along.equal:
            texts["along_equal.csv"] = csv_text([row for one in result.along.equal for row in one.rows], EqualShape)
    if result.comparisons:
        texts["comparison.csv"] = csv_text([row for one in result.comparisons for row in one.rows], ComparedRow)
    if result.by_tokens:
        texts["transitions_by_tokens.csv"] = csv_text(result.by_tokens, TokenTransition)
    if result.equal_budgets:
        texts["equal_budgets.csv"] = csv_text(result.equal_budgets.best, BestAtBudget)
        texts["equal_budget_depths.csv"] = csv_text(result.equal_budgets.depths, DepthAtBudget)
    for name, text in texts.items():
        paths.write_atomic(out / name, text)
    return [str(out / name) for name in texts]


def replaced(result: FitResult, out_dir: Any) -> str:
    """Says so where the folder holds a fit of another table or with other options, which ``write`` will replace; empty
    where it holds none, or an earlier one of this table."""
    file = paths.as_path(out_dir) / "fit.json"
    if not file.exists():
        return ""
    try:
        old, new = fit_record.read(file).provenance, result.provenance
    except InputError:
        return f"{file} could not be read and is replaced"
    if old.input != new.input:
        return f"replaces the fit of {old.input} in {file.parent}; --out DIR keeps both"
    was, now = old.options.to_dict(), new.options.to_dict()
    changed = [f"{name} {was[name]!r} → {now[name]!r}" for name in now if was.get(name) != now[name]]
    return f"replaces the fit in {file.parent} ({', '.join(changed)}); --out DIR keeps both" if changed else ""


def guideline_notes(result: FitResult) -> list[str]:
    """What a reader of guideline.md must know."""
    notes = [
        f"Law: {result.law_statement}.",
        "N counts non-embedding parameters, 12·L·d². Intervals are at the fixed budget: the narrow end of d goes with "
        "the deep end of L.",
        f"Beyond {EXTRAPOLATION_LIMIT:g} times outside the range of its transitions a law gives no number.",
    ]
    if result.own_law:
        notes.append(
            "Best depth: where the loss surface of all depths is least. Inside the data that is the loss itself; "
            "outside, the forms of the law that the data do not reject, averaged by their evidence. Its interval holds "
            "the form, the parameters and the noise."
        )
    else:
        notes.append(
            "The published law gives the depth at which the next depth of its grid starts to win, so the best depth "
            "lies between the two."
        )
        notes.append(
            f"The rows follow {published_law.NAME}: ln d = {published_law.A} + {published_law.B}·L (arXiv 2006.12467); "
            f"its intervals rest on a covariance that is {published_law.COVARIANCE_TAG}."
        )
    return notes + [f"Warning: {line}" for line in result.warnings]


def markdown(rows: Sequence[GuidelineRow], notes: Sequence[str]) -> str:
    """guideline.md: the same rows as a table, with what must be known to read them."""
    lines = [
        "# Guideline: depth and width at a budget",
        "",
        "| model | N | trained L × d | it costs, nats | best L | best d | build | rivals' L | out of range by | law |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        trained = f"{row.trained_depth} × {row.trained_width}" if row.trained_depth else "–"
        build = f"{row.depth_int} × {row.width_int}" if row.depth_int else "–"
        rivals = "–"
        if row.rival_depth_min is not None or row.rival_depth_max is not None:
            rivals = f"{_end(row.rival_depth_min, 1)} … {_end(row.rival_depth_max, 1)}"
        factor = row.extrapolation_factor
        cost = _interval(row.loss_penalty, row.penalty_low, row.penalty_high, 4)
        lines.append(
            f"| {row.name} | {row.n_params:.4g} | {trained} | {cost} "
            f"| {_interval(row.depth, row.depth_low, row.depth_high, 1)} "
            f"| {_interval(row.width, row.width_low, row.width_high, 0)} "
            f"| {build} | {rivals} | {'inside' if factor <= 1 else f'{format_factor(factor)}×'} | {row.law} |"
        )
    return "\n".join([*lines, "", *[f"- {note}" for note in notes], ""])


def _interval(value: float | None, low: float | None, high: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}f} ({_end(low, digits)} … {_end(high, digits)})"


def _end(value: float | None, digits: int) -> str:
    return "unbounded" if value is None else f"{value:.{digits}f}"
