"""The token store: what ``prepare`` leaves on disk and everything else reads.

    manifest.json                       source, settings, counts, checksums, versions; written last
    verified.json                       the sizes and times of the files when they were last found to be whole
    pieces.json                         the bytes (hex) that each token stands for, in the order of the ids
    tokenizer.model                     the SentencePiece model (not for vocab_size 256: plain bytes)
    train-00000.bin …                   little-endian uint16 (uint32 beyond 65,535 tokens) shards
    validation-00000.bin …
    train-documents.npy, validation-documents.npy    DOCUMENT records in the order of the stream

Each stream starts with an end token, and each document is followed by one. Opening a store needs NumPy only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwsweep.data import integrity
from dwsweep.errors import InputError
from dwsweep.shapes import token_bytes

FORMAT = 2
SHARD_TOKENS = 1 << 30
SPLITS = ("train", "validation")
DOCUMENT = np.dtype([("digest", "<u8"), ("n_tokens", "<u4"), ("n_bytes", "<u4")])
"""One document: hash of its text, tokens without the end token, UTF-8 bytes."""


class DamagedStore(InputError):
    """A store that is not what prepare wrote; ``what``: the damaged file and why, without the remedy."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        self.what = f"store: {path} is damaged ({why})"
        super().__init__(
            f"{self.what}; `dwsweep prepare` with the same spec sets the store aside and prepares it again"
        )

    def __reduce__(self) -> tuple[type[DamagedStore], tuple[Path, str]]:
        return type(self), (self.path, self.why)


def token_dtype(vocab_size: int) -> np.dtype:
    """Little-endian, of ``token_bytes``."""
    return np.dtype(f"<u{token_bytes(vocab_size)}")


class ShardedTokens:
    """Several memory-mapped shards read as one stream, for corpora too large to hold in memory."""

    def __init__(self, shards: Sequence[np.ndarray]) -> None:
        self.shards = list(shards)
        self.offsets = np.cumsum([0, *(len(s) for s in self.shards)])
        self.dtype = self.shards[0].dtype

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens ``start`` … ``stop − 1``, copied, across shard borders."""
        out = np.empty(stop - start, self.dtype)
        shard = int(np.searchsorted(self.offsets, start, side="right")) - 1
        at = start
        while at < stop:
            part = self.shards[shard][at - self.offsets[shard] : stop - self.offsets[shard]]
            out[at - start : at - start + len(part)] = part
            at += len(part)
            shard += 1
        return out

    def take_windows(self, starts: NDArray[np.int64], length: int) -> np.ndarray:
        """Windows of ``length`` tokens at ``starts``: shape ``starts.shape + (length,)``."""
        flat = starts.reshape(-1)
        if flat.size and (flat.min() < 0 or flat.max() + length > len(self)):
            raise IndexError(f"windows reach token {flat.max() + length:,} of {len(self):,}")
        out = np.empty((flat.size, length), self.dtype)
        shard_of = np.searchsorted(self.offsets, flat, side="right") - 1
        last_of = np.searchsorted(self.offsets, flat + length - 1, side="right") - 1
        for shard in np.unique(shard_of):
            rows = np.flatnonzero((shard_of == shard) & (last_of == shard))
            local = flat[rows] - self.offsets[shard]
            out[rows] = self.shards[shard][local[:, None] + np.arange(length)]
        for row in np.flatnonzero(shard_of != last_of):
            out[row] = self.read(int(flat[row]), int(flat[row]) + length)
        return out.reshape(*starts.shape, length)


@dataclass(frozen=True)
class Store:
    """A finished token store."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = True) -> Store:
        """Opens the store in the folder ``path``.

        ``verify``: every byte is compared with what prepare wrote, unless that was done since the files last changed;
        otherwise their sizes alone.

        Raises:
            DamagedStore: what is there is not what prepare wrote.
            InputError: it is unfinished, or may not be read.
        """
        path = Path(path)
        try:
            manifest = json.loads((path / "manifest.json").read_text("utf-8"))
        except FileNotFoundError:
            raise InputError(f"store: {path} has no manifest.json; a folder made by `dwsweep prepare`") from None
        except (ValueError, RecursionError) as error:
            raise DamagedStore(path / "manifest.json", f"not valid JSON ({error})") from None
        if not isinstance(manifest, dict):
            raise DamagedStore(path / "manifest.json", "not a JSON object")
        if manifest.get("format") != FORMAT:
            raise DamagedStore(path, f"it has format {manifest.get('format')!r}; this version reads {FORMAT}")
        try:
            store = cls(path, manifest)
            store._check_sizes()
            if verify:
                store._verify_once()
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedStore(path / "manifest.json", f"no valid {error}") from None
        except FileNotFoundError as error:
            raise DamagedStore(Path(error.filename), "missing") from None
        except OSError as error:
            raise InputError(f"store: {error.filename or path}; cannot be read ({error.strerror or error})") from None
        return store

    def _check_sizes(self) -> None:
        pieces = self.path / "pieces.json"
        found = hashlib.sha256(pieces.read_bytes()).hexdigest() if pieces.exists() else "missing"
        if found != self.manifest["tokenizer_hash"]:
            was = self.manifest["tokenizer_hash"][:12]
            raise DamagedStore(self.path, f"it was made by the tokenizer {was}, but its pieces.json is {found[:12]}")
        for split in SPLITS:
            want = self.manifest["splits"][split]["n_tokens"] * self.dtype.itemsize
            have = sum(f.stat().st_size for f in self._shard_paths(split) if f.exists())
            if want != have:
                raise DamagedStore(self.path, f"it has {have:,} bytes of {split} tokens, the manifest says {want:,}")

    def _verify_once(self) -> None:
        found = self._fingerprint()
        if not integrity.is_verified(self.path, found):
            self.verify()
            integrity.remember(self.path, found)

    def remember_as_verified(self) -> None:
        """For who has just written the store."""
        integrity.remember(self.path, self._fingerprint())

    def _fingerprint(self) -> str:
        return integrity.fingerprint(
            self.path, ["manifest.json", *self.manifest.get("files", data_files(self.manifest))]
        )

    def verify(self) -> None:
        """Reads every byte again and compares it with what prepare wrote.

        A store of an earlier version has checksums of its tokens alone; its documents must then add up to them.

        Raises:
            DamagedStore: names the damaged file.
        """
        wanted = self.manifest.get("files", {})
        for name, found in integrity.checksums(self.path, wanted).items():
            if found != wanted[name]:
                raise DamagedStore(self.path / name, f"it holds content {found[:12]}, was {wanted[name][:12]}")
        if wanted:
            return
        found = content_hash(self.path, self.manifest)
        if found != self.data_hash:
            raise DamagedStore(self.path, f"it holds content {found[:12]}, its manifest says {self.data_hash[:12]}")
        for split in SPLITS:
            counts, documents = self.manifest["splits"][split], self.documents(split)
            ends = np.cumsum(documents["n_tokens"].astype(np.int64) + 1)
            if (
                len(documents) != counts["n_documents"]
                or documents["n_bytes"].sum(dtype=np.int64) != counts["n_bytes"]
                or ends[-1] + 1 != counts["n_tokens"]
                or (self.shards(split).take_windows(ends, 1) != self.end_token).any()
            ):
                raise DamagedStore(
                    self.path / f"{split}-documents.npy", f"its documents are not those of the {split} tokens"
                )

    def _shard_paths(self, split: str) -> list[Path]:
        return [self.path / f"{split}-{i:05d}.bin" for i in range(self.manifest["splits"][split]["n_shards"])]

    @property
    def data_hash(self) -> str:
        """SHA-256 (hex) of both token streams, their split and the tokenizer."""
        return self.manifest["data_hash"]

    @property
    def vocab_size(self) -> int:
        return self.manifest["vocab_size"]

    @property
    def end_token(self) -> int:
        """Id of the token that stands before the first document and after each."""
        return self.manifest["end_token"]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.manifest["dtype"])

    @property
    def n_train_tokens(self) -> int:
        """Length of the training stream, end tokens included."""
        return self.manifest["splits"]["train"]["n_tokens"]

    @property
    def n_validation_tokens(self) -> int:
        """Length of the validation stream, end tokens included."""
        return self.manifest["splits"]["validation"]["n_tokens"]

    def shards(self, split: str) -> ShardedTokens:
        """The stream of ``split`` ("train" or "validation"), memory-mapped shard by shard."""
        return ShardedTokens([np.memmap(f, self.dtype, mode="r") for f in self._shard_paths(split)])

    def train_tokens(self) -> np.ndarray:
        """The training stream, shape (n_train_tokens,): memory-mapped when it is one shard, else one copy in memory.

        Where that copy does not fit, ``batches.gather`` also takes ``shards("train")``.
        """
        shards = self.shards("train").shards
        return shards[0] if len(shards) == 1 else np.concatenate(shards)

    def documents(self, split: str) -> NDArray[Any]:
        """The documents of ``split`` in the order of its stream, shape (n_documents,), dtype DOCUMENT."""
        path = self.path / f"{split}-documents.npy"
        try:
            documents = np.load(path)
        except (ValueError, EOFError) as error:
            raise DamagedStore(path, str(error)) from None
        if documents.dtype != DOCUMENT:
            raise DamagedStore(path, f"its dtype is {documents.dtype}")
        return documents

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes that each token id stands for; the end token stands for none."""
        return [bytes.fromhex(p) for p in json.loads((self.path / "pieces.json").read_text("ascii"))]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a sequence of token ids. Bytes that a cut left incomplete become U+FFFD."""
        pieces = self.pieces
        return b"".join(pieces[int(i)] for i in ids).decode("utf-8", "replace")


def data_files(manifest: dict[str, Any]) -> list[str]:
    """Names of the files that training reads."""
    shards = [f"{s}-{i:05d}.bin" for s in SPLITS for i in range(manifest["splits"][s]["n_shards"])]
    return ["pieces.json", *shards, *(f"{s}-documents.npy" for s in SPLITS)]


def content_hash(path: Path, manifest: dict[str, Any]) -> str:
    """SHA-256 (hex) over the tokenizer, the token type and both streams; independent of shard size."""
    digest = hashlib.sha256(f"{manifest['tokenizer_hash']} {manifest['dtype']}".encode())
    for split in SPLITS:
        digest.update(f"{split} {manifest['splits'][split]['n_tokens']} ".encode())
        for i in range(manifest["splits"][split]["n_shards"]):
            with open(path / f"{split}-{i:05d}.bin", "rb") as file:
                while block := file.read(1 << 22):
                    digest.update(block)
    return digest.hexdigest()


class StreamWriter:
    """Appends documents to one split: its shards, and the records of its documents."""

    def __init__(
        self, path: Path, split: str, dtype: np.dtype, end_token: int, shard_tokens: int = SHARD_TOKENS
    ) -> None:
        self.path, self.split, self.dtype, self.shard_tokens = path, split, dtype, shard_tokens
        self.n_tokens = self.n_shards = self._room = 0
        self.documents: list[NDArray[Any]] = []
        self._file: Any = None
        self.append(np.array([end_token], dtype), np.empty(0, DOCUMENT))

    def append(self, tokens: np.ndarray, documents: NDArray[Any]) -> None:
        """``tokens``: whole documents with their end tokens; ``documents``: their DOCUMENT records."""
        self.documents.append(documents)
        self.n_tokens += len(tokens)
        while len(tokens):
            if not self._room:
                self._next_shard()
            self._file.write(np.ascontiguousarray(tokens[: self._room], self.dtype).data)
            taken = min(self._room, len(tokens))
            tokens, self._room = tokens[taken:], self._room - taken

    def _next_shard(self) -> None:
        if self._file:
            self._file.close()
        self._file = open(self.path / f"{self.split}-{self.n_shards:05d}.bin", "wb")  # noqa: SIM115
        self.n_shards += 1
        self._room = self.shard_tokens

    def close(self) -> dict[str, int]:
        """Closes the files and returns this split's counts for the manifest."""
        self._file.close()
        documents = np.concatenate(self.documents)
        np.save(self.path / f"{self.split}-documents.npy", documents)
        return {
            "n_documents": len(documents),
            "n_tokens": self.n_tokens,
            "n_bytes": int(documents["n_bytes"].sum(dtype=np.int64)),
            "n_shards": self.n_shards,
        }
