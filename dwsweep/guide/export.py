"""Export of a shape as the configuration of a project that trains it: fields of the shape, no others.

hf        transformers: LlamaConfig for a gated MLP, GPT2Config for a plain one
nanochat  GPTConfig; its MLP is plain, four times as wide as the model
"""

from __future__ import annotations

import json

from dwsweep.errors import InputError
from dwsweep.guide.shapes import named
from dwsweep.shapes import Shape

PROJECTS = ("hf", "nanochat")
GPT2 = {"width": "n_embd", "mlp_hidden": "n_inner", "depth": "n_layer", "heads": "n_head", "seq_len": "n_positions"}
LLAMA = {
    **{"width": "hidden_size", "mlp_hidden": "intermediate_size", "depth": "num_hidden_layers"},
    **{"heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "head_size": "head_dim"},
    "seq_len": "max_position_embeddings",
}
TABLES = {"vocab_size": "vocab_size", "tied_embeddings": "tie_word_embeddings"}
NAMES = {  # model → our name → its field
    "llama": {**LLAMA, **TABLES},
    "gpt2": {**GPT2, **TABLES},
    "nanochat": {
        **{"seq_len": "sequence_len", "vocab_size": "vocab_size", "depth": "n_layer"},
        **{"heads": "n_head", "kv_heads": "n_kv_head", "width": "n_embd"},
    },
}


def fields(shape: Shape, project: str) -> dict[str, int | bool | str]:
    """Fields of a project's configuration that give this shape.

    Raises:
        InputError: the project is unknown, or has no such block.
    """
    if refused := _refused(shape, project):
        raise InputError(f"{named('project')}: {refused}")
    model = "nanochat" if project == "nanochat" else "llama" if shape.mlp == "gated" else "gpt2"
    found = {theirs: getattr(shape, ours) for ours, theirs in NAMES[model].items()}
    return found if project == "nanochat" else {"model_type": model, **found}


def text(shape: Shape, project: str) -> str:
    """Text to paste: JSON for hf, arguments for nanochat."""
    found = fields(shape, project)
    if project == "hf":
        return json.dumps(found, indent=2)
    return f"GPTConfig({', '.join(f'{name}={value}' for name, value in found.items())})"


def _refused(shape: Shape, project: str) -> str:
    """Reason why a project has no such block; empty if it has."""
    gated, nanochat = shape.mlp == "gated", project == "nanochat"
    if project not in PROJECTS:
        return f"{project!r}; allowed: {', '.join(PROJECTS)}"
    if nanochat and (gated or shape.mlp_hidden != 4 * shape.width):
        return f"nanochat has a plain MLP of 4·d_x; use {named('mlp')} plain and {named('mlp_ratio')} 4"
    if (gated or nanochat) and shape.head_size % 2:  # GPT-2's positions are learned
        return f"{project} has rotary positions, which need an even head size, not {shape.head_size}"
    if not (gated or nanochat) and shape.kv_heads != shape.heads:
        return (
            "hf's GPT-2 gives every query head its own keys and values; for fewer key/value heads use "
            f"{named('mlp')} gated, which is exported as Llama"
        )
    return ""
