"""Numbers of YAML 1.2, for reading and writing a spec.

PyYAML reads YAML 1.1, where 2:30 is 150, 1__0 is 10, 010 is 8 and 1e5 is a text. Here numbers are those of YAML 1.2's
core schema (https://yaml.org/spec/1.2.2/, section 10.3.2), with single underscores between digits: 1_000_000 is one,
2:30 and 1__0 are texts, and 010 is ten.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_DIGITS = r"[0-9]+(?:_[0-9]+)*"
INT = re.compile(rf"[-+]?{_DIGITS}|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(
    rf"[-+]?(?:\.{_DIGITS}|{_DIGITS}\.(?:{_DIGITS})?|{_DIGITS}(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_TAGS = {"tag:yaml.org,2002:int": INT, "tag:yaml.org,2002:float": FLOAT}


def parse_int(text: str) -> int:
    """
    Raises:
        ValueError: the text is not an integer.
    """
    if not INT.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not an integer")
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def parse_float(text: str) -> float:
    """
    Raises:
        ValueError: the text is not a number.
    """
    if not (FLOAT.fullmatch(text) or INT.fullmatch(text)):
        raise ValueError(f"{text[:40]!r} is not a number")
    return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))


def resolve_in(kind: Any) -> None:
    """Make a loader or a dumper of PyYAML treat these texts, and no others, as numbers."""
    kind.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag not in _TAGS]
        for first, known in kind.yaml_implicit_resolvers.items()
    }
    for tag, pattern in _TAGS.items():
        kind.add_implicit_resolver(tag, re.compile(rf"(?:{pattern.pattern})$"), [*"-+0123456789."])


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes a text which would be read as a number."""

    def represent_str(self, text: str) -> yaml.ScalarNode:
        style = "'" if FLOAT.fullmatch(text) or INT.fullmatch(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_str)


def dump(content: Any) -> str:
    """YAML text of plain values, keys in their order."""
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False))
