"""Token store: files that ``prepare`` writes and training reads.

    manifest.json                       source, settings, counts, checksums of all files, versions; written last
    verified.json                       the sizes and times of the files when they were last found to be whole
    pieces.json                         the bytes (hex) that each token stands for, in the order of the ids
    tokenizer.model                     the SentencePiece model (not for vocab_size 256: plain bytes), or else
    given-tokenizer/                    the files of data.tokenizer, as they were
    train-00000.bin, validation-00000.bin    the tokens, little-endian uint16 (uint32 beyond 65,535 tokens)
    train-documents.npy, validation-documents.npy    DOCUMENT records in the order of the stream

Each stream starts with an end token, and each document is followed by one. Every worker opens a store, so the verdict
that its files are whole is remembered with their sizes and times.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records import record as reader
from dwsweep.records.store import FORMAT, SPLITS, StoreManifest, StoreSplit, stream_file
from dwsweep.shapes import token_bytes

LONG = "earlier versions cut a long stream into several files, which `dwsweep prepare` makes anew"
MOST_STREAM_BYTES = 1 << 44  # limit per file of a store
BLOCK_BYTES = 1 << 22  # bytes read at a time for a checksum
DOCUMENT = np.dtype([("digest", "<u8"), ("n_tokens", "<u4"), ("n_bytes", "<u4")])
"""One document: hash of its text, tokens without the end token, UTF-8 bytes."""

TOKENIZER = "tokenizer.model"  # the SentencePiece model that was trained here
GIVEN = "given-tokenizer"  # folder with the files of data.tokenizer
VERIFIED = "verified.json"
_verified: dict[Path, str] = {}  # folder → fingerprint of its files


def windows_of(tokens: np.ndarray, indices: np.ndarray, seq_len: int) -> np.ndarray:
    """Windows of ``seq_len`` + 1 tokens at ``indices``, copied: shape ``indices.shape + (seq_len + 1,)``."""
    every = np.lib.stride_tricks.sliding_window_view(tokens, seq_len + 1)
    return every[indices.astype(np.int64) * seq_len]


class StreamWriter:
    """Writer of one split: its tokens and the records of its documents."""

    def __init__(self, path: Path, split: str, dtype: np.dtype, end_token: int) -> None:
        self.path, self.split, self.dtype = path, split, dtype
        self.n_tokens = 0
        self.documents: list[NDArray[Any]] = []
        self._file = open(path / stream_file(split), "wb")  # noqa: SIM115
        self.append(np.array([end_token], dtype), np.empty(0, DOCUMENT))

    def append(self, tokens: np.ndarray, documents: NDArray[Any]) -> None:
        """``tokens``: whole documents with their end tokens; ``documents``: their DOCUMENT records."""
        self.documents.append(documents)
        self.n_tokens += len(tokens)
        self._file.write(np.ascontiguousarray(tokens, self.dtype).data)

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
        return StoreSplit(len(documents), self.n_tokens, n_bytes)


def content_hash(path: Path, tokenizer_hash: str, dtype: str, splits: Mapping[str, StoreSplit]) -> str:
    """SHA-256 (hex) over the tokenizer, the token type and both streams."""
    digest = hashlib.sha256(f"{tokenizer_hash} {dtype}".encode())
    for split in SPLITS:
        digest.update(f"{split} {splits[split].n_tokens} ".encode())
        with open(path / stream_file(split), "rb") as file:
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
            stream = self.path / stream_file(split)
            have = paths.check_file(stream, MOST_STREAM_BYTES).st_size if os.path.lexists(stream) else 0
            if want != have:
                raise DamagedStore(self.path, f"{stream.name} has {have:,} bytes, the manifest says {want:,} ({LONG})")

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
        stats = [(name, paths.check_file(self.path / name, MOST_STREAM_BYTES)) for name in sorted(names)]
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

    def tokens(self, split: str) -> np.ndarray:
        """The stream of ``split`` ("train" or "validation"), shape (n_tokens,), memory-mapped."""
        return np.memmap(self.path / stream_file(split), self.dtype, mode="r")

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
    paths.check_file(path, MOST_STREAM_BYTES)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
