"""Training: a pack of replicas of one shape, from seeds and windows to held-out losses.

The interface to which the trainer reports is here, free of JAX for its listeners.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dwsweep.records.metrics import MetricsRow
from dwsweep.records.pack import StartFacts
from dwsweep.records.run import RunResult


class Recorder:
    """Recorder: the one interface through which a pack's progress and results leave the trainer.

    Training knows no sweep directory; the owner of one overrides these methods. These defaults record nothing.
    """

    def compiling(self, microbatch: int) -> None:
        """Receive the microbatch that is tried next, before a compilation that may fail for lack of memory."""

    def started(self, facts: StartFacts) -> None:
        """Receive the facts of a (re)start, after compilation: records beyond its step will come again."""

    def metrics(self, run_id: str, rows: list[MetricsRow]) -> None:
        """Receive the rows of the steps since the last call."""

    def progress(self, step: int, steps: int, tokens_per_second: float, losses: list[float]) -> None:
        """Receive once per dispatch the steps done, the pack's rate over all replicas, and each replica's last loss."""

    def finished(
        self, run_id: str, result: RunResult, documents: np.ndarray, params: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Record a finished run. ``documents`` (n_documents, 2): summed nats and tokens of each held-out document;
        ``params``: float32 arrays by dotted name, if they are to be kept."""

    def diverged(self, run_id: str, step: int, loss: float) -> None:
        """Record a run whose loss is not finite or beyond the bound; its pack continues without it."""

    def flush(self) -> None:
        """Make all records durable before a checkpoint is saved: they must outlive this host, as it does."""

    def note(self, message: str) -> None:
        """Receive a note: a corrupt checkpoint passed over, a fallback of the attention kernel."""
