"""Trained runs with kept parameters: their samples of text, export for transformers, downstream tasks."""
