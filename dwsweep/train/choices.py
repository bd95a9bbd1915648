"""Choices for a pack on the devices at hand: one frozen record, made before anything is compiled.

Whatever is not fixed by the spec is decided here, by facts of the pack and of the hardware; ``program`` compiles it.
Where the program then does not fit into a device's memory, ``reduce_memory`` gives the choices that ask for less of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import jax
import numpy as np

from dwsweep.cost.arithmetic import (
    activation_bytes_per_token,
    checkpoint_bytes,
    halved,
    resident_bytes,
    training_flops,
)
from dwsweep.model.transformer import Compute
from dwsweep.plan import Pack
from dwsweep.spec import OPTIMIZERS
from dwsweep.train.kernel import CUDNN, XLA, choose_kernel, unmeasured
from dwsweep.train.mesh import Layout, Load, agreed

CAPACITY = 256
"""Most steps of one dispatch."""
STREAM_BYTES = 64 << 20
"""Bytes of windows per dispatch when they are streamed from the host."""
CACHE_BYTES = 1_200_000
"""On a CPU, the size of the largest activation (float32) of a microbatch: about half a core's second-level cache.
Measured at L2 d64, L6 d192, L24 d64: 12–25 % faster than the whole batch of 16 × 128 at once."""
UNROLLED_ON_GPU = 48
"""On a GPU the layers of all models of at most so many are unrolled: what the backward pass needs is then not copied
into stacks and out of them. Counted in programs compiled for an H200 (3 seeds, 256 × 128, bfloat16), not timed: L48 d32
moves 142 → 91 GB per step in 5,079 → 2,653 kernels, for 7.4 → 12.4 GB of memory and 10 → 93 s to compile. Four or
eight layers at a time move more than a loop does."""
UNROLLED_WIDTH, UNROLLED_DEPTH = 128, 12
"""On a CPU, the layers of models at least this wide and at most this deep are unrolled: weights that exceed a core's
cache are then not copied out of their stack for each microbatch. Measured gains: 5 % (L8 d128) to 22 % (L4 d256), none
at L24 d64, for some 0.7 s of compilation per layer; four layers at a time lose 5–18 %."""
VECTOR_PARAMETERS = 1_500_000
"""On a CPU, models up to this size are one vector in the training loop. Measured on two cores, steps against those of
the tree: ×1.58 (L6 d12) to ×1.0 (L24 d64, 1.2e6), ×0.9 at 2.7e6: larger ones leave the caches and pay for the copies. A
third less to compile at all of them."""
SURELY_KEPT = 0.85
"""Lower bound on the share of estimated activations kept: programs compiled for an H200 keep 0.9 to 1.3 of them."""
STATE_ARRAYS = 4
"""Float32 arrays of the parameters' size while a step is taken: parameters, two moments, gradients."""


def configure() -> None:
    """JAX settings that affect results or timings; explicit, since their defaults have changed before."""
    jax.config.update("jax_threefry_partitionable", True)
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        # the programs of small models compile in under the default's second and would not be kept
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@dataclass(frozen=True)
class Hardware:
    """Devices available to a pack."""

    devices: tuple[jax.Device, ...] | None  # None: all devices of this host, or of all processes
    device: jax.Device  # one of the devices of this host
    memory_bytes: int | None  # memory per device that JAX may use; None on a CPU, or if the backend gives none
    on_cpu: bool  # True if the program is for a CPU
    target: str | None = None  # name of a device that is not here: only a compiler knows it, and nothing is measured


def at_hand(
    devices: Sequence[jax.Device] | None = None, *, memory_bytes: int | None = None, as_accelerator: bool = False
) -> Hardware:
    """Describe the devices at hand. ``devices``: by default all. ``memory_bytes``: memory of one device, by default as
    it reports.
    ``as_accelerator``: a program for a CPU that is divided as an accelerator's would be, to learn of its memory without
    one."""
    device = (devices or jax.local_devices())[0]
    on_cpu = device.platform == "cpu" and not as_accelerator
    if memory_bytes is None and device.platform != "cpu":
        memory_bytes = (device.memory_stats() or {}).get("bytes_limit")
    return Hardware(tuple(devices) if devices else None, device, memory_bytes, on_cpu)


@dataclass(frozen=True)
class Choices:
    """Plan of training one pack on its devices. Nothing in here changes a result beyond rounding."""

    hardware: Hardware
    layout: Layout  # layout of the pack on its devices
    compute: Compute  # choices in the model: precision, attention kernel, recomputation, unrolled layers, placement
    microbatch: int  # sequences of each replica in one forward and backward pass
    as_vector: bool  # parameters are one vector per replica in the training loop, else a tree
    streamed: bool  # batches come from the host, else from the token store on the device
    capacity: int  # most steps of one dispatch
    attention_why: str | None = None  # reason for the attention kernel; None before the choice


class TokensView(Protocol):
    """The compiler's view of a token store."""

    @property
    def n_train_tokens(self) -> int: ...
    @property
    def dtype(self) -> np.dtype: ...


def choose(pack: Pack, tokens: TokensView, hardware: Hardware | None = None) -> Choices:
    """Choices for ``pack`` with these tokens on ``hardware`` (by default this host's devices).

    The attention kernel is the one that runs everywhere, until ``with_kernel`` has measured.
    """
    configure()
    hardware = hardware or at_hand()
    execution, train = pack.execution, pack.train
    layout = _layout(pack, hardware)
    unroll = _unroll(pack, hardware, layout)
    streamed = not resident_bytes(
        tokens.n_train_tokens, tokens.dtype.itemsize, hardware.memory_bytes, execution.data_on_device
    )
    keep_weights = _keeps_weights(pack, hardware, XLA)
    capacity = CAPACITY
    if streamed:
        step_bytes = len(pack_seeds(pack)) * train.batch_size * (train.seq_len + 1) * tokens.dtype.itemsize
        capacity = max(1, min(capacity, STREAM_BYTES // step_bytes))
    return Choices(
        hardware,
        layout,
        Compute(train.precision, XLA, keep_weights, execution.remat, unroll, layout.placement),
        _microbatch(pack, hardware, layout, execution.microbatch),
        _is_vector(pack, hardware, layout),
        streamed,
        capacity,
    )


def pack_seeds(pack: Pack) -> list[int]:
    """The distinct seeds of a pack; each has its own order of batches."""
    return sorted({replica.seed for replica in pack.replicas})


def with_kernel(choices: Choices, pack: Pack, asked: str | None = None) -> Choices:
    """Choices with an attention kernel: the spec's or the ``asked`` one, else the faster one here."""
    asked = asked or pack.execution.attention
    if choices.hardware.target is None:
        rows = choices.microbatch * len(pack.replicas) // choices.layout.size
        choice = choose_kernel(asked, pack.shape, pack.train.precision, rows, choices.hardware.device)
        # each host measures, and different hosts would not run the same program
        names = (XLA, CUDNN)
        choice = replace(choice, kernel=names[agreed(names.index(choice.kernel))])
    else:
        choice = unmeasured(asked, pack.shape, pack.train.precision, choices.hardware.device.platform)
    keep_weights = _keeps_weights(pack, choices.hardware, choice.kernel)
    compute = replace(choices.compute, kernel=choice.kernel, keep_weights=keep_weights)
    return replace(choices, compute=compute, attention_why=choice.why)


def _keeps_weights(pack: Pack, hardware: Hardware, kernel: str) -> bool:
    """True if attention's weights are kept for the backward pass, as long as memory lasts."""
    return kernel == XLA and not hardware.on_cpu and pack.shape.attention == "softmax"


def reduce_memory(choices: Choices, pack: Pack) -> Choices | None:
    """Choices one step lower in memory, the cheapest step first; None when nothing is left.

    Counted for an H200 (24 × 1020, 3 seeds, 256 × 128): half the microbatch takes 58 in place of 90 GB and 2 % longer,
    a quarter 40 GB and 5 %; recomputed activations 34 GB and 23 %. A divided state costs communication in every layer.
    Layers in a loop would take 3 % less memory than written out (40 % in a narrow net) and 28 % longer.
    """
    smaller = halved(pack.train.batch_size, choices.microbatch, choices.layout.split)
    if smaller is not None:
        return replace(choices, microbatch=smaller)
    compute = choices.compute
    if compute.keep_weights and not compute.remat:
        return replace(choices, compute=replace(compute, keep_weights=False))
    if not compute.remat:  # recomputation keeps the weights of one layer at a time
        keep_weights = _keeps_weights(pack, choices.hardware, compute.kernel)
        return replace(choices, compute=replace(compute, remat=True, keep_weights=keep_weights))
    divided = _layout(pack, choices.hardware, must_divide=True)
    if divided.sizes["fsdp"] <= choices.layout.sizes["fsdp"]:
        return None
    return replace(
        choices,
        layout=divided,
        compute=replace(choices.compute, placement=divided.placement),
        microbatch=_microbatch(pack, choices.hardware, divided, choices.microbatch),
        as_vector=_is_vector(pack, choices.hardware, divided),
    )


def too_large(choices: Choices, pack: Pack) -> bool:
    """True if arithmetic alone rules the program out, which saves minutes of compilation.

    Certain if parameters, moments and a share SURELY_KEPT of the backward pass's values exceed a device.
    """
    limit, layout, compute = choices.hardware.memory_bytes, choices.layout, choices.compute
    if limit is None:
        return False
    block, once = activation_bytes_per_token(pack.shape, pack.train.precision, compute.remat, compute.keep_weights)
    replicas = math.ceil(len(pack.replicas) / (layout.size // layout.split))
    tokens = replicas * choices.microbatch * pack.train.seq_len / layout.split
    held = checkpoint_bytes(pack.shape, replicas, pack.train.optimizer)
    return held / layout.sizes["fsdp"] + SURELY_KEPT * tokens * (pack.shape.depth * block + once) > limit


def concessions(first: Choices, last: Choices, pack: Pack) -> list[str]:
    """Describe the memory savings between two choices."""
    out = []
    if last.microbatch != first.microbatch:
        out.append(f"microbatch {first.microbatch} → {last.microbatch} of {pack.train.batch_size} sequences")
    if last.compute.keep_weights != first.compute.keep_weights and not last.compute.remat:
        out.append("attention's weights computed again")
    if last.compute.remat != first.compute.remat:
        out.append("activations recomputed")
    if last.layout != first.layout:
        out.append(f"parameters and moments divided over {last.layout.sizes['fsdp']} devices")
    return out


def _layout(pack: Pack, hardware: Hardware, must_divide: bool = False) -> Layout:
    shape, train = pack.shape, pack.train
    load = Load(
        replicas=len(pack.replicas),
        batch=train.batch_size,
        state_bytes=STATE_ARRAYS * 4 * shape.n_params_total,
        step_flops=training_flops(shape, train.batch_size * train.seq_len),
        memory_bytes=hardware.memory_bytes,
        on_cpu=hardware.on_cpu,
        must_divide=must_divide,
    )
    return Layout.of(load, hardware.devices, pack.execution.mesh)


def _microbatch(pack: Pack, hardware: Hardware, layout: Layout, asked: int | None) -> int:
    """Largest divisor of the batch, at most ``asked``, in whole rows for every device of a model."""
    shape, batch, split = pack.shape, pack.train.batch_size, layout.split
    if asked is None and hardware.on_cpu:
        widest = max(shape.mlp_hidden, shape.vocab_size, shape.heads * shape.seq_len)
        asked = max(1, CACHE_BYTES // (4 * shape.seq_len * widest)) * split
    asked = min(asked or batch, batch)
    sizes = [n for n in range(split, batch + 1, split) if batch % n == 0]
    return max((n for n in sizes if n <= asked), default=sizes[0])


def _unroll(pack: Pack, hardware: Hardware, layout: Layout) -> int:
    """Layers that are written out; 1: all in a loop."""
    depth, width = pack.shape.depth, pack.shape.width
    # a divided model has to gather its weights layer by layer
    on_gpu = hardware.device.platform == "gpu" and layout.placement is None
    on_cpu = hardware.on_cpu and width >= UNROLLED_WIDTH
    all_out = (on_gpu and depth <= UNROLLED_ON_GPU) or (on_cpu and depth <= UNROLLED_DEPTH)
    return min(pack.execution.unroll or (depth if all_out else 1), depth)


def _is_vector(pack: Pack, hardware: Hardware, layout: Layout) -> bool:
    # an accelerator's memory is scarcer, and no single host has the whole state
    whole_here = hardware.on_cpu and layout.placement is None and jax.process_count() == 1
    small = pack.shape.n_params_total <= VECTOR_PARAMETERS
    return whole_here and small and not OPTIMIZERS[pack.train.optimizer].orthogonal
