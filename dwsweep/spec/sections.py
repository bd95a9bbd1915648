"""Sections of a spec: one frozen, validated model for each; and the blocks that ``model.preset`` names.

The description of a field is the reference of its key.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from dwsweep import numerals
from dwsweep.shapes import ROPE_THETA, BlockForm, HeadCount, HeadRule, PositiveFloat, Proportions, Width
from dwsweep.spec.bounded_yaml import dump_yaml
from dwsweep.spec.vocabulary import vocabulary

Preset = Literal["gpt2", "llama", "qwen3", "nanochat"]
_LLAMA = {
    **{"norm": "pre", "norm_type": "rmsnorm", "activation": "silu", "mlp": "gated", "mlp_ratio": 8 / 3},
    **{"mlp_multiple": 8, "positions": "rotary", "rope_theta": ROPE_THETA, "biases": False},
}
PRESETS: dict[str, dict[str, Any]] = {
    "gpt2": {
        **{"norm": "pre", "norm_type": "layernorm", "activation": "gelu", "mlp": "plain", "mlp_ratio": 4.0},
        **{"positions": "learned", "biases": True},
    },
    "llama": _LLAMA,
    "qwen3": {**_LLAMA, "rope_theta": 1.0e6, "qk_norm": True},
    "nanochat": {
        **{"norm": "pre", "norm_type": "rmsnorm", "activation": "relu2", "mlp": "plain", "mlp_ratio": 4.0},
        **{"positions": "rotary", "rope_theta": ROPE_THETA, "qk_norm": True, "logit_softcap": 15.0, "biases": False},
    },
}
"""Blocks of known model families, in the keys of a spec. The sweep chooses heads, their groups, the embeddings (tied in
small models of a family, free in large ones) and the parametrization. Norms have gains here; nanochat's have none.
"""
PRESET_KEYS = frozenset(name for values in PRESETS.values() for name in values)


# bounds: beyond any model trained or planned, and within the range of floats and of a device's int32
MAX_STEPS = 2**31 - 1
Positive = Annotated[int, Field(gt=0, le=10**12)]
Depth = Annotated[int, Field(gt=0, le=10_000)]
Budget = Annotated[float, Field(ge=100, le=1e15, allow_inf_nan=False)]  # n_params
Tokens = Annotated[float, Field(ge=1, le=1e18, allow_inf_nan=False)]
Flops = Annotated[float, Field(ge=1, le=1e30, allow_inf_nan=False)]
Sequences = Annotated[int, Field(gt=0, le=100_000_000)]
Steps = Annotated[int, Field(gt=0, le=MAX_STEPS)]
LearningRate = Annotated[float, Field(ge=1e-12, le=1e6, allow_inf_nan=False)]
Devices = Annotated[int, Field(gt=0, le=1_000_000)]
Processes = Annotated[int, Field(gt=0, le=10_000)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

LENGTHS = ("steps", "tokens", "tokens_per_param", "flops")  # `train` has one of them

# forms of data.source
SOURCE_FORMS = (
    *("stdlib-docs", "tfds:NAME[/CONFIG]", "wikidump:PATH"),
    *("text:GLOB", "jsonl:GLOB", "parquet:GLOB", "hf:NAME[/CONFIG][@SPLIT]"),
)
SOURCES_WITH_FIELDS = ("jsonl", "parquet", "tfds", "hf")  # which ``text_field`` may name one of


class Section(BaseModel):
    """Part of a spec. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    retired: ClassVar[dict[str, tuple[Any, str]]] = {}
    """Removed keys: the default that earlier versions wrote into every spec.yaml, and what to use instead."""

    def counting(self, oldest: Collection[str], left_out: Collection[str]) -> dict[str, Any]:
        """Keys for a hash, but for those ``left_out``. A key that is not among the ``oldest`` counts only with a value
        other than its default, which means what there was before the key: earlier hashes stay."""
        kept = {
            key
            for key, field in type(self).model_fields.items()
            if key not in left_out
            and (key in oldest or getattr(self, key) != field.get_default(call_default_factory=True))
        }
        return self.model_dump(mode="json", include=kept)

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, content: Any) -> Any:
        if isinstance(content, dict) and any(content.get(name, ...) == cls.retired[name][0] for name in cls.retired):
            return {k: v for k, v in content.items() if k not in cls.retired or v != cls.retired[k][0]}
        return content

    @field_validator("*", mode="before")
    @classmethod
    def _as_people_write_it(cls, value: Any, info: ValidationInfo) -> Any:
        """Numerals as numbers: for ``tokens: 2.1B`` YAML returns a text; for ``yes`` it returns true,
        which would pass for 1."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        parts = set(parts_of(annotation))
        if isinstance(value, str) and "\0" in value:
            raise ValueError("must not hold a null character, which no path can")
        is_true = any(isinstance(item, bool) for item in (value if isinstance(value, list) else [value]))
        # a Literal's validator lists the allowed values itself
        if is_true and bool not in (annotation, *get_args(annotation)) and get_origin(annotation) is not Literal:
            raise ValueError("must not be true or false, which only switches are")
        return _read_numerals(value) if parts & {int, float} and not parts & {str, Any} else value


def _read_numerals(value: Any) -> Any:
    """Value with each numeral in it as a number: ``1.63M``, ``[2B, "1,234,567"]``."""
    if isinstance(value, str):
        found = numerals.number(value)
        return value if found is None else found
    if isinstance(value, list):
        return [_read_numerals(item) for item in value]
    return {key: _read_numerals(item) for key, item in value.items()} if isinstance(value, dict) else value


def section_in(annotation: Any) -> type[BaseModel] | None:
    """Section that a field of this type holds or may hold."""
    return next((part for part in parts_of(annotation) if isinstance(part, type) and issubclass(part, BaseModel)), None)


def parts_of(annotation: Any) -> Iterator[Any]:
    """Type and all types inside it."""
    yield annotation
    for part in get_args(annotation):
        yield from parts_of(part)


class BudgetRange(Section):
    """Log-spaced budgets: ``count`` values between ``from`` and ``to``, ends included."""

    start: Budget = Field(alias="from")
    stop: Budget = Field(alias="to")
    count: Annotated[int, Field(ge=2, le=1000)]

    @model_validator(mode="after")
    def _ordered(self) -> BudgetRange:
        if self.stop <= self.start:
            raise ValueError(f"`to` {self.stop:g} must be greater than `from` {self.start:g}")
        return self

    def values(self) -> list[float]:
        ratio = math.log(self.stop / self.start) / (self.count - 1)
        return [self.start * math.exp(ratio * k) for k in range(self.count)]


# choose a union's branch by the value's form before validation, so that an error names the meant branch
Budgets = Annotated[
    Annotated[list[Budget], Tag("|list")] | Annotated[BudgetRange, Tag("|range")],
    Discriminator(lambda value: "|range" if isinstance(value, dict | BudgetRange) else "|list"),
]
Seeds = Annotated[
    Annotated[Annotated[int, Field(gt=0, le=10_000)], Tag("|count")]
    | Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Tag("|list")],  # limit of an int32 on the device
    Discriminator(lambda value: "|list" if isinstance(value, list) else "|count"),
]


class Heads(Section):
    """Heads by ``count``, ``size``, or both: with both the head size is independent of d_x / H."""

    count: HeadCount | None = None
    size: Annotated[int, Field(gt=0, le=100_000)] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Heads:
        if self.count is None and self.size is None:
            raise ValueError("give `count` or `size`, or both")
        return self

    def rule(self) -> HeadRule:
        return HeadRule(self.count, self.size)


HeadRules = Annotated[
    Annotated[list[Heads], Tag("|list")] | Annotated[Heads, Tag("|rule")],
    Discriminator(lambda value: "|list" if isinstance(value, list) else "|rule"),
]


class Grid(Section):
    depths: list[Depth] = Field(default_factory=list, description="numbers of layers L")
    budgets: Budgets | None = Field(
        default=None, description="target numbers of non-embedding parameters, 12·L·d_x² in a standard block"
    )
    widths: dict[Depth, list[Width]] | None = Field(
        default=None, description="explicit widths per depth, instead of budgets"
    )
    width_multiple: Width = Field(default=4, description="divisor of all widths")
    max_mismatch: PositiveFloat = Field(default=0.10, description="largest |n_params / budget - 1| without a warning")
    strict_budgets: bool = Field(default=False, description="DROP shapes beyond max_mismatch instead of warning")
    heads: HeadRules = Field(
        default=Heads(count=2),
        description="`{count: N}`, `{size: P}`, or both (head size independent of d_x / H); a list is an axis",
    )
    seeds: Seeds = Field(default=3, description="number of seeds (0, 1, …), or a list of them")
    learning_rates: list[LearningRate] = Field(
        default=[1.0e-3], description="base rates, an axis of the sweep; `fit` takes the best one per shape"
    )
    arms: list[dict[str, Any]] | None = Field(
        default=None,
        description="recipes to compare: the keys that each recipe sets, such as `[{}, {model.mlp: gated}]`",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Grid:
        if self.widths is not None:
            if self.budgets is not None:
                raise ValueError("give `budgets` or `widths`, not both")
            unlisted = sorted(set(self.widths) ^ set(self.depths)) if self.depths else []
            if unlisted:
                raise ValueError(f"`depths` and the keys of `widths` differ at {unlisted}; leave `depths` out")
            if not self.widths or not all(self.widths.values()):
                raise ValueError("every depth in `widths` needs at least one width")
        elif self.budgets is None:
            raise ValueError("give `depths` with `budgets`, or `widths`")
        elif not self.depths:
            raise ValueError("`depths` is empty; give at least one depth")
        for name in ("depths", "learning_rates", "seeds", "budgets", "heads"):
            values = getattr(self, name) if name != "heads" else [str(rule) for rule in self.head_rules()]
            if isinstance(values, list) and len(set(values)) != len(values):
                raise ValueError(f"`{name}` has a value twice: {values}")
            if values == [] and name != "depths":  # these values may follow from the widths
                raise ValueError(f"`{name}` is empty; give at least one")
        return self

    def budget_values(self) -> list[float]:
        if isinstance(self.budgets, BudgetRange):
            return self.budgets.values()
        return list(self.budgets or [])

    def seed_values(self) -> list[int]:
        return self.seeds if isinstance(self.seeds, list) else list(range(self.seeds))

    def head_rules(self) -> list[HeadRule]:
        """Rules for the heads: a single one, or several as an axis of the sweep."""
        return [heads.rule() for heads in (self.heads if isinstance(self.heads, list) else [self.heads])]

    def depth_values(self) -> list[int]:
        return sorted(self.widths) if self.widths else sorted(self.depths)


class ModelSpec(Section, Proportions):  # type: ignore[misc]  # pydantic freezes it too
    preset: Preset | None = Field(
        default=None, description="the block of a known family: values of the keys above; a key that is given wins"
    )
    parametrization: Literal["standard", "mup", "completep"] = Field(
        default="completep", description="rule for learning rates and initial values by depth and width"
    )
    base_depth: Depth = Field(default=2, description="depth at which the learning rate is the base rate")
    base_width: Width = Field(default=64, description="width at which the learning rate is the base rate")

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, given: Any) -> Any:
        """Merge given keys over the values of the preset."""
        name = given.get("preset") if isinstance(given, dict) else None
        return PRESETS[name] | given if isinstance(name, str) and name in PRESETS else given


def source_of(text: str) -> str:
    """``data.source`` for a source, or for a path or pattern whose ending names its form; text by default."""
    if text.partition(":")[0] in {form.partition(":")[0] for form in SOURCE_FORMS}:
        return text
    ending = re.sub(r"\.(gz|bz2|xz|zst)$", "", text.lower()).rpartition(".")[2]
    forms = {"jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet", "xml": "wikidump"}
    return f"{forms.get(ending, 'text')}:{text}"


class DataSpec(Section):
    source: str = Field(default="stdlib-docs", description=f"{' | '.join(SOURCE_FORMS)}; the text to train on")
    tokenizer: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="in place of a trained one: file or folder of a SentencePiece model or tokenizer.json, or `bytes`",
    )
    vocab_size: int = Field(
        default=1000,
        ge=256,
        le=1_000_000,
        description="vocabulary of the trained BPE tokenizer; given by data.tokenizer if that is set",
    )
    validation_fraction: float = Field(default=0.02, gt=0, lt=1, description="share of held-out documents")
    text_field: str | None = Field(
        default=None,
        description="name of the field with the text in jsonl, parquet, tfds and hf sources; None: found by its name",
    )
    tokenizer_sample_bytes: int = Field(
        default=10_000_000, ge=10_000, le=10**12, description="amount of text the tokenizer is trained on"
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of the tokenizer's sample")
    cache_dir: str | None = Field(
        default=None, description="local folder of prepared text, not hashed; None: $DWSWEEP_CACHE or ~/.cache/dwsweep"
    )
    workers: Processes | None = Field(default=None, description="not hashed; processes of `prepare`; None: all cores")

    @model_validator(mode="before")
    @classmethod
    def _vocabulary_of_tokenizer(cls, given: Any) -> Any:
        """Fill in vocab_size from the tokenizer's file; a written spec has vocab_size and needs no file."""
        tokenizer = given.get("tokenizer") if isinstance(given, dict) else None
        if not isinstance(tokenizer, str) or not tokenizer or given.get("vocab_size") is not None:
            return given
        try:
            return {**given, "vocab_size": vocabulary(tokenizer)}
        except ValueError as error:
            why = PydanticCustomError("tokenizer", "{why}", {"why": str(error)})
            fault = InitErrorDetails(type=why, loc=("tokenizer",), input=tokenizer)
            raise ValidationError.from_exception_data(cls.__name__, [fault]) from None

    @field_validator("source")
    @classmethod
    def _known_form(cls, value: str) -> str:
        """Check the form of the source alone, so that `plan` refuses a wrong one; opening the source finds whether it
        exists."""
        kind, colon, rest = value.partition(":")
        if kind == "wikiextractor":
            raise ValueError("removed in this version; `jsonl:GLOB` reads what WikiExtractor writes with --json")
        forms = dict(form.partition(":")[::2] for form in SOURCE_FORMS)
        if kind not in forms or bool(colon) != bool(forms[kind]) or bool(rest.strip()) != bool(forms[kind]):
            near = difflib.get_close_matches(kind, forms, n=1, cutoff=0.6) if kind not in forms else []
            hint = "".join(f"did you mean {form}? " for form in SOURCE_FORMS if [form.partition(":")[0]] == near)
            raise ValueError(f"{hint}must be one of {', '.join(SOURCE_FORMS)} (PATH and GLOB local or gs://)")
        return value


@dataclass(frozen=True)
class OptimizerFacts:
    """Facts of an optimizer that a plan needs; ``train.optimizer.CHAINS`` implements it.

    block_moments, other_moments: values kept between steps per weight of the blocks' matrices, per other parameter.
    orthogonal: a matrix of the blocks is updated as a whole, by one spectral norm at every width, where Adam updates
    element by element, by a norm that grows with the width.
    settings: keys of ``train`` for this optimizer only.
    """

    block_moments: int = 2
    other_moments: int = 2
    orthogonal: bool = False
    settings: tuple[str, ...] = ()


OPTIMIZERS = {"adamw": OptimizerFacts(), "muon": OptimizerFacts(1, orthogonal=True, settings=("momentum",))}


class TrainSpec(Section):
    retired = {
        "seconds": (None, "set train.steps, tokens or flops; `fit` answers at equal wall time from measured seconds")
    }
    seq_len: int = Field(default=128, ge=2, le=100_000_000, description="positions of a sequence")
    batch_size: Sequences = Field(default=16, description="sequences per step")
    steps: Steps | None = Field(
        default=None,
        description="length of a run in steps; give one of steps, tokens, tokens_per_param, flops",
    )
    tokens: Tokens | None = Field(default=None, description="length of a run in tokens")
    tokens_per_param: Annotated[PositiveFloat, Field(ge=1e-6)] | None = Field(
        default=None, description="length of a run in tokens per non-embedding parameter"
    )
    flops: Flops | None = Field(
        default=None, description="FLOPs of a run, attention and unembedding counted; its tokens follow from its shape"
    )
    token_branches: list[Tokens] = Field(
        default_factory=list, description="wsd: cool down at these token counts too, as runs of their own"
    )
    optimizer: Literal["adamw", "muon"] = Field(
        default="adamw", description="optimizer; muon: the matrices of the blocks, the rest by adamw"
    )
    momentum: Fraction = Field(default=0.95, description="momentum of Muon")
    betas: tuple[Fraction, Fraction] = Field(default=(0.9, 0.95), description="betas of Adam")
    epsilon: PositiveFloat = Field(default=1e-8, ge=1e-30, description="epsilon of Adam")
    weight_decay: float = Field(default=0.1, ge=0, le=1e6, allow_inf_nan=False, description="decoupled weight decay")
    grad_clip: Annotated[PositiveFloat, Field(ge=1e-12)] | None = Field(
        default=1.0, description="global norm to which gradients are clipped; None: off"
    )
    schedule: Literal["cosine", "wsd", "constant"] = Field(
        default="cosine", description="schedule of the learning rate"
    )
    warmup_steps: int = Field(default=0, ge=0, le=MAX_STEPS, description="steps of linear warm-up from zero")
    cooldown_fraction: float = Field(
        default=0.2,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="wsd: last part of the steps, in which the rate falls linearly to zero",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32", description="precision of the matrix products; everything else is float32"
    )
    eval_tokens: Positive | None = Field(default=None, description="held-out tokens used; None: all of them")
    conditioning: bool = Field(
        default=False, description="log the condition number of each block's attention to metrics.jsonl; not hashed"
    )

    @model_validator(mode="after")
    def _length(self) -> TrainSpec:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(LENGTHS)}; given: {', '.join(given) or 'none'}")
        if self.token_branches and self.schedule != "wsd":
            raise ValueError(f"token_branches need `schedule: wsd` (a constant trunk); schedule is {self.schedule}")
        return self


class MeshSpec(Section):
    """Devices along each axis: packs of replicas, the batch, and the parameters with the batch (fully sharded)."""

    replica: Devices = Field(default=1, description="devices that share the replicas of a pack")
    data: Devices = Field(default=1, description="devices that share the batch")
    fsdp: Devices = Field(default=1, description="devices that share the batch and the parameters")


class ExecutionSpec(Section):
    """Execution of a sweep. No key here changes a result, and no key here is hashed."""

    retired = {"keep_finished_checkpoints": (False, "execution.keep_params keeps the parameters of finished runs")}
    max_retries: int = Field(default=2, ge=0, le=10**6, description="retries of a pack whose worker crashed")
    checkpoint_seconds: PositiveFloat = Field(default=120.0, description="seconds between two checkpoints")
    checkpoint_steps: Positive | None = Field(default=None, description="steps between two checkpoints")
    keep_checkpoints: Positive = Field(default=2, description="checkpoints kept of a pack while it trains")
    keep_params: Literal["none", "best", "all"] = Field(
        default="none",
        description="parameters kept of finished runs; best: of the lowest held-out loss in each pack and length",
    )
    log_steps: Positive = Field(default=10, description="steps between two lines of metrics.jsonl")
    microbatch: Positive | None = Field(
        default=None, description="sequences per forward pass; None: from the device's memory"
    )
    max_replicas: Positive | None = Field(
        default=None, description="replicas per pack; None: all seeds and learning rates of a shape"
    )
    workers: Processes | None = Field(
        default=None, description="worker processes on this host; None: one for all its devices"
    )
    data_on_device: bool | None = Field(
        default=None, description="hold the token store on the device; None: when it fits"
    )
    remat: bool = Field(default=False, description="recompute activations in the backward pass")
    unroll: Positive | None = Field(default=None, description="layers unrolled in the scan; None: by device and shape")
    attention: Literal["auto", "xla", "cudnn"] = Field(
        default="auto", description="kernel; auto: the faster one, as measured"
    )
    mesh: MeshSpec | None = Field(
        default=None, description="division of devices; None: by replicas, and within a large model; on a CPU by batch"
    )
    compile_ahead: bool | None = Field(
        default=None, description="compile the next pack while this one trains; None: on accelerators"
    )
    loggers: list[Literal["tensorboard", "wandb"]] = Field(
        default_factory=list, description="further destinations of metrics"
    )
    device: str | None = Field(
        default=None,
        description="name in the table of devices, for the estimates of `plan`",
    )


class Spec(Section):
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=100,
        description="name of the sweep; its directory is runs/NAME",
    )
    grid: Grid
    model: ModelSpec = ModelSpec()
    data: DataSpec = DataSpec()
    train: TrainSpec
    execution: ExecutionSpec = ExecutionSpec()

    def block(self, head_rule: HeadRule | None = None) -> BlockForm:
        """Block settings, which with depth and width determine a shape; heads by the first of ``grid.heads`` by
        default."""
        keys = {field.name: getattr(self.model, field.name) for field in fields(Proportions)}
        return BlockForm(head_rule or self.grid.head_rules()[0], self.data.vocab_size, self.train.seq_len, **keys)

    def to_yaml(self) -> str:
        return dump_yaml(self.model_dump(mode="json", by_alias=True))
