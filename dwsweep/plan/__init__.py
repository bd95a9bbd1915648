"""Spec → Runs and Packs: shapes, seeds, learning rates, cost, ids; RUN, SKIP or DROP with the reason."""

from __future__ import annotations

from dwsweep.plan.expand import build
from dwsweep.plan.units import DataFacts, Plan, Run
from dwsweep.records.pack import Pack, Replica
from dwsweep.records.sweep import DROP, RUN, SKIP

__all__ = [
    "DROP",
    "RUN",
    "SKIP",
    "DataFacts",
    "Pack",
    "Plan",
    "Replica",
    "Run",
    "build",
]
