"""A text to train on, programs that are compiled once, and the report of `make test-device`."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from train_support import make_store

from dwsweep.data.token_store import Store
from dwsweep.train.choices import pack_seeds
from dwsweep.train.program import Blueprint

PROGRAMS: dict[str, Any] = {}
CALLED_WITH = {"schedule", "cooldown_fraction", "steps", "tokens", "token_branches", "conditioning"}
"""Keys of ``train`` that reach a program as its arguments, or not at all."""


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def programs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal programs are traced and compiled once in a process, which is most of the time of a tiny pack: for tests of
    what is done with a program, none of how it comes about."""

    def remembered(name: str) -> Any:
        compiled = getattr(Blueprint, name)

        def again(blueprint: Blueprint, *arguments: Any) -> Any:
            pack, tokens = blueprint.pack, blueprint.tokens
            # seeds and rates are what a program is called with; why a kernel was chosen differs after a resume
            replicas = [pack_seeds(pack).index(replica.seed) for replica in pack.replicas]
            choices = replace(blueprint.choices, attention_why="")
            of_pack = (pack.shape, pack.model, pack.train.model_dump(exclude=CALLED_WITH), replicas, choices)
            key = repr((name, arguments, of_pack, tokens.dtype, tokens.n_train_tokens))
            if key not in PROGRAMS:
                PROGRAMS[key] = compiled(blueprint, *arguments)
            return PROGRAMS[key]

        return again

    for name in ("compiled_init", "compiled_evaluate", "compiled_dispatch", "compiled_heads"):
        monkeypatch.setattr(Blueprint, name, remembered(name))


REPORT = "DWSWEEP_DEVICE_REPORT"
"""Environment variable with the file of the report."""
REPORTED: list[dict[str, Any]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")[-2000:]
        told = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2), "why": why}
        REPORTED.append({**told, **dict(report.user_properties)})


def pytest_sessionfinish() -> None:
    """Write what ran, on what, with each value and its tolerance; no name of a host, user or folder."""
    if path := os.environ.get(REPORT):
        import jax

        from dwsweep.records import footing

        device = jax.local_devices()[0]
        content = {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "device_kind": device.device_kind,
            "devices": jax.local_device_count(),
            "backend": " ".join(f"{device.platform}: {device.client.platform_version}".split())[:300],
            **{
                name: found
                for name, found in asdict(footing.here(None, None)).items()
                if name not in ("host", "backend")
            },
            "tests": REPORTED,
        }
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(content, indent=1), "utf-8")
        print(f"\nwrote {path}")
