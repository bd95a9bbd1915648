"""Inspection of a store (``prepare --inspect``): counts, lengths of documents, a decoded sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dwsweep.data.token_store import Store
from dwsweep.spec.vocabulary import BYTES_VOCAB
from dwsweep.text import printable

if TYPE_CHECKING:
    from rich.console import Group


SAMPLE_TOKENS = 160
_BAR = 40


def length_histogram(n_tokens: np.ndarray) -> list[tuple[int, int, int]]:
    """Histogram of document lengths in tokens: rows (from, to, documents) by powers of two, without empty ends."""
    if not len(n_tokens):
        return []
    bins = np.floor(np.log2(np.maximum(n_tokens, 1))).astype(int)
    counts = np.bincount(bins)
    return [(2**b, 2 ** (b + 1) - 1, int(counts[b])) for b in range(int(bins.min()), len(counts))]


def inspect(store: Store) -> Group:
    """Summary of a store for rich: counts, skipped records, lengths of documents, a decoded sample."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    def shown(text: str) -> Text:
        """Text without markup and without characters that steer the terminal."""
        return Text(printable(text, keep="\n\t"))

    m = store.manifest
    counts = Table(box=None, pad_edge=False)
    for column in ("", "documents", "tokens", "bytes"):
        counts.add_column(column, justify="left" if not column else "right")
    for split in ("train", "validation"):
        s = m.splits[split]
        counts.add_row(split, f"{s.n_documents:,}", f"{s.n_tokens:,}", f"{s.n_bytes:,}")

    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_row("source", shown(m.source))
    if m.revision:
        facts.add_row("revision", shown(m.revision))
    kind = "bytes" if m.vocab_size == BYTES_VOCAB else "BPE, byte fallback"
    own = m.settings.get("tokenizer") if m.tokenizer_file_hash else None
    facts.add_row("vocabulary", shown(f"{m.vocab_size:,} ({own or kind})"))
    facts.add_row("characters per token", f"{m.characters_per_token:.3f}")
    facts.add_row("bytes per token", f"{m.bytes_per_token:.3f}")
    facts.add_row("duplicates dropped", f"{m.duplicates:,}")
    for reason, n in {**m.left_out, **m.skipped}.items():
        facts.add_row(shown(reason), f"{n:,} {'skipped' if reason in m.skipped else 'left out'}")
    if m.first_skipped:
        facts.add_row("first skipped", shown(m.first_skipped))
    facts.add_row("data hash", shown(m.data_hash))

    lengths = np.concatenate([store.documents(s)["n_tokens"] for s in ("train", "validation")])
    rows = length_histogram(lengths)
    most = max(count for *_, count in rows)
    histogram = Table(box=None, pad_edge=False, title="document length in tokens", title_justify="left")
    for column in ("from", "to", "documents"):
        histogram.add_column(column, justify="right")
    histogram.add_column("")
    for low, high, count in rows:
        histogram.add_row(f"{low:,}", f"{high:,}", f"{count:,}", "█" * -(-count * _BAR // most))

    first = store.shards("train").read(1, 1 + min(SAMPLE_TOKENS, store.n_train_tokens - 1))
    ids = first[: int(np.argmax(first == store.end_token))] if (first == store.end_token).any() else first
    pieces = " ".join(f"{int(i)}:{store.piece(i).decode('utf-8', 'replace')!r}" for i in ids[:24])
    sample = Text.assemble(
        ("first document\n", "italic"), shown(store.decode(ids)), ("\n\nits first tokens\n", "italic"), pieces
    )
    return Group(counts, "", facts, "", histogram, "", Padding(sample, 0))
