"""Verification of the training program on the devices at hand: the checks of ``dwsweep bench --verify``.

The reference is a plain program on one core of this host's CPU: float32, the whole batch at once, parameters as a tree,
layers in a loop. Each check compares another program with it, or with one that is closer: the program that a sweep
would run here, the same in bfloat16, seeds packed and alone, a state divided among devices, training interrupted and
resumed, cuDNN's attention. On a machine without an accelerator the devices are its cores, so that every check runs.

The text is made here, from integers alone, so the reference losses are the same on every machine to rounding.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dwsweep.cost.devices import find
from dwsweep.data.batches import mix64
from dwsweep.data.prepare import prepare
from dwsweep.data.token_store import Store
from dwsweep.errors import InputError
from dwsweep.model.attention import causal_attention
from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import Compute, build
from dwsweep.plan import Pack, Replica
from dwsweep.records.footing import here, versions
from dwsweep.records.metrics import MetricsRow
from dwsweep.records.run import RunResult
from dwsweep.records.verification import Check, Curve, ShapeRate, Verification
from dwsweep.spec import DataSpec, Spec, parse_spec
from dwsweep.text import one_line
from dwsweep.train import Recorder
from dwsweep.train.bench import measure, measured_peak
from dwsweep.train.choices import CUDNN, XLA, at_hand, choose_kernel, configure, platform_of
from dwsweep.train.pack_trainer import train_pack
from dwsweep.train.program import Blueprint, compile_program

DEPTH, WIDTH, HEADS, SEEDS, STEPS = 4, 64, 4, 2, 30

REORDERED = 2e-4
"""Nats by which two float32 programs may differ in any of STEPS steps: they add the same numbers in another order.
Measured between programs of a CPU: 1e-6. Training carries roundings on, and an accelerator has other exponentials."""
ROUNDED = 1e-2
"""Nats by which products of rounded operands may move a loss: bfloat16 keeps 8 bits, TF32 11, and each sum averages the
roundings of 64 and more terms. Measured with a CPU's bfloat16: 7e-4."""
STREAM, STREAM_DEPTH, STREAM_WIDTH = 5e-3, 48, 32
"""Relative error of the residual stream in bfloat16 against float32, before the first step, and the shape at which it
is measured: 1.7e-3 on a CPU, and 1.6e-2 where the stream is rounded after each block (tests/train/test_precision)."""
GRADIENT = 1e-3
"""Relative difference of the first step's gradient norm between two float32 programs."""
LEARNED = 0.5
"""Least fall of the loss in STEPS steps, nats: programs that agree on doing nothing would pass the other checks."""
ATTENTION = 2e-2
"""Relative error of attention's output and gradients by cuDNN against XLA's, both in bfloat16 (8 bits: 4e-3 each)."""

SNIMU = "A100, snimu, 10,000 steps; its batch is not published"
PUBLISHED = {(6, 192): 0.18, (3, 384): 0.35, (6, 384): 0.30, (12, 384): 0.27, (12, 576): 0.35, (6, 768): 0.49}
"""Published MFU by (depth, width): see ``SNIMU``."""
VOCABULARY = 50_304
"""Vocabulary of the shapes whose rate is measured: GPT-2's, in whole tiles."""
LEAST_OF_PUBLISHED = 0.5
"""Share of a published MFU below which the same kind of device is surely used badly."""

SETTINGS = ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_ENABLE_X64", "NPROC")


def verify(release: str, tell: Callable[[str], None] = lambda name: None) -> Verification:
    """Run all checks on the devices at hand. ``release``: of dwsweep, for the report; ``tell``: called with the name of
    each check before it begins.

    Raises:
        InputError: JAX may not use the CPU, which the reference needs.
    """
    began = time.monotonic()
    configure()
    with tempfile.TemporaryDirectory(prefix="dwsweep-verify-") as folder:
        found = _Checks(make_text(Path(folder)), Path(folder), tell)
        found.run()
    device, ground = jax.local_devices()[0], here(None, None)
    return Verification(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        dwsweep=release,
        versions={**versions(), **{name: version(name) for name in ("jaxlib", "numpy")}},
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=ground.processor,
        cores=ground.cores or 1,
        device_kind=device.device_kind,
        devices=len(jax.local_devices()),
        backend=" ".join(f"{device.platform}: {device.client.platform_version}".split())[:300],
        driver=driver(),
        settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
        seconds=time.monotonic() - began,
        checks=tuple(found.checks),
        rates=tuple(found.rates),
        curves=tuple(Curve(program=name, losses=_rows(losses)) for name, losses in found.curves.items()),
    )


def driver(information: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Line of NVIDIA's kernel module about itself; None if there is none."""
    try:
        return " ".join(information.read_text("utf-8", "replace").splitlines()[0].split())[:200]
    except (OSError, IndexError):
        return None


def make_text(folder: Path) -> Store:
    """A store of 200 documents of made-up words, as bytes, the same on every machine."""
    syllables = ("ka", "lo", "mi", "ru", "sen", "ta", "vo", "the", "ing", "dor", "el", "qua", "bi", "ston", "er", "ly")
    draws = mix64(np.arange(1, 200 * 160 + 3000, dtype=np.uint64)).tolist()
    words = ["".join(syllables[draws[4 * i + j] % 16] for j in range(1 + draws[4 * i] % 4)) for i in range(500)]
    # ranks with density 1/rank, so that there is much to learn in few steps
    ranks = [min(499, int(500 ** ((draws[3000 + i] >> 11) / 2.0**53)) - 1) for i in range(200 * 160 - 3000)]
    each = len(ranks) // 200
    place = folder / "text"
    place.mkdir(parents=True)
    for i in range(200):
        text = " ".join(words[rank] for rank in ranks[i * each : (i + 1) * each])
        (place / f"{i:03d}.txt").write_text(text, "utf-8")
    source = f"text:{place}/*.txt"
    data = DataSpec(source=source, tokenizer="bytes", validation_fraction=0.1, cache_dir=str(folder), workers=1)
    return prepare(data, progress=False)


class _Checks:
    """Checks in their order, with their results."""

    def __init__(self, store: Store, folder: Path, tell: Callable[[str], None]) -> None:
        self.store, self.folder, self.tell = store, folder, tell
        self.hardware = at_hand()
        self.checks: list[Check] = []
        self.rates: list[ShapeRate] = []
        self.curves: dict[str, NDArray[np.float32]] = {}

    def run(self) -> None:
        for name, check in (
            ("float32 against one CPU core", self.against_a_core),
            ("float32 as sweeps train", self.as_sweeps_train),
            ("bfloat16 against float32", self.bfloat16),
            ("packed seeds against single ones", self.packed),
            ("state divided among devices", self.divided),
            ("interrupted and resumed", self.resumed),
            ("attention by cuDNN against XLA's", self.attention),
            ("MFU", self.utilisation),
        ):
            self.tell(name)
            try:
                check(name)
            except InputError:
                raise
            except Exception as error:  # a check that breaks has failed; the others still count
                self.checks.append(
                    Check(name=name, passed=False, said=f"{type(error).__name__}: {one_line(error, 300)}")
                )

    def judge(self, name: str, value: float, tolerance: float, unit: str, said: str) -> None:
        # a value that is no number passes no limit
        passed = bool(value <= tolerance)
        self.checks.append(Check(name=name, passed=passed, value=value, tolerance=tolerance, unit=unit, said=said))

    # losses

    def against_a_core(self, name: str) -> None:
        try:
            core = jax.devices("cpu")[:1]
        except RuntimeError as error:
            raise InputError(
                f"--verify: the reference trains on a CPU, and JAX may not use it here ({one_line(error, 120)}); "
                "allowed: JAX_PLATFORMS unset, or with cpu in it"
            ) from None
        plain = {"microbatch": BATCH, "unroll": 1, "attention": XLA}
        blueprint = Blueprint.of(pack(self.store, execution=plain), self.store, at_hand(core))
        blueprint = blueprint.under(replace(blueprint.choices, as_vector=False))
        self.curves["reference"], norms = trained(blueprint)
        exact = self._curve("float32, highest", exact=True)
        said = f"L{DEPTH} d{WIDTH}, {SEEDS} seeds, {STEPS} steps, products of float32 at the highest precision"
        self.judge(name, _apart(exact[0], self.curves["reference"]), REORDERED, "nats", said)
        off = float(np.max(np.abs(exact[1] / norms - 1)))
        self.judge("gradient norm of the first step", off, GRADIENT, "relative", "the same two programs")
        fall = float(np.min(exact[0][0] - exact[0][-1]))
        self.checks.append(
            Check(
                name="the loss falls",
                passed=fall >= LEARNED,
                value=fall,
                tolerance=LEARNED,
                unit="nats, at least",
                said="of the seed that falls least",
            )
        )

    def as_sweeps_train(self, name: str) -> None:
        losses, _ = self._curve("float32, default")
        said = "the device's own products of float32, which are TF32 on NVIDIA GPUs and bfloat16 on TPUs"
        self.judge(name, _apart(losses, self.curves["float32, highest"]), ROUNDED, "nats", said)

    def bfloat16(self, name: str) -> None:
        losses, _ = self._curve("bfloat16", train={"precision": "bfloat16"}, execution={"attention": XLA})
        said = "operands of products rounded, residual stream float32"
        self.judge(name, _apart(losses, self.curves["float32, highest"]), ROUNDED, "nats", said)
        said = f"L{STREAM_DEPTH} d{STREAM_WIDTH}, before the first step; a stream that is rounded too is 0.016 off"
        self.judge("residual stream in bfloat16", stream_error(self.store), STREAM, "relative", said)

    def packed(self, name: str) -> None:
        alone = [self._curve("", exact=True, seeds=(seed,))[0] for seed in range(SEEDS)]
        on_cpu = self.hardware.on_cpu
        said = "one after another on a CPU: to the bit" if on_cpu else "side by side by vmap: sums in another order"
        difference = _apart(np.concatenate(alone, axis=1), self.curves["float32, highest"])
        self.judge(name, difference, 0.0 if on_cpu else REORDERED, "nats", said)

    def divided(self, name: str) -> None:
        devices = len(jax.local_devices())
        among = max(n for n in range(1, devices + 1) if BATCH % n == 0)
        if among < 2:
            self.checks.append(Check(name=name, passed=None, said="there is one device"))
            return
        # a CPU's cores share the batch in every other check
        for axis in ("fsdp",) if self.hardware.on_cpu else ("data", "fsdp"):
            losses, _ = self._curve(f"{axis} {among}", exact=True, execution={"mesh": {axis: among}})
            said = f"execution.mesh.{axis}: {among}"
            self.judge(f"{name}: {axis}", _apart(losses, self.curves["float32, highest"]), REORDERED, "nats", said)

    def _curve(self, name: str, *, exact: bool = False, **sections: Any) -> tuple[NDArray[np.float32], Any]:
        """Losses and first gradient norms of a program on this host's devices, stored under a ``name`` if given."""
        with jax.default_matmul_precision("highest" if exact else None):
            found = trained(Blueprint.of(pack(self.store, **sections), self.store, self.hardware))
        if name:
            self.curves[name] = found[0]
        return found

    # states

    def resumed(self, name: str) -> None:
        whole, parts = _Kept(), _Kept()
        one = pack(self.store)
        train_pack(one, self.store, self.folder / "whole", whole, dispatch_steps=STEPS // 3)
        asked = iter([False])
        train_pack(
            one,
            self.store,
            self.folder / "parts",
            parts,
            should_stop=lambda: next(asked, True),
            dispatch_steps=STEPS // 3,
        )
        interrupted = not parts.heldout
        jax.clear_caches()
        train_pack(one, self.store, self.folder / "parts", parts, dispatch_steps=STEPS // 3)
        if not interrupted or not parts.resumed_from:
            self.checks.append(Check(name=name, passed=False, said="the pack was not interrupted"))
            return
        if whole.values.keys() != parts.values.keys():
            missing = len(whole.values.keys() ^ parts.values.keys())
            self.checks.append(Check(name=name, passed=False, said=f"{missing} losses are of one of the two alone"))
            return
        differing = sum(whole.values[key] != parts.values[key] for key in whole.values)
        said = f"stopped after step {parts.resumed_from}; {differing} of {len(whole.values)} values differ"
        if self.hardware.on_cpu:
            self.judge(name, differing, 0, "values differ", said)
            return
        apart = _apart(*(np.array([kept.values[key][0] for key in whole.values]) for kept in (whole, parts)))
        self.judge(name, apart, REORDERED, "nats", f"{said}: an accelerator may add in no fixed order")

    # kernels

    def attention(self, name: str) -> None:
        device = self.hardware.device
        shape = pack(self.store).shape
        choice = choose_kernel(CUDNN, shape, "bfloat16", BATCH, device)
        if choice.kernel != CUDNN:
            is_nvidia = platform_of(device) == "cuda"
            # cuDNN should run on an NVIDIA GPU with this shape: its refusal is a finding
            passed = False if is_nvidia and find(device.device_kind) is not None else None
            self.checks.append(Check(name=name, passed=passed, said=choice.why))
            return
        worst = attention_error(shape.seq_len, shape.heads, shape.head_size)
        timed = choose_kernel("auto", shape, "bfloat16", BATCH, device)
        self.judge(name, worst, ATTENTION, "relative", f"{timed.why}; a sweep of this shape takes {timed.kernel}")

    # rates

    def utilisation(self, name: str) -> None:
        on_cpu = self.hardware.on_cpu
        device = find(self.hardware.device.device_kind)
        precision = "float32" if on_cpu else "bfloat16"
        shapes = [(6, 192)] if on_cpu else list(PUBLISHED)
        batch, length = (4, 64) if on_cpu else (32, 1024)
        if device is not None and not on_cpu:
            peak, basis = device.peak_flops, f"data sheet of {device.name}"
        else:
            peak, basis = measured_peak(precision), f"measured here, {precision} matrix product"
        for depth, width in shapes:
            train = {"seq_len": length, "batch_size": batch, "precision": precision}
            one = pack(self.store, depth, width, vocabulary=VOCABULARY, seeds=(0,), train=train, head_size=64)
            # text of bytes: a rate depends on the vocabulary's size, not on the tokens
            row = measure(one, self.store)
            mfu = row.tokens_per_second * row.flops_per_token / (peak * row.devices)
            published = PUBLISHED[depth, width]
            self.rates.append(
                ShapeRate(
                    depth=depth,
                    width=width,
                    batch_size=batch,
                    seq_len=length,
                    precision=precision,
                    step_seconds=row.step_seconds or 0.0,
                    tokens_per_second=row.tokens_per_second,
                    mfu=mfu,
                    peak_flops=peak,
                    peak_basis=basis,
                    attention_kernel=row.attention_kernel,
                    published_mfu=published,
                    published=SNIMU,
                )
            )
            self.checks.append(
                judged_rate(f"{name} of {depth} × {width}", mfu, published, device.name if device else None, on_cpu)
            )


def judged_rate(name: str, mfu: float, published: float, device: str | None, on_cpu: bool) -> Check:
    """Judge an MFU: above 1 a clock or a count is wrong; on an A100 it is compared with the published figure."""
    beside = f"{published:.0%} on an A100 (snimu)"
    if on_cpu or device is None:
        why = "a CPU's peak is itself measured" if on_cpu else "the device's peak is itself measured"
        return Check(name=name, passed=None, value=mfu, unit="of the peak", said=f"{why}; {beside}")
    is_a100 = device.startswith("A100")
    least = LEAST_OF_PUBLISHED * published if is_a100 else 0.0
    said = f"{beside}; at least half of it here" if is_a100 else f"{beside}; another device, so only above 100 % fails"
    passed = bool(least < mfu <= 1.0)
    return Check(name=name, passed=passed, value=mfu, tolerance=1.0, unit="of the peak", said=said)


BATCH, LENGTH = 8, 64


def pack(
    store: Store,
    depth: int | None = None,
    width: int | None = None,
    *,
    seeds: tuple[int, ...] | None = None,
    vocabulary: int | None = None,
    head_size: int | None = None,
    train: dict[str, Any] | None = None,
    execution: dict[str, Any] | None = None,
) -> Pack:
    """Pack of seeds of one shape, with the given settings in place of the usual ones."""
    depth, width = depth or DEPTH, width or WIDTH
    spec = _spec(depth, width, vocabulary or store.manifest.vocab_size, head_size, train or {}, execution or {})
    return Pack(
        pack_id="verification",
        shape=spec.block().shape(depth, width),
        replicas=tuple(Replica(seed, 4e-3, (f"seed-{seed}",)) for seed in (range(SEEDS) if seeds is None else seeds)),
        branch_steps=(STEPS,),
        model=spec.model,
        train=spec.train,
        execution=spec.execution,
        data_hash=store.data_hash,
    )


def _spec(
    depth: int, width: int, vocabulary: int, head_size: int | None, train: dict[str, Any], execution: dict[str, Any]
) -> Spec:
    heads = {"size": head_size} if head_size else {"count": HEADS}
    return parse_spec(
        {
            "name": "verification",
            "grid": {"widths": {depth: [width]}, "heads": heads, "seeds": SEEDS, "learning_rates": [4e-3]},
            "model": {"base_width": WIDTH, "base_depth": DEPTH},
            "data": {"vocab_size": vocabulary},
            "train": {"seq_len": LENGTH, "batch_size": BATCH, "steps": STEPS, "warmup_steps": 3, **train},
            "execution": {"log_steps": 1, **execution},
        }
    )


def trained(blueprint: Blueprint) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(training losses (STEPS, R), gradient norms (R,) of the first step) of a pack's program."""
    program = compile_program(blueprint)
    state, _ = program.init()
    _, metrics = program.dispatch(state, 0, STEPS, STEPS)
    read = jax.device_get({name: metrics[name] for name in ("loss", "grad_norm")})
    return read["loss"][:STEPS], read["grad_norm"][0]


def stream_error(store: Store) -> float:
    """Relative error (in norm) of the residual stream before the first step, bfloat16 against float32."""
    one = pack(store, STREAM_DEPTH, STREAM_WIDTH)
    scales = resolve(one.shape, one.model, one.train, 1.0)
    windows = (mix64(np.arange(4 * LENGTH, dtype=np.uint64)) % np.uint64(256)).astype(np.int32).reshape(4, LENGTH)
    exact = build(one.shape, scales, Compute("float32"))
    rounded = build(one.shape, scales, Compute("bfloat16", keep_weights=True))
    with jax.default_matmul_precision("highest"):
        params = jax.jit(exact.init)(jax.random.key(0))
        expected = np.asarray(jax.jit(exact.residual)(params, windows))
    found = np.asarray(jax.jit(rounded.residual)(params, windows))
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def attention_error(T: int, H: int, P: int) -> float:
    """Largest relative error (in norm) of output and gradients of cuDNN's attention against XLA's, in bfloat16."""
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v, g = (jax.random.normal(key, (BATCH, T, H, P)).astype(jnp.bfloat16) for key in keys)

    def both(kernel: str) -> list[np.ndarray]:
        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            return causal_attention(q, k, v, P**-0.5, kernel)

        out, pull = jax.vjp(attend, q, k, v)
        return [np.asarray(x, np.float32) for x in (out, *pull(g))]

    pairs = zip(both(CUDNN), both(XLA), strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def _apart(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Largest difference of two sets of losses; NaN if any of them is."""
    return float(np.max(np.abs(one.astype(np.float64) - other)))


def _rows(losses: NDArray[np.float32]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(x) for x in row) for row in losses.T)


class _Kept(Recorder):
    """(loss, another number) of each step, with its gradient norm, and of each held-out document, with its tokens."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.heldout = 0
        self.resumed_from = 0

    def resumed(self, step: int) -> None:
        self.resumed_from = step

    def metrics(self, run_id: str, rows: list[MetricsRow]) -> None:
        self.values |= {(run_id, row["step"]): (row["loss"], row["grad_norm"]) for row in rows}

    def finished(self, run_id: str, result: RunResult, documents: np.ndarray, params: Any = None) -> None:
        self.heldout += 1
        rows = enumerate(documents.tolist())
        self.values |= {(run_id, "held-out", i): (nats / tokens, tokens) for i, (nats, tokens) in rows}
