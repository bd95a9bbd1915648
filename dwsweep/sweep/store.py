"""The sweep directory: what is where, read and written. The directories are the truth; ``results.csv`` follows.

spec.yaml  plan.csv  results.csv  manifest.json
packs/<pack_id>/pack.json  state.json  progress.json  log.txt  checkpoints/
runs/<run_id>/config.json  metrics.jsonl  status.json  result.json  documents.npy
locks/
"""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from dwsweep import paths
from dwsweep.plan import DROP, Pack, Plan, Run
from dwsweep.plan import rows as plan_rows
from dwsweep.sweep.states import DONE, FAILED, FINAL, OOM, STOPPED, PackState, RunState


class SweepStore:
    """Reads and writes one sweep directory. Holds no state: several processes may each have one."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = paths.as_path(directory)

    # what is where

    def pack_directory(self, pack_id: str) -> Any:
        return self.directory / "packs" / pack_id

    def run_directory(self, run_id: str) -> Any:
        return self.directory / "runs" / run_id

    @property
    def results_path(self) -> Any:
        return self.directory / "results.csv"

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, devices, git commit and the calls that made this sweep; empty before the first."""
        return paths.read_json(self.directory / "manifest.json") or {}

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        paths.write_json(self.directory / "manifest.json", dict(content))

    # plan

    def write_plan(self, plan: Plan) -> None:
        """Write spec.yaml, plan.csv and the config.json of every run that is to be trained and has none yet."""
        paths.make_directory(self.directory / "runs")
        paths.make_directory(self.directory / "packs")
        paths.write_atomic(self.directory / "spec.yaml", plan.spec.to_yaml())
        there = set(self.run_ids())
        for run in plan.runs:
            if run.action == DROP:
                continue
            directory = self.run_directory(run.run_id)
            if run.run_id in there and self.config(run.run_id):
                continue
            paths.make_directory(directory)
            paths.write_json(directory / "config.json", run_config(run, plan))
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, plan_rows.COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(plan_rows.to_rows(plan))
        # last: whoever finds a run in the plan finds its config.json too
        paths.write_atomic(self.directory / "plan.csv", buffer.getvalue())

    def planned(self) -> list[dict[str, str]]:
        """The rows of plan.csv, in its order; none before the first ``run``."""
        try:
            text = (self.directory / "plan.csv").read_text()
        except FileNotFoundError:
            return []
        return list(csv.DictReader(io.StringIO(text)))

    # runs

    def run_ids(self) -> list[str]:
        """Every run that has a directory, orphans included."""
        return paths.names_in(self.directory / "runs")

    def config(self, run_id: str) -> dict[str, Any]:
        """All facts of a run, from its config.json; empty when there is none."""
        return paths.read_json(self.run_directory(run_id) / "config.json") or {}

    def state(self, run_id: str) -> RunState:
        """Where a run stands; ``done`` without a readable result.json is pending: it has to be trained again."""
        content = paths.read_json(self.run_directory(run_id) / "status.json")
        state = RunState.from_dict(content) if content else RunState()
        return RunState() if state.state == DONE and not self.result(run_id) else state

    def write_state(self, run_id: str, state: RunState) -> None:
        directory = paths.make_directory(self.run_directory(run_id))
        content = replace(state, updated=time.time()).to_dict()
        paths.write_json(directory / "status.json", content, durable=state.state in FINAL)

    def result(self, run_id: str) -> dict[str, Any]:
        """What a finished run yielded; empty before."""
        return paths.read_json(self.run_directory(run_id) / "result.json") or {}

    def finish(self, run_id: str, pack_id: str, result: Mapping[str, Any], documents: Any) -> None:
        """Record a finished run: the arrays and the figures first, ``done`` last, so that done means complete."""
        directory = paths.make_directory(self.run_directory(run_id))
        paths.write_array(directory / "documents.npy", documents)
        paths.write_json(directory / "result.json", dict(result), durable=True)
        self.write_state(run_id, RunState(DONE, step=result.get("steps"), loss=result.get("loss"), pack_id=pack_id))

    def finished(self, retry: Collection[str] = ()) -> dict[str, str]:
        """State by id of the runs that need no training; those of a state in ``retry`` (failed, diverged) left out.

        ``retry`` of ``failed`` covers ``oom``.
        """
        again = {FAILED, OOM} if FAILED in retry else set()
        again |= set(retry)
        states = {run_id: self.state(run_id).state for run_id in self.run_ids()}
        return {k: state for k, state in states.items() if state in FINAL | STOPPED and state not in again}

    # packs

    def pack_ids(self) -> list[str]:
        return paths.names_in(self.directory / "packs")

    def pack(self, pack_id: str) -> Pack | None:
        """The pack as it was first written: its membership stands."""
        content = paths.read_json(self.pack_directory(pack_id) / "pack.json")
        return Pack.from_dict(content) if content else None

    def write_pack(self, pack: Pack, **record: Any) -> None:
        """Write pack.json; ``record`` says why the pack is not as planned (``rebuilt_from``, ``reason``)."""
        directory = paths.make_directory(self.pack_directory(pack.pack_id))
        paths.write_json(directory / "pack.json", {**pack.to_dict(), **record}, durable=True)

    def clear_pack(self, pack_id: str) -> None:
        """Drop what a pack without a pack.json left: its checkpoints may be of other replicas, or of a finished pack
        whose results were deleted in order to have them trained again."""
        for name in ("checkpoints", "state.json", "progress.json"):
            paths.remove(self.pack_directory(pack_id) / name)

    def pack_state(self, pack_id: str) -> PackState:
        content = paths.read_json(self.pack_directory(pack_id) / "state.json")
        return PackState.from_dict(content) if content else PackState()

    def write_pack_state(self, pack_id: str, state: PackState) -> None:
        paths.write_json(self.pack_directory(pack_id) / "state.json", state.to_dict())

    def progress(self, pack_id: str) -> dict[str, Any]:
        """Where a pack stands: step, steps, tokens_per_second, losses, started facts; empty before its first start."""
        return paths.read_json(self.pack_directory(pack_id) / "progress.json") or {}

    def newest_checkpoint(self, pack_id: str) -> int:
        """Number of the newest checkpoint, which grows with each that is written; 0: there is none."""
        names = paths.names_in(self.pack_directory(pack_id) / "checkpoints")
        return max((int(name.rstrip("/")) for name in names if name.rstrip("/").isdigit()), default=0)

    def log_path(self, pack_id: str) -> Any:
        return self.pack_directory(pack_id) / "log.txt"

    def rebuild_results(self) -> Any:
        """Write results.csv from the directories alone; returns its path."""
        from dwsweep.sweep import results

        return results.rebuild(self)


def run_config(run: Run, plan: Plan) -> dict[str, Any]:
    """Everything that config.json says of a run: facts are read from here, never from a name."""
    spec = plan.spec
    return {
        "run_id": run.run_id,
        "pack_id": run.pack_id,
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "budget": run.budget,
        "steps": run.steps,
        "tokens": run.tokens,
        "n_params": run.shape.n_params,
        "n_params_total": run.shape.n_params_total,
        "data_hash": plan.data.data_hash if plan.data else None,
        "shape": run.shape.to_dict(),
        "model": spec.model.model_dump(mode="json"),
        "data": spec.data.model_dump(mode="json", exclude={"cache_dir", "workers"}),
        "train": spec.train.model_dump(mode="json"),
    }
