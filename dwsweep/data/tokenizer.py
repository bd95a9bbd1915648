"""Text ↔ tokens: SentencePiece BPE with byte fallback, or plain bytes.

No text is lost: nothing is normalised, what the vocabulary does not cover falls back to its UTF-8 bytes, and decoding
joins the bytes that each id stands for. Pieces never cross a space (they may begin with one), so a text is the
concatenation of its words and each word needs to be encoded once: a word cache makes encoding several times as fast as
SentencePiece on whole documents, with the same tokens.

Ids: with plain bytes (vocab_size 256) id = byte, and byte 0, which text does not contain (NUL characters are removed
where documents are read), is the end token. With BPE id 0 is SentencePiece's unknown (never produced), id 1 the end
token, ids 2–257 the bytes, then characters and merges.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from dwsweep.data.token_store import token_dtype
from dwsweep.errors import InputError

BYTES_VOCAB = 256
SPACE = "\u2581"  # SentencePiece's mark for a space; in a text it is encoded as its three bytes
FIRST_BYTE = 2
CHARACTER_COVERAGE = 0.999  # share of the sample's characters that get their own token; the rest are bytes
CACHED_WORDS = 1 << 18  # about 50 MB per process
CACHED_LENGTH = 48  # characters; longer "words" (URLs, scripts without spaces) are rarely seen twice


class Tokenizer:
    """Encodes texts to the little-endian bytes of their token ids."""

    def __init__(self, model: bytes | None) -> None:
        """``model``: a serialised SentencePiece model, or None for plain bytes."""
        self.model = model
        if model is None:
            self.vocab_size, self.end_token = BYTES_VOCAB, 0
            self.pieces = [b"", *(bytes([i]) for i in range(1, 256))]
        else:
            import sentencepiece

            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.vocab_size, self.end_token = self._processor.vocab_size(), self._processor.eos_id()
            self.pieces = _pieces(self._processor)
        self.dtype = token_dtype(self.vocab_size)
        self._code = "H" if self.dtype.itemsize == 2 else "I"
        self._words = _WordCache(self._encode_word)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of the store in the folder ``path``."""
        file = Path(path) / "tokenizer.model"
        return cls(file.read_bytes() if file.exists() else None)

    def save(self, path: str | Path) -> str:
        """Writes pieces.json and tokenizer.model into the folder ``path``; returns the tokenizer's hash."""
        text = json.dumps([p.hex() for p in self.pieces], separators=(",", ":"))
        (Path(path) / "pieces.json").write_text(text, "ascii")
        if self.model is not None:
            (Path(path) / "tokenizer.model").write_bytes(self.model)
        return hashlib.sha256(text.encode()).hexdigest()

    def encode_to_bytes(self, text: str) -> bytes:
        """Token ids of ``text``, without an end token, as bytes of ``self.dtype``."""
        if self.model is None:
            return np.frombuffer(text.encode(), np.uint8).astype(self.dtype).tobytes()
        first, space, rest = text.partition(" ")
        head = self._encode_word(first)
        return head + b"".join(map(self._words.__getitem__, rest.split(" "))) if space else head

    def encode(self, text: str) -> np.ndarray:
        """Token ids of ``text``, shape (n_tokens,), without an end token."""
        return np.frombuffer(self.encode_to_bytes(text), self.dtype)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; bytes that a cut left incomplete become U+FFFD."""
        return b"".join(self.pieces[int(i)] for i in ids).decode("utf-8", "replace")

    def _encode_word(self, text: str) -> bytes:
        if SPACE not in text:
            return array(self._code, self._processor.encode(text)).tobytes()
        mark = array(self._code, (FIRST_BYTE + b for b in SPACE.encode())).tobytes()
        return mark.join(self._encode_word(part) for part in text.split(SPACE))


class _WordCache(dict[str, bytes]):
    """Tokens of " word" for each word seen, up to a fixed number of words."""

    def __init__(self, encode: Callable[[str], bytes]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> bytes:
        tokens = self._encode(" " + word)
        if len(self) < CACHED_WORDS and len(word) <= CACHED_LENGTH:
            self[word] = tokens
        return tokens


def _pieces(processor: object) -> list[bytes]:
    p = processor
    out = []
    for i in range(p.vocab_size()):  # type: ignore[attr-defined]
        piece: str = p.id_to_piece(i)  # type: ignore[attr-defined]
        if p.is_byte(i):  # type: ignore[attr-defined]
            out.append(bytes([int(piece[3:5], 16)]))
        elif p.is_control(i) or p.is_unknown(i):  # type: ignore[attr-defined]
            out.append(b"")
        else:
            if SPACE in piece[1:]:
                raise ValueError(f"piece {i}: {piece!r}; the word cache needs pieces that do not cross a space")
            out.append(piece.replace(SPACE, " ").encode())
    return out


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A tokenizer of ``vocab_size`` tokens, trained on ``texts`` (256: plain bytes, nothing to train).

    The order of ``texts`` and their bytes determine the result. InputError when the texts support fewer tokens, or
    contain more characters than ``vocab_size`` has room for.
    """
    if vocab_size == BYTES_VOCAB:
        return Tokenizer(None)
    import sentencepiece

    model = io.BytesIO()
    # a mark in the sample would train as if it were a space, and lines keep the trainer's sentences short
    lines = (line.replace(SPACE, "") for text in texts for line in text.split("\n"))
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for line in lines if line),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            byte_fallback=True,
            character_coverage=CHARACTER_COVERAGE,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            split_by_whitespace=True,
            unk_id=0,
            eos_id=1,
            bos_id=-1,
            pad_id=-1,
            max_sentence_length=1 << 24,
            num_threads=1,  # stored in the model; does not change the result
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _training_error(str(error), vocab_size) from None
    return Tokenizer(model.getvalue())


def _training_error(message: str, vocab_size: int) -> InputError:
    if high := re.search(r"set it to a value <= (\d+)", message):
        return InputError(
            f"data.vocab_size: {vocab_size}; this text supports at most {high[1]} tokens "
            "(use more text, or 256 for plain bytes)"
        )
    if low := re.search(r"\d+ vs (\d+)", message):
        return InputError(
            f"data.vocab_size: {vocab_size}; the bytes and characters of this text need more than {low[1]}, "
            "or 256 for plain bytes"
        )
    return InputError(
        f"data.vocab_size: {vocab_size}; SentencePiece cannot train on this text: {' '.join(message.split())}"
    )
