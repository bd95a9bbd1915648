"""Arm of a comparison: one recipe, with its runs and its curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dwsweep.fit.cells import Run
from dwsweep.fit.curves import Curves
from dwsweep.fit.documents import Documents
from dwsweep.text import NATS, join


@dataclass(frozen=True)
class Arm:
    """One recipe: its runs, their curves, and its held-out documents if every run has them.

    label: name of the arm. source, sha256: of its table. diverged: number of diverged runs and their treatment, in
    words; empty for none. eval_tokens: of the held-out set, as its spec has them; empty if that is not known. unit: of
    the losses.
    """

    label: str
    source: str
    sha256: str
    runs: Sequence[Run]
    curves: Curves
    held_out: Documents | None = None
    diverged: str = ""
    eval_tokens: str = ""
    unit: str = NATS
    warnings: Sequence[str] = ()


def different_text(a: Arm, b: Arm) -> str:
    """Reason why the arms saw different texts in training or evaluation; empty if nothing shows that."""
    for name, what in (
        ("vocab_size", "vocabularies"),
        ("data_hash", "data"),
        ("seq_len", "sequence lengths"),
    ):
        one, other = ({run.row[name] for run in arm.runs if run.row.get(name) is not None} for arm in (a, b))
        if one and other and one != other:
            shown = [join(sorted(str(value)[:12] for value in values)) for values in (one, other)]
            return f"different {what} ({shown[0]} and {shown[1]})"
    if a.eval_tokens and b.eval_tokens and a.eval_tokens != b.eval_tokens:
        return f"different held-out sets (train.eval_tokens {a.eval_tokens} and {b.eval_tokens})"
    return ""
