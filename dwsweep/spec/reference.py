"""Reference of a spec: every key with its default and meaning, as the README of this folder and as a first spec.

``python -m dwsweep.spec.reference > dwsweep/spec/README.md`` writes the first anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from dwsweep.spec.bounded_yaml import dump_yaml
from dwsweep.spec.sections import LENGTHS, PRESETS, SOURCE_FORMS, Spec, parts_of, section_in

# keys that the commented spec sets: keys without a default, and one key per section
STARTING_POINT = {
    "name": "my-sweep",
    "grid.depths": [1, 2, 4, 6],
    "grid.budgets": [30_000, 100_000, 300_000],
    "model.parametrization": "completep",
    "data.source": "stdlib-docs",
    "train.tokens": 1_000_000,
    "execution.checkpoint_seconds": 120,
}
# path beside the spec, valid in any folder: an editor with a YAML language server completes and checks keys
SCHEMA_LINE = "# yaml-language-server: $schema=dwsweep.schema.json"
HEADING = f"""\
{SCHEMA_LINE}
# (`dwsweep schema > dwsweep.schema.json` in this folder writes that schema for editors)
# A depth-width sweep. Every key is here with its default and what it means; what is left out has the default.
#
#   dwsweep plan {{path}} && dwsweep run {{path}} && dwsweep fit runs/my-sweep
#
"""
README = f"""\
# Every key of a spec

A spec is one YAML file that defines a sweep. `dwsweep init my.yaml` writes one with all keys in it, and
`dwsweep schema` prints the JSON schema for an editor. `--set KEY=VALUE` overrides any dotted key on the command line.
An unknown key is an error that names the nearest known one. Only `name`, `grid` and the length of the runs are
required: exactly one of {", ".join(f"`train.{name}`" for name in LENGTHS)}.

`dwsweep/spec/reference.py` generates this page from the sections, and a test compares the two.
"""
# remarks on a section, in addition to its keys
NOTES = {
    "grid": """
Depths and budgets give one shape each, with the width that comes nearest to the budget. `budgets` may also be a range:
`{from: 1e6, to: 6e8, count: 8}`. n_params counts the weight matrices of the blocks, so a gated MLP counts as three
matrices. Each arm may set keys of `model` and `train`, `grid.heads` and `grid.learning_rates`. A vocabulary is no key
of an arm, because it changes the data.
""",
    "model": """
A preset is a set of values for the keys of this section. A key that is given wins over the preset; a preset that
`--set` gives replaces the keys that the file spells out. Hashes use the resolved block, so a preset and its values
written out are the same run. Heads, groups of heads and tied embeddings are left to the spec. Norms have gains here,
and those of nanochat have none.

{presets}
""",
    "data": f"""
`data.source` is one of {", ".join(f"`{form}`" for form in SOURCE_FORMS)}. Paths and globs may be local or `gs://…`.

`data.tokenizer` takes a vocabulary of your own in place of training one: a SentencePiece model, a `tokenizer.json`
(extra `hf`), a folder that holds one, or `bytes` (256 tokens; byte 0, which no text holds, ends a document).
`data.vocab_size` follows from it. Each document is encoded as text by the tokenizer's own library, without tokens
around it. It ends with the end of sentence of a SentencePiece model, or with the `eos_token` of the
`tokenizer_config.json` beside a `tokenizer.json`, else its one special token with a usual name. Losses per token of
different vocabularies do not compare; `bits_per_byte` does. It counts the bytes of the text as it was read, and
`prepare` warns of a tokenizer that loses text.
""",
    "train": """
`train.flops` gives every shape as many tokens as it can train on with that compute. `fit` answers at equal wall time
from the measured seconds of any sweep.
""",
}


@dataclass(frozen=True)
class Key:
    """Key of a spec. name: dotted. default: as YAML, empty if a value is required. meaning: with the choices, if
    any."""

    name: str
    default: str
    meaning: str

    @property
    def depth(self) -> int:
        return self.name.count(".")


def all_keys() -> Iterator[Key]:
    """All keys in the order of the spec, a section before its keys."""
    yield from _keys(Spec, "")


def _keys(section: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        meaning = (field.description or "").replace("None: ", "null: ")
        default = field.get_default(call_default_factory=True)
        if inner is not None and name not in ("heads", "budgets"):
            meaning = (
                meaning or (inner.__doc__ or "").split("\n")[0].strip() if inner.__module__ == Spec.__module__ else ""
            )
            yield Key(prefix + name, "null" if default is None else "", meaning)
            yield from _keys(inner, f"{prefix}{name}.")
            continue
        choices = [str(choice) for choice in _choices(field.annotation)]
        if len(choices) > 1:
            meaning = f"{' | '.join(choices)}{'; ' + meaning if meaning else ''}"
        yield Key(prefix + name, "" if default is PydanticUndefined else _yaml(default), meaning)


def _choices(annotation: Any) -> tuple[Any, ...]:
    if bool in parts_of(annotation):
        return ("true", "false")
    return next((get_args(part) for part in parts_of(annotation) if get_origin(part) is Literal), ())


def _yaml(value: Any) -> str:
    """Format a value as YAML on one line."""
    plain = value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value
    plain = list(plain) if isinstance(plain, tuple) else plain
    return dump_yaml(plain, one_line=True).strip()


def readme() -> str:
    """README of this folder: a table of keys for each section."""
    parts, rows = [README], list[str]()
    for key in all_keys():
        if key.depth == 0:
            title = "The sweep" if key.name == "name" else f"`{key.name}`"
            parts += [*rows, *([""] if rows else []), f"## {title}", NOTES.get(key.name, "").rstrip(), ""]
            parts += [f"{key.meaning}\n"] if key.meaning and key.name != "name" else []
            rows = ["| key | default | meaning |", "| --- | --- | --- |"]
        if key.depth > 0 or key.name == "name":
            meaning = key.meaning.replace("|", "\\|")
            rows.append(f"| `{key.name}` | {f'`{key.default}`' if key.default else ''} | {meaning} |")
    text = "\n".join([*parts, *rows]).replace("{presets}", _presets())
    return text.replace("\n\n\n", "\n\n") + "\n"


def _presets() -> str:
    """Table of presets in Markdown: keys, and their value in each preset; blank if a preset does not set the key."""
    names = list(dict.fromkeys(name for values in PRESETS.values() for name in values))
    lines = [f"| key | {' | '.join(f'`{preset}`' for preset in PRESETS)} |", f"| --- |{' --- |' * len(PRESETS)}"]
    for name in names:
        cells = (_short(values[name]) if name in values else "" for values in PRESETS.values())
        lines.append(f"| `model.{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else _yaml(value)


def commented(path: str, changes: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Spec that runs as written, every key with its meaning; keys with a default are commented out.

    ``changes``: values by dotted key, in addition to ``STARTING_POINT``.
    """
    set_keys = {**STARTING_POINT, **changes}
    lines = [HEADING.format(path=path).rstrip()]
    for key in all_keys():
        name, indent = key.name.rpartition(".")[2], "  " * key.depth
        if not key.default and key.name not in set_keys and key.depth == 0:
            lines += ["", f"{name}:"]
            continue
        given = key.name in set_keys
        value = _yaml(set_keys[key.name]) if given else key.default
        text = f"{indent}{'' if given else '# '}{name}:{' ' + value if value else ''}"
        lines.append(f"{text:<44}{'  # ' + key.meaning if key.meaning else ''}".rstrip())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(readme(), end="")
