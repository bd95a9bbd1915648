"""Programs compiled without training: whether each shape of a plan compiles and fits, on devices here or elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dwsweep.cost.arithmetic import PROGRAM_SHARE, training_flops
from dwsweep.cost.duration import recipe_of
from dwsweep.data.token_store import Store, token_dtype
from dwsweep.plan import Pack, Plan
from dwsweep.records.bench import CompiledRow
from dwsweep.text import format_bytes
from dwsweep.train.choices import Hardware, TokensView, concessions
from dwsweep.train.program import Blueprint, fits, fitting_dispatch, memory_of


class OneBatch(NamedTuple):
    """The least text that a program takes."""

    n_train_tokens: int
    dtype: np.dtype


def compile_only(plan: Plan, store: Store | None, places: Sequence[Hardware]) -> Iterator[CompiledRow]:
    """Compile each shape of ``plan`` for each of ``places``, without allocating a model; yields a row at once.

    No text is needed: without a ``store`` the memory is that of a program whose token store takes next to none.
    """
    train = plan.spec.train
    least = OneBatch(train.batch_size * train.seq_len + 1, token_dtype(plan.spec.data.vocab_size))
    for pack in plan.pack_of_each_shape:
        for place in places:
            yield _row(pack, store or least, place, store.n_train_tokens if store else None)


def _row(pack: Pack, text: TokensView, hardware: Hardware, n_train_tokens: int | None) -> CompiledRow:
    began = time.monotonic()
    first, blueprint, compiled, refusal = fitting_dispatch(Blueprint.of(pack, text, hardware))
    seconds = time.monotonic() - began
    shape, train, choices = pack.shape, pack.train, blueprint.choices
    analysis = {} if compiled is None else compiled.cost_analysis() or {}
    return CompiledRow(
        target=hardware.target,
        device_kind=choices.hardware.device.device_kind,
        depth=shape.depth,
        width=shape.width,
        n_params_total=shape.n_params_total,
        replicas=len(pack.replicas),
        devices=choices.layout.size,
        mesh=choices.layout.sizes,
        microbatch=choices.microbatch,
        remat=choices.compute.remat,
        unroll=choices.compute.unroll,
        batch_size=train.batch_size,
        seq_len=train.seq_len,
        precision=train.precision,
        recipe=recipe_of(shape, train.optimizer),
        compile_seconds=seconds,
        memory_bytes=None if compiled is None else memory_of(compiled),
        state_bytes=blueprint.state_bytes,
        n_train_tokens=n_train_tokens,
        step_flops=training_flops(shape, len(pack.replicas) * train.batch_size * train.seq_len),
        xla_flops=analysis.get("flops"),
        concessions=tuple(concessions(first, choices, pack)),
        refused=_refused(refusal, compiled, hardware.memory_bytes),
    )


def _refused(refusal: Exception | None, compiled: Any, limit: int | None) -> str | None:
    """Reason why a program does not fit, from the compiler's error or its analysis; None if it fits."""
    if refusal is not None:
        return str(refusal).partition(": ")[2].partition("\n")[0]
    needed = memory_of(compiled)
    if limit is None or needed is None or fits(compiled, limit):
        return None
    return f"it takes {format_bytes(needed)}, and a program may take {format_bytes(PROGRAM_SHARE * limit)}"
