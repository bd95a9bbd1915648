"""Commands and options that this version removed, each with what to use instead."""

from __future__ import annotations

# by "command" or "command --option"
INSTEAD = {
    "fit --baseline": "`--along heads` and `--along depth` list each shape's loss above the best with its interval",
    "fit --margin": "`--along heads` and `--along depth` list each shape's loss above the best with its interval",
}


def line(command: str, option: str = "") -> str:
    """Line that refuses a command or an option that was removed; empty for any other."""
    instead = INSTEAD.get(f"{command} {option}".strip())
    return f"{option or command}: removed in this version; {instead}" if instead else ""
