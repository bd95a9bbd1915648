"""Checks of a valid spec for values that do not go together: all errors at once, before anything starts;
each warning one line with its reason.

Warnings about the training lengths in a plan are among them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from dwsweep import published_law, theory
from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.data.split import FEWEST_HELDOUT
from dwsweep.plan.ids import unused
from dwsweep.plan.lengths import RunLengths, steps_of
from dwsweep.plan.schedule import cooldown_steps
from dwsweep.plan.units import DataFacts, Run
from dwsweep.records.sweep import DROP
from dwsweep.shapes import HeadRule, Shape
from dwsweep.spec import MAX_STEPS, Spec
from dwsweep.text import format_count

MAX_RUNS = 100_000  # most runs of one plan: the table of more takes minutes and gigabytes
NEAR = 4.0  # a size counts as near a transition within this factor
NEEDED = 2  # matched sizes wanted on each side of a transition


def head_errors(spec: Spec) -> list[str]:
    """Errors of heads, key/value heads and rotary positions at the widths of the grid, rule by rule."""
    rules = spec.grid.head_rules()
    keys = [f"grid.heads[{k}]" for k in range(len(rules))] if isinstance(spec.grid.heads, list) else ["grid.heads"]
    return list(
        dict.fromkeys(line for key, rule in zip(keys, rules, strict=True) for line in _rule_errors(spec, rule, key))
    )


def _rule_errors(spec: Spec, rule: HeadRule, key: str) -> list[str]:
    model, grid = spec.model, spec.grid
    kv = model.kv_heads or 1
    if rule.count is not None and rule.count % kv:
        return [f"model.kv_heads: {kv}; must divide {key}.count {rule.count}"]
    if rule.size is not None and rule.size % 2 and model.positions == "rotary":
        return [f"{key}.size: {rule.size}; rotary positions need an even head size"]
    if rule.count is not None and rule.size is not None:
        return []
    # the width must be a multiple of this, for the reason given
    if rule.size is not None:
        need, why = rule.size * kv, f"{key}.size {rule.size}"
        why += f" times model.kv_heads {kv}" if kv > 1 else ""
    else:
        count = rule.count or 1
        rotary = model.positions == "rotary"
        need = count * 2 if rotary else count
        why = f"{key}.count {count}" + (" times 2 (rotary positions need an even head size)" if rotary else "")
    if grid.widths is None:
        if grid.width_multiple % need:
            return [f"grid.width_multiple: {grid.width_multiple}; must be a multiple of {need}: {why}"]
        return []
    return [
        f"grid.widths.{depth}: {width}; must be a multiple of {need}: {why}"
        for depth, widths in sorted(grid.widths.items())
        for width in widths
        if width % need
    ]


def size_errors(spec: Spec) -> Iterator[str]:
    """Check the number of runs of the grid, and MLPs that would be empty."""
    grid, train = spec.grid, spec.train
    shapes = sum(map(len, (grid.widths or {}).values())) or len(grid.depths) * len(grid.budget_values())
    runs = (
        shapes
        * len(grid.head_rules())
        * len(grid.seed_values())
        * len(grid.learning_rates)
        * (1 + len(train.token_branches))
    )
    if runs > MAX_RUNS:
        yield f"grid: makes {runs:,} runs; at most {MAX_RUNS:,} in one sweep"
    narrowest = min((min(widths) for widths in (grid.widths or {}).values()), default=grid.width_multiple)
    if spec.model.mlp_ratio * narrowest < 1:
        yield f"model.mlp_ratio: {spec.model.mlp_ratio:g}; leaves no MLP at width {narrowest}"


def length_errors(lengths: RunLengths, shapes: Sequence[Shape]) -> list[str]:
    """Lengths of the runs of these shapes; without shapes, the checks that are the same for all."""
    if lengths.common_steps is not None:
        fewest = most = lengths.common_steps
    elif shapes:
        fewest, most = (pick(map(lengths.total_steps, shapes)) for pick in (min, max))
    else:
        return []
    if most > MAX_STEPS:
        cheapest = min(shapes, key=lengths.step_cost) if lengths.is_budget else None
        where = f" at {cheapest.label}" if cheapest else ""
        return [f"{lengths.shown}; gives {most:,} steps{where}, at most {MAX_STEPS:,} can be counted"]
    warmup, per_step = lengths.spec.train.warmup_steps, lengths.tokens_per_step
    if lengths.is_budget and fewest <= warmup:
        dearest = max(shapes, key=lengths.step_cost)
        enough = 1.006 * (warmup + 1) * lengths.step_cost(dearest)  # three digits must not round the limit down too far
        return [
            f"{lengths.shown}; gives {dearest.label} {fewest:,} step{'s' * (fewest > 1)}, no more than "
            f"train.warmup_steps {warmup:,}; at least {enough:.3g} here, or fewer warm-up steps"
        ]
    return [
        f"train.token_branches[{index}]: {tokens:g}; must be at most the tokens of the shortest run, "
        f"{fewest * per_step:,}"
        for index, tokens in enumerate(lengths.spec.train.token_branches)
        if steps_of(tokens, per_step) > fewest
    ]


def pack_members(spec: Spec) -> list[list[tuple[int, float]]]:
    """(seed, learning rate) of the replicas of each pack into which the runs of a shape are cut."""
    replicas = [(seed, rate) for rate in spec.grid.learning_rates for seed in spec.grid.seed_values()]
    size = spec.execution.max_replicas or len(replicas)
    return [replicas[start : start + size] for start in range(0, len(replicas), size)]


def device_errors(spec: Spec) -> Iterator[str]:
    """Errors of microbatch and mesh for the batch and the packs; number and name of the devices are unknown here."""
    batch, micro, mesh = spec.train.batch_size, spec.execution.microbatch, spec.execution.mesh
    if micro is not None and batch % micro:
        yield f"execution.microbatch: {micro}; must divide train.batch_size {batch}"
    if mesh is not None and batch % (mesh.data * mesh.fsdp):
        shown = f"data {mesh.data}, fsdp {mesh.fsdp}"
        yield f"execution.mesh: {shown}; data · fsdp must divide train.batch_size {batch}"
    if mesh is not None:
        sizes = sorted({len(members) for members in pack_members(spec)})
        if any(size % mesh.replica for size in sizes):
            shown = " and ".join(str(size) for size in sizes)
            yield (f"execution.mesh.replica: {mesh.replica}; must divide the replicas of every pack, here {shown}")


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
        *dict.fromkeys(line for rule in spec.grid.head_rules() for line in _transitions(filter(rule.gives, shapes))),
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


def _transitions(shapes: Iterable[Shape]) -> Iterator[str]:
    """Warn of pairs of depths whose published transition these shapes will not show, under one rule of the heads."""
    sizes: dict[int, list[int]] = defaultdict(list)
    for shape in shapes:
        sizes[shape.depth].append(shape.n_params)
    depths = sorted(sizes)
    outside, thin = [], []
    for shallow, deep in pairwise(depths):
        if not published_law.TRAINED_DEPTHS[0] <= shallow <= published_law.TRAINED_DEPTHS[1]:
            continue
        target = published_law.transition_n_params(shallow)
        low, high = (max(min(sizes[shallow]), min(sizes[deep])), min(max(sizes[shallow]), max(sizes[deep])))
        if not low <= target <= high:
            outside.append(f"{shallow}/{deep} at N = {format_count(target)}")
            continue
        # the sparser of the two curves limits what the pair can show
        left, right = (
            min(sum(start <= n <= stop for n in sizes[depth]) for depth in (shallow, deep))
            for start, stop in ((target / NEAR, target), (target, target * NEAR))
        )
        if min(left, right) < NEEDED:
            thin.append(f"{shallow}/{deep} at N = {format_count(target)} ({left} below, {right} above)")
    if outside:
        yield (
            f"the published transition lies outside the sizes that both depths share: {', '.join(outside)}; such "
            "a pair will probably be reported as not reached or already crossed"
        )
    if thin:
        yield (
            f"few widths around the published transition: {', '.join(thin)}; at least {NEEDED} on each side within a "
            f"factor {NEAR:g} locate a crossing"
        )


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


SAME_TOKENS = 0.01  # relative difference of tokens without a warning
SAME_BUDGET = 0.02  # relative miss of a budget by whole steps without a warning


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
