"""Inventory of a sweep directory: one look at its files, for ``verify`` and for ``run``, and one mend of each kind.

A faulty file is rebuilt from the plan and the files beside it, or is lost: a run without a sound result is trained
again. A damaged file is kept as ``<name>.damaged``. Only an owner mends, and a shard mends the files of its own packs.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dwsweep import paths
from dwsweep.data.prepare import find as find_store
from dwsweep.errors import InputError
from dwsweep.locks import exclusive
from dwsweep.plan import Plan
from dwsweep.plan.units import run_config
from dwsweep.records import bench as bench_record
from dwsweep.records import fit as fit_record
from dwsweep.records.metrics import CHANGED, MISSING, metrics_of
from dwsweep.records.pack import IN_PART, REBUILT, Pack, PackProgress, PackState
from dwsweep.records.record import Damaged
from dwsweep.records.run import DONE, FINAL, PENDING, RunConfig, RunResult, RunState
from dwsweep.records.sweep import DROP, Manifest
from dwsweep.spec import load_spec
from dwsweep.sweep import work_queue
from dwsweep.sweep.directory import DOCUMENTS, METRICS, NOT_WRITTEN, PLAN, SweepStore, set_aside_unless_file
from dwsweep.sweep.results_table import results_text

RESULTS, SPEC = "results.csv", "spec.yaml"
IN_NAME = ("seed", "learning_rate", "steps", "tokens", "n_params", "n_params_total", "data_hash", "shape")
"""Fields determined by a run_id: a config.json with other values belongs to another run."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class File:
    """File of a sweep, existing or recorded elsewhere; ``why``: its fault, empty if it is whole."""

    kind: str  # its name with * for the run or the pack, such as runs/*/result.json
    path: Any
    why: str = ""


@dataclass
class Finding:
    """The files of one kind."""

    kind: str
    whole: int = 0
    faulty: list[File] = field(default_factory=list)


def verify(directory: Any) -> tuple[Finding, ...]:
    """Compare every file with its recorded hash. Reads, and writes nothing.

    Raises:
        InputError: it is no sweep directory.
    """
    store = SweepStore(directory)
    if not any((store.directory / name).exists() for name in (PLAN, "runs", "manifest.json")):
        raise InputError(f"DIR: {directory}; must be a directory made by `dwsweep run`")
    found: dict[str, Finding] = {}
    for file in look(store):
        finding = found.setdefault(file.kind, Finding(file.kind))
        if file.why:
            finding.faulty.append(file)
        else:
            finding.whole += 1
    return tuple(found.values())


# the look


def look(store: SweepStore) -> Iterator[File]:
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
    yield from _results(store)
    yield from _fit(root)
    bench = root / bench_record.FILE_NAME
    if paths.is_there(bench):
        yield File(bench.name, bench, _fault(lambda: bench_record.read(bench)))
    with contextlib.suppress(InputError, OSError):
        if (tokens := find_store(load_spec(root / SPEC).data)) is not None:
            yield File("token store", tokens.path, _fault(tokens.verify))


def _run(store: SweepStore, run_id: str) -> Iterator[File]:
    """Records of a run and the documents behind its result, which decide whether it is done."""
    yield from _record(store, RunState, run_id)
    state = _sound(store, RunState, run_id)
    yield from _record(store, RunResult, run_id, needed=state is not None and state.state == DONE)
    if (result := _sound(store, RunResult, run_id)) is not None:
        documents = store.documents_path(run_id)
        missing = "" if paths.is_remote(documents) or paths.is_there(documents) else MISSING
        yield File(
            _kind_of(store, documents), documents, missing or _fault(lambda: store.check_documents(run_id, result))
        )


def _kept(store: SweepStore, run_id: str) -> Iterator[File]:
    """Parameters and metrics of a finished run, which no later command makes again."""
    if (result := _sound(store, RunResult, run_id)) is None:
        return
    params, metrics = store.params_path(run_id), store.metrics_path(run_id)
    if result.params_sha256 is not None:
        why = _fault_of_bytes(params, result.params_sha256, CHANGED)
        yield File(_kind_of(store, params), params, why)
    if result.metrics_rows is not None or metrics.exists():
        found = metrics_of(metrics.parent)
        lost = f"rows are lost: {found.lost} of {len(found.rows) + found.lost}" if found.lost else ""
        yield File(_kind_of(store, metrics), metrics, found.fault or lost)


def _pack(store: SweepStore, pack_id: str, finished: bool, planned: Pack | None = None) -> Iterator[File]:
    """Records of a pack; ``finished``: a run names it as the pack that finished it. A pack.json must be part of the
    ``planned`` one."""
    yield from _record(store, Pack, pack_id, finished, partial(_of_plan, planned=planned) if planned else None)
    yield from _record(store, PackProgress, pack_id)
    yield from _record(store, PackState, pack_id, finished)


def _of_plan(pack: Pack, planned: Pack) -> str:
    """Fault of a pack that is no part of the planned one."""
    others = [replica.seed for replica in pack.replicas if replica not in planned.replicas]
    why = f"replicas: seed {others[0]} is not of the pack of this name" if others else ""
    return _differs(pack, planned, ("shape", "branch_steps", "data_hash")) or why


def _differs(record: Any, expected: Any, names: Iterable[str]) -> str:
    wrong = (name for name in names if getattr(record, name) != getattr(expected, name))
    return next((f"{name}: must be {getattr(expected, name)!r}" for name in wrong), "")


def _record(
    store: SweepStore,
    kind: type,
    owner: str = "",
    needed: bool = False,
    contradiction: Callable[[Any], str] | None = None,
) -> Iterator[File]:
    """File of a record, if it is there or ``needed``; ``contradiction``: between the record and what is known."""
    path = store.path_of(kind, owner)

    def check() -> None:
        record = store.read(kind, owner)
        if record is not None and contradiction is not None and (why := contradiction(record)):
            raise Damaged(path, path.name, why)

    if (there := paths.is_there(path)) or needed:
        yield File(_kind_of(store, path), path, _fault(check) if there else MISSING)


def _lost_results(store: SweepStore, pack_id: str) -> Iterator[File]:
    """Results that are gone with their run's state: a finished pack had one for each of its runs."""
    state, pack = _sound(store, PackState, pack_id), _sound(store, Pack, pack_id)
    for run_id in pack.run_ids if pack is not None and state is not None and state.state == DONE else ():
        found = _sound(store, RunState, run_id) or RunState()
        # a run that is tried again names the pack that will train it
        path = store.path_of(RunResult, run_id)  # one that is there and faulty has a line of its own
        if found.state not in FINAL and found.pack_id in (None, pack_id) and not paths.is_there(path):
            yield File(_kind_of(store, path), path, MISSING)


def _results(store: SweepStore) -> Iterator[File]:
    with contextlib.suppress(InputError, OSError):  # a damaged plan has a line of its own
        yield _table(RESULTS, store.results_path, results_text(store))


def _fit(root: Any) -> Iterator[File]:
    path = root / "fit" / "fit.json"
    if not paths.is_there(path):
        return
    found: list[Any] = []
    yield File("fit/fit.json", path, _fault(lambda: found.append(fit_record.read_any(path))))
    for fit in found:
        for name, text in fit_record.tables_of(fit).items():
            yield _table(f"fit/{name}", path.with_name(name), text)


def _sound(store: SweepStore, kind: type, owner: str = "") -> Any:
    with contextlib.suppress(Damaged, OSError):
        return store.read(kind, owner)
    return None


def _planned(store: SweepStore) -> list[str]:
    if not paths.is_there(store.directory / PLAN):
        raise InputError(MISSING)
    return [row.run_id for row in store.planned() if row.action != DROP]


def _kind_of(store: SweepStore, path: Any) -> str:
    parts = store.name_of(path).split("/")
    return "/".join([parts[0], "*", *parts[2:]]) if len(parts) > 2 else "/".join(parts)


def _fault(check: Callable[[], Any]) -> str:
    """Why a check fails; empty if it does not."""
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
        if hashlib.sha256(paths.read_bytes(path, 1 << 40)).hexdigest() != digest:
            raise Damaged(path, path.name, why)

    return _fault(check)


def _text(path: Any, known: dict[str, str], read: Callable[[Any], Any]) -> File:
    """Text that a person reads and the manifest has the hash of."""
    why = _fault(lambda: read(path))
    if not why and (digest := known.get(path.name)):
        why = _fault_of_bytes(path, digest, NOT_WRITTEN)
    return File(path.name, path, why)


def _table(kind: str, path: Any, text: str) -> File:
    """Table that follows from other files."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return File(kind, path, _fault_of_bytes(path, digest, "is not the table of the runs"))


# the mend


def mend(store: SweepStore, plan: Plan, packs: Collection[Pack], say: Say) -> None:
    """Set the damaged records of a sweep aside, and write those that follow from others; ``say`` receives a line each.

    ``packs`` are the planned packs that the caller answers for. Files that every shard may write are mended under a
    lock of the kernel. The records of a run come before those of its pack, which follow from them.
    """
    with store.manifest_guard():
        for file in _faulty(_record(store, Manifest, needed=bool(store.pack_ids()))):
            _report(store, file, say, "begun anew")
    with exclusive(store.directory / "locks" / "repair.guard"):
        _mend_texts(store, say)
        _mend_configs(store, plan, say)
    families = work_queue.Families(store)
    for pack in packs:
        family = families.of(pack.pack_id)
        for run_id in pack.run_ids:
            _mend_run(store, run_id, say)
        states = {run_id: store.state(run_id) for run_id in pack.run_ids}
        finished_by = {state.pack_id for state in states.values() if state.state in FINAL}
        trained_by = {run_id: state.pack_id for run_id, state in states.items()}
        for pack_id in family:
            log = store.log_path(pack_id)
            set_aside_unless_file(log, store.name_of(log), say)
            for file in _faulty(_pack(store, pack_id, pack_id in finished_by, pack)):
                if file.path == store.path_of(Pack, pack_id):
                    derived = _derived_pack(store, pack, pack_id, family, trained_by)
                    if derived or file.why != MISSING:
                        _report(store, file, say, "written again from the plan" if derived else "trained anew")
                    if derived:
                        store.write_pack(derived)
                elif file.path == store.path_of(PackProgress, pack_id):
                    _report(store, file, say, "the next start writes it")
        for pack_id in family:
            for file in _faulty(_record(store, PackState, pack_id, pack_id in finished_by)):
                state = _derived_state(store, pack_id, family)
                _report(store, file, say, f"taken as {state.state}")
                store.write(pack_id, state)


def _faulty(files: Iterable[File]) -> Iterator[File]:
    return (file for file in files if file.why)


def _report(store: SweepStore, file: File, say: Say, then: str) -> None:
    """Set a damaged file aside, and say so; a missing one is said."""
    aside = "" if file.why == MISSING else f"set aside as {paths.set_aside(file.path)}, "
    say(f"{store.name_of(file.path)}: {file.why}; {aside}{then}")


def _mend_texts(store: SweepStore, say: Say) -> None:
    """Set folders aside in the place of the texts that every call writes again."""
    for name in (SPEC, PLAN, RESULTS):
        _clear(store, store.directory / name, say)


def _clear(store: SweepStore, path: Any, say: Say) -> None:
    if paths.is_folder(path):
        _report(store, File("", paths.as_path(path), "is a folder"), say, "written again")


def _mend_configs(store: SweepStore, plan: Plan, say: Say) -> None:
    there = set(store.run_ids())
    for run in plan.runs:
        if run.action == DROP or run.run_id not in there:
            continue
        expected = run_config(run, plan)
        check = partial(_differs, expected=expected, names=IN_NAME)
        for file in _faulty(_record(store, RunConfig, run.run_id, True, check)):
            _report(store, file, say, "written again from the plan")
            store.write(run.run_id, expected)


def _mend_run(store: SweepStore, run_id: str, say: Say) -> None:
    """Mend a run: one with a damaged result, or damaged documents, is pending. Without documents the loss stands."""
    for file in _faulty(_run(store, run_id)):
        if file.why == MISSING:
            continue
        result = store.result(run_id)
        is_state = file.path == store.path_of(RunState, run_id)
        _report(store, file, say, "the run goes on from its checkpoint" if is_state else "the run is trained again")
        if file.path == store.documents_path(run_id) and result is not None:
            paths.set_aside(store.path_of(RunResult, run_id))
            store.write_state(run_id, RunState(PENDING, pack_id=result.pack_id))
    for name in (METRICS, DOCUMENTS):
        _clear(store, store.place("runs", run_id, name), say)


def _derived_pack(
    store: SweepStore, planned: Pack, pack_id: str, family: list[str], trained_by: dict[str, str | None]
) -> Pack | None:
    """Pack by the plan, with the replicas whose runs name it; None if none do. A planned pack also has the replicas
    that nobody trained, and those that left it later."""
    own = {None, *family} if pack_id == planned.pack_id else {pack_id}
    members = tuple(replica for replica in planned.replicas if own & {trained_by[name] for name in replica.run_ids})
    if not members:
        return None
    parent = next((name for name in family if pack_id in store.pack_state(name).rebuilt_into), None)
    split = parent is not None and store.pack_state(parent).state == REBUILT  # the damaged file alone held the reason
    reason = IN_PART if len(members) < len(planned.replicas) and not split else None
    return replace(planned, pack_id=pack_id, replicas=members, rebuilt_from=parent, reason=reason)


def _derived_state(store: SweepStore, pack_id: str, family: list[str]) -> PackState:
    """State of a pack by its runs, and by the packs that took its replicas over: all of them after a split."""
    packs = [pack for pack in map(store.pack, family) if pack is not None]
    children = [pack for pack in packs if pack.rebuilt_from == pack_id]
    own = next((pack for pack in packs if pack.pack_id == pack_id), None)
    state = PENDING
    if any(child.reason != IN_PART for child in children):
        state = REBUILT
    elif own is not None and all(store.state(name).state in FINAL for name in own.run_ids):
        state = DONE
    started = store.progress(pack_id).started
    return PackState(
        state,
        checkpoint=store.newest_checkpoint(pack_id),
        microbatch=started.microbatch if started else None,
        rebuilt_into=tuple(child.pack_id for child in children),
    )
