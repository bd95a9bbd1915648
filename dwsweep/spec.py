"""What a sweep spec may say: YAML → validated, frozen models. Unknown keys are errors with the nearest known name."""

from __future__ import annotations

import difflib
import math
from os import PathLike
from typing import Annotated, Any, Literal, get_args

import yaml
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

from dwsweep import paths, strict_yaml
from dwsweep.errors import InputError
from dwsweep.shapes import MLP_RATIOS, Block, HeadRule

# bounds: beyond any model that was trained or planned, and inside what floats, and int32 on a device, can count
MAX_STEPS = 2**31 - 1
Positive = Annotated[int, Field(gt=0, le=10**12)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Depth = Annotated[int, Field(gt=0, le=10_000)]
Width = Annotated[int, Field(gt=0, le=10_000_000)]
HeadCount = Annotated[int, Field(gt=0, le=10_000)]
MlpRatio = Annotated[float, Field(ge=MLP_RATIOS[0], le=MLP_RATIOS[1], allow_inf_nan=False)]
Budget = Annotated[float, Field(ge=100, le=1e15, allow_inf_nan=False)]  # n_params
Tokens = Annotated[float, Field(ge=1, le=1e18, allow_inf_nan=False)]
Sequences = Annotated[int, Field(gt=0, le=100_000_000)]
Steps = Annotated[int, Field(gt=0, le=MAX_STEPS)]
LearningRate = Annotated[float, Field(ge=1e-12, le=1e6, allow_inf_nan=False)]
Devices = Annotated[int, Field(gt=0, le=1_000_000)]
Processes = Annotated[int, Field(gt=0, le=10_000)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

# what data.source may be
SOURCE_FORMS = (
    *("stdlib-docs", "tfds:NAME[/CONFIG]", "wikidump:PATH", "wikiextractor:PATH"),
    *("text:GLOB", "jsonl:GLOB", "parquet:GLOB"),
)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_null_characters(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("must not hold a null character, which no path can")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads ``yes`` and ``on`` as true, and true would pass for the number 1."""
        held = value if isinstance(value, list) else [value]
        if any(isinstance(item, bool) for item in held):
            annotation = cls.model_fields[str(info.field_name)].annotation
            if annotation is not bool and bool not in get_args(annotation):
                raise ValueError("must not be true or false, which only switches are")
        return value


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


# a union is told apart by its form before it is validated, so that an error speaks of the branch that was meant
Budgets = Annotated[
    Annotated[list[Budget], Tag("|list")] | Annotated[BudgetRange, Tag("|range")],
    Discriminator(lambda value: "|range" if isinstance(value, dict | BudgetRange) else "|list"),
]
Seeds = Annotated[
    Annotated[Annotated[int, Field(gt=0, le=10_000)], Tag("|count")]
    | Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Tag("|list")],  # an int32 on the device
    Discriminator(lambda value: "|list" if isinstance(value, list) else "|count"),
]


class Heads(Section):
    """``count``, ``size``, or both: with both the head size stands apart from d_x / H."""

    count: HeadCount | None = None
    size: Annotated[int, Field(gt=0, le=100_000)] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Heads:
        if self.count is None and self.size is None:
            raise ValueError("give `count` or `size`, or both")
        return self


class Grid(Section):
    depths: list[Depth] = Field(default_factory=list)  # L, blocks
    budgets: Budgets | None = None  # target n_params
    widths: dict[Depth, list[Width]] | None = None  # explicit widths a depth, instead of budgets
    width_multiple: Width = 4
    max_mismatch: PositiveFloat = 0.10  # |n_params / budget - 1|
    strict_budgets: bool = False  # DROP beyond max_mismatch instead of warning
    heads: Heads = Heads(count=2)
    seeds: Seeds = 3  # how many (0, 1, …), or which
    learning_rates: list[LearningRate] = [1.0e-3]

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
        for name, values in (
            ("depths", self.depths),
            ("learning_rates", self.learning_rates),
            ("seeds", self.seeds if isinstance(self.seeds, list) else []),
            ("budgets", self.budgets if isinstance(self.budgets, list) else []),
        ):
            if len(set(values)) != len(values):
                raise ValueError(f"`{name}` has a value twice: {values}")
        for name, listed in (
            ("budgets", self.budgets),
            ("seeds", self.seeds),
            ("learning_rates", self.learning_rates),
        ):
            if listed == []:
                raise ValueError(f"`{name}` is empty; give at least one")
        return self

    def budget_values(self) -> list[float]:
        if isinstance(self.budgets, BudgetRange):
            return self.budgets.values()
        return list(self.budgets or [])

    def seed_values(self) -> list[int]:
        return self.seeds if isinstance(self.seeds, list) else list(range(self.seeds))

    def depth_values(self) -> list[int]:
        return sorted(self.widths) if self.widths else sorted(self.depths)


class ModelSpec(Section):
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["gelu", "relu"] = "gelu"
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    attention: Literal["softmax"] = "softmax"
    mlp: Literal["plain", "gated"] = "plain"
    mlp_ratio: MlpRatio = 4.0  # inner width of the MLP / d_x
    kv_heads: HeadCount | None = None  # grouped key/value heads; None: as many as query heads
    tied_embeddings: bool = False
    biases: bool = True  # on projections and norms
    parametrization: Literal["standard", "mup", "completep"] = "completep"
    base_depth: Depth = 2
    base_width: Width = 64


class DataSpec(Section):
    source: str = "stdlib-docs"
    vocab_size: Annotated[int, Field(ge=256, le=1_000_000)] = 1000
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.02
    text_field: str | None = None  # of jsonl, parquet and tfds sources; None: found by its name
    tokenizer_sample_bytes: Annotated[int, Field(ge=10_000, le=10**12)] = 10_000_000  # text the tokenizer is trained on
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0  # of the tokenizer's sample
    cache_dir: str | None = None  # not hashed; None: $DWSWEEP_CACHE or ~/.cache/dwsweep
    workers: Processes | None = None  # not hashed; processes of `prepare`; None: all cores

    @field_validator("source")
    @classmethod
    def _known_form(cls, value: str) -> str:
        """The form alone, so that `plan` refuses it too; whether anything is there is seen when it is opened."""
        kind, colon, rest = value.partition(":")
        forms = dict(form.partition(":")[::2] for form in SOURCE_FORMS)
        if kind not in forms or bool(colon) != bool(forms[kind]) or bool(rest.strip()) != bool(forms[kind]):
            raise ValueError(f"one of {', '.join(SOURCE_FORMS)} (PATH and GLOB local or gs://)")
        return value


class TrainSpec(Section):
    seq_len: Annotated[int, Field(ge=2, le=100_000_000)] = 128
    batch_size: Sequences = 16  # sequences a step
    steps: Steps | None = None  # give one of steps, tokens, tokens_per_param
    tokens: Tokens | None = None
    tokens_per_param: Annotated[PositiveFloat, Field(ge=1e-6)] | None = None  # of n_params
    token_branches: list[Tokens] = Field(default_factory=list)  # wsd: finished runs at these token counts too
    optimizer: Literal["adamw"] = "adamw"
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    epsilon: Annotated[PositiveFloat, Field(ge=1e-30)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.1
    grad_clip: Annotated[PositiveFloat, Field(ge=1e-12)] | None = 1.0  # global norm; None: off
    schedule: Literal["cosine", "wsd", "constant"] = "cosine"
    warmup_steps: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 0
    cooldown_fraction: Annotated[PositiveFloat, Field(le=1)] = 0.2  # wsd: last part of the steps, linear to zero
    precision: Literal["float32", "bfloat16"] = "float32"  # of the matrix products; everything else is float32
    eval_tokens: Positive | None = None  # held-out tokens used; None: all of them

    @model_validator(mode="after")
    def _length(self) -> TrainSpec:
        given = [name for name in ("steps", "tokens", "tokens_per_param") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of steps, tokens, tokens_per_param; given: {', '.join(given) or 'none'}"
            )
        if self.token_branches and self.schedule != "wsd":
            raise ValueError(f"token_branches need `schedule: wsd` (a constant trunk); schedule is {self.schedule}")
        return self


class MeshSpec(Section):
    """Devices along each axis: packs of replicas, the batch, and the parameters with the batch (fully sharded)."""

    replica: Devices = 1
    data: Devices = 1
    fsdp: Devices = 1


class ExecutionSpec(Section):
    """How a sweep is carried out. Nothing in here changes a result, and nothing in here is hashed."""

    max_retries: Annotated[int, Field(ge=0, le=10**6)] = 2  # of a pack whose worker crashed
    checkpoint_seconds: PositiveFloat = 120.0
    checkpoint_steps: Positive | None = None
    keep_checkpoints: Positive = 2  # of a pack while it trains
    keep_finished_checkpoints: bool = False  # of packs whose runs all have their result
    log_steps: Positive = 10  # steps between two lines of metrics.jsonl
    microbatch: Positive | None = None  # sequences a forward pass; None: from the device's memory
    max_replicas: Positive | None = None  # replicas a pack; None: all seeds and learning rates of a shape
    workers: Processes | None = None  # worker processes on this host; None: one for all its devices
    data_on_device: bool | None = None  # None: when it fits
    remat: bool = False
    unroll: Positive | None = None  # layers unrolled in the scan; None: by device and shape
    attention: Literal["auto", "xla", "cudnn"] = "auto"  # kernel; auto: the faster one, as measured
    mesh: MeshSpec | None = None  # None: by replicas, large models within themselves; a CPU's cores by batch
    compile_ahead: bool | None = None  # the next pack while this one trains; None: on accelerators
    loggers: list[Literal["tensorboard", "wandb"]] = Field(default_factory=list)
    device: str | None = None  # a name of the table of devices, for the estimates of `plan`


class Spec(Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    grid: Grid
    model: ModelSpec = ModelSpec()
    data: DataSpec = DataSpec()
    train: TrainSpec
    execution: ExecutionSpec = ExecutionSpec()

    def block(self) -> Block:
        """What fixes a shape beside depth and width."""
        return Block(
            head_rule=HeadRule(self.grid.heads.count, self.grid.heads.size),
            vocab_size=self.data.vocab_size,
            seq_len=self.train.seq_len,
            **self.model.model_dump(
                include={"mlp_ratio", "kv_heads", "norm", "activation", "mlp", "positions", "tied_embeddings", "biases"}
            ),
        )

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json", by_alias=True), sort_keys=False)


def load_spec(path: str | PathLike[str], overrides: list[str] | tuple[str, ...] = ()) -> Spec:
    """Read and validate a spec file; ``overrides`` are ``dotted.key=value`` with YAML values.

    Raises:
        InputError: the file is missing or no YAML mapping, or keys or values are wrong; all of them at once.
    """
    file = paths.as_path(path)
    try:
        with file.open("rb") as stream:
            raw = stream.read(strict_yaml.MAX_BYTES + 1)
        text = raw.decode()
    except FileNotFoundError:
        raise InputError(f"SPEC: {path} does not exist; give the path of a sweep spec (YAML)") from None
    except (OSError, ValueError) as error:
        raise InputError(f"SPEC: {path} cannot be read: {error}") from None
    if len(raw) > strict_yaml.MAX_BYTES:
        raise InputError(f"SPEC: {path} is larger than {strict_yaml.MAX_BYTES:,} bytes; give a sweep spec (YAML)")
    content = strict_yaml.load(text, f"SPEC: {path}")
    if content is None:
        raise InputError(f"SPEC: {path} is empty; allowed: a mapping with the keys {_keys(Spec)}")
    if not isinstance(content, dict):
        raise InputError(f"SPEC: {path} holds {type(content).__name__}; allowed: a mapping with the keys {_keys(Spec)}")
    for override in overrides:
        _apply(content, override)
    return parse_spec(content)


def parse_spec(content: dict[str, Any]) -> Spec:
    """Validate a mapping.

    Raises:
        InputError: one line for each wrong key or value.
    """
    try:
        return Spec.model_validate(content)
    except ValidationError as error:
        lines = dict.fromkeys(_describe(item) for item in error.errors())
        raise InputError(*lines) from None


def _apply(content: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator or not all(part.strip() for part in key.split(".")):
        raise InputError(f"--set: {override[:80]!r}; allowed: KEY=VALUE with a dotted key, such as train.steps=50")
    parsed = strict_yaml.load(value, f"--set {key}: {value[:40]!r}")
    *path, last = key.strip().split(".")
    node = content
    for part in path:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise InputError(f"--set {key}: {part!r} holds {_shown(child) or 'a value'}, not a section")
        node = child
    # the length of a run is given in one way: an override of one replaces the others
    lengths = ("steps", "tokens", "tokens_per_param")
    if path == ["train"] and last in lengths:
        for other in lengths:
            node.pop(other, None)
    if path == ["grid"] and last in ("budgets", "widths"):
        node.pop("widths" if last == "budgets" else "budgets", None)
    node[last] = parsed


def _describe(item: Any) -> str:
    """One line for one pydantic error: dotted key, value, what is allowed."""
    location = [part for part in item["loc"] if not _is_branch(part)]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".") or "spec"
    key = key if len(key) <= 120 else f"{key[:117]}…"
    kind, value = item["type"], item.get("input")
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean `{near[0]}`? " if near else ""
        return f"{key}: unknown key; {hint}allowed: {', '.join(known)}"
    if kind == "invalid_key":
        return f"{_shown(value)}: a key must be a name; allowed: {', '.join(_known_keys(location[:-1]))}"
    if kind == "missing":
        return f"{key}: missing; it has no default"
    message = str(item["msg"]).removeprefix("Value error, ")
    if kind in ("model_type", "dict_type"):
        section = _known_keys(location)
        message = f"must be a mapping{' with the keys ' + ', '.join(section) if section else ''}"
    message = message[0].lower() + message[1:]
    message = message.replace("input should", "must", 1)
    for bound in ("gt", "ge", "lt", "le"):
        limit = (item.get("ctx") or {}).get(bound)
        if isinstance(limit, int | float):  # pydantic writes 1e15 and 1e-30 out, zero by zero
            digits = f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"
            message = f"{message[: message.rindex(' ')]} {digits}"
    shown = "" if isinstance(value, dict | BaseModel) else _shown(value)
    return f"{key}: {shown}; {message}" if shown else f"{key}: {message}"


def _shown(value: Any) -> str:
    """The value as it was given; empty where that would fill the line."""
    try:
        shown = repr(value)
    except ValueError:  # an integer of thousands of digits
        return ""
    return shown if len(shown) <= 80 else ""


def _is_branch(part: Any) -> bool:
    """Whether pydantic put the name of a union's branch, or of a mapping's key, into the location."""
    return isinstance(part, str) and (part == "[key]" or part.startswith("|"))


def _section_at(location: list[Any]) -> type[BaseModel] | None:
    model: type[BaseModel] = Spec
    for part in location:
        if not isinstance(part, str):
            return None
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part not in fields:
            return None
        annotation = fields[part].annotation
        models = [o for o in _leaves(annotation) if isinstance(o, type) and issubclass(o, BaseModel)]
        if not models:
            return None
        model = models[0]
    return model


def _leaves(annotation: Any) -> list[Any]:
    """All types inside an annotation, unions and ``Annotated`` unwrapped."""
    inner = get_args(annotation)
    return [leaf for part in inner for leaf in _leaves(part)] if inner else [annotation]


def _known_keys(location: list[Any]) -> list[str]:
    section = _section_at(location)
    return [field.alias or name for name, field in section.model_fields.items()] if section else []


def _keys(section: type[BaseModel]) -> str:
    return ", ".join(section.model_fields)
