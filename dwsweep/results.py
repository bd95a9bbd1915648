"""One function per question, and results that show themselves: as text, figures and tables, and in a notebook."""

from __future__ import annotations

import difflib
import functools
import html
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dwsweep.errors import InputError, argument
from dwsweep.fit import along, analysis, arms
from dwsweep.guide.advice import answer
from dwsweep.guide.answers import Answer
from dwsweep.guide.shapes import Options
from dwsweep.records.fit import AlongFit, Fit, FitResult, NoiseSummary, Provenance, Surface, WidthLaw
from dwsweep.records.record import plain, to_dict
from dwsweep.records.studies import (
    Along,
    AlongRow,
    BestAtBudget,
    Budget,
    BudgetTrend,
    Comparison,
    DepthAtBudget,
    EqualBudgets,
)
from dwsweep.records.transitions import Cell, Contrast, GuidelineRow, Rival, SizedOptimum, Transition
from dwsweep.report import fit_report, guide_report
from dwsweep.report.document import TIED, html_of
from dwsweep.report.figures import laws, registry, style
from dwsweep.terminal import plain_text
from dwsweep.text import parse_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

Rows = list[dict[str, Any]]
Made = TypeVar("Made", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=Fit)


class Shown(ABC):
    """What every result can do."""

    @abstractmethod
    def _rendered(self) -> RenderableType: ...

    @abstractmethod
    def _figures(self) -> dict[str, Callable[[], Figure]]: ...

    @abstractmethod
    def tables(self) -> dict[str, Rows]:
        """The rows of each table by the table's name; ``pandas.DataFrame(result.tables()["transitions"])``."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All of the result as JSON has it."""

    @property
    def figures(self) -> list[str]:
        """The names that ``plot`` takes, the default first."""
        return list(self._figures())

    def summary(self) -> str:
        """The text that the command prints, at most 100 columns wide."""
        return plain_text(self._rendered())

    def plot(self, name: str | None = None) -> Figure:
        """The figure of this name as a Matplotlib figure, which a notebook shows; its ``axes`` can be drawn on.

        name: one of ``figures``; None: the first of them.

        Raises:
            InputError: there is no such figure; the line names those that there are.
        """
        return _drawn(self._figures(), name, "name")

    def _repr_html_(self) -> str:
        """The summary, for a notebook."""
        return f"<pre>{html.escape(self.summary())}</pre>"


def _drawn(made: dict[str, Callable[[], Figure]], name: str | None, called: str) -> Figure:
    chosen = next(iter(made), "") if name is None else name
    if chosen not in made:
        allowed = ", ".join(made) or "none, as nothing here can be drawn"
        raise InputError(f"{called}: {chosen!r}; allowed: {allowed}")
    with style.styled():
        drawn = made[chosen]()
    # IPython asks an object for its picture by this name; a figure that pyplot did not make has none
    vars(drawn)["_repr_png_"] = functools.partial(_png, drawn)
    return drawn


def _png(drawn: Figure) -> bytes:
    with style.styled():
        return style.render(drawn, "png")


def _rows(records: Iterable[Any]) -> Rows:
    return [record.to_dict() for record in records]


class TableResult(FitResult, Shown):
    """All that a table of losses says; the fields are those of ``FitResult``."""

    def __eq__(self, other: object) -> bool:
        """Whether the fields are equal; ``other`` may be the record that was read back."""
        names = [field.name for field in fields(FitResult)]
        return isinstance(other, FitResult) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def _rendered(self) -> RenderableType:
        return fit_report.render(self)

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        return registry.figures(self)

    def tables(self) -> dict[str, Rows]:
        """The rows of each table that there is: cells, transitions, guideline, contrasts, rivals and others."""
        found = {name: _rows(getattr(self, name)) for name in ("cells", "transitions", "guideline", "contrasts")}
        found["rivals"] = _rows(self.rivals)
        if self.equal_budgets:
            found |= _budget_tables(self.equal_budgets)
        if self.comparisons:
            found["comparison"] = _comparison_rows(self.comparisons)
        if self.along:
            found |= _along_tables(self.along)
        return found


@dataclass(frozen=True, repr=False)
class _Part(Shown, Generic[Kind]):
    """The part of a fit that answers one question. record: what ``dwsweep fit`` would write as fit.json."""

    record: Kind

    @property
    def warnings(self) -> list[str]:
        return self.record.warnings

    @property
    def noise(self) -> NoiseSummary:
        return self.record.noise

    @property
    def provenance(self) -> Provenance:
        return self.record.provenance

    def _rendered(self) -> RenderableType:
        return fit_report.render(self.record)

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        return {name: draw for name, draw in registry.figures(self.record).items() if self._draws(name)}

    def _draws(self, figure: str) -> bool:
        return True

    def _content(self) -> dict[str, Any]:
        """The record's fields that this question is about."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        common = {"warnings": self.warnings, "noise": self.noise, "provenance": self.provenance}
        return {name: plain(value) for name, value in {**self._content(), **common}.items()}

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(rows)} {name}" for name, rows in self.tables().items())
        return f"{type(self).__name__}: {self.provenance.rows_used} runs; {counts}; {len(self.warnings)} warning(s)"


class TransitionsResult(_Part[FitResult]):
    """Where each deeper net overtakes, the best depth at each size, the width law and the guideline."""

    @property
    def cells(self) -> list[Cell]:
        return self.record.cells

    @property
    def transitions(self) -> list[Transition]:
        return self.record.transitions

    @property
    def best_depths(self) -> list[SizedOptimum]:
        """The best depth at a few sizes, by the loss of all depths together."""
        return list(self.record.surface.optima) if self.record.surface else []

    @property
    def surface(self) -> Surface | None:
        return self.record.surface

    @property
    def width_law(self) -> WidthLaw | None:
        return self.record.width_law

    @property
    def law_statement(self) -> str:
        """The width law in a sentence, or why there is none."""
        return self.record.law_statement

    @property
    def rivals(self) -> list[Rival]:
        return self.record.rivals

    @property
    def guideline(self) -> list[GuidelineRow]:
        return self.record.guideline

    @property
    def contrasts(self) -> list[Contrast]:
        """Any two depths at equal size."""
        return self.record.contrasts

    def tables(self) -> dict[str, Rows]:
        names = ("transitions", "best_depths", "guideline", "rivals", "contrasts", "cells")
        return {name: _rows(getattr(self, name)) for name in names}

    def _content(self) -> dict[str, Any]:
        names = ("cells", "transitions", "width_law", "law_statement", "rivals", "surface", "guideline", "contrasts")
        return {name: getattr(self.record, name) for name in names}


class BudgetsResult(_Part[FitResult]):
    """The best size of each depth and the best depth at each budget of compute."""

    @property
    def equal_budgets(self) -> EqualBudgets:
        assert self.record.equal_budgets is not None
        return self.record.equal_budgets

    @property
    def axis(self) -> str:
        """What was equal: flops or device_seconds."""
        return self.equal_budgets.axis

    @property
    def budgets(self) -> tuple[Budget, ...]:
        return self.equal_budgets.budgets

    @property
    def best(self) -> list[BestAtBudget]:
        """The best depth, one row per budget."""
        return self.equal_budgets.best

    @property
    def depths(self) -> list[DepthAtBudget]:
        """The best size, one row per budget and depth."""
        return self.equal_budgets.depths

    @property
    def trends(self) -> tuple[BudgetTrend, ...]:
        """How best sizes, tokens, depths and widths grow with the budget, where there are three budgets."""
        return self.equal_budgets.trends

    def tables(self) -> dict[str, Rows]:
        return _budget_tables(self.equal_budgets)

    def _draws(self, figure: str) -> bool:
        return figure in ("equal_budgets", "budget_trends")

    def _content(self) -> dict[str, Any]:
        return {"equal_budgets": self.equal_budgets}


class AlongResult(_Part[AlongFit]):
    """The losses along one column: where they are least, and where they are shown to be worse."""

    @property
    def along(self) -> Along:
        return self.record.along

    @property
    def column(self) -> str:
        return self.along.column

    @property
    def answer(self) -> tuple[str, ...]:
        """What the losses say, in sentences."""
        return self.along.answer

    @property
    def rows(self) -> list[AlongRow]:
        """One row per value, depth, size and arm."""
        return self.along.rows

    def tables(self) -> dict[str, Rows]:
        return _along_tables(self.along)

    def _content(self) -> dict[str, Any]:
        return {"along": self.along}


class ComparisonResult(_Part[FitResult]):
    """What each further recipe changes of the answer of the first."""

    @property
    def comparisons(self) -> list[Comparison]:
        """One per further arm."""
        return self.record.comparisons

    @property
    def base(self) -> TransitionsResult:
        """The first arm by itself."""
        return TransitionsResult(replace(self.record, comparisons=[]))

    @property
    def answer(self) -> tuple[str, ...]:
        """What changes, in sentences."""
        return tuple(line for one in self.comparisons for line in one.answer)

    def tables(self) -> dict[str, Rows]:
        return {"comparison": _comparison_rows(self.comparisons)}

    def _draws(self, figure: str) -> bool:
        return figure == "comparison"

    def _content(self) -> dict[str, Any]:
        return {"comparisons": self.comparisons}


def _budget_tables(found: EqualBudgets) -> dict[str, Rows]:
    return {
        "equal_budgets": _rows(found.best),
        "equal_budget_depths": _rows(found.depths),
        "budget_trends": _rows(found.trends),
    }


def _along_tables(found: Along) -> dict[str, Rows]:
    equal = {"equal": _rows(row for one in found.equal for row in one.rows)} if found.equal else {}
    return {"along": _rows(found.rows), "partings": _rows(found.partings), **equal}


def _comparison_rows(found: Iterable[Comparison]) -> Rows:
    return [row for one in found for row in _rows(one.rows)]


class Guidance(Answer, Shown):
    """What to build; the fields are those of ``dwsweep.guide.answers.Answer``."""

    def _rendered(self) -> RenderableType:
        return guide_report.render(self)

    def _repr_html_(self) -> str:
        """Sentences and tables, for a notebook; no shape breaks over a line."""
        shown = html_of(guide_report.document(self))
        return f"<div>{TIED.sub(lambda found: found[0].replace(' ', chr(0xA0)), shown)}</div>"

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        return laws.figures(self)

    def tables(self) -> dict[str, Rows]:
        """The rows of budgets, shapes to choose from, models that were built near them, public sources, verdicts, rules
        and overview, where there are any.

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


def _keywords(*functions: Callable[..., Any]) -> list[inspect.Parameter]:
    found = {name: one for function in functions for name, one in inspect.signature(function).parameters.items()}
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD  # the fields of a dataclass
    kept = [one for one in found.values() if one.kind in (inspect.Parameter.KEYWORD_ONLY, positional)]
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in kept]


def _takes(*functions: Callable[..., Any]) -> Callable[[Made], Made]:
    """Let a function take ``**options``: the keywords of ``functions``. Its signature shows them, and one that neither
    has is refused with the name of the nearest."""

    def wrap(function: Made) -> Made:
        own = inspect.signature(function)
        named = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [one for one in _keywords(*functions) if one.name not in own.parameters]
        known = [one.name for one in (*named, *more)]

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            for name in options:
                if name not in known:
                    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}"
                    raise TypeError(f"{function.__name__}() has no argument {name!r}; {hint}")
            return function(*args, **options)

        vars(call)["__signature__"] = own.replace(parameters=[*named, *more])
        return call  # type: ignore[return-value]

    return wrap


FITTING = analysis.fit_options, analysis.fit_table


@_takes(*FITTING)
def fit_table(table: Any, **options: Any) -> TableResult:
    found = analysis.fit_table(table, **options)
    return TableResult(**{field.name: getattr(found, field.name) for field in fields(found)})


fit_table.__doc__ = analysis.fit_table.__doc__


@_takes(*FITTING)
def fit_transitions(table: Any, **options: Any) -> TransitionsResult:
    """Where each deeper net overtakes, the best depth at each size, the width law and the guideline.

    table, options: those of ``fit_table``.

    Raises:
        InputError: as ``fit_table``; or every shape was trained to one value of the axis, so that no curve runs over
            it.
    """
    return TransitionsResult(analysis.fit_transitions(table, **options))


@_takes(*FITTING)
def fit_budgets(table: Any, *, axis: str | None = None, **options: Any) -> BudgetsResult:
    """The best size of each depth and the best depth at each budget of compute.

    axis: flops or device_seconds; None: what the runs were trained to, else the flops at which they meet. table,
    options: those of ``fit_table``.

    Raises:
        InputError: as ``fit_table``; or no three shapes of the table were trained at equal compute.
    """
    return BudgetsResult(analysis.fit_budgets(table, axis=axis, **options))


@_takes(along.fit_along, *FITTING)
def fit_along(table: Any, column: str, others: Iterable[Any] = (), **options: Any) -> AlongResult:
    """The losses along ``column``, such as heads, depth or any number.

    others: tables of further arms; without them the arms of ``table`` itself, where it has some. baseline: an
    expression over columns that only one shape meets; every shape is held against it. margin: nats by which a shape may
    be worse than the baseline, by default 1 % of its loss. table, options: those of ``fit_table``.

    Raises:
        InputError: as ``fit_table``; or the column cannot be compared.
    """
    return AlongResult(along.fit_along(table, column, others, **options))


@_takes(*FITTING)
def compare(table: Any, others: Iterable[Any] = (), **options: Any) -> ComparisonResult:
    """What another recipe changes: transitions, best depths and losses of every other arm against the first.

    others: tables, one per arm; without them the arms of ``table``, told apart by its column ``arm``. table, options:
    those of ``fit_table``.

    Raises:
        InputError: as ``fit_table``; or there is nothing to compare, or the first arm has no usable run.
    """
    return ComparisonResult(arms.compare_arms(table, others, **options))


@_takes(Options)
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
    """What to build for a budget, what it costs to deviate, and how far to trust it.

    params: budgets in non-embedding parameters: ``3e9``, ``"3B"`` or several. shapes: to be judged, such as
    ``"96x12288"``. rules: of thumb, such as ``"width = 64 * depth"``. None of them: the GPT-3 sizes. fit: the directory
    or fit.json of your own fit; None: public evidence. compare: your fit and the published law, side by side. law:
    ``"levine2020"``, the published law in place of the evidence. flops, hours: a budget of training, from which
    parameters and tokens follow. sources: what each public source says, too. options: the fields of
    ``dwsweep.guide.Options``: kv_heads, mlp, vocab_size, device and others.

    Raises:
        InputError: numbers, shapes, rules or options that cannot be, or no fit at ``fit``; all at once.
    """
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
    return Guidance(**{field.name: getattr(found, field.name) for field in fields(found)})


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
    """A figure as `dwsweep fit` or `dwsweep guide --out` draws it: ``plot`` of the result.

    Raises:
        InputError: there is no such figure; the line names those that there are.
    """
    made = laws.figures(found) if isinstance(found, Answer) else registry.figures(found)
    return _drawn(made, figure, "figure")
