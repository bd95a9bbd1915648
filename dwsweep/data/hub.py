"""Hub source ``hf:NAME[/CONFIG][@SPLIT]``: a data set of the Hugging Face Hub, or a local folder of such files,
streamed by ``datasets`` (the extra ``hf``).

NAME is OWNER/NAME on the Hub, or a local folder, which has no CONFIG. A data set on the Hub is read at the commit of
its main branch, or of ``?revision=REV`` at the end: a store belongs to that commit.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dwsweep.data.files import find_files, remote_access
from dwsweep.data.records import DocumentSource, Item, Skipped
from dwsweep.data.text_fields import text_column
from dwsweep.errors import InputError, install
from dwsweep.text import one_line

_ROWS = 256  # read at a time
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FORM = re.compile(r"(?P<name>[^@?]+)(@(?P<split>[\w.+-]+))?(\?revision=(?P<revision>[^?@\s]+))?")
_SECONDS = 10  # limit for the Hub's answer about a commit


@dataclass(frozen=True)
class HubRows(DocumentSource):
    """Rows of one split. files: the files of a local folder; empty for a data set on the Hub."""

    name: str  # OWNER/NAME, or the folder
    config: str | None
    split: str
    commit: str | None  # None: a local folder
    text_field: str | None = None

    @classmethod
    def find(cls, source: str, text_field: str | None) -> HubRows:
        """
        Raises:
            InputError: the form is wrong, or there is no such folder, data set or revision.
        """
        form = _FORM.fullmatch(source)
        if form is None:
            raise InputError(f"data.source: hf:{source}; must be NAME[/CONFIG][@SPLIT], ?revision=REV at the end")
        split, revision = form["split"] or "train", form["revision"]
        folder = os.path.abspath(os.path.expanduser(form["name"]))
        if os.path.isdir(folder):
            if revision:
                raise InputError(
                    f"data.source: hf:{source}; a local folder has no revision; ?revision= is for a data set on the Hub"
                )
            return cls(find_files("hf", folder), folder, None, split, None, text_field)
        place = re.fullmatch(r"([\w.-]*\w(?:/[\w.-]*\w)?)(?:/(.+))?", form["name"])
        if place is None:
            raise InputError(
                f"data.source: hf:{source}; no such folder; must be a folder, or OWNER/NAME[/CONFIG] on the Hub"
            )
        name, config = place.groups()
        commit = revision if revision and _COMMIT.fullmatch(revision) else _commit_of(name, revision, source)
        return cls((), name, config, split, commit, text_field)

    @property
    def parallel(self) -> bool:
        return not self.files or super().parallel  # the Hub reports no sizes

    def identity(self) -> list[Any]:
        return [self.config, self.split, self.commit, self.name if self.commit else super().identity()]

    @property
    def revision(self) -> str | None:
        return self.commit

    def items(self) -> Iterator[Item]:
        with self._errors():
            rows = self._rows()
            field = self._field(rows)
            for number, batch in enumerate(rows.select_columns([field]).iter(_ROWS)):
                texts = batch[field]
                n_bytes = sum(len(text) for text in texts if isinstance(text, str))
                yield Item((number * _ROWS, texts), n_bytes)

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        first, texts = item.payload
        for row, text in enumerate(texts, first):
            if isinstance(text, str):
                yield text
            else:
                skipped.add_bad("null text", f"{self.name}, {self.split}, row {row}")

    def _rows(self) -> Any:
        """Split as an IterableDataset."""
        import datasets

        datasets.disable_progress_bars()
        datasets.logging.set_verbosity(logging.CRITICAL)  # errors are reported once, by us
        return datasets.load_dataset(self.name, self.config, split=self.split, revision=self.commit, streaming=True)

    def _field(self, rows: Any) -> str:
        """Name of the text column; InputError that names the columns if none holds text."""
        if rows.features is not None:
            kinds = {name: getattr(feature, "dtype", type(feature).__name__) for name, feature in rows.features.items()}
        else:
            kinds = {name: type(value).__name__ for name, value in next(iter(rows), {}).items()}
        texts = [name for name, kind in kinds.items() if kind in ("string", "large_string", "str")]
        return text_column(kinds, texts, self.text_field, f"string field in hf:{self.name}; fields")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """InputError of one line for every error of ``datasets``, a missing package included."""
        with remote_access(f"hf:{self.name}"):  # errors of pyarrow, fsspec, the Hub's client and datasets
            try:
                yield
            except ImportError as error:
                raise _needs_extra(self.name, error) from None


@lru_cache(maxsize=8)
def _commit_of(name: str, revision: str | None, source: str) -> str:
    """Current commit of a branch or tag of a data set on the Hub."""
    try:
        from huggingface_hub import HfApi

        return str(HfApi().dataset_info(name, revision=revision, timeout=_SECONDS).sha)
    except ImportError as error:
        raise _needs_extra(name, error) from None
    except Exception as error:  # errors of its HTTP client, and its own
        raise InputError(
            f"data.source: hf:{source}; the Hub does not answer for it ({one_line(error)}); give the name of "
            "a data set there, a local folder, or ?revision= with a full commit, whose finished store needs no network"
        ) from None


def _needs_extra(name: str, error: ImportError) -> InputError:
    return InputError(f"data.source: hf:{name}; needs the package {error.name}: {install('hf')}")
