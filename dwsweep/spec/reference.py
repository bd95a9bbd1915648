"""Every key of a spec with its default and its meaning: as rows for README, and as a spec to start from."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from dwsweep.spec.sections import Spec

# what the commented spec says itself: what has no default, and one key of each section, so that others can join it
STARTING_POINT = {
    "name": "my-sweep",
    "grid.depths": [1, 2, 4, 6],
    "grid.budgets": [3.0e4, 1.0e5, 3.0e5],
    "model.parametrization": "completep",
    "data.source": "stdlib-docs",
    "train.tokens": 1.0e6,
    "execution.checkpoint_seconds": 120.0,
}
HEADING = """\
# A depth-width sweep. Every key is here with its default and what it means; what is left out has the default.
#
#   dwsweep plan {path} && dwsweep run {path} && dwsweep fit runs/my-sweep
#
"""


@dataclass(frozen=True)
class Key:
    """name: dotted. default: as YAML; empty where one must be given. meaning: with the choices, if there are some."""

    name: str
    default: str
    meaning: str

    @property
    def depth(self) -> int:
        return self.name.count(".")


def all_keys() -> Iterator[Key]:
    """All keys in the order of the spec, sections before what is in them."""
    yield from _keys(Spec, "")


def _keys(section: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in section.model_fields.items():
        inner = _section(field.annotation)
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


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, or may hold."""
    for found in _parts(annotation):
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
    return None


def _choices(annotation: Any) -> tuple[Any, ...]:
    return next((get_args(part) for part in _parts(annotation) if get_origin(part) is Literal), ())


def _parts(annotation: Any) -> Iterator[Any]:
    """An annotation and what it is a union or a list of."""
    yield annotation
    if get_origin(annotation) in (types.UnionType, typing.Union, typing.Annotated, list):
        for part in get_args(annotation):
            yield from _parts(part)


def _yaml(value: Any) -> str:
    """A value on one line."""
    plain = value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value
    plain = list(plain) if isinstance(plain, tuple) else plain
    return yaml.safe_dump(plain, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()


def table() -> str:
    """Markdown: key, default, meaning."""
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    for key in all_keys():
        meaning = key.meaning.replace("|", "\\|")
        lines.append(f"| `{key.name}` | {f'`{key.default}`' if key.default else ''} | {meaning} |")
    return "\n".join(lines)


def commented(path: str) -> str:
    """A spec that runs as it stands, every key with its meaning beside it; those with a default are commented out."""
    lines = [HEADING.format(path=path).rstrip()]
    for key in all_keys():
        name, indent = key.name.rpartition(".")[2], "  " * key.depth
        if not key.default and key.name not in STARTING_POINT and key.depth == 0:
            lines += ["", f"{name}:"]
            continue
        given = key.name in STARTING_POINT
        value = _yaml(STARTING_POINT[key.name]) if given else key.default
        text = f"{indent}{'' if given else '# '}{name}:{' ' + value if value else ''}"
        lines.append(f"{text:<44}{'  # ' + key.meaning if key.meaning else ''}".rstrip())
    return "\n".join(lines) + "\n"
