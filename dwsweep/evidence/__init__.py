"""Public evidence: losses, optima, pairs, slopes, laws and built models, and the best depth of an unmeasured recipe.

Each file of ``sources/`` is one source. ``python -m dwsweep.evidence`` fits their tables and writes ``summaries.json``
and ``populations.json``.
"""

from dwsweep.evidence.joined import JointPosterior, OwnDepths, joined
from dwsweep.evidence.random_effects import Quantity, Recipe, recipe
from dwsweep.evidence.summary import Evidence, Populations, populations, read, read_populations

__all__ = ["Evidence", "JointPosterior", "OwnDepths", "Populations", "Quantity", "Recipe", "joined"]
__all__ += ["populations", "read", "read_populations", "recipe"]
