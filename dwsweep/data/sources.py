"""The sources by name: where a new one is entered.

A source is a module of this folder with a class that does what ``text_sources.Source`` says, a line below, and its
form in ``dwsweep.spec.SOURCE_FORMS``.
"""

from __future__ import annotations

from collections.abc import Callable

from dwsweep.data.hub import HubRows
from dwsweep.data.text_sources import JsonLines, Parquet, Source, StdlibDocs, TextFiles
from dwsweep.data.tfds import TfdsRecords
from dwsweep.data.wiki import WikiDump, WikiExtractor
from dwsweep.errors import InputError
from dwsweep.spec import SOURCE_FORMS

# what stands before the colon → the source, of what stands after it, data.text_field, and whether it may be downloaded
SOURCES: dict[str, Callable[[str, str | None, bool], Source]] = {
    "stdlib-docs": lambda _, field, download: StdlibDocs.find(),
    "tfds": TfdsRecords.find,
    "wikidump": lambda path, field, download: WikiDump.find(path),
    "wikiextractor": lambda path, field, download: WikiExtractor.find(path),
    "text": lambda glob, field, download: TextFiles.find(glob),
    "jsonl": lambda glob, field, download: JsonLines.find(glob, field),
    "parquet": lambda glob, field, download: Parquet.find(glob, field),
    "hf": lambda name, field, download: HubRows.find(name, field),
}


def open_source(source: str, text_field: str | None = None, *, download: bool = False) -> Source:
    """The source that a spec names.

    ``download``: a ``tfds:`` data set that is not prepared yet may be fetched (needs TensorFlow).

    Raises:
        InputError: the form is unknown, or nothing is there.
    """
    kind, colon, rest = source.partition(":")
    if kind not in SOURCES or bool(colon) != any(form.startswith(f"{kind}:") for form in SOURCE_FORMS):
        raise InputError(f"data.source: {source}; one of {', '.join(SOURCE_FORMS)} (PATH and GLOB local or gs://)")
    return SOURCES[kind](rest, text_field, download)
