"""Before the compute is spent: the errors a planned sweep would leave, and the runs that would narrow them most."""

from dwsweep.design.information import Errors, Judge, PairError
from dwsweep.design.prior import Prior, make_prior
from dwsweep.design.propose import Proposal, propose
from dwsweep.design.study import Alternative, Study, study

__all__ = [
    "Alternative",
    "Errors",
    "Judge",
    "PairError",
    "Prior",
    "Proposal",
    "Study",
    "make_prior",
    "propose",
    "study",
]
