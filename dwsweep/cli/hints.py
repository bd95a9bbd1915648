"""Hints for what a person typed and no command has: the nearest option, choice or command."""

from __future__ import annotations

import difflib
import re
from typing import Any

import typer

from dwsweep.cli import retired
from dwsweep.errors import InputError

# command for an option that the given command lacks
OTHER_COMMANDS = {
    ("run", "--dry-run"): "`dwsweep plan SPEC` shows the runs and trains nothing",
    ("run", "--resume"): "`dwsweep run SPEC` resumes what was interrupted by itself",
    ("run", "--force"): "`dwsweep run SPEC --retry failed` trains failed runs again",
}
# our options by their names in other tools; each counts for the commands that have it
OTHER_NAMES = {
    "--batch": "--set",
    "--batch-size": "--set",
    "--max-position-embeddings": "--context",
    "--model-size": "--params",
    "--n-ctx": "--context",
    "--num-key-value-heads": "--kv-heads",
    "--rename": "--column",
    "--seq-len": "--context",
    "--sequence-length": "--context",
    "--sigma": "--noise",
    "--size": "--params",
    "--tp": "--tensor-parallel",
    "--filter": "--where",
}
NEAR = 0.6  # similarity of two names above which one is suggested


SETTING = "--set KEY=VALUE, such as --set train.steps=50"


def hint(error: Any) -> str:
    """Line for a usage error with the nearest option or choice; empty for any other error, or if no name is near."""
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return _option_hint(error, context)
    return _choice_hint(error) or _extra_hint(error, context)


def _choice_hint(error: Any) -> str:
    names = getattr(getattr(error, "param", None), "opts", None)
    given = re.search(r"'(.*)' is not one of ('.*')", getattr(error, "message", None) or "")  # typer's
    if given is None or not names:
        return ""
    value, choices = given[1], re.findall(r"'([^']*)'", given[2])
    if left := retired.line(error.ctx.info_name if error.ctx else "", f"{names[0]} {value.lower()}"):
        return left
    near = difflib.get_close_matches(value.lower(), choices, n=1, cutoff=NEAR)
    return f"{names[0]}: {value!r}; {f'did you mean {near[0]}? ' if near else ''}allowed: {', '.join(choices)}"


def _option_hint(error: Any, context: Any) -> str:
    name = getattr(error, "option_name", None)
    if not name:
        return ""
    if left := retired.line(context.info_name, name):
        return left
    if other := OTHER_COMMANDS.get((context.info_name, name)):
        return f"{name}: no such option; {other}"
    known = [
        option for param in context.command.get_params(context) for option in param.opts if option.startswith("--")
    ]
    meant = OTHER_NAMES.get(name.replace("_", "-"))
    near = [meant] if meant in known else difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    if near:
        return f"{name}: no such option; did you mean {near[0]}?"
    return f"{name}: no such option; a key of the spec is given as {SETTING}" if "--set" in known else ""


def _extra_hint(error: Any, context: Any) -> str:
    """Line for a KEY=VALUE without ``--set`` before it."""
    extra = re.search(r"unexpected extra argument\S* \((.*)\)", getattr(error, "message", None) or "")
    known = {option for param in context.command.get_params(context) for option in param.opts}
    if extra is None or "=" not in extra[1] or "--set" not in known:
        return ""
    return f"{extra[1]}: not an argument; a key of the spec is given as {SETTING}"


def _without_types_of_switches(params: list[Any]) -> list[Any]:
    """Switch without a value, for which `--help` would print ``<bool>``."""
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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """``help`` and ``help COMMAND`` are `--help`; an unknown command is refused with the nearest one."""
        name, *rest = args
        if name == "help":
            if not rest:
                print(ctx.get_help())
                raise typer.Exit()
            name, args = rest[0], [rest[0], "--help"]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            if left := retired.line(name):
                raise InputError(left)
            near = difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(f"{name}: no such command; {hint}allowed: {', '.join(known)}")
        return super().resolve_command(ctx, args)
