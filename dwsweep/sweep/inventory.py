"""Inventory of a sweep directory: every file is compared with its recorded hash, and is whole, rebuilt or lost.

Rebuilt are files derived from others: the plan, a run's config.json, a pack's files, results.csv, the tables of a fit.
Lost are all others: the next ``dwsweep run`` trains a lost result again, but metrics and parameters are
gone. What is damaged is kept as ``<name>.damaged``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dwsweep import paths
from dwsweep.data.prepare import find as find_store
from dwsweep.data.token_store import DamagedStore
from dwsweep.errors import InputError
from dwsweep.records import bench as bench_record
from dwsweep.records import fit as fit_record
from dwsweep.records.metrics import CHANGED, metrics_of
from dwsweep.records.pack import Pack, PackProgress, PackState
from dwsweep.records.record import Damaged
from dwsweep.records.run import DONE, FINAL, RunConfig, RunResult, RunState
from dwsweep.records.sweep import DROP, Manifest
from dwsweep.spec import load_spec
from dwsweep.sweep import claim, repair, work_queue
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import ORPHANS, rebuild_results, tables

WHOLE, REBUILT, LOST = "whole", "rebuilt", "lost"


@dataclass(frozen=True)
class Fault:
    """Faulty file: changed since it was written, or missing."""

    kind: str  # kind of the file, such as runs/*/result.json
    path: Any
    why: str


@dataclass
class Finding:
    """The files of one kind."""

    kind: str
    whole: int = 0
    rebuilt: list[Fault] = field(default_factory=list)
    lost: list[Fault] = field(default_factory=list)


@dataclass(frozen=True)
class Inventory:
    """Findings of ``verify``."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()  # a line each

    @property
    def is_whole(self) -> bool:
        """True if nothing is lost."""
        return not any(finding.lost for finding in self.findings)


Look = Iterator[tuple[str, Any, str]]
"""(kind, path, fault or "") of each file."""


def verify(directory: Any) -> Inventory:
    """Compare every file with its recorded hash, and rebuild derived files; a sweep that trains is only looked at.

    Raises:
        InputError: it is no sweep directory.
    """
    store = SweepStore(directory)
    if not any((store.directory / name).exists() for name in ("plan.csv", "runs", "manifest.json")):
        raise InputError(f"DIR: {directory}; must be a directory made by `dwsweep run`")
    found = [*_look(store)]
    faults = [Fault(kind, path, why) for kind, path, why in found if why]
    notes: list[str] = []
    if faults:
        try:
            with claim.hold(directory, say=notes.append):
                _mend(store, faults, notes.append)
        except InputError as error:
            notes.append(f"nothing is written again: {error.lines[0]}")
    sound = {str(path) for _, path, why in _look(store) if not why} if faults else set()
    findings = {kind: Finding(kind) for kind, *_ in found}
    for kind, count in Counter(kind for kind, _, why in found if not why).items():
        findings[kind].whole = count
    for fault in faults:
        (findings[fault.kind].rebuilt if str(fault.path) in sound else findings[fault.kind].lost).append(fault)
    return Inventory(tuple(findings.values()), tuple(notes))


def _look(store: SweepStore) -> Look:
    """Every file of the sweep, existing or recorded elsewhere."""
    root = store.directory
    known = getattr(_read(store, Manifest, ""), "files", None) or {}
    yield "spec.yaml", root / "spec.yaml", _fault_of_text(root / "spec.yaml", known, load_spec)
    plan_is_read: list[str] = []
    yield (
        "plan.csv",
        root / "plan.csv",
        _fault_of_text(root / "plan.csv", known, lambda path: plan_is_read.extend(_planned(store))),
    )
    run_ids = dict.fromkeys([*plan_is_read, *store.run_ids()])
    for run_id in run_ids:
        yield from _run(store, run_id, run_id in plan_is_read)
    finished_by = store.packs_that_finished(run_ids)
    yield from _record(store, Manifest, "", needed=bool(finished_by))
    for pack_id in dict.fromkeys([*store.pack_ids(), *finished_by]):
        for kind in (Pack, PackState, PackProgress):
            yield from _record(store, kind, pack_id, needed=pack_id in finished_by and kind is not PackProgress)
        yield from _lost_results(store, pack_id)
    yield from _results(store)
    yield from _fit(root)
    bench = root / bench_record.FILE_NAME
    if bench.exists() if paths.is_remote(root) else os.path.lexists(bench):
        yield bench.name, bench, _fault(lambda: bench_record.read(bench))
    yield from _tokens(root)


def _fault_of_text(path: Any, known: dict[str, str], read: Callable[[Any], Any]) -> str:
    """Fault of a text, if its hash differs from the manifest's."""
    why = _fault(lambda: read(path))
    if not why and path.name in known and _fault_of_hash(path, known[path.name]):
        return "is not what `dwsweep run` wrote: its SHA-256 is not the one in manifest.json"
    return why


def _planned(store: SweepStore) -> list[str]:
    if not (store.directory / "plan.csv").exists():
        raise InputError("is missing")
    return [row.run_id for row in store.planned() if row.action != DROP]


def _fault(check: Callable[[], Any]) -> str:
    """Why a check fails; empty if it does not."""
    try:
        check()
    except Damaged as error:
        return error.why
    except InputError as error:
        return error.lines[0]
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _record(store: SweepStore, kind: type, owner: str, needed: bool = False) -> Look:
    path = store.path_of(kind, owner)
    there = path.exists() or (not paths.is_remote(path) and os.path.lexists(path))
    if there or needed:
        why = _fault(lambda: store.read(kind, owner)) if there else "is missing"
        yield _kind_of(store, path), path, why


def _lost_results(store: SweepStore, pack_id: str) -> Look:
    """Results that are gone with their run's state: a finished pack had one for each of its runs."""
    state, pack = _read(store, PackState, pack_id), _read(store, Pack, pack_id)
    for run_id in pack.run_ids if pack is not None and state is not None and state.state == DONE else ():
        found = _read(store, RunState, run_id) or RunState()
        # a run that is tried again names the pack that will train it
        if found.state not in FINAL and found.pack_id in (None, pack_id) and _read(store, RunResult, run_id) is None:
            path = store.path_of(RunResult, run_id)
            yield _kind_of(store, path), path, "is missing"


def _kind_of(store: SweepStore, path: Any) -> str:
    parts = store.name_of(path).split("/")
    return "/".join([parts[0], "*", *parts[2:]]) if len(parts) > 2 else "/".join(parts)


def _run(store: SweepStore, run_id: str, planned: bool) -> Look:
    yield from _record(store, RunConfig, run_id, needed=planned)
    yield from _record(store, RunState, run_id)
    state = _read(store, RunState, run_id)
    is_done = state is not None and state.state == DONE
    yield from _record(store, RunResult, run_id, needed=is_done)
    result = _read(store, RunResult, run_id)
    if result is None:
        return
    documents = store.documents_path(run_id)
    missing = "" if documents.exists() or paths.is_remote(documents) else "is missing"
    why = missing or _fault(lambda: store.check_documents(run_id, result))
    yield _kind_of(store, documents), documents, why
    if result.params_sha256 is not None:
        params = store.params_path(run_id)
        yield _kind_of(store, params), params, _fault_of_hash(params, result.params_sha256)
    metrics = store.metrics_path(run_id)
    if result.metrics_rows is not None or metrics.exists():
        yield _kind_of(store, metrics), metrics, _fault_of_metrics(store.run_directory(run_id))


def _read(store: SweepStore, kind: type, owner: str) -> Any:
    with contextlib.suppress(Damaged, OSError):
        return store.read(kind, owner)
    return None


def _fault_of_hash(path: Any, digest: str) -> str:
    try:
        found = hashlib.sha256(paths.read_bytes(path, 1 << 40)).hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return error.strerror or str(error)
    return "" if found == digest else f"differs from the file written: {CHANGED}"


def _fault_of_metrics(folder: Any) -> str:
    found = metrics_of(folder)
    if found.changed:
        return f"differs from the file written: {CHANGED}"
    return f"rows are lost: {found.lost} of {len(found.rows) + found.lost}" if found.lost else ""


def _results(store: SweepStore) -> Look:
    try:
        texts = tables(store)
    except (InputError, OSError):  # a damaged plan has a line of its own
        return
    for name in ("results.csv", ORPHANS):
        path = store.directory / name
        if name in texts or path.exists():
            yield name, path, _fault_of_table(path, texts.get(name))


def _fault_of_table(path: Any, text: str | None) -> str:
    try:
        data = paths.read_bytes(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return error.strerror or str(error)
    return "" if text is not None and data == text.encode() else "is not the table of the runs"


def _fit(root: Any) -> Look:
    path = root / "fit" / "fit.json"
    if not (path.exists() or (not paths.is_remote(path) and os.path.lexists(path))):
        return
    found: list[Any] = []
    yield "fit/fit.json", path, _fault(lambda: found.append(fit_record.read_any(path)))
    for fit in found:
        for name, text in fit_record.tables_of(fit).items():
            yield f"fit/{name}", path.with_name(name), _fault_of_table(path.with_name(name), text)


def _tokens(root: Any) -> Look:
    try:
        store = find_store(load_spec(root / "spec.yaml").data)
    except (InputError, OSError):
        return
    if store is not None:
        yield "token store", store.path, _fault(store.verify)


# mending


def _mend(store: SweepStore, faults: list[Fault], say: Callable[[str], None]) -> None:
    kinds = {fault.kind for fault in faults}
    for fault in faults:
        if fault.kind == "runs/*/params.safetensors" and fault.path.exists():
            paths.set_aside(fault.path)
    plan = None
    try:
        sweep = load_spec(store.directory / "spec.yaml")
        tokens = find_store(sweep.data) if "spec.yaml" not in kinds else None
        plan = work_queue.plan_of_rest(sweep, tokens, store.directory) if tokens else None
    except (InputError, DamagedStore) as error:
        say(f"spec.yaml: {error.lines[0]}")
    if plan is not None and not plan.waits_for_data:
        repair.repair(store, plan, plan.packs, say)
        store.write_plan(plan)
    elif kinds - {"results.csv", ORPHANS}:
        say("files that follow from the plan are not rebuilt: the spec differs, or its data is not on this host")
    repair.set_folders_aside(store, say)
    with contextlib.suppress(InputError):
        rebuild_results(store)
    path = store.directory / "fit" / "fit.json"
    if any(kind.startswith("fit/") and kind != "fit/fit.json" for kind in kinds):
        fit_record.write(fit_record.read_any(path), path.parent)
    for fault in faults:
        if fault.kind in ("fit/fit.json", "token store"):
            command = "fit" if fault.kind == "fit/fit.json" else "prepare"
            say(f"{fault.kind}: `dwsweep {command}` makes it again")
