"""Report of a plan: one row per shape, warnings, the totals to check before training, a legend."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group

from dwsweep.cost.arithmetic import CONVENTION
from dwsweep.interval import both_ends
from dwsweep.plan import DROP, RUN, SKIP, Plan, Run
from dwsweep.plan.units import to_rows
from dwsweep.records.record import plain
from dwsweep.report.console import render as rendered
from dwsweep.report.document import Heading, Line, Lines, Part, TextTable, label, number, prose
from dwsweep.text import format_bytes, format_count, format_duration, format_hours, format_rate

UNKNOWN = "?"
WAITING = ["hashes of the ids", "epochs", "memory of the token store"]  # unknown before `prepare`
LEGEND = (
    "off: distance from the budget. N, all: parameters of the blocks (12·L·d_x² in a standard one) and of all. rate: "
    "peak learning rate of the hidden weights. resid: multiplier of the residual branches. "
)


def to_json(plan: Plan) -> dict[str, Any]:
    """Plan as plain values, run by run; the totals count runs still to be trained."""
    total = plan.estimates
    return {
        "name": plan.spec.name,
        "data": None if plan.data is None else vars(plan.data),
        "waits_for_data": WAITING if plan.waits_for_data else [],
        "length": {"key": plan.lengths.key, "value": plan.lengths.value},
        "totals": {
            "run": plan.count(RUN),
            "skip": plan.count(SKIP),
            "drop": plan.count(DROP),
            "packs": total.n_packs,
            "tokens": total.tokens,
            "flops": total.flops,
            "flops_6nd": total.flops_6nd,
            "flops_convention": CONVENTION,
            "device": total.device,
            "time_basis": total.basis,
            "device_hours": None if total.device_seconds is None else total.device_seconds / 3600,
            "peak_memory_bytes": total.peak_memory_bytes,
            "checkpoint_bytes": total.checkpoint_bytes,
        },
        "warnings": list(plan.warnings),
        "runs": plain(to_rows(plan)),
    }


def render(plan: Plan) -> Group:
    """Report for a terminal: header, a row per shape, reasons, warnings and totals."""
    notes: dict[str, int] = {}  # reason → its number in the table
    parts: list[Part] = [_header(plan)]
    for name, runs in plan.parts.items():
        parts += [*([Heading(f"{name}{_differs(plan, name)}")] if name else []), _table(plan, runs, notes, not name)]
    parts.append(_pairs(((f"[{number}]", note) for note, number in notes.items()), apart=True))
    if plan.warnings:
        parts += [Heading("Warnings"), _pairs(("!", text) for text in plan.warnings)]
    packs = plan.estimates.packs.values()
    legend = "! does not fit. " * any(pack.fits is False for pack in packs) + LEGEND
    legend += f"{UNKNOWN} unknown. " * any(pack.device_seconds is None for pack in packs)
    legend += "[1] points to a reason. " * bool(notes)
    return rendered(
        [*parts, Heading("Total, still to be trained"), _totals(plan), Lines([legend], soft=True, apart=True)]
    )


def _differs(plan: Plan, name: str) -> str:
    """Keys of an arm that differ from the recipe of the header, and that its name does not tell."""
    own = next(arm for arm in plan.spec.grid.arms or () if arm["name"] == name)
    told = ", ".join(f"{key} {value}" for key, value in own.items() if key not in {"name", *re.split("[=,]", name)})
    return f": {told}" if told else ""


def _header(plan: Plan) -> Lines:
    spec, train = plan.spec, plan.spec.train
    arms = f"{len(plan.parts)} arms of " if spec.grid.arms else ""
    n_shapes = len({(run.shape, run.budget) for run in next(iter(plan.parts.values()))})
    rates = ", ".join(format_rate(rate) for rate in spec.grid.learning_rates)
    shapes = (
        f": {arms}{n_shapes} shapes, {len(spec.grid.seed_values())} seeds, base learning "
        f"rate{'s' if len(spec.grid.learning_rates) > 1 else ''} {rates}, {spec.model.parametrization}"
        f"{f', {spec.model.preset} block' if spec.model.preset else ''}"
    )
    lines: list[Line] = [[(spec.name, "bold"), shapes]]
    if plan.data is None:
        lines.append(f"data: {spec.data.source}, not prepared yet; `dwsweep prepare` will give: {', '.join(WAITING)}")
    else:
        epochs = max((plan.estimates.runs[run.run_id].epochs or 0.0 for run in plan.runs), default=0.0)
        lines.append(
            f"data: {spec.data.source}, {format_count(plan.data.n_train_tokens)} training tokens "
            f"({plan.data.data_hash[:8]}), at most {epochs:.2g} epochs"
        )
    lines.append(
        f"step: {train.batch_size} × {train.seq_len} tokens, {train.schedule}, {train.warmup_steps:,} warm-up steps, "
        f"{train.precision}{'' if train.optimizer == 'adamw' else f', {train.optimizer.capitalize()}'}"
    )
    if plan.lengths.is_budget:
        steps = [plan.lengths.total_steps(run.shape) for run in plan.runs]
        flops = f"{plan.lengths.value:.6g}".replace("e+", "e")
        lines.append(f"length: {min(steps):,} to {max(steps):,} steps, from {flops} FLOPs per run (train.flops)")
    return Lines(lines)


def _table(plan: Plan, runs: Sequence[Run], notes: dict[str, int], apart: bool) -> TextTable:
    """Table of an arm with a row per shape of a budget."""
    heads = [*map(number, ("budget", "L×d_x", "heads", "N", "off", "all", "tokens", "FLOPs", "rate", "resid"))]
    table = TextTable("", [*heads, number("memory"), number("time"), label("runs")], ruled=False, apart=apart)
    groups: dict[tuple[float, Any], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.budget or 0.0, run.shape.depth, run.shape.heads, run.shape.width)):
        groups.setdefault((run.budget or 0.0, run.shape), []).append(run)
    for (budget, shape), same in groups.items():
        costs = [plan.estimates.runs[run.run_id] for run in same]
        table.add(
            format_count(budget) if budget else "",
            f"{shape.depth}×{shape.width}",
            f"{shape.heads}×{shape.head_size}",
            format_count(shape.n_params),
            f"{shape.n_params / budget - 1:+.1%}" if budget else "",
            format_count(shape.n_params_total),
            both_ends([run.tokens for run in same], format_count),
            both_ends([cost.flops for cost in costs], format_count),
            both_ends([cost.hidden_learning_rate for cost in costs], format_rate),
            f"{costs[0].residual_multiplier:.3g}",
            *_cost(plan, same),
            _states(same, notes),
        )
    return table


def _cost(plan: Plan, runs: Sequence[Run]) -> tuple[str, str]:
    """Most memory of a pack, marked where it does not fit, and the time of all packs."""
    packs = [plan.estimates.packs[name] for name in dict.fromkeys(run.pack_id for run in runs) if name]
    if not packs:
        return "", ""
    seconds = [pack.device_seconds for pack in packs]
    memory = format_bytes(max(pack.memory.total for pack in packs))
    time = UNKNOWN if None in seconds else format_duration(sum(s for s in seconds if s is not None))
    return memory + ("!" if any(pack.fits is False for pack in packs) else ""), time


def _states(runs: Sequence[Run], notes: dict[str, int]) -> str:
    """Counts of RUN, SKIP and DROP, and the numbers of their reasons."""
    reasons = dict.fromkeys(run.reason for run in runs if run.reason)
    marks = [f"[{notes.setdefault(reason, len(notes) + 1)}]" for reason in reasons]
    actions = Counter(run.action for run in runs)
    return " ".join([*(f"{actions[action]} {action}" for action in (RUN, SKIP, DROP) if actions[action]), *marks])


def _totals(plan: Plan) -> TextTable:
    total = plan.estimates
    actions = ", ".join(f"{plan.count(action)} {action}" for action in (RUN, SKIP, DROP))
    times: list[tuple[str, Line]] = [("time", f"unknown: {total.basis}")]
    if (seconds := total.device_seconds) is not None:
        more = f" = {format_hours(seconds / 3600)} device-hours on one {total.device}, without compiling and evaluating"
        times = [("time", [(format_duration(seconds), "bold"), more]), ("", total.basis)]
    packs = f"{total.n_packs} packs (of one shape, its seeds and learning rates trained together)"
    rows: list[tuple[str, Line]] = [
        ("runs", f"{actions}; in {packs}"),
        ("tokens", format_count(total.tokens)),
        ("FLOPs", f"{format_count(total.flops)}  (6·N·D: {format_count(total.flops_6nd)})"),
        *times,
        ("memory", f"{format_bytes(total.peak_memory_bytes)} at most on one device"),
    ]
    return _pairs(rows)


def _pairs(rows: Iterable[tuple[str, Line]], apart: bool = False) -> TextTable:
    """Table of marks or names, each beside a wrapped paragraph."""
    table = TextTable("", [label("name"), prose("text")], headed=False, ruled=False, apart=apart)
    for name, text in rows:
        table.add(name, text)
    return table
