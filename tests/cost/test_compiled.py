"""Costs read from compiled programs, against programs whose costs are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from train_support import make_pack, make_spec, make_store

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.compiled import LAUNCH_SECONDS, Collective, Kernel, StepCost, Traffic, axes_of, roofline, step_cost
from dwsweep.cost.devices import find
from dwsweep.cost.hlo import Products, arrays_of, element_bits, groups_of, parse
from dwsweep.train.choices import at_hand
from dwsweep.train.program import Blueprint


def text_of(function: Callable[..., Any], *arguments: Any) -> str:
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arguments]
    return jax.jit(function).lower(*shapes).compile().as_text()


def test_products_of_a_program_are_counted_exactly() -> None:
    """A loop of steps with a scan of 5 layers inside: the steps count once, the layers five times."""

    def steps(x: jax.Array, weights: jax.Array, n: jax.Array) -> jax.Array:
        def step(_: jax.Array, x: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0]

        return jax.lax.fori_loop(0, n, step, x)

    cost = step_cost(text_of(steps, ((64, 32), "float32"), ((5, 32, 32), "float32"), ((), "int32")))
    assert cost.products.flops == 5 * 2 * 64 * 32 * 32
    assert cost.products.padded == 5 * 2 * 128 * 32 * 128  # k, and m of 64 rather than n of 32, fill a matrix unit
    assert cost.products.bits == 32 and cost.endless == 0


def test_batched_products_count_every_member() -> None:
    cost = step_cost(text_of(jnp.matmul, ((3, 7, 8, 16), "float32"), ((3, 7, 16, 24), "float32")))
    assert cost.products.flops == 2 * 3 * 7 * 8 * 16 * 24


def test_traffic_of_an_elementwise_program_is_its_operands_and_its_result() -> None:
    cost = step_cost(text_of(lambda a, b: jnp.tanh(a) * b + 1.0, ((1000, 100), "float32"), ((1000, 100), "float32")))
    assert cost.launches == 1 and cost.traffic.bytes == 3 * 4 * 1000 * 100


def test_of_an_array_that_is_updated_in_place_only_the_slice_is_moved() -> None:
    """64 rows written one after another into a stack of 64: the stack would be 64 times as much."""

    def stacked(rows: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, row: (carry, jnp.tanh(row)), 0.0, rows)[1]

    each = 4 * 1000
    cost = step_cost(text_of(stacked, ((64, 1000), "float32")))
    inside = [kernel for kernel in cost.kernels if kernel.times == 64 and kernel.traffic.bytes >= each]
    # a row is read and written; between the two it may lie in a buffer of its own
    moved = sum(kernel.traffic.bytes for kernel in inside)
    assert 2 * each <= moved <= 4 * each + 64
    assert cost.traffic.bytes < 64 * 64 * each / 8


@pytest.mark.parametrize("keep", [True, False])  # attention's weights; else its scores are computed a second time
def test_a_step_of_training_has_the_products_that_its_model_asks_for(tmp_path, keep: bool) -> None:
    """The count of FLOPs by arithmetic, and what the trainer's program does beyond it, product by product."""
    store = make_store(tmp_path)
    pack = make_pack(store, make_spec(model={"biases": True}), depth=3, width=24)
    blueprint = Blueprint.of(pack, store, at_hand(as_accelerator=True))
    assert blueprint.choices.compute.keep_weights
    if not keep:
        compute = replace(blueprint.choices.compute, keep_weights=False)
        blueprint = blueprint.under(replace(blueprint.choices, compute=compute))
    cost = step_cost(blueprint.compiled_dispatch().as_text())
    shape, tokens = pack.shape, len(pack.replicas) * 4 * 16
    scores_again = 0 if keep else 2 * shape.depth * shape.heads * shape.head_size * shape.seq_len
    # gradients of biases and gains are products with a row of ones: q, k, v and out, up and down, two norms, final norm
    width, inner = shape.width, shape.mlp_hidden
    sums = 2 * (shape.depth * (3 * width + width + inner + width + 4 * width) + 2 * width)
    assert cost.products.flops == tokens * (training_flops_per_token(shape) + scores_again + sums)


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


def test_loops_tiles_and_memories_of_a_tpu() -> None:
    module = parse(WHILE_OF_A_TPU)
    entry = module["main"]
    assert module.trip_count(entry, entry.instructions["while"]) == 5  # 1, 3, 5, 7, 9
    cost = step_cost(WHILE_OF_A_TPU)
    assert {kernel.name: kernel.times for kernel in cost.kernels} == {"copy-start": 1, "add_fusion": 5, "copy.1": 5}
    # a head of 34 lies on a lane of 128; what lies on the chip is no traffic, what is fetched there is read once
    assert cost.traffic.bytes == 4 * (16 * 34 + 5 * 2 * 6 * 8 * 34)
    assert cost.traffic.padded == 4 * (16 * 128 + 5 * 2 * 6 * 8 * 128)


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
    cost = step_cost(PRODUCTS_OF_A_TPU)
    batched, plain = (kernel.products for kernel in cost.kernels)
    assert batched.flops == 2 * 3 * 256 * 2 * 128 * 128 * 34
    assert plain == Products(2 * 128 * 34 * 256, 2 * 128 * 128 * 256, 16)


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
    cost = step_cost(PRODUCTS_OF_A_GPU)
    triton, library, _ = (kernel.products.flops for kernel in cost.kernels)
    assert triton == library == 2 * 512 * 34 * 256
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
    module = parse(
        "ENTRY %main (p: f32[4]) -> f32[4] {\n  %p = f32[4]{0} parameter(0)\n"
        f"  ROOT %sum = f32[4]{{0}} all-reduce(%p), channel_id=1, replica_groups={text}, to_apply=%add\n}}\n"
    )
    assert groups_of(module["main"].instructions["sum"]) == groups


def test_axes_along_which_devices_exchange() -> None:
    sizes = {"replica": 2, "data": 2, "fsdp": 2}
    assert axes_of(((0, 1), (2, 3), (4, 5), (6, 7)), sizes) == ("fsdp",)
    assert axes_of(((0, 2), (1, 3), (4, 6), (5, 7)), sizes) == ("data",)
    assert axes_of(((0, 4), (1, 5), (2, 6), (3, 7)), sizes) == ("replica",)
    assert axes_of((), sizes) == ("replica", "data", "fsdp")
    assert axes_of(((0,), (1,)), {"replica": 2}) == ()


def test_arrays_and_their_padding() -> None:
    head, lane, scalar = arrays_of("(bf16[8,34]{1,0:T(8,128)(2,1)}, f32[100]{0:T(128)}, pred[])")
    assert (head.bytes, head.padded_bytes) == (2 * 8 * 34, 2 * 8 * 128)
    assert (lane.bytes, lane.padded_bytes) == (400, 512)
    assert (scalar.bytes, scalar.padded_bytes) == (1, 1)
    assert [element_bits(name) for name in ("bf16", "f8e4m3fn", "s4", "u32", "token")] == [16, 8, 4, 32, 0]


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY"):
        step_cost("HloModule nothing")


def kernel(times: int, bytes: float = 0.0, flops: float = 0.0, bits: int = 16) -> Kernel:
    return Kernel("k", times, Traffic(bytes, 2 * bytes), Products(flops, 4 * flops, bits))


def test_a_roofline_adds_up_kernels_and_says_what_binds() -> None:
    h200, v5e = find("H200"), find("TPU-v5e")
    assert h200 is not None and v5e is not None
    launch = LAUNCH_SECONDS["gpu"]
    traffic, product, small = kernel(2, 4.8e9), kernel(1, 1e6, 989e9), kernel(4)
    found = roofline(StepCost((traffic, product, small), ()), h200)
    assert found.roofline_seconds == pytest.approx(2 * 1e-3 + 1e-3 + 4 * launch)
    assert found.bound == "traffic" and found.link_seconds == 0.0
    assert found.traffic_seconds == pytest.approx(2e-3 + 1e6 / 4.8e12)
    assert roofline(StepCost((small,), ()), h200).bound == "launches"
    # float32 operands at half the rate of a GPU, and a TPU moves and multiplies what is padded
    assert roofline(StepCost((kernel(1, flops=989e9, bits=32),), ()), h200).roofline_seconds == pytest.approx(2e-3)
    assert roofline(StepCost((kernel(1, flops=197e9),), ()), v5e).roofline_seconds == pytest.approx(4e-3)
    assert roofline(StepCost((kernel(1, bytes=819e6),), ()), v5e).roofline_seconds == pytest.approx(2e-3)


def test_links_carry_sums_twice() -> None:
    v5e, l4 = find("TPU-v5e"), find("L4")
    assert v5e is not None and l4 is not None
    groups = ((0, 1, 2, 3),)
    summed, gathered = Collective("all-reduce", 1, 200e6, groups), Collective("all-gather", 2, 200e6, groups)
    assert roofline(StepCost((), (summed,)), v5e).roofline_seconds == pytest.approx(1e-3 * 2 * 3 / 4)
    found = roofline(StepCost((), (gathered,)), v5e)
    assert found.roofline_seconds == pytest.approx(2e-3 * 3 / 4) and found.bound == "links"
    assert roofline(StepCost((), (summed,)), l4).link_seconds is None  # its links are not in the table
