"""Covariate of a heap of runs: a column besides depth and size, and its part in the posterior.

    number    learning rate, batch, warm-up, weight decay, context, tokens, d_ff over d, head size: their logarithm
    text      optimizer, schedule, activation, data: an offset for each value but the one that is held
    refused   a consequence of the shape (time, memory, throughput): it differs because the depth does, and adjusting
              for it would remove a part of the effect of depth

A column enters by itself where it is one of the usual settings, differs between runs, and does not follow the shape. An
unknown column enters on request.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.data.roles import bare, is_beside_blanks, why_refused
from dwsweep.fit.data.rows import ALIKE, LeftOut, Row, is_number, plain, positive
from dwsweep.fit.data.shape import inner_width, of_shapes
from dwsweep.fit.data.table import Table
from dwsweep.records.columns import ALIASES, COLUMNS, OF_RUNS, STEPS
from dwsweep.records.fit import FitOptions
from dwsweep.text import format_count, join

NUMBER, TEXT, RATE = "number", "text", "rate"
D_FF, HEAD_SIZE, TOKENS, LEARNING_RATE, OF_STEPS = "d_ff / d", "head size", "tokens", "learning rate", "steps"
NUMBERS = {one.word: (one.name, *ALIASES.get(one.name, ())) for one in COLUMNS if one.word and one.type != "text"}
NUMBERS[OF_STEPS] += (*STEPS, *OF_RUNS[1:])
OF_SHAPE = {D_FF: ("d_ff", "mlp_ratio"), HEAD_SIZE: ("heads", "head_size")}
RATIOS = {D_FF: "mlp_ratio", HEAD_SIZE: "head_size"}
"""Covariate of OF_SHAPE → the one of its columns that is a value to hold; its others grow with the width."""
ALL = NUMBERS | OF_SHAPE
WORDS = {column: word for word, columns in ALL.items() for column in columns}
_NAMES = [(one.name, *ALIASES.get(one.name, ())) for one in COLUMNS if one.word and one.type == "text"]
TEXTS = tuple(chain(*_NAMES))
LEAST_OWN = 0.02  # share of a column's variance beyond shape, below which the column follows shape
SAME = 1e-9
FEWEST_OF_LEVEL = 5  # rows with a text's value that it takes to compare the value
FEWEST_SHAPES = 3  # fewest shapes that may have that value
LARGE = 1e4  # numbers from which a value is written as a count
COMMON = 0.1  # share of rows above which the commonest value counts as usual
COMMON_WITHIN = 0.01  # relative tolerance of a common value
ABOUT_AS_COMMON, BY_CHANCE = 1.5, 2.0  # factor, and roots of its count, by which the commonest value may lead another
LEAST_T = 3.0  # standard errors by which the value of least loss must lead the middle one, to be held
CONFOUNDED = 0.6  # |r| with ln L at equal size above which both readings are told
CROSSED = 0.8  # share of shapes with several learning rates above which rates count as swept


@dataclass(frozen=True)
class Covariate:
    """Column whose values differ between runs. value: (K,) natural logarithms of a number, 0 or 1 for a text's value.

    name: in words. column: ours. held: the value that the answer is for; None: each net's best one. r: correlation with
    ln L at equal size. low, high: of the rows. level: the value of a text that ``value`` is 1 for. shift: added to a
    number before its logarithm, where it may be zero. common: values of a number that are as common as the held one but
    for chance, where there are several.
    """

    name: str
    column: str
    kind: str
    value: np.ndarray
    held: Any
    low: Any
    high: Any
    r: float = 0.0
    level: str = ""
    shift: float = 0.0
    common: tuple[float, ...] = ()

    @property
    def at(self) -> float:
        """Held value on the scale of ``value``."""
        return 0.0 if self.kind == TEXT else math.log(float(self.held) + self.shift)

    def at_rows(self, where: np.ndarray) -> Covariate:
        return replace(self, value=self.value[where])

    def said(self, value: float) -> str:
        """A number in words: ``tokens 2B``, ``head size 64``."""
        return f"{self.name} {value_text(self.name, value)}"


@dataclass(frozen=True)
class Covariates:
    """Differences between the rows of a table. rows: rows that can be compared with each other. left_out: reason → how
    many rows are not. follow: columns that follow the shape, in words."""

    rows: list[Row]
    columns: tuple[Covariate, ...]
    follow: tuple[str, ...] = ()
    left_out: Counter[LeftOut] = field(default_factory=Counter)


def value_text(name: str, value: float) -> str:
    """A number of a column in words: ``2B`` tokens, ``524K``, ``1024``, ``0.00129``."""
    if name == TOKENS or abs(value) >= LARGE:
        return format_count(value)
    return f"{value:g}" if float(value).is_integer() else f"{value:.3g}"


def quadratic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(K, 6) constant, x, y and their products, scaled."""
    u, v = ((one - one.mean()) / max(float(one.std()), 1e-12) for one in (x, y))
    return np.stack([np.ones_like(u), u, v, u * u, u * v, v * v], axis=1)


def left(value: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(K,) ``value`` less its least squares fit on ``others`` (K, ·)."""
    return value - others @ np.linalg.lstsq(others, value, rcond=None)[0]


def share_left(value: np.ndarray, others: np.ndarray) -> float:
    """Share of the variance of ``value`` that ``others`` leave, with their degrees of freedom counted."""
    total = float(((value - value.mean()) ** 2).sum())
    if total <= SAME * len(value):
        return 0.0
    free = len(value) - np.linalg.matrix_rank(others)
    if free < 1:
        return 0.0
    rest = float((left(value, others) ** 2).sum())
    return float(min(1.0, rest / total * (len(value) - 1) / free))


def number_of(name: str, row: Row, columns: Sequence[str] = ()) -> float | None:
    """The value of a numeric covariate in a row; None if it is blank."""
    if name == D_FF:
        inner = inner_width(row)
        return None if inner is None else inner / float(row["width"])
    if name == HEAD_SIZE:
        size, heads = row.get("head_size"), row.get("heads")
        if positive(size):
            return float(size)
        return float(row["width"]) / float(heads) if positive(heads) and heads >= 1.0 else None
    for column in columns:
        value = row.get(column)
        if is_number(value) and math.isfinite(value) and value >= 0:
            return float(value)
    return None


def word_of(column: str) -> str:
    """Name of a column's covariate in words."""
    return WORDS.get(bare(column), bare(column).replace("_", " "))


@dataclass(frozen=True)
class Asked:
    """Columns to adjust for beyond the usual ones, columns not to adjust for, and held values, by covariate. theirs:
    our name of a column → the table's."""

    adjust: Mapping[str, str]
    leave: frozenset[str]
    at: Mapping[str, Any]
    theirs: Mapping[str, str]


def asked_of(options: FitOptions, data: Table) -> Asked:
    """Columns of ``data`` that ``options`` name by the table's name, by ours or in words, by covariate.

    Raises:
        InputError: the table has no such column, or it is no setting; a value is held of a count that grows with the
            net, in place of its ratio; two names of one column have a value.
    """
    option = argument("at", "--at")
    held: dict[str, Any] = {}
    columns: dict[str, str] = {}
    for name, value in dict(options.at).items():
        word, column = _asked_for(name, option, data)
        if word in RATIOS and (ours := data.ours(name)) in OF_SHAPE[word] and ours != RATIOS[word]:
            raise InputError(
                f"{option}: {name}={value}; {name} grows with the width, so that all nets are compared at one {word}; "
                f"allowed: {RATIOS[word]}=VALUE"
            )
        if word in held:
            values = f"{word}={held[word]} and {name}={value}"
            raise InputError(f"{option}: {values}; one answer holds one value of a column")
        held[word], columns[word] = value, column
    both = dict(_asked_for(name, argument("adjust", "--adjust"), data) for name in options.adjust) | columns
    option = argument("no_adjust", "--no-adjust")
    leave = frozenset(_asked_for(name, option, data)[0] for name in options.no_adjust)
    if again := sorted(both.keys() & leave):
        raise InputError(f"{option}: {again[0]!r}; also adjusted for; allowed: one of both")
    return Asked(both, leave, held, data.theirs)


def _asked_for(given: str, option: str, data: Table) -> tuple[str, str]:
    """(covariate, column) that a user named."""
    roles = data.roles
    ours = data.ours(given)
    words = given, plain(given).replace("_", " ")
    of_word = ALL.get(next((word for word in words if word in ALL), WORDS.get(ours, "")), ())
    column = next((one for one in (ours, *of_word) if one in roles), None)
    column = column or next((one for one in roles if bare(one) == bare(given)), None)
    if column is None:
        shown = sorted(data.theirs.get(one, one) for one in roles if not why_refused(one, roles[one]))
        raise InputError(f"{option}: {given!r}; not in the table, it has {join(shown)}")
    if why := why_refused(column, roles[column]):
        raise InputError(f"{option}: {given!r}; {why}")
    return word_of(column), column


def swept_rates(rows: Sequence[Row]) -> bool:
    """True if nearly every shape has several learning rates; the best rate of each shape then counts."""
    rates = of_shapes(rows, "learning_rate").values()
    return sum(len(set(found)) > 1 for found in rates) >= CROSSED * len(rates)


@dataclass
class _Search:
    """State of ``find``. keep: (K,) rows that can be tied together. never: covariates that do not enter unasked.
    unknown: columns neither requested nor known. out: (reason, option) → how many cannot. arm: (K,) recipe of each row,
    where several are compared."""

    rows: Sequence[Row]
    x: np.ndarray
    y: np.ndarray
    asked: Asked
    never: Collection[str]
    keep: np.ndarray
    arm: np.ndarray
    unknown: frozenset[str] = frozenset()
    out: Counter[LeftOut] = field(default_factory=Counter)
    follow: list[str] = field(default_factory=list)

    def lacking(self, blank: np.ndarray) -> np.ndarray:
        """(K,) True for rows of a recipe of which every run is ``blank`` (K,): it is compared as it is."""
        return ~np.isin(self.arm, self.arm[~blank])

    def wanted(self, word: str) -> bool:
        return word not in self.asked.leave and (word in self.asked.adjust or word not in self.never)

    def texts(self, word: str, column: str) -> list[Covariate]:
        """Values of a text, without the held one; rows of a value that cannot be compared with the others are left
        out."""
        levels = np.array(["blank" if row.get(column) is None else str(row[column]) for row in self.rows], dtype=object)
        has = ~self.lacking(np.array([row.get(column) is None for row in self.rows]))
        if len(set(levels[has])) < 2:
            return []
        for level, count in Counter(levels[has]).items():
            where = has & (levels == level)
            shapes = {*zip(self.x[where].round(6), self.y[where].round(6), strict=True)}
            own, rest = self.x[where], self.x[has & ~where]
            apart = min(own.max(), rest.max()) <= max(own.min(), rest.min())
            if count < FEWEST_OF_LEVEL or len(shapes) < FEWEST_SHAPES or apart:
                self.keep &= ~where
                shown = self.asked.theirs.get(column, column)
                why = f"have {shown} = {level}, too few or of other sizes to compare with the others"
                self.out[why, f'--where "{shown} == {level!r}" fits them alone'] += count
        counts = Counter(levels[self.keep & has])
        if len(counts) < 2:
            return []
        levels[~has] = None
        held = str(self.asked.at.get(word, counts.most_common(1)[0][0]))
        if held not in counts:
            raise InputError(f"{argument('at', '--at')}: {word}={held}; allowed: {join(sorted(counts))}")
        others = (level for level in sorted(counts) if level != held)
        return [Covariate(word, column, TEXT, (levels == one).astype(float), held, "", "", level=one) for one in others]

    def number(self, word: str, columns: Sequence[str]) -> Covariate | None:
        """A number's logarithm; None if it is the same in all rows, blank in most, or follows the shape."""
        if columns[0] in self.unknown and self._by_shape(columns[0]):
            self.follow.append(word)
            return None
        values = [number_of(word, row, columns) for row in self.rows]
        blank = np.array([value is None for value in values])
        if (~blank).sum() < COMMON * len(values) or len(set(values) - {None}) < 2:
            return None
        lacking = self.lacking(blank)
        if (blank & ~lacking).any():
            self.out[f"have no {word}", ""] += int((blank & ~lacking & self.keep).sum())
            self.keep &= ~blank | lacking
        number = np.array([math.nan if value is None else value for value in values])
        known = self.keep & ~blank
        inside = number[known]
        if len(inside) < FEWEST_OF_LEVEL or inside.max() <= inside.min() * ALIKE:
            return None
        shift = float(inside[inside > 0].min()) / 2.0 if (inside <= 0).any() else 0.0
        ln = np.log(np.where(blank, float(np.median(inside)), number) + shift)
        own = share_left(ln[known], quadratic(self.x, self.y)[known])
        depths = self.y[known].tolist()
        by_depth = len({*zip(depths, inside.tolist(), strict=True)}) == len({*depths})  # one variable
        if own < LEAST_OWN or (by_depth and word not in self.asked.adjust):
            counts = {row.get("heads") for row in self.rows}
            if word not in OF_SHAPE or word in self.asked.adjust or (word == HEAD_SIZE and len(counts) > 2):
                self.follow.append(word)
            return None
        kind = RATE if word == LEARNING_RATE and word not in self.asked.at else NUMBER
        held, common = _held(word, inside, self.asked.at.get(word))
        ends = (float(inside.min()), float(inside.max()))
        ln[lacking & blank] = math.log(held + shift)
        return Covariate(word, columns[0], kind, ln, held, *ends, shift=shift, common=common)

    def _by_shape(self, column: str) -> bool:
        """True if each shape with several rows has one value: the column may be part of the shape."""
        several = [values for values in of_shapes(self.rows, column).values() if len(values) > 1]
        return len(several) >= FEWEST_SHAPES and all(len(set(values)) == 1 for values in several)


def find(
    rows: Sequence[Row],
    x: np.ndarray,
    y: np.ndarray,
    asked: Asked,
    never: Collection[str],
    unknown: Collection[str],
    members: np.ndarray,
) -> Covariates:
    """Covariates of ``rows`` at x = ln size and y = ln depth (K,). never: covariates that do not enter unasked.
    unknown: further columns of chosen numbers. members: (K, A) of recipes that are compared, of which a column is a
    part that differs between them alone.

    Raises:
        InputError: a requested held value is not in the table.
    """
    known_not = frozenset(unknown) - set(asked.adjust.values())
    arm = members @ np.arange(1.0, members.shape[1] + 1.0)
    search = _Search(rows, x, y, asked, never, np.ones(len(rows), dtype=bool), arm, known_not)
    present = {name for row in rows for name, value in row.items() if value is not None}
    short = {bare(name): name for name in sorted(present, key=lambda one: (one == bare(one), one))}
    numbers: dict[str, list[str]] = {}
    for word, of_word in ALL.items():
        kept = numbers.setdefault(word, [])
        # names of one number fill its blanks, but a rate that was logged beside the chosen one is another number
        for name in (short[one] for one in of_word if one in short):
            beside = (row.get(name) is not None and any(row.get(one) is not None for one in kept) for row in rows)
            if word in OF_SHAPE or not any(beside):
                kept.append(name)
    named = set(asked.adjust.values())
    texts = [(one.replace("_", " "), short[one]) for one in TEXTS if one in short and short[one] not in named]
    known = named.union(*numbers.values())
    numbers |= {bare(one).replace("_", " "): [one] for one in unknown if one not in known}
    for word, column in asked.adjust.items():
        if word in OF_SHAPE or (column in numbers.get(word, ()) and not is_beside_blanks(rows, column)):
            continue
        numbers.pop(word, None)  # of two columns of one setting the requested one
        values = {row.get(column) for row in rows}
        if len(values) < 3 or any(isinstance(value, str | bool) for value in values):
            texts.append((word, column))
        else:
            numbers[word] = [column]
    found = [one for word, column in texts if search.wanted(word) for one in search.texts(word, column)]
    of_numbers = (search.number(word, columns) for word, columns in numbers.items() if columns and search.wanted(word))
    found += filter(None, of_numbers)
    keep = search.keep
    if keep.sum() < FEWEST_OF_LEVEL:
        return Covariates([], ())
    kept_columns = [one for one in (one.at_rows(keep) for one in found) if np.ptp(one.value) > 0.0]
    rest = [row for row, stays in zip(rows, keep, strict=True) if stays]
    members, x, y = members[keep], x[keep], y[keep]
    columns, loss = _own(kept_columns, x, y, members), np.array([float(row["loss"]) for row in rest])
    columns = [_at_least_loss(one, columns, loss, x, y, members) for one in columns]
    return Covariates(rest, tuple(columns), tuple(search.follow), search.out)


def _held(word: str, values: np.ndarray, asked: Any) -> tuple[float, tuple[float, ...]]:
    """(held value, values about as common): the requested value, else the commonest, of several about as common the one
    next to the middle, or the middle if none is common."""
    if asked is not None:
        try:
            held = float(asked)
        except (TypeError, ValueError):
            raise InputError(f"{argument('at', '--at')}: {word}={asked}; must be a number") from None
        low, high = float(values.min()), float(values.max())
        if not low / 2.0 <= held <= 2.0 * high:
            raise InputError(
                f"{argument('at', '--at')}: {word}={asked}; allowed: from {low / 2.0:g} to {2.0 * high:g}, the table "
                f"has {low:g} to {high:g}"
            )
        return held, ()
    rounded = Counter(float(f"{value:.3g}") for value in values)
    most, middle = max(rounded.values()), float(np.median(values))
    if most < max(3, COMMON * len(values)):
        return middle, ()
    least = max(most / ABOUT_AS_COMMON, most - BY_CHANCE * math.sqrt(most))
    common = [value for value, count in rounded.items() if count >= least - 1e-9]
    exact = [float(np.median([one for one in values if float(f"{one:.3g}") == value])) for value in sorted(common)]
    held = min(exact, key=lambda one: (abs(math.log((one + SAME) / (middle + SAME))), one))
    return held, tuple(exact) if len(exact) > 1 else ()


def _at_least_loss(
    one: Covariate, columns: Sequence[Covariate], loss: np.ndarray, x: np.ndarray, y: np.ndarray, arms: np.ndarray
) -> Covariate:
    """A part of a shape (d_ff over d, head size) at the value of least loss at equal size, depth and other columns, of
    those that are as common but for chance: a shape is compared at its best, as a learning rate is. The middle value
    stays held if its loss is not clearly higher, or if the column cannot be separated from depth; so does the value of
    any other column."""
    if one.name not in OF_SHAPE or not one.common or abs(one.r) >= CONFOUNDED:
        return one
    number = np.exp(one.value) - one.shift
    at = np.array([np.abs(number / value - 1.0) < COMMON_WITHIN for value in one.common], dtype=float).T
    kept = at.any(axis=1)
    places = [k for k, value in enumerate(one.common) if value != float(one.held)]
    others = [*arms.T, *(two.value for two in columns if two.name != one.name)]
    others += [two.value**2 for two in columns if two.name != one.name and two.kind != TEXT]
    A = np.hstack([np.stack([*quadratic(x, y).T, x**3 - (x**3).mean(), *others], axis=1), at[:, places]])[kept]
    free = int(kept.sum()) - np.linalg.matrix_rank(A)
    if free < FEWEST_OF_LEVEL:
        return one
    beta, inverse = np.linalg.lstsq(A, loss[kept], rcond=None)[0], np.linalg.pinv(A.T @ A)
    rest = loss[kept] - A @ beta
    error = np.sqrt(float(rest @ rest) / free * np.maximum(np.diag(inverse), 0.0))
    first = A.shape[1] - len(places)
    best = first + int(np.argmin(beta[first:]))
    leads = beta[best] < -LEAST_T * error[best]
    return replace(one, held=one.common[places[best - first]]) if leads else one


def _own(columns: Sequence[Covariate], x: np.ndarray, y: np.ndarray, arms: np.ndarray) -> list[Covariate]:
    """Distinct columns, each with its correlation with ln L at equal size. arms: (K, A) members of each."""
    kept: list[Covariate] = []
    size = quadratic(x, y)[:, [0, 1, 3]]
    b = left(y, size)
    plane = np.column_stack([np.ones_like(x), x, y, arms])
    for one in columns:
        bases = [np.column_stack([plane, two.value]) for two in kept if two.name != one.name]
        bases += [plane] if arms.size else []
        if all(share_left(one.value, base) >= LEAST_OWN for base in bases):
            a = left(one.value, size)
            r = float(a @ b / math.sqrt(max(float(a @ a) * float(b @ b), 1e-300)))
            kept.append(replace(one, r=r))
    return kept
