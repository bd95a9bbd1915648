"""Inventory of a sweep directory: one look at its files, for ``verify`` and for ``run``, and one mend of each kind.

A faulty file is rebuilt from the plan and the files beside it, or is lost: a run without a sound result is trained
again. A damaged file is kept as ``<name>.damaged``. Only an owner mends, and a shard mends the files of its own packs.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dwsweep import paths
from dwsweep.data.prepare import find as find_store
from dwsweep.errors import InputError
from dwsweep.locks import exclusive
from dwsweep.plan import Plan
from dwsweep.records import bench as bench_record
from dwsweep.records import fit as fit_record
from dwsweep.records.metrics import CHANGED, MISSING, metrics_of
from dwsweep.records.pack import REBUILT, Pack, PackProgress, PackState
from dwsweep.records.record import Damaged
from dwsweep.records.run import DONE, FINAL, PENDING, RunConfig, RunResult, RunState
from dwsweep.records.sweep import DROP, RESULTS_NAME, Manifest
from dwsweep.spec import load_spec
from dwsweep.sweep import work_queue
from dwsweep.sweep.directory import MOST_PARAMS_BYTES, NOT_WRITTEN, PLAN, SPEC, SweepStore
from dwsweep.sweep.results_table import results_text

Say = Callable[[str], None]


@dataclass(frozen=True)
class SweepFile:
    """File of a sweep, existing or recorded elsewhere; ``why``: its fault, empty if it is whole."""

    kind: str  # its name with * for the run or the pack, such as runs/*/result.json
    path: Any
    why: str = ""


def verify(directory: Any) -> dict[str, list[SweepFile]]:
    """Compare every file with its recorded hash: the files by kind. Reads, and writes nothing.

    Raises:
        InputError: it is no sweep directory.
    """
    store = SweepStore(directory)
    if not any((store.directory / name).exists() for name in (PLAN, "runs", "manifest.json")):
        raise InputError(f"DIR: {directory}; must be a directory made by `dwsweep run`")
    found: dict[str, list[SweepFile]] = {}
    for file in look(store):
        found.setdefault(file.kind, []).append(file)
    return found


# the look


def look(store: SweepStore) -> Iterator[SweepFile]:
    """Every file of the sweep that is there, or that another one says is missing."""
    root = store.directory
    known = getattr(_sound(store, Manifest), "files", None) or {}
    planned: list[str] = []
    yield _text(root / SPEC, known, load_spec)
    yield _text(root / PLAN, known, lambda _: planned.extend(_planned(store)))
    run_ids = dict.fromkeys([*planned, *store.run_ids()])
    for run_id in run_ids:
        yield from _record(store, RunConfig, run_id, run_id in planned)
        yield from _run(store, run_id)
        yield from _kept(store, run_id)
    finished_by = store.packs_that_finished(run_ids)
    yield from _record(store, Manifest, needed=bool(finished_by))
    for pack_id in dict.fromkeys([*store.pack_ids(), *finished_by]):
        yield from _pack(store, pack_id, pack_id in finished_by)
        yield from _lost_results(store, pack_id)
    with contextlib.suppress(InputError, OSError):  # a damaged plan has a line of its own
        yield _table(RESULTS_NAME, store.results_path, results_text(store))
    yield from _fit(root)
    bench = root / bench_record.FILE_NAME
    if paths.is_there(bench):
        yield SweepFile(bench.name, bench, _fault(lambda: bench_record.read(bench)))
    with contextlib.suppress(InputError, OSError):
        if (tokens := find_store(load_spec(root / SPEC).data)) is not None:
            yield SweepFile("token store", tokens.path, _fault(tokens.verify))


def _run(store: SweepStore, run_id: str) -> Iterator[SweepFile]:
    """Records of a run and the documents behind its result, which decide whether it is done."""
    yield from _record(store, RunState, run_id)
    state = _sound(store, RunState, run_id)
    yield from _record(store, RunResult, run_id, needed=state is not None and state.state == DONE)
    if (result := _sound(store, RunResult, run_id)) is not None:
        documents = store.documents_path(run_id)
        missing = "" if paths.is_remote(documents) or paths.is_there(documents) else MISSING
        yield SweepFile(
            _kind_of(store, documents), documents, missing or _fault(lambda: store.check_documents(run_id, result))
        )


def _kept(store: SweepStore, run_id: str) -> Iterator[SweepFile]:
    """Parameters and metrics of a finished run, which no later command makes again."""
    if (result := _sound(store, RunResult, run_id)) is None:
        return
    params, metrics = store.params_path(run_id), store.metrics_path(run_id)
    if result.params_sha256 is not None:
        why = _fault_of_bytes(params, result.params_sha256, CHANGED)
        yield SweepFile(_kind_of(store, params), params, why)
    if result.metrics_rows is not None or metrics.exists():
        found = metrics_of(metrics.parent)
        lost = f"rows are lost: {found.lost} of {len(found.rows) + found.lost}" if found.lost else ""
        yield SweepFile(_kind_of(store, metrics), metrics, found.fault or lost)


def _pack(store: SweepStore, pack_id: str, finished: bool) -> Iterator[SweepFile]:
    """Records of a pack; ``finished``: a run names it as the pack that finished it."""
    yield from _record(store, Pack, pack_id, finished)
    yield from _record(store, PackProgress, pack_id)
    yield from _record(store, PackState, pack_id, finished)


def _record(store: SweepStore, kind: type, owner: str = "", needed: bool = False) -> Iterator[SweepFile]:
    """File of a record, if it is there or ``needed``."""
    path = store.path_of(kind, owner)
    if (there := paths.is_there(path)) or needed:
        yield SweepFile(_kind_of(store, path), path, _fault(lambda: store.read(kind, owner)) if there else MISSING)


def _lost_results(store: SweepStore, pack_id: str) -> Iterator[SweepFile]:
    """Results that are gone with their run's state: a finished pack had one for each of its runs."""
    state, pack = _sound(store, PackState, pack_id), _sound(store, Pack, pack_id)
    for run_id in pack.run_ids if pack is not None and state is not None and state.state == DONE else ():
        found = _sound(store, RunState, run_id) or RunState()
        # a run that is tried again names the pack that will train it
        path = store.path_of(RunResult, run_id)  # one that is there and faulty has a line of its own
        if found.state not in FINAL and found.pack_id in (None, pack_id) and not paths.is_there(path):
            yield SweepFile(_kind_of(store, path), path, MISSING)


def _fit(root: Any) -> Iterator[SweepFile]:
    path = root / "fit" / "fit.json"
    if not paths.is_there(path):
        return
    found: list[Any] = []
    yield SweepFile("fit/fit.json", path, _fault(lambda: found.append(fit_record.read_any(path))))
    for fit in found:
        for name, text in fit_record.tables_of(fit).items():
            yield _table(f"fit/{name}", path.with_name(name), text)


def _sound(store: SweepStore, kind: type, owner: str = "") -> Any:
    with contextlib.suppress(Damaged, OSError):
        return store.read(kind, owner)
    return None


def _planned(store: SweepStore) -> list[str]:
    return [row.run_id for row in store.planned() if row.action != DROP]


def _kind_of(store: SweepStore, path: Any) -> str:
    parts = store.name_of(path).split("/")
    return "/".join([parts[0], "*", *parts[2:]]) if len(parts) > 2 else "/".join(parts)


def _fault(check: Callable[[], Any]) -> str:
    """Reason why a check fails; empty if it does not."""
    try:
        check()
    except FileNotFoundError:
        return MISSING
    except Damaged as error:
        return error.why
    except InputError as error:
        return error.lines[0]
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _fault_of_bytes(path: Any, digest: str, why: str) -> str:
    """``why``, where the hash of a file is not ``digest``."""

    def check() -> None:
        if hashlib.sha256(paths.read_bytes(path, MOST_PARAMS_BYTES)).hexdigest() != digest:
            raise Damaged(path.name, why)

    return _fault(check)


def _text(path: Any, known: dict[str, str], read: Callable[[Any], Any]) -> SweepFile:
    """Text that a person reads and the manifest has the hash of."""
    why = _fault(lambda: read(path)) if paths.is_there(path) else MISSING
    if not why and (digest := known.get(path.name)):
        why = _fault_of_bytes(path, digest, NOT_WRITTEN)
    return SweepFile(path.name, path, why)


def _table(kind: str, path: Any, text: str) -> SweepFile:
    """Table that follows from other files."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return SweepFile(kind, path, _fault_of_bytes(path, digest, "is not the table of the runs"))


# the mend


def mend(store: SweepStore, plan: Plan, packs: Collection[Pack], say: Say) -> None:
    """Set the damaged records of a sweep aside, and write those that follow from others; ``say`` receives a line each.

    ``packs`` are the planned packs that the caller answers for. The records of a run come before those of its pack.
    """
    with store.manifest_guard():
        for file in faulty(_record(store, Manifest, needed=bool(store.pack_ids()))):
            _report(store, file, say, "begun anew")
    with exclusive(store.directory / "locks" / "repair.guard"):
        planned = {run.run_id for run in plan.runs if run.action != DROP}
        for run_id in sorted(planned & {*store.run_ids()}):
            for file in faulty(_record(store, RunConfig, run_id, True)):
                _report(store, file, say, "written again from the plan")
    families = work_queue.Families(store)
    for pack in packs:
        for run_id in pack.run_ids:
            _mend_run(store, run_id, say)
        finished_by = store.packs_that_finished(pack.run_ids)
        for pack_id in families.of(pack.pack_id):
            for file in faulty(_pack(store, pack_id, pack_id in finished_by)):
                if file.path == store.path_of(PackState, pack_id):
                    state = DONE if _is_complete(store, pack_id) else PENDING
                    _report(store, file, say, f"taken as {state}")
                    store.write(pack_id, PackState(state, checkpoint=store.newest_checkpoint(pack_id)))
                elif file.why != MISSING:
                    _report(store, file, say, "written again when its pack trains")


def _is_complete(store: SweepStore, pack_id: str) -> bool:
    pack = store.pack(pack_id)
    return pack is not None and all(store.state(name).state in FINAL for name in pack.run_ids)


def settle(store: SweepStore, packs: Collection[Pack]) -> None:
    """Sync the runs of packs that did not end well, and remove progress.json and checkpoints of finished packs.

    If the parent was killed before it recorded a pack as done, the results of its runs prove it.
    """
    families = work_queue.Families(store)
    for planned in packs:
        family = families.of(planned.pack_id)
        if any(store.pack_state(pack_id).state not in (DONE, REBUILT) for pack_id in family):
            for run_id in planned.run_ids:
                store.sync(run_id)
        for pack_id in family:
            if not {"progress.json", "checkpoints"} & set(paths.names_in(store.place("packs", pack_id))):
                continue
            state = store.pack_state(pack_id)
            if state.state not in (DONE, REBUILT):
                if not _is_complete(store, pack_id):
                    continue
                store.write(pack_id, replace(state, state=DONE))
            store.remove_progress(pack_id)


def faulty(files: Iterable[SweepFile]) -> Iterator[SweepFile]:
    return (file for file in files if file.why)


def _report(store: SweepStore, file: SweepFile, say: Say, then: str) -> None:
    """Set a damaged file aside, and say so; a missing one is said."""
    aside = "" if file.why == MISSING else f"set aside as {paths.set_aside(file.path)}, "
    say(f"{store.name_of(file.path)}: {file.why}; {aside}{then}")


def _mend_run(store: SweepStore, run_id: str, say: Say) -> None:
    """Mend a run: one with a damaged result, or damaged documents, is pending. Without documents the loss stands."""
    for file in faulty(_run(store, run_id)):
        if file.why == MISSING:
            continue
        result = store.result(run_id)
        is_state = file.path == store.path_of(RunState, run_id)
        _report(store, file, say, "the run goes on from its checkpoint" if is_state else "the run is trained again")
        if file.path == store.documents_path(run_id) and result is not None:
            paths.set_aside(store.path_of(RunResult, run_id))
            store.write_state(run_id, RunState(PENDING, pack_id=result.pack_id))
