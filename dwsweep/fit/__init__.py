"""Losses → answers, downwards: data (tables and runs), statistics (the model), answers; above them ways to ask a table.

Needs NumPy and SciPy, never JAX.
"""
