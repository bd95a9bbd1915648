"""Sweep directories in a bucket by the real clients: gcsfs, Google's client and TensorStore, against the stand-in of
tests/tools on loopback."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from bucket_server import Fault, served
from engine_tools import PATIENCE, arguments, begun, dwsweep, losses, wait_for

from dwsweep import paths
from dwsweep.sweep.directory import SweepStore

SHORT = {"train.steps": 400, "execution.checkpoint_steps": 50}
GS = {
    "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
    "GOOGLE_CLOUD_PROJECT": "none",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks Google by gRPC, which knows no stand-in
}


@dataclass(frozen=True)
class Bucket:
    root: str
    environment: dict[str, str]


@contextmanager
def gs(folder: Path, fault: Fault | None = None) -> Iterator[Bucket]:
    pytest.importorskip("gcsfs", reason="gcsfs is not installed: pip install -c constraints.txt '.[gcs]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEP_BUCKET", str(folder))  # where the server of this process keeps the objects
        with served(fault) as address:
            yield Bucket("gs://bucket", {**GS, "STORAGE_EMULATOR_HOST": address, "TENSORSTORE_GCS_HTTP_URL": address})


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with gs(tmp_path / "bucket") as made:
        for name, value in made.environment.items():  # this process looks into it by the same client
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The losses of a local run of the short sweep."""
    directory = tmp_path_factory.mktemp("short") / "sweep"
    done = dwsweep("run", *arguments(**SHORT), "--out", directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return losses(directory)


def test_planned_killed_interrupted_and_resumed_with_a_local_runs_bits(
    bucket: Bucket, tmp_path: Path, short: dict[str, str]
) -> None:
    out = f"{bucket.root}/sweep"
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


def test_a_client_that_fails_now_and_then_is_tried_again(tmp_path: Path, short: dict[str, str]) -> None:
    fault = Fault(share=0.05)
    with gs(tmp_path / "bucket", fault) as bucket:
        done = dwsweep("run", *arguments(**SHORT), "--out", f"{bucket.root}/sweep", **bucket.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        fault.share = 0.0
        assert set(fault.counts) == {"503", "slow", "cut"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in bucket.environment.items():
                patch.setenv(name, value)
            assert losses(f"{bucket.root}/sweep") == short


def test_one_of_many_makes_an_object(bucket: Bucket) -> None:
    """The client's own condition on the generation decides."""
    folder = paths.as_path(f"{bucket.root}/locks")
    for k in range(5):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda n, k=k: paths.create(folder / f"{k}", str(n)), range(4)))
        assert sum(found) == 1 and (folder / f"{k}").read_text() == str(found.index(True))
        assert not paths.create(folder / f"{k}", "later")
