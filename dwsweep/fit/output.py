"""What a fit leaves: fit.json, and the tables as their records write them."""

from __future__ import annotations

from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import TABLES, Fit, FitResult
from dwsweep.records.record import csv_text
from dwsweep.records.studies import AlongRow, BestAtBudget, ComparedRow, DepthAtBudget, EqualShape
from dwsweep.records.transitions import TokenTransition


def write(result: Fit, out_dir: Any) -> list[str]:
    """Write fit.json, cells.csv, transitions.csv and guideline.csv (and transitions_by_tokens.csv where there are
    several token counts, equal_budgets.csv and equal_budget_depths.csv where runs were trained at equal
    compute, comparison.csv where arms were compared); along.csv and along_equal.csv of a column, which have only
    fit.json beside them where nothing else was fitted; each atomically. Returns the paths.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    out = paths.make_directory(paths.as_path(out_dir))
    texts = {}
    if isinstance(result, FitResult):
        texts = {f"{name}.csv": csv_text(getattr(result, name), kind) for name, kind in TABLES.items()}
    texts["fit.json"] = result.to_json()
    if result.along:
        texts["along.csv"] = csv_text(result.along.rows, AlongRow)
        if result.along.equal:
            texts["along_equal.csv"] = csv_text([row for one in result.along.equal for row in one.rows], EqualShape)
    if isinstance(result, FitResult):
        if result.comparisons:
            texts["comparison.csv"] = csv_text([row for one in result.comparisons for row in one.rows], ComparedRow)
        if result.by_tokens:
            texts["transitions_by_tokens.csv"] = csv_text(result.by_tokens, TokenTransition)
        if result.equal_budgets:
            texts["equal_budgets.csv"] = csv_text(result.equal_budgets.best, BestAtBudget)
            texts["equal_budget_depths.csv"] = csv_text(result.equal_budgets.depths, DepthAtBudget)
    for name, text in texts.items():
        paths.write_atomic(out / name, text)
    return [str(out / name) for name in texts]


def check_folder(out_dir: Any) -> None:
    """Refuse a folder that holds the runs of a sweep: what a fit writes there would be taken for runs.

    Raises:
        InputError: it is one of a sweep's own folders, or in one; or it is a file.
    """
    out = paths.as_path(paths.absolute(out_dir))
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: {out_dir}; is a file; allowed: a folder")
    for folder in (out, *out.parents):
        if folder.name in ("runs", "packs", "locks") and any(
            (folder.parent / name).exists() for name in ("plan.csv", "manifest.json")
        ):
            raise InputError(f"--out: {out_dir}; the sweep keeps its {folder.name} there; allowed: any other folder")


def replaced(result: Fit, out_dir: Any) -> str:
    """Says so where the folder holds a fit of another table or with other options, which ``write`` will replace; empty
    where it holds none, or an earlier one of this table."""
    file = paths.as_path(out_dir) / "fit.json"
    if not file.exists():
        return ""
    try:
        old, new = fit_record.read_any(file).provenance, result.provenance
    except InputError:
        return f"{file} could not be read and is replaced"
    if old.input != new.input:
        return f"replaces the fit of {old.input} in {file.parent}; --out DIR keeps both"
    was, now = old.options.to_dict(), new.options.to_dict()
    changed = [f"{name} {was[name]!r} → {now[name]!r}" for name in now if was.get(name) != now[name]]
    return f"replaces the fit in {file.parent} ({', '.join(changed)}); --out DIR keeps both" if changed else ""
