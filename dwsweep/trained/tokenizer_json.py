"""Our tokenizers as the files that ``transformers.AutoTokenizer`` reads, with the same ids.

``tokenizer.json`` is plain JSON, so nothing is imported for it. SentencePiece's mark for a space is a space here: the
mark itself in a text then falls back to its bytes, as with ours. SentencePiece merges the pair whose piece has the
highest score. Hugging Face's BPE takes a list of pairs, the preferred first: every way to split every piece, by the
scores of the pieces.
"""

from __future__ import annotations

import json
from typing import Any

from dwsweep.data.tokenizer import SPACE, Tokenizer
from dwsweep.errors import InputError

END = "</s>"
UNKNOWN = "<unk>"


def files(tokenizer: Tokenizer) -> dict[str, str]:
    """Name and content of each file.

    Raises:
        InputError: a SentencePiece model that was not trained here, which may normalise and split in other ways.
    """
    if own := getattr(tokenizer, "files", None):  # of data.tokenizer
        return _of_json(tokenizer, own)
    model, added, more = _plain_bytes() if tokenizer.model is None else _bpe(tokenizer.model)
    tokens = [
        {"id": i, "content": text, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for text, i in added.items()
    ]
    content = {
        **{"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None},
        **{"post_processor": None, **more, "model": model},
    }
    return _written(content, END)


def _written(content: dict[str, Any], end: str) -> dict[str, str]:
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,  # documents follow on the end of another one in training
        "eos_token": end,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a text that holds "</s>" is text
    }
    return {
        "tokenizer.json": json.dumps(content, ensure_ascii=False) + "\n",
        "tokenizer_config.json": json.dumps(settings, indent=1) + "\n",
    }


def _of_json(tokenizer: Tokenizer, own: dict[str, bytes]) -> dict[str, str]:
    """A tokenizer.json as it was given, but that nothing is put around a text, as nothing was in training."""
    name, data = next(iter(own.items()))
    try:
        content = json.loads(data)
        end = {token["id"]: token["content"] for token in content["added_tokens"]}[tokenizer.end_token]
    except (ValueError, LookupError, TypeError):
        raise InputError(
            f"data.tokenizer: {name}; an export carries a tokenizer.json, bytes, or a vocabulary that dwsweep trained; "
            "this is none of them"
        ) from None
    return _written({**content, "post_processor": None, "truncation": None, "padding": None}, end)


def _bpe(model: bytes) -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
    """(the BPE, its special tokens, how texts are split and joined) of a SentencePiece model."""
    import sentencepiece

    p = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [p.id_to_piece(i).replace(SPACE, " ") for i in range(p.vocab_size())]
    special = {pieces[i]: i for i in range(len(pieces)) if p.is_control(i) or p.is_unknown(i)}
    learned = {piece: i for i, piece in enumerate(pieces) if piece not in special and not p.is_byte(i)}
    merges = [
        [piece[:at], piece[at:]]
        for piece in sorted(learned, key=lambda piece: (-p.get_score(learned[piece]), learned[piece]))
        for at in range(len(piece) - 1, 0, -1)
        if piece[:at] in learned and piece[at:] in learned
    ]
    bpe = {
        **{"type": "BPE", "dropout": None, "unk_token": UNKNOWN, "continuing_subword_prefix": None},
        **{"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": True, "ignore_merges": False},
        "vocab": {piece: i for i, piece in enumerate(pieces)},
        "merges": merges,
    }
    how = {
        # pieces never cross a space, they may begin with one
        "pre_tokenizer": {
            **{"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": False}
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    }
    return bpe, special, how


def _plain_bytes() -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
    """The same of plain bytes: id = byte, and 0, which no text contains, is the end."""
    # GPT-2's letters for bytes: printable ones of Latin-1 as they are, the others from U+0100 on
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    letters = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
    vocab = {END: 0} | {letters[byte]: byte for byte in range(1, 256)}
    bpe = {
        **{"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None},
        **{"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False},
        **{"vocab": vocab, "merges": []},
    }
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return bpe, {END: 0}, {"pre_tokenizer": level, "decoder": level}
