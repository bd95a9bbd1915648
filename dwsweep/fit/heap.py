"""Heap of runs: best depths from a table whose runs differ in more than depth and size.

Each row (or group of equal rows) is a mean loss of the posterior with a further column for each covariate
(``data.covariates``): a value of zero is the held one, so that every answer of the surface holds there. A learning rate
is a parabola, and each draw is evaluated at its lowest point.

The loss that cells, pairs and figures show is the run's own less the mean effect of its covariates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument, example
from dwsweep.fit import ask
from dwsweep.fit.adjustment import adjustment_of, sentences
from dwsweep.fit.cells import LARGEST_SHARE, beyond_all
from dwsweep.fit.data import covariates as found_in
from dwsweep.fit.data.covariates import HEAD_SIZE, NUMBER, RATE, TOKENS, Covariates
from dwsweep.fit.data.rows import Row, no_loss, why_no_loss
from dwsweep.fit.data.shape import BLOCK, n_params_of, places
from dwsweep.fit.data.table import Table
from dwsweep.fit.equal_what import Budget, Runs, equal_what, spent_by_all
from dwsweep.fit.heap_design import FEWEST_ROWS_EACH, Design, Means, cells_of, design_of, means_of, surface_of
from dwsweep.fit.lengths import TrainedBudgets, all_reach, token_groups
from dwsweep.fit.model import Frame
from dwsweep.fit.unadjusted import unadjusted
from dwsweep.records.adjusted import Adjustment
from dwsweep.records.fit import FitOptions, LeftOutRows, Surface
from dwsweep.text import join

BUDGETS_APART = 2.0  # largest over smallest budget of compute above which budgets show the effect of tokens
FAR_Z = 8.0  # standard deviations from the prediction at which a run is impossible
ROUNDS = 3  # rounds of fits, between which impossible runs are left out


@dataclass(frozen=True)
class Heap:
    """``data``: the table with each loss moved to the held values. surface: the posterior at these. record: the
    adjustment."""

    data: Table
    surface: Surface | None
    record: Adjustment


def heap_of(data: Table, options: FitOptions, trained: TrainedBudgets | None = None) -> Heap | None:
    """Heap in a table; None if its runs differ only in depth, size, seed and columns of a grid.

    trained: budgets of compute that all runs were trained to: tokens then follow from the shape, and are no setting.

    Raises:
        InputError: an option names a column that is no setting, or a value that the table does not have.
    """
    asked = found_in.request(options.adjust, options.no_adjust, dict(options.at), data.theirs, data.columns)
    if options.at_tokens is not None:
        if TOKENS in asked.at:
            asked_twice = f"{argument('at_tokens')}: {options.at_tokens:g}"
            raise InputError(f"{asked_twice}; not allowed with {argument('at')} tokens=…")
        more = {TOKENS: "tokens"} if "tokens" in data.columns else {}
        asked = replace(asked, at={TOKENS: options.at_tokens, **asked.at}, adjust={**more, **asked.adjust})
    explicit = bool(asked.adjust)
    if (data.directory and not explicit) or options.axis != "n_params":
        if explicit and options.axis != "n_params":
            both = f"{argument('adjust')} and {argument('at')}"
            raise InputError(f"{argument('axis')}: {options.axis}; allowed with {both}: n_params")
        return None
    budget = spent_by_all(data.rows, {ours: theirs for theirs, ours in data.theirs.items()}, trained)
    if budget and TOKENS in asked.adjust:
        raise InputError(
            f"{argument('adjust', '--adjust')}: 'tokens'; runs were trained at equal compute, so that tokens follow "
            "from the shape; adjusting for them would remove a part of the effect of depth"
        )
    rows, out = _usable(trained.rows[trained.main] if budget and trained else data.rows)
    if len(rows) < ask.FEWEST_CELLS:
        return None
    if others := len(data.rows) - len(rows) - sum(out.values()):
        out[f"were trained to other values of {trained.axis if trained else 'time'}"] = others
    x, y = places(rows)
    swept = found_in.swept_rates(rows)
    curved = len(token_groups(rows)) > 1 or any("curve_of_run" in row for row in rows)

    def usual(name: str) -> bool:
        if name in (TOKENS, found_in.OF_STEPS):
            return not budget and not curved
        return not (name == found_in.LEARNING_RATE and swept)

    unknown = found_in.unknown_numbers(rows, data.settings)
    found = found_in.find(rows, x, y, asked, usual, unknown)
    if not found.columns:
        return None
    pooled = {*([TOKENS] if curved and not budget else []), *([found_in.LEARNING_RATE] if swept else [])}
    if pooled:  # counts of tokens or swept rates alone make no heap, but none pools runs of several
        found = found_in.find(rows, x, y, asked, lambda name: name in pooled or usual(name), unknown)
    if trained and len(trained.rows) > 1 and max(trained.rows) >= BUDGETS_APART * min(trained.rows):
        # two budgets give a net two token counts, which show the effect of tokens: all rows count
        every, why = _usable(data.rows)
        unknown = found_in.unknown_numbers(every, data.settings)
        all_of = found_in.find(every, *places(every), asked, lambda name: name == TOKENS or usual(name), unknown)
        if any(one.name == TOKENS for one in all_of.columns):
            found, out, budget = all_of, why, None
    x, y = places(found.rows)
    sizes, depths = ask.distinct_sizes(x), len(np.unique(y))
    enough = len(found.rows) >= ask.FEWEST_CELLS + FEWEST_ROWS_EACH * len(found.columns)
    if sizes < ask.FEWEST_SIZES or depths < ask.FEWEST_DEPTHS or not enough or _one_variable(x, y):
        return None
    _refuse_unknown(data, found, asked.leave)
    return _fitted(data, options, found, x, y, out, budget)


def over_tokens(data: Table, options: FitOptions) -> Heap | None:
    """The heap at the tokens that ``options`` ask for, where runs of many lengths lie on one surface over ln tokens;
    None if not requested, if each run's own losses reach those tokens, or if they have one length."""
    if options.at_tokens is None or TOKENS in options.no_adjust or data.directory:
        return None
    if TOKENS not in options.adjust and all_reach(data.rows, options.at_tokens):
        return None
    heap = heap_of(data, options)
    return heap if heap and any(one.column == TOKENS for one in heap.record.columns) else None


def check_answered(data: Table, options: FitOptions, heap: Heap | None) -> None:
    """Check that losses are adjusted for every column that ``options.adjust`` and ``options.at`` name.

    Raises:
        InputError: they are not: the answer would be for another value than the requested one.
    """
    asked = found_in.request(options.adjust, (), dict(options.at), data.theirs, data.columns)
    adjusted = {one.column for one in heap.record.columns} if heap else set()
    following = set(heap.record.follow) if heap else set()
    for word, column in asked.adjust.items():
        values = {row.get(column) for row in data.rows} - {None}
        held = asked.at.get(word)
        same = next(iter(values)) if len(values) == 1 else None
        if column in adjusted or (held is None and (same is not None or word in following)) or _alike(held, same):
            continue
        why, allowed = _why_unadjusted(data, word), example("where=...", "--where")
        if same is not None:
            why, allowed = f"every run has {_shown(same)}", f"{word}={_shown(same)}"
        elif word == TOKENS:
            allowed = argument("at_tokens")
        option, given = ("adjust", repr(word)) if held is None else ("at", f"{word}={_shown(held)}")
        raise InputError(f"{argument(option)}: {given}; {why}; allowed: {allowed}")


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _alike(held: Any, same: Any) -> bool:
    """True if ``held`` is the value of all runs."""
    numbers = [found_in.number_of("", {"": value}, [""]) for value in (held, same)]
    if None in numbers:
        return same is not None and str(held) == str(same)
    low, high = sorted(float(number or 0.0) for number in numbers)
    return high <= low * found_in.SAME_NUMBER


def _why_unadjusted(data: Table, word: str) -> str:
    """Reason why the losses of a table are not adjusted for a column that varies."""
    rows, _ = _usable(data.rows)
    x, y = places(rows)
    found = {"runs": len(rows), "sizes": ask.distinct_sizes(x) if rows else 0, "depths": len(np.unique(y))}
    needed = {"runs": ask.FEWEST_CELLS, "sizes": ask.FEWEST_SIZES, "depths": ask.FEWEST_DEPTHS}
    if few := [name for name, least in needed.items() if found[name] < least]:
        lacks = join(f"{found[name]} {name} of the {needed[name]} needed" for name in few)
        return f"losses are not adjusted, for the table has {lacks}"
    return f"losses are not adjusted for {word}: it follows from depth and size, or too few runs have other values"


def _one_variable(x: np.ndarray, y: np.ndarray) -> bool:
    """True if the depth follows from the size."""
    return found_in.share_left(y, found_in.quadratic(x, y)[:, [0, 1, 3]]) < found_in.LEAST_OWN / 2.0


def _usable(rows: Sequence[Row]) -> tuple[list[Row], dict[str, int]]:
    """Rows with a loss, and reasons why others have none."""
    kept: list[Row] = []
    out: dict[str, int] = defaultdict(int)
    for row in rows:
        reason = why_no_loss(row)
        loss = row.get("loss")
        size = n_params_of(row)
        if reason:
            out[no_loss(reason)] += 1
        elif not 0.0 < size < math.inf:
            out["have no n_params"] += 1
        elif str(row.get("status")).lower() == "diverged" or loss is None or not math.isfinite(loss):
            out["are of runs that diverged"] += 1
        else:
            kept.append(row)
    bad = {place for place, _, _ in beyond_all([float(row["loss"]) for row in kept])}
    if bad:
        out["have an impossible loss"] += len(bad)
        kept = [row for k, row in enumerate(kept) if k not in bad]
    return kept, dict(out)


def _refuse_unknown(data: Table, found: Covariates, left: Collection[str]) -> None:
    """Refuse a heap in which an unknown setting distinguishes rows of one shape and is neither adjusted for nor
    ``left`` out by the user."""
    from dwsweep.fit.data.settings import one_recipe

    taken = {one.column for one in found.columns}
    unknown = [name for name in data.settings if name not in taken and found_in.word_of(name) not in left]
    unknown = [name for name in unknown if not found_in.is_date({row.get(name) for row in found.rows} - {None})]
    if not unknown:
        return
    cells = [((row["depth"], row["width"], row.get(BLOCK, "")), None) for row in found.rows]
    plain = [{name: row.get(name) for name in unknown} for row in found.rows]
    one_recipe(plain, cells, len(plain), (), unknown)


def _fitted(
    data: Table,
    options: FitOptions,
    found: Covariates,
    x: np.ndarray,
    y: np.ndarray,
    out: Mapping[str, int],
    budget: Budget | None,
) -> Heap:
    rows, columns, impossible = list(found.rows), found.columns, list[Row]()
    for round_ in range(ROUNDS):
        means = means_of(rows, x, y, columns, options.noise)
        frame = Frame.of(means.x, means.y)
        design = design_of(means, frame)
        cells = cells_of(means, design, options)
        surface = surface_of(cells, means, options)
        posterior = ask.read(surface)
        z, _ = posterior.held_out()
        far = np.abs(z) > FAR_Z
        if round_ == ROUNDS - 1 or not far.any() or too_many_far(far):
            break
        stays = ~far[means.of]
        impossible += [row for row, stay in zip(rows, stays, strict=True) if not stay]
        rows, x, y = [row for row, stay in zip(rows, stays, strict=True) if stay], x[stays], y[stays]
        columns = tuple(one.at_rows(stays) for one in columns)
    record = adjustment_of(means, design, posterior, surface, found, options, cells)
    runs = _runs(data, rows, x, y, means, design)
    record = replace(record, equal=equal_what(ask.LossSurface(surface), runs, options.seed, budget))
    outside = [one for one in columns if one.kind == NUMBER and not one.low <= float(one.held) <= one.high]
    said = sentences(record, budget, outside, data.unit)
    given = found_in.request(options.adjust, options.no_adjust, dict(options.at), data.theirs, data.columns)
    taken = [*(one.column for one in columns), *_named_by(given.leave, data)]
    said[1:1] = unadjusted(rows, x, y, [one[means.of] for one in design.values], taken)
    record = replace(record, sentences=tuple(said))
    account = [
        *(LeftOutRows(rows=n, why=why) for why, n in out.items()),
        *([LeftOutRows(rows=len(impossible), why=_impossible(impossible))] if impossible else []),
        *(LeftOutRows(rows=n, why=why, option=option) for (why, option), n in found.left_out.items()),
    ]
    settings = dict(zip(design.names, design.values, strict=True))
    moved = posterior.of_columns(means.x, means.y, settings).mean(axis=0)
    gone = {one.column for one in columns} | {name for names in found_in.NUMBERS.values() for name in names}
    gone |= {*data.settings, *found_in.TEXTS}
    gone |= {"heads", "head_size", "steps"} if any(one.name == HEAD_SIZE for one in columns) else {"steps"}
    gone -= {"d_ff", "mlp_ratio"}
    adjusted = [
        {**{name: value for name, value in row.items() if name not in gone}, "loss": float(row["loss"] - moved[k])}
        for row, k in zip(rows, means.of, strict=True)
    ]
    adjusted = [{**row, "seed": None} for row in adjusted]
    table = replace(
        data,
        rows=adjusted,
        settings=(),
        named=(),
        account=(*data.account, *account),
        notes=(*record.sentences, *data.notes),
    )
    return Heap(table, surface, record)


def _named_by(words: Collection[str], data: Table) -> list[str]:
    """Columns of a table with these names in words."""
    return [column for column in data.columns if found_in.word_of(column) in words]


def _runs(data: Table, rows: Sequence[Row], x: np.ndarray, y: np.ndarray, means: Means, design: Design) -> Runs:
    """Runs in the form of ``equal_what``."""
    kinds = list(enumerate(means.columns))
    others = [design.values[k][means.of] for k, one in kinds if one.name != TOKENS and one.kind != RATE]
    k = next((k for k, one in kinds if one.name == TOKENS), None)
    return Runs(
        rows=rows,
        x=x,
        y=y,
        others=np.stack(others, axis=1) if others else np.zeros((len(rows), 0)),
        column="" if k is None else design.names[k],
        at=0.0 if k is None else means.columns[k].at,
        spread=1.0 if k is None else design.spread[k],
        theirs={ours: theirs for theirs, ours in data.theirs.items()},
    )


def too_many_far(far: np.ndarray) -> bool:
    """True if so many runs lie far off that the noise is large, and none is left out."""
    return bool(far.sum() > max(1.0, LARGEST_SHARE * len(far)))


def _impossible(rows: Sequence[Row]) -> str:
    """Reason for leaving out runs far from their prediction, with the first three."""
    named = [f"{row['depth']:g}×{row['width']:g}: {row['loss']:.4g}" for row in rows[:3]]
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return f"have a loss more than {FAR_Z:g} standard deviations off ({', '.join(named)}{more})"
