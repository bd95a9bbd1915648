"""Commands and options that left, each with what to use instead."""

from __future__ import annotations

from typing import Any

import typer

from dwsweep.errors import InputError

_ALONG = "`--along heads` and `--along depth` list each shape's loss above the best with its interval"
INSTEAD = {  # by "command" or "command --option"
    "fit --baseline": _ALONG,
    "fit --margin": _ALONG,
    "sample": "`dwsweep export` writes a model that transformers generates text with",
    "eval": "`dwsweep export` writes a model that `lm_eval --model hf` scores",
    "bench --verify": "`make test-device` in a clone checks this host's devices",
    "theory --check": "`make test` measures the ranks of small networks against the bounds",
    "report --card": "results.csv and fit/guideline.md, as `dwsweep run` and `fit` write them, make a data set",
    "guide --rule": "`dwsweep guide --params N1 --params N2` prints the best shapes to compare a rule with",
    "guide --bench": "`--device tflops=…,gb=…,gbps=…` gives a device by its rates",
    "guide --compare": "run `dwsweep guide --fit F` and `dwsweep guide --law levine2020`",
}


def instead(command: str | None, option: str = "") -> str:
    """Line that refuses a command or an option of ``INSTEAD``; empty for any other."""
    line = INSTEAD.get(f"{command} {option}".strip())
    return f"{option or command}: not in this version; {line}" if line else ""


def hint(error: Any) -> str:
    """Line for a usage error by an option of ``INSTEAD``; empty for any other error."""
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    return instead(context.info_name, option) if context is not None and option else ""


class Commands(typer.core.TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A command of ``INSTEAD`` is refused with what to use."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            raise InputError(instead(args[0]) or f"{args[0]}: no such command; allowed: {', '.join(known)}")
        return super().resolve_command(ctx, args)
