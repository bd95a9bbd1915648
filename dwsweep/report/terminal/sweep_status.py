"""``dwsweep status``: how a sweep stands, as a table for a terminal.

Each shape has one row as long as that fits a terminal; larger sweeps are folded to one row per depth, with what is
running and what failed listed below.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dwsweep.cost import find
from dwsweep.records.pack import StartFacts
from dwsweep.records.record import to_dict
from dwsweep.records.run import DIVERGED, DONE, FAILED, INTERRUPTED, OOM, RUN_STATES, RUNNING
from dwsweep.report.terminal.folding import Folded
from dwsweep.sweep.snapshot import RunView, Snapshot, flops_per_token, sentence, snapshot, step_of, time_left
from dwsweep.text import format_clock, format_count

MAX_ROWS = 30  # of the table of shapes; beyond it depths are folded
MAX_REASONS = 12
FOLLOW_SECONDS = 2.0
_STYLES = {DONE: "green", RUNNING: "cyan", FAILED: "red", OOM: "red", DIVERGED: "yellow", INTERRUPTED: "magenta"}


def render(directory: str | os.PathLike[str]) -> RenderableType:
    """Counts, a table, what is running, why runs failed; fits a terminal with hundreds of runs.

    Raises:
        InputError: not a sweep directory.
    """
    return show(snapshot(directory))


def to_json(directory: str | os.PathLike[str]) -> dict[str, object]:
    """For ``--json``: the runs with their plan and state, the packs that are running, what is damaged.

    Raises:
        InputError: not a sweep directory.
    """
    now = snapshot(directory)
    return {
        "name": now.name,
        "live": now.is_live,
        "runs": [
            {**to_dict(run.plan), "pack_id": run.pack_id, **{f"run_{k}": v for k, v in to_dict(run.state).items()}}
            for run in now.runs
        ],
        "running": {pack: to_dict(progress) for pack, progress in now.progress.items()},
        "orphans": now.orphans,
        "damaged": list(now.damaged),
        "promises": [to_dict(one) | {"ratio": one.ratio} for one in now.promises],
    }


def follow(directory: str | os.PathLike[str], console: Console | None = None) -> None:
    """Show the status anew every two seconds until nobody works on the sweep; Ctrl-C ends it.

    Between two packs no rate is known: the time that was left counts down.
    """
    from rich.live import Live

    console = console or Console()
    now, ends = snapshot(directory), None
    with Live(show(now), console=console, auto_refresh=False) as live:
        while now.is_live:
            if (left := time_left(now)) is not None:
                ends = now.time + left
            live.update(show(now, ends), refresh=True)
            time.sleep(FOLLOW_SECONDS)
            now = snapshot(directory)
        live.update(show(now), refresh=True)


def show(now: Snapshot, ends: float | None = None) -> RenderableType:
    """``ends``: the time by which the sweep was expected to end when a rate was last known."""
    parts: list[RenderableType] = [_headline(now, ends)]
    shapes = {(run.plan.arm, run.plan.depth, run.plan.width) for run in now.runs}
    by_depth = len(shapes) > MAX_ROWS
    keys = (1 if by_depth else 2) + (len(_arms(now)) > 1)
    parts.append(Folded(_table(now, by_depth), keys=keys))
    if now.progress:
        parts.append(Folded(_running(now)))
    elif now.is_live:
        parts.append(Text("between packs: the next one starts", style="dim"))
    parts += _reasons(now)
    if now.promises:
        parts.append(Text(sentence(now.promises)))
    if now.orphans:
        parts.append(Text(f"{now.orphans} orphaned runs: in the directory, not in the plan any more; kept"))
    parts += _damaged(now)
    return Group(*parts)


def _damaged(now: Snapshot) -> list[RenderableType]:
    if not now.damaged:
        return []
    count = f"{len(now.damaged)} damaged file{'s' * (len(now.damaged) != 1)}"
    parts: list[RenderableType] = [
        Text(f"{count}; `dwsweep run` sets them aside and continues without them", style="yellow")
    ]
    parts += [Text(f"  {line}") for line in now.damaged[:MAX_REASONS]]
    if len(now.damaged) > MAX_REASONS:
        parts.append(Text(f"  … and {len(now.damaged) - MAX_REASONS} more"))
    return parts


def _headline(now: Snapshot, ends: float | None) -> Text:
    text = Text(f"{now.name}: {len(now.runs)} runs", style="bold")
    for state in RUN_STATES:
        if count := now.count(state):
            text.append(f" · {count} {state}", style=_STYLES.get(state, ""))
    work = sum(run.plan.flops for run in now.runs)
    done = sum(run.plan.flops * step_of(run, now) / run.plan.steps for run in now.runs)
    if now.is_live and work:
        text.append(f" · {done / work:.0%}", style="")
    left = max(0.0, ends - now.time) if ends is not None else time_left(now)
    if left is not None:
        text.append(f" · about {format_clock(left)} left", style="")
    for owner, alive in now.owners:
        gone = "" if alive else " (gone)"
        text.append(f"\nowned by {owner}{gone}", style="dim")
    return text


def _table(now: Snapshot, by_depth: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    arms = _arms(now)
    if len(arms) > 1:
        table.add_column("arm", no_wrap=True)
    table.add_column("depth", justify="right", no_wrap=True)
    table.add_column("widths" if by_depth else "width", justify="right", no_wrap=True)
    table.add_column("n_params", justify="right", no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    states = [state for state in RUN_STATES if now.count(state)]
    if by_depth:  # a column per state is narrower than words in each row
        for state in states:
            table.add_column(state, justify="right", style=_STYLES.get(state, "dim"), no_wrap=True)
    else:
        table.add_column("state")
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("loss", justify="right", no_wrap=True)
    groups: dict[tuple[int, ...], list[RunView]] = {}
    for run in now.runs:
        shape = (run.plan.depth,) if by_depth else (run.plan.depth, run.plan.width)
        groups.setdefault((arms.index(run.plan.arm), *shape), []).append(run)
    for _, runs in sorted(groups.items()):
        done = [run.state.loss for run in runs if run.state.state == DONE and run.state.loss is not None]
        steps = f"{_percent(runs, now):.0%}" if by_depth else _steps(runs, now)
        losses = _range(done, "{:.4f}".format) if by_depth else (f"{sum(done) / len(done):.4f}" if done else "–")
        table.add_row(
            *([Text(runs[0].plan.arm or "")] if len(arms) > 1 else []),  # a name may hold what rich reads as markup
            str(runs[0].plan.depth),
            _range([run.plan.width for run in runs], "{}".format),
            _range([run.plan.n_params for run in runs], format_count),
            str(len(runs)),
            *(_counts(runs, states) if by_depth else [_states(runs)]),
            steps,
            losses,
        )
    return table


def _arms(now: Snapshot) -> list[str | None]:
    """In the order of the plan; one for a sweep without arms."""
    return list(dict.fromkeys(run.plan.arm for run in now.runs))


def _running(now: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    for name in ("running pack", "step", "train loss", "tokens/s", "MFU", "device"):
        words = name in ("running pack", "device")
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "device")
    for pack_id, progress in sorted(now.progress.items()):
        facts = progress.started or StartFacts()
        losses = [loss for loss in progress.losses if loss is not None]
        rate = progress.tokens_per_second
        table.add_row(
            pack_id,
            f"{progress.step:,}/{progress.steps:,}",
            f"{sum(losses) / len(losses):.4f}" if losses else "–",
            f"{rate:,.0f}" if rate else "–",
            _mfu(facts, (rate or 0.0) * flops_per_token(pack_id, now)),
            Text(facts.device_kind or "–"),  # a file may hold what rich would read as markup
        )
    return table


def _mfu(facts: StartFacts, flops_per_second: float) -> str:
    """Model FLOPs utilisation, of the devices' dense bf16 peak; a dash where that is not known."""
    device = find(facts.device_kind)
    if device is None or not flops_per_second:
        return "–"
    return f"{flops_per_second / (device.peak_flops * (facts.devices or 1)):.1%}"


def _reasons(now: Snapshot) -> list[RenderableType]:
    """Failures by cause, each with the end of a log; interruptions and divergences by cause."""
    found: dict[tuple[str, str], list[RunView]] = {}
    for run in now.runs:
        if run.state.cause and run.state.state in (FAILED, OOM, DIVERGED, INTERRUPTED):
            found.setdefault((run.state.state, run.state.cause), []).append(run)
    parts: list[RenderableType] = []
    for (state, cause), runs in list(found.items())[:MAX_REASONS]:
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        text = Text(f"{state}: ", style=_STYLES.get(state, ""))
        text.append(f"{runs[0].plan.run_id}{more}: {cause}", style="default")
        parts.append(text)
        if state in (FAILED, OOM) and runs[0].state.log_tail:
            tail = "\n".join("  │ " + line[:160] for line in runs[0].state.log_tail.splitlines()[-4:])
            parts.append(Text(tail, style="dim"))
            parts.append(Text(f"  └ packs/{runs[0].pack_id}/log.txt", style="dim"))
    if len(found) > MAX_REASONS:
        parts.append(Text(f"… and {len(found) - MAX_REASONS} more causes"))
    return parts


def _states(runs: Sequence[RunView]) -> Text:
    counts = Counter(run.state.state for run in runs)
    text = Text()
    for state in RUN_STATES:
        if counts[state]:
            words = state if counts[state] == len(runs) else f"{counts[state]} {state}"
            text.append(f"{', ' if text else ''}{words}", style=_STYLES.get(state, "dim"))
    return text


def _counts(runs: Sequence[RunView], states: Sequence[str]) -> list[str]:
    counts = Counter(run.state.state for run in runs)
    return [str(counts[state] or "") for state in states]


def _steps(runs: Sequence[RunView], now: Snapshot) -> str:
    done, total = [step_of(run, now) for run in runs], [run.plan.steps for run in runs]
    return f"{_range(done, '{:,}'.format)}/{_range(total, '{:,}'.format)}"


def _percent(runs: Sequence[RunView], now: Snapshot) -> float:
    return sum(step_of(run, now) for run in runs) / max(1, sum(run.plan.steps for run in runs))


def _range(values: Iterable[float], form: Callable[[float], str]) -> str:
    found = list(values)
    if not found:
        return "–"
    low, high = form(min(found)), form(max(found))
    return low if low == high else f"{low}–{high}"
