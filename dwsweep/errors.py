"""The one error that a user's input may raise."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input: spec, file, column, flag, checkpoint or data.

    The message names the key, the value and what is allowed; one line an error, all errors at once. The command line
    prints it without a traceback and exits with status 2.
    """

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))
