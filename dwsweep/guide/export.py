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
Fields = dict[str, int | bool | str]


def fields(shape: Shape, project: str) -> Fields:
    """Fields of a project's configuration that give this shape.

    Raises:
        InputError: the project is unknown, or has no such block.
    """
    if refused := _refused(shape, project):
        raise InputError(f"{named('project')}: {refused}")
    if project == "nanochat":
        return {
            "sequence_len": shape.seq_len,
            "vocab_size": shape.vocab_size,
            "n_layer": shape.depth,
            "n_head": shape.heads,
            "n_kv_head": shape.kv_heads,
            "n_embd": shape.width,
        }
    common: Fields = {"vocab_size": shape.vocab_size, "tie_word_embeddings": shape.tied_embeddings}
    if shape.mlp == "gated":
        return {
            "model_type": "llama",
            "hidden_size": shape.width,
            "intermediate_size": shape.mlp_hidden,
            "num_hidden_layers": shape.depth,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_size,
            "max_position_embeddings": shape.seq_len,
            **common,
        }
    return {
        "model_type": "gpt2",
        "n_embd": shape.width,
        "n_inner": shape.mlp_hidden,
        "n_layer": shape.depth,
        "n_head": shape.heads,
        "n_positions": shape.seq_len,
        **common,
    }


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
    if nanochat and shape.tied_embeddings:
        return f"nanochat has an unembedding of its own; leave out {named('tied_embeddings')}"
    if (gated or nanochat) and shape.head_size % 2:  # GPT-2's positions are learned
        return f"{project} has rotary positions, which need an even head size, not {shape.head_size}"
    if not (gated or nanochat) and shape.kv_heads != shape.heads:
        return (
            "hf's GPT-2 gives every query head its own keys and values; for fewer key/value heads use "
            f"{named('mlp')} gated, which is exported as Llama"
        )
    if not gated and shape.heads * shape.head_size != shape.width:
        return (
            f"{project}; a head must be d_x / heads wide there, and a head of {shape.depth} × {shape.width} is "
            f"{shape.head_size} wide; leave out {named('heads')} and {named('head_size')}"
        )
    return ""
