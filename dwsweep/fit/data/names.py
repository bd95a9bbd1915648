"""Names of a table's columns: usual names of other projects, and those that the user gave, become ours.

Usual names stand in ``records.columns``; here stand the sections in which trackers keep columns, and second-best
columns. A count whose name holds a unit (``total_tokens_M``, ``params (B)``) is multiplied by it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.data.cell import UNITS, Columns, as_number, parted
from dwsweep.fit.data.condition import NAMES_LISTED, nearest
from dwsweep.fit.data.rows import CONFIG, EVAL, SUMMARY, cell_text, is_number, plain
from dwsweep.fit.data.shape import COLUMNS as OF_SHAPE
from dwsweep.records.columns import ALIASES, HELD_OUT, IN_ANY_CASE, REQUIRED, TRAINING
from dwsweep.records.columns import named as column_names
from dwsweep.text import BITS, BITS_PER_TOKEN, NATS, OF_TEXT, PER_CHARACTER, join

SCORES = {"loss", "loss_stderr", "bits_per_byte"}  # columns that an evaluation gives
OF_OPTUNA = {"number", "value", "state"}  # columns of a study's trials, whose value is the loss
BUDGETS = {"flops_budget", "compute_budget", "budget"}  # columns of requested compute
MOST_PARAMETERS = 1e13  # larger than any net: a budget above it counts FLOPs
HELD_OUT_WORDS = {"val", "valid", "validation", "eval", "evaluation", "test", "dev", "held", "heldout"}
LOSS_WORDS = {"loss", "nll", "ce", "xent", "entropy"}
OTHER_WORDS = {"stderr", "se", "sem", "std", "train", "training", "time", "step", "steps", "n"}  # no loss of its own
SHAPE_WORDS = {"depth": {"layer", "layers", "depth"}, "width": {"width", "hidden", "embd", "model", "dim"}}
SHARED_EXPERTS = re.compile(r"(?:^|_)(?:n|num)_shared_experts?$")  # of the inner width of the others
BPC = re.compile(r"(?:^|_)(?:bpc|bits_(?:per_)?char(?:acter)?s?)(?:_|$)")
BPB = re.compile(r"(?:^|_)(?:bpb|bits_(?:per_)?bytes?)(?:_|$)")
MOST = {"tokens": 1e16, "n_params": 1e13, "n_params_total": 1e13, "flops": 1e30}
"""Counts that may have a unit in their name, and the largest plausible value of each."""
LARGEST_MULTIPLIER = 2.0  # of Llama; a larger value is a ratio of widths
WORDS = {
    "depth": ("depth", "layer", "nlayer", "numl", "nl", "d", *ALIASES["depth"]),
    "width": ("width", "hidden", "dmodel", "nembd", "embd", "emb", "dx", "h", "w", *ALIASES["width"]),
    "seed": ("seed",),
}
"""Words beside a number in the name of a run: L12-d768, numl6, n_layer=12; 12L, 768d."""
PAIR = re.compile(r"(?<![0-9.])([0-9]+) ?[x×] ?([0-9]+)(?![0-9.])")
"""Depth and width without words, in either order: 12x768."""


@dataclass(frozen=True)
class Names:
    """Columns of a table by our names. columns: our name → values. given: its own names. asked, taken: our name → its
    name, as the user gave it or as it is usual. said: sentences on meanings taken."""

    columns: Columns
    given: tuple[str, ...]
    asked: Mapping[str, str]
    taken: Mapping[str, str]
    said: tuple[str, ...] = ()

    @classmethod
    def of(cls, held: Columns, columns: Any, drop: Iterable[str] | None) -> Names:
        """``held`` by our names, without the columns ``drop``. columns: ``{ours: theirs}`` or ``"ours=theirs"``.

        Raises:
            InputError: a name is not in the table, or two columns are usual names of depth or width.
        """
        asked = _mapping(columns)
        out = [drop] if isinstance(drop, str) else list(drop or ())
        usual = _usual(tuple(held)) if out else {}  # ``heads`` drops the column that would be taken for heads
        out = [one if one in held else usual.get(one, one) for one in out]
        _check_there(argument("drop"), out, held)
        held = _renamed({name: values for name, values in held.items() if name not in out}, asked)
        given = tuple(held)
        taken = _usual(given, lambda name: _has_numbers(held[name]), asked)
        _check_one_meaning(held, {**{name: name for name in ("depth", "width") if name not in asked}, **taken})
        taken |= _second_best(held, taken)
        if taken.get("loss") == taken.get("bits_per_byte"):
            taken.pop("bits_per_byte", None)
        stems = {stem: name for name in reversed(given) if name not in taken.values() and (stem := parted(name)[0])}
        for ours in (one for one in MOST if one not in {*held, *taken}):
            if stem := next((one for one in (ours, *ALIASES[ours]) if one in stems), ""):
                taken[ours] = stems[stem]
        said: list[str] = []
        in_names = _shapes_in_names(held) if not {"depth", "width"} & {*held, *taken} else {}
        for column, found in in_names.items():
            held = {**held, **found}
            first = ", ".join(f"{ours} {values[0]}" for ours, values in found.items())
            said.append(f"shapes are read in {column}: {held[column][0]!r} is {first}")
        held = _renamed(held, taken)
        beside = [name for name, values in held.items() if _names_held_out(name) and _has_numbers(values)]
        if "loss" not in {*asked, *taken} and beside:
            option = example(f"columns={{'loss': {beside[0]!r}}}", f"--column loss={shlex.quote(beside[0])}")
            what = f"which may be of training, and not {join(beside, 3)}"
            said.insert(0, f"THE LOSS IS THE COLUMN loss, {what}: {option} takes that")
        return cls(held, given, asked, taken, (*said, *_converted(held, {**asked, **taken})))

    @property
    def renamed(self) -> dict[str, str]:
        """Our name → the table's, of each column that has another one there."""
        return {**self.taken, **self.asked}

    def theirs(self, ours: str) -> str:
        """The table's name of a column."""
        return self.renamed.get(ours, ours)

    def of_loss(self, unit: str) -> Iterator[str]:
        """Notes on the loss column and its unit, where several columns qualify or the name leaves a doubt."""
        loss = self.taken.get("loss", "loss")
        if plain(loss) in TRAINING:
            yield f"THE LOSS IS A TRAINING LOSS ({loss}), not held out: text seen twice lowers it most in large nets"
        elif "loss" in self.given and loss != "loss":
            yield f"loss = {loss}, which is held out, and not the column loss"
        others = [name for name in self.given if plain(name) in HELD_OUT and name != loss]
        if "loss" in self.taken and others:
            yield f"loss = {loss}; {join(others)} {'is' if len(others) == 1 else 'are'} held out too"
        if unit in OF_TEXT:
            yield f"Losses are in {unit} ({loss})"

    def require(self, source: str, n_rows: int) -> None:
        """Refuse a table of ``n_rows`` without a required column."""
        if not n_rows:
            raise InputError(f"table: {source}; it has no rows, at least columns {', '.join(REQUIRED)} are needed")
        missing = [name for name in REQUIRED if name not in self.columns]
        if not missing:
            return
        pairs = {**self.asked, **dict.fromkeys(missing, "THEIRS")}
        path = shlex.quote(f"./{source}" if source.startswith("-") else source)
        how = example(f"columns={pairs}", f"dwsweep fit {path} {_options(pairs)}")
        what = f"column{'s' if len(missing) > 1 else ''} {' and '.join(map(repr, missing))}"
        what += " is" if len(missing) == 1 else " are"
        raise InputError(
            f"table: {source}; {what} missing, have {join(self.given, NAMES_LISTED)}; rename with {how}, THEIRS being "
            "its name in the table"
        )


def rename(name: str) -> str:
    """Advice on how to name another column."""
    return "rename with " + example(f"columns={{{name!r}: 'THEIRS'}}", f"--column {name}=THEIRS")


def unit_named(text: str) -> str:
    """Unit of the losses that the name of a column, or a text in one, names; empty if it names none."""
    words = {*plain(text).split("_")}
    if BPC.search(plain(text)):
        return PER_CHARACTER
    if BPB.search(plain(text)):
        return BITS
    return BITS_PER_TOKEN if words & {"bit", "bits", "bpt"} else NATS if words & {"nat", "nats"} else ""


# Which column is which


def _usual(
    names: Sequence[str], usable: Callable[[str], bool] = lambda name: True, fixed: Container[str] = ()
) -> dict[str, str]:
    """``{ours: theirs}`` for each of our columns that a table lacks and has under a usual name, whatever its case and
    whatever joins its words (``eval/loss``, ``Num-Layers``), also where a tracker keeps it (``config.n_layer``). A
    held-out loss wins over a column ``loss``. usable: whether a column holds numbers. fixed: our columns that the user
    has named."""
    free = {one: name for name in reversed(names) if name not in IN_ANY_CASE and (one := plain(name))}
    # name without sections → (sections, column), the whole names first
    spelled: dict[str, list[tuple[set[str], str]]] = {one: [(set(), name)] for one, name in free.items()}
    for one, name in free.items():
        words = one.removesuffix("_value").split("_")
        for k in range(1, len(words)):
            if words[k - 1] not in CONFIG | SUMMARY | EVAL:
                break
            spelled.setdefault("_".join(words[k:]), []).append(({*words[:k]}, name))
    outcomes = column_names("outcome")
    # names without an alias first: a column with its own name is not taken by another's alias
    known = {**dict.fromkeys(IN_ANY_CASE, ()), **ALIASES}
    taken: dict[str, str] = {}
    for ours, usual in sorted(known.items(), key=lambda item: bool(item[1])):
        # the seconds of an evaluation are not those of the training
        barred = CONFIG if ours in SCORES else CONFIG | EVAL if ours in outcomes else EVAL
        fits = ((name for of, name in spelled.get(one, ()) if not of & barred) for one in (ours, *usual))
        has = [name for names_of in fits for name in islice(names_of, 1)]
        if ours in names and ours == "loss" and ours not in fixed:
            has = [free[one] for one in HELD_OUT if one in free]
        elif ours in names:
            continue
        if (ours in OF_SHAPE and ours != "gated") or ours == "loss":  # a gate is a switch or a text
            has = [name for name in has if usable(name)]
        if has:
            taken[ours] = has[0]
    return taken


def _second_best(held: Columns, taken: Mapping[str, str]) -> dict[str, str]:
    """``{ours: theirs}`` of second-best columns: budgets, bits, a training loss."""
    known, more = {*held, *taken}, {}
    asked = [n for n in held if plain(n).removeprefix("config_") in BUDGETS and n not in taken.values()]
    spent = [value for name in asked[:1] for value in held[name] if isinstance(value, int | float)]
    if "train_flops" not in known and min(spent, default=0.0) > MOST_PARAMETERS:  # too large for a size
        more["train_flops"] = asked[0]
    bits = [taken.get("bits_per_byte", "bits_per_byte")] if "bits_per_byte" in known else []
    bits += [name for name in held if BPC.search(plain(name)) and _has_numbers(held[name])]
    training = [name for usual in TRAINING for name in held if plain(name) == usual]
    if "loss" not in known and (found := [*bits, *(["value"] if {*held} >= OF_OPTUNA else []), *training]):
        more["loss"] = found[0]
    return more


def _check_one_meaning(held: Columns, taken: Mapping[str, str]) -> None:
    """Refuse a table in which two usual names of depth or of width have different values, such as ``dim`` and
    ``hidden_dim``, of which the larger may be the inner width of the MLP."""
    for ours, first in ((one, taken[one]) for one in ("depth", "width") if taken.get(one) in held):
        for other in (name for name in held if name != first and _has_numbers(held[name])):
            usual = plain(other).removeprefix("config_")
            # a letter beside the word itself is another quantity: a sequence length l, a head size d
            meant = usual in ALIASES[ours] and (first != ours or len(usual) > 1)
            # a letter beside a word that names the quantity less surely: D, of tokens, beside hidden
            meant |= len(plain(first)) == 1 and bool(SHAPE_WORDS[ours] & {*usual.split("_")})
            pairs = zip(held[first], held[other], strict=True)
            found = next(((one, two) for one, two in pairs if None not in (one, two) and one != two), None)
            if not meant or found is None:
                continue
            least, most = (first, other) if found[0] < found[1] else (other, first)
            names = [{ours: least}, {ours: most}]
            if ours == "width" and len(plain(most)) > 1:
                names[0]["d_ff"] = most
            allowed = " or ".join(example(f"columns={one}", _options(one)) for one in names)
            values = f"{first} ({cell_text(found[0])}) and {other} ({cell_text(found[1])})"
            raise InputError(f"{ours}: {values} are both usual names of it; allowed: {allowed}")


def _names_held_out(name: str) -> bool:
    """True if a column is named as a loss on text that is held out, under whatever further words."""
    words = {*plain(name).split("_")}
    return bool(words & HELD_OUT_WORDS and words & LOSS_WORDS) and not words & OTHER_WORDS


def _has_numbers(values: Sequence[Any]) -> bool:
    """True if most of the filled rows of a column hold numbers."""
    known = [value for value in values if value is not None]
    numbers = sum(isinstance(value, int | float) for value in known)
    return numbers > 0 and 2 * numbers >= len(known)


# The user's names


def _mapping(columns: Any) -> dict[str, str]:
    if isinstance(columns, Mapping):
        return {str(ours): str(theirs) for ours, theirs in columns.items()}
    pairs: dict[str, str] = {}
    option = argument("columns", "--column")
    for item in [columns] if isinstance(columns, str) else columns or ():
        ours, sign, theirs = map(str.strip, str(item).partition("="))
        if not (sign and ours and theirs):
            raise InputError(f"{option}: {item!r}; give ours=theirs, such as loss=val_loss")
        if pairs.setdefault(ours, theirs) != theirs:
            raise InputError(f"{option}: {ours}={pairs[ours]} and {item}; one column of the table is read as {ours}")
    return pairs


def _options(pairs: Mapping[str, str]) -> str:
    return " ".join(f"--column {ours}={shlex.quote(theirs)}" for ours, theirs in pairs.items())


def _renamed(held: Columns, mapping: Mapping[str, str]) -> Columns:
    """Columns by the names of ``mapping``, ours → theirs; ``COLUMN~PATTERN`` is of each text of a column the part that
    the pattern's group finds. A column that a renamed one displaces is dropped."""
    held, option = dict(held), argument("columns", "--column")
    for theirs in mapping.values():
        name, tilde, pattern = theirs.partition("~")
        if theirs in held or not tilde or name not in held:
            continue
        try:
            found = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise InputError(f"{option}: {theirs!r}; not a pattern: {error}") from None
        if found.groups != 1:
            raise InputError(f"{option}: {theirs!r}; a pattern must have one group, such as L(\\d+)")
        seen = [found.search(str(value)) for value in held[name]]
        held[theirs] = [as_number(one[1]) if one else None for one in seen]
    _check_there(option, mapping.values(), held)
    back = {theirs: ours for ours, theirs in mapping.items()}
    return {back.get(name, name): values for name, values in held.items() if name in back or name not in mapping}


def _check_there(option: str, names: Iterable[str], held: Columns) -> None:
    if missing := [one for one in names if one not in held]:
        raise InputError(*(f"{option}: {one!r}; not in the table{nearest(one, held)}" for one in missing))


# Shapes in the names of runs


def _shapes_in_names(held: Columns) -> dict[str, Columns]:
    """Column of names → depth, width and, where it stands there, seed, if one column alone has texts each of which
    holds one depth and one larger width."""
    texts = {name: values for name, values in held.items() if all(isinstance(value, str) for value in values)}
    found = {
        name: shapes for name, values in texts.items() if values and (shapes := _by_words(values) or _by_place(values))
    }
    if len(found) != 1:
        return {}
    ((name, shapes),) = found.items()
    seeds = [_beside("seed", text) for text in texts[name]]
    of_seed = {"seed": [min(one) for one in seeds]} if "seed" not in held and all(seeds) else {}
    return {name: {"depth": [one for one, _ in shapes], "width": [two for _, two in shapes], **of_seed}}


def _by_words(texts: Sequence[str]) -> list[tuple[int, int]]:
    """(depth, width) in each text by the words beside them; empty if one text has none, or two."""
    found = [[(d, w) for d in _beside("depth", text) for w in _beside("width", text) if 0 < d < w] for text in texts]
    return [pairs[0] for pairs in found] if all(len(pairs) == 1 for pairs in found) else []


def _by_place(texts: Sequence[str]) -> list[tuple[int, int]]:
    """(depth, width) in each text, which holds two numbers in one order and no words for them."""
    if any(_beside(ours, text) for text in texts for ours in ("depth", "width")):
        return []
    found = [tuple(map(int, pair.groups())) for text in texts if (pair := PAIR.search(text))]
    alike = len(found) == len(texts) and len({one < two for one, two in found}) == 1
    return [(min(pair), max(pair)) for pair in found if 0 < min(pair) < max(pair)] if alike else []


def _beside(ours: str, text: str) -> set[int]:
    """Numbers beside the words of a column: behind them, else before them."""
    words = [re.escape(word) + ("[=:]?" if len(word) == 1 else "[=:_-]?") for word in WORDS[ours]]
    found = re.findall(rf"(?i)(?<![a-z])(?:{'|'.join(words)})([0-9]+)(?![0-9.])", text)
    return {*map(int, found or re.findall(rf"(?i)(?<![a-z0-9.])([0-9]+)(?:{'|'.join(WORDS[ours])})(?![a-z])", text))}


def _converted(held: Columns, known: Mapping[str, str]) -> Iterator[str]:
    """Convert counts and ratios that are in another unit than ours, and say so: a count with a unit in its name;
    Llama's multiplier of the MLP, whose inner width is 8/3 times the multiplier times the width, with a gate; experts
    beside those that every token passes, which a mixture names in another column. known: our name → the table's."""
    for ours, theirs in ((ours, known.get(ours, ours)) for ours in MOST if ours in held):
        word, factor = UNITS.get(parted(theirs)[1], ("", 0.0))
        if factor and max(filter(is_number, held[ours]), default=0.0) * factor > MOST[ours]:
            yield f"{theirs} is too large for {word} and is read as it is"
        elif factor:
            held[ours] = [float(f"{value * factor:.15g}") if is_number(value) else value for value in held[ours]]
            yield f"{theirs} is in {word}"
    ratio, theirs = held.get("mlp_ratio", []), known.get("mlp_ratio", "")
    of_llama = plain(theirs).endswith("ffn_dim_multiplier")
    if of_llama and max(filter(is_number, ratio), default=9.0) <= LARGEST_MULTIPLIER:
        held["mlp_ratio"] = [8.0 / 3.0 * value if is_number(value) else value for value in ratio]
        held.setdefault("gated", [True] * len(ratio))
        inner = f"the inner width is {theirs} × 8/3 × width, of a gated MLP"
        yield f"{theirs} is Llama's: {inner}; a column d_ff wins over it"
    shared = next((name for name in held if SHARED_EXPERTS.search(plain(name))), "")
    if shared and {"experts", "top_k"} <= {*held} and any(map(is_number, held[shared])):
        for name in ("experts", "top_k"):
            pairs = zip(held[name], held[shared], strict=True)
            held[name] = [one + more if is_number(one) and is_number(more) else one for one, more in pairs]
        yield f"{shared}: every token passes them, beside those of its choice, and N counts both"
