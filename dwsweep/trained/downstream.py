"""Downstream tasks of lm-evaluation-harness (extra ``eval``) on trained runs: scores go to ``runs/<run_id>/eval.json``
and results.csv."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dwsweep.errors import InputError, install
from dwsweep.records.evaluation import Evaluation, TaskScores
from dwsweep.sweep.snapshot import rebuild_results
from dwsweep.text import one_line
from dwsweep.trained import huggingface
from dwsweep.trained.runs import TrainedRun

PACKAGES = ("lm_eval", "torch", "transformers")
RESAMPLES = 1000  # draws of the bootstrap, for standard errors without a formula


def evaluate(
    runs: Sequence[TrainedRun],
    tasks: Sequence[str],
    include: Any = None,
    limit: int | None = None,
    shots: int | None = None,
    batch_size: int = 16,
) -> Any:
    """Evaluate every run that lacks these tasks with these settings; returns the path of results.csv.

    Each run is exported into a temporary folder, evaluated and recorded before the next one. ``include``: a folder with
    the user's task files. A fit takes the least of a column for the best, in nats: a share that should be high
    (``acc``) has 1 − share beside it (``error``), a ``perplexity`` its logarithm (``nats``).

    Raises:
        InputError: the harness is not installed, has no such task or cannot read its data; a run cannot be exported.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"eval: {', '.join(missing)} not installed: {install('eval')}")
    huggingface.architectures_of(runs)
    manager = _known(tasks, include)
    found = {name: version(name) for name in PACKAGES}
    for number, run in enumerate(runs, start=1):
        before = run.sweep.evaluation(run.run_id) or Evaluation(run.run_id, str(run.result.params_sha256), {})
        same = {task for task, scores in before.tasks.items() if (scores.limit, scores.shots) == (limit, shots)}
        todo = [task for task in tasks if task not in same]
        _say(f"{number}/{len(runs)} {run.run_id}: {', '.join(todo) if todo else 'evaluated before'}")
        if not todo:
            continue
        with tempfile.TemporaryDirectory(prefix="dwsweep-eval-") as folder:
            huggingface.export([run], Path(folder) / "model")
            told = _scores(Path(folder) / "model", todo, manager, limit, shots, batch_size)
        scored = {task: TaskScores(*told[task], limit, shots, found) for task in told}
        run.sweep.write(run.run_id, replace(before, tasks={**before.tasks, **scored}))
    return rebuild_results(runs[0].sweep)


def _known(tasks: Sequence[str], include: Any) -> Any:
    """Task list of the harness, checked to hold ``tasks``."""
    import difflib

    import lm_eval
    from lm_eval.tasks import TaskManager

    if include is not None and not include.is_dir():
        raise InputError(f"--include: {include}; must be a folder with task files (YAML)")
    if not tasks:
        raise InputError("--tasks: names no task; must be names of tasks, separated by commas")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # the harness reports the defaults of every task for each run
    manager = TaskManager(include_path=None if include is None else os.fspath(include))
    for task in tasks:
        if task not in manager.all_tasks:
            near = difflib.get_close_matches(task, manager.all_tasks, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"--tasks: {task!r}; no task of lm-evaluation-harness {lm_eval.__version__}{hint}")
    try:
        manager.load(list(tasks))
    except Exception as error:  # missing data or an invalid task file: the harness has no error class
        why = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(f"--tasks: {', '.join(tasks)}; lm-evaluation-harness cannot load them: {why}") from error
    return manager


def _scores(
    model: Path, tasks: Sequence[str], manager: Any, limit: int | None, shots: int | None, batch_size: int
) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """Scores and standard errors of each task and each group, by metric."""
    import lm_eval
    import torch

    found = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": os.fspath(model), "dtype": "float32"},
        tasks=list(tasks),
        task_manager=manager,
        limit=limit,
        num_fewshot=shots,
        batch_size=batch_size,
        device="cuda" if torch.cuda.is_available() else "cpu",
        bootstrap_iters=RESAMPLES,
        log_samples=False,
    )
    assert found is not None
    return {
        task: _by_metric(numbers, found["higher_is_better"].get(task) or {})
        for task, numbers in found["results"].items()
    }


def _by_metric(numbers: dict[str, Any], higher: dict[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Values by metric; the harness joins metric and filter, ``acc,none`` and ``acc_stderr,none``."""
    scores: dict[str, float] = {}
    errors: dict[str, float] = {}
    for key, value in numbers.items():
        metric, comma, kind = key.partition(",")
        if not comma or isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            continue
        suffix = "" if kind == "none" else f"_{kind}"
        if metric.endswith("_stderr"):
            errors[metric.removesuffix("_stderr") + suffix] = float(value)
            continue
        scores[metric + suffix] = float(value)
        if higher.get(metric) and 0 <= value <= 1:
            scores[(metric.replace("acc", "error") if "acc" in metric else f"{metric}_error") + suffix] = 1 - float(
                value
            )
        if "perplexity" in metric and value > 0:
            scores[metric.replace("perplexity", "nats") + suffix] = math.log(value)
    return scores, errors


def _say(text: str) -> None:
    print(f"eval: {text}", file=sys.stderr, flush=True)
