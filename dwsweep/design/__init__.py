"""Before the compute is spent: the errors a planned sweep would leave, and the runs that would narrow them most."""

from dwsweep.design.information import Errors, Judge, PairError, Prior
from dwsweep.design.propose import Alternative, Proposal, propose
from dwsweep.design.study import Study, make_prior, study

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
