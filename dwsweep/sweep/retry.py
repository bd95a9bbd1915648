"""What follows from the way an attempt ended: a pure decision by its cause."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from dwsweep.cost.memory import halved
from dwsweep.plan import Pack
from dwsweep.sweep import causes
from dwsweep.sweep.causes import Ended
from dwsweep.sweep.states import DONE, FAILED, INTERRUPTED, OOM, PENDING, REBUILT, PackEvent, PackState

MAX_HALVINGS = 3  # of the microbatch before the pack is split; each costs a compilation


@dataclass(frozen=True)
class Decision:
    """The pack's new state, the packs to put into the queue in its place, and what its unfinished runs become."""

    state: PackState
    queue: tuple[Pack, ...] = ()
    run_state: str | None = None  # None: as the worker left it
    cause: str | None = None
    stops_sweep: bool = False

    @property
    def gives_up(self) -> bool:
        return self.run_state in (FAILED, OOM)


def decide(
    pack: Pack,
    state: PackState,
    ended: Ended,
    max_retries: int,
    finished: Collection[str] = (),
    checkpoint: int = 0,
) -> Decision:
    """The next step for a pack; ``finished`` are its runs that have their result, ``checkpoint`` is its newest one.

    - done, interrupted: nothing to do.
    - out of memory: the microbatch is halved, at the same global batch, and the pack goes on from its checkpoint;
      after ``MAX_HALVINGS`` the pack is split in two, which start anew (a replica's last bits depend on the size of
      its pack); one replica alone is halved down to one sequence a device, then given up as ``oom``.
    - crash: tried again from its checkpoint, ``max_retries`` times without a new checkpoint.
    - error: wrong input; it fails at once.
    - disk full: the sweep stops; the pack keeps its last good checkpoint.
    """
    moved_on = checkpoint > state.checkpoint
    state = replace(state, resumed_step=ended.resumed_step, checkpoint=max(checkpoint, state.checkpoint))

    def after(action: str, **changes: object) -> PackState:
        event = PackEvent(time.time(), ended.kind, ended.cause, action, ended.step, ended.log_tail)
        return state.with_event(event, **changes)

    if ended.kind == causes.DONE:
        return Decision(replace(state, state=DONE))
    if ended.kind == causes.INTERRUPTED:
        return Decision(after("goes on with the next run", state=INTERRUPTED), (), INTERRUPTED, ended.cause)
    if ended.kind == causes.DISK_FULL:
        stopped = after("the sweep stops", state=INTERRUPTED)
        return Decision(stopped, (), INTERRUPTED, ended.cause, stops_sweep=True)
    if ended.kind == causes.OOM:
        return _out_of_memory(pack, state, ended, finished, after)
    if ended.kind == causes.CRASH:
        retries = 1 if moved_on else state.retries + 1
        if retries <= max_retries:
            action = f"retry {retries} of {max_retries} from the last checkpoint"
            return Decision(after(action, state=PENDING, retries=retries), (pack,), INTERRUPTED, ended.cause)
        return Decision(after(f"given up after {max_retries} retries", state=FAILED), (), FAILED, ended.cause)
    return Decision(after("given up", state=FAILED), (), FAILED, ended.cause)


def _out_of_memory(
    pack: Pack, state: PackState, ended: Ended, finished: Collection[str], after: Callable[..., PackState]
) -> Decision:
    batch = pack.train.batch_size
    used = ended.microbatch or pack.execution.microbatch or batch
    alone = len(pack.replicas) == 1
    # devices that share each sequence batch hold one sequence at least: asked for less, the trainer uses what it used
    at_floor = state.microbatch is not None and used > state.microbatch
    smaller = None if at_floor else halved(batch, used)
    if smaller is not None and (alone or state.halvings < MAX_HALVINGS):
        action = f"microbatch {used} → {smaller} of {batch} sequences"
        changed = after(action, state=PENDING, microbatch=smaller, halvings=state.halvings + 1)
        return Decision(changed, (with_microbatch(pack, smaller),), INTERRUPTED, ended.cause)
    if alone:
        least = "one sequence" if used == 1 else f"{used} sequences, the fewest that its devices can share"
        return Decision(after(f"given up at {least}", state=OOM, microbatch=used), (), OOM, ended.cause)
    children = split(pack, finished, used)
    names = tuple(child.pack_id for child in children)
    changed = after(f"split into {' and '.join(names)}", state=REBUILT, rebuilt_into=(*state.rebuilt_into, *names))
    return Decision(changed, children, PENDING, ended.cause)


def with_microbatch(pack: Pack, microbatch: int | None) -> Pack:
    return replace(pack, execution=pack.execution.model_copy(update={"microbatch": microbatch}))


def split(pack: Pack, finished: Collection[str] = (), microbatch: int | None = None) -> tuple[Pack, ...]:
    """Packs of half the replicas each; replicas whose runs are all finished are left out."""
    members = [replica for replica in pack.replicas if not set(replica.run_ids) <= set(finished)]
    middle = (len(members) + 1) // 2
    parts = [part for part in (members[:middle], members[middle:]) if part]
    return tuple(
        with_microbatch(replace(pack, pack_id=f"{pack.pack_id}-{letter}", replicas=tuple(part)), microbatch)
        for letter, part in zip("ab", parts, strict=False)
    )
