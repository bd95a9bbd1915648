"""Work queue: packs still to train, from plan and directory, each by the pack that holds its checkpoint.

A pack's membership stays as first written, since a replica's last bits depend on its pack. A run of an edited spec may
belong to a pack that the new plan lacks: one with a checkpoint is finished as it is, and the plan's pack is written
with the other replicas. A finished pack that lost a result trains again as it was.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from dwsweep import paths
from dwsweep.cost.arithmetic import training_flops
from dwsweep.cost.duration import Calibration
from dwsweep.data.tokenizer import given_files
from dwsweep.errors import InputError
from dwsweep.plan import DROP, DataFacts, Pack, Plan, build
from dwsweep.records.pack import IN_PART, REBUILT
from dwsweep.records.run import DIVERGED, DONE, PENDING, RunState
from dwsweep.spec import Spec
from dwsweep.sweep import claim
from dwsweep.sweep.claim import Shard
from dwsweep.sweep.directory import SweepStore, is_over

if TYPE_CHECKING:
    from dwsweep.data.token_store import Store as TokenStore


def parse_shard(text: str | None, environment: Mapping[str, str] | None = None) -> Shard:
    """Parse ``I/N`` to (I, N), counted from 0; ``slurm``: from the variables of a Slurm array; None: the whole sweep.

    Raises:
        InputError: not of that form, or I not below N.
    """
    if text is None:
        return 0, 1
    env = os.environ if environment is None else environment
    allowed = "allowed: I/N with 0 ≤ I < N, such as 0/8, or `slurm` inside a Slurm array"
    if text == "slurm":
        try:
            number, first = int(env["SLURM_ARRAY_TASK_ID"]), int(env.get("SLURM_ARRAY_TASK_MIN", "0"))
            count, step = int(env["SLURM_ARRAY_TASK_COUNT"]), int(env.get("SLURM_ARRAY_TASK_STEP", "1"))
        except (KeyError, ValueError) as error:
            raise InputError(f"--shard: 'slurm', but {error} is not set as Slurm sets it; {allowed}") from None
        if step < 1 or (number - first) % step or not 0 <= (number - first) // step < count:
            raise InputError(
                f"--shard: 'slurm', but task {number} of {count} from {first} in steps of {step} is not one of a "
                f"regular array; {allowed}"
            )
        return (number - first) // step, count
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if not (found and int(found[1]) < int(found[2])):
        raise InputError(f"--shard: {text[:40]!r}; {allowed}")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class Unit:
    """Pack to train, and the runs that its training finishes."""

    pack: Pack
    runs: frozenset[str]
    new: bool = False  # True if the record is not written yet

    @property
    def frozen(self) -> tuple[str, ...]:
        """Runs of the pack that another pack finishes."""
        return tuple(name for name in self.pack.run_ids if name not in self.runs)


@dataclass(frozen=True)
class Schedule:
    units: tuple[Unit, ...]  # units of this shard, long ones first
    states: dict[str, RunState]  # states of all planned runs, as found
    run_ids: tuple[str, ...]  # runs of this shard, finished ones included
    orphans: tuple[str, ...]  # runs with a directory that the plan lacks


def pack_weight(pack: Pack) -> float:
    """Cost of a pack: FLOPs of its replicas' full length, the short branches left out."""
    tokens = pack.branch_steps[-1] * pack.train.batch_size * pack.train.seq_len
    return float(training_flops(pack.shape, tokens) * len(pack.replicas))


def ordered(packs: Collection[Pack]) -> list[Pack]:
    """Order packs by length, longest first, so that no device waits at the end; equal on every host."""
    return sorted(packs, key=lambda pack: (-pack_weight(pack), pack.pack_id))


def own(plan: Plan, shard: Shard) -> list[Pack]:
    """The planned packs of a shard: every count-th from the index-th."""
    return ordered(plan.packs)[shard[0] :: shard[1]]


def make(plan: Plan, store: SweepStore, shard: Shard = (0, 1), retry: Collection[str] = ()) -> Schedule:
    """Find the work left to do. Reads the directory, writes nothing."""
    planned = [run.run_id for run in plan.runs if run.action != DROP]
    states = {run_id: store.state(run_id) for run_id in planned}
    needed = {run_id for run_id, state in states.items() if not is_over(state.state, retry)}
    families = Families(store)

    units: dict[str, Unit] = {}
    shard_of: dict[str, int] = {}
    mine: list[str] = []
    for index, pack in enumerate(ordered(plan.packs)):
        if index % shard[1] == shard[0]:
            mine += pack.run_ids
        for unit in _units(pack, [name for name in pack.run_ids if name in needed], states, families):
            known = units.get(unit.pack.pack_id)
            units[unit.pack.pack_id] = replace(unit, runs=known.runs | unit.runs) if known else unit
            shard_of.setdefault(unit.pack.pack_id, index % shard[1])
    own = [unit for name, unit in units.items() if shard_of[name] == shard[0]]
    own.sort(key=lambda unit: (-pack_weight(unit.pack), unit.pack.pack_id))
    orphans = tuple(sorted(set(store.run_ids()) - set(planned)))
    return Schedule(tuple(own), states, tuple(mine), orphans)


def settle(schedule: Schedule, store: SweepStore, plan: Plan) -> list[Unit]:
    """Write the new packs and put runs that are tried again back to pending; the units with their execution as now."""
    settled = []
    for unit in schedule.units:
        pack = replace(unit.pack, execution=plan.spec.execution)
        if not unit.new and pack != unit.pack:  # its membership is fixed, how it is executed is not
            store.write_pack(pack)
        if unit.new:
            store.clear_pack(pack.pack_id)
            store.write_pack(pack)
            if pack.rebuilt_from:
                parent = store.pack_state(pack.rebuilt_from)
                children = (*parent.rebuilt_into, pack.pack_id)
                store.write(pack.rebuilt_from, replace(parent, rebuilt_into=children))
        state = store.pack_state(pack.pack_id)
        again = [name for name in unit.runs if name in schedule.states and is_over(schedule.states[name].state)]
        for name in again:
            store.write_state(name, RunState(PENDING, pack_id=pack.pack_id))
        if state.state == DONE:  # a result was lost: train from the start, since nothing is left to train at the end
            store.remove_checkpoints(pack.pack_id)
            store.write(pack.pack_id, replace(state, state=PENDING, retries=0, checkpoint=0))
        elif again:
            # a new try counts its own failures
            store.write(pack.pack_id, replace(state, state=PENDING, retries=0))
        settled.append(replace(unit, pack=pack))
    return settled


class Families:
    """Packs of a directory with those that took replicas over from them, each file read once.

    A successor is known by its own pack.json, or by the state.json of the pack it comes from where that is damaged.
    """

    def __init__(self, store: SweepStore) -> None:
        self.store = store
        self.pack, self.state = cache(store.pack), cache(store.pack_state)
        there = store.pack_ids()
        parents = {child: pack_id for pack_id in there for child in self.state(pack_id).rebuilt_into}
        parents |= {name: pack.rebuilt_from for name in there if (pack := self.pack(name)) and pack.rebuilt_from}
        self._children: dict[str, list[str]] = defaultdict(list)
        for child in sorted(parents, key=lambda name: (len(name), name)):
            self._children[parents[child]].append(child)

    def of(self, pack_id: str) -> list[str]:
        """The pack and its successors, older ones first."""
        found = [pack_id]
        for name in found:
            found += [child for child in self._children[name] if child not in found]
        return found

    def members(self, pack_id: str) -> list[Pack]:
        """The pack and its successors as they were written; none if the pack was not."""
        found = [pack for pack in map(self.pack, self.of(pack_id)) if pack is not None]
        return found if self.pack(pack_id) is not None else []

    def can_finish(self, pack_id: str) -> bool:
        """True if a pack outside the plan should finish its runs: it has begun, or trains again unchanged."""
        return self.store.newest_checkpoint(pack_id) > 0 or self.state(pack_id).state == DONE

    @cached_property
    def trained(self) -> dict[str, str]:
        """Finished pack of each run, which may have lost its result."""
        done = [pack_id for pack_id in self.store.pack_ids() if self.state(pack_id).state == DONE]
        return {name: pack_id for pack_id in done if (pack := self.pack(pack_id)) for name in pack.run_ids}

    def holder(self, pack_id: str, run_id: str) -> Pack | None:
        """Newest pack of the family, which trains the run."""
        for pack in reversed(self.members(pack_id)):
            if self.state(pack.pack_id).state != REBUILT and run_id in pack.run_ids:
                return pack
        return None


def _units(pack: Pack, needed: list[str], states: dict[str, RunState], families: Families) -> list[Unit]:
    """Assign the needed runs of one planned pack to the packs that train them."""
    if not needed:
        return []
    family = {member.pack_id for member in families.members(pack.pack_id)}
    held: dict[str, tuple[Pack, set[str]]] = {}
    anew: set[str] = set()
    for name in needed:
        state = states[name]
        if state.state == DIVERGED:
            anew.add(name)  # the pack's checkpoint masks this replica
            continue
        holder = families.holder(pack.pack_id, name)
        owner = state.pack_id or (families.trained.get(name) if holder is None else None)
        if owner and owner not in family and families.can_finish(owner):
            holder = families.holder(owner, name) or holder
        if holder is None:
            anew.add(name)
        else:
            held.setdefault(holder.pack_id, (holder, set()))[1].add(name)
    units = [Unit(holder, frozenset(names)) for holder, names in held.values()]
    if anew:
        members = tuple(replica for replica in pack.replicas if anew & set(replica.run_ids))
        fresh = replace(pack, replicas=members)
        if family:
            fresh = replace(fresh, pack_id=f"{pack.pack_id}-r{len(family)}", rebuilt_from=pack.pack_id)
        if family or len(members) < len(pack.replicas):  # its size, on which last bits depend, is another: say why
            fresh = replace(fresh, reason=IN_PART)
        units.append(Unit(fresh, frozenset(anew), new=True))
    return units


def plan_of_rest(spec: Spec, tokens: TokenStore | None, directory: Any, retry: Collection[str] = ()) -> Plan:
    """Plan the remaining work of a sweep in ``directory``, with the rates of its `bench`: `plan` shows it, `run`
    carries it out. Reads, and writes nothing."""
    store, data = SweepStore(directory), DataFacts.of(tokens) if tokens else None
    return build(spec, data=data, finished=store.finished(retry), calibration=Calibration.read(store.directory))


def check(spec: Spec) -> None:
    """Refuse a spec that cannot be trained, before its data is prepared.

    Raises:
        InputError: all that is wrong with it.
    """
    given_files(spec.data)
    build(spec)


def write_plan(plan: Plan, directory: str | os.PathLike[str]) -> Any:
    """Write plan.csv alone, for ``plan --out``; returns its path.

    Raises:
        InputError: a running sweep owns the directory, or one has begun there and the plan's ids differ from its runs'
        because the data is not prepared here.
    """
    store = SweepStore(directory)
    if plan.waits_for_data and store.run_ids():
        raise InputError(
            f"--out: {directory}; a sweep has begun there, and this plan has no ids of its runs since the data is not "
            "prepared here: run `dwsweep prepare` first, or name another directory"
        )
    paths.make_directory(store.directory)
    with claim.hold(directory):
        return store.write_plan_table(plan)
