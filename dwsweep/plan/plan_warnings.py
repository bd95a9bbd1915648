"""What a scientist should know before spending the compute: each warning one line, with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from dwsweep.cost.flops import training_flops_per_token
from dwsweep.plan.checks import cooldown_steps
from dwsweep.plan.units import DROP, DataFacts, Run
from dwsweep.shapes import Shape
from dwsweep.spec import Spec
from dwsweep.theory import bottlenecks, published_law

NEAR = 4.0  # a size counts as near a transition within this factor
NEEDED = 2  # matched sizes wanted on each side of a transition
SAME_TOKENS = 0.01  # relative difference of tokens that is let pass


def cautions(spec: Spec, runs: Sequence[Run], data: DataFacts | None) -> tuple[str, ...]:
    """All warnings of a plan, the most consequential first."""
    kept = [run for run in runs if run.action != DROP]
    shapes = list(dict.fromkeys(run.shape for run in kept))
    if not shapes:
        return ("every shape is dropped: nothing can be trained; see the reasons in the table",)
    found = [
        *_warm_up(spec, kept),
        *_learning_rate(spec, shapes),
        *_tokens(spec, kept),
        *_transitions(shapes),
        *_grid(spec, shapes),
        *_bottlenecks(shapes),
        *_epochs(kept, data),
        *_mismatches(spec, kept),
        *_flops(kept),
    ]
    return tuple(found)


def _widths(shapes: Iterable[Shape]) -> str:
    """``3 of the shapes (d_x 1,204 to 2,040)``."""
    listed = list(shapes)
    widths = sorted({shape.width for shape in listed})
    span = f"{widths[0]:,}" if len(widths) == 1 else f"{widths[0]:,} to {widths[-1]:,}"
    return f"{len(listed)} shape{'s' if len(listed) > 1 else ''} (d_x {span})"


def _warm_up(spec: Spec, runs: Sequence[Run]) -> list[str]:
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


def _learning_rate(spec: Spec, shapes: Sequence[Shape]) -> list[str]:
    rule, rates = spec.model.parametrization, spec.grid.learning_rates
    if rule == "completep" or len({shape.depth for shape in shapes}) < 2:
        return []
    one = "one learning rate" if len(rates) == 1 else f"{len(rates)} learning rates"
    if len(rates) >= 3:
        return [
            f"model.parametrization {rule} does not carry the learning rate over depth: {one} a shape are searched "
            "instead, and `fit` warns where the best lies at the edge of the grid"
        ]
    return [
        f"model.parametrization {rule} does not carry the learning rate over depth, and the grid has {one}: deep nets "
        "may look worse because they are worse tuned; use completep, or at least 3 grid.learning_rates"
    ]


def _tokens(spec: Spec, runs: Sequence[Run]) -> list[str]:
    if spec.train.tokens_per_param is None:
        return []
    groups: dict[float, list[Run]] = defaultdict(list)
    for run in runs:
        if run.budget is not None:
            groups[run.budget].append(run)
    spreads = [max(r.tokens for r in g) / min(r.tokens for r in g) - 1 for g in groups.values()]
    total = max(run.tokens for run in runs) / min(run.tokens for run in runs)
    text = (
        f"train.tokens_per_param: tokens grow with the size, {total:.3g}-fold over the sweep, so every curve mixes "
        "size and data; compare with sweeps of the same ratio only"
    )
    if spreads and max(spreads) > SAME_TOKENS:
        text += f"; inside one budget the tokens differ by up to {max(spreads):.1%}, as the true counts do"
    return [text]


def _transitions(shapes: Sequence[Shape]) -> list[str]:
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
            outside.append(f"{shallow}/{deep} at N = {target:.2g}")
            continue
        # the curve that is read less densely limits what the pair can say
        left, right = (
            min(sum(start <= n <= stop for n in sizes[depth]) for depth in (shallow, deep))
            for start, stop in ((target / NEAR, target), (target, target * NEAR))
        )
        if min(left, right) < NEEDED:
            thin.append(f"{shallow}/{deep} at N = {target:.2g} ({left} below, {right} above)")
    found = []
    if outside:
        found.append(
            f"the published transition lies outside the sizes that both depths share: {', '.join(outside)}; such "
            "a pair will probably be reported as not reached or already crossed"
        )
    if thin:
        found.append(
            f"few widths around the published transition: {', '.join(thin)}; at least {NEEDED} on each side within a "
            f"factor {NEAR:g} locate a crossing"
        )
    return found


def _grid(spec: Spec, shapes: Sequence[Shape]) -> list[str]:
    found = []
    depths = sorted({shape.depth for shape in shapes})
    if len(depths) == 1:
        found.append(f"one depth ({depths[0]}): there is nothing to compare it with, and no transition can be fitted")
    elif len(depths) < 4:
        found.append(
            f"{len(depths)} depths give {len(depths) - 1} pair{'s' if len(depths) > 2 else ''}; a width law needs at "
            "least three pairs"
        )
    if len(spec.grid.seed_values()) == 1:
        found.append(
            "one seed: the noise of a loss can only be guessed from the roughness of the curves; 3 seeds or more "
            "measure it"
        )
    return found


def _bottlenecks(shapes: Sequence[Shape]) -> list[str]:
    found = []
    wide = [s for s in shapes if bottlenecks.width_exceeds_vocabulary(s.width, s.vocab_size)]
    if wide:
        found.append(
            f"d_x above the vocabulary of {wide[0].vocab_size:,} at {_widths(wide)}: {bottlenecks.VOCABULARY_REASON}"
        )
    small = [s for s in shapes if bottlenecks.head_below_window(s.head_size, s.seq_len)]
    if small:
        found.append(
            f"head size below the window of {small[0].seq_len} at {_widths(small)}, down to "
            f"{min(s.head_size for s in small)}: {bottlenecks.HEAD_SIZE_REASON}"
        )
    heavy = [s for s in shapes if bottlenecks.embedding_share(s) > bottlenecks.EMBEDDING_SHARE_LIMIT]
    if heavy:
        worst = max(heavy, key=bottlenecks.embedding_share)
        found.append(
            f"embeddings above {bottlenecks.EMBEDDING_SHARE_LIMIT:.0%} of all parameters at {_widths(heavy)}, up to "
            f"{bottlenecks.embedding_share(worst):.0%} at {worst.label}: {bottlenecks.EMBEDDING_SHARE_REASON}; "
            "`fit --axis n_params_total` shows how much it matters"
        )
    return found


def _epochs(runs: Sequence[Run], data: DataFacts | None) -> list[str]:
    if data is None:
        return []
    epochs = max(run.tokens for run in runs) / data.n_train_tokens
    if epochs <= 1:
        return []
    return [
        f"up to {max(run.tokens for run in runs):,} tokens are read from a corpus of {data.n_train_tokens:,}: "
        f"{epochs:.1f} epochs; repeated text favours what memorises less"
    ]


def _mismatches(spec: Spec, runs: Sequence[Run]) -> list[str]:
    off = {run.shape: run.shape.n_params / run.budget - 1 for run in runs if run.budget}
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
        f"equal N is not equal FLOPs: at budget {budget:.2g} {high.label} needs {ratio - 1:.0%} more FLOPs a parameter "
        f"than {low.label} (attention and unembedding); `fit --axis flops` compares at equal FLOPs"
    ]
