"""Pinned sentences: a changed one fails with the nearest, and is stored anew only when that is asked for."""

from __future__ import annotations

import json

import pytest
import sentences


def test_a_changed_sentence_fails_until_it_is_renewed(tmp_path, monkeypatch) -> None:
    file = tmp_path / "sentences.json"
    file.write_text(json.dumps({"key": "the depth is not known"}), "utf-8")
    monkeypatch.setattr(sentences, "FILE", file)
    monkeypatch.delenv(sentences.RENEW, raising=False)
    text = "3 runs. The best depth is not known; the noise is."
    assert sentences.says(["before", "the depth is not known"], "key")
    with pytest.raises(AssertionError, match="nearest: 'The best depth is not known;'"):
        sentences.says(text, "key")
    monkeypatch.setenv(sentences.RENEW, "1")
    assert sentences.says(text, "key") and json.loads(file.read_text("utf-8"))["key"] == "The best depth is not known;"
    monkeypatch.delenv(sentences.RENEW)
    assert sentences.says(text, "key")
