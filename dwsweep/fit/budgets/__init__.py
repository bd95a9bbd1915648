"""Runs of equal compute: the best size of each depth, and the best depth at each budget."""
