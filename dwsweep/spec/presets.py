"""Blocks of known model families, in the keys of ``model``."""

from __future__ import annotations

from typing import Any

from dwsweep.shapes import ROPE_THETA

_LLAMA = {
    **{"norm": "pre", "norm_type": "rmsnorm", "activation": "silu", "mlp": "gated", "mlp_ratio": 8 / 3},
    **{"mlp_multiple": 8, "positions": "rotary", "rope_theta": ROPE_THETA, "biases": False},
}
PRESETS: dict[str, dict[str, Any]] = {
    "gpt2": {
        **{"norm": "pre", "norm_type": "layernorm", "activation": "gelu", "mlp": "plain", "mlp_ratio": 4.0},
        **{"positions": "learned", "biases": True},
    },
    "llama": _LLAMA,
    "qwen3": {**_LLAMA, "rope_theta": 1.0e6, "qk_norm": True},
    "nanochat": {
        **{"norm": "pre", "norm_type": "rmsnorm", "activation": "relu2", "mlp": "plain", "mlp_ratio": 4.0},
        **{"positions": "rotary", "rope_theta": ROPE_THETA, "qk_norm": True, "logit_softcap": 15.0, "biases": False},
    },
}
"""Blocks as those families have them, in our keys. Left to the sweep: heads and their groups, the embeddings (tied in
the small models of a family and free in its large ones), the parametrization. Norms have gains here, nanochat's none.
"""
PRESET_KEYS = frozenset(name for values in PRESETS.values() for name in values)
