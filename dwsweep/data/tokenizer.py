"""Tokenizers: SentencePiece BPE with byte fallback, plain bytes, or a user's own tokenizer from its file.

Ours lose no text: nothing is normalised, and characters outside the vocabulary fall back to their UTF-8 bytes. Pieces
never cross a space, so each word is encoded once, several times as fast as SentencePiece on whole documents.

Ids: with plain bytes (vocab_size 256) id = byte, and byte 0 (removed where documents are read) is the end token. With
BPE id 0 is unknown (never produced), id 1 the end token, ids 2–257 the bytes, then characters and merges.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from array import array
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep import paths
from dwsweep.data.token_store import GIVEN, TOKENIZER, Store, token_dtype
from dwsweep.errors import InputError, install
from dwsweep.spec.vocabulary import BYTES, BYTES_VOCAB, is_json, tokenizer_file, vocabulary
from dwsweep.text import one_line

if TYPE_CHECKING:
    from dwsweep.spec import DataSpec

SPACE = "\u2581"  # SentencePiece's mark for a space; a mark in a text is encoded as three bytes
FIRST_BYTE = 2
CHARACTER_COVERAGE = 0.999  # share of the sample's characters that get a token each; the others are bytes
CACHED_WORDS = 1 << 18  # about 60 MB per process


class Tokenizer:
    """Encoder of texts to the little-endian bytes of their token ids: plain bytes, or BPE trained by dwsweep.

    stored: contents of its own files by their names in a store.
    """

    def __init__(self, model: bytes | None) -> None:
        """``model``: a serialised SentencePiece model made by ``train``, or None for plain bytes."""
        self.model, self.stored = model, {} if model is None else {TOKENIZER: model}
        if model is None:
            self.vocab_size, self.end_token = BYTES_VOCAB, 0
            self.pieces = [b"", *(bytes([i]) for i in range(1, 256))]
        else:
            import sentencepiece

            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.vocab_size, self.end_token = self._processor.vocab_size(), self._processor.eos_id()
            self.pieces = _pieces(self._processor)
        self._words = lru_cache(CACHED_WORDS)(lambda word: self._encode_word(" " + word))

    @staticmethod
    def load(path: str | Path) -> Tokenizer:
        """Tokenizer of the store in the folder ``path``, which may be unfinished: no checksum is compared."""
        file, own = Path(path) / TOKENIZER, Path(path) / GIVEN
        if own.is_dir():
            return GivenTokenizer.read(own)
        return Tokenizer(paths.read_bytes(file) if file.exists() else None)

    @staticmethod
    def of(store: Store) -> Tokenizer:
        """Tokenizer that made the tokens of a store; DamagedStore if its files differ from the recorded ones."""
        Store.open(store.path)  # every byte, once
        return Tokenizer.load(store.path)

    @cached_property
    def dtype(self) -> np.dtype:
        return token_dtype(self.vocab_size)

    @cached_property
    def _code(self) -> str:
        return "H" if self.dtype.itemsize == 2 else "I"

    def save(self, path: str | Path) -> str:
        """Write pieces.json and the tokenizer's own files into the folder ``path``; returns the tokenizer's hash."""
        text = json.dumps([p.hex() for p in self.pieces], separators=(",", ":"))
        for name, data in {"pieces.json": text.encode(), **self.stored}.items():
            file = Path(path) / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)
        return hashlib.sha256(text.encode()).hexdigest()

    def encode_to_bytes(self, text: str) -> bytes:
        """Token ids of ``text``, without an end token, as bytes of ``self.dtype``."""
        if self.model is None:
            return np.frombuffer(text.encode(), np.uint8).astype(self.dtype).tobytes()
        first, space, rest = text.partition(" ")
        head = self._encode_word(first)
        return head + b"".join(map(self._words, rest.split(" "))) if space else head

    def encode(self, text: str) -> np.ndarray:
        """Token ids of ``text``, shape (n_tokens,), without an end token."""
        return np.frombuffer(self.encode_to_bytes(text), self.dtype)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ``ids``; bytes that a cut left incomplete become U+FFFD."""
        return b"".join(self.pieces[int(i)] for i in ids).decode("utf-8", "replace")

    def _encode_word(self, text: str) -> bytes:
        if SPACE not in text:
            return array(self._code, self._processor.encode(text)).tobytes()
        mark = array(self._code, (FIRST_BYTE + b for b in SPACE.encode())).tobytes()
        return mark.join(self._encode_word(part) for part in text.split(SPACE))


def _pieces(p: Any, whole_words: bool = True) -> list[bytes]:
    """Bytes of each id of a SentencePiece processor. ``whole_words``: raises if a piece crosses a space."""
    out = []
    for i in range(p.vocab_size()):
        piece: str = p.id_to_piece(i)
        if p.is_byte(i):
            out.append(bytes([int(piece[3:5], 16)]))
        elif p.is_control(i) or p.is_unknown(i):
            out.append(b"")
        else:
            if whole_words and SPACE in piece[1:]:
                raise ValueError(f"piece {i}: {piece!r}; the word cache needs pieces that do not cross a space")
            out.append(piece.replace(SPACE, " ").encode())
    return out


def given_files(data: DataSpec) -> dict[str, bytes]:
    """Files of ``data.tokenizer`` by name, the tokenizer first; empty if one is trained or plain bytes are used.

    Raises:
        InputError: the file is missing or no tokenizer, or its vocabulary is not ``data.vocab_size``.
    """
    if data.tokenizer is None:
        return {}
    files: dict[str, bytes] = {}
    try:
        n = vocabulary(data.tokenizer)
        if data.tokenizer != BYTES:
            file = tokenizer_file(data.tokenizer)
            files[file.name] = paths.read_bytes(file)
            beside = file.with_name(_CONFIG)
            if is_json(files[file.name]) and beside.is_file():
                files[_CONFIG] = paths.read_bytes(beside)
    except ValueError as error:
        raise InputError(f"data.tokenizer: {data.tokenizer}; {error}") from None
    except OSError as error:
        raise InputError(f"data.tokenizer: {data.tokenizer}; cannot be read ({error.strerror or error})") from None
    if n != data.vocab_size:
        raise InputError(
            f"data.vocab_size: {data.vocab_size}; data.tokenizer {data.tokenizer} has {n} tokens; must be {n}, or left "
            "out"
        )
    return files


_CONFIG = "tokenizer_config.json"
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<EOS>")
_SAMPLE = 100  # documents that decoding must return


class GivenTokenizer(Tokenizer):
    """Tokenizer of a user, run by its own library with its own normalisation. A name of a special token in a document
    is text, and only the end token follows each document.

    kind: "sentencepiece" or "tokenizer.json". files: contents by name, the tokenizer first.
    """

    def __init__(self, files: dict[str, bytes], name: str) -> None:
        """Load the tokenizer. ``name``: name of the file in an error's line.

        Raises:
            InputError: the library cannot read it or is not installed, or it has no end token.
        """
        self.files, self.stored = files, {f"{GIVEN}/{file}": content for file, content in files.items()}
        data = next(iter(files.values()))
        if is_json(data):
            self.kind, self._own = "tokenizer.json", _read_json(data, name)
            self.end_token = _json_end(self._own, files.get(_CONFIG), name)
            self.pieces = _json_pieces(self._own)
        else:
            import sentencepiece

            try:
                self.kind, self._own = "sentencepiece", sentencepiece.SentencePieceProcessor(model_proto=data)
            except RuntimeError:
                raise InputError(f"data.tokenizer: {name}; not a whole SentencePiece model") from None
            self.end_token = self._own.eos_id()
            if self.end_token < 0:
                raise InputError(
                    f"data.tokenizer: {name}; has no end-of-sentence token (eos_id), which ends each document"
                )
            self.pieces = _pieces(self._own, whole_words=False)
        self.vocab_size = len(self.pieces)

    @classmethod
    def read(cls, folder: Path) -> GivenTokenizer:
        """Tokenizer that ``save`` wrote into a store."""
        names = sorted((path.name for path in folder.iterdir()), key=lambda name: name == _CONFIG)
        return cls({name: paths.read_bytes(folder / name) for name in names}, str(folder))

    @property
    def package(self) -> str:
        return "sentencepiece" if self.kind == "sentencepiece" else "tokenizers"

    @property
    def file_hash(self) -> str:
        """SHA-256 (hex) of the tokenizer's file."""
        return hashlib.sha256(next(iter(self.files.values()))).hexdigest()

    def encode_to_bytes(self, text: str) -> bytes:
        if self.kind == "sentencepiece":
            ids = self._own.encode(text)
        else:
            # one text at a time avoids threads and offsets, which take most of the time
            ids = self._own.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return array(self._code, ids).tobytes()

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ``ids`` as the library decodes it, special tokens left out."""
        listed = [int(i) for i in ids]
        if self.kind == "sentencepiece":
            return str(self._own.decode(listed))
        return str(self._own.decode(listed, skip_special_tokens=True))

    def changed(self, texts: Iterable[str]) -> tuple[int, int]:
        """Number of the first texts that decoding changes, and the number of texts tried."""
        tried = list(islice(texts, _SAMPLE))
        return sum(self.decode(self.encode(text)) != text for text in tried), len(tried)


def _read_json(data: bytes, name: str) -> Any:
    try:
        from tokenizers import Tokenizer as Library
    except ImportError:
        raise InputError(
            f"data.tokenizer: {name}; a tokenizer.json needs the package tokenizers: {install('hf')}"
        ) from None
    try:
        own = Library.from_str(data.decode())
    except Exception as error:  # the library raises no narrower error
        raise InputError(f"data.tokenizer: {name}; not a whole tokenizer.json ({one_line(error)})") from None
    own.encode_special_tokens = True  # names of special tokens in a document are text
    own.no_truncation()
    own.no_padding()
    return own


def _json_end(own: Any, config: bytes | None, name: str) -> int:
    """Id of the token that ends a document."""
    special = {token.content: i for i, token in own.get_added_tokens_decoder().items() if token.special}
    named = None
    if config is not None:
        try:
            named = json.loads(config).get("eos_token")
        except (ValueError, AttributeError) as error:
            raise InputError(f"data.tokenizer: {name}; its {_CONFIG} is damaged ({one_line(error)})") from None
        named = named.get("content") if isinstance(named, dict) else named
    found = [named] if named is not None else [end for end in _ENDS if end in special]
    if len(found) == 1 and own.token_to_id(str(found[0])) is not None:
        return int(own.token_to_id(found[0]))
    raise InputError(
        f"data.tokenizer: {name}; which token ends a document is not clear ({named or 'no eos_token'}; special tokens: "
        f"{', '.join(special) or 'none'}); put a {_CONFIG} with its eos_token beside it"
    )


def _json_pieces(own: Any) -> list[bytes]:
    """Name of each id, which stands for it in the hash of the tokenizer."""
    vocabulary = {i: token for token, i in own.get_vocab(with_added_tokens=True).items()}
    return [vocabulary.get(i, "").encode() for i in range(max(vocabulary) + 1)]


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Tokenizer of ``vocab_size`` tokens, trained on ``texts`` (256: plain bytes, without training).

    The bytes and the order of ``texts`` determine the result. InputError if the texts support fewer tokens, or contain
    more characters than ``vocab_size`` can hold.
    """
    if vocab_size == BYTES_VOCAB:
        return Tokenizer(None)
    import sentencepiece

    model = io.BytesIO()
    # a mark in the sample would train as a space; lines keep the trainer's sentences short
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
