"""Support of the trainer's tests: a small real store, packs, and a recorder that keeps all reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from corpus_tools import data_spec, write_texts
from spec_tools import filled

from dwsweep.data.prepare import prepare
from dwsweep.data.token_store import Store
from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import Compute, Model, build
from dwsweep.plan import Pack, Replica
from dwsweep.records.metrics import MetricsRow
from dwsweep.records.pack import StartFacts
from dwsweep.records.record import to_dict
from dwsweep.records.run import RunResult
from dwsweep.spec import Spec, parse_spec
from dwsweep.train import Recorder
from dwsweep.train.pack_trainer import train_pack

TINY = {
    "name": "tiny",
    "grid": {"widths": {2: [16]}},
    "data": {"vocab_size": 256},
    "model": {"base_width": 16},
    "train": {"seq_len": 16, "batch_size": 4, "steps": 12, "warmup_steps": 2},
    "execution": {"log_steps": 1},
}


OPTIMIZED: dict[str, str | bool | int | float] = {"xla_backend_optimization_level": 3}
"""Options by which XLA compiles one function as it does without the flags of the tests (see ``tests/conftest.py``)."""
if "xla_cpu_use_fusion_emitters" in os.environ.get("XLA_FLAGS", ""):
    OPTIMIZED["xla_cpu_use_fusion_emitters"] = True

REORDERED = 2e-4
"""Nats by which two float32 programs may differ after some steps: they add the same numbers in another order. Measured
between programs of a CPU: 1e-6. Training carries roundings on, and an accelerator has other exponentials."""

FEW = {"biases": False, "tied_embeddings": True}
"""A model of few arrays, for what is compiled with all optimizations: each array is compiled for."""


def make_store(folder: Path) -> Store:
    """Forty documents as bytes (vocabulary 256): real files, prepared in under a second."""
    source = write_texts(folder / "text", words=200)
    return prepare(data_spec(source, folder / "cache", vocab_size=256, validation_fraction=0.15), progress=False)


def compile_for(platform: str, patch: pytest.MonkeyPatch) -> list[str]:
    """From here on what is written for ``platform`` alone is what runs here; returns a list that names it each time."""
    taken: list[str] = []

    def chosen(*arguments: Any, default: Callable[..., Any], **others: Callable[..., Any]) -> Any:
        taken.append(platform)
        return others.get(platform, default)(*arguments)

    patch.setattr(jax.lax, "platform_dependent", chosen)
    return taken


def make_spec(**sections: dict[str, Any]) -> Spec:
    """A tiny spec: vocabulary 256, sequences of 16, batches of 4, 12 steps."""
    content = filled(TINY, **sections)
    if "tokens" in content["train"]:
        del content["train"]["steps"]
    return parse_spec(content)


def make_model(
    spec: Spec | None = None, depth: int = 2, width: int = 16, compute: Compute = Compute(), rate: float = 1.0
) -> Model:
    spec = spec or make_spec()
    shape = spec.block().shape(depth, width)
    return build(shape, resolve(shape, spec.model, spec.train, rate), compute)


def make_pack(
    store: Store,
    spec: Spec | None = None,
    *,
    depth: int = 2,
    width: int = 16,
    replicas: tuple[tuple[int, float], ...] = ((0, 1e-2), (1, 1e-2)),
    branch_steps: tuple[int, ...] | None = None,
) -> Pack:
    """A pack of (seed, learning rate) replicas."""
    spec = spec or make_spec()
    steps = branch_steps or (spec.train.steps or 0,)
    return Pack(
        pack_id="pack",
        shape=spec.block().shape(depth, width),
        replicas=tuple(Replica(s, lr, tuple(f"s{s}-lr{lr:g}-{n}" for n in steps)) for s, lr in replicas),
        branch_steps=steps,
        model=spec.model,
        train=spec.train,
        execution=spec.execution,
        data_hash=store.data_hash,
    )


def stop_after(dispatches: int) -> Callable[[], bool]:
    asked = iter([False] * dispatches)
    return lambda: next(asked, True)


def train(pack: Pack, store: Store, folder: Any, *stops: int, steps: int = 3) -> Kept:
    """What is recorded of a pack that is interrupted after each number of dispatches in ``stops``, then ends."""
    kept = Kept()
    for dispatches in stops:
        assert not train_pack(pack, store, folder, kept, should_stop=stop_after(dispatches), dispatch_steps=steps)
    assert train_pack(pack, store, folder, kept, dispatch_steps=steps)
    return kept


class Kept(Recorder):
    """A recorder that keeps all it receives; rows recorded again replace the earlier ones, as the contract says."""

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []
        self.tried: list[int] = []
        self.rows: dict[str, dict[int, dict[str, Any]]] = {}
        self.results: dict[str, RunResult] = {}
        self.documents: dict[str, np.ndarray] = {}
        self.params: dict[str, Any] = {}
        self.ended: dict[str, tuple[int, float]] = {}
        self.notes: list[str] = []
        self.dispatches: list[tuple[int, int]] = []
        self.flushed_at = 0  # last step recorded before the last flush

    def compiling(self, microbatch: int) -> None:
        self.tried.append(microbatch)

    def started(self, facts: StartFacts) -> None:
        self.facts.append(to_dict(facts))  # as its file has it

    @property
    def resumes(self) -> list[int]:
        """Steps at which attempts went on from a checkpoint."""
        return [facts["step"] for facts in self.facts if facts["step"]]

    def metrics(self, run_id: str, rows: list[MetricsRow]) -> None:
        self.rows.setdefault(run_id, {}).update({row["step"]: row for row in rows})

    def progress(self, step: int, steps: int, tokens_per_second: float, losses: list[float]) -> None:
        self.dispatches.append((step, steps))

    def finished(self, run_id: str, result: RunResult, documents: np.ndarray, params: Any = None) -> None:
        self.results[run_id], self.documents[run_id] = result, documents
        if params is not None:
            self.params[run_id] = params

    def diverged(self, run_id: str, step: int, loss: float) -> None:
        self.ended[run_id] = (step, loss)

    def flush(self) -> None:
        self.flushed_at = max((max(rows) for rows in self.rows.values()), default=0)

    def note(self, message: str) -> None:
        self.notes.append(message)

    def losses(self, run_id: str) -> list[float]:
        """Training loss of each step, in order."""
        return [self.rows[run_id][step]["loss"] for step in sorted(self.rows[run_id])]


class Killed(Exception):
    """Abrupt end, as by ``kill -9``: nothing runs after it."""


class KilledAt(Kept):
    """Ends the trainer at a step, between two checkpoints."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def progress(self, step: int, steps: int, tokens_per_second: float, losses: list[float]) -> None:
        super().progress(step, steps, tokens_per_second, losses)
        if step == self.at:
            raise Killed


def tree(value: float, size: int = 500) -> dict[str, Any]:
    """Arrays of three kinds, as a checkpoint holds them."""
    return {
        "w": jnp.full((3, size), value, jnp.float32),
        "alive": jnp.array([True, False, True]),
        "step": jnp.int32(value),
    }


def same_bits(a: Kept, b: Kept) -> None:
    """Both recorders heard of the same runs with the same numbers, to the last bit; clocks aside.

    On an accelerator, which may add in no fixed order, losses may differ by ``REORDERED``.
    """
    assert a.results.keys() == b.results.keys() and a.rows.keys() == b.rows.keys()
    if jax.default_backend() != "cpu":
        for run_id in a.results:
            np.testing.assert_allclose(a.losses(run_id), b.losses(run_id), atol=REORDERED, rtol=0)
            assert abs(a.results[run_id].loss - b.results[run_id].loss) <= REORDERED
        return
    assert repr(a.ended) == repr(b.ended)  # a loss may be NaN
    for run_id in a.results:
        for key in ("loss", "loss_stderr", "bits_per_byte", "train_loss", "steps", "tokens"):
            assert getattr(a.results[run_id], key) == getattr(b.results[run_id], key), (run_id, key)
        np.testing.assert_array_equal(a.documents[run_id], b.documents[run_id])
    for run_id, rows in a.rows.items():
        assert rows.keys() == b.rows[run_id].keys(), run_id
        for step, row in rows.items():
            other = b.rows[run_id][step]
            for key in ("loss", "learning_rate", "grad_norm"):
                assert repr(row[key]) == repr(other[key]), (run_id, step, key)  # by text: NaN equals NaN
