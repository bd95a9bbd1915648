"""Samples on a page: texts that ``dwsweep sample`` drew from the models."""

from __future__ import annotations

import itertools
from typing import Any

from dwsweep.records import record as reader
from dwsweep.records.record import Damaged
from dwsweep.records.samples import Sample
from dwsweep.report.document import Heading, Lines, Part
from dwsweep.sweep.directory import SweepStore

MOST_TEXTS, MOST_CHARACTERS = 60, 4000  # bounds of the number of texts in samples.json, and of characters in each


def sample_parts(root: Any) -> list[Part]:
    """Texts that `dwsweep sample DIR` drew, by depth; empty without texts."""
    store = SweepStore(root)
    try:
        samples = reader.read(store.samples_path, list[Sample], "samples.json") or []
    except Damaged as error:
        return [Lines([str(error)], soft=True)]
    parts: list[Part] = []
    for (depth, width), group in itertools.groupby(samples[:MOST_TEXTS], key=lambda one: (one.depth, one.width)):
        texts = list(group)
        loss = f", loss {texts[0].loss:.3f}" if texts[0].loss is not None else ""
        parts += [Heading(f"{depth} × {width}{loss}"), Lines([_beginning(one) for one in texts], verbatim=True)]
    if len(samples) > MOST_TEXTS:
        parts.append(Lines([f"{len(samples) - MOST_TEXTS:,} more texts are in samples.json."], soft=True))
    return parts


def _beginning(sample: Sample) -> str:
    """Beginning of prompt and text, up to MOST_CHARACTERS."""
    whole = sample.prompt + sample.text
    if len(whole) <= MOST_CHARACTERS:
        return whole
    return f"{whole[:MOST_CHARACTERS]}\n… {len(whole) - MOST_CHARACTERS:,} more characters are in samples.json"
