"""Cells: runs that count, one group per shape, and the reasons for leaving out others."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.data import condition
from dwsweep.fit.data.roles import LENGTHS, OFTEN, RECIPE, TUNING
from dwsweep.fit.data.rows import ALIKE, LeftOut, Row, grouped, is_number, listed_values, no_loss, positive, why_no_loss
from dwsweep.fit.data.shape import BLOCK, n_params_of, of_shapes
from dwsweep.records.columns import AXES
from dwsweep.text import BITS_PER_TOKEN, NATS, OF_TEXT, join

CENSORED_SHARE = 0.25
COUNTED_APART = 3.0  # largest over smallest count of tokens that replicates happened to take
LEARNED_SHARE = 0.1  # share of ln V that unigram frequencies alone save, roughly


class TableShape(NamedTuple):
    """A shape of a table. block: mark among nets of its depth and width, or empty."""

    depth: int
    width: float
    block: str = ""

    def __str__(self) -> str:
        return f"{self.depth}×{self.width:g}{f' ({self.block})' if self.block else ''}"


class Setup(NamedTuple):
    """A shape at one learning rate and one value of each setting that losses are adjusted for."""

    shape: TableShape
    learning_rate: float | None
    settings: tuple[Hashable, ...] = ()

    @property
    def order(self) -> tuple[TableShape, float]:
        """Place among the setups of a table."""
        return self.shape, -1.0 if self.learning_rate is None else self.learning_rate


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run: a shape, a learning rate, a seed and its held-out loss.

    seed: None if the table names none (the run is then a replicate without a partner at other shapes).
    loss: nats per token. x: ln of the axis (ln N for the default axis). n_params: weights of the blocks. settings:
    values of the columns that losses are adjusted for.
    """

    depth: int
    width: float
    learning_rate: float | None
    seed: Hashable
    loss: float
    x: float
    n_params: float
    row: Row
    block: str = ""
    settings: tuple[Hashable, ...] = ()

    @property
    def shape(self) -> TableShape:
        return TableShape(self.depth, self.width, self.block)

    @property
    def setup(self) -> Setup:
        return Setup(self.shape, self.learning_rate, self.settings)


@dataclass
class Selection:
    """``runs``: runs that count. reasons: why other runs of a shape are out. diverged_rule: how diverged replicas were
    treated, or None if there were none. account: rows that are out, by reason. sizes: N of each shape. lost_rates:
    learning rates of a shape whose runs diverged or have NaN for a loss. diverged: runs to be treated."""

    runs: list[Run] = field(default_factory=list)
    reasons: dict[TableShape, list[str]] = field(default_factory=lambda: defaultdict(list))
    warnings: list[str] = field(default_factory=list)
    diverged_rule: str | None = None
    account: Counter[LeftOut] = field(default_factory=Counter)
    sizes: dict[TableShape, float] = field(default_factory=dict)
    lost_rates: dict[TableShape, set[float]] = field(default_factory=lambda: defaultdict(set))
    diverged: list[Run] = field(default_factory=list)

    @property
    def excluded(self) -> dict[TableShape, str]:
        """Reasons of shapes without a run that counts."""
        return self._said(staying=False)

    @property
    def notes(self) -> dict[TableShape, str]:
        """Reasons of the runs that are out at shapes that stay."""
        return self._said(staying=True)

    def _said(self, staying: bool) -> dict[TableShape, str]:
        left = {run.shape for run in self.runs}
        counted = {shape: Counter(why) for shape, why in self.reasons.items() if (shape in left) == staying}
        return {
            shape: "; ".join(f"{count} × {why}" if count > 1 else why for why, count in each.items())
            for shape, each in counted.items()
        }


def number(value: float) -> Any:
    """``value`` as an int where it is whole, for names and keys that people read."""
    return int(value) if float(value).is_integer() else float(value)


def select_runs(
    rows: list[Row],
    axis: str = "n_params",
    named: Iterable[str] = (),
    unit: str = NATS,
    settings: Collection[str] = (),
    adjusted: Collection[str] = (),
    theirs: Mapping[str, str] = {},
) -> Selection:
    """Choose the rows that count as losses. named: columns that the user has named, each part of a run's recipe; unit:
    of the losses; settings: columns found to tell recipes apart; adjusted: columns that losses are adjusted for, so
    that ``settings`` alone must not differ within a shape; none: the losses count as they are. theirs: our name of a
    column → the table's.

    Rows that failed, are not finished or have NaN for a loss are missing at random: their seeds keep their pairing. A
    diverged replica (or an infinite loss) is not at random, and averaging only the good seeds of a deep net would
    flatter depth: a learning rate that diverged is no candidate while another one stayed finite at that shape. If none
    did, the cell is censored, unless that would take more than a quarter of a depth's sizes: then the seed is
    dropped at every depth, provided that two seeds remain.
    """
    if axis not in AXES:
        raise InputError(f"{argument('axis')}: {axis!r}; must be one of {', '.join(AXES)}")
    if axis != "n_params" and not any(row.get(axis) is not None for row in rows):
        raise InputError(f"{argument('axis')}: {axis!r}; the table has no column of that name with values in it")
    parts = sort_rows(rows, axis, adjusted)
    _one_recipe(parts, named, settings, bool(adjusted), theirs)
    _merge_duplicates(parts)
    parts.diverged_rule = _treat_diverged(parts)
    _leave_out_untrained(parts, unit)
    return parts


def sort_rows(rows: Sequence[Row], axis: str = "n_params", adjusted: Collection[str] = ()) -> Selection:
    parts = Selection()
    for row in rows:
        shape, n_params = TableShape(number(row["depth"]), number(row["width"]), row.get(BLOCK, "")), n_params_of(row)
        parts.sizes.setdefault(shape, n_params)
        value: Any = n_params if axis == "n_params" else row.get(axis)
        loss: Any = row.get("loss")
        rate = row.get("learning_rate")
        diverged = str(row.get("status")).lower() == "diverged" or (isinstance(loss, float) and math.isinf(loss))
        if rate is not None and (diverged or loss != loss):
            parts.lost_rates[shape].add(rate)
        if reason := why_no_loss(row):
            parts.reasons[shape].append(reason)
            parts.account[no_loss(reason), ""] += 1
        elif value is None or not math.isfinite(value) or value <= 0:
            parts.reasons[shape].append(f"no {axis}")
            parts.account[f"have no {axis}", ""] += 1
        else:
            run = Run(
                depth=shape.depth,
                width=shape.width,
                block=shape.block,
                learning_rate=rate,
                seed=row.get("seed"),
                loss=math.nan if diverged else float(loss),
                x=math.log(value),
                n_params=n_params,
                row=row,
                settings=tuple(map(row.get, adjusted)),
            )
            (parts.diverged if diverged else parts.runs).append(run)
    return parts


def _one_recipe(
    parts: Selection, named: Iterable[str], unknown: Collection[str], adjusted: bool, theirs: Mapping[str, str]
) -> None:
    """Leave out runs so that every cell has one recipe; if losses are ``adjusted``, refuse a shape with several values
    of an ``unknown`` column alone.

    A known column that takes several values within a cell is settled by the value that most runs of the table share,
    where every such cell has it; an unknown one is refused with a question. A text (an activation) must not differ
    within a depth and width, whatever the inner width, and no recipe follows the learning rate.

    Raises:
        InputError: there is no such value; one line names the choices.
    """
    runs, counted, out = [*parts.runs, *parts.diverged], len(parts.runs), set[int]()
    varying: dict[str, tuple[list[Any], dict[Any, list[Any]]]] = {}
    present = {name for run in runs for name in run.row}
    for name in unknown if adjusted else dict.fromkeys((*RECIPE, *TUNING, *named, *unknown)):
        if name not in present:
            continue
        values, no_rate = [run.row.get(name) for run in runs], adjusted or name in RECIPE
        texts = any(isinstance(value, str) for value in values)
        cell = [(run.shape[: 2 if texts else 3], None if no_rate else run.learning_rate) for run in runs]
        left = [k for k in range(len(runs)) if k not in out]
        left = [k for k in left if values[k] is not None or name not in LENGTHS]  # a blank may be another recipe
        finished = [k for k in left if k < counted]
        mixed = _mixed(name, finished, cell, values)
        if not mixed:
            continue
        shown = theirs.get(name, name)
        if span := _by_the_way([runs[k].row for k in range(counted) if k not in out], name):
            parts.warnings.append(
                f"{shown}: {span[0]:,.0f} to {span[1]:,.0f} within one shape, another count for each seed; losses are "
                "compared as they are"
            )
            continue
        counts = Counter(values[k] for k in finished)
        best = max(counts, key=lambda value: (counts[value], str(value)))
        if name in unknown or 2 * counts[best] <= counts.total() or not all(best in seen for seen in mixed.values()):
            varying[shown] = values, mixed
            continue
        for k in (k for k in left if cell[k] in mixed and values[k] != best):
            out.add(k)
            if k < counted:
                parts.reasons[runs[k].shape].append(f"{shown} = {values[k]}")
            parts.account[f"have {shown} = {values[k]} and not {best}", f'--where "{shown} == {values[k]!r}"'] += 1
        parts.warnings.append(
            f"{shown}: {listed_values(counts)} within one shape; only {shown} = {best} is used there "
            "(choose with a `where` expression)"
        )
    if varying:
        asked = [theirs.get(name, name) for name in unknown]
        raise InputError(_refusal(varying, [run.shape for run in parts.runs], asked))
    parts.runs = [run for k, run in enumerate(parts.runs) if k not in out]
    parts.diverged = [run for k, run in enumerate(parts.diverged, start=counted) if k not in out]


def _mixed(name: str, kept: Iterable[int], cell: Sequence[Any], values: Sequence[Any]) -> dict[Any, list[Any]]:
    """Cell → its values, of the cells in which rows ``kept`` differ."""

    def alike(seen: Sequence[Any]) -> bool:
        return name in LENGTHS and all(map(positive, seen)) and max(seen) <= ALIKE * min(seen)

    of = grouped({(cell[k], values[k]) for k in kept})
    return {at: seen for at, seen in of.items() if len(seen) > 1 and not alike(seen)}


def _by_the_way(rows: Sequence[Row], name: str) -> tuple[float, float] | None:
    """Least and largest count where each seed of a shape has another one, as measured: they were not chosen."""
    values = [row.get(name) for row in rows]
    if name not in LENGTHS or not all(map(positive, values)) or None in [row.get("seed") for row in rows]:
        return None
    of = of_shapes(rows, name).values()
    low, high = max(((float(min(v)), float(max(v))) for v in of), key=lambda ends: ends[1] / ends[0])
    return (low, high) if high <= COUNTED_APART * low and len(set(values)) > OFTEN * len(values) else None


def _refusal(
    varying: Mapping[str, tuple[list[Any], dict[Any, list[Any]]]], shapes: Sequence[Any], unknown: Collection[str]
) -> str:
    """Refusal of differing settings: names, shapes, and the recipe that keeps the most shapes. varying: values of all
    rows, and of the cells in which they differ, by column. shapes: of the finished rows."""
    parts, numbers = [], []
    for name, (_, mixed) in varying.items():
        (shape, _), values = min(mixed.items(), key=lambda item: str(item[0]))
        parts.append(f"{name} ({listed_values(values)} at {shape[0]}×{shape[1]:g})")
        numbers += [name] if all(map(is_number, values)) and name != "tokens" else []
    names = list(varying)
    of = grouped({(tuple(varying[name][0][k] for name in names), shape) for k, shape in enumerate(shapes)})
    recipe = max(of, key=lambda values: (None not in values, len(of[values]), str(values)))
    conditions = [condition.equals(name, value) for name, value in zip(names, recipe, strict=True)]
    text = " and ".join(conditions)
    advice = [f"choose, such as with {example(f'where={text!r}', condition.option(*conditions))}"]
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
    return f"recipes that differ within one shape would be averaged: {', '.join(parts)}; {'; '.join(advice)}"


def _merge_duplicates(parts: Selection) -> None:
    """Several rows of one shape, learning rate and seed are one run, of the mean of their different losses."""
    # a run without a seed is like no other
    alike = grouped(((run.setup, run.seed, k if run.seed is None else None), run) for k, run in enumerate(parts.runs))
    merged: list[Run] = []
    for same in alike.values():
        losses = {run.loss for run in same}
        mean, x = math.fsum(losses) / len(losses), math.fsum(run.x for run in same) / len(same)
        merged.append(replace(same[0], loss=mean, x=x) if len(same) > 1 else same[0])
    if averaged := len(parts.runs) - len(merged):
        parts.account["are averaged with another row of their shape, learning rate and seed", ""] += averaged
        parts.warnings.append(
            f"{averaged} row{'s have' if averaged > 1 else ' has'} the shape, learning rate and seed of another row; "
            "their losses are averaged (if they differ in a recipe, choose one with a `where` expression)"
        )
    parts.runs = merged


def _treat_diverged(parts: Selection) -> str | None:
    if not parts.diverged:
        return None
    bad = {run.setup for run in parts.diverged}
    stayed = {run.shape for run in parts.runs if run.setup not in bad}  # shapes that keep other rates
    dropped = [setup for setup in bad if setup.shape in stayed]
    before = len(parts.runs)
    rules = []
    if dropped:
        of = "setting" if any(setup.settings for setup in dropped) else "learning rate"
        many = f"{of}s are excluded at their shapes" if len(dropped) > 1 else f"{of} is excluded at its shape"
        rules.append(f"{len(dropped)} diverged {many}")
        for shape, rate, settings in dropped:
            alone = rate is not None and not settings
            parts.reasons[shape].append(f"learning rate {rate:g} diverged" if alone else "diverged")
        parts.runs = [run for run in parts.runs if run.setup not in dropped]
    left = [run for run in parts.diverged if run.setup not in dropped]
    if left:
        rules.append(_censor_or_drop(parts, left))
    parts.account["are of runs that diverged", ""] += len(parts.diverged)
    parts.account["are of a shape, a rate or a seed that diverged elsewhere", ""] += before - len(parts.runs)
    parts.warnings.append("diverged: " + "; ".join(rules))
    return "; ".join(rules)


def chance_loss(run: Run, unit: str) -> float | None:
    """ln V, the loss of a uniform guess; None if the table names no vocabulary, or its losses are not per token."""
    vocabulary = run.row.get("vocab_size")
    if unit in OF_TEXT or not vocabulary or not 1 < vocabulary < math.inf:
        return None
    return math.log(vocabulary) / (math.log(2.0) if unit == BITS_PER_TOKEN else 1.0)


def _leave_out_untrained(parts: Selection, unit: str) -> None:
    """A net near ln V guesses the next token almost uniformly: its loss says nothing about depth."""
    known = [(run, chance) for run in parts.runs if (chance := chance_loss(run, unit)) is not None]
    uniform = {run.shape: chance for run, chance in known}
    losses = grouped((run.setup, run.loss) for run, _ in known)
    means = grouped((setup.shape, math.fsum(of) / len(of)) for setup, of in losses.items())
    best = {shape: min(of) for shape, of in means.items()}
    shapes = sorted(shape for shape, loss in best.items() if loss > (1.0 - LEARNED_SHARE) * uniform[shape])
    if not shapes:
        return
    n_shapes = len({run.shape for run in parts.runs})
    for shape in shapes:
        parts.reasons[shape].append(f"not trained: loss {best[shape]:.3f}, ln(vocab_size) = {uniform[shape]:.3f}")
    before = len(parts.runs)
    parts.runs = [run for run in parts.runs if run.shape not in shapes]
    parts.account["are of shapes that have learned nothing", ""] += before - len(parts.runs)
    first, percent = shapes[0], 100 * LEARNED_SHARE
    example = f"{first}: {best[first]:.3f}, ln V = {uniform[first]:.3f}"
    parts.warnings.append(
        f"NOT TRAINED: {len(shapes)} of {n_shapes} shapes have a loss within {percent:.0f} % of ln(vocab_size), the "
        f"loss of a uniform guess, or above it (such as {example}); they are left out of every answer: train longer, "
        f"or check that the loss is in {unit}"
    )


def _censor_or_drop(parts: Selection, diverged: list[Run]) -> str:
    shapes = {run.shape for run in diverged}
    seeds = {run.seed for run in diverged}
    remaining_seeds = {run.seed for run in parts.runs} - seeds
    sizes = Counter(shape.depth for shape in {run.shape for run in parts.runs} | shapes)
    lost = Counter(shape.depth for shape in shapes)
    heavy = any(lost[depth] > CENSORED_SHARE * sizes[depth] for depth in lost)
    swept = any(run.settings for run in diverged)  # settings diverge, and not a seed
    if None not in seeds and len(remaining_seeds) >= 2 and heavy and not swept:
        parts.runs = [run for run in parts.runs if run.seed not in seeds]
        for run in diverged:
            parts.reasons[run.shape].append(f"seed {run.seed} diverged")
        named = join(str(number(seed)) if isinstance(seed, float) else str(seed) for seed in sorted(seeds, key=str))
        return f"seed {named} diverged at {len(shapes)} shapes and is left out at every depth"
    parts.runs = [run for run in parts.runs if run.shape not in shapes]
    for shape, count in Counter(run.shape for run in diverged).items():
        parts.reasons[shape].append(f"{count} replicas diverged: the cell is censored")
    named = join(map(str, sorted(shapes)))
    return f"{named}: replicas diverged, the whole cell is censored"
