"""Heap of runs: best depths from a table whose runs differ in more than depth and size, of one recipe or of several.

Each group of equal rows is a mean loss of the posterior with a further column for each covariate
(``statistics.design``): a value of zero is the held one, so that every answer of the surface holds there, and for the
base of recipes that are compared (arms.py). The loss that cells, pairs and figures show is the run's own less the mean
effect of its covariates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.answers import follows
from dwsweep.fit.answers.adjustment import adjustment_of, sentences
from dwsweep.fit.answers.equal_what import Question, equal_what
from dwsweep.fit.data import covariates as found_in
from dwsweep.fit.data.covariates import LEARNING_RATE, NUMBER, RATE, TEXT, TOKENS, Covariate, Covariates
from dwsweep.fit.data.impossible import BadRun, finished, impossible, without
from dwsweep.fit.data.lengths import FLOPS, TrainedBudgets, all_reach, token_groups
from dwsweep.fit.data.one_unit import IN_NATS
from dwsweep.fit.data.rows import ALIKE, ARM, Row, is_number, positive
from dwsweep.fit.data.runs import Run, Selection, select_runs
from dwsweep.fit.data.shape import n_params_of, places
from dwsweep.fit.data.steps import CURVE
from dwsweep.fit.data.table import Table
from dwsweep.fit.statistics import ask
from dwsweep.fit.statistics.design import (
    FEWEST_ROWS_EACH,
    cells_of,
    design_of,
    heap_means,
    layer_weights,
    members_of,
    points_of_runs,
)
from dwsweep.fit.statistics.model import Frame, distinct_sizes, of_arm
from dwsweep.records.adjusted import Adjustment
from dwsweep.records.fit import FitOptions, Surface

FEWEST_ADJUSTED_DEPTHS = 2  # two depths have a crossing at the held values of their settings, and no best depth


@dataclass(frozen=True)
class Heap:
    """``data``: the table with each loss moved to the held values. selections: its runs by arm, the base first. bad:
    impossible runs. surface: the posterior at the held values. record: the adjustment. shorter: all runs had one
    budget, so that larger nets were trained on less. paired: effects of seeds are taken off. layer_weights: see
    ``statistics.design``. arms: recipes with a run that are compared, the base first; none for one recipe."""

    data: Table
    selections: Mapping[str, Selection]
    bad: Sequence[BadRun]
    surface: Surface
    record: Adjustment
    shorter: bool = False
    paired: bool = False
    layer_weights: float | None = None
    arms: tuple[str, ...] = ()

    def rows(self, arm: str = "") -> list[Row]:
        """Rows of one of the arms; of the base by default."""
        return [run.row for run in self.selections[arm or next(iter(self.arms), "")].runs]

    def selected(self, rows: Sequence[Row]) -> tuple[Selection, list[BadRun]]:
        """Runs of the arm of ``rows``, and its impossible runs."""
        arm = next((str(row.get(ARM)) for row in rows if self.arms), "")
        return self.selections[arm], _of_arm(self.bad, arm)


def heap_of(
    data: Table, options: FitOptions, trained: TrainedBudgets | None = None, arms: tuple[str, ...] = ()
) -> Heap | None:
    """Heap in a table; None if its runs differ only in depth, size, seed and columns of a grid.

    trained: budgets that all runs were trained to: tokens then follow from the shape, and are no setting.
    arms: recipes that are compared, the base first.

    Raises:
        InputError: an option names a column that is no setting, or a value that the table does not have.
    """
    asked = _asked(data, options)
    explicit = bool(asked.adjust)
    axes = ("n_params", *((trained.axis,) if trained else ()))
    if (data.directory and not explicit and not trained) or options.axis not in axes:
        if explicit and options.axis not in axes:
            both = f"{argument('adjust')} and {argument('at')}"
            raise InputError(f"{argument('axis')}: {options.axis}; allowed with {both}: n_params")
        return None
    # two budgets give a net two token counts, which show the effect of tokens: all rows count
    several = trained if trained and not trained.alone else None
    if trained and trained.alone and TOKENS in asked.adjust:
        raise InputError(
            f"{argument('adjust', '--adjust')}: 'tokens'; runs were trained at equal compute, so that tokens follow "
            "from the shape; adjusting for them would remove a part of the effect of depth"
        )
    if several:
        data = _with_spent(data, several)
    of = trained.rows[trained.main] if trained and trained.alone else data.rows
    rows, wild = finished(of)
    if len(rows) < ask.FEWEST_CELLS:
        return None
    found = _found(data, asked, rows, trained, arms)
    if several and not (found and any(one.name == TOKENS for one in found.columns)):
        alone = several.main_alone
        every_arm = {*arms} <= {row.get(ARM) for row in alone.rows[alone.main]}
        return heap_of(data, options, alone, arms) if every_arm else None
    if found is None:
        return None
    x, y = places(found.rows)
    compared = max(len({row.get(ARM) for row in found.rows} & set(arms)) - 1, 0)
    enough = len(x) >= ask.FEWEST_CELLS + FEWEST_ROWS_EACH * (len(found.columns) + 3 * compared)
    depths = FEWEST_ADJUSTED_DEPTHS if found.columns else ask.FEWEST_DEPTHS
    spread = distinct_sizes(x) >= ask.FEWEST_SIZES and len(np.unique(y)) >= depths
    of_size = found_in.share_left(y, found_in.quadratic(x, y)[:, [0, 1, 3]]) < found_in.LEAST_OWN / 2.0
    if not (enough and spread) or (of_size and trained is None):
        return None
    others = Counter({("were trained to other values of flops", ""): len(data.rows) - len(of)})
    data = replace(data, account=data.account + found.left_out + others)
    tried, kept = {id(row) for row in (*rows, *(one.run.row for one in wild))}, {id(row) for row in found.rows}
    rows = [row for row in of if id(row) in kept or id(row) not in tried]
    selections, bad = _selected(data, rows, found, wild, asked.leave, arms)
    if sum(len(one.runs) for one in selections.values()) < ask.FEWEST_CELLS:
        return None
    arms = tuple(arm for arm in arms if selections[arm].runs)
    return _fitted(data, options, asked, found, selections, bad, trained, arms, of_size)


def _selected(
    data: Table,
    rows: Sequence[Row],
    found: Covariates,
    wild: Sequence[BadRun],
    left: Collection[str],
    arms: Sequence[str],
) -> tuple[dict[str, Selection], list[BadRun]]:
    """Runs of each arm, and the impossible ones, ``wild`` among them. Refused: an unknown setting distinguishes rows of
    one shape and is neither adjusted for nor ``left`` out by the user."""
    adjusted = tuple(dict.fromkeys(one.column for one in found.columns))
    unknown = [name for name in data.settings if name not in adjusted and found_in.word_of(name) not in left]
    selections = {
        arm: select_runs(
            [row for row in rows if not arm or row.get(ARM) == arm],
            unit=data.unit,
            settings=unknown,
            adjusted=(*adjusted, ARM),
            theirs=data.theirs,
        )
        for arm in arms or ("",)
    }
    runs = [run for one in selections.values() for run in one.runs]
    more, doubts = impossible(runs, _terms(runs, found, arms))
    bad = [*wild, *more]
    selections = {arm: without(one, _of_arm(bad, arm)) for arm, one in selections.items()}
    first, *others = selections
    # the account of a recipe without a run is part of the base's: it is compared with nothing
    lost = sum((selections[arm].account for arm in others if not selections[arm].runs), selections[first].account)
    selections[first] = replace(selections[first], warnings=[*doubts, *selections[first].warnings], account=lost)
    return selections, bad


def _of_arm(bad: Sequence[BadRun], arm: str) -> list[BadRun]:
    """Impossible runs of an arm; all, of one recipe."""
    return [one for one in bad if not arm or one.run.row.get(ARM) == arm]


def _columns(runs: Sequence[Run], found: Covariates) -> tuple[Covariate, ...]:
    """Covariates of ``runs`` of the rows that were found."""
    place = {id(row): k for k, row in enumerate(found.rows)}
    where = np.array([place[id(run.row)] for run in runs], dtype=int)
    return tuple(one.at_rows(where) for one in found.columns)


def _terms(runs: Sequence[Run], found: Covariates, arms: Sequence[str]) -> np.ndarray:
    """(n, ·) terms of arms and covariates, beside which no loss of a run is impossible."""
    x, y = np.array([run.x for run in runs]), np.log([float(run.depth) for run in runs])
    members = members_of([run.row for run in runs], arms)
    terms = [term for member in members.T for term in (member, member * x, member * y)]
    for one in _columns(runs, found):
        w = (one.value - one.value.mean()) / max(float(one.value.std()), 1e-12)
        terms += [w, *([w * w, *(members.T * w)] if one.kind != TEXT else [])]
        terms += [w * x, w * y] if one.kind == RATE else []
    return np.array(terms).reshape(-1, len(runs)).T


def _with_spent(data: Table, trained: TrainedBudgets) -> Table:
    """The table with the FLOPs of the runs' budgets where no run has any, and with tokens of FLOPs / 6N where no run
    has any, which is said."""
    missing = [name for name in (FLOPS, TOKENS) if not any(positive(row.get(name)) for row in data.rows)]
    if not missing:
        return data
    spent = [(row.get(FLOPS) or value, row) for value, members in trained.rows.items() for row in members]
    rows = [{**row, FLOPS: flops, TOKENS: row.get(TOKENS) or flops / (6.0 * n_params_of(row))} for flops, row in spent]
    said = ("Tokens are FLOPs / 6N, assumed: no column has them",) if TOKENS in missing else ()
    return replace(data, rows=rows, notes=(*data.notes, *said))


def _asked(data: Table, options: FitOptions) -> found_in.Asked:
    """Columns that ``options`` name, ``at_tokens`` among them."""
    asked = found_in.asked_of(options, data)
    if options.at_tokens is None:
        return asked
    if TOKENS in asked.at:
        asked_twice = f"{argument('at_tokens')}: {options.at_tokens:g}"
        raise InputError(f"{asked_twice}; not allowed with {argument('at')} tokens=…")
    more = {TOKENS: "tokens"} if "tokens" in data.roles else {}
    return replace(asked, at={TOKENS: options.at_tokens, **asked.at}, adjust={**more, **asked.adjust})


def _found(
    data: Table,
    asked: found_in.Asked,
    rows: Sequence[Row],
    trained: TrainedBudgets | None = None,
    arms: tuple[str, ...] = (),
) -> Covariates | None:
    """Differences between ``rows``; None if they differ in columns alone that a grid has: counts of tokens of one run,
    and learning rates that each shape swept. A heap pools no runs that differ in them.

    trained: budgets of all runs: at the only one tokens follow from the shape; at several a shape has a count of tokens
    at each.
    """
    spent = trained is not None and trained.alone
    curved = (trained is None or spent) and (len(token_groups(data, rows)) > 1 or any(CURVE in row for row in rows))
    of_grid = {*([TOKENS] if curved else []), *([LEARNING_RATE] if found_in.swept_rates(rows) else [])}
    never = {*([TOKENS] if spent else []), *([found_in.OF_STEPS] if spent or curved else [])}
    members = members_of(rows, arms)
    numbers = [name for name in data.settings if data.roles[name] == "number"]
    found = found_in.find(rows, *places(rows), asked, never, numbers, members)
    return found if spent or {one.name for one in found.columns} - (of_grid - set(asked.adjust)) else None


def over_tokens(data: Table, options: FitOptions, arms: tuple[str, ...] = ()) -> Heap | None:
    """The heap at the tokens that ``options`` ask for, where runs of many lengths lie on one surface over ln tokens;
    None if not requested, if each run's own losses reach those tokens, or if they have one length."""
    if options.at_tokens is None or TOKENS in options.no_adjust or data.directory:
        return None
    if TOKENS not in options.adjust and all_reach(data, options.at_tokens):
        return None
    heap = heap_of(data, options, None, arms)
    return heap if heap and any(one.column == TOKENS for one in heap.record.columns) else None


def check_answered(data: Table, options: FitOptions, heap: Heap | None) -> None:
    """Check that losses are adjusted for every column that ``options.adjust`` and ``options.at`` name.

    Raises:
        InputError: they are not: the answer would be for another value than the requested one.
    """
    asked = found_in.asked_of(options, data)
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
    if is_number(held) and is_number(same):
        return math.isclose(held, same, rel_tol=ALIKE - 1.0)
    return same is not None and str(held) == str(same)


def _why_unadjusted(data: Table, word: str) -> str:
    """Reason why the losses of a table are not adjusted for a column that varies."""
    rows, _ = finished(data.rows)
    x, y = places(rows)
    return (
        f"losses are not adjusted for {word}: it follows from depth and size, or too few runs have other values; an "
        f"adjustment takes {ask.FEWEST_CELLS} runs, {ask.FEWEST_SIZES} sizes and {FEWEST_ADJUSTED_DEPTHS} depths, the "
        f"table has {len(rows)}, {distinct_sizes(x) if rows else 0} and {len(np.unique(y))}"
    )


def _fitted(
    data: Table,
    options: FitOptions,
    asked: found_in.Asked,
    found: Covariates,
    selections: dict[str, Selection],
    bad: Sequence[BadRun],
    trained: TrainedBudgets | None,
    arms: tuple[str, ...],
    of_size: bool,
) -> Heap:
    """trained: budgets of all runs, at which the answer is asked; from the only one their tokens follow. arms: recipes
    that are compared, the base first. of_size: the depth follows from the size: budgets have a best size, and no effect
    of depth can be told."""
    budget = trained if trained and trained.alone else None
    runs = [run for one in selections.values() for run in one.runs]
    columns = tuple(one for one in _columns(runs, found) if np.ptp(one.value) > 0.0)
    recipes = [data.recipe_of(run.row) for run in runs]
    means = heap_means(runs, recipes, columns, options.noise, arms)
    design = design_of(means, Frame.of(means.x, means.y))
    cells = cells_of(means, design, _levels(runs, arms, design.of_run))
    own, forms = int((means.arm == 0).sum()), ("none",) if of_size else ()
    surface = ask.surface_of(cells, means.depth, means.width, options.confidence, options.seed, own, forms)
    losses = ask.LossSurface(surface)
    record = adjustment_of(means, design, losses, found.follow)
    base = np.flatnonzero(means.arm[means.of] == 0)
    rows = [{**runs[k].row, "loss": runs[k].loss} for k in base]
    terms = [one.at(means.of[base]) for one in design.terms]
    record = replace(record, **equal_what(Question(losses, rows, terms, data.theirs, options.seed), trained))
    outside = [one for one in columns if one.kind == NUMBER and not one.low <= float(one.held) <= one.high]
    said = sentences(record, budget, outside)
    left = {*asked.leave, *found.follow}
    taken = {one.column for one in columns} | {name for name in data.roles if found_in.word_of(name) in left}
    of_length = any(data.roles.get(name) == "length" for name in taken)
    others = [term.column.value for term in terms]
    said[1:1], by_depth = follows.sentences(data, rows, others, taken, not (budget or of_length))
    of_arms = {of_arm(name): member for name, member in zip(arms[1:], means.members.T, strict=True)}
    settings = {term.column.name: term.column.value for term in design.terms}
    settings |= {one.name: one.value for one in design.others if of_arms}
    both = [losses.posterior.of_columns(means.x, means.y, one) for one in (settings, of_arms)]
    moved = (both[0] - both[1]).mean(axis=0)
    # a setting that all runs share, such as seq_len, still describes the nets, and one of an arm's the arm
    usual = (*data.settings, *found_in.TEXTS, *chain(*found_in.NUMBERS.values()))
    each = [one.runs for one in selections.values()]
    gone = {name for name in usual if any(len({run.row.get(name) for run in of}) > 1 for of in each)}
    gone |= {one.column for one in columns}
    own_losses = np.array([run.loss for run in runs]) - moved[means.of]
    points = [[k] for k in range(len(runs))] if trained else points_of_runs(runs, means)  # a budget has its own runs
    whole = ((runs[own[0]], float(own_losses[own].mean())) for own in points)
    at_held = {id(run): _moved(run, loss, gone) for run, loss in whole}
    selections = {
        arm: replace(one, runs=[at_held[id(run)] for run in one.runs if id(run) in at_held])
        for arm, one in selections.items()
    }
    notes, held = (*said, *data.notes), [run.row for run in at_held.values()]
    table = replace(data, rows=held, notes=notes, following_depth=by_depth)
    weights = layer_weights(means)
    return Heap(table, selections, bad, surface, record, budget is not None, means.paired, weights, arms)


def _levels(runs: Sequence[Run], arms: Sequence[str], scatter: float) -> np.ndarray:
    """(A,) sd of the error that the seeds of an arm and of the base add to all of their losses alike, nats: of as many
    runs as they name seeds, each of which is as noisy as one run. Runs without a seed have one of their own."""
    seeds = [{run.seed for run in runs if run.row.get(ARM) == arm} for arm in arms]
    inverse = [0.0 if None in of else 1.0 / len(of) for of in seeds]
    return scatter * np.sqrt([inverse[0] + one for one in inverse[1:]])


def _moved(run: Run, loss: float, gone: Collection[str]) -> Run:
    """A run with its loss at the held values, without the columns that are adjusted for."""
    row = run.row
    scaled = {name: row[name] * loss / run.loss for name in ("bits_per_byte", IN_NATS) if row.get(name)}
    row = {name: value for name, value in row.items() if name not in gone} | scaled | {"loss": loss, "seed": None}
    return replace(run, loss=loss, learning_rate=None, seed=None, settings=(), row=row)


def beside_a_grid(data: Table, options: FitOptions, at_budgets: bool) -> Table:
    """A table whose losses are adjusted for nothing, with the sentences of ``follows``. at_budgets: True if runs were
    trained at equal compute."""
    rows, _ = finished(data.rows)
    if options.arm or not rows:
        return data
    shared = [name for name in ("tokens", "learning_rate") if all(positive(row.get(name)) for row in rows)]
    others = [np.log([float(row[name]) for row in rows]) for name in shared]
    taken = [name for name in data.roles if found_in.word_of(name) in _asked(data, options).leave]
    at_equal_size = options.axis == "n_params" and not at_budgets
    said, by_depth = follows.sentences(data, rows, others, taken, at_equal_size)
    return replace(data, notes=(*said, *data.notes), following_depth=by_depth)
