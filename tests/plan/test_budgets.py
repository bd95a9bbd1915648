"""Runs whose length is a budget of FLOPs: what a run spends, counted apart from the code that made its length."""

from __future__ import annotations

import math
from typing import Any

from spec_tools import DATA, spec_of

from dwsweep.plan import Plan, build

ODD = {"heads": {"count": 4, "size": 20}, "seeds": 1}
"""With the model below: a head size apart from d_x / H, grouped heads, a gated MLP and one table of embeddings."""
ODD_MODEL = {"mlp": "gated", "mlp_ratio": 2.5, "kv_heads": 2, "tied_embeddings": True, "positions": "rotary"}


BUDGETED = {
    "name": "t",
    "grid": {"depths": [2, 4, 8], "budgets": [1e5, 3e5, 1e6], "seeds": 2},
    "train": {"flops": 3e12, "batch_size": 8},
}


def plan(**sections: dict) -> Plan:
    return build(spec_of(BUDGETED, **sections), data=DATA)


def products(jaxpr: Any) -> int:
    """FLOPs of the matrix products of a traced program, loops multiplied out."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            inner = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else [value]:
                inside = getattr(part, "jaxpr", part)
                if hasattr(inside, "eqns"):
                    total += times * products(inside)
    return total


def test_the_products_of_the_traced_model_add_up_to_the_budget() -> None:
    """Every shape of a grid: its program's forward products, times 3 and its tokens, are the budget to half a step."""
    import jax
    import jax.numpy as jnp

    from dwsweep.model.parametrization import resolve
    from dwsweep.model.transformer import build as build_model

    grid = {"depths": [2, 5], "budgets": [3e4], **ODD}
    planned = plan(grid=grid, model=ODD_MODEL, train={"seq_len": 32})
    spec, budget = planned.spec, 3e12
    windows = jax.ShapeDtypeStruct((spec.train.batch_size, spec.train.seq_len + 1), jnp.int32)
    lengths = set()
    for run in planned.runs:
        built = build_model(run.shape, resolve(run.shape, spec.model, spec.train, run.learning_rate))
        params = jax.eval_shape(built.init, jax.random.key(0))
        forward = products(jax.make_jaxpr(built.mean_loss)(params, windows).jaxpr)
        assert abs(3 * forward * run.steps - budget) <= 1.5 * forward
        lengths.add(run.steps)
    assert len(lengths) == len(planned.runs) == 2


def test_lengths_are_rounded_to_the_nearest_step_and_are_at_least_one() -> None:
    grid = {"depths": [], "budgets": None, "widths": {2: [64]}, "seeds": 1}
    (one,) = plan(grid=grid, train={"flops": 1.0}).runs
    step = plan(grid=grid).lengths.step_cost(one.shape)
    assert one.steps == 1
    for flops, steps in ((0.4 * step, 1), (1.49 * step, 1), (1.51 * step, 2), (7.4 * step, 7), (7.6 * step, 8)):
        assert [run.steps for run in plan(grid=grid, train={"flops": flops}).runs] == [steps]


def test_branches_leave_a_trunk_of_equal_flops() -> None:
    made = plan(train={"schedule": "wsd", "token_branches": [102_400]})
    for pack in made.packs:
        assert pack.branch_steps[0] == 100 < pack.branch_steps[1] == made.lengths.total_steps(pack.shape)


def test_steps_that_miss_the_flops_are_said() -> None:
    assert "whole steps" not in "\n".join(plan(train={"flops": 1e13}).warnings)
    exact = plan(train={"flops": None, "steps": 3000})
    assert exact.lengths.off(exact.runs[0].shape) == 0.0
    short = plan(train={"flops": 2e10})  # 34 to 2 steps
    off = {run.shape: short.estimates.runs[run.run_id].flops / short.lengths.value - 1 for run in short.runs}
    worst = max(off, key=lambda shape: abs(off[shape]))
    assert f"whole steps miss the budget, {worst.label} by {off[worst]:+.0%}" in "\n".join(short.warnings)


def test_epochs_that_differ_are_said() -> None:
    text = "\n".join(plan(train={"flops": 1e13}).warnings)
    tokens = [run.tokens for run in plan(train={"flops": 1e13}).runs]
    fewest, most = (pick(tokens) / DATA.n_train_tokens for pick in (min, max))
    assert f"the shapes read it {fewest:.2g} to {most:.2g} times" in text
    equal = "\n".join(plan(train={"flops": None, "steps": 3000}).warnings)
    assert "4.4 epochs" in equal and "times, so" not in equal
