"""Table of train/README.md: XLA's counts of one training step, kernel by kernel and of whole programs.

    python tests/benchmarks/cost_table.py                  # for the CPU that is here
    python tests/benchmarks/cost_table.py H200 TPU-v5e     # with the vendors' compilers, as `make test-chips` has them

Nothing is trained. A row per shape: FLOPs by formula and XLA's over it; bytes in main memory, kernel by kernel, and
XLA's of the whole program over them, where a loop's body counts once and memory on the chip counts too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.data.token_store import Store, token_dtype
from dwsweep.plan import build
from dwsweep.spec import load_spec
from dwsweep.text import format_bytes, format_count
from dwsweep.train.compile_only import LeastText
from dwsweep.train.kernels import step_cost
from dwsweep.train.program import Blueprint, fitting_dispatch, memory_of
from dwsweep.train.targets import Place, elsewhere, here

SWEEPS = Path(__file__).parents[2] / "sweeps"
SPECS = {"levine-mini": ["grid.budgets=[1.0e6,5.6e6,3.0e7]"], "smoke": []}


def row(pack: Any, place: Place) -> list[str]:
    """Cells of one shape."""
    shape, train = pack.shape, pack.train
    text = LeastText(train.batch_size * train.seq_len + 1, token_dtype(shape.vocab_size))
    _, blueprint, program, _ = fitting_dispatch(Blueprint.of(pack, cast(Store, text), place.hardware))
    cost, whole = step_cost(program.as_text()), program.cost_analysis() or {}
    tokens = len(pack.replicas) * train.batch_size * train.seq_len / blueprint.choices.layout.size
    formula = training_flops_per_token(shape) * tokens
    return [
        f"L{shape.depth} d{shape.width}",
        f"{cost.launches:,}",
        format_count(formula),
        f"{cost.flops / formula:.2f}",
        f"{whole['flops'] / formula:.2f}" if whole else "–",
        format_bytes(cost.bytes),
        f"{whole['bytes accessed'] / cost.bytes:.2f}" if whole else "–",
        format_bytes(memory_of(program) or 0),
    ]


def main(targets: list[str]) -> None:
    head = ["shape", "kernels", "FLOPs", "by kernel", "whole", "bytes", "whole", "memory"]
    for target in targets or [None]:
        for name, overrides in SPECS.items():
            plan = build(load_spec(SWEEPS / f"{name}.yaml", overrides))
            place = elsewhere(target) if target else here(plan, [1])[0]
            print(f"\n{name}, {target or 'this host'}\n\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
            for pack in {pack.shape: pack for pack in plan.packs}.values():
                print(f"| {' | '.join(row(pack, place))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
