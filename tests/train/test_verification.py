"""`bench --verify`: every check runs on a CPU and passes, a fault fails its check, and the report is sealed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sentences import says
from shown import printed

from dwsweep.cli import training
from dwsweep.errors import InputError
from dwsweep.model import transformer
from dwsweep.records import verification as record
from dwsweep.records.record import Damaged, read
from dwsweep.records.verification import Check, Verification
from dwsweep.report import verification_report
from dwsweep.train import verification


def verified(*without: str) -> Verification:
    """The report, less some checks."""
    with pytest.MonkeyPatch.context() as patch:
        for name in without:
            patch.setattr(verification._Checks, name, lambda self, name: None)
        # a tenth of the arithmetic: tests run what was compiled in a hurry
        for name, value in (("VOCABULARY", 256), ("DEPTH", 2), ("WIDTH", 32), ("LENGTH", 32), ("STREAM_DEPTH", 24)):
            patch.setattr(verification, name, value)
        patch.setattr(verification, "PUBLISHED", {(6, 192): 0.18})
        return verification.verify("0.1.0")


@pytest.fixture(scope="module")
def found() -> Verification:
    """Without the checks that train packs of their own, which ``test_loop`` and ``test_bench`` do in the quick tier."""
    return verified("packed", "resumed", "utilisation")


LOSSES = {
    "float32 against one CPU core",
    "gradient norm of the first step",
    "the loss falls",
    "float32 as sweeps train",
    "bfloat16 against float32",
    "residual stream in bfloat16",
}
NOT_ON_A_CPU = {"attention by cuDNN against XLA's", "state divided among devices"}


def test_every_check_of_losses_runs_on_a_cpu_and_none_fails(found: Verification) -> None:
    results = {check.name: check for check in found.checks}
    assert not found.failed, found.failed
    assert {name for name, check in results.items() if check.passed} >= LOSSES
    assert results["bfloat16 against float32"].value > 0  # bfloat16 was what it compared
    assert {check.name for check in found.checks if check.passed is None and check.value is None} <= NOT_ON_A_CPU
    curves = {curve.program: curve.losses for curve in found.curves}
    assert len(curves["reference"]) == verification.SEEDS and len(curves["reference"][0]) == verification.STEPS
    assert curves["reference"][0] != curves["reference"][1]


@pytest.mark.slow
def test_every_check_runs_on_a_cpu_and_none_fails() -> None:
    found = verified()
    assert not found.failed, found.failed
    assert {check.name for check in found.checks if check.passed} >= LOSSES | {
        "packed seeds against single ones",
        "interrupted and resumed",
    }
    assert {check.name for check in found.checks if check.passed is None and check.value is None} <= NOT_ON_A_CPU
    (rate,) = found.rates
    assert (rate.depth, rate.width, rate.published_mfu) == (6, 192, 0.18) and rate.tokens_per_second > 0


def test_the_report_is_sealed_and_names_no_host_user_or_folder(found: Verification, tmp_path: Path) -> None:
    path = record.write_to(found, tmp_path)
    assert read(path, Verification, strict=False) == found
    text = path.read_text()
    assert not any(word in text for word in (str(Path.home()), str(Path.cwd()), "/tmp"))
    path.write_text(text.replace('"passed": true', '"passed": null', 1))
    with pytest.raises(Damaged, match="content_sha256"):
        read(path, Verification, strict=False)
    shown = printed(verification_report.render(found))
    assert "0 failed" in shown and max(map(len, shown.splitlines())) <= 100


def test_a_rounded_residual_stream_fails_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = verification.make_text(tmp_path)
    assert verification.stream_error(store) < verification.STREAM

    def rounding(block: transformer.Block, x: jax.Array) -> jax.Array:
        x = block(x)
        return x if block.dtype == "float32" else jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)

    monkeypatch.setitem(transformer.PASSES, "interleaved", (rounding,))
    assert verification.stream_error(store) > 1.5 * verification.STREAM


@pytest.mark.parametrize(
    ("moved", "on_cpu", "passed"),
    [(0.0, True, True), (1e-6, True, False), (1e-6, False, True), (1e-3, False, False), (float("nan"), False, False)],
)
def test_a_resumed_pack_is_equal_to_the_bit_on_a_cpu_and_to_rounding_elsewhere(
    moved: float, on_cpu: bool, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = verification._Checks(verification.make_text(tmp_path), tmp_path, lambda name: None)
    checks.hardware = replace(checks.hardware, on_cpu=on_cpu)

    def train(pack: Any, store: Any, folder: Path, kept: Any, should_stop: Any = lambda: False, **_: Any) -> None:
        if should_stop() or should_stop():  # asked before the first dispatch and after it
            return
        kept.resumed_from = 10 if folder.name == "parts" else 0
        off = moved if folder.name == "parts" else 0.0
        kept.metrics("s0", [{"step": 30, "loss": 1.0 + off, "grad_norm": 0.5}])
        kept.finished("s0", None, np.array([[300.0, 100]]))

    monkeypatch.setattr(verification, "train_pack", train)
    checks.resumed("interrupted and resumed")
    (check,) = checks.checks
    assert check.passed is passed, check


def test_an_mfu_above_the_peak_or_far_below_the_published_one_fails() -> None:
    def passed(mfu: float, device: str | None, on_cpu: bool = False) -> bool | None:
        return verification.judged_rate("MFU", mfu, 0.30, device, on_cpu).passed

    assert passed(1.01, "H100") is False and passed(0.05, "H100") is True
    assert passed(0.14, "A100-80GB") is False and passed(0.16, "A100-80GB") is True
    assert passed(0.2, None) is None and passed(1.2, None, on_cpu=True) is None


def test_a_check_that_breaks_fails_and_the_others_still_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = verification._Checks(verification.make_text(tmp_path), tmp_path, lambda name: None)
    ran = []

    def breaks(name: str) -> None:
        raise RuntimeError("Out of memory\nwhile doing that")

    for name in ("against_a_core", "as_sweeps_train", "bfloat16", "packed", "divided", "attention", "utilisation"):
        monkeypatch.setattr(checks, name, lambda name: ran.append(name))
    monkeypatch.setattr(checks, "resumed", breaks)
    checks.run()
    (failed,) = checks.checks
    assert failed.passed is False and failed.said == "RuntimeError: Out of memory while doing that" and len(ran) == 7


def test_the_command_fails_where_a_check_does_and_says_so_in_one_line(
    found: Verification, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Check(name="bfloat16 against float32", passed=False, value=0.5, tolerance=0.01, unit="nats", said="products")
    monkeypatch.setattr(verification, "verify", lambda release, tell: replace(found, checks=(*found.checks, bad)))
    assert training._verify(tmp_path, False) == 1
    out = capsys.readouterr().out
    assert says(" ".join(out.split()), "train: failed check")
    assert json.loads((tmp_path / "verification.json").read_text())["checks"][-1]["passed"] is False
    monkeypatch.setattr(verification, "verify", lambda release, tell: found)
    assert training._verify(tmp_path, True) == 0
    assert json.loads(capsys.readouterr().out)["device_kind"] == found.device_kind


def test_verify_takes_no_spec_and_bench_needs_one() -> None:
    with pytest.raises(InputError, match="--verify: not allowed with --compile-only"):
        training.bench(None, verify=True, compile_only=True)
    with pytest.raises(InputError, match="SPEC: missing; give a sweep spec, or --verify"):
        training.bench(None)
