"""Losses of several tables in one unit: in bits per byte of text where the tokens of their vocabularies differ, or in
nats of the first table's tokens, in which the priors of a fit are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from dwsweep.errors import InputError, argument
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.table import Table
from dwsweep.text import BITS, NATS, join

IN_NATS = "_in_nats"  # key of a row: its loss as the table has it, where ``loss`` is in another unit


def in_one_unit(tables: Sequence[Table], of_first: bool = False) -> list[Table]:
    """The tables with losses in their common unit; losses of tokens of several vocabularies in bits per byte, or, if
    ``of_first``, times the nats of a bit per byte in the first table.

    Raises:
        InputError: units differ, or vocabularies do and not every row has its bits per byte.
    """
    units = list(dict.fromkeys(data.unit for data in tables))
    if len(units) > 1:
        raise InputError(f"{argument('unit')}: losses in {' and '.join(units)}; must be in one unit")
    rows = [row for data in tables for row in data.rows if row.get("loss") is not None]
    vocabularies = {float(row["vocab_size"]) for row in rows if row.get("vocab_size") is not None}
    if units[0] != NATS or len(vocabularies) < 2:
        return list(tables)
    if not all(row.get("bits_per_byte") and row["loss"] for row in rows if math.isfinite(row["loss"])):
        sizes = join(f"{size:g}" for size in sorted(vocabularies))
        raise InputError(
            f"vocab_size: {sizes}; losses per token of different vocabularies cannot be compared, allowed: one of them "
            f"(choose with {argument('where')}), or bits_per_byte in every row"
        )
    first = [row["loss"] / row["bits_per_byte"] for row in tables[0].rows if _has_loss(row)] if of_first else []
    factor, unit = (median(first), NATS) if first else (1.0, BITS)

    def by_bits(row: Row) -> Row:
        return {**row, "loss": factor * row["bits_per_byte"], IN_NATS: row["loss"]} if _has_loss(row) else row

    return [replace(data, rows=[*map(by_bits, data.rows)], unit=unit) for data in tables]


def _has_loss(row: Row) -> bool:
    return row.get("loss") is not None and math.isfinite(row["loss"])
