"""Training lengths: losses after equally many tokens, and groups of runs of equal compute.

*Tokens.* The loss of a run at the requested number of tokens is interpolated between its own losses before and after
it; runs that have none are left out. Losses of many lengths on one surface are a heap's, with a column of tokens.

*Compute.* The requested FLOPs are a column of the table (``train_flops``); otherwise runs whose own FLOPs agree but for
whole steps form a budget, and runs of one time another.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument, either
from dwsweep.fit.data import steps
from dwsweep.fit.data.one_unit import IN_NATS
from dwsweep.fit.data.rows import ALIKE, LeftOut, Row, grouped, positive
from dwsweep.fit.data.shape import n_params_of, of_shape
from dwsweep.fit.data.table import Table
from dwsweep.records.fit import FitOptions
from dwsweep.text import format_count, format_duration, join

AS_IT_IS = 0.01  # distance in ln tokens within which a loss stays as it is: below 1e-3 of it


def at_equal_length(data: Table, options: FitOptions) -> Table:
    """The table with one row per run: the last of its curve, or the one after the tokens or the tokens per parameter of
    ``options``.

    Raises:
        InputError: no run was measured near that many tokens.
    """
    tokens, ratio = options.at_tokens, options.tokens_per_param
    asked = ratio if tokens is None else tokens
    if asked is None:
        return _ends(data) if any(steps.on_curve(row, data.step) for row in data.rows) else data

    def unit(row: Row) -> float:  # tokens
        return 1.0 if ratio is None else n_params_of(row)

    runs: dict[tuple[Any, ...], dict[float, Row]] = defaultdict(dict)
    others, unknown, times = [], 0, Counter[tuple[Any, ...]]()
    for row in data.rows:
        if row.get("loss") is None or not math.isfinite(row["loss"]):
            others.append(row)  # diverged or unfinished runs have no loss to read
        elif not positive(row.get("tokens")):
            unknown += 1
        else:
            at = (*data.run_of(row), row["tokens"])
            runs[*at[:-1], times[at]][row["tokens"]] = row  # a second row of the same tokens is another run
            times[at] += 1
    read = {key: _after(asked, unit, measured) for key, measured in runs.items()}
    found, known = [row for row in read.values() if row], {key[:-1] for key, row in read.items() if row}

    def later(row: Row) -> bool:  # of a run that has its loss, and diverged or stopped after it
        return data.run_of(row) in known and positive(row.get("tokens")) and row["tokens"] > asked * unit(row)

    others = [row for row in others if not later(row)]
    if not found:
        had = [row["tokens"] / unit(row) for row in data.rows if positive(row.get("tokens"))]
        allowed = f"from {format_count(min(had))} to {format_count(max(had))}" if had else "none, no row has any"
        name = argument("at_tokens" if ratio is None else "tokens_per_param")
        no_loss = "no run has a loss near it, or on either side of it"
        raise InputError(f"{name}: {asked:g}; {no_loss}; allowed, as {data.source} has tokens: {allowed}")
    out = Counter[LeftOut]()
    out["are other points of a run's curve", ""] = len(data.rows) - len(others) - unknown - len(runs)
    out["have no loss after as many tokens", ""] = len(runs) - len(found)
    out["have no count of tokens", ""] = unknown
    return replace(data, rows=[*found, *others], account=data.account + out)


def all_reach(data: Table, tokens: float) -> bool:
    """True if the losses of each run reach that count of tokens, or run past it."""
    counted = [row for row in data.rows if positive(row.get("tokens"))]
    away = grouped((data.run_of(row), math.log(row["tokens"] / tokens)) for row in counted)
    return all(min(off) <= AS_IT_IS and max(off) >= -AS_IT_IS for off in away.values())


def _ends(data: Table) -> Table:
    """The table with the last point of each run."""
    rows, left_out, said = steps.ends(data.rows, data.step)
    said += "; --at-tokens selects another point" if any(row.get("tokens") for row in data.rows) else ""
    return replace(data, rows=rows, account=data.account + left_out, notes=(*data.notes, said))


def _after(asked: float, unit: Callable[[Row], float], measured: dict[float, Row]) -> Row | None:
    """The row of one run after ``asked`` units of tokens, by its rows of other counts; None if they do not reach it."""
    counts = sorted(measured)
    logs = {count: math.log(count) for count in counts}
    at = math.log(asked) + math.log(unit(measured[counts[0]]))  # the product may overflow
    nearest = min(counts, key=lambda count: abs(logs[count] - at))
    row, off = measured[nearest], at - logs[nearest]
    if abs(off) < AS_IT_IS:
        return row
    if logs[counts[0]] < at < logs[counts[-1]]:
        from scipy.interpolate import PchipInterpolator

        loss = float(PchipInterpolator(list(logs.values()), [measured[count]["loss"] for count in counts])(at))
        scaled = {name: row[name] * loss / row["loss"] for name in ("bits_per_byte", IN_NATS) if row.get(name)}
        return {**row, **_spent(row, off), **scaled, "loss": loss}
    return None


def _spent(row: Row, off: float) -> Row:
    """Row of a run ``off`` ln tokens later: its FLOPs and time grow in proportion to the tokens."""
    return {name: row[name] * math.exp(off) for name in ("tokens", FLOPS, *TIMES) if row.get(name)}


def token_groups(data: Table, rows: Sequence[Row]) -> dict[float | None, list[Row]]:
    """``rows`` of a table by token count, if a run has several counts, and half of the shapes share one; otherwise all
    in one."""
    counted = [row for row in rows if row.get("tokens") is not None]
    groups: dict[float | None, list[Row]] = grouped((row["tokens"], row) for row in counted)
    seen = grouped({(data.run_of(row), row["tokens"]) for row in counted})
    several = sum(len(tokens) > 1 for tokens in seen.values())
    shared = max((len(_shapes(group)) for group in groups.values()), default=0)
    alike = several and 2 * several >= len(seen) and 2 * shared >= len(_shapes(rows))
    return groups if alike else {None: list(rows)}


def largest(groups: Mapping[Any, list[Row]]) -> float | None:
    """Token count with the most shapes; of two, the larger."""
    return max(groups, key=lambda key: (len(_shapes(groups[key])), key or 0.0))


def token_warnings(groups: dict[float | None, list[Row]], main: float | None) -> list[str]:
    """Warning that the fit uses one token count of several."""
    if len(groups) < 2:
        return []
    others = join(format_count(key) for key in sorted(k for k in groups if k is not None) if key != main)
    used = format_count(main) if main is not None else "an unknown number of"
    return [
        f"tokens: the fit uses the runs at {used} tokens, and not those at {others}; "
        + either(f"{argument('at_tokens')} asks for another count, {argument('adjust')} tokens fits all of them")
    ]


FLOPS, ASKED = "flops", "train_flops"
ONE_BUDGET = 1.15  # largest over smallest FLOPs within one budget, and least ratio of one budget to the next
SIZES_FACTOR = 2.0  # least factor of sizes in a budget
FEWEST_SHAPES = 3
COVERED = 0.8  # least share of runs in budgets, for a table trained at budgets
FLOP, TIME, TIMES = "FLOPs", "wall time", ("device_seconds", "wall_seconds")
SIZES_OF_TIME, MOSTLY, AS_LONG = 4.0, 0.9, 1.1  # spread of times in one budget: sizes, share, factor


@dataclass(frozen=True)
class TrainedBudgets:
    """Budgets of FLOPs, or one of time, that all runs were trained to, so that tokens follow the shape. known_from:
    origin of the budgets, in words. rows: rows of each budget, FLOPs or seconds. unit: ``FLOPs`` or ``wall time``.
    axis: its column."""

    known_from: str
    rows: dict[float, list[Row]]
    unit: str = FLOP
    axis: str = FLOPS

    @property
    def main(self) -> float:
        """Budget with the most shapes; of two, the larger."""
        return largest(self.rows) or 0.0

    @property
    def alone(self) -> bool:
        """True for one budget, at which the losses stand."""
        return len(self.rows) == 1

    @property
    def main_alone(self) -> TrainedBudgets:
        return replace(self, rows={self.main: self.rows[self.main]})

    @property
    def shown(self) -> str:
        return join(map(format_duration if self.unit == TIME else format_count, sorted(self.rows)))


def trained_budgets(data: Table) -> TrainedBudgets | None:
    """Budgets to which all runs of ``data`` were trained: requested FLOPs, or measured ones that agree, or a time."""
    rows, asked = data.rows, _agreeing(data.rows, ASKED)
    if asked and _covered(asked, rows):
        return TrainedBudgets(f"the column {ASKED}", {value: _spent_whole(of) for value, of in asked.items()})
    groups = _agreeing(rows, FLOPS)
    whole = _with_blank(groups, rows)
    if not groups or not _covered(whole, rows) or _mean_shapes(_agreeing(rows, "tokens")) >= _mean_shapes(groups):
        # of runs of equal tokens some cost as much by chance
        return None if data.directory else _of_time(data)
    percent = max(100.0 * (max(r[FLOPS] for r in of) / min(r[FLOPS] for r in of) - 1.0) for of in groups.values())
    return TrainedBudgets(f"flops that agree within {percent:.2g} %", whole)


def _of_time(data: Table) -> TrainedBudgets | None:
    """The time of all runs, if it hardly differs while sizes and tokens do."""
    usable = [row for row in data.rows if positive(row.get("loss"))]
    tokens = [float(row["tokens"]) for row in usable if positive(row.get("tokens"))]
    sizes = [n_params_of(row) for row in usable]
    if not usable or max(sizes) < SIZES_OF_TIME * min(sizes) or (tokens and max(tokens) < ALIKE * min(tokens)):
        return None
    for name in TIMES:
        known = [float(row[name]) for row in usable if positive(row.get(name))]
        if len(known) > MOSTLY * len(usable):
            low, middle, high = np.quantile(known, [0.05, 0.5, 0.95])
            if high <= AS_LONG * low:
                said = f"{data.theirs.get(name, name)} of {len(known)} runs"
                return TrainedBudgets(said, {float(middle): data.rows}, TIME, name)
    return None


def budgets_warning(trained: TrainedBudgets, axis: str) -> str:
    """Warning that curves over ``axis`` ignore the runs' common budget."""
    one = "" if trained.alone else f"; this fit uses the runs at {trained.main_alone.shown}"
    return (
        f"LENGTH FOLLOWS THE SIZE: the runs were trained at equal {trained.unit} ({trained.shown}), so larger nets "
        f"saw fewer tokens, and curves over {axis} mix size and length of training: best depths hold for nets of that "
        f"training length alone{one}; nine shapes of three depths and three sizes give the best depth at each budget"
    )


def _spent_whole(rows: Sequence[Row]) -> list[Row]:
    """Runs of one requested budget, without branches that stop before it is spent; the requested FLOPs stand where
    measured ones lack."""
    tokens = grouped((of_shape(row), row.get("tokens") or 0.0) for row in rows)
    whole = [row for row in rows if ALIKE * (row.get("tokens") or 0.0) >= max(tokens[of_shape(row)])]
    return [{**row, FLOPS: row.get(FLOPS) or row[ASKED]} for row in whole]


def _agreeing(rows: Sequence[Row], name: str) -> dict[float, list[Row]]:
    """Groups of rows with equal values of a column and different sizes, by their middle value."""
    having = sorted((row for row in rows if positive(row.get(name))), key=lambda row: row[name])
    ends = [k for k in range(1, len(having)) if having[k][name] > ONE_BUDGET * having[k - 1][name]]
    groups: dict[float, list[Row]] = {}
    for start, end in pairwise([0, *ends, len(having)]):
        found = having[start:end]
        if found and found[-1][name] <= ONE_BUDGET * found[0][name] and _spans(found):
            groups[float(np.median([row[name] for row in found]))] = found
    return groups


def _shapes(rows: Sequence[Row]) -> set[tuple[Any, Any]]:
    return {(row["depth"], row["width"]) for row in rows}


def _mean_shapes(groups: Mapping[float, list[Row]]) -> float:
    return float(np.mean([len(_shapes(rows)) for rows in groups.values()])) if groups else 0.0


def _spans(rows: Sequence[Row]) -> bool:
    sizes = [n_params_of(row) for row in rows]
    return len(_shapes(rows)) >= FEWEST_SHAPES and max(sizes) >= SIZES_FACTOR * min(sizes)


def _covered(groups: Mapping[float, list[Row]], rows: Sequence[Row]) -> bool:
    """True if nearly all finished runs are in a group."""
    inside = sum(_finished(row) for group in groups.values() for row in group)
    return inside >= COVERED * sum(map(_finished, rows))


def _finished(row: Row) -> bool:
    return str(row.get("status") or "done").lower() == "done"


def _with_blank(groups: dict[float, list[Row]], rows: Sequence[Row]) -> dict[float, list[Row]]:
    """The groups with the runs whose FLOPs are blank: into the budget that their tokens cost, at the price of a token
    of the run of nearest size and depth; of unknown tokens, runs that failed into the only budget that there is."""
    found = {value: list(members) for value, members in groups.items()}
    priced = [row for members in groups.values() for row in members if positive(row.get("tokens"))]
    x, depth = np.log([n_params_of(row) for row in priced]), np.array([row["depth"] for row in priced])
    budgets = np.log(list(groups))
    for row in rows:
        if positive(row.get(FLOPS)):
            continue
        if positive(row.get("tokens")) and priced:
            n = n_params_of(row)
            like = priced[int(np.lexsort((np.abs(depth - row["depth"]), np.abs(x - math.log(n))))[0])]
            spent = math.log(row["tokens"] * like[FLOPS] / like["tokens"] * n / n_params_of(like))
            away = np.abs(budgets - spent)
            if away.min() < math.log(ONE_BUDGET) / 2.0:
                found[list(groups)[int(away.argmin())]].append(row)
        elif len(groups) == 1 and not _finished(row):
            next(iter(found.values())).append(row)
    return found
