"""Linear algebra of many small matrices: one thread, and memory that stays with the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

KEPT = 31 * 2**20  # bytes, under glibc's limit of 32 MiB


@contextmanager
def small_matrices() -> Iterator[None]:
    """Keep BLAS to one thread: handing a small matrix to a second one takes longer than multiplying it.

    Keep freed memory too: glibc holds back blocks up to the largest that was ever freed, so one array that nobody uses
    spares every later one its page faults (a tenth of the CPU time of a fit).
    """
    import scipy.linalg  # noqa: F401  SciPy has a BLAS of its own, and a library that is loaded later is not limited
    from threadpoolctl import threadpool_limits

    np.empty(KEPT, dtype=np.uint8)
    with threadpool_limits(1, user_api="blas"):
        yield
