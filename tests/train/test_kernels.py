"""Kernels read from compiled programs, against programs whose costs are known and XLA's own count of whole programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from train_support import FEW, make_pack, make_spec, make_store

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.roofline import Collective
from dwsweep.train.choices import at_hand
from dwsweep.train.kernels import Program, axes_of, groups_of, step_cost
from dwsweep.train.program import Blueprint


def compiled(function: Callable[..., Any], *arguments: Any) -> Any:
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arguments]
    return jax.jit(function).lower(*shapes).compile()


def text_of(function: Callable[..., Any], *arguments: Any) -> str:
    return str(compiled(function, *arguments).as_text())


def blueprint_of(tmp_path: Any, **model: Any) -> Blueprint:
    store = make_store(tmp_path)
    pack = make_pack(store, make_spec(model=model), depth=3, width=24)
    return Blueprint.of(pack, store, at_hand(as_accelerator=True))


def test_the_kernels_of_a_program_without_loops_add_up_to_xlas_count_of_the_whole() -> None:
    def net(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.nn.softmax(jnp.tanh(x @ a) @ b).sum(axis=0)

    program = compiled(net, ((64, 48), "float32"), ((48, 96), "float32"), ((96, 32), "float32"))
    whole, cost = program.cost_analysis(), step_cost(program.as_text())
    assert cost.flops == pytest.approx(whole["flops"], rel=1e-3)
    assert cost.bytes == pytest.approx(whole["bytes accessed"], rel=0.02)


def test_layers_in_a_loop_cost_what_layers_written_out_cost(tmp_path: Any) -> None:
    """Compared with XLA's count of the whole program, which is right only where no loop but that of the steps is."""
    looped = blueprint_of(tmp_path, **FEW)
    choices = replace(looped.choices, compute=replace(looped.choices.compute, unroll=3))
    written_out = looped.under(choices).compiled_dispatch()
    whole = written_out.cost_analysis()
    flat, loop = step_cost(written_out.as_text()), step_cost(looped.compiled_dispatch().as_text())
    assert flat.flops == pytest.approx(whole["flops"], rel=0.01)
    assert flat.bytes == pytest.approx(whole["bytes accessed"], rel=0.1)
    assert loop.flops == pytest.approx(flat.flops, rel=0.05)
    assert loop.launches > flat.launches


def test_a_loop_of_steps_counts_once_and_a_loop_inside_as_often_as_it_runs() -> None:
    def steps(x: jax.Array, weights: jax.Array, n: jax.Array) -> jax.Array:
        def step(_: jax.Array, x: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda h, w: (h @ w, None), x, weights)[0]

        return jax.lax.fori_loop(0, n, step, x)

    cost = step_cost(text_of(steps, ((64, 32), "float32"), ((5, 32, 32), "float32"), ((), "int32")))
    assert cost.flops == pytest.approx(5 * 2 * 64 * 32 * 32, rel=0.001)


def test_batched_products_count_every_member() -> None:
    cost = step_cost(text_of(jnp.matmul, ((3, 7, 8, 16), "float32"), ((3, 7, 16, 24), "float32")))
    assert cost.flops == 2 * 3 * 7 * 8 * 16 * 24


def test_traffic_of_an_elementwise_program_is_its_operands_and_its_result() -> None:
    cost = step_cost(text_of(lambda a, b: jnp.tanh(a) * b + 1.0, ((1000, 100), "float32"), ((1000, 100), "float32")))
    assert cost.launches == 1 and cost.bytes == 3 * 4 * 1000 * 100


def test_of_an_array_that_is_updated_in_place_only_the_slice_is_moved() -> None:
    """64 rows written one after another into a stack of 64: the stack would be 64 times as much."""

    def stacked(rows: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, row: (carry, jnp.tanh(row)), 0.0, rows)[1]

    each = 4 * 1000
    cost = step_cost(text_of(stacked, ((64, 1000), "float32")))
    inside = [kernel for kernel in cost.kernels if kernel.times == 64 and kernel.bytes >= each]
    # a row is read and written; between the two it may lie in a buffer of its own
    moved = sum(kernel.bytes for kernel in inside)
    assert 2 * each <= moved <= 4 * each + 64
    assert cost.bytes < 64 * 64 * each / 8


@pytest.mark.parametrize("keep", [True, False])  # attention's weights; else its scores are computed a second time
def test_a_step_of_training_has_the_flops_that_its_model_asks_for(tmp_path: Any, keep: bool) -> None:
    """The count by formula, the scores that are computed again, and some elementwise operations beyond."""
    blueprint = blueprint_of(tmp_path, biases=True)
    assert blueprint.choices.compute.keep_weights
    if not keep:
        compute = replace(blueprint.choices.compute, keep_weights=False)
        blueprint = blueprint.under(replace(blueprint.choices, compute=compute))
    cost = step_cost(blueprint.compiled_dispatch().as_text())
    pack, shape = blueprint.pack, blueprint.pack.shape
    scores_again = 0 if keep else 2 * shape.depth * shape.heads * shape.head_size * shape.seq_len
    products = len(pack.replicas) * 4 * 16 * (training_flops_per_token(shape) + scores_again)
    assert products < cost.flops < 1.3 * products


WHILE_OF_A_TPU = """HloModule jit_f, is_scheduled=true

%add_one (param_0: f32[6,8,34]) -> f32[6,8,34] {
  %param_0 = f32[6,8,34]{2,1,0:T(8,128)} parameter(0)
  %constant.1 = f32[]{:T(128)} constant(1)
  %broadcast = f32[6,8,34]{2,1,0:T(8,128)} broadcast(%constant.1), dimensions={}
  ROOT %add = f32[6,8,34]{2,1,0:T(8,128)} add(%param_0, %broadcast)
}

%body (arg: (s32[], f32[6,8,34], /*index=2*/f32[16,34])) -> (s32[], f32[6,8,34], f32[16,34]) {
  %arg = (s32[]{:T(128)}, f32[6,8,34]{2,1,0:T(8,128)}, /*index=2*/f32[16,34]{1,0:T(8,128)S(1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%arg), index=0
  %x = f32[6,8,34]{2,1,0:T(8,128)} get-tuple-element(%arg), index=1
  %near = f32[16,34]{1,0:T(8,128)S(1)} get-tuple-element(%arg), index=2
  %constant.2 = s32[] constant(2)
  %next = s32[]{:T(128)} add(%i, %constant.2), backend_config={"flag_configs":[]}
  %add_fusion = f32[6,8,34]{2,1,0:T(8,128)} fusion(%x), kind=kLoop, calls=%add_one
  %copy.1 = f32[16,34]{1,0:T(8,128)S(1)} copy(%near)
  ROOT %tuple = (s32[]{:T(128)}, f32[6,8,34]{2,1,0:T(8,128)}, f32[16,34]{1,0:T(8,128)S(1)}) tuple(%next, %add_fusion, %copy.1)
}

%condition (arg.1: (s32[], f32[6,8,34], f32[16,34])) -> pred[] {
  %arg.1 = (s32[]{:T(128)}, f32[6,8,34]{2,1,0:T(8,128)}, f32[16,34]{1,0:T(8,128)S(1)}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%arg.1), index=0
  %constant.3 = s32[]{:T(128)} constant(11)
  ROOT %lt = pred[]{:T(512)} compare(%i.1, %constant.3), direction=LT
}

ENTRY %main (p: f32[6,8,34], q: f32[16,34]) -> f32[6,8,34] {
  %p = f32[6,8,34]{2,1,0:T(8,128)} parameter(0)
  %q = f32[16,34]{1,0:T(8,128)} parameter(1)
  %constant.4 = s32[]{:T(128)} constant(1)
  %copy.2 = s32[]{:T(128)} copy(%constant.4)
  %copy-start = (f32[16,34]{1,0:T(8,128)S(1)}, f32[16,34]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%q)
  %copy-done = f32[16,34]{1,0:T(8,128)S(1)} copy-done(%copy-start)
  %tuple.1 = (s32[]{:T(128)}, f32[6,8,34]{2,1,0:T(8,128)}, f32[16,34]{1,0:T(8,128)S(1)}) tuple(%copy.2, %p, %copy-done)
  %while = (s32[]{:T(128)}, f32[6,8,34]{2,1,0:T(8,128)}, f32[16,34]{1,0:T(8,128)S(1)}) while(%tuple.1), condition=%condition, body=%body
  ROOT %out = f32[6,8,34]{2,1,0:T(8,128)} get-tuple-element(%while), index=1
}
"""  # noqa: E501
"""As the compiler of a TPU v5e writes it: no trip count beside the loop, arrays in tiles, S(1) memory on the chip."""


def test_loops_and_memories_of_a_tpu() -> None:
    program = Program(WHILE_OF_A_TPU)
    entry = program.computations["main"]
    assert program.passes(entry, entry["while"]) == 5  # 1, 3, 5, 7, 9
    cost = step_cost(WHILE_OF_A_TPU)
    assert {kernel.name: kernel.times for kernel in cost.kernels} == {"copy-start": 1, "add_fusion": 5, "copy.1": 5}
    # an array on the chip is no traffic, and one that is fetched there is read once
    assert cost.bytes == 4 * (16 * 34 + 5 * 2 * 6 * 8 * 34)


PRODUCTS_OF_A_TPU = """HloModule jit_f

ENTRY %main (a: bf16[3,256,2,128,34], b: bf16[3,256,2,34,128], c: bf16[128,34], d: bf16[34,256]) -> f32[128,256] {
  %a = bf16[3,256,2,128,34]{3,4,2,1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[3,256,2,34,128]{3,4,2,1,0:T(8,128)(2,1)} parameter(1)
  %c = bf16[128,34]{1,0:T(8,128)(2,1)} parameter(2)
  %d = bf16[34,256]{1,0:T(8,128)(2,1)} parameter(3)
  %batched = f32[3,256,2,128,128]{3,4,2,1,0:T(8,128)} convolution(%a, %b), window={size=3x256x2 stride=2x255x1 lhs_dilate=3x256x2}, dim_labels=012bf_012io->012bf
  ROOT %plain = f32[128,256]{1,0:T(8,128)} convolution(%c, %d), dim_labels=bf_io->bf
}
"""  # noqa: E501


def test_products_that_a_tpu_writes_as_convolutions() -> None:
    batched, plain = (kernel.flops for kernel in step_cost(PRODUCTS_OF_A_TPU).kernels)
    assert batched == 2 * 3 * 256 * 2 * 128 * 128 * 34 and plain == 2 * 128 * 34 * 256


PRODUCTS_OF_A_GPU = """HloModule jit_f

%gemm (p0: bf16[512,34], p1: bf16[34,256]) -> f32[512,256] {
  %p0 = bf16[512,34]{1,0} parameter(0)
  %p1 = bf16[34,256]{1,0} parameter(1)
  ROOT %dot = f32[512,256]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (a: bf16[512,34], b: bf16[34,256]) -> f32[512,256] {
  %a = bf16[512,34]{1,0} parameter(0)
  %b = bf16[34,256]{1,0} parameter(1)
  %triton = f32[512,256]{1,0} fusion(%a, %b), kind=kCustom, calls=%gemm, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
  %library = (f32[512,256]{1,0}, s8[4194304]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  ROOT %sum = f32[512,256]{1,0} all-reduce(%triton), replica_groups={{0,1},{2,3}}, to_apply=%add
}
"""  # noqa: E501


def test_products_and_collectives_of_a_gpu() -> None:
    """XLA does not look into a call of a library: its arrays are counted, and ``bench`` says that FLOPs are missing."""
    cost = step_cost(PRODUCTS_OF_A_GPU)
    triton, library, _ = cost.kernels
    assert triton.flops == 2 * 512 * 34 * 256 and library.flops == 0
    assert library.bytes == 2 * (512 * 34 + 34 * 256) + 4 * 512 * 256 + 4194304
    (one,) = cost.collectives
    assert one == Collective("all-reduce", 1, 4 * 512 * 256, ((0, 1), (2, 3)))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'b'}", ((0, 1), (2, 3))),
        ("mesh['a'=2,'b'=2] {'a'}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'a','b'}", ((0, 1, 2, 3),)),
        ("mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("{}", ()),
    ],
)
def test_groups_of_devices_however_they_are_written(text: str, groups: tuple) -> None:
    assert groups_of(f"%p), channel_id=1, replica_groups={text}, to_apply=%add") == groups


def test_axes_along_which_devices_exchange() -> None:
    sizes = {"replica": 2, "data": 2, "fsdp": 2}
    assert axes_of(((0, 1), (2, 3), (4, 5), (6, 7)), sizes) == ("fsdp",)
    assert axes_of(((0, 2), (1, 3), (4, 6), (5, 7)), sizes) == ("data",)
    assert axes_of(((0, 4), (1, 5), (2, 6), (3, 7)), sizes) == ("replica",)
    assert axes_of((), sizes) == ("replica", "data", "fsdp")
    assert axes_of(((0,), (1,)), {"replica": 2}) == ()


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY"):
        step_cost("HloModule nothing")
