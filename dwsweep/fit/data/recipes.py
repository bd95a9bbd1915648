"""Recipe of a cell: runs of one shape and learning rate count together if their settings agree.

A known setting that differs within a cell is settled by the commonest value of the table; an unknown one is asked
about, with the choices that remain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dwsweep.errors import InputError, example
from dwsweep.fit.data import condition
from dwsweep.fit.data.roles import LENGTHS, OFTEN, RECIPE, TUNING, hashable
from dwsweep.fit.data.rows import ALIKE, Row, is_number, listed_values, positive
from dwsweep.fit.data.shape import BLOCK

COUNTED_APART = 3.0  # largest over smallest count of tokens that replicates happened to take


class Kept(NamedTuple):
    """Choice of rows with one recipe per cell. out: index of a row that is left out → (column, its value, the
    value that is used). warnings: one per column that was settled."""

    out: dict[int, tuple[str, Any, Any]]
    warnings: list[str]


@dataclass(frozen=True)
class _Setting:
    """A column over all rows. value: of each row. cell: of each row, within which the column must not differ: a text
    (an activation) differs within a depth and width, whatever the inner width, and no recipe follows the learning
    rate. unknown: True if only its values show that it is a setting."""

    name: str
    unknown: bool
    value: list[Any]
    cell: list[Any] = field(repr=False)

    @classmethod
    def of(cls, name: str, rows: Sequence[Row], cells: Sequence[tuple[Any, Hashable]], unknown: bool) -> _Setting:
        value = [hashable(row.get(name)) for row in rows]
        texts = any(isinstance(one, str) for one in value)
        places = ((tuple(shape)[:2] if texts else shape, rate) for shape, rate in cells)
        return cls(name, unknown, value, [(shape, None if name in RECIPE else rate) for shape, rate in places])

    def mixed(self, kept: Iterable[int], blanks: bool) -> dict[Any, set[Any]]:
        """Cell → its values, of the cells in which rows ``kept`` differ. blanks: True if a blank is a value."""
        of: dict[Any, set[Any]] = defaultdict(set)
        for k in kept:
            if self.value[k] is not None or blanks:
                of[self.cell[k]].add(self.value[k])
        return {cell: seen for cell, seen in of.items() if len(seen) > 1 and not self._alike(seen)}

    def _alike(self, seen: Collection[Any]) -> bool:
        return self.name in LENGTHS and all(map(positive, seen)) and max(seen) <= ALIKE * min(seen)


def one_recipe(
    rows: Sequence[Row],
    cells: Sequence[tuple[Any, Hashable]],
    counted: int,
    named: Iterable[str] = (),
    unknown: Collection[str] = (),
) -> Kept:
    """Leave out rows so that every cell has one recipe.

    cells: (shape, learning rate) of each row. counted: the first rows are finished, the others are not and follow.
    named: further columns that the user has named. unknown: columns that are settings by their values.

    A known column that takes several values within a cell is settled by the value that most runs of the table share,
    where every such cell has it; an unknown one is refused with a question.

    Raises:
        InputError: there is no such value; one line names the choices.
    """
    kept = Kept({}, [])
    varying: list[_Setting] = []
    present = {name for row in rows for name in row}
    for name in dict.fromkeys((*RECIPE, *TUNING, *named, *unknown)):
        if name not in present:
            continue
        one = _Setting.of(name, rows, cells, name in unknown)
        blanks = one.unknown or name in RECIPE
        left = [k for k in range(len(rows)) if k not in kept.out and (blanks or one.value[k] is not None)]
        finished = [k for k in left if k < counted]
        mixed = one.mixed(finished, blanks)
        if not mixed:
            continue
        if span := _by_the_way([rows[k] for k in range(counted) if k not in kept.out], name):
            kept.warnings.append(
                f"{name}: {span[0]:,.0f} to {span[1]:,.0f} within one shape, another count for each seed; losses are "
                "compared as they are"
            )
            continue
        counts = Counter(one.value[k] for k in finished)
        best = max(counts, key=lambda value: (counts[value], str(value)))
        if one.unknown or 2 * counts[best] <= counts.total() or not all(best in seen for seen in mixed.values()):
            varying.append(one)
            continue
        others = (k for k in left if one.cell[k] in mixed and one.value[k] != best)
        kept.out.update({k: (name, one.value[k], best) for k in others})
        kept.warnings.append(
            f"{name}: {listed_values(counts)} within one shape; only {name} = {best} is used there "
            "(choose with a `where` expression)"
        )
    if varying:
        raise InputError(_refusal(varying, [shape for shape, _ in cells[:counted]]))
    return kept


def _by_the_way(rows: Sequence[Row], name: str) -> tuple[float, float] | None:
    """Least and largest count where each seed of a shape has another one, as measured: they were not chosen."""
    values = [row.get(name) for row in rows]
    if name not in LENGTHS or not all(map(positive, values)) or None in [row.get("seed") for row in rows]:
        return None
    of: dict[Hashable, list[float]] = defaultdict(list)
    for row in rows:
        of[row["depth"], row["width"], row.get(BLOCK)].append(float(row[name]))
    low, high = max(((min(v), max(v)) for v in of.values()), key=lambda ends: ends[1] / ends[0])
    return (low, high) if high <= COUNTED_APART * low and len(set(values)) > OFTEN * len(values) else None


def _refusal(varying: Sequence[_Setting], shapes: Sequence[Any]) -> str:
    """Refusal of differing settings: names, shapes, and the choice that keeps the most shapes. shapes: of the finished
    rows."""
    parts, numbers = [], []
    for one in varying:
        mixed = one.mixed(range(len(shapes)), one.unknown) or one.mixed(range(len(shapes)), True)
        (shape, _), values = min(mixed.items(), key=lambda item: str(item[0]))
        parts.append(f"{one.name} ({listed_values(values)} at {shape[0]}×{shape[1]:g})")
        numbers += [one.name] if all(map(is_number, values)) and one.name != "tokens" else []
    names = [one.name for one in varying]
    asked = next((one.name for one in varying if one.unknown), None)
    advice = []
    if choices := _choices([one for one in varying if one.name != "lr"], shapes):
        conditions = [condition.equals(name, value) for name, value in choices]
        text = " and ".join(conditions)
        advice.append(f"choose, such as with {example(f'where={text!r}', condition.option(*conditions))}")
    if "tokens" in names:
        after, as_they_are = example("at_tokens=N", "--at-tokens N"), example("drop=['tokens']", "--drop tokens")
        advice.append(f"or compare after equally many with {after}, or as they are with {as_they_are}")
    if asked:
        arms = example(f"fit_table(table, arm={asked!r}, compare=True)", f"--arm {asked} --compare")
        adjusted = example(f"adjust=[{asked!r}]", f"--adjust {asked}")
        ignored = example(f"drop=[{asked!r}]", f"--drop {asked}")
        compared = f"or compare them with {arms}, or adjust losses for it with {adjusted}"
        advice.append(f"{compared}, or, if it changes nothing, {ignored}")
    elif numbers:
        along = example(f"fit_table(table, along={numbers[0]!r})", f"--along {numbers[0]}")
        advice.append(f"or compare them with {along}")
    if "lr" in names:
        advice.append("rename with " + example("columns={'learning_rate': 'lr'}", "--column learning_rate=lr"))
    how = "; ".join(advice).removeprefix("or ")
    return f"recipes that differ within one shape would be averaged: {', '.join(parts)}; {how}"


def _choices(varying: Sequence[_Setting], shapes: Sequence[Any]) -> list[tuple[str, Any]]:
    """Values that leave no shape mixed: of each column in its turn the value that keeps the most shapes."""
    kept = list(range(len(shapes)))
    chosen: list[tuple[str, Any]] = []
    for one in varying:
        of: dict[Any, set[Any]] = defaultdict(set)
        for k in kept:
            if one.value[k] is not None:
                of[one.value[k]].add(shapes[k])
        value = max(of, key=lambda value: (len(of[value]), str(value)), default=None)
        several = len(set().union(*of.values())) > 1
        if one.mixed(kept, False) and (len(of[value]) > 1 or not several):  # else no row is left
            chosen.append((one.name, value))
            kept = [k for k in kept if one.value[k] == value]
    return chosen
