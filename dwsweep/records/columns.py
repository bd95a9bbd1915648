"""The columns of a table of runs: what each holds, what part it plays in a fit, what other projects call it.

``results.csv`` has those of ``RESULTS``, in that order; a table from elsewhere needs depth, width and loss. A new
measured column of results.csv is a field of ``records.run.RunResult``, and here a column and its place in ``RESULTS``.
Whoever asks for a kind of column asks here: ``named("recipe")``, ``of_type("count")``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["size", "outcome", "recipe", "tuning", "identity"]
Type = Literal["number", "count", "text", "any"]


@dataclass(frozen=True)
class Column:
    """One column.

    type: a count is a number between fixed bounds where it is positive, and blank where it is not; a text stays one,
    be it 7; any: as it reads. role: the size of a net or of its training, what a run ended with, what must be the same
    for all runs of a shape, what must be so at one learning rate, what names a run. aliases: usual names elsewhere, the
    likelier first; without any its own name is understood in every case; None: only as it stands here. A count of
    parameters that does not say so has the embeddings in it. label: of an axis. meaning: in results.csv.
    """

    name: str
    role: Role
    type: Type = "any"
    aliases: tuple[str, ...] | None = None
    unit: str = ""
    label: str = ""
    meaning: str = ""


COLUMNS = (
    Column(
        "depth",
        "size",
        "number",
        ("n_layer", "n_layers", "num_layers", "num_hidden_layers", "layers", "nlayers", "num_decoder_layers", "l"),
        "layers",
        meaning="number of blocks L",
    ),
    Column(
        "width",
        "size",
        "number",
        ("d_model", "n_embd", "hidden_size", "hidden_dim", "model_dim", "embed_dim", "emb_dim", "d_x", "dim", "d"),
        meaning="d_x, the width of the residual stream",
    ),
    Column(
        "loss",
        "outcome",
        "number",
        ("val_loss", "eval_loss", "validation_loss", "valid_loss", "test_loss", "final_loss", "lm_loss", "nll"),
        "nats per token",
        meaning="held-out loss per token, the end of each document counted",
    ),
    Column(
        "learning_rate",
        "tuning",
        "number",
        ("lr", "max_lr", "peak_lr", "max_learning_rate"),
        meaning="base rate, which the parametrization resolves for each shape",
    ),
    Column(
        "tokens",
        "tuning",
        "count",
        (
            *("n_tokens", "num_tokens", "train_tokens", "training_tokens", "tokens_seen"),
            *("tokens_trained", "total_tokens", "total_training_tokens"),
        ),
        "tokens",
        meaning="tokens that the run trained on",
    ),
    Column(
        "seed",
        "identity",
        aliases=("random_seed", "rng_seed"),
        meaning="seed of the initial weights and of the order of the batches, which all shapes share",
    ),
    Column(
        "n_params",
        "size",
        "count",
        (
            *("non_embedding_params", "params_non_embedding", "n_params_non_embedding", "num_params_non_embedding"),
            *("non_embedding_parameters", "num_non_embedding_params", "params_transformer"),
        ),
        "parameters",
        "non-embedding parameters",
        meaning="weight matrices of the blocks, 12·L·d_x² in a standard block",
    ),
    Column(
        "n_params_total",
        "size",
        "count",
        (
            *("total_params", "params_total", "num_params_total", "total_parameters", "params", "num_params"),
            *("parameters", "n_parameters", "num_parameters", "parameter_count", "param_count"),
        ),
        "parameters",
        "parameters, embeddings included",
        meaning="all parameters: embeddings, biases and norms too",
    ),
    Column(
        "flops",
        "size",
        "count",
        ("total_flops", "train_flops", "training_flops", "compute"),
        "FLOPs",
        "training FLOPs",
        meaning="of training, attention and unembedding counted",
    ),
    Column(
        "device_seconds",
        "outcome",
        "count",
        (),
        "s",
        "device seconds",
        meaning="the run's share of its pack, on one device",
    ),
    Column("budget", "size", unit="parameters", meaning="non-embedding parameters that the shape was matched to"),
    Column("flops_6nd", "size", unit="FLOPs"),
    Column("train_flops", "size", "number", unit="FLOPs"),  # what each run was to spend
    Column("train_seconds", "size", "number", unit="s"),
    Column(
        "heads",
        "recipe",
        "number",
        ("n_head", "n_heads", "num_heads", "num_attention_heads"),
        meaning="attention heads per block",
    ),
    Column("head_size", "recipe", "number", (), meaning="width of a head"),
    Column("parametrization", "recipe", meaning="rule by which rates and initial values follow from depth and width"),
    Column("optimizer", "recipe", meaning="how weights are updated"),
    Column("schedule", "recipe", meaning="of the learning rate over the steps"),
    Column("precision", "recipe", meaning="of the matrix products; everything else is float32"),
    Column("batch_size", "recipe", unit="sequences", meaning="sequences per step"),
    Column(
        "seq_len",
        "recipe",
        "number",
        ("block_size", "context_length", "sequence_length", "sequence_len", "n_ctx"),
        "tokens",
        meaning="positions of a sequence",
    ),
    Column(
        "vocab_size", "recipe", "number", ("n_vocab", "vocabulary_size"), "tokens", meaning="size of the vocabulary"
    ),
    Column("embedding_rank", "recipe", "number"),
    Column("data_hash", "recipe", meaning="SHA-256 of the tokens, their split and the tokenizer"),
    Column("steps", "tuning", meaning="optimizer steps"),
    # further settings, and names that other projects give them
    *(
        Column(name, "tuning")
        for name in (
            *("warmup_steps", "weight_decay", "grad_clip", "betas", "beta1", "beta2", "dropout", "min_lr"),
            *("warmup", "wd", "lr", "lr_schedule", "scheduler", "batch", "global_batch", "global_batch_size"),
            *("cooldown", "context_length", "tokenizer", "dataset", "dtype", "optim", "activation", "norm"),
            *("num_heads", "n_heads"),
        )
    ),
    Column(
        "bits_per_byte",
        "outcome",
        "number",
        ("val_bpb", "bpb", "eval_bpb", "validation_bpb"),
        "bits per byte",
        meaning="held-out loss per byte of text, which compares between vocabularies",
    ),
    Column("loss_stderr", "outcome", unit="nats per token", meaning="standard error of loss over held-out documents"),
    Column(
        "wall_seconds",
        "outcome",
        aliases=("train_time_sec", "train_seconds_total", "runtime"),
        unit="s",
        meaning="time of the whole pack that the run trained in",
    ),
    Column("tokens_per_second", "outcome", unit="tokens/s", meaning="rate of the whole pack"),
    Column("attention_kernel", "outcome", meaning="kernel that the attention ran with"),
    Column("device_kind", "outcome", meaning="device, as JAX names it"),
    Column("pack_size", "outcome", unit="runs", meaning="runs that were trained as one"),
    Column(
        "status",
        "outcome",
        aliases=("state", "run_state", "run_status"),
        meaning="done, diverged, failed, oom, interrupted or pending; only done has a loss",
    ),
    Column(
        "run_id",
        "identity",
        aliases=(),
        meaning="shape, learning rate, seed, and a hash of all that changes the result",
    ),
    Column("arm", "identity", "text", meaning="recipe, where several are compared"),
)


RESULTS = (
    *("run_id", "depth", "width", "heads", "head_size", "seed", "learning_rate", "parametrization", "budget"),
    *("n_params", "n_params_total", "tokens", "steps", "loss", "loss_stderr", "bits_per_byte", "status"),
    *("wall_seconds", "tokens_per_second", "flops", "batch_size", "seq_len", "vocab_size", "optimizer", "schedule"),
    *("precision", "attention_kernel", "data_hash", "device_kind", "pack_size", "device_seconds", "embedding_rank"),
    "arm",
)
"""The columns of results.csv, in their order."""


def named(*roles: Role) -> tuple[str, ...]:
    """Name the columns of these roles."""
    return tuple(column.name for column in COLUMNS if column.role in roles)


def of_type(*types: Type) -> tuple[str, ...]:
    """Name the columns of these types."""
    return tuple(column.name for column in COLUMNS if column.type in types)


REQUIRED = ("depth", "width", "loss")
AXES = {column.name: column.label for column in COLUMNS if column.label}
"""Columns that a fit may take for the size at which depths are compared, and how an axis calls them."""
ALIASES = {column.name: column.aliases for column in COLUMNS if column.aliases}
"""Usual names elsewhere, the likelier first, by ours."""
IN_ANY_CASE = tuple(column.name for column in COLUMNS if column.aliases is not None)
"""Columns that are understood in another case, or under an alias."""
