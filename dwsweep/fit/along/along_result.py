"""The frame of a fit whose runs are compared along a column, and not by depth over sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dwsweep.fit.analysis import TokenGroup, versions
from dwsweep.fit.cells import Selection
from dwsweep.fit.curves import Curves
from dwsweep.fit.guideline import published_record
from dwsweep.fit.law_selection import LawReport
from dwsweep.fit.output import fit_curves
from dwsweep.fit.table import Table
from dwsweep.records.fit_result import FitOptions, FitResult, Provenance, TransitionCovariance
from dwsweep.records.fit_rows import LeftOutRun


def without_curves(
    data: Table,
    options: FitOptions,
    used: int,
    warnings: list[str],
    names: Mapping[int, str],
    curves: Curves,
    left: list[LeftOutRun],
) -> FitResult:
    """The frame of a result whose runs are compared otherwise than by depth and size. used: runs. names: what each
    curve is called; curves: whose noise is reported. left: runs that were left out."""
    nothing = LawReport.none("not asked for: depths are compared by a plain fit")
    noise = TokenGroup(Selection([], {}, {}, [], None), curves, [], [], None).noise()
    sigma = {names.get(int(d), d): s for d, s in (noise.sigma or {}).items()}
    df = {names.get(int(d), d): v for d, v in (noise.df or {}).items()}
    return FitResult(
        cells=[],
        transitions=[],
        width_law=None,
        law_statement=nothing.statement,
        rivals=[],
        laws=[],
        guideline_law=None,
        surface=None,
        guideline=[],
        published=published_record(),
        transition_cov=TransitionCovariance(pairs=(), cov=()),
        warnings=warnings,
        noise=replace(noise, sigma=sigma, df=df),
        curves=fit_curves(None, [], nothing, None, None, [], options.axis, options.confidence),
        left_out=left,
        provenance=Provenance(
            input=data.source,
            input_sha256=data.sha256,
            rows_read=data.n_read,
            rows_used=used,
            columns_taken=data.taken,
            versions=versions(),
            options=options,
        ),
    )
