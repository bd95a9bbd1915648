"""Reference of a spec: every key with its default and meaning, as a first spec (`dwsweep init`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from dwsweep.spec.bounded_yaml import dump_yaml
from dwsweep.spec.sections import Spec, parts_of, section_in

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
