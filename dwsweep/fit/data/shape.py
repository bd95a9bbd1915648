"""Shape of a net in a table: depth, width, MLP and heads; its weights, and the table's own count of them.

N is the number of weights in the blocks, by the arithmetic that the trainer counts with (``dwsweep.shapes``), from all
columns that the table has: the inner width of the MLP or its ratio, a gate, heads, key/value heads, the head size. With
none of them it is 12·L·d². A count in the table is held against it, row by row:

    count = blocks              it agrees
    count = k·blocks            every block holds k times as many weights: the table knows its blocks better
    count = blocks + V·d + …    embeddings: V repeats in all rows, and the blocks are what is left

anything else is asked about. Nets of one depth and width whose MLP, heads or key/value heads differ are different
shapes, and no replicates: ``BLOCK`` names the part in which they differ.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dwsweep.errors import InputError, example
from dwsweep.fit.data.rows import ARM, Row
from dwsweep.shapes import attention_weights, mlp_weights
from dwsweep.text import format_count, join

BLOCK = "net_block"  # row key that names its block, if nets of its depth and width have several
COLUMNS = ("d_ff", "mlp_ratio", "gated", "heads", "kv_heads", "head_size", "experts", "top_k")
GATES = ("gated", "activation", "mlp", "mlp_type", "ffn_type", "hidden_act", "act_fn")  # columns that may name a gate
GATED_WORDS = re.compile(r"glu|(?<!un)(?<!non.)(?<!not.)gated")
YES = {"true", "t", "yes", "y", "on", "1", "1.0"}
LARGEST_RATIO = 32.0  # smaller values of an inner width are ratios to d
OFF = 0.05  # relative difference above which a count is named beside others that agree
AGREES = 0.02  # relative difference within which two counts are one: rounding, biases, norms
EXPLAINS = 0.01  # relative difference of a count and blocks with embeddings
ROUNDED = 1.35  # ratio of counts up to which blocks count as standard ones of 12·L·d² weights
NOMINAL = (0.5, 2.0)  # range of the sizes that a plan asked for over the blocks that were built
NEAR_GATED = 0.08  # relative distance within which an inner width is 8/3·d rounded to a multiple
SHARE = 0.9  # share of rows for which an explanation must hold
LEAST_VOCABULARY = 256  # tokens; smaller multiples of d are biases and norms
SAME_VOCABULARY = 5e-4  # relative difference
FEWEST_FOR_BLOCKS = 5  # nets needed to derive the weights of blocks and embeddings from counts
TIMES = (0.3, 3.0)  # range of a real block's weights over the columns' estimate
VECTORS = 20.0  # largest multiple of L·d in biases and norms
TRIED_ALIKE = 0.5  # share of nets with several counts of heads above which heads count as swept
VOCABULARIES = (50257, 50304, 50432, 32000, 32064, 32768, 49152, 65536, 100277, 128256, 151936, 256000)


class Count(NamedTuple):
    """A table's own count of parameters beside the blocks. agrees: True if it counts blocks and may serve as N. gated:
    the MLP is gated by it. why: a sentence; empty if nothing explains the difference. ratio: least and largest count
    over blocks. used: True if it counts blocks of another kind and replaces their weights."""

    agrees: bool
    gated: bool
    why: str
    ratio: tuple[float, float]
    times: float = 1.0
    used: bool = False


def inner_width(row: Row) -> float | None:
    """Inner width of the MLP; None if the row has neither it nor its ratio to d."""
    width = float(row["width"])
    for name in ("d_ff", "mlp_ratio"):
        value = _positive(row.get(name))
        if value is not None:
            return value * width if value <= LARGEST_RATIO and value < width / 2.0 else value
    return None


def is_gated(row: Row) -> bool:
    """True if a column of the row has a gated MLP (SwiGLU, GeGLU)."""
    texts = [str(row[name]).lower() for name in GATES if isinstance(row.get(name), str)]
    return str(row.get("gated")).strip().lower() in YES or any(map(GATED_WORDS.search, texts))


def weights(row: Row, gated: bool | None = None) -> float:
    """Weights of the blocks by all columns of the row; 12·L·d² if standard. ``gated`` replaces the row's own word."""
    depth, width = float(row["depth"]), float(row["width"])
    heads, size, groups = (_at_least_one(row.get(name)) for name in ("heads", "head_size", "kv_heads"))
    if heads is None:
        heads = width / size if size else 1.0
    size = size or width / heads
    hidden = inner_width(row)
    attention = attention_weights(width, heads, size, min(groups, heads) if groups else heads)
    used = top_k(row) or 1.0  # experts that a token passes
    if hidden is None:  # a gated MLP without an inner width holds as much: 8·d²
        return depth * (attention + used * mlp_weights(width, 4.0 * width, False))
    return depth * (attention + used * mlp_weights(width, hidden, is_gated(row) if gated is None else gated))


def top_k(row: Row) -> float | None:
    """Experts that a token passes; None if the row names no experts, or not how many a token passes."""
    experts, used = (_at_least_one(row.get(name)) for name in ("experts", "top_k"))
    return min(experts, used) if experts and used else None


def n_params_of(row: Row) -> float:
    """N of a row: its own count, or the weights of its blocks."""
    value = row.get("n_params")
    return float(value) if value is not None else weights(row)


def places(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """(ln N, ln L) of rows."""
    return np.log([n_params_of(row) for row in rows]), np.log([float(row["depth"]) for row in rows])


@dataclass(frozen=True)
class Settled:
    """Rows with N and block settled. said: sentences for the account of the table. doubts: for its warnings."""

    said: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def settle(rows: Sequence[Row], trusted: bool, source: str, names: Callable[[str], str]) -> Settled:
    """Give each row its N and its block, and check the table's own counts.

    trusted: True if the user or this package declared its n_params. names: our name of a column → theirs.

    Raises:
        InputError: nothing explains how the table's n_params differs from the weights of its blocks.
    """
    said: list[str] = []
    doubts: list[str] = []
    _name_blocks(rows)
    columns = [name for name in COLUMNS if any(row.get(name) not in (None, "") for row in rows)]
    counted = [row for row in rows if _positive(row.get("n_params")) is not None]
    total = [row for row in rows if _positive(row.get("n_params_total")) is not None]
    gated: bool | None = None
    times = 1.0
    if trusted and counted:
        return Settled()
    if counted:
        found = check(counted, "n_params", names)
        gated, times = True if found.gated else None, found.times
        if found.why:
            said.append(found.why)
        elif NOMINAL[0] < found.ratio[0] < 1.0 < found.ratio[1] < NOMINAL[1] and (shared := _shared(counted)):
            said.append(
                f"{names('n_params')} is a nominal size: {shared[0]} at {shared[1]}, whose blocks hold {shared[2]}; N "
                f"is {_formula(columns)}"
            )
            for row in counted:
                row["n_params"] = weights(row)
        elif names("n_params") == "n_params" and not _alike(found.ratio):
            raise InputError(_question(counted, found, source))
        elif not _alike(found.ratio):  # the column's own name excludes embeddings
            doubts.append(
                f"confound n_params: {names('n_params')} is {found.ratio[0]:.3g} to {found.ratio[1]:.3g} times "
                f"{_formula(columns)}, which neither embeddings nor a gated MLP explain; {names('n_params')} is used"
            )
        if found.agrees and not found.used:  # to rounding, biases and norms, so that N is counted alike in all rows
            said += _off(counted, found.gated, names("n_params"))
            for row in counted:
                row["n_params"] = weights(row, gated)
        elif not found.agrees and found.why:  # N is counted
            for row in counted:
                row.setdefault("n_params_total", row["n_params"])
                row["n_params"] = None
    elif total and not any(map(top_k, rows)):
        found = check(total, "n_params_total", names)
        gated, times = True if found.gated else None, found.times
        said.append(
            found.why
            or f"{names('n_params_total')} is {found.ratio[0]:.3g} to {found.ratio[1]:.3g} times {_formula(columns)}; "
            "the difference is not explained, and N is counted from the columns"
        )
        for row in total if found.used else ():
            row["n_params"] = row["n_params_total"]
    for row in rows if gated else ():
        row["gated"] = True
    if gated or times != 1.0 or {"d_ff", "mlp_ratio", "kv_heads", "head_size", "gated", "top_k"} & set(columns):
        for row in rows:
            if row.get("n_params") is None and row["depth"] and row["width"]:
                row["n_params"] = times * weights(row, gated)
    if found_experts := sorted({(row["experts"], top_k(row)) for row in rows if top_k(row)}):
        named = join([f"{used:g} of {experts:g}" for experts, used in found_experts], 3)
        said.append(f"N counts the weights that a token uses, of {named} experts; all of them: --axis n_params_total")
    elif not counted and not total:
        said += _counted_from(rows, columns, names)
    return Settled(tuple(said), tuple(doubts))


def _shared(rows: Sequence[Row]) -> tuple[str, ...]:
    """(a count, nets that share it, the weights of their blocks) if most nets share their count with another net of
    other blocks, as sizes that a plan asked for do; else empty."""
    nets = {(row["depth"], row["width"], row.get(BLOCK)): row for row in rows}
    of: dict[float, list[Row]] = defaultdict(list)
    for row in nets.values():
        of[float(row["n_params"])].append(row)
    shared = [
        own for own in of.values() if len(own) > 1 and max(map(weights, own)) > (1 + EXPLAINS) * min(map(weights, own))
    ]
    if 2 * sum(map(len, shared)) < len(nets):
        return ()
    own = sorted(max(shared, key=lambda own: max(map(weights, own)) / min(map(weights, own))), key=weights)
    least, most = own[0], own[-1]
    held = " and ".join(format_count(weights(row)) for row in (least, most))
    where = " and ".join(f"{row['depth']:g}×{row['width']:g}" for row in (least, most))
    return format_count(least["n_params"]), where, held


def _off(rows: Sequence[Row], gated: bool, theirs: str) -> list[str]:
    """Sentence on counts that differ from the blocks though the others agree, as a list of one or none."""
    off = [row for row in rows if abs(row["n_params"] / weights(row, gated or None) - 1.0) > OFF]
    if not off:
        return []
    shown = (
        f"{row['depth']:g}×{row['width']:g} ({format_count(row['n_params'])}, where the blocks hold "
        f"{format_count(weights(row, gated or None))})"
        for row in off
    )
    return [f"{theirs} does not at {join(shown, 3)}: N is counted there too"]


def _counted_from(rows: Sequence[Row], columns: Sequence[str], names: Callable[[str], str]) -> Iterator[str]:
    """Columns from which N is counted, if N is not 12·L·d²."""
    sized = [row for row in rows if row["depth"] and row["width"]]
    if all(abs(weights(row) / (12.0 * row["depth"] * row["width"] ** 2) - 1.0) < 1e-9 for row in sized):
        return
    used = ", ".join(names(name) for name in columns if name != "heads" or {"kv_heads", "head_size"} & {*columns})
    gated = any(map(is_gated, sized))
    yield f"N is counted from depth, width, {used}{', with a gated MLP (3·d·d_ff)' if gated else ''}"
    ratios = [inner / row["width"] for row in sized if (inner := inner_width(row)) is not None]
    if not gated and ratios and all(abs(ratio / (8.0 / 3.0) - 1.0) < NEAR_GATED for ratio in ratios):
        yield "the inner width is 8/3 × width, as in a gated MLP, but no column names one: the MLP counts as 2·d·d_ff"


def check(rows: Sequence[Row], column: str, names: Callable[[str], str] = str) -> Count:
    """Hold the counts of ``column`` against the weights of the blocks, plain and gated."""
    count = np.array([float(row[column]) for row in rows])
    depth, width = (np.array([float(row[name]) for row in rows]) for name in ("depth", "width"))
    plain = np.array([weights(row) for row in rows])
    formula = _formula([name for name in COLUMNS if any(row.get(name) not in (None, "") for row in rows)])
    ratio = float((count / plain).min()), float((count / plain).max())
    theirs = names(column)
    blocks: list[tuple[bool, np.ndarray, str]] = [(False, plain, formula)]
    if any(inner_width(row) is not None for row in rows) and not all(map(is_gated, rows)):
        blocks.append((True, np.array([weights(row, True) for row in rows]), "blocks with a gated MLP, 3·d·d_ff"))
    for gate, own, what in blocks:
        if _holds((count / own - 1.0) / (1.0 + _rounded(count) / AGREES), AGREES):
            return Count(True, gate, f"{theirs} agrees with {what}", ratio)
    middle = float(np.median(count / plain))
    if _holds(count / plain / middle - 1.0, AGREES) and len({*zip(depth.tolist(), width.tolist(), strict=True)}) > 2:
        why = f"{theirs} is {middle:.3g} times {formula} in every row, and is used"
        return Count(True, False, why, ratio, used=True)
    for gate, own, what in blocks:
        rest = (count - own) / width
        basis = np.stack([np.ones_like(depth), depth], axis=1)
        (vocabulary, vectors), *_ = np.linalg.lstsq(basis, rest, rcond=None)
        several = len(np.unique(depth)) > 1
        if not several or not 0.0 <= vectors <= VECTORS:
            vocabulary, vectors = float(np.median(rest)), 0.0
        fitted = own + width * (vocabulary + vectors * depth)
        if not _holds(fitted / count - 1.0, EXPLAINS) or len(np.unique(width)) < 3:
            continue
        if vocabulary >= LEAST_VOCABULARY:
            known = {float(v) for row in rows if (v := _positive(row.get("vocab_size"))) is not None}
            why = f"{theirs} holds embeddings, {_tables(float(vocabulary), known)}; N is {what}, without them"
            return Count(False, gate, why, ratio)
        if vocabulary > -LEAST_VOCABULARY and vectors > 0.0:
            return Count(True, gate, f"{theirs} agrees with {what} with biases and norms", ratio)
    return _other_blocks(rows, count, plain, depth, width, theirs, ratio) or Count(False, False, "", ratio)


def _rounded(count: np.ndarray) -> np.ndarray:
    """(K,) largest relative error of counts that have two or three digits, such as 5.0M and 130M; else zeros."""
    digits = max(len(f"{value:.6e}".split("e")[0].replace(".", "").rstrip("0")) for value in count.tolist())
    if digits not in (2, 3):
        return np.zeros_like(count)
    return 0.5 * 10.0 ** (np.floor(np.log10(count)) - digits + 1.0) / count


def _other_blocks(
    rows: Sequence[Row],
    count: np.ndarray,
    plain: np.ndarray,
    depth: np.ndarray,
    width: np.ndarray,
    theirs: str,
    ratio: tuple[float, float],
) -> Count | None:
    """Explanation of a count as other blocks plus embeddings, if its values determine both."""
    if len({*zip(depth.tolist(), width.tolist(), strict=True)}) < FEWEST_FOR_BLOCKS:
        return None
    basis = np.stack([plain, width], axis=1) / count[:, None]
    (times, vocabulary), *_ = np.linalg.lstsq(basis, np.ones_like(count), rcond=None)
    low, high = TIMES
    if not (low < times < high and vocabulary >= LEAST_VOCABULARY) or not _holds(
        basis @ (times, vocabulary) - 1.0, EXPLAINS
    ):
        return None
    known = {float(v) for row in rows if (v := _positive(row.get("vocab_size"))) is not None}
    shown = (
        f"{12.0 * times:.3g}·L·d²" if np.allclose(plain, 12.0 * depth * width**2) else f"{times:.3g} times its columns"
    )
    why = f"{theirs} holds embeddings, {_tables(float(vocabulary), known)}; N is the rest, {shown}"
    return Count(False, False, why, ratio, float(times))


def _tables(vocabulary: float, known: set[float]) -> str:
    """``2 × 50304 × width``: the embedding, and the unembedding where it is another matrix."""
    usual = [(abs(vocabulary / (n * size) - 1.0), n, size) for size in map(float, VOCABULARIES) for n in (1, 2)]
    # positions and the biases of the blocks may come with a vocabulary that the table names
    named = [(0.0, n, size) for size in known for n in (1, 2) if 0.0 <= vocabulary / size - n < 0.5]
    off, times, size = min(named or usual)
    if off > SAME_VOCABULARY:
        return f"about {vocabulary:,.0f} × width"
    return f"{times} × {size:.0f} × width" if times > 1 else f"{size:.0f} × width"


def _alike(ratio: tuple[float, float]) -> bool:
    """True if counts differ by no more than rounded heads and inner widths make blocks of one kind differ."""
    low, high = ratio
    return high <= ROUNDED * low and low > 1.0 / ROUNDED and high < ROUNDED


def _holds(off: np.ndarray, tolerance: float) -> bool:
    return float(np.mean(np.abs(off) <= tolerance)) >= SHARE


def _formula(columns: Sequence[str]) -> str:
    """Formula of the blocks' weights in words."""
    return "the weights of the blocks" if {*COLUMNS, "head_size"} - {"heads"} & set(columns) else "12·L·d²"


def _question(rows: Sequence[Row], found: Count, source: str) -> str:
    row = rows[0]
    low, high = found.ratio
    given = f"{row['n_params']:,.0f}" if row["n_params"] < 1e15 else f"{row['n_params']:.3g}"
    return (
        f"n_params: {given} at {row['depth']:g}×{row['width']:g}, where the blocks hold "
        f"{weights(row):,.0f}; {low:.3g} to {high:.3g} times as many in {source}, which neither embeddings, a gated "
        "MLP nor biases explain; allowed: "
        + example("drop=['n_params']", "--drop n_params")
        + f" (N = {format_count(weights(row))} there), or "
        + example("columns={'n_params': 'n_params'}", "--column n_params=n_params")
        + " (the count holds no embeddings)"
    )


def _name_blocks(rows: Sequence[Row]) -> None:
    """Name each row's block by the parts that differ between nets of one depth and width."""
    parts = {
        "d_ff": lambda row: inner_width(row),
        "heads": lambda row: _positive(row.get("heads")),
        "kv_heads": lambda row: _positive(row.get("kv_heads")),
        "head_size": lambda row: _positive(row.get("head_size")),
    }
    varied = [name for name, part in parts.items() if _varies(rows, part)]
    rest = [parts[name] for name in varied if name != "heads"]
    if "heads" in varied and _swept(rows, parts["heads"], rest):
        varied = [name for name in varied if name not in ("heads", "head_size")]
    for row in rows if varied else ():
        texts = [f"{name} {value:g}" for name in varied if (value := parts[name](row)) is not None]
        if texts:
            row[BLOCK] = ", ".join(texts)


def _varies(rows: Sequence[Row], part: Callable[[Row], Any]) -> bool:
    seen: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row["width"] and (value := part(row)) is not None:
            seen[row.get(ARM), row["depth"], row["width"]].add(value)
    return any(len(values) > 1 for values in seen.values())


def _swept(rows: Sequence[Row], heads: Callable[[Row], Any], rest: Sequence[Callable[[Row], Any]]) -> bool:
    """True if most nets were trained with several counts of heads: heads are then no part of the shape."""
    seen: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row["width"]:
            seen[(row.get(ARM), row["depth"], row["width"], *(part(row) for part in rest))].add(heads(row))
    return sum(len(values) > 1 for values in seen.values()) > TRIED_ALIKE * len(seen)


def _at_least_one(value: Any) -> float | None:
    """The value if it may count something: 1 or more."""
    found = _positive(value)
    return found if found is not None and found >= 1.0 else None


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        return None
    return float(value)
