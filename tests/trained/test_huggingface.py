"""An export computes what the trainer computes: same ids, same logits, same held-out loss, by transformers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from dwsweep.data.heldout import heldout_set
from dwsweep.data.prepare import prepare
from dwsweep.data.tokenizer import Tokenizer
from dwsweep.data.tokenizer import train as train_tokenizer
from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import build
from dwsweep.plan import DataFacts
from dwsweep.plan import build as build_plan
from dwsweep.shapes import BlockForm, HeadRule
from dwsweep.spec import ModelSpec, TrainSpec, parse_spec
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.recorder import RunRecorder
from dwsweep.sweep.results_table import rebuild_results
from dwsweep.train.pack_trainer import train_pack
from dwsweep.trained import architectures, huggingface, runs
from dwsweep.trained.architectures import Architecture

pytestmark = pytest.mark.hf
torch = pytest.importorskip("torch", reason="needs torch and transformers: make test-hf")
transformers = pytest.importorskip("transformers", reason="needs torch and transformers: make test-hf")

BLOCKS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt2, tied": {"tied_embeddings": True},
    "gpt2, grouped heads": {"kv_heads": 2},
    "gpt2, no biases": {"biases": False},
    "gpt2, sinusoids": {"positions": "sinusoidal", "activation": "relu"},
    "gpt2, standard": {"parametrization": "standard", "activation": "relu2"},
    "rotary": {"positions": "rotary"},
    "rotary, tied, grouped heads": {"positions": "rotary", "tied_embeddings": True, "kv_heads": 1},
    "llama": {"preset": "llama"},
    "llama, tied, grouped heads": {"preset": "llama", "tied_embeddings": True, "kv_heads": 2},
    "llama, biases": {"preset": "llama", "biases": True, "activation": "gelu", "parametrization": "mup"},
    "llama, relu2": {"preset": "llama", "mlp": "plain", "activation": "relu2", "mlp_ratio": 4.0},
    "qwen3": {"preset": "qwen3", "kv_heads": 2},
    "qwen3, tied": {"preset": "qwen3", "tied_embeddings": True},
    "nanochat": {"preset": "nanochat"},
    "nanochat, tied, grouped heads": {"preset": "nanochat", "tied_embeddings": True, "kv_heads": 1},
    "nanochat, gated": {"preset": "nanochat", "mlp": "gated", "activation": "silu", "logit_softcap": 2.0},
    "nanochat without its cap": {"preset": "nanochat", "logit_softcap": None},
}


def model_of(keys: dict[str, Any], heads: HeadRule = HeadRule(count=4), width: int = 48) -> Any:
    """(the model, parameters as far from their start as training brings them)."""
    spec, train = ModelSpec(**keys), TrainSpec(steps=5, seq_len=24)
    block = {
        k: v for k, v in spec.model_dump().items() if k not in {"preset", "parametrization", "base_depth", "base_width"}
    }
    shape = BlockForm(heads, 131, 24, **block).shape(3, width)
    model = build(shape, resolve(shape, spec, train, 1e-3))
    params = model.init(jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    keys_ = jax.random.split(jax.random.key(1), len(leaves))
    moved = [x + 0.2 * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys_, strict=True)]
    return model, jax.tree.unflatten(tree, moved)


def flat(params: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {".".join(key.key for key in path): np.asarray(leaf) for path, leaf in leaves}


def exported(model: Any, params: Any, folder: Path) -> Any:
    from safetensors.numpy import save_file

    found = architectures.of(model.shape)
    assert isinstance(found, Architecture), found
    weights = found.weights(model.shape, model.scales, flat(params))
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(found.config(model.shape)))
    theirs, loading = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    return theirs


CASES = [pytest.param(keys, HeadRule(count=4), 48, id=name) for name, keys in BLOCKS.items()] + [
    pytest.param({"preset": name, "kv_heads": 1}, HeadRule(count=2, size=10), 36, id=f"{name}, heads of their own size")
    for name in ("llama", "qwen3")
]


@pytest.mark.parametrize(("keys", "heads", "width"), CASES)
def test_logits_are_ours(keys: dict[str, Any], heads: HeadRule, width: int, tmp_path: Path) -> None:
    model, params = model_of(keys, heads, width)
    theirs = exported(model, params, tmp_path)
    tokens = np.asarray(jax.random.randint(jax.random.key(2), (3, 24), 0, 131))
    ours = np.asarray(model.logits(params, tokens))
    with torch.no_grad():
        found = theirs(torch.tensor(tokens)).logits.numpy()
    assert np.abs(ours).max() > 0.3
    np.testing.assert_allclose(found, ours, atol=1e-4, rtol=0)


TEXTS = [
    "The quick brown fox. The  two   spaces, a tab\tand\n\nlines\r\n at the end ",
    " begins with a space",
    "====== ------ aaaa aaaaa aaaaaa ((((((((( ......... 1111111111",
    "naïve café – “quotes” … 日本語 \U0001f600 \u00a0 \u2581 and \u2581\u2581 marks </s> <unk> <0x41> <|end|>",
    "",
    "\u00ad\ufeff\u200b e\u0301",
]


@pytest.mark.parametrize("vocab_size", [256, 700])
def test_ids_are_ours(vocab_size: int, tmp_path: Path) -> None:
    prose = [Path(json.__file__).read_text(), Path(pytest.__file__).read_text(), *TEXTS[:3] * 5]
    prose += [path.read_text("utf-8") for path in sorted(Path(json.__file__).parent.parent.glob("a*.py"))]
    ours = train_tokenizer(prose, vocab_size)
    for name, text in huggingface.tokenizer_files(ours).items():
        (tmp_path / name).write_text(text, "utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rng = np.random.default_rng(0)
    characters = [*"aaab=-. .\n", "é", "the", " self", "日"]
    fuzz = ["".join(rng.choice(characters, size=rng.integers(1, 60))) for _ in range(3000)]
    for text in [*TEXTS, *fuzz, *prose]:
        ids = ours.encode(text).tolist()
        assert theirs(text).input_ids == ids, text[:200]
        assert theirs.decode(ids) == text
    for keys in ({}, {"positions": "rotary"}, *({"preset": name} for name in ("llama", "qwen3", "nanochat"))):
        shape = model_of(keys)[0].shape  # transformers may choose a tokenizer by the kind of model
        (tmp_path / "config.json").write_text(json.dumps(architectures.of(shape).config(shape)))
        beside = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert [beside(text).input_ids for text in TEXTS] == [ours.encode(text).tolist() for text in TEXTS]
    assert theirs.eos_token_id == ours.end_token == theirs.bos_token_id
    assert len(theirs) == ours.vocab_size
    assert theirs.decode([ours.end_token], skip_special_tokens=True) == ""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two presets, two depths each, trained for some steps with their parameters kept."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "text").mkdir()
    for i, path in enumerate(sorted(Path(json.__file__).parent.parent.glob("[a-c]*.py"))):
        (folder / "text" / f"{i}.txt").write_text(path.read_text("utf-8", errors="ignore"), "utf-8")
    source, cache = f"text:{folder}/text/*.txt", str(folder / "cache")
    spec = parse_spec(
        {
            "name": "tiny",
            "grid": {
                **{"widths": {1: [32], 2: [32]}, "heads": {"count": 2}, "seeds": 2},
                "arms": [{}, {"model.preset": "qwen3", "model.kv_heads": 1, "model.tied_embeddings": True}],
            },
            "data": {"vocab_size": 600, "validation_fraction": 0.3, "cache_dir": cache, "source": source, "workers": 1},
            "train": {"seq_len": 32, "batch_size": 4, "steps": 30, "warmup_steps": 2, "eval_tokens": 9000},
            "execution": {"keep_params": "best"},
        }
    )
    tokens = prepare(spec.data, progress=False)
    plan, store = build_plan(spec, data=DataFacts.of(tokens)), SweepStore(folder / "out")
    store.write_plan(plan)
    for pack in plan.packs:
        recorder = RunRecorder(store, pack, lambda event: None)
        train_pack(pack, tokens, store.pack_directory(pack.pack_id), recorder)
    rebuild_results(store)
    return folder / "out"


def test_heldout_loss_by_transformers_is_that_of_results_csv(sweep: Path, tmp_path: Path) -> None:
    found = runs.find(sweep)
    assert len(huggingface.export(found, tmp_path / "models")) == 4
    for run in found:
        store = run.token_store()
        heldout = heldout_set(store, run.shape.seq_len, 9000)
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "models" / run.run_id)
        windows = torch.tensor(heldout.windows.astype(np.int64))
        with torch.no_grad():
            nll = torch.nn.functional.cross_entropy(
                model(windows[:, :-1]).logits.transpose(1, 2), windows[:, 1:], reduction="none"
            ).numpy()
        loss = nll[heldout.document >= 0].astype(np.float64).mean()
        assert abs(loss - run.result.loss) < 1e-4
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "models" / run.run_id)
        text = "def main(argv):\n    return None"
        assert tokenizer(text).input_ids == Tokenizer.load(store.path).encode(text).tolist()
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text).input_ids]])
        assert model.generate(ids, max_new_tokens=5, do_sample=False).shape[1] > ids.shape[1]


def test_lm_eval_scores_an_export_by_our_loss(sweep: Path, tmp_path: Path) -> None:
    lm_eval = pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: make test-hf")
    from lm_eval.tasks import TaskManager

    texts = [f"def f_{i}(self):\n    return self.x[{i}]\n" for i in range(8)]
    (tmp_path / "prose.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    task = {
        **{"task": "own_prose", "dataset_path": "json", "test_split": "test", "metadata": {"version": 1}},
        **{"dataset_kwargs": {"data_files": {"test": str(tmp_path / "prose.jsonl")}}, "doc_to_text": ""},
        **{"output_type": "loglikelihood_rolling", "doc_to_target": "{{text}}"},
        "metric_list": [{"metric": "bits_per_byte"}],
    }
    (tmp_path / "prose.yaml").write_text(json.dumps(task))
    run = runs.find(sweep)[-1]
    (folder,) = huggingface.export([run], tmp_path / "model")
    found = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(folder), "dtype": "float32"},
        tasks=["own_prose"],
        task_manager=TaskManager(include_path=str(tmp_path)),
        device="cpu",
    )
    tokenizer = Tokenizer.of(run.token_store())
    model, params = build(run.shape, run.scales), unflatten_dict(run.arrays(), sep=".")
    nats = 0.0
    for text in texts:
        ids = np.array([[tokenizer.end_token, *tokenizer.encode(text)]])
        assert ids.shape[1] <= run.shape.seq_len + 1
        logits = jax.nn.log_softmax(model.logits(params, ids[:, :-1]))
        nats -= float(np.take_along_axis(np.asarray(logits), ids[:, 1:, None], axis=-1).sum())
    expected = nats / np.log(2) / sum(len(text.encode()) for text in texts)
    assert found["results"]["own_prose"]["bits_per_byte,none"] == pytest.approx(expected, rel=1e-4)
