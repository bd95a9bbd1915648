"""One thread of linear algebra, for many products of small matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS to one thread: handing a small matrix to a second one takes longer than multiplying it."""
    import scipy.linalg  # noqa: F401  SciPy has a BLAS of its own, and a library that is loaded later is not limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
