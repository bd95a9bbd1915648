"""fit/ on disk: cells.csv, transitions.csv, fit.json, guideline.csv, guideline.md, each written atomically.

fit.json is valid JSON (no NaN: what does not exist is null) and holds all that guide, design and report read:

    cells, transitions, width_law, law_statement, rivals, surface, guideline, published, transition_cov, warnings,
    noise, by_tokens, provenance: as in FitResult (rows are objects named as the columns of the CSV files)
    width_law: {form, a, b, cov, interval_a, interval_b, chi2, df, pairs_used, pairs_censored, valid_from, valid_to,
                p_value, confidence, delta_chi2, region: [[a, b], …], winner} | null
    curves: what figures draw. All x are axis values (parameters by default), not logarithms; losses in nats per token
      axis, axis_label, confidence
      depths:  [{depth, x, width, n_params, mean, se | null, n, smooth: {x, mean, se | null} | null}]     one a depth
      pairs:   [{shallow, deep, status, x, g, se | null, low | null, high | null, critical | null, root | null,
                 root_low | null, root_high | null, reason}]       g = loss(shallow) − loss(deep); low, high: sup-t band
      laws:    {exponential?, linear?, power?, published: {name, form, depth, width, width_low, width_high, error_tag}}
                 width of the transition against depth, band at fixed depth
      fixed_n: [{x, depth, mean, se | null, surface: {depth, mean, low, high, optimum} | null}]   loss against depth
      guideline: {exponential?, linear?, power?, published: {name, n_params, depth, depth_low, depth_high, width,
                 width_low, width_high, valid_from, valid_to}}      band at fixed budget; null where there is none
      gpt3:    [{name, n_params, depth, width}]
    rates: [{parametrization | null, depth, width, learning_rate, seed | null, loss}]    shapes trained at several rates
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.fit import guideline, published
from dwsweep.fit.laws import Law

if TYPE_CHECKING:
    from dwsweep.fit.analysis import FitResult

CELL_COLUMNS = ("depth", "width", "n_params", "mean", "se", "n", "learning_rate", "excluded", "reason", "axis_value")
TRANSITION_COLUMNS = (
    *("shallow", "deep", "estimator", "status", "n_params", "n_params_low", "n_params_high"),
    *("width", "width_low", "width_high", "se_ln_n", "slope_difference", "sup_t_left", "sup_t_right"),
    *("sign_changes", "n_seeds", "sigma", "df", "confidence", "interval_method"),
    *("threshold", "sup_t_critical", "axis_value", "axis_low", "axis_high", "reason"),
    *("cause", "tie_low", "tie_high"),
)
GUIDELINE_COLUMNS = (
    *("name", "n_params", "trained_depth", "trained_width", "depth", "depth_low", "depth_high"),
    *("width", "width_low", "width_high", "depth_int", "width_int", "n_params_actual", "law"),
    *("rival_depth_min", "rival_depth_max", "extrapolation_factor"),
    *("loss_penalty", "penalty_low", "penalty_high", "equivalent_size_percent"),
)
NAMES = ("cells.csv", "transitions.csv", "fit.json", "guideline.csv", "guideline.md")


def write(result: FitResult, out_dir: Any) -> list[str]:
    """Write the five files (and transitions_by_tokens.csv where there are several token counts); returns the paths."""
    out = paths.make_directory(paths.as_path(out_dir))
    texts = {
        "cells.csv": csv_text(result.cells, CELL_COLUMNS),
        "transitions.csv": csv_text(result.transitions, TRANSITION_COLUMNS),
        "guideline.csv": csv_text(result.guideline, GUIDELINE_COLUMNS),
        "guideline.md": guideline.markdown(result.guideline, guideline_notes(result)),
        "fit.json": json_text(result),
    }
    if result.by_tokens:
        texts["transitions_by_tokens.csv"] = csv_text(result.by_tokens, ("tokens", *TRANSITION_COLUMNS))
    for name, text in texts.items():
        paths.write_atomic(out / name, text)
    return [str(out / name) for name in texts]


def read(path: Any) -> dict[str, Any]:
    """fit.json as a dict. ``path``: the file, the fit directory, or the sweep directory above it.

    Raises InputError where there is none or it is not a fit.
    """
    given = paths.as_path(path)
    tried = [given] if given.suffix == ".json" else [given / "fit.json", given / "fit" / "fit.json"]
    for file in tried:
        if file.exists():
            try:
                content = json.loads(file.read_text("utf-8"))
            except (ValueError, RecursionError) as error:
                raise InputError(f"--fit: {file}; not valid JSON ({error})") from error
            if not isinstance(content, dict) or "transitions" not in content:
                raise InputError(f"--fit: {file}; not a fit.json written by `dwsweep fit`")
            return content
    raise InputError(f"--fit: {path}; no fit.json there, run `dwsweep fit` first")


def laws_of(content: Mapping[str, Any]) -> tuple[Law, list[Law]]:
    """(law that guides, forms not rejected) of a fit.json; the published law alone where the sweep has none."""
    laws = {row["form"]: row for row in content.get("laws", [])}
    guiding = content.get("guideline_law")
    if guiding is None or guiding not in laws:
        return published.law(), []
    return _law(laws[guiding]), [_law(row) for row in laws.values() if not row["rejected"]]


def _law(row: Mapping[str, Any]) -> Law:
    return Law(
        row["name"],
        row["form"],
        (row["a"], row["b"]),
        row["valid_from"],
        row["valid_to"],
        np.asarray(row["region"], dtype=float),
    )


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
        f"Beyond {guideline.EXTRAPOLATION_LIMIT:g} times outside the range of its transitions a law gives no number.",
    ]
    if result.width_law is None:
        notes.append(
            f"The rows follow {published.NAME}: ln d = {published.A} + {published.B}·L (arXiv 2006.12467); its "
            f"intervals rest on a covariance that is {published.COVARIANCE_TAG}."
        )
    return notes + [f"Warning: {line}" for line in result.warnings]


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """CSV with exactly ``columns``; None and NaN are blanks, floats have 10 significant digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_field(row.get(name)) for name in columns])
    return buffer.getvalue()


def _field(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "" if not math.isfinite(value) else f"{value:.10g}"
    return value


def json_text(result: FitResult) -> str:
    content = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    return json.dumps(clean(content), allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def clean(value: Any) -> Any:
    """Plain JSON values: NumPy becomes Python, what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return clean(value.tolist())
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, np.generic):
        return clean(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
