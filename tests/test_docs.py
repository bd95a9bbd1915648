"""The READMEs: as short as they should be, with links that lead somewhere and commands that exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from dwsweep.cli.app import app
from dwsweep.plan import build
from dwsweep.records.columns import ALIASES
from dwsweep.spec import load_spec

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
READMES = [README, *sorted(path for folder in ("dwsweep", "sweeps") for path in (ROOT / folder).rglob("README.md"))]
MOST_BYTES = 11_264
COMMANDS = typer.main.get_command(app).commands
OPTIONS = {
    name for command in COMMANDS.values() for param in command.params for name in (*param.opts, *param.secondary_opts)
}
SOURCES = "\n".join(
    path.read_text("utf-8") for folder in ("dwsweep", "tests") for path in sorted((ROOT / folder).rglob("*.py"))
)
WORDS = set(re.findall(r"\w+", SOURCES))
FOREIGN = {"exp_data", "acc_norm", "error_norm", "xla_gpu_exclude_nondeterministic_ops"}  # other projects' names
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
            assert file.exists() and (not anchor or anchor in anchors(file)), target


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


SPECS = sorted((ROOT / "sweeps").glob("*.yaml"))


@pytest.mark.parametrize("path", [*READMES, *SPECS], ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_their_options_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.suffix == ".yaml":  # its commands stand in comments
        text = "```\n" + "\n".join(re.findall(r"^# +(dwsweep .*)", text, re.MULTILINE)) + "\n```"
    for command, *words in calls(text):
        if command.startswith("-"):
            continue
        assert command in COMMANDS, command
        known = {name for param in COMMANDS[command].params for name in (*param.opts, *param.secondary_opts)}
        options = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert options <= {*known, "--help"}, (command, words)


@shown
def test_yaml_files_options_columns_and_functions_that_are_shown_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    assert all(yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    studies = re.findall(r"tests\.simulations\.([a-z]\w+)", text)
    named = re.findall(r"(?<![\w/.])((?:tests|dwsweep|sweeps)/[\w/-]+\.[a-z]+)", text)
    wanted = [*named, *(f"tests/simulations/{name}.py" for name in studies)]
    assert [name for name in wanted if not (ROOT / name).is_file()] == []
    for code in re.findall(r"`([^`\n]+)`", text):
        option = re.match(r"--[a-z-]+(?![\w-])", code)
        assert not option or option[0] in OPTIONS or f'"{option[0]}"' in SOURCES, code
        assert set(re.findall(r"(?<![\w$])[a-z]+(?:_[a-z]+)+(?!\w|\.py)", code)) <= WORDS | FOREIGN, code


NUMBER = re.compile(r"\d[\d,]*\.?\d*")
OUTPUTS = [
    pytest.param(*found, id=f"{path.relative_to(ROOT)}: {found[0][:30]}")
    for path in READMES
    for found in re.findall(r"```text\n\$ dwsweep ([^\n]+)\n(.*?)```", path.read_text("utf-8"), re.DOTALL)
]


@pytest.mark.parametrize("command, output", OUTPUTS)
def test_an_output_that_is_shown_is_printed(command: str, output: str, tmp_path: Path) -> None:
    """Its words in their order, and its numbers within the Monte-Carlo errors of another machine."""
    words = [sys.executable, "-m", "dwsweep", *shlex.split(command)]
    printed = " ".join(subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split())
    parts = [" ".join(part.split()) for part in re.split(r"…$", output, flags=re.MULTILINE)]
    assert len(OUTPUTS) > 2 and any(parts)
    for part in filter(None, parts):
        before, found, _ = NUMBER.sub("#", printed).partition(NUMBER.sub("#", part))
        assert found, part
        count, numbers = before.count("#"), [float(one.replace(",", "")) for one in NUMBER.findall(printed)]
        shown = [float(one.replace(",", "")) for one in NUMBER.findall(part)]
        assert numbers[count : count + len(shown)] == pytest.approx(shown, rel=0.15), part


def test_every_name_of_a_column_and_every_built_in_spec_is_listed() -> None:
    text = (ROOT / "dwsweep" / "fit" / "README.md").read_text("utf-8")
    assert [name for ours, usual in ALIASES.items() for name in (ours, *usual) if f"`{name}`" not in text] == []
    text = (ROOT / "sweeps" / "README.md").read_text("utf-8")
    assert [path.stem for path in SPECS if f"`{path.stem}`" not in text] == []


def test_the_array_script_of_slurm_puts_an_interrupted_task_back_into_the_queue(tmp_path: Path) -> None:
    """With stand-ins for Slurm's two commands; 3 is the exit status of a sweep that was interrupted."""
    text = (ROOT / "dwsweep" / "sweep" / "README.md").read_text("utf-8")
    (script,) = re.findall(r"## Slurm\n.*?```sh\n(.*?)```", text, re.DOTALL)
    for name, does in (("srun", "exit $STATUS"), ("scontrol", f'echo "$@" >> {tmp_path}/asked')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    given = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "4", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for status in (0, 1, 3):
        environment = {**os.environ, **given, "STATUS": str(status)}
        assert subprocess.run(["bash", "-c", script], env=environment).returncode == status
    assert (tmp_path / "asked").read_text() == "requeue 17_4\n"


def rounds_to(value: float, text: str) -> bool:
    """True if the value has these digits when it is rounded to as many."""
    return f"{value:.{len(text.partition('.')[2])}f}" == text


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_shipped_specs_have_a_plan_and_give_the_costs_that_it_gives(path: Path) -> None:
    """Whoever changes an assumed time or an estimate of memory renews the comments on top of these specs, and the table
    of sweeps/README.md."""
    lines = path.read_text("utf-8").partition("\nname:")[0].splitlines()
    head = " ".join(line.lstrip("# ") for line in lines)
    plan = build(load_spec(path))
    assert plan.count("RUN")
    if "of its memory" not in head:
        return
    total = plan.estimates
    assert total.device_seconds is not None
    hours = total.device_seconds / 3600
    assert f"({total.peak_memory_bytes / 1e9:.0f} GB of its memory)" in head
    assert f"{plan.count('RUN')} runs" in head
    flops = re.findall(r"([\d.]+)e(\d+)(?: FLOPs,|, which)", head)
    assert all(rounds_to(total.flops / 10 ** int(power), text) for text, power in flops)
    (time,) = re.findall(r"(?:puts (?:it )?at|minutes are) ([\d.]+ (?:hours|minutes))", head)
    text, unit = time.split()
    assert rounds_to(hours if unit == "hours" else 60 * hours, text), (hours, time)
    table = (ROOT / "sweeps" / "README.md").read_text("utf-8")
    for text in re.findall(rf"^\| `{path.stem}`.*one H200, ([\d.]+) hours", table, re.MULTILINE):
        assert rounds_to(hours, text), (hours, text)
