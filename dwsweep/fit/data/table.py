"""Any table of runs, read into plain rows under our names of columns, with an account of the rows that are out."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.data import condition, source
from dwsweep.fit.data.cell import Columns, losses
from dwsweep.fit.data.names import Names, unit_named
from dwsweep.fit.data.roles import Roles, chosen, roles
from dwsweep.fit.data.rows import ARM, LeftOut, Row, Word, cell_text, is_number, no_loss, plain, positive, why_no_loss
from dwsweep.fit.data.shape import BLOCK, COUNT_FACTOR, n_params_of, settle
from dwsweep.fit.data.steps import CURVE, IDS, OF_ROWS, name_curves
from dwsweep.records.columns import REQUIRED, of_type
from dwsweep.records.columns import named as column_names
from dwsweep.records.fit import Account, FitOptions, LeftOutRows
from dwsweep.text import BITS, BITS_PER_TOKEN, NATS, PER_CHARACTER, join

MEASURED = {*column_names("size", "outcome", "identity"), "learning_rate"}  # may differ between the runs of a cell
LARGEST = {"depth": 1e5, "width": 1e9}  # larger than any net, far below the largest float
LEAST_COUNT, LARGEST_COUNT = 1e-6, 1e30  # seconds and tokens count too
LARGEST_LOSS = 1e6
LEAST_TOKENS = 1e4  # of a training; smaller counts are in thousands, millions or billions
COUNTS = frozenset(of_type("count"))
# trackers' words for a finished run; autoresearch discards runs without an improvement, which still have a loss
FINISHED = {"ok", "finished", "completed", "complete", "success", "succeeded", "keep", "kept", "discard", "discarded"}
DIVERGED_FLAGS = {"diverged", "is_diverged", "has_diverged", "did_diverge"}  # columns of a switch
OWN = {"run_id", "n_params", "n_params_total", "attention_kernel", "data_hash"}  # results.csv in every folder has these
UNITS = {"nats": NATS, "bits": BITS_PER_TOKEN, "bpb": BITS, "bpc": PER_CHARACTER}
UNIT_COLUMNS = {"unit", "units", "loss_unit", "loss_units", "metric_unit", "unit_of_loss"}  # that name it in each row
TELLING_DIGITS = 4  # decimals of a loss: two runs that agree to these are one run


@dataclass(frozen=True)
class Table:
    """Rows of a table under our column names. rows: one dict per run; numbers are float or int, blanks are None.
    source: origin of the rows, for messages. sha256: of the content as read. directory: the sweep directory, where
    there is one (documents.npy lie below it). n_read: rows before ``where``, with lines of comments among them. roles:
    of each column, in their order. named: further columns to which the user gave a name. taken: ``ours = theirs`` for
    columns under another usual name; theirs: our name of a column → the table's, where they differ. unit: of the
    losses. step: column of the place on a run's curve, if runs have curves. account: rows that are out already. notes:
    meanings taken for the columns. doubts: warnings about them.
    following_depth: columns whose effect cannot be told from that of depth.
    """

    rows: list[Row]
    source: str
    sha256: str
    directory: str | None
    n_read: int
    roles: Roles
    named: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    unit: str = NATS
    step: str = ""
    theirs: Mapping[str, str] = field(default_factory=dict)
    account: Counter[LeftOut] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    following_depth: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """Columns that distinguish runs of one shape, as their values show."""
        return tuple(name for name in chosen(self.roles) if name not in self.named)

    def recipe_of(self, row: Row) -> tuple[Any, ...]:
        """Values that runs of one shape and recipe share, whatever their seed and length."""
        return tuple(map(row.get, self._of_recipe))

    def run_of(self, row: Row) -> tuple[Any, ...]:
        """Key of a row's run: its curve, or its recipe and seed."""
        return (row.get(ARM), row[CURVE]) if CURVE in row else (*self.recipe_of(row), row.get("seed"))

    @cached_property
    def _of_recipe(self) -> list[str]:
        of, ids = ("shape", "setting", "number"), set() if self.directory else IDS - OF_ROWS  # a branch has an id
        return [ARM, BLOCK, *(name for name, role in self.roles.items() if role in of or plain(name) in ids)]

    def ours(self, name: str) -> str:
        """Our name of a column, by the table's name of it, or by either name in another case."""
        theirs = {theirs: ours for ours, theirs in self.theirs.items()}
        if name in theirs or name in self.roles:
            return theirs.get(name, name)
        spelled = {plain(one): one for one in self.roles} | {plain(one): ours for one, ours in theirs.items()}
        return spelled.get(plain(name), name)


def read_asked(table: Any, options: FitOptions) -> Table:
    """``read_table`` with the options of a fit."""
    return read_table(table, options.columns, options.where, options.unit, options.drop, options.arm)


def read_other(table: Any, options: FitOptions, option: str) -> Table:
    """``read_asked`` of a further table; an error names the option that gave it."""
    try:
        return read_asked(table, options)
    except InputError as error:
        raise InputError(*(f"{option}: {line.removeprefix('table: ')}" for line in error.templates)) from None


def read_table(
    table: Any,
    columns: Any = None,
    where: Iterable[str] = (),
    unit: str | None = None,
    drop: Iterable[str] | None = None,
    arm: str | None = None,
) -> Table:
    """Read ``table``, rename and select its rows, and determine their meaning.

    table: path of a sweep directory, a folder of runs or a file (``source.READERS``); runs of a tracker; a list of
    dicts; a dict of columns; a pandas, polars or pyarrow table; or one that ``source.load`` has read.
    columns: ``{ours: theirs}`` or strings ``"ours=theirs"``. where: expressions over the columns, by our names or the
    table's, such as ``"warmup == 400"``; a row stays if all are true. unit: of the losses, one of ``UNITS``; default:
    by the name of their column, else nats. drop: columns to ignore. arm: the column that names the arm of a run.

    Raises:
        InputError: a missing file, format or column, a text where a number belongs, or a bad expression.
    """
    if unit is not None and unit not in UNITS:
        raise InputError(f"{argument('unit')}: {unit!r}; must be one of {', '.join(UNITS)}")
    loaded = table if isinstance(table, source.Loaded) else source.load(table)
    n_read = len(next(iter(loaded.columns.values()), ()))
    names = Names.of(loaded.columns, columns, drop)
    names.require(loaded.source, n_read)
    held = _meant(names.columns if arm is None else _with_arms(names.columns, arm, names.taken))
    rows = [dict(zip(held, values, strict=True)) for values in zip(*held.values(), strict=True)]
    out: Counter[LeftOut] = Counter()  # (why, option) → rows
    rows = _selected(rows, tuple(held), names.renamed, where, out)
    rows = _once(rows, out)
    out["begin with # and count as comments", ""] += loaded.comments
    rows = _with_sizes(rows, out)
    _check_numbers(rows, tuple(held))
    _check_exchanged(rows, names.asked)
    trusted = loaded.directory is not None or "n_params" in names.asked or set(names.given) >= OWN
    said, doubts = settle(rows, trusted, loaded.source, names.theirs)
    said += _lengths_in_units(rows, names.theirs)
    of = roles(rows, held, by_values=not loaded.directory)
    rows = _without_labels(rows, chosen(of), out)
    named = tuple(name for name in names.asked if name not in MEASURED)
    step = name_curves(rows, held, [name for name in chosen(of) if name not in named])
    of_loss = UNITS[unit] if unit else _unit_in_rows(rows, tuple(held)) or unit_named(names.theirs("loss")) or NATS
    return Table(
        rows=rows,
        source=loaded.source,
        sha256=loaded.digest,
        directory=loaded.directory,
        n_read=n_read + loaded.comments,
        named=named,
        taken=tuple(f"{ours} = {theirs}" for ours, theirs in names.taken.items()),
        unit=of_loss,
        step=step,
        roles=of,
        theirs=names.renamed,
        account=+out,
        notes=(*names.of_loss(of_loss), *names.said, *said),
        doubts=tuple(doubts),
    )


def account(read: int, used: int, left_out: Iterable[Mapping[LeftOut, int]], notes: Iterable[str]) -> Account:
    """Account of ``read`` rows, ``used`` of them in the fit; reasons that are alike add up, most rows first.

    left_out: reason → rows, of the table and of each fitted part.
    """
    rows: Counter[LeftOut] = Counter()
    for part in left_out:
        rows.update(part)
    ranked = sorted((+rows).items(), key=lambda item: (-item[1], item[0]))
    known = tuple(LeftOutRows(rows=n, why=why, option=option) for (why, option), n in ranked)
    rest = read - used - sum(one.rows for one in known)
    if rest > 0:
        known = (*known, LeftOutRows(rows=rest, why="count with other rows of their run"))
    return Account(read=read, used=used, left_out=known, notes=tuple(dict.fromkeys(notes)))


# Columns


def _meant(held: Columns) -> Columns:
    """Columns in which a blank is None, a loss that is missing is a ``Word``, and the status is one of ours."""
    # a frame's NaN is a blank, and NaN equals no other NaN as a key
    found = {
        name: values if name in REQUIRED else [None if value != value else value for value in values]
        for name, values in held.items()
    }
    found["loss"] = losses(held["loss"])
    if "status" in found:
        found["status"] = ["done" if str(v).lower() in FINISHED else v for v in found["status"]]
    for name in (one for one in held if plain(one) in DIVERGED_FLAGS):
        status = found.get("status", [None] * len(found[name]))
        marks = [v in (True, 1) or str(v).lower() in ("true", "yes") for v in found[name]]
        found["status"] = ["diverged" if out else v for out, v in zip(marks, status, strict=True)]
    return found


def _with_arms(held: Columns, arm: str, taken: Mapping[str, str]) -> Columns:
    """The columns with the values of one as the arms."""
    name = next((ours for ours, theirs in taken.items() if theirs == arm), arm)
    if name in REQUIRED:
        raise InputError(f"{argument('arm')}: {arm!r}; is the {name} of the nets; allowed: a column that names recipes")
    if name not in held:
        raise InputError(f"{argument('arm')}: {arm!r}; not in the table{condition.nearest(arm, held)}")
    texts = [v if isinstance(v, str) else f"{arm} {'blank' if v is None else v}" for v in held[name]]
    return {**{one: values for one, values in held.items() if one != name}, ARM: texts}


def _unit_in_rows(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Unit of the losses that a column names in each row; empty without one."""
    for name in (one for one in names if plain(one) in UNIT_COLUMNS):
        counts = Counter(str(row[name]) for row in rows if row[name] is not None and row["loss"] is not None)
        found = {unit_named(value) for value in counts} - {""}
        if len(found) > 1:
            most = condition.equals(name, counts.most_common(1)[0][0])
            raise InputError(
                f"loss: {join(counts)} (column {name!r}); must be in one unit: 1 nat is 1.4427 bits; "
                f"{example(f'where={most!r}', condition.option(most))} fits one alone, "
                f"{example(f'drop=[{name!r}]', f'--drop {shlex.quote(name)}')} takes all as they are"
            )
        if found:
            return found.pop()
    return ""


# Rows that count


def _selected(
    rows: list[Row], names: Sequence[str], theirs: Mapping[str, str], where: Iterable[str], out: Counter[LeftOut]
) -> list[Row]:
    """Rows that ``where`` keeps; the others are counted in ``out``."""
    written = {plain(name): name for name in reversed(names)}
    written |= {one: our for our, their in theirs.items() for one in (plain(their), their)}
    expressions, kept = [where] if isinstance(where, str) else list(where), rows
    for expression in expressions:
        keep, before = condition.compile_expression(expression, names, written), len(kept)
        kept = [row for row in kept if keep(row)]
        of_arms = expression in {condition.equals(ARM, row.get(ARM)) for row in rows}
        out[("are of other arms", "") if of_arms else ("are not asked for", "--where")] += before - len(kept)
    if rows and not kept:
        raise InputError(f"{argument('where')}: {' and '.join(expressions)!r}; keeps none of the {len(rows)} rows")
    return kept


def _once(rows: list[Row], out: Counter[LeftOut]) -> list[Row]:
    """Rows without exact repeats; the later ones are counted in ``out``."""
    kept: dict[tuple[Any, ...], Row] = {}
    for row in rows:  # NaN equals itself here, and 1 is not True
        kept.setdefault(tuple(v if is_number(v) and v == v else repr(v) for v in row.values()), row)
    out["repeat another row exactly", ""] += len(rows) - len(kept)
    return list(kept.values())


def _with_sizes(rows: Sequence[Row], out: Counter[LeftOut]) -> list[Row]:
    """Rows that have a loss or a shape; the others are counted in ``out``. A word in place of a loss, such as FAIL, is
    the status of a run without a more specific one."""
    kept: list[Row] = []
    for row in rows:
        if (word := row["loss"]).__class__ is Word:
            row["loss"] = None
            row["status"] = word if why_no_loss(row) == "no loss" else row.get("status")
        if (why := why_no_loss(row)) and None in (row["depth"], row["width"]):
            out[no_loss(why), ""] += 1
        else:
            kept.append(row)
    return kept


def _without_labels(rows: list[Row], settings: Sequence[str], out: Counter[LeftOut]) -> list[Row]:
    """Rows without repeats of a run under other labels: shape, seed, learning rate, loss and all other measurements
    agree to the last digit."""
    digits = sorted(len(repr(row.get("loss")).partition(".")[2]) for row in rows)
    seeds = all(row.get("seed") is not None for row in rows)
    if not settings or not seeds or digits[len(digits) // 2] < TELLING_DIGITS:
        return rows
    kept: dict[Any, Row] = {}
    for k, row in enumerate(rows):
        own = tuple(item for item in row.items() if item[0] not in settings)
        kept.setdefault(own if isinstance(row.get("loss"), float) else k, row)
    out["list a run again, under other labels", ""] += len(rows) - len(kept)
    return list(kept.values())


# Checks


def _lengths_in_units(rows: Sequence[Row], theirs: Callable[[str], str]) -> Iterator[str]:
    """Note on tokens that are no plain count."""
    tokens = [row["tokens"] for row in rows if positive(row.get("tokens"))]
    unit = bool(tokens) and max(tokens) < LEAST_TOKENS
    if unit:
        yield (
            f"{theirs('tokens').upper()} ARE {min(tokens):g} TO {max(tokens):g}, fewer than any training has: losses "
            "are compared at them as they are, and each count of tokens or FLOPs below is in their unit"
        )
    sized = [row for row in rows if positive(row.get("flops"))]
    least = [6.0 * n_params_of(row) * (1.0 if unit else row.get("tokens") or 1.0) for row in sized]
    factors = [one / row["flops"] for row, one in zip(sized, least, strict=True) if positive(one)]
    if factors and min(factors) >= COUNT_FACTOR:
        without = example("drop=['flops']", "--drop flops")
        raise InputError(
            f"flops: {sized[0]['flops']:g} at {sized[0]['depth']:g}×{sized[0]['width']:g}, where 6·N·tokens are "
            f"{least[0]:.3g} or more; must be a plain count; allowed without it: {without}"
        )


def _check_exchanged(rows: Sequence[Row], renamed: Mapping[str, str]) -> None:
    """Refuse a table whose nets have more layers than units, unless the user named both columns."""
    shapes = {(float(row["depth"]), float(row["width"])) for row in rows}
    if {"depth", "width"} <= set(renamed) or 2 * sum(depth > width for depth, width in shapes) <= len(shapes):
        return
    depths, widths = zip(*shapes, strict=True)
    raise InputError(
        f"depth, width: depth {min(depths):g} to {max(depths):g}, width {min(widths):g} to {max(widths):g}; they look "
        "exchanged: "
        + example("columns={'depth': 'width', 'width': 'depth'}", "--column depth=width --column width=depth")
        + " exchanges them, "
        + example("columns={'depth': 'depth', 'width': 'width'}", "--column depth=depth --column width=width")
        + " leaves them"
    )


def _check_numbers(rows: list[Row], names: Sequence[str]) -> None:
    lines = []
    for name in (one for one in of_type("number", "count") if one in names):
        for number, value in enumerate((row.get(name) for row in rows), start=1):
            if must := _must(name, value):
                lines.append((number, f"{name}: {cell_text(value)} in row {number}; must {must}"))
    if lines:
        more = [f"table: {len(lines) - 5} more bad values"] if len(lines) > 5 else []
        raise InputError(*(line for _, line in sorted(lines)[:5]), *more)


def _must(name: str, value: Any) -> str:
    """Condition on a column's numbers that ``value`` breaks, in words; empty if it breaks none."""
    if isinstance(value, str) and name in LARGEST:  # a row of means, or of units below the header
        text = f"not {condition.equals(name, value[:40])}"
        return f"be a number; {example(f'where={text!r}', condition.option(text))} leaves such rows out"
    if isinstance(value, str | bool):
        return "be a number"
    if name in LARGEST and (value is None or not 1 <= value <= LARGEST[name]):
        return f"be a number from 1 to {LARGEST[name]:g}"
    if value is None:
        return ""
    if name == "depth" and not float(value).is_integer():
        return "be a whole number of layers"
    # zero or less is a blank: the row has no such count
    if name in COUNTS and 0 < value < math.inf and not LEAST_COUNT <= value <= LARGEST_COUNT:
        return f"be from {LEAST_COUNT:g} to {LARGEST_COUNT:g}"
    if name == "bits_per_byte" and value < 0:
        return "not be negative"
    if name == "learning_rate" and not 0 < value < math.inf:
        return "be positive and finite"
    if name == "loss" and LARGEST_LOSS < value < math.inf:
        return f"be a cross-entropy, at most {LARGEST_LOSS:g} (inf marks a run that diverged)"
    if name == "loss" and -math.inf < value < 0:
        return "be a cross-entropy, not negative: a log-likelihood changes its sign, a baseline is added"
    return ""
