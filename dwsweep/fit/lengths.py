"""Losses after equally many tokens: groups of runs that have them, and the losses of runs that were trained on others.

A run that was measured before and after the number of tokens that is asked for is read there, between its own losses.
One that ended at another number is moved by the slope of published laws, with an error that all such runs share:

    loss(D) = loss(D_run)·(1 + s·ln(D/D_run)),    s = −0.07 ± 0.035
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dwsweep.errors import InputError, argument
from dwsweep.fit.cells import n_params_of
from dwsweep.fit.rows import Row
from dwsweep.fit.table import Table
from dwsweep.records.fit import FitOptions
from dwsweep.records.studies import FLOPS, SECONDS
from dwsweep.text import format_count

# per nat of loss and unit of ln tokens, and how far that may be wrong. Assumed: β·B/D^β of published laws is 0.03 …
# 0.09 of the loss; the median is 0.049 in Gemstones, 0.10 in open_lm_morph from 20 to 160 tokens per parameter.
LENGTH_SLOPE, LENGTH_SLOPE_SD = -0.07, 0.035
FARTHEST = math.log(2.0)  # in ln tokens, over which a loss is moved
SAME_TOKENS = 0.005  # in ln tokens, within which a loss is taken as it is
MOVED = "moved_ln_tokens"  # the column that says over how much of ln tokens a row's loss was moved
RUN = ("arm", "depth", "width", "learning_rate", "seed")


def at_equal_length(data: Table, options: FitOptions) -> Table:
    """The table with one row per run, after the tokens or the tokens per parameter of ``options``; as it is without.

    Raises:
        InputError: no run was measured near that many tokens.
    """
    tokens, ratio = options.at_tokens, options.tokens_per_param
    asked = ratio if tokens is None else tokens
    if asked is None:
        return data

    def unit(row: Row) -> float:  # tokens
        return 1.0 if ratio is None else n_params_of(row)

    runs: dict[tuple[Any, ...], dict[float, Row]] = defaultdict(dict)
    others, unknown = [], 0
    for place, row in enumerate(data.rows):
        if row.get("loss") is None or not math.isfinite(row["loss"]):
            others.append(row)  # diverged or unfinished: no loss to read
        elif not _counted(row):
            unknown += 1
        else:
            key = tuple(row.get(name) for name in RUN)
            # a second row of the same tokens is another run
            runs[(*key, place) if row["tokens"] in runs[key] else key][row["tokens"]] = row
    read = (_after(asked, unit, measured) for measured in runs.values())
    found = [row for row in read if row]
    if not found:
        had = [row["tokens"] / unit(row) for row in data.rows if _counted(row)]
        allowed = (
            f"from {format_count(min(had) / 2)} to {format_count(max(had) * 2)}" if had else "none, no row has any"
        )
        name = argument("at_tokens" if ratio is None else "tokens_per_param")
        raise InputError(f"{name}: {asked:g}; allowed, as {data.source} has tokens: {allowed}")
    left = {
        "with more than twice or less than half the tokens": len(runs) - len(found),
        "without a count of tokens": unknown,
    }
    out = {**data.left_out, **{why: n for why, n in left.items() if n}}
    return replace(data, rows=[*found, *others], left_out=out)


def _counted(row: Row) -> bool:
    """Whether the row says after how many tokens it was measured; zero or less is a blank, as in ``table``."""
    return 0.0 < (row.get("tokens") or 0.0) < math.inf


def _after(asked: float, unit: Callable[[Row], float], measured: dict[float, Row]) -> Row | None:
    """The row of one run after ``asked`` units of tokens, from its rows by their tokens; None where all are too far
    off."""
    from scipy.interpolate import PchipInterpolator

    counts = sorted(measured)
    logs = {count: math.log(count) for count in counts}
    at = math.log(asked) + math.log(unit(measured[counts[0]]))  # their product may be no float
    nearest = min(counts, key=lambda count: abs(logs[count] - at))
    row, off = measured[nearest], at - logs[nearest]
    if abs(off) < SAME_TOKENS:
        return row
    if logs[counts[0]] < at < logs[counts[-1]]:
        curve = PchipInterpolator(list(logs.values()), [measured[count]["loss"] for count in counts])
        return {**row, **_spent(row, off), "loss": float(curve(at))}
    if abs(off) > FARTHEST:
        return None
    return {**row, **_spent(row, off), "loss": row["loss"] * (1.0 + LENGTH_SLOPE * off), MOVED: off}


def _spent(row: Row, off: float) -> Row:
    """What the run has used up ``off`` ln tokens later; FLOPs and time are in proportion to the tokens."""
    return {name: row[name] * math.exp(off) for name in ("tokens", FLOPS, SECONDS) if row.get(name)}


def token_groups(rows: Sequence[Row]) -> dict[float | None, list[Row]]:
    """Rows by token count, where one shape, learning rate and seed was measured at several; otherwise all in one."""
    seen: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row.get("tokens") is not None:
            key = (row["depth"], row["width"], row.get("learning_rate"), row.get("seed"))
            seen[key].add(row["tokens"])
    several = sum(len(tokens) > 1 for tokens in seen.values())
    if not several or several < 0.5 * len(seen):
        return {None: list(rows)}
    groups: dict[float | None, list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("tokens") is not None:
            groups[row["tokens"]].append(row)
    return dict(groups)


def largest(groups: dict[float | None, list[Row]]) -> float | None:
    """The token count with the most shapes, the larger one of two."""
    return max(groups, key=lambda key: (len({(r["depth"], r["width"]) for r in groups[key]}), key or 0.0))


def token_warnings(groups: dict[float | None, list[Row]], main: float | None) -> list[str]:
    """The warning that the fit uses the runs at one token count of several."""
    if len(groups) < 2:
        return []
    others = ", ".join(format_count(key) for key in sorted(k for k in groups if k is not None) if key != main)
    used = format_count(main) if main is not None else "an unknown number of"
    return [
        f"tokens: the fit uses the runs at {used} tokens; transitions at {others} are for reference; "
        f"{argument('at_tokens')} asks for another count"
    ]
