"""Training lengths: steps of each shape's runs, by the key of ``train`` that sets them.

Let b = batch_size · seq_len tokens in a step, n_params the matched count and c the training FLOPs of a token
(``cost.arithmetic``: attention over the whole window and the unembedding counted):

    steps             as given
    tokens            ⌈tokens / b⌉
    tokens_per_param  ⌈tokens_per_param · n_params / b⌉
    flops             flops / (c · b), to the nearest step and at least one

FLOPs are met to half a step, so short runs may miss them by percents; ``RunLengths.off`` gives the difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.shapes import Shape
from dwsweep.spec import LENGTHS, Spec


def steps_of(tokens: float, tokens_per_step: int) -> int:
    """Optimizer steps that see at least ``tokens``."""
    # the small slack keeps 1e6 tokens at 1000 per step from becoming 1001 steps through rounding of a product
    return max(1, math.ceil(tokens / tokens_per_step - 1e-9))


@dataclass(frozen=True)
class RunLengths:
    """Lengths of a sweep's runs by shape."""

    spec: Spec

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
        """True for a length in FLOPs: steps then follow from the cost of a step of each shape."""
        return self.key == "flops"

    @property
    def common_steps(self) -> int | None:
        """Steps of a full-length run of any shape; None if they follow from the shape."""
        train = self.spec.train
        return train.steps if train.tokens is None else steps_of(train.tokens, self.tokens_per_step)

    @property
    def tokens_per_step(self) -> int:
        return self.spec.train.batch_size * self.spec.train.seq_len

    def step_cost(self, shape: Shape) -> float:
        """FLOPs of a step of a run."""
        return float(training_flops_per_token(shape) * self.tokens_per_step)

    def total_steps(self, shape: Shape) -> int:
        """Steps of a full-length run."""
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
        """Share of the FLOPs by which whole steps overspend them; 0 for another length."""
        return self.total_steps(shape) * self.step_cost(shape) / self.value - 1 if self.is_budget else 0.0
