"""Losses → cells → crossings → width law → guideline. Needs NumPy and SciPy, never JAX."""
