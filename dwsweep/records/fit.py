"""``fit.json``: the result of a fit, returned by ``dwsweep.fit_table`` and read by guide, design and report. Its
``surface`` is the joint model of the loss, which can be evaluated anywhere.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.interval import Interval
from dwsweep.records import record as reader
from dwsweep.records.adjusted import Adjustment
from dwsweep.records.along import Along, AlongRow
from dwsweep.records.answers import ABOVE, BELOW, BEST_DEPTH, N_PARAMS, WALL_TIME, AnswerRow, Comparison
from dwsweep.records.answers import COLUMNS as ANSWER_COLUMNS
from dwsweep.records.cells import Array, ByContent, Cells
from dwsweep.records.record import Count, Positive, PositiveNumber, Record, csv_text, one_of, table_text
from dwsweep.records.transitions import Cell, GuidelineRow, RateRun, Rival, Transition, verdicts
from dwsweep.shapes import LARGEST_SIZE, width_at

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
Ends = tuple[float | None, float | None]  # None: no bound on that side
Matrix = tuple[tuple[float | None, ...], ...]
TABLES = {"cells": Cell, "transitions": Transition, "guideline": GuidelineRow}  # NAME.csv of a fit that compares depths


@dataclass(frozen=True, kw_only=True)
class DepthSpan(Record):
    """ln of the axis from the smallest to the largest shape of a depth."""

    depth: Positive
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class LossForm(ByContent, Record):
    """Model with one form of the transition law: nodes of its hyperparameters, from which draws come.

    ends: x_T at the shallowest and the deepest depth (ln of the axis) about which the form is linear. nodes: (N, n) of
    the hyperparameters ``names``, in prior standard deviations from their prior means; counts: (N,) draws from each;
    scrambles: (N,) the Sobol scramble of each. The draws are made anew from them and ``Surface.seed``.

    Raises:
        ValueError: a node has more or fewer numbers than there are names, or no count.
    """

    form: str  # one of fit.statistics.model.FORMS
    weight: Share  # weight of the form in the average, by its evidence
    rejected: bool  # weight below 1 %
    ends: tuple[float, float]
    names: tuple[str, ...]
    nodes: Array = field(repr=False)
    counts: Array = field(repr=False)
    scrambles: Array = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not len(self.nodes) == len(self.counts) == len(self.scrambles):
            raise ValueError(f"nodes of the {self.form} form must each have a count and a scramble")
        if self.has_draws and self.nodes.shape[1:] != (len(self.names),):
            raise ValueError(f"nodes of the {self.form} form must have {len(self.names)} numbers")
        if any(part.size and (part.dtype.kind != "i" or part.min() < 0) for part in (self.counts, self.scrambles)):
            raise ValueError(f"counts and scrambles of the {self.form} form must be whole numbers from 0")

    @property
    def has_draws(self) -> bool:
        return len(self.counts) > 0


@dataclass(frozen=True, kw_only=True)
class HeldOut(Record):
    """Each shape's mean loss against its prediction from all others.

    inside: how many lie in the 95 % interval of their prediction. worst_depth, worst_width: the shape that is furthest
    off, by ``worst`` standard deviations of its prediction, above zero if its loss is higher. steepest: slope in ln L,
    in standard deviations, of the losses of one size, near steepest_at, about their prediction from the other of
    ``sizes`` sizes; None: no size has three depths.
    """

    shapes: Count
    inside: Count
    worst_depth: Positive
    worst_width: PositiveNumber
    worst: float | None  # None: no token count
    sizes: Count = 0
    steepest: float | None = None
    steepest_at: float | None = None

    @property
    def too_few(self) -> bool:
        """True if fewer shapes lie inside their 95 % intervals than in 99 of 100 tables."""
        from scipy.special import bdtr

        return bool(bdtr(self.inside, self.shapes, 0.95) < 0.01)

    @property
    def jumps(self) -> bool:
        """True if the losses of one size tilt over depth against all other sizes, as in one table of a hundred."""
        from scipy.special import ndtr

        return self.steepest is not None and bool(2.0 * self.sizes * ndtr(-abs(self.steepest)) < 0.01)


ROUNDING = 1e-6  # of a ln axis
FEWEST_SHARED_DEPTHS = 3  # depths of one size that a best depth needs


@dataclass(frozen=True, kw_only=True)
class Surface(Record):
    """loss(ln axis, ln depth) for all depths together, one model per form of the law.

    Raises:
        ValueError: it has no depth, or no form has draws.
    """

    spans: tuple[DepthSpan, ...]
    confidence: Share
    forms: tuple[LossForm, ...]
    ess: float  # effective number of nodes
    optima: tuple[AnswerRow, ...]  # the best depth at a few sizes
    cells: Cells = field(repr=False)
    held_out: HeldOut | None = None
    seed: int = 0  # seed of the nodes and draws

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.spans:
            raise ValueError("spans must name a depth")
        if not any(form.has_draws for form in self.forms):
            raise ValueError("forms must have one with draws")

    @property
    def low(self) -> float:
        """ln axis of the smallest shape."""
        return min(span.low for span in self.spans)

    @property
    def high(self) -> float:
        """ln axis of the largest shape; above ``low`` by rounding where there is one size."""
        return max(self.low + ROUNDING, *(span.high for span in self.spans))

    @property
    def effect_p(self) -> float:
        """Probability of no effect of depth: the weight of the form ``none``."""
        return next((form.weight for form in self.forms if form.form == "none"), 0.0)

    @property
    def has_three_depths(self) -> bool:
        """True if there are the three depths that a best depth takes; two have a crossing alone."""
        return len(self.spans) >= FEWEST_SHARED_DEPTHS

    @property
    def flat(self) -> bool:
        """True if no effect of depth is shown, so that nothing bounds a best depth."""
        return self.effect_p >= 1.0 - self.confidence

    @property
    def bounded(self) -> list[AnswerRow]:
        """Sizes at which the data bound the best depth on at least one side."""
        return [row for row in self.optima if row.depth_low is not None or row.depth_high is not None]

    def beyond(self, row: AnswerRow) -> str:
        """Words for a size without a best depth; other sizes may have shallower or deeper nets."""
        depths = [span.depth for span in self.spans]
        tried = {BELOW: (row.depth_min, min(depths)), ABOVE: (max(depths), row.depth_max)}
        larger, smaller = tried.get(row.at_edge, (0.0, 0.0))
        return row.beyond + (" at this size" if (larger or 0.0) > (smaller or 0.0) else "")


PAIRS = "pairs"  # law of the width at which neighbouring depths tie, beside BEST_DEPTH, that of the best depth


@dataclass(frozen=True, kw_only=True)
class WidthLaw(Record):
    """ln d_x = a + b·L. of: the width at which depth L is the best one, or stops being better than the next deeper."""

    form: str
    of: Annotated[str, one_of(BEST_DEPTH, PAIRS)]
    a: float
    b: float
    interval_a: Ends
    interval_b: Ends
    valid_from: float  # non-embedding parameters that its depths span
    valid_to: float
    # largest Monte-Carlo standard errors of the constants and of the ends of their intervals
    a_error: float = 0.0
    b_error: float = 0.0
    band: Matrix = field(default=(), repr=False)  # rows of depth and the ends of its width

    @property
    def constants(self) -> tuple[Interval, Interval]:
        """a and b."""
        return Interval(self.a, *self.interval_a, error=self.a_error), Interval(
            self.b, *self.interval_b, error=self.b_error
        )


@dataclass(frozen=True, kw_only=True)
class NoiseSummary(Record):
    """Noise behind the errors of a fit. All but ``source`` is None if no run had a usable loss, and then left
    out."""

    source: str  # source of the noise: none, declared, replicates, scatter, replicates and scatter
    sigma: float | None = None  # sd of one run, nats
    df: float | None = None  # degrees of freedom; None: many
    tau: float | None = None  # scatter between shapes beyond the noise of their runs, nats
    shape_sd: float | None = None  # sd of the error that all seeds of a shape share, nats
    shape_source: str | None = None  # source of shape_sd: scatter, declared, default
    documents: str | None = None  # use of the held-out documents
    diverged_rule: str | None = None


@dataclass(frozen=True, kw_only=True)
class FitOptions(Record):
    """Arguments of ``fit_table``."""

    axis: str = "n_params"
    noise: Any = None
    columns: Any = None
    where: tuple[str, ...] = ()
    seed: int = 0
    confidence: float = 0.95
    documents: bool = True
    at_tokens: float | None = None
    tokens_per_param: float | None = None  # tokens per non-embedding parameter
    unit: str | None = None  # unit of the losses; None: read from the column's name
    drop: tuple[str, ...] | None = None  # columns that were not read
    arm: str | None = None  # the column that tells arms apart
    adjust: tuple[str, ...] = ()  # columns to adjust for, beyond the usual columns
    no_adjust: tuple[str, ...] = ()
    at: tuple[tuple[str, Any], ...] = ()  # (column, value) pairs that the answer is for
    paper: bool = False  # list the paper's own estimates of each pair too

    def __post_init__(self) -> None:
        """Skip the NaN-to-None conversion: a non-finite option is rejected, not treated as missing."""


WITHOUT_FLAG = ("seed", "documents")  # options of the library alone
KEYWORDS = (*FitOptions.keys(), "params", "beside")  # of ``fit_table``: options, further sizes and tables


@dataclass(frozen=True, kw_only=True)
class LeftOutRows(Record):
    """Rows of a table that a fit leaves out."""

    rows: Count
    why: str  # "repeat another row exactly"
    option: str = ""  # option that includes the rows


def _of_one(why: str) -> str:
    """Reason in the singular: ``have`` → ``has``."""
    verb, space, rest = why.partition(" ")
    return {"have": "has", "are": "is", "were": "was"}.get(verb, f"{verb}s") + space + rest


@dataclass(frozen=True, kw_only=True)
class Account(Record):
    """Account of the rows of a table."""

    read: Count
    used: Count  # rows on which a loss of the fit rests
    left_out: tuple[LeftOutRows, ...] = ()  # most rows first
    notes: tuple[str, ...] = ()  # meanings that the columns were given, one sentence each
    one_variable: str = ""  # reason for no answer on shape, in a sentence, if the width follows from the depth
    following_depth: tuple[str, ...] = ()  # columns whose effect cannot be told from that of depth

    @property
    def sentence(self) -> str:
        """``993 rows read, 235 used: 700 …, 58 …``."""
        rows = f"{self.read:,} row{'' if self.read == 1 else 's'} read, "
        if not self.left_out:
            return rows + ("all used" if self.used == self.read else f"{self.used:,} used")
        reasons = [
            f"{one.rows:,} {one.why if one.rows > 1 else _of_one(one.why)}{f' ({one.option})' if one.option else ''}"
            for one in self.left_out
        ]
        return f"{rows}{self.used:,} used: {', '.join(reasons)}"


@dataclass(frozen=True, kw_only=True)
class Provenance(Record):
    """Input, options and versions of a fit."""

    input: str
    input_sha256: str
    columns_taken: tuple[str, ...]  # "ours = theirs", found under another usual name
    versions: dict[str, str]
    options: FitOptions
    account: Account


@dataclass(frozen=True, kw_only=True)
class TrainedNets(Record):
    """Facts that all nets of a fit share; None if they differ or the table has none."""

    vocab_size: Size | None = None
    seq_len: Size | None = None
    layer_weights: float | None = None  # weights of a layer over d²; of a heap: at the held inner width
    tokens: float | None = None  # tokens after which losses are compared
    experts: Size | None = None  # MLPs of a block, of which each token passes ``top_k``; layer_weights counts these
    top_k: Size | None = None


@dataclass(frozen=True, kw_only=True)
class OtherFit(Record):
    """Transitions of another table, fitted with the same options, for comparison."""

    name: str  # name of the table's folder or file
    input: str
    input_sha256: str
    transitions: list[Transition]  # verdict on each pair

    def crossing(self, pair: Transition) -> Transition | None:
        """Find the row of the same two depths; None if it has none."""
        return next((row for row in self.transitions if row.pair == pair.pair), None)


SAME_BLOCK = 0.02  # difference of ln of weights over d² of nets with equal blocks
OF_AXIS = {"device_seconds": WALL_TIME}  # axis of a fit → quantity held equal, where the names differ
Format = Literal[13]  # of fit.json: raised when a field leaves or changes its meaning, or draws are made otherwise
(FORMAT,) = get_args(Format)


@dataclass(frozen=True, kw_only=True, repr=False)
class FitResult(Record):
    """Result of a fit of a table of losses, and content of fit.json.

    Each table is a list of records whose fields are the columns of its CSV file. A fit along a column alone compares no
    depths: its tables are empty.
    """

    format: Format
    cells: list[Cell] = field(default_factory=list)  # one cell per shape
    transitions: list[Transition] = field(default_factory=list)  # one row per pair and estimator, the verdict first
    width_law: WidthLaw | None = None  # of the best depth
    pairs_law: WidthLaw | None = None  # of the pairs of depths: a check
    law_statement: str = ""  # the law in a sentence, or the reason for none
    law_check: str = ""  # the law of the pairs in a sentence
    rivals: list[Rival] = field(default_factory=list)  # the forms compared, the best first
    surface: Surface | None = None
    guideline: list[GuidelineRow] = field(default_factory=list)
    warnings: list[str]  # one warning per line
    noise: NoiseSummary
    rates: list[RateRun] = field(default_factory=list)
    others: list[OtherFit] = field(default_factory=list)  # other tables, for comparison
    comparisons: list[Comparison] = field(default_factory=list)  # comparisons with other recipes, paired if possible
    along: Along | None = None  # the loss against a column
    adjusted: Adjustment | None = None  # adjustment, if runs differ in more than depth and size
    nets: TrainedNets = TrainedNets()
    unit: str  # unit of every loss here
    provenance: Provenance

    def to_json(self) -> str:
        """Text of fit.json. Its ``answers`` are made of the rest, for other readers of JSON."""
        return reader.text_of({**self.to_dict(), "answers": self.answers})

    @property
    def along_alone(self) -> bool:
        """True if losses were compared along a column and no depths."""
        return self.along is not None and not self.cells

    @property
    def axis(self) -> str:
        return self.provenance.options.axis

    @property
    def size_name(self) -> str:
        """Name of a value of the axis in a sentence."""
        return "N" if self.axis == "n_params" else self.axis

    @property
    def confidence(self) -> float:
        return self.provenance.options.confidence

    @property
    def verdicts(self) -> list[Transition]:
        """Verdicts: the one row per pair of depths that every output reads."""
        return verdicts(self.transitions)

    @property
    def held_tokens(self) -> float | None:
        """Tokens of the compared nets: the held ones, or of all; None if they differ or are not known."""
        if (adjusted := self.adjusted) is None:
            return self.nets.tokens
        exact = (row.tokens for row in adjusted.equal if row.equal == N_PARAMS and row.tokens)
        # a heap that answers at equal size alone has its tokens among the held values
        held = (one.value for one in adjusted.columns if one.column == "tokens")
        return next(exact, next(held, self.nets.tokens))

    @cached_property
    def answers(self) -> list[AnswerRow]:
        """One row per answered question, made of the other fields: best depths first."""
        rows = list(self._best_by_size())
        rows += self.adjusted.answers({row.n_params for row in rows}) if self.adjusted else ()
        rows += [row for one in self.comparisons for row in one.rows if row.arm == one.arm]  # the base's are above
        rows += self.along.answers if self.along else ()
        return sorted(rows, key=lambda row: row.question != BEST_DEPTH)

    def _best_by_size(self) -> Iterator[AnswerRow]:
        """Best depth and width at each size of the surface. A cost stands where the axis is one."""
        if (surface := self.surface) is None:
            return
        equal = OF_AXIS.get(self.axis, self.axis)
        of_size, flat = equal == N_PARAMS, surface.flat
        for row in surface.optima:
            known = not row.depth_interval.unbounded
            depth = row.depth_interval if known else Interval()
            unknown = "no effect of depth is shown" if flat else "these losses bound it on neither side"
            yield replace(
                row,
                equal=equal,
                n_params=row.place if of_size else None,  # the axis may be a cost or a total
                cost=None if of_size else row.place,
                tokens=self.held_tokens,
                arm=self.comparisons[0].base if self.comparisons else "",
                **depth.columns("depth"),
                **(self._widths(row.place, depth) if of_size else Interval()).columns("width"),
                worst_depth=None if flat else row.worst_depth,
                worst_percent=None if flat else row.worst_percent,
                monte_carlo_error=depth.error or None,
                reason="" if depth.value else surface.beyond(row) if known else unknown,
            )

    def _widths(self, n_params: float, depth: Interval) -> Interval:
        """Width of the best depth at a size, as wide as nets of the table; the deep end is the narrow one."""

        def width(layers: float) -> float | None:
            weights = self.weights_at(layers)
            return width_at(n_params, layers, weights) if weights else None

        return depth.map(width, falling=True)

    def weights_at(self, depth: float) -> float | None:
        """Weights of a layer over d_x², of nets like the ones that were compared: of all, or as trained at the depths
        about ``depth``; None where nets of one depth differ."""
        import numpy as np

        if self.nets.layer_weights:
            return self.nets.layer_weights
        found: dict[int, list[float]] = {}
        for cell in self.cells:
            if not cell.excluded and cell.n_params:
                found.setdefault(cell.depth, []).append(math.log(cell.n_params / (cell.depth * cell.width**2)))
        if any(max(ln) - min(ln) > SAME_BLOCK for ln in found.values()):
            return None
        depths = sorted(found)
        return math.exp(np.interp(math.log(depth), np.log(depths), [float(np.mean(found[d])) for d in depths]))


def read(path: Any, argument: str = "--fit") -> FitResult:
    """The fit in a fit.json that compares depths. ``path``, ``argument``: as in ``read_any``.

    Raises:
        InputError: as ``read_any``; or depths were not compared.
    """
    found = read_any(path, argument)
    if found.along and found.along_alone:
        raise InputError(
            f"{argument}: {path}; holds the losses along {found.along.column} and no best depth; "
            "run `dwsweep fit` without --along first"
        )
    return found


def read_any(path: Any, argument: str = "--fit") -> FitResult:
    """Read the fit in a fit.json. ``path``: the file, the fit directory, or the sweep directory above it; ``argument``:
    its name in messages.

    Raises:
        InputError: there is none, or it is damaged; the line names the file and the field.
    """
    given = paths.as_path(path)
    for file in [given] if given.suffix == ".json" else [given / "fit.json", given / "fit" / "fit.json"]:
        name = f"{argument}: {file}"
        try:
            found = reader.read(file, FitResult, name)
        except reader.Damaged as error:
            unread = f"{error.templates[0]}; not a fit.json as this version writes it, run `dwsweep fit` again"
            raise InputError(_other_format(file, name) or unread) from error
        if found is not None:
            return found
    if given.is_file():
        beside = folder_beside(given)
        if (beside / "fit.json").exists():
            raise InputError(f"{argument}: {path}; is a table; give the folder of its fit, {beside}")
        raise InputError(f"{argument}: {path}; is a table without a fit, run `dwsweep fit {path}` first")
    if not given.exists():
        raise InputError(f"{argument}: {path}; does not exist; give the folder that `dwsweep fit` wrote, or its sweep")
    raise InputError(f"{argument}: {path}; no fit.json there, run `dwsweep fit {path}` first")


def folder_beside(table: Any) -> Any:
    """Default folder of a table's fit: ``runs.csv`` → ``runs-fit``, for a packed table too."""
    stem = table.with_name(table.stem).stem if table.suffix in (".gz", ".xz", ".bz2", ".zip") else table.stem
    return table.with_name(f"{stem}-fit")


def _other_format(file: Any, name: str) -> str:
    """Line on a fit of another format, with the command that makes it anew; empty for a file that is no such fit."""
    try:
        content: Any = paths.read_json(file) or {}
        table, options = paths.as_path(str(content["provenance"]["input"])), content["provenance"]["options"]
        found, along = content.get("format", 1), content.get("along") or {}
        more = [
            *(["--along", along["column"]] if along else []),
            *(["--compare"] if content.get("comparisons") else []),
        ]
        more += [word for one in content.get("others") or [] for word in ("--with", one["input"])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    if found == FORMAT or not isinstance(options, dict):
        return ""
    if isinstance(found, int) and found > FORMAT:
        return (
            f"{name}; of format {found}, of a newer version than this one, which reads {FORMAT}; install that version"
        )
    here, beside = (str(paths.absolute(folder)) for folder in (file.parent, folder_beside(table)))
    of_sweep = here == str(paths.absolute(table.parent / "fit"))  # the table is a sweep's own
    words, usual = ["dwsweep", "fit", str(table.parent if of_sweep else table)], FitOptions().to_dict()
    words += [*more, *([] if of_sweep or here == beside else ["--out", str(file.parent)])]
    for key, value in options.items():
        if key in WITHOUT_FLAG or value in (usual.get(key, value), None, [], {}):
            continue
        flag = f"--{'column' if key == 'columns' else key.replace('_', '-')}"
        values = [f"{a}={b}" for a, b in value.items()] if isinstance(value, dict) else value
        for one in values if isinstance(values, list) else [values]:
            words += [flag] if one is True else [flag, "=".join(map(str, one)) if isinstance(one, list) else str(one)]
    return f"{name}; of format {found!r}, this version reads {FORMAT}; run `{shlex.join(words)}` again"


def write(result: FitResult, out_dir: Any) -> list[str]:
    """Write fit.json and its tables, each atomically; a table that an earlier fit alone has leaves. Returns the paths.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    out = paths.make_directory(paths.as_path(out_dir))
    texts = {"fit.json": result.to_json(), **tables_of(result)}
    if "along.csv" not in texts:  # of an earlier fit in the folder
        (out / "along.csv").unlink(missing_ok=True)
    for name, text in texts.items():
        paths.write_atomic(out / name, text)
    return [str(out / name) for name in texts]


def tables_of(result: FitResult) -> dict[str, str]:
    """CSV files beside fit.json, by name."""
    texts = {"answers.csv": table_text(map(vars, result.answers), ANSWER_COLUMNS)}
    if result.along:
        texts["along.csv"] = csv_text(result.along.rows, AlongRow)
    if result.along_alone:
        return texts
    return texts | {f"{name}.csv": csv_text(getattr(result, name), kind) for name, kind in TABLES.items()}


def check_folder(out_dir: Any) -> None:
    """Refuse a folder that holds the runs of a sweep: files of a fit there would be taken for runs.

    Raises:
        InputError: it is one of a sweep's own folders, or in one; or it is a file.
    """
    out = paths.as_path(paths.absolute(out_dir))
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: {out_dir}; is a file; allowed: a folder")
    for folder in (out, *out.parents):
        if folder.name in ("runs", "packs", "locks") and any(
            (folder.parent / name).exists() for name in ("plan.csv", "manifest.json")
        ):
            raise InputError(f"--out: {out_dir}; the sweep keeps its {folder.name} there; allowed: any other folder")


def replaced(result: FitResult, out_dir: Any) -> str:
    """Notice that ``write`` will replace a fit of another table or with other options; empty
    where it holds none, or an earlier one of this table."""
    file = paths.as_path(out_dir) / "fit.json"
    if not file.exists():
        return ""
    try:
        old, new = read_any(file).provenance, result.provenance
    except InputError:
        return f"{file} could not be read and is replaced"
    if old.input != new.input:
        return f"replaces the fit of {old.input} in {file.parent}; --out DIR keeps both"
    was, now = old.options.to_dict(), new.options.to_dict()
    changed = [f"{name} {was[name]!r} → {now[name]!r}" for name in now if was.get(name) != now[name]]
    return f"replaces the fit in {file.parent} ({', '.join(changed)}); --out DIR keeps both" if changed else ""
