"""Text in, token windows out: sources → tokenizer → store → batches.

``prepare`` turns a source (Wikipedia in any of its forms, text, JSON lines, Parquet, TFDS, or the prose that ships with
CPython) into a token store on disk, ``token_store`` opens it, ``batches`` and ``heldout`` cut the tokens of a step and
of an evaluation. A new kind of source is a module and a line in ``sources``. Nothing here imports JAX or TensorFlow.
"""
