"""Footing of a run's last bits: found here, and compared with another attempt's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dwsweep.records import footing
from dwsweep.records.footing import Footing
from dwsweep.records.pack import StartFacts


def test_the_footing_here_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    found = footing.here(3, "cpu")
    assert found.flags["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=true" and "JAX_PLATFORMS" not in found.flags
    assert found.workers == 3 and (found.cores or 0) >= 1 and {"jax", "jaxlib", "python"} <= set(found.versions)
    assert all(one.islower() for one in found.instructions) and "smep" not in found.instructions


ONE = Footing("a", "EPYC", ("avx2", "avx512f"), 2, 1, {"XLA_FLAGS": "--x"}, "cpu", {"jax": "0.10.2", "python": "3.11"})


def test_what_changed_is_named_and_what_is_unknown_is_not() -> None:
    one = StartFacts("cpu", 2, {"replica": 2}, microbatch=16, attention_kernel="xla", footing=ONE)
    other = replace(one, devices=1, mesh={"replica": 1}, microbatch=8, step=7, compile_seconds=1.0)
    assert one.differences(other) == ["devices", "mesh", "microbatch"]
    assert one.differences(replace(one, footing=None)) == [] == StartFacts().differences(one)
    changed = replace(ONE, host="b", cores=None, flags={}, versions={"jax": "0.11.0", "python": "3.11"})
    assert one.differences(replace(one, footing=changed)) == ["flags", "versions"]
