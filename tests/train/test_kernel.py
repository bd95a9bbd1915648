"""The choice of the attention kernel: every obstacle and every failure leads to XLA's, with its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from sentences import shows
from train_support import FEW, Kept, make_pack, make_spec

from dwsweep.data.token_store import Store
from dwsweep.train import kernel
from dwsweep.train.kernel import CUDNN, XLA, Choice, choose_kernel
from dwsweep.train.pack_trainer import train_pack

SHAPE = make_spec(grid={"widths": {2: [64]}, "heads": {"size": 32}}).block().shape(2, 64)


class Gpu:
    """As much of a device as the choice looks at."""

    client = SimpleNamespace(platform_version="PJRT C API\ncuda 12090")
    platform = "gpu"


def test_the_kernel_asked_for_is_taken_or_refused_with_its_reason() -> None:
    cpu = jax.devices("cpu")[0]
    assert choose_kernel("xla", SHAPE, "bfloat16", 8, cpu) == Choice(XLA, "asked for")
    assert choose_kernel("auto", SHAPE, "bfloat16", 8, cpu) == Choice(XLA, "the only kernel on cpu")
    assert shows(choose_kernel("cudnn", SHAPE, "bfloat16", 8, cpu).why, "train: kernel not usable", numbers=True)
    gpu: Any = Gpu()
    assert choose_kernel("auto", SHAPE, "float32", 8, gpu).why.startswith("train.precision float32")
    assert choose_kernel("auto", replace(SHAPE, head_size=264), "bfloat16", 8, gpu).why.startswith("head size 264")


@pytest.mark.parametrize(("cudnn", "xla", "faster"), [(1e-3, 2e-3, CUDNN), (2e-3, 1e-3, XLA)])
def test_the_faster_one_is_taken(monkeypatch: pytest.MonkeyPatch, cudnn: float, xla: float, faster: str) -> None:
    gpu: Any = Gpu()
    monkeypatch.setattr(kernel, "_seconds", lambda name, *_: {CUDNN: cudnn, XLA: xla}[name])
    choice = choose_kernel("auto", SHAPE, "bfloat16", 8, gpu)
    assert choice.kernel == faster and "cudnn" in choice.why and "xla" in choice.why
    assert choose_kernel("cudnn", SHAPE, "bfloat16", 8, gpu) == Choice(CUDNN, "asked for")


def test_a_kernel_that_fails_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """For real: a CPU, taken for a GPU, has no cuDNN to compile for."""
    monkeypatch.setattr(kernel, "_obstacle", lambda *_: None)
    for asked in ("auto", "cudnn"):
        choice = choose_kernel(asked, SHAPE, "bfloat16", 8, jax.devices("cpu")[0])
        assert choice.kernel == XLA and choice.why.startswith("cudnn failed: ")


@pytest.mark.usefixtures("programs_again")
def test_a_pack_says_which_kernel_it_got_in_place_of_which(store: Store, tmp_path: Path) -> None:
    kept = Kept()
    train_pack(make_pack(store, make_spec(model=FEW, execution={"attention": "cudnn"})), store, tmp_path, kept)
    assert kept.notes == ["attention: xla in place of cudnn: cudnn cannot be used: the only kernel on cpu"]
    assert {result.attention_kernel for result in kept.results.values()} == {"xla"}
