"""Columns of a table of runs: meaning, role in a fit, names in other projects.

``results.csv`` has the columns of ``RESULTS``, in that order; a table from elsewhere needs depth, width and loss. A new
column of results.csv is a column and its place in ``RESULTS`` here; the value of a setting of the spec's ``model`` or
``train`` is found by its name, and a measured number is a field of ``records.run.RunResult``. A further name that other
projects give a column stands in ``_USUAL``.
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
    be it 7; any: as it reads. role: size of a net or of its training, outcome of a run, setting equal for all runs of a
    shape, setting equal at one learning rate, identity of a run. word: its name in sentences, where losses are adjusted
    for it unasked.
    """

    name: str
    role: Role
    type: Type = "any"
    word: str = ""


COLUMNS = (
    Column("depth", "size", "number"),  # layers: number of blocks L
    Column("width", "size", "number"),  # d_x, the width of the residual stream
    Column("loss", "outcome", "number"),  # nats per token: held-out loss per token, end tokens included
    # base rate, which the parametrization resolves for each shape
    Column("learning_rate", "tuning", "number", "learning rate"),
    Column("tokens", "tuning", "count", "tokens"),  # tokens that the run trained on
    Column("steps", "tuning", word="steps"),  # optimizer steps
    Column("seed", "identity"),  # of initial weights and order of batches, which all shapes share
    Column("n_params", "size", "count"),  # weight matrices of the blocks, 12·L·d_x² in a standard block
    Column("n_params_total", "size", "count"),  # all parameters: embeddings, biases and norms too
    Column("flops", "size", "count"),  # of training, attention and unembedding counted
    Column("device_seconds", "outcome", "count"),  # s: the run's share of its pack, on one device
    Column("budget", "size"),  # parameters: non-embedding parameters that the shape was matched to
    Column("flops_6nd", "size"),  # FLOPs
    Column("train_flops", "size", "number"),  # FLOPs: requested FLOPs of each run
    Column("train_seconds", "size", "number"),  # s
    Column("heads", "recipe", "number"),  # attention heads per block
    Column("head_size", "recipe", "number"),  # width of a head
    # rule by which rates and initial values follow from the shape
    Column("parametrization", "recipe", "text", "parametrization"),
    Column("optimizer", "recipe", "text", "optimizer"),
    Column("schedule", "recipe", "text", "schedule"),  # of the learning rate over the steps
    Column("activation", "tuning", "text", "activation"),
    Column("hidden_act", "tuning", "text", "hidden act"),  # its silu is that of a gate
    Column("norm", "tuning", "text", "norm"),
    Column("dataset", "tuning", "text", "dataset"),
    Column("attention", "tuning", "text", "attention"),
    Column("d_ff", "recipe", "number"),  # inner width of the MLP
    Column("mlp_ratio", "recipe", "number"),  # d_ff / d_x
    Column("kv_heads", "recipe", "number"),
    Column("gated", "recipe"),  # a third matrix in the MLP
    Column("experts", "recipe", "number"),  # MLPs of a block, of which each token passes ``top_k``
    Column("top_k", "recipe", "number"),
    Column("precision", "recipe"),  # of the matrix products; everything else is float32
    Column("batch_size", "recipe", word="batch"),  # sequences: sequences per step
    Column("warmup_steps", "tuning", word="warm-up"),
    Column("weight_decay", "tuning", word="weight decay"),
    Column("seq_len", "recipe", "number", "context"),  # positions of a sequence
    Column("dropout", "tuning", word="dropout"),
    Column("grad_clip", "tuning", word="gradient clip"),
    Column("vocab_size", "recipe", "number"),  # size of the vocabulary
    Column("embedding_rank", "recipe", "number"),
    Column("data_hash", "recipe"),  # SHA-256 of the tokens, their split and the tokenizer
    *(Column(name, "tuning", word=name) for name in ("beta1", "beta2", "min_lr", "cooldown")),
    *(Column(name, "tuning") for name in ("betas", "tokenizer", "dtype")),
    Column("bits_per_byte", "outcome", "number"),  # bits per byte: of text, compares between vocabularies
    Column("loss_stderr", "outcome"),  # nats per token: standard error of loss over held-out documents
    Column("wall_seconds", "outcome"),  # s: time of the whole pack that the run trained in
    Column("tokens_per_second", "outcome"),  # rate of the whole pack
    Column("attention_kernel", "outcome"),  # attention kernel
    Column("device_kind", "outcome"),  # JAX's name of the device
    Column("pack_size", "outcome"),  # runs that were trained as one
    Column("status", "outcome"),  # done, diverged, failed, oom, interrupted or pending; only done has a loss
    Column("run_id", "identity"),  # shape, learning rate, seed, hash of all that changes the result
    Column("arm", "identity", "text"),  # recipe, if several are compared
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
AXES = ("n_params", "n_params_total", "flops", "device_seconds")
"""Columns that may be the axis of a fit: the size at which depths are compared."""
_USUAL = {
    "depth": "n_layer n_layers num_layers num_hidden_layers layers nlayers num_decoder_layers l",
    "width": "d_model n_embd hidden_size hidden_dim model_dim embed_dim emb_dim d_x dim d",
    "loss": (
        "val_loss eval_loss validation_loss valid_loss test_loss held_out_loss heldout_loss loss_val loss_eval "
        "loss_valid loss_validation loss_test dev_loss final_val_loss final_eval_loss best_val_loss best_eval_loss "
        "min_val_loss final_loss lm_loss nll"
    ),
    # a tracker's lr may be the last one logged: a peak beside it is the setting
    "learning_rate": "max_lr peak_lr max_learning_rate lr",
    "tokens": (
        "n_tokens num_tokens train_tokens training_tokens tokens_seen tokens_trained total_tokens total_training_tokens"
    ),
    "seed": (
        "random_seed rng_seed init_seed model_seed run_seed global_seed manual_seed seed_id data_seed torch_seed "
        "replicate replica repetition rep repeat"
    ),
    "n_params": (
        "non_embedding_params params_non_embedding n_params_non_embedding num_params_non_embedding "
        "non_embedding_parameters num_non_embedding_params params_transformer active_params n_active_params "
        "num_active_params active_parameters activated_params params_active"
    ),
    "n_params_total": (
        "total_params params_total num_params_total total_parameters params num_params parameters n_parameters "
        "num_parameters parameter_count param_count"
    ),
    # spent; train_flops are requested FLOPs
    "flops": "total_flops training_flops compute",
    "heads": "n_head n_heads num_heads num_attention_heads attention_heads nhead n_attention_heads",
    "kv_heads": (
        "n_kv_head n_kv_heads num_kv_heads num_key_value_heads n_head_kv num_kv_groups kv_head num_query_groups "
        "n_query_groups n_local_heads"
    ),
    "head_size": "head_dim d_head dim_head head_width d_k kv_channels dim_per_head size_per_head",
    # of an expert first
    "d_ff": (
        "moe_intermediate_size moe_ffn_hidden_size expert_intermediate_size expert_ffn_dim intermediate_size ffn_dim "
        "d_ffn ffn_hidden ffn_hidden_size ffn_size ff_dim dim_ff dim_feedforward feedforward_dim d_mlp mlp_dim "
        "mlp_hidden mlp_hidden_dim mlp_width mlp_hidden_size mlp_size intermediate_dim inner_dim n_inner d_inner "
        "inner ffn dff ffn_hidden_dim d_hidden encoder_ffn_dim decoder_ffn_dim n_ff ff_size ffn_embed_dim"
    ),
    "mlp_ratio": (
        "ffn_mult ff_mult mlp_mult expansion expansion_factor mlp_expansion ffn_expansion ffn_ratio ff_ratio "
        "mlp_expansion_factor ffn_dim_multiplier mlp_multiplier ffn_multiplier hidden_mult ff_factor ffn_factor "
        "mlp_factor expand expansion_ratio d_ff_mult"
    ),
    "gated": "gated_mlp mlp_gated use_glu glu swiglu use_swiglu is_gated gated_ffn is_glu",
    "experts": "num_experts n_experts num_local_experts n_routed_experts moe_num_experts",
    "top_k": "experts_per_token num_experts_per_tok num_experts_per_token moe_top_k active_experts",
    "batch_size": "batch global_batch global_batch_size bs",
    "warmup_steps": "warmup",
    "weight_decay": "wd",
    "seq_len": "block_size context_length sequence_length sequence_len n_ctx",
    "optimizer": "optim opt optimizer_type optimizer_name",
    "schedule": "lr_schedule scheduler",
    "activation": "activation_function act_fn",
    "norm": "norm_type",
    "dataset": "data_set corpus",
    "attention": "attn attn_type attention_type",
    "vocab_size": "n_vocab vocabulary_size",
    "bits_per_byte": "val_bpb bpb eval_bpb validation_bpb",
    "wall_seconds": (
        "train_time_sec train_seconds_total training_seconds elapsed_seconds runtime train_runtime wall_s wall_sec "
        "wall_time_s wall_time_sec wall_time_seconds walltime_s wall_clock_seconds wall_clock_s elapsed_s elapsed_sec "
        "train_time_s train_time_seconds training_time_s"
    ),
    "status": "state run_state run_status",
}
ALIASES: dict[str, tuple[str, ...]] = {ours: tuple(names.split()) for ours, names in _USUAL.items()}
"""Usual names elsewhere, the likelier first, by ours."""
IN_ANY_CASE = (*dict.fromkeys((*ALIASES, *(one.name for one in COLUMNS if one.word), "device_seconds", "run_id")),)
"""Columns recognised in another case, or under an alias."""
HELD_OUT = ALIASES["loss"][:-3]
"""Names of a held-out loss: such a column wins over a column called loss."""
TRAINING = ("train_loss", "training_loss", "loss_train", "final_train_loss", "train_nll", "train_lm_loss")
"""Names of a training loss: the last resort."""
STEPS = (
    *("step", "global_step", "train_step", "training_step", "step_num", "steps_done", "iteration", "iter", "iter_num"),
    *("n_iter", "it", "update", "updates", "num_updates", "checkpoint", "checkpoint_step", "ckpt", "ckpt_step"),
    *("training_iteration", "batch_idx", "epoch"),
)
"""Names of a row's place on its run's curve, the finest first."""
OF_RUNS = ("steps", "iterations", "iters", "epochs")
"""Further names of that place, if a run's name repeats over rows."""
