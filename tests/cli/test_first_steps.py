"""First commands of a person who guesses: each guess works, or its refusal names the word that was meant. Examples of
every `--help`, which are commands as they can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from cli_tools import Command

from dwsweep.cli.app import app
from dwsweep.cli.options import hours_value, layer_time_value

pytestmark = pytest.mark.usefixtures("short_guideline")

COMMANDS = typer.main.get_command(app)


def error_of(dwsweep: Command, *arguments: str | Path, cwd: Path | None = None) -> str:
    """The one line of a refusal."""
    done = dwsweep(*arguments, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1, done
    return done.stderr.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("plan smok", "SPEC: smok does not exist; give the path "),
        ("plan smoke --set train.learning_rate=1e-3", "unknown key; did you mean `grid.learning_rates`? "),
        ("run smoke --address auto", "--address: auto; the address of a Ray cluster, allowed only with --executor ray"),
        ("guide 1B --mlp gate", "Invalid value for '--mlp': 'gate' is not one of 'plain', 'gated'"),
        ("fit x.csv y.csv", "DIR|TABLE: y.csv; a second table is allowed with --compare, or as --with"),
        ("fit x.csv y.csv --along heads", "DIR|TABLE: y.csv; a second table is allowed with --compare"),
        ("fit x.csv --along heads --compare", "--along: 'heads'; not allowed with --compare: the losses of one recipe"),
        ("fit x.csv --colum a=b", "No such option: --colum (Possible options: --column"),
        ("zzz", "zzz: no such command; allowed: plan, prepare, run, "),
        ("design smoke --out d.yaml", "--out: not allowed with SPEC; allowed: "),
        ("design runs.csv --params 300M --target 1B", "--target: not allowed"),
        ("design", "SPEC: missing; give"),
        ("run smoke --shard 3/2", "3/2"),
        ("status missing", "DIR: missing; has no plan.csv; must be a directory made by `dwsweep run`"),
        ("run smoke --executor ray --distributed", "--distributed: with --executor ray"),
        (f"guide --shape {'9' * 400}x5", "--shape: "),
        ("guide 1B --mlp-ratio 0", "--mlp-ratio"),
        ("guide 1B --tensor-parallel 1.5", "'1.5'; must be a whole number"),
    ],
    ids=lambda text: text[:50],
)
def test_a_wrong_word_is_refused_in_a_line_that_names_it_and_what_was_meant(
    dwsweep: Command, arguments: str, line: str, tmp_path: Path
) -> None:
    assert line in error_of(dwsweep, *shlex.split(arguments), cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_size_stands_without_its_option_and_beside_it(dwsweep: Command) -> None:
    both = dwsweep("guide", "150M", "--params", "1B")
    assert both.returncode == 0 and all(f"{size} non-embedding parameters" in both.stdout for size in ("150M", "1B"))
    assert not re.search("\\\\u|[\ue000-\uf8ff]", both.stdout)


def test_hours_and_the_time_of_a_layer_may_have_a_unit() -> None:
    for text, hours in (("24h", 24), ("24", 24), ("90min", 1.5), ("2 d", 48), ("7200s", 2)):
        assert hours_value(text) == hours
    for text, seconds in (("0.67ms", 6.7e-4), ("0.00067", 6.7e-4), ("20 us", 2e-5), ("20µs", 2e-5), ("1s", 1.0)):
        assert layer_time_value(text) == pytest.approx(seconds)


def test_the_spec_of_a_design_is_written_to_the_file_that_out_names(
    dwsweep: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dwsweep.design.filling.CANDIDATES", [(2, 4)])
    hours = ("design", "--hours", "1h")
    done = dwsweep(*hours, "--out", "new/d.yaml", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "wrote new/d.yaml\n"
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "d.yaml"]
    assert "d.yaml is there already" in error_of(dwsweep, *hours, "--out", "new/d.yaml", cwd=tmp_path)


def test_a_table_in_place_of_its_fit_gets_the_fit_beside_it(dwsweep: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n_layer,d_model,val_loss\n2,64,3.1\n4,45,3.0\n", encoding="utf-8")
    line = "--fit: t.csv; is a table without a fit, run `dwsweep fit t.csv` first"
    assert error_of(dwsweep, "guide", "1B", "--fit", "t.csv", cwd=tmp_path) == line
    assert dwsweep("fit", "t.csv", cwd=tmp_path).returncode == 0
    line = "--fit: t.csv; is a table; give the folder of its fit, t-fit"
    assert error_of(dwsweep, "guide", "1B", "--fit", "t.csv", cwd=tmp_path) == line
    assert dwsweep("guide", "1B", "--fit", "t-fit", cwd=tmp_path).returncode == 0


def examples() -> list[str]:
    """The commands of every `--help`, as they stand there."""
    texts = [COMMANDS.epilog or "", *(command.epilog or "" for command in COMMANDS.commands.values())]
    found = []
    for text in texts:
        for part in re.sub(r"\([^()]*\)", "", text.partition("\n\n")[0]).split("·"):
            found += re.findall(r"dwsweep [^>]+", part.partition(", for an editor")[0])
    return [one.strip(" .") for one in found]


def test_every_help_has_examples_that_parse(dwsweep: Command) -> None:
    assert {shlex.split(one)[1] for one in examples()} == set(COMMANDS.commands)
    for name in ("fit", "run"):
        assert dwsweep(name, "--help").stdout.count("<bool>") == 1  # a switch takes no value; typer writes --help
    for one in examples():
        _, name, *arguments = shlex.split(one)
        COMMANDS.commands[name].make_context(name, arguments)  # raises on an option or a value that is not allowed


def test_init_with_a_text_writes_a_spec_that_prepares(
    dwsweep: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DWSWEEP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    folder.mkdir()
    for k in range(120):
        (folder / f"{k}.txt").write_text(f"Net {k} has {k} layers of width {k * 7}.\n" * 3, "utf-8")
    done = dwsweep("init", "a.yaml", "--text", "mine/*.txt", cwd=tmp_path)
    assert done.returncode == 0 and "data.source text:mine/*.txt" in done.stdout
    assert dwsweep("prepare", "a.yaml", "--set", "data.vocab_size=256", cwd=tmp_path).returncode == 0
    line = error_of(dwsweep, "init", "b.yaml", "--text", "none/*.txt", cwd=tmp_path)
    assert line.startswith("data.source: text:") and "text:text:" not in line
    assert not (tmp_path / "b.yaml").exists()
