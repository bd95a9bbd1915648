"""What the shapes of a guide must satisfy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dwsweep.cost.devices import Device, find, suggestion
from dwsweep.cost.duration import Calibration
from dwsweep.errors import InputError, argument
from dwsweep.guide.answers import CONSTRAINTS
from dwsweep.records.fit_result import LARGEST_SIZE, TrainedNets
from dwsweep.shapes import MLP_RATIOS, Block, HeadRule, Shape

VOCABULARY, CONTEXT = 50_257, 2048  # of GPT-2


@dataclass(frozen=True)
class Options:
    """What the shapes must satisfy, and how they are costed.

    width_multiple: of d_x; None: 128 from 1e9 parameters on, 64 from 1e8, else 8. head_size: None: 128 from 3e9 on,
    64 from 3e7, else two heads.
    tensor_parallel divides heads (and key/value heads), pipeline_parallel divides depth. total: the budget counts
    everything, embeddings included. context: positions in training and in the cache of a decoding step. at: the
    constraint under which a shape is recommended: equal size, flops or time. tokens: of training. vocab_size, context:
    None: those of the nets of the fit that guides (``for_nets``), else ``VOCABULARY`` and ``CONTEXT``.
    """

    width_multiple: int | None = None
    head_size: int | None = None
    kv_heads: int | None = None
    mlp: str = "plain"
    mlp_ratio: float | None = None  # None: 4, or 8/3 if gated, which keeps 8·d_x² weights
    vocab_size: int | None = None
    tied_embeddings: bool = False
    context: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    total: bool = False
    at: str = "size"
    tokens: float | None = None
    device: str = "H100"
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        sizes = (
            "width_multiple",
            "head_size",
            "kv_heads",
            "vocab_size",
            "context",
            "tensor_parallel",
            "pipeline_parallel",
        )
        wrong = [
            f"{argument(name)}: {getattr(self, name)}; must be at least 1 and at most {LARGEST_SIZE:g}"
            for name in sizes
            if getattr(self, name) is not None and not 1 <= getattr(self, name) <= LARGEST_SIZE
        ]
        if self.mlp not in ("plain", "gated"):
            wrong.append(f"{argument('mlp')}: {self.mlp!r}; allowed: plain, gated")
        if self.mlp_ratio is not None and not MLP_RATIOS[0] <= self.mlp_ratio <= MLP_RATIOS[1]:
            wrong.append(
                f"{argument('mlp_ratio')}: {self.mlp_ratio}; must be from {MLP_RATIOS[0]:g} to {MLP_RATIOS[1]:g}"
            )
        if find(self.device) is None:
            wrong.append(
                f"{argument('device')}: {self.device!r} is not in the table; allowed: {suggestion(self.device)}"
            )
        if self.at not in CONSTRAINTS:
            wrong.append(f"{argument('at')}: {self.at!r}; allowed: {', '.join(CONSTRAINTS)}")
        if self.tokens is not None and not 1e3 <= self.tokens <= 1e18:
            wrong.append(f"{argument('tokens')}: {self.tokens:g}; must be from 1e3 to 1e18")
        kv, tensor = self.kv_heads, self.tensor_parallel
        if not wrong and kv is not None and kv % tensor and tensor % kv:
            wrong.append(
                f"{argument('kv_heads')}: {kv}; must divide {argument('tensor_parallel')} {tensor}, "
                "or be a multiple of it"
            )
        if wrong:
            raise InputError(*wrong)

    def for_nets(self, nets: TrainedNets) -> Options:
        """With the vocabulary and the context of ``nets`` where none was asked for."""
        return replace(self, vocab_size=self.vocab_size or nets.vocab_size, context=self.context or nets.seq_len)

    @property
    def vocabulary(self) -> int:
        return self.vocab_size or VOCABULARY

    @property
    def positions(self) -> int:
        return self.context or CONTEXT

    @property
    def found_device(self) -> Device:
        device = find(self.device)
        assert device is not None
        return device

    def head(self, n_params: float) -> int | None:
        """Head size at this size; None: two heads, as in the published sweep."""
        if self.head_size is not None:
            return self.head_size
        return 128 if n_params >= 3e9 else 64 if n_params >= 3e7 else None

    def step(self, n_params: float) -> int:
        """The multiple of widths that satisfies everything asked for."""
        head = self.head(n_params)
        default = 128 if n_params >= 1e9 else 64 if n_params >= 1e8 else 8
        heads = math.lcm(self.tensor_parallel, self.kv_heads or 1)
        # two heads, or as many as the parallelism asks for, each of an even size, which rotary positions need
        return math.lcm(self.width_multiple or default, head * heads if head else 2 * math.lcm(2, heads))

    def refusal(self, shape: Shape) -> str:
        """Which of the options a shape does not meet, empty if none."""
        tensor, kv = self.tensor_parallel, shape.kv_heads
        if shape.heads % tensor:
            return f"{shape.heads} heads are no multiple of {argument('tensor_parallel')} {tensor}"
        if self.kv_heads is not None and kv % tensor and tensor % kv:
            return f"{kv} key/value heads do not go with {argument('tensor_parallel')} {tensor}"
        if shape.depth % self.pipeline_parallel:
            return f"{shape.depth} layers are no multiple of {argument('pipeline_parallel')} {self.pipeline_parallel}"
        if self.width_multiple is not None and shape.width % self.width_multiple:
            return f"the width {shape.width} is no multiple of {argument('width_multiple')} {self.width_multiple}"
        return ""

    def shape(self, depth: int, width: int, n_params: float | None = None) -> Shape:
        """The shape with these options, for a net of about ``n_params`` (default: 12·L·d_x² of the shape itself).

        With key/value heads the count depends on the head size, which is then always that of the shape's own size, so
        that one shape has one count whatever it was found for.

        Raises:
            ValueError: heads that do not fit the width.
        """
        own = 12.0 * depth * width**2
        return self.block(own if n_params is None or self.kv_heads is not None else n_params).shape(depth, width)

    def block(self, n_params: float) -> Block:
        head = self.head(n_params)
        ratio = self.mlp_ratio or (8 / 3 if self.mlp == "gated" else 4.0)
        rule = HeadRule(size=head) if head else HeadRule(count=math.lcm(2, self.tensor_parallel, self.kv_heads or 1))
        return Block(
            rule,
            self.vocabulary,
            self.positions,
            mlp_ratio=ratio,
            kv_heads=self.kv_heads,
            mlp=self.mlp,
            positions="rotary" if head and head % 2 == 0 else "sinusoidal",
            tied_embeddings=self.tied_embeddings,
            biases=False,
            mlp_multiple=math.lcm(8 if self.mlp == "gated" else 1, self.tensor_parallel),
        )
