"""Clock of a plan: seconds of a shape's training on one device, measured, compiled or assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.devices import find, suggestion
from dwsweep.cost.duration import ASSUMED, COMPILED, MEASURED, Calibration, assumed_mfu, recipe_of
from dwsweep.shapes import Shape
from dwsweep.spec import Spec

UNKNOWN_DEVICE = "unknown"


@dataclass(frozen=True)
class Clock:
    """Seconds for FLOPs, by a benchmark of this device, programs compiled for it, or the assumed MFU."""

    device_name: str
    basis: str
    label: str | None  # measured, compiled or assumed; None: unknown
    calibration: Calibration | None
    spec: Spec

    named: str | None = None  # requested device

    def mfu(self, shape: Shape) -> float | None:
        device = find(self.device_name)
        if self.calibration is not None:
            return self._calibrated(self.calibration, shape) / device.peak_flops if device else None
        if device is None or self.spec.train.precision != "bfloat16":
            return None
        train = self.spec.train
        return assumed_mfu(
            shape,
            device,
            tokens_per_step=train.batch_size * train.seq_len,
            precision=train.precision,
            remat=self.spec.execution.remat,
            fused=not device.is_tpu and shape.attention == "softmax",
        )

    def seconds(self, shape: Shape, flops: int) -> float | None:
        """Device-seconds that ``flops`` of a shape's training take; None: unknown."""
        if self.calibration is not None:
            return flops / self._calibrated(self.calibration, shape)
        device, mfu = find(self.device_name), self.mfu(shape)
        return flops / (device.peak_flops * mfu) if device and mfu else None

    def tokens_per_second(self, shape: Shape) -> float | None:
        """Rate of one device, all replicas of a pack together: tokens that a run trains in each of its device-seconds,
        whatever the size of its pack."""
        seconds = self.seconds(shape, training_flops_per_token(shape))
        return 1 / seconds if seconds else None

    def distance(self, shape: Shape) -> float | None:
        """Factor in depth and width to the nearest shape whose rate is known; None if rates are not of shapes."""
        recipe = self.recipe(shape)
        return self.calibration.distance(shape.depth, shape.width, recipe) if self.calibration else None

    def recipe(self, shape: Shape) -> str:
        """Recipe of a shape: the settings on which a rate depends besides the size."""
        return recipe_of(shape, self.spec.train.optimizer)

    def knows_recipe(self, shape: Shape) -> bool:
        """True if measured or compiled rates apply to the shape's block and the optimizer."""
        return self.calibration is None or self.calibration.knows(self.recipe(shape))

    def _calibrated(self, calibration: Calibration, shape: Shape) -> float:
        return calibration.flops_per_second(shape, self.spec.train.optimizer)

    def is_on(self, device: str) -> bool:
        """True if ``device`` is the requested one; any is where none was."""
        return self.named is None or find(self.named) == find(device)


def clock_of(spec: Spec, calibrations: Sequence[Calibration]) -> Clock:
    """Clock of ``execution.device``: by its first calibration, else by assumption."""
    named = spec.execution.device
    for one in calibrations:
        if _is_of(one, named, spec):
            return Clock(one.device_kind, _calibrated_basis(one), one.basis, one, spec, named)
    found = find(named)
    if found is None:
        if named is None:
            basis = "no device is named; set execution.device, or run `dwsweep bench`"
        else:
            basis = f"{named!r} is not in the table of devices ({suggestion(named)}); run `dwsweep bench` on it"
        return Clock(named or UNKNOWN_DEVICE, basis, None, None, spec, named)
    if spec.train.precision != "bfloat16":
        basis = f"the peak rate of {found.name} is for bfloat16 products, and train.precision is {spec.train.precision}"
        return Clock(found.name, basis, None, None, spec, named)
    basis = (
        f"ASSUMED share of {found.name}'s peak, {found.peak_flops / 1e12:g} TFLOP/s (narrow nets are held back by "
        "memory traffic); `dwsweep bench` measures it"
    )
    return Clock(found.name, basis, ASSUMED, None, spec, named)


def _is_of(calibration: Calibration, named: str | None, spec: Spec) -> bool:
    """True if a calibration's rates apply to the device. Rates measured on this host are used for a
    device that nobody named; rates compiled for some chip are not."""
    if calibration.basis == MEASURED:
        return named is None or find(named) == find(calibration.device_kind)
    same = named is not None and find(named) is not None and find(named) == find(calibration.device_kind)
    return same and calibration.precision == spec.train.precision


def _calibrated_basis(calibration: Calibration) -> str:
    kind, count = calibration.device_kind, calibration.devices
    several = f"{count} × " if count > 1 else ""
    if calibration.basis == COMPILED:
        return (
            f"COMPILED for {several}{kind}, nearest compiled shape: the roofline of its program, which no run reaches; "
            "`dwsweep bench` measures it"
        )
    basis = f"measured by `bench` on {several}{kind}, nearest benchmarked shape"
    if count > 1:
        basis += f"; {count} of them at work all the time take 1/{count} of it"
    return basis
