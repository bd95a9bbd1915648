"""Before the compute is spent: the errors a planned sweep would leave, and what changes would buy."""

from dwsweep.design.filling import fill
from dwsweep.design.judge import Judge
from dwsweep.design.prior import Prior, make_prior
from dwsweep.design.study import study

__all__ = ["Judge", "Prior", "fill", "make_prior", "study"]
