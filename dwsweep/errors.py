"""Input error: names arguments in Python and options in a shell. Exit statuses.

Command that installs an extra, for the errors of a missing package.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

DONE, SOME_FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 3  # exit statuses

_EITHER = re.compile("\x0e([^\x0e\x0f\x1f]*)\x1f([^\x0e\x0f\x1f]*)\x0f")


def argument(name: str, option: str | None = None) -> str:
    """A name inside the line of an ``InputError``: ``columns`` to Python, ``--column`` on the command line.

    option: as the command line has it; default ``--name``. Only ``InputError`` and ``either`` read the returned text.
    """
    return example(name, option or f"--{name.replace('_', '-')}")


def example(code: str, option: str) -> str:
    """Advice inside the line of an ``InputError``: ``code`` to Python, ``option`` on the command line."""
    return f"\x0e{code}\x1f{option}\x0f"


def either(text: str) -> str:
    """Text of a result for both readers: each name and example in the form of the command line, with Python's form in
    brackets."""
    return _EITHER.sub(r"\2 (in Python \1)", text)


def check_keywords(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse a keyword that is not among those known.

    Raises:
        TypeError: as Python's for such a keyword, with the nearest name.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}"
            raise TypeError(f"no argument {name!r}; {hint}")


def install(*extras: str) -> str:
    """Command that installs extras from a clone, since dwsweep is on no package index."""
    return f"in a clone, pip install -c constraints.txt '.[{','.join(extras)}]'"


class InputError(ValueError):
    """Bad input: spec, file, column, flag, checkpoint or data.

    The message names the key, the value and what it must be; one line per error, all errors at once. The command line
    prints ``option_lines`` without a traceback and exits with status 2.

    templates: the lines as given, for another error to hold. lines: their form in Python. option_lines: their form on
    the command line.
    """

    def __init__(self, *templates: str) -> None:
        self.templates = templates
        self.lines = tuple(_EITHER.sub(r"\1", line) for line in templates)
        self.option_lines = tuple(_EITHER.sub(r"\2", line) for line in templates)
        super().__init__("\n".join(self.lines))
