"""Training speed beside PyTorch: the same architecture, shapes, batch and optimizer, side by side in one process.

    make bench
    python tests/benchmarks/bench_train.py [--shapes smoke L24-d64] [--rounds 7] [--whole] [--json FILE]

Ours is ``dwsweep.train.program.Program``, the compiled function that a sweep runs; theirs is ``torch_model``, eager. At
the start both get the same parameters and batches, and the losses of three training steps must agree within 1e-4, so
that "the same" is checked and not claimed. Then they take turns, round by round, so that whatever else the machine does
meets both; a ratio is that of one round, and the table gives the median of the ratios and each side's best rate.
PyTorch runs with the faster of its two fast AdamWs (fused, foreach) and the faster of one thread and all cores, chosen
for each shape before the clock starts. Smoke shapes are trained as the sweep trains them, three seeds a pack; PyTorch
trains the three one after another. Data: ``stdlib-docs``, prepared before the clock starts.

``--whole`` adds whole runs in fresh processes, import, compilation, training and held-out loss included: ours with an
empty and with a filled compilation cache, and PyTorch's. Without PyTorch ours are measured alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep.data.batches import heldout_set, window_indices
from dwsweep.data.prepare import prepare
from dwsweep.data.token_store import Store
from dwsweep.model.parametrization import resolve
from dwsweep.plan import DataFacts, Pack, build
from dwsweep.plan.lengths import multipliers
from dwsweep.records.run import RunResult
from dwsweep.spec import load_spec, parse_spec
from dwsweep.sweep.local_executor import cores, each_core_a_device

SMOKE = Path(__file__).parents[2] / "sweeps" / "smoke.yaml"
LARGER = {24: [64], 48: [32], 6: [192]}
"""Depth: widths, at batch 16 × 128, one replica, vocabulary 1000."""
ROUND_SECONDS = 1.0  # as long as a dispatch of a sweep: what it costs to begin one is shared by its steps
AGREE = 1e-4
"""Nats by which the losses of the first three steps may differ."""


@dataclass(frozen=True)
class Case:
    name: str
    pack: Pack
    store: Store

    @property
    def tokens_per_step(self) -> int:
        return len(self.pack.replicas) * self.pack.train.batch_size * self.pack.train.seq_len


def cases(wanted: list[str], progress: bool = True) -> list[Case]:
    """The smoke sweep's packs and the larger shapes whose name (L6-d192) or group (smoke, larger) is wanted."""
    smoke = load_spec(SMOKE)
    larger = parse_spec(
        {
            "name": "larger",
            "grid": {"widths": LARGER, "seeds": 1, "heads": {"count": 2}, "learning_rates": [2e-3]},
            "model": smoke.model.model_dump(),
            "data": smoke.data.model_dump(),
            "train": {"seq_len": 128, "batch_size": 16, "steps": 200, "warmup_steps": 20},
        }
    )
    store = prepare(smoke.data, progress=progress)
    found = []
    for group, spec in (("smoke", smoke), ("larger", larger)):
        for pack in build(spec, data=DataFacts.of(store)).packs:
            name = f"L{pack.shape.depth}-d{pack.shape.width}"
            if not wanted or group in wanted or name in wanted:
                found.append(Case(f"{name}", pack, store))
    return found


class Ours:
    """The real program."""

    def __init__(self, case: Case) -> None:
        import jax

        from dwsweep.train.program import Blueprint, compile_program

        self.jax, self.case = jax, case
        self.program = compile_program(Blueprint.of(case.pack, case.store))
        self.state, init_seconds = self.program.init()
        self.compile_seconds = self.program.compile_seconds + init_seconds
        self.done = 0

    def params(self, replica: int) -> Any:
        named = self.program.blueprint.named(self.state)
        return self.jax.tree.map(lambda leaf: np.asarray(leaf[replica]), named["params"])

    def steps(self, n: int) -> np.ndarray:
        """Take ``n`` steps of all replicas and wait; the losses (n, R)."""
        losses = []
        while n:
            part = min(n, self.program.choices.capacity)
            total = max(self.case.pack.branch_steps[-1], self.done + part)
            self.state, metrics = self.program.dispatch(self.state, self.done, part, total)
            losses.append(np.asarray(metrics["loss"])[:part])
            self.done, n = self.done + part, n - part
        self.jax.block_until_ready(self.state)
        return np.concatenate(losses)


class Theirs:
    """PyTorch, one replica after another."""

    def __init__(self, case: Case, fused: bool, threads: int, params: list[Any] | None) -> None:
        import torch
        from torch_model import Trainer

        self.torch, self.case, self.threads, self.fused = torch, case, threads, fused
        pack = case.pack
        scales = resolve(pack.shape, pack.model, pack.train, 1.0)
        self.replicas = [Trainer(pack.shape, scales, pack.train, r.learning_rate, fused) for r in pack.replicas]
        for trainer, own in zip(self.replicas, params or [], strict=False):
            trainer.model.take(own)
        self.tokens = torch.from_numpy(np.array(case.store.train_tokens(), np.int64))
        self.n_windows = (case.store.n_train_tokens - 1) // pack.train.seq_len
        self.done = 0

    def batches(self, n: int) -> tuple[list[Any], list[float]]:
        train = self.case.pack.train
        indices = [
            self.torch.from_numpy(
                window_indices(r.seed, self.done, n, train.batch_size, self.n_windows).astype(np.int64)
            )
            for r in self.case.pack.replicas
        ]
        total = max(self.case.pack.branch_steps[-1], self.done + n)
        return indices, multipliers(self.done, n, total, train).tolist()

    def steps(self, n: int) -> np.ndarray:
        """Take ``n`` steps of each replica; the losses (n, R)."""
        self.torch.set_num_threads(self.threads)
        indices, rates = self.batches(n)
        losses = [
            [trainer.step(self.tokens, own[k], rates[k]) for k in range(n)]
            for trainer, own in zip(self.replicas, indices, strict=True)
        ]
        self.done += n
        return self.torch.stack([self.torch.stack(of_one) for of_one in losses], dim=1).numpy()


def timed(side: Ours | Theirs, n: int) -> float:
    """Seconds a step (of all replicas)."""
    began = time.perf_counter()
    side.steps(n)
    return (time.perf_counter() - began) / n


def faster_torch(case: Case, params: list[Any]) -> Theirs:
    """The fastest combination of AdamW and threads for this shape, warm."""
    best: tuple[float, Theirs] | None = None
    for fused in (True, False):
        for threads in sorted({1, os.cpu_count() or 1}):
            side = Theirs(case, fused, threads, params)
            seconds = timed(side, 2)
            n = max(2, int(0.5 * ROUND_SECONDS / seconds))
            seconds = min(timed(side, n) for _ in range(2))
            if best is None or seconds < best[0]:
                best = (seconds, side)
    assert best is not None
    return best[1]


def check(case: Case) -> None:
    """Three training steps of both from the same parameters must give the same losses.

    Raises:
        AssertionError: they differ by more than ``AGREE``.
    """
    ours = Ours(case)
    theirs = Theirs(case, True, os.cpu_count() or 1, [ours.params(r) for r in range(len(case.pack.replicas))])
    a, b = ours.steps(3), theirs.steps(3)
    apart = float(np.abs(a - b).max())
    assert apart <= AGREE, f"{case.name}: not the same model: losses {a.tolist()} and {b.tolist()}"


def compare(case: Case, rounds: int, with_torch: bool) -> dict[str, Any]:
    """One row of the table."""
    ours = Ours(case)
    pack = case.pack
    row: dict[str, Any] = {
        "shape": case.name,
        "replicas": len(pack.replicas),
        "batch": pack.train.batch_size,
        "seq_len": pack.train.seq_len,
        "n_params_total": pack.shape.n_params_total,
        "compile_seconds": ours.compile_seconds,
        "microbatch": ours.program.choices.microbatch,
    }
    theirs = None
    if with_torch:
        params = [ours.params(r) for r in range(len(pack.replicas))]
        check(case)
        theirs = faster_torch(case, params)
    ours.steps(2)
    n_ours = max(1, int(ROUND_SECONDS / timed(ours, 2)))
    n_theirs = max(1, int(ROUND_SECONDS / timed(theirs, 2))) if theirs else 0
    a, b = [], []
    for _ in range(rounds):
        a.append(timed(ours, n_ours))
        if theirs:
            b.append(timed(theirs, n_theirs))
    row["tokens_per_second"] = case.tokens_per_step / min(a)
    if theirs:
        ratios = [y / x for x, y in zip(a, b, strict=True)]
        row |= {
            "torch_tokens_per_second": case.tokens_per_step / min(b),
            "ratio": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
            "torch_adamw": "fused" if theirs.fused else "foreach",
            "torch_threads": theirs.threads,
        }
    return row


def whole(case: Case) -> dict[str, Any]:
    """Seconds of a whole run of one pack in a fresh process, the best of two of each kind, taken in turn."""
    row: dict[str, Any] = {"shape": case.name, "steps": case.pack.branch_steps[-1], "replicas": len(case.pack.replicas)}
    seconds: dict[str, list[float]] = {}
    for _ in range(2):
        with tempfile.TemporaryDirectory() as cache:
            for kind in ("cold", "warm", "torch"):
                if kind == "torch" and not importlib.util.find_spec("torch"):
                    continue
                began = time.perf_counter()
                subprocess.run(
                    [sys.executable, __file__, "--child", kind, "--shapes", case.name],
                    check=True,
                    env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache},
                )
                seconds.setdefault(kind, []).append(time.perf_counter() - began)
    row |= {f"{kind}_seconds": min(values) for kind, values in seconds.items()}
    return row


class Silent:
    """A recorder that keeps the losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def finished(self, run_id: str, result: RunResult, documents: np.ndarray, params: object = None) -> None:
        self.losses.append(result.loss)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def child(case: Case, kind: str) -> None:
    """Train one pack to its end in this process: its held-out losses go to standard error."""
    if kind != "torch":
        from dwsweep.train.pack_trainer import train_pack

        recorder = Silent()
        with tempfile.TemporaryDirectory() as folder:
            train_pack(case.pack, case.store, folder, recorder)
        losses = recorder.losses
    else:
        import torch

        side = Theirs(case, True, os.cpu_count() or 1, None)
        for trainer in side.replicas:
            initialise(trainer, case)
        side.steps(case.pack.branch_steps[-1])
        heldout = heldout_set(case.store, case.pack.shape.seq_len, case.pack.train.eval_tokens)
        windows, counted = torch.from_numpy(heldout.windows.astype(np.int64)), torch.from_numpy(heldout.document >= 0)
        losses = []
        with torch.inference_mode():
            for trainer in side.replicas:
                nats = 0.0
                for start in range(0, len(windows), 64):
                    part = windows[start : start + 64]
                    logits = trainer.model.logits(part[:, :-1])
                    nll = torch.nn.functional.cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none")
                    nats += float(nll[counted[start : start + 64]].double().sum())
                losses.append(nats / heldout.n_tokens)
    print(f"  {case.name} {kind}: held-out loss " + " ".join(f"{loss:.3f}" for loss in losses), file=sys.stderr)


def initialise(trainer: Any, case: Case) -> None:
    """Initial scales of the parametrization, PyTorch's random numbers."""
    import torch
    from torch_model import group_of

    scales = resolve(case.pack.shape, case.pack.model, case.pack.train, 1.0)
    with torch.no_grad():
        for name, parameter in trainer.model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, group_of(name, scales).init_std)


def header(with_torch: bool) -> dict[str, Any]:
    names = ["jax", "flax", "optax", "numpy", *(["torch"] if with_torch else [])]
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "cores": os.cpu_count(),
        "load_average": list(os.getloadavg()),
    }


def print_speed(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'shape':<9}{'batch':>9}{'seeds':>6}{'ours tok/s':>12}{'torch tok/s':>13}{'ratio':>7}{'(range)':>14}  torch"
    )
    for row in rows:
        line = f"{row['shape']:<9}{row['batch']:>3} × {row['seq_len']:<3}{row['replicas']:>6}"
        line += f"{row['tokens_per_second']:>12,.0f}"
        if "ratio" in row:
            span = f"({row['ratio_low']:.2f}–{row['ratio_high']:.2f})"
            line += f"{row['torch_tokens_per_second']:>13,.0f}{row['ratio']:>7.2f}{span:>14}"
            line += f"  {row['torch_adamw']}, {row['torch_threads']} thr"
        print(line)


def print_whole(rows: list[dict[str, Any]]) -> None:
    print(f"{'whole run':<9}{'steps':>9}{'seeds':>6}{'ours, cold s':>14}{'ours, warm s':>14}{'torch s':>9}")
    for row in rows:
        theirs = f"{row['torch_seconds']:>9.1f}" if "torch_seconds" in row else f"{'–':>9}"
        print(
            f"{row['shape']:<9}{row['steps']:>9}{row['replicas']:>6}"
            f"{row['cold_seconds']:>14.1f}{row['warm_seconds']:>14.1f}{theirs}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=[], help="smoke, larger, or names such as L6-d192")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--whole", action="store_true", help="whole runs too, in fresh processes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=("cold", "warm", "torch"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update(each_core_a_device(len(cores())))
    chosen = cases(options.shapes, progress=not options.child)
    if options.child:
        child(chosen[0], options.child)
        return
    with_torch = importlib.util.find_spec("torch") is not None
    facts = header(with_torch)
    load = " ".join(f"{x:.2f}" for x in facts["load_average"])
    print(" ".join(f"{k} {v}" for k, v in facts.items() if k != "load_average") + f", load average {load}")
    if not with_torch:
        print("PyTorch is not installed (pip install torch): ours alone")
    rows = []
    for case in chosen:
        rows.append(compare(case, options.rounds, with_torch))
        print(f"  {rows[-1]['shape']}: {rows[-1].get('ratio', float('nan')):.2f}", file=sys.stderr)
    print_speed(rows)
    whole_rows = []
    if options.whole:
        whole_rows = [whole(case) for case in (chosen[0], chosen[-1])]
        print_whole(whole_rows)
    if options.json:
        options.json.write_text(json.dumps({"host": facts, "rows": rows, "whole": whole_rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
