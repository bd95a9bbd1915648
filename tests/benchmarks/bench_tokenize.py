"""Encoding speed on one core: dwsweep's word cache against SentencePiece's own encoder, same model, same texts.

    python tests/benchmarks/bench_tokenize.py [SOURCE] [--megabytes 20] [--vocab-size 1000]

SOURCE is any source of a spec (default stdlib-docs). The texts are encoded in the same order by both, in this process,
and the tokens must agree; the clock covers encoding only. SentencePiece is timed on lists of texts, its fastest call.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from dwsweep.data.records import Skipped
from dwsweep.data.sources import open_source
from dwsweep.data.tokenizer import train


def read_texts(source: str, n_bytes: int) -> list[str]:
    """Texts of ``source``, about ``n_bytes`` of UTF-8."""
    opened, skipped, texts, total = open_source(source), Skipped(), [], 0
    for item in opened.items():
        for text in opened.documents(item, skipped):
            texts.append(text)
            total += len(text.encode())
            if total >= n_bytes:
                return texts
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default="stdlib-docs")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--vocab-size", type=int, default=1000)
    options = parser.parse_args()

    texts = read_texts(options.source, int(options.megabytes * 1e6))
    n_bytes = sum(len(t.encode()) for t in texts)
    tokenizer = train(texts[: max(1, len(texts) // 4)], options.vocab_size)
    if tokenizer.model is None:
        raise SystemExit("--vocab-size 256 is plain bytes: nothing to compare")

    import sentencepiece

    reference = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    start = time.perf_counter()
    theirs = [ids for i in range(0, len(texts), 64) for ids in reference.encode(texts[i : i + 64], num_threads=1)]
    their_seconds = time.perf_counter() - start
    start = time.perf_counter()
    ours = [tokenizer.encode(text) for text in texts]
    our_seconds = time.perf_counter() - start

    # a literal U+2581 in a text is a space to SentencePiece; dwsweep keeps it as bytes
    differ = sum(not np.array_equal(a, b) for a, b, t in zip(ours, theirs, texts, strict=True) if "\u2581" not in t)
    print(f"{len(texts):,} texts, {n_bytes / 1e6:.1f} MB, {sum(map(len, ours)):,} tokens, {differ} texts differ")
    print(f"SentencePiece {n_bytes / 1e6 / their_seconds:6.2f} MB/s on one core")
    print(f"dwsweep       {n_bytes / 1e6 / our_seconds:6.2f} MB/s on one core: {their_seconds / our_seconds:.2f} ×")


if __name__ == "__main__":
    main()
