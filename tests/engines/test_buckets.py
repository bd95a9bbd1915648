"""Sweep directories in a bucket by the real clients: gcsfs, Google's client and TensorStore, against the stand-in of
tests/tools on loopback."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bucket_server import served
from engine_tools import PATIENCE, arguments, begun, dwsweep, losses, wait_for

from dwsweep import paths
from dwsweep.sweep.directory import SweepStore

SHORT = {"train.steps": 400, "execution.checkpoint_steps": 50}
GS = {
    "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
    "GOOGLE_CLOUD_PROJECT": "none",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks Google by gRPC, which knows no stand-in
}


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address; this process looks into it by the same client."""
    pytest.importorskip("gcsfs", reason="gcsfs is not installed: pip install -c constraints.txt '.[gcs]'")
    monkeypatch.setenv("SWEEP_BUCKET", str(tmp_path / "bucket"))  # where the server of this process keeps the objects
    with served() as address:
        for name, value in {**GS, "STORAGE_EMULATOR_HOST": address, "TENSORSTORE_GCS_HTTP_URL": address}.items():
            monkeypatch.setenv(name, value)
        yield "gs://bucket"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The losses of a local run of the short sweep."""
    directory = tmp_path_factory.mktemp("short") / "sweep"
    done = dwsweep("run", *arguments(**SHORT), "--out", directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return losses(directory)


def test_planned_killed_interrupted_and_resumed_with_a_local_runs_bits(
    bucket: str, tmp_path: Path, short: dict[str, str]
) -> None:
    out = f"{bucket}/sweep"
    spec, store, log = arguments(**SHORT), SweepStore(out), tmp_path / "log"
    assert dwsweep("plan", *spec, "--out", out).returncode == 0

    def checkpoints() -> set[tuple[str, int]]:
        return {(name, number) for name in store.pack_ids() if (number := store.newest_checkpoint(name))}

    for number in (signal.SIGKILL, signal.SIGTERM):
        before = checkpoints()
        process = begun(log, "run", *spec, "--out", out)
        # of any pack: the worker of a killed parent may still finish its own, whose checkpoints go then
        wait_for(lambda before=before: checkpoints() - before, log.read_text)
        os.kill(process.pid, number)
        status = process.wait(PATIENCE)
        assert status == (-9 if number == signal.SIGKILL else 3), log.read_text()
    done = dwsweep("run", *spec, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses(out) == short
    shown = dwsweep("status", out)
    assert shown.returncode == 0 and "4 done" in shown.stdout, shown.stderr
    for command in ("fit", "report"):
        done = dwsweep(command, out)
        assert done.returncode == 0, done.stdout + done.stderr
    for name in ("report.html", "fit/fit.json"):
        assert (store.directory / name).exists()


def test_one_of_many_makes_an_object(bucket: str) -> None:
    """The client's own condition on the generation decides."""
    folder = paths.as_path(f"{bucket}/locks")
    for k in range(5):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda n, k=k: paths.create(folder / f"{k}", str(n)), range(4)))
        assert sum(found) == 1 and (folder / f"{k}").read_text() == str(found.index(True))
        assert not paths.create(folder / f"{k}", "later")
