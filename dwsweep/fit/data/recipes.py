"""Recipe of a cell: runs of one shape and learning rate count together if their settings agree.

A known setting that differs within a cell is settled by the commonest value of the table; an unknown one is asked
about, with the choices that remain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
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
    where every such cell has it; an unknown one is refused with a question. A text (an activation) must not differ
    within a depth and width, whatever the inner width, and no recipe follows the learning rate.

    Raises:
        InputError: there is no such value; one line names the choices.
    """
    kept = Kept({}, [])
    varying: dict[str, tuple[list[Any], dict[Any, set[Any]]]] = {}
    present = {name for row in rows for name in row}
    for name in dict.fromkeys((*RECIPE, *TUNING, *named, *unknown)):
        if name not in present:
            continue
        values = [hashable(row.get(name)) for row in rows]
        shapes = [tuple(shape)[:2] if any(isinstance(one, str) for one in values) else shape for shape, _ in cells]
        cell = [(shape, None if name in RECIPE else rate) for shape, (_, rate) in zip(shapes, cells, strict=True)]
        left = [k for k in range(len(rows)) if k not in kept.out]
        left = [k for k in left if name in unknown or name in RECIPE or values[k] is not None]
        finished = [k for k in left if k < counted]
        mixed = _mixed(name, finished, cell, values)
        if not mixed:
            continue
        if span := _by_the_way([rows[k] for k in range(counted) if k not in kept.out], name):
            kept.warnings.append(
                f"{name}: {span[0]:,.0f} to {span[1]:,.0f} within one shape, another count for each seed; losses are "
                "compared as they are"
            )
            continue
        counts = Counter(values[k] for k in finished)
        best = max(counts, key=lambda value: (counts[value], str(value)))
        if name in unknown or 2 * counts[best] <= counts.total() or not all(best in seen for seen in mixed.values()):
            varying[name] = values, mixed
            continue
        kept.out.update({k: (name, values[k], best) for k in left if cell[k] in mixed and values[k] != best})
        kept.warnings.append(
            f"{name}: {listed_values(counts)} within one shape; only {name} = {best} is used there "
            "(choose with a `where` expression)"
        )
    if varying:
        raise InputError(_refusal(varying, [shape for shape, _ in cells[:counted]], unknown))
    return kept


def _mixed(name: str, kept: Iterable[int], cell: Sequence[Any], values: Sequence[Any]) -> dict[Any, set[Any]]:
    """Cell → its values, of the cells in which rows ``kept`` differ."""
    of: dict[Any, set[Any]] = defaultdict(set)
    for k in kept:
        of[cell[k]].add(values[k])

    def alike(seen: set[Any]) -> bool:
        return name in LENGTHS and all(map(positive, seen)) and max(seen) <= ALIKE * min(seen)

    return {at: seen for at, seen in of.items() if len(seen) > 1 and not alike(seen)}


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


def _refusal(
    varying: Mapping[str, tuple[list[Any], dict[Any, set[Any]]]], shapes: Sequence[Any], unknown: Collection[str]
) -> str:
    """Refusal of differing settings: names, shapes, and the recipe that keeps the most shapes. varying: values of all
    rows, and of the cells in which they differ, by column. shapes: of the finished rows."""
    parts, numbers = [], []
    for name, (_, mixed) in varying.items():
        (shape, _), values = min(mixed.items(), key=lambda item: str(item[0]))
        parts.append(f"{name} ({listed_values(values)} at {shape[0]}×{shape[1]:g})")
        numbers += [name] if all(map(is_number, values)) and name != "tokens" else []
    names = [name for name in varying if name != "lr"]
    of: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for k, shape in enumerate(shapes):
        of[tuple(varying[name][0][k] for name in names)].add(shape)
    recipe = max(of, key=lambda values: (None not in values, len(of[values]), str(values)))
    advice = []
    if conditions := [condition.equals(name, value) for name, value in zip(names, recipe, strict=True)]:
        text = " and ".join(conditions)
        advice.append(f"choose, such as with {example(f'where={text!r}', condition.option(*conditions))}")
    if "tokens" in names:
        after, as_they_are = example("at_tokens=N", "--at-tokens N"), example("drop=['tokens']", "--drop tokens")
        advice.append(f"or compare after equally many with {after}, or as they are with {as_they_are}")
    if asked := next((name for name in varying if name in unknown), None):
        arms = example(f"fit_table(table, arm={asked!r}, compare=True)", f"--arm {asked} --compare")
        adjusted = example(f"adjust=[{asked!r}]", f"--adjust {asked}")
        ignored = example(f"drop=[{asked!r}]", f"--drop {asked}")
        compared = f"or compare them with {arms}, or adjust losses for it with {adjusted}"
        advice.append(f"{compared}, or, if it changes nothing, {ignored}")
    elif numbers:
        along = example(f"fit_table(table, along={numbers[0]!r})", f"--along {numbers[0]}")
        advice.append(f"or compare them with {along}")
    if "lr" in varying:
        advice.append("rename with " + example("columns={'learning_rate': 'lr'}", "--column learning_rate=lr"))
    how = "; ".join(advice).removeprefix("or ")
    return f"recipes that differ within one shape would be averaged: {', '.join(parts)}; {how}"
