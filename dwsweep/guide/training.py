"""Budget of training: the size and the tokens that FLOPs, or hours on a device, pay for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.duration import assumed_mfu
from dwsweep.errors import InputError
from dwsweep.guide.losses import TOKENS_PER_PARAM, Tokens
from dwsweep.guide.shapes import Options, matched, named
from dwsweep.guide.sources import Source
from dwsweep.shapes import Shape
from dwsweep.text import format_count

TOKENS_PER_STEP = 500_000  # tokens of the assumed training step
SMALLEST, LARGEST = 1e5, 1e13  # parameters
HALVINGS = 60


def training_seconds(shape: Shape, options: Options) -> float:
    """Training seconds per token on one device: measured, or assumed."""
    flops = training_flops_per_token(shape)
    if options.calibration is not None:
        return flops / options.calibration.flops_per_second(shape)
    # fused attention, usual at these sizes; otherwise heads of 64 would seem a third slower than heads of 128
    device = options.found_device
    mfu = assumed_mfu(shape, device, tokens_per_step=TOKENS_PER_STEP, precision="bfloat16", fused=True)
    return flops / (device.peak_flops * mfu)


@dataclass(frozen=True)
class Training:
    """Budget of training: FLOPs, or hours on the devices of the options; the other one is None."""

    flops: float | None
    hours: float | None

    def share(self, shape: Shape, tokens: float, options: Options) -> float:
        """Share of the budget that training a shape on ``tokens`` takes; at most 1 if the budget pays for it."""
        if self.flops is not None:
            return training_flops_per_token(shape) * tokens / self.flops
        return training_seconds(shape, options) * tokens / options.devices / (3600.0 * (self.hours or 0.0))

    def affords(self, source: Source, options: Options) -> tuple[float, float]:
        """Parameters of the blocks and tokens that the budget pays for at the best depth.

        Result: the N at which tokens(N) × cost of a token = budget, with the cost of the best shape of N.

        Raises:
            InputError: neither a size from SMALLEST to LARGEST.
        """
        tokens = Tokens(options.tokens, options.tokens_per_param)

        def exceeds(ln_n: float) -> bool:
            n = math.exp(ln_n)
            # outside the source's depths the shape hardly matters
            shape = matched(max(1, round(source.depth(n)[0])), n, options)
            return self.share(shape, tokens.at(n) * n / shape.n_params, options) > 1.0  # no width meets every size

        low, high = math.log(SMALLEST), math.log(LARGEST)
        too_little = exceeds(low)
        if too_little or not exceeds(high):
            name, value = ("flops", self.flops) if self.flops is not None else ("hours", self.hours)
            pays = f"no net of {format_count(SMALLEST)}" if too_little else f"more than {format_count(LARGEST)}"
            raise InputError(f"{named(name)}: {value:g}; pays for {pays} parameters on {tokens}")
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if exceeds(middle) else (middle, high)
        n = float(f"{math.exp(low):.3g}")
        return n, tokens.at(n)

    def sentence(self, n_params: float, tokens: float, options: Options) -> str:
        """Sentence on the size and the tokens that the budget pays for."""
        paid = f"{self.flops:.3g} FLOPs" if self.flops is not None else f"{self.hours:g} hours on {options.device}"
        why = "as asked" if options.tokens is not None else f"{options.tokens_per_param:g} for each parameter"
        if options.tokens is None and options.tokens_per_param == TOKENS_PER_PARAM:
            why += ", compute-optimal by Hoffmann et al. 2022"
        return (
            f"{paid} pay for {format_count(n_params)} parameters in the blocks on {format_count(tokens)} tokens ({why})"
        )
