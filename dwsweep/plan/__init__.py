"""Spec → Runs and Packs: shapes, seeds, learning rates, cost, ids; RUN, SKIP or DROP with the reason."""

from dwsweep.plan.expand import build, mismatch
from dwsweep.plan.ids import UNHASHED, run_id
from dwsweep.plan.units import DROP, RUN, SKIP, DataFacts, Plan, Run
from dwsweep.records.pack_files import Pack, Replica

__all__ = [
    "DROP",
    "RUN",
    "SKIP",
    "UNHASHED",
    "DataFacts",
    "Pack",
    "Plan",
    "Replica",
    "Run",
    "build",
    "mismatch",
    "run_id",
]
