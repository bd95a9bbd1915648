"""Shapes one can build at a size: constraints, true counts, hardware multiples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.cost.devices import GIVEN, Device, find, suggestion
from dwsweep.cost.duration import ASSUMED
from dwsweep.errors import InputError, argument
from dwsweep.guide.answers import AT
from dwsweep.guide.losses import TrainingTokens
from dwsweep.shapes import (
    LARGEST_SIZE,
    MLP_RATIOS,
    STANDARD,
    BlockForm,
    HeadRule,
    Shape,
    are_other_blocks,
    attention_weights,
)

if TYPE_CHECKING:
    from dwsweep.guide.latency import Latency
    from dwsweep.records.fit import TrainedNets

BUDGET_TOLERANCE = 0.05  # largest excess over the budget; a smaller size has a price instead
SMALL = 3e6  # 12·L·d_x² below which nets have two heads, as in the published sweep
NARROW, MIDDLE, WIDE = 128, 512, 2048  # widths from which multiples of 8, 64 and 128 apply; of 4 below
HEAD_SIZES = (128, 96, 64)  # usual head sizes, tried in this order; in reverse below MIDDLE
WIDEST = 1 << 20  # largest width compared
INNER_OFF = 1.5  # most by which multiples may change the inner width
SPARSE = 2.0  # ratio of neighbouring widths above which odd numbers of heads count too
FARTHEST = 2.0  # factor from the budget beyond which shapes are not compared
MOST_DEVICES, LONGEST_COUNT = 1_000_000, 20  # LONGEST_COUNT: digits, since Python reads no number of thousands
LAYER_SECONDS = 20e-6  # ASSUMPTION: launches and waits per layer and decoded token
ATTENTION = 4.0  # weights over d² of attention whose heads have keys and values of their own
OF_BLOCKS = ("kv_heads", "mlp", "mlp_ratio")  # options that describe a block
OF_WIDTHS = ("head_size", "kv_heads", "mlp_ratio", "mlp_multiple", "tensor_parallel")
RANGES = {  # option → least and largest value, and their unit
    **dict.fromkeys(("vocab_size", "context", *OF_WIDTHS), (1, LARGEST_SIZE, "")),
    "mlp_ratio": (*MLP_RATIOS, ""),
    "layer_seconds": (0.0, 10.0, " seconds per layer, such as 0.67ms"),
    "tokens": (1e3, 1e18, ""),
    "tokens_per_param": (0.01, 1e6, ""),
}
OPTION_OF = {"shapes": "--shape", "project": "--export", "layer_seconds": "--layer-time"}


def named(name: str) -> str:
    """Name of an argument in a refusal: a keyword, or its option of the command."""
    return argument(name, OPTION_OF.get(name))


def matched(depth: int, n_params: float, options: Options) -> Shape:
    """Nearest shape to the budget at this depth, by its block weights."""
    widths, counts = options.widths.counts(depth)
    return options.shape(depth, int(widths[np.abs(counts - n_params).argmin()]))


def shapes_near(budget: float, low: float, high: float, options: Options) -> list[Shape]:
    """Shapes one can build for ``budget`` at depths from ``low`` to ``high``: of the ``lattice``, and those at which a
    width meets the budget. Each has the width nearest to it, at most BUDGET_TOLERANCE above it, or the narrowest.

    Raises:
        InputError: no net meets the constraints.
    """
    found = []
    for depth in sorted({*lattice(low, high), *options.widths.depths(budget, low, high)}):
        widths, counts = options.widths.counts(depth)
        at = int(np.abs(counts - budget).argmin())
        if counts[at] > (1 + BUDGET_TOLERANCE) * budget and at > 0:
            at -= 1
        if 1 / FARTHEST <= counts[at] / budget <= FARTHEST:
            found.append(options.shape(depth, int(widths[at])))
    return found


def lattice(low: float, high: float) -> list[int]:
    """Depths from ``low`` to ``high`` that are round by steps of 128."""
    return [depth for depth in range(max(1, math.floor(low)), max(1, math.ceil(high)) + 1) if is_round(depth, 128)]


VOCABULARY, CONTEXT = 50_257, 2048  # GPT-2's vocabulary and context
DEVICE = "H100"


@dataclass(frozen=True)
class Options:
    """Options: constraints on the shapes, and the assumptions of their costs; None: the usual value (README.md).

    tensor_parallel divides heads, key/value heads and inner width. at: the criterion by which a shape is recommended.
    device: a name, or with a count, ``H100:8``. layer_seconds: launches and waits per layer and decoded token; latency:
    measured, in place of it and of the device's rate of reading. own_block, idle: weights over d² of a layer of a fit's
    nets, where no block was asked for: those that a token uses, and those of other experts.
    """

    head_size: int | None = None
    kv_heads: int | None = None
    mlp: str = "plain"
    mlp_ratio: float | None = None  # None: 4, or 8/3 if gated, for 8·d_x² weights in both cases
    mlp_multiple: int | None = None
    vocab_size: int | None = None
    context: int | None = None
    tensor_parallel: int = 1
    at: str = AT[0]
    tokens: float | None = None
    tokens_per_param: float | None = None  # None: compute-optimal, by the fit or by Hoffmann et al. 2022
    device: str | None = None
    layer_seconds: float = LAYER_SECONDS
    latency: Latency | None = None
    own_block: float | None = None
    idle: float = 0.0

    def __post_init__(self) -> None:
        wrong = [
            f"{named(name)}: {value:.15g}; must be from {low:g} to {high:g}{unit}"
            for name, (low, high, unit) in RANGES.items()
            if (value := getattr(self, name)) is not None and not low <= value <= high
        ]
        for name, allowed in (("mlp", ("plain", "gated")), ("at", AT)):
            if (value := getattr(self, name)) not in allowed:
                wrong.append(f"{named(name)}: {value!r}; allowed: {', '.join(allowed)}")
        device = f"{named('device')}: {self.device_text[:40]!r}"
        if find(self.device_name) is None:
            wrong.append(f"{device} is not in the table; allowed: {suggestion(self.device_name)}, {GIVEN}")
        elif not 1 <= self.devices <= MOST_DEVICES:
            wrong.append(f"{device}; must be from 1 to {MOST_DEVICES:,} devices")
        if self.latency is not None and self.layer_seconds != LAYER_SECONDS:
            wrong.append(f"{named('latency')}, {named('layer_seconds')}: both given; allowed: one of them")
        kv, tensor = self.kv_heads, self.tensor_parallel
        if not wrong and kv is not None and kv % tensor and tensor % kv:
            wrong.append(
                f"{named('kv_heads')}: {kv}; must divide {named('tensor_parallel')} {tensor}, or be a multiple of it"
            )
        if wrong:
            raise InputError(*wrong)

    def for_nets(self, nets: TrainedNets | None) -> Options:
        """Options with the vocabulary, the context and the block of ``nets`` where none was given.

        Raises:
            InputError: the nets have fewer weights in a layer than attention has; or they have experts, and their share
            or weight is unknown, or a block was asked for.
        """
        if nets is None:
            return self
        same = replace(self, vocab_size=self.vocab_size or nets.vocab_size, context=self.context or nets.seq_len)
        weights, experts, used = nets.layer_weights, nets.experts or 1, nets.top_k
        asked = [name for name in OF_BLOCKS if name in self.given]
        if experts > 1:
            has = f"{named('fit')}: its nets have {experts} experts"
            if asked:
                said = f"asks for dense nets, and those of {named('fit')} have {experts} experts; allowed: one of them"
                raise InputError(f"{', '.join(map(named, asked))}: {said}")
            if used is None:
                raise InputError(f"{has}, and no column says how many a token passes; allowed: a table with top_k")
            if weights is None:
                raise InputError(f"{has}, and no one number of weights in a layer; allowed: a table with one block")
        elif weights is None or asked or not are_other_blocks(weights, STANDARD):
            return same
        if (inner := (weights - ATTENTION) / 2.0) < MLP_RATIOS[0]:
            raise InputError(
                f"{named('fit')}: its nets have {weights:.3g}·d² weights in a layer, fewer than attention of "
                f"{ATTENTION:g}·d²; allowed: {named('kv_heads')} and {named('mlp_ratio')} of these nets"
            )
        idle = 2.0 * inner * max(experts / (used or 1) - 1.0, 0.0)
        return replace(same, mlp_ratio=inner, own_block=weights, idle=idle)

    @property
    def trained(self) -> TrainingTokens:
        """Tokens of training."""
        return TrainingTokens(self.tokens, self.tokens_per_param)

    @property
    def vocabulary(self) -> int:
        return self.vocab_size or VOCABULARY

    @property
    def positions(self) -> int:
        return self.context or CONTEXT

    @property
    def filled(self) -> Options:
        """Options with the usual values in place of None."""
        return replace(self, vocab_size=self.vocabulary, context=self.positions, device=self.device_text)

    @property
    def training_rate(self) -> str:
        """Device of the training times, and the origin of its rate."""
        return f"one {self.device_name}, rate {ASSUMED}"

    @property
    def found_device(self) -> Device:
        device = find(self.device_name)
        assert device is not None
        return device

    @property
    def device_text(self) -> str:
        return str(self.device or DEVICE)

    @property
    def device_name(self) -> str:
        name, colon, count = self.device_text.rpartition(":")
        return name if colon and count.isdigit() else self.device_text

    @property
    def devices(self) -> int:
        """Number of devices."""
        return int(self.device_text[len(self.device_name) + 1 :][:LONGEST_COUNT] or 1)

    @property
    def given(self) -> list[str]:
        """Names of the options that differ from their defaults and matter only for shapes."""
        apart = (one for one in fields(self) if one.name not in ("tokens", "tokens_per_param", "device"))
        return [one.name for one in apart if getattr(self, one.name) != one.default]

    @property
    def together(self) -> int:
        """Divisor of the number of heads."""
        return math.lcm(self.tensor_parallel, self.kv_heads or 1)

    @cached_property
    def widths(self) -> Widths:
        """Widths that one can build.

        Raises:
            InputError: no width meets the options.
        """
        if self.head_size is not None:
            every = small = self._widths_of([self.head_size])
        else:
            every = self._widths_of(HEAD_SIZES)
            least = math.lcm(4, 2 * math.lcm(2, self.together))
            widest = math.floor(math.sqrt(SMALL / 12))
            small = [width for width in range(least, 1 + widest, least) if width % min(step(width), 8) == 0]
        which = [*((width, True) for width in small), *((width, False) for width in every)]
        blocks = [(width, few, self.block(width, few)) for width, few in which]
        blocks = [one for one in blocks if _in_proportion(one[0], one[2])]
        if all(few for _, few, _ in blocks):
            limits = ((name, getattr(self, name)) for name in OF_WIDTHS)
            asked = ", ".join(f"{named(name)}: {value:,}" for name, value in limits if value not in (None, 1))
            raise InputError(
                f"{asked}; no width up to {WIDEST:,} has such heads and an inner width near the requested one; change "
                f"or leave out one of these"
            )
        layer = [float(block.shape(1, width).n_params) for width, _, block in blocks]
        width, few, _ = zip(*blocks, strict=True)
        return Widths(np.array(width), np.array(few), np.array(layer))

    def _widths_of(self, head_sizes: Iterable[int]) -> list[int]:
        """Widths as multiples of head sizes: round numbers of heads, or any number if round ones lie far apart."""
        every, rounded = set[int](), set[int]()
        for size in head_sizes:
            for count in range(self.together, WIDEST // size + 1, self.together):
                width = size * count
                if is_round(count, 512) and width % step(width) == 0:
                    every.add(width)
                    if is_round(count):
                        rounded.add(width)
        wide = [MIDDLE, *sorted(width for width in rounded if MIDDLE <= width <= 16 * WIDE)]
        return sorted(every if len(wide) < 2 or max(b / a for a, b in pairwise(wide)) > SPARSE else rounded)

    def head_rule(self, width: int, small: bool) -> HeadRule:
        """Heads of a net this wide: a round number if possible."""
        if self.head_size is not None:
            return HeadRule(size=self.head_size)
        sizes = HEAD_SIZES if width >= MIDDLE else HEAD_SIZES[::-1]
        whole = [size for size in sizes if not small and width % size == 0]
        if fitting := [size for size in whole if width % (size * self.together) == 0] or whole:
            return HeadRule(size=next((size for size in fitting if is_round(width // size)), fitting[0]))
        return HeadRule(count=math.lcm(2 - width % 2, self.together))  # a judged shape may have an odd width

    def shape(self, depth: int, width: int) -> Shape:
        """Shape with these options.

        Raises:
            ValueError: the heads do not fit the width.
        """
        return self.block(width, 12.0 * depth * width**2 < SMALL).shape(depth, width)

    def layer_weights(self, n_params: float, depth: float) -> float:
        """Weights of a layer over d_x² of nets of about this size, without the rounding of inner widths."""
        gated = self.mlp == "gated"
        mlp = 8.0 if self.mlp_ratio is None else (3.0 if gated else 2.0) * self.mlp_ratio
        if self.kv_heads is None:
            return 4.0 + mlp
        near = matched(max(1, round(depth)), n_params, self)
        return attention_weights(near.width, near.heads, near.head_size, near.kv_heads) / near.width**2 + mlp

    def block(self, width: int, small: bool = False) -> BlockForm:
        """Block of a net this wide. small: for nets of fewer than SMALL parameters."""
        rule = self.head_rule(width, small)
        gated = self.mlp == "gated"
        multiple = self.mlp_multiple or (256 if width >= WIDE else 64 if width >= MIDDLE else 8 if gated else 1)
        return BlockForm(
            rule,
            self.vocabulary,
            self.positions,
            mlp_ratio=self.mlp_ratio or (8 / 3 if gated else 4.0),
            kv_heads=self.kv_heads,
            mlp="gated" if gated else "plain",
            positions="rotary" if rule.size and rule.size % 2 == 0 else "sinusoidal",
            biases=False,
            # the part of each rank is round
            mlp_multiple=math.lcm(multiple, (8 if width >= MIDDLE or gated else 1) * self.tensor_parallel),
        )


def _in_proportion(width: int, block: BlockForm) -> bool:
    """Test that multiples change the inner width by little."""
    asked = block.mlp_ratio * width
    inner = block.mlp_multiple * max(1, round(asked / block.mlp_multiple)) / asked
    return 1 / INNER_OFF <= inner <= INNER_OFF


def step(width: int) -> int:
    """Divisor of a width of this size."""
    return 128 if width >= WIDE else 64 if width >= MIDDLE else 8 if width >= NARROW else 4


def is_round(number: int, fine: int = 16) -> bool:
    """Test of a round number: any up to ``fine``, a power of two; even up to 2·``fine``, multiples of 4 up to
    4·``fine``, and so on. Usual numbers of heads are round by 16."""
    return number <= fine or number % ((1 << (number - 1).bit_length()) // fine) == 0


@dataclass(frozen=True)
class Widths:
    """Buildable widths (K,) with the weights of a layer (K,). small: for nets of fewer than SMALL parameters, or for
    all others."""

    width: np.ndarray
    small: np.ndarray
    layer: np.ndarray

    def counts(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Widths and the size of a net of this depth at each of them, rising."""
        kept = self.small == (12.0 * depth * self.width**2 < SMALL)
        return self.width[kept], depth * self.layer[kept]

    def depths(self, budget: float, low: float, high: float) -> set[int]:
        """Depths from ``low`` to ``high`` at which a width comes nearest to the budget."""
        depths = np.maximum(1, np.round(budget / self.layer))
        return {int(depth) for depth in depths[(depths >= low) & (depths <= high)]}
