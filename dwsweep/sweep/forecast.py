"""Forecast of a sweep's end: seconds left, by the measured rates of its own packs, and seconds of a compilation.

Packs are worked at side by side, as many as are at work now. A pack that trains goes on at its own rate; a pack that
waits has the rate, in seconds per FLOP, of the measured pack whose runs are nearest in FLOPs, since a small model's
FLOPs take longer than a large one's. Before any pack has measured one, the times of `plan` count where `bench` measured
them on this host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dwsweep.records.pack import PackProgress
from dwsweep.records.run import DONE, INTERRUPTED, PENDING, RUNNING
from dwsweep.sweep.snapshot import RunView, Snapshot


def time_left(now: Snapshot) -> float | None:
    """Seconds until the last pack ends; None when nobody works on the sweep, nothing is left, or no rate is known."""
    if not now.is_live:
        return None
    packs: dict[str, list[RunView]] = defaultdict(list)
    for run in now.runs:
        if run.state.state in (PENDING, INTERRUPTED, RUNNING):
            packs[run.pack_id].append(run)
    if not packs:
        return None
    rates = [(one.run_flops, one.seconds / one.flops) for one in now.measured.values()]
    own = {pack_id: rate for pack_id, progress in now.progress.items() if (rate := _rate(pack_id, progress, now))}
    rates += [(packs[pack_id][0].plan.flops, rate) for pack_id, rate in own.items() if pack_id in packs]
    busy: list[float] = []
    waiting = 0.0
    for pack_id, runs in packs.items():
        seconds = _pack_seconds(pack_id, runs, now, rates, own)
        if seconds is None:
            return None
        if pack_id in now.progress:
            busy.append(seconds)
        elif stage := now.stages.get(pack_id):
            start = compile_seconds(now) or 0.0
            busy.append(max(0.0, start - stage.seconds) + seconds)
        else:
            waiting += (compile_seconds(now) or 0.0) + seconds
    return max(max(busy, default=0.0), (sum(busy) + waiting) / max(1, len(busy))) or None


def _pack_seconds(
    pack_id: str,
    runs: Sequence[RunView],
    now: Snapshot,
    rates: Sequence[tuple[float, float]],
    own: Mapping[str, float],
) -> float | None:
    """Seconds left for the steps of a pack; None if no rate is known."""
    rest = sum(run.plan.flops * (1 - step_of(run, now) / run.plan.steps) for run in runs)
    if pack_id in own:
        return rest * own[pack_id]
    if rates:
        size = max(run.plan.flops for run in runs)
        return rest * min(rates, key=lambda known: max(known[0], size) / min(known[0], size))[1]
    if all(run.plan.time_basis == "measured" and run.plan.device_seconds for run in runs):
        return sum((run.plan.device_seconds or 0.0) * (1 - step_of(run, now) / run.plan.steps) for run in runs)
    return None


def _rate(pack_id: str, progress: PackProgress, now: Snapshot) -> float | None:
    """Seconds per FLOP of a pack that trains."""
    if not progress.tokens_per_second:
        return None
    return 1.0 / (progress.tokens_per_second * flops_per_token(pack_id, now))


def compile_seconds(now: Snapshot) -> float | None:
    """Mean compilation time of this sweep's packs, seconds; None if none is known."""
    found = [one.compile_seconds for one in now.measured.values()]
    found += [progress.started.compile_seconds for progress in now.progress.values() if progress.started]
    known = [seconds for seconds in found if seconds is not None]
    return sum(known) / len(known) if known else None


def flops_per_token(pack_id: str, now: Snapshot) -> float:
    """FLOPs of training one of the pack's runs on a token."""
    run = next(run for run in now.runs if run.pack_id == pack_id)
    return run.plan.flops / run.plan.tokens


def step_of(run: RunView, now: Snapshot) -> int:
    """Finished steps of a run."""
    if run.state.state == DONE:
        return run.plan.steps
    if run.state.state == RUNNING:
        progress = now.progress.get(run.pack_id)
        return min(run.plan.steps, (progress.step if progress else 0) or run.state.step or 0)
    return run.state.step or 0
