"""Provenance of the numbers on a page: runs, sweep, last call, fit and spec."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from dwsweep import paths
from dwsweep.records.fit import Fit
from dwsweep.records.record import to_dict
from dwsweep.report.document import Fold, Heading, Lines, Part, Table, label, prose
from dwsweep.report.runs_table import Row
from dwsweep.sweep.directory import SweepStore


def provenance_parts(fit: Fit | None, runs: Sequence[Row], root: Any) -> list[Part]:
    """Provenance of the numbers, folded: runs, sweep, last call, fit, spec."""
    manifest = to_dict(SweepStore(root).manifest)

    def distinct(name: str) -> str:
        texts = {str(row[name]) for row in runs if row.get(name) is not None}
        values = sorted(texts, key=lambda value: (len(value), value))
        return ", ".join(values) if len(values) <= 12 else f"{', '.join(values[:12])} and {len(values) - 12} more"

    names = (
        *("seed", "tokens", "steps", "batch_size", "seq_len", "vocab_size", "parametrization", "optimizer"),
        *("schedule", "precision", "attention_kernel", "device_kind", "data_hash"),
    )
    parts = _facts("Runs", {name.replace("_", " "): distinct(name) for name in names})
    if any(manifest.values()):
        parts += _facts("Sweep", {key: value for key, value in manifest.items() if key not in ("calls", "rates")})
        if calls := manifest.get("calls"):
            parts += _facts("Last call", calls[-1])
    if fit is not None:
        parts += _facts("Fit", {**fit.provenance.to_dict(), "noise": fit.noise.to_dict()})
    with contextlib.suppress(OSError, UnicodeDecodeError):
        spec = paths.read_text(root / "spec.yaml")
        parts.append(Fold("The spec", [Lines([spec], verbatim=True)]))
    return [Fold("What the numbers were made with", parts)]


def _facts(title: str, facts: Mapping[str, Any]) -> list[Part]:
    """Titled list of facts; empty without facts."""
    table = Table("", [label("fact"), prose("value")], headed=False)
    for key, value in flat(facts).items():
        table.add(key, value)
    return [Heading(title), table] if table.rows else []


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flat mapping with dotted keys, without empty values."""
    out: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            out |= flat(item, f"{prefix}{key}.")
        elif item not in (None, "", [], ()):
            out[f"{prefix}{key}"] = " ".join(map(str, item)) if isinstance(item, (list, tuple)) else str(item)
    return out
