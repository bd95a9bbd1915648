"""The READMEs: as short as they should be, with links that lead somewhere and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from dwsweep.cli.app import app
from dwsweep.records.columns import ALIASES

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
READMES = [README, *sorted(path for folder in ("dwsweep", "sweeps") for path in (ROOT / folder).rglob("README.md"))]
MOST_BYTES = 14_000
COMMANDS = typer.main.get_command(app).commands
shown = pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.relative_to(ROOT)))


def test_the_readme_is_short_and_links_to_every_other() -> None:
    text = README.read_text("utf-8")
    assert len(text.encode()) <= MOST_BYTES
    more = text.split("\n## More\n")[1]
    assert [path for path in READMES[1:] if f"]({path.relative_to(ROOT).as_posix()})" not in more] == []


def anchors(path: Path) -> set[str]:
    """Anchors of a README's headings on its web page."""
    titles = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@shown
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            file = (path.parent / name).resolve() if name else path
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target


def calls(text: str) -> list[list[str]]:
    """The words after ``dwsweep`` of each command in a README, in blocks and in running text."""
    lines = [
        line.partition("  #")[0]
        for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    lines = [part for line in lines for part in re.split(r"&&|\|\|", line)]
    lines += [code.replace("\\|", "|") for code in re.findall(r"`(dwsweep [^`\n]+)`", text)]
    found = (re.match(r"\s*(?:\$ |srun (?:--\S+ )*)?dwsweep (.+)", line) for line in lines)
    return [shlex.split(match[1]) for match in found if match]


@shown
def test_commands_and_their_options_exist(path: Path) -> None:
    for command, *words in calls(path.read_text("utf-8")):
        if command.startswith("-"):
            continue
        assert command in COMMANDS, command
        known = {name for param in COMMANDS[command].params for name in (*param.opts, *param.secondary_opts)}
        options = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert options <= {*known, "--help"}, (command, words)


@shown
def test_specs_that_are_named_are_there(path: Path) -> None:
    text = path.read_text("utf-8")
    for name in re.findall(r"sweeps/([\w-]+)\.yaml", text):
        assert (ROOT / "sweeps" / f"{name}.yaml").is_file(), name


@shown
def test_yaml_that_is_shown_is_yaml(path: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", path.read_text("utf-8"), re.DOTALL):
        assert yaml.safe_load(block)


@pytest.mark.skipif(not (ROOT / "tests" / "simulations").is_dir(), reason="the simulations are still in the package")
@shown
def test_simulations_that_are_named_are_there(path: Path) -> None:
    for name in re.findall(r"tests\.simulations\.([a-z]\w+)", path.read_text("utf-8")):
        assert (ROOT / "tests" / "simulations" / f"{name}.py").is_file(), name


def test_every_name_of_a_column_that_is_understood_is_listed() -> None:
    text = (ROOT / "dwsweep" / "fit" / "README.md").read_text("utf-8")
    assert [name for ours, usual in ALIASES.items() for name in (ours, *usual) if f"`{name}`" not in text] == []


def test_every_built_in_spec_is_listed() -> None:
    text = (ROOT / "sweeps" / "README.md").read_text("utf-8")
    assert [path.stem for path in (ROOT / "sweeps").glob("*.yaml") if f"`{path.stem}`" not in text] == []
