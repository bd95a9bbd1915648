"""The real trainer with its checkpoints in a bucket: Orbax and TensorStore go there by themselves, past our own paths.

No rename there: a checkpoint counts from its ``commit_success.txt`` on, which is the last object to be written.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import sweep_bucket
from bucket_server import served
from train_support import Killed, KilledAt, make_pack, make_spec, same_bits, train

from dwsweep.data.token_store import Store
from dwsweep.train.pack_trainer import train_pack

DIRECTORY = "gs://bucket/sweep/packs/pack"


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the objects of the bucket lie, one file each."""
    with pytest.MonkeyPatch.context() as patch:
        folder = sweep_bucket.lead_to(tmp_path_factory.mktemp("bucket"), patch)
        # Orbax asks Google's own client for one property of the bucket
        storage, cloud = types.ModuleType("google.cloud.storage"), types.ModuleType("google.cloud")
        bucket = types.SimpleNamespace(hierarchical_namespace_enabled=False)
        storage.Client = lambda: types.SimpleNamespace(get_bucket=lambda name: bucket)
        cloud.storage = storage
        patch.setitem(sys.modules, "google.cloud", cloud)
        patch.setitem(sys.modules, "google.cloud.storage", storage)
        with served() as address:
            # read once in a process, so no other test may go to another address
            patch.setenv("TENSORSTORE_GCS_HTTP_URL", address)
            patch.setenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", "none")
            yield folder


@pytest.mark.usefixtures("programs_again")
def test_killed_in_a_bucket(store: Store, tmp_path: Path, objects: Path) -> None:
    pack = make_pack(store, make_spec(execution={"checkpoint_steps": 3}))
    whole, parts = train(pack, store, tmp_path / "whole", steps=2), KilledAt(11)
    with pytest.raises(Killed):
        train_pack(pack, store, DIRECTORY, parts, dispatch_steps=1)
    assert numbers(objects) == [2, 3]  # as many as are to be kept; the other one is gone
    assert not [p for p in objects.iterdir() if "checkpoints%2F1%2F" in p.name]
    # as by a kill inside a save: what is not committed does not count
    (committed,) = [p for p in objects.iterdir() if p.name.endswith("checkpoints%2F3%2Fcommit_success.txt")]
    committed.unlink()
    last = train(pack, store, DIRECTORY, steps=2)
    assert len(last.results) == 2
    assert last.resumes == [6] and not last.notes
    last.rows = {name: {**parts.rows[name], **rows} for name, rows in last.rows.items()}
    same_bits(whole, last)


def numbers(objects: Path) -> list[int]:
    """Numbers of the checkpoints that are committed."""
    found = [p.name.split("%2F") for p in objects.iterdir()]
    return sorted(int(parts[-2]) for parts in found if parts[-1] == "commit_success.txt" and parts[-3] == "checkpoints")
