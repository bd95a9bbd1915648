"""The secret scan of ``make audit`` finds what it is for, and nothing in this checkout."""

from __future__ import annotations

from pathlib import Path

import audit
import pytest
from checkout import ROOT


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "key = AKIA" + "ABCDEFGHIJKLMNOP",
        "token: gh" + "p_" + "a1B2" * 9,
        "HF_TOKEN=hf" + "_" + "aB" * 17,
        "postgres://me:secret" + "word@host/db",
    ],
)
def test_a_secret_is_found(text: str) -> None:
    assert [line for line, _ in audit.secrets(f"nothing\n{text}\n")] == [2]


def test_this_checkout_holds_none(capsys: pytest.CaptureFixture[str]) -> None:
    if not (Path(ROOT) / ".git").exists():
        pytest.skip("no git checkout")
    assert audit.scan(ROOT) == 0, capsys.readouterr().out
