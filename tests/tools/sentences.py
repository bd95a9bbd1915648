"""Sentences that tests pin: ``says(text, key)`` compares, ``make sentences`` renews the file after a change of words.

``sentences.json`` holds each sentence under the key by which a test names it. A renewed sentence is the one of the
text that is most similar to the stored one: look at the diff before it is committed.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("sentences.json")
RENEW = "DWSWEEP_RENEW_SENTENCES"


def says(text: Any, key: str) -> bool:
    """True if the text (a list of lines is joined) holds the stored sentence; with RENEW set it is stored anew."""
    text = text if isinstance(text, str) else "\n".join(map(str, text))
    known = json.loads(FILE.read_text("utf-8"))
    if known[key] in text:
        return True
    nearest = max(
        re.split(r"(?<=[.;:!?])\s+|\n", text), key=lambda one: difflib.SequenceMatcher(None, known[key], one).ratio()
    )
    if RENEW not in os.environ:
        raise AssertionError(f"{key}: {known[key]!r} is not in the text; nearest: {nearest!r}; renew: make sentences")
    FILE.write_text(json.dumps({**known, key: nearest}, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
    return True
