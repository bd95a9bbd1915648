"""Repair of a sweep directory: damaged files are set aside and written again from the plan or the files beside them.

Only the owner of the directory does this, before anything trains; a reader such as ``status`` changes nothing. A shard
does it for its own packs. What cannot be derived is trained again: a run without a sound result is pending.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dwsweep import paths
from dwsweep.locks import exclusive
from dwsweep.plan import DROP, Pack, Plan
from dwsweep.plan.units import run_config
from dwsweep.records.pack import IN_PART, REBUILT, PackProgress, PackState
from dwsweep.records.record import Damaged
from dwsweep.records.run import DONE, FINAL, PENDING, RunConfig, RunResult, RunState
from dwsweep.records.sweep import Manifest
from dwsweep.sweep import directory as sweep_directory
from dwsweep.sweep.claim import owners
from dwsweep.sweep.directory import DOCUMENTS, METRICS, SweepStore

_IN_NAME = ("seed", "learning_rate", "steps", "tokens", "n_params", "n_params_total", "data_hash", "shape")
"""Fields determined by a run_id: a config.json with other values belongs to another run."""
SHARED_SECONDS = 3600.0  # age at which a half-written file counts as a killed process's


def repair(store: SweepStore, plan: Plan, packs: Collection[Pack], say: Callable[[str], None]) -> None:
    """Set damaged files aside as ``<name>.damaged`` and rebuild derived files; ``say`` receives a line each.

    ``packs`` are the planned packs that the caller answers for. Files that every shard may write, the manifest and the
    config.json of the plan's runs, are looked at under a lock of the kernel.
    """
    check_manifest(store, say)
    with exclusive(store.directory / "locks" / "repair.guard"):
        set_folders_aside(store, say)
        _configs(store, plan, say)
    families = _families(store, packs)
    for pack in packs:
        ended_well = all(store.pack_state(name).state in (DONE, REBUILT) for name in families[pack.pack_id])
        finished_by = set()
        for run_id in pack.run_ids:
            state = _run(store, run_id, say)
            if state.state in FINAL and state.pack_id and pack.pack_id in _ancestors(state.pack_id):
                finished_by.add(state.pack_id)
            if not ended_well:  # a killed process may have left part of it unwritten
                store.sync(run_id)
        family = sorted({*families[pack.pack_id], *finished_by}, key=lambda name: (len(name), name))
        for pack_id in family:
            _pack(store, pack, pack_id, pack_id in finished_by, say)
        for pack_id in family:
            _pack_state(store, pack_id, family, pack_id in finished_by, say)


def set_folders_aside(store: SweepStore, say: Callable[[str], None]) -> None:
    """Set folders aside in the place of files of the sweep as a whole, which are written again."""
    for name in ("spec.yaml", "plan.csv", "results.csv", "orphans.csv"):
        _not_a_folder(store, store.directory / name, say)


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
    folders += [store.place("packs", name) for family in _families(store, packs).values() for name in family]
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


def check_manifest(store: SweepStore, say: Callable[[str], None]) -> None:
    """Set a damaged manifest.json aside; report a missing one of a sweep that has begun."""
    with store.manifest_guard():
        _check(store, Manifest, "", say, "begun anew")
        if not store.path_of(Manifest).exists() and store.pack_ids():
            say("manifest.json: is missing; begun anew")


def remove_remains(
    store: SweepStore, packs: Collection[Pack], keep_checkpoints: bool, say: Callable[[str], None]
) -> None:
    """Remove progress.json and checkpoints of finished packs, left by a kill at their end or by an earlier version.

    If the parent was killed before it recorded a pack as done, the results of its runs prove it.
    """
    removed = 0
    for pack_id in (name for family in _families(store, packs).values() for name in family):
        remains = {"progress.json"} if keep_checkpoints else {"progress.json", "checkpoints"}
        if not remains & set(paths.names_in(store.place("packs", pack_id))):
            continue
        state, pack = store.pack_state(pack_id), store.pack(pack_id)
        if state.state not in (DONE, REBUILT):
            if pack is None or any(store.state(name).state not in FINAL for name in pack.run_ids):
                continue
            store.write(pack_id, replace(state, state=DONE))
        store.remove_progress(pack_id)
        if not keep_checkpoints:
            removed += store.has_checkpoints(pack_id)
            store.remove_checkpoints(pack_id)
    if removed:
        say(
            f"removed the checkpoints of {removed} finished pack{'s' * (removed != 1)}; "
            "execution.keep_finished_checkpoints: true keeps them"
        )


def _families(store: SweepStore, packs: Collection[Pack]) -> dict[str, list[str]]:
    """Packs in the directory for each planned pack: itself, then packs that took over its replicas."""
    found: dict[str, list[str]] = {pack.pack_id: [] for pack in packs}
    for pack_id in sorted(store.pack_ids(), key=len):
        root = next((name for name in _ancestors(pack_id) if name in found), None)
        if root is not None:
            found[root].append(pack_id)
    return found


def _ancestors(pack_id: str) -> Iterator[str]:
    """Names of a pack and its predecessors, by dropping suffixes: ``…-a``, ``…-b`` and ``…-r1`` took over a pack's
    replicas."""
    while pack_id:
        yield pack_id
        pack_id = pack_id.rpartition("-")[0]


def _set_aside(error: Damaged, say: Callable[[str], None], then: str) -> None:
    say(f"{error.lines[0]}; set aside as {paths.set_aside(error.path)}, {then}")


def _not_a_folder(store: SweepStore, path: Any, say: Callable[[str], None]) -> None:
    if paths.is_folder(path):
        path = paths.as_path(path)
        _set_aside(Damaged(path, store.name_of(path), "is a folder"), say, "written again")


def _check(store: SweepStore, kind: type, owner: str, say: Callable[[str], None], then: str) -> None:
    """Set a record's file aside if it is damaged."""
    try:
        store.read(kind, owner)
    except Damaged as error:
        _set_aside(error, say, then)


def _configs(store: SweepStore, plan: Plan, say: Callable[[str], None]) -> None:
    there = set(store.run_ids())
    for run in plan.runs:
        if run.action == DROP or run.run_id not in there:
            continue
        expected = run_config(run, plan)
        try:
            config = store.read(RunConfig, run.run_id)
            for field in _IN_NAME:
                if config and getattr(config, field) != getattr(expected, field):
                    path = store.path_of(RunConfig, run.run_id)
                    raise Damaged(path, store.name_of(path), f"{field}: must be {getattr(expected, field)!r}")
        except Damaged as error:
            _set_aside(error, say, "written again from the plan")
            store.write(run.run_id, expected)


def _run(store: SweepStore, run_id: str, say: Callable[[str], None]) -> RunState:
    """Repair a run; its state. With a damaged result, or damaged documents, it is pending."""
    _not_a_folder(store, store.place("runs", run_id, METRICS), say)
    result = None
    try:
        result = store.read(RunResult, run_id)
        if result is not None:
            store.check_documents(run_id, result)
    except Damaged as error:
        _set_aside(error, say, "the run is trained again")
        if result is not None:  # its documents are missing
            paths.set_aside(store.path_of(RunResult, run_id))
            store.write_state(run_id, RunState(PENDING, pack_id=result.pack_id))
    _not_a_folder(store, store.place("runs", run_id, DOCUMENTS), say)
    _check(store, RunState, run_id, say, "the run goes on from its checkpoint")
    return store.state(run_id)


def _pack(store: SweepStore, planned: Pack, pack_id: str, finished: bool, say: Callable[[str], None]) -> None:
    """Repair a pack.json from the plan, and its membership from the runs' states; a missing one if the pack has
    ``finished`` runs."""
    log = store.log_path(pack_id)
    sweep_directory.set_aside_unless_file(log, store.name_of(log), say)
    path = store.path_of(Pack, pack_id)
    try:
        if (pack := store.read(Pack, pack_id)) is None:
            if finished and (derived := _derived_pack(store, planned, pack_id)):
                say(f"{store.name_of(path)}: is missing; written again from the plan")
                store.write_pack(derived)
            return
        for field in ("shape", "branch_steps", "data_hash"):
            if getattr(pack, field) != getattr(planned, field):
                raise Damaged(path, store.name_of(path), f"{field}: must be that of the planned pack of this name")
        for replica in pack.replicas:
            if replica not in planned.replicas:
                why = f"replicas: seed {replica.seed} is not of the pack of this name"
                raise Damaged(path, store.name_of(path), why)
    except Damaged as error:
        derived = _derived_pack(store, planned, pack_id)
        _set_aside(error, say, "written again from the plan" if derived else "its replicas are trained anew")
        if derived:
            store.write_pack(derived)


def _derived_pack(store: SweepStore, planned: Pack, pack_id: str) -> Pack | None:
    """Derive a pack from the plan, with its replicas by the runs' records; None if none do."""
    trained_by = {name: store.state(name).pack_id for name in planned.run_ids}

    def is_member(run_ids: tuple[str, ...]) -> bool:
        owners = {trained_by[name] for name in run_ids}
        if pack_id != planned.pack_id:
            return pack_id in owners
        # a run that another pack trained before this one was written is not in it; one that left it later is
        return any(owner is None or planned.pack_id in _ancestors(owner) for owner in owners)

    members = tuple(replica for replica in planned.replicas if is_member(replica.run_ids))
    if not members:
        return None
    parent = pack_id.rpartition("-")[0] if pack_id != planned.pack_id else None
    # the damaged file alone held the reason for a split
    split = pack_id.rpartition("-")[2] in ("a", "b")
    reason = IN_PART if len(members) < len(planned.replicas) and not split else None
    return replace(planned, pack_id=pack_id, replicas=members, rebuilt_from=parent, reason=reason)


def _pack_state(store: SweepStore, pack_id: str, family: list[str], finished: bool, say: Callable[[str], None]) -> None:
    """Repair a state.json from the pack's runs and its successors; a missing one if the pack has ``finished`` runs."""
    progress_was = store.progress(pack_id)
    _check(store, PackProgress, pack_id, say, "the next start writes it")
    damage = None
    try:
        if store.read(PackState, pack_id) is not None or not finished:
            return
    except Damaged as error:
        damage = error
    pack = store.pack(pack_id)
    packs = [found for found in map(store.pack, family) if found is not None]
    children = tuple(found.pack_id for found in packs if found.rebuilt_from == pack_id)
    state = PENDING
    if {f"{pack_id}-a", f"{pack_id}-b"} & set(children):
        state = REBUILT
    elif pack is not None and all(store.state(name).state in FINAL for name in pack.run_ids):
        state = DONE
    if damage is not None:
        _set_aside(damage, say, f"taken as {state}")
    else:
        say(f"{store.name_of(store.path_of(PackState, pack_id))}: is missing; taken as {state}")
    microbatch = progress_was.started.microbatch if progress_was.started else None
    checkpoint = store.newest_checkpoint(pack_id)
    store.write(pack_id, PackState(state, checkpoint=checkpoint, microbatch=microbatch, rebuilt_into=children))
