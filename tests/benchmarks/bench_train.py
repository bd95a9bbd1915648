"""Training speed beside what one would write oneself: the same architecture, shapes, batch and optimizer.

    make bench
    python tests/benchmarks/bench_train.py [--shapes smoke L24-d64] [--rounds 7]

The sides, each where it is installed:

- ours: ``dwsweep.train.program.Program``, the compiled function that a sweep runs;
- compiled, eager: ``torch_model`` with and without ``torch.compile``;
- plain: ``plain_jax``, one jitted step and Optax.

Each side of each shape is a process of its own, with the environment that its user would have. All begin with the same
parameters and batches, and the losses of three training steps must agree within 1e-4, so that "the same" is checked and
not claimed. Then they take turns, round by round, so that whatever else the machine does meets all. A ratio is that of
one round. The table gives the median of the ratios and each side's best rate. One rate serves all parameters, without
decay, so that nobody needs groups. PyTorch runs with the faster of its two
fast AdamWs (fused, foreach) and of one thread and all cores, plain JAX with the faster of a loop over its blocks and a
scan: both are chosen for each shape before the clock starts. Compilation is over by then too. Smoke shapes are trained
as the sweep trains them, three seeds a pack; the others train the three one after another. Data: ``stdlib-docs``,
prepared before the clock starts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep.data.batches import window_indices
from dwsweep.data.prepare import prepare
from dwsweep.data.token_store import Store
from dwsweep.plan import DataFacts, Pack, build
from dwsweep.plan.schedule import multipliers
from dwsweep.spec import load_spec, parse_spec
from dwsweep.sweep.local_worker import cores, each_core_a_device

SMOKE = Path(__file__).parents[2] / "sweeps" / "smoke.yaml"
LARGER = {2: [512], 6: [192], 12: [128], 24: [64], 48: [32]}
"""Depth: widths, at batch 16 × 128, one replica, vocabulary 1000."""
ROUND_SECONDS = 1.0  # as long as a dispatch of a sweep: what it costs to begin one is shared by its steps
AGREE = 1e-4
"""Nats by which the losses of the first three steps may differ."""
SIDES = {"ours": "jax", "compiled": "torch", "eager": "torch", "plain": "jax"}
"""The sides in the order of the table: the package that each needs."""


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


def cases(wanted: list[str], progress: bool = True) -> list[Case]:
    """The smoke sweep's packs and the larger shapes whose name (L6-d192) or group (smoke, larger) is wanted."""
    smoke = load_spec(SMOKE, ["model.parametrization=standard", "train.weight_decay=0"])
    larger = {
        "grid": {"widths": LARGER, "seeds": 1, "heads": {"count": 2}, "learning_rates": [2e-3]},
        "train": {"seq_len": 128, "batch_size": 16, "steps": 200, "warmup_steps": 20, "weight_decay": 0.0},
    }
    store = prepare(smoke.data, progress=progress)
    found = []
    for group, spec in (("smoke", smoke), ("larger", parse_spec({**smoke.model_dump(), **larger}))):
        for pack in build(spec, data=DataFacts.of(store)).packs:
            name = f"L{pack.shape.depth}-d{pack.shape.width}"
            if not wanted or group in wanted or name in wanted:
                found.append(Case(name, pack, store))
    return found


class Ours:
    """The real program, which is also where the parameters come from."""

    def __init__(self, case: Case, params: Path) -> None:
        import jax

        from dwsweep.train.program import Blueprint, compile_program

        self.jax, self.case = jax, case
        self.program = compile_program(Blueprint.of(case.pack, case.store), case.store)
        self.state, _ = self.program.init()
        own = self.program.params(self.state, range(len(case.pack.replicas)))
        np.savez(params, **{f"{r}.{name}": array for r, named in own.items() for name, array in named.items()})
        self.done = 0

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


def taken(params: Path, replica: int) -> dict[str, Any]:
    """A replica's parameters as a tree, from the file that ours has written."""
    tree: dict[str, Any] = {}
    with np.load(params) as arrays:
        for name in arrays:
            first, *path, last = name.split(".")
            if int(first) == replica:
                at = tree
                for part in path:
                    at = at.setdefault(part, {})
                at[last] = arrays[name]
    return tree


class Torch:
    """PyTorch, one replica after another."""

    def __init__(self, case: Case, params: Path, compiled: bool, fused: bool, threads: int) -> None:
        import torch
        from torch_model import Trainer

        self.torch, self.case, self.threads = torch, case, threads
        pack = case.pack
        self.replicas = [Trainer(pack.shape, pack.train, r.learning_rate, fused, compiled) for r in pack.replicas]
        for i, trainer in enumerate(self.replicas):
            trainer.model.take(taken(params, i))
        self.tokens = torch.from_numpy(np.array(case.store.train_tokens(), np.int64))
        self.done = 0

    def steps(self, n: int) -> np.ndarray:
        self.torch.set_num_threads(self.threads)
        indices, rates = self.case.batches(self.done, n)
        losses = [
            [trainer.step(self.tokens, self.torch.from_numpy(own[k]), rates[k]) for k in range(n)]
            for trainer, own in zip(self.replicas, indices, strict=True)
        ]
        self.done += n
        return self.torch.stack([self.torch.stack(of_one) for of_one in losses], dim=1).numpy()


class Plain:
    """Plain JAX, one replica after another."""

    def __init__(self, case: Case, params: Path, scanned: bool) -> None:
        from plain_jax import Trainer, unstacked

        pack, self.case = case.pack, case
        trees = [taken(params, i) for i in range(len(pack.replicas))]
        if not scanned:
            trees = [unstacked(tree, pack.shape.depth) for tree in trees]
        self.replicas = [
            Trainer(tree, pack.shape, pack.train, r.learning_rate) for tree, r in zip(trees, pack.replicas, strict=True)
        ]
        self.tokens = np.array(case.store.train_tokens(), np.int32)
        self.done = 0

    def steps(self, n: int) -> np.ndarray:
        indices, rates = self.case.batches(self.done, n)
        losses = [
            [trainer.step(self.tokens, own[k], rates[k]) for k in range(n)]
            for trainer, own in zip(self.replicas, indices, strict=True)
        ]
        self.done += n
        return np.array(losses, np.float32).T


def fastest(make: Callable[..., Any], options: Iterable[tuple[Any, ...]]) -> Any:
    """The fastest of a side's options for this shape, warm, at its first step again."""
    best: tuple[float, tuple[Any, ...]] | None = None
    for chosen in options:
        side = make(*chosen)
        side.steps(3)
        n = max(2, int(0.5 * ROUND_SECONDS / timed(side, 2)))
        seconds = min(timed(side, n) for _ in range(2))
        if best is None or seconds < best[0]:
            best = (seconds, chosen)
        del side
    assert best is not None
    return make(*best[1])


def timed(side: Any, n: int) -> float:
    """Seconds a step (of all replicas)."""
    began = time.perf_counter()
    side.steps(n)
    return (time.perf_counter() - began) / n


def serve(name: str, case: Case, params: Path) -> None:
    """Be one side: answer each number of steps on standard input by a line of JSON, after an empty one."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a compiler prints is no answer
    if name == "ours":
        side: Any = Ours(case, params)
    elif name == "plain":
        side = fastest(partial(Plain, case, params), [(False,), (True,)])
    else:
        import torch

        torch._dynamo.config.recompile_limit = 64
        options = product((True, False), sorted({1, len(cores())}))
        side = fastest(partial(Torch, case, params, name == "compiled"), options)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        n = int(line)
        began = time.perf_counter()
        losses = side.steps(n)
        seconds = (time.perf_counter() - began) / n
        print(json.dumps({"seconds": seconds, "losses": losses.tolist()}), file=answers, flush=True)


class Peer:
    """A side in a process of its own."""

    def __init__(self, name: str, case: Case, params: Path) -> None:
        ours = each_core_a_device(len(cores())) if name == "ours" else {}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--side", name, "--shapes", case.name, "--params", str(params)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ours},
        )
        self.name = name
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended before it answered, exit status {self.process.wait()}")
        return dict(json.loads(line))

    def steps(self, n: int) -> dict[str, Any]:
        """Seconds a step, and the losses."""
        assert self.process.stdin is not None
        print(n, file=self.process.stdin, flush=True)
        return self._answer()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def peers(names: list[str], case: Case) -> Iterator[list[Peer]]:
    """The sides of one shape, ours first, since the others take its parameters."""
    with tempfile.TemporaryDirectory() as folder:
        started: list[Peer] = []
        try:
            for name in names:
                started.append(Peer(name, case, Path(folder) / "params.npz"))
            yield started
        finally:
            for peer in started:
                peer.end()


def compare(case: Case, rounds: int, names: list[str]) -> dict[str, Any]:
    """One row of the table.

    Raises:
        AssertionError: the losses of the first three steps differ by more than ``AGREE``.
    """
    row: dict[str, Any] = {"case": case}
    with peers(names, case) as sides:
        first = [np.array(side.steps(3)["losses"]) for side in sides]
        for side, losses in zip(sides, first, strict=True):
            apart = float(np.abs(losses - first[0]).max())
            assert apart <= AGREE, f"{case.name}: {side.name} is not the same model: losses {losses} and {first[0]}"
        numbers = [max(1, int(ROUND_SECONDS / side.steps(2)["seconds"])) for side in sides]
        taken = [[side.steps(n)["seconds"] for side, n in zip(sides, numbers, strict=True)] for _ in range(rounds)]
        for k, side in enumerate(sides):
            ratios = [of_round[k] / of_round[0] for of_round in taken]
            rate = case.tokens_per_step / min(of_round[k] for of_round in taken)
            row[side.name] = rate, statistics.median(ratios), min(ratios), max(ratios)
    return row


def print_speed(rows: list[dict[str, Any]], names: list[str]) -> None:
    print("tokens per second, and how many times as fast ours is (median of the rounds, their range)")
    print(f"{'shape':<9}{'batch':>9}{'seeds':>6}{'ours':>10}" + "".join(f"{name:>28}" for name in names[1:]))
    for row in rows:
        pack = row["case"].pack
        line = f"{row['case'].name:<9}{pack.train.batch_size:>3} × {pack.train.seq_len:<3}{len(pack.replicas):>6}"
        line += f"{row['ours'][0]:>10,.0f}"
        for name in names[1:]:
            rate, ratio, low, high = row[name]
            line += f"{rate:>9,.0f}{ratio:>6.2f} {f'({low:.2f}–{high:.2f})':<12}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=[], help="smoke, larger, or names such as L6-d192")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--params", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = cases(options.shapes, progress=not options.side)
    if options.side:
        serve(options.side, chosen[0], options.params)
        return
    names = [name for name, package in SIDES.items() if importlib.util.find_spec(package)]
    versions = " ".join(f"{name} {version(name)}" for name in ("jax", "torch") if importlib.util.find_spec(name))
    print(f"{versions}, {len(cores())} cores, load average {os.getloadavg()[0]:.2f}")
    rows = [compare(case, options.rounds, names) for case in chosen]
    print_speed(rows, names)


if __name__ == "__main__":
    main()
