"""Functions for questions, and results that show themselves: as text, figures and tables, and in a notebook."""

from __future__ import annotations

import functools
import html
import operator
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Unpack

from dwsweep.errors import InputError, argument, check_keywords
from dwsweep.fit import along, analysis, arms
from dwsweep.guide.advice import answer
from dwsweep.guide.answers import Answer
from dwsweep.guide.guideline import completed
from dwsweep.guide.shapes import Options
from dwsweep.records.along import Along, AlongRow
from dwsweep.records.comparison import Comparison
from dwsweep.records.equal_budgets import BestAtBudget, Budget, BudgetTrend, DepthAtBudget, EqualBudgets
from dwsweep.records.fit import AlongFit, Fit, FitKeywords, FitResult, NoiseSummary, Provenance, Surface, WidthLaw
from dwsweep.records.record import plain, to_dict
from dwsweep.records.transitions import Cell, GuidelineRow, Rival, SizedOptimum, Transition
from dwsweep.report import fit_report, guide_report
from dwsweep.report.figures import laws, registry, style
from dwsweep.report.markup import html_of
from dwsweep.terminal import plain_text
from dwsweep.text import parse_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

Rows = list[dict[str, Any]]
Kind = TypeVar("Kind", bound=Fit)


class Shown(ABC):
    """Result that shows itself as text, figures and tables."""

    @abstractmethod
    def _rendered(self) -> RenderableType: ...

    @abstractmethod
    def _figures(self) -> dict[str, Callable[[], Figure]]: ...

    @abstractmethod
    def tables(self) -> dict[str, Rows]:
        """Rows of each table by the table's name; ``pandas.DataFrame(result.tables()["transitions"])``."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Result as plain values, as in JSON."""

    @property
    def figures(self) -> list[str]:
        """Names of the figures for ``plot``, the default first."""
        return list(self._figures())

    def summary(self) -> str:
        """Text that the command prints, at most 100 columns wide."""
        return plain_text(self._rendered())

    def __str__(self) -> str:
        return self.summary()

    def plot(self, name: str | None = None) -> Figure:
        """Figure of this name as a Matplotlib figure, which a notebook shows; its ``axes`` can be drawn on.

        name: one of ``figures``; None: the first of them.

        Raises:
            InputError: there is no such figure; the line names the figures.
        """
        return _drawn(self._figures(), name, "name")

    def _repr_html_(self) -> str:
        """Summary for a notebook."""
        return f"<pre>{html.escape(self.summary())}</pre>"


def _drawn(made: dict[str, Callable[[], Figure]], name: str | None, called: str) -> Figure:
    chosen = next(iter(made), "") if name is None else name
    if chosen not in made:
        allowed = ", ".join(made) or "none, as nothing here can be drawn"
        raise InputError(f"{called}: {chosen!r}; allowed: {allowed}")
    with style.styled():
        drawn = made[chosen]()
    # IPython asks an object for its picture by this name; a figure made without pyplot has none
    vars(drawn)["_repr_png_"] = functools.partial(_png, drawn)
    return drawn


def _png(drawn: Figure) -> bytes:
    with style.styled():
        return style.render(drawn, "png")


def _counted(result: _Part[Any] | Guidance, of: str = "") -> str:
    """One line on a result: its class, its sizes, the rows of each table, the number of warnings."""
    counts = ", ".join(f"{len(rows)} {name}" for name, rows in result.tables().items())
    warnings = getattr(result, "warnings", None)
    warned = "" if warnings is None else f"; {len(warnings)} warning(s)"
    return f"{type(result).__name__}: {of}{'; ' if of and counts else ''}{counts}{warned}"


def _rows(records: Iterable[Any]) -> Rows:
    return [record.to_dict() for record in records]


Like = TypeVar("Like", bound="TableResult | Guidance")


def _like(kind: type[Like], found: Any) -> Like:
    """Record ``found`` as the class that shows itself."""
    return kind(**{field.name: getattr(found, field.name) for field in fields(found)})


class TableResult(FitResult, Shown):
    """Fit of a table of losses, with the fields of ``FitResult``."""

    def __eq__(self, other: object) -> bool:
        """Test that the fields are equal; ``other`` may be the record that was read back."""
        names = [field.name for field in fields(FitResult)]
        return isinstance(other, FitResult) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    __str__ = Shown.__str__

    def _rendered(self) -> RenderableType:
        return fit_report.render(self)

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        return registry.figures(self)

    def tables(self) -> dict[str, Rows]:
        """Rows of each table: cells, transitions, guideline, rivals and others."""
        names = ("cells", "transitions", "guideline", "rivals")
        found = {name: _rows(getattr(self, name)) for name in names}
        if self.equal_budgets:
            found |= _budget_tables(self.equal_budgets)
        if self.comparisons:
            found["comparison"] = _comparison_rows(self.comparisons)
        if self.along:
            found |= _along_tables(self.along)
        return found


def _of(path: str, doc: str | None = None) -> Any:
    """Attribute of a result at ``path`` of its record."""
    return property(operator.attrgetter(f"record.{path}"), doc=doc)


@dataclass(frozen=True, repr=False)
class _Part(Shown, Generic[Kind]):
    """Part of a fit that answers one question.

    record: content of fit.json. content: the fields of the record for this question. drawings: the figures for this
    question; empty: all.
    """

    record: Kind
    content: ClassVar[tuple[str, ...]]
    drawings: ClassVar[tuple[str, ...]] = ()
    warnings: ClassVar[list[str]] = _of("warnings")
    noise: ClassVar[NoiseSummary] = _of("noise")
    provenance: ClassVar[Provenance] = _of("provenance")

    def _rendered(self) -> RenderableType:
        return fit_report.render(self.record)

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        made = registry.figures(self.record)
        return {name: draw for name, draw in made.items() if not self.drawings or name in self.drawings}

    def to_dict(self) -> dict[str, Any]:
        return {name: plain(getattr(self.record, name)) for name in (*self.content, "warnings", "noise", "provenance")}

    def __repr__(self) -> str:
        return _counted(self, f"{self.provenance.rows_used} runs")


class TransitionsResult(_Part[FitResult]):
    """Transitions of each pair of depths, the best depth at each size, the width law and the guideline."""

    content = ("cells", "transitions", "width_law", "law_statement", "rivals", "surface", "guideline")
    cells: list[Cell] = _of("cells")
    transitions: list[Transition] = _of("transitions")
    surface: Surface | None = _of("surface")
    width_law: WidthLaw | None = _of("width_law")
    law_statement: str = _of("law_statement", "The width law in a sentence, or why there is none.")
    rivals: list[Rival] = _of("rivals")
    guideline: list[GuidelineRow] = _of("guideline")

    @property
    def best_depths(self) -> list[SizedOptimum]:
        """The best depth at a few sizes, by the loss of all depths together."""
        return list(self.surface.optima) if self.surface else []

    def tables(self) -> dict[str, Rows]:
        names = ("transitions", "best_depths", "guideline", "rivals", "cells")
        return {name: _rows(getattr(self, name)) for name in names}


class BudgetsResult(_Part[FitResult]):
    """The best size of each depth and the best depth at each budget of compute."""

    content = ("equal_budgets",)
    drawings = ("equal_budgets", "budget_trends")
    equal_budgets: EqualBudgets = _of("equal_budgets")
    axis: str = _of("equal_budgets.axis", "The equal quantity: flops or device_seconds.")
    budgets: tuple[Budget, ...] = _of("equal_budgets.budgets")
    best: list[BestAtBudget] = _of("equal_budgets.best", "The best depth, one row per budget.")
    depths: list[DepthAtBudget] = _of("equal_budgets.depths", "The best size, one row per budget and depth.")
    trends: tuple[BudgetTrend, ...] = _of(
        "equal_budgets.trends",
        "How best sizes, tokens, depths and widths grow with the budget, where there are three budgets.",
    )

    def tables(self) -> dict[str, Rows]:
        return _budget_tables(self.equal_budgets)


class AlongResult(_Part[AlongFit]):
    """The losses along one column: value with the least loss, and values shown to be worse."""

    content = ("along",)
    along: Along = _of("along")
    column: str = _of("along.column")
    answer: tuple[str, ...] = _of("along.answer", "Answer in sentences.")
    rows: list[AlongRow] = _of("along.rows", "One per value, depth, size and arm.")

    def tables(self) -> dict[str, Rows]:
        return _along_tables(self.along)


class ComparisonResult(_Part[FitResult]):
    """Comparison of the answer under each further recipe with the first."""

    content = ("comparisons",)
    drawings = ("comparison",)
    comparisons: list[Comparison] = _of("comparisons", "One per further arm.")

    @property
    def base(self) -> TransitionsResult:
        """The first arm by itself."""
        return TransitionsResult(replace(self.record, comparisons=[]))

    @property
    def answer(self) -> tuple[str, ...]:
        """Changes in sentences."""
        return tuple(line for one in self.comparisons for line in one.answer)

    def tables(self) -> dict[str, Rows]:
        return {"comparison": _comparison_rows(self.comparisons)}


def _budget_tables(found: EqualBudgets) -> dict[str, Rows]:
    return {
        "equal_budgets": _rows(found.best),
        "equal_budget_depths": _rows(found.depths),
        "budget_trends": _rows(found.trends),
    }


def _along_tables(found: Along) -> dict[str, Rows]:
    return {"along": _rows(found.rows), "partings": _rows(found.partings)}


def _comparison_rows(found: Iterable[Comparison]) -> Rows:
    return [row for one in found for row in _rows(one.rows)]


class Guidance(Answer, Shown):
    """Guidance on shapes to build, with the fields of ``dwsweep.guide.answers.Answer``."""

    def __repr__(self) -> str:
        return _counted(self)

    __str__ = Shown.__str__

    def _rendered(self) -> RenderableType:
        return guide_report.render(self)

    def _repr_html_(self) -> str:
        """Sentences and tables, for a notebook; no shape breaks over a line."""
        return f"<div>{html_of(guide_report.document(self))}</div>"

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        return laws.figures(self)

    def tables(self) -> dict[str, Rows]:
        """Rows of budgets, candidate shapes, models built near them, public sources, verdicts, rules and overview, if
        any.

        Shapes name the budget and the source that they are of.
        """
        shapes = [
            {"budget": row.budget, "source": row.optimum.source, **to_dict(shape)}
            for row in self.budgets
            for shape in row.candidates
        ]
        rules = [{"rule": rule.rule, "source": rule.source, **to_dict(row)} for rule in self.rules for row in rule.rows]
        found = {
            "budgets": [{"budget": row.budget, **to_dict(row.optimum)} for row in self.budgets],
            "shapes": shapes,
            "built": [{"budget": row.budget, **to_dict(one)} for row in self.budgets for one in row.built],
            "sources": [{"budget": row.budget, **to_dict(one)} for row in self.budgets for one in row.by_source],
            "verdicts": [
                {"depth": row.depth, "width": row.width, "verdict": row.verdict, "best": to_dict(row.optimum)}
                for row in self.verdicts
            ],
            "rules": rules,
            "overview": [to_dict(row) for row in self.overview],
        }
        return {name: rows for name, rows in found.items() if rows}


def _settled(table: Any, others: Iterable[Any] = (), beside: Iterable[Any] = ()) -> None:
    """Bring each sweep directory's results.csv up to date, as ``dwsweep fit`` does before reading it; a
    table that is written again is a warning."""
    from dwsweep.sweep.snapshot import settle_results

    for one in (table, *others, *beside):
        if isinstance(one, str | os.PathLike):
            settle_results(one, lambda line: warnings.warn(line, stacklevel=6))


def fit_table(table: Any, **options: Unpack[FitKeywords]) -> TableResult:
    _settled(table, beside=options.get("beside", ()))
    return _like(TableResult, _completed(analysis.fit_table(table, **options)))


def _completed(found: Any) -> Any:
    """Fit whose guideline takes rows outside its data from ``guide``."""
    return completed(found) if isinstance(found, FitResult) else found


fit_table.__doc__ = analysis.fit_table.__doc__


def fit_transitions(table: Any, **options: Unpack[FitKeywords]) -> TransitionsResult:
    """Transitions of each pair of depths, the best depth at each size, the width law and the guideline.

    table, options: as in ``fit_table``.

    Raises:
        InputError: as ``fit_table``; or every shape was trained to one value of the axis, so that no curve runs over
            it.
    """
    _settled(table, beside=options.get("beside", ()))
    return TransitionsResult(completed(analysis.fit_transitions(table, **options)))


def fit_budgets(table: Any, **options: Unpack[FitKeywords]) -> BudgetsResult:
    """The best size of each depth and the best depth at each budget of compute.

    axis: flops or device_seconds; None: the budgets of the runs, else the FLOPs at which they meet. table,
    options: as in ``fit_table``.

    Raises:
        InputError: as ``fit_table``; or no three shapes of the table were trained at equal compute.
    """
    _settled(table, beside=options.get("beside", ()))
    return BudgetsResult(analysis.fit_budgets(table, **options))


def fit_along(
    table: Any,
    column: str,
    others: Iterable[Any] = (),
    **options: Unpack[FitKeywords],
) -> AlongResult:
    """The losses along ``column``, such as heads, depth or any number.

    others: tables of further arms; without them the arms of ``table`` itself. table, options: as in ``fit_table``.

    Raises:
        InputError: as ``fit_table``; or the column cannot be compared.
    """
    _settled(table, others, options.get("beside", ()))
    return AlongResult(along.fit_along(table, column, others, **options))


def compare(table: Any, others: Iterable[Any] = (), **options: Unpack[FitKeywords]) -> ComparisonResult:
    """Comparison of recipes: transitions, best depths and losses of every other arm against the first.

    others: tables, one per arm; without them the arms of ``table`` by its column ``arm``. table, options:
    those of ``fit_table``.

    Raises:
        InputError: as ``fit_table``; or there is nothing to compare, or the first arm has no usable run.
    """
    _settled(table, others, options.get("beside", ()))
    return ComparisonResult(arms.compare_arms(table, others, **options))


def guide(
    params: float | str | Iterable[float | str] = (),
    *,
    shapes: str | Sequence[str] = (),
    rules: str | Sequence[str] = (),
    fit: Any = None,
    compare: bool = False,
    law: str | None = None,
    flops: float | None = None,
    hours: float | None = None,
    sources: bool = False,
    **options: Any,
) -> Guidance:
    """Guidance for a budget: the shape to build, the cost of other shapes, and the trust in the answer.

    params: budgets in non-embedding parameters: ``3e9``, ``"3B"`` or several. shapes: to be judged, such as
    ``"96x12288"``. rules: of thumb, such as ``"width = 64 * depth"``. None of them: the GPT-3 sizes. fit: the directory
    or fit.json of your own fit; None: public evidence. compare: your fit and the published law, side by side. law:
    ``"levine2020"``, the published law in place of the evidence. flops, hours: a budget of training, from which
    parameters and tokens follow. sources: adds the answer of each public source. options: the fields of
    ``dwsweep.guide.Options``: kv_heads, mlp, vocab_size, device and others.

    Raises:
        InputError: numbers, shapes, rules or options that cannot be, or no fit at ``fit``; all at once.
    """
    check_keywords(options, [field.name for field in fields(Options)])
    found = answer(
        _sizes(params),
        [shapes] if isinstance(shapes, str) else shapes,
        rules=[rules] if isinstance(rules, str) else rules,
        fit=fit,
        compare=compare,
        law=law,
        flops=flops,
        hours=hours,
        by_source=sources,
        options=Options(**options),
    )
    return _like(Guidance, found)


def _sizes(params: Any) -> list[float]:
    """One or several counts, as numbers or as texts such as ``3B``."""
    given = [params] if isinstance(params, str | Real) else list(params)
    wrong, sizes = list[str](), list[float]()
    for value in given:
        try:
            sizes.append(parse_count(value) if isinstance(value, str) else float(value))
        except InputError as error:
            wrong += [f"{argument('params')}: {line}" for line in error.templates]
        except (TypeError, ValueError):
            wrong.append(f"{argument('params')}: {value!r}; must be a number, such as 3e9 or '3B'")
    if wrong:
        raise InputError(*wrong)
    return sizes


def summary(found: FitResult | Answer) -> str:
    """The text that `dwsweep fit` or `dwsweep guide` prints, at most 100 columns wide."""
    return plain_text(guide_report.render(found) if isinstance(found, Answer) else fit_report.render(found))


def plot(found: FitResult | Answer, figure: str | None = None) -> Figure:
    """Figure of `dwsweep fit` or `dwsweep guide --out`: ``plot`` of the result.

    Raises:
        InputError: there is no such figure; the line names the figures.
    """
    made = laws.figures(found) if isinstance(found, Answer) else registry.figures(found)
    return _drawn(made, figure, "figure")
