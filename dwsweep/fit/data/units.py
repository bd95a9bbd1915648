"""Unit of a column: of a count, in the column's name (``total_tokens_M`` and ``params (B)`` hold millions and
billions); of losses, in a column of units, or by two groups of values that are 1.44 times apart."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dwsweep.errors import InputError, example
from dwsweep.fit.data import condition
from dwsweep.fit.data.cell import UNITS, parted
from dwsweep.fit.data.rows import Row, is_number, plain
from dwsweep.records.columns import ALIASES
from dwsweep.text import join

MOST = {"tokens": 1e16, "n_params": 1e13, "n_params_total": 1e13, "flops": 1e30}
"""Columns that may have a unit, and the largest plausible value of each."""
OF_LOSS = {"unit", "units", "loss_unit", "loss_units", "metric_unit", "unit_of_loss"}  # columns that name it
WORDS_OF_LOSS = {
    **dict.fromkeys(("nat", "nats", "nats_per_token", "nats_token"), "nats"),
    **dict.fromkeys(("bit", "bits", "bits_per_token", "bits_token", "bpt"), "bits"),
    **dict.fromkeys(("bpb", "bits_per_byte", "bits_byte"), "bpb"),
}


def counted(names: Iterable[str], has: Iterable[str]) -> dict[str, str]:
    """``{ours: theirs}`` of counts that a table gives only in a unit."""
    stems: dict[str, str] = {}
    for name in names:
        stem, unit = parted(name)
        if unit:
            stems.setdefault(stem, name)
    return {
        ours: next(stems[one] for one in (ours, *ALIASES[ours]) if one in stems)
        for ours in MOST
        if ours not in set(has) and any(one in stems for one in (ours, *ALIASES[ours]))
    }


def all_scaled(held: Mapping[str, list[Any]], names: Mapping[str, str]) -> tuple[dict[str, list[Any]], list[str]]:
    """(columns by our names with no count in a unit that its name tells, sentences). names: ``{ours: theirs}``."""
    found, said = dict(held), []
    for ours, theirs in names.items():
        _, unit = parted(theirs)
        if ours not in MOST or ours not in found or not unit:
            continue
        word, factor = UNITS[unit]
        if max(filter(is_number, found[ours]), default=0.0) * factor > MOST[ours]:
            said.append(f"{theirs} is too large for {word} and is read as it is")
            continue
        found[ours] = [float(f"{value * factor:.15g}") if is_number(value) else value for value in found[ours]]
        said.append(f"{theirs} is in {word}")
    return found, said


LLAMA_MULTIPLIER = "ffn_dim_multiplier"
LARGEST_MULTIPLIER = 2.0  # Llama 3 has 1.3; a larger value is a ratio of widths


def as_ratio(held: Mapping[str, list[Any]], theirs: str) -> tuple[dict[str, list[Any]], list[str]]:
    """(columns, sentences) with Llama's multiplier of the MLP as a ratio of widths: its inner width is 8/3 times the
    multiplier times the width, before it is rounded to ``multiple_of``, of an MLP with a gate. theirs: the table's name
    of ``mlp_ratio``."""
    values = held.get("mlp_ratio", [])
    if not plain(theirs).endswith(LLAMA_MULTIPLIER) or max(filter(is_number, values), default=9.0) > LARGEST_MULTIPLIER:
        return dict(held), []
    ratios = [8.0 / 3.0 * value if is_number(value) else value for value in values]
    return (
        {"gated": [True] * len(values), **held, "mlp_ratio": ratios},
        [f"{theirs} is Llama's: the inner width is {theirs} × 8/3 × width, of a gated MLP; a column d_ff wins over it"],
    )


def in_rows(rows: Sequence[Row], names: Sequence[str]) -> str | None:
    """Unit of the losses that a column names in each row; None without one.

    Raises:
        InputError: the rows have several.
    """
    for name in (one for one in names if plain(one) in OF_LOSS):
        counts = Counter(str(row[name]) for row in rows if row[name] is not None and row["loss"] is not None)
        words = {value: WORDS_OF_LOSS.get(plain(value)) for value in counts}
        found = {word for word in words.values() if word}
        if not found or None in words.values():
            continue
        if len(found) > 1:
            shown = join(f"{value} in {count} rows" for value, count in counts.most_common())
            most = condition.equals(name, counts.most_common(1)[0][0])
            raise InputError(
                f"loss: {shown} (column {name!r}); must be in one unit: 1 nat is 1.4427 bits; "
                + example(f"where={most!r}", condition.option(most))
                + " fits one alone, "
                + example(f"drop=[{name!r}]", f"--drop {shlex.quote(name)}")
                + " takes all as they are"
            )
        return found.pop()
    return None
