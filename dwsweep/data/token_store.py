"""The token store: what ``prepare`` leaves on disk and everything else reads.

    manifest.json                       source, settings, counts, checksums, versions; written last
    verified.json                       the sizes and times of the files when they were last found to be whole
    pieces.json                         the bytes (hex) that each token stands for, in the order of the ids
    tokenizer.model                     the SentencePiece model (not for vocab_size 256: plain bytes)
    train-00000.bin …                   little-endian uint16 (uint32 beyond 65,535 tokens) shards
    validation-00000.bin …
    train-documents.npy, validation-documents.npy    DOCUMENT records in the order of the stream

Each stream starts with an end token, and each document is followed by one. Opening a store needs NumPy only.

Reading a store of 20 GB takes seconds, and every worker opens it. So the verdict that its files are whole is remembered
with their sizes and times: beside them, or for a read-only folder in the user's cache, or in this process.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwsweep import paths
from dwsweep.data.token_shards import BLOCK_BYTES, DOCUMENT, ShardedTokens, content_hash
from dwsweep.errors import InputError
from dwsweep.records import reader
from dwsweep.records.store_files import FORMAT, SPLITS, StoreManifest
from dwsweep.shapes import token_bytes

VERIFIED = "verified.json"
_verified: dict[Path, str] = {}  # folder → fingerprint of its files


def token_dtype(vocab_size: int) -> np.dtype:
    """Little-endian, of ``token_bytes``."""
    return np.dtype(f"<u{token_bytes(vocab_size)}")


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
            DamagedStore: what is there is not what prepare wrote.
            InputError: it is unfinished, or may not be read.
        """
        path = Path(path)
        try:
            manifest = reader.read(path / "manifest.json", StoreManifest)
            if manifest is None:
                raise InputError(f"store: {path} has no manifest.json; a folder made by `dwsweep prepare`")
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
        except OSError as error:
            raise InputError(f"store: {error.filename or path}; cannot be read ({error.strerror or error})") from None
        return store

    def _check_sizes(self) -> None:
        pieces = self.path / "pieces.json"
        found = hashlib.sha256(pieces.read_bytes()).hexdigest() if pieces.exists() else "missing"
        if found != self.manifest.tokenizer_hash:
            was = self.manifest.tokenizer_hash[:12]
            raise DamagedStore(self.path, f"it was made by the tokenizer {was}, but its pieces.json is {found[:12]}")
        for split in SPLITS:
            want = self.manifest.splits[split].n_tokens * self.dtype.itemsize
            have = sum(f.stat().st_size for f in self._shard_paths(split) if f.exists())
            if want != have:
                raise DamagedStore(self.path, f"it has {have:,} bytes of {split} tokens, the manifest says {want:,}")

    def _verify_once(self) -> None:
        found = self._fingerprint()
        if not is_verified(self.path, found):
            self.verify()
            remember(self.path, found)

    def remember_as_verified(self) -> None:
        """For who has just written the store."""
        remember(self.path, self._fingerprint())

    def _fingerprint(self) -> str:
        return fingerprint(self.path, ["manifest.json", *(self.manifest.files or self.manifest.data_files)])

    def verify(self) -> None:
        """Reads every byte again and compares it with what prepare wrote.

        A store of an earlier version has checksums of its tokens alone; its documents must then add up to them.

        Raises:
            DamagedStore: names the damaged file.
        """
        wanted = self.manifest.files
        for name, found in checksums(self.path, wanted).items():
            if found != wanted[name]:
                raise DamagedStore(self.path / name, f"it holds content {found[:12]}, was {wanted[name][:12]}")
        if wanted:
            return
        found = content_hash(self.path, self.manifest.tokenizer_hash, self.manifest.dtype, self.manifest.splits)
        if found != self.data_hash:
            raise DamagedStore(self.path, f"it holds content {found[:12]}, its manifest says {self.data_hash[:12]}")
        for split in SPLITS:
            counts, documents = self.manifest.splits[split], self.documents(split)
            ends = np.cumsum(documents["n_tokens"].astype(np.int64) + 1)
            if (
                len(documents) != counts.n_documents
                or documents["n_bytes"].sum(dtype=np.int64) != counts.n_bytes
                or ends[-1] + 1 != counts.n_tokens
                or (self.shards(split).take_windows(ends, 1) != self.end_token).any()
            ):
                raise DamagedStore(
                    self.path / f"{split}-documents.npy", f"its documents are not those of the {split} tokens"
                )

    def _shard_paths(self, split: str) -> list[Path]:
        return [self.path / name for name in self.manifest.shard_names(split)]

    @property
    def data_hash(self) -> str:
        """SHA-256 (hex) of both token streams, their split and the tokenizer."""
        return self.manifest.data_hash

    @property
    def vocab_size(self) -> int:
        return self.manifest.vocab_size

    @property
    def end_token(self) -> int:
        """Id of the token that stands before the first document and after each."""
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


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 (hex) of each file, several at a time. OSError where one cannot be read."""
    names = list(names)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(lambda name: _sha256(folder / name), names), strict=True))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(folder: Path, names: Iterable[str]) -> str:
    """What changes when one of the files does: names, sizes, and times of writing and of any change."""
    stats = [(name, (folder / name).stat()) for name in sorted(names)]
    found = [f"{name} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}" for name, s in stats]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def is_verified(folder: Path, found: str) -> bool:
    """Whether the files with this fingerprint were verified before, by any process that could leave word of it."""
    if _verified.get(folder) == found:
        return True
    return any(_read(place) == found for place in _places(folder))


def remember(folder: Path, found: str) -> None:
    """Keep the verdict that the files with this fingerprint are whole."""
    _verified[folder] = found
    for place in _places(folder):
        try:
            paths.make_directory(place.parent)
            paths.write_json(place, {"files": found})
            return
        except OSError:  # read-only, or full
            continue


def _read(place: Path) -> str | None:
    try:
        found = (paths.read_json(place) or {}).get("files")
    except OSError:
        return None
    return found if isinstance(found, str) else None


def _places(folder: Path) -> tuple[Path, Path]:
    name = hashlib.sha256(os.fspath(folder).encode()).hexdigest()[:16]
    return folder / VERIFIED, paths.cache_root() / "verified" / f"{name}.json"
