"""The built model: counts, causality, and that no way of computing it changes what it computes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from train_support import FEW, make_model, make_spec

from dwsweep.model.attention import condition_number
from dwsweep.model.transformer import Compute, Model, build, normal_part

OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"activation": "relu"},
    {"positions": "sinusoidal"},
    {"positions": "rotary"},
    {"tied_embeddings": True},
    {"biases": False},
    {"mlp": "gated", "mlp_ratio": 2.6},
    {"kv_heads": 1},
    {"norm": "post", "biases": False, "mlp": "gated", "positions": "rotary", "tied_embeddings": True, "kv_heads": 2},
    {"preset": "llama"},
    {"preset": "qwen3", "kv_heads": 2, "z_loss": 1e-4},
    {"preset": "nanochat", "biases": True},
    {"attention": "linear", "activation": "none", "norm_type": "none"},
    {"order": "attention_first"},
    {"embedding_rank": 5},
    {"embedding_rank": 5, "tied_embeddings": True},
]
NAMES = ["-".join(f"{value}" for value in option.values()) or "default" for option in OPTIONS]
# of what is compiled for each: each kind of norm, positions, MLP, heads and embedding once; each alone in the slow tier
QUICK = ("default", "post-False-gated-rotary-True-2", "qwen3-2-0.0001", "linear-none-none", "attention_first", "5-True")
EACH = [
    pytest.param(options, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for options, name in zip(OPTIONS, NAMES, strict=True)
]
HEADS = {"count": 4, "size": 6}  # head size apart from d_x / H


def make(depth: int = 3, width: int = 16, compute: Compute = Compute(), **model: Any) -> Model:
    return make_model(make_spec(grid={"heads": HEADS}, model=model), depth, width, compute)


def params_and_tokens(model: Model) -> tuple[Any, np.ndarray]:
    return jax.jit(model.init)(jax.random.key(0)), tokens_of(2, 16)


def tokens_of(*shape: int) -> np.ndarray:
    """Of NumPy: JAX compiles a program for each shape it draws."""
    return np.random.default_rng(1).integers(0, 256, shape).astype(np.int32)


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_the_built_model_has_the_parameters_that_are_counted(options: dict[str, Any]) -> None:
    model = make(**options)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.shape.n_params_total
    kernels = [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params) if path[-1].key == "kernel"]
    assert sum(leaf.size for leaf in kernels) == model.shape.n_params


@pytest.mark.parametrize("options", EACH)
def test_no_position_sees_a_later_one_and_each_sees_all_before(options: dict[str, Any]) -> None:
    """Another token at s: what is before s keeps every bit, s and all that is after it move."""
    model = make(depth=6, width=32, **options)
    params = model.init(jax.random.key(0))
    base = np.arange(16)
    others = np.where(np.eye(16, dtype=bool), 200, base)
    # one sequence after another, so that all are computed alike
    hidden = jax.jit(lambda rows: jax.lax.map(lambda row: model.hidden(params, row[None])[0], rows))
    first, *changed = np.asarray(hidden(np.concatenate([base[None], others])))
    moved = np.array([(row != first).any(axis=-1) for row in changed])
    earlier = np.tril(np.ones((16, 16), bool), -1)  # of row s, the positions before s
    assert not moved[earlier].any()
    assert moved[~earlier].all()


@pytest.mark.parametrize("options", EACH)
def test_the_first_loss_is_near_a_uniform_guess(options: dict[str, Any]) -> None:
    model = make(depth=6, width=32, **options)
    params, windows = model.init(jax.random.key(0)), tokens_of(8, 17)
    assert float(jax.jit(model.mean_loss)(params, windows)) == pytest.approx(math.log(256), abs=0.15)


def test_scanned_unrolled_and_recomputed_layers_agree() -> None:
    """Programs: a scan, all layers written out, a backward pass that recomputes each block, and one that keeps the
    attention's weights."""
    results = []
    params, tokens = params_and_tokens(make(depth=2, **FEW))
    windows = np.concatenate([tokens, tokens[:, :1]], axis=1)
    for compute in (Compute(), Compute(unroll=2), Compute(remat=True), Compute(keep_weights=True)):
        model = make(depth=2, compute=compute, **FEW)
        compiled = jax.jit(jax.value_and_grad(model.mean_loss)).lower(params, windows).compile()
        results.append((compiled(params, windows), compiled.as_text().count(" while(")))
    (scanned, loops), (unrolled, without), (recomputed, _), (kept, _) = results
    assert loops > without  # it is another program that is compared
    for other in (unrolled, recomputed, kept):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), scanned, other)


@pytest.mark.parametrize(
    ("order", "norm"), [("interleaved", "post"), *(("attention_first", n) for n in ("pre", "post"))]
)
def test_layers_are_applied_in_their_order_to_their_own_parameters(order: str, norm: str) -> None:
    """The scan against single-layer models, each fed the output of the one before as its embedding table. All attention
    comes before all MLPs where the order says so: by single blocks of which one half is switched off, by the weights
    that it writes to the stream."""
    halves = [("mlp", "down"), ("attention", "out")] if order == "attention_first" else [None]
    kind = "none" if order == "attention_first" else "layernorm"
    model = make(depth=3, positions="rotary", order=order, norm=norm, norm_type=kind)
    params, tokens = params_and_tokens(model)
    single = build(replace(model.shape, depth=1, order="interleaved"), model.scales)
    params = jax.device_get(params)
    x, apply = params["embedding"][tokens], jax.jit(lambda p, t: single.module(p)(t))
    for off in halves:
        for layer in range(3):
            own = jax.tree.map(lambda leaf, i=layer: leaf[i : i + 1].copy(), params["blocks"])
            if off:
                own[off[0]][off[1]] = jax.tree.map(np.zeros_like, own[off[0]][off[1]])
            rows = np.arange(tokens.size).reshape(tokens.shape)
            x = apply({**params, "blocks": own, "embedding": x.reshape(tokens.size, -1)}, rows)
    np.testing.assert_allclose(jax.jit(lambda p, t: model.module(p)(t))(params, tokens), x, atol=1e-5)


def test_bfloat16_products_leave_the_residual_stream_float32() -> None:
    model, exact = make(compute=Compute("bfloat16")), make()
    params, tokens = params_and_tokens(model)
    hidden = jax.jit(model.hidden)(params, tokens)
    assert hidden.dtype == jnp.float32
    assert jax.eval_shape(model.logits, params, tokens).dtype == jnp.float32
    difference = np.abs(hidden - jax.jit(exact.hidden)(params, tokens)).max()
    assert 0 < difference < 0.05


def test_every_parameter_has_its_group() -> None:
    model = make()
    groups = {
        ".".join(key.key for key in path): name for path, name in jax.tree_util.tree_leaves_with_path(model.groups)
    }
    wanted = {
        **dict.fromkeys(("embedding", "positions"), "embedding"),
        **dict.fromkeys(("final_norm.gain", "final_norm.bias"), "final_norm"),
        **dict.fromkeys(("blocks.attention.qkv.kernel", "blocks.mlp.up.kernel"), "hidden"),
        **dict.fromkeys(("blocks.attention.out.kernel", "blocks.mlp.down.kernel"), "residual"),
        "unembedding": "unembedding",
    }
    assert {name: group for name, group in groups.items() if group != "block_vector"} == wanted


@pytest.mark.parametrize(("tied", "parametrization"), [(False, "standard"), (True, "completep")])
def test_a_factored_embedding_has_its_rank_and_the_scale_of_a_full_one(tied: bool, parametrization: str) -> None:
    changes = {"parametrization": parametrization, "tied_embeddings": tied, "positions": "rotary"}
    full, factored = make(width=64, **changes), make(width=64, embedding_rank=24, **changes)
    params = jax.device_get(factored.init(jax.random.key(0)))
    table, matrix = params["embedding"], params["embedding_projection"]
    assert table.shape == (256, 24) and matrix.shape == (24, 64)
    whole = jax.device_get(full.init(jax.random.key(0)))["embedding"]
    assert (table @ matrix).std() == pytest.approx(whole.std(), rel=0.1)
    assert np.linalg.matrix_rank(table @ matrix) == 24
    # the same function as a full embedding that is their product, in and, if tied, out
    tokens = tokens_of(2, 16)
    same = {name: leaf for name, leaf in params.items() if name != "embedding_projection"}
    same["embedding"] = table @ matrix
    logits = jax.jit(factored.logits)(params, tokens)
    np.testing.assert_allclose(logits, jax.jit(full.logits)(same, tokens), atol=1e-5)


def test_queries_and_keys_are_normalised_by_head() -> None:
    """Scaled weights of q and k change nothing then; those of v do."""
    model = make(qk_norm=True, biases=False)
    params, tokens = params_and_tokens(model)
    params, logits_of = jax.device_get(params), jax.jit(model.logits)
    H, P = HEADS["count"], HEADS["size"]

    def scaled(columns: slice) -> jax.Array:
        qkv = params["blocks"]["attention"]["qkv"]["kernel"].copy()
        qkv[..., columns] *= 3.0
        block = {**params["blocks"], "attention": {**params["blocks"]["attention"], "qkv": {"kernel": qkv}}}
        return logits_of({**params, "blocks": block}, tokens)

    logits = logits_of(params, tokens)
    np.testing.assert_allclose(scaled(slice(0, 2 * H * P)), logits, atol=2e-3)
    assert np.abs(scaled(slice(2 * H * P, None)) - logits).max() > 0.02


def test_capped_logits_stay_within_the_cap() -> None:
    model = make(logit_softcap=0.5)
    params, tokens = params_and_tokens(model)
    large = {**params, "unembedding": 100 * params["unembedding"]}
    logits = jax.jit(model.logits)(large, tokens)
    assert 0.49 < np.abs(logits).max() <= 0.5
    # what is trained on is the loss of those logits
    nll = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()
    np.testing.assert_allclose(jax.jit(model.mean_loss)(large, tokens), nll, rtol=1e-5)


def test_any_part_of_the_noise_is_that_part_of_one_draw() -> None:
    """Or a divided model would start from other values than a whole one."""
    key, start, shape = jax.random.key(3), 777, (3, 5, 41)
    whole = jax.jit(jax.vmap(lambda k: jax.random.normal(k, (2000,))))(jax.random.split(key, 2))
    part = jax.jit(jax.vmap(lambda k: 0.3 * normal_part(k, start, shape)))(jax.random.split(key, 2))
    wanted = np.float32(0.3) * np.asarray(whole)[:, start : start + math.prod(shape)]
    np.testing.assert_array_equal(np.asarray(part).reshape(2, -1), wanted)


def test_noise_beyond_32_bits_of_elements_is_new() -> None:
    """A model of more than 4.3e9 parameters: its counters carry over."""
    key, edge = jax.random.key(0), 1 << 32
    across = jax.jit(lambda k: normal_part(k, edge - 3, (2, 3)))(key)
    np.testing.assert_array_equal(across[0], jax.jit(lambda k: normal_part(k, edge - 3, (3,)))(key))
    np.testing.assert_array_equal(across[1], jax.jit(lambda k: normal_part(k, edge, (3,)))(key))
    assert (across[1] != jax.random.normal(key, (3,))).all()


def test_initial_values_have_their_scales() -> None:
    model = make_model(make_spec(model={"parametrization": "standard"}), 8, 64)
    params = jax.device_get(model.init(jax.random.key(0)))
    assert params["embedding"].std() == pytest.approx(0.02, rel=0.03)
    assert params["blocks"]["mlp"]["up"]["kernel"].std() == pytest.approx(0.02, rel=0.03)
    assert params["blocks"]["mlp"]["down"]["kernel"].std() == pytest.approx(0.005, rel=0.03)
    assert (params["blocks"]["mlp_norm"]["gain"] == 1).all() and (params["blocks"]["mlp"]["up"]["bias"] == 0).all()
    flat = np.concatenate([params["blocks"]["mlp"]["up"]["kernel"].ravel()[:8000], params["embedding"].ravel()[:8000]])
    halves = flat.reshape(2, -1)
    assert abs(np.corrcoef(halves)[0, 1]) < 0.05  # no draw is used twice


def test_what_the_unembedding_reads_is_multiplied_before_it_is_reshaped() -> None:
    """XLA fuses the two orders otherwise on a CPU: sweeps that were begun so must end bit for bit."""
    model = make(parametrization="mup", base_width=8)
    params, tokens = params_and_tokens(model)
    x = model.hidden(params, tokens)
    names = [str(step.primitive) for step in jax.make_jaxpr(lambda x: model.unembedded(params, x)[0])(x).jaxpr.eqns]
    assert names.index("mul") < names.index("reshape")


# The condition number of a block's attention: of which matrix it is, and what float32 can tell of it.


@pytest.mark.parametrize("order", ["interleaved", "attention_first"])
def test_it_is_of_the_heads_outputs_side_by_side(order: str) -> None:
    """An output matrix that is the identity writes them to the stream, where they can be read."""
    spec = make_spec(
        grid={"heads": {"count": 4, "size": 4}},
        model={"order": order, "positions": "rotary", "parametrization": "standard"},
    )
    model = make_model(spec, depth=1)
    params = jax.device_get(model.init(jax.random.key(0)))
    attention, mlp = params["blocks"]["attention"], params["blocks"]["mlp"]
    attention["out"]["kernel"] = np.eye(16, dtype=np.float32)[None]
    mlp["down"]["kernel"] = np.zeros_like(mlp["down"]["kernel"])
    tokens = np.random.default_rng(1).integers(0, 256, (3, 24)).astype(np.int32)
    written = np.float64(jax.jit(lambda p, t: model.module(p)(t))(params, tokens)) - params["embedding"][tokens]
    found = condition_number(np.asarray(jax.jit(model.heads)(params, tokens)))
    assert found.shape == (1, 3)
    np.testing.assert_allclose(found[0], np.linalg.cond(written), rtol=1e-3)


def test_what_float32_cannot_resolve_is_the_floor() -> None:
    tall = np.random.default_rng(0).normal(size=(50, 40, 3)) @ np.ones((3, 10))  # rank 1
    assert condition_number(tall) == pytest.approx(1 / (np.finfo(np.float32).eps * 40), rel=1e-3)
    assert np.isnan(condition_number(np.zeros((4, 3)))) and np.isnan(condition_number(np.full((4, 3), np.nan)))
