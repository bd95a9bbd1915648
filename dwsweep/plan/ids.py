"""Names of runs and packs: readable, and with a hash over all that changes a result and nothing else."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from dwsweep.shapes import Shape
from dwsweep.spec import Spec

UNHASHED = "unhashed"
"""Stands for the hash in every id while the data is not prepared."""

HASH_VERSION = 2  # raise it when the same settings come to mean another result


def result_facts(spec: Spec, shape: Shape, data_hash: str | None) -> dict[str, Any]:
    """All settings that change a result, beside seed, learning rate and steps; nothing that does not.

    Sizes are in ``shape``; the length is counted in steps, however the spec gave it. How the work is carried out
    (``execution``), where files lie and how many processes prepare them are not in here, and the source of the text
    is there through the content hash of its tokens.
    """
    model, train = spec.model, spec.train
    parametrization: dict[str, Any] = {"rule": model.parametrization}
    if model.parametrization != "standard":
        parametrization["base_width"] = model.base_width
    if model.parametrization == "completep":
        parametrization["base_depth"] = model.base_depth
    names = {"batch_size", "optimizer", "betas", "epsilon", "weight_decay", "grad_clip", "schedule", "warmup_steps"}
    names |= {"precision", "eval_tokens"}
    if train.schedule == "wsd":
        names.add("cooldown_fraction")
    return {
        "version": HASH_VERSION,
        "shape": shape.to_dict(),
        "attention": model.attention,
        "parametrization": parametrization,
        "train": train.model_dump(mode="json", include=names),
        "data": data_hash,
    }


def content_hash(content: Any, data_hash: str | None) -> str:
    if data_hash is None:
        return UNHASHED
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def run_id(
    spec: Spec, shape: Shape, seed: int, learning_rate: float, steps: int, data_hash: str | None, branch: bool = False
) -> str:
    """``L12-d128-h2-lr0.001-s0-<8 hex>``: the hash tells apart whatever changes the result.

    A token branch that ends before the full length has its tokens in the name too: ``…-s0-t2.1e6-<8 hex>``.
    """
    content = {"seed": seed, "learning_rate": learning_rate, "steps": steps, **result_facts(spec, shape, data_hash)}
    tokens = f"-t{steps * spec.train.batch_size * spec.train.seq_len:.4g}".replace("e+0", "e") if branch else ""
    return f"{shape.label}-lr{learning_rate:g}-s{seed}{tokens}-{content_hash(content, data_hash)}"
