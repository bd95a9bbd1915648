"""Modules with one importer, and lines per room, which ``make house`` prints; each may have its reason."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dwsweep"
ENTRANCES = ("__init__", "__main__", "worker", "reference")  # run by name, not imported


def modules() -> dict[str, str]:
    """Source of each module by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    return found


def imported(tree: ast.Module, known: dict[str, str]) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names & set(known)


def signs(sources: dict[str, str]) -> Iterator[str]:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, source in sources.items():
        tree = ast.parse(source)
        for other in imported(tree, sources):
            importers[other].add(name)
    # modules of a registry or of a command have one importer for good reason
    for name, by in sorted(importers.items()):
        only = next(iter(by))
        entrance = name.rpartition(".")[2] in ENTRANCES or any(other.startswith(f"{name}.") for other in sources)
        if len(by) == 1 and not entrance and not re.search(r"\.cli\.|registry|\.sources$|__main__", only):
            yield f"{name}: imported by {only} alone"


def rooms(sources: dict[str, str]) -> Iterator[str]:
    lines, count = Counter[str](), Counter[str]()
    for name, source in sources.items():
        is_room = name.count(".") > 1 or any(other.startswith(f"{name}.") for other in sources if "." in name)
        room = name.split(".")[1] if is_room else "(top)"
        lines[room] += source.count("\n")
        count[room] += 1
    for room, n in lines.most_common():
        yield f"{room:>10} {count[room]:4} modules {n:7,} lines"
    yield f"{'all':>10} {count.total():4} modules {lines.total():7,} lines"


if __name__ == "__main__":
    found = modules()
    print(*signs(found), "", *rooms(found), sep="\n")
