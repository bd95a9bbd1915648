"""The store on disk, and the held-out set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus_tools import data_spec, documents, jsonl

from dwsweep.data import token_store, tokenizer
from dwsweep.data.heldout import heldout_set
from dwsweep.data.prepare import prepare
from dwsweep.data.token_store import Store, token_dtype
from dwsweep.data.tokenizer import Tokenizer

TEXTS = [f"document {i} é" * (i % 7 + 1) for i in range(60)]


def build(folder: Path, dtype: str = "<u2") -> Store:
    """A store of bytes, in tokens of another size than a text so small has."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "token_dtype", lambda vocab_size: np.dtype(dtype))
        source = jsonl(folder / "a.jsonl", TEXTS)
        return prepare(data_spec(source, folder, vocab_size=256, validation_fraction=0.2), progress=False)


def test_two_and_four_byte_tokens(tmp_path: Path) -> None:
    one = build(tmp_path / "one")
    assert isinstance(one.tokens("train"), np.memmap)
    assert token_dtype(65_536) == np.dtype("<u2") and token_dtype(65_537) == np.dtype("<u4")
    wide = build(tmp_path / "wide", dtype="<u4")
    assert wide.tokens("train").dtype == np.uint32 and wide.data_hash != one.data_hash
    assert {*documents(wide, "train"), *documents(wide, "validation")} == {*TEXTS}


def test_a_store_is_verified_once_per_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = build(tmp_path / "s"), []
    verify = Store.verify
    monkeypatch.setattr(Store, "verify", lambda self: (read.append(self.path), verify(self)))

    def n_reads(*, new_process: bool = True) -> int:
        if new_process:
            token_store._verified.clear()
        read.clear()
        Store.open(store.path)
        return len(read)

    assert n_reads() == 0  # opened by build
    (store.path / "train-00000.bin").touch()
    assert [n_reads(), n_reads()] == [1, 0]
    Store.open(store.path, verify=False)
    # a store that cannot be written: the verdict holds in this process
    (store.path / token_store.VERIFIED).unlink()
    (store.path / token_store.VERIFIED).mkdir()
    assert [n_reads(), n_reads(new_process=False), n_reads()] == [1, 0, 1]


@pytest.mark.parametrize("seq_len", [1, 7, 1000])
def test_heldout_counts_each_target_once(tmp_path: Path, seq_len: int) -> None:
    store = build(tmp_path / "s")
    held = heldout_set(store, seq_len)
    assert held.windows.shape[1] == seq_len + 1 and held.document.shape == (len(held.windows), seq_len)
    validation = documents(store, "validation")
    assert held.n_documents == len(validation) > 5
    targets, document = held.windows[:, 1:].reshape(-1), held.document.reshape(-1)
    real = document >= 0
    n_tokens = held.document_tokens.sum()
    assert real[:n_tokens].all() and not real[n_tokens:].any() and (~real).sum() < seq_len
    assert np.array_equal(np.bincount(document[real]), held.document_tokens)
    texts = [Tokenizer.load(store.path).decode(targets[document == d]) for d in range(held.n_documents)]
    assert sorted(texts) == sorted(validation)
    assert held.n_bytes == sum(len(t.encode()) for t in texts)
    assert np.array_equal(held.windows[1:, 0], held.windows[:-1, -1])  # each input has all the context there is
    assert held.windows[0, 0] == store.end_token
    records = store.documents("validation")
    assert [len(t.encode()) for t in texts] == records["n_bytes"][np.argsort(records["digest"])].tolist()


def test_heldout_is_cut_at_a_document(tmp_path: Path) -> None:
    store = build(tmp_path / "s")
    all_ = heldout_set(store, 16)
    cut = heldout_set(store, 16, max_tokens=int(all_.document_tokens[:4].sum()))
    assert cut.n_documents == 4 and np.array_equal(cut.document_tokens, all_.document_tokens[:4])
    assert heldout_set(store, 16, max_tokens=int(all_.document_tokens[:4].sum()) - 1).n_documents == 3
    assert heldout_set(store, 16, max_tokens=1).n_documents == 1
    assert heldout_set(store, 16, max_tokens=10**9).n_documents == all_.n_documents
