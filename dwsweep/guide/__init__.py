"""From a law or a loss to a decision: how deep and how wide at a budget, the verdict on a shape or a rule.

The function ``dwsweep.guide`` is in ``dwsweep/results.py``; it calls ``answer``.
"""

from dwsweep.guide.advice import LEAST_PUBLIC, answer, exported
from dwsweep.guide.shapes import Options
from dwsweep.guide.sources import Source, fitted_source, public_source, published_source, source_of

__all__ = [
    "LEAST_PUBLIC",
    "Options",
    "Source",
    "answer",
    "exported",
    "fitted_source",
    "public_source",
    "published_source",
    "source_of",
]
