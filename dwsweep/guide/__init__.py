"""From a law to a decision: how deep and how wide at a budget, and the verdict on a shape."""

from dwsweep.guide.advice import answer, budget, verdict
from dwsweep.guide.candidates import Options
from dwsweep.guide.law_sources import Source, fitted_source, published_source

__all__ = ["Options", "Source", "answer", "budget", "fitted_source", "published_source", "verdict"]
