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


def test_what_was_not_looked_up_is_no_clean_package(capsys: pytest.CaptureFixture[str]) -> None:
    unknown, clean = {"name": "a", "skip_reason": "not found"}, {"name": "b", "version": "1", "vulns": []}
    faulty = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
    assert audit.told([unknown, clean]) == 0
    assert "0 known faults in 1 of 2 packages" in capsys.readouterr().out
    assert audit.told([unknown, faulty]) == 1
    assert "c 2: CVE-1, mended in 3" in capsys.readouterr().out
