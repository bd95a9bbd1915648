"""Analysis in order: table → cells → curves → transitions → width law → guideline; or → each budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from dwsweep.errors import InputError, argument, check_keywords, either
from dwsweep.fit.answers.crossing import Crossing
from dwsweep.fit.answers.guideline import guideline_sizes, surface_warnings
from dwsweep.fit.answers.transitions import Pair, analyse_pairs, transition_rows
from dwsweep.fit.answers.width_law import LawReport, fit_laws
from dwsweep.fit.arm import Arm, analysed
from dwsweep.fit.data.cell import as_number
from dwsweep.fit.data.lengths import (
    FLOP,
    TrainedBudgets,
    at_equal_length,
    budgets_warning,
    largest,
    token_groups,
    token_warnings,
    trained_budgets,
)
from dwsweep.fit.data.rows import Row, are_alike, check_one_arm, no_loss, why_no_loss
from dwsweep.fit.data.runs import Run
from dwsweep.fit.data.table import Table, account, read_asked, read_other
from dwsweep.fit.heap import Heap, beside_a_grid, check_answered, heap_of, over_tokens
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.fit.statistics.small_matrices import small_matrices
from dwsweep.fit.warnings import check_status
from dwsweep.records.fit import (
    FORMAT,
    KEYWORDS,
    LARGEST_SIZE,
    SAME_BLOCK,
    Account,
    FitOptions,
    FitResult,
    OtherFit,
    Provenance,
    TrainedNets,
)
from dwsweep.records.footing import versions
from dwsweep.records.transitions import Transition, verdicts
from dwsweep.text import format_count

# dwsweep itself may be a clone's folder in sys.path, and not installed
PACKAGES = {name: name for name in ("dwsweep", "numpy", "scipy")}
N_PARAMS = "n_params"  # default axis


def fit_table(
    table: Any, *, axis: str | None = None, params: Iterable[float] = (), beside: Iterable[Any] = (), **options: Any
) -> FitResult:
    """Depth-efficiency transitions, width law and guideline of any table of runs.

    table: a sweep directory, a CSV, TSV, JSON, JSONL or Parquet file, a list of dicts, or a dict of columns; at least
    depth, width and loss (held-out, in ``unit``); n_params defaults to 12·L·d_x²; seed, learning_rate, tokens, status
    and the other columns of results.csv are used where present.
    axis: measure of equal size: n_params (default), n_params_total, flops or device_seconds. Where all shapes were
    trained to equal flops or device_seconds, the first answers are at each budget, on either axis.
    noise: standard deviation of one run's loss, in its unit, instead of an estimate.
    columns: ``{ours: theirs}``; where: row filters. seed: of all draws. confidence: of every
    interval. params: further budgets (non-embedding parameters) for the guideline.
    documents: use the held-out losses per document of a sweep directory, where every run has them.
    at_tokens, tokens_per_param: compare losses after this many tokens, or after this many per non-embedding parameter.
        The loss of a run that was not measured there is interpolated between its own losses; with ``at_tokens`` runs of
        many lengths are adjusted for their tokens. Default: losses as they are; if a run has several counts, the count
        that most shapes have; of two, the larger.
    beside: other tables, read and fitted with the same options: their transitions are listed in ``others`` and do not
    enter the fit.
    unit: of the losses, nats or bits per token or bpb (bits per byte); None: by the name of their column.
    drop: columns to ignore. arm: the column that names the arm of a run.
    adjust, no_adjust: columns in which runs differ, to adjust for beyond the usual settings, or not to adjust for.
    at: ``{column: value}`` that the answer is for; default: the commonest value, and each net's best learning rate.
    paper: also list each pair of depths by its own two curves, as Levine et al. 2020 do.

    Poor data give statuses and statements, never an exception. Raises InputError for an unreadable table, a missing
    column, or an option outside its range.
    """
    chosen = fit_options(axis=axis or N_PARAMS, **options)
    data = one_recipe(table, chosen)
    with small_matrices():
        return answered(Request.of(data, chosen), params, beside)


def one_recipe(table: Any, options: FitOptions, option: str = "") -> Table:
    """The table as it was read, refused if it holds several arms or no known status. option: that gave a further
    table."""
    data = read_other(table, options, option) if option else read_asked(table, options)
    check_status(data.rows)
    check_one_arm(data.rows, data.source, option)
    return data


def fit_options(**given: Any) -> FitOptions:
    """Options of a fit, for its record.

    Raises:
        InputError: one is outside its range, or two exclude each other.
    """
    check_keywords(given, KEYWORDS)
    options = FitOptions(**given)
    columns, where = options.columns, options.where
    if not 0.5 <= options.confidence < 1.0:
        raise InputError(f"{argument('confidence')}: {options.confidence!r}; must be a number from 0.5 to below 1")
    if (sd := options.noise) is not None and not (isinstance(sd, int | float) and 1e-12 <= sd <= 100):
        raise InputError(
            f"{argument('noise')}: {sd!r}; must be the standard deviation of one run's loss in its unit, above 0 "
            "(1e-12), at most 100"
        )
    lengths = {"at_tokens": options.at_tokens, "tokens_per_param": options.tokens_per_param}
    for name, value in lengths.items():
        if value is not None and not 0.0 < value < math.inf:
            raise InputError(f"{argument(name)}: {value:g}; allowed: a number above zero")
    if None not in lengths.values():
        raise InputError(f"{argument('at_tokens')}, {argument('tokens_per_param')}: both given; allowed: one of them")
    return replace(
        options,
        columns=columns if columns is None or isinstance(columns, dict) else list(columns),
        where=(where,) if isinstance(where, str) else tuple(where),
        drop=(options.drop,) if isinstance(options.drop, str) else tuple(options.drop or ()) or None,
        adjust=(options.adjust,) if isinstance(options.adjust, str) else tuple(options.adjust or ()),
        no_adjust=(options.no_adjust,) if isinstance(options.no_adjust, str) else tuple(options.no_adjust or ()),
        at=held_values(options.at),
    )


def held_values(given: Any) -> tuple[tuple[str, Any], ...]:
    """(column, value) pairs of ``{column: value}``, of texts ``column=value``, or of pairs.

    Raises:
        InputError: a text has no equals sign, or a column has two values.
    """
    if isinstance(given, Mapping):
        given = tuple(given.items())
    pairs = []
    for one in (given,) if isinstance(given, str) else given or ():
        name, sign, value = one.partition("=") if isinstance(one, str) else (one[0], "=", one[1])
        if not sign or not str(name).strip() or not str(value).strip():
            raise InputError(f"{argument('at', '--at')}: {one!r}; give column=value, such as batch=256")
        pairs.append((str(name).strip(), as_number(value.strip()) if isinstance(value, str) else value))
    if again := next((name for name, count in Counter(name for name, _ in pairs).items() if count > 1), None):
        values = " and ".join(f"{again}={value}" for name, value in pairs if name == again)
        raise InputError(f"{argument('at', '--at')}: {values}; one answer holds one value of a column")
    return tuple(pairs)


@dataclass(frozen=True)
class Request:
    """A table and the question put to it.

    trained: the budgets that its runs were trained to, where they are too few for a heap; none if losses after equal
    tokens are asked for.
    heap: set if its runs differ in more than depth and size. surface: the model of all depths by its heap, or by
    several recipes.
    """

    data: Table
    options: FitOptions
    trained: TrainedBudgets | None
    heap: Heap | None = None
    surface: LossSurface | None = None

    @classmethod
    def of(cls, data: Table, options: FitOptions) -> Request:
        asked = cls.of_heap(data, options)
        return asked if asked.heap else asked.of_grid()

    @classmethod
    def at_length(cls, data: Table, options: FitOptions) -> Request:
        """The request with one row per run, without a heap."""
        if "tokens" not in options.adjust:
            data = at_equal_length(data, options)
        as_they_are = options.at_tokens is options.tokens_per_param is None
        return cls(data, options, trained_budgets(data) if as_they_are else None)

    @classmethod
    def of_heap(cls, data: Table, options: FitOptions, arms: tuple[str, ...] = ()) -> Request:
        """The request with the heap in the table, if there is one. arms: recipes that are compared, the base first."""
        if heap := over_tokens(data, options, arms):
            asked = cls(data, options, None)
        else:
            asked = cls.at_length(data, options)
            heap = heap_of(asked.data, options, asked.trained, arms)
        check_answered(asked.data, options, heap)
        if heap is None:
            return asked
        # nets of all budgets are compared at equal N, and asked at each budget
        return cls(heap.data, replace(options, axis=N_PARAMS), None, heap, LossSurface(heap.surface))

    def of_grid(self) -> Request:
        """The request of a table whose losses are adjusted for nothing.

        Raises:
            InputError: no curve runs over its axis.
        """
        if (trained := self.trained) and trained.axis == self.options.axis:
            values = len(trained.rows)
            raise InputError(
                f"{argument('axis')}: {trained.axis}; every shape of {self.data.source} was trained to one of {values} "
                "values of it, so that no curve runs over it, and these shapes are too few for a best depth at each; "
                "allowed: another axis"
            )
        # without a surface equal times alone do not say that time, and no count of tokens, ended the runs
        of_flops = trained if trained and trained.unit == FLOP else None
        return replace(self, trained=of_flops, data=beside_a_grid(self.data, self.options, of_flops is not None))

    def rows(self) -> dict[float | None, list[Row]]:
        """Rows that may be compared: rows of the main budget if all runs have a budget, else rows of each token
        count."""
        if self.trained:
            return {None: self.trained.rows[self.trained.main]}
        return token_groups(self.data, self.heap.rows() if self.heap else self.data.rows)

    def arm(self, tokens: float | None, rows: list[Row]) -> Arm:
        shorter = self.trained is not None
        found = analysed(self.data, rows, self.options, shorter=shorter, heap=self.heap, surface=self.surface)
        return replace(found, tokens=tokens)

    def pairs(self, arm: Arm) -> tuple[Mapping[Pair, Crossing], list[Transition]]:
        """Crossings of neighbouring depths, and the rows of transitions.csv."""
        if not arm.runs:
            return {}, []
        confidence = self.options.confidence
        found = analyse_pairs(arm.curves, confidence, arm.surface)
        return found, transition_rows(arm.curves, found, confidence, self.options.paper)


def _other(table: Any, options: FitOptions) -> OtherFit:
    asked = Request.of(one_recipe(table, options, argument("beside", "--with")), options)
    rows, data = asked.rows(), asked.data
    main = largest(rows)
    return OtherFit(
        name=PurePath(data.directory or data.source).stem or data.source,
        input=data.source,
        input_sha256=data.sha256,
        transitions=verdicts(asked.pairs(asked.arm(main, rows[main]))[1]),
    )


def answered(
    asked: Request, params: Iterable[float], beside: Iterable[Any] = (), arms: Sequence[Arm] = ()
) -> FitResult:
    """The answer to a request: curves over the axis, pair by pair and all together: transitions, best depths, width
    law, guideline. params: its further sizes. arms: runs of other recipes in the heap, which are part of the
    account."""
    others = [_other(other, asked.options) for other in beside]
    rows, axis, confidence = asked.rows(), asked.options.axis, asked.options.confidence
    main = largest(rows)
    arm = asked.arm(main, rows[main])
    drawn, (pairs, transitions) = arm.surface, asked.pairs(arm)
    warnings = [*arm.warnings, *token_warnings(rows, main)]
    if asked.trained:
        warnings.insert(0, budgets_warning(asked.trained, axis))
    report = LawReport.none("no finished run with a usable loss")
    if arm.runs:
        report = fit_laws(arm.curves, drawn, pairs, confidence)
    if pairs and not drawn and not arm.one_variable:
        shapes, depths = len(arm.curves.x), len(arm.curves.depths)
        warnings.append(
            f"surface: not fitted to {shapes} shapes of {depths} depths: it takes three depths of "
            "one size, or two of three sizes, with a second seed, or seven shapes at one size, eight at two, nine at "
            f"three; {either(argument('along', '--along depth'))} compares the losses of each size"
        )
    if drawn:
        warnings += surface_warnings(drawn, axis, asked.data.unit)
    return FitResult(
        format=FORMAT,
        cells=arm.cells(),
        transitions=transitions,
        **vars(report),
        surface=drawn.record if drawn else None,
        guideline=guideline_sizes(params),
        warnings=warnings,
        noise=arm.noise,
        rates=arm.rates(),
        nets=_nets(arm.runs, asked.heap),
        unit=asked.data.unit,
        provenance=provenance(asked.data, asked.options, _account(asked, [arm, *arms])),
        others=others,
        adjusted=asked.heap.record if asked.heap else None,
    )


def _account(asked: Request, parts: Sequence[Arm]) -> Account:
    """Account of the rows of the table: how many were used, and why others are out."""
    data, trained = asked.data, asked.trained
    taken, tokens = {id(row) for part in parts for row in part.rows}, parts[0].tokens
    why = (
        f"have other counts of tokens than {format_count(tokens)}" if tokens else "have no such count",
        "--at-tokens, --adjust tokens" if tokens else "--at-tokens",
    )
    if trained is not None:  # its rows hold the FLOPs that were asked for
        others = Counter({(f"are of other budgets of {trained.unit}, or of none", ""): len(data.rows) - len(taken)})
    else:
        rows = [row for row in data.rows if id(row) not in taken]
        blank = ("have no count of tokens", "")
        others = Counter(
            (no_loss(none), "") if (none := why_no_loss(row)) else blank if row.get("tokens") is None else why
            for row in rows
        )
    used = asked.heap.record.runs if asked.heap else sum(len(part.runs) for part in parts)
    out = [data.account, others, *(part.left_out for part in parts)]
    found = account(data.n_read, used, out, data.notes)
    return replace(found, one_variable=parts[0].one_variable, following_depth=data.following_depth)


def provenance(data: Table, options: FitOptions, rows: Account) -> Provenance:
    """Provenance of a fit of ``data``, with the account of its ``rows``."""
    return Provenance(
        input=data.source,
        input_sha256=data.sha256,
        columns_taken=data.taken,
        versions={"dwsweep": "not installed", **versions(PACKAGES)},
        options=options,
        account=rows,
    )


def _nets(runs: Sequence[Run], heap: Heap | None) -> TrainedNets:
    def common(column: str) -> int | None:
        found = {run.row.get(column) for run in runs}
        value = found.pop() if len(found) == 1 else None
        if not isinstance(value, int | float) or not 1.0 <= value <= LARGEST_SIZE or value != int(value):
            return None
        return int(value)

    counts = [value for run in runs if isinstance(value := run.row.get("tokens"), int | float) and value > 0]
    alike = counts and len(counts) == len(runs) and are_alike(counts)
    weights = heap.layer_weights if heap else None
    ln = [math.log(run.n_params / (run.depth * run.width**2)) for run in runs]
    if weights is None and ln and max(ln) - min(ln) < SAME_BLOCK:
        weights = math.exp(math.fsum(ln) / len(ln))
    return TrainedNets(
        vocab_size=common("vocab_size"),
        seq_len=common("seq_len"),
        tokens=float(sorted(counts)[len(counts) // 2]) if alike else None,
        layer_weights=weights,
        experts=common("experts"),
        top_k=common("top_k"),
    )
