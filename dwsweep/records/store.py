"""Manifest of a token store: ``manifest.json`` beside its streams, written last."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from dwsweep.records.record import Count, Positive

FORMAT: Literal[2] = 2
SPLITS = ("train", "validation")


def stream_file(split: str) -> str:
    """Name of the file with the tokens of a split; earlier versions cut a long stream into several."""
    return f"{split}-00000.bin"


@dataclass(frozen=True)
class StoreSplit:
    """Contents of one split of a token store."""

    n_documents: Count
    n_tokens: Positive  # tokens of the stream, end tokens included
    n_bytes: Count  # bytes of the documents in UTF-8


def _inside(files: dict[str, str]) -> dict[str, str]:
    for name in files:
        if not _FILE_OF_STORE.fullmatch(name) or {".", ".."} & {*name.split("/")}:
            raise ValueError(f"{name!r}; must be the name of a file in the store")
    return files


_FILE_OF_STORE = re.compile(r"([^/\x00-\x1f]+/)?[^/\x00-\x1f]+")


def _both(splits: dict[str, StoreSplit]) -> dict[str, StoreSplit]:
    if set(splits) != set(SPLITS):
        raise ValueError(f"must have {' and '.join(SPLITS)}")
    return splits


@dataclass(frozen=True, kw_only=True)
class StoreManifest:
    """Source, tokenizer, versions and contents of a token store."""

    format: Literal[2] = FORMAT
    source: str  # data.source
    revision: str | None = None  # commit of the source, where it has one
    # the section ``data`` of the spec, without keys that change nothing
    settings: dict[str, str | int | float | None]
    vocab_size: Positive
    dtype: Literal["<u2", "<u4"]  # dtype of the tokens, as NumPy writes it
    end_token: Count
    tokenizer_hash: str  # SHA-256 (hex) of pieces.json
    tokenizer_file_hash: str | None = None  # SHA-256 (hex) of the file of data.tokenizer, where that is one
    splits: Annotated[dict[str, StoreSplit], AfterValidator(_both)]
    n_documents: Count  # documents of both splits; the next two fields count both splits too
    n_tokens: Count
    n_bytes: Count
    duplicates: Count  # documents dropped since their text had come before
    left_out: dict[str, Count]  # documents left out by design, by reason: redirects, empty articles
    skipped: dict[str, Count]  # bad records by reason
    first_skipped: str | None  # place of the first bad record
    versions: dict[str, str]  # versions of Python and the packages
    data_hash: str  # SHA-256 (hex) of both token streams, their split and the tokenizer with its file
    # SHA-256 (hex) of each file but the manifest
    files: Annotated[dict[str, str], AfterValidator(_inside)]
    key: str  # end of the folder's name, of the settings it was made by

    @property
    def data_files(self) -> list[str]:
        """Names of the files that training reads."""
        return ["pieces.json", *map(stream_file, SPLITS), *(f"{split}-documents.npy" for split in SPLITS)]
