"""Account of a table: number of rows used, and the reason for each row left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from dwsweep.records.fit import Account, LeftOutRows

LeftOut = tuple[str, str]  # reason for exclusion, as a predicate of rows; option that includes the rows


def account(
    read: int, used: int, before: Iterable[LeftOutRows], left_out: Iterable[Mapping[LeftOut, int]], notes: Iterable[str]
) -> Account:
    """Account of ``read`` rows, ``used`` of them in the fit; reasons that are alike add up, most rows first.

    before: rows that were out once the table was read. left_out: reason → rows, for each fitted part.
    """
    rows: Counter[LeftOut] = Counter()
    for one in before:
        rows[one.why, one.option] += one.rows
    for part in left_out:
        rows.update(part)
    ordered = sorted(rows.items(), key=lambda item: (-item[1], item[0]))
    known = tuple(LeftOutRows(rows=n, why=why, option=option) for (why, option), n in ordered if n > 0)
    rest = read - used - sum(one.rows for one in known)
    if rest > 0:
        known = (*known, LeftOutRows(rows=rest, why="count with other rows of their run"))
    return Account(read=read, used=used, left_out=known, notes=tuple(dict.fromkeys(notes)))
