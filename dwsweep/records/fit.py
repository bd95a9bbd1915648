"""``fit.json``: all that a fit found, as ``dwsweep.fit_table`` returns it and as guide, design and report read it. Its
``surface`` is the joint model of the loss: what it takes to evaluate it anywhere.
"""

from __future__ import annotations

import functools
import html
import json
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records import record as reader
from dwsweep.records.record import Count, Positive, PositiveNumber, Record, one_of
from dwsweep.records.studies import Along, Comparison, EqualBudgets
from dwsweep.records.transitions import (
    Cell,
    Contrast,
    FitCurves,
    GuidelineRow,
    LeftOutRun,
    PairCurve,
    RateRun,
    Rival,
    SizedOptimum,
    TokenTransition,
    Transition,
    references,
)
from dwsweep.text import NATS, format_count

Share = Annotated[float, Field(ge=0.0, le=1.0)]
LARGEST_SIZE = 10_000_000  # of a vocabulary or a context
Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
Interval = tuple[float | None, float | None]  # None: no bound on that side
Matrix = tuple[tuple[float | None, ...], ...]
PLAIN = {int, float, type(None)}
TABLES = {"cells": Cell, "transitions": Transition, "guideline": GuidelineRow, "contrasts": Contrast}  # NAME.csv


@dataclass(frozen=True, kw_only=True)
class DepthSpan(Record):
    """ln of the axis from the smallest to the largest shape of a depth."""

    depth: Positive
    low: float
    high: float


NO_FORM_FITS = "no form fits"  # in a warning: what the surface says is not what the losses say
# what h of the model of the loss needs besides the coefficients, in the order of a draw (fit/surface_model.py)
THETA = ("x_t_shallowest", "x_t_deepest", "gain", "gain_power", "gain_fall", "skew", "ln_turn", "saturation")
LawForm = Annotated[str, one_of("exponential", "power", "linear", "free")]  # fit.laws.FORMS, and none of them
ModelForm = Literal["f0(ln N) + N^-a·h(ln N, ln L; transition law, skewed) + departures, a Gaussian process"]
(LOSS_FORM,) = get_args(ModelForm)


@dataclass(frozen=True, kw_only=True)
class LossForm(Record):
    """The model with one form of the transition law.

    draws: of the posterior, each the coefficients (nats) of ``Surface.terms``, then θ: x_T at the shallowest and at the
    deepest depth (ln of the axis), gain (nats per unit of ln axis and ln depth at the middle depth), power with which
    it falls with depth, and with the axis; skew, and ln of the distance over which it
    sets in; saturation. mode: the same where θ is the most probable.
    """

    form: LawForm
    weight: Share  # of the form in the average, by its evidence
    log_evidence: float
    rejected: bool  # its evidence is 100 times less than the best form's, or worse
    tau: float  # scatter between shapes (sd), nats
    mode: tuple[float, ...] = field(repr=False)
    draws: tuple[tuple[float, ...], ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class HeldOut(Record):
    """Each shape's mean loss against what the surface makes of all the others.

    inside: how many lie in the 95 % interval of their prediction. worst_depth, worst_width: the shape that is furthest
    off, by ``worst`` standard deviations of its prediction, above zero where its loss is higher.
    """

    shapes: Count
    inside: Count
    worst_depth: Positive
    worst_width: PositiveNumber
    worst: float

    @property
    def too_few(self) -> bool:
        """True if fewer lie inside than 95 % of them give in 99 of 100 tables."""
        from scipy.special import bdtr

        return bool(bdtr(self.inside, self.shapes, 0.95) < 0.01)


@dataclass(frozen=True, kw_only=True)
class Surface(Record):
    """loss(ln axis, ln depth) for all depths together, one model per form of the law.

    form: that of the model, which says what the numbers of ``LossForm`` mean; a file with another one is not read.

    Raises:
        ValueError: a draw has more or fewer numbers than the terms and θ, the ends are the wrong way round, or no form
            of the law is left to guide.
    """

    form: ModelForm
    terms: tuple[tuple[int, int], ...] = field(repr=False)  # powers of the Legendre polynomials in ln axis and ln depth
    low: float  # ln axis of the smallest and of the largest shape
    high: float
    spans: tuple[DepthSpan, ...]
    noise_df: float | None  # degrees of freedom of the noise; None: many
    confidence: Share
    forms: tuple[LossForm, ...]
    optima: tuple[SizedOptimum, ...]  # the best depth at a few sizes
    held_out: HeldOut | None = None
    between: float = (
        0.0  # nats per √ln L: sd of what the loss may do between neighbouring depths, where no shape shows it
    )
    effect_p: float = 0.0  # of depth doing nothing: an F test of losses that depend on the size alone

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError(f"low must be a number below high, found {self.low} and {self.high}")
        if not self.spans:
            raise ValueError("spans must name a depth")
        numbers = len(self.terms) + len(THETA)
        for form in self.forms:
            found = {len(form.mode), *map(len, form.draws)}
            if not form.draws or found != {numbers}:
                raise ValueError(
                    f"draws of the {form.form} form must have {numbers} numbers each, found {sorted(found)}"
                )
        if not any(form.weight > 0.0 and not form.rejected for form in self.forms):
            raise ValueError("forms must have one that is not rejected and has a weight")

    @property
    def flat(self) -> bool:
        """True if the losses show no effect of depth, so that nothing bounds a best depth."""
        return self.effect_p >= 1.0 - self.confidence

    @property
    def falls(self) -> tuple[SizedOptimum, SizedOptimum] | None:
        """Two sizes, of which the larger has the shallower best depth by more than the errors: no form does that."""
        for k, small in enumerate(self.optima):
            for large in self.optima[k + 1 :]:
                if large.depth_high is not None and small.depth_low is not None and large.depth_high < small.depth_low:
                    return small, large
        return None

    @property
    def bounded(self) -> list[SizedOptimum]:
        """The sizes at which the data bound the best depth on one side at least."""
        return [row for row in self.optima if row.depth_low is not None or row.depth_high is not None]


@dataclass(frozen=True, kw_only=True)
class WidthLaw(Record):
    """ln d_x = a + b·L: the width at which depth L stops being the better one, fitted to all pairs at once."""

    form: str
    a: float
    b: float
    cov: Matrix  # of (a, b)
    interval_a: Interval
    interval_b: Interval
    chi2: float
    df: int
    pairs_used: int
    pairs_censored: int  # bound it from one side
    valid_from: float  # non-embedding parameters that its transitions span
    valid_to: float
    p_value: float | None
    confidence: float
    delta_chi2: float  # that bounds the region
    region: Matrix = field(repr=False)  # (a, b) pairs: corners of the confidence region
    winner: str | None  # the form that fits clearly better than the others


@dataclass(frozen=True, kw_only=True)
class FittedForm(Record):
    """A form of the law that the data bound, with its region."""

    name: str
    form: str
    a: float
    b: float
    valid_from: float
    valid_to: float
    rejected: bool
    region: Matrix = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class PublishedLaw(Record):
    """The law of Levine et al. 2020, for reference."""

    name: str
    form: str
    a: float
    b: float
    cov: Matrix
    cov_tag: str
    valid_from: float
    valid_to: float
    guideline: tuple[GuidelineRow, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class TransitionCovariance(Record):
    """Covariance of ln N of the crossings of ``pairs``."""

    pairs: tuple[tuple[int, int], ...]
    cov: Matrix


@dataclass(frozen=True, kw_only=True)
class NoiseSummary(Record):
    """The noise behind the errors of a fit. All but ``source`` is None where no run had a usable loss, and then left
    out."""

    source: str  # none, declared, replicates, scatter, replicates and scatter
    sigma: dict[str, float | None] | None = None  # depth → sd of one run, nats
    df: dict[str, float | None] | None = None  # depth → degrees of freedom; None: many
    pooled: bool | None = None  # one sigma for all depths
    bartlett_p: float | None = None  # of equal sigma
    tau: float | None = None  # scatter of a cell mean about its curve, nats
    tau_df: float | None = None
    shape_sd: float | None = None  # what all seeds of a shape share, nats
    shape_source: str | None = None  # what that rests on: scatter, documents, declared, default
    paired_seeds: bool | None = None
    documents: str | None = None  # how the held-out documents were used
    diverged_rule: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"source": self.source} if self.sigma is None else super().to_dict()


@dataclass(frozen=True, kw_only=True)
class FitOptions(Record):
    """The arguments of ``fit_table``."""

    axis: str
    noise: Any
    columns: Any
    where: tuple[str, ...]
    draws: int
    seed: int
    confidence: float
    documents: bool
    shape_noise: Any = None
    at_tokens: float | None = None
    tokens_per_param: float | None = None  # of non-embedding parameters
    unit: str | None = None  # of the losses; None: what their column's name says

    def __post_init__(self) -> None:
        """Skip the NaN-to-None conversion: a non-finite option is rejected, not treated as missing."""


@dataclass(frozen=True, kw_only=True)
class Provenance(Record):
    """Input, options and versions of a fit."""

    input: str
    input_sha256: str
    rows_read: int
    rows_used: int
    columns_taken: tuple[str, ...] = ()  # "ours = theirs", found under another usual name
    left_out: dict[str, int] = field(default_factory=dict)  # why runs have no loss that counts → how many
    versions: dict[str, str]
    options: FitOptions


@dataclass(frozen=True, kw_only=True)
class TrainedNets(Record):
    """Facts that all nets of a fit share; None where they differ or the table does not say."""

    vocab_size: Size | None = None
    seq_len: Size | None = None


@dataclass(frozen=True, kw_only=True)
class OtherFit(Record):
    """Transitions of another table, fitted with the same options, for comparison."""

    name: str  # of its folder or file
    input: str
    input_sha256: str
    transitions: list[Transition]  # by the reference estimator
    pairs: tuple[PairCurve, ...] = field(repr=False)

    def crossing(self, pair: Transition) -> Transition | None:
        """Find the row of the same two depths; None where it has none."""
        found = (row for row in self.transitions if (row.shallow, row.deep) == (pair.shallow, pair.deep))
        return next(found, None)


@dataclass(frozen=True, kw_only=True)
class _Kept(Record):
    """What is kept as fit.json."""

    def to_json(self) -> str:
        """The text of fit.json: valid JSON, null for what does not exist; a list of numbers is a line."""
        return _indented(self.to_dict()) + "\n"


@dataclass(frozen=True, kw_only=True)
class AlongFit(_Kept):
    """The loss against a column, where nothing else was fitted."""

    along: Along
    left_out: list[LeftOutRun]  # impossible losses
    warnings: list[str]  # one line each
    noise: NoiseSummary  # of curves named by their depth and value
    unit: str  # of every loss here
    provenance: Provenance


@dataclass(frozen=True, kw_only=True, repr=False)
class FitResult(_Kept):
    """Everything that a fit found in a table of losses.

    Each table is a list of records whose fields are the columns of its CSV file; ``to_pandas("transitions")`` and
    ``to_dict()`` give what their names say.
    """

    cells: list[Cell]  # one per shape
    transitions: list[Transition]  # one per pair and estimator
    width_law: WidthLaw | None
    law_statement: str  # the law in a sentence, or why there is none
    rivals: list[Rival]  # the forms compared, the best first
    laws: list[FittedForm]
    guideline_law: str | None  # the form that guides; None: the published law does
    surface: Surface | None
    guideline: list[GuidelineRow]
    published: PublishedLaw
    transition_cov: TransitionCovariance
    warnings: list[str]  # one line each
    noise: NoiseSummary
    by_tokens: list[TokenTransition] = field(default_factory=list)  # where the table holds several token counts
    curves: FitCurves
    rates: list[RateRun] = field(default_factory=list)
    contrasts: list[Contrast] = field(default_factory=list)  # any two depths at equal size
    left_out: list[LeftOutRun] = field(default_factory=list)  # impossible losses
    with_left_out: list[Transition] = field(default_factory=list)  # of the reference estimator, had they counted
    others: list[OtherFit] = field(default_factory=list)  # other tables, for comparison
    equal_budgets: EqualBudgets | None = None  # where runs were trained at equal compute, which is the axis
    comparisons: list[Comparison] = field(default_factory=list)  # other recipes against this one, paired
    along: Along | None = None  # the loss against a column
    nets: TrainedNets = field(default_factory=TrainedNets)
    unit: str = NATS  # of every loss here
    provenance: Provenance

    @property
    def own_law(self) -> bool:
        """True if the guideline follows a law of this sweep, and not the published one."""
        return self.guideline_law is not None

    def to_pandas(self, table: str = "transitions") -> Any:
        """cells, transitions, guideline, rivals, by_tokens, rates, equal_budgets or equal_budget_depths as a DataFrame;
        pandas must be installed."""
        import pandas

        at_budgets = {"equal_budgets": "best", "equal_budget_depths": "depths"}
        rows = getattr(self.equal_budgets, at_budgets[table], []) if table in at_budgets else getattr(self, table)
        return pandas.DataFrame([row.to_dict() for row in rows], columns=rows[0].keys() if rows else None)

    def __repr__(self) -> str:
        used = [row for row in self.cells if not row.excluded]
        pairs = ", ".join(f"{row.name} {_where(row)}" for row in references(self.transitions)) or "none"
        return (
            f"FitResult: {self.provenance.rows_used} runs, {len(used)} shapes; transitions: {pairs}; "
            f"{self.law_statement}; {len(self.warnings)} warning(s)"
        )

    def _repr_html_(self) -> str:
        """Render for a notebook: the transitions, the law, the warnings."""
        rows = [
            (row.name, row.status.replace("_", " "), *map(_count, (row.n_params_low, row.n_params, row.n_params_high)))
            for row in references(self.transitions)
        ]
        head = "".join(f"<th>{name}</th>" for name in ("pair", "status", "N from", "N", "N to"))
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self.warnings)
        return f"<table><tr>{head}</tr>{body}</table><p>{html.escape(self.law_statement)}</p><ul>{lines}</ul>"


_json = functools.partial(json.dumps, allow_nan=False, ensure_ascii=False, default=str)


def _indented(value: Any, end: str = "\n") -> str:
    """``value`` as JSON, one space deeper at each level. ``end``: of the line before the bracket that closes it."""
    if not value or not isinstance(value, dict | list) or (isinstance(value, list) and set(map(type, value)) <= PLAIN):
        text = _json(value)
        return f"[ {text[1:-1]} ]" if value and isinstance(value, list) else text
    deeper = end + " "
    if isinstance(value, dict):
        return f"{{{','.join(f'{deeper}{_json(key)}: {_indented(v, deeper)}' for key, v in value.items())}{end}}}"
    return f"[{','.join(deeper + _indented(v, deeper) for v in value)}{end}]"


def _where(row: Transition) -> str:
    return f"at {format_count(row.n_params)}" if row.n_params is not None else row.status.replace("_", " ")


def _count(value: float | None) -> str:
    return "" if value is None else format_count(value)


Fit = FitResult | AlongFit
"""What a fit.json may hold."""


def read(path: Any, argument: str = "--fit") -> FitResult:
    """The fit in a fit.json that compares depths. ``path``, ``argument``: those of ``read_any``.

    Raises:
        InputError: as ``read_any``; or depths were not compared.
    """
    found = read_any(path, argument)
    if isinstance(found, AlongFit):
        raise InputError(
            f"{argument}: {path}; holds the losses along {found.along.column} and no best depth; "
            "run `dwsweep fit` without --along first"
        )
    return found


def read_any(path: Any, argument: str = "--fit") -> Fit:
    """What a fit.json holds. ``path``: the file, the fit directory, or the sweep directory above it; ``argument``: what
    messages call it.

    Raises:
        InputError: there is none, or it is damaged; the line names the file and the field.
    """
    given = paths.as_path(path)
    for file in [given] if given.suffix == ".json" else [given / "fit.json", given / "fit" / "fit.json"]:
        found = _either(file, f"{argument}: {file}")
        if isinstance(found, FitResult) and found.along and not found.cells:  # as versions before AlongFit wrote it
            found = AlongFit(**{one.name: getattr(found, one.name) for one in fields(AlongFit)})
        if found is not None:
            return found
    raise InputError(f"{argument}: {path}; no fit.json there, run `dwsweep fit` first")


def _either(file: Any, name: str) -> Fit | None:
    damaged: list[reader.Damaged] = []
    kinds: tuple[type[Fit], ...] = (FitResult, AlongFit)
    for kind in kinds:
        try:
            return reader.read(file, kind, name)
        except reader.Damaged as error:
            damaged.append(error)
    # of the kind that it is: of the other one all fields are missing
    told = next((error for error in damaged if "is missing" not in error.why), damaged[0])
    raise InputError(
        f"{told.templates[0]}; not a fit.json as this version writes it, run `dwsweep fit` again"
    ) from told
