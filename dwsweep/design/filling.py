"""Filling of a time budget: the most useful sweep for given hours on one device.

Every candidate set of depths gets sizes from a third of its first transition up to the largest that the time allows,
each run with TOKENS_PER_PARAM tokens per parameter of its blocks. The set with most likely transitions wins; among
equals the set with the least error on the best depth at its largest size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dwsweep.cost.devices import find, suggestion
from dwsweep.design.judge import judge
from dwsweep.design.prior import AssumedTruth
from dwsweep.errors import InputError
from dwsweep.plan import DROP, build
from dwsweep.spec import Spec, parse_spec
from dwsweep.spec.bounded_yaml import dump_yaml

TOKENS_PER_PARAM = 20  # compute-optimal by Hoffmann et al. 2022; a default, not a law
SIZES, SEEDS = 7, 3
BELOW = 3.0  # factor from the smallest size to the first transition
FEWEST_DECADES = 1.0
LIKELY = 0.8  # probability above which a transition counts as likely
CANDIDATES: tuple[tuple[int, ...], ...] = (
    *((2, 4, 6, 9), (3, 6, 9, 12), (4, 8, 12, 16), (6, 9, 12, 18), (6, 12, 18, 24), (6, 12, 18, 24, 30)),
    *((6, 12, 18, 24, 30, 36), (6, 12, 18, 24, 30, 36, 48)),
)
SMALLEST, LARGEST = 1e5, 1e11  # range of sizes searched
SHARE = 0.9  # share of the time that is planned; compilation and evaluation take the rest


@dataclass(frozen=True)
class Filled:
    """Sweep that fills a time. seconds: of training on the device. rank: count of its likely transitions, and its error
    with the sign changed."""

    spec: Spec
    hours: float
    seconds: float
    rank: tuple[int, float]

    @property
    def text(self) -> str:
        """YAML of the keys that differ from the defaults, with a heading."""
        content = self.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return (
            f"# {self.hours:g} hours of one {self.spec.execution.device}: {self.seconds / 3600:.2g} of training at an "
            "assumed share of its peak;\n"
            "# compiling and evaluating come on top. Its expected errors: `dwsweep design` on this file.\n"
            "# Check learning_rates with a small sweep of rates (sweeps/lr-transfer.yaml) before it runs.\n"
        ) + dump_yaml(content)


CHOSEN = ("grid.depths", "grid.budgets", "grid.widths", "execution.device", "train.flops")
"""Keys that no override of a filled sweep may set."""


def fill(hours: float, device: str, prior: AssumedTruth, overrides: Sequence[str] = ()) -> Filled:
    """Most useful sweep for ``hours`` on one ``device``, with ``overrides`` of its other keys.

    Raises:
        InputError: the device is unknown, an override is invalid or sets a chosen key, or the time is too short to find
        a transition.
    """
    found = find(device)
    if found is None:
        raise InputError(f"--device: {device!r} is not in the table; allowed: {suggestion(device)}")
    if not (math.isfinite(hours) and 0 < hours <= 1e6):
        raise InputError(f"--hours: {hours:g}; must be above 0 and at most 1e6")
    for override in overrides:
        if override.partition("=")[0].strip() in CHOSEN:
            allowed = "other keys; --hours and --device determine sizes and depths"
            raise InputError(f"--set: {override[:80]!r}; allowed: {allowed}")
    # an invalid override is invalid at any size
    _seconds(_spec(found.name, hours, CANDIDATES[0], SMALLEST, 10 * SMALLEST, overrides))
    tried = [_largest(found.name, hours, each, prior, overrides) for each in CANDIDATES]
    if best := max(filter(None, tried), key=lambda one: one.rank, default=None):
        return best
    raise InputError(
        f"--hours: {hours:g} on one {found.name} reach no decade of sizes around a transition; allowed: more hours"
    )


def _largest(
    device: str, hours: float, depths: tuple[int, ...], prior: AssumedTruth, overrides: Sequence[str]
) -> Filled | None:
    """Sweep of these depths with the largest sizes that the time allows; None if the sizes span less than a decade."""
    low = max(SMALLEST, math.exp(prior.crossing(*depths[:2])) / BELOW)
    first, last = math.log(low) + FEWEST_DECADES * math.log(10.0), math.log(LARGEST)

    def fits(ln_high: float) -> bool:
        try:
            return _seconds(_spec(device, hours, depths, low, math.exp(ln_high), overrides)) <= SHARE * 3600 * hours
        except InputError:  # two days, more than the longest run
            return False

    if not fits(first):
        return None
    for _ in range(18):
        middle = (first + last) / 2
        first, last = (middle, last) if fits(middle) else (first, middle)
    # two digits, rounded down: people read a spec
    digits = 10 ** (math.floor(first / math.log(10.0)) - 1)
    high = math.floor(math.exp(first) / digits) * digits
    spec = _spec(device, hours, depths, float(f"{low:.2g}"), high, overrides)
    shapes = {(run.shape.depth, run.shape.width) for run in build(spec).runs if run.action != DROP}
    errors = judge(prior, dict.fromkeys(shapes, frozenset(spec.grid.seed_values())), high)
    likely = sum((pair.power or 0.0) >= LIKELY for pair in errors.pairs)
    return Filled(spec, hours, _seconds(spec), (likely, -errors.rms_ln_depth))


def _spec(
    device: str, hours: float, depths: Sequence[int], low: float, high: float, overrides: Sequence[str] = ()
) -> Spec:
    return parse_spec(
        {
            "name": f"{device}-{hours:g}h",
            "grid": {
                **{"depths": list(depths), "budgets": {"from": low, "to": high, "count": SIZES}, "width_multiple": 4},
                **{"heads": {"count": 2}, "seeds": SEEDS, "learning_rates": [2.0e-3]},
            },
            "model": {"parametrization": "completep", "base_depth": 6, "base_width": 128},
            "data": {"source": "tfds:wikipedia/20230601.en", "vocab_size": 1000, "validation_fraction": 0.005},
            "train": {
                **{"seq_len": 128, "batch_size": 256, "tokens_per_param": TOKENS_PER_PARAM, "warmup_steps": 100},
                **{"schedule": "cosine", "precision": "bfloat16"},
            },
            "execution": {"device": device},
        },
        overrides,
    )


def _seconds(spec: Spec) -> float:
    seconds = build(spec).estimates.device_seconds
    if seconds is None:  # the table has the device
        raise InputError(f"train.precision: {spec.train.precision}; allowed: bfloat16, as in the table of devices")
    return seconds
