"""What a modern block and Muon cost beside the GPT-2 block and AdamW, at equal n_params, side by side in one process.

    python tests/benchmarks/bench_blocks.py [--shapes L6-N2.7e6 L24-N1.2e6] [--rounds 7] [--json FILE]

Each is the compiled program that a sweep runs, of the width that matches the budget. They take turns, round by round,
so that whatever else the machine does meets all; a ratio is that of one round, tokens per second over those of GPT-2's
block, and the table gives the median. Data: ``stdlib-docs``, prepared before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from pathlib import Path
from typing import Any

from bench_train import ROUND_SECONDS, SMOKE, Case, Ours, header, timed

from dwsweep.data.prepare import prepare
from dwsweep.plan import DataFacts, build
from dwsweep.spec import load_spec, parse_spec

ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "gpt2": {},
    "llama": {"model": {"preset": "llama"}},
    "qwen3": {"model": {"preset": "qwen3"}},
    "nanochat": {"model": {"preset": "nanochat"}},
    "eq. 3": {"model": {"attention": "linear", "activation": "none", "norm_type": "none"}},
    "gpt2, Muon": {"train": {"optimizer": "muon"}},
}
SHAPES = ["L6-N2.7e6", "L24-N1.2e6"]


def case(shape: str, arm: str) -> Case:
    """One seed at batch 16 × 128 and vocabulary 1000."""
    found = re.fullmatch(r"L(\d+)-N([0-9.e+]+)", shape)
    if found is None:
        raise SystemExit(f"--shapes: {shape!r}; must be such as L6-N2.7e6")
    smoke = load_spec(SMOKE)
    content: dict[str, Any] = {
        "name": "blocks",
        "grid": {"depths": [int(found[1])], "budgets": [float(found[2])], "seeds": 1, "width_multiple": 4},
        "data": smoke.data.model_dump(),
        "train": {"seq_len": 128, "batch_size": 16, "steps": 200, "warmup_steps": 20},
    }
    for section, keys in ARMS[arm].items():
        content[section] = {**content.get(section, {}), **keys}
    spec = parse_spec(content)
    store = prepare(smoke.data, progress=True)
    (pack,) = build(spec, data=DataFacts.of(store)).packs
    return Case(pack.shape.label, pack, store)


def compare(shape: str, rounds: int) -> list[dict[str, Any]]:
    """A row for each arm."""
    cases = {arm: case(shape, arm) for arm in ARMS}
    sides = {arm: Ours(one) for arm, one in cases.items()}
    steps = {}
    for arm, side in sides.items():
        side.steps(2)
        steps[arm] = max(1, int(ROUND_SECONDS / timed(side, 2)))
    seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for _ in range(rounds):
        for arm, side in sides.items():
            seconds[arm].append(timed(side, steps[arm]))
    rows = []
    for arm, one in cases.items():
        ratios = [base / own for base, own in zip(seconds["gpt2"], seconds[arm], strict=True)]
        rows.append(
            {
                "shape": shape,
                "arm": arm,
                "label": one.name,
                "n_params": one.pack.shape.n_params,
                "compile_seconds": sides[arm].compile_seconds,
                "tokens_per_second": one.tokens_per_step / min(seconds[arm]),
                "ratio": statistics.median(ratios),
                "ratio_low": min(ratios),
                "ratio_high": max(ratios),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [row for shape in arguments.shapes for row in compare(shape, arguments.rounds)]
    for name, value in header(with_torch=False).items():
        print(f"{name}: {value}")
    print(f"\n{'block':<12}{'shape':<14}{'n_params':>10}{'compile s':>11}{'tokens/s':>10}{'ratio':>7}{'(range)':>14}")
    for row in rows:
        print(
            f"{row['arm']:<12}{row['label']:<14}{row['n_params']:>10,}{row['compile_seconds']:>11.1f}"
            f"{row['tokens_per_second']:>10,.0f}{row['ratio']:>7.2f}"
            f"{row['ratio_low']:>8.2f}–{row['ratio_high']:.2f}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({**header(with_torch=False), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
