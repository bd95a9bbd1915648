"""What other projects call the columns: the usual names are understood, and what was taken for what is said."""

from __future__ import annotations

import re
from collections.abc import Sequence

# ours → theirs, the likelier first. Counts of parameters are left out: no name says whether embeddings are in it.
USUAL = {
    "depth": ("n_layer", "n_layers", "num_layers", "num_hidden_layers", "layers", "nlayers", "num_decoder_layers", "l"),
    "width": ("d_model", "n_embd", "hidden_size", "hidden_dim", "model_dim", "embed_dim", "emb_dim", "d_x", "dim", "d"),
    "loss": ("val_loss", "eval_loss", "validation_loss", "valid_loss", "test_loss", "final_loss", "lm_loss", "nll"),
    "learning_rate": ("lr", "max_lr", "peak_lr", "max_learning_rate"),
    "tokens": ("n_tokens", "num_tokens", "train_tokens", "training_tokens", "tokens_seen"),
    "seed": ("random_seed", "rng_seed"),
    "flops": ("total_flops", "train_flops", "training_flops"),
    "heads": ("n_head", "n_heads", "num_heads", "num_attention_heads"),
    "vocab_size": ("n_vocab", "vocabulary_size"),
    "seq_len": ("block_size", "context_length", "sequence_length", "sequence_len", "n_ctx"),
}
# other columns of ours, understood in another case
OURS = ("n_params", "n_params_total", "device_seconds", "head_size", "status", "run_id")


def understood(names: Sequence[str]) -> dict[str, str]:
    """``{ours: theirs}`` for each of our columns that a table lacks and has under a usual name, whatever its case and
    whatever joins its words (``eval/loss``, ``Num-Layers``)."""
    have = {_plain(name): name for name in reversed(names)}
    free = {plain: name for plain, name in have.items() if name not in USUAL and name not in OURS}
    return {
        ours: next(free[theirs] for theirs in (ours, *usual) if theirs in free)
        for ours, usual in {**dict.fromkeys(OURS, ()), **USUAL}.items()
        if ours not in names and any(theirs in free for theirs in (ours, *usual))
    }


def likely(ours: str, names: Sequence[str]) -> str:
    """The table's column that may be ours, by what its name holds; THEIRS where none does."""
    parts = {
        "depth": ("layer", "layers", "depth"),
        "width": ("width", "hidden", "embd", "model"),
        "loss": ("loss", "nll", "ce"),
    }
    found = [name for part in parts.get(ours, ()) for name in names if part in _plain(name).split("_")]
    return found[0] if found else "THEIRS"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
