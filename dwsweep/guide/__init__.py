"""Guide: how deep and how wide a net should be at a budget, and verdicts on shapes.

The function ``dwsweep.guide`` is in ``dwsweep/results.py``; it calls ``answer``.
"""

from dwsweep.guide.advice import answer, exported
from dwsweep.guide.shapes import Options
from dwsweep.guide.sources import Source, fitted_source, public_source, published_source, source_of

__all__ = ["Options", "Source", "answer", "exported", "fitted_source", "public_source", "published_source", "source_of"]
