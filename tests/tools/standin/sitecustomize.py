"""Python reads this at its start, where this folder is in PYTHONPATH: in workers of a sweep the stand-in trainer then
stands where the real one would be imported from, and opens no store. ``gs://`` leads to the folder of ``SWEEP_BUCKET``
where a test names one."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any


def train_pack(*given: Any, **named: Any) -> Any:
    import sweep_standin

    return sweep_standin.train_pack(*given, **named)


def take_the_trainers_place(modules: Any) -> None:
    """``modules``: a mapping such as ``sys.modules``."""
    trainer: Any = ModuleType("dwsweep.train.pack_trainer")
    trainer.train_pack = train_pack
    trainer.Store = type("Store", (), {"open": staticmethod(lambda path: path)})
    modules[trainer.__name__] = trainer


if "dwsweep.sweep" in sys.orig_argv:
    take_the_trainers_place(sys.modules)

if "SWEEP_BUCKET" in os.environ:
    import sweep_bucket  # noqa: F401
