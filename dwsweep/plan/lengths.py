"""How many steps the runs of each shape train, by the one key of ``train`` that says so.

With b = batch_size · seq_len tokens in a step, n_params the matched count, c the training FLOPs of a token
(``cost.arithmetic``: attention over the whole window and the unembedding counted) and r the tokens per second of one
device (``Clock``: measured in a benchmark, compiled or assumed):

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

At which rates runs train: the cool-down, the phases of a pack, the multipliers of its learning rate. Pure NumPy:
computed on the host.

A pack without token branches is one phase. With a wsd trunk and branches of b_1 < … < b_n steps, the trunk runs at the
peak rate; at b_i minus its cool-down the state is copied, the copy is cooled down to b_i and yields a finished run, and
the trunk goes on. The last run is the trunk's own end.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.devices import find, suggestion
from dwsweep.cost.duration import ASSUMED, COMPILED, MEASURED, Calibration, assumed_mfu, recipe_of
from dwsweep.errors import InputError
from dwsweep.records.pack import Pack
from dwsweep.records.run import FixedRate
from dwsweep.shapes import Shape
from dwsweep.spec import LENGTHS, Spec, TrainSpec

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
        """Value of that key."""
        return float(getattr(self.spec.train, self.key))

    @property
    def shown(self) -> str:
        """Key and value for a message: ``train.flops: 1e+18``."""
        return f"train.{self.key}: {self.value:g}"

    @property
    def is_budget(self) -> bool:
        """True for a length that is spent rather than counted: lengths then follow from what a step of each shape
        costs."""
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
        """Share of the budget by which whole steps overspend it; 0 where the length is no budget."""
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
        """Ask the clock for a rate, whatever stands; None where it knows none."""
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
        """Basis of these shapes' steps, in words."""
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
        """Error where no rate is known, with what to do about it."""
        return (
            f"{self.shown}; no rate is known that steps could follow from: {self.clock.basis}. `dwsweep bench SPEC` "
            "measures the rates of this host (--out as for `run`); execution.device with train.precision: bfloat16 "
            "assumes them"
        )

    def _kind(self, shape: Shape) -> tuple[str, int, int, int, str]:
        """Key by which a rate is looked up: ``FixedRate.of`` without the recipe."""
        per_token, per_step = training_flops_per_token(shape), self.tokens_per_step
        return shape.label, shape.n_params_total, per_token, per_step, self.spec.train.precision

    @cached_property
    def _by_kind(self) -> dict[tuple[str, int, int, int, str, str | None], list[FixedRate]]:
        found: dict[tuple[str, int, int, int, str, str | None], list[FixedRate]] = defaultdict(list)
        for rate in self.fixed:
            found[rate.of].append(rate)
        return found


def cooldown_steps(spec: TrainSpec, steps: int) -> int:
    """Steps of the cool-down at the end of a wsd run of ``steps`` steps."""
    return max(1, math.ceil(spec.cooldown_fraction * steps))


def cooldown_start(steps: int, train: TrainSpec) -> int:
    """First step (from 0) of the cool-down of a wsd run of ``steps`` steps; never inside the warm-up."""
    return max(min(train.warmup_steps, steps), steps - cooldown_steps(train, steps))


def pack_steps(pack: Pack) -> int:
    """Steps that a pack takes: the full length, and the cool-down of every shorter token branch."""
    *branches, full = pack.branch_steps
    return full + sum(branch - cooldown_start(branch, pack.train) for branch in branches)


def pack_tokens(pack: Pack) -> int:
    """Tokens of all replicas in all steps of a pack."""
    return pack_steps(pack) * pack.train.batch_size * pack.train.seq_len * len(pack.replicas)


@dataclass(frozen=True)
class Phase:
    """Steps ``start`` … ``stop − 1`` of one state.

    ``branch`` is the position in ``branch_steps`` of the run that ends at ``stop``; None: the trunk goes on after it.
    ``forks``: a copy of the trunk is cooled down; the trunk itself stays at ``start``.
    """

    start: int
    stop: int
    branch: int | None
    forks: bool


def phases(branch_steps: tuple[int, ...], train: TrainSpec) -> tuple[Phase, ...]:
    """The phases of a pack in the order in which they are trained.

    ``branch_steps`` ascend, so no branch leaves the trunk after the trunk's own cool-down begins.
    """
    last = len(branch_steps) - 1
    if last == 0:
        return (Phase(0, branch_steps[0], 0, False),)
    out: list[Phase] = []
    at = 0
    for i, steps in enumerate(branch_steps):
        fork = cooldown_start(steps, train)
        if fork > at:
            out.append(Phase(at, fork, None, False))
            at = fork
        out.append(Phase(at, steps, i, i != last))
    return tuple(out)


def multipliers(first_step: int, n_steps: int, stop: int | None, train: TrainSpec) -> NDArray[np.float32]:
    """Learning rate of steps ``first_step`` … as a fraction of the peak, shape (n_steps,).

    ``stop`` is the length in steps of the run that the steps belong to; None for the trunk of a wsd run, which has no
    end. With w warm-up steps and S = ``stop``, step s (from 0) has

        warm-up   (s + 1)/w                              for s < w
        cosine    ½·(1 + cos(π·(s − w)/(S − w)))         (Loshchilov & Hutter 2017, to zero)
        wsd       1, then (S − s)/(S − s_c) from the cool-down's first step s_c (Hu et al. 2024)
        constant  1
    """
    s = np.arange(first_step, first_step + n_steps, dtype=np.float64)
    w = float(train.warmup_steps)
    if train.schedule == "cosine" and stop is not None:
        rate = 0.5 * (1 + np.cos(np.pi * np.clip((s - w) / max(stop - w, 1.0), 0, 1)))
    elif train.schedule == "wsd" and stop is not None:
        begin = cooldown_start(stop, train)
        rate = np.clip((stop - s) / max(stop - begin, 1), 0, 1)
    else:
        rate = np.ones_like(s)
    return np.where(s < w, (s + 1) / max(w, 1.0), rate).astype(np.float32)


UNKNOWN_DEVICE = "unknown"


@dataclass(frozen=True)
class Clock:
    """Seconds for FLOPs, by a benchmark of this device, programs compiled for it, or the assumed MFU."""

    device_name: str
    basis: str
    label: str | None  # measured, compiled or assumed; None: nothing is known
    calibration: Calibration | None
    spec: Spec

    named: str | None = None  # the device that was asked for

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
        """Factor in depth and width to the nearest shape whose rate is known; None where rates are not of shapes."""
        recipe = self.recipe(shape)
        return self.calibration.distance(shape.depth, shape.width, recipe) if self.calibration else None

    def recipe(self, shape: Shape) -> str:
        """Recipe of a shape: all that a rate depends on besides its size."""
        return recipe_of(shape, self.spec.train.optimizer)

    def knows_recipe(self, shape: Shape) -> bool:
        """True if rates that were measured or compiled are those of the shape's block and the optimizer."""
        return self.calibration is None or self.calibration.knows(self.recipe(shape))

    def _calibrated(self, calibration: Calibration, shape: Shape) -> float:
        return calibration.flops_per_second(shape, self.spec.train.optimizer)

    def is_on(self, device: str) -> bool:
        """True if ``device`` is the one that was asked for; any is where none was."""
        return self.named is None or find(self.named) == find(device)


def clock_of(spec: Spec, calibrations: Sequence[Calibration]) -> Clock:
    """The clock of ``execution.device`` by the first calibration that is of it, else by what is assumed."""
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
    """Decide whether a calibration's rates are those of the device in question. What was measured on this host stands
    for a device that nobody named; what was compiled for some chip does not."""
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
