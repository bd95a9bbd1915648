"""Spec → Runs and Packs: shapes, seeds, learning rates, cost, ids; RUN, SKIP or DROP with the reason."""

from dwsweep.plan.arm_plans import build
from dwsweep.plan.expand import UNHASHED, mismatch, run_id
from dwsweep.plan.units import DataFacts, Plan, Run
from dwsweep.records.pack_files import Pack, Replica
from dwsweep.records.sweep_tables import DROP, RUN, SKIP

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
