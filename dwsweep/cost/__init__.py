"""Cost of a shape: FLOPs, memory, disk, time. Pure arithmetic; every assumption is named."""

from __future__ import annotations

from dwsweep.cost.arithmetic import (
    Memory,
    checkpoint_bytes,
    decode_bytes_per_token,
    estimate,
    fitting_microbatch,
    flops_6nd,
    forward_flops_per_token,
    moments,
    training_flops,
    training_flops_per_token,
)
from dwsweep.cost.devices import DEVICES, find
from dwsweep.cost.duration import Calibration, assumed_mfu

__all__ = [
    "DEVICES",
    "Calibration",
    "Memory",
    "assumed_mfu",
    "checkpoint_bytes",
    "decode_bytes_per_token",
    "estimate",
    "find",
    "fitting_microbatch",
    "flops_6nd",
    "forward_flops_per_token",
    "moments",
    "training_flops",
    "training_flops_per_token",
]
