"""The model: how its scales follow from its shape (pure Python), and the decoder-only transformer itself (Flax NNX)."""
