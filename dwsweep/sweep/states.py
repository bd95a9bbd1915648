"""The states of runs and packs under one name, for the modules of a sweep; the records own them."""

from dwsweep.records.pack_files import REBUILT, PackEvent, PackProgress, PackState
from dwsweep.records.run_files import (
    DIVERGED,
    DONE,
    FAILED,
    FINAL,
    INTERRUPTED,
    OOM,
    PENDING,
    RUN_STATES,
    RUNNING,
    STOPPED,
    RunState,
)

__all__ = [
    "DIVERGED",
    "DONE",
    "FAILED",
    "FINAL",
    "INTERRUPTED",
    "OOM",
    "PENDING",
    "REBUILT",
    "RUNNING",
    "RUN_STATES",
    "STOPPED",
    "PackEvent",
    "PackProgress",
    "PackState",
    "RunState",
]
