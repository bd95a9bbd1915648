"""Fixtures of all engines: one cache of prepared tokens, and the losses of a local run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_tools import arguments, dwsweep, losses


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engines)


@pytest.fixture(scope="session", autouse=True)
def _one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DWSWEEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The losses of an undisturbed local run."""
    directory = tmp_path_factory.mktemp("local") / "sweep"
    done = dwsweep("run", *arguments(), "--out", directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return losses(directory)
