"""Commands and options that a person may expect here, each with what to use instead; `help` as a command."""

from __future__ import annotations

from typing import Any

import typer

from dwsweep.errors import InputError

INSTEAD = {  # by "command" or "command --option"
    "fit --baseline": "`--along heads` and `--along depth` list each shape's loss above the best with its interval",
    "fit --margin": "`--along heads` and `--along depth` list each shape's loss above the best with its interval",
    "prepare --inspect": "`dwsweep prepare` prints the folder of the store, whose manifest.json has its counts",
    "sample": "`dwsweep export` writes a model that transformers generates text with",
    "eval": "`dwsweep export` writes a model that `lm_eval --model hf` scores",
    "bench --verify": "`make test-device` in a clone checks this host's devices",
    "bench --devices": "`--target H200:4` or `--target TPU-v5e:2x4` compiles for several devices",
    "theory --check": "`make test` measures the ranks of small networks against the bounds",
    "report --card": "results.csv and fit/guideline.md, as `dwsweep run` and `fit` write them, make a data set",
    "report --license": "state the licence where you publish results.csv",
    "guide --rule": "`dwsweep guide --params N1 --params N2` prints the best shapes to compare a rule with",
    "guide --compare": "run `dwsweep guide --fit F` and `dwsweep guide --law levine2020`",
    "guide --pipeline-parallel": "the table lists depths to choose from, each with its costs",
    "guide --seq-len": "`--context T` gives the number of positions",
    "design --write": "`--out FILE` names the file of the spec that `--hours` writes",
    "run --dry-run": "`dwsweep plan SPEC` shows the runs and trains nothing",
    "run --resume": "`dwsweep run SPEC` resumes what was interrupted by itself",
    "run --force": "`dwsweep run SPEC --retry failed` trains failed runs again",
}


def instead(command: str | None, option: str = "") -> str:
    """Line that refuses a command or an option of ``INSTEAD``; empty for any other."""
    line = INSTEAD.get(f"{command} {option}".strip())
    return f"{option or command}: not in this version; {line}" if line else ""


def hint(error: Any) -> str:
    """Line for a usage error by an option of ``INSTEAD``; empty for any other error."""
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    return instead(context.info_name, option) if context is not None and option else ""


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
        """``help`` and ``help COMMAND`` are `--help`; a command of ``INSTEAD`` is refused with what to use."""
        if args == ["help"]:
            print(ctx.get_help())
            raise typer.Exit()
        if args[0] == "help":
            args = [args[1], "--help"]
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            raise InputError(instead(args[0]) or f"{args[0]}: no such command; allowed: {', '.join(known)}")
        return super().resolve_command(ctx, args)
