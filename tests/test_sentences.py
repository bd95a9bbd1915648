"""Snapshots: a changed text fails with the difference, and is stored anew only when that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import sentences

TESTS = Path(__file__).parent


@pytest.fixture
def snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sentences, "SNAPSHOTS", tmp_path)
    monkeypatch.delenv(sentences.RENEW, raising=False)
    (tmp_path / "room.txt").write_text("== a sentence\nthe depth is not known\n\n== a table\nN  depth\n#  #\n", "utf-8")
    return tmp_path / "room.txt"


def test_a_changed_sentence_or_text_fails_until_it_is_renewed(snapshots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces and numbers do not count; what is stored for no key fails."""
    text = "3 runs. The best depth is not known; the noise is."
    assert sentences.says(["before", "the depth\nis not known"], "room: a sentence")
    assert sentences.shows("N    depth\n1e6  12.5", "room: a table")
    with pytest.raises(AssertionError, match="nearest: 'The best depth is not known;'"):
        sentences.says(text, "room: a sentence")
    with pytest.raises(AssertionError, match=r"(?s)\n-N  depth\n\+N  width"):
        sentences.shows("N  width\n1  2", "room: a table")
    with pytest.raises(AssertionError, match="renew"):
        sentences.says("anything", "room: unknown")
    monkeypatch.setenv(sentences.RENEW, "1")
    assert sentences.says(text, "room: a sentence")
    monkeypatch.delenv(sentences.RENEW)
    assert sentences.says(text, "room: a sentence") and "== a table\nN  depth\n" in snapshots.read_text("utf-8")


def test_every_snapshot_is_read_by_a_test() -> None:
    code = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    keys = [f"{file.stem}: {name}" for file in sentences.SNAPSHOTS.glob("*.txt") for name in sentences.all_stored(file)]
    assert keys and not [key for key in keys if f'"{key}"' not in code]
