"""The plan of a sweep in its directory: what is left to do there, at the rates that were fixed there.

Where runs are as long as ``train.seconds`` allow, their steps follow from rates, and the first plan that is written
into a directory fixes those (manifest.json, ``rates``): every later one takes them, so that a run is the same run after
another benchmark, in another shard, on another host. The first to write wins, under the lock of the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dwsweep import paths
from dwsweep.cost.duration import Calibration
from dwsweep.errors import InputError
from dwsweep.plan import DataFacts, Plan, build
from dwsweep.records.fixed_rates import FixedRate
from dwsweep.records.sweep_files import Manifest
from dwsweep.spec import Spec
from dwsweep.sweep import ownership, repair
from dwsweep.sweep.sweep_directory import SweepStore

if TYPE_CHECKING:
    from dwsweep.data.token_store import Store as TokenStore


def plan_of_rest(spec: Spec, tokens: TokenStore | None, directory: Any, retry: Collection[str] = ()) -> Plan:
    """What is still to be done of a sweep in ``directory``, with the rates that `bench` measured or compiled for it:
    `plan` shows what `run` carries out. Reads, and writes nothing."""
    return _built(spec, DataFacts.of(tokens) if tokens else None, SweepStore(directory), retry)


def check(spec: Spec, directory: Any) -> None:
    """Refuse what cannot be trained in ``directory``, before its data is prepared.

    Raises:
        InputError: all that is wrong with it.
    """
    if spec.train.seconds is None:
        build(spec)
    else:
        build(spec, calibration=Calibration.found_in(directory), rates=known_rates(SweepStore(directory))[0])


def _built(spec: Spec, data: DataFacts | None, store: SweepStore, retry: Collection[str]) -> Plan:
    rates, notes = known_rates(store) if spec.train.seconds is not None else ((), [])
    plan = build(
        spec,
        data=data,
        finished=store.finished(retry=retry),
        calibration=Calibration.found_in(store.directory),
        rates=rates,
    )
    return replace(plan, warnings=(*notes, *plan.warnings))


def known_rates(store: SweepStore) -> tuple[tuple[FixedRate, ...], list[str]]:
    """(rates that were fixed in a sweep directory, a line where its manifest has lost some).

    Every run's config.json has the one that it was promised by, which is where lost ones are found again.
    """
    written = store.manifest.rates
    known = {(rate.of, rate.device) for rate in written}
    configs = [config for config in map(store.config, store.run_ids()) if config is not None]
    promised = sorted((c.promise.rate for c in configs if c.promise), key=lambda rate: rate.fixed or "")
    lost: dict[Any, FixedRate] = {}
    for rate in promised:
        if (rate.of, rate.device) not in known:
            lost.setdefault((rate.of, rate.device), rate)
    if not lost:
        return written, []
    line = (
        f"manifest.json has lost the rates of {len(lost)} shape{'s' * (len(lost) > 1)} that lengths of runs were fixed "
        "at (train.seconds); they are taken from the config.json of the runs"
    )
    return (*written, *lost.values()), [line]


def fix_rates(
    plan: Plan, store: SweepStore, retry: Collection[str] = (), say: Callable[[str], None] = lambda line: None
) -> Plan:
    """Write down the rates that a plan's lengths follow from; the plan at the rates that stand, which are another
    process's where that was faster. ``say`` hears what they are.

    A bucket has no locks between hosts: there two that begin in the same second write the same, from the same bench.
    """
    if not plan.lengths.needs_rates:
        return plan
    repair.check_manifest(store, say)
    lost: list[str] = []

    def written(manifest: Manifest) -> Manifest:
        known, notes = known_rates(store)
        lost.extend(notes)
        parts = [(replace(part.lengths, fixed=known), part.runs) for part in plan.parts.values()]
        needed = (lengths.rate(run.shape) for lengths, runs in parts for run in runs)
        held = set(manifest.rates)
        return manifest.with_rates(rate for rate in dict.fromkeys((*known, *needed)) if rate not in held)

    paths.make_directory(store.directory)
    store.update_manifest(written)
    found = _built(plan.spec, plan.data, store, retry)
    for line in lost:
        say(line)
    for basis in dict.fromkeys(part.lengths.basis(run.shape for run in part.runs) for part in found.parts.values()):
        say(f"lengths: {basis}")
    return replace(found, warnings=(*lost, *found.warnings))


def with_rates_fixed(plan: Plan, directory: str | os.PathLike[str]) -> Plan:
    """The same for ``plan --out``.

    Raises:
        InputError: a running sweep owns the directory.
    """
    if not plan.lengths.needs_rates:
        return plan
    store = SweepStore(directory)
    paths.make_directory(store.directory)
    with ownership.unowned(directory):
        return fix_rates(plan, store)


def write_plan(plan: Plan, directory: str | os.PathLike[str]) -> Any:
    """Write plan.csv alone, for ``plan --out``; returns its path.

    Raises:
        InputError: a running sweep owns the directory, or one has begun there and the plan's ids are not those of its
            runs because the data is not prepared here.
    """
    store = SweepStore(directory)
    if plan.waits_for_data and store.run_ids():
        raise InputError(
            f"--out: {directory}; a sweep has begun there, and this plan has no ids of its runs since the data is not "
            "prepared here: run `dwsweep prepare` first, or name another directory"
        )
    paths.make_directory(store.directory)
    with ownership.unowned(directory):
        return store.write_plan_table(plan)
