"""Evaluation of one run in downstream tasks: ``eval.json``, if requested."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dwsweep.records.record import Count, Name, Positive


@dataclass(frozen=True)
class TaskScores:
    """Scores of a run in one task of lm-evaluation-harness."""

    scores: dict[str, float]  # score by metric
    errors: dict[str, float]  # standard errors, if the harness gives them
    limit: Positive | None = None  # examples at most; None: all
    shots: Count | None = None  # solved examples before each; None: the task's own number
    versions: dict[str, str] | None = None


@dataclass(frozen=True)
class Evaluation:
    """``eval.json``: how a finished run does in downstream tasks."""

    run_id: Name
    params_sha256: str  # hash of the evaluated parameters
    tasks: dict[str, TaskScores]

    def columns(self) -> dict[str, float]:
        """The scores and their standard errors by the columns of results.csv: ``eval_TASK_METRIC``, ``…_stderr``."""
        found: dict[str, float] = {}
        for task, told in self.tasks.items():
            for metric, value in told.scores.items():
                name = re.sub(r"\W+", "_", f"eval_{task}_{metric}")
                found[name] = value
                if metric in told.errors:
                    found[f"{name}_stderr"] = told.errors[metric]
        return found
