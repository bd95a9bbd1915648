"""Counts as people write them: one form for every table, figure and message."""

from __future__ import annotations


def format_count(value: float) -> str:
    """``950``, ``30K``, ``1.02M``, ``65.5B``, ``1T``, ``2.5e18``; at most three significant digits."""
    if abs(value) >= 0.9995e15:  # FLOPs
        return f"{value:.3g}".replace("e+", "e")
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        # 999.9e3 rounds to 1M, not to 1000K
        if abs(value) >= 0.9995 * size:
            return f"{float(f'{value / size:.3g}'):g}{letter}"
    return f"{float(f'{value:.3g}'):g}"
