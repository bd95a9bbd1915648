"""Footing of a run's last bits: found here, and compared with another attempt's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dwsweep.records import footing
from dwsweep.records.footing import Footing, differences
from dwsweep.records.pack import StartFacts


def test_the_footing_here_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    found = footing.here(3, "cpu")
    assert found.flags["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=true" and "JAX_PLATFORMS" not in found.flags
    assert found.workers == 3 and (found.cores or 0) >= 1 and {"jax", "jaxlib", "python"} <= set(found.versions)
    assert all(one.islower() for one in found.instructions) and "smep" not in found.instructions


ONE = Footing("a", "EPYC", ("avx2", "avx512f"), 2, 1, {"XLA_FLAGS": "--x"}, "cpu", {"jax": "0.10.2", "python": "3.11"})


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (replace(ONE, host="b"), []),
        (replace(ONE, cores=1), ["cores 2 → 1"]),
        (replace(ONE, cores=None), []),  # not known there
        (replace(ONE, flags={}), ["flags.XLA_FLAGS --x → none"]),
        (replace(ONE, versions={"jax": "0.11.0", "python": "3.11"}), ["versions.jax 0.10.2 → 0.11.0"]),
        (
            replace(ONE, instructions=("avx2", "amx_tile"), processor="Xeon"),
            ["processor EPYC → Xeon", "instructions without avx512f, with amx_tile"],
        ),
    ],
)
def test_what_differs_is_named(other: Footing, expected: list[str]) -> None:
    assert list(differences(vars(ONE), vars(other))) == expected


def test_choices_of_the_program_are_part_of_it() -> None:
    one = StartFacts("cpu", 2, {"replica": 2}, microbatch=16, attention_kernel="xla", footing=ONE)
    other = replace(one, devices=1, mesh={"replica": 1}, microbatch=8, step=7, compile_seconds=1.0)
    assert one.differences(other) == ["devices 2 → 1", "mesh.replica 2 → 1", "microbatch 16 → 8"]
    assert one.differences(replace(one, footing=None)) == [] == StartFacts().differences(one)
