"""Refusals: values of a valid spec that do not go together, all at once and before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dwsweep.plan.lengths import RunLengths, steps_of
from dwsweep.shapes import Shape
from dwsweep.spec import MAX_STEPS, Spec

MAX_RUNS = 100_000  # most runs of one plan: the table of more takes minutes and gigabytes


def head_errors(spec: Spec) -> list[str]:
    """Errors of heads, key/value heads and rotary positions at the widths of the grid, or at the divisor of all widths:
    what holds there holds at its multiples."""
    rules, grid = spec.grid.head_rules(), spec.grid
    widths = [("grid.width_multiple", grid.width_multiple)]
    if grid.widths is not None:
        widths = [(f"grid.widths.{depth}", width) for depth, row in sorted(grid.widths.items()) for width in row]
    errors = []
    for number, rule in enumerate(rules):
        heads = f"grid.heads[{number}]" if isinstance(grid.heads, list) else "grid.heads"
        for key, width in widths:
            try:
                spec.block(rule).shape(1, width)
            except ValueError as error:
                errors.append(f"{key}: {width}; {heads} {rule}: {error}")
    return list(dict.fromkeys(errors))


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
