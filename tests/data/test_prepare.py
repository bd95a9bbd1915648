"""prepare: repeatable, idempotent, safe when interrupted or run twice; the split, and what bad input says."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from corpus_tools import articles, data_spec, documents, jsonl
from sentences import says

from dwsweep.data import corpus, digests, passes, records
from dwsweep.data import prepare as module
from dwsweep.data.prepare import find, prepare
from dwsweep.data.sources import open_source
from dwsweep.data.token_store import Store
from dwsweep.data.tokenizer import Tokenizer
from dwsweep.errors import InputError
from dwsweep.records import record as reader
from dwsweep.spec import DataSpec


def spec(source: str, cache: Path, **settings: object) -> DataSpec:
    return data_spec(source, cache, **{"vocab_size": 300, "workers": None, **settings})


@pytest.mark.parametrize("vocab_size", [256, 300])
def test_every_document_comes_back(tmp_path: Path, vocab_size: int) -> None:
    texts = articles(200)
    data = spec(
        jsonl(tmp_path / "a.jsonl", [*texts, texts[3], "  \n", texts[5] + "\n"]), tmp_path, vocab_size=vocab_size
    )
    assert find(data) is None
    store = prepare(data, progress=False)
    train, validation = documents(store, "train"), documents(store, "validation")
    assert sorted(train + validation) == sorted(texts)
    assert train == [t for t in texts if t in set(train)]  # in the order of the source
    assert 8 <= len(validation) <= 35
    m = store.manifest
    assert (m.duplicates, m.left_out, m.skipped) == (2, {"empty documents": 1}, {})
    assert m.n_bytes == sum(len(t.encode()) for t in texts)
    assert store.n_train_tokens + store.n_validation_tokens == m.n_tokens
    assert m.vocab_size == vocab_size and store.tokens("train").max() < vocab_size
    for split, held in (("train", train), ("validation", validation)):
        assert store.documents(split)["n_bytes"].tolist() == [len(t.encode()) for t in held]
        assert store.documents(split)["n_tokens"].sum() + len(held) + 1 == m.splits[split].n_tokens
    store.verify()


class Later(DataSpec):
    lowercase: bool = False


def test_settings_and_text_make_another_store(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", articles(100))
    data = spec(source, tmp_path)
    base = prepare(data, progress=False)
    assert prepare(spec(source, tmp_path / "other"), progress=False).data_hash == base.data_hash
    assert prepare(spec(source, tmp_path, vocab_size=310), progress=False).data_hash != base.data_hash
    # a key of a later version counts unless it has its default
    same, other = (Later.model_validate({**data.model_dump(), "lowercase": value}) for value in (False, True))
    assert find(same) == base and find(other) is None
    jsonl(tmp_path / "a.jsonl", articles(101))
    assert find(data) is None and prepare(data, progress=False).data_hash != base.data_hash


def test_workers_and_blocks_do_not_change_the_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = jsonl(tmp_path / "a.jsonl", articles(300))
    alone = prepare(spec(source, tmp_path / "1", workers=1), progress=False)
    with monkeypatch.context() as patched:
        patched.setattr(passes, "FRAME_BYTES", 700)
        framed = prepare(spec(source, tmp_path / "3", workers=1), progress=False)
    assert framed.data_hash == alone.data_hash
    monkeypatch.setattr(records, "SMALL_BYTES", 0)
    monkeypatch.setattr(corpus, "SMALL_BYTES", 0)
    monkeypatch.setattr(records, "ITEM_BYTES", 2000)
    many = prepare(spec(source, tmp_path / "2", workers=2), progress=False)
    assert many.data_hash == alone.data_hash
    assert np.array_equal(many.documents("train"), alone.documents("train"))


def test_adding_articles_moves_none(tmp_path: Path) -> None:
    texts = articles(300)
    some = prepare(spec(jsonl(tmp_path / "a.jsonl", texts[:150]), tmp_path), progress=False)
    all_ = prepare(spec(jsonl(tmp_path / "b.jsonl", texts[::-1]), tmp_path, seed=3), progress=False)
    assert set(documents(some, "validation")) == set(documents(all_, "validation")) & set(texts[:150])


def test_split_fraction_and_sample_are_unrelated() -> None:
    digest = np.random.default_rng(0).integers(0, 2**64, 200_000, dtype=np.uint64)
    for fraction in (0.02, 0.3):
        held = digests.validation_mark(digest, fraction) == digests.VALIDATION
        assert abs(held.mean() - fraction) < 5 * np.sqrt(fraction * (1 - fraction) / len(digest))
        first = np.argsort(digests.sample_order(digest, 0))[:50_000]
        assert abs(held[first].mean() - fraction) < 0.01
    assert not np.array_equal(np.argsort(digests.sample_order(digest, 0)), np.argsort(digests.sample_order(digest, 1)))


def test_tokenizer_sees_no_validation_text(tmp_path: Path) -> None:
    """A character that only held-out documents have, however often, gets no token of its own."""

    def side(text: str) -> int:
        return int(digests.validation_mark(np.array([digests.digest(text.encode())], np.uint64), 0.1)[0])

    train = [t for t in articles(200) if side(t) == digests.TRAIN]
    held = [t for t in (a + " ж" * 40 for a in articles(200, seed=1)) if side(t) == digests.VALIDATION]
    store = prepare(spec(jsonl(tmp_path / "a.jsonl", train + held), tmp_path), progress=False)
    assert documents(store, "validation") == held and len(held) > 5
    pieces = Tokenizer.load(store.path).pieces
    assert "ж".encode() not in pieces and b" " in pieces


def test_sample_is_bounded_and_seeded(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", articles(2000))
    small = {"tokenizer_sample_bytes": 10_000, "vocab_size": 320}
    first = prepare(spec(source, tmp_path / "1", **small), progress=False)
    again = prepare(spec(source, tmp_path / "2", **small), progress=False)
    other = prepare(spec(source, tmp_path / "3", seed=1, **small), progress=False)
    hashes = [store.manifest.tokenizer_hash for store in (first, again, other)]
    assert hashes[0] == hashes[1] != hashes[2]


RUN = """
import sys
from dwsweep.data.prepare import prepare
from dwsweep.spec import DataSpec
if __name__ == "__main__":
    print(prepare(DataSpec.model_validate_json(sys.argv[1])).data_hash)
"""


def start(data: DataSpec, script: Path) -> subprocess.Popen[str]:
    script.write_text(RUN)
    return subprocess.Popen(
        [sys.executable, str(script), data.model_dump_json()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_prepare_leaves_nothing_that_looks_finished(tmp_path: Path, sent: signal.Signals) -> None:
    data = spec(jsonl(tmp_path / "a.jsonl", articles(1000, words=900)), tmp_path / "cache", workers=2)
    process = start(data, tmp_path / "run.py")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(tmp_path.glob("cache/*.partial/train-*.bin")):
        time.sleep(0.005)
    process.send_signal(sent)
    process.communicate(timeout=30)  # returns when the workers are gone too: they hold the pipe
    assert process.returncode != 0
    assert find(data) is None
    store = prepare(data, progress=False)
    assert store.manifest.n_documents == 1000
    assert not list(tmp_path.glob("cache/*.partial"))
    store.verify()


def test_two_that_prepare_at_once_make_one_store(tmp_path: Path) -> None:
    data = spec(jsonl(tmp_path / "a.jsonl", articles(1500)), tmp_path / "cache", workers=1)
    processes = [start(data, tmp_path / "run.py") for _ in range(2)]
    outputs = [p.communicate(timeout=60) for p in processes]
    assert [p.returncode for p in processes] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0] == prepare(data, progress=False).data_hash + "\n"
    prepare(data, progress=False).verify()


def fails(data: DataSpec, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        prepare(data, progress=False)
    assert "\n" not in str(error.value)
    assert find(data) is None and not list(Path(str(data.cache_dir)).glob("*.partial"))


def test_bad_input_says_so_in_one_line(tmp_path: Path) -> None:
    good = articles(50)
    cache = tmp_path / "cache"
    fails(spec(jsonl(tmp_path / "a.jsonl", []), cache), r"empty: not one document \(no records\)")
    fails(spec(jsonl(tmp_path / "a.jsonl", ["", " "]), cache), r"empty: .*2 × empty documents")
    fails(spec(jsonl(tmp_path / "a.jsonl", good[:1]), cache), "one document; must have at least two")
    fails(spec(jsonl(tmp_path / "a.jsonl", good), cache, vocab_size=9000), "at most [0-9]+ tokens")
    fails(
        spec(jsonl(tmp_path / "a.jsonl", good), cache, text_field="body"), r"no text field \(body\).*fields found: text"
    )
    fails(
        spec(jsonl(tmp_path / "a.jsonl", articles(12)), cache, validation_fraction=1e-6), "leaves one side empty with"
    )
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "\xff"}\n' * 3 + b'{"text": "good"}\n' * 3)
    fails(spec(f"jsonl:{tmp_path}/a.jsonl", cache), r"3 of 6 records are bad \(3 × invalid UTF-8; first: .*byte 0")
    fails(spec(f"jsonl:{tmp_path}/none*", cache), "no such file")
    with pytest.raises(InputError, match=r"has no manifest.json"):
        Store.open(tmp_path)


def test_a_few_bad_records_are_skipped_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "MAX_DOCUMENT_BYTES", 5000)
    source = jsonl(tmp_path / "a.jsonl", articles(500))
    with open(tmp_path / "a.jsonl", "ab") as file:
        file.write(b'{"text": "\xff"}\n{"text": "\\ud800 lone"}\n{"text": "%s"}' % (b"e" * 5001))
    manifest = prepare(spec(source, tmp_path, vocab_size=256)).manifest
    assert manifest.skipped == {"invalid UTF-8": 1, "invalid Unicode": 1, "larger than 64 MiB": 1}
    assert manifest.n_documents == 500 and "a.jsonl, byte" in str(manifest.first_skipped)
    assert "1 × invalid Unicode, 1 × larger than 64 MiB; first: invalid UTF-8: " in capsys.readouterr().err


def test_too_little_held_out_is_said_when_a_store_is_made_and_when_it_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = spec(jsonl(tmp_path / "a.jsonl", articles(120)), tmp_path, validation_fraction=0.05, vocab_size=256)
    for _ in range(2):
        held_out = prepare(data).manifest.splits["validation"].n_documents
        said = capsys.readouterr().err
        assert f"caution: data.validation_fraction 0.05: {held_out} of 120 documents held out" in said
    fraction = float(re.findall(r"a fraction near ([0-9.]+) holds out enough", said)[0])
    enough = prepare(data.model_copy(update={"validation_fraction": fraction}))
    assert enough.manifest.splits["validation"].n_documents > 30 and "caution" not in capsys.readouterr().err


def zeros_inside(store: Path) -> None:
    with open(store / "train-00000.bin", "r+b") as file:
        file.seek(1000)
        file.write(bytes(2000))


def other_documents(store: Path) -> None:
    documents = np.load(store / "validation-documents.npy")
    documents["n_tokens"][:2] += np.array([1, -1]).astype(np.uint32)
    np.save(store / "validation-documents.npy", documents)


def other_format(store: Path) -> None:
    """As another version wrote it."""
    content = {**json.loads((store / "manifest.json").read_text()), "format": 99}
    del content["content_sha256"]
    reader.write(store / "manifest.json", content)


DAMAGE: list[tuple[str, Callable[[Path], object]]] = [
    ("train-00000.bin is damaged (it holds content", zeros_inside),
    ("train-00000.bin has 100 bytes, the manifest says", lambda store: os.truncate(store / "train-00000.bin", 100)),
    ("validation-documents.npy", other_documents),
    ("train-documents.npy", lambda store: (store / "train-documents.npy").unlink()),
    ("was made by the tokenizer", lambda store: (store / "pieces.json").write_text("[]")),
    ("has format 99", other_format),
    ("manifest.json is damaged", lambda store: os.truncate(store / "manifest.json", 200)),
]


@pytest.mark.parametrize(("what", "damage"), DAMAGE)
def test_a_damaged_store_is_named_set_aside_and_made_anew(
    tmp_path: Path, what: str, damage: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    data = spec(jsonl(tmp_path / "a.jsonl", articles(100)), tmp_path / "cache", vocab_size=256)
    whole = prepare(data, progress=False)
    damage(whole.path)
    with pytest.raises(InputError) as error:
        Store.open(whole.path)
    assert len(error.value.lines) == 1 and says(str(error.value), "data: dwsweep prepare with same")
    assert what in str(error.value)
    made = prepare(data)
    assert made.data_hash == whole.data_hash and find(data) == made
    made.verify()
    assert f"set aside as {whole.path.name}.damaged" in capsys.readouterr().err
    assert Path(f"{whole.path}.damaged").is_dir()


def test_a_finished_store_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that this user may only read will do; where the store is damaged, both are said."""
    data = spec(jsonl(tmp_path / "a.jsonl", articles(100)), tmp_path / "cache", vocab_size=256)
    store = prepare(data, progress=False)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", f"{store.path}.lock")

    monkeypatch.setattr(module.locks, "exclusive", refused)
    assert prepare(data, progress=False) == store
    zeros_inside(store.path)
    with pytest.raises(InputError) as error:
        prepare(data, progress=False)
    assert "train-00000.bin is damaged" in error.value.lines[0]
    assert says(error.value.lines[1], "data: cannot be written permission")


@pytest.mark.filterwarnings("error")
def test_a_full_disk_is_one_line_and_leaves_no_file_open(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        gc.collect()  # files that other tests left open are theirs
    data = spec(jsonl(tmp_path / "a.jsonl", articles(200)), tmp_path / "cache", vocab_size=256)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, limits[1]))
    try:
        fails(data, rf"data.cache_dir: {tmp_path}/cache; cannot be written \(.*\); free space there, or choose another")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    gc.collect()  # a file left open would warn in some other test
    prepare(data, progress=False).verify()


def test_a_source_that_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(jsonl(tmp_path / "a.jsonl", articles(20)))
    monkeypatch.setattr(module, "open_source", lambda *_, **__: source)
    (tmp_path / "a.jsonl").unlink()  # between the look at its size and its reading
    fails(
        spec(f"jsonl:{tmp_path}/a.jsonl", tmp_path / "cache"), r"data.source: .*a.jsonl; cannot be read \(No such file"
    )


def test_a_cache_in_a_bucket_or_in_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"data.cache_dir: .*cannot be written"):
        prepare(spec("stdlib-docs", tmp_path / "file"), progress=False)
    with pytest.raises(InputError, match=r"data.cache_dir: gs://b/cache; must be a local folder"):
        prepare(spec("stdlib-docs", Path("x")).model_copy(update={"cache_dir": "gs://b/cache"}), progress=False)
    monkeypatch.setenv("DWSWEEP_CACHE", "gs://b/cache")
    for ask in (prepare, find):
        with pytest.raises(InputError, match=r"DWSWEEP_CACHE: gs://b/cache; must be a local folder"):
            ask(DataSpec(source="stdlib-docs"))


MEMORY = """
import re, resource, sys
from dwsweep.data.prepare import prepare
from dwsweep.spec import DataSpec
if __name__ == "__main__":
    store = prepare(DataSpec.model_validate_json(sys.argv[1]))
    # ru_maxrss of this process would count what the test's own process had before exec
    parent = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
    print(store.manifest.n_bytes, parent, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_is_flat_in_the_size_of_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for megabytes in (10, 100):
        texts = articles(megabytes * 4000, words=100)
        data = spec(jsonl(tmp_path / f"{megabytes}.jsonl", texts), tmp_path / "cache", workers=2)
        (tmp_path / "run.py").write_text(MEMORY)
        command = [sys.executable, str(tmp_path / "run.py"), data.model_dump_json()]
        n_bytes, parent, worker = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
        assert 0.8 * megabytes < n_bytes / 1e6 < 1.3 * megabytes
        peaks.append((parent, worker))
    # the parent keeps 40 bytes a document (420,000 of them), and a worker its cache of words
    assert peaks[1][0] - peaks[0][0] < 60, peaks
    assert peaks[1][1] - peaks[0][1] < 60, peaks
