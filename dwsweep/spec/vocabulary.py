"""Vocabulary of ``data.tokenizer``: its file, and its number of tokens, which determines the shapes of a sweep."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from dwsweep import paths

BYTES = "bytes"
BYTES_VOCAB = 256
NAMES = ("tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.model")  # names looked for in a folder
_KINDS = "must be the path of a SentencePiece model or of a tokenizer.json, or `bytes`"


def tokenizer_file(tokenizer: str) -> Path:
    """Path of the file that ``data.tokenizer`` names, or that its folder holds.

    Raises:
        ValueError: the file is missing or not local.
    """
    if "://" in tokenizer:
        raise ValueError(f"not a local file; {_KINDS}")
    path = Path(tokenizer).expanduser()
    if path.is_dir():
        found = [path / name for name in NAMES if (path / name).is_file()]
        if not found:
            raise ValueError(f"a folder without {', '.join(NAMES[:-1])} or {NAMES[-1]}; {_KINDS}")
        return found[0]
    if not path.is_file():
        raise ValueError(f"no such file; {_KINDS}")
    return path


def vocabulary(tokenizer: str) -> int:
    """Number of token ids of ``data.tokenizer``, one more than the largest.

    Raises:
        ValueError: the file is missing, unreadable, or no tokenizer.
    """
    if tokenizer == BYTES:
        return BYTES_VOCAB
    path = tokenizer_file(tokenizer)
    stat = path.stat()
    return _vocabulary(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=8)
def _vocabulary(path: Path, n_bytes: int, modified_ns: int) -> int:
    """Number of ids, counted once per state of the file, since each arm of a spec is validated."""
    try:
        data = paths.read_bytes(path)
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror or error})") from None
    n = max(_json_ids(data)) + 1 if is_json(data) else _sentencepiece_size(data)
    if n < BYTES_VOCAB:
        raise ValueError(f"has {n} tokens; must have at least {BYTES_VOCAB}")
    return n


def is_json(data: bytes) -> bool:
    """Test that the bytes are a tokenizer.json; a SentencePiece model begins with a tag."""
    return data.lstrip()[:1] == b"{"


def _json_ids(data: bytes) -> list[int]:
    try:
        content = json.loads(data)
        listed: Any = content["model"]["vocab"]
        ids = list(listed.values()) if isinstance(listed, dict) else list(range(len(listed)))
        ids += [token["id"] for token in content.get("added_tokens") or ()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a whole tokenizer.json ({type(error).__name__}: {error}); {_KINDS}") from None
    if not ids or not all(isinstance(i, int) and 0 <= i < 1 << 32 for i in ids):
        raise ValueError(f"a tokenizer.json whose vocabulary holds no token ids; {_KINDS}")
    return ids


def _sentencepiece_size(data: bytes) -> int:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        if data and processor.LoadFromSerializedProto(data):
            return int(processor.vocab_size())
    except RuntimeError:
        pass
    raise ValueError(f"not a whole SentencePiece model; {_KINDS}")
