"""The manifest of a token store: ``manifest.json`` beside its shards, written last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator

from dwsweep.records.reader import Count, Positive

FORMAT: Literal[2] = 2
SPLITS = ("train", "validation")


@dataclass(frozen=True)
class StoreSplit:
    """What one split holds."""

    n_documents: Count
    n_tokens: Positive  # of the stream, end tokens included
    n_bytes: Count  # of the documents' UTF-8
    n_shards: Positive


def _both(splits: dict[str, StoreSplit]) -> dict[str, StoreSplit]:
    if set(splits) != set(SPLITS):
        raise ValueError(f"must have {' and '.join(SPLITS)}")
    return splits


@dataclass(frozen=True, kw_only=True)
class StoreManifest:
    """From what, how and with what a token store was made, and what is in it."""

    format: Literal[2] = FORMAT
    source: str  # data.source
    settings: dict[str, str | int | float | None]  # the section ``data`` of the spec, without what changes nothing
    vocab_size: Positive
    dtype: Literal["<u2", "<u4"]  # of the shards, as NumPy writes it
    end_token: Count
    tokenizer_hash: str  # SHA-256 (hex) of pieces.json
    splits: Annotated[dict[str, StoreSplit], AfterValidator(_both)]
    n_documents: Count  # of both splits, as are the next three
    n_tokens: Count
    n_characters: Count
    n_bytes: Count
    characters_per_token: float
    bytes_per_token: float
    duplicates: Count  # documents dropped since their text had come before
    left_out: dict[str, Count]  # by design, by reason: redirects, empty articles
    skipped: dict[str, Count]  # bad records by reason
    first_skipped: str | None  # where the first bad one is
    seconds: dict[str, float]  # by pass
    versions: dict[str, str]  # of Python and the packages
    data_hash: str  # SHA-256 (hex) of both token streams, their split and the tokenizer
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 (hex) of each data file; earlier versions kept none

    def shard_names(self, split: str) -> list[str]:
        return [f"{split}-{i:05d}.bin" for i in range(self.splits[split].n_shards)]

    @property
    def data_files(self) -> list[str]:
        """Names of the files that training reads."""
        shards = [name for split in SPLITS for name in self.shard_names(split)]
        return ["pieces.json", *shards, *(f"{split}-documents.npy" for split in SPLITS)]
