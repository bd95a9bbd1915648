"""Remains of killed processes in a sweep directory: half-written files, unsynced runs, checkpoints of finished packs.

Only the owner of the directory removes them, before anything trains.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from dwsweep import paths
from dwsweep.plan import Pack
from dwsweep.records.pack import REBUILT
from dwsweep.records.run import DONE, FINAL
from dwsweep.sweep.claim import owners
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.work_queue import Families

SHARED_SECONDS = 3600.0  # age at which a half-written file counts as a killed process's


def remove_temporaries(store: SweepStore, packs: Collection[Pack], say: Callable[[str], None]) -> None:
    """Remove half-written files of killed processes beside the files of this call's packs, and in the whole directory
    if no other shard lives.

    Nobody else writes beside them, since the claim waits for workers of an earlier owner. Files that other commands and
    shards may be writing go when they are an hour old.
    """
    if paths.is_remote(store.directory):
        return
    alone = len(owners(store.directory)) == 1
    folders = [store.place("runs", name) for pack in packs for name in pack.run_ids]
    families = Families(store)
    folders += [store.place("packs", name) for pack in packs for name in families.of(pack.pack_id)]
    removed = 0
    for folder in [*folders, store.place(), store.place("locks")]:
        for name in paths.temporaries_in(folder):
            path = Path(folder, name)
            shared = folder not in folders or (not alone and name.startswith(".config.json."))
            with contextlib.suppress(FileNotFoundError):
                if not shared or time.time() - path.stat().st_mtime > SHARED_SECONDS:
                    path.unlink()
                    removed += 1
    if removed:
        say(f"removed {removed} half-written file{'s' * (removed != 1)} of processes that were killed")


def settle(store: SweepStore, packs: Collection[Pack], say: Callable[[str], None]) -> None:
    """Sync the runs of packs that did not end well, and remove progress.json and checkpoints of finished packs.

    If the parent was killed before it recorded a pack as done, the results of its runs prove it.
    """
    removed = 0
    families = Families(store)
    for planned in packs:
        family = families.of(planned.pack_id)
        if any(store.pack_state(pack_id).state not in (DONE, REBUILT) for pack_id in family):
            for run_id in planned.run_ids:
                store.sync(run_id)
        for pack_id in family:
            left = {"progress.json", "checkpoints"} & set(paths.names_in(store.place("packs", pack_id)))
            if not left:
                continue
            state, pack = store.pack_state(pack_id), store.pack(pack_id)
            if state.state not in (DONE, REBUILT):
                if pack is None or any(store.state(name).state not in FINAL for name in pack.run_ids):
                    continue
                store.write(pack_id, replace(state, state=DONE))
            store.remove_progress(pack_id)
            removed += "checkpoints" in left
            store.remove_checkpoints(pack_id)
    if removed:
        say(f"removed the checkpoints of {removed} finished pack{'s' * (removed != 1)}")
