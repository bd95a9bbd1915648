"""Columns that cannot be told from depth, and columns that losses follow though nothing adjusts for them.

Every setting, label and length that losses are not adjusted for is tested on nets of equal size. If each depth has
its own value, the effect of the column and that of depth cannot be told apart. Otherwise the loss is held against the
column at equal size and depth (F test beside a polynomial). A column that passes both tests is not mentioned; settings
that too few runs test are listed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dwsweep.errors import argument, either
from dwsweep.fit.data.covariates import FEWEST_OF_LEVEL, left, quadratic
from dwsweep.fit.data.roles import KNOWN, LENGTHS, is_beside_blanks
from dwsweep.fit.data.rows import VALUES_LISTED, Row, are_alike, grouped, is_number, positive
from dwsweep.fit.data.shape import SAME_SIZE, places
from dwsweep.fit.data.table import Table
from dwsweep.text import OF_TEXT, format_count, join

HEADS = "heads"  # part of the shape, and no setting: nothing adjusts for them
BY_A_RULE = {"learning_rate", "lr", "min_lr"}  # a rule may set them by the depth
PER_TOKEN = {"vocab_size", "tokenizer"}  # they change the meaning of a token, and not of a byte
MOSTLY = 0.4  # share of such pairs with different values above which a column differs at equal size
AT_TIMES = 0.05  # share of such pairs with different values, below which the column follows the size
ONE_VALUE = 0.9  # share of shapes with the commonest value of their depth
MORE = math.log(1.05)  # ln of the ratio of two counts above which they differ
COUNT_FROM = 1e5  # numbers from which a value is written as a count: a vocabulary or a window is not
MOST_COMPARED = 2000  # shapes and values, above which no pairs are compared
MOST_LEVELS = 8  # values of a text, above which it names runs
LEAST_P, LEAST_SHARE = 1e-4, 0.15  # probability of the F test, and share of the scatter that a column explains
FOLLOWS = 0.1  # share of the scatter of ln depth at equal size that a column explains, above which it follows depth
MOST_BLANK = 0.1  # share of rows without a number
FEWEST_FREE = 6  # degrees of freedom of the F test
MOST_NAMED = 3


def sentences(
    data: Table, rows: Sequence[Row], others: Sequence[np.ndarray], taken: Collection[str], lengths: bool
) -> tuple[list[str], tuple[str, ...]]:
    """One sentence per column that follows depth, and one on the columns that losses follow; and the columns whose
    effect cannot be told from that of depth.

    rows: runs with a loss and a size. others: (K,) values of the columns adjusted for. taken: columns adjusted for, or
    left out by the user. lengths: False if runs were trained at equal compute, so that lengths follow from the shape.
    """
    x, y = places(rows)
    skipped = {*taken, *BY_A_RULE, *(PER_TOKEN if data.unit in OF_TEXT else ())}
    tested, said, by_depth, labels = {}, [], [], set()
    for ours, role in data.roles.items():
        of_length = role == "length" and lengths
        if ours in skipped or not (of_length or role in ("setting", "number", "label")):
            continue
        name = ours if of_length else data.theirs.get(ours, ours)
        values = [row.get(ours) for row in rows]
        joined = is_beside_blanks(rows, ours)
        if len(set(values) - {None}) < 2 and not joined:
            continue
        blanks = joined or not (of_length or ours in KNOWN)
        if where := _along_depth(x, y, values, blanks, of_length):
            by_depth.append(name)
            how = f"; {either(argument('adjust'))} adjusts for {name}, {either(argument('drop'))} ignores it"
            said.append(
                f"{name.upper()} FOLLOW{'' if ours in LENGTHS else 'S'} DEPTH ({where}): losses are not adjusted for "
                f"{name}, and this table cannot separate the effect from that of depth{'' if of_length else how}"
            )
        elif not of_length and _differs(x, values) and (own := _columns(values)) is not None:
            tested[name] = own
            labels |= {name} if role == "label" else set()
    loss = np.array([float(row["loss"]) for row in rows])
    loss -= np.median(loss)
    loss /= max(float(np.abs(loss).max()), 1e-300)
    known, plane = [one for one in others if np.ptp(one) > 0.0], quadratic(x, y)
    base = np.stack([*plane.T, *known, *(one**2 for one in known)], axis=1)
    runs = _runs(data, rows, taken)
    shares = {name: _explained(loss, base, own, runs) for name, own in tested.items()}
    following = [name for name in tested if _scatter(y, plane[:, [0, 1, 3]], tested[name])[2] > FOLLOWS]
    said += _that_losses_follow({name: share for name, share in shares.items() if share}, following)
    if untested := [name for name in tested if shares[name] is None and name not in labels]:
        differ = "differs" if len(untested) == 1 else "differ"
        said.append(
            f"{join(untested)} {differ} between nets of equal size, and too few runs tell what that does to the loss"
        )
    heads = [row.get(HEADS) for row in rows] if HEADS not in skipped else []
    if heads and (where := _along_depth(x, y, heads, blanks=False, of_length=False)):
        said.append(f"{HEADS} follow depth here ({where}): best depths hold for nets in which they do so too")
    return said, tuple(by_depth)


def _along_depth(x: np.ndarray, y: np.ndarray, values: Sequence[Any], blanks: bool, of_length: bool) -> str:
    """The depths of each value, if nearly every depth has one value and nets of equal size have different ones; empty
    for any other column. blanks: True if a blank counts as a value. of_length: True for a count that may grow with the
    size, alike at every depth."""
    own = [(a, b, "blank" if v is None else v) for a, b, v in zip(x, y, values, strict=True) if blanks or v is not None]
    if not 2 <= len(set(own)) <= MOST_COMPARED:
        return ""
    cells = sorted(set(own), key=str)
    x, y = (np.array([cell[k] for cell in cells]) for k in (0, 1))
    levels: list[Any] = [cell[2] for cell in cells]
    code = np.unique([str(level) for level in levels], return_inverse=True)[1]
    equal = (np.abs(np.subtract.outer(x, x)) < SAME_SIZE) & (np.subtract.outer(y, y) > 0)
    if not equal.any():
        return ""
    by_depth = {d: Counter(v for own, v in zip(y, levels, strict=True) if own == d) for d in np.unique(y)}
    one_value = sum(max(counts.values()) for counts in by_depth.values()) >= ONE_VALUE * len(cells)
    counts = of_length and all(map(positive, levels))
    alike = counts and are_alike(levels)
    if one_value and not alike and (code[:, None] != code)[equal].mean() >= MOSTLY:
        return _shown(by_depth)
    return _by_count(x, y, np.log(levels), equal) if counts else ""


def _differs(x: np.ndarray, values: Sequence[Any]) -> bool:
    """True if nets of equal size have different values: a column that follows the size changes no comparison."""
    code = np.unique([str(value) for value in values[:MOST_COMPARED]], return_inverse=True)[1]
    equal = np.abs(np.subtract.outer(x[:MOST_COMPARED], x[:MOST_COMPARED])) < SAME_SIZE
    return float((code[:, None] != code)[equal].mean()) >= AT_TIMES


def _shown(by_depth: Mapping[float, Counter[Any]]) -> str:
    of = grouped((value, f"{round(math.exp(y))}") for y, counts in by_depth.items() for value in counts)
    shown = [f"{_text(value)} at L {', '.join(own)}" for value, own in of.items()]
    more = f"; {len(shown) - VALUES_LISTED} more" if len(shown) > VALUES_LISTED else ""
    return "; ".join(shown[:VALUES_LISTED]) + more


def _by_count(x: np.ndarray, y: np.ndarray, count: np.ndarray, equal: np.ndarray) -> str:
    """The largest difference of two depths at equal size, if deeper nets have the larger counts throughout, or the
    smaller ones. count: (K,) ln of a count, less its slope in ln N. equal: (K, K) pairs, the deeper net first."""
    mean = [np.array([values[y == own].mean() for own in y]) for values in (x, count)]
    run = x - mean[0]
    slope = float(run @ (count - mean[1]) / max(float(run @ run), 1e-12))
    more = np.where(equal, np.subtract.outer(count - slope * x, count - slope * x), 0.0)
    sign = 1.0 if more.sum() > 0.0 else -1.0
    deep, shallow = np.unravel_index(int((sign * more).argmax()), more.shape)
    by = float(sign * more[deep, shallow])
    if by < MORE or (sign * more[equal] > 0.0).mean() < ONE_VALUE:
        return ""
    most, least = (round(math.exp(y[k])) for k in ((deep, shallow) if sign > 0 else (shallow, deep)))
    return f"at equal size {most} layers have {100.0 * math.expm1(by):.0f} % more than {least}"


def _text(value: Any) -> str:
    """A value of a setting in a sentence: ``500M`` tokens."""
    return format_count(value) if is_number(value) and COUNT_FROM <= abs(value) < math.inf else str(value)


def _that_losses_follow(shares: Mapping[str, float], following: Sequence[str]) -> list[str]:
    """Sentence on the columns that losses follow at equal size and depth, as a list of one or none. following: columns
    that follow depth in part."""
    if not shares:
        return []
    names = sorted(shares, key=lambda name: -shares[name])[:MOST_NAMED]
    each = join([f"{name} ({100.0 * shares[name]:.0f} %)" for name in names])
    more = f" and {len(shares) - len(names)} more" if len(shares) > len(names) else ""
    them, its = ("it", "its") if len(shares) == 1 else ("them", "their")
    deep = [name for name in names if name in following]
    with_depth = f"; {join(deep)} {'follows' if len(deep) == 1 else 'follow'} depth" if deep else ""
    return [
        f"NOT ADJUSTED FOR: {each}{more}; at equal size and depth the losses follow {them} (share "
        f"of their scatter in brackets), and best depths may be {its} effect{with_depth}; "
        f"a setting: --adjust {names[0]}; a measured number: --drop {names[0]}"
    ]


def _columns(values: Sequence[Any]) -> np.ndarray | None:
    """(K, ·) values of a column: members of each common value of a text or switch, or of a number that is blank in many
    rows; ranks of other numbers; None if it names runs."""
    present = [value for value in values if value is not None]
    if all(map(is_number, present)) and len(present) >= (1.0 - MOST_BLANK) * len(values):
        if not all(map(math.isfinite, present)):
            return None
        middle = float(np.median(present))
        return _ranks(np.array([middle if value is None else float(value) for value in values]))[:, None]
    levels = ["blank" if value is None else str(value) for value in values]
    counts = Counter(levels)
    usual = [level for level, count in counts.most_common() if count >= FEWEST_OF_LEVEL]
    if len(counts) > MOST_LEVELS:
        return None
    return np.array([[float(level == one) for one in usual[1:]] for level in levels])


def _scatter(value: np.ndarray, base: np.ndarray, own: np.ndarray) -> tuple[float, float, float]:
    """Sums of squares of ``value`` (K,) about ``base`` (K, ·), and about ``base`` and ``own`` (K, ·), and the share of
    the scatter that ``own`` explains."""
    before, after = (float((left(value, of) ** 2).sum()) for of in (base, np.hstack([base, own])))
    return before, after, 1.0 - after / before if before > 0.0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """(K,) mean ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(count) - (count - 1) / 2.0)[place]
    return found


def _runs(data: Table, rows: Sequence[Row], taken: Collection[str]) -> float:
    """Number of runs behind ``rows``: the points of one run after several lengths share its error."""
    own = [
        name
        for name, role in data.roles.items()
        if role in ("shape", "setting", "label", "seed") or (name in taken and role != "length")
    ]
    runs, points = (len({tuple(map(row.get, names)) for row in rows}) for names in (own, [*own, *LENGTHS]))
    return len(rows) * runs / points


def _explained(loss: np.ndarray, base: np.ndarray, own: np.ndarray, runs: float) -> float | None:
    """Share of the scatter of ``loss`` about ``base`` (K, ·) that ``own`` (K, ·) explains; 0 if that may be chance,
    None if too few ``runs`` tell."""
    from scipy.special import fdtrc

    ranks = int(np.linalg.matrix_rank(base)), int(np.linalg.matrix_rank(np.hstack([base, own])))
    more, free = ranks[1] - ranks[0], runs - ranks[1]
    if not own.size or free < FEWEST_FREE:
        return None
    if more < 1:
        return 0.0
    before, after, share = _scatter(loss, base, own)
    p = float(fdtrc(more, free, (before - after) / more / max(after / free, 1e-300)))  # of the F distribution
    return share if p < LEAST_P and share > LEAST_SHARE else 0.0
