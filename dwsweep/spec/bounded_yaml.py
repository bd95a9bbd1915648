"""YAML 1.2 within bounds: plain values, every key once, limited size, depth and unfolded aliases."""

from __future__ import annotations

import io
import re
import warnings
from functools import cache
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError

MAX_BYTES = 4_000_000
MAX_DEPTH = 50
MAX_VALUES = 100_000  # most nodes, every use of an alias counted
MAX_DIGITS = 1000  # most digits of an integer; Python refuses to print more than 4,300


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
        InputError: the text is no YAML, a key is given twice, or nesting or unfolding exceeds the bounds above.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError

    reader = YAML(typ="safe", pure=True)
    reader.Composer, reader.Constructor = _bounded()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it
            return reader.load(text)
    except InputError as error:
        raise InputError(*(f"{what}: {line}" for line in error.lines)) from None
    except (YAMLError, ValueError, OverflowError) as error:  # ValueError: a date with a 13th month
        reason = " ".join(str(error).split())
        if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
            reason = f"{error.problem} in line {error.problem_mark.line + 1}"
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
    stream = io.StringIO()
    writer.dump(content, stream)
    return stream.getvalue().removesuffix("...\n")


@cache
def _bounded() -> tuple[Any, Any]:
    """Composer and constructor within the bounds; made once, when the first YAML is read."""
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.constructor import SafeConstructor

    class BoundedComposer(Composer):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                line = self.parser.peek_event().start_mark.line + 1
                raise InputError(f"nested deeper than {MAX_DEPTH} levels in line {line}")
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

    class BoundedConstructor(SafeConstructor):
        def construct_document(self, node: Any) -> Any:
            _check(node, {})
            return super().construct_document(node)

    return BoundedComposer, BoundedConstructor


_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


def _check(node: Any, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """Values and levels that ``node`` unfolds to. An alias is the node of its anchor, which comes first."""
    line = node.start_mark.line + 1
    if id(node) in known:
        found = known[id(node)]
        if found is None:
            raise InputError(f"the anchor in line {line} holds an alias to itself")
        return found
    known[id(node)] = None
    children: list[Any] = []
    if node.id == "mapping":
        _check_keys(node)
        children = [child for pair in node.value for child in pair]
    elif node.id == "sequence":
        children = node.value
    elif node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
        raise InputError(f"an integer of {len(node.value):,} digits in line {line}; at most {MAX_DIGITS:,}")
    elif node.tag in _NUMBERS and re.search("__|_$|_[.eE]", node.value):
        raise InputError(f"{node.value!r} in line {line}; a number has single underscores, between digits")
    values, levels = 1, 0
    for child in children:
        more, deeper = _check(child, known)
        values, levels = values + more, max(levels, deeper)
    if values > MAX_VALUES or levels >= MAX_DEPTH:
        raise InputError(
            f"the value that begins in line {line} unfolds to more than {MAX_VALUES:,} values or {MAX_DEPTH} levels"
        )
    known[id(node)] = values, levels + 1
    return values, levels + 1


def _check_keys(node: Any) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.id == "scalar" and key.value != "<<":
            if key.value in seen:
                line = key.start_mark.line + 1
                raise InputError(f"{key.value}: given twice, again in line {line}; a key must be given once")
            seen.add(key.value)
