"""Setting of a run: a chosen column, recognised by repeated values.

Runs of one shape and learning rate are replicates where nothing but the seed differs. A column that does differ is

    known       a recipe, a count of tokens, a seed, a time: ``records.columns`` says what each is
    measured    a number that is all distinct, or that its name calls a loss, a time or a memory
    a name      a text that belongs to one run or one shape, a machine, a date; one value to a seed; a moment
    a setting   anything else: its values come again at other shapes

Settings that differ within one shape are refused, with the choices that remain; a known one settles the cell by the
value of most runs.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dwsweep.errors import InputError, example
from dwsweep.fit.data import condition
from dwsweep.fit.data.rows import VALUES_LISTED, Row, listed_values
from dwsweep.fit.data.shape import BLOCK, n_params_of
from dwsweep.fit.data.shape import COLUMNS as OF_SHAPE
from dwsweep.records import columns
from dwsweep.text import format_count

RECIPE = columns.named("recipe")  # columns equal in all runs of a shape, at every learning rate
TUNING = columns.named("tuning")  # columns equal in the runs of a shape at one learning rate
OF_LENGTH = {"learning_rate", "tokens", "steps", "lr", "num_heads", "n_heads", "vocab_size", "tokenizer"}
COUNTS = {"tokens", "steps"}  # columns equal up to an incomplete last batch
COUNT_TOLERANCE = 1.02
COUNTED_APART = 3.0  # largest over smallest count of tokens that replicates happened to take
MOST_REPEATED = 3  # most values of a column named as measured that still counts as chosen
SAME_SIZE = 0.22  # largest gap in ln N between two nets of equal size
MOSTLY = 0.4  # share of such pairs with different settings above which a setting follows depth
ONE_VALUE = 0.9  # share of shapes with the commonest value of their depth
MOST_COMPARED = 2000
COUNT_FROM = 1e5  # numbers from which a value is written as a count: a vocabulary or a window is not
TELLING_DIGITS = 4  # decimals of a loss: two runs that agree to these are one run
OFTEN = 0.5  # share of rows in which a setting's values repeat
MEASURED_WORDS = {
    *("loss", "losses", "nll", "ce", "ppl", "perplexity", "acc", "accuracy", "bpb", "score", "error", "err", "f1"),
    *(
        "time",
        "seconds",
        "secs",
        "sec",
        "minutes",
        "hours",
        "days",
        "duration",
        "runtime",
        "elapsed",
        "eta",
        "walltime",
    ),
    *("throughput", "speed", "tps", "tflops", "gflops", "mfu", "hfu", "latency", "util", "utilization"),
    *("mmlu", "hellaswag", "arc", "piqa", "lambada", "winogrande", "boolq", "openbookqa", "siqa", "blimp", "gsm8k"),
    *("memory", "mem", "vram", "rss", "gib", "gb", "mib", "mb", "watts", "power", "energy", "cost", "co2", "gradnorm"),
}
NAME_WORDS = {
    *("id", "uuid", "index", "unnamed", "hash", "sha", "commit", "branch", "git", "path", "dir", "directory", "folder"),
    *("file", "filename", "url", "link", "user", "entity", "owner", "author", "created", "started", "finished"),
    *("ended", "updated", "date", "timestamp", "heartbeat", "note", "notes", "comment", "comments", "description"),
    *("job", "slurm", "pid", "rank", "best"),
}
MACHINE_WORDS = {"host", "hostname", "node", "machine", "cluster", "gpu", "gpus", "device", "devices", "nodes", "world"}
"""Words for the place where a run was trained: no setting, but one cluster may have trained longer than another."""
RUN_WORDS = {
    *("best", "index", "rank", "id", "unnamed", "trial", "pid", "timestamp", "datetime", "created", "started"),
    *("finished", "ended", "updated", "heartbeat", "gen", "generation", "cand", "candidate", "individual", "attempt"),
}  # words for a number that belongs to one run
MOMENT_WORDS = {
    *("time", "date", "at", "ts", "stamp", "clock", "when", "start", "end", "begin", "stop", "finish", "launch"),
    *("submit", "log", "update", "creation", "modification"),
}  # words of a column of seconds since 1970
MOMENTS = ((6e8, 4.2e9), (6e11, 4.2e12))  # seconds and milliseconds since 1970, of years 1989 to 2103
LONGEST_STUDY = 1.2  # last over first of these
CLOCK = re.compile(r"(?:\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/.])\d{1,2}\2\d{4})[ T,]+\d{1,2}:\d{2}.*")
ROW_NAME, BESIDE_IT = {"run", "name", "id", "exp", "experiment"}, {"display", "wandb", "job", "trial"}
"""Words of a column that names rows, and words that may stand beside them."""
KNOWN = {*(column.name for column in columns.COLUMNS), *OF_SHAPE, BLOCK}


class Kept(NamedTuple):
    """Choice of rows with one recipe per cell. out: index of a row that is left out → (column, its value, the
    value that is used). warnings: one per column that was settled."""

    out: dict[int, tuple[str, Any, Any]]
    warnings: list[str]


def plain(name: str) -> str:
    """A column's name in lower case, its words joined by underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def found(rows: Sequence[Row], names: Iterable[str]) -> tuple[str, ...]:
    """Unknown settings among the columns ``names``, recognised by values that repeat over ``rows``."""
    seeds, depths = ([row.get(name) for row in rows] for name in ("seed", "depth"))
    shapes = [(row.get("depth"), row.get("width"), row.get(BLOCK)) for row in rows]
    return tuple(
        name
        for name in names
        if name not in KNOWN
        and plain(name) not in columns.STEPS
        and not any(all(row.get(name) == row.get(size) for row in rows) for size in ("depth", "width"))
        and not names_depths(name, [row.get(name) for row in rows], depths)
        and _is_setting(name, [row.get(name) for row in rows], shapes, seeds)
    )


def beside_blanks(rows: Sequence[Row]) -> list[str]:
    """Known settings that have one value in some rows and none in the others, as where two tables were joined: a blank
    may be another value."""
    names = (name for name in (*RECIPE, *TUNING) if name not in (*OF_SHAPE, *OF_LENGTH))
    return [name for name in names if is_beside_blanks(rows, name)]


def is_beside_blanks(rows: Sequence[Row], name: str) -> bool:
    """True if a column has one value in some rows and none in the others."""
    values = {_hashable(row.get(name)) for row in rows}
    return len(values) == 2 and None in values


def following_depth(rows: Sequence[Row], names: Iterable[str], blanks: bool = True) -> dict[str, str]:
    """Settings with one value at nearly every depth that differ between depths at one size → the depths of each value:
    the effect of such a setting and that of depth cannot be told apart. Settings that differ within a shape are refused
    elsewhere. blanks: True if a blank counts as a value."""
    found_: dict[str, str] = {}
    rows = [row for row in rows if 0.0 < n_params_of(row) < math.inf]
    for name in names:
        cells = {(row["depth"], math.log(n_params_of(row)), _hashable(row.get(name))) for row in rows}
        cells = {
            (*cell[:2], "blank" if cell[2] is None else cell[2]) for cell in cells if blanks or cell[2] is not None
        }
        most = max(VALUES_LISTED, len({depth for depth, *_ in cells}))
        if not 2 <= len({value for *_, value in cells}) <= most or len(cells) > MOST_COMPARED:
            continue
        depths, sizes, values = zip(*sorted(cells, key=str), strict=True)
        common = {d: Counter(v for own, v in zip(depths, values, strict=True) if own == d) for d in set(depths)}
        if sum(max(counts.values()) for counts in common.values()) < ONE_VALUE * len(cells):
            continue  # each depth has several values
        apart, level = np.subtract.outer(sizes, sizes), np.unique(list(map(str, values)), return_inverse=True)[1]
        pairs = (np.abs(apart) < SAME_SIZE) & (np.subtract.outer(depths, depths) > 0)
        if pairs.any() and (level[:, None] != level)[pairs].mean() >= MOSTLY:
            of = {
                v: sorted({d for d, own in zip(depths, values, strict=True) if own == v}) for v in dict.fromkeys(values)
            }
            by_depth = sorted(of.items(), key=lambda one: one[1])
            shown = [f"{_text(v)} at L {', '.join(f'{d:g}' for d in own)}" for v, own in by_depth]
            more = f"; {len(shown) - VALUES_LISTED} more" if len(shown) > VALUES_LISTED else ""
            found_[name] = "; ".join(shown[:VALUES_LISTED]) + more
    return found_


def _text(value: Any) -> str:
    """A value of a setting in a sentence: ``500M`` tokens."""
    return format_count(value) if _is_number(value) and COUNT_FROM <= abs(value) < math.inf else str(value)


def is_moment(name: str, values: Sequence[Any]) -> bool:
    """True if a column has moments, which runs that end in one second share: texts of a day and a time, or seconds or
    milliseconds since 1970 under the name of a time (``end_time``, ``created_at``, ``startTime``)."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, str) for value in known):
        return all(CLOCK.fullmatch(value.strip()) for value in known)
    words = plain(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).split("_")
    if not known or not all(map(_is_number, known)) or not (MOMENT_WORDS & {*words}):
        return False
    low, high = min(known), max(known)
    return high <= LONGEST_STUDY * low and any(first <= low and high <= last for first, last in MOMENTS)


def names_depths(name: str, values: Sequence[Any], depths: Sequence[Any]) -> bool:
    """True if a column called run, name or id has one value for each depth: it names rows by their depth."""
    words = {*plain(name).split("_")}
    called = bool(words & ROW_NAME) and words <= ROW_NAME | BESIDE_IT
    return called and _one_to_one([_hashable(value) for value in values], depths)


def names_a_result(name: str) -> bool:
    """True if a column is named as a result: a loss, a time, a memory, a pace, a norm of gradients, a benchmark."""
    words = plain(name).split("_")
    pace = words[-1] == "s" or ("per" in words and bool({"second", "sec", "minute", "hour"} & {*words}))
    norm = "norm" in words and bool({"grad", "gradient", "update"} & {*words}) and not {"max", "clip"} & {*words}
    return bool(MEASURED_WORDS & {*words}) or pace or norm


def is_measured(name: str, values: Sequence[Any]) -> bool:
    """True if a column of numbers was measured, not chosen: it is named as a result, or its values do not repeat."""
    known = [value for value in values if value is not None]
    if not known or not all(_is_number(value) for value in known):
        return False
    distinct = len(set(known))
    return distinct > OFTEN * len(known) or (names_a_result(name) and distinct > MOST_REPEATED)


def _is_setting(name: str, values: Sequence[Any], shapes: Sequence[Hashable], seeds: Sequence[Any]) -> bool:
    levels = [_hashable(value) for value in values]
    distinct = set(levels)
    if len(distinct) < 2 or distinct <= {None} or is_measured(name, values) or is_moment(name, values):
        return False
    words = set(plain(name).split("_"))
    texts = any(isinstance(value, str) for value in values)
    if (words & (NAME_WORDS | MACHINE_WORDS) and texts) or RUN_WORDS & words:
        return False
    if len(distinct - {None}) > OFTEN * sum(level is not None for level in levels):  # each run has its own value
        return False
    if "seed" in words or _one_to_one(levels, seeds):
        return False
    at: dict[Hashable, set[Hashable]] = defaultdict(set)
    for level, shape in zip(levels, shapes, strict=True):
        at[level].add(shape)
    again = sum(len(at[level]) > 1 for level in levels)
    return len(set(shapes)) == 1 or again >= OFTEN * len(levels)


def _one_to_one(levels: Sequence[Hashable], seeds: Sequence[Any]) -> bool:
    """True if values and seeds correspond one to one."""
    pairs = {(level, seed) for level, seed in zip(levels, seeds, strict=True) if seed is not None}
    distinct = {level for level, _ in pairs}
    return len(distinct) > 1 and len(pairs) == len(distinct) == len({seed for _, seed in pairs})


def one_recipe(
    rows: Sequence[Row],
    cells: Sequence[tuple[Any, Hashable]],
    counted: int,
    named: Iterable[str] = (),
    settings: Iterable[str] = (),
) -> Kept:
    """Leave out rows so that every cell has one recipe.

    cells: (shape, learning rate) of each row. counted: the first rows are finished, the others are not and follow.
    named: further columns that the user has named. settings: columns that ``found`` found.

    A known column that takes several values within a cell is settled by the value that most runs of the table share,
    where every such cell has it; a found one is refused with a question.

    Raises:
        InputError: there is no such value; one line names the choices.
    """
    out: dict[int, tuple[str, Any, Any]] = {}
    warnings: list[str] = []
    open_: dict[str, Any] = {}  # column → a cell where it varies
    present = {name for row in rows for name in row}
    asked = set(settings)
    for name in dict.fromkeys((*RECIPE, *TUNING, *named, *settings)):
        if name not in present or len({_setting(row, name) for row in rows}) < 2:
            continue
        left = [k for k in range(len(rows)) if k not in out]
        blank = name in RECIPE or name in asked  # a blank counts as a value
        texts = any(isinstance(row.get(name), str) for row in rows)
        values: dict[Hashable, set[Any]] = defaultdict(set)
        counts: Counter[Any] = Counter()
        for k in left[: sum(k < counted for k in left)]:
            value = _setting(rows[k], name)
            if value is not None or blank:
                values[_cell(cells[k], name, texts)].add(value)
                counts[value] += 1
        mixed = {cell for cell, seen in values.items() if _differ(name, seen)}
        if not mixed:
            continue
        if name in COUNTS and (span := _by_the_way([rows[k] for k in left if k < counted], name)):
            warnings.append(
                f"confound {name}: {span[0]:,.0f} to {span[1]:,.0f} within one shape, another count for each seed; "
                "losses are compared as they are"
            )
            continue
        best = max(counts, key=lambda value: (counts[value], str(value)))
        if name in asked or 2 * counts[best] <= counts.total() or not all(best in values[cell] for cell in mixed):
            open_[name] = min(mixed, key=str)
            continue
        for k in left:
            value = _setting(rows[k], name)
            if _cell(cells[k], name, texts) in mixed and value != best and (value is not None or blank):
                out[k] = (name, value, best)
        warnings.append(
            f"{name}: {listed_values(counts)} within one shape; only {name} = {best} is used there "
            "(choose with a `where` expression)"
        )
    if open_:
        raise InputError(_refusal(rows[:counted], cells, open_, asked))
    return Kept(out, warnings)


def _by_the_way(rows: Sequence[Row], name: str) -> tuple[float, float] | None:
    """Least and largest count where each seed of a shape has another one, as measured: they were not chosen."""
    values = [row.get(name) for row in rows]
    seeds = [row.get("seed") for row in rows]
    if None in seeds or None in values or not is_measured(name, values):
        return None
    of: dict[Hashable, list[float]] = defaultdict(list)
    for row in rows:
        of[row["depth"], row["width"], row.get(BLOCK)].append(float(row[name]))
    low, high = max(((min(v), max(v)) for v in of.values()), key=lambda ends: ends[1] / ends[0])
    return (low, high) if high <= COUNTED_APART * low else None


def _cell(cell: tuple[Any, Hashable], name: str, texts: bool) -> Hashable:
    """Cell within which a column must not differ: a text (an activation) differs within a depth and width, whatever
    the inner width, and no recipe follows the learning rate."""
    shape, rate = cell
    place = tuple(shape)[:2] if texts else shape
    return (place, None) if name in RECIPE else (place, rate)


def _setting(row: Row, name: str) -> Any:
    return _hashable(row.get(name))


def _hashable(value: Any) -> Any:
    return value if value is None or isinstance(value, Hashable) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _differ(name: str, seen: set[Any]) -> bool:
    if name in COUNTS and seen and all(isinstance(value, int | float) and 0 < value < math.inf for value in seen):
        return max(seen) > COUNT_TOLERANCE * min(seen)
    return len(seen) > 1


def _refusal(
    rows: Sequence[Row], cells: Sequence[tuple[Any, Hashable]], varying: Mapping[str, Any], found_: set[str]
) -> str:
    """Refusal of differing settings: names, shapes, and the choice that keeps the most shapes."""
    parts = []
    values: dict[str, set[Any]] = {}
    for name, cell in varying.items():
        texts = any(isinstance(row.get(name), str) for row in rows)
        here = {_setting(row, name) for row, of in zip(rows, cells, strict=False) if _cell(of, name, texts) == cell}
        values[name] = here if name in found_ else here - {None}
        parts.append(f"{name} ({listed_values(values[name])} at {cell[0][0]}×{cell[0][1]:g})")
    advice = []
    if choices := _choices(rows, cells, [name for name in varying if name != "lr"]):
        conditions = [condition.equals(name, value) for name, value in choices]
        text = " and ".join(conditions)
        advice.append(f"choose, such as with {example(f'where={text!r}', condition.option(*conditions))}")
    if counts := [name for name in varying if name in COUNTS and name == "tokens"]:
        advice.append(
            f"or compare after equally many with {example('at_tokens=N', '--at-tokens N')}, or as they are with "
            + example(f"drop={counts!r}", "--drop tokens")
        )
    if asked := next((name for name in varying if name in found_), None):
        advice.append(
            "or compare them with "
            + example(f"fit_table(table, arm={asked!r}, compare=True)", f"--arm {asked} --compare")
            + ", or adjust losses for it with "
            + example(f"adjust=[{asked!r}]", f"--adjust {asked}")
            + ", or, if it changes nothing, "
            + example(f"drop=[{asked!r}]", f"--drop {asked}")
        )
    elif along := next((n for n, here in values.items() if n not in counts and _are_numbers(here)), None):
        advice.append(f"or compare them with {example(f'fit_table(table, along={along!r})', f'--along {along}')}")
    if "lr" in varying:
        advice.append("rename with " + example("columns={'learning_rate': 'lr'}", "--column learning_rate=lr"))
    how = "; ".join(advice).removeprefix("or ")
    return f"recipes that differ within one shape would be averaged: {', '.join(parts)}; {how}"


def _choices(rows: Sequence[Row], cells: Sequence[tuple[Any, Hashable]], names: Sequence[str]) -> list[tuple[str, Any]]:
    """Values that leave no shape mixed: column by column the value that keeps the most shapes."""
    kept, left = list(range(len(rows))), list(names)
    chosen: list[tuple[str, Any]] = []
    while True:
        best: tuple[int, int, str, Any] | None = None
        for place, name in enumerate(left):
            texts = any(isinstance(row.get(name), str) for row in rows)
            seen: dict[Hashable, set[Any]] = defaultdict(set)
            shapes: dict[Any, set[Any]] = defaultdict(set)
            for k in kept:
                value = _setting(rows[k], name)
                seen[_cell(cells[k], name, texts)].add(value)
                if value is not None:
                    shapes[value].add(cells[k][0])
            if not shapes or not any(_differ(name, here - {None}) for here in seen.values()):
                continue
            value = max(shapes, key=lambda one: (len(shapes[one]), str(one)))
            if len(shapes[value]) == 1 < len({shape for of in shapes.values() for shape in of}):  # no row is left
                continue
            offer = (len(shapes[value]), -place, name, value)
            best = offer if best is None or offer[:2] > best[:2] else best
        if best is None:
            return chosen
        _, _, name, value = best
        chosen.append((name, value))
        left.remove(name)
        kept = [k for k in kept if _setting(rows[k], name) == value]


def _are_numbers(values: set[Any]) -> bool:
    return len(values) > 1 and all(map(_is_number, values))


def without_repeats(rows: Sequence[Row], settings: Sequence[str]) -> tuple[list[Row], int]:
    """Rows without repeats of a run under other labels, and the number of repeats: shape, seed, learning rate, loss and
    all other measurements agree to the last digit."""
    if not settings or not all(row.get("seed") is not None for row in rows):
        return list(rows), 0
    digits = sorted(len(repr(row.get("loss")).partition(".")[2]) for row in rows)
    if digits[len(digits) // 2] < TELLING_DIGITS:
        return list(rows), 0
    apart = set(settings)
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for row in rows:
        loss = row.get("loss")
        own = (*(name for name in row if name not in apart),)
        key = tuple((name, _hashable(row[name])) for name in own)
        if isinstance(loss, float):
            if key in seen:
                continue
            seen.add(key)
        kept.append(row)
    return kept, len(rows) - len(kept)
