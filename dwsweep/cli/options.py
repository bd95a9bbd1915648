"""Options of several commands, and types of options: parsing of paths, counts and times, and their form in `--help`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dwsweep import numerals, paths
from dwsweep.errors import InputError
from dwsweep.text import parse_count

if TYPE_CHECKING:
    PathValue = Any  # a pathlib.Path, or an epath.Path in a bucket
else:

    class PathValue:
        """Parser as a class, whose name `--help` shows (typer requires one)."""

    PathValue.__name__ = "path"


def path_value(text: str) -> Any:
    """Parse a path of a command line, local or in a bucket."""
    if not text.strip():
        raise typer.BadParameter(f"{text!r}; must be a path")
    return _parsed(paths.reachable, text)


def folder_value(text: str) -> Any:
    """Parse the path of a folder, existing or new; a file, or a path below one, is refused."""
    path = path_value(text)
    if not paths.is_remote(path) and (file := next((one for one in (path, *path.parents) if one.is_file()), None)):
        raise typer.BadParameter(f"{text!r}; {file} is a file; must be a folder")
    return path


def count_value(text: str) -> float:
    return _parsed(parse_count, text)


def whole_value(text: str | int) -> int:
    count = numerals.number(str(text))  # a default is already parsed; 1e5, 50k, 1,234
    if count is None or abs(count) >= 1e30 or not float(count).is_integer():
        raise typer.BadParameter(f"{str(text)[:40]!r}; must be a whole number")
    return int(count)


def number_value(text: str | float) -> float:
    found = numerals.number(str(text))  # a default is already parsed
    try:
        return float(text) if found is None else float(found)  # inf and nan are refused where they are used
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{str(text)[:40]!r}; must be a number") from None


_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def layer_time_value(text: str | float) -> float:
    """Parse seconds per layer: ``0.00067``, ``0.67ms``, ``20us``."""
    return _time(text, 1.0)


def hours_value(text: str | float) -> float:
    """Parse a time in hours: ``24``, ``24h``, ``90min``, ``2d``."""
    return _time(text, 3600.0)


def _time(text: str | float, unit: float) -> float:
    """Parse a time with a unit of its own, or in units of so many seconds; in those units."""
    found = re.fullmatch(r"(.*[0-9.])\s*([a-zµ]+)", str(text).strip())
    if found and found[2] in _SECONDS:
        return number_value(found[1]) * (_SECONDS[found[2]] / unit)
    return number_value(text)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    """Parse a parameter with ``parse``; typer puts the parameter's name before the fault."""
    try:
        return parse(text)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def _option(parser: Any, metavar: str, help: str, panel: str | None = None) -> Any:
    return typer.Option(metavar=metavar, parser=parser, help=help, rich_help_panel=panel)


switch = functools.partial(typer.Option, metavar=" ")  # else `--help` prints <bool>
count_option = functools.partial(_option, count_value)  # such as 3B
whole_option = functools.partial(_option, whole_value)
number_option = functools.partial(_option, number_value)
hours_option = functools.partial(_option, hours_value, "H")  # such as 24h; a number is of hours
text_option = functools.partial(_option, None)
path_option = functools.partial(_option, path_value)
folder_option = functools.partial(_option, folder_value, "DIR")


def given(ctx: typer.Context, names: Iterable[str]) -> dict[str, Any]:
    """Values of the options of these names, for the function that has keywords of the same names; without those that
    were neither given nor have a default."""
    values = {name: ctx.params.get(name) for name in names}
    known = {name: value for name, value in values.items() if value not in (None, [], ())}
    return {name: str(value) if isinstance(value, StrEnum) else value for name, value in known.items()}


SweepDirectory = Annotated[
    PathValue, typer.Argument(metavar="DIR", parser=folder_value, help="Sweep directory.", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a dotted key of the spec; may be repeated."),
]
AsJson = Annotated[bool, switch("--json", help="Print JSON instead of tables.")]
