"""Text in, token windows out: sources → tokenizer → store → batches.

``prepare`` turns a source (Wikipedia in any of its forms, text, JSON lines, Parquet, or the prose that ships with
CPython) into a token store on disk, ``store`` opens it, ``batches`` and ``heldout`` say which tokens a step and an
evaluation see. Nothing here imports JAX or TensorFlow.
"""
