"""What the trainer reports, and to whom; without JAX, for those who only listen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dwsweep.records.pack import StartFacts
from dwsweep.records.run import MetricsRow, RunResult


class Recorder:
    """Receives what a pack yields: the one interface through which its progress and results leave the trainer.

    Training knows no sweep directory; whoever holds one overrides these methods. As they stand here, nothing is
    recorded.
    """

    def compiling(self, microbatch: int) -> None:
        """Before compilation, which may fail for want of memory: the microbatch that is being tried."""

    def started(self, facts: StartFacts) -> None:
        """Once per (re)start, after compilation."""

    def resumed(self, step: int) -> None:
        """The pack is resumed from this step: whatever was recorded beyond it will be recorded again."""

    def metrics(self, run_id: str, rows: list[MetricsRow]) -> None:
        """Rows of the steps since the last call."""

    def progress(self, step: int, steps: int, tokens_per_second: float, losses: list[float]) -> None:
        """Once per dispatch: steps done of all, the pack's rate over all replicas, the last loss of each replica."""

    def evaluating(self, share: float) -> None:
        """While the held-out set is read, which takes minutes where it is large: the share of it that is done."""

    def finished(
        self, run_id: str, result: RunResult, documents: np.ndarray, params: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """A run is done. ``documents`` (n_documents, 2): summed nats and tokens of each held-out document; ``params``:
        float32 arrays by their dotted name, where they are to be kept."""

    def diverged(self, run_id: str, step: int, loss: float) -> None:
        """A run ended with a loss that is not finite or beyond the bound; its pack continues without it."""

    def flush(self) -> None:
        """Right before a checkpoint is saved: what was recorded up to its step must outlive this host, as it does."""

    def note(self, message: str) -> None:
        """Something to know: a corrupt checkpoint passed over, a fallback of the attention kernel."""
