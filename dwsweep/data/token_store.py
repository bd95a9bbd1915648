"""Token store: files that ``prepare`` writes and training reads.

    manifest.json                       source, settings, counts, checksums of all files, versions; written last
    verified.json                       the sizes and times of the files when they were last found to be whole
    pieces.json                         the bytes (hex) that each token stands for, in the order of the ids
    tokenizer.model                     the SentencePiece model (not for vocab_size 256: plain bytes), or else
    given-tokenizer/                    the files of data.tokenizer, as they were
    train-00000.bin …                   little-endian uint16 (uint32 beyond 65,535 tokens) shards
    validation-00000.bin …
    train-documents.npy, validation-documents.npy    DOCUMENT records in the order of the stream

Each stream starts with an end token, and each document is followed by one. Every worker opens a store, so the verdict
that its files are whole is remembered with their sizes and times.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records import record as reader
from dwsweep.records.store import FORMAT, SPLITS, StoreManifest, StoreSplit
from dwsweep.shapes import token_bytes

SHARD_TOKENS = 1 << 30
MOST_SHARD_BYTES = 1 << 40  # limit per file of a store; a shard has 4 GB
BLOCK_BYTES = 1 << 22  # bytes read at a time for a checksum
DOCUMENT = np.dtype([("digest", "<u8"), ("n_tokens", "<u4"), ("n_bytes", "<u4")])
"""One document: hash of its text, tokens without the end token, UTF-8 bytes."""

TOKENIZER = "tokenizer.model"  # the SentencePiece model that was trained here
GIVEN = "given-tokenizer"  # folder with the files of data.tokenizer
VERIFIED = "verified.json"
_verified: dict[Path, str] = {}  # folder → fingerprint of its files


class ShardedTokens:
    """Several memory-mapped shards read as one stream, for corpora too large to hold in memory."""

    def __init__(self, shards: Sequence[np.ndarray]) -> None:
        self.shards = list(shards)
        self.offsets = np.cumsum([0, *(len(s) for s in self.shards)])
        self.dtype = self.shards[0].dtype

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

    def windows(self, indices: np.ndarray, seq_len: int) -> np.ndarray:
        """Windows of ``seq_len`` + 1 tokens at ``indices``: shape ``indices.shape + (seq_len + 1,)``."""
        windows = [self.read(i * seq_len, (i + 1) * seq_len + 1) for i in indices.ravel().tolist()]
        return np.reshape(windows, (*indices.shape, seq_len + 1)).astype(self.dtype)


class StreamWriter:
    """Writer of one split: its shards and the records of its documents."""

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

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()  # of a full disk, again an error

    def close(self) -> StoreSplit:
        """Closes the files; the manifest's entry for this split."""
        self._file.close()
        documents = np.concatenate(self.documents)
        np.save(self.path / f"{self.split}-documents.npy", documents)
        n_bytes = int(documents["n_bytes"].sum(dtype=np.int64))
        return StoreSplit(len(documents), self.n_tokens, n_bytes, self.n_shards)


def content_hash(path: Path, tokenizer_hash: str, dtype: str, splits: Mapping[str, StoreSplit]) -> str:
    """SHA-256 (hex) over the tokenizer, the token type and both streams; independent of shard size."""
    digest = hashlib.sha256(f"{tokenizer_hash} {dtype}".encode())
    for split in SPLITS:
        digest.update(f"{split} {splits[split].n_tokens} ".encode())
        for i in range(splits[split].n_shards):
            with open(path / f"{split}-{i:05d}.bin", "rb") as file:
                while block := file.read(BLOCK_BYTES):
                    digest.update(block)
    return digest.hexdigest()


def token_dtype(vocab_size: int) -> np.dtype:
    """Little-endian, of ``token_bytes``."""
    return np.dtype(f"<u{token_bytes(vocab_size)}")


class DamagedStore(InputError):
    """Damaged store: its files differ from what prepare wrote; ``what``: the damaged file, and the fault."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        self.what = f"store: {path} is damaged ({why})"
        super().__init__(
            f"{self.what}; `dwsweep prepare` with the same spec sets the store aside and prepares it again"
        )

    def __reduce__(self) -> tuple[type[DamagedStore], tuple[Path, str]]:
        return type(self), (self.path, self.why)


@dataclass(frozen=True)
class Store:
    """A finished token store."""

    path: Path
    manifest: StoreManifest

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = True) -> Store:
        """Opens the store in the folder ``path``.

        ``verify``: every byte is compared with what prepare wrote, unless that was done since the files last changed;
        otherwise their sizes alone.

        Raises:
            DamagedStore: the files differ from what prepare wrote.
            InputError: it is unfinished, or may not be read.
        """
        path = Path(path)
        try:
            manifest = reader.read(path / "manifest.json", StoreManifest)
            if manifest is None:
                raise InputError(f"store: {path} has no manifest.json; must be a folder made by `dwsweep prepare`")
            store = cls(path, manifest)
            store._check_sizes()
            if verify:
                store._verify_once()
        except reader.Damaged as error:
            found = (paths.read_json(path / "manifest.json") or {}).get("format", FORMAT)
            if found != FORMAT:
                raise DamagedStore(path, f"it has format {found!r}; this version reads {FORMAT}") from None
            raise DamagedStore(path / "manifest.json", error.why) from None
        except FileNotFoundError as error:
            raise DamagedStore(Path(error.filename), "missing") from None
        except (paths.NotAFile, IsADirectoryError, NotADirectoryError) as error:
            raise DamagedStore(Path(error.filename), str(error.strerror)) from None
        except OSError as error:
            raise InputError(f"store: {error.filename or path}; cannot be read ({error.strerror or error})") from None
        return store

    def _check_sizes(self) -> None:
        pieces = self.path / "pieces.json"
        found = hashlib.sha256(paths.read_bytes(pieces)).hexdigest() if os.path.lexists(pieces) else "missing"
        if found != self.manifest.tokenizer_hash:
            was = self.manifest.tokenizer_hash[:12]
            raise DamagedStore(self.path, f"it was made by the tokenizer {was}, but its pieces.json is {found[:12]}")
        for split in SPLITS:
            want = self.manifest.splits[split].n_tokens * self.dtype.itemsize
            have = sum(paths.check_file(f).st_size for f in self._shard_paths(split) if os.path.lexists(f))
            if want != have:
                raise DamagedStore(self.path, f"it has {have:,} bytes of {split} tokens, the manifest says {want:,}")

    def _verify_once(self) -> None:
        found = self._fingerprint()
        try:
            known = (paths.read_json(self.path / VERIFIED) or {}).get("files")
        except OSError:
            known = None
        if found not in (known, _verified.get(self.path)):
            self.verify()
            self._remember(found)

    def remember_as_verified(self) -> None:
        """Mark a store just written as whole."""
        self._remember(self._fingerprint())

    def _fingerprint(self) -> str:
        """Fingerprint of the files: names, sizes, and times of writing and of any change."""
        names = {"manifest.json", *self.manifest.files, *_files_of_tokenizer(self.path)}
        stats = [(name, paths.check_file(self.path / name)) for name in sorted(names)]
        found = [f"{name} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}" for name, s in stats]
        return hashlib.sha256("\n".join(found).encode()).hexdigest()

    def _remember(self, found: str) -> None:
        """Record that the files with this fingerprint are whole."""
        _verified[self.path] = found
        with contextlib.suppress(OSError):  # a read-only or full disk
            reader.write(self.path / VERIFIED, {"files": found})

    def verify(self) -> None:
        """Compare every byte with the hashes that prepare wrote.

        Raises:
            DamagedStore: names the damaged file.
        """
        wanted = self.manifest.files
        for name, found in checksums(self.path, wanted).items():
            if found != wanted[name]:
                raise DamagedStore(self.path / name, f"it holds content {found[:12]}, was {wanted[name][:12]}")
        for name in (*self.manifest.data_files, *_files_of_tokenizer(self.path)):
            if name not in wanted:
                raise DamagedStore(self.path / name, "its manifest has no hash of it")

    def _shard_paths(self, split: str) -> list[Path]:
        return [self.path / name for name in self.manifest.shard_names(split)]

    @property
    def data_hash(self) -> str:
        """SHA-256 (hex) of both token streams, their split and the tokenizer."""
        return self.manifest.data_hash

    @property
    def end_token(self) -> int:
        """Id of the end token, which stands before the first document and after each."""
        return self.manifest.end_token

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.manifest.dtype)

    @property
    def n_train_tokens(self) -> int:
        """Length of the training stream, end tokens included."""
        return self.manifest.splits["train"].n_tokens

    @property
    def n_validation_tokens(self) -> int:
        """Length of the validation stream, end tokens included."""
        return self.manifest.splits["validation"].n_tokens

    def shards(self, split: str) -> ShardedTokens:
        """The stream of ``split`` ("train" or "validation"), memory-mapped shard by shard."""
        return ShardedTokens([np.memmap(f, self.dtype, mode="r") for f in self._shard_paths(split)])

    def train_tokens(self) -> np.ndarray:
        """The training stream, shape (n_train_tokens,): memory-mapped when it is one shard, else one copy in memory."""
        shards = self.shards("train").shards
        return shards[0] if len(shards) == 1 else np.concatenate(shards)

    def documents(self, split: str) -> NDArray[Any]:
        """The documents of ``split`` in the order of its stream, shape (n_documents,), dtype DOCUMENT."""
        path = self.path / f"{split}-documents.npy"
        try:
            paths.check_file(path)
            documents = np.load(path)
        except (ValueError, EOFError) as error:
            raise DamagedStore(path, str(error)) from None
        if documents.dtype != DOCUMENT:
            raise DamagedStore(path, f"its dtype is {documents.dtype}")
        return documents


def _files_of_tokenizer(folder: Path) -> list[str]:
    """Names of the tokenizer's own files in a store."""
    names = [TOKENIZER] if os.path.lexists(folder / TOKENIZER) else []
    return names + [f"{GIVEN}/{name}" for name in paths.names_in(folder / GIVEN)]


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 (hex) of each file, several at a time. OSError if one cannot be read."""
    names = list(names)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(lambda name: _sha256(folder / name), names), strict=True))


def _sha256(path: Path) -> str:
    paths.check_file(path, MOST_SHARD_BYTES)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
