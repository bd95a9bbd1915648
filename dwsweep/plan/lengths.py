"""Training lengths: steps of each shape's runs, by the key of ``train`` that sets them.

Let b = batch_size · seq_len tokens in a step, n_params the matched count, c the training FLOPs of a token
(``cost.arithmetic``: attention over the whole window and the unembedding counted) and r the tokens per second of one
device (``Clock``: measured by a benchmark, compiled or assumed):

    steps             as given
    tokens            ⌈tokens / b⌉
    tokens_per_param  ⌈tokens_per_param · n_params / b⌉
    flops             flops / (c · b), to the nearest step and at least one
    seconds           seconds · r / b, likewise

A second of ``seconds`` is a device-second of one run, as results.csv counts them: the clock of its pack, times the
devices that the pack takes, divided by the replicas that share it. Its rate is resolved once: the first plan written
into a sweep directory saves the rates, and every later one takes them, since steps are part of a run's name.

A budget is met to half a step, so short runs may miss it by percents; ``RunLengths.off`` gives the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.errors import InputError
from dwsweep.plan.clock import Clock
from dwsweep.records.rates import FixedRate
from dwsweep.shapes import Shape
from dwsweep.spec import LENGTHS, Spec

NOMINAL_STEPS = 10_000  # steps of a benchmark or compilation before a rate is known; neither depends on the length
DIGITS = 6  # significant digits of a rate, which people read


def steps_of(tokens: float, tokens_per_step: int) -> int:
    """Optimizer steps that see at least ``tokens``."""
    # the small slack keeps 1e6 tokens at 1000 per step from becoming 1001 steps through rounding of a product
    return max(1, math.ceil(tokens / tokens_per_step - 1e-9))


def with_nominal_length(spec: Spec) -> Spec:
    """Spec with a number of steps in place of seconds, for `bench`, which measures the rates."""
    if spec.train.seconds is None:
        return spec
    per_step = spec.train.batch_size * spec.train.seq_len
    branches = [steps_of(tokens, per_step) for tokens in spec.train.token_branches]
    steps = max(NOMINAL_STEPS, spec.train.warmup_steps + 1, *branches)
    return spec.model_copy(update={"train": spec.train.model_copy(update={"seconds": None, "steps": steps})})


@dataclass(frozen=True)
class RunLengths:
    """Lengths of a sweep's runs by shape."""

    clock: Clock
    saved: tuple[FixedRate, ...] = ()  # rates of this sweep directory: fixed, even if the clock has changed

    @property
    def spec(self) -> Spec:
        return self.clock.spec

    @property
    def key(self) -> str:
        """The key of ``train`` that gives the length."""
        return next(name for name in LENGTHS if getattr(self.spec.train, name) is not None)

    @property
    def value(self) -> float:
        """Value of that key."""
        return float(getattr(self.spec.train, self.key))

    @property
    def shown(self) -> str:
        """Key and value for a message: ``train.flops: 1e+18``."""
        return f"train.{self.key}: {self.value:g}"

    @property
    def is_budget(self) -> bool:
        """True for a length in FLOPs or seconds: steps then follow from the cost of a step of each shape."""
        return self.key in ("flops", "seconds")

    @property
    def needs_rates(self) -> bool:
        return self.key == "seconds"

    @property
    def common_steps(self) -> int | None:
        """Steps of a full-length run of any shape; None if they follow from the shape."""
        train = self.spec.train
        return train.steps if train.tokens is None else steps_of(train.tokens, self.tokens_per_step)

    @property
    def tokens_per_step(self) -> int:
        return self.spec.train.batch_size * self.spec.train.seq_len

    def step_cost(self, shape: Shape) -> float:
        """Cost of a step of a run, in the unit of the budget.

        Raises:
            InputError: seconds, and no rate is known.
        """
        if self.needs_rates:
            return self.tokens_per_step / self.rate(shape).tokens_per_second
        return float(training_flops_per_token(shape) * self.tokens_per_step)

    def total_steps(self, shape: Shape) -> int:
        """Steps of a full-length run.

        Raises:
            InputError: seconds, and no rate is known.
        """
        if self.common_steps is not None:
            return self.common_steps
        if self.is_budget:
            return max(1, round(self.value / self.step_cost(shape)))
        return steps_of(self.value * shape.n_params, self.tokens_per_step)

    def branch_steps(self, shape: Shape) -> tuple[int, ...]:
        """Total steps of every finished run of one replica, ascending; the last is the full length."""
        branches = {steps_of(tokens, self.tokens_per_step) for tokens in self.spec.train.token_branches}
        return tuple(sorted(branches | {self.total_steps(shape)}))

    def off(self, shape: Shape) -> float:
        """Share of the budget by which whole steps overspend it; 0 if the length is no budget."""
        return self.total_steps(shape) * self.step_cost(shape) / self.value - 1 if self.is_budget else 0.0

    def rate(self, shape: Shape) -> FixedRate:
        """Rate of a shape: the saved one, else the clock's, which the first written plan saves.

        Raises:
            InputError: neither is known.
        """
        clock = self.clock
        kind = (
            shape.label,
            shape.n_params_total,
            training_flops_per_token(shape),
            self.tokens_per_step,
            self.spec.train.precision,
        )
        recipe = clock.recipe(shape)
        for rate in self.saved:
            if rate.kind == kind and rate.recipe in (recipe, None) and clock.is_on(rate.device):
                return rate
        found = clock.tokens_per_second(shape)
        if found is None or clock.label is None:
            raise InputError(
                f"{self.shown}; no rate is known that steps could follow from: {clock.basis}. `dwsweep bench SPEC` "
                "measures the rates of this host (--out as for `run`); execution.device with train.precision: bfloat16 "
                "assumes them"
            )
        rounded = float(f"{found:.{DIGITS}g}")
        return FixedRate(*kind, clock.device_name, clock.label, rounded, clock.distance(shape), recipe=recipe)

    def basis(self, shapes: Iterable[Shape]) -> str:
        """Basis of these shapes' steps, in words."""
        if not self.needs_rates:
            unit = {"flops": "FLOPs", "steps": "steps", "tokens": "tokens"}.get(self.key, "tokens per parameter")
            return f"{self.value:.6g} {unit} per run (train.{self.key})".replace("e+", "e")
        origins = " and ".join(sorted({self.rate(shape).origin for shape in shapes}))
        return f"{self.value:g} device-seconds per run (train.seconds), at rates {origins}"
