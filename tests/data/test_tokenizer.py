"""Tokens give the text back, and are SentencePiece's own."""

from __future__ import annotations

import numpy as np
import pytest
from corpus_tools import articles

from dwsweep.data import tokenizer as module
from dwsweep.data.tokenizer import Tokenizer, train
from dwsweep.errors import InputError

AWKWARD = [
    "",
    " ",
    "   leading and trailing   ",
    "a  b\n\n c\td\r\n\x0b\x01",
    "\n\n\n",
    "naïve café — “quoted” … 漢字 🎉 e\u0301 ﬁ ½ ™ \u2028 \ufeff a\u00a0b",
    "the mark \u2581 itself, doubled \u2581\u2581x and \u2581 alone",
    "</s> <unk> <0x41> <s>",
    "z" * 500 + " " + "y" * 500,
]


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train(articles(400), 400)


def test_bpe_gives_every_text_back_by_the_tokens_of_sentencepiece(bpe: Tokenizer) -> None:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=bpe.model)
    for text in (*AWKWARD, *articles(1)):
        ids = bpe.encode(text)
        assert bpe.decode(ids) == text and bpe.end_token not in ids and ids.dtype == np.uint16
        # again from the cache of words; SentencePiece takes its own mark for a space
        assert "\u2581" in text or bpe.encode(text).tolist() == ids.tolist() == processor.encode(text)


def test_a_full_cache_of_words_changes_no_token(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_WORDS", 3)
    small = Tokenizer(bpe.model)
    for text in articles(20):
        assert np.array_equal(small.encode(text), bpe.encode(text))


def test_a_vocabulary_of_256_is_the_bytes() -> None:
    plain = train([], 256)
    assert (plain.vocab_size, plain.end_token, plain.model) == (256, 0, None)
    for text in AWKWARD:
        ids = plain.encode(text)
        assert ids.tolist() == list(text.encode()) and plain.decode(ids) == text


@pytest.mark.parametrize(
    ("sample", "vocab_size", "message"),
    [
        (["the same words again "] * 9, 5000, r"data.vocab_size: 5000; this text supports at most \d+ tokens"),
        (["".join(map(chr, range(0x4E00, 0x5000)))], 300, r"data.vocab_size: 300; .* need more than \d+, or 256"),
        ([], 1000, r"data.vocab_size: 1000; SentencePiece cannot train"),
    ],
)
def test_a_vocabulary_that_the_text_cannot_support_is_refused(sample: list[str], vocab_size: int, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        train(sample, vocab_size)
    assert "\n" not in str(error.value)
