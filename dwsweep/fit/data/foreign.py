"""Foreign tables, which lack a shape or a loss: a chart's export, a file of a fit, shapes in run names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

RUNS = "give the results.csv of its runs, or the sweep directory"
OF_A_FIT = {
    ("mean", "se", "n", "excluded"): f"cells.csv of a fit, whose means are no runs; {RUNS}",
    ("shallow", "deep"): f"a table of pairs of depths, which a fit wrote; {RUNS}",
    ("trained_depth", "depth_int", "width_int"): f"guideline.csv of a fit; {RUNS}",
    ("best_depth",): f"a table of best depths, which a fit wrote; {RUNS}",
}
"""Columns of fit files, and the file to give instead."""
EXPORTS = "export the table of runs in place of the chart (W&B: Runs, Export, CSV), with depth, width and loss"
LOOKED_AT = 500  # most values of a column of names
DEPTH_WORDS = r"numl|nlayers?|n_layers?|num_layers|num_hidden_layers|layers?|depth|nl|l"
WIDTH_WORDS = r"d_?model|hidden_size|hidden_dim|hidden|n_?embd|embd|emb|width|dim|dx|d_x|h|d|w"
FORMS = {
    "depth": (
        rf"(?<![a-z0-9])({DEPTH_WORDS})[=_:-]?([0-9]+)(?![0-9.])",
        r"(?<![0-9.])([0-9]+)[_-]?(layers?|l)(?![a-z])",
    ),
    "width": (
        rf"(?<![a-z0-9])({WIDTH_WORDS})[=_:-]?([0-9]+)(?![0-9.])",
        r"(?<![0-9.])([0-9]+)[_-]?(wide|dim|w|d|h)(?![a-z])",
    ),
}
"""Forms of a shape inside a name: L12-d768, numl6, n_layer=12; 12L, 768d."""


def why_no_table(names: Sequence[str]) -> str:
    """Reason why a table has no runs, and the table to give instead; empty for any other table."""
    given = {name.lower() for name in names}
    curves = [name for name in names if " - " in name]
    ends = [name for name in curves if name.endswith(("__MIN", "__MAX"))]
    if ends or (curves and len(curves) >= len(names) - 1):
        return f"a chart of W&B, one column a run ({(ends or curves)[0]!r}), without depth and width; {EXPORTS}"
    if given <= {"wall time", "step", "value", "loss", "wall_time"} and "step" in given:
        return f"one curve over steps ({', '.join(names)}), without depth and width; must have one row per run"
    for held, why in OF_A_FIT.items():
        if given.issuperset(held):
            return why
    if {"run_id", "action", "pack_id"} <= given:
        return "plan.csv of a sweep, whose runs have no losses yet; results.csv has them once runs are done"
    return ""


NO_LOSS = {
    frozenset({"ppl", "perplexity"}): "a perplexity, the exponential of a loss: give its natural logarithm, in nats",
    frozenset({"acc", "accuracy", "score"}): "no cross-entropy: give the held-out loss, in nats or bits",
}
"""Words in names of columns other than losses, and the column to give instead."""


def why_no_loss_column(names: Sequence[str]) -> str:
    """Reason why none of the columns ``names`` is a loss, if one resembles a loss; else empty."""
    for words, why in NO_LOSS.items():
        for name in names:
            if words & set(re.split(r"[^a-z]+", name.lower())):
                return f"{name!r} is {why}"
    return ""


def shapes_in_names(missing: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """``{ours: COLUMN~PATTERN}`` for the depth and the width that a column of names holds in each of its texts."""
    best: dict[str, str] = {}
    for name, values in columns.items():
        texts = [value for value in values[:LOOKED_AT] if value is not None]
        if not texts or not all(isinstance(value, str) for value in texts):
            continue
        found = {ours: pattern for ours in FORMS if ours in missing and (pattern := _pattern(ours, texts))}
        if len(found) > len(best):
            best = {ours: f"{name}~{pattern}" for ours, pattern in found.items()}
    return best


def _pattern(ours: str, texts: Sequence[str]) -> str:
    """The simplest pattern whose group is the number in each text; empty if there is none."""
    for form in FORMS[ours]:
        seen = [re.search(form, text, re.IGNORECASE) for text in texts]
        if not all(seen):
            continue
        numbers = [next(part for part in one.groups() if part.isdigit()) for one in seen if one]
        first = next(one for one in seen if one)
        literal = re.escape(first[0]).replace(numbers[0], r"(\d+)", 1)
        for pattern in (literal, rf"(?<![a-zA-Z0-9]){literal}", form):
            if [(one := re.search(pattern, text)) and one[1] for text in texts] == numbers:
                return pattern
    return ""
