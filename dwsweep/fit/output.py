"""A fit as files: fit.json and the tables as their records write them, and guideline.md for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dwsweep import paths
from dwsweep.fit.guideline import EXTRAPOLATION_LIMIT
from dwsweep.records.fit_result import TABLES, FitResult
from dwsweep.records.fit_rows import GuidelineRow, TokenTransition, csv_text
from dwsweep.text import format_factor
from dwsweep.theory import published_law


def write(result: FitResult, out_dir: Any) -> list[str]:
    """Write fit.json, cells.csv, transitions.csv, guideline.csv and guideline.md (and transitions_by_tokens.csv where
    there are several token counts), each atomically; returns the paths.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    out = paths.make_directory(paths.as_path(out_dir))
    texts = {f"{name}.csv": csv_text(getattr(result, name), kind) for name, kind in TABLES.items()}
    texts["guideline.md"] = markdown(result.guideline, guideline_notes(result))
    texts["fit.json"] = result.to_json()
    if result.by_tokens:
        texts["transitions_by_tokens.csv"] = csv_text(result.by_tokens, TokenTransition)
    for name, text in texts.items():
        paths.write_atomic(out / name, text)
    return [str(out / name) for name in texts]


def guideline_notes(result: FitResult) -> list[str]:
    """What a reader of guideline.md must know."""
    notes = [
        f"Law: {result.law_statement}.",
        "N counts non-embedding parameters, 12·L·d². Intervals are at the fixed budget: the narrow end of d goes with "
        "the deep end of L.",
        "The law gives the depth at which the next depth of the grid starts to win, so the best depth lies between the "
        "two, and the answer depends on the spacing of the grid.",
        "An interval of L or d holds if its law has the right form. Where the data cannot tell the forms apart, trust "
        "the range of the rivals: with a linear truth it covered 97 to 99 % in simulation, the law's own 23 to 59 %.",
        f"Beyond {EXTRAPOLATION_LIMIT:g} times outside the range of its transitions a law gives no number.",
    ]
    if result.width_law is None:
        notes.append(
            f"The rows follow {published_law.NAME}: ln d = {published_law.A} + {published_law.B}·L (arXiv 2006.12467); "
            f"its intervals rest on a covariance that is {published_law.COVARIANCE_TAG}."
        )
    return notes + [f"Warning: {line}" for line in result.warnings]


def markdown(rows: Sequence[GuidelineRow], notes: Sequence[str]) -> str:
    """guideline.md: the same rows as a table, with what must be known to read them."""
    lines = [
        "# Guideline: depth and width at a budget",
        "",
        "| model | N | trained L × d | it costs, nats | best L | best d | build | rivals' L | out of range by | law |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        trained = f"{row.trained_depth} × {row.trained_width}" if row.trained_depth else "–"
        build = f"{row.depth_int} × {row.width_int}" if row.depth_int else "–"
        rivals = "–"
        if row.rival_depth_min is not None or row.rival_depth_max is not None:
            rivals = f"{_end(row.rival_depth_min, 1)} … {_end(row.rival_depth_max, 1)}"
        factor = row.extrapolation_factor
        cost = _interval(row.loss_penalty, row.penalty_low, row.penalty_high, 4)
        lines.append(
            f"| {row.name} | {row.n_params:.4g} | {trained} | {cost} "
            f"| {_interval(row.depth, row.depth_low, row.depth_high, 1)} "
            f"| {_interval(row.width, row.width_low, row.width_high, 0)} "
            f"| {build} | {rivals} | {'inside' if factor <= 1 else f'{format_factor(factor)}×'} | {row.law} |"
        )
    return "\n".join([*lines, "", *[f"- {note}" for note in notes], ""])


def _interval(value: float | None, low: float | None, high: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}f} ({_end(low, digits)} … {_end(high, digits)})"


def _end(value: float | None, digits: int) -> str:
    return "unbounded" if value is None else f"{value:.{digits}f}"
