"""Errors of a spec: all at once, each with its key, its value and the allowed values."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from checkout import SWEEPS

from dwsweep.errors import InputError
from dwsweep.spec import BudgetRange, Spec, builtin, load_spec, parse_spec, reference
from dwsweep.spec.bounded_yaml import dump_yaml, load_yaml

GOOD = {"name": "t", "grid": {"depths": [2, 4], "budgets": [1e5, 2e5]}, "train": {"steps": 10}}


def content(**sections: object) -> dict:
    return {**GOOD, **sections}


def errors(raw: dict) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_spec(raw)
    return list(caught.value.lines)


def test_unknown_key_names_the_nearest_and_the_allowed() -> None:
    (line,) = errors(content(train={"steps": 10, "warmup_step": 3}))
    assert line.startswith("train.warmup_step: unknown key; did you mean `warmup_steps`?")
    assert "batch_size" in line


def test_all_errors_at_once() -> None:
    lines = errors(
        {
            "name": "t",
            "grid": {"depths": [2, -4], "budgets": ["many"], "seed": 3},
            "train": {"steps": "soon"},
            "model": {"norm": "middle"},
        }
    )
    keys = {line.split(":")[0] for line in lines}
    assert {"grid.depths[1]", "grid.budgets[0]", "grid.seed", "train.steps", "model.norm"} <= keys
    assert any("-4" in line and "greater than 0" in line for line in lines)
    assert any("'middle'" in line and "'pre' or 'post'" in line for line in lines)


@pytest.mark.parametrize(
    ("grid", "wanted"),
    [
        ({"depths": [2]}, "budgets"),
        ({"depths": [2, 2], "budgets": [1e5]}, "twice"),
        ({"budgets": [1e5]}, "depths"),
        ({"depths": [2], "budgets": [1e5], "widths": {2: [64]}}, "not both"),
        ({"depths": [2, 4], "widths": {2: [64]}}, "4"),
        ({"depths": [2], "budgets": []}, "empty"),
        ({"depths": [2], "budgets": {"from": 5e5, "to": 1e5, "count": 3}}, "greater"),
        ({"depths": [2], "budgets": [1e5], "heads": {}}, "count"),
        ({"depths": [2], "budgets": [float("nan")]}, "finite"),
    ],
)
def test_grids_that_say_nothing(grid: dict, wanted: str) -> None:
    assert any(wanted in line for line in errors(content(grid=grid)))


@pytest.mark.parametrize(
    ("train", "wanted"),
    [
        ({}, "none"),
        ({"steps": 5, "tokens": 1e6}, "steps, tokens"),
        ({"steps": 5, "token_branches": [1e3]}, "wsd"),
        ({"steps": 5, "betas": [0.9, 1.0]}, "less than 1"),
    ],
)
def test_training_sections_that_cannot_be(train: dict, wanted: str) -> None:
    assert any(wanted in line for line in errors(content(train=train)))


def test_log_spaced_budgets_hit_both_ends() -> None:
    values = BudgetRange(**{"from": 1e6, "to": 6.4e7, "count": 4}).values()
    assert values == pytest.approx([1e6, 4e6, 1.6e7, 6.4e7])


def test_a_spec_survives_its_own_yaml(tmp_path: Path) -> None:
    spec = parse_spec(content(grid={"widths": {2: [64, 96], 4: [48]}, "seeds": [3, 5], "heads": {"size": 16}}))
    path = tmp_path / "spec.yaml"
    path.write_text(spec.to_yaml())
    assert load_spec(path) == spec


def test_a_preset_fills_what_is_not_given() -> None:
    model = parse_spec(content(model={"preset": "nanochat", "activation": "gelu"})).model
    assert (model.activation, model.norm_type, model.logit_softcap, model.biases) == ("gelu", "rmsnorm", 15.0, False)
    assert parse_spec({**content(), "model": model.model_dump()}).model == model  # as spec.yaml has it


def test_a_preset_of_the_command_line_replaces_the_keys_of_the_file(tmp_path: Path) -> None:
    """Or a spec that spells its block out would keep all of it, under the preset's name."""
    path = write(tmp_path, parse_spec(content(model={"preset": "nanochat", "tied_embeddings": True})).to_yaml())
    model = load_spec(path, ["model.mlp_ratio=3", "model.preset=llama"]).model
    assert model == parse_spec(content(model={"preset": "llama", "mlp_ratio": 3.0, "tied_embeddings": True})).model


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


def test_overrides_replace_and_exclude(tmp_path: Path) -> None:
    path = write(tmp_path, parse_spec(GOOD).to_yaml())
    spec = load_spec(path, ["train.tokens=1e6", "grid.widths={2: [64]}", "grid.depths=[2]", "data.source=text:a/*.txt"])
    assert (spec.train.steps, spec.train.tokens) == (None, 1e6)
    assert (spec.grid.budgets, spec.grid.widths) == (None, {2: [64]})
    assert spec.data.source == "text:a/*.txt"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("train.steps=50", "train.tokens=1e6"),
        ("train.steps=50", "train={tokens: 1e6}"),
        ("train.steps=50", "train={steps: 60}"),
        ("grid.budgets=[1e5]", "grid.widths={2: [64]}"),
    ],
)
def test_an_override_that_another_takes_away_is_refused(tmp_path: Path, first: str, second: str) -> None:
    path = write(tmp_path, parse_spec(GOOD).to_yaml())
    with pytest.raises(InputError, match=f"^--set {re.escape(first)}: --set {re.escape(second)} takes its place"):
        load_spec(path, [first, second])


def test_the_later_of_two_values_for_a_key_counts_and_null_takes_nothing_away(tmp_path: Path) -> None:
    path = write(tmp_path, parse_spec(GOOD).to_yaml())
    assert load_spec(path, ["train.steps=50", "train.steps=60"]).train.steps == 60
    for pair in (["train.steps=null", "train.tokens=1e6"], ["train.tokens=1e6", "train.steps=null"]):
        assert load_spec(path, pair).train.tokens == 1e6
    assert load_spec(path, ["train={tokens: 1e6}", "train.batch_size=8"]).train.batch_size == 8


@pytest.mark.parametrize("override", ["train.steps", "=5", "name.deeper=5"])
def test_overrides_that_are_none(tmp_path: Path, override: str) -> None:
    with pytest.raises(InputError, match="--set"):
        load_spec(write(tmp_path, parse_spec(GOOD).to_yaml()), [override])


@pytest.mark.parametrize(
    ("text", "wanted"), [("a: [", "not valid YAML"), ("- 1", "holds list"), ("", "is empty"), ("{}", "name")]
)
def test_files_that_are_no_spec(tmp_path: Path, text: str, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        load_spec(write(tmp_path, text))


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e6", 1e6), ("1_000_000", 10**6), ("010", 10), ("0x10", 16), ("2:30", "2:30"), ("yes", "yes"), ("1E-3", 1e-3)],
)
def test_numbers_are_those_of_yaml_1_2(written: str, value: object) -> None:
    found = load_yaml(f"a: {written}", "text")["a"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text", ["1e5", "1_000", "010", "2:30", "null", "true", "yes", "a: b", "#", "", " x", "é\n"])
def test_a_text_that_is_written_is_read_as_that_text(text: str) -> None:
    content = {"b": text, "a": [text, {"c": text}], text: 1e-8}
    found = load_yaml(dump_yaml(content), "text")
    assert found == content and list(found) == list(content)


@pytest.mark.parametrize(
    "source",
    [
        "wikkipedia:foo",
        "wiki:de",
        "text:",
        "text: ",
        "jsonl",
        "stdlib-docs:x",
        "",
        "/data/a.txt",
        "a/*.jsonl.gz",
        "x:a.txt",
    ],
)
def test_the_form_of_a_source_is_checked_before_anything_is_opened(source: str) -> None:
    (line,) = errors(content(data={"source": source}))
    hints = {
        "wiki:de": "did you mean wikidump:PATH? ",
        "/data/a.txt": "a form is missing before the path: did you mean text:/data/a.txt? ",
        "a/*.jsonl.gz": "a form is missing before the path: did you mean jsonl:a/*.jsonl.gz? ",
    }
    hint = hints.get(source, "")
    assert line.startswith(f"data.source: {source!r}; {hint}must be one of stdlib-docs, tfds:NAME[/CONFIG], ")
    assert "parquet:GLOB" in line


def test_every_key_is_in_the_reference_and_in_the_spec_to_start_from(tmp_path):
    found = {key.name: key for key in reference.all_keys()}

    def names(section, prefix=""):
        for name, field in section["properties"].items():
            yield prefix + name, field

    schema = Spec.model_json_schema()
    sections = {"grid": "Grid", "model": "ModelSpec", "data": "DataSpec", "train": "TrainSpec"}
    sections |= {"execution": "ExecutionSpec", "execution.mesh": "MeshSpec"}
    for section, kind in sections.items():
        for name, field in names(schema["$defs"][kind], section + "."):
            assert found[name].meaning and field.get("description"), name
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


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [("train.seconds", "600", "null"), ("execution.keep_finished_checkpoints", "true", "false")],
)
def test_a_removed_key_is_one_line_that_says_what_to_use(key: str, value: str, written: str) -> None:
    """With the default that earlier versions wrote into every spec.yaml it is passed over."""
    with pytest.raises(InputError, match=f"^{key}: removed in this version; .*train|execution") as caught:
        load_spec("smoke", [f"{key}={value}"])
    assert len(caught.value.lines) == 1
    assert load_spec("smoke", [f"{key}={written}"]) == load_spec("smoke")


def test_a_removed_source_is_one_line_that_says_what_to_use() -> None:
    said = r"^data\.source: 'wikiextractor:AA'; removed in this version; `jsonl:GLOB` reads what WikiExtractor writes"
    with pytest.raises(InputError, match=said):
        load_spec("smoke", ["data.source=wikiextractor:AA"])


def test_a_built_in_spec_has_a_name_and_a_file_wins(tmp_path, monkeypatch):
    assert load_spec("smoke") == load_spec(builtin.find("smoke"))
    assert builtin.names() == sorted(path.stem for path in SWEEPS.glob("*.yaml")) and len(builtin.names()) > 10
    with pytest.raises(InputError, match="levine-mini, levine2020"):
        load_spec("smoky")
    with pytest.raises(InputError, match=r"^SPEC: "):
        load_spec("a" * 5000)  # longer than any name of a file may be
    monkeypatch.chdir(tmp_path)
    Path("smoke").write_text("name: mine\ngrid: {depths: [1], budgets: [1e4]}\ntrain: {steps: 5}\n", encoding="utf-8")
    assert load_spec("smoke").name == "mine"


def test_a_folder_is_read_by_its_spec_and_hides_no_built_in_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("smoke").mkdir()
    assert load_spec("smoke").name == "smoke"
    Path("own").mkdir()
    with pytest.raises(InputError, match=r"SPEC: own cannot be read: it is a folder without a spec\.yaml"):
        load_spec("own")
    Path("own/spec.yaml").write_text("name: mine\ngrid: {depths: [1], budgets: [1e4]}\ntrain: {steps: 5}\n", "utf-8")
    assert load_spec("own").name == "mine"


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
