"""Curve of a run: rows at several steps, the last of them with its loss.

A table that has one row per checkpoint, as trackers export it, holds few runs and many rows. Rows of one run agree in
shape, seed and settings, or in the run's name, and differ in the step; they are no replicates. Where nearly all runs
end at one step, a run that stopped before has no loss to compare, and one that went on is read at that step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dwsweep.errors import InputError, argument
from dwsweep.fit.data.roles import LENGTHS, RECIPE, TUNING
from dwsweep.fit.data.rows import ALIKE, ARM, CONFIG, EVAL, SUMMARY, LeftOut, Row, bare_name, grouped, is_number, plain
from dwsweep.fit.data.shape import BLOCK, of_shape
from dwsweep.records.columns import OF_RUNS, STEPS

CURVE = "curve_of_run"  # row key that names the curve of its run, if a table has curves
SECTIONS = CONFIG | SUMMARY | EVAL | {"train", "history"}
IDS = {
    *("run", "run_id", "run_name", "run_key", "name", "id", "tag", "label", "model", "model_name", "trial", "trial_id"),
    *("experiment", "experiment_name", "exp", "exp_name", "wandb_id", "job_id", "uuid"),
}  # columns that may name runs
OF_ROWS = {"id", "uuid", "tag", "label", "model", "model_name"}  # those of them that may name each row
ONE_STEP = 1.1  # ratio of steps up to which rows are runs that ended at about one
UNIQUE = 0.9  # share of groups whose steps must differ for a group to be a run
FEWEST_STEPS, FEWEST_SHAPES = 3, 3  # steps of a rate that falls, and shapes in which it does: no chance
COMMON = 0.8  # share of runs ending at one step above which all are read there


def name_curves(rows: Sequence[Row], names: Iterable[str], settings: Sequence[str]) -> str:
    """Column of the step; empty if no run has rows at several steps. Each row gets the name of its curve; of learning
    rates that were logged along one the highest counts, if runs of a shape differ in it.

    settings: columns that distinguish runs, if neither their names nor their steps do.

    Raises:
        InputError: runs of a shape differ in scheduled learning rates alone.
    """
    names = list(names)
    ids = [name for name in names if plain(name) in IDS and _names_runs(rows, name)]
    usual = {bare_name(plain(name), SECTIONS, STEPS): name for name in reversed(names)}
    of_ids = (*OF_RUNS, *(["tokens"] if {*map(plain, ids)} - OF_ROWS else [])) if ids else ()
    times = [usual[name] for name in (*STEPS, *of_ids) if name in usual]
    time = next((name for name in times if len({row[name] for row in rows if _is_point(row.get(name))}) > 1), None)
    if time is None or any(_names_rows(rows, name, time) for name in names if plain(name) in IDS - OF_ROWS):
        return ""  # one row per run, after its last step
    recipe = [name for name in (*RECIPE, *TUNING) if name not in (*LENGTHS, "learning_rate", "lr")]
    base = [ARM, "depth", "width", BLOCK, "seed", *(ids or recipe)]
    alike = [name for name in (*base, *recipe, *settings) if name not in times]
    points = sorted((row for row in rows if _is_point(row.get(time))), key=lambda row: row[time])

    def are_runs(groups: Sequence[Sequence[Row]]) -> bool:
        """True if a run has several steps; without names, half of them: rows of a few are runs that ended apart."""
        several = sum(group[-1][time] > ONE_STEP * group[0][time] for group in groups)
        return several > 0 and (bool(ids) or 2 * several >= len(groups))

    for key in (base, [*alike, "learning_rate"]):
        groups = _by(points, [name for name in key if name not in times])
        counts = [(len({row[time] for row in group}), group) for group in groups]
        # a named run that was resumed has some steps twice
        own = [2 * n > len(group) if ids else n == len(group) and _is_logged(group) for n, group in counts]
        if sum(own) >= UNIQUE * len(own) and are_runs(groups):
            break
    if not ids and not are_runs(groups):
        _check_schedules(_by(points, alike), time)
    if not are_runs(groups):
        return ""
    falls = (len({*_rates(group)}) > 1 and _is_logged(group) for group in groups)
    if time == "tokens" and sum(falls) < UNIQUE * len(groups):  # counts of tokens alone may be those of separate runs
        return ""
    peaks = [(of_shape(group[0]), max(_rates(group))) for group in groups if _rates(group)]
    swept = any(max(of) > ONE_STEP * min(of) for of in grouped(peaks).values())
    for place, group in enumerate(groups):
        rates = {*_rates(group)}
        for row in group:
            row[CURVE] = place
            if len(rates) > 1:
                row["learning_rate"] = max(rates) if swept else None
    return time


def _check_schedules(shapes: Iterable[list[Row]], time: str) -> None:
    """Refuse runs whose points nothing joins: each shape has several rates at a step, the highest of which fall."""
    found = [[*grouped((row[time], row) for row in of).values()] for of in shapes]
    found = [at for at in found if len(at) >= FEWEST_STEPS]
    tops = [[max(_rates(of), default=0.0) for of in at] for at in found if max(map(len, at)) > 1]
    falls = [top[top.index(max(top)) :] for top in tops]
    scheduled = sum(len(of) >= FEWEST_STEPS and of == sorted(of, reverse=True) and of[-1] < of[0] for of in falls)
    if scheduled >= max(FEWEST_SHAPES, UNIQUE * len(found)):
        raise InputError(
            f"learning_rate: shapes have several rates that fall with {time}, and no column names the runs, so that "
            f"nothing joins their points; allowed: a column run_id, or {argument('where')} that keeps one {time}"
        )


def _by(rows: Iterable[Row], key: Sequence[str]) -> list[list[Row]]:
    """Rows that agree in the columns of ``key``, in their order."""
    return [*grouped((tuple(str(row.get(name)) for name in key), row) for row in rows).values()]


def _rates(group: Sequence[Row]) -> list[float]:
    return [row["learning_rate"] for row in group if row.get("learning_rate") is not None]


def _is_logged(group: Sequence[Row]) -> bool:
    """True if the learning rates of rows in the order of their steps may be those of one run: one rate, or rates that
    fall after the highest."""
    rates = _rates(group)
    after = rates[rates.index(max(rates)) :] if rates else []
    return len(set(rates)) < 2 or (len(after) > 1 and after == sorted(after, reverse=True))


def ends(rows: Sequence[Row], time: str) -> tuple[list[Row], Counter[LeftOut], str]:
    """(last point of each run that has a loss, at the step that nearly all runs reach; rows that are out; a sentence).
    time: the column of the step."""
    groups = _by(sorted((row for row in rows if on_curve(row, time)), key=lambda row: row[time]), (ARM, CURVE))
    _blank_between(time, groups)
    last = [_measured(group)[-1][time] for group in groups]
    common, count = Counter(last).most_common(1)[0]
    everywhere = count >= COMMON * len(last)
    kept, short = [], []
    out: Counter[LeftOut] = Counter()
    for group, end in zip(groups, last, strict=True):
        points, at = _measured(group), end
        if everywhere and end > ALIKE * common:
            near = [row[time] for row in points if common / ALIKE <= row[time] <= ALIKE * common]
            at = near[-1] if near else end
        taken = [row for row in points if row[time] == at]
        if everywhere and at * ALIKE < common:
            short.append((at, len(group)))
            continue
        out[f"lie earlier on the curve of their run (its last {time} counts)", ""] += len(points) - len(taken)
        out["have no loss", ""] += len(group) - len(points)
        is_step = time not in ("epoch", "tokens")
        kept += [{"steps": at, **row} if is_step and row.get("steps") is None else row for row in taken]
    kept += [row for row in rows if not on_curve(row, time)]
    if short:
        stops = sorted({at for at, _ in short})
        shown = f"{stops[0]:,g}" if len(stops) == 1 else f"{stops[0]:,g} to {stops[-1]:,g}"
        why = f"are of {len(short)} runs that end at {time} {shown}, before {common:,g}"
        option = f'--where "{plain(time)} <= {stops[0]:g}" compares all there'
        out[why, option] = sum(n for _, n in short)
    at = f"{time} {common:,g}" if everywhere else f"from {time} {min(last):,g} to {max(last):,g}"
    if not everywhere and max(last) > ALIKE * min(last):
        at += f'; --where "{plain(time)} <= {min(last):g}" compares all there'
    said = f"{len(groups):,} runs have rows at several values of {time}: the last is the loss ({at})"
    return kept, out, said


def on_curve(row: Row, time: str) -> bool:
    """True for a point of a run's curve. time: the column of the step."""
    return CURVE in row and _is_point(row.get(time))


def _blank_between(time: str, groups: Sequence[Sequence[Row]]) -> None:
    """Make NaN a blank where no run has a loss: trackers write it between evaluations. Where others have one, the run
    diverged."""
    without = [[row for row in group if row["loss"] != row["loss"]] for group in groups]
    if 2 * sum(map(bool, without)) > len(groups):
        lost = {id(row) for rows in without for row in rows}
        evaluated = {row[time] for of in groups for row in of if id(row) not in lost and is_number(row["loss"])}
        for row in (row for rows in without for row in rows if row[time] not in evaluated):
            row["loss"] = None


def _measured(group: Sequence[Row]) -> Sequence[Row]:
    """Rows of a run with a loss; all, where it has none."""
    return [row for row in group if row.get("loss") is not None] or group


def _names_rows(rows: Sequence[Row], name: str, time: str) -> bool:
    """True if a column names each row as a run, and not as a run's checkpoint of some step."""
    texts = {str(row.get(name)) for row in rows}
    return len(texts) == len(rows) > 1 and not all(str(row.get(time)) in str(row[name]) for row in rows)


def _names_runs(rows: Sequence[Row], name: str) -> bool:
    """True if the values of a column name runs: each belongs to one shape, and to several rows or to one of several."""
    named = [row for row in rows if row.get(name) is not None]
    shapes = grouped({(str(row[name]), (row.get("depth"), row.get("width"), row.get(BLOCK))) for row in named})
    return 1 < len(shapes) < len(rows) and all(len(of) == 1 for of in shapes.values())


def _is_point(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
