"""Design of a sweep before compute is spent: the errors that a plan would leave, and the alternatives."""

from dwsweep.design.filling import fill
from dwsweep.design.prior import AssumedTruth, make_prior
from dwsweep.design.study import study

__all__ = ["AssumedTruth", "fill", "make_prior", "study"]
