"""Budget of training: the size and the tokens that FLOPs, or hours on a device, pay for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.duration import assumed_mfu
from dwsweep.errors import InputError
from dwsweep.guide.losses import TOKENS_PER_PARAM, TrainingTokens
from dwsweep.guide.shapes import Options, matched, named
from dwsweep.guide.sources import Source
from dwsweep.shapes import Shape
from dwsweep.text import format_count

TOKENS_PER_STEP = 500_000  # tokens of the assumed training step
SMALLEST, SMALLEST_OF_FIT, LARGEST = 1e5, 1e3, 1e13  # parameters
HALVINGS = 60


def training_seconds(shape: Shape, options: Options) -> float:
    """Training seconds per token on one device, assumed."""
    # fused attention, usual at these sizes; otherwise heads of 64 would seem a third slower than heads of 128
    device = options.found_device
    mfu = assumed_mfu(shape, device, tokens_per_step=TOKENS_PER_STEP, precision="bfloat16", fused=True)
    return training_flops_per_token(shape) / (device.peak_flops * mfu)


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

    def spent(self, shape: Shape, options: Options) -> float:
        """FLOPs of the budget, spent on a shape."""
        return training_flops_per_token(shape) / self.share(shape, 1.0, options)

    def affords(self, source: Source, options: Options) -> Afforded:
        """Parameters of the blocks and tokens that the budget pays for: N at which tokens(N) × cost of a token of its
        best shape = budget; or the best N of the user's fit at such FLOPs, if no tokens are asked for.

        Raises:
            InputError: neither a size from SMALLEST to LARGEST.
        """
        tokens = options.trained
        own = source.budgets if tokens == TrainingTokens() else None

        def shape_of(n: float) -> Shape:  # outside the source's depths the shape hardly matters
            return matched(max(1, round(source.depth(n)[0])), n, options)

        def exceeds(ln_n: float) -> bool:
            n = math.exp(ln_n)
            shape = shape_of(n)
            if own and (best := own.at(self.spent(shape, options))):
                return n > (best[0].value or 0.0)
            return self.share(shape, tokens.at(n) * n / shape.n_params, options) > 1.0  # no width meets every size

        smallest = SMALLEST if source.own is None else SMALLEST_OF_FIT
        low, high = math.log(smallest), math.log(LARGEST)
        if (too_little := exceeds(low)) or not exceeds(high):
            name, value = ("flops", self.flops) if self.flops is not None else ("hours", self.hours)
            pays = f"no net of {format_count(smallest)}" if too_little else f"more than {format_count(LARGEST)}"
            raise InputError(f"{named(name)}: {value:g}; pays for {pays} parameters on {tokens}")
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if exceeds(middle) else (middle, high)
        n = float(f"{math.exp(low):.3g}")
        shape = shape_of(n)
        flops = self.spent(shape, options)
        if own and (best := own.at(flops)):
            count = best[1] if self.flops is not None else shape.n_params / n / self.share(shape, 1.0, options)
            # the FLOPs of a token are the fit's: a net may take as many as the best one takes here
            counted = Training(training_flops_per_token(shape) * n / shape.n_params * count, None)
            training = counted if self.flops is not None else self
            return Afforded(n, count, f"{count / n:.2g} for each parameter; {own.said(best[0])}", training)
        if options.tokens is not None:
            return Afforded(n, tokens.at(n), "as asked", self)
        usual = ", compute-optimal by Hoffmann et al. 2022" if tokens.ratio == TOKENS_PER_PARAM else ""
        return Afforded(n, tokens.at(n), f"{tokens.ratio:g} for each parameter{usual}", self)

    def sentence(self, found: Afforded, options: Options) -> str:
        """Sentence on the size and the tokens that the budget pays for."""
        paid = f"{self.flops:.3g} FLOPs" if self.flops is not None else f"{self.hours:g} hours on {options.device_text}"
        size, tokens = format_count(found.n_params), format_count(found.tokens)
        return f"{paid} pay for {size} parameters in the blocks on {tokens} tokens ({found.why})"


@dataclass(frozen=True)
class Afforded:
    """Parameters of the blocks and tokens that a budget pays for. why: rule for the tokens, in words. training: the
    budget, by which a shape of other cost is held against it."""

    n_params: float
    tokens: float
    why: str
    training: Training
