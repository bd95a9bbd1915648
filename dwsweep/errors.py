"""The one error that a user's input may raise, and the names that its messages use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_options_named = ContextVar("options_named", default=False)


@contextlib.contextmanager
def options_named() -> Iterator[None]:
    """Inside, messages name options of the command line (``--column``) and not arguments of functions (``columns``)."""
    token = _options_named.set(True)
    try:
        yield
    finally:
        _options_named.reset(token)


def argument(name: str, option: str | None = None) -> str:
    """``name`` as the user gave it: the argument, or inside ``options_named`` the option (``--name`` by default)."""
    return (option or f"--{name.replace('_', '-')}") if _options_named.get() else name


def example(code: str, option: str) -> str:
    """What to give: ``code`` for a function, ``option`` on the command line."""
    return option if _options_named.get() else code


class InputError(ValueError):
    """Bad input: spec, file, column, flag, checkpoint or data.

    The message names the key, the value and what it must be; one line per error, all errors at once. The command line
    prints it without a traceback and exits with status 2.
    """

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))
