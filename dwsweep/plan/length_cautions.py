"""What a scientist should know of how long the runs of a plan train, each a line with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dwsweep.cost.duration import ASSUMED, COMPILED, MEASURED
from dwsweep.plan.run_lengths import RunLengths
from dwsweep.plan.training_schedule import cooldown_steps
from dwsweep.plan.units import DataFacts, Run
from dwsweep.records.fixed_rates import FixedRate
from dwsweep.shapes import Shape
from dwsweep.spec import Spec
from dwsweep.text import format_count

SAME_TOKENS = 0.01  # relative difference of tokens that is let pass
SAME_BUDGET = 0.02  # and of what whole steps, or other rates, make of a budget
SAME_SHAPE = 1.01  # factor in depth and width
BASES = (MEASURED, COMPILED, ASSUMED)  # of rates, the best first


def warm_up(spec: Spec, runs: Sequence[Run]) -> list[str]:
    train, shortest = spec.train, min(run.steps for run in runs)
    if train.warmup_steps >= shortest:
        return [
            f"train.warmup_steps {train.warmup_steps:,} is not less than the {shortest:,} steps of the shortest run: "
            "the learning rate never reaches its peak"
        ]
    if train.schedule == "wsd" and train.warmup_steps > shortest - cooldown_steps(train, shortest):
        return [
            f"train.warmup_steps {train.warmup_steps:,} reaches into the cool-down of the shortest run, which is its "
            f"last {cooldown_steps(train, shortest):,} of {shortest:,} steps and begins after the warm-up instead"
        ]
    return []


def rates(lengths: RunLengths, shapes: Sequence[Shape]) -> list[str]:
    """What the rates behind ``train.seconds`` stand on, and how they differ from what is known now."""
    if not lengths.needs_rates:
        return []
    found = {shape: lengths.rate(shape) for shape in shapes}
    return [
        *_unmeasured(lengths, found),
        *_elsewhere(found),
        *_of_another_block(lengths, found),
        *_later(found),
        *_moved(lengths, found),
    ]


def _unmeasured(lengths: RunLengths, rates: Mapping[Shape, FixedRate]) -> list[str]:
    lines = []
    for label, why in ((ASSUMED, "a share of the peak"), (COMPILED, "rooflines that no run reaches")):
        found = [rate for rate in rates.values() if rate.time_basis == label]
        if not found:
            continue
        line = (
            f"{lengths.shown}: the rates of {len(found)} of {len(rates)} shapes are {label.upper()} for "
            f"{' and '.join(dict.fromkeys(rate.device for rate in found))} ({why}), so that runs will take another "
            "time, and unequal ones"
        )
        before = "; `dwsweep bench SPEC` before the first `run` or `plan --out` measures them"
        lines.append(line + before * any(rate.fixed is None for rate in found))
    return lines


def _elsewhere(rates: Mapping[Shape, FixedRate]) -> list[str]:
    far = {shape: rate.distance for shape, rate in rates.items() if rate.distance and rate.distance > SAME_SHAPE}
    if not far:
        return []
    worst = max(far, key=far.__getitem__)
    return [
        f"train.seconds: {len(far)} of {len(rates)} shapes were not benched and take the FLOP/s of the nearest that "
        f"was, {worst.label} of one {far[worst]:.3g} times away in depth and width"
    ]


def _of_another_block(lengths: RunLengths, rates: Mapping[Shape, FixedRate]) -> list[str]:
    shapes = [shape for shape, rate in rates.items() if rate.fixed is None and not lengths.clock.knows_recipe(shape)]
    if not shapes:
        return []
    return [
        f"train.seconds: no rate is of the block and optimizer of {len(shapes)} of {len(rates)} shapes "
        f"({lengths.clock.recipe(shapes[0])}); they take the FLOP/s of another. `dwsweep bench` of this spec "
        "measures theirs"
    ]


def _later(rates: Mapping[Shape, FixedRate]) -> list[str]:
    first = min((rate.fixed for rate in rates.values() if rate.fixed), default=None)
    later = {shape: rate for shape, rate in rates.items() if rate.fixed != first}
    if first is None or not later:
        return []
    shape, rate = next(iter(later.items()))
    return [
        f"train.seconds: {len(later)} of {len(rates)} shapes, such as {shape.label}, came after the rates of the "
        f"others were fixed ({first}); theirs are {rate.time_basis} for {rate.device} as of {rate.fixed or 'now'}, not "
        "side by side with them"
    ]


def _moved(lengths: RunLengths, rates: Mapping[Shape, FixedRate]) -> list[str]:
    """Rates that stand although others are known now, on no worse a basis."""
    times = {}
    for shape, rate in rates.items():
        now = lengths.rate_by_now(shape)
        if rate.fixed and now and BASES.index(now.time_basis) <= BASES.index(rate.time_basis):
            times[shape] = rate.tokens_per_second / now.tokens_per_second
    low, high = min(times.values(), default=1.0), max(times.values(), default=1.0)
    if max(abs(low - 1), abs(high - 1)) <= SAME_BUDGET:
        return []
    span = f"{high:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
    return [
        f"{lengths.shown}: by the rates that are {lengths.clock.label} now, runs would take {span} times that; those "
        "fixed earlier stand, so that each run is the same run again. Another --out begins with the new ones, and so "
        "does this one, as long as no run is in it, without its manifest.json"
    ]


def rounding(lengths: RunLengths, shapes: Sequence[Shape]) -> list[str]:
    """Budgets that whole steps cannot meet."""
    off = {shape: lengths.off(shape) for shape in shapes}
    far = [shape for shape in shapes if abs(off[shape]) > SAME_BUDGET]
    if not far:
        return []
    worst = max(far, key=lambda shape: abs(off[shape]))
    steps = lengths.total_steps(worst)
    return [
        f"train.{lengths.key}: {len(far)} of {len(shapes)} shapes miss the budget by more than {SAME_BUDGET:.0%} in "
        f"whole steps, {worst.label} by {off[worst]:+.0%} with {steps:,} step{'s' * (steps > 1)}: a larger budget, or "
        "a smaller train.batch_size, comes nearer"
    ]


def tokens(lengths: RunLengths, runs: Sequence[Run]) -> list[str]:
    """How much the tokens of the shapes differ."""
    if lengths.common_steps is not None:
        return []
    if lengths.is_budget:  # branches have the same tokens everywhere
        runs = [run for run in runs if run.steps == lengths.total_steps(run.shape)]
    total = max(run.tokens for run in runs) / min(run.tokens for run in runs)
    spread, fewest, most = _widest(runs)
    differ = spread > SAME_TOKENS
    if not lengths.is_budget:
        text = (
            f"train.tokens_per_param: tokens grow with the size, {total:.3g}-fold over the sweep, so every curve mixes "
            "size and data; compare with sweeps of the same ratio only"
        )
        return [text + f"; inside one budget the tokens differ by up to {spread:.1%}, as the true counts do" * differ]
    text = (
        f"train.{lengths.key}: tokens fall as N grows, {total:.3g}-fold over the sweep: along N each depth "
        "has its minimum where size and tokens are in balance"
    )
    if differ and fewest is not None and most is not None:
        text += (
            f"; inside one budget of N they differ by up to {spread:.0%}, {format_count(fewest.tokens)} at "
            f"{fewest.shape.label} and {format_count(most.tokens)} at {most.shape.label}"
        )
    return [text]


def _widest(runs: Sequence[Run]) -> tuple[float, Run | None, Run | None]:
    """(relative difference, the run with fewest tokens, that with most) inside the budget of N where they differ
    most."""
    groups: dict[float, list[Run]] = defaultdict(list)
    for run in runs:
        if run.budget is not None:
            groups[run.budget].append(run)
    found: tuple[float, Run | None, Run | None] = (0.0, None, None)
    for group in groups.values():
        few, many = (pick(group, key=lambda run: run.tokens) for pick in (min, max))
        if many.tokens / few.tokens - 1 > found[0]:
            found = (many.tokens / few.tokens - 1, few, many)
    return found


def epochs(runs: Sequence[Run], data: DataFacts | None) -> list[str]:
    if data is None:
        return []
    longest: dict[Shape, int] = defaultdict(int)  # without the shorter runs of token branches
    for run in runs:
        longest[run.shape] = max(longest[run.shape], run.tokens)
    fewest, most = (pick(longest.values()) / data.n_train_tokens for pick in (min, max))
    if most <= 1:
        return []
    text = (
        f"up to {max(longest.values()):,} tokens are read from a corpus of {data.n_train_tokens:,}: "
        f"{most:.1f} epochs; repeated text favours what memorises less"
    )
    if most > (1 + SAME_TOKENS) * fewest:
        text += f"; the shapes read it {fewest:.2g} to {most:.2g} times, so they are compared at unequal repetition"
    return [text]
