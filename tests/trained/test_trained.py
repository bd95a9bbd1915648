"""Runs whose parameters were kept: which are found, what is refused in one line, exported files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from cli_tools import Command
from sentences import says
from spec_tools import filled
from train_support import TINY, make_store

from dwsweep.data.tokenizer import Tokenizer
from dwsweep.data.tokenizer import train as train_tokenizer
from dwsweep.errors import InputError
from dwsweep.model.transformer import build
from dwsweep.plan import DataFacts
from dwsweep.plan import build as build_plan
from dwsweep.records.run import RunResult
from dwsweep.shapes import Layer
from dwsweep.spec import parse_spec
from dwsweep.sweep.directory import SweepStore
from dwsweep.trained import architectures, huggingface, runs

GRID = {"widths": {1: [16], 2: [16]}, "seeds": 2}


@pytest.fixture
def sweep(tmp_path: Path) -> SweepStore:
    """Two shapes, two seeds: seed 0 has parameters, seed 1 is done without, and of the last run there is nothing."""
    tokens = make_store(tmp_path)
    data = {"source": f"text:{tmp_path}/text/*.txt", "validation_fraction": 0.15, "cache_dir": str(tmp_path / "cache")}
    spec = parse_spec(filled(TINY, grid=GRID, data=data))
    plan = build_plan(spec, data=DataFacts.of(tokens))
    store = SweepStore(tmp_path / "sweep")
    store.write_plan(plan)
    for run in plan.runs[:-1]:
        params = None
        if run.seed == 0:
            config = store.config(run.run_id)
            assert config is not None
            model = build(run.shape, runs.TrainedRun(store, config, RunResult(1.0)).scales)
            leaves = jax.tree_util.tree_leaves_with_path(model.init(jax.random.key(run.shape.depth)))
            params = {".".join(key.key for key in path): np.asarray(leaf) for path, leaf in leaves}
        store.finish(
            run.run_id, run.pack_id, RunResult(5.0 + run.shape.depth, steps=12), np.array([[5.0, 1.0]]), params
        )
    return store


def kept(sweep: SweepStore) -> list[runs.TrainedRun]:
    return runs.find(sweep.directory)


def test_what_cannot_be_used_is_one_line(sweep: SweepStore, dwsweep: Command, tmp_path: Path) -> None:
    first, second = kept(sweep)
    names = sweep.run_ids()
    without = next(name for name in names if (result := sweep.result(name)) and not result.params_sha256)
    unfinished = next(name for name in names if sweep.result(name) is None)

    def refused(*arguments: str | Path) -> str:
        done = dwsweep(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    out = tmp_path / "out"
    assert "must be a sweep directory" in refused("export", tmp_path, out)
    assert says(refused("export", sweep.run_directory(without), out), "trained: parameters were not kept")
    assert "is pending" in refused("export", sweep.run_directory(unfinished), out)

    result = sweep.path_of(RunResult, first.run_id)
    text = result.read_text()
    result.write_text(text[:50])  # its run is not left out without a word
    assert f"{first.run_id}/result.json: is not valid JSON" in refused("export", sweep.directory, out)
    result.write_text(text)

    path = sweep.params_path(first.run_id)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "is damaged: its SHA-256" in refused("export", sweep.run_directory(first.run_id), out)
    path.unlink()
    assert "is not there" in refused("export", sweep.run_directory(first.run_id), out)
    assert not (out / "config.json").exists()

    (tmp_path / "text" / "0.txt").write_text("other words")
    assert says(refused("export", sweep.run_directory(second.run_id), out), "trained: which not prepared here")


def test_an_export_is_whole_and_is_not_written_over(sweep: SweepStore, dwsweep: Command, tmp_path: Path) -> None:
    done = dwsweep("export", sweep.directory, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    folders = [Path(line) for line in done.stdout.split()]
    assert [(run.shape.depth, run.config.seed) for run in kept(sweep)] == [(1, 0), (2, 0)]
    assert [folder.name for folder in folders] == [run.run_id for run in kept(sweep)]
    for folder, run in zip(folders, kept(sweep), strict=True):
        names = {path.name for path in folder.iterdir()}
        assert names == {
            *("config.json", "generation_config.json", "model.safetensors"),
            *("tokenizer.json", "tokenizer_config.json", "README.md"),
        }
        config = json.loads((folder / "config.json").read_text())
        assert config["model_type"] == "gpt2" and config["n_layer"] == run.shape.depth
        assert f"{run.result.loss:.4f} nats per token" in (folder / "README.md").read_text("utf-8")
    again = dwsweep("export", sweep.directory, tmp_path / "out")
    assert again.returncode == 2 and "is there already" in again.stderr
    run = sweep.run_directory(kept(sweep)[0].run_id)
    (folders[0] / "config.json").unlink()  # cut off before its last file
    assert dwsweep("export", run, folders[0]).returncode == 0


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        *(({"preset": name}, name) for name in ("gpt2", "llama", "qwen3")),
        ({"preset": "nanochat"}, "gemma3_text"),
        ({"attention": "linear"}, ["model.attention: linear"]),
        (
            {"order": "attention_first", "embedding_rank": 5},
            ["model.order: attention_first", "model.embedding_rank: 5"],
        ),
        ({"norm": "post"}, ["model.norm: post"]),
        ({"norm_type": "none"}, ["model.norm_type: none"]),
        ({"logit_softcap": 15.0}, ["model.logit_softcap: 15.0"]),
        ({"mlp": "gated"}, ["model.mlp: gated"]),
        ({"norm_type": "rmsnorm"}, ["model.positions: learned", "model.mlp: plain"]),
        ({"preset": "qwen3", "biases": True}, ["model.biases: true"]),
    ],
)
def test_a_preset_has_its_architecture_and_what_no_architecture_has_is_named(
    keys: dict[str, Any], found: str | list[str]
) -> None:
    shape = parse_spec(filled(TINY, model=keys)).block().shape(2, 16)
    of = architectures.of(shape)
    if isinstance(of, list):
        assert len(of) == len(found) and all(line.startswith(name) for line, name in zip(of, found, strict=True))
    else:
        assert of.config(shape)["model_type"] == found


def test_a_key_that_no_architecture_names_is_refused_off_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that somebody adds to the block: an export would compute another function without a word."""

    @dataclass(frozen=True, kw_only=True)
    class Later(Layer):
        parallel: bool = False

    monkeypatch.setattr(architectures, "Layer", Later)
    shape = parse_spec(filled(TINY)).block().shape(2, 16)
    for parallel in (False, True):
        object.__setattr__(shape, "parallel", parallel)
        found = architectures.of(shape)
        assert found is architectures.GPT2 if not parallel else found[0].startswith("model.parallel: true")


def test_tokenizer_files_hold_every_piece_in_its_place() -> None:
    prose = [Path(json.__file__).read_text("utf-8")] * 2
    for size in (256, 400):
        ours = train_tokenizer(prose, size)
        content = json.loads(huggingface.tokenizer_files(ours)["tokenizer.json"])
        vocab = content["model"]["vocab"]
        assert sorted(vocab.values()) == list(range(size))
        assert [token["id"] for token in content["added_tokens"]][-1] == ours.end_token
        for left, right in content["model"]["merges"]:
            assert {left, right, left + right} <= set(vocab)
    assert isinstance(ours, Tokenizer) and len(content["model"]["merges"]) >= 50


class Given(Tokenizer):
    """A tokenizer from a file, as ``data.tokenizer`` names one."""

    def __init__(self, data: bytes, end_token: int) -> None:
        self.files, self.end_token = {"own.json": data}, end_token


def test_a_tokenizer_of_ones_own_is_carried_without_what_it_puts_around_a_text() -> None:
    ours = json.loads(huggingface.tokenizer_files(Tokenizer(None))["tokenizer.json"])
    given = ours | {"post_processor": {"type": "TemplateProcessing"}, "truncation": {"max_length": 3}}
    files = huggingface.tokenizer_files(Given(json.dumps(given).encode(), 0))
    assert json.loads(files["tokenizer.json"]) == ours
    assert json.loads(files["tokenizer_config.json"])["eos_token"] == "</s>"
    for data, end in ((b"\x0a\x0e", 0), (json.dumps(given).encode(), 65), (b"[]", 0)):
        with pytest.raises(InputError, match=r"own\.json; an export carries"):
            huggingface.tokenizer_files(Given(data, end))
