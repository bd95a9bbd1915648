"""Shape of a net in a table: depth, width, MLP and heads; its weights, and the table's own count of them.

N is the number of weights in the blocks, by the arithmetic that the trainer counts with (``dwsweep.shapes``), from all
columns that the table has; with none of them it is 12·L·d². A count in the table is held against it (``HYPOTHESES``);
a count that nothing explains is asked about. Nets of one depth and width whose MLP, heads or key/value heads differ are
different shapes, and no replicates: ``BLOCK`` names the part in which they differ.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dwsweep.errors import InputError, example
from dwsweep.fit.data.rows import ARM, CONFIG, Row, bare_name, grouped, plain, positive
from dwsweep.shapes import attention_weights, gate_of, mlp_weights
from dwsweep.text import format_count, join

BLOCK = "net_block"  # row key that names its block, if nets of its depth and width have several
COLUMNS = ("d_ff", "mlp_ratio", "gated", "heads", "kv_heads", "head_size", "experts", "top_k")
OF_ACTIVATION = ("activation", "activation_function", "hidden_act", "act_fn")
GATES = ("gated", *OF_ACTIVATION, "mlp", "mlp_type", "ffn_type")  # columns that may name a gate
GATED_WORDS = re.compile(r"glu|(?<!un)(?<!non.)(?<!not.)gated")
FAMILY = "model_type"  # column of a configuration of transformers, as is hidden_act, in which silu is that of a gate
GATED_ACTS = {"silu", "swish"}
OF_NET = (ARM, "depth", "width", *COLUMNS)
YES = {"true", "t", "yes", "y", "on", "1", "1.0"}
LARGEST_RATIO = 32.0  # smaller values of an inner width are ratios to d
SAME_SIZE = math.log(1.25)  # distance in ln N of two nets of one size: each is within 12 % of its budget
AGREES = 0.02  # relative difference within which two counts are one: rounding, biases, norms
EXPLAINS = 0.01  # relative difference of a count and blocks with embeddings
ROUNDED = 1.35  # ratio of counts up to which blocks count as standard ones of 12·L·d² weights
NOMINAL = (0.5, 2.0)  # range of the sizes that a plan asked for over the blocks that were built
COUNT_FACTOR = 30.0  # bounds of a count over the blocks of any net: thousands and millions lie outside
SHARE = 0.9  # share of rows for which an explanation must hold
LEAST_VOCABULARY = 256  # tokens; smaller multiples of d are biases and norms
FEWEST_FOR_BLOCKS = 5  # nets needed to derive the weights of blocks and embeddings from counts
TIMES = (0.3, 3.0)  # range of a real block's weights over the columns' estimate
VECTORS = 20.0  # largest multiple of L·d in biases and norms
TRIED_ALIKE = 0.5  # share of nets with several counts of heads above which heads count as swept


def inner_width(row: Row) -> float | None:
    """Inner width of the MLP; None if the row has neither it nor its ratio to d."""
    width = float(row["width"])
    for name in ("d_ff", "mlp_ratio"):
        if positive(value := row.get(name)):
            return float(value) * width if value <= LARGEST_RATIO and value < width / 2.0 else float(value)
    return None


def is_gated(row: Row) -> bool:
    """True if a column of the row has a gated MLP (SwiGLU, GeGLU), or names a family whose MLP is gated."""
    texts = {bare: value.lower() for name, value in row.items() if isinstance(value, str) and (bare := _gate(name))}
    family = gate_of(texts.pop(FAMILY, ""))
    if row.get("gated") not in (None, ""):
        family = str(row["gated"]).strip().lower() in YES
    elif family is None and texts.get("hidden_act") in GATED_ACTS:
        family = True
    return bool(family) or any(map(GATED_WORDS.search, texts.values()))


@functools.cache
def _gate(name: str) -> str:
    """Name of a column that may name a gate, without the sections before it; empty for any other column."""
    bare = bare_name(plain(name), CONFIG, (FAMILY,))
    return bare if bare in (*GATES, FAMILY) else ""


def weights(row: Row, gated: bool | None = None, every: bool = False) -> float:
    """Weights of the blocks by all columns of the row; 12·L·d² if standard. ``gated`` replaces the row's own word.
    every: of all experts, and not of those that a token passes."""
    depth, width = float(row["depth"]), float(row["width"])
    heads, size, groups = (_at_least_one(row.get(name)) for name in ("heads", "head_size", "kv_heads"))
    heads = heads or (width / size if size else 1.0)
    attention = attention_weights(width, heads, size or width / heads, min(groups, heads) if groups else heads)
    used = top_k(row)
    experts = float(row["experts"]) if used and every else used or 1.0
    hidden = inner_width(row)
    if hidden is None:  # a gated MLP without an inner width holds as much: 8·d²
        return depth * (attention + experts * mlp_weights(width, 4.0 * width, False))
    return depth * (attention + experts * mlp_weights(width, hidden, is_gated(row) if gated is None else gated))


def top_k(row: Row) -> float | None:
    """Experts that a token passes; None if the row names no experts, or not how many a token passes."""
    experts, used = (_at_least_one(row.get(name)) for name in ("experts", "top_k"))
    return min(experts, used) if experts and experts > 1.0 and used else None


def n_params_of(row: Row) -> float:
    """N of a row: its own count, or the weights of its blocks."""
    value = row.get("n_params")
    return float(value) if value is not None else weights(row)


def places(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """(ln N, ln L) of rows."""
    return np.log([n_params_of(row) for row in rows]), np.log([float(row["depth"]) for row in rows])


def of_shape(row: Row) -> tuple[Any, ...]:
    """Key of a row's shape."""
    return row["depth"], row["width"], row.get(BLOCK)


def of_shapes(rows: Iterable[Row], column: str) -> dict[tuple[Any, ...], list[Any]]:
    """Values of a column in the rows of each shape."""
    return grouped((of_shape(row), row.get(column)) for row in rows)


def settle(rows: Sequence[Row], trusted: bool, source: str, names: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Give each row its N and its block, by the first hypothesis that explains the table's own counts; (sentences for
    the account, warnings).

    trusted: True if the user or this package declared its n_params. names: our name of a column → theirs.

    Raises:
        InputError: nothing explains how the table's n_params differs from the weights of its blocks.
    """
    nets = grouped(((*map(row.get, OF_NET), is_gated(row)), row) for row in rows)
    _name_blocks(list(nets.values()))
    each = [of_net[0] for of_net in nets.values()]
    columns = [name for name in COLUMNS if any(row.get(name) not in (None, "") for row in each)]
    counts = (_Counts.of(rows, column, columns, names(column), source) for column in ("n_params", "n_params_total"))
    count = next(filter(None, counts), None)
    if count and trusted and count.column == "n_params":
        _in_units(count)
        return [], []
    found = Reading(_counted_from(each, columns, names))
    if count:
        found = next(reading for explains in HYPOTHESES if (reading := explains(count)))
    for of_net in nets.values():
        n_params = found.times * weights(of_net[0], found.gated or None)
        for row in of_net:
            own = row.get(count.column) if count else None
            if found.gated:
                row["gated"] = True
            if found.counts == "n_params_total" and positive(own):
                row.setdefault("n_params_total", float(own))
            if found.counts == "n_params" and positive(own):
                row["n_params"] = float(own)
            elif count or {*columns} - {"heads"}:
                row["n_params"] = n_params
    said = (found, _of_experts(each, count))
    return [one.why for one in said if one.why], [one.doubt for one in said if one.doubt]


def _counted_from(rows: Sequence[Row], columns: Sequence[str], names: Callable[[str], str]) -> str:
    """Columns from which N is counted, if N is not 12·L·d²; else empty."""
    if all(abs(weights(row) / (12.0 * row["depth"] * row["width"] ** 2) - 1.0) < 1e-9 for row in rows):
        return ""
    used = ", ".join(names(name) for name in columns if name != "heads" or {"kv_heads", "head_size"} & {*columns})
    gated = ", with a gated MLP (3·d·d_ff)" if any(map(is_gated, rows)) else ""
    return f"N is counted from depth, width, {used}{gated}"


# Meanings of a table's own count


class Reading(NamedTuple):
    """Meaning of a table's own count of parameters. why: a sentence; empty if there is nothing to say. gated: it counts
    a gated MLP. times: weights of a block over those that the columns give. counts: our column that it is: N, or the
    total if it holds embeddings; empty: neither. doubt: a warning."""

    why: str = ""
    gated: bool = False
    times: float = 1.0
    counts: str = ""
    doubt: str = ""


def _of_experts(rows: Sequence[Row], count: _Counts | None) -> Reading:
    """Sentence on experts, of which N counts those that a token passes."""
    if experts := sorted({(row["experts"], used) for row in rows if (used := top_k(row))}):
        named = join([f"{used:g} of {every:g}" for every, used in experts], 3)
        return Reading(f"N counts the weights that a token uses, {named} experts; all of them: --axis n_params_total")
    many = max((_at_least_one(row.get("experts")) or 1.0 for row in rows), default=1.0)
    if count or many <= 1.0:
        return Reading()
    how = "and no column says how many a token passes: N counts one of them"
    return Reading(doubt=f"confound n_params: {many:g} experts, {how}")


@dataclass(frozen=True)
class _Counts:
    """Counts of a column (K,) beside the weights of the blocks. theirs: the table's name of the column. blocks:
    (whether the MLP is gated, weights (K,), their formula in words), the plain ones first. every: they hold all
    experts."""

    rows: Sequence[Row]
    column: str
    theirs: str
    source: str
    count: np.ndarray
    depth: np.ndarray
    width: np.ndarray
    blocks: list[tuple[bool, np.ndarray, str]]
    every: bool

    @classmethod
    def of(cls, rows: Sequence[Row], column: str, columns: Sequence[str], theirs: str, source: str) -> _Counts | None:
        rows = [row for row in rows if positive(row.get(column))]
        if not rows:
            return None
        count, depth, width = (np.array([float(row[name]) for row in rows]) for name in (column, "depth", "width"))
        every = column == "n_params_total" and any(map(top_k, rows))
        experts = ", all experts" if every else ""
        formula = "the weights of the blocks" if {*COLUMNS} - {"heads"} & set(columns) else "12·L·d²"
        blocks = [(False, np.array([weights(row, every=every) for row in rows]), formula + experts)]
        if any(inner_width(row) is not None for row in rows) and not all(map(is_gated, rows)):
            gated = np.array([weights(row, True, every) for row in rows])
            blocks.append((True, gated, f"blocks with a gated MLP, 3·d·d_ff{experts}"))
        return cls(rows, column, theirs, source, count, depth, width, blocks, every)

    @property
    def ratio(self) -> np.ndarray:
        return self.count / self.blocks[0][1]

    @property
    def times(self) -> str:
        ends = dict.fromkeys((f"{self.ratio.min():.3g}", f"{self.ratio.max():.3g}"))
        return f"{self.theirs} is {' to '.join(ends)} times {self.blocks[0][2]}"

    @property
    def nets(self) -> int:
        return len({*zip(self.depth.tolist(), self.width.tolist(), strict=True)})


def _blocks(of: _Counts) -> Reading | None:
    """A count is the weights of the blocks but for rounding, biases and norms, alike in all rows."""
    for gate, own, what in of.blocks:
        if _holds((of.count / own - 1.0) / (1.0 + _rounded(of.count) / AGREES), AGREES):
            return Reading(f"{of.theirs} agrees with {what}", gated=gate)
    return None


def _in_units(of: _Counts) -> Reading | None:
    """A count is in thousands, millions or billions: it lies as far from the blocks of any net, alike in all rows.

    Raises:
        InputError: n_params is in such a unit.
    """
    ratio, middle = of.ratio, float(np.median(of.ratio))
    alike = len(ratio) > 1 and ratio.max() < COUNT_FACTOR * ratio.min()
    if of.every or not alike or 1.0 / COUNT_FACTOR < middle < COUNT_FACTOR:
        return None
    unit = {-3: "thousands", -6: "millions", -9: "billions"}.get(round(math.log10(middle)), "another unit")
    if of.column == "n_params":
        raise InputError(
            f"{of.column}: {of.count[0]:g} at {_size(of.rows[0])}, where the blocks hold {weights(of.rows[0]):.4g}; it "
            f"looks like {unit}, must be a plain count of non-embedding weights"
        )
    return Reading(f"{of.theirs} looks like {unit}; N is counted from the columns")


def _other_blocks(of: _Counts) -> Reading | None:
    """A count is the same multiple of all blocks, and is used: the table knows its blocks better than the columns."""
    middle = float(np.median(of.ratio))
    if of.every or of.nets < 3 or not _holds(of.ratio / middle - 1.0, AGREES):
        return None
    why = f"{of.theirs} is {middle:.3g} times {of.blocks[0][2]} in every row, and is used"
    return Reading(why, counts="n_params")


def _blocks_and_embeddings(of: _Counts) -> Reading | None:
    """A count holds the blocks, V·d of embeddings, and biases and norms of L·d."""
    for gate, own, what in of.blocks:
        rest = (of.count - own) / of.width
        basis = np.stack([np.ones_like(of.depth), of.depth], axis=1)
        (vocabulary, vectors), *_ = np.linalg.lstsq(basis, rest, rcond=None)
        if len(np.unique(of.depth)) < 2 or not 0.0 <= vectors <= VECTORS:
            vocabulary, vectors = float(np.median(rest)), 0.0
        fitted = own + of.width * (vocabulary + vectors * of.depth)
        if not _holds(fitted / of.count - 1.0, EXPLAINS) or len(np.unique(of.width)) < 3:
            continue
        if vocabulary >= LEAST_VOCABULARY:
            why = f"{_with_embeddings(of, vocabulary)}{what}, without them"
            return Reading(why, gated=gate, counts="n_params_total")
        if vocabulary > -LEAST_VOCABULARY and vectors > 0.0:
            return Reading(f"{of.theirs} agrees with {what} with biases and norms", gated=gate)
    return None


def _other_blocks_and_embeddings(of: _Counts) -> Reading | None:
    """A count holds other blocks and embeddings, if the values determine both."""
    if of.every or of.nets < FEWEST_FOR_BLOCKS:
        return None
    basis = np.stack([of.blocks[0][1], of.width], axis=1) / of.count[:, None]
    (times, vocabulary), *_ = np.linalg.lstsq(basis, np.ones_like(of.count), rcond=None)
    explained = TIMES[0] < times < TIMES[1] and vocabulary >= LEAST_VOCABULARY
    if not explained or not _holds(basis @ (times, vocabulary) - 1.0, EXPLAINS):
        return None
    why = f"{_with_embeddings(of, vocabulary)}the rest, {times:.3g} times {of.blocks[0][2]}"
    return Reading(why, times=float(times), counts="n_params_total")


def _nominal(of: _Counts) -> Reading | None:
    """A count is the size that a plan asked for: most nets share theirs with a net of other blocks."""
    if of.column != "n_params" or not NOMINAL[0] < of.ratio.min() < 1.0 < of.ratio.max() < NOMINAL[1]:
        return None
    _, own, formula = of.blocks[0]
    by_count = grouped({*zip(of.count.tolist(), own.tolist(), strict=True)})
    shared = [held for held in by_count.values() if max(held) > (1 + EXPLAINS) * min(held)]
    if not shared or 2 * sum(map(len, shared)) < sum(map(len, by_count.values())):
        return None
    return Reading(f"{of.theirs} is a nominal size: nets of other weights share it; N is {formula}")


def _by_its_name(of: _Counts) -> Reading:
    """A count that nothing explains is asked about, unless its name says what it counts.

    Raises:
        InputError: so it is.
    """
    low, high = float(of.ratio.min()), float(of.ratio.max())
    if of.every:
        return Reading(doubt=f"confound n_params: {of.times}, by the columns from which N is counted")
    if of.column == "n_params_total":
        return Reading(f"{of.times}; the difference is not explained, and N is counted from the columns")
    if high <= ROUNDED * low and low > 1.0 / ROUNDED and high < ROUNDED:  # rounded heads and inner widths
        doubt = f"confound n_params: {of.times}: blocks or counts differ between nets"
        return Reading(counts="n_params", doubt=doubt if high > (1.0 + AGREES) * low else "")
    if of.theirs != "n_params":  # the column's own name excludes embeddings
        which = f"which neither embeddings nor a gated MLP explain; {of.theirs} is used"
        return Reading(counts="n_params", doubt=f"confound n_params: {of.times}, {which}")
    row, held = of.rows[0], weights(of.rows[0])
    raise InputError(
        f"n_params: {row['n_params']:.4g} at {_size(row)}, where the blocks hold {held:,.0f}; {low:.3g} to "
        f"{high:.3g} times as many in {of.source}, which neither embeddings, a gated MLP nor biases explain; allowed: "
        + example("drop=['n_params']", "--drop n_params")
        + f" (N = {format_count(held)} there), or "
        + example("columns={'n_params': 'n_params'}", "--column n_params=n_params")
        + " (the count holds no embeddings)"
    )


HYPOTHESES: tuple[Callable[[_Counts], Reading | None], ...] = (
    *(_blocks, _in_units, _other_blocks, _blocks_and_embeddings, _other_blocks_and_embeddings, _nominal, _by_its_name),
)
"""Meanings of a count, tried in this order."""


def _with_embeddings(of: _Counts, vocabulary: float) -> str:
    return f"{of.theirs} holds embeddings, about {vocabulary:,.0f} × width; N is "


def _size(row: Row) -> str:
    return f"{row['depth']:g}×{row['width']:g}"


def _rounded(count: np.ndarray) -> np.ndarray:
    """(K,) largest relative error of counts that have two or three digits, such as 5.0M and 130M; else zeros."""
    digits = max(len(f"{value:.6e}".split("e")[0].replace(".", "").rstrip("0")) for value in count.tolist())
    if digits not in (2, 3):
        return np.zeros_like(count)
    return 0.5 * 10.0 ** (np.floor(np.log10(count)) - digits + 1.0) / count


def _holds(off: np.ndarray, tolerance: float) -> bool:
    return float(np.mean(np.abs(off) <= tolerance)) >= SHARE


def _at_least_one(value: Any) -> float | None:
    """The value if it may count something: 1 or more."""
    return float(value) if positive(value) and value >= 1.0 else None


# Blocks


def _name_blocks(every: Sequence[Sequence[Row]]) -> None:
    """Name the block of each row by the parts that differ between nets of one depth and width. every: rows of each
    net."""
    nets = []
    for rows in every:
        own = {"d_ff": inner_width(rows[0]), **{name: rows[0].get(name) for name in ("heads", "kv_heads", "head_size")}}
        place = (rows[0].get(ARM), rows[0]["depth"], rows[0]["width"])
        nets.append((rows, place, {name: float(value) for name, value in own.items() if positive(value)}))
    varied = {name for _, _, parts in nets for name in parts}
    varied = {name for name in varied if any(several > 1 for several in _values(nets, name))}
    if "heads" in varied:  # if most nets were trained with several counts of heads, these are no part of the shape
        several = _values(nets, "heads", [name for name in ("d_ff", "kv_heads", "head_size") if name in varied])
        if sum(count > 1 for count in several) > TRIED_ALIKE * len(several):
            varied -= {"heads", "head_size"}
    for rows, _, parts in nets:
        if texts := [f"{name} {value:g}" for name, value in parts.items() if name in varied]:
            for row in rows:
                row[BLOCK] = ", ".join(texts)


def _values(
    nets: Sequence[tuple[Any, tuple[Any, ...], dict[str, float]]], part: str, beside: Sequence[str] | None = None
) -> list[int]:
    """Number of values of a part in each depth and width, or, a blank among them, in each value of the parts
    ``beside``."""
    known = [(place, parts) for _, place, parts in nets if part in parts or beside is not None]
    seen = {((*place, *(parts.get(name) for name in beside or ())), parts.get(part)) for place, parts in known}
    return [len(values) for values in grouped(seen).values()]
