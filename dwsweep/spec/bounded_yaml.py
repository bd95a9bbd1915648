"""YAML 1.2 within bounds: plain values, every key once, no alias, limited size and depth."""

from __future__ import annotations

import io
import warnings
from functools import cache
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError

MAX_BYTES = 4_000_000
MAX_DEPTH = 50


def load_yaml_file(path: Any) -> Any:
    """Value of a small YAML file of a sweep.

    Raises:
        InputError: the file is no YAML, or larger or deeper than a spec may be.
        OSError: the file is missing, or no file.
    """
    try:
        text = paths.read_text(path, MAX_BYTES)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file ({error.reason})") from None
    return load_yaml(text, str(path))


def load_yaml(text: str, what: str) -> Any:
    """Value of a YAML text. ``what`` begins the line of an error, such as ``SPEC: sweep.yaml``.

    Raises:
        InputError: the text is no YAML, a key is given twice, or a value is an alias or nested too deeply.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError

    reader = YAML(typ="safe", pure=True)
    reader.Composer = _bounded()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it
            return reader.load(text)
    except InputError as error:
        raise InputError(*(f"{what}: {line}" for line in error.lines)) from None
    except (YAMLError, ValueError, OverflowError) as error:  # ValueError: a date with a 13th month
        reason = " ".join(str(error).split())
        if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
            problem = str(error.problem)
            if isinstance(error, DuplicateKeyError):
                problem = f"{problem.partition(' with value ')[0]}; a key must be given once; again"
            reason = f"{problem} in line {error.problem_mark.line + 1}"
        raise InputError(f"{what} is not valid YAML: {reason}") from None
    except (KeyError, IndexError, AttributeError, TypeError):  # errors for !!bool maybe, !!int ''
        raise InputError(f"{what} is not valid YAML: a value does not fit its tag (!!…)") from None


def dump_yaml(content: Any, *, one_line: bool = False) -> str:
    """YAML text of plain values, keys in their order."""
    from ruamel.yaml import YAML

    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = one_line
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.width = 10_000 if one_line else 80
    writer.representer.ignore_aliases = lambda _: True
    stream = io.StringIO()
    writer.dump(content, stream)
    return stream.getvalue().removesuffix("...\n")


@cache
def _bounded() -> type[Any]:
    """Composer within the bounds; made once, when the first YAML is read."""
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.events import AliasEvent

    class BoundedComposer(Composer):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            line = self.parser.peek_event().start_mark.line + 1
            if self.parser.check_event(AliasEvent):
                raise InputError(f"an alias in line {line}; the value must be written out")
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise InputError(f"nested deeper than {MAX_DEPTH} levels in line {line}")
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

    return BoundedComposer
