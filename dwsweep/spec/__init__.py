"""Spec of a sweep: YAML → validated, frozen models. Unknown keys are errors with the nearest known name.

``sections`` defines the keys, ``reading`` loads a file, ``arms`` expands the compared recipes.
"""

from __future__ import annotations

from dwsweep.spec.arms import arms_of
from dwsweep.spec.reading import load_spec, parse_spec
from dwsweep.spec.sections import (
    LENGTHS,
    MAX_STEPS,
    OPTIMIZERS,
    SOURCE_FORMS,
    DataSpec,
    ExecutionSpec,
    MeshSpec,
    ModelSpec,
    Section,
    Spec,
    TrainSpec,
)

__all__ = [
    "LENGTHS",
    "MAX_STEPS",
    "OPTIMIZERS",
    "SOURCE_FORMS",
    "DataSpec",
    "ExecutionSpec",
    "MeshSpec",
    "ModelSpec",
    "Section",
    "Spec",
    "TrainSpec",
    "arms_of",
    "load_spec",
    "parse_spec",
]
