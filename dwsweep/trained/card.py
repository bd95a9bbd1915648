"""The README.md of an exported model: what it is, how it was made and how good it is."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from dwsweep.trained.architectures import Architecture
from dwsweep.trained.runs import TrainedRun


def model_card(run: TrainedRun, architecture: Architecture) -> str:
    """Markdown with the YAML header that the Hub reads; figures as config.json and result.json have them."""
    config, result, shape = run.config, run.result, run.shape
    train, data = config.train, config.data
    loss = f"{result.loss:.4f} nats per token"
    if result.loss_stderr:
        loss += f" ± {result.loss_stderr:.4f} (standard error over held-out documents)"
    if result.bits_per_byte:
        loss += f", {result.bits_per_byte:.4f} bits per byte"
    heads = f"{shape.heads} heads of {shape.head_size}"
    if shape.kv_heads != shape.heads:
        heads += f", {shape.kv_heads} key/value heads"
    rows = (
        ("shape", f"{shape.depth} layers of width {shape.width}, {heads}, MLP of {shape.mlp_hidden}"),
        ("block", _block(config.model, run)),
        ("parameters", f"{config.n_params_total:,}, of which {config.n_params:,} are weights of the blocks"),
        ("context", f"{shape.seq_len} tokens"),
        ("data", f"`{data.get('source')}`, content hash `{str(config.data_hash)[:16]}`"),
        ("tokenizer", _tokenizer(shape.vocab_size, data.get("tokenizer"))),
        (
            "trained on",
            f"{config.tokens:,} tokens in {config.steps:,} steps of {train.get('batch_size')} × {shape.seq_len}",
        ),
        (
            "optimizer",
            f"{train.get('optimizer')}, base learning rate {config.learning_rate:g}, {train.get('schedule')} schedule, "
            f"{config.model.get('parametrization')} parametrization, {train.get('precision')} matrix products",
        ),
        ("seed", f"{config.seed}"),
        ("held-out loss", loss),
        ("trained with", ", ".join(f"{name} {version}" for name, version in (result.versions or {}).items())),
    )
    table = "\n".join(f"| {name} | {text} |" for name, text in rows)
    return f"""\
---
library_name: transformers
pipeline_tag: text-generation
tags: [dwsweep]
---

# {run.run_id}

One point of a depth-width sweep by dwsweep: a language model that was trained to compare shapes, exported as
{architecture.name}.

| | |
| --- | --- |
{table}

```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = (kind.from_pretrained("PATH") for kind in (AutoModelForCausalLM, AutoTokenizer))
ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer("The ").input_ids]])
print(tokenizer.decode(model.generate(ids, max_new_tokens=40)[0]))
```

In training a document follows on the end token of another one: begin a prompt with `tokenizer.bos_token_id`. The
multipliers of the parametrization (residual branches, attention, unembedding) are folded into the weights, which are
float32. The held-out loss was measured before the export, by the trainer, in {train.get("precision")}.
{architecture.note}
"""


def _block(model: dict[str, Any], run: TrainedRun) -> str:
    shape = run.shape
    parts = [
        f"{shape.norm}-norm {shape.norm_type}",
        f"{shape.positions} positions",
        f"{shape.mlp} MLP with {shape.activation}",
        *(["normalised queries and keys"] if shape.qk_norm else []),
        "tied embeddings" if shape.tied_embeddings else "untied embeddings",
    ]
    preset = f" (preset {model['preset']})" if model.get("preset") else ""
    return ", ".join(parts) + preset


def _tokenizer(vocab_size: int, given: str | None) -> str:
    if vocab_size == 256 or given == "bytes":
        return "bytes"
    if given is not None:
        return f"`{PurePath(given).name}`, {vocab_size:,} tokens, not trained by the sweep"
    return f"byte-fallback BPE of {vocab_size:,} tokens, trained by SentencePiece on the same data"
