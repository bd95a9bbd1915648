"""Several recipes, compared: each a table of its own, or the arms of one sweep, told apart by its column ``arm``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError, argument
from dwsweep.fit.analysis import TokenGroup, fit_table, largest, token_groups
from dwsweep.fit.cells import Run, Selection
from dwsweep.fit.compare.arm_comparison import NoCurve, compare, without_curve
from dwsweep.fit.pairing import Arm
from dwsweep.fit.row_selection import Row, arms, check_one_arm, of_arm
from dwsweep.fit.surface.loss_model import fit_with_gains
from dwsweep.fit.table import Table, read_other, read_table
from dwsweep.records import reader
from dwsweep.records.fit_result import FitOptions, FitResult
from dwsweep.records.run_files import RunConfig


def compare_arms(table: Any, others: Iterable[Any] = (), **options: Any) -> FitResult:
    """``fit_table`` of the first arm, and every other arm against it (``comparisons``).

    table, others: tables as ``fit_table`` takes them, one arm each; without others the arms of ``table`` itself, told
    apart by its column ``arm``, of which the first is the base. options: those of ``fit_table``, for all alike.

    An arm without a usable loss, such as one whose runs all diverged, is a comparison that says so and nothing else.

    Raises InputError as ``fit_table`` does, and where there is nothing to compare or the first arm has no usable run.
    """
    from threadpoolctl import threadpool_limits

    others, where = list(others), options.pop("where", ())
    where = [where] if isinstance(where, str) else list(where)
    base, *rest = _tables(table, others, options.get("columns"), where)
    if not others:
        where = [*where, of_arm(base.rows)]
    result = fit_table(table, where=where, **options)
    chosen = result.provenance.options
    tables = [base, *rest]
    with threadpool_limits(1, user_api="blas"):
        first, *fitted = _fitted(tables, labels(tables), chosen)
        if isinstance(first, NoCurve):
            raise InputError(
                f"{argument('table', 'TABLE')}: {first.label}, which the others are held against, has no run with a "
                f"usable loss: {first.why}; allowed: another table or arm first, or a {argument('where')} without it"
            )
        comparisons = [
            without_curve(first, other) if isinstance(other, NoCurve) else compare(first, other, chosen)
            for other in fitted
        ]
        return replace(result, comparisons=comparisons)


def _tables(table: Any, others: Sequence[Any], columns: Any, where: Sequence[str]) -> list[Table]:
    """One table per arm, the base first."""
    data = read_table(table, columns, where)
    if not others:
        found = arms(data.rows)
        if len(found) < 2:
            raise InputError(
                f"{argument('others', '--compare')}: {data.source} has one arm; allowed: a second table, or a sweep "
                "with grid.arms"
            )
        return [replace(data, rows=rows) for rows in found.values()]
    tables = [data, *(read_other(other, columns, where, argument("others", "--compare")) for other in others)]
    for one in tables:
        check_one_arm(one.rows, one.source)
    return tables


def _fitted(tables: Sequence[Table], names: Sequence[str], options: FitOptions) -> list[Arm | NoCurve]:
    """Each arm by itself, at the token count of the first where it has that."""
    tokens: float | None = None
    found: list[Arm | NoCurve] = []
    for number, (data, name) in enumerate(zip(tables, names, strict=True)):
        groups = token_groups(data.rows)
        if number == 0 or tokens not in groups:
            key = largest(groups)
            tokens = key if number == 0 else tokens
        else:
            key = tokens
        try:
            group = TokenGroup.of(data, groups[key], options)
        except InputError as error:  # which of them it is about
            raise InputError(*(f"{name}: {line}" for line in error.lines)) from None
        ended = _diverged(groups[key])
        if group.curves is None:
            found.append(NoCurve(name, data.source, data.sha256, ended or "; ".join(_reasons(group.selection))))
            continue
        surface, gains = fit_with_gains(group.curves, options.confidence) or (None, {})
        found.append(
            Arm(
                label=name,
                source=data.source,
                sha256=data.sha256,
                runs=group.selection.runs,
                curves=group.curves,
                pairs=group.pairs,
                surface=surface,
                gains=gains,
                held_out=group.held_out,
                diverged=": ".join(filter(None, (ended, group.selection.diverged_rule))),
                eval_tokens=_eval_tokens(data, group.selection.runs),
                warnings=tuple(group.warnings),
            )
        )
    return found


def _diverged(rows: Sequence[Row]) -> str:
    """How many of the runs diverged, in words; empty where none did."""
    count = sum(
        str(row.get("status")).lower() == "diverged" or (row.get("loss") is not None and not math.isfinite(row["loss"]))
        for row in rows
    )
    return f"{count} of {len(rows)} runs diverged" if count else ""


def _reasons(selection: Selection) -> list[str]:
    """Why no shape counts: each reason with how many shapes have it."""
    counts = Counter(selection.excluded.values())
    return [f"{reason} ({count} shapes)" for reason, count in counts.most_common(3)] or ["it has no finished run"]


def labels(tables: Sequence[Table]) -> list[str]:
    """Short names that differ: of the arms, else of the folders or files, else the whole paths."""
    own = [list(arms(table.rows)) for table in tables]
    found = [
        (of[0] if len(of) == 1 else "") or PurePath(table.directory or table.source).stem
        for of, table in zip(own, tables, strict=True)
    ]
    if len(set(found)) < len(found):
        found = [table.directory or table.source for table in tables]
    if len(set(found)) < len(found):
        found = [f"{name} ({number})" for number, name in enumerate(found, start=1)]
    return found


def _eval_tokens(data: Table, runs: Sequence[Run]) -> str:
    """How many held-out tokens the runs were evaluated on, as their config.json has it; empty where none says so."""
    run_id = next((run.row.get("run_id") for run in runs if run.row.get("run_id")), None)
    if data.directory is None or run_id is None:
        return ""
    try:
        config = reader.read(paths.as_path(data.directory) / "runs" / str(run_id) / "config.json", RunConfig)
    except (InputError, OSError):  # what others left there
        return ""
    if config is None or "eval_tokens" not in config.train:
        return ""
    tokens = config.train["eval_tokens"]
    return "all" if tokens is None else str(tokens)
