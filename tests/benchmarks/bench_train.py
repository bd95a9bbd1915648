"""Training speed beside plain JAX, as one would write it oneself: the same architecture, shapes, batch and optimizer.

    make bench
    python tests/benchmarks/bench_train.py [--shapes smoke L24-d64] [--rounds 7]

"ours" is ``dwsweep.train.program.Program``, the compiled function that a sweep runs; "plain" is ``plain_jax``, one
jitted step and Optax, with the faster of a loop over its blocks and a scan, chosen for each shape before the clock
starts.

Each side of each shape is a process of its own, with the environment that its user would have. Both begin with the same
parameters and batches, and the losses of three training steps must agree within 1e-4, so that "the same" is checked and
not claimed. Then they take turns, round by round, so that whatever else the machine does meets both. A ratio is that of
one round. The table gives the median of the ratios and each side's best rate. One rate serves all parameters, without
decay, so that nobody needs groups. Smoke shapes are trained as the sweep trains them, three seeds a pack; plain JAX
trains the three one after another. Data: ``stdlib-docs``, prepared before the clock starts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from dwsweep.data.batches import window_indices
from dwsweep.data.prepare import prepare
from dwsweep.data.token_store import Store
from dwsweep.plan import DataFacts, Pack, build
from dwsweep.plan.schedule import multipliers
from dwsweep.spec import load_spec, parse_spec
from dwsweep.sweep.local_worker import cores, each_core_a_device

SPAWN = get_context("spawn")
Params = dict[int, dict[str, np.ndarray]]
"""Arrays of each replica by their names."""

SMOKE = Path(__file__).parents[2] / "sweeps" / "smoke.yaml"
LARGER = {2: [512], 6: [192], 12: [128], 24: [64], 48: [32]}
"""Depth: widths, at batch 16 × 128, one replica, vocabulary 1000."""
ROUND_SECONDS = 1.0  # as long as a dispatch of a sweep: what it costs to begin one is shared by its steps
AGREE = 1e-4
"""Nats by which the losses of the first three steps may differ."""


@dataclass(frozen=True)
class Case:
    """A pack to train, and its data."""

    name: str
    pack: Pack
    store: Store

    @property
    def tokens_per_step(self) -> int:
        return len(self.pack.replicas) * self.pack.train.batch_size * self.pack.train.seq_len

    def batches(self, begin: int, n: int) -> tuple[list[np.ndarray], list[float]]:
        """(window indices (n, B) of each replica, multipliers of the rate) of ``n`` steps from ``begin`` on."""
        train = self.pack.train
        n_windows = (self.store.n_train_tokens - 1) // train.seq_len
        indices = [
            window_indices(r.seed, begin, n, train.batch_size, n_windows).astype(np.int64) for r in self.pack.replicas
        ]
        return indices, multipliers(begin, n, max(self.pack.branch_steps[-1], begin + n), train).tolist()


def cases(wanted: list[str]) -> list[Case]:
    """The smoke sweep's packs and the larger shapes whose name (L6-d192) or group (smoke, larger) is wanted."""
    smoke = load_spec(SMOKE, ["model.parametrization=standard", "train.weight_decay=0"])
    larger = {
        "grid": {"widths": LARGER, "seeds": 1, "heads": {"count": 2}, "learning_rates": [2e-3]},
        "train": {"seq_len": 128, "batch_size": 16, "steps": 200, "warmup_steps": 20, "weight_decay": 0.0},
    }
    store = prepare(smoke.data)
    found = []
    for group, spec in (("smoke", smoke), ("larger", parse_spec({**smoke.model_dump(), **larger}))):
        for pack in build(spec, data=DataFacts.of(store)).packs:
            name = f"L{pack.shape.depth}-d{pack.shape.width}"
            if not wanted or group in wanted or name in wanted:
                found.append(Case(name, pack, store))
    return found


class Ours:
    """The real program, which is also where the parameters come from: of each replica, by name."""

    def __init__(self, case: Case) -> None:
        import jax

        from dwsweep.train.program import Blueprint, compile_program

        self.jax, self.case, self.done = jax, case, 0
        self.program = compile_program(Blueprint.of(case.pack, case.store), case.store)
        self.state, _ = self.program.init()
        self.params = self.program.params(self.state, range(len(case.pack.replicas)))

    def steps(self, n: int) -> np.ndarray:
        losses = []
        while n:
            part = min(n, self.program.choices.capacity)
            total = max(self.case.pack.branch_steps[-1], self.done + part)
            self.state, metrics = self.program.dispatch(self.state, self.done, part, total)
            losses.append(np.asarray(metrics["loss"])[:part])
            self.done, n = self.done + part, n - part
        self.jax.block_until_ready(self.state)
        return np.concatenate(losses)


class Plain:
    """Plain JAX, one replica after another."""

    def __init__(self, case: Case, params: Params, scanned: bool) -> None:
        from flax.traverse_util import unflatten_dict
        from plain_jax import Trainer, unstacked

        pack, self.case, self.done = case.pack, case, 0
        trees = [unflatten_dict(own, sep=".") for own in params.values()]
        if not scanned:
            trees = [unstacked(tree, pack.shape.depth) for tree in trees]
        self.replicas = [
            Trainer(tree, pack.shape, pack.train, r.learning_rate) for tree, r in zip(trees, pack.replicas, strict=True)
        ]
        self.tokens = np.array(case.store.tokens("train"), np.int32)

    def steps(self, n: int) -> np.ndarray:
        indices, rates = self.case.batches(self.done, n)
        losses = [
            [trainer.step(self.tokens, own[k], rates[k]) for k in range(n)]
            for trainer, own in zip(self.replicas, indices, strict=True)
        ]
        self.done += n
        return np.array(losses, np.float32).T


def timed(side: Ours | Plain, n: int) -> tuple[float, np.ndarray]:
    """Seconds a step (of all replicas), and the losses."""
    began = time.perf_counter()
    losses = side.steps(n)
    return (time.perf_counter() - began) / n, losses


def fastest(case: Case, params: Params) -> Plain:
    """The faster of plain JAX's loop and scan for this shape, warm, at its first step again."""
    seconds = {}
    for scanned in (False, True):
        side = Plain(case, params, scanned)
        side.steps(3)
        n = max(2, int(0.5 * ROUND_SECONDS / timed(side, 2)[0]))
        seconds[scanned] = min(timed(side, n)[0] for _ in range(2))
    return Plain(case, params, seconds[True] < seconds[False])


def serve(case: Case, params: Params | None, asked: Connection) -> None:
    """Be one side, ours without ``params``: answer with the parameters, then each number of steps as ``timed`` does."""
    if params is None:
        os.environ.update(each_core_a_device(len(cores())))
    side = Ours(case) if params is None else fastest(case, params)
    asked.send(params or side.params)
    for n in iter(asked.recv, 0):
        asked.send(timed(side, n))


class Side:
    """A side in a process of its own, with its parameters."""

    def __init__(self, case: Case, params: Params | None = None) -> None:
        self.connection, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(case, params, theirs), daemon=True)
        self.process.start()
        theirs.close()  # a side that dies then is an end of file here
        self.params: Params = self.connection.recv()

    def steps(self, n: int) -> tuple[float, np.ndarray]:
        self.connection.send(n)
        return self.connection.recv()

    def end(self) -> None:
        self.connection.send(0)
        self.process.join()


def compare(case: Case, rounds: int) -> str:
    """One row of the table.

    Raises:
        AssertionError: the losses of the first three steps differ by more than ``AGREE``.
    """
    ours = Side(case)
    both = [ours, Side(case, ours.params)]
    losses = [side.steps(3)[1] for side in both]
    assert np.abs(losses[0] - losses[1]).max() <= AGREE, f"{case.name}: not the same model: losses {losses}"
    numbers = [max(1, int(ROUND_SECONDS / side.steps(2)[0])) for side in both]
    taken = [[side.steps(n)[0] for side, n in zip(both, numbers, strict=True)] for _ in range(rounds)]
    for side in both:
        side.end()
    ratios = [of_plain / of_ours for of_ours, of_plain in taken]
    rates = [case.tokens_per_step / min(of_side) for of_side in zip(*taken, strict=True)]
    train, seeds = case.pack.train, len(case.pack.replicas)
    line = f"{case.name:<9}{train.batch_size:>3} × {train.seq_len:<3}{seeds:>6}{rates[0]:>10,.0f}{rates[1]:>9,.0f}"
    return f"{line}{statistics.median(ratios):>6.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=[], help="smoke, larger, or names such as L6-d192")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    chosen = cases(options.shapes)
    print(f"jax {version('jax')}, {len(cores())} cores, load average {os.getloadavg()[0]:.2f}")
    print("tokens per second, and how many times as fast ours is (median of the rounds, their range)")
    print(f"{'shape':<9}{'batch':>9}{'seeds':>6}{'ours':>10}{'plain':>9}")
    for case in chosen:
        print(compare(case, options.rounds), flush=True)


if __name__ == "__main__":
    main()
