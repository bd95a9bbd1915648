"""Report of ``dwsweep status``: counts, the table of shapes, packs that train, reasons of failures."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group

from dwsweep.cost.devices import find
from dwsweep.cost.duration import seconds_left
from dwsweep.interval import Form, both_ends
from dwsweep.records.pack import StartFacts
from dwsweep.records.record import to_dict
from dwsweep.records.run import DIVERGED, DONE, FAILED, INTERRUPTED, OOM, PENDING, RUN_STATES, RUNNING
from dwsweep.report.console import render as rendered
from dwsweep.report.document import MISSING, Line, Lines, Part, Said, TextTable, label, number, prose
from dwsweep.sweep.snapshot import RunView, Snapshot, snapshot
from dwsweep.text import format_count, format_duration

MAX_ROWS = 30  # rows of the table of shapes; a longer table has one row per depth
MAX_REASONS = 12
FOLLOW_SECONDS = 2.0
_STYLES = {DONE: "green", RUNNING: "cyan", FAILED: "red", OOM: "red", DIVERGED: "yellow", INTERRUPTED: "magenta"}


def render(now: Snapshot) -> Group:
    """Status of a sweep for a terminal: counts, a table, running packs, reasons of failure; fits hundreds of runs."""
    return rendered(parts_of(now))


def to_json(now: Snapshot) -> dict[str, object]:
    """Status as plain values for ``--json``: runs with plan and state, running packs, damaged files."""
    return {
        "name": now.name,
        "live": now.is_live,
        "runs": [
            {**to_dict(run.plan), "pack_id": run.pack_id, **{f"run_{k}": v for k, v in to_dict(run.state).items()}}
            for run in now.runs
        ],
        "running": {pack: to_dict(progress) for pack, progress in now.progress.items()},
        "seconds_left": time_left(now),
        "orphans": now.orphans,
        "damaged": list(now.damaged),
    }


def follow(directory: str | os.PathLike[str], console: Console) -> None:
    """Show the status every two seconds until nobody works on the sweep; Ctrl-C ends it."""
    from rich.live import Live

    now = snapshot(directory)
    with Live(render(now), console=console, auto_refresh=False) as live:
        while now.is_live:
            live.update(render(now), refresh=True)
            time.sleep(FOLLOW_SECONDS)
            now = snapshot(directory)
        live.update(render(now), refresh=True)


def parts_of(now: Snapshot) -> list[Part]:
    """Parts of a status: counts, the table of shapes, running packs and reasons of failure."""
    parts: list[Part] = [_headline(now), _table(now)]
    if now.progress:
        parts.append(_running(now))
    if now.is_live and not now.progress:
        parts.append(Lines(["between packs: the next one starts"], soft=True))
    parts += _reasons(now)
    if now.orphans:
        parts.append(Lines([f"{now.orphans} orphaned runs: in the directory, not in the plan any more; kept"]))
    return [*parts, _damaged(now)]


def time_left(now: Snapshot) -> float | None:
    """Seconds for the remaining FLOPs at the present rate; None where no pack has one."""
    runs = (run for run in now.runs if run.state.state in (PENDING, INTERRUPTED, RUNNING))
    left = sum(run.plan.flops * (1 - now.step_of(run) / run.plan.steps) for run in runs)
    packs = now.progress.items() if now.is_live else ()
    return seconds_left(left, ((one.tokens_per_second, now.flops_per_token(pack)) for pack, one in packs))


def _damaged(now: Snapshot) -> Lines:
    text = f"Damaged or missing files, {len(now.damaged)}; `dwsweep run` continues without them"
    return Lines([[(text, "yellow")], *(f"  {line}" for line in now.damaged[:MAX_REASONS])] if now.damaged else [])


def _headline(now: Snapshot) -> Lines:
    said: list[Said] = [(f"{now.name}: {len(now.runs)} runs · ", "bold")]
    said += _states(Counter(run.state.state for run in now.runs), whole=False)
    work = sum(run.plan.flops for run in now.runs)
    done = sum(run.plan.flops * now.step_of(run) / run.plan.steps for run in now.runs)
    if now.is_live and work:
        said.append((f" · {done / work:.0%}", "bold"))
    if (left := time_left(now)) is not None:
        said.append((f" · about {format_duration(left)} left", "bold"))
    owners: list[Line] = [[(f"owned by {owner}", "dim")] for owner in now.owners]
    return Lines([said, *owners])


def _table(now: Snapshot) -> TextTable:
    """Table with a row per shape, or per depth if shapes are many."""
    arms = list(dict.fromkeys(run.plan.arm for run in now.runs))
    by_depth = len({(run.plan.arm, run.plan.depth, run.plan.width) for run in now.runs}) > MAX_ROWS
    heads = [label("arm"), *map(number, ("depth", "width", "n_params", "runs")), prose("state")]
    table = TextTable("", [*heads, number("step"), number("loss")], ruled=False, apart=False)
    groups: dict[tuple[int, ...], list[RunView]] = {}
    for run in now.runs:
        shape = (run.plan.depth, 0 if by_depth else run.plan.width)
        groups.setdefault((arms.index(run.plan.arm), *shape), []).append(run)
    for _, runs in sorted(groups.items()):
        done, total = [now.step_of(run) for run in runs], [run.plan.steps for run in runs]
        losses = [run.state.loss for run in runs if run.state.state == DONE and run.state.loss is not None]
        table.add(
            (runs[0].plan.arm or "") if len(arms) > 1 else "",
            str(runs[0].plan.depth),
            _range([run.plan.width for run in runs], ""),
            _range([run.plan.n_params for run in runs], format_count),
            str(len(runs)),
            _states(Counter(run.state.state for run in runs)),
            f"{_range(done, ',')}/{_range(total, ',')}",
            _range(losses, ".4f") if by_depth else _mean_text(losses),
        )
    return table


def _running(now: Snapshot) -> TextTable:
    columns = [label("running pack"), *map(number, ("step", "train loss", "tokens/s", "MFU")), prose("device")]
    table = TextTable("", columns, ruled=False, apart=False)
    for pack_id, progress in sorted(now.progress.items()):
        facts = progress.started or StartFacts()
        losses = [loss for loss in progress.losses if loss is not None]
        rate = progress.tokens_per_second
        table.add(
            pack_id,
            f"{progress.step:,}/{progress.steps:,}" if progress.started else "starts",
            _mean_text(losses),
            f"{rate:,.0f}" if rate else MISSING,
            _mfu(facts, (rate or 0.0) * now.flops_per_token(pack_id)),
            facts.device_kind or MISSING,
        )
    return table


def _mfu(facts: StartFacts, flops_per_second: float) -> str:
    """Model FLOPs utilisation, relative to the devices' dense bf16 peak; a dash if the peak is unknown."""
    device = find(facts.device_kind)
    if device is None or not flops_per_second:
        return MISSING
    return f"{flops_per_second / (device.peak_flops * (facts.devices or 1)):.1%}"


def _reasons(now: Snapshot) -> list[Lines]:
    """Lines on failures by cause, each with the end of a log, and on interruptions and divergences."""
    found: dict[tuple[str, str], list[RunView]] = {}
    for run in now.runs:
        if run.state.cause and run.state.state in (FAILED, OOM, DIVERGED, INTERRUPTED):
            found.setdefault((run.state.state, run.state.cause), []).append(run)
    parts: list[Lines] = []
    for (state, cause), runs in list(found.items())[:MAX_REASONS]:
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        parts.append(Lines([[(f"{state}: ", _STYLES.get(state, "")), f"{runs[0].plan.run_id}{more}: {cause}"]]))
        if state in (FAILED, OOM) and runs[0].state.log_tail:
            tail = [f"  │ {line[:160]}" for line in runs[0].state.log_tail.splitlines()[-4:]]
            parts.append(Lines([*tail, f"  └ packs/{runs[0].pack_id}/log.txt"], soft=True))
    return parts


def _states(counts: Counter[str], whole: bool = True) -> list[Said]:
    """Count of each state; without the count where ``whole`` and all are in one."""
    said: list[Said] = []
    for state in RUN_STATES:
        if counts[state]:
            words = state if whole and counts[state] == counts.total() else f"{counts[state]} {state}"
            said.append((f"{', ' if said else ''}{words}", _STYLES.get(state, "dim")))
    return said


def _mean_text(losses: Sequence[float]) -> str:
    return f"{sum(losses) / len(losses):.4f}" if losses else MISSING


def _range(values: Sequence[float], text: Form) -> str:
    return both_ends(values, text, "–") if values else MISSING
