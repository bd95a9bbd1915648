"""Arms of a sweep: recipes that are compared over one grid, each a mapping from dotted keys of the spec to values.

    grid:
      arms: [{}, {model.mlp: gated}, {name: modern, model.mlp: gated, model.positions: rotary}]

An arm is the spec with its keys set: `{}` is the spec itself. Loading expands presets inside arms, so that a written
spec means the same without the code that made it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from dwsweep.errors import InputError
from dwsweep.spec.sections import Spec
from dwsweep.spec.validation import validated, with_keys

NAME, HEADS = "name", "grid.heads"
ALLOWED = "model.*, train.*, grid.heads, grid.heads.*, grid.learning_rates"
# keys that all arms share, so that runs of one shape and seed see the same batches and held-out text
SHARED = ("seq_len", "batch_size", "steps", "tokens", "tokens_per_param", "token_branches", "flops")
SHARED_KEYS = tuple(f"train.{name}" for name in (*SHARED, "eval_tokens"))
LONGEST_NAME = 80


def arms_of(spec: Spec) -> list[tuple[str, Spec]]:
    """Name and spec of every arm of a sweep, in their order; one unnamed spec if the sweep has no arms."""
    if spec.grid.arms is None:
        return [("", spec)]
    content = with_arms_written_out(spec.model_dump(mode="json", by_alias=True))
    plain = _without_arms(content)
    return [
        (arm[NAME], validated(with_keys(plain, _flat(arm, "grid.arms").items()))) for arm in content["grid"]["arms"]
    ]


def with_arms_written_out(content: dict[str, Any]) -> dict[str, Any]:
    """Content of a spec with its arms named and expanded: each arm lists every key that differs from the spec.

    Raises:
        InputError: an arm is no mapping, sets a forbidden key, or gives an invalid spec; or two arms are equal.
    """
    grid = content.get("grid")
    arms = grid.get("arms") if isinstance(grid, dict) else None
    if arms is None:
        return content
    if not isinstance(arms, list) or not all(isinstance(arm, dict) for arm in arms) or len(arms) < 2:
        raise InputError("grid.arms: must be a list of at least two mappings, such as [{}, {model.mlp: gated}]")
    plain = _without_arms(content)
    base = _facts(validated(plain))
    out, seen = [], dict[str, int]()
    for number, arm in enumerate(arms):
        where = f"grid.arms[{number}]"
        given = _flat(arm, where)
        try:
            facts = _facts(validated(with_keys(plain, given.items())))
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
    """Dotted keys of an arm, checked. Sections may be nested; ``grid.heads`` is one value, replaced whole."""
    found: dict[str, Any] = {}

    def add(prefix: str, values: Mapping[Any, Any]) -> None:
        for key, value in values.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping) and name in ("model", "train", "grid"):
                add(f"{name}.", value)
            elif name in found:
                raise InputError(f"{where}.{name}: given twice, nested and dotted; a key must be given once")
            else:
                found[name] = value

    add("", {key: value for key, value in arm.items() if key != NAME})
    for key in found:
        if key in SHARED_KEYS:
            raise InputError(
                f"{where}.{key}: all arms share this key, as their runs must see the same text; allowed: {ALLOWED} but "
                f"for {', '.join(SHARED_KEYS)}, or two sweeps and `dwsweep fit A B --compare`"
            )
        if key not in (HEADS, "grid.learning_rates") and not key.startswith(("model.", "train.", f"{HEADS}.")):
            raise InputError(f"{where}.{key}: not a key of an arm; allowed: {NAME}, {ALLOWED}")
    return found


def _facts(spec: Spec) -> dict[str, Any]:
    """Values of the dotted keys in which arms may differ."""
    dumped = spec.model_dump(mode="json")
    facts = {f"{name}.{key}": value for name in ("model", "train") for key, value in dumped[name].items()}
    return {**facts, HEADS: dumped["grid"]["heads"], "grid.learning_rates": dumped["grid"]["learning_rates"]}


def _name(arm: Mapping[Any, Any], given: Mapping[str, Any], where: str) -> str:
    """Name of an arm: as given, or composed of its keys: ``model.mlp=gated,model.positions=rotary``; ``base`` for
    none."""
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
