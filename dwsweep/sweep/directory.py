"""Layout, reading and writing of the sweep directory. The directories are the truth; ``results.csv`` follows.

spec.yaml  plan.csv  results.csv  manifest.json
packs/<pack_id>/pack.json  state.json  log.txt, and until the pack is finished progress.json  checkpoints/
runs/<run_id>/config.json  metrics.jsonl  status.json  result.json  documents.npy  params.safetensors
locks/ (``claim``)
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from dwsweep import jsonl, paths
from dwsweep.locks import exclusive
from dwsweep.records import record as reader
from dwsweep.records import sweep as sweep_record
from dwsweep.records.documents import fault_of_documents
from dwsweep.records.pack import Pack, PackProgress, PackState
from dwsweep.records.record import Damaged
from dwsweep.records.run import DONE, FAILED, FINAL, OOM, STOPPED, RunConfig, RunResult, RunState
from dwsweep.records.sweep import DROP, Manifest, PlanRow

if TYPE_CHECKING:
    from dwsweep.plan import Plan

Record = TypeVar("Record")

SPEC, PLAN, METRICS, DOCUMENTS = "spec.yaml", "plan.csv", "metrics.jsonl", "documents.npy"
MOST_PARAMS_BYTES = 1 << 40  # size limit of params.safetensors, above that of any other file
NOT_WRITTEN = "is not what `dwsweep run` wrote: its SHA-256 is not the one in manifest.json"
_FILES: dict[type, tuple[str, str]] = {
    Manifest: ("", "manifest.json"),
    RunConfig: ("runs", "config.json"),
    RunState: ("runs", "status.json"),
    RunResult: ("runs", "result.json"),
    Pack: ("packs", "pack.json"),
    PackState: ("packs", "state.json"),
    PackProgress: ("packs", "progress.json"),
}
"""Folder and name of the file of each record."""


def _names(kind: type, owner: str) -> tuple[str, ...]:
    folder, name = _FILES[kind]
    return (folder, owner, name) if folder else (name,)


class SweepStore:
    """Store of one sweep directory: its reader and writer. Holds no state: several processes may each have one.

    A damaged file reads as missing; ``damage`` receives the fault. Reading
    changes nothing: setting damaged files aside is up to the owner of the directory (``inventory``).
    """

    def __init__(
        self, directory: str | os.PathLike[str], damage: Callable[[Damaged], None] = lambda error: None
    ) -> None:
        self.directory = paths.as_path(directory)
        self._root = None if paths.is_remote(self.directory) else os.fspath(self.directory)
        self._damage = damage

    def path_of(self, kind: type, owner: str = "") -> Any:
        """File of a record of the run or pack ``owner``; the manifest has none."""
        return self.directory.joinpath(*_names(kind, owner))

    def read(self, kind: type[Record], owner: str = "") -> Record | None:
        """Record of the run or pack ``owner``; None if there is no file.

        Raises:
            Damaged: the file is damaged.
        """
        place = self.place(*_names(kind, owner))
        try:
            record = reader.read(place, kind)
        except Damaged as error:
            raise Damaged(self.name_of(place), error.why) from None
        # a record that names another owner than its folder was copied from elsewhere
        field = "pack_id" if kind is Pack else "run_id"
        named = getattr(record, field, None)
        if named is not None and named != owner:
            raise Damaged(self.name_of(place), f"{field}: {named!r}; must be {owner!r}")
        return record

    def place(self, *names: str) -> Any:
        """Path below the directory for reading: of a local one a text, since objects of ``pathlib`` would take most of
        the time of reading thousands of files."""
        return self.directory.joinpath(*names) if self._root is None else "/".join((self._root, *names))

    def write(self, owner: str, record: Any, durable: bool = False) -> None:
        """Write a record of the run or the pack ``owner``; ``durable`` waits until the disk has it."""
        path = self.path_of(type(record), owner)
        paths.make_directory(path.parent)
        reader.write(path, record, durable=durable)

    def name_of(self, path: Any) -> str:
        """The path as seen from the sweep directory, for messages."""
        return os.fspath(path).removeprefix(os.fspath(self.directory)).lstrip("/")

    def _sound(self, kind: type[Record], owner: str = "") -> Record | None:
        """The record; None where its file is damaged."""
        try:
            return self.read(kind, owner)
        except Damaged as error:
            self._damage(error)
            return None

    # what is where

    def pack_directory(self, pack_id: str) -> Any:
        return self.directory / "packs" / pack_id

    def run_directory(self, run_id: str) -> Any:
        return self.directory / "runs" / run_id

    @property
    def results_path(self) -> Any:
        return self.directory / sweep_record.RESULTS_NAME

    @property
    def manifest(self) -> Manifest:
        """Versions, devices, git commit and the calls that made this sweep; empty before the first."""
        return self._sound(Manifest) or Manifest()

    def manifest_guard(self) -> contextlib.AbstractContextManager[None]:
        """Lock the manifest during a change, since several shards add to it."""
        return exclusive(self.directory / "locks" / "manifest.guard")

    def update_manifest(self, change: Callable[[Manifest], Manifest]) -> None:
        with self.manifest_guard():
            old = self.manifest
            if (new := change(old)) != old:
                self.write("", new, durable=True)

    # plan

    def write_plan(self, plan: Plan) -> None:
        """Write spec.yaml, plan.csv, and config.json of every run to train that lacks one."""
        from dwsweep.plan.units import run_config, to_rows

        paths.make_directory(self.directory / "runs")
        paths.make_directory(self.directory / "packs")
        there = set(self.run_ids())
        for run in plan.runs:
            if run.action == DROP:
                continue
            known = self.config(run.run_id) if run.run_id in there else None
            if known is None or known.arm != (run.arm or None):  # a known run may belong to an arm of another sweep
                self.write(run.run_id, run_config(run, plan))
        # written last: whoever finds a run in the plan also finds its config.json
        self._write_texts({SPEC: plan.spec.to_yaml(), PLAN: sweep_record.plan_csv(to_rows(plan))})

    def write_plan_table(self, plan: Plan) -> Any:
        """Write plan.csv, one row per run; returns its path."""
        from dwsweep.plan.units import to_rows

        self._write_texts({PLAN: sweep_record.plan_csv(to_rows(plan))})
        return self.directory / PLAN

    def _write_texts(self, texts: Mapping[str, str]) -> None:
        """Write texts by the names of their files, and their hashes into the manifest. A file that holds its text
        stays: a rewrite would change the time on which results.csv rests."""
        paths.make_directory(self.directory)

        def written(old: Manifest) -> Manifest:
            for name, text in texts.items():
                if not paths.holds(path := self.directory / name, text):
                    paths.write_atomic(path, text, durable=True)
            hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
            return replace(old, files={**(old.files or {}), **hashes})

        self.update_manifest(written)

    def check_plan(self) -> None:
        """Report a plan.csv that changed after it was written as damage."""
        known = self.manifest.files or {}
        if PLAN in known and hashlib.sha256(paths.read_bytes(self.directory / PLAN)).hexdigest() != known[PLAN]:
            self._damage(Damaged(PLAN, NOT_WRITTEN))

    def planned(self) -> list[PlanRow]:
        """The rows of plan.csv, in its order; none before the first ``run``.

        Raises:
            Damaged: the file is no plan.
        """
        try:
            return list(sweep_record.parse_plan_csv(paths.read_text(self.directory / PLAN)))
        except FileNotFoundError:
            return []
        except IsADirectoryError:
            raise Damaged(PLAN, "is a folder") from None
        except paths.NotAFile as error:
            raise Damaged(PLAN, str(error.strerror)) from None
        except (ValueError, csv.Error) as error:  # not UTF-8, or a row that is none of a plan
            raise Damaged(PLAN, f"is no table of runs ({error})") from None

    # runs

    def run_ids(self) -> list[str]:
        """List every run that has a directory, orphans included."""
        return paths.names_in(self.directory / "runs")

    def config(self, run_id: str) -> RunConfig | None:
        """Read all facts of a run; None when there is no config.json, or a damaged one."""
        return self._sound(RunConfig, run_id)

    def state(self, run_id: str) -> RunState:
        """State of a run: done by a sound result, else as its status.json says. One that was done and has no sound
        result is pending: it has to be trained again."""
        if (result := self.result(run_id)) is not None:
            try:
                self.check_documents(run_id, result)
            except Damaged as error:
                self._damage(error)
            else:
                return RunState(DONE, step=result.steps, loss=result.loss, pack_id=result.pack_id)
        state = self._sound(RunState, run_id) or RunState()
        if state.state != DONE:
            return state
        return RunState(pack_id=state.pack_id)

    def write_state(self, run_id: str, state: RunState) -> None:
        self.write(run_id, replace(state, updated=time.time(), run_id=run_id), durable=state.state in FINAL)

    def result(self, run_id: str) -> RunResult | None:
        """Read the result of a finished run; None before, or when result.json is damaged."""
        return self._sound(RunResult, run_id)

    def metrics_path(self, run_id: str) -> Any:
        return self.run_directory(run_id) / METRICS

    def documents_path(self, run_id: str) -> Any:
        return self.run_directory(run_id) / DOCUMENTS

    def check_documents(self, run_id: str, result: RunResult) -> None:
        """Refuse damaged held-out documents, and documents of another result.

        Raises:
            Damaged: they are not.
        """
        if why := fault_of_documents(place := self.place("runs", run_id, DOCUMENTS), result):
            raise Damaged(self.name_of(place), why)

    def params_path(self, run_id: str) -> Any:
        return self.run_directory(run_id) / "params.safetensors"

    def finish(
        self, run_id: str, pack_id: str, result: RunResult, documents: Any, params: Mapping[str, Any] | None = None
    ) -> None:
        """Record a finished run: its other files first, then result.json with their hashes, which makes it done. All
        that belongs to the run, what was written before included, is on the disk when this returns."""
        paths.make_directory(self.run_directory(run_id))
        documents_sha256 = paths.write_array(self.documents_path(run_id), documents)
        stamped = replace(result, run_id=run_id, pack_id=pack_id, documents_sha256=documents_sha256)
        if lines := jsonl.bytes_of_lines(self.metrics_path(run_id)):
            digest = hashlib.sha256(lines).hexdigest()
            stamped = replace(stamped, metrics_sha256=digest, metrics_rows=lines.count(b"\n"))
        if params is not None:
            digest, size = paths.write_safetensors(self.params_path(run_id), params)
            stamped = replace(stamped, params_sha256=digest, params_bytes=size)
        for path in (self.path_of(RunConfig, run_id), self.metrics_path(run_id)):
            paths.sync_file(path)
        self.write(run_id, stamped, durable=True)
        paths.remove(self.path_of(RunState, run_id))

    def sync(self, run_id: str) -> None:
        """Sync all files of a run, such as one that ended although its last write failed. A done one has no status: a
        kill left that of its training."""
        if self.state(run_id).state == DONE:
            paths.remove(self.path_of(RunState, run_id))
        if not paths.is_remote(self.directory) and (folder := self.run_directory(run_id)).exists():
            for name in paths.names_in(folder):
                paths.sync_file(folder / name)
            paths.sync_folder(folder)

    def finished(self, retry: Collection[str] = ()) -> dict[str, str]:
        """State by id of the runs that ``is_over``."""
        states = {run_id: self.state(run_id).state for run_id in self.run_ids()}
        return {run_id: state for run_id, state in states.items() if is_over(state, retry)}

    def packs_that_finished(self, run_ids: Iterable[str]) -> list[str]:
        """Packs by which these runs are done or diverged, each once."""
        states = map(self.state, run_ids)
        return list(dict.fromkeys(state.pack_id for state in states if state.state in FINAL and state.pack_id))

    # packs

    def pack_ids(self) -> list[str]:
        return paths.names_in(self.directory / "packs")

    def pack(self, pack_id: str) -> Pack | None:
        """Pack as first written: its membership is final. None when there is none, or a damaged one."""
        return self._sound(Pack, pack_id)

    def write_pack(self, pack: Pack) -> None:
        self.write(pack.pack_id, pack, durable=True)

    def clear_pack(self, pack_id: str) -> None:
        """Drop the remains of a pack without a pack.json: its checkpoints may belong to other replicas, or to a
        finished pack whose results the user deleted for another training."""
        self.remove_progress(pack_id)
        paths.remove(self.path_of(PackState, pack_id))

    def remove_checkpoints(self, pack_id: str) -> None:
        paths.remove(self.pack_directory(pack_id) / "checkpoints")

    def pack_state(self, pack_id: str) -> PackState:
        return self._sound(PackState, pack_id) or PackState()

    def progress(self, pack_id: str) -> PackProgress:
        """Read the progress of a pack; step 0 and nothing else before its first start."""
        return self._sound(PackProgress, pack_id) or PackProgress()

    def write_progress(self, pack_id: str, progress: PackProgress) -> None:
        self.write(pack_id, replace(progress, updated=time.time()))

    def remove_progress(self, pack_id: str) -> None:
        """Remove the progress and the checkpoints of a pack, from which nothing resumes."""
        paths.remove(self.path_of(PackProgress, pack_id))
        self.remove_checkpoints(pack_id)

    def newest_checkpoint(self, pack_id: str) -> int:
        """Number of the newest checkpoint; 0: there is none."""
        names = paths.names_in(self.pack_directory(pack_id) / "checkpoints")
        return max((int(name.rstrip("/")) for name in names if name.rstrip("/").isdigit()), default=0)

    def log_path(self, pack_id: str) -> Any:
        return self.pack_directory(pack_id) / "log.txt"


def is_over(state: str, retry: Collection[str] = ()) -> bool:
    """True for a run that ended in a state outside ``retry`` (failed, diverged).

    ``failed`` covers ``oom``.
    """
    return state in FINAL | STOPPED and state not in retry and not (state == OOM and FAILED in retry)
