"""Before the compute is spent: the errors a planned sweep would leave, and what changes would buy."""

from dwsweep.design.alternatives import Alternative
from dwsweep.design.crossings import PairError
from dwsweep.design.filling import fill
from dwsweep.design.information import Errors, Judge
from dwsweep.design.prior import Gain, Prior, make_prior
from dwsweep.design.study import Study, study

__all__ = [
    "Alternative",
    "Errors",
    "Gain",
    "Judge",
    "PairError",
    "Prior",
    "Study",
    "fill",
    "make_prior",
    "study",
]
