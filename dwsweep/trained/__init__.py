"""Trained runs with kept parameters, and their export for transformers."""
