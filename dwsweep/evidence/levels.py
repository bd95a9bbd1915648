"""Levels of the loss over size at equal tokens: published laws and their slopes.

A wrong depth is priced in size (``random_effects``). Nats follow from the slope −dloss/d ln N of a law at the sizes at
which that law was fitted: Kaplan's slope over Besiroglu's is 0.22 at 1e6 parameters and 4.6 at 7e10, so neither law may
price the other's sizes. The two slopes are equal at ``CROSSING``, 240 million parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Kaplan et al. 2020 (arXiv 2001.08361), eq. (1.1): L(N) = (N_c / N)^α, N non-embedding, fitted from 768 to 1.5e9
KAPLAN_N_C, KAPLAN_ALPHA = 8.8e13, 0.076
# Besiroglu et al. 2024 (arXiv 2404.10102), the refit of Hoffmann et al. 2022: L = E + A·N^−α + B·D^−β, to 1.6e10
BESIROGLU_A, BESIROGLU_ALPHA = 482.01, 0.3478


@dataclass(frozen=True)
class LossLaw:
    """A published law of the loss. slope: −dloss/d ln N at equal tokens, nats per token, of N weights of the blocks."""

    name: str
    slope: Callable[[float], float]


def kaplan(n_params: float) -> float:
    """Loss of Kaplan et al. 2020, nats per token."""
    return (KAPLAN_N_C / n_params) ** KAPLAN_ALPHA


LAWS: Mapping[str, LossLaw] = {
    "kaplan2020": LossLaw("Kaplan et al. 2020", lambda n: KAPLAN_ALPHA * kaplan(n)),
    "besiroglu2024": LossLaw("Besiroglu et al. 2024", lambda n: BESIROGLU_ALPHA * BESIROGLU_A * n**-BESIROGLU_ALPHA),
    # McLeish et al. 2025 (arXiv 2502.06857): their law of depth, width and tokens along its best shape
    "gemstones2025": LossLaw(
        "McLeish et al. 2025", lambda n: 0.0876 * (n / 1e9) ** -0.093 + 0.5 * math.exp(7.970) * n**-0.5
    ),
}
CROSSING = (BESIROGLU_ALPHA * BESIROGLU_A / (KAPLAN_ALPHA * KAPLAN_N_C**KAPLAN_ALPHA)) ** (
    1.0 / (BESIROGLU_ALPHA - KAPLAN_ALPHA)
)


def law_at(n_params: float) -> LossLaw:
    """Law with the flatter slope at ``n_params``, which converts size into nats."""
    return LAWS["kaplan2020" if n_params <= CROSSING else "besiroglu2024"]


def slope(n_params: float) -> float:
    """−dloss/d ln N at equal tokens, nats per token."""
    return law_at(n_params).slope(n_params)


def level(n_params: float) -> float:
    """Loss of the best depth, nats per token: Kaplan's law up to ``CROSSING``, then Besiroglu's slope."""
    if n_params <= CROSSING:
        return kaplan(n_params)
    fallen = BESIROGLU_A * (CROSSING**-BESIROGLU_ALPHA - n_params**-BESIROGLU_ALPHA)
    return kaplan(CROSSING) - fallen
