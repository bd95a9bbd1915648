"""Sweeps on the stand-in trainer."""

from __future__ import annotations

from pathlib import Path

import pytest
import sweep_bucket
from sweep_tools import LEASE_SECONDS, Sweep, train_here, with_standin

from dwsweep.sweep import claim


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners renew their locks several times a second, here and in processes of their own."""
    monkeypatch.setenv("DWSWEEP_LEASE_SECONDS", str(LEASE_SECONDS))
    monkeypatch.setattr(claim, "LEASE_SECONDS", LEASE_SECONDS)
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", LEASE_SECONDS / 6)


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The stand-in takes the trainer's place, here and in workers; ``order(tmp_path, …)`` tells it what to do."""
    for name, value in with_standin(SWEEP_STANDIN=str(tmp_path / "orders.json")).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def standin_here(standin: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process too: for tests of what is decided and written, not of processes that die."""
    train_here(monkeypatch)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


@pytest.fixture(params=["lock", "lease"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A sweep directory: owned by a lock of the kernel, or by a lease in a bucket."""
    sweep_bucket.lead_to(tmp_path / "bucket", monkeypatch)
    monkeypatch.setenv("DWSWEEP_CACHE", str(tmp_path / "cache"))
    return str(tmp_path / "sweep") if request.param == "lock" else "gs://b/sweep"
