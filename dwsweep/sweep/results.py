"""results.csv: one row a run, derived from the directories and rebuilt whenever something finished."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from dwsweep import paths
from dwsweep.locks import exclusive
from dwsweep.sweep.states import DONE, RUNNING

if TYPE_CHECKING:
    from dwsweep.sweep.store import SweepStore

COLUMNS = (
    *("run_id", "depth", "width", "heads", "head_size", "seed", "learning_rate", "parametrization", "budget"),
    *("n_params", "n_params_total", "tokens", "steps", "loss", "loss_stderr", "bits_per_byte", "status"),
    *("wall_seconds", "tokens_per_second", "flops"),
    *("batch_size", "seq_len", "vocab_size", "optimizer", "schedule", "precision", "attention_kernel", "data_hash"),
    *("device_kind", "pack_size", "device_seconds"),
)
_FROM_SHAPE = ("depth", "width", "heads", "head_size", "seq_len", "vocab_size")
_FROM_TRAIN = ("batch_size", "optimizer", "schedule", "precision")
_FROM_RESULT = (
    *("loss", "loss_stderr", "bits_per_byte", "wall_seconds", "tokens_per_second", "flops", "attention_kernel"),
    *("device_kind", "pack_size", "device_seconds"),
)


def rows(store: SweepStore) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rows of the planned runs in the plan's order, rows of the orphans).

    An orphan has a directory and is not in the plan any more: the spec was edited. It is kept and shown apart, so that
    a fit does not mix two settings.
    """
    planned = [row["run_id"] for row in store.planned() if row["action"] != "DROP"]
    orphans = sorted(set(store.run_ids()) - set(planned)) if planned else []
    known = planned or store.run_ids()
    return [row(store, run_id) for run_id in known], [row(store, run_id) for run_id in orphans]


def row(store: SweepStore, run_id: str) -> dict[str, Any]:
    """One run as results.csv has it; what is not known is None."""
    config, state = store.config(run_id), store.state(run_id)
    result = store.result(run_id) if state.state == DONE else {}
    shape, train = config.get("shape", {}), config.get("train", {})
    found: dict[str, Any] = {"run_id": run_id, "status": "interrupted" if state.state == RUNNING else state.state}
    found |= {name: config.get(name) for name in ("seed", "learning_rate", "budget", "n_params", "n_params_total")}
    found |= {name: config.get(name) for name in ("tokens", "steps", "data_hash")}
    found |= {name: shape.get(name) for name in _FROM_SHAPE} | {name: train.get(name) for name in _FROM_TRAIN}
    found |= {name: result.get(name) for name in _FROM_RESULT}
    found["parametrization"] = config.get("model", {}).get("parametrization")
    return {name: found.get(name) for name in COLUMNS}


def rebuild(store: SweepStore) -> Any:
    """Write results.csv, and orphans.csv where there are any; returns the path of results.csv."""
    # reading and replacing go together, lest a slower shard put back an older table
    with exclusive(store.directory / "locks" / "results.guard"):
        planned, orphans = rows(store)
        _write(store.results_path, planned)
        apart = store.directory / "orphans.csv"
        if orphans:
            _write(apart, orphans)
        elif apart.exists():
            apart.unlink()
    return store.results_path


def _write(path: Any, content: list[dict[str, Any]]) -> None:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(content)
    paths.write_atomic(path, buffer.getvalue())
