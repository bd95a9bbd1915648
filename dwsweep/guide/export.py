"""Export of a shape as the configuration of a project that trains it: fields of the shape, no others.

hf        transformers: LlamaConfig for a gated MLP, GPT2Config for a plain one
nanochat  GPTConfig; its MLP is plain, four times as wide as the model
"""

from __future__ import annotations

import json

from dwsweep.errors import InputError, argument
from dwsweep.shapes import Shape

PROJECTS = ("hf", "nanochat")
Fields = dict[str, int | bool | str]


def fields(shape: Shape, project: str) -> Fields:
    """Fields of a project's configuration that give this shape.

    Raises:
        InputError: the project is unknown, or has no such block.
    """
    if project not in PROJECTS:
        raise InputError(f"{argument('project', '--export')}: {project!r}; allowed: {', '.join(PROJECTS)}")
    if shape.mlp == "gated" or project == "nanochat":  # GPT-2's positions are learned
        _even_heads(shape, project)
    if project == "nanochat":
        return _nanochat(shape)
    return _llama(shape) if shape.mlp == "gated" else _gpt2(shape)


def text(shape: Shape, project: str) -> str:
    """Text to paste: JSON for hf, arguments for nanochat."""
    found = fields(shape, project)
    if project == "hf":
        return json.dumps(found, indent=2)
    return f"GPTConfig({', '.join(f'{name}={value}' for name, value in found.items())})"


def _even_heads(shape: Shape, project: str) -> None:
    if shape.head_size % 2:
        raise InputError(
            f"{argument('project', '--export')}: {project} has rotary positions, which need an even head size, not "
            f"{shape.head_size}"
        )


def _whole_heads(shape: Shape, project: str) -> None:
    if shape.heads * shape.head_size != shape.width:
        raise InputError(
            f"{argument('project', '--export')}: {project}; a head must be d_x / heads wide there, and a head of "
            f"{shape.depth} × {shape.width} is {shape.head_size} wide; leave out --heads and --head-size"
        )


def _nanochat(shape: Shape) -> Fields:
    if shape.mlp == "gated" or shape.mlp_hidden != 4 * shape.width:
        raise InputError(
            f"{argument('project', '--export')}: nanochat has a plain MLP of 4·d_x; use "
            f"{argument('mlp')} plain and {argument('mlp_ratio')} 4"
        )
    if shape.tied_embeddings:
        raise InputError(
            f"{argument('project', '--export')}: nanochat has an unembedding of its own; leave out "
            f"{argument('tied_embeddings')}"
        )
    _whole_heads(shape, "nanochat")
    return {
        "sequence_len": shape.seq_len,
        "vocab_size": shape.vocab_size,
        "n_layer": shape.depth,
        "n_head": shape.heads,
        "n_kv_head": shape.kv_heads,
        "n_embd": shape.width,
    }


def _llama(shape: Shape) -> Fields:
    return {
        "model_type": "llama",
        "hidden_size": shape.width,
        "intermediate_size": shape.mlp_hidden,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.seq_len,
        "tie_word_embeddings": shape.tied_embeddings,
    }


def _gpt2(shape: Shape) -> Fields:
    if shape.kv_heads != shape.heads:
        raise InputError(
            f"{argument('project', '--export')}: hf's GPT-2 gives every query head its own keys and values; "
            f"for fewer key/value heads use {argument('mlp')} gated, which is exported as Llama"
        )
    _whole_heads(shape, "hf")
    return {
        "model_type": "gpt2",
        "n_embd": shape.width,
        "n_inner": shape.mlp_hidden,
        "n_layer": shape.depth,
        "n_head": shape.heads,
        "vocab_size": shape.vocab_size,
        "n_positions": shape.seq_len,
        "tie_word_embeddings": shape.tied_embeddings,
    }
