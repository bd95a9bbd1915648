"""Small corpora: their sources, their specs, and what is read of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np

from dwsweep.data.records import Skipped
from dwsweep.data.sources import open_source
from dwsweep.data.token_store import Store
from dwsweep.data.tokenizer import Tokenizer
from dwsweep.spec import DataSpec

WORDS = ["the", "of", "and", "depth", "width", "layer", "net", "model", "loss", "token", "head", "curve", "sum"]


def articles(n: int, seed: int = 0, words: int = 60) -> list[str]:
    """Texts of up to ``words`` words, each other than the rest."""
    rng = np.random.default_rng(seed)
    return [f"Article {i} é\n" + " ".join(rng.choice(WORDS, rng.integers(5, words))) + "." for i in range(n)]


def write_texts(folder: Path, words: int) -> str:
    """The source of forty files."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, text in enumerate(articles(40, words=words)):
        (folder / f"{i}.txt").write_text(text, "utf-8")
    return f"text:{folder}/*.txt"


def jsonl(path: Path, texts: Iterable[str]) -> str:
    """The source of these texts, written to a file."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return f"jsonl:{path}"


def data_spec(source: str, cache: Path, **settings: object) -> DataSpec:
    return DataSpec.model_validate(
        {"source": source, "validation_fraction": 0.1, "cache_dir": str(cache), "workers": 1, **settings}
    )


def read(source: str, text_field: str | None = None) -> tuple[list[str], Skipped]:
    """The texts of a source, and what was passed over."""
    opened, skipped = open_source(source, text_field), Skipped()
    items = list(opened.items())
    texts = [text for item in items for text in opened.documents(item, skipped)]
    assert sum(item.n_bytes for item in items) <= opened.total_bytes
    return texts, skipped


def documents(store: Store, split: str) -> list[str]:
    """The decoded documents of a split, cut at the end tokens."""
    tokens = store.tokens(split)
    ends = np.flatnonzero(tokens == store.end_token)
    assert ends[0] == 0 and ends[-1] == len(tokens) - 1
    return [Tokenizer.load(store.path).decode(tokens[a + 1 : b]) for a, b in pairwise(ends)]
