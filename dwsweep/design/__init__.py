"""Before the compute is spent: the errors a planned sweep would leave, and what changes would buy."""

from dwsweep.design.expected_fit import PairError
from dwsweep.design.filling import fill
from dwsweep.design.prior import Gain, Prior, make_prior
from dwsweep.design.study import Alternative, Errors, Judge, Study, study

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
