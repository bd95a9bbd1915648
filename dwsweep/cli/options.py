"""Option types of the commands: parsing of paths, counts and choices, and how `--help` shows them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dwsweep import numerals, paths
from dwsweep.errors import InputError
from dwsweep.text import parse_count

Axis = StrEnum("Axis", ["n_params", "n_params_total", "flops", "device_seconds"])
Executor = StrEnum("Executor", ["local", "ray"])
Mlp = StrEnum("Mlp", ["plain", "gated"])
Constraint = StrEnum("Constraint", ["size", "flops", "time", "decode"])
Project = StrEnum("Project", ["hf", "nanochat", "maxtext", "olmo"])
Retry = StrEnum("Retry", ["failed", "diverged"])


if TYPE_CHECKING:
    PathValue = Any  # a pathlib.Path, or an epath.Path in a bucket
else:

    class PathValue:
        """Typer wants a class, and shows its name in `--help`."""

    PathValue.__name__ = "path"


def path_value(text: str) -> Any:
    """Parse a path of a command line, local or in a bucket."""
    if not text.strip():
        raise typer.BadParameter(f"{text!r}; must be a path")
    return _parsed(paths.reachable, text)


def folder_value(text: str) -> Any:
    """Parse the path of a folder, there already or to be made; one of this machine that is a file, or lies below one,
    is refused."""
    path = path_value(text)
    if not paths.is_remote(path):
        for part in (path, *path.parents):
            if part.is_file():
                where = "a file" if part == path else f"below {part}, which is a file"
                raise typer.BadParameter(f"{text!r}; is {where}; must be a folder")
    return path


def count_value(text: str) -> float:
    return _parsed(parse_count, text)


def whole_value(text: str | int) -> int:
    text = str(text)  # a default comes as it is
    count = numerals.number(text) if len(text) <= 30 else None  # 1e5, 50k, 1,234
    if count is not None and abs(count) < 1e30 and float(count).is_integer():
        text = str(int(count))
    # more digits than any count has; int() also reads digits of other scripts, and Python refuses beyond 4,300 of them
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        raise typer.BadParameter(f"{text[:40]!r}; must be a whole number")
    return int(text)


def whole_numbers(
    text: str,
    option: str,
    least: int = 0,
    most: int = 10**9 - 1,
    said: str = "must be whole numbers, separated by commas",
) -> list[int]:
    """Parse a list of whole numbers from ``least`` to ``most``, separated by commas.

    Raises:
        InputError: it is none; ``said`` says what is allowed.
    """
    parts = text.split(",")
    if not all(re.fullmatch(r"\s*[0-9]{1,9}\s*", part) and least <= int(part) <= most for part in parts):
        raise InputError(f"{option}: {text[:80]!r}; {said}")
    return [int(part) for part in parts]


def number_value(text: str | float) -> float:
    found = numerals.number(str(text))  # a default comes as it is
    try:
        return float(text) if found is None else float(found)  # inf and nan are refused where they are used
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{str(text)[:40]!r}; must be a number") from None


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    """Parse a parameter with ``parse``; typer puts the parameter's name before what is wrong."""
    try:
        return parse(text)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def path_option(name: str, metavar: str, help: str, panel: str | None = None) -> Any:
    return typer.Option(name, metavar=metavar, parser=path_value, help=help, rich_help_panel=panel)


def folder_option(name: str, help: str, panel: str | None = None) -> Any:
    return typer.Option(name, metavar="DIR", parser=folder_value, help=help, rich_help_panel=panel)


def count_option(metavar: str, help: str, panel: str | None = None) -> Any:
    """Option for a count such as 3B."""
    return typer.Option(metavar=metavar, parser=count_value, help=help, rich_help_panel=panel)


def whole_option(metavar: str, help: str, panel: str | None = None) -> Any:
    return typer.Option(metavar=metavar, parser=whole_value, help=help, rich_help_panel=panel)


def number_option(metavar: str, help: str, panel: str | None = None) -> Any:
    return typer.Option(metavar=metavar, parser=number_value, help=help, rich_help_panel=panel)


SpecFile = Annotated[
    PathValue, typer.Argument(metavar="SPEC", parser=path_value, help="Sweep spec, YAML.", show_default=False)
]
SweepDirectory = Annotated[
    PathValue, typer.Argument(metavar="DIR", parser=folder_value, help="Sweep directory.", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a dotted key of the spec; may be repeated."),
]
OutDirectory = Annotated[PathValue | None, folder_option("--out", "Sweep directory; default runs/<name of the spec>.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="A",
        help="Ray cluster to join: HOST:PORT or auto (its ports listen on all interfaces: keep them behind a "
        "firewall); default: one of this machine, on loopback.",
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        metavar="I/N", help="Train every N-th pack from the I-th on; `slurm`: taken from the array's environment."
    ),
]
Takeover = Annotated[
    bool,
    typer.Option(
        "--takeover",
        help="Take over from an owner elsewhere: wait for its word, or until its lock is no longer renewed.",
    ),
]
Distributed = Annotated[
    bool, typer.Option("--distributed", help="Join the hosts that train each pack together (jax.distributed).")
]
Noise = Annotated[float | None, number_option("SIGMA", "Noise (sd) of one run's loss, in its unit.")]


Unit = StrEnum("Unit", ["nats", "bits", "bpb"])
"""Unit in which losses are counted."""


BLOCK, TIME, OUTPUT = "The shapes", "Time", "Output"  # panels of `guide --help`
PLAN = "A spec to write"  # of `design --help`
Rules = Annotated[
    list[str] | None,
    typer.Option(metavar="RULE", help="Judge 'width = 64 * depth', or gpt3, nanochat, ratio-100, ratio-128."),
]
TiedEmbeddings = Annotated[
    bool, typer.Option("--tied-embeddings", help="Unembedding = embedding.", rich_help_panel=BLOCK)
]
Export = Annotated[
    Project | None, typer.Option(help="Print the recommended shape as a configuration of …", rich_help_panel=OUTPUT)
]
CompileOnly = Annotated[
    bool, typer.Option("--compile-only", help="Compile and report memory and costs; trains and allocates nothing.")
]
DeviceCounts = Annotated[
    str, typer.Option(metavar="N,N…", help="With --compile-only: for these numbers of devices (on a CPU virtual).")
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="With --compile-only: for a device that is not here: H200, H200:4, TPU-v5e:2x4 …; may be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


# options by the names that other tools give them; each counts where the command has it
OTHER_NAMES = {
    "--batch": "--set",
    "--batch-size": "--set",
    "--context-length": "--context",
    "--max-position-embeddings": "--context",
    "--model-size": "--params",
    "--n-ctx": "--context",
    "--n-kv-heads": "--kv-heads",
    "--n-params": "--params",
    "--num-key-value-heads": "--kv-heads",
    "--output": "--out",
    "--parameters": "--params",
    "--rename": "--column",
    "--seq-len": "--context",
    "--sequence-length": "--context",
    "--sigma": "--noise",
    "--size": "--params",
    "--tp": "--tensor-parallel",
    "--pp": "--pipeline-parallel",
    "--vocab": "--vocab-size",
    "--filter": "--where",
}
NEAR = 0.6  # likeness of two names, from which on one is suggested


def option_hint(error: Any) -> str:
    """The line for an option that the command does not have, with the nearest one that it has; empty for any other
    error and where none is near."""
    name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if type(error).__name__ != "NoSuchOption" or not name or context is None:
        return ""
    known = [
        option for param in context.command.get_params(context) for option in param.opts if option.startswith("--")
    ]
    meant = OTHER_NAMES.get(name.replace("_", "-"))
    near = [meant] if meant in known else difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    return f"{name}: no such option; did you mean {near[0]}?" if near else ""


def _without_types_of_switches(params: list[Any]) -> list[Any]:
    """A switch takes no value, and `--help` would print ``<bool>`` for one."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(typer.core.TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_switches(super().get_params(ctx))


class Group(typer.core.TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_switches(super().get_params(ctx))
