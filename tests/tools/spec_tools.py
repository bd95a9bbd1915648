"""Small specs: a base, filled in with what a test is about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dwsweep.plan import DataFacts
from dwsweep.spec import Spec, parse_spec

DATA = DataFacts("0" * 64, n_train_tokens=700_000, n_validation_tokens=20_000)

BASE: Mapping[str, Any] = MappingProxyType(
    {
        "name": "t",
        "grid": {"depths": [2, 4], "budgets": [1e5, 3e5], "seeds": 2},
        "train": {"steps": 100, "batch_size": 8},
    }
)
"""Two depths at two sizes, two seeds each."""


def filled(base: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """``base`` with keys put into its sections: ``train={"steps": 5}``, or ``train__steps=5`` for a single one."""
    content = {name: dict(part) if isinstance(part, Mapping) else part for name, part in base.items()}
    for name, value in changes.items():
        section, _, key = name.partition("__")
        part = {key: value} if key else value
        content[section] = {**content.get(section, {}), **part} if isinstance(part, Mapping) else part
    return content


def only(widths: Mapping[int, list[int]], **more: Any) -> dict[str, Any]:
    """The section ``grid`` with the shapes of ``widths`` and none of its base's."""
    return {"depths": [], "budgets": None, "widths": widths, **more}


def spec_of(base: Mapping[str, Any] = BASE, **changes: Any) -> Spec:
    """The spec of ``filled(base, **changes)``."""
    return parse_spec(filled(base, **changes))
