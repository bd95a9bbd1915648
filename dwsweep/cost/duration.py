"""Duration of training: measured on this kind of device, else assumed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import NamedTuple

from dwsweep import paths
from dwsweep.cost.arithmetic import (
    FLOAT32,
    activation_bytes_per_token,
    recomputed_bytes_per_token,
    training_flops_per_token,
)
from dwsweep.cost.devices import Device
from dwsweep.errors import InputError
from dwsweep.records import bench as bench_record
from dwsweep.records.bench import BenchRow
from dwsweep.shapes import Shape

MEASURED, ASSUMED = "measured", "assumed"
"""Bases of a time: `bench` on the device, a share of its peak."""

PEAK_SHARE = 0.6  # assumption: share of a device's peak that large products reach
BANDWIDTH_SHARE = 0.8  # assumption: share of the memory bandwidth that element-wise passes reach
GPU_PASSES, TPU_PASSES = (6.0, 4 / 3), (3.0, 3.0)
"""Memory passes per step: over block activations, over other activations. On GPUs fitted to eleven shapes on
an H200 (tests/cost/test_time): the times agree within 18 %, 9 % rms; those of 16 further shapes, trained later, within
18 %, 7 % rms. On TPUs assumed: values are written forward and read backward, and gradients cost as much; their compiler
counts 3.5."""


def assumed_mfu(
    shape: Shape, device: Device, *, tokens_per_step: int, precision: str, remat: bool = False, fused: bool = False
) -> float:
    """Assumed share of the peak (MFU): products at PEAK_SHARE, plus memory traffic, which small widths cannot hide.

    seconds a token = FLOPs / (PEAK_SHARE · peak) + bytes / (BANDWIDTH_SHARE · bandwidth), the roofline's two terms
    added (Williams et al. 2009). Bytes: GPU_PASSES or TPU_PASSES times the values kept or recomputed for the backward
    pass, and the optimizer's reads and writes of masters, moments and gradients (7 float32 a parameter) shared by the
    tokens of a step. A narrow net has few FLOPs a byte, so its MFU is far below that of a wide one. fused: attention
    leaves no probabilities in memory, whose bytes grow with the number of heads.
    """
    flops = training_flops_per_token(shape)
    block, once = activation_bytes_per_token(shape, precision, False)
    again = recomputed_bytes_per_token(shape, fused)
    once += again - recomputed_bytes_per_token(shape)
    of_blocks, of_others = TPU_PASSES if device.is_tpu else GPU_PASSES
    traffic: float = of_blocks * shape.depth * (block + again) + of_others * once
    traffic += 7 * FLOAT32 * shape.n_params_total / tokens_per_step
    extra = 4 / 3 if remat else 1.0  # rematerialisation adds a forward pass
    seconds = extra * flops / (PEAK_SHARE * device.peak_flops) + traffic / (BANDWIDTH_SHARE * device.bandwidth)
    return flops / (device.peak_flops * seconds)


def seconds_left(flops: float, rates: Iterable[tuple[float | None, float]]) -> float | None:
    """Seconds for the remaining FLOPs; None before a rate is known. rates: (tokens per second, FLOPs per token) of each
    pack at work."""
    rate = sum((tokens or 0.0) * per_token for tokens, per_token in rates)
    return flops / rate if rate else None


def recipe_of(shape: Shape, optimizer: str) -> str:
    """Recipe of a block: settings besides depth, width and heads that determine the speed of a step."""
    block = [
        f"{shape.norm}-{shape.norm_type}",
        f"{shape.mlp} {shape.activation} {shape.mlp_hidden / shape.width:.2g}",
        shape.positions,
        *(f"{shape.heads // shape.kv_heads} queries per key" for _ in range(shape.kv_heads != shape.heads)),
        *(["linear attention"] if shape.attention == "linear" else []),
        *(["qk_norm"] if shape.qk_norm else []),
        *([f"embedding of rank {shape.embedding_rank}"] if shape.embedding_rank is not None else []),
        *(["softcap"] if shape.logit_softcap is not None else []),
        *(["z_loss"] if shape.z_loss else []),
        *([] if shape.biases else ["no biases"]),
        *(["tied"] if shape.tied_embeddings else []),
        optimizer,
    ]
    return ", ".join(block)


class Rate(NamedTuple):
    """Rate of a shape on one device, in FLOP/s. recipe: see ``recipe_of``; None if the bench did not record it."""

    depth: int
    width: int
    flops_per_second: float
    recipe: str | None = None


@dataclass(frozen=True)
class Calibration:
    """Rates of one kind of device, measured by ``dwsweep bench``.

    A bench times a pack on several devices; a rate here belongs to one device, so that FLOPs over a rate are
    device-seconds, as in results.csv.
    """

    device_kind: str
    rows: tuple[Rate, ...]
    devices: int = 1  # number of devices of the largest pack in the bench

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Calibration | None:
        """Calibration in a file of `bench`, or in the bench.json of a sweep directory; None if there is no rate.

        Raises:
            InputError: the file is no list of such rows, or has rates of several kinds of devices.
        """
        where = paths.as_path(path)
        where = where / bench_record.FILE_NAME if where.is_dir() else where
        rows = bench_record.read(where) or ()
        if len(kinds := sorted({row.device_kind for row in rows})) > 1:
            raise InputError(f"{where}: device_kind: {', '.join(kinds)}; allowed: one kind of device in a file")
        return cls.of(rows)

    @classmethod
    def of(cls, rows: Sequence[BenchRow]) -> Calibration | None:
        """Calibration from the rows of a bench; None if no row was measured."""
        measured = [row for row in rows if row.tokens_per_second * row.flops_per_token]
        if not measured:
            return None
        rates = (
            Rate(row.depth, row.width, row.tokens_per_second * row.flops_per_token / row.devices, row.recipe)
            for row in measured
        )
        return cls(rows[0].device_kind, tuple(rates), max(row.devices for row in measured))

    def flops_per_second(self, shape: Shape, optimizer: str = "adamw") -> float:
        """Rate of one device, FLOP/s, at the benchmarked shape nearest in (ln L, ln d_x); shapes of the same recipe
        come first."""
        recipe = recipe_of(shape, optimizer)
        rows = [row for row in self.rows if row.recipe == recipe] or self.rows

        def apart(row: Rate) -> float:
            return math.hypot(math.log(row.depth / shape.depth), math.log(row.width / shape.width))

        return min(rows, key=apart).flops_per_second
