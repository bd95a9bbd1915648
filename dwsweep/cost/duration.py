"""How long training takes: from a benchmark of this kind of device, or else from an assumption that says so."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.cost.devices import Device
from dwsweep.cost.flops import training_flops_per_token
from dwsweep.cost.memory import FLOAT32, activation_bytes_per_token, recomputed_bytes_per_token
from dwsweep.errors import InputError
from dwsweep.shapes import Shape

PEAK_SHARE = 0.6  # assumption: what large products reach of a device's peak
BANDWIDTH_SHARE = 0.8  # assumption: what element-wise passes reach of its memory bandwidth
ACTIVATION_PASSES = 3  # assumption: written forward, read backward, and as many gradients


def assumed_mfu(shape: Shape, device: Device, *, tokens_per_step: int, precision: str, remat: bool = False) -> float:
    """Assumed share of the peak: products at PEAK_SHARE, then the traffic that small widths cannot hide.

    seconds a token = FLOPs / (PEAK_SHARE · peak) + bytes / (BANDWIDTH_SHARE · bandwidth), the roofline's two terms
    added (Williams et al. 2009). Bytes: ACTIVATION_PASSES times the values kept or recomputed for the backward pass,
    and the optimizer's reads and writes of masters, moments and gradients (7 float32 a parameter) shared by the tokens
    of a step. A narrow net has few FLOPs a byte, so its MFU is far below that of a wide one.
    """
    flops = training_flops_per_token(shape)
    block, once = activation_bytes_per_token(shape, precision, False)
    traffic: float = ACTIVATION_PASSES * (shape.depth * (block + recomputed_bytes_per_token(shape)) + once)
    traffic += 7 * FLOAT32 * shape.n_params_total / tokens_per_step
    extra = 4 / 3 if remat else 1.0  # one more forward pass
    seconds = extra * flops / (PEAK_SHARE * device.peak_flops) + traffic / (BANDWIDTH_SHARE * device.bandwidth)
    return flops / (device.peak_flops * seconds)


@dataclass(frozen=True)
class Calibration:
    """Rates measured by ``dwsweep bench`` on one kind of device.

    A bench times a pack on all the devices that it takes; here every rate is that of one device, so that FLOPs over a
    rate are device-seconds, as in results.csv.
    """

    device_kind: str
    rows: tuple[tuple[int, int, float], ...]  # depth, width, achieved FLOP/s of one device
    devices: int = 1  # that the bench's packs took, at most

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Calibration | None:
        """Read a bench file: a JSON list of rows with depth, width, tokens_per_second (of all ``devices`` of the row
        together; one where it names none) and flops_per_token.

        None where there is no such file.

        Raises:
            InputError: the file is no list of such rows.
        """
        try:
            content = json.loads(paths.as_path(path).read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"calibration: {path} cannot be read ({error}); write it with `dwsweep bench`") from None
        return cls.of(content, str(path))

    @classmethod
    def of(cls, rows: Any, name: str = "calibration") -> Calibration | None:
        """From the rows of a bench; None where no row was measured."""
        needed = ("device_kind", "depth", "width", "tokens_per_second", "flops_per_token")
        measured = []
        most = 1
        if not isinstance(rows, list):
            raise InputError(f"{name}: holds {type(rows).__name__}; allowed: a list of rows with {', '.join(needed)}")
        for index, row in enumerate(rows):
            missing = [key for key in needed if not isinstance(row, dict) or key not in row]
            if missing:
                raise InputError(f"{name}: row {index} has no {', '.join(missing)}; write it with `dwsweep bench`")
            try:
                devices = int(row.get("devices") or 1)
                rate = float(row["tokens_per_second"] or 0) * float(row["flops_per_token"]) / devices
                depth, width = int(row["depth"]), int(row["width"])
            except (TypeError, ValueError, OverflowError, ZeroDivisionError):
                raise InputError(f"{name}: row {index} has a value that is no number; run `dwsweep bench`") from None
            if not (depth > 0 and width > 0 and devices > 0 and 0 <= rate < math.inf):
                raise InputError(f"{name}: row {index} has a value below 0 or not finite; run `dwsweep bench`")
            if rate:
                most = max(most, devices)
                measured.append((depth, width, rate))
        return cls(str(rows[0]["device_kind"]), tuple(measured), most) if measured else None

    def flops_per_second(self, shape: Shape) -> float:
        """FLOP/s of one device at the benchmarked shape that is nearest in (ln L, ln d_x)."""

        def distance(row: tuple[int, int, float]) -> float:
            return math.hypot(math.log(row[0] / shape.depth), math.log(row[1] / shape.width))

        return min(self.rows, key=distance)[2]
