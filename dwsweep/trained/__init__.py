"""Uses of finished runs whose parameters were kept: text, a directory for transformers, downstream tasks."""
