"""YAML within bounds: plain values, every key once, limited size, depth and unfolded aliases.

Numbers are those of YAML 1.2 (``yaml_numbers``).
"""

from __future__ import annotations

from typing import Any

import yaml

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.spec import yaml_numbers

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
    try:
        return yaml.load(text, _Loader)
    except InputError as error:
        raise InputError(*(f"{what}: {line}" for line in error.lines)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: a date with a 13th month
        raise InputError(f"{what} is not valid YAML: {' '.join(str(error).split())}") from None
    except (KeyError, IndexError, AttributeError, TypeError):  # PyYAML's errors for !!bool maybe, !!int ''
        raise InputError(f"{what} is not valid YAML: a value does not fit its tag (!!…)") from None


class _Loader(yaml.SafeLoader):
    """YAML loader within the bounds, for which a key given twice is an error."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth = 0

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _check_unfolded(node, {})
        return node

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
            raise InputError(f"nested deeper than {MAX_DEPTH} levels in line {line}")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise InputError(f"{key.value}: given twice, again in line {line}; a key must be given once")
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MAX_DIGITS:
            line = node.start_mark.line + 1
            raise InputError(f"an integer of {len(node.value):,} digits in line {line}; at most {MAX_DIGITS:,}")
        return yaml_numbers.parse_int(node.value)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        return yaml_numbers.parse_float(node.value)


yaml_numbers.resolve_in(_Loader)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _check_unfolded(node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """Values and levels that ``node`` unfolds to. An alias is the node of its anchor, which comes first."""
    line = node.start_mark.line + 1
    if id(node) in known:
        found = known[id(node)]
        if found is None:
            raise InputError(f"the anchor in line {line} holds an alias to itself")
        return found
    known[id(node)] = None
    children = []
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    values, levels = 1, 0
    for child in children:
        more, deeper = _check_unfolded(child, known)
        values, levels = values + more, max(levels, deeper)
    if values > MAX_VALUES or levels >= MAX_DEPTH:
        raise InputError(
            f"the value that begins in line {line} unfolds to more than {MAX_VALUES:,} values or {MAX_DEPTH} levels"
        )
    known[id(node)] = values, levels + 1
    return values, levels + 1
