"""Before the compute is spent: the errors a planned sweep would leave, and what changes would buy."""

from __future__ import annotations

from dwsweep.design.expected_fit import Gain, PairError, Prior, make_prior
from dwsweep.design.study import Alternative, Errors, Judge, Study, fill, study

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
