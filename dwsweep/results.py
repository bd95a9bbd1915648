"""The library: ``fit_table`` and ``guide``, whose results show themselves as text, figures and frames."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

from dwsweep.errors import InputError, argument, check_keywords
from dwsweep.fit import analysis
from dwsweep.guide.advice import Answer, answer
from dwsweep.guide.guideline import answered
from dwsweep.guide.losses import TrainingTokens
from dwsweep.guide.shapes import Options
from dwsweep.guide.sources import source_of
from dwsweep.records.fit import FitResult
from dwsweep.records.record import to_dict
from dwsweep.records.transitions import GuidelineRow
from dwsweep.report import fit_report, guide_report
from dwsweep.report.console import render
from dwsweep.report.figures import laws, registry, style
from dwsweep.report.markup import html_of
from dwsweep.terminal import plain_text
from dwsweep.text import parse_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dwsweep.report.document import Part

Rows = list[dict[str, Any]]


class Shown:
    """Result that shows itself as text, figures and tables, from ``_document``, ``_figures`` and ``tables``."""

    _document: Callable[[], Sequence[Part]]
    _figures: Callable[[], dict[str, Callable[[], Figure]]]
    tables: Callable[[], dict[str, Rows]]

    def summary(self) -> str:
        """Text that the command prints, ``fit`` with ``--full``, at most 100 columns wide."""
        return plain_text(render(self._document()))

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """Sentences and tables, for a notebook."""
        return f"<div>{html_of(self._document())}</div>"

    def frame(self, name: str) -> Any:
        """One of the ``tables`` as a pandas frame, or a polars frame where only polars is installed.

        Raises:
            InputError: there is no such table, or neither library is installed.
        """
        rows = _chosen(self.tables(), name)
        for library in ("pandas", "polars"):
            try:
                return __import__(library).DataFrame(rows)
            except ImportError:
                continue
        raise InputError(f"name: {name!r}; a frame needs pandas or polars; allowed without: tables()[{name!r}]")

    def plot(self, name: str | None = None) -> Figure:
        """Figure of this name as a Matplotlib figure, which a notebook shows; its ``axes`` can be drawn on.

        name: one of the figures that the fit has, the first by default; an unknown name is refused with all of them.
        """
        made = self._figures()
        with style.styled():
            drawn = _chosen(made, next(iter(made), "") if name is None else name)()
        # IPython asks an object for its picture by this name; a figure made without pyplot has none
        vars(drawn)["_repr_png_"] = lambda: style.picture(lambda: drawn, "png")
        return drawn


Value = TypeVar("Value")


def _chosen(named: Mapping[str, Value], name: str) -> Value:
    if name not in named:
        raise InputError(f"name: {name!r}; allowed: {', '.join(named) or 'none, as nothing here can be shown'}")
    return named[name]


class TableResult(Shown, FitResult):
    """Fit of a table of losses: the record of ``fit.json``, which shows itself."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {next(iter(fit_report.answer(self)), 'no answer')}"

    def _document(self) -> Sequence[Part]:
        return fit_report.document(self)

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        return registry.figures(self)

    def tables(self) -> dict[str, Rows]:
        """Rows of each table: answers, cells, transitions, guideline, and the values along a column."""
        names = ("answers", "cells", "transitions", "guideline")
        found = {name: getattr(self, name) for name in names}
        if self.along:
            found["along"] = self.along.rows
        return {name: [record.to_dict() for record in records] for name, records in found.items()}

    @property  # type: ignore[override]
    def guideline(self) -> list[GuidelineRow]:
        """Answers of ``guide --fit`` at the usual sizes, made when first read: they take as long as the fit."""
        held = vars(self)
        if held.pop("_unanswered", False):
            held["_guideline"] = answered(self, held["_guideline"])
        return held["_guideline"]  # type: ignore[no-any-return]

    @guideline.setter
    def guideline(self, rows: list[GuidelineRow]) -> None:
        vars(self)["_guideline"] = rows

    def __eq__(self, other: object) -> bool:
        """Test that the fields are equal; ``other`` may be the record that was read back."""
        names = [field.name for field in fields(FitResult)]
        return isinstance(other, FitResult) and all(getattr(self, name) == getattr(other, name) for name in names)


class Guidance(Answer, Shown):
    """Guidance on shapes to build, with the fields of ``dwsweep.guide.advice.Answer``."""

    def __repr__(self) -> str:
        return (
            f"Guidance: {len(self.budgets)} budgets, {len(self.verdicts)} verdicts, {len(self.overview)} listed sizes"
        )

    def _document(self) -> Sequence[Part]:
        return guide_report.document(self)

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        return laws.figures(self)

    def tables(self) -> dict[str, Rows]:
        """Rows of budgets, candidate shapes, models built near them, public sources, verdicts and overview, if any.

        Shapes name the budget and the source that they are of.
        """
        found = {
            "budgets": [{"budget": row.budget, **to_dict(row.optimum)} for row in self.budgets],
            "shapes": [
                {"budget": row.budget, "source": row.optimum.source, **to_dict(shape)}
                for row in self.budgets
                for shape in row.candidates
            ],
            "built": [{"budget": row.budget, **to_dict(one)} for row in self.budgets for one in row.built],
            "sources": [{"budget": row.budget, **to_dict(one)} for row in self.budgets for one in row.by_source],
            "verdicts": [
                {"depth": row.depth, "width": row.width, "verdict": row.verdict, "best": to_dict(row.optimum)}
                for row in self.verdicts
            ],
            "overview": [to_dict(row) for row in self.overview],
        }
        return {name: rows for name, rows in found.items() if rows}


def _like(kind: type[Any], found: Any) -> Any:
    """Record ``found`` as the class that shows itself."""
    return kind(**{field.name: getattr(found, field.name) for field in fields(found)})


def _tables(given: Any) -> list[Any]:
    """Tables of an argument that takes one table or a list of them; rows of dicts are one table."""
    if isinstance(given, list | tuple):
        rows = all(isinstance(one, Mapping) and not any(map(_is_column, one.values())) for one in given)
        return [given] if rows and given else list(given)
    return [given]


def _is_column(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str)


def _settled(tables: Iterable[Any]) -> None:
    """Bring each sweep directory's results.csv up to date, as ``dwsweep fit`` does before reading it; a
    table that is written again is a warning."""
    from dwsweep.sweep.results_table import settle_results

    for one in tables:
        if isinstance(one, str | os.PathLike):
            settle_results(one, lambda line: warnings.warn(line, stacklevel=6))


def fit_table(table: Any, *, along: str | None = None, compare: Any = None, **options: Any) -> TableResult:
    others = [] if compare is None or isinstance(compare, bool) else _tables(compare)
    compared = compare is not None and compare is not False
    if along is not None and compared:
        raise InputError(
            f"{argument('along')}: {along!r}; not allowed with {argument('compare')}: the losses of one recipe are "
            f"compared along a column; {argument('compare')} alone gives each arm's difference at every depth and size"
        )
    _settled((table, *others, *options.get("beside", ())))
    if along is not None:
        from dwsweep.fit.along import fit_along

        found: Any = fit_along(table, along, **options)
    elif compared:
        from dwsweep.fit.arms import compare_arms

        found = compare_arms(table, others, **options)
    else:
        found = analysis.fit_table(table, **options)
    made = _like(TableResult, found)
    vars(made)["_unanswered"] = not made.along_alone
    return made  # type: ignore[no-any-return]


fit_table.__doc__ = f"""{analysis.fit_table.__doc__}
    along: a column, such as ``"heads"``: the losses of the one recipe of ``table`` along it.
    compare: a table or several, each an arm that is held against ``table``; True: the arms of ``table`` itself.
    """


def guide(
    params: float | str | Iterable[float | str] = (),
    *,
    shapes: str | Sequence[str] = (),
    fit: Any = None,
    law: str | None = None,
    flops: float | None = None,
    hours: float | None = None,
    sources: bool = False,
    **options: Any,
) -> Guidance:
    """Guidance for a budget: the shape to build, the cost of other shapes, and the trust in the answer.

    params: budgets in non-embedding parameters: ``3e9``, ``"3B"`` or several. shapes: to be judged, such as
    ``"96x12288"``. Neither: the GPT-3 sizes. fit: a result of ``fit_table``, or the directory or fit.json of a fit;
    None: public evidence. law: ``"levine2020"``, the published law in place of the evidence. flops, hours: a budget of
    training, from which parameters and tokens follow. sources: adds the answer of each public source. options: the
    fields of ``dwsweep.guide.Options``: kv_heads, mlp, vocab_size, device and others.

    Raises:
        InputError: numbers, shapes or options that cannot be, or no fit at ``fit``; all at once.
    """
    check_keywords(options, [field.name for field in fields(Options)])
    if not isinstance(fit, FitResult | str | os.PathLike | None):
        raise InputError(
            f"{argument('fit')}: {type(fit).__name__}; must be a result of fit_table with best depths, or its path"
        )
    chosen = Options(**options)
    own = None
    if isinstance(fit, FitResult):
        own = source_of(fit, "your fit", TrainingTokens(chosen.tokens, chosen.tokens_per_param))
    found = answer(
        _sizes(params),
        [shapes] if isinstance(shapes, str) else shapes,
        fit=fit if own is None else "your fit",
        law=law,
        flops=flops,
        hours=hours,
        by_source=sources,
        options=chosen,
        source=own,
    )
    return _like(Guidance, found)  # type: ignore[no-any-return]


def _sizes(params: Any) -> list[float]:
    """One or several counts, as numbers or as texts such as ``3B``."""
    given = [params] if isinstance(params, str | Real) else params
    try:
        return [parse_count(value) if isinstance(value, str) else float(value) for value in given]
    except (InputError, TypeError, ValueError):
        line = f"{argument('params')}: {params!r}; must be a number or several, such as 3e9 or '3B'"
        raise InputError(line) from None
