"""What a valid spec may still get wrong once its values meet: heads and widths, branches and lengths.

Everything here is refused before anything starts, all errors at once.
"""

from __future__ import annotations

import math

from dwsweep.spec import MAX_STEPS, Spec, TrainSpec

MAX_RUNS = 100_000  # of one plan: beyond it the table alone takes minutes and gigabytes


def steps_of(tokens: float, tokens_per_step: int) -> int:
    """Optimizer steps that see at least ``tokens``."""
    # the small slack keeps 1e6 tokens at 1000 a step from becoming 1001 steps through rounding of a product
    return max(1, math.ceil(tokens / tokens_per_step - 1e-9))


def total_steps(spec: Spec, n_params: int) -> int:
    """Steps of a full-length run of a shape with ``n_params`` matched parameters."""
    train = spec.train
    if train.steps is not None:
        return train.steps
    tokens = train.tokens if train.tokens is not None else (train.tokens_per_param or 0.0) * n_params
    return steps_of(tokens, train.batch_size * train.seq_len)


def branch_steps(spec: Spec, n_params: int) -> tuple[int, ...]:
    """Total steps of every finished run of one replica, ascending; the last is the full length."""
    full = total_steps(spec, n_params)
    per_step = spec.train.batch_size * spec.train.seq_len
    return tuple(sorted({steps_of(tokens, per_step) for tokens in spec.train.token_branches} | {full}))


def head_errors(spec: Spec) -> list[str]:
    """Heads, key/value heads and rotary positions against the widths of the grid."""
    rule, model, grid = spec.block().head_rule, spec.model, spec.grid
    kv = model.kv_heads or 1
    if rule.count is not None and rule.count % kv:
        return [f"model.kv_heads: {kv}; must divide grid.heads.count {rule.count}"]
    if rule.size is not None and rule.size % 2 and model.positions == "rotary":
        return [f"grid.heads.size: {rule.size}; rotary positions need an even head size"]
    if rule.count is not None and rule.size is not None:
        return []
    # the width must be a multiple of this, for the reason given
    if rule.size is not None:
        need, why = rule.size * kv, f"grid.heads.size {rule.size}"
        why += f" times model.kv_heads {kv}" if kv > 1 else ""
    else:
        count = rule.count or 1
        rotary = model.positions == "rotary"
        need = count * 2 if rotary else count
        why = f"grid.heads.count {count}" + (" times 2 (rotary positions need an even head size)" if rotary else "")
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


def cooldown_steps(spec: TrainSpec, steps: int) -> int:
    """Steps of the cool-down at the end of a wsd run of ``steps`` steps."""
    return max(1, math.ceil(spec.cooldown_fraction * steps))


def cooldown_start(steps: int, train: TrainSpec) -> int:
    """First step (from 0) of the cool-down of a wsd run of ``steps`` steps; never inside the warm-up."""
    return max(min(train.warmup_steps, steps), steps - cooldown_steps(train, steps))


def size_errors(spec: Spec) -> list[str]:
    """How many runs the grid makes, and MLPs that would be empty."""
    grid, train = spec.grid, spec.train
    shapes = sum(map(len, (grid.widths or {}).values())) or len(grid.depths) * len(grid.budget_values())
    runs = shapes * len(grid.seed_values()) * len(grid.learning_rates) * (1 + len(train.token_branches))
    errors = []
    if runs > MAX_RUNS:
        errors.append(f"grid: makes {runs:,} runs; at most {MAX_RUNS:,} in one sweep")
    narrowest = min((min(widths) for widths in (grid.widths or {}).values()), default=grid.width_multiple)
    if spec.model.mlp_ratio * narrowest < 1:
        errors.append(f"model.mlp_ratio: {spec.model.mlp_ratio:g}; leaves no MLP at width {narrowest}")
    return errors


def length_errors(spec: Spec, smallest: int, largest: int) -> list[str]:
    """Lengths of the runs of the smallest and the largest shape, in matched parameters."""
    train = spec.train
    most_steps = total_steps(spec, largest)
    if most_steps > MAX_STEPS:
        key = "tokens" if train.tokens is not None else "tokens_per_param"
        value = getattr(train, key)
        return [f"train.{key}: {value:g}; gives {most_steps:,} steps, at most {MAX_STEPS:,} can be counted"]
    full = total_steps(spec, smallest)
    per_step = train.batch_size * train.seq_len
    most = f"must be at most the tokens of the shortest run, {full * per_step:,}"
    return [
        f"train.token_branches[{index}]: {tokens:g}; {most}"
        for index, tokens in enumerate(train.token_branches)
        if steps_of(tokens, per_step) > full
    ]


def pack_members(spec: Spec) -> list[list[tuple[int, float]]]:
    """(seed, learning rate) of the replicas of each pack into which the runs of a shape are cut."""
    replicas = [(seed, rate) for rate in spec.grid.learning_rates for seed in spec.grid.seed_values()]
    size = spec.execution.max_replicas or len(replicas)
    return [replicas[start : start + size] for start in range(0, len(replicas), size)]


def device_errors(spec: Spec) -> list[str]:
    """Microbatch and mesh against batch and packs; how many devices there are, and of what name, is not known here."""
    batch, micro, mesh = spec.train.batch_size, spec.execution.microbatch, spec.execution.mesh
    errors = []
    if micro is not None and batch % micro:
        errors.append(f"execution.microbatch: {micro}; must divide train.batch_size {batch}")
    if mesh is not None and batch % (mesh.data * mesh.fsdp):
        shown = f"data {mesh.data}, fsdp {mesh.fsdp}"
        errors.append(f"execution.mesh: {shown}; data · fsdp must divide train.batch_size {batch}")
    if mesh is not None:
        sizes = sorted({len(members) for members in pack_members(spec)})
        if any(size % mesh.replica for size in sizes):
            shown = " and ".join(str(size) for size in sizes)
            errors.append(
                f"execution.mesh.replica: {mesh.replica}; must divide the replicas of every pack, here {shown}"
            )
    return errors
