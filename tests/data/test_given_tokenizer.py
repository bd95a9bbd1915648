"""data.tokenizer: a user's own vocabulary gives its library's tokens, and losses per byte that compare."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import corpus_tools
import numpy as np
import pytest
from sentences import says

from dwsweep.data.heldout import heldout_set
from dwsweep.data.prepare import find, prepare
from dwsweep.data.tokenizer import GivenTokenizer, Tokenizer, given_files
from dwsweep.errors import InputError
from dwsweep.spec import DataSpec, load_spec, parse_spec

TEXTS = [
    f"Dépth {i}: the  width </s> of “layer” {i * 7} <|endoftext|> and ﬁ\n\ttokens of net {i % 5}." for i in range(90)
]


def sentencepiece_model(**options: Any) -> bytes:
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=out, vocab_size=300, model_type="bpe", byte_fallback=True,
        minloglevel=2, num_threads=1, **options,
    )  # fmt: skip
    return out.getvalue()


def tokenizer_json(specials: tuple[str, ...] = ("<|endoftext|>",)) -> str:
    import tokenizers as library

    own = library.Tokenizer(library.models.BPE())
    own.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(specials),
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator(TEXTS, trainer)
    own.post_processor = library.processors.TemplateProcessing(
        single=f"{specials[0]} $A", special_tokens=[(specials[0], own.token_to_id(specials[0]))]
    )
    return str(own.to_str())


@pytest.fixture(params=["sentencepiece", pytest.param("tokenizer.json", marks=pytest.mark.hf), "bytes"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any]:
    """(data.tokenizer, its library's own encoding of a text)."""
    if request.param == "bytes":
        return "bytes", lambda text: list(text.encode())
    if request.param == "sentencepiece":
        import sentencepiece

        (tmp_path / "own.model").write_bytes(sentencepiece_model())
        processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "own.model"))
        return str(tmp_path / "own.model"), processor.encode
    (tmp_path / "own.json").write_text(tokenizer_json(), "utf-8")
    import tokenizers

    own = tokenizers.Tokenizer.from_file(str(tmp_path / "own.json"))
    own.encode_special_tokens = True
    return str(tmp_path / "own.json"), lambda text: own.encode(text, add_special_tokens=False).ids


def data_spec(tmp_path: Path, **settings: Any) -> DataSpec:
    path = tmp_path / "texts.jsonl"
    source = f"jsonl:{path}" if path.exists() else corpus_tools.jsonl(path, TEXTS)  # its time is part of its identity
    return corpus_tools.data_spec(source, tmp_path / "cache", validation_fraction=0.4, **settings)


def test_tokens_and_bytes_are_an_independent_count(kind: tuple[str, Any], tmp_path: Path) -> None:
    tokenizer, encode = kind
    data = data_spec(tmp_path, tokenizer=tokenizer)
    store = prepare(data, progress=False)
    again = Tokenizer.load(store.path)
    assert again.end_token == store.end_token and again.vocab_size == data.vocab_size
    assert all(again.encode(text).tolist() == list(encode(text)) for text in ("", TEXTS[3], "漢字 </s>"))
    found: set[str] = set()
    for split in ("train", "validation"):
        stream = store.tokens(split)[1:].tolist()
        documents, at = store.documents(split), 0
        by_ids = {tuple(encode(text)): text for text in TEXTS}
        for n_tokens, n_bytes in zip(documents["n_tokens"].tolist(), documents["n_bytes"].tolist(), strict=True):
            text = by_ids[tuple(stream[at : at + n_tokens])]
            assert n_bytes == len(text.encode()) and stream[at + n_tokens] == store.end_token
            at += n_tokens + 1
            found.add(text)
        assert at == len(stream)
    assert found == set(TEXTS)
    # bits per byte of a loss of one nat per token is tokens / bytes / ln 2, the end tokens counted
    held_out, documents = heldout_set(store, 16), store.documents("validation")
    assert held_out.document_tokens.sum() == documents["n_tokens"].sum() + held_out.n_documents
    assert held_out.n_bytes == documents["n_bytes"].sum()
    assert int(np.sum(held_out.windows[:, 1:] == store.end_token)) >= held_out.n_documents


def test_the_file_is_part_of_the_data(tmp_path: Path) -> None:
    """Two models of one vocabulary and one text, told apart by their file alone."""
    import sentencepiece

    model = sentencepiece_model()
    other = model.replace(b"nmt_nfkc", b"nmt_nfkd")  # a name in the file that encoding does not look at
    assert other != model and sentencepiece.SentencePieceProcessor(model_proto=other)
    hashes, folders = set(), set()
    for name, content in (("a", model), ("b", other)):
        (tmp_path / name).write_bytes(content)
        store = prepare(data_spec(tmp_path, tokenizer=str(tmp_path / name)), progress=False)
        hashes.add(store.data_hash)
        folders.add(store.path)
        assert store.manifest.tokenizer_hash and store.manifest.tokenizer_file_hash
    assert len(hashes) == len(folders) == 2
    (tmp_path / "moved").write_bytes(model)
    assert prepare(data_spec(tmp_path, tokenizer=str(tmp_path / "moved")), progress=False).path in folders


@pytest.mark.hf
def test_a_folder_and_its_end_token(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer_json(("<|pad|>", "<|stop|>")), "utf-8")
    data = data_spec(tmp_path, tokenizer=str(folder))
    with pytest.raises(
        InputError, match=r"which token ends a document is not clear .*special tokens: <\|pad\|>, <\|st"
    ):
        prepare(data, progress=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|stop|>"}}))
    store = prepare(data, progress=False)
    assert store.end_token == 1 and Tokenizer.load(store.path).end_token == 1
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(InputError, match=r"its tokenizer_config.json is damaged"):
        prepare(data, progress=False)


def test_vocab_size_follows_and_a_written_spec_needs_no_file(tmp_path: Path) -> None:
    file = tmp_path / "own.model"
    file.write_bytes(sentencepiece_model())
    content = {"name": "x", "grid": {"depths": [1, 2], "budgets": [1e4]}, "train": {"steps": 1}}
    (tmp_path / "spec.yaml").write_text(json.dumps({**content, "data": {"vocab_size": 1000}}))
    spec = load_spec(tmp_path / "spec.yaml", [f"data.tokenizer={file}"])
    assert spec.data.vocab_size == spec.block().vocab_size == 300
    (tmp_path / "written.yaml").write_text(spec.to_yaml())
    wrong = load_spec(tmp_path / "spec.yaml", ["data.vocab_size=301", f"data.tokenizer={file}"])
    for refused in (find, prepare, given_files):
        with pytest.raises(InputError, match=r"data.vocab_size: 301; data.tokenizer .* has 300 tokens; must be 300"):
            refused(wrong.data)
    file.unlink()
    assert load_spec(tmp_path / "written.yaml") == spec
    with pytest.raises(InputError, match=r"data.tokenizer: .*own.model; no such file"):
        find(spec.data)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "no such file"),
        (b"no model", "not a whole SentencePiece model"),
        (b'{"model": {"type": "BPE"}}', "not a whole tokenizer.json"),
        (b'{"model": {"vocab": {"a": "b"}}}', "holds no token ids"),
        (b'{"model": {"vocab": {"a": 64}}}', "has 65 tokens; must have at least 256"),
    ],
)
def test_a_file_that_is_none_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, wanted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("own").write_bytes(content)
    with pytest.raises(InputError, match=wanted) as error:
        parse_spec({"name": "x", "data": {"tokenizer": "own"}, "grid": {}, "train": {"steps": 1}})
    (line,) = [line for line in error.value.lines if line.startswith("data")]
    assert line.startswith("data.tokenizer: 'own'; ") and "\n" not in line


def test_a_model_without_an_end_is_one_line_and_its_end_may_be_token_0(tmp_path: Path) -> None:
    (tmp_path / "endless").write_bytes(sentencepiece_model(eos_id=-1))
    with pytest.raises(InputError, match="has no end-of-sentence token"):
        prepare(data_spec(tmp_path, tokenizer=str(tmp_path / "endless")), progress=False)
    (tmp_path / "zero").write_bytes(sentencepiece_model(eos_id=0, unk_id=1, bos_id=2))
    assert prepare(data_spec(tmp_path, tokenizer=str(tmp_path / "zero")), progress=False).end_token == 0


def test_a_tokenizer_that_loses_text_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.model").write_bytes(sentencepiece_model())  # NFKC: “ﬁ” becomes “fi”, two spaces one
    prepare(data_spec(tmp_path, tokenizer=str(tmp_path / "own.model")))
    assert says(capsys.readouterr().err, "data: documents do not come")
    (tmp_path / "plain.model").write_bytes(
        sentencepiece_model(normalization_rule_name="identity", remove_extra_whitespaces=False)
    )
    prepare(data_spec(tmp_path, tokenizer=str(tmp_path / "plain.model")))
    assert "come back" not in capsys.readouterr().err


def test_without_the_library_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tokenizers", None)
    content = json.dumps({"model": {"vocab": {str(i): i for i in range(300)}}}).encode()
    needed = r"needs the package tokenizers: in a clone, pip install -c constraints.txt '\.\[hf\]'"
    with pytest.raises(InputError, match=needed):
        GivenTokenizer({"tokenizer.json": content}, "own.json")
