"""From a law or a loss to a decision: how deep and how wide at a budget, the verdict on a shape or a rule.

The package is also its function: ``dwsweep.guide(3e9, kv_heads=8)``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from dwsweep.guide.advice import answer, exported
from dwsweep.guide.answers import Answer
from dwsweep.guide.shapes import Options
from dwsweep.guide.sources import Source, fitted_source, published_source, source_of

__all__ = ["Options", "Source", "answer", "exported", "fitted_source", "published_source", "source_of"]


class _Guide(ModuleType):
    """The name stands for the command on the command line and for a room of this package; both are wanted."""

    def __call__(
        self,
        params: float | Sequence[float] = (),
        *,
        shapes: str | Sequence[str] = (),
        rules: str | Sequence[str] = (),
        fit: Any = None,
        compare: bool = False,
        **options: Any,
    ) -> Answer:
        """What to build for a budget, what it costs to deviate, and how far to trust it: ``answer``, with the fields of
        ``Options`` as keywords."""
        return answer(
            [params] if isinstance(params, int | float) else params,
            [shapes] if isinstance(shapes, str) else shapes,
            rules=[rules] if isinstance(rules, str) else rules,
            fit=fit,
            compare=compare,
            options=Options(**options),
        )


sys.modules[__name__].__class__ = _Guide
