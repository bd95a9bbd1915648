"""Checkpoints: damaged ones are passed over, foreign ones refused, and a full disk costs the last good one nothing."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sentences import says
from train_support import make_pack, tree

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.paths import FencedOff
from dwsweep.train import checkpoint
from dwsweep.train.checkpoint import Checkpoints, check_identity, fingerprints, identity


def like(x: Any) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), x)


def write(folder: Path, *values: float) -> None:
    checkpoints = Checkpoints(folder, keep=3, note=print)
    for value in values:
        checkpoints.save(tree(value), {"value": value})
    checkpoints.close()


def read(folder: Path) -> tuple[Any, list[str]]:
    notes: list[str] = []
    checkpoints = Checkpoints(folder, keep=3, note=notes.append)
    found = checkpoints.restore(lambda meta: like(tree(0)))
    checkpoints.close()
    return found, notes


def data_files(checkpoint: Path) -> list[Path]:
    return sorted(
        (p for p in (checkpoint / "state").rglob("*") if p.parent.name == "d"), key=lambda p: -p.stat().st_size
    )


def truncated(newest: Path) -> None:
    for file in data_files(newest):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(newest: Path) -> None:
    for file in data_files(newest):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0x40
        file.write_bytes(bytes(content))


def other_numbers(newest: Path) -> None:
    """Which can be read: a fingerprint finds them, apart from the storage layer."""
    file = newest / "meta" / "metadata"
    meta = json.loads(file.read_text())
    meta["fingerprints"]["w"] ^= 1
    del meta[checkpoint.SEAL]
    file.write_text(json.dumps(checkpoint._sealed(meta)))


def other_progress(newest: Path) -> None:
    """Such as the training clock or the phase, which has no other check."""
    file = newest / "meta" / "metadata"
    whole = file.read_text()
    file.write_text(re.sub('"value": ?2', '"value": 3', whole))
    assert file.read_text() != whole


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": truncated,
    "flipped": flipped,
    "missing data": lambda newest: shutil.rmtree(newest / "state"),
    "missing meta": lambda newest: shutil.rmtree(newest / "meta"),
    "damaged: w": other_numbers,
    "changed meta data": other_progress,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path: Path, damage: str) -> None:
    write(tmp_path, 1, 2)
    DAMAGE[damage](tmp_path / "2")
    (state, meta), notes = read(tmp_path)
    assert meta == {"value": 1}
    jax.tree.map(np.testing.assert_array_equal, state, tree(1))
    assert len(notes) == 1 and says(notes[0], "train: checkpoint not usable")
    assert damage != "damaged: w" or damage in notes[0]
    assert damage != "changed meta data" or says(notes[0], "train: changed meta data")
    write(tmp_path, 7)  # and training goes on beyond it
    assert read(tmp_path)[0][1] == {"value": 7}


def test_fingerprints_see_any_changed_word_and_any_swap() -> None:
    x = jax.random.normal(jax.random.key(0), (40,))
    marks = {int(fingerprints({"x": x})["x"])}
    for i in range(40):
        marks.add(int(fingerprints({"x": x.at[i].multiply(1.0001)})["x"]))
    marks.add(int(fingerprints({"x": x[::-1]})["x"]))
    assert len(marks) == 42


def test_fingerprints_are_the_same_on_the_host() -> None:
    """A checkpoint written by one is verified by the other."""
    some = {**tree(3), "step": jnp.int32(7), "flags": jnp.array([True, False]), "nan": jnp.full(3, jnp.nan)}
    here, there = fingerprints(jax.device_get(some), np), jax.jit(fingerprints)(some)
    assert {name: int(x) for name, x in here.items()} == {name: int(x) for name, x in there.items()}


def test_other_arrays_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, 1)
    other = {"w": jnp.zeros((3, 7)), "step": jnp.int32(0), "extra": jnp.zeros(2)}
    checkpoints = Checkpoints(tmp_path, keep=3, note=print)
    with pytest.raises(InputError) as error:
        checkpoints.restore(lambda meta: like(other))
    checkpoints.close()
    text = str(error.value)
    assert says(text, "train: another shape of a parameter")
    assert "alive: unknown" in text and "extra: missing" in text and "step" not in text.replace("steps", "")


def test_a_full_disk_is_an_os_error_and_keeps_the_last_good_one(tmp_path: Path) -> None:
    """A limit on file size stands in for the full disk: writes fail in the same place, with the system's own error."""
    big = {**tree(2), "w": jax.device_put(np.random.default_rng(0).normal(size=(3, 400_000)).astype("float32"))}
    checkpoints = Checkpoints(tmp_path, keep=3, note=print)
    checkpoints.save(tree(1), {"value": 1})
    checkpoints.wait()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=f"could not be written.*{os.strerror(errno.EFBIG)}"):
            checkpoints.save(big, {"value": 2})
            checkpoints.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert read(tmp_path)[0][1] == {"value": 1}


@pytest.mark.parametrize("lost_at", [1, 2])
def test_an_owner_that_lost_the_directory_commits_nothing(tmp_path: Path, lost_at: int) -> None:
    write(tmp_path / "pack", 1)
    checkpoints, asked = Checkpoints(tmp_path / "pack", keep=1, note=print), itertools.count(1)

    def check() -> None:
        if next(asked) >= lost_at:
            raise FencedOff("somebody else owns it")

    with paths.fence(tmp_path, check), pytest.raises(FencedOff):
        checkpoints.save(tree(2), {"value": 2})
        checkpoints.close()
    assert not (tmp_path / "pack" / "2").exists()
    assert read(tmp_path / "pack")[0][1] == {"value": 1}
    write(tmp_path / "pack", 3)  # the next owner's
    assert read(tmp_path / "pack")[0][1] == {"value": 3}


def test_a_checkpoint_from_before_runs_were_named_in_it_is_resumed_and_another_packs_refused() -> None:
    pack = make_pack(SimpleNamespace(data_hash="f00d"))  # type: ignore[arg-type]
    stored = json.loads(json.dumps(identity(pack)))
    check_identity(stored, pack, "here")
    check_identity({**{key: stored[key] for key in stored if key != "runs"}, "model": {"norm": "pre"}}, pack, "here")
    for key, other in (("runs", ["L2-d16"]), ("branch_steps", [11]), ("data_hash", "beef"), ("replicas", [[0, 1.0]])):
        with pytest.raises(InputError, match=rf"of another pack \({key}\)"):
            check_identity({**stored, key: other}, pack, "here")
