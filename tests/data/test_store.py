"""The store on disk, and the held-out set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dwsweep.data import token_store
from dwsweep.data.heldout import heldout_set
from dwsweep.data.token_store import DOCUMENT, Store, StreamWriter, checksums, content_hash
from dwsweep.data.tokenizer import Tokenizer
from dwsweep.records import record as reader
from dwsweep.records.store import StoreManifest

END = 0
TRAIN = [f"training document {i} " * (i % 7 + 1) for i in range(40)]
VALIDATION = [f"held-out {i} é" * (i % 5 + 1) for i in range(12)]


def build(path: Path, shard_tokens: int = 1 << 30, dtype: str = "<u2", first: str = TRAIN[0]) -> Store:
    """A store of plain bytes, made with the writer that prepare uses."""
    path.mkdir()
    tokenizer = Tokenizer(None)
    tokenizer_hash = tokenizer.save(path)
    splits = {}
    rng = np.random.default_rng(5)
    for split, texts in (("train", [first, *TRAIN[1:]]), ("validation", VALIDATION)):
        writer = StreamWriter(path, split, np.dtype(dtype), END, shard_tokens)
        for text in texts:
            record = np.zeros(1, DOCUMENT)
            record["digest"] = rng.integers(0, 2**64, dtype=np.uint64)
            record["n_tokens"] = record["n_bytes"] = len(text.encode())
            writer.append(np.array([*text.encode(), END], dtype), record)
        splits[split] = writer.close()
    manifest = StoreManifest(
        source="text:x", settings={}, vocab_size=256, dtype=dtype, end_token=END,  # type: ignore[arg-type]
        tokenizer_hash=tokenizer_hash, splits=splits, n_documents=52, n_tokens=1000, n_characters=1000, n_bytes=1000,
        characters_per_token=0.98, bytes_per_token=0.99, duplicates=3, left_out={"redirects": 2},
        skipped={"invalid UTF-8": 1}, first_skipped="x, byte 3", seconds={}, versions={},
        data_hash=content_hash(path, tokenizer_hash, dtype, splits), files={}, key="",
    )  # fmt: skip
    manifest = replace(manifest, files=checksums(path, manifest.data_files))
    reader.write(path / "manifest.json", manifest)
    return Store.open(path)


def text_of(store: Store, ids: np.ndarray) -> str:
    return Tokenizer.load(store.path).decode(ids)


def test_shards_and_four_byte_tokens(tmp_path: Path) -> None:
    one, many = build(tmp_path / "one"), build(tmp_path / "many", shard_tokens=100)
    assert len(list((tmp_path / "many").glob("train-*.bin"))) > 10
    assert one.data_hash == many.data_hash
    assert isinstance(one.train_tokens(), np.memmap)
    assert np.array_equal(one.train_tokens(), many.train_tokens())
    assert text_of(one, one.train_tokens()) == "".join(TRAIN)
    wide = build(tmp_path / "wide", dtype="<u4")
    assert wide.train_tokens().dtype == np.uint32 and wide.data_hash != one.data_hash
    assert text_of(wide, wide.shards("validation").read(0, wide.n_validation_tokens)) == "".join(VALIDATION)


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


@pytest.mark.parametrize(("seq_len", "shard_tokens"), [(1, 1 << 30), (7, 64), (1000, 64)])
def test_heldout_counts_each_target_once(tmp_path: Path, seq_len: int, shard_tokens: int) -> None:
    store = build(tmp_path / "s", shard_tokens)
    held = heldout_set(store, seq_len)
    assert held.windows.shape[1] == seq_len + 1 and held.document.shape == (len(held.windows), seq_len)
    assert held.n_documents == len(VALIDATION)
    targets, document = held.windows[:, 1:].reshape(-1), held.document.reshape(-1)
    real = document >= 0
    n_tokens = held.document_tokens.sum()
    assert real[:n_tokens].all() and not real[n_tokens:].any() and (~real).sum() < seq_len
    assert np.array_equal(np.bincount(document[real]), held.document_tokens)
    texts = [text_of(store, targets[document == d]) for d in range(held.n_documents)]
    assert sorted(texts) == sorted(VALIDATION)
    assert held.n_bytes == sum(len(t.encode()) for t in texts)
    assert np.array_equal(held.windows[1:, 0], held.windows[:-1, -1])  # each input has all the context there is
    assert held.windows[0, 0] == END
    records = store.documents("validation")
    assert [len(t.encode()) for t in texts] == records["n_bytes"][np.argsort(records["digest"])].tolist()


def test_heldout_is_cut_at_a_document(tmp_path: Path) -> None:
    store = build(tmp_path / "s")
    all_ = heldout_set(store, 16)
    cut = heldout_set(store, 16, max_tokens=int(all_.document_tokens[:4].sum()))
    assert cut.n_documents == 4 and np.array_equal(cut.document_tokens, all_.document_tokens[:4])
    assert heldout_set(store, 16, max_tokens=int(all_.document_tokens[:4].sum()) - 1).n_documents == 3
    assert heldout_set(store, 16, max_tokens=1).n_documents == 1
    assert heldout_set(store, 16, max_tokens=10**9).n_documents == len(VALIDATION)
