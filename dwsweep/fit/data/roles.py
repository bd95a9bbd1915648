"""Role of each column of a table of runs, decided once from its name and from how its values repeat.

    shape     depth, width, blocks and sizes of the net, and copies of them
    loss      the loss and other results of a run
    length    tokens and steps: how long the run was trained
    cost      FLOPs, seconds, memory, throughput: they follow from the shape
    seed      the seed, and columns with one value per seed
    run       a name, a moment or a running number, which belongs to one run
    setting   a value that somebody chose: it comes again at other shapes
    number    a setting of three numbers or more, for which losses are adjusted unasked
    label     any other column: a machine, or a number of its own in each run, as a random search draws it

Runs of one shape and learning rate are replicates if nothing but the seed differs. A known setting that differs within
such a cell is settled by the commonest value of the table; an unknown one is asked about (``data.runs``). Settings,
labels and lengths are tested against depth and loss (``answers.follows``); settings may be adjusted for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

from dwsweep.fit.data.rows import CONFIG, Row, bare_name, grouped, is_number, plain
from dwsweep.fit.data.shape import BLOCK
from dwsweep.fit.data.shape import COLUMNS as OF_SHAPE
from dwsweep.records import columns
from dwsweep.records.columns import STEPS

Role = Literal["shape", "loss", "length", "cost", "seed", "run", "setting", "number", "label"]
Roles = Mapping[str, Role]

LENGTHS = ("tokens", "steps")
RECIPE = columns.named("recipe")  # columns equal in all runs of a shape, at every learning rate
# a second column of a setting under another usual name
SPARE = [
    alias for one in columns.COLUMNS if one.word not in ("", "tokens") for alias in columns.ALIASES.get(one.name, ())
]
TUNING = (*columns.named("tuning"), *SPARE)  # columns equal in the runs of a shape at one learning rate
KNOWN: dict[str, Role] = {
    **dict.fromkeys((*RECIPE, *TUNING), "setting"),
    **dict.fromkeys(("depth", "width", "n_params", "n_params_total", "budget", *columns.ALIASES["heads"]), "shape"),
    **dict.fromkeys((*OF_SHAPE, "embedding_rank", BLOCK), "shape"),
    **dict.fromkeys(("loss", "bits_per_byte", "loss_stderr", "status"), "loss"),
    **dict.fromkeys(("flops", "flops_6nd", "train_flops", "train_seconds", "device_seconds"), "cost"),
    **dict.fromkeys(("wall_seconds", "tokens_per_second", "pack_size"), "cost"),
    **dict.fromkeys(("attention_kernel", "device_kind"), "label"),
    **dict.fromkeys(LENGTHS, "length"),
    **dict.fromkeys(("run_id", "arm"), "run"),
    "seed": "seed",
}
OFTEN = 0.5  # share of rows in which a setting's values repeat
MOST_REPEATED = 3  # most values of a column named as a result that still counts as chosen
RESULTS = {
    *("loss", "losses", "nll", "ce", "ppl", "perplexity", "acc", "accuracy", "bpb", "score", "error", "err", "f1"),
    *("time", "seconds", "secs", "sec", "minutes", "hours", "days", "duration", "runtime", "elapsed", "eta"),
    *("throughput", "speed", "tps", "tflops", "gflops", "mfu", "hfu", "latency", "util", "utilization", "walltime"),
    *("mmlu", "hellaswag", "arc", "piqa", "lambada", "winogrande", "boolq", "openbookqa", "siqa", "blimp", "gsm8k"),
    *("memory", "mem", "vram", "rss", "gib", "gb", "mib", "mb", "watts", "power", "energy", "cost", "co2", "gradnorm"),
}
OF_RUN = {
    *("best", "index", "rank", "id", "unnamed", "trial", "pid", "timestamp", "datetime", "created", "started"),
    *("finished", "ended", "updated", "heartbeat", "gen", "generation", "cand", "candidate", "individual", "attempt"),
}  # words for a value that belongs to one run
TEXTS_OF_RUN = {
    *("uuid", "hash", "sha", "commit", "branch", "git", "path", "dir", "directory", "folder", "file", "filename"),
    *("url", "link", "user", "entity", "owner", "author", "date", "note", "notes", "comment", "comments"),
    *("description", "job", "slurm"),
}  # words for a text that belongs to one run; drop_path is a number
MACHINES = {
    *("gpu", "gpus", "devices", "device", "nodes", "node", "workers", "world", "host", "hostname", "port", "machine"),
    *("cluster", "year", "tags"),
}  # words for the place and time of a run: no setting, but one cluster may have trained longer than another
ON_EACH = {"batch", "per"}  # words beside those for a part of the recipe, such as batch_per_gpu
ROW_NAME, BESIDE_IT = {"run", "name", "id", "exp", "experiment"}, {"display", "wandb", "job", "trial"}
"""Words of a column that names rows, and words that may stand beside them."""
CLOCK = re.compile(r"(?:\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/.])\d{1,2}\2\d{4})[ T,]+\d{1,2}:\d{2}.*")
SECONDS = ((6e8, 4.2e9), (6e11, 4.2e12))  # seconds and milliseconds since 1970, of years 1989 to 2103
DAY = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])?(?:\.0)?")  # or month: 20260131, 202601
LONGEST_STUDY = 1.05  # last over first of the moments of one study: of counts that differ by less nothing is said
FEWEST_COUNTED = 5  # fewest whole numbers without a gap that count as run numbers
FEWEST_VALUES, MOST_VALUES = 3, 16  # values of a chosen number: two make a switch, more are declared by the user


def roles(rows: Sequence[Row], names: Iterable[str], by_values: bool = True) -> dict[str, Role]:
    """Role of each of the columns ``names``. by_values: False for a sweep of ours, whose columns are known by name."""
    at = {name: [row.get(name) for row in rows] for name in ("depth", "width", "seed")}
    shapes = [(row.get("depth"), row.get("width"), row.get(BLOCK)) for row in rows]
    found: dict[str, Role] = {}
    for name in names:
        known = KNOWN.get(name, "length" if plain(name) in STEPS else None if by_values else "label")
        found[name] = known or _role(name, [row.get(name) for row in rows], shapes, at)
    return found


def _role(name: str, values: Sequence[Hashable], shapes: Sequence[Hashable], at: Mapping[str, Sequence[Any]]) -> Role:
    if values in (at["depth"], at["width"]):
        return "shape"
    known = [value for value in values if value is not None]
    words, distinct = set(plain(name).split("_")), set(known)
    names_depths = words & ROW_NAME and words <= ROW_NAME | BESIDE_IT and _one_to_one(values, at["depth"])
    if words & OF_RUN or _is_moment(known) or names_depths:
        return "run"
    if "seed" in words or _one_to_one(values, at["seed"]):
        return "seed"
    numbers = all(map(is_number, known))
    if numbers and names_a_result(name) and len(distinct) > MOST_REPEATED:
        return "cost"
    texts = any(isinstance(value, str) for value in known)
    if texts and words & TEXTS_OF_RUN:
        return "run"
    if (words & MACHINES and not words & ON_EACH) or len(set(values)) < 2:
        return "label"
    if len(distinct) > OFTEN * len(known):  # each run has its own value
        return "label" if numbers and not _is_index(distinct) else "run"
    of = grouped({*zip(values, shapes, strict=True)})
    again = sum(len(of[value]) > 1 for value in values)
    if len(set(shapes)) > 1 and again < OFTEN * len(values):
        return "label"
    several = FEWEST_VALUES <= len(distinct) <= MOST_VALUES and all(is_number(one) and one >= 0 for one in distinct)
    return "number" if several and not (names_a_result(name) or _is_index(distinct)) else "setting"


def chosen(of: Roles) -> list[str]:
    """Columns that are settings by their values."""
    return [name for name, role in of.items() if role in ("setting", "number") and name not in KNOWN]


def why_refused(name: str, role: Role | None) -> str:
    """Reason why losses are not adjusted for a column; empty if they may be."""
    if name in ("depth", "width", "loss", "seed", "run_id", "status", BLOCK):
        return "is the compared quantity, and no setting; allowed: a column that somebody set"
    role = KNOWN.get(bare(name), role)
    if role in ("cost", "loss") or bare(name) in ("n_params", "n_params_total") or (names_a_result(name) and not role):
        return (
            "follows from the shape (a deeper net takes longer, or more memory), so adjusting for it would take away "
            "a part of what depth does; allowed: a column that somebody set"
        )
    return ""


def bare(column: str) -> str:
    """A column's plain name without the sections of settings that a tracker put before it (``config.batch_size``)."""
    return bare_name(plain(column).removesuffix("_value"), CONFIG | {"train", "training", "data"})


def is_beside_blanks(rows: Sequence[Row], name: str) -> bool:
    """True if a column has one value in some rows and none in the others, as where two tables were joined: a blank may
    be another value."""
    values = {row.get(name) for row in rows}
    return len(values) == 2 and None in values


def _is_moment(known: Sequence[Any]) -> bool:
    """True if a column has moments, which runs that end in one second share: texts of a day and a time, numbers of days
    or months, or seconds or milliseconds since 1970."""
    if known and all(isinstance(value, str) for value in known):
        return all(CLOCK.fullmatch(value.strip()) for value in known)
    if not known or not all(map(is_number, known)) or not min(known) < max(known) <= LONGEST_STUDY * min(known):
        return False
    seconds = any(first <= min(known) and max(known) <= last for first, last in SECONDS)
    return seconds or all(DAY.fullmatch(str(value)) for value in known)


def _is_index(values: Collection[Any]) -> bool:
    """True if numbers are a running count: whole numbers without a gap."""
    if len(values) < FEWEST_COUNTED or not all(float(value).is_integer() for value in values):
        return False
    return max(values) - min(values) == len(values) - 1


def names_a_result(name: str) -> bool:
    """True if a column is named as a result: a loss, a time, a memory, a pace, a norm of gradients, a benchmark."""
    words = plain(name).split("_")
    pace = words[-1] == "s" or ("per" in words and bool({"second", "sec", "minute", "hour"} & {*words}))
    norm = "norm" in words and bool({"grad", "gradient", "update"} & {*words}) and not {"max", "clip"} & {*words}
    return bool(RESULTS & {*words}) or pace or norm


def _one_to_one(values: Sequence[Hashable], others: Sequence[Any]) -> bool:
    """True if values and the others, blanks apart, correspond one to one."""
    pairs = {(value, other) for value, other in zip(values, others, strict=True) if other is not None}
    distinct = {value for value, _ in pairs}
    return len(distinct) > 1 and len(pairs) == len(distinct) == len({other for _, other in pairs})
