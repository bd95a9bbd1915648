"""How many steps the runs of each shape train, by the one key of ``train`` that says so.

With b = batch_size · seq_len tokens in a step, n_params the matched count, c the training FLOPs of a token
(``cost.flops``: attention over the whole window and the unembedding counted) and r the tokens per second of one device
(``plan.clock``: measured, compiled or assumed):

    steps             as given
    tokens            ⌈tokens / b⌉
    tokens_per_param  ⌈tokens_per_param · n_params / b⌉
    flops             flops / (c · b), to the nearest step and at least one
    seconds           seconds · r / b, likewise

A second of ``seconds`` is a device-second of one run, as results.csv counts them: the clock of its pack, times the
devices that the pack takes, divided by the replicas that share it. The rates are those that were written down when the
sweep's first plan needed them (``fixed``); they settle the steps, which are part of a run's name, so another rate would
make it another run.

A budget is met to half a step, so short runs may miss it by percents; ``RunLengths.off`` says by how much.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from dwsweep.cost.duration import MEASURED
from dwsweep.cost.flops import training_flops_per_token
from dwsweep.errors import InputError
from dwsweep.plan.clock import Clock
from dwsweep.records.fixed_rates import FixedRate
from dwsweep.shapes import Shape
from dwsweep.spec import LENGTHS, Spec

NOMINAL_STEPS = 10_000  # of what is benchmarked or compiled before there is a rate; neither depends on the length
DIGITS = 6  # significant ones of a rate: people read them


def steps_of(tokens: float, tokens_per_step: int) -> int:
    """Optimizer steps that see at least ``tokens``."""
    # the small slack keeps 1e6 tokens at 1000 per step from becoming 1001 steps through rounding of a product
    return max(1, math.ceil(tokens / tokens_per_step - 1e-9))


def with_nominal_length(spec: Spec) -> Spec:
    """The spec with a number of steps in place of seconds: for `bench`, which is to find the rates."""
    if spec.train.seconds is None:
        return spec
    per_step = spec.train.batch_size * spec.train.seq_len
    branches = [steps_of(tokens, per_step) for tokens in spec.train.token_branches]
    steps = max(NOMINAL_STEPS, spec.train.warmup_steps + 1, *branches)
    return spec.model_copy(update={"train": spec.train.model_copy(update={"seconds": None, "steps": steps})})


@dataclass(frozen=True)
class RunLengths:
    """The lengths of a sweep's runs by shape."""

    clock: Clock
    fixed: tuple[FixedRate, ...] = ()  # rates that stand, of this sweep directory

    @property
    def spec(self) -> Spec:
        return self.clock.spec

    @property
    def key(self) -> str:
        """The key of ``train`` that gives the length."""
        return next(name for name in LENGTHS if getattr(self.spec.train, name) is not None)

    @property
    def value(self) -> float:
        """What that key says."""
        return float(getattr(self.spec.train, self.key))

    @property
    def shown(self) -> str:
        """Key and value for a message: ``train.flops: 1e+18``."""
        return f"train.{self.key}: {self.value:g}"

    @property
    def is_budget(self) -> bool:
        """Whether it is spent rather than counted: lengths then follow from what a step of each shape costs."""
        return self.key in ("flops", "seconds")

    @property
    def needs_rates(self) -> bool:
        return self.key == "seconds"

    @property
    def common_steps(self) -> int | None:
        """Steps of a full-length run of any shape; None where they follow from the shape."""
        train = self.spec.train
        return train.steps if train.tokens is None else steps_of(train.tokens, self.tokens_per_step)

    @property
    def tokens_per_step(self) -> int:
        return self.spec.train.batch_size * self.spec.train.seq_len

    def step_cost(self, shape: Shape) -> float:
        """What a step of a run costs, in the unit of the budget.

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
        """What whole steps spend over the budget, as a share of it; 0 where the length is no budget."""
        return self.total_steps(shape) * self.step_cost(shape) / self.value - 1 if self.is_budget else 0.0

    def rate(self, shape: Shape) -> FixedRate:
        """The rate of a shape: the one that stands, else the clock's.

        Raises:
            InputError: neither is known.
        """
        rate = self.fixed_rate(shape) or self.rate_by_now(shape)
        if rate is None:
            raise InputError(self.no_rate())
        return rate

    def fixed_rate(self, shape: Shape) -> FixedRate | None:
        recipe = self.clock.recipe(shape)
        known = [rate for of in (recipe, None) for rate in self._by_kind.get((*self._kind(shape), of), [])]
        return next((rate for rate in known if self.clock.is_on(rate.device)), None)

    def rate_by_now(self, shape: Shape) -> FixedRate | None:
        """By the clock, whatever stands; None where it knows none."""
        found = self.clock.tokens_per_second(shape)
        if found is None or self.clock.label is None:
            return None
        return FixedRate(
            *self._kind(shape),
            device=self.clock.device_name,
            time_basis=self.clock.label,
            tokens_per_second=float(f"{found:.{DIGITS}g}"),
            distance=self.clock.distance(shape),
            recipe=self.clock.recipe(shape),
        )

    def basis(self, shapes: Iterable[Shape]) -> str:
        """What the steps of these shapes were made from, in words."""
        if not self.needs_rates:
            unit = {"flops": "FLOPs", "steps": "steps", "tokens": "tokens"}.get(self.key, "tokens per parameter")
            return f"{self.value:.6g} {unit} per run (train.{self.key})".replace("e+", "e")
        found = {shape: self.rate(shape) for shape in shapes}
        sources = Counter((rate.time_basis, rate.device) for rate in found.values())
        rates = " and ".join(
            f"{label} {'on' if label == MEASURED else 'for'} {device}"
            + (f" ({count} shapes)" if len(sources) > 1 else "")
            for (label, device), count in sources.items()
        )
        when = sorted({rate.fixed for rate in found.values() if rate.fixed})
        fixed = f"fixed {' and '.join(when)}" if when else "not fixed yet: the first `run` or `plan --out` does that"
        return f"{self.value:g} device-seconds per run (train.seconds), at rates {rates}; {fixed}"

    def knows_rate(self, shape: Shape) -> bool:
        return (self.fixed_rate(shape) or self.rate_by_now(shape)) is not None

    def no_rate(self) -> str:
        """What is wrong where no rate is known, and what to do about it."""
        return (
            f"{self.shown}; no rate is known that steps could follow from: {self.clock.basis}. `dwsweep bench SPEC` "
            "measures the rates of this host (--out as for `run`); execution.device with train.precision: bfloat16 "
            "assumes them"
        )

    def _kind(self, shape: Shape) -> tuple[str, int, int, int, str]:
        """What a rate is looked up by, ``FixedRate.of`` but for the recipe."""
        per_token, per_step = training_flops_per_token(shape), self.tokens_per_step
        return shape.label, shape.n_params_total, per_token, per_step, self.spec.train.precision

    @cached_property
    def _by_kind(self) -> dict[tuple[str, int, int, int, str, str | None], list[FixedRate]]:
        found: dict[tuple[str, int, int, int, str, str | None], list[FixedRate]] = defaultdict(list)
        for rate in self.fixed:
            found[rate.of].append(rate)
        return found
