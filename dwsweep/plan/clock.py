"""Clock of a plan: seconds of a shape's training on one device, measured or assumed."""

from __future__ import annotations

from dataclasses import dataclass

from dwsweep.cost.devices import find, suggestion
from dwsweep.cost.duration import ASSUMED, MEASURED, Calibration, assumed_mfu
from dwsweep.shapes import Shape
from dwsweep.spec import ExecutionSpec, Spec, TrainSpec

UNKNOWN_DEVICE = "unknown"


@dataclass(frozen=True)
class Clock:
    """Seconds for FLOPs, by a benchmark of this device or the assumed MFU."""

    device_name: str
    basis: str
    label: str | None  # measured or assumed; None: unknown
    calibration: Calibration | None

    def seconds(self, shape: Shape, flops: int, train: TrainSpec, execution: ExecutionSpec) -> float | None:
        """Device-seconds that ``flops`` of a shape's training take; None: unknown."""
        if self.calibration is not None:
            return flops / self.calibration.flops_per_second(shape, train.optimizer)
        device = find(self.device_name)
        if device is None or train.precision != "bfloat16":
            return None
        mfu = assumed_mfu(
            shape,
            device,
            tokens_per_step=train.batch_size * train.seq_len,
            precision=train.precision,
            remat=execution.remat,
            fused=not device.is_tpu and shape.attention == "softmax",
        )
        return flops / (device.peak_flops * mfu)


def clock_of(spec: Spec, calibration: Calibration | None) -> Clock:
    """Clock of ``execution.device``: by the rates that were measured on it, else by assumption. A device that nobody
    named is the one that was measured."""
    named = spec.execution.device
    found = find(named)
    if calibration is not None and (named is None or found == find(calibration.device_kind)):
        return Clock(calibration.device_kind, _measured_basis(calibration), MEASURED, calibration)
    if found is None:
        if named is None:
            basis = "no device is named; set execution.device, or run `dwsweep bench`"
        else:
            basis = f"{named!r} is not in the table of devices ({suggestion(named)}); run `dwsweep bench` on it"
        return Clock(named or UNKNOWN_DEVICE, basis, None, None)
    if spec.train.precision != "bfloat16":
        basis = f"the peak rate of {found.name} is for bfloat16 products, and train.precision is {spec.train.precision}"
        return Clock(found.name, basis, None, None)
    basis = (
        f"ASSUMED share of {found.name}'s peak, {found.peak_flops / 1e12:g} TFLOP/s (narrow nets are held back by "
        "memory traffic); `dwsweep bench` measures it"
    )
    return Clock(found.name, basis, ASSUMED, None)


def _measured_basis(calibration: Calibration) -> str:
    kind, count = calibration.device_kind, calibration.devices
    basis = f"measured by `bench` on {f'{count} × ' if count > 1 else ''}{kind}, nearest benchmarked shape"
    if count > 1:
        basis += f"; {count} of them at work all the time take 1/{count} of it"
    return basis
