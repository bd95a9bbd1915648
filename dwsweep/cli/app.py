"""All commands as ``dwsweep``, their exit status, and one line per error on standard error."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from dwsweep import paths, terminal
from dwsweep.cli import analysis, training
from dwsweep.cli.hints import Commands, hint
from dwsweep.errors import DONE, INTERRUPTED, WRONG_INPUT, InputError
from dwsweep.text import printable

app = typer.Typer(
    name="dwsweep",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Depth-width sweeps of decoder-only language models: at my parameter budget, how deep and how wide?",
    epilog="Examples: dwsweep run sweeps/smoke.yaml · dwsweep fit runs/smoke · dwsweep report runs/smoke · "
    "dwsweep guide --params 3e9 (each COMMAND --help has its own).\n\n"
    "Exit status: 0 done; 1 some runs failed; 2 wrong spec, arguments or input; 3 interrupted, resumable.",
)
app.add_typer(training.commands)
app.add_typer(analysis.commands)


def main() -> None:
    """Entry point: every bad input is one clear line and exit status 2."""
    sys.exit(status_of(lambda: typer.main.get_command(app).main(standalone_mode=False)))


def _version(value: bool) -> None:
    if value:
        from dwsweep import __version__

        print(f"dwsweep {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def status_of(command: Callable[[], int | None]) -> int:
    """Run ``command``, which returns its status, or None for success.

    Bad input, found anywhere, is one clear line and ``WRONG_INPUT``; a defect of ours keeps its traceback.
    """
    terminal.tolerant_streams()
    code = _status(command)
    lost = terminal.lost_output()
    # a command without a status has its output as its result; a reader that left had enough
    if code is None and lost is not None and lost.errno != errno.EPIPE:
        _print_error(f"standard output: {lost.strerror}")
        code = WRONG_INPUT
    return code or DONE


def _status(command: Callable[[], int | None]) -> int | None:
    try:
        code = command()
        if code == 128 + signal.SIGINT:  # typer's own status for Ctrl-C
            raise KeyboardInterrupt
        return code
    except InputError as error:
        for line in error.option_lines:
            _print_error(line)
        return WRONG_INPUT
    except KeyboardInterrupt:
        _print_error("interrupted")
        return INTERRUPTED
    except Exception as error:
        if reason := paths.out_of_reach(error):
            _print_error(reason)
            return INTERRUPTED
        if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
            # a folder that is a file, no right to write, a full disk
            _print_error(f"{error.filename}: {error.strerror}")
            return WRONG_INPUT
        if isinstance(error, OSError) or paths.is_of_a_client(error):
            _print_error(str(error) or type(error).__name__)
            return WRONG_INPUT
        # typer may bring its own click: recognise usage errors by their methods
        if not hasattr(error, "format_message"):
            if type(error).__name__ == "Abort":
                return INTERRUPTED
            raise
        if message := hint(error) or error.format_message():  # no message: the help was shown instead
            _print_error(" ".join(message.replace(": Value error, ", ": ").split()))  # typer raised it through pydantic
        return WRONG_INPUT


def _print_error(line: str) -> None:
    print(f"error: {printable(line)}", file=sys.stderr)
