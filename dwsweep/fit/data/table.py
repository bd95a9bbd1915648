"""Any table of runs, read into plain rows: a sweep directory, CSV, TSV, JSON, JSONL or Parquet, rows or columns.

Usual names of columns in other projects are understood, and the output lists the assignments.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.data import condition, foreign, formats, units
from dwsweep.fit.data.numbers import Columns, as_number, losses
from dwsweep.fit.data.recipes import without_repeats
from dwsweep.fit.data.roles import KNOWN, Roles, roles
from dwsweep.fit.data.rows import ARM, Row, Word, no_loss, plain, why_no_loss
from dwsweep.fit.data.shape import COLUMNS as OF_SHAPE
from dwsweep.fit.data.shape import settle
from dwsweep.records.columns import ALIASES, HELD_OUT, IN_ANY_CASE, REQUIRED, TRAINING, of_type
from dwsweep.records.columns import named as column_names
from dwsweep.records.fit import FitOptions, LeftOutRows
from dwsweep.text import BITS, BITS_PER_TOKEN, NATS, OF_TEXT, PER_CHARACTER, join

MEASURED = {*column_names("size", "outcome", "identity"), "learning_rate"}  # may differ between the runs of a cell
LARGEST = {"depth": 1e5, "width": 1e9}  # larger than any net, far below the largest float
LEAST_COUNT, LARGEST_COUNT = 1e-6, 1e30  # seconds and tokens count too
LARGEST_LOSS = 1e6
OF_OPTUNA = {"number", "value", "state"}  # columns of a study's trials, whose value is the loss
NAMES_LISTED = 30
COUNTS = frozenset(of_type("count"))
# trackers' words for a finished run; autoresearch discards runs without an improvement, which still have a loss
FINISHED = {"finished", "completed", "complete", "success", "succeeded", "keep", "kept", "discard", "discarded"}
DIVERGED_FLAGS = {"diverged", "is_diverged", "has_diverged", "did_diverge"}  # columns of a switch
OWN = {"run_id", "n_params", "n_params_total", "attention_kernel", "data_hash"}  # results.csv in every folder has these
CONFIG = {
    *("config", "params", "hparams", "args", "model", "trainer", "optimizer", "arch", "architecture", "cfg"),
}  # trackers' sections of settings
SUMMARY = {"summary", "metrics", "final", "throughput"}  # trackers' sections of final values
EVAL = {"eval", "val"}  # trackers' sections of held-out losses
BUDGETS = {"flops_budget", "compute_budget", "budget"}  # columns of requested compute
MOST_PARAMETERS = 1e13  # larger than any net: a budget above it counts FLOPs
HELD_OUT_WORDS = {"val", "valid", "validation", "eval", "evaluation", "test", "dev", "held", "heldout"}
LOSS_WORDS = {"loss", "nll", "ce", "xent", "entropy"}
OTHER_WORDS = {"stderr", "se", "sem", "std", "train", "training", "time", "step", "steps", "n"}  # no loss of its own
SHAPE_WORDS = {"depth": ("layer", "layers", "depth"), "width": ("width", "hidden", "embd", "model", "dim")}
UNITS = {"nats": NATS, "bits": BITS_PER_TOKEN, "bpb": BITS, "bpc": PER_CHARACTER}
BPC = re.compile(r"(?:^|_)(?:bpc|bits_per_char(?:acter)?)(?:_|$)")


@dataclass(frozen=True)
class Table:
    """Rows of a table under dwsweep's column names.

    rows: one dict per run; numbers are float or int, blanks are None.
    columns: names in order, after renaming.
    source: origin of the rows, for messages and provenance.
    sha256: hash of the content as read (before ``where``).
    directory: the sweep directory, where there is one (documents.npy lie below it).
    n_read: rows before ``where``, with lines of comments among them.
    loss_column: the table's name of the loss.
    named: columns beyond those that the analysis reads to which the user gave a name.
    taken: ``ours = theirs`` for columns that were found under another usual name.
    unit: of the losses. left_out: why runs have no loss that counts → how many.
    roles: of each column. theirs: the table's name of a column → ours. account: rows that are out already. notes:
    meanings taken for the columns. doubts: warnings about them.
    """

    rows: list[Row]
    columns: tuple[str, ...]
    source: str
    sha256: str
    directory: str | None
    n_read: int
    named: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    loss_column: str = "loss"
    unit: str = NATS
    left_out: dict[str, int] = field(default_factory=dict)
    roles: Roles = field(default_factory=dict)
    theirs: Mapping[str, str] = field(default_factory=dict)
    account: tuple[LeftOutRows, ...] = ()
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """Columns that distinguish runs of one shape, as their values show."""
        known = {*KNOWN, *self.named}
        return tuple(name for name, role in self.roles.items() if role == "setting" and name not in known)


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

    table: path of a sweep directory (its results.csv is read) or of a CSV, TSV, JSON (records or columns), JSONL or
    Parquet file; or a list of dicts; or a dict of columns; or a pandas, polars or pyarrow table; or one that
    ``formats.load`` has read.
    columns: ``{ours: theirs}`` or strings ``"ours=theirs"``.
    where: expressions over the columns, by our names or the table's, such as ``"warmup == 400"``; a row stays if all
    are true.
    unit: of the losses, one of ``UNITS``; default: by the name of their column, else nats.
    drop: columns to ignore, by the table's names or ours. arm: the column that
    names the arm of a run.

    Raises InputError for a missing file, format or column, a text where a number belongs, or a bad expression.
    """
    if unit is not None and unit not in UNITS:
        raise InputError(f"{argument('unit')}: {unit!r}; must be one of {', '.join(UNITS)}")
    loaded = table if isinstance(table, formats.Loaded) else formats.load(table)
    held, source, digest, directory, comments = loaded
    n_read = len(next(iter(held.values()), ()))
    held = _without(held, drop)
    renamed = _mapping(columns)
    held = _rename(held, renamed)
    given = tuple(held)
    taken = understood(given, lambda name: _has_numbers(held[name]), renamed)
    _check_one_meaning(held, {**{name: name for name in ("depth", "width") if name not in renamed}, **taken})
    unusual = _unusual(held, taken, given)
    if unusual.get("loss") == taken.get("bits_per_byte"):
        taken.pop("bits_per_byte", None)
    taken |= unusual
    taken |= units.counted((name for name in given if name not in taken.values()), (*held, *taken))
    of_names: list[str] = []
    if not {"depth", "width"} & {*held, *taken}:
        in_names, alone = foreign.shapes_in_names(held)
        if alone:
            taken |= in_names
            of_names = [_said_of_names(in_names, held)]
    held = _rename(held, taken)
    held, of_units = units.all_scaled(held, {**renamed, **taken})
    held, of_ratio = units.as_ratio(held, {**renamed, **taken}.get("mlp_ratio", "mlp_ratio"))
    _require(held, given, renamed, source, n_read)
    if arm is not None:
        held = _with_arms(held, arm, taken)
    for name, values in held.items():
        if name == "loss":
            held[name] = losses(values)
        elif name in REQUIRED:
            held[name] = [None if value.__class__ is Word else value for value in values]
        else:  # a frame's NaN is a blank, and NaN equals no other NaN as a key
            held[name] = [None if value != value or value.__class__ is Word else value for value in values]
    if "status" in held:
        held["status"] = ["done" if str(v).lower() in FINISHED else v for v in held["status"]]
    rows = [dict(zip(held, values, strict=True)) for values in zip(*held.values(), strict=True)]
    for name in (one for one in held if plain(one) in DIVERGED_FLAGS):
        for row in rows:
            if row[name] in (True, 1) or str(row[name]).lower() in ("true", "yes"):
                row["status"] = "diverged"
    theirs = {their: our for our, their in (*renamed.items(), *taken.items())}
    rows, account = _chosen(rows, tuple(held), theirs, where, source)
    if comments:
        account.append(LeftOutRows(rows=comments, why="begin with # and count as comments"))
    _words_to_status(rows)
    reasons = [why_no_loss(row) for row in rows]
    left_out = Counter(map(str, filter(None, reasons)))
    sized = [row["depth"] is not None and row["width"] is not None for row in rows]
    unsized = Counter(why for why, has_size in zip(reasons, sized, strict=True) if why and not has_size)
    rows = [row for row, reason, has_size in zip(rows, reasons, sized, strict=True) if has_size or not reason]
    account += [LeftOutRows(rows=n, why=no_loss(why)) for why, n in unsized.items()]
    _check_numbers(rows, tuple(held))
    _check_exchanged(rows, renamed)
    own = {our: their for their, our in theirs.items()}
    trusted = directory is not None or "n_params" in renamed or set(given) >= OWN
    settled = settle(rows, trusted, source, lambda name: own.get(name, name))
    of = roles(rows, held, by_values=not directory)
    rows, again = without_repeats(rows, [name for name, role in of.items() if role == "setting" and name not in KNOWN])
    if again:
        account.append(LeftOutRows(rows=again, why="list a run again, under other labels"))
    named = tuple(name for name in renamed if name not in MEASURED)
    loss, of_loss = _of_loss(given, taken, renamed, unit or units.in_rows(rows, tuple(held)))
    return Table(
        rows=rows,
        columns=tuple(held),
        source=source,
        sha256=digest,
        directory=directory,
        n_read=n_read + comments,
        named=named,
        taken=tuple(f"{ours} = {theirs}" for ours, theirs in taken.items()),
        loss_column=loss,
        unit=of_loss,
        left_out=dict(sorted(left_out.items())),
        roles=of,
        theirs=theirs,
        account=tuple(account),
        notes=(
            *_said_of_loss(given, taken, of_loss),
            *(() if "loss" in {**renamed, **taken} else _beside_loss(held)),
            *of_names,
            *of_units,
            *of_ratio,
            *settled.said,
        ),
        doubts=(*settled.doubts, *_contradicted(rows)),
    )


def _contradicted(rows: Sequence[Row]) -> Iterator[str]:
    """Warning about runs whose rows differ in their losses alone, so that they contradict each other."""
    outcomes = {*column_names("outcome")}
    losses_of: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row.get("run_id") is not None and row["loss"] is not None:
            key = (str(row["run_id"]), *(_same(value) for name, value in row.items() if name not in outcomes))
            losses_of[key].add(row["loss"])
    names = list(dict.fromkeys(key[0] for key, found in losses_of.items() if len(found) > 1))
    if names:
        yield (
            f"run_id: {join(names, 3)} {'has' if len(names) == 1 else 'have'} several losses in rows that are equal "
            "otherwise; they count as replicates: check the table"
        )


def _said_of_names(in_names: Mapping[str, str], held: Columns) -> str:
    """Sentence on a shape that was read in the names of runs, by its first one."""
    column = in_names["depth"].partition("~")[0]
    numbers = {ours: (_part(held, pattern) or [None])[0] for ours, pattern in in_names.items()}
    of = ", ".join(f"{ours} {number}" for ours, number in numbers.items())
    return f"shapes are read in {column}: {held[column][0]!r} is {of}"


def _check_one_meaning(held: Columns, taken: Mapping[str, str]) -> None:
    """Refuse a table in which two usual names of depth or of width have different values, such as ``dim`` and
    ``hidden_dim``, of which the larger may be the inner width of the MLP."""
    for ours in ("depth", "width"):
        first = taken.get(ours)
        if first not in held:
            continue
        for other in held:
            usual = plain(other).removeprefix("config_")
            # a letter beside the word itself is another quantity: a sequence length l, a head size d
            meant = usual in ALIASES[ours] and (first != ours or len(usual) > 1)
            # a letter beside a word that names the quantity less surely: D, of tokens, beside hidden
            meant |= len(plain(first)) == 1 and not set(SHAPE_WORDS[ours]).isdisjoint(usual.split("_"))
            known = meant and _has_numbers(held[other])
            pairs = zip(held[first], held[other], strict=True) if known and other != first else ()
            found = next(((one, two) for one, two in pairs if None not in (one, two) and one != two), None)
            if found is None:
                continue
            least, most = (first, other) if found[0] < found[1] else (other, first)
            names = [{ours: least}, {ours: most}]
            if ours == "width" and len(plain(most)) > 1:
                names[0]["d_ff"] = most
            allowed = " or ".join(
                example(f"columns={one}", " ".join(f"--column {a}={shlex.quote(b)}" for a, b in one.items()))
                for one in names
            )
            values = f"{first} ({_shown(found[0])}) and {other} ({_shown(found[1])})"
            raise InputError(f"{ours}: {values} are both usual names of it; allowed: {allowed}")


def _with_arms(held: Columns, arm: str, taken: Mapping[str, str]) -> Columns:
    """The columns with the values of one as the arms."""
    name = next((ours for ours, theirs in taken.items() if theirs == arm), arm)
    if name in REQUIRED:
        raise InputError(f"{argument('arm')}: {arm!r}; is the {name} of the nets; allowed: a column that names recipes")
    if name not in held:
        raise InputError(f"{argument('arm')}: {arm!r}; not in the table{_nearest(arm, tuple(held))}")
    texts = [v if isinstance(v, str) else f"{arm} {'blank' if v is None else v}" for v in held[name]]
    return {**{one: values for one, values in held.items() if one != name}, ARM: texts}


def _unusual(held: Columns, taken: Mapping[str, str], given: Sequence[str]) -> dict[str, str]:
    """``{ours: theirs}`` of second-best columns: budgets, bits, a training loss."""
    known, more = {*held, *taken}, {}
    asked = [n for n in given if plain(n).removeprefix("config_") in BUDGETS and n not in taken.values()]
    spent = [value for name in asked[:1] for value in held[name] if isinstance(value, int | float)]
    if "train_flops" not in known and min(spent, default=0.0) > MOST_PARAMETERS:  # too large for a size
        more["train_flops"] = asked[0]
    if "loss" not in known:
        if "bits_per_byte" in known:
            more["loss"] = taken.get("bits_per_byte", "bits_per_byte")
        elif per_character := [name for name in given if BPC.search(plain(name)) and _has_numbers(held[name])]:
            more["loss"] = per_character[0]
        elif set(given) >= OF_OPTUNA:
            more["loss"] = "value"
        elif training := next((n for usual in TRAINING for n in given if plain(n) == usual), None):
            more["loss"] = training
    return more


def _chosen(
    rows: list[Row], names: Sequence[str], theirs: Mapping[str, str], where: Iterable[str], source: str
) -> tuple[list[Row], list[LeftOutRows]]:
    """Distinct rows that ``where`` keeps, and an account of the others."""
    n_read, account = len(rows), []
    known = set(names)
    written = {one: our for their, our in theirs.items() for one in (their, plain(their)) if one not in known}
    written |= {one: name for name in names if (one := plain(name)) not in known and one not in written}
    expressions = [where] if isinstance(where, str) else list(where)
    for expression in expressions:
        keep = condition.compile_expression(expression, names, written)
        kept = [row for row in rows if keep(row)]
        arms = expression.startswith(f"{ARM} ==")
        why, option = ("are of other arms", "") if arms else ("are not asked for", "--where")
        if len(kept) < len(rows):
            account.append(LeftOutRows(rows=len(rows) - len(kept), why=why, option=option))
        rows = kept
    if n_read and not rows and expressions:
        raise InputError(
            f"{argument('where')}: {' and '.join(expressions)!r}; keeps none of the {n_read} rows of {source}"
        )
    once = list({tuple(map(_same, row.values())): row for row in reversed(rows)}.values())[::-1]
    if again := len(rows) - len(once):
        account.append(LeftOutRows(rows=again, why="repeat another row exactly"))
    return once, account


def _same(value: Any) -> Any:
    """A value as a key: NaN equals itself, and 1 is not True."""
    return (value.__class__.__name__, str(value)) if not isinstance(value, int | float) or value != value else value


def _has_numbers(values: Sequence[Any]) -> bool:
    """True if most of the filled rows of a column hold numbers."""
    known = [value for value in values if value is not None]
    numbers = sum(isinstance(value, int | float) for value in known)
    return numbers > 0 and 2 * numbers >= len(known)


def _of_loss(
    given: Sequence[str], taken: Mapping[str, str], renamed: Mapping[str, str], unit: str | None
) -> tuple[str, str]:
    """(the table's name of the loss, its unit)."""
    loss = {**taken, **renamed}.get("loss", "loss")
    return loss, UNITS[unit] if unit else unit_named(loss)


def _words_to_status(rows: list[Row]) -> None:
    """Take a word in place of a loss, such as FAIL, for the status of a run without a more specific one."""
    for row in rows:
        word = row["loss"]
        if word.__class__ is Word:
            row["loss"] = None
            if why_no_loss(row) == "no loss":
                row["status"] = word


def _said_of_loss(given: Sequence[str], taken: Mapping[str, str], unit: str) -> Iterator[str]:
    """Notes on the loss column and its unit, where several columns qualify or the name leaves a doubt."""
    loss = taken.get("loss", "loss")
    if plain(loss) in TRAINING:
        yield f"THE LOSS IS A TRAINING LOSS ({loss}), not held out: text seen twice lowers it most in large nets"
    elif "loss" in given and loss != "loss":
        yield f"loss = {loss}, which is held out, and not the column loss"
    others = [name for name in given if plain(name) in HELD_OUT and name != loss]
    if "loss" in taken and others:
        yield f"loss = {loss}; {join(others)} {'is' if len(others) == 1 else 'are'} held out too"
    if unit in OF_TEXT:
        yield f"Losses are in {unit} ({loss})"


def _beside_loss(held: Columns) -> Iterator[str]:
    """Note on a column that is called loss and nothing else, beside a held-out loss under an unusual name."""
    if beside := [name for name, values in held.items() if _names_held_out(name) and _has_numbers(values)]:
        option = example(f"columns={{'loss': {beside[0]!r}}}", f"--column loss={shlex.quote(beside[0])}")
        yield f"THE LOSS IS THE COLUMN loss, which may be of training, and not {join(beside, 3)}: {option} takes that"


def _names_held_out(name: str) -> bool:
    """True if a column is named as a loss on text that is held out, under whatever further words."""
    words = {*plain(name).split("_")}
    return bool(words & HELD_OUT_WORDS and words & LOSS_WORDS) and not words & OTHER_WORDS


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


def unit_named(column: str) -> str:
    """Unit of the losses, by the name of their column; nats per token by default."""
    words = plain(column).split("_")
    if BPC.search(plain(column)):
        return PER_CHARACTER
    if "bpb" in words or "bits_per_byte" in plain(column):
        return BITS
    return BITS_PER_TOKEN if "bits" in words else NATS


def _mapping(columns: Any) -> dict[str, str]:
    if not columns:
        return {}
    if isinstance(columns, Mapping):
        return {str(ours): str(theirs) for ours, theirs in columns.items()}
    pairs: dict[str, str] = {}
    for item in [columns] if isinstance(columns, str) else columns:
        ours, sign, theirs = str(item).partition("=")
        if not sign or not ours.strip() or not theirs.strip():
            raise InputError(f"{argument('columns', '--column')}: {item!r}; give ours=theirs, such as loss=val_loss")
        if pairs.setdefault(ours.strip(), theirs.strip()) != theirs.strip():
            both = f"{ours.strip()}={pairs[ours.strip()]} and {item}"
            raise InputError(f"{argument('columns', '--column')}: {both}; one column of the table is read as {ours}")
    return pairs


def _without(held: Columns, drop: Iterable[str] | None) -> Columns:
    """Columns without the dropped ones; ``heads`` drops the column that would be taken for heads."""
    dropped = [drop] if isinstance(drop, str) else list(drop or ())
    if not dropped:
        return held
    taken = understood(tuple(held))
    theirs = [one if one in held else taken.get(one, one) for one in dropped]
    if missing := [one for one in theirs if one not in held]:
        raise InputError(
            *(f"{argument('drop')}: {one!r}; not in the table{_nearest(one, tuple(held))}" for one in missing)
        )
    return {name: values for name, values in held.items() if name not in theirs}


def _rename(held: Columns, mapping: dict[str, str]) -> Columns:
    parts = {theirs: _part(held, theirs) for theirs in mapping.values() if theirs not in held and "~" in theirs}
    held = {**held, **{theirs: values for theirs, values in parts.items() if values is not None}}
    missing = [theirs for theirs in mapping.values() if theirs not in held]
    if missing:
        name = argument("columns", "--column")
        raise InputError(*(f"{name}: {one!r}; not in the table{_nearest(one, tuple(held))}" for one in missing))
    back = {theirs: ours for ours, theirs in mapping.items()}
    # a column that a renamed one displaces is dropped: loss=val_loss must win over an old "loss"
    displaced = set(mapping) - set(back)
    return {back.get(name, name): values for name, values in held.items() if name not in displaced}


def _part(held: Columns, theirs: str) -> list[Any] | None:
    """The column ``COLUMN~PATTERN``: of each text of a column the part that the pattern's group finds; None if there
    is no such column."""
    name, _, pattern = theirs.partition("~")
    if name not in held:
        return None
    try:
        found = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{argument('columns', '--column')}: {theirs!r}; not a pattern: {error}") from None
    if found.groups != 1:
        raise InputError(
            f"{argument('columns', '--column')}: {theirs!r}; a pattern must have one group, such as L(\\d+)"
        )
    seen = [found.search(str(value)) for value in held[name]]
    return [as_number(one[1]) if one else None for one in seen]


def rename(name: str) -> str:
    """Advice on how to name another column."""
    return "rename with " + example(f"columns={{{name!r}: 'THEIRS'}}", f"--column {name}=THEIRS")


def _require(held: Columns, given: Sequence[str], renamed: dict[str, str], source: str, n_rows: int) -> None:
    """Refuse a table without a required column. given: its names of columns. renamed: names that the user gave."""
    if not n_rows:
        raise InputError(f"table: {source}; it has no rows, at least columns {', '.join(REQUIRED)} are needed")
    missing = [name for name in REQUIRED if name not in held]
    if missing:
        if why := foreign.why_no_table(given):
            raise InputError(f"table: {source}; {why}")
        if missing == ["loss"] and likely("loss", given) == "THEIRS" and (why := foreign.why_no_loss_column(given)):
            raise InputError(f"table: {source}; column 'loss' is missing; {why}")
        in_names = foreign.shapes_in_names(held)[0] if {"depth", "width"} <= {*missing} else {}
        pairs = {**renamed, **{name: in_names.get(name) or likely(name, given) for name in missing}}
        renaming = ", ".join(f"{ours!r}: {theirs!r}" for ours, theirs in pairs.items())
        command = " ".join(f"--column {ours}={shlex.quote(theirs)}" for ours, theirs in pairs.items())
        path = f"./{source}" if source.startswith("-") else source
        how = example(f"columns={{{renaming}}}", f"dwsweep fit {shlex.quote(path)} {command}")
        if "THEIRS" in pairs.values():
            how += ", THEIRS being its name in the table"
        if in_names:
            column = next(iter(in_names.values())).partition("~")[0]
            how += f", for {column!r} names shapes ({_shown(next(filter(None, held[column])))})"
        what = f"column{'s' if len(missing) > 1 else ''} {' and '.join(map(repr, missing))}"
        what += " is" if len(missing) == 1 else " are"
        raise InputError(f"table: {source}; {what} missing, have {join(given, NAMES_LISTED)}; rename with {how}")


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names[:1000], 1)
    return f", did you mean {near[0]!r}?" if near else f", it has {join(names, NAMES_LISTED)}"


def _shown(value: Any) -> str:
    if isinstance(value, str | bool):
        return repr(str(value)[:40])
    try:
        return f"{value:g}"
    except (TypeError, ValueError):  # None, or another thing in place of a number
        return str(value)[:40]
    except OverflowError:
        return "a whole number beyond all floats"


def _check_numbers(rows: list[Row], names: Sequence[str]) -> None:
    found = []
    for order, name in enumerate(one for one in of_type("number", "count") if one in names):
        kinds = {(type(value), value) for row in rows if (value := row.get(name)) is not None or name in LARGEST}
        bad = {kind: must for kind in kinds if (must := _must(name, kind[1]))}
        for number, value in enumerate((row.get(name) for row in rows) if bad else (), start=1):
            if (kind := (type(value), value)) in bad:
                found.append((number, order, f"{name}: {_shown(value)} in row {number}; must {bad[kind]}"))
    lines = [line for _, _, line in sorted(found)]
    if lines:
        more = [f"table: {len(lines) - 5} more bad values"] if len(lines) > 5 else []
        raise InputError(*lines[:5], *more)


def _must(name: str, value: Any) -> str:
    """Condition on a column's numbers that ``value`` breaks, in words; empty if it breaks none."""
    if isinstance(value, str | bool):
        return "be a number"
    if name in LARGEST:
        if value is None or not 1 <= value <= LARGEST[name]:
            return f"be a number from 1 to {LARGEST[name]:g}"
        if name == "depth" and not float(value).is_integer():
            return "be a whole number of layers"
    # zero or less is a blank: the row has no such count
    elif name in COUNTS and 0 < value < math.inf and not LEAST_COUNT <= value <= LARGEST_COUNT:
        return f"be from {LEAST_COUNT:g} to {LARGEST_COUNT:g}"
    elif name == "bits_per_byte" and value < 0:
        return "not be negative"
    elif name == "learning_rate" and not 0 < value < math.inf:
        return "be positive and finite"
    elif name == "loss" and math.isfinite(value) and abs(value) > LARGEST_LOSS:
        return f"be a cross-entropy, at most {LARGEST_LOSS:g} (inf marks a run that diverged)"
    return ""


def understood(
    names: Sequence[str], usable: Callable[[str], bool] = lambda name: True, fixed: Container[str] = ()
) -> dict[str, str]:
    """``{ours: theirs}`` for each of our columns that a table lacks and has under a usual name, whatever its case and
    whatever joins its words (``eval/loss``, ``Num-Layers``), also where a tracker keeps it (``config.n_layer``). A
    held-out loss wins over a column ``loss``. usable: whether a column holds numbers. fixed: our columns that the user
    has named."""
    free = {one: name for name in reversed(names) if name not in IN_ANY_CASE and (one := plain(name))}
    settings, ends = dict(free), dict(free)
    for one, name in list(free.items()):
        words = one.removesuffix("_value").split("_")
        while len(words) > 1 and words[0] in CONFIG | SUMMARY | EVAL:
            place = words.pop(0)
            if place not in EVAL:
                settings.setdefault("_".join(words), name)
            if place not in CONFIG:
                ends.setdefault("_".join(words), name)
    outcomes = column_names("outcome")
    # names without an alias first: a column with its own name is not taken by another's alias
    known = {**dict.fromkeys(IN_ANY_CASE, ()), **ALIASES}
    taken: dict[str, str] = {}
    for ours, usual in sorted(known.items(), key=lambda item: bool(item[1])):
        among = ends if ours in outcomes else settings
        has = [among[one] for one in (ours, *usual) if one in among]
        if ours in names and ours == "loss" and ours not in fixed:
            has = [free[one] for one in HELD_OUT if one in free]
        elif ours in names:
            continue
        if ours in OF_SHAPE or ours == "loss":
            has = [name for name in has if usable(name)]
        if has:
            taken[ours] = has[0]
    return taken


def likely(ours: str, names: Sequence[str]) -> str:
    """Column of the table that may be ours, by words in its name; THEIRS where none does."""
    words = {**SHAPE_WORDS, "loss": ("loss", "nll", "ce")}.get(ours, ())
    found = [name for word in words for name in names if word in plain(name).split("_")]
    return found[0] if found else "THEIRS"
