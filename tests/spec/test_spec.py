"""Errors of a spec: all at once, each with its key, its value and the allowed values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkout import SWEEPS

from dwsweep.errors import InputError
from dwsweep.plan import DataFacts, build
from dwsweep.spec import Spec, builtin, load_spec, parse_spec, reference
from dwsweep.spec.bounded_yaml import dump_yaml, load_yaml

GOOD = {"name": "t", "grid": {"depths": [2, 4], "budgets": [1e5, 2e5]}, "train": {"steps": 10}}


def content(**sections: object) -> dict:
    return {**GOOD, **sections}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


def test_all_errors_at_once() -> None:
    wrong = content(
        grid={"depths": [2, -4], "budgets": ["many"], "seed": 3},
        train={"steps": "soon", "warmup_step": 3},
        model={"norm": "middle"},
    )
    with pytest.raises(InputError) as caught:
        parse_spec(wrong)
    said = {line.split(":")[0]: line for line in caught.value.lines}
    assert {"grid.depths[1]", "grid.budgets[0]", "grid.seed", "train.steps", "model.norm"} <= set(said)
    assert "-4" in said["grid.depths[1]"] and "greater than 0" in said["grid.depths[1]"]
    assert "'middle'" in said["model.norm"] and "'pre' or 'post'" in said["model.norm"]
    unknown = said["train.warmup_step"]
    assert "unknown key; did you mean `warmup_steps`?" in unknown and "batch_size" in unknown


HINTS = {"wiki:de": "did you mean wikidump:PATH? "}
NO_SOURCES = ("text: ", "jsonl", "stdlib-docs:x", "", "/data/a.txt", *HINTS)
WRONG: list[tuple[str | dict, str]] = [
    # sections of a spec; a whole file, of several lines; or an override
    ({"grid": {"depths": [2]}}, "budgets"),
    ({"grid": {"depths": [2, 2], "budgets": [1e5]}}, "twice"),
    ({"grid": {"budgets": [1e5]}}, "depths"),
    ({"grid": {"depths": [2], "budgets": [1e5], "widths": {2: [64]}}}, "not both"),
    ({"grid": {"depths": [2, 4], "widths": {2: [64]}}}, "4"),
    ({"grid": {"depths": [2], "budgets": {"from": 5e5, "to": 1e5, "count": 3}}}, "greater"),
    ({"grid": {"depths": [2], "budgets": [1e5], "heads": {}}}, "count"),
    ({"train": {}}, "none"),
    ({"train": {"steps": 5, "tokens": 1e6}}, "steps, tokens"),
    ({"train": {"steps": 5, "token_branches": [1e3]}}, "wsd"),
    ({"train": {"steps": 5, "betas": [0.9, 1.0]}}, "less than 1"),
    *(
        ({"data": {"source": source}}, f"data.source: {source!r}; {HINTS.get(source, '')}must be one of stdlib-docs, ")
        for source in NO_SOURCES
    ),
    ("\n", "is empty"),
    ("a: [\n", "not valid YAML"),
    ("- 1\n", "holds list"),
    ("{}\n", "name"),
    ("name: t\nname: other\n", 'found duplicate key "name"; a key must be given once; again in line 2'),
    ("x: " + "{a: " * 400 + "1" + "}" * 400 + "\n", "nested deeper than 50 levels in line 1"),
    ("a: &a [1]\ngrid: {depths: *a}\n", "an alias in line 2; the value must be written out"),
    ("name: " + "x" * 4_000_001 + "\n", "is larger than 4,000,000 bytes"),
    ("name.deeper=5", "--set"),
    ("train..steps=5", "--set: 'train..steps=5'; must be KEY=VALUE"),
    ("train.steps=true", "train.steps: True; must not be true or false"),
    ("execution.keep_params=false", "execution.keep_params: False; must be 'none', 'best' or 'all'"),
    ("grid.depths=[1, true]", "grid.depths: [1, True]"),
    ("grid.widths={}", "widths"),
    ("train.weight_decay=.inf", "train.weight_decay: inf"),
    ("grid.depths=[1000000000000]", "grid.depths[0]: 1000000000000; must be less than or equal to 10000"),
    ("data.seed=18446744073709551616", "data.seed: 18446744073709551616; must be less than 9223"),
    ('data.cache_dir="a\\0b"', "data.cache_dir: 'a\\x00b'; must not hold a null character"),
    (f"train.steps={'9' * 5000}", "is not valid YAML: Exceeds the limit"),
    ("train.steps=!!bool perhaps", "is not valid YAML: a value does not fit its tag"),
    ("train.tokens=1.0e+18", "train.tokens: 1e+18; gives "),
    ("model.mlp_ratio=0.01", "model.mlp_ratio: 0.01; leaves no MLP at width 4"),
    (f"grid={{depths: {list(range(1, 101))}, budgets: [1.0e5, 1.0e6], seeds: 10000}}", "grid: makes 2,000,000 runs"),
    ("train.seconds=600", "train.seconds: removed in this version; "),
    ("execution.keep_finished_checkpoints=true", "execution.keep_finished_checkpoints: removed in this version; "),
    ("data.source=wikiextractor:AA", "data.source: 'wikiextractor:AA'; removed in this version; `jsonl:GLOB` reads"),
]


@pytest.mark.parametrize(("given", "named"), WRONG, ids=lambda value: str(value)[:40])
def test_a_spec_that_cannot_be_right_is_one_line_that_names_the_key(
    tmp_path: Path, given: str | dict, named: str
) -> None:
    """Values, files and overrides beyond reason are refused before anything is planned, or by its plan."""
    whole = isinstance(given, str) and given.endswith("\n")
    with pytest.raises(InputError) as error:
        if isinstance(given, dict):
            parse_spec(content(**given))
        path = write(tmp_path, str(given) if whole else parse_spec(GOOD).to_yaml())
        build(load_spec(path, [] if whole else [str(given)]))
    assert any(named in line for line in error.value.lines), error.value.lines
    assert len(error.value.lines) == 1 or isinstance(given, dict) or given == "{}\n"


def test_a_text_too_short_for_one_batch_is_refused_before_anything_trains() -> None:
    spec = parse_spec(content(train={"steps": 10, "batch_size": 16, "seq_len": 128}))
    build(spec)  # before `prepare` nobody knows
    build(spec, data=DataFacts("0" * 64, 16 * 128 + 1, 10_000))
    said = r"2,048 training tokens make 15 windows of train.seq_len 128.*one batch needs 16"
    with pytest.raises(InputError, match=f"data.source: {said}"):
        build(spec, data=DataFacts("0" * 64, 16 * 128, 10_000))


def test_a_spec_survives_its_own_yaml(tmp_path: Path) -> None:
    budgets = {"from": 1e6, "to": 6.4e7, "count": 4}
    assert parse_spec(content(grid={"depths": [2], "budgets": budgets})).grid.budget_values() == pytest.approx(
        [1e6, 4e6, 1.6e7, 6.4e7]
    )
    spec = parse_spec(content(grid={"widths": {2: [64, 96], 4: [48]}, "seeds": [3, 5], "heads": {"size": 16}}))
    path = tmp_path / "spec.yaml"
    path.write_text(spec.to_yaml())
    assert load_spec(path) == spec


def test_a_preset_of_the_command_line_replaces_the_keys_of_the_file(tmp_path: Path) -> None:
    """Or a spec that spells its block out would keep all of it, under the preset's name."""
    path = write(tmp_path, parse_spec(content(model={"preset": "nanochat", "tied_embeddings": True})).to_yaml())
    model = load_spec(path, ["model.mlp_ratio=3", "model.preset=llama"]).model
    assert model == parse_spec(content(model={"preset": "llama", "mlp_ratio": 3.0, "tied_embeddings": True})).model


def test_overrides_replace_and_exclude(tmp_path: Path) -> None:
    path = write(tmp_path, parse_spec(GOOD).to_yaml())
    spec = load_spec(path, ["train.tokens=1e6", "grid.widths={2: [64]}", "grid.depths=[2]", "data.source=text:a/*.txt"])
    assert (spec.train.steps, spec.train.tokens) == (None, 1e6)
    assert (spec.grid.budgets, spec.grid.widths) == (None, {2: [64]})
    assert spec.data.source == "text:a/*.txt"
    # the later of two counts, and null takes nothing away
    assert load_spec(path, ["train.steps=50", "train.steps=60"]).train.steps == 60
    assert load_spec(path, ["train.steps=50", "train.tokens=1e6"]).train.steps is None
    for pair in (["train.steps=null", "train.tokens=1e6"], ["train.tokens=1e6", "train.steps=null"]):
        assert load_spec(path, pair).train.tokens == 1e6


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e6", 1e6), ("1_000_000", 10**6), ("010", 10), ("0x10", 16), ("2:30", "2:30"), ("yes", "yes"), ("1E-3", 1e-3)],
)
def test_numbers_are_those_of_yaml_1_2(written: str, value: object) -> None:
    found = load_yaml(f"a: {written}", "text")["a"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text", ["1e5", "010", "2:30", "null", "yes", "a: b", "", " x", "é\n"])
def test_a_text_that_is_written_is_read_as_that_text(text: str) -> None:
    content = {"b": text, "a": [text, {"c": text}], text: 1e-8}
    found = load_yaml(dump_yaml(content), "text")
    assert found == content and list(found) == list(content)


def test_every_key_is_in_the_reference_and_in_the_spec_to_start_from(tmp_path):
    found, schema = {key.name: key for key in reference.all_keys()}, Spec.model_json_schema()
    sections = {"grid": "Grid", "model": "ModelSpec", "data": "DataSpec", "train": "TrainSpec"}
    sections |= {"execution": "ExecutionSpec", "execution.mesh": "MeshSpec"}
    for section, kind in sections.items():
        for name, field in schema["$defs"][kind]["properties"].items():
            assert found[f"{section}.{name}"].meaning and field.get("description"), name
    path = tmp_path / "sweep.yaml"
    path.write_text(reference.commented(str(path)), encoding="utf-8")
    spec = load_spec(path)
    # each key that is commented out has its default: put in, it changes nothing
    whole = []
    for line in path.read_text(encoding="utf-8").splitlines():
        uncommented = line.replace("# ", "", 1) if line.lstrip().startswith("# ") and line.startswith("  ") else line
        null = ": null" in uncommented and "mesh" not in uncommented
        whole.append("" if null else uncommented.replace("mesh: null", "mesh:"))
    path.write_text("\n".join(whole), encoding="utf-8")
    again = load_spec(path)
    assert again.execution.mesh is not None and spec.execution.mesh is None
    assert again.model_copy(update={"execution": spec.execution}) == spec


@pytest.mark.parametrize("key", ["train.seconds=null", "execution.keep_finished_checkpoints=false"])
def test_the_default_of_a_removed_key_is_passed_over(key: str) -> None:
    """Earlier versions wrote it into every spec.yaml."""
    assert load_spec("smoke", [key]) == load_spec("smoke")


def test_a_built_in_spec_has_a_name_and_a_file_or_the_spec_of_a_folder_wins(tmp_path, monkeypatch):
    assert load_spec("smoke") == load_spec(builtin.files()["smoke"])
    assert {*builtin.files().values()} == {*SWEEPS.glob("*.yaml")} and len(builtin.files()) > 10
    with pytest.raises(InputError, match="levine-mini, levine2020"):
        load_spec("smoky")
    with pytest.raises(InputError, match=r"^SPEC: "):
        load_spec("a" * 5000)  # longer than any name of a file may be
    monkeypatch.chdir(tmp_path)
    mine = "name: mine\ngrid: {depths: [1], budgets: [1e4]}\ntrain: {steps: 5}\n"
    Path("levine-mini").write_text(mine, "utf-8")
    for name in ("smoke", "own"):
        Path(name).mkdir()
    with pytest.raises(InputError, match=r"SPEC: own cannot be read: it is a folder without a spec\.yaml"):
        load_spec("own")
    Path("own/spec.yaml").write_text(mine, "utf-8")
    assert [load_spec(name).name for name in ("levine-mini", "own", "smoke")] == ["mine", "mine", "smoke"]


def test_every_spec_names_the_schema_that_lies_beside_it() -> None:
    """An editor finds it in a clone without a network; `schema` writes the same file beside a spec of one's own."""
    shipped = SWEEPS / "dwsweep.schema.json"
    assert json.loads(shipped.read_text("utf-8")) == Spec.model_json_schema(), (
        "renew it: dwsweep schema > sweeps/dwsweep.schema.json"
    )
    texts = [path.read_text("utf-8") for path in SWEEPS.glob("*.yaml")] + [reference.commented("my.yaml")]
    assert len(texts) > 10
    for text in texts:
        assert text.splitlines()[0] == reference.SCHEMA_LINE
        assert reference.SCHEMA_LINE.rpartition("=")[2] == shipped.name
