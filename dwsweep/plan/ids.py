"""Ids of runs and packs: readable names that end in a hash over every key of the spec, but those named here.

A key is out of the hash only if it is named here, with the reason: a key that nobody named counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any

from dwsweep.shapes import Shape
from dwsweep.spec import LENGTHS, OPTIMIZERS, Section, Spec
from dwsweep.spec.sections import SOURCES_WITH_FIELDS

UNHASHED = "unhashed"
"""End of every id while the data is not prepared: the hash before it has all but the data."""

HASH_VERSION = 2  # raise it if the same settings come to mean another result

OLDEST = {
    *("depth", "width", "heads", "head_size", "kv_heads", "mlp_hidden", "vocab_size", "seq_len", "norm", "activation"),
    *("mlp", "positions", "tied_embeddings", "biases", "head_size_follows_width"),
    *("parametrization", "base_width", "base_depth", "batch_size", "optimizer", "momentum", "betas", "epsilon"),
    *("weight_decay", "grad_clip", "schedule", "cooldown_fraction", "warmup_steps", "precision", "eval_tokens"),
}
"""Keys of the first version, hashed whatever their value."""

ELSEWHERE = {
    "grid": {  # the hash has the shape, the seed and the rate that follow from them
        *("depths", "budgets", "widths", "width_multiple", "max_mismatch", "strict_budgets", "heads", "seeds"),
        *("learning_rates", "arms"),
    },
    "model": {"preset", "mlp_ratio", "mlp_multiple"},  # the hash has the shape
    "train": {
        *("seq_len", "token_branches", *LENGTHS),  # the hash has the shape and the steps
        "conditioning",  # it only records
    },
    "data": {  # the hash has the content of the token store
        *("source", "tokenizer", "vocab_size", "validation_fraction", "text_field", "tokenizer_sample_bytes", "seed"),
        *("cache_dir", "workers"),
    },
    "": {"name", "grid", "model", "train", "data", "execution"},  # no key of `execution` changes a result
}
"""Keys of each section that the hash has in another form, or that change no result."""


def unused(spec: Spec) -> Iterator[tuple[str, str, str]]:
    """Section and name of each key that another key leaves without effect, and what it belongs to."""
    model, data, train, of_fields = spec.model, spec.data, spec.train, ", ".join(SOURCES_WITH_FIELDS)
    uses = [
        *(("grid", key, spec.grid.widths is None, "grid.budgets") for key in _OF_BUDGETS),
        *(
            ("train", key, name == train.optimizer, f"train.optimizer: {name}")
            for name, facts in OPTIMIZERS.items()
            for key in facts.settings
        ),
        ("train", "cooldown_fraction", train.schedule == "wsd", "train.schedule: wsd"),
        ("model", "rope_theta", model.positions == "rotary", "model.positions: rotary"),
        ("model", "base_width", model.parametrization != "standard", "model.parametrization: mup or completep"),
        ("model", "base_depth", model.parametrization == "completep", "model.parametrization: completep"),
        ("data", "text_field", data.source.partition(":")[0] in SOURCES_WITH_FIELDS, f"data.source: {of_fields}"),
        *(("data", key, data.tokenizer is None, "data.tokenizer: null, a trained one") for key in _OF_TRAINED),
    ]
    return ((section, key, needed) for section, key, is_used, needed in uses if not is_used)


_OF_BUDGETS, _OF_TRAINED = ("width_multiple", "max_mismatch", "strict_budgets"), ("tokenizer_sample_bytes", "seed")


def result_facts(spec: Spec, shape: Shape, data_hash: str | None) -> dict[str, Any]:
    """All settings that change a result, besides seed, learning rate and steps."""
    idle = [(section, key) for section, key, _ in unused(spec)]

    def counting(name: str, section: Section, elsewhere: Collection[str] = ()) -> dict[str, Any]:
        left_out = {*ELSEWHERE[name], *elsewhere, *(key for part, key in idle if part == name)}
        return section.counting(OLDEST, left_out)

    model = counting("model", spec.model, vars(shape))
    further = {name: counting(name, getattr(spec, name)) for name in ("grid", "data")} | {"": counting("", spec)}
    defaults = {field.name: field.default for field in fields(Shape)}
    return {
        "version": HASH_VERSION,
        "shape": {key: v for key, v in shape.to_dict().items() if key in OLDEST or v != defaults[key]},
        "attention": spec.model.attention,
        "parametrization": {"rule": model.pop("parametrization"), **model},
        "train": counting("train", spec.train),
        "data": data_hash,
        **{f"{name}.": found for name, found in further.items() if found},
    }


def content_hash(content: Any, data_hash: str | None) -> str:
    """Eight hex digits of the hash of JSON values, and ``UNHASHED`` without a ``data_hash``."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digits = hashlib.sha256(text.encode()).hexdigest()[:8]
    return digits if data_hash is not None else f"{digits}-{UNHASHED}"


def run_id(
    spec: Spec,
    shape: Shape,
    facts: Mapping[str, Any],
    seed: int,
    learning_rate: float,
    steps: int,
    data_hash: str | None,
    branch: bool = False,
) -> str:
    """``L12-d128-h2-lr0.001-s0-<8 hex>``; ``facts``: of ``result_facts``.

    A token branch that ends before the full length has its tokens in the name too: ``…-s0-t2.1e6-<8 hex>``.
    """
    content = {"seed": seed, "learning_rate": learning_rate, "steps": steps, **facts}
    tokens = f"-t{steps * spec.train.batch_size * spec.train.seq_len:.4g}".replace("e+0", "e") if branch else ""
    return f"{shape.label}-lr{learning_rate:g}-s{seed}{tokens}-{content_hash(content, data_hash)}"
