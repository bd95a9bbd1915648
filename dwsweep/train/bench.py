"""Cost of a sweep on this host, measured: compile seconds, step time, rate, MFU and memory of each pack, gain from
packing. And its programs compiled and costed, with nothing trained or allocated (``--compile-only``).

A rate is that of the program a sweep runs: the same compiled function, the same batches. The clock is read with the
device synchronised on both sides, after one dispatch that is not counted, and the best of three counts, since other
work on a machine can only slow a step down.

Programs are compiled for the devices at hand as an accelerator's, or for devices that are not here: descriptions of a
TPU slice or of GPUs that the vendor's compiler takes for the real ones. Such a target is a device of the table of
devices, with a topology where there are several: ``H200``, ``H200:4`` (four of one host), ``TPU-v5e:2x4``. ``_tpu`` and
``_gpu`` are the recipes. Nothing can run on what they return; only ``lower`` and ``compile`` work.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.cost.arithmetic import PROGRAM_SHARE, training_flops_per_token
from dwsweep.cost.compiled import Collective, StepCost, axes_of, roofline, step_cost
from dwsweep.cost.devices import Device, find
from dwsweep.cost.duration import recipe_of
from dwsweep.data.token_store import Store, token_dtype
from dwsweep.errors import InputError, install
from dwsweep.plan import Pack, Plan
from dwsweep.plan.lengths import pack_steps
from dwsweep.records.run import BenchRow, CollectiveRow, CompiledRow, PackingPoint
from dwsweep.text import format_bytes, one_line
from dwsweep.train.choices import CAPACITY, Hardware, at_hand, concessions
from dwsweep.train.program import Blueprint, Program, compile_program, fits, fitting_dispatch, memory_of

REPEATS = 3
MEASURE_SECONDS = 0.5  # of one timed dispatch, at least one step
PEAK_SIZE = {"cpu": 1024}  # side of the square matrices of the peak; elsewhere 8192


def bench(plan: Plan, store: Store) -> Iterator[BenchRow]:
    """Measure each shape of ``plan`` once, yielding a row as soon as it is known."""
    peak = measured_peak(plan.spec.train.precision)
    seen: set[Any] = set()
    for pack in plan.packs:
        if (pack.shape, pack.train.optimizer) in seen:
            continue
        seen.add((pack.shape, pack.train.optimizer))
        packing: list[PackingPoint] = []
        full: BenchRow | None = None
        spread = pack.execution.mesh.replica if pack.execution.mesh else 1
        for size in (n for n in sizes(len(pack.replicas)) if n % spread == 0):
            full = measure(replace(pack, replicas=pack.replicas[:size]), store)
            packing.append(PackingPoint(size, full.tokens_per_second))
        assert full is not None
        achieved = full.tokens_per_second * full.flops_per_token
        device = find(full.device_kind)
        yield replace(
            full,
            achieved_flops=achieved,
            peak_flops=peak,
            peak_basis=f"measured, {plan.spec.train.precision} matrix product",
            mfu=achieved / (peak * full.devices),
            datasheet=device.name if device else None,
            packing=tuple(packing),
        )


def sizes(replicas: int) -> list[int]:
    """Pack sizes to measure: 1, 2, 4 … and the pack's own size last."""
    powers = [1 << k for k in range(replicas.bit_length()) if 1 << k < replicas]
    return [*powers, replicas]


def measure(pack: Pack, store: Store) -> BenchRow:
    """Compile one pack and time its training step; MFU and packing are left out."""
    # a replica of a shortened pack still trains its own seed, so only the number of them differs
    program = compile_program(Blueprint.of(pack, store))
    state, init_seconds = program.init()
    total = pack.branch_steps[-1]
    state, seconds = _timed(program, state, 0, 1, total)
    state, seconds = _timed(program, state, 1, 1, total)
    steps = max(1, min(CAPACITY, program.choices.capacity, int(MEASURE_SECONDS / max(seconds, 1e-6))))
    best = float("inf")
    for k in range(REPEATS):
        state, seconds = _timed(program, state, 2 + k * steps, steps, total)
        best = min(best, seconds / steps)
    shape, train, R = pack.shape, pack.train, len(pack.replicas)
    return BenchRow(
        device_kind=program.choices.hardware.device.device_kind,
        devices=program.choices.layout.size,
        depth=shape.depth,
        width=shape.width,
        heads=shape.heads,
        replicas=R,
        microbatch=program.choices.microbatch,
        attention_kernel=program.choices.compute.kernel,
        compile_seconds=program.compile_seconds + init_seconds,
        step_seconds=best,
        tokens_per_second=R * train.batch_size * train.seq_len / best,
        flops_per_token=training_flops_per_token(shape),
        memory_bytes=program.memory_bytes,
        recipe=recipe_of(shape, train.optimizer),
    )


def _timed(program: Program, state: Any, step: int, n: int, total: int) -> tuple[Any, float]:
    began = time.perf_counter()
    state, metrics = program.dispatch(state, step, n, max(total, step + n))
    jax.block_until_ready((state, metrics))
    return state, time.perf_counter() - began


def measured_peak(precision: str) -> float:
    """FLOP/s of a large square matrix product in the sweep's precision on one device: the roof that MFU refers to.

    On a CPU the product takes all cores, however many of them are devices.
    """
    device = jax.local_devices()[0]
    side = PEAK_SIZE.get(device.platform, 8192)
    x = jax.device_put(jnp.ones((side, side), precision), device)
    product = jax.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32)).lower(x, x).compile()
    product(x, x).block_until_ready()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        product(x, x).block_until_ready()
        best = min(best, time.perf_counter() - began)
    shared_by = len(jax.local_devices()) if device.platform == "cpu" else 1
    return 2.0 * side**3 / best / shared_by


@dataclass(frozen=True)
class _LeastText:
    """Stand-in for a token store that is not prepared: as many tokens as one batch needs."""

    n_train_tokens: int
    dtype: np.dtype


@dataclass(frozen=True)
class Place:
    """Devices to compile for."""

    hardware: Hardware
    target: str | None = None  # its name as asked for; None: at hand
    device: Device | None = None  # of the table of devices, for the roofline


def here(plan: Plan, counts: Sequence[int]) -> list[Place]:
    """Take so many of the devices at hand. A CPU's program is divided as an accelerator's would be, and a device's
    memory is what JAX may use of that of ``execution.device``, where the spec names one.

    Raises:
        InputError: there are fewer devices.
    """
    devices = jax.local_devices()
    if max(counts) > len(devices):
        raise InputError(f"--devices: {max(counts)}; allowed: at most {len(devices)}, which JAX found here")
    named = find(plan.spec.execution.device) if plan.spec.execution.device else None
    memory = int(named.usable_bytes) if named else None
    found = find(devices[0].device_kind)
    return [Place(at_hand(devices[:n], memory_bytes=memory, as_accelerator=True), device=found) for n in counts]


def compile_only(
    plan: Plan, store: Store | None, places: Sequence[Place], *, nominal_length: bool = False
) -> Iterator[CompiledRow]:
    """Compile each shape of ``plan`` for each of ``places``, without allocating a model; yields a row at once.

    No text is needed: without a ``store`` the memory is that of a program whose token store takes next to none.
    ``nominal_length``: the sweep's own length follows from rates, and the rows do not name the plan's.
    """
    train = plan.spec.train
    least = _LeastText(train.batch_size * train.seq_len + 1, token_dtype(plan.spec.data.vocab_size))
    text = store or cast(Store, least)
    shapes: dict[Any, list[Pack]] = {}
    for pack in plan.packs:
        shapes.setdefault((pack.shape, pack.train.optimizer), []).append(pack)
    for pack, *others in shapes.values():
        steps = None if nominal_length else sum(map(pack_steps, (pack, *others)))
        for place in places:
            row = _row(pack, text, place, store.n_train_tokens if store else None)
            yield replace(row, training_steps=steps)


def _row(pack: Pack, text: Store, place: Place, n_train_tokens: int | None) -> CompiledRow:
    began, cpu_began = time.monotonic(), sum(os.times()[:4])
    first, blueprint, compiled, refusal = fitting_dispatch(Blueprint.of(pack, text, place.hardware))
    seconds, cpu_seconds = time.monotonic() - began, sum(os.times()[:4]) - cpu_began
    shape, train, choices = pack.shape, pack.train, blueprint.choices
    needed = None if compiled is None else memory_of(compiled)
    row = CompiledRow(
        device_kind=choices.hardware.device.device_kind,
        depth=shape.depth,
        width=shape.width,
        n_params_total=shape.n_params_total,
        replicas=len(pack.replicas),
        devices=choices.layout.size,
        mesh=choices.layout.sizes,
        microbatch=choices.microbatch,
        remat=choices.compute.remat,
        unroll=choices.compute.unroll,
        batch_size=train.batch_size,
        compile_seconds=seconds,
        compile_cpu_seconds=cpu_seconds,
        memory_bytes=needed,
        state_bytes=blueprint.state_bytes,
        n_train_tokens=n_train_tokens,
        target=place.target,
        heads=shape.heads,
        head_size=shape.head_size,
        seq_len=train.seq_len,
        vocab_size=shape.vocab_size,
        precision=train.precision,
        concessions=tuple(concessions(first, choices, pack)),
        refused=_refused(refusal, compiled, place.hardware.memory_bytes),
        flops_per_token=training_flops_per_token(shape),
        recipe=recipe_of(shape, train.optimizer),
    )
    return row if compiled is None else _costed(row, step_cost(compiled.as_text()), place.device)


def _refused(refusal: Exception | None, compiled: Any, limit: int | None) -> str | None:
    """Reason why a program does not fit, from the compiler's error or its analysis; None where it fits."""
    if refusal is not None:
        return str(refusal).partition(": ")[2].partition("\n")[0]
    needed = memory_of(compiled)
    if limit is None or needed is None or fits(compiled, limit):
        return None
    return f"it takes {format_bytes(needed)}, and a program may take {format_bytes(PROGRAM_SHARE * limit)}"


def _costed(row: CompiledRow, cost: StepCost, device: Device | None) -> CompiledRow:
    """Add the cost of one step to a row, and the roofline of ``device`` where it fits there."""
    row = replace(
        row,
        kernels=cost.launches,
        traffic_bytes=cost.traffic.bytes,
        padded_traffic_bytes=cost.traffic.padded,
        product_flops=cost.products.flops,
        padded_product_flops=cost.products.padded,
        collectives=_collectives(cost.collectives, row.mesh),
    )
    if device is None or row.refused:
        return row
    assert row.seq_len is not None and row.flops_per_token is not None
    found = roofline(cost, device)
    rate = row.replicas * row.batch_size * row.seq_len / found.roofline_seconds
    mfu = rate * row.flops_per_token / (row.devices * device.peak_flops)
    return replace(row, **vars(found), tokens_per_second=rate, mfu=mfu)


def _collectives(found: Sequence[Collective], mesh: dict[str, int]) -> tuple[CollectiveRow, ...]:
    """Group collectives by kind and axes, the heaviest first."""
    groups: dict[tuple[str, tuple[str, ...]], list[Collective]] = defaultdict(list)
    for one in found:
        groups[one.kind, axes_of(one.groups, mesh)].append(one)
    rows = [
        CollectiveRow(
            kind,
            axes,
            sum(one.times for one in ones),
            sum(one.times * one.bytes for one in ones),
            max(one.bytes for one in ones),
        )
        for (kind, axes), ones in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


TPUS = {"TPU-v6e": ("v6e", "2x2"), "TPU-v5p": ("v5p", "2x2x1"), "TPU-v5e": ("v5e", "2x2"), "TPU-v4": ("v4", "2x2x1")}
"""TPUs by name: the compiler's name, and the smallest topology, from which a single chip is taken."""


@dataclass(frozen=True)
class Chip:
    """Facts of a GPU that the compiler needs beyond the table of devices, from the maker's tuning guide."""

    capability: tuple[int, int]
    multiprocessors: int
    fpus: int  # float32 units of a multiprocessor
    clock_ghz: float  # boost
    l2_bytes: int
    shared_bytes: int  # of a multiprocessor, for all its blocks; one block may take 1 KiB less
    memory_bytes: int


GPUS = {
    "H200": Chip((9, 0), 132, 128, 1.98, 50 << 20, 228 << 10, 150_000_000_000),
    "H100": Chip((9, 0), 132, 128, 1.98, 50 << 20, 228 << 10, 85_000_000_000),
    "A100-80GB": Chip((8, 0), 108, 64, 1.41, 40 << 20, 164 << 10, 85_000_000_000),
    "A100-40GB": Chip((8, 0), 108, 64, 1.41, 40 << 20, 164 << 10, 42_000_000_000),
}


def elsewhere(name: str) -> Place:
    """Devices that are not here, by a name such as ``H200``, ``H200:4`` or ``TPU-v5e:2x4``; without a topology one.

    Raises:
        InputError: no such target, or its compiler is not installed.
    """
    wanted, _, topology = name.partition(":")
    device = find(wanted)
    if device is None or device.name not in {*TPUS, *GPUS}:
        raise InputError(f"--target: {name!r}; allowed: {', '.join([*GPUS, *TPUS])}, each with a topology such as :2x2")
    if topology and not re.fullmatch(r"\d+(x\d+)*", topology):
        raise InputError(f"--target: {name!r}; a topology is sizes such as 2x4, or the number of GPUs of one host")
    describe = _tpu if device.name in TPUS else _gpu
    found = _described(describe, device, topology or None, name)
    devices = found if topology else found[:1]
    hardware = at_hand(devices, memory_bytes=int(device.usable_bytes), as_accelerator=True)
    return Place(replace(hardware, is_here=False), name, device)


def _described(
    describe: Callable[[Device, str | None], Sequence[Any]], device: Device, topology: str | None, name: str
) -> Sequence[Any]:
    try:
        return describe(device, topology)
    except InputError:
        raise
    except Exception as error:  # of either plugin, whatever their types: it refuses the topology, or cannot be loaded
        raise InputError(f"--target: {name!r}: {one_line(error)}") from error


def _tpu(device: Device, topology: str | None) -> Sequence[Any]:
    """Chips of a TPU slice, by libtpu alone."""
    if find_spec("libtpu") is None:
        raise InputError(f"--target: {device.name} needs the TPU compiler: {install('tpu')}")
    # Without a TPU, libtpu would ask the metadata server of a cloud that is not there, for minutes, and then refuse.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    _without_a_chip()
    from jax.experimental import topologies

    family, smallest = TPUS[device.name]
    described = topologies.get_topology_desc(platform="tpu", topology_name=f"{family}:{topology or smallest}")
    return described.devices


def _gpu(device: Device, topology: str | None) -> Sequence[Any]:
    """GPUs of one host (``4``), or of several (``2x8``: hosts × GPUs), by JAX's CUDA plugin alone."""
    if not any(find_spec(f"jax_cuda{major}_plugin") for major in (13, 12)):
        raise InputError(f"--target: {device.name} needs the GPU compiler: {install('cuda')}")
    # The plugin otherwise compares its libraries with a driver that is not there.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    _without_a_chip()
    from jax._src import xla_bridge
    from jax.experimental import topologies

    # The first backend registers the plugins, those of other platforms too; without that "cuda" would be unknown.
    jax.local_devices()
    hosts, _, each = (topology or "1").rpartition("x")
    described = topologies.get_topology_desc(
        platform="cuda", target_config=gpu_config(device), topology=f"1x{hosts or 1}x{each}"
    )
    _platforms_without_a_backend(xla_bridge)
    return described.devices


def _without_a_chip() -> None:
    """Run everything on the CPU and open no chip that is here. In effect before the first backend."""
    jax.config.update("jax_platforms", "cpu")


def _platforms_without_a_backend(xla_bridge: Any) -> None:
    """Lowering asks which platform ``gpu`` stands for, and JAX looks among the backends that were initialised: none is
    one of a GPU (jax issues 23971 and 28376)."""
    canonical = xla_bridge.canonicalize_platform
    if getattr(canonical, "knows_cuda", False):
        return

    def canonicalize_platform(platform: str) -> str:
        return "cuda" if platform in ("gpu", "cuda") else canonical(platform)

    canonicalize_platform.knows_cuda = True  # type: ignore[attr-defined]
    xla_bridge.canonicalize_platform = canonicalize_platform


def gpu_config(device: Device) -> str:
    """The compiler's description of a GPU (``stream_executor.GpuTargetConfigProto``, as text)."""
    chip = GPUS[device.name]
    kind = next(kind for kind in device.kinds if kind.startswith("NVIDIA "))  # JAX's name for what is compiled for
    major, minor = chip.capability
    info = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_core": chip.shared_bytes,
        "threads_per_core_limit": 2048,
        "core_count": chip.multiprocessors,
        "fpus_per_core": chip.fpus,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "memory_bandwidth": int(device.bandwidth),
        "l2_cache_size": chip.l2_bytes,
        "clock_rate_ghz": chip.clock_ghz,
        "device_memory_size": chip.memory_bytes,
        "shared_memory_per_block_optin": chip.shared_bytes - 1024,
        "registers_per_core_limit": 65_536,
        "registers_per_block_limit": 65_536,
    }
    fields = " ".join(f"{key}: {value}" for key, value in info.items())
    return (
        f"gpu_device_info {{ {fields} cuda_compute_capability {{ major: {major} minor: {minor} }} }} "
        'platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 } '
        "runtime_version { major: 12 minor: 9 patch: 0 } "
        f'device_description_str: "{kind}"'
    )
