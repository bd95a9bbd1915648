"""Before the compute is spent: the errors a planned sweep would leave, and what changes would buy."""

from dwsweep.design.expected_fit import Prior, make_prior
from dwsweep.design.study import Judge, fill, study

__all__ = ["Judge", "Prior", "fill", "make_prior", "study"]
