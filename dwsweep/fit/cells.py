"""Runs → the runs that count as losses, one shape at a time, with everything left out and why."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dwsweep.errors import InputError, argument
from dwsweep.fit.row_selection import Row, one_recipe

AXES = {
    "n_params": "non-embedding parameters",
    "n_params_total": "parameters, embeddings included",
    "flops": "training FLOPs",
    "device_seconds": "device seconds",
}
CENSORED_SHARE = 0.25
LEARNED_SHARE = 0.1  # of ln V: unigram frequencies alone give about this much
Shape = tuple[int, float]


@dataclass(frozen=True)
class Run:
    """One finished run: a shape, a learning rate, a seed and its held-out loss.

    seed: None where the table names none (the run is then a replicate without a partner at other shapes).
    loss: nats per token. x: ln of the axis (ln N for the default axis). n_params: weights of the blocks.
    """

    depth: int
    width: float
    learning_rate: float | None
    seed: Hashable
    loss: float
    x: float
    n_params: float
    row: Row

    @property
    def shape(self) -> Shape:
        return self.depth, self.width

    @property
    def candidate(self) -> tuple[int, float, float | None]:
        return self.depth, self.width, self.learning_rate


@dataclass(frozen=True)
class Selection:
    """runs: those that count. excluded: shape → reason, for shapes of which nothing is left. notes: shape → what was
    left out of a shape that stays. diverged_rule: how diverged replicas were treated, or None if there were none."""

    runs: list[Run]
    excluded: dict[Shape, str]
    notes: dict[Shape, str]
    warnings: list[str]
    diverged_rule: str | None


@dataclass
class _Parts:
    runs: list[Run] = field(default_factory=list)
    diverged: list[Run] = field(default_factory=list)
    missing: dict[Shape, list[str]] = field(default_factory=lambda: defaultdict(list))
    warnings: list[str] = field(default_factory=list)


def number(value: float) -> Any:
    """``value`` as an int where it is whole, for names and keys that people read."""
    return int(value) if float(value).is_integer() else float(value)


def n_params_of(row: Row) -> float:
    """The matched count of a row: its n_params, or 12·L·d_x² (Levine et al. 2020) where the table has none."""
    value = row.get("n_params")
    return float(value) if value is not None else 12.0 * row["depth"] * row["width"] ** 2


def select_runs(rows: list[Row], axis: str = "n_params", named: Iterable[str] = ()) -> Selection:
    """Choose the rows that count as losses. named: columns that the user has named, each part of a run's recipe.

    Rows that failed or are not finished are missing at random: their seeds keep their pairing. A diverged replica (or
    a loss that is not finite) is not at random, and averaging only the good seeds of a deep net would flatter depth:
    a learning rate that diverged is no candidate while another one stayed finite at that shape. Where none did, the
    cell is censored, unless that would take more than a quarter of a depth's sizes: then the seed is dropped at every
    depth, provided that two seeds remain.
    """
    if axis not in AXES:
        raise InputError(f"{argument('axis')}: {axis!r}; must be one of {', '.join(AXES)}")
    if axis != "n_params" and not any(row.get(axis) is not None for row in rows):
        raise InputError(f"{argument('axis')}: {axis!r}; the table has no column of that name with values in it")
    parts = _sort(rows, axis)
    _one_recipe(parts, named)
    _merge_duplicates(parts)
    excluded: dict[Shape, str] = {}
    rule = _treat_diverged(parts, excluded)
    _leave_out_untrained(parts, excluded)
    kept = {run.shape for run in parts.runs}
    notes = {}
    for shape, reasons in parts.missing.items():
        text = "; ".join(f"{count} × {reason}" if count > 1 else reason for reason, count in Counter(reasons).items())
        if shape in kept:
            notes[shape] = text
        else:
            excluded.setdefault(shape, text)
    return Selection(parts.runs, excluded, notes, parts.warnings, rule)


def _sort(rows: list[Row], axis: str) -> _Parts:
    parts = _Parts()
    for row in rows:
        depth, width = number(row["depth"]), number(row["width"])
        status = str(row.get("status") or "done").lower()
        value: Any = n_params_of(row) if axis == "n_params" else row.get(axis)
        loss: Any = row.get("loss")
        if status not in ("done", "diverged"):
            parts.missing[depth, width].append(status)
        elif status == "done" and loss is None:
            parts.missing[depth, width].append("no loss")
        elif value is None or not math.isfinite(value) or value <= 0:
            parts.missing[depth, width].append(f"no {axis}")
        else:
            diverged = status == "diverged" or not math.isfinite(loss)
            run = Run(
                depth=depth,
                width=width,
                learning_rate=row.get("learning_rate"),
                seed=row.get("seed"),
                loss=math.nan if diverged else float(loss),
                x=math.log(value),
                n_params=n_params_of(row),
                row=row,
            )
            (parts.diverged if diverged else parts.runs).append(run)
    return parts


def _one_recipe(parts: _Parts, named: Iterable[str]) -> None:
    """Leave out what was trained by another recipe than the rest of its cell."""
    both = [*parts.runs, *parts.diverged]
    cells = [(run.shape, run.learning_rate) for run in both]
    out, warnings = one_recipe([run.row for run in both], cells, len(parts.runs), named)
    for k, reason in out.items():
        if k < len(parts.runs):
            parts.missing[both[k].shape].append(reason)
    count = len(parts.runs)
    parts.runs, parts.diverged = (
        [run for k, run in enumerate(both) if k not in out and (k < count) == finished] for finished in (True, False)
    )
    parts.warnings += warnings


def _merge_duplicates(parts: _Parts) -> None:
    """Several rows of one shape, learning rate and seed are one run: identical ones repeat, others are averaged."""
    groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    merged: list[Run] = []
    for run in parts.runs:
        if run.seed is None:
            merged.append(run)
        else:
            groups[*run.candidate, run.seed].append(run)
    averaged = repeated = 0
    for runs in groups.values():
        losses = {run.loss for run in runs}
        repeated += len(runs) - len(losses)
        averaged += len(losses) - 1
        mean = math.fsum(losses) / len(losses)
        first = runs[0]
        merged.append(Run(**{**first.__dict__, "loss": mean, "x": math.fsum(r.x for r in runs) / len(runs)}))
    parts.runs = merged
    if repeated:
        parts.warnings.append(f"{repeated} row(s) repeat another row exactly; each run counts once")
    if averaged:
        parts.warnings.append(
            f"{averaged} row(s) have the shape, learning rate and seed of another row and a different loss; averaged "
            f"(if they differ in a recipe, choose with {argument('where')})"
        )


def _treat_diverged(parts: _Parts, excluded: dict[Shape, str]) -> str | None:
    if not parts.diverged:
        return None
    bad = {run.candidate for run in parts.diverged}
    good = {run.candidate for run in parts.runs} - bad
    shapes_with_another_rate = {candidate[:2] for candidate in good}
    rules = []
    for candidate in bad:
        depth, width, rate = candidate
        if (depth, width) in shapes_with_another_rate:
            parts.missing[depth, width].append(f"learning rate {rate:g} diverged" if rate is not None else "diverged")
    dropped = {candidate for candidate in bad if candidate[:2] in shapes_with_another_rate}
    if dropped:
        rules.append(f"{len(dropped)} learning rates that diverged are no candidates at their shape")
        parts.runs = [run for run in parts.runs if run.candidate not in dropped]
    left = [run for run in parts.diverged if run.candidate not in dropped]
    if left:
        rules.append(_censor_or_drop(parts, left, excluded))
    parts.warnings.append("diverged: " + "; ".join(rules))
    return "; ".join(rules)


def chance_loss(run: Run) -> float | None:
    """ln V, the loss of guessing every token alike; None where the table names no vocabulary."""
    vocabulary = run.row.get("vocab_size")
    return math.log(vocabulary) if vocabulary and 1 < vocabulary < math.inf else None


def _leave_out_untrained(parts: _Parts, excluded: dict[Shape, str]) -> None:
    """A net near ln V guesses the next token almost uniformly: its loss says nothing about depth."""
    losses: dict[Shape, dict[float | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    uniform: dict[Shape, float] = {}
    for run in parts.runs:
        chance = chance_loss(run)
        if chance is not None:
            losses[run.shape][run.learning_rate].append(run.loss)
            uniform[run.shape] = chance
    best = {shape: min(math.fsum(v) / len(v) for v in by_rate.values()) for shape, by_rate in losses.items()}
    shapes = sorted(shape for shape, loss in best.items() if loss > (1.0 - LEARNED_SHARE) * uniform[shape])
    if not shapes:
        return
    n_shapes = len({run.shape for run in parts.runs})
    for shape in shapes:
        excluded[shape] = f"not trained: loss {best[shape]:.3f}, ln(vocab_size) = {uniform[shape]:.3f}"
    parts.runs = [run for run in parts.runs if run.shape not in excluded]
    (depth, width), percent = shapes[0], 100 * LEARNED_SHARE
    example = f"{depth}×{width:g}: {best[depth, width]:.3f}, ln V = {uniform[depth, width]:.3f}"
    parts.warnings.append(
        f"NOT TRAINED: {len(shapes)} of {n_shapes} shapes have a loss within {percent:.0f} % of ln(vocab_size), where "
        f"a net guesses, or above it (such as {example}); they are left out and nothing is claimed from them: train "
        f"longer, or check that the loss is in nats per token"
    )


def _censor_or_drop(parts: _Parts, diverged: list[Run], excluded: dict[Shape, str]) -> str:
    shapes = {run.shape for run in diverged}
    seeds = {run.seed for run in diverged}
    remaining_seeds = {run.seed for run in parts.runs} - seeds
    sizes = Counter(depth for depth, _ in {run.shape for run in parts.runs} | shapes)
    lost = Counter(depth for depth, _ in shapes)
    heavy = any(lost[depth] > CENSORED_SHARE * sizes[depth] for depth in lost)
    if None not in seeds and len(remaining_seeds) >= 2 and heavy:
        parts.runs = [run for run in parts.runs if run.seed not in seeds]
        for run in diverged:
            parts.missing[run.shape].append(f"seed {run.seed} diverged")
        named = ", ".join(
            str(number(seed)) if isinstance(seed, float) else str(seed) for seed in sorted(seeds, key=str)
        )
        return f"seed {named} diverged at {len(shapes)} shapes and is left out at every depth"
    parts.runs = [run for run in parts.runs if run.shape not in shapes]
    counts = Counter(run.shape for run in diverged)
    for shape, count in counts.items():
        excluded[shape] = f"{count} replicas diverged: the cell is censored"
    named = ", ".join(f"{depth}×{width}" for depth, width in sorted(shapes))
    return f"{named}: replicas diverged, the whole cell is censored"
