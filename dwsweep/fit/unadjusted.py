"""Unadjusted column of a table: a column that losses follow though they are not adjusted for it.

A text or a switch that differs between shapes, and not within one, and a number whose values hardly repeat (a draw of a
random search looks like a measurement), are no covariates by themselves. Where losses follow such a column at equal
size, depth and other columns (F test beside a quadratic), best depths may be those of the column, and the first lines
say so with the options that settle it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dwsweep.fit.data.covariates import (
    FEWEST_OF_LEVEL,
    is_date,
    is_index,
    left,
    positive,
    quadratic,
    why_refused,
)
from dwsweep.fit.data.rows import Row, why_no_loss
from dwsweep.fit.data.settings import KNOWN, NAME_WORDS, RUN_WORDS, beside_blanks, is_moment, names_depths, plain
from dwsweep.fit.data.shape import n_params_of, places
from dwsweep.fit.data.table import Table
from dwsweep.fit.noise import f_tail
from dwsweep.records.columns import STEPS
from dwsweep.records.fit import FitOptions
from dwsweep.text import join

MOST_LEVELS = 8  # values of a text, above which it names runs
LEAST_P, LEAST_SHARE = 1e-4, 0.15  # probability of the F test, and share of the scatter that a column explains
MOST_BLANK = 0.1  # share of rows without a number
FEWEST_FREE = 6  # degrees of freedom of the test
FOLLOWS = 0.1  # share of the scatter of ln depth at equal size that a column explains, above which it follows depth
MOST_NAMED = 3
NEVER_ADJUSTED = {"betas", "beta1", "beta2", "min_lr", "cooldown", "dtype", "tokenizer"}  # known, and no covariates
SHARED = ("tokens", "learning_rate")  # columns beside which the columns of a grid are judged


def unadjusted(
    rows: Sequence[Row], x: np.ndarray, y: np.ndarray, others: Sequence[np.ndarray], taken: Collection[str]
) -> list[str]:
    """Sentence on columns that losses follow, as a list of one or none.

    x, y: (K,) ln size and ln depth. others: (K,) values of the columns adjusted for. taken: columns adjusted for, or
    left out by the user.
    """
    loss = np.array([float(row["loss"]) for row in rows])
    loss = loss - np.median(loss)
    loss /= max(float(np.abs(loss).max()), 1e-300)
    known = [one for one in others if np.ptp(one) > 0.0]
    base = np.stack([*quadratic(x, y).T, *known, *(one**2 for one in known)], axis=1)
    tested = {name: found for name in _candidates(rows, taken) if (found := _columns(rows, name)) is not None}
    shares = {name: share for name, own in tested.items() if (share := _explained(loss, base, own)) > 0.0}
    if not shares:
        return []
    names = sorted(shares, key=lambda name: -shares[name])[:MOST_NAMED]
    each = join([f"{name} ({100.0 * shares[name]:.0f} %)" for name in names])
    more = f" and {len(shares) - len(names)} more" if len(shares) > len(names) else ""
    it, its = ("it", "its") if len(shares) == 1 else ("them", "their")
    size = base[:, [0, 1, 3]]
    following = [name for name in names if _share(y, size, tested[name]) > FOLLOWS]
    with_depth = f"; {join(following)} {'follows' if len(following) == 1 else 'follow'} depth" if following else ""
    return [
        f"NOT ADJUSTED FOR: {each}{more}; at equal size and depth the losses follow {it} (share of their scatter in "
        f"brackets), and best depths may be {its} effect{with_depth}; a setting: --adjust {names[0]}; a measured "
        f"number: --drop {names[0]}"
    ]


def beside_a_grid(data: Table, options: FitOptions) -> list[str]:
    """Sentence of ``unadjusted`` on a table whose losses are adjusted for nothing; none for a sweep of ours, and where
    arms are compared."""
    if data.directory or options.arm or options.axis != "n_params":
        return []
    rows = [row for row in data.rows if not why_no_loss(row) and positive(row.get("loss"))]
    rows = [row for row in rows if 0.0 < n_params_of(row) < math.inf]
    if len(rows) < FEWEST_FREE:
        return []
    x, y = places(rows)
    shared = [name for name in SHARED if all(positive(row.get(name)) for row in rows)]
    others = [np.log([float(row[name]) for row in rows]) for name in shared]
    return unadjusted(rows, x, y, others, ())


def _candidates(rows: Sequence[Row], taken: Collection[str]) -> list[str]:
    found = []
    known = KNOWN.difference(beside_blanks(rows), NEVER_ADJUSTED)
    for name in dict.fromkeys(name for row in rows for name in row):
        words = set(plain(name).split("_"))
        skipped = name in known or name in taken or plain(name) in STEPS or why_refused(name) != ""
        if not skipped and not words & RUN_WORDS and "seed" not in words:
            values, depths = ([row.get(one) for row in rows] for one in (name, "depth"))
            if not is_moment(name, values) and not names_depths(name, values, depths):
                found.append(name)
    return found


def _columns(rows: Sequence[Row], name: str) -> np.ndarray | None:
    """(K, ·) values of a column: members of each value of a text or switch, or of a number that is blank in many rows;
    ranks of other numbers; None if it is neither."""
    values = [row.get(name) for row in rows]
    present = [value for value in values if value is not None]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)
    if numeric and len(present) >= (1.0 - MOST_BLANK) * len(values):
        numbers = [float(value) for value in present]
        if not all(map(math.isfinite, numbers)):
            return None
        if len(set(numbers)) > 2 and (is_date(numbers) or is_index(numbers)):
            return None
        middle = float(np.median(numbers))
        return _ranks(np.array([middle if value is None else float(value) for value in values]))[:, None]
    levels = ["blank" if value is None else str(value) for value in values]
    counts = Counter(levels)
    usual = [level for level, count in counts.most_common() if count >= FEWEST_OF_LEVEL]
    if len(usual) < 2 or len(counts) > MOST_LEVELS or NAME_WORDS & set(plain(name).split("_")):
        return None
    return np.array([[float(level == one) for one in usual[1:]] for level in levels])


def _share(value: np.ndarray, base: np.ndarray, own: np.ndarray) -> float:
    """Share of the scatter of ``value`` (K,) about ``base`` (K, ·) that ``own`` (K, ·) explains."""
    before, after = (float((left(value, of) ** 2).sum()) for of in (base, np.hstack([base, own])))
    return 1.0 - after / before if before > 0.0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """(K,) mean ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(count) - (count - 1) / 2.0)[place]
    return found


def _explained(loss: np.ndarray, base: np.ndarray, own: np.ndarray) -> float:
    """Share of the scatter of ``loss`` about ``base`` (K, ·) that ``own`` (K, ·) explains; 0 if that may be chance."""
    both = np.hstack([base, own])
    ranks = int(np.linalg.matrix_rank(base)), int(np.linalg.matrix_rank(both))
    more, free = ranks[1] - ranks[0], len(loss) - ranks[1]
    if more < 1 or free < FEWEST_FREE:
        return 0.0
    before, after = (float((left(loss, of) ** 2).sum()) for of in (base, both))
    share = _share(loss, base, own)
    p: Any = f_tail((before - after) / more / max(after / free, 1e-300), more, free)
    return share if p < LEAST_P and share > LEAST_SHARE else 0.0
