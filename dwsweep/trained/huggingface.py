"""Export of a run as a directory that ``transformers`` loads without code of dwsweep, with a model card.

Our tokenizers become the files that ``AutoTokenizer`` reads, with the same ids. ``tokenizer.json`` is plain JSON, so
nothing is imported for it. SentencePiece's mark for a space is a space here: the mark itself in a text then falls back
to its bytes, as with ours. SentencePiece merges the pair whose piece has the highest score. Hugging Face's BPE takes a
list of pairs, the preferred first: every way to split every piece, by the scores of the pieces.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from dwsweep import paths
from dwsweep.data.tokenizer import SPACE, Tokenizer
from dwsweep.errors import InputError
from dwsweep.records.record import to_dict
from dwsweep.spec.bounded_yaml import dump_yaml
from dwsweep.trained import architectures
from dwsweep.trained.architectures import Architecture
from dwsweep.trained.runs import TrainedRun


def export(runs: Sequence[TrainedRun], out: Any) -> list[Any]:
    """Write each run into a directory, ``out`` for a single run and ``out/<run_id>`` for several; returns the
    directories.

    config.json comes last, so that a directory with config.json is whole.

    Raises:
        InputError: no architecture supports a run's shape, an export exists already, parameters are damaged, or the
        tokenizer is not on this host. Then nothing is written, except runs before the first damaged one.
    """
    found = architectures_of(runs)
    stores = {run.config.data_hash: run.token_store() for run in runs}
    places = [out if len(runs) == 1 else out / run.run_id for run in runs]
    for place in places:
        if (place / "config.json").exists() or (place.exists() and not place.is_dir()):
            raise InputError(f"OUT: {place}; is there already; remove it or name another directory")
    tokenizers = {data: Tokenizer.of(store) for data, store in stores.items()}
    files = {data: tokenizer_files(tokenizer) for data, tokenizer in tokenizers.items()}
    for run, architecture, place in zip(runs, found, places, strict=True):
        data = run.config.data_hash
        _write(run, architecture, tokenizers[data].end_token, files[data], place)
    return places


def architectures_of(runs: Sequence[TrainedRun]) -> list[Architecture]:
    """Architecture of each run.

    Raises:
        InputError: names the keys that no architecture supports, and a run that needs them.
    """
    found = [architectures.of(run.shape) for run in runs]
    refused: dict[str, str] = {}
    for run, one in zip(runs, found, strict=True):
        for line in one if isinstance(one, list) else ():
            refused.setdefault(line, run.run_id)
    if refused:
        lines = (f"{line}; no architecture of transformers has it (runs/{name})" for line, name in refused.items())
        raise InputError(*lines)
    return [one for one in found if isinstance(one, Architecture)]


def _write(
    run: TrainedRun, architecture: Architecture, end_token: int, of_tokenizer: dict[str, str], place: Any
) -> None:
    shape = run.shape
    weights = architecture.weights(shape, run.scales, run.arrays())
    paths.make_directory(place)
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}
    paths.write_safetensors(place / "model.safetensors", arrays, "pt")
    ends = {"bos_token_id": end_token, "eos_token_id": end_token}
    for name, text in {
        **of_tokenizer,
        "generation_config.json": json.dumps({**ends, "do_sample": True}, indent=1) + "\n",
        "README.md": model_card(run, architecture),
        "config.json": json.dumps({**architecture.config(shape), **ends}, indent=1) + "\n",
    }.items():
        paths.write_atomic(place / name, text)


def model_card(run: TrainedRun, architecture: Architecture) -> str:
    """Model card: Markdown with the Hub's YAML header, and the run's own record."""
    return f"""\
---
library_name: transformers
pipeline_tag: text-generation
tags: [dwsweep]
---

# {run.run_id}

One point of a depth-width sweep by dwsweep, exported as {architecture.name} in float32. The trainer measured a held-out
loss of {run.result.loss:.4f} nats per token. In training a document follows on the end token of another one: begin a
prompt with `tokenizer.bos_token_id`. {architecture.note}

```yaml
{dump_yaml({**to_dict(run.config), **to_dict(run.result)})}```
"""


END = "</s>"


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """Tokenizer files by name.

    Raises:
        InputError: the SentencePiece model was not trained by dwsweep; it may normalise and split in other ways.
    """
    if own := getattr(tokenizer, "files", None):  # files of data.tokenizer
        return _of_json(tokenizer, own)
    own, added, more = _plain_bytes() if tokenizer.model is None else _bpe(tokenizer.model)
    bpe = {
        **{"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None},
        **{"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **own},
    }
    tokens = [
        {"id": i, "content": text, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for text, i in added.items()
    ]
    content = {
        **{"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None},
        **{"post_processor": None, **more, "model": bpe},
    }
    return _tokenizer_files(content, END)


def _tokenizer_files(content: dict[str, Any], end: str) -> dict[str, str]:
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,  # training puts each document after the end token of another
        "eos_token": end,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a text that holds "</s>" is text
    }
    return {
        "tokenizer.json": json.dumps(content, ensure_ascii=False) + "\n",
        "tokenizer_config.json": json.dumps(settings, indent=1) + "\n",
    }


def _of_json(tokenizer: Tokenizer, own: dict[str, bytes]) -> dict[str, str]:
    """Tokenizer files of a given tokenizer.json that adds no token around a text, as in training."""
    name, data = next(iter(own.items()))
    try:
        content = json.loads(data)
        end = {token["id"]: token["content"] for token in content["added_tokens"]}[tokenizer.end_token]
    except (ValueError, LookupError, TypeError):
        raise InputError(
            f"data.tokenizer: {name}; an export carries a tokenizer.json, bytes, or a vocabulary that dwsweep trained; "
            "this is none of them"
        ) from None
    return _tokenizer_files({**content, "post_processor": None, "truncation": None, "padding": None}, end)


def _bpe(model: bytes) -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
    """Own keys of a SentencePiece model's BPE, its special tokens, and the rules to split and join texts."""
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
    vocab = {piece: i for i, piece in enumerate(pieces)}
    how = {
        # pieces never cross a space but may begin with one
        "pre_tokenizer": {
            **{"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": False}
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    }
    return {"unk_token": "<unk>", "byte_fallback": True, "vocab": vocab, "merges": merges}, special, how


def _plain_bytes() -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
    """Vocabulary, special tokens and steps of plain bytes: id = byte; 0, which no text contains, is the end token."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # GPT-2: these bytes map to themselves
    others = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    vocab = {END: 0} | {letters[byte]: byte for byte in range(1, 256)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {"vocab": vocab, "merges": []}, {END: 0}, {"pre_tokenizer": level, "decoder": level}
