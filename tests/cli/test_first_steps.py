"""First commands of a person who guesses: each guess works, or its refusal names the word that was meant. Examples of
every `--help`, which are commands as they can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from checkout import SWEEPS
from cli_tools import Command
from report_sweeps import rows as simulated

from dwsweep import fit_table
from dwsweep.cli.app import app
from dwsweep.cli.options import hours_value, layer_time_value
from dwsweep.records import fit as fit_record

pytestmark = pytest.mark.usefixtures("short_guideline")

COMMANDS = typer.main.get_command(app)
DEPTHS = ("--depths", "2,4")  # of a design that fills a time: it need not search for them


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
        ("plan smoke --set loggers=[wandb]", "unknown key; did you mean `execution.loggers`? "),
        ("plan smoke --set train.source=stdlib-docs", "unknown key; did you mean `data.source`? "),
        ("plan smoke --set execution.loggers=wandb", "execution.loggers: 'wandb'; must be a list, such as [wandb]"),
        ("plan smoke --set grid.learning_rates=1e-3", "grid.learning_rates: 0.001; must be a list, such as [0.001]"),
        ("run smoke --address auto", "--address: auto; the address of a Ray cluster, allowed only with --executor ray"),
        ("guide 1B --mlp gate", "Invalid value for '--mlp': 'gate' is not one of 'plain', 'gated'"),
        ("fit x.csv --colum a=b", "No such option: --colum (Possible options: --column"),
        ("guide 12x768", "'12x768'; is a shape; give --shape 12x768"),
        ("guide --params 5T", "must be at most 1T non-embedding parameters"),
        (f"guide --params {'9' * 400}", "must be a positive number, such as 1.3e9, 60k, 125M, 3B or 1T"),
        (f"guide 1B --device H100:{'9' * 5000}", "must be from 1 to 1,000,000 devices"),
        ("guide --hours soon", "'soon'; must be a number"),
        ("zzz", "zzz: no such command; allowed: plan, prepare, run, "),
        ("design smoke --out d.yaml", "--out, --depths: allowed only with --hours, which writes a spec"),
        ("design --hours 1 --depths=²", "--depths: '²'; must be"),
        ("design runs.csv --params 300M --target 1B", "--target: not allowed"),
        ("design smoke --runs 3", "--runs: 3; allowed only"),
        ("design smoke --device A100", "--device: A100; allowed only"),
        ("design", "SPEC: missing; give"),
        ("run smoke --set data.source=text:nowhere/*.txt", "data.source: text:"),
        ("run smoke --shard 3/2", "3/2"),
        ("run smoke --set train.stepz=3", "train.stepz"),
        ("fit missing.csv", "missing.csv"),
        ("report missing", "missing"),
        ("status missing", "missing"),
        ("theory --width wide", "'wide'; must be"),
        (f"guide --shape {'9' * 400}x5", "--shape: "),
        (f"guide --shape 5x{'9' * 13}", "--shape: "),
        ("guide 1B --mlp-ratio inf", "--mlp-ratio"),
        ("guide 1B --mlp-ratio 1e30", "--mlp-ratio"),
        ("guide 1B --mlp-ratio 0", "--mlp-ratio"),
    ],
    ids=lambda text: text[:50],
)
def test_a_wrong_word_is_refused_in_a_line_that_names_it_and_what_was_meant(
    dwsweep: Command, arguments: str, line: str, tmp_path: Path
) -> None:
    assert line in error_of(dwsweep, *shlex.split(arguments), cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_size_stands_without_its_option_and_beside_it(dwsweep: Command) -> None:
    alone, option = dwsweep("guide", "150M"), dwsweep("guide", "--params", "150M")
    assert (alone.returncode, alone.stdout) == (0, option.stdout) and "150M non-embedding parameters" in alone.stdout
    assert re.search(r"Build \d+ × \d+ ", alone.stdout) and not re.search("\\\\u|[\ue000-\uf8ff]", alone.stdout)
    both = dwsweep("guide", "150M", "--params", "1B")
    assert all(f"{size} non-embedding parameters" in both.stdout for size in ("150M", "1B"))


def test_help_is_a_command_too(dwsweep: Command) -> None:
    assert dwsweep("help").stdout == dwsweep("--help").stdout != ""
    assert dwsweep("help", "fit").stdout == dwsweep("fit", "--help").stdout != ""


@pytest.mark.parametrize(
    ("text", "hours"), [("24h", 24), ("24", 24), ("90min", 1.5), ("2 days", 48), ("1.5 H", 1.5), ("7200s", 2)]
)
def test_hours_may_have_a_unit(text: str, hours: float) -> None:
    assert hours_value(text) == hours and layer_time_value(f"{hours}ms") == pytest.approx(1e-3 * hours)


def test_the_spec_of_a_design_is_written_to_the_file_that_out_names(dwsweep: Command, tmp_path: Path) -> None:
    hours = ("design", "--hours", "1h", *DEPTHS)
    done = dwsweep(*hours, "--out", "d.yaml", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "wrote d.yaml\n"
    assert [path.name for path in tmp_path.iterdir()] == ["d.yaml"]
    assert "d.yaml is there already" in error_of(dwsweep, *hours, "--out", "d.yaml", cwd=tmp_path)


def test_a_table_in_place_of_its_fit_gets_the_fit_beside_it(dwsweep: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n_layer,d_model,val_loss\n2,64,3.1\n4,45,3.0\n", encoding="utf-8")
    without = "--fit: t.csv; is a table without a fit, run `dwsweep fit t.csv` first"
    assert error_of(dwsweep, "guide", "1B", "--fit", "t.csv", cwd=tmp_path) == without
    assert dwsweep("fit", "t.csv", "--draws", "100", cwd=tmp_path).returncode == 0
    beside = "--fit: t.csv; is a table; give the folder of its fit, t-fit"
    assert error_of(dwsweep, "guide", "1B", "--fit", "t.csv", cwd=tmp_path) == beside
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
    for name in COMMANDS.commands:
        assert "<bool>" not in dwsweep(name, "--help").stdout  # a switch takes no value
    for one in examples():
        _, name, *arguments = shlex.split(one)
        COMMANDS.commands[name].make_context(name, arguments)  # raises on an option or a value that is not allowed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the clone's ``sweeps`` and two sweeps that were fitted."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "sweeps").symlink_to(SWEEPS)
    result = fit_table(simulated(depths=(1, 2, 4), sizes=5, low=1e4, high=3e5, seeds=2), draws=100)
    for name in ("smoke", "mini"):
        fit_record.write(result, folder / "runs" / name / "fit")
    return folder


# designs are of the slow tier, since ``tests/design`` makes each
UNTRAINED = [
    pytest.param(one, marks=pytest.mark.slow if "design" in one else ())
    for one in examples()
    if shlex.split(one)[1] in ("guide", "theory", "design")
]


@pytest.mark.parametrize("example", UNTRAINED)
def test_the_examples_that_need_no_training_run(dwsweep: Command, place: Path, example: str) -> None:
    done = dwsweep(*shlex.split(example.replace("SPEC", "smoke"))[1:], cwd=place)
    assert done.returncode == 0, done.stderr


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
    for given in ("none/*.txt", "text:none/*.txt"):
        line = error_of(dwsweep, "init", "b.yaml", "--text", given, cwd=tmp_path)
        assert line.startswith("data.source: text:") and "text:text:" not in line
    assert not (tmp_path / "b.yaml").exists()
