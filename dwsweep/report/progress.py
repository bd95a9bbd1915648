"""A sweep while it trains: the live view of ``dwsweep run`` and what ``dwsweep status`` says."""

from __future__ import annotations

import bisect
import heapq
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from dwsweep import terminal
from dwsweep.cost.devices import find
from dwsweep.interval import Form, written
from dwsweep.records.pack import Pack, PackProgress, StartFacts
from dwsweep.records.record import to_dict
from dwsweep.records.run import DIVERGED, DONE, FAILED, INTERRUPTED, OOM, PENDING, RUN_STATES, RUNNING
from dwsweep.report.document import MISSING, Line, Lines, Part, Said, Table
from dwsweep.report.document import render as rendered
from dwsweep.sweep.forecast import COMPILING, STARTING, compile_seconds, flops_per_token, step_of, time_left
from dwsweep.sweep.snapshot import RunView, Snapshot, snapshot
from dwsweep.text import format_clock, format_count

LINE_SECONDS = 10.0  # between two plain lines of a pack
NO_TASK = TaskID(-1)  # where there are no bars


@dataclass
class _Work:
    weight: float  # what all its steps cost, in any unit that is the same for all packs
    done: float = 0.0  # fraction of the steps
    since: float | None = None  # when it was started; None: it waits, or is over
    first: float | None = None  # when this attempt was first heard to have made steps, at ``first_done``
    first_done: float = 0.0
    last: float = 0.0  # its latest progress
    start_seconds: float | None = None  # as measured: from its start to its first progress
    end_seconds: float | None = None  # from its last progress to its end
    rate: float | None = None  # seconds per weight


class Pace:
    """Remaining seconds of a queue of packs that are worked at side by side; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._works: dict[str, _Work] = {}  # in the order of the queue
        self._slots = 1  # packs at work side by side, as seen so far

    def expect(self, name: str, weight: float) -> None:
        self._works.setdefault(name, _Work(max(weight, 1e-9)))

    def forget(self, name: str) -> None:
        self._works.pop(name, None)

    def started(self, name: str) -> None:
        work = self._works[name]
        work.since, work.first = self._clock(), None
        self._slots = max(self._slots, len(self._active()))

    def stepped(self, name: str, fraction: float) -> None:
        work = self._works[name]
        if work.since is None:
            return
        work.done, work.last = fraction, self._clock()
        if work.first is None:
            work.first, work.first_done = work.last, fraction
            work.start_seconds = work.first - work.since
        elif fraction > work.first_done and work.last > work.first:
            work.rate = (work.last - work.first) / ((fraction - work.first_done) * work.weight)

    def ended(self, name: str, finished: bool) -> None:
        work = self._works.get(name)
        if work is None or work.since is None:
            return
        if finished:
            work.done = 1.0
            if work.first is not None:
                work.end_seconds = self._clock() - work.last
        work.since = None

    def fraction(self) -> float:
        total = sum(work.weight for work in self._works.values())
        return sum(work.weight * min(1.0, work.done) for work in self._works.values()) / max(total, 1e-9)

    def left(self) -> float | None:
        """Seconds until the last pack ends, each waiting one begun where a place is free; None: no rate is known."""
        works = list(self._works.values())
        rates = sorted((work.weight, work.rate) for work in works if work.rate is not None)
        if not rates:
            return None
        start, end = _mean([work.start_seconds for work in works]), _mean([work.end_seconds for work in works])
        now = self._clock()

        def rest(work: _Work) -> float:
            rate = _nearest(rates, work.weight) if work.rate is None else work.rate
            to_end = work.weight * max(0.0, 1.0 - work.done) * rate + end
            if work.since is None:
                return start + to_end
            if work.first is None:
                return max(0.0, start - (now - work.since)) + to_end
            return max(0.0, to_end - (now - work.last))

        busy = [rest(work) for work in self._active()]
        places = [0.0] * (self._slots - len(busy)) + busy
        heapq.heapify(places)
        for work in works:
            if work.since is None and work.done < 1.0:
                heapq.heapreplace(places, places[0] + rest(work))
        return max(places)

    def steps_left(self, name: str) -> float | None:
        """Seconds that the steps of a pack still take at its own rate; None: it is not known."""
        work = self._works[name]
        return None if work.rate is None else work.weight * (1.0 - work.done) * work.rate

    def _active(self) -> list[_Work]:
        return [work for work in self._works.values() if work.since is not None]


def _nearest(rates: list[tuple[float, float]], weight: float) -> float:
    """The rate of the measured pack that is nearest in weight, by ratio; ``rates`` are (weight, rate), sorted."""
    at = bisect.bisect(rates, (weight, 0.0))
    return min(rates[max(0, at - 1) : at + 1], key=lambda known: max(known[0], weight) / min(known[0], weight))[1]


def _mean(seconds: list[float | None]) -> float:
    known = [value for value in seconds if value is not None]
    return sum(known) / len(known) if known else 0.0


@dataclass
class _Active:
    pack: Pack
    since: float
    shown: float  # when a line of it was last printed
    task: TaskID = NO_TASK
    last: PackProgress | None = None


class ProgressView:
    """The overall bar and a line for each active pack.

    ``packs`` are those to be trained; the work of a pack counts by ``pack_weight``. Time left is that of ``Pace``.
    ``clock`` gives seconds.
    """

    def __init__(
        self,
        console: Console,
        packs: Sequence[Pack] = (),
        name: str = "sweep",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console
        self.n_packs = 0
        self._clock = clock
        self._pace = Pace(clock)
        self._active: dict[str, _Active] = {}
        self._labels: dict[str, str] = {}
        self._finished = 0
        self._bars: Progress | None = None
        self._all = NO_TASK
        if console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[facts]}"),
                console=console,
                refresh_per_second=4,
            )
            self._all = self._bars.add_task(name, total=1.0, facts="")
        self.expect(packs, name)

    def expect(self, packs: Sequence[Pack], name: str, labels: Mapping[str, str] | None = None) -> None:
        self._labels.update(labels or {})
        self.n_packs += len(packs)
        self._weigh(packs)
        if self._bars:
            self._bars.update(self._all, description=name)

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars:
            self._bars.stop()

    def _label(self, pack: Pack) -> str:
        return self._labels.get(pack.pack_id, pack.shape.label)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def started(self, pack: Pack) -> None:
        active = _Active(pack, self._clock(), shown=self._clock())
        if self._bars:
            active.task = self._bars.add_task(f"  {self._label(pack)}", total=1.0, facts="starting")
        self._active[pack.pack_id] = active
        self._pace.started(pack.pack_id)

    def compiling(self, pack_id: str) -> None:
        if self._bars and (active := self._active.get(pack_id)):
            self._bars.update(active.task, facts="compiling")

    def evaluating(self, pack_id: str, share: float) -> None:
        if active := self._active.get(pack_id):
            self._show(active, f"evaluating, {share:.0%}")

    def stepped(self, pack_id: str, progress: PackProgress) -> None:
        if active := self._active.get(pack_id):
            active.last, fraction = progress, progress.step / max(1, progress.steps)
            self._pace.stepped(pack_id, fraction)
            self._show(active, self._facts(pack_id, progress), fraction)

    def _show(self, active: _Active, facts: str, completed: float | None = None) -> None:
        """Show facts of a pack on its bar, or from time to time in a line."""
        if self._bars:
            self._bars.update(active.task, facts=facts, completed=completed)
            self._show_all()
        elif self._clock() - active.shown >= LINE_SECONDS:
            active.shown = self._clock()
            self.say(f"{self._label(active.pack)}: {facts}{self._all_facts(', ')}")

    def ended(self, pack_id: str, text: str, finished: bool) -> None:
        """Close a pack's bar and print how it ended."""
        active = self._active.pop(pack_id, None)
        self._pace.ended(pack_id, finished)
        if finished:
            self._finished += 1
        if self._bars:
            if active:
                self._bars.remove_task(active.task)
            self._show_all()
        last = active.last if active else None
        rate = f", {last.tokens_per_second:,.0f} tokens/s" if last and last.tokens_per_second else ""
        took = f" in {format_clock(self._clock() - active.since)}{rate}" if active else ""
        label = self._label(active.pack) if active else pack_id
        self.say(f"{label}: {text}{took}{self._all_facts(' · ')}")

    def replaced(self, pack_id: str, packs: Sequence[Pack]) -> None:
        """Expect other packs in place of one whose work is lost."""
        self.n_packs += len(packs) - 1
        self._pace.forget(pack_id)
        self._weigh(packs)

    def _weigh(self, packs: Sequence[Pack]) -> None:
        from dwsweep.sweep.work_queue import pack_weight  # `status` needs none of what makes a plan

        for pack in packs:
            self._pace.expect(pack.pack_id, pack_weight(pack))

    def time_left(self) -> float | None:
        """Expected seconds to the end; None before the rate is known."""
        return self._pace.left()

    def fraction(self) -> float:
        """Share of the work that is done."""
        return self._pace.fraction()

    def _facts(self, pack_id: str, progress: PackProgress) -> str:
        parts = [f"step {progress.step:,}/{progress.steps:,}"]
        known = [loss for loss in progress.losses if loss is not None]
        if known:
            parts.append(f"loss {sum(known) / len(known):.4f}")
        if progress.tokens_per_second:
            parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
        if (left := self._pace.steps_left(pack_id)) is not None:
            parts.append(f"{format_clock(left)} left")
        return " · ".join(parts)

    def _all_facts(self, prefix: str) -> str:
        left = self.time_left()
        rest = f", {format_clock(left)} left" if left is not None and self._finished < self.n_packs else ""
        return f"{prefix}{self._finished}/{self.n_packs} packs, {self.fraction():.0%}{rest}"

    def _show_all(self) -> None:
        if self._bars:
            self._bars.update(self._all, completed=self.fraction(), facts=self._all_facts(""))


MAX_ROWS = 30  # of the table of shapes; beyond it depths are folded
MAX_REASONS = 12
FOLLOW_SECONDS = 2.0
SHOWN_STATES = (DONE, RUNNING, COMPILING, STARTING, *RUN_STATES[2:])
_STYLES = {
    COMPILING: "cyan",
    STARTING: "cyan",
    DONE: "green",
    RUNNING: "cyan",
    FAILED: "red",
    OOM: "red",
    DIVERGED: "yellow",
    INTERRUPTED: "magenta",
}


def render(directory: str | os.PathLike[str]) -> Group:
    """Show counts, a table, what is running, why runs failed; fits a terminal with hundreds of runs.

    Raises:
        InputError: not a sweep directory.
    """
    return show(snapshot(directory))


def to_json(directory: str | os.PathLike[str]) -> dict[str, object]:
    """Collect for ``--json`` the runs with plan and state, the running packs, and damaged files.

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
        "stages": {pack: {"stage": stage.name, "seconds": stage.seconds} for pack, stage in now.stages.items()},
        "seconds_left": time_left(now),
        "orphans": now.orphans,
        "damaged": list(now.damaged),
        "time_kept": now.time_kept,
    }


def follow(directory: str | os.PathLike[str], console: Console | None = None) -> None:
    """Show the status anew every two seconds until nobody works on the sweep; Ctrl-C ends it.

    Between two packs no rate is known: the time that was left counts down.
    """
    from rich.live import Live

    console = console or terminal.console()
    now, ends = snapshot(directory), None
    with Live(show(now), console=console, auto_refresh=False) as live:
        while now.is_live:
            if (left := time_left(now)) is not None:
                ends = now.time + left
            live.update(show(now, ends), refresh=True)
            time.sleep(FOLLOW_SECONDS)
            now = snapshot(directory)
        live.update(show(now), refresh=True)


def show(now: Snapshot, ends: float | None = None) -> Group:
    """Show a snapshot. ends: the time by which the sweep was expected to end when a rate was last known."""
    return rendered(parts_of(now, ends))


def parts_of(now: Snapshot, ends: float | None = None) -> list[Part]:
    """Counts, the table of shapes, running packs and reasons of failure, for a terminal or a page."""
    parts: list[Part] = [_headline(now, ends), _table(now)]
    if now.progress:
        parts.append(_running(now))
    if now.stages:
        parts.append(_starting(now))
    if now.is_live and not now.progress and not now.stages:
        parts.append(Lines(["between packs: the next one starts"], soft=True))
    parts += _reasons(now)
    if now.time_kept:
        parts.append(Lines([now.time_kept]))
    if now.orphans:
        parts.append(Lines([f"{now.orphans} orphaned runs: in the directory, not in the plan any more; kept"]))
    return [*parts, _damaged(now)]


def _shown_state(run: RunView, now: Snapshot) -> str:
    """The state of a run, or the stage of its pack before its first step."""
    stage = now.stages.get(run.pack_id)
    return stage.name if stage is not None and run.state.state in (PENDING, INTERRUPTED) else run.state.state


def _damaged(now: Snapshot) -> Lines:
    count = len(now.damaged)
    if not count:
        return Lines([])
    text = (
        f"{count} damaged or missing file{'s' * (count != 1)}; `dwsweep run` sets damaged ones aside and continues "
        "without them"
    )
    more = [f"  … and {count - MAX_REASONS} more"] if count > MAX_REASONS else []
    return Lines([[(text, "yellow")], *(f"  {line}" for line in now.damaged[:MAX_REASONS]), *more])


def _headline(now: Snapshot, ends: float | None) -> Lines:
    said: list[Said] = [(f"{now.name}: {len(now.runs)} runs", "bold")]
    counts = Counter(_shown_state(run, now) for run in now.runs)
    for state in SHOWN_STATES:
        if count := counts[state]:
            said.append((f" · {count} {state}", f"bold {_STYLES.get(state, '')}".strip()))
    work = sum(run.plan.flops for run in now.runs)
    done = sum(run.plan.flops * step_of(run, now) / run.plan.steps for run in now.runs)
    if now.is_live and work:
        said.append((f" · {done / work:.0%}", "bold"))
    left = max(0.0, ends - now.time) if ends is not None else time_left(now)
    if left is not None:
        said.append((f" · about {format_clock(left)} left", "bold"))
    owners: list[Line] = [[(f"owned by {owner}{'' if alive else ' (gone)'}", "dim")] for owner, alive in now.owners]
    return Lines([said, *owners])


def _table(now: Snapshot) -> Table:
    """One row per shape, or per depth where there are many; states are a column each then, narrower than words."""
    arms = list(dict.fromkeys(run.plan.arm for run in now.runs))
    by_depth = len({(run.plan.arm, run.plan.depth, run.plan.width) for run in now.runs}) > MAX_ROWS
    several = len(arms) > 1
    shown = {_shown_state(run, now) for run in now.runs}
    states = [state for state in SHOWN_STATES if state in shown]
    table = Table(
        "",
        f"{'arm<' if several else ''} depth> {'widths' if by_depth else 'width'}> n_params> runs> "
        f"{' '.join(f'{state}>' for state in states) if by_depth else 'state~'} step> loss>",
        keys=(1 if by_depth else 2) + several,
        ruled=False,
        apart=False,
    )
    groups: dict[tuple[int, ...], list[RunView]] = {}
    for run in now.runs:
        shape = (run.plan.depth,) if by_depth else (run.plan.depth, run.plan.width)
        groups.setdefault((arms.index(run.plan.arm), *shape), []).append(run)
    for _, runs in sorted(groups.items()):
        counts = Counter(_shown_state(run, now) for run in runs)
        done, total = [step_of(run, now) for run in runs], [run.plan.steps for run in runs]
        losses = [run.state.loss for run in runs if run.state.state == DONE and run.state.loss is not None]
        if by_depth:
            cells: list[Line] = [[(str(counts[state] or ""), _STYLES.get(state, "dim"))] for state in states]
            cells += [f"{sum(done) / max(1, sum(total)):.0%}", _range(losses, ".4f")]
        else:
            cells = [_states(counts), f"{_range(done, ',')}/{_range(total, ',')}", _mean_text(losses)]
        table.add(
            *([runs[0].plan.arm or ""] if several else []),
            str(runs[0].plan.depth),
            _range([run.plan.width for run in runs], ""),
            _range([run.plan.n_params for run in runs], format_count),
            str(len(runs)),
            *cells,
        )
    return table


def _running(now: Snapshot) -> Table:
    columns = "running_pack< step> train_loss> tokens/s> MFU> device~"
    table = Table("", columns, ruled=False, apart=False)
    for pack_id, progress in sorted(now.progress.items()):
        facts = progress.started or StartFacts()
        losses = [loss for loss in progress.losses if loss is not None]
        rate = progress.tokens_per_second
        table.add(
            pack_id,
            f"{progress.step:,}/{progress.steps:,}",
            _mean_text(losses),
            f"{rate:,.0f}" if rate else MISSING,
            _mfu(facts, (rate or 0.0) * flops_per_token(pack_id, now)),
            facts.device_kind or MISSING,
        )
    return table


def _starting(now: Snapshot) -> Lines:
    """What each pack does before its first step, for how long, and how long compiling takes here."""
    usual = compile_seconds(now)
    lines = []
    for pack_id, stage in sorted(now.stages.items()):
        left = ""
        if stage.name == COMPILING and usual is not None:
            rest = usual - stage.seconds
            left = (
                f", about {format_clock(rest)} left" if rest > 0 else f", longer than the usual {format_clock(usual)}"
            )
        lines.append(f"{pack_id}: {stage.name} for {format_clock(stage.seconds)}{left}")
    return Lines(lines, apart=True)


def _mfu(facts: StartFacts, flops_per_second: float) -> str:
    """Model FLOPs utilisation, relative to the devices' dense bf16 peak; a dash where that is not known."""
    device = find(facts.device_kind)
    if device is None or not flops_per_second:
        return MISSING
    return f"{flops_per_second / (device.peak_flops * (facts.devices or 1)):.1%}"


def _reasons(now: Snapshot) -> list[Lines]:
    """Failures by cause, each with the end of a log; interruptions and divergences by cause."""
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
    if len(found) > MAX_REASONS:
        parts.append(Lines([f"… and {len(found) - MAX_REASONS} more causes"]))
    return parts


def _states(counts: Counter[str]) -> Line:
    said: list[Said] = []
    for state in SHOWN_STATES:
        if counts[state]:
            words = state if counts[state] == counts.total() else f"{counts[state]} {state}"
            said.append((f"{', ' if said else ''}{words}", _STYLES.get(state, "dim")))
    return said


def _mean_text(losses: Sequence[float]) -> str:
    return f"{sum(losses) / len(losses):.4f}" if losses else MISSING


def _range(values: Sequence[float], text: Form) -> str:
    if not values:
        return MISSING
    return "–".join(dict.fromkeys(written(end, text) for end in (min(values), max(values))))
