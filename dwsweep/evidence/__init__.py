"""What public losses and laws say of the best depth, and what follows from them for a recipe that nobody measured.

Each file of ``sources/`` is one source. ``python -m dwsweep.evidence`` fits their tables and writes ``summaries.json``.
"""

from dwsweep.evidence.random_effects import Estimates, Neighbour, Prediction, predict
from dwsweep.evidence.summary import Evidence, read

__all__ = ["Estimates", "Evidence", "Neighbour", "Prediction", "predict", "read"]
