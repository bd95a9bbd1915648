"""Cautions: what a plan can do but may not be meant to, one line each with its reason."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dwsweep import theory
from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.data.digests import FEWEST_HELDOUT
from dwsweep.plan.ids import unused
from dwsweep.plan.lengths import RunLengths
from dwsweep.plan.schedule import cooldown_steps
from dwsweep.plan.units import DataFacts, Run
from dwsweep.records.sweep import DROP
from dwsweep.shapes import Shape
from dwsweep.spec import Spec
from dwsweep.text import format_count

SAME_TOKENS = 0.01  # relative difference of tokens without a warning
SAME_BUDGET = 0.02  # relative miss of a budget by whole steps without a warning


def cautions(lengths: RunLengths, runs: Sequence[Run], data: DataFacts | None) -> tuple[str, ...]:
    """All warnings of a plan, the most consequential first."""
    spec = lengths.spec
    kept = [run for run in runs if run.action != DROP]
    shapes = list(dict.fromkeys(run.shape for run in kept))
    if not shapes:
        return ("every shape is dropped: nothing can be trained; see the reasons in the table",)
    return (
        *held_out(spec, data),
        *warm_up(spec, kept),
        *_learning_rate(spec, shapes),
        *rounding(lengths, shapes),
        *token_cautions(lengths, kept),
        *_grid(spec, shapes),
        *_bottlenecks(shapes),
        *epochs(kept, data),
        *_mismatches(spec, kept),
        *([] if lengths.key == "flops" else _flops(kept)),
    )


def _widths(shapes: Iterable[Shape]) -> str:
    """``3 of the shapes (d_x 1,204 to 2,040)``."""
    listed = list(shapes)
    widths = sorted({shape.width for shape in listed})
    span = f"{widths[0]:,}" if len(widths) == 1 else f"{widths[0]:,} to {widths[-1]:,}"
    return f"{len(listed)} shape{'s' if len(listed) > 1 else ''} (d_x {span})"


def _learning_rate(spec: Spec, shapes: Sequence[Shape]) -> list[str]:
    rule, rates = spec.model.parametrization, spec.grid.learning_rates
    if rule == "completep" or len({shape.depth for shape in shapes}) < 2:
        return []
    one = "one learning rate" if len(rates) == 1 else f"{len(rates)} learning rates"
    if len(rates) >= 3:
        return [
            f"model.parametrization {rule} does not carry the learning rate over depth: {one} per shape are searched "
            "instead, and `fit` warns where the best lies at the edge of the grid"
        ]
    return [
        f"model.parametrization {rule} does not carry the learning rate over depth, and the grid has {one}: deep nets "
        "may look worse because they are worse tuned; use completep, or at least 3 grid.learning_rates"
    ]


def _grid(spec: Spec, shapes: Sequence[Shape]) -> Iterator[str]:
    depths = sorted({shape.depth for shape in shapes})
    if len(depths) == 1 and len(spec.grid.head_rules()) == 1:
        yield f"one depth ({depths[0]}): there is nothing to compare it with, and no transition can be fitted"
    elif 1 < len(depths) < 4:
        yield (
            f"{len(depths)} depths give {len(depths) - 1} pair{'s' if len(depths) > 2 else ''}; a width law needs at "
            "least three pairs"
        )
    if len(spec.grid.seed_values()) == 1:
        yield (
            "one seed: the noise of a loss can only be guessed from the roughness of the curves; 3 seeds or more "
            "measure it"
        )


def _bottlenecks(shapes: Sequence[Shape]) -> Iterator[str]:
    caps = {s: cap for s in shapes if (cap := theory.embedding_cap(s.width, s.vocab_size, s.embedding_rank))}
    for cap in dict.fromkeys(caps.values()):
        what = "the vocabulary of" if cap.is_vocabulary else "model.embedding_rank"
        wide = [shape for shape, own in caps.items() if own == cap]
        yield f"d_x above {what} {cap.value:,} at {_widths(wide)}: {theory.EMBEDDING_REASON}"
    vain = [s for s in shapes if s.embedding_rank and s.embedding_rank >= min(s.width, s.vocab_size)]
    if vain:
        yield (
            f"model.embedding_rank {vain[0].embedding_rank:,} is no less than min(d_x, V) at {_widths(vain)}: the "
            "factored embedding is no bottleneck there, it has more parameters and other learning dynamics"
        )
    small = [s for s in shapes if theory.head_below_window(s.head_size, s.seq_len)]
    if small:
        yield (
            f"head size below the window of {small[0].seq_len} at {_widths(small)}, down to "
            f"{min(s.head_size for s in small)}: {theory.HEAD_SIZE_REASON}"
        )
    heavy = [s for s in shapes if theory.embedding_share(s) > theory.EMBEDDING_SHARE_LIMIT]
    if heavy:
        worst = max(heavy, key=theory.embedding_share)
        yield (
            f"embeddings above {theory.EMBEDDING_SHARE_LIMIT:.0%} of all parameters at {_widths(heavy)}, up to "
            f"{theory.embedding_share(worst):.0%} at {worst.label}: {theory.EMBEDDING_SHARE_REASON}; "
            "`fit --axis n_params_total` shows how much it matters"
        )


def _mismatches(spec: Spec, runs: Sequence[Run]) -> list[str]:
    off = {run.shape: run.mismatch for run in runs if run.mismatch is not None}
    far = {shape: value for shape, value in off.items() if abs(value) > spec.grid.max_mismatch}
    if not far:
        return []
    worst = max(far, key=lambda shape: abs(far[shape]))
    return [
        f"{len(far)} shape{'s are' if len(far) > 1 else ' is'} further than max_mismatch {spec.grid.max_mismatch:.0%} "
        f"from the budget, {worst.label} by {far[worst]:+.0%}: `fit` works in ln N and uses the true counts; a smaller "
        f"grid.width_multiple than {spec.grid.width_multiple} comes nearer"
    ]


def _flops(runs: Sequence[Run]) -> list[str]:
    groups: dict[float, set[Shape]] = defaultdict(set)
    for run in runs:
        if run.budget is not None:
            groups[run.budget].add(run.shape)
    worst: tuple[float, float, Shape, Shape] | None = None
    for budget, shapes in groups.items():
        cost = {shape: training_flops_per_token(shape) / shape.n_params for shape in shapes}
        low, high = min(shapes, key=cost.__getitem__), max(shapes, key=cost.__getitem__)
        if worst is None or cost[high] / cost[low] > worst[0]:
            worst = (cost[high] / cost[low], budget, low, high)
    if worst is None or worst[0] < 1.1:
        return []
    ratio, budget, low, high = worst
    return [
        f"equal N is not equal FLOPs: at budget {format_count(budget)} {high.label} needs {ratio - 1:.0%} more FLOPs "
        f"per parameter than {low.label} (attention and unembedding); `fit --axis flops` compares at equal FLOPs"
    ]


def held_out(spec: Spec, data: DataFacts | None) -> list[str]:
    """Warning about too few held-out documents, in the store or within its ``train.eval_tokens``."""
    if data is None:
        return []
    if data.caution:
        return [data.caution]
    wanted = spec.train.eval_tokens
    if wanted is None or not data.n_heldout_documents:
        return []
    each = data.n_validation_tokens / data.n_heldout_documents
    if wanted >= FEWEST_HELDOUT * each:
        return []
    return [
        f"train.eval_tokens {wanted:,}: evaluates about {max(1, wanted // each):.0f} held-out documents; the standard "
        f"errors of losses need {FEWEST_HELDOUT} or more, about {math.ceil(FEWEST_HELDOUT * each):,} tokens"
    ]


def warm_up(spec: Spec, runs: Sequence[Run]) -> Iterator[str]:
    train, shortest = spec.train, min(run.steps for run in runs)
    if train.warmup_steps >= shortest:
        yield (
            f"train.warmup_steps {train.warmup_steps:,} is not less than the {shortest:,} steps of the shortest run: "
            "the learning rate never reaches its peak"
        )
    elif train.schedule == "wsd" and train.warmup_steps > shortest - cooldown_steps(train, shortest):
        yield (
            f"train.warmup_steps {train.warmup_steps:,} reaches into the cool-down of the shortest run, which is its "
            f"last {cooldown_steps(train, shortest):,} of {shortest:,} steps and begins after the warm-up instead"
        )


def without_effect(arms: Sequence[Spec]) -> list[str]:
    """Warn of keys with a value of their own that another key leaves without effect in every arm."""
    found = [list(_without_effect(spec)) for spec in arms]
    return [line for line in found[0] if all(line in lines for lines in found)]


def _without_effect(spec: Spec) -> Iterator[str]:
    for part, key, needed in unused(spec):
        section = getattr(spec, part)
        value = getattr(section, key)
        if value != type(section).model_fields[key].default:
            yield f"{part}.{key} {value} has no effect: it belongs to {needed}"


def rounding(lengths: RunLengths, shapes: Sequence[Shape]) -> list[str]:
    """Warn of budgets that whole steps miss."""
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


def token_cautions(lengths: RunLengths, runs: Sequence[Run]) -> list[str]:
    """Warn of shapes that train on very different numbers of tokens."""
    if lengths.common_steps is not None:
        return []
    if lengths.is_budget:  # token branches have the same tokens at all shapes
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
    """(relative difference, run with fewest tokens, run with most tokens) for the budget of N with the largest
    difference."""
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
    longest: dict[Shape, int] = defaultdict(int)  # steps of the longest branch: shorter token branches do not count
    for run in runs:
        longest[run.shape] = max(longest[run.shape], run.tokens)
    fewest, most = (pick(longest.values()) / data.n_train_tokens for pick in (min, max))
    if most <= 1:
        return []
    text = (
        f"up to {max(longest.values()):,} tokens are read from a corpus of {data.n_train_tokens:,}: "
        f"{most:.1f} epochs; repeated text favours nets that memorise less"
    )
    if most > (1 + SAME_TOKENS) * fewest:
        text += f"; the shapes read it {fewest:.2g} to {most:.2g} times, so they are compared at unequal repetition"
    return [text]
