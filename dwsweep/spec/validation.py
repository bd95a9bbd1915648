"""Validation of a spec: one line per error, with the nearest known key."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from dwsweep.errors import InputError
from dwsweep.spec.reference import all_keys
from dwsweep.spec.sections import LENGTHS, PRESET_KEYS, Spec, section_in

MOST_SHOWN = 80  # characters of a value in a line


def validated(content: dict[str, Any]) -> Spec:
    try:
        return Spec.model_validate(content)
    except ValidationError as error:
        lines = dict.fromkeys(_describe(item) for item in error.errors())
        raise InputError(*lines) from None


REPLACED = {
    **{f"train.{name}": LENGTHS for name in LENGTHS},  # a run has one length
    **{"model.preset": PRESET_KEYS, "data.tokenizer": ("vocab_size",)},
    **{"grid.budgets": ("widths",), "grid.widths": ("budgets",)},
}
"""Keys of the same section that a key replaces."""


def with_keys(content: dict[str, Any], values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Copy of a spec's content with dotted keys set in their order, and without the keys that they replace.

    Raises:
        InputError: a key leads through a value that is no section.
    """
    changed = copy.deepcopy(content)
    # keys that replace others come first, so that any other one wins
    for key, value in sorted(values, key=lambda pair: pair[0] not in ("model.preset", "data.tokenizer")):
        *path, last = key.split(".")
        node = changed
        for part in path:
            child = node.setdefault(part, {})
            if not isinstance(child, dict):
                raise InputError(f"{key}: {part!r} holds {value_text(child) or 'a value'}, not a section")
            node = child
        for name in REPLACED.get(key, ()) if value is not None or key == "model.preset" else ():
            node.pop(name, None)
        node[last] = value
    return changed


def _describe(item: Any) -> str:
    """Line of one pydantic error: dotted key, value, allowed values."""
    location = [part for part in item["loc"] if not _is_branch(part)]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".") or "spec"
    key = key if len(key) <= 120 else f"{key[:117]}…"
    kind, value = item["type"], item.get("input")
    if kind == "extra_forbidden":
        retired = getattr(_section_at(location[:-1]), "retired", {})
        if location[-1] in retired:
            return f"{key}: removed in this version; {retired[location[-1]][1]}"
        known = _known_keys(location[:-1])
        meant = _key_meant(str(location[-1]), known)
        hint = f"did you mean `{meant}`? " if meant else ""
        return f"{key}: unknown key; {hint}allowed: {', '.join(known)}"
    if kind == "invalid_key":
        return f"{value_text(value)}: a key must be a name; allowed: {', '.join(_known_keys(location[:-1]))}"
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
    shown = "" if isinstance(value, dict | BaseModel) else value_text(value)
    return f"{key}: {shown}; {message}" if shown else f"{key}: {message}"


def _key_meant(name: str, known: Sequence[str]) -> str:
    """Key nearest to an unknown ``name``: one of the ``known`` keys of its section, or a dotted key of another one."""
    keys = {key.name.rpartition(".")[2]: key.name for key in reversed([*all_keys()])} | {key: key for key in known}
    near = difflib.get_close_matches(name.lower().replace("-", "_"), keys, n=1)
    return keys[near[0]] if near else ""


def value_text(value: Any) -> str:
    """Text of a value as given, of a long one its two ends; empty for an integer of thousands of digits."""
    try:
        shown = repr(value)
    except ValueError:
        return ""
    return shown if len(shown) <= MOST_SHOWN else f"{shown[: MOST_SHOWN // 2]}…{shown[-MOST_SHOWN // 2 :]}"


def _is_branch(part: Any) -> bool:
    """Test that a part of a location is pydantic's name of a union's branch or of a mapping's key."""
    return isinstance(part, str) and (part == "[key]" or part.startswith("|"))


def _section_at(location: Sequence[Any]) -> type[BaseModel] | None:
    model: type[BaseModel] = Spec
    for part in location:
        if isinstance(part, int):  # an item in a list of sections
            continue
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        found = section_in(fields[part].annotation) if part in fields else None
        if found is None:
            return None
        model = found
    return model


def _known_keys(location: Sequence[Any] = ()) -> list[str]:
    section = _section_at(location)
    return [field.alias or name for name, field in section.model_fields.items()] if section else []
