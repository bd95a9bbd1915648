"""The covariance of the cell means of a design: what its seeds share and what they do not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Cells = Mapping[tuple[int, int], frozenset[int]]
"""(depth, width) → the seeds that are run."""


def covariance(cells: Cells, noise: float, seed_sd: float) -> np.ndarray:
    """(K, K) of the cell means, in the order of ``cells``, nats²: loss = cell + seed + noise.

    With n_i runs of cell i, and z_s the cells that seed s covers (m_s of them), the information is
    C⁻¹ = diag(n_i)/σ² − Σ_s τ²/(σ²(σ² + m_s τ²))·z_s z_sᵀ, τ the sd of what a seed shares. What all seeds of a shape
    share comes on top.
    """
    counts = np.array([len(seeds) for seeds in cells.values()], dtype=float)
    information = np.diag(counts / noise**2)
    for index in set().union(*cells.values()):
        covers = np.array([index in seeds for seeds in cells.values()], dtype=float)
        share = seed_sd**2 / (noise**2 * (noise**2 + covers.sum() * seed_sd**2))
        information -= share * np.outer(covers, covers)
    return np.linalg.inv(information)
