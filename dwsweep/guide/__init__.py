"""From a law or a loss to a decision: how deep and how wide at a budget, the verdict on a shape or a rule."""

from dwsweep.guide.advice import answer, exported
from dwsweep.guide.law_sources import Source, fitted_source, published_source
from dwsweep.guide.options import Options

__all__ = ["Options", "Source", "answer", "exported", "fitted_source", "published_source"]
