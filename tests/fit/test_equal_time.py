"""A sweep of several lengths answers at equal wall time, which ``train.seconds`` once promised."""

from __future__ import annotations

import math

import numpy as np

from dwsweep import fit_table
from dwsweep.plan import build
from dwsweep.spec import load_spec


def test_ten_minutes_answers_at_equal_wall_time_and_a_dear_layer_makes_its_answer_shallower() -> None:
    """At equal size the truth is 2 layers of 60,000 parameters; a second buys a deep net fewer tokens."""
    plan = build(load_spec("ten-minutes-smoke"))
    rng = np.random.default_rng(0)
    rows = []
    for run in plan.runs:
        shape, flops = run.shape, plan.estimates.runs[run.run_id].flops
        x, t = math.log(shape.n_params / 6e4), math.log(run.tokens / 1e5)
        effect = 0.03 * (math.log(shape.depth / 2) - 0.25 * x) ** 2
        seconds = flops / 1e10 * (1 + 0.3 * shape.depth)
        known = {"depth": shape.depth, "width": shape.width, "n_params": shape.n_params, "tokens": run.tokens}
        loss = 3 - 0.15 * x - 0.2 * t + effect + 0.002 * rng.standard_normal()
        rows.append({**known, "seed": run.seed, "loss": loss, "flops": flops, "device_seconds": seconds})
    found = fit_table(rows, adjust=["tokens"]).adjusted
    assert found is not None
    of_size, of_time = (
        {row.n_params: row.depth for row in found.equal if row.equal == name}
        for name in ("n_params", "n_params and wall_time")
    )
    both = [n for n in of_size if of_size[n] and of_time.get(n)]
    assert both and all(of_time[n] < of_size[n] for n in both)
    assert any(row.equal == "wall_time" for row in found.equal)
