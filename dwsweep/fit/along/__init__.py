"""Losses along any column of the table (heads, vocabulary, depth): where they turn, and what equals a baseline."""
