"""The shards of a token store: streams of tokens in several files, written once and read as one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwsweep.records.store_files import SPLITS, StoreSplit

SHARD_TOKENS = 1 << 30
BLOCK_BYTES = 1 << 22  # read at a time for a checksum
DOCUMENT = np.dtype([("digest", "<u8"), ("n_tokens", "<u4"), ("n_bytes", "<u4")])
"""One document: hash of its text, tokens without the end token, UTF-8 bytes."""


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

    def close(self) -> StoreSplit:
        """Closes the files; what the manifest says of this split."""
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
