"""Public evidence: losses, optima, pairs, slopes, laws and built models, and the best depth of an unmeasured recipe.

Each file of ``sources/`` is one source. ``python -m dwsweep.evidence`` fits their tables and writes ``summaries.json``
and ``populations.json``; with ``--check`` it tests the model on the sources themselves.
"""

from dwsweep.evidence.random_effects import Bound, Estimates, Recipe, recipe
from dwsweep.evidence.summary import Evidence, Populations, populations, read, read_populations

__all__ = [
    "Bound",
    "Estimates",
    "Evidence",
    "Populations",
    "Recipe",
    "populations",
    "read",
    "read_populations",
    "recipe",
]
