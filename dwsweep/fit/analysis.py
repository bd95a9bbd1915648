"""The whole analysis in order: table → cells → curves → transitions → width law → guideline."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit import figures_data, published
from dwsweep.fit.guideline import guideline_rows
from dwsweep.fit.law_selection import LawReport, fit_laws
from dwsweep.fit.pairs import Pair, tie_warnings, transition_rows
from dwsweep.fit.surface import fit_surface
from dwsweep.fit.table import Table, read_table
from dwsweep.fit.token_group import Part

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class FitResult:
    """What a table of losses says about depth and width. Rows are dicts with the names of DESIGN's files.

    cells: one row a shape (cells.csv). transitions: one row a pair and estimator (transitions.csv). width_law: the law
    ln d_x = a + b·L with its errors, or None where there is no law to be had (``law_statement`` says why). rivals: the
    forms compared. laws: the bounded forms with their regions; guideline_law: the one that guides (None: the published
    law). surface: loss over (ln N, ln L), or None. guideline: rows of guideline.csv, from the law of the sweep where
    there is one and otherwise from the published law, as the column ``law`` says. warnings: one line each.
    noise: what the errors rest on. by_tokens: transitions at each token count where the table holds several. curves:
    what figures draw. rates: the runs of the shapes trained at several learning rates. provenance: input hash,
    versions, options.
    """

    cells: list[dict[str, Any]]
    transitions: list[dict[str, Any]]
    width_law: dict[str, Any] | None
    law_statement: str
    rivals: list[dict[str, Any]]
    laws: list[dict[str, Any]] = field(repr=False)
    guideline_law: str | None
    surface: dict[str, Any] | None
    guideline: list[dict[str, Any]]
    published: dict[str, Any]
    transition_cov: dict[str, Any]
    warnings: list[str]
    noise: dict[str, Any]
    by_tokens: list[dict[str, Any]]
    curves: dict[str, Any] = field(repr=False)
    rates: list[dict[str, Any]] = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        from dwsweep.report.terminal.fit_tables import to_text

        return to_text(self)

    def __rich__(self) -> RenderableType:
        return self.to_rich()

    def to_rich(self) -> RenderableType:
        """Tables that fit a terminal of 100 columns."""
        from dwsweep.report.terminal.fit_tables import to_rich

        return to_rich(self)


def fit_table(
    table: Any,
    *,
    axis: str = "n_params",
    noise: float | None = None,
    columns: Any = None,
    where: Iterable[str] = (),
    draws: int = 2000,
    seed: int = 0,
    confidence: float = 0.95,
    params: Iterable[float] = (),
    documents: bool = True,
) -> FitResult:
    """Depth-efficiency transitions, width law and guideline of any table of runs.

    table: a sweep directory, a CSV, TSV, JSON, JSONL or Parquet file, a list of dicts, or a dict of columns; at least
    depth, width and loss (held-out nats per token); n_params defaults to 12·L·d_x²; seed, learning_rate, tokens, status
    and the other columns of results.csv are used where present.
    axis: what "equal size" means: n_params, n_params_total, flops or device_seconds.
    noise: standard deviation of one run's loss in nats, instead of an estimate.
    columns: ``{ours: theirs}``; where: row filters. draws, seed: Gaussian draws behind the errors. confidence: of every
    interval. params: further budgets (non-embedding parameters) for the guideline.
    documents: use the held-out losses per document of a sweep directory, where every run has them.

    Poor data give statuses and statements, never an exception. Raises InputError for an unreadable table, a missing
    column, or an option outside its range.
    """
    from threadpoolctl import threadpool_limits

    _check_options(draws, confidence)
    where = [where] if isinstance(where, str) else list(where)
    data = read_table(table, columns, where)
    # its matrices are small: handing them to a second thread takes longer than multiplying them
    with threadpool_limits(1, user_api="blas"):
        return _fit(data, axis, noise, columns, where, draws, seed, confidence, params, documents)


def _fit(
    data: Table,
    axis: str,
    noise: float | None,
    columns: Any,
    where: list[str],
    draws: int,
    seed: int,
    confidence: float,
    params: Iterable[float],
    documents: bool,
) -> FitResult:
    groups = _token_groups(data.rows)
    main = max(groups, key=lambda key: (len({(r["depth"], r["width"]) for r in groups[key]}), key or 0.0))
    parts = {key: Part.of(data, rows, axis, noise, draws, seed, confidence, documents) for key, rows in groups.items()}
    part = parts[main]
    warnings = list(part.warnings)
    if len(groups) > 1:
        others = ", ".join(f"{key:.4g}" for key in sorted(k for k in groups if k is not None) if key != main)
        warnings.append(f"tokens: the fit uses the runs at {main:.4g} tokens; transitions at {others} are beside it")
    nothing = LawReport.none("no finished run with a usable loss")
    report = fit_laws(part.curves, part.pairs, confidence) if part.curves else nothing
    surface = fit_surface(part.curves, confidence) if part.curves else None
    warnings += report.warnings
    law = report.guideline_law or published.law()
    guideline_surface = surface if axis == "n_params" else None
    guideline = guideline_rows(law, report.rival_laws, params, guideline_surface)
    by_tokens = [
        {"tokens": key, **row}
        for key, other in sorted(parts.items(), key=lambda item: item[0] or 0.0)
        for row in (transition_rows(other.curves, other.pairs, confidence) if other.curves else [])
    ]
    transitions = transition_rows(part.curves, part.pairs, confidence) if part.curves else []
    warnings += tie_warnings(transitions)
    return FitResult(
        cells=part.cell_rows(),
        transitions=transitions,
        width_law=report.width_law,
        law_statement=report.statement,
        rivals=report.rivals,
        laws=report.law_rows(),
        guideline_law=report.guideline_law.form if report.guideline_law else None,
        surface=surface.to_dict() if surface else None,
        guideline=guideline,
        published=_published(),
        transition_cov=_transition_cov(part.pairs),
        warnings=warnings,
        noise=part.noise_dict(),
        by_tokens=by_tokens if len(groups) > 1 else [],
        curves=figures_data.curves_dict(part.curves, part.pairs, report, surface, axis, confidence),
        rates=part.rate_rows(),
        provenance={
            "input": data.source,
            "input_sha256": data.sha256,
            "rows_read": data.n_read,
            "rows_used": len(part.selection.runs),
            "versions": _versions(),
            "options": {
                "axis": axis,
                "noise": noise,
                "columns": columns if columns is None or isinstance(columns, dict) else list(columns),
                "where": where,
                "draws": draws,
                "seed": seed,
                "confidence": confidence,
                "documents": documents,
            },
        },
    )


def _check_options(draws: int, confidence: float) -> None:
    if not (isinstance(draws, int) and draws >= 100):
        raise InputError(f"draws: {draws!r}; an integer of at least 100 is allowed")
    if not 0.5 <= confidence < 1.0:
        raise InputError(f"confidence: {confidence!r}; a number from 0.5 to below 1 is allowed")


def _token_groups(rows: Sequence[dict[str, Any]]) -> dict[float | None, list[dict[str, Any]]]:
    """Rows by token count, where one shape, learning rate and seed was measured at several; otherwise all in one."""
    seen: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row.get("tokens") is not None:
            key = (row["depth"], row["width"], row.get("learning_rate"), row.get("seed"))
            seen[key].add(row["tokens"])
    several = sum(len(tokens) > 1 for tokens in seen.values())
    if not several or several < 0.5 * len(seen):
        return {None: list(rows)}
    groups: dict[float | None, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.get("tokens") is not None:
            groups[row["tokens"]].append(row)
    return dict(groups)


def _transition_cov(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Covariance of the crossings' ln N (delta method from the shared draws: δx = −δg(x*)/g'(x*))."""
    crossed = [p for p in pairs if p.difference is not None and p.crossing.root is not None and p.crossing.slope]
    if not crossed:
        return {"pairs": [], "cov": []}
    columns = []
    for p in crossed:
        d, c = p.difference, p.crossing
        assert d is not None and c.root is not None and c.slope
        i = int(np.clip(np.searchsorted(d.x, c.root), 1, len(d.x) - 1))
        w = (c.root - d.x[i - 1]) / (d.x[i] - d.x[i - 1])
        columns.append(-((1 - w) * d.deviations[:, i - 1] + w * d.deviations[:, i]) / c.slope)
    cov = np.atleast_2d(np.cov(np.stack(columns), bias=True))
    return {"pairs": [[p.shallow, p.deep] for p in crossed], "cov": cov.tolist()}


def _published() -> dict[str, Any]:
    return {
        "name": published.NAME,
        "form": "exponential",
        "a": published.A,
        "b": published.B,
        "cov": [list(row) for row in published.COVARIANCE],
        "cov_tag": published.COVARIANCE_TAG,
        "valid_from": published.VALID_FROM,
        "valid_to": published.VALID_TO,
        "guideline": guideline_rows(published.law()),
    }


def _versions() -> dict[str, str]:
    import scipy

    from dwsweep import __version__

    return {
        "dwsweep": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
