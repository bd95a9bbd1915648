"""Checkpoints of a pack: asynchronous, few, verified when read, and never at the cost of a good one.

Orbax writes each into a temporary directory and renames it; against damaged bytes every array's fingerprint is stored
and compared. A damaged checkpoint is passed over, with a note, for the one before; one of another model is refused.
Ownership is checked before a save and before its rename.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.paths import FencedOff
from dwsweep.plan import Pack
from dwsweep.records.record import SEAL
from dwsweep.train.mesh import agreed, all_agree

if TYPE_CHECKING:
    from orbax.checkpoint import CheckpointManager

FORMAT = 2
"""Version of the format of a checkpoint's meta data."""

Meta = Mapping[str, Any]
"""Meta data in JSON form."""


@dataclass
class Progress:
    """Progress stored in a checkpoint beside the arrays and the pack's identity."""

    phase: int = 0  # position in the list of phases
    tick: int = 0  # executed steps, branches included
    seconds: float = 0.0  # training clock of the current state
    trunk_seconds: float = 0.0  # clock of the trunk, which waits while a copy of it is cooled down
    compile_seconds: float = 0.0
    losses: list[float] = field(default_factory=list)  # last training loss of each replica
    diverged: list[str] = field(default_factory=list)  # run ids reported to the recorder


def check_identity(theirs: Mapping[str, object], pack: Pack, directory: Any) -> None:
    """Refuse to resume ``pack`` from a checkpoint whose meta data have the identity ``theirs``.

    Raises:
        InputError: it names the differences.
    """
    ours = identity(pack)
    differing = [key for key, value in ours.items() if theirs.get(key, value) != value]
    if differing:
        raise InputError(
            f"{directory}: these checkpoints are of another pack ({', '.join(sorted(differing))}); allowed: the pack "
            "that began here, or an empty directory"
        )


def identity(pack: Pack) -> dict[str, object]:
    """Facts of a pack that must agree for a resume, beside the arrays' shapes; the name of a run has a hash of all that
    changes its result."""
    return {
        "format": FORMAT,
        "runs": list(pack.run_ids),
        "replicas": [[replica.seed, replica.learning_rate] for replica in pack.replicas],
        "branch_steps": list(pack.branch_steps),
        "data_hash": pack.data_hash,
    }


def fingerprints(tree: Any, xp: Any = jnp) -> Any:
    """A 32-bit hash of each leaf: Σ word_i·(2i + 1) mod 2³² over its 32-bit words.

    Integer arithmetic, so the same on every device, under every sharding, and by ``numpy`` as ``xp``; each weight is
    odd, so a change of any single word shows.
    """

    def one(x: Any) -> Any:
        x = x.astype(xp.int32) if x.dtype == bool else x
        words = x.reshape(-1).view(xp.uint32)
        return xp.sum(words * (2 * xp.arange(words.size, dtype=xp.uint32) + 1), dtype=xp.uint32)

    return jax.tree.map(one, tree)


def _digest(meta: Meta) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _sealed(meta: Meta) -> dict[str, Any]:
    """Meta data with their hash, as JSON gives them back."""
    plain = json.loads(json.dumps(meta))
    return {**plain, SEAL: _digest(plain)}


def _checked(meta: Meta) -> dict[str, Any]:
    """Meta data without their hash.

    Raises:
        ValueError: they differ from those written.
    """
    rest = {name: value for name, value in meta.items() if name != SEAL}
    if _digest(rest) != meta.get(SEAL):
        raise ValueError("damaged: its meta data differ from those written")
    return rest


def _named(tree: Any) -> Mapping[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path): leaf for path, leaf in leaves}


class Checkpoints:
    """The checkpoints in one directory, numbered in the order of writing."""

    def __init__(self, directory: Any, keep: int, note: Callable[[str], None]) -> None:
        self.directory, self.keep, self.note = epath.Path(directory), keep, note
        self._hash: dict[Any, Any] = {}  # jitted functions by the place of their results
        if jax.process_count() > 1:
            _ = self._manager  # made by all processes together, since they wait for each other

    @cached_property
    def _manager(self) -> CheckpointManager:
        """Orbax's manager, imported and made for the first checkpoint: a pack that ends sooner needs none."""
        import orbax.checkpoint as ocp

        return ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=self.keep,
                create=True,
                cleanup_tmp_directories=True,
                # called after all is written and before the rename
                async_options=ocp.options.AsyncOptions(post_finalization_callback=self._before_commit),
            ),
            item_handlers={"state": ocp.StandardCheckpointHandler(), "meta": ocp.JsonCheckpointHandler()},
        )

    @property
    def _is_used(self) -> bool:
        """True once the manager is made."""
        return "_manager" in self.__dict__

    def save(self, state: Any, meta: Mapping[str, object]) -> None:
        """Begin to write; the arrays may be donated as soon as this returns. ``meta``: JSON values.

        Raises:
            OSError: this write or the one before failed (a full disk); the checkpoints before them are kept, and the
                next call writes one in place of that which failed.
            FencedOff: somebody else owns the directory.
        """
        import orbax.checkpoint as ocp

        paths.check_fence(self.directory)
        hashes = self._hashes(state)
        with self._failing():
            self._manager.wait_until_finished()
            self._manager.save(
                agreed(max(self._manager.all_steps(), default=0) + 1),
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state),
                    meta=ocp.args.JsonSave(_sealed({**meta, "fingerprints": hashes})),
                ),
            )

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise what fails inside the block as an OSError, and forget a checkpoint that failed: Orbax counts one from
        the call on."""
        try:
            yield
        except FencedOff:
            raise
        except Exception as error:
            self._manager.reload()
            raise OSError(f"a checkpoint could not be written to {self.directory}: {error}") from error

    def _hashes(self, state: Any) -> dict[str, int]:
        where = jax.tree.leaves(state)[0].sharding
        if all(device.platform == "cpu" for device in where.device_set) and jax.process_count() == 1:
            # nothing to fetch or compile
            hashes = fingerprints(jax.device_get(state), np)
            return {name: int(value) for name, value in _named(hashes).items()}
        if isinstance(where, NamedSharding):
            where = NamedSharding(where.mesh, PartitionSpec())  # each process has to read these arrays
        if where not in self._hash:
            self._hash[where] = jax.jit(fingerprints, out_shardings=where)
        hashes = self._hash[where](state)
        return {name: int(value) for name, value in _named(jax.device_get(hashes)).items()}

    def wait(self) -> None:
        """Wait until the last save is on disk.

        Raises:
            OSError: it failed.
            FencedOff: somebody else owns the directory.
        """
        if self._is_used:
            with self._failing():
                self._manager.wait_until_finished()

    def _before_commit(self) -> None:
        """Check ownership in Orbax's thread, the last call before the rename."""
        paths.check_fence(self.directory)

    def restore(self, like: Callable[[Meta], Any]) -> tuple[Any, Meta] | None:
        """Newest good checkpoint as (state, meta), or None.

        ``like(meta)`` gives the expected tree of ``jax.ShapeDtypeStruct`` with shardings.

        Raises:
            InputError: a checkpoint that can be read holds other arrays than those expected.
        """
        if not self._is_used and not paths.names_in(self.directory):
            return None
        import orbax.checkpoint as ocp

        for number in sorted(self._manager.all_steps(), reverse=True):
            problem: object = None
            try:
                restored = self._manager.restore(number, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))
                meta = _checked(restored["meta"])
                hashes = meta.pop("fingerprints")
                found = _named(self._manager.item_metadata(number)["state"].tree)
            except Exception as error:
                problem = error
            if self._is_passed_over(number, problem):
                continue
            expected = like(meta)
            self._check(number, found, _named(expected))
            try:
                restored = self._manager.restore(
                    number, args=ocp.args.Composite(state=ocp.args.StandardRestore(expected))
                )
            except Exception as error:
                problem = error
            if self._is_passed_over(number, problem):
                continue
            state = restored["state"]
            now = self._hashes(state)
            damaged = sorted(name for name in now if now[name] != hashes.get(name))
            if self._is_passed_over(number, f"damaged: {', '.join(damaged)}" if damaged else None):
                continue
            return state, meta
        return None

    def _is_passed_over(self, number: int, why: object) -> bool:
        """Agree to pass a checkpoint over if any process has a reason to: all must resume from the same one."""
        if why is not None:
            reason = " ".join(str(why).split())[:300]
            self.note(f"checkpoint {number} cannot be used and is passed over: {reason}")
        return not all_agree(why is None)

    def _check(self, number: int, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        lines = [f"{name}: missing" for name in sorted(expected.keys() - found.keys())]
        lines += [f"{name}: unknown" for name in sorted(found.keys() - expected.keys())]
        lines += [
            f"{name}: {found[name].dtype}{list(found[name].shape)} in the checkpoint, "
            f"{expected[name].dtype}{list(expected[name].shape)} in the model"
            for name in sorted(expected.keys() & found.keys())
            if (tuple(found[name].shape), found[name].dtype) != (tuple(expected[name].shape), expected[name].dtype)
        ]
        if lines:
            raise InputError(f"checkpoint {self.directory}/{number} is of another model:", *(f"  {x}" for x in lines))

    def close(self) -> None:
        """Wait and release threads; a failure of the last save is raised."""
        self.wait()
        if self._is_used:
            self._manager.close()
