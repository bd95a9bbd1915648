"""Architectures of ``transformers`` for shapes of dwsweep, and their parameters under the names of ``transformers``.

``of`` has the architecture of each block. Multipliers that an architecture lacks are folded into its weights: the
residual multiplier into the matrices that write to the stream, the attention scale (theirs is 1/√d_p) into q or the
gain of its norm, the unembedding multiplier into the final norm, which also covers a tied unembedding. GPT-2 and GPT-
NeoX have no groups of key/value heads: each of a group's heads is given a copy. A plain MLP of squared ReLU is a gated
one whose gate is its up: relu(u)·u.

Gemma 3 also normalises a sublayer's output, and all its norms x/√(mean x² + ε)·g share one ε. Here that is ε·S²,
S = 2²⁶. A norm that we have too is given S·x, and S·x/√(mean (S·x)² + ε·S²) is x/√(mean x² + ε). A norm that we do not
have is given x itself. Beside ε·S² the mean of x² is nothing, so the norm divides by S·√ε whatever x is, and its gain
takes x from there to S·x. The residual stream, queries and keys are therefore S times ours, without rounding. What is
left of the additional norm changes an x by mean x²/(2·ε·S²) of itself: 1e-6 where mean x² is 1e5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dwsweep.model.ops import NORM_EPSILON
from dwsweep.model.parametrization import Scales
from dwsweep.shapes import Layer, Shape
from dwsweep.trained.runs import Arrays

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "relu2": "relu2", "none": "linear"}
"""Activations: our names → theirs. Our GELU is the tanh approximation, their ``gelu_new``."""


@dataclass(frozen=True)
class Architecture:
    """Architecture of ``transformers``.

    config: shape → content of config.json. weights: (shape, scales, our parameters) → their parameters. keys: values of
    the keys of ``model`` that it computes, None for any; of all other keys it computes the default.
    """

    name: str
    config: Callable[[Shape], dict[str, Any]]
    weights: Callable[[Shape, Scales, Arrays], Arrays]
    keys: Mapping[str, tuple[Any, ...] | None]
    note: str = ""  # note for users of the export


def of(shape: Shape) -> Architecture | list[str]:
    """Architecture that computes the same function as the shape; else the keys of the shape whose values it lacks. A
    key that no architecture names, such as one of a later version, must have its default."""
    if shape.norm_type == "rmsnorm":
        found = LLAMA if not shape.qk_norm else QWEN3 if shape.logit_softcap is None else GEMMA3
    else:
        found = GPT_NEOX if shape.positions == "rotary" else GPT2
    keys = {**found.keys, **({"mlp": None} if shape.activation == "relu2" and "mlp" in found.keys else {})}
    missing = []
    for field in fields(Layer):
        value, allowed = getattr(shape, field.name), keys.get(field.name, (field.default,))
        if allowed is not None and value not in allowed:
            shown = str(value).lower() if isinstance(value, bool) else value
            missing.append(f"model.{field.name}: {shown} (with model.norm_type: {shape.norm_type}: {found.name})")
    if found in (GPT2, GPT_NEOX) and shape.heads * shape.head_size != shape.width:
        missing.append(f"grid.heads: {shape.heads} × {shape.head_size} at width {shape.width} ({found.name})")
    return missing or found


def _layers(shape: Shape, scales: Scales, ours: Arrays) -> Iterator[Arrays]:
    """Parameters of each block by name: scales folded in, matrices (n_in, n_out), separate q, k, v, gate and up, and
    biases if the model has them."""
    H, K, P = shape.heads, shape.kv_heads, shape.head_size
    query = scales.attention_scale * math.sqrt(P)
    prefix = "blocks."
    for i in range(shape.depth):
        layer = {name.removeprefix(prefix): array[i] for name, array in ours.items() if name.startswith(prefix)}
        found = {name: layer[name] for name in layer if "norm" in name}
        for kind in ("kernel", "bias"):
            if f"attention.qkv.{kind}" not in layer:
                continue
            q, k, v = np.split(layer[f"attention.qkv.{kind}"], [H * P, (H + K) * P], axis=-1)
            found |= {f"q.{kind}": q if shape.qk_norm else query * q, f"k.{kind}": k, f"v.{kind}": v}
            up = layer[f"mlp.up.{kind}"]
            gate, up = np.split(up, 2, axis=-1) if shape.mlp == "gated" else (up, up)
            found |= {f"gate.{kind}": gate, f"up.{kind}": up}
            for name, of in (("out", "attention.out"), ("down", "mlp.down")):
                found[f"{name}.{kind}"] = scales.residual_multiplier * layer[f"{of}.{kind}"]
        if shape.qk_norm:
            found["attention.q_norm.gain"] = query * found["attention.q_norm.gain"]
        yield found


def _plain_layers(shape: Shape, scales: Scales, ours: Arrays) -> Iterator[Arrays]:
    """Parameters as in ``_layers``, with a copy of key and value for every query head, and missing biases as 0."""
    for layer in _layers(shape, scales, ours):
        for name in ("q", "k", "v", "out", "up", "down"):
            layer.setdefault(f"{name}.bias", np.zeros(layer[f"{name}.kernel"].shape[-1], np.float32))
        for name in ("k.kernel", "v.kernel", "k.bias", "v.bias"):
            x = layer[name]
            heads = x.reshape(*x.shape[:-1], shape.kv_heads, shape.head_size)
            layer[name] = np.repeat(heads, shape.heads // shape.kv_heads, axis=-2).reshape(*x.shape[:-1], -1)
        yield layer


def _norm(ours: Arrays, name: str, theirs: str, scale: float = 1.0) -> Arrays:
    """A LayerNorm's gain and bias; a missing bias is 0."""
    gain = ours[f"{name}.gain"]
    return {f"{theirs}.weight": scale * gain, f"{theirs}.bias": scale * ours.get(f"{name}.bias", np.zeros_like(gain))}


def _tables(shape: Shape, ours: Arrays, embedding: str, unembedding: str) -> Arrays:
    tables = {embedding: ours["embedding"]}
    return tables if shape.tied_embeddings else tables | {unembedding: ours["unembedding"]}


def _common(shape: Shape, model_type: str, architecture: str) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "architectures": [architecture],
        "vocab_size": shape.vocab_size,
        "tie_word_embeddings": shape.tied_embeddings,
        "dtype": "float32",
        "torch_dtype": "float32",  # the same setting for transformers before 5
    }


def _gpt2_config(shape: Shape) -> dict[str, Any]:
    return {
        **_common(shape, "gpt2", "GPT2LMHeadModel"),
        "n_positions": shape.seq_len,
        "n_embd": shape.width,
        "n_layer": shape.depth,
        "n_head": shape.heads,
        "n_inner": shape.mlp_hidden,
        "activation_function": ACTIVATIONS[shape.activation],
        "layer_norm_epsilon": NORM_EPSILON,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    }


def _gpt2_weights(shape: Shape, scales: Scales, ours: Arrays) -> Arrays:
    D = shape.width
    positions = ours.get("positions")
    if positions is None:
        from dwsweep.model.attention import sinusoids

        positions = np.asarray(scales.embedding.init_std * math.sqrt(2) * sinusoids(shape.seq_len, D), np.float32)
    found = _tables(shape, ours, "transformer.wte.weight", "lm_head.weight") | {"transformer.wpe.weight": positions}
    for i, layer in enumerate(_plain_layers(shape, scales, ours)):
        h = f"transformer.h.{i}"
        found |= _norm(layer, "attention_norm", f"{h}.ln_1") | _norm(layer, "mlp_norm", f"{h}.ln_2")
        for kind, theirs in (("kernel", "weight"), ("bias", "bias")):
            found[f"{h}.attn.c_attn.{theirs}"] = np.concatenate([layer[f"{name}.{kind}"] for name in "qkv"], axis=-1)
            for place, name in (("attn.c_proj", "out"), ("mlp.c_fc", "up"), ("mlp.c_proj", "down")):
                found[f"{h}.{place}.{theirs}"] = layer[f"{name}.{kind}"]
    return found | _norm(ours, "final_norm", "transformer.ln_f", scales.unembedding_multiplier)


def _rope(shape: Shape) -> dict[str, Any]:
    rope = {"rope_theta": shape.rope_theta, "rope_type": "default"}
    return {"max_position_embeddings": shape.seq_len, "rope_theta": shape.rope_theta, "rope_parameters": rope}


def _gpt_neox_config(shape: Shape) -> dict[str, Any]:
    rope = _rope(shape)
    return {
        **_common(shape, "gpt_neox", "GPTNeoXForCausalLM"),
        **rope,
        "rope_parameters": {**rope["rope_parameters"], "partial_rotary_factor": 1.0},
        "rotary_pct": 1.0,  # the same two settings for transformers before 5
        "rotary_emb_base": shape.rope_theta,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.mlp_hidden,
        "hidden_act": ACTIVATIONS[shape.activation],
        "layer_norm_eps": NORM_EPSILON,
        "use_parallel_residual": False,
        "attention_bias": True,
        **dict.fromkeys(("hidden_dropout", "attention_dropout"), 0.0),
    }


def _gpt_neox_weights(shape: Shape, scales: Scales, ours: Arrays) -> Arrays:
    D, H, P = shape.width, shape.heads, shape.head_size
    found = _tables(shape, ours, "gpt_neox.embed_in.weight", "embed_out.weight")
    for i, layer in enumerate(_plain_layers(shape, scales, ours)):
        h = f"gpt_neox.layers.{i}"
        found |= _norm(layer, "attention_norm", f"{h}.input_layernorm")
        found |= _norm(layer, "mlp_norm", f"{h}.post_attention_layernorm")
        # order by head: its q, its k, its v
        kernels = np.stack([layer[f"{name}.kernel"].T.reshape(H, P, D) for name in "qkv"], axis=1)
        biases = np.stack([layer[f"{name}.bias"].reshape(H, P) for name in "qkv"], axis=1)
        found[f"{h}.attention.query_key_value.weight"] = kernels.reshape(3 * D, D)
        found[f"{h}.attention.query_key_value.bias"] = biases.reshape(-1)
        for place, name in (("attention.dense", "out"), ("mlp.dense_h_to_4h", "up"), ("mlp.dense_4h_to_h", "down")):
            found |= {f"{h}.{place}.weight": layer[f"{name}.kernel"].T, f"{h}.{place}.bias": layer[f"{name}.bias"]}
    return found | _norm(ours, "final_norm", "gpt_neox.final_layer_norm", scales.unembedding_multiplier)


def _llama_config(shape: Shape) -> dict[str, Any]:
    plain = shape.mlp == "plain"  # squared ReLU
    return {
        **_common(shape, "llama", "LlamaForCausalLM"),
        **_rope(shape),
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "intermediate_size": shape.mlp_hidden,
        "hidden_act": "relu" if plain else ACTIVATIONS[shape.activation],
        "rms_norm_eps": NORM_EPSILON,
        "attention_bias": shape.biases,
        "mlp_bias": shape.biases,
        "attention_dropout": 0.0,
    }


def _llama_weights(shape: Shape, scales: Scales, ours: Arrays) -> Arrays:
    found = _tables(shape, ours, "model.embed_tokens.weight", "lm_head.weight")
    for i, layer in enumerate(_layers(shape, scales, ours)):
        h = f"model.layers.{i}"
        found[f"{h}.input_layernorm.weight"] = layer["attention_norm.gain"]
        found[f"{h}.post_attention_layernorm.weight"] = layer["mlp_norm.gain"]
        places = {**{n: f"self_attn.{n}_proj" for n in "qkv"}, "out": "self_attn.o_proj"}
        places |= {name: f"mlp.{name}_proj" for name in ("gate", "up", "down")}
        for name, theirs in places.items():
            found[f"{h}.{theirs}.weight"] = layer[f"{name}.kernel"].T
            if shape.biases:
                found[f"{h}.{theirs}.bias"] = layer[f"{name}.bias"]
        if shape.qk_norm:
            found[f"{h}.self_attn.q_norm.weight"] = layer["attention.q_norm.gain"]
            found[f"{h}.self_attn.k_norm.weight"] = layer["attention.k_norm.gain"]
    return found | {"model.norm.weight": scales.unembedding_multiplier * ours["final_norm.gain"]}


def _qwen3_config(shape: Shape) -> dict[str, Any]:
    config = {**_llama_config(shape), **_common(shape, "qwen3", "Qwen3ForCausalLM"), "use_sliding_window": False}
    return {name: value for name, value in config.items() if name != "mlp_bias"}


GEMMA_SCALE = 2.0**26
"""Scale S: residual stream, queries and keys of a Gemma 3 over ours."""


def _gemma3_config(shape: Shape) -> dict[str, Any]:
    rope = _rope(shape)["rope_parameters"]
    return {
        **_llama_config(shape),
        **_common(shape, "gemma3_text", "Gemma3ForCausalLM"),
        "tie_word_embeddings": False,  # only the embedding is scaled, not the unembedding
        "hidden_activation": _llama_config(shape)["hidden_act"],
        "rms_norm_eps": NORM_EPSILON * GEMMA_SCALE**2,
        "query_pre_attn_scalar": shape.head_size,
        "final_logit_softcapping": shape.logit_softcap,
        "layer_types": ["full_attention"] * shape.depth,
        "rope_parameters": {"full_attention": rope, "sliding_attention": rope},
        "rope_local_base_freq": shape.rope_theta,  # setting for transformers before 5
    }


def _gemma3_weights(shape: Shape, scales: Scales, ours: Arrays) -> Arrays:
    found = _llama_weights(replace(shape, tied_embeddings=False), scales, {"unembedding": ours["embedding"], **ours})
    # Gemma multiplies embeddings by √d
    found["model.embed_tokens.weight"] = GEMMA_SCALE / math.sqrt(shape.width) * ours["embedding"]
    back = np.full(shape.width, GEMMA_SCALE * math.sqrt(NORM_EPSILON) * GEMMA_SCALE, np.float32)
    for i in range(shape.depth):
        h = f"model.layers.{i}"
        for name in ("q", "k"):
            found[f"{h}.self_attn.{name}_proj.weight"] = GEMMA_SCALE * found[f"{h}.self_attn.{name}_proj.weight"]
        found[f"{h}.pre_feedforward_layernorm.weight"] = found[f"{h}.post_attention_layernorm.weight"]
        found |= {f"{h}.{name}.weight": back for name in ("post_attention_layernorm", "post_feedforward_layernorm")}
    # a Gemma's gains are 1 + weight
    return {name: array - 1 if "norm" in name else array for name, array in found.items()}


_KEYS = {"activation": tuple(ACTIVATIONS), **dict.fromkeys(("rope_theta", "z_loss", "tied_embeddings", "biases"))}
_RMS = {**_KEYS, "norm_type": ("rmsnorm",), "positions": ("rotary",), "mlp": ("gated",)}
_NORMED = {**_RMS, "qk_norm": (True,), "biases": (False,)}
GPT2 = Architecture("GPT-2", _gpt2_config, _gpt2_weights, {**_KEYS, "positions": ("learned", "sinusoidal")})
GPT_NEOX = Architecture("GPT-NeoX", _gpt_neox_config, _gpt_neox_weights, {**_KEYS, "positions": ("rotary",)})
LLAMA = Architecture("Llama", _llama_config, _llama_weights, _RMS)
QWEN3 = Architecture("Qwen3", _qwen3_config, _llama_weights, _NORMED)
GEMMA3 = Architecture(
    "Gemma 3",
    _gemma3_config,
    _gemma3_weights,
    {**_NORMED, "logit_softcap": None},
    "Load it in float32 or bfloat16, never in float16: the residual stream is 2²⁶ times that of the trained model, so\n"
    "that Gemma 3's norms behind its sublayers, which the trained model does not have, change nothing.",
)
