"""Reading of a spec: YAML, overrides of the command line, and one line per error.

YAML as a spec may use it: plain values, every key once, and bounded in what it can unfold to. Numbers are those of YAML
1.2 (``yaml_numbers``).

Arms of a sweep: recipes that are compared over one grid. Each is a mapping of dotted keys of the spec onto values.

    grid:
      arms: [{}, {model.mlp: gated}, {name: modern, model.mlp: gated, model.positions: rotary}]

An arm is the spec with its keys set: `{}` is the spec as it stands. A reader puts every key that differs from it beside
those that were given (a preset is many), so that a written spec says the same without the code that made it.

The specs that come with the package, by name: from the clone's ``sweeps``, or from where pip put them.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.spec import yaml_numbers
from dwsweep.spec.sections import LENGTHS, PRESET_KEYS, Spec, section_in

SPEC_FILE = "spec.yaml"  # of a sweep directory
MAX_BYTES = 4_000_000
MAX_DEPTH = 50
MAX_VALUES = 100_000  # with every alias counted as often as it is used
NEAR = 0.7  # likeness of two names of files, from which on one is suggested
# keys by the names that other tools give them
OTHER_NAMES = {
    **dict.fromkeys(("lr", "learning_rate", "base_lr", "max_lr", "peak_lr", "lrs"), "grid.learning_rates"),
    **dict.fromkeys(("layers", "n_layer", "n_layers", "num_layers", "num_hidden_layers", "depth"), "grid.depths"),
    **dict.fromkeys(("width", "d_model", "n_embd", "hidden_size", "emb_dim"), "grid.widths"),
    **dict.fromkeys(("n_params", "params", "parameters", "sizes"), "grid.budgets"),
    **dict.fromkeys(("n_head", "n_heads", "num_heads", "num_attention_heads"), "grid.heads"),
    **dict.fromkeys(("n_seeds", "num_seeds", "random_seed"), "grid.seeds"),
    **dict.fromkeys(("max_steps", "num_steps", "n_steps", "iterations", "max_iters", "train_steps"), "train.steps"),
    **dict.fromkeys(("context", "context_length", "block_size", "max_seq_len", "sequence_length"), "train.seq_len"),
    **dict.fromkeys(("batch", "global_batch_size", "n_batch"), "train.batch_size"),
    **dict.fromkeys(("wd", "l2"), "train.weight_decay"),
    **dict.fromkeys(("warmup", "warmup_iters"), "train.warmup_steps"),
    "dtype": "train.precision",
    **dict.fromkeys(("logger", "log_to", "report_to", "wandb", "tensorboard", "trackio"), "execution.loggers"),
    **dict.fromkeys(("dataset", "corpus", "text"), "data.source"),
    **dict.fromkeys(("vocab", "n_vocab"), "data.vocab_size"),
    **dict.fromkeys(("tie_embeddings", "tie_word_embeddings"), "model.tied_embeddings"),
}
MAX_DIGITS = 1000  # of an integer; Python refuses to print those of more than 4,300


def load_spec(path: str | PathLike[str], overrides: Sequence[str] = ()) -> Spec:
    """Read and validate a spec file, or a built-in spec by its name; ``overrides`` are ``dotted.key=value`` with YAML
    values.

    Raises:
        InputError: the file is missing or no YAML mapping, or keys or values are wrong; all of them at once.
    """
    try:
        raw = _read(path)
        text = raw.decode()
    except FileNotFoundError:
        known = ", ".join(names())
        meant = _file_meant(path)
        hint = f"did you mean {meant}? " if meant else ""
        raise InputError(
            f"SPEC: {path} does not exist; {hint}give the path of a sweep spec (YAML), or one of {known}"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"SPEC: {path} cannot be read: {error}") from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"SPEC: {path} is larger than {MAX_BYTES:,} bytes; give a sweep spec (YAML)")
    content, keys = load_yaml(text, f"SPEC: {path}"), ", ".join(_known_keys())
    if content is None:
        raise InputError(f"SPEC: {path} is empty; must be a mapping with the keys {keys}")
    if not isinstance(content, dict):
        raise InputError(f"SPEC: {path} holds {type(content).__name__}; must be a mapping with the keys {keys}")
    return parse_spec(content, overrides)


def _read(path: str | PathLike[str]) -> bytes:
    """The start of a file, of the ``spec.yaml`` in a folder, or of the built-in spec of that name where neither is.

    Raises:
        OSError: none of them is there, or it cannot be read.
    """
    file = paths.as_path(path)
    if is_folder := file.is_dir():
        file = file / SPEC_FILE
    if file.name == SPEC_FILE and not paths.is_remote(file) and file.exists():
        paths.check_file(file)  # of a sweep; another name may be a pipe of the shell's
    known = find(str(path))
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        if known is None and is_folder:
            raise IsADirectoryError(f"it is a folder without a {SPEC_FILE}") from None
        if known is None:
            raise
        stream = known.open("rb")
    with stream:
        return stream.read(MAX_BYTES + 1)


def _file_meant(path: str | PathLike[str]) -> str:
    """The spec nearest to a ``path`` that does not exist: a file of its folder, else a built-in one; empty if none."""
    given = paths.as_path(path)
    beside = []
    with contextlib.suppress(OSError):
        beside = [] if paths.is_remote(given) else [one for one in given.parent.glob("*.y*ml") if one.is_file()]
    for name in (given.name, f"{given.name}.yaml"):
        if near := difflib.get_close_matches(name, [one.name for one in beside], n=1, cutoff=NEAR):
            return str(given.with_name(near[0]))
    return next(iter(difflib.get_close_matches(given.stem, names(), n=1, cutoff=NEAR)), "")


def parse_spec(content: dict[str, Any], overrides: Sequence[str] = ()) -> Spec:
    """Validate a mapping with overrides, ``dotted.key=value``, put into it.

    Raises:
        InputError: one line for each wrong key or value.
    """
    # those that replace other keys first, so that another key of the command line wins over them wherever it stands
    for override in sorted(overrides, key=lambda text: text.partition("=")[0].strip() not in (PRESET, TOKENIZER)):
        _apply(content, override)
    return _validated(_with_arms_written_out(content))


def _validated(content: dict[str, Any]) -> Spec:
    try:
        return Spec.model_validate(content)
    except ValidationError as error:
        lines = dict.fromkeys(_describe(item) for item in error.errors())
        raise InputError(*lines) from None


def _apply(content: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator or not all(part.strip() for part in key.split(".")):
        raise InputError(f"--set: {override[:80]!r}; must be KEY=VALUE with a dotted key, such as train.steps=50")
    parsed = load_yaml(value, f"--set {key}: {value[:40]!r}")
    *path, last = key.strip().split(".")
    node = content
    for part in path:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise InputError(f"--set {key}: {part!r} holds {_shown(child) or 'a value'}, not a section")
        node = child
    # the length of a run is given in one way: an override of one replaces the others
    if path == ["train"] and last in LENGTHS:
        for other in LENGTHS:
            node.pop(other, None)
    if path == ["model"] and last == "preset":
        for name in PRESET_KEYS:
            node.pop(name, None)
    if path == ["data"] and last == "tokenizer" and parsed is not None:
        node.pop("vocab_size", None)
    if path == ["grid"] and last in ("budgets", "widths"):
        node.pop("widths" if last == "budgets" else "budgets", None)
    node[last] = parsed


def _describe(item: Any) -> str:
    """One line for one pydantic error: dotted key, value, what it must be."""
    location = [part for part in item["loc"] if not _is_branch(part)]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".") or "spec"
    key = key if len(key) <= 120 else f"{key[:117]}…"
    kind, value = item["type"], item.get("input")
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        meant = _key_meant(str(location[-1]), known)
        hint = f"did you mean `{meant}`? " if meant else ""
        return f"{key}: unknown key; {hint}allowed: {', '.join(known)}"
    if kind == "invalid_key":
        return f"{_shown(value)}: a key must be a name; allowed: {', '.join(_known_keys(location[:-1]))}"
    if kind == "missing":
        return f"{key}: missing; it has no default"
    message = str(item["msg"]).removeprefix("Value error, ")
    if kind == "list_type" and isinstance(value, str | int | float):
        message = f"must be a list, such as [{value}]"
    if kind in ("model_type", "dict_type"):
        section = _known_keys(location)
        message = f"must be a mapping{' with the keys ' + ', '.join(section) if section else ''}"
    message = message[0].lower() + message[1:]
    message = message.replace("input should", "must", 1)
    for bound in ("gt", "ge", "lt", "le"):
        limit = (item.get("ctx") or {}).get(bound)
        if isinstance(limit, int | float):  # pydantic writes 1e15 and 1e-30 out, zero by zero
            digits = f"{int(limit):,}" if limit == int(limit) and limit < 1e20 else f"{limit:g}"
            message = f"{message[: message.rindex(' ')]} {digits}"
    shown = "" if isinstance(value, dict | BaseModel) else _shown(value)
    return f"{key}: {shown}; {message}" if shown else f"{key}: {message}"


def _key_meant(name: str, known: Sequence[str]) -> str:
    """The key nearest to an unknown ``name``: dotted, of another section that has that name or by another tool's name,
    else one of the ``known`` keys of its own section, else a dotted one; empty where none is near."""
    elsewhere: dict[str, str] = {}  # the first section that has a key of this name
    for dotted in _dotted_keys(Spec):
        elsewhere.setdefault(dotted.rpartition(".")[2], dotted)
    lower = name.lower().replace("-", "_")
    if meant := OTHER_NAMES.get(lower) or elsewhere.get(lower):
        return meant if meant.rpartition(".")[2] not in known else meant.rpartition(".")[2]
    if near := difflib.get_close_matches(name, known, n=1, cutoff=0.5):
        return near[0]
    near = difflib.get_close_matches(lower, elsewhere, n=1, cutoff=0.75)
    return elsewhere[near[0]] if near else ""


def _dotted_keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """All keys, those of a section before those of the sections in it."""
    inner = []
    for name, field in section.model_fields.items():
        dotted = f"{prefix}{field.alias or name}"
        yield dotted
        if (model := section_in(field.annotation)) is not None:
            inner.append((model, f"{dotted}."))
    for model, below in inner:
        yield from _dotted_keys(model, below)


def _shown(value: Any) -> str:
    """The value as it was given; empty where that would fill the line."""
    try:
        shown = repr(value)
    except ValueError:  # an integer of thousands of digits
        return ""
    return shown if len(shown) <= 80 else ""


def _is_branch(part: Any) -> bool:
    """True if pydantic put the name of a union's branch, or of a mapping's key, into the location."""
    return isinstance(part, str) and (part == "[key]" or part.startswith("|"))


def _section_at(location: Sequence[Any]) -> type[BaseModel] | None:
    model: type[BaseModel] = Spec
    for part in location:
        if isinstance(part, int):  # an item of a list, of the section that the list is of
            continue
        if not isinstance(part, str):
            return None
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part not in fields:
            return None
        found = section_in(fields[part].annotation)
        if found is None:
            return None
        model = found
    return model


def _known_keys(location: Sequence[Any] = ()) -> list[str]:
    section = _section_at(location)
    return [field.alias or name for name, field in section.model_fields.items()] if section else []


def load_yaml_file(path: Any) -> Any:
    """The value that a small YAML file of a sweep holds.

    Raises:
        InputError: it is no YAML, or larger or deeper than a spec may be.
        OSError: it is not there, or is no file.
    """
    try:
        text = paths.read_text(path, MAX_BYTES)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text ({error.reason})") from None
    return load_yaml(text, str(path))


def load_yaml(text: str, what: str) -> Any:
    """The value that ``text`` stands for; ``what`` begins the error's line, such as ``SPEC: sweep.yaml``.

    Raises:
        InputError: it is not YAML, a key is given twice, or it is nested or unfolds beyond the bounds above.
    """
    try:
        return yaml.load(text, _Loader)
    except InputError as error:
        raise InputError(*(f"{what}: {line}" for line in error.lines)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: a date with a 13th month
        raise InputError(f"{what} is not valid YAML: {' '.join(str(error).split())}") from None
    except (KeyError, IndexError, AttributeError, TypeError):  # what PyYAML raises for !!bool maybe, !!int ''
        raise InputError(f"{what} is not valid YAML: a value does not fit its tag (!!…)") from None


class _Loader(yaml.SafeLoader):
    """Safe YAML within the bounds, where a key given twice is an error and the last one does not win in silence."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth = 0

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _check_unfolded(node, {})
        return node

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
            raise InputError(f"nested deeper than {MAX_DEPTH} levels in line {line}")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise InputError(f"{key.value}: given twice, again in line {line}; a key must stand only once")
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MAX_DIGITS:
            line = node.start_mark.line + 1
            raise InputError(f"an integer of {len(node.value):,} digits in line {line}; at most {MAX_DIGITS:,}")
        return yaml_numbers.parse_int(node.value)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        return yaml_numbers.parse_float(node.value)


yaml_numbers.resolve_in(_Loader)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _check_unfolded(node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """(values, levels) that ``node`` unfolds to; an alias is its anchor's node again, and comes after it."""
    line = node.start_mark.line + 1
    if id(node) in known:
        found = known[id(node)]
        if found is None:
            raise InputError(f"the anchor in line {line} holds an alias to itself")
        return found
    known[id(node)] = None
    children = []
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    values, levels = 1, 0
    for child in children:
        more, deeper = _check_unfolded(child, known)
        values, levels = values + more, max(levels, deeper)
    if values > MAX_VALUES or levels >= MAX_DEPTH:
        raise InputError(f"what begins in line {line} unfolds to more than {MAX_VALUES:,} values or {MAX_DEPTH} levels")
    known[id(node)] = values, levels + 1
    return values, levels + 1


NAME, HEADS, PRESET, TOKENIZER = "name", "grid.heads", "model.preset", "data.tokenizer"
ALLOWED = "model.*, train.*, grid.heads, grid.heads.*, grid.learning_rates"
# what arms share, so that the runs of one shape and seed see the same batches and the same held-out text
SHARED = ("seq_len", "batch_size", "steps", "tokens", "tokens_per_param", "token_branches", "flops", "seconds")
SHARED_KEYS = tuple(f"train.{name}" for name in (*SHARED, "eval_tokens"))
LONGEST_NAME = 80
MOST_ARMS = 100  # each is a plan of its own, and held against all others


def arms_of(spec: Spec) -> list[tuple[str, Spec]]:
    """(name, spec) of every arm of a sweep, in their order; the spec alone, without a name, where it has none."""
    if spec.grid.arms is None:
        return [("", spec)]
    content = _with_arms_written_out(spec.model_dump(mode="json", by_alias=True))
    plain = _without_arms(content)
    return [(arm[NAME], _validated(_with(plain, _flat(arm, "grid.arms")))) for arm in content["grid"]["arms"]]


def _with_arms_written_out(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a spec with its arms named, and every key in them that differs from the spec.

    Raises:
        InputError: an arm is no mapping, sets a key that it may not, or makes a spec that is wrong; two arms are one.
    """
    grid = content.get("grid")
    arms = grid.get("arms") if isinstance(grid, dict) else None
    if arms is None:
        return content
    if not isinstance(arms, list) or not all(isinstance(arm, dict) for arm in arms) or len(arms) < 2:
        raise InputError("grid.arms: must be a list of two mappings or more, such as [{}, {model.mlp: gated}]")
    if len(arms) > MOST_ARMS:
        raise InputError(f"grid.arms: {len(arms):,} arms; at most {MOST_ARMS}")
    plain = _without_arms(content)
    base = _facts(_validated(plain))
    out, seen = [], dict[str, int]()
    for number, arm in enumerate(arms):
        where = f"grid.arms[{number}]"
        given = _flat(arm, where)
        try:
            facts = _facts(_validated(_with(plain, given)))
        except InputError as error:
            raise InputError(*(f"{where}.{line}" for line in error.lines)) from None
        own = json.dumps(facts, sort_keys=True)
        if own in seen:
            raise InputError(
                f"{where}: the same recipe as grid.arms[{seen[own]}]; every arm must differ from the others"
            )
        seen[own] = number
        differs = {key: value for key, value in facts.items() if base.get(key) != value}
        out.append({NAME: _name(arm, given, where), **given, **differs})
    names = [arm[NAME] for arm in out]
    if len(set(names)) < len(names):
        raise InputError(f"grid.arms: {', '.join(names)}; every arm must have a name of its own")
    return {**content, "grid": {**content["grid"], "arms": out}}


def _without_arms(content: dict[str, Any]) -> dict[str, Any]:
    plain = copy.deepcopy(content)
    plain["grid"].pop("arms", None)
    return plain


def _flat(arm: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Dotted keys, all of them allowed. Sections may be nested; ``grid.heads`` is one value, a rule replaced whole."""
    found: dict[str, Any] = {}

    def add(prefix: str, values: Mapping[Any, Any]) -> None:
        for key, value in values.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping) and name in ("model", "train", "grid"):
                add(f"{name}.", value)
            elif name in found:
                raise InputError(f"{where}.{name}: given twice, nested and dotted; a key must stand only once")
            else:
                found[name] = value

    add("", {key: value for key, value in arm.items() if key != NAME})
    for key in found:
        if key in SHARED_KEYS:
            raise InputError(
                f"{where}.{key}: all arms share it, for their runs must see the same text; allowed: {ALLOWED} but for "
                f"{', '.join(SHARED_KEYS)}, or two sweeps and `dwsweep fit A B --compare`"
            )
        if key not in (HEADS, "grid.learning_rates") and not key.startswith(("model.", "train.", f"{HEADS}.")):
            raise InputError(f"{where}.{key}: not a key of an arm; allowed: {NAME}, {ALLOWED}")
    return found


def _with(content: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(content)
    if PRESET in values:  # of a base that spells its block out, what the preset says wins
        model = changed.get("model")
        changed["model"] = {k: v for k, v in model.items() if k not in PRESET_KEYS} if isinstance(model, dict) else {}
    for key, value in values.items():
        node = changed
        *path, last = key.split(".")
        for part in path:
            child = node.get(part)
            node[part] = child if isinstance(child, dict) else {}
            node = node[part]
        node[last] = value
    return changed


def _facts(spec: Spec) -> dict[str, Any]:
    """Keys in which arms may differ, dotted."""
    dumped = spec.model_dump(mode="json")
    facts = {f"{name}.{key}": value for name in ("model", "train") for key, value in dumped[name].items()}
    return {**facts, HEADS: dumped["grid"]["heads"], "grid.learning_rates": dumped["grid"]["learning_rates"]}


def _name(arm: Mapping[Any, Any], given: Mapping[str, Any], where: str) -> str:
    """Name of an arm as given, or made of the keys that were given: ``model.mlp=gated,model.positions=rotary``;
    ``base`` for none."""
    name = arm.get(NAME)
    if name is None:
        name = ",".join(f"{key}={_setting(value)}" for key, value in given.items()) or "base"
        if len(name) > LONGEST_NAME:
            raise InputError(f"{where}: its keys make a name of {len(name)} characters; give it a `name` of its own")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise InputError(f"{where}.name: {name!r}; must be a text of 1 to {LONGEST_NAME} characters")
    return name


def _setting(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":")).replace('"', "")
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


FOLDER = "sweeps"


def find(name: str) -> Path | None:
    """The file of a built-in spec; None where no spec has that name."""
    return _files().get(name)


def names() -> list[str]:
    return sorted(_files())


def _files() -> dict[str, Path]:
    clone = Path(__file__).parents[2] / FOLDER
    if clone.is_dir():
        return {path.stem: path for path in clone.glob("*.yaml")}
    try:
        files = metadata.files("dwsweep") or []
    except metadata.PackageNotFoundError:
        return {}
    return {file.stem: Path(str(file.locate())) for file in files if file.match(f"{FOLDER}/*.yaml")}
