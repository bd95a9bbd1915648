"""Snapshots of output: ``says`` finds a stored sentence, ``shows`` compares a text, ``make sentences`` renews both.

The key ``"fit: clean grid"`` stands in ``tests/snapshots/fit.txt`` under the heading ``== clean grid``. A renewed
sentence is the one of the text that is most similar to the stored one: read the diff before you commit it.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
RENEW = "DWSWEEP_RENEW_SENTENCES"
HEADING = "== "
NUMBER = re.compile(r"[−+-]?\d[\d,.]*\d(?:e[+-]?\d+)?|[−+-]?\d+(?:e[+-]?\d+)?")


def says(text: Any, key: str) -> bool:
    """True if the text (a list of lines is joined) holds the stored sentence; with RENEW set it is stored anew."""
    text = text_of(text)
    known = stored(key)
    if _flat(known) and _flat(known) in _flat(text):
        return True
    parts = re.split(r"(?<=[.;:!?])\s+|\n", text)
    nearest = max(parts, key=lambda part: difflib.SequenceMatcher(None, known, part).ratio()).strip()
    if RENEW not in os.environ:
        raise AssertionError(f"{key}: {known!r} is not in the text; nearest: {nearest!r}; renew: make sentences")
    _store(key, nearest)
    return True


def shows(text: Any, key: str, numbers: bool = False) -> bool:
    """True if the text is the stored one, whatever its spaces; with RENEW set it is stored anew. Each number
    counts as ``#`` unless ``numbers``."""
    text = text_of(text)
    if not numbers:
        text = NUMBER.sub("#", text)
    text = "\n".join(re.sub(r"[ \xa0]{3,}", "  ", re.sub("─{3,}", "───", line)).rstrip() for line in text.split("\n"))
    known = stored(key)
    if _flat(known) == _flat(text):
        return True
    if RENEW not in os.environ:
        diff = difflib.unified_diff(known.splitlines(), text.splitlines(), "stored", "now", lineterm="", n=1)
        raise AssertionError("\n".join([f"{key} (renew: make sentences)", *diff]))
    _store(key, text)
    return True


def text_of(text: Any) -> str:
    """Lines of a list joined; a text as it is."""
    return text if isinstance(text, str) else "\n".join(map(str, text))


def stored(key: str) -> str:
    """The snapshot of a key; empty if there is none yet."""
    file, _, name = key.partition(": ")
    return all_stored(SNAPSHOTS / f"{file}.txt").get(name, "")


def all_stored(file: Path) -> dict[str, str]:
    """Snapshots of one file by heading."""
    found = re.split(rf"^{HEADING}(.*)\n", file.read_text("utf-8") if file.exists() else "", flags=re.M)
    return {name: text.rstrip("\n") for name, text in zip(found[1::2], found[2::2], strict=True)}


def _store(key: str, text: str) -> None:
    name, _, heading = key.partition(": ")
    file = SNAPSHOTS / f"{name}.txt"
    texts = sorted({**all_stored(file), heading: text.strip("\n")}.items())
    file.write_text("\n".join(f"{HEADING}{name}\n{content}\n" for name, content in texts), "utf-8")


def _flat(text: str) -> str:
    return " ".join(text.split())
