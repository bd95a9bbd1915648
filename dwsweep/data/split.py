"""Split of a corpus: fractions that hold out enough documents, and the caution where a fraction does not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dwsweep.data import digests
from dwsweep.data.token_store import Store
from dwsweep.records.store import SPLITS

if TYPE_CHECKING:
    pass


FEWEST_HELDOUT = 30  # fewer documents give no reliable standard error of a loss


def heldout_caution(store: Store) -> str | None:
    """Caution for a store that holds out too few documents, with a sufficient fraction; None if it holds out enough."""
    held_out = store.manifest.splits["validation"].n_documents
    if held_out >= FEWEST_HELDOUT:
        return None
    digest = np.concatenate([store.documents(split)["digest"] for split in SPLITS])
    remedy = f"more documents, since {len(digest):,} are too few to hold out {FEWEST_HELDOUT} of them"
    if len(digest) >= 2 * FEWEST_HELDOUT:
        fraction, n = fraction_for(digest, FEWEST_HELDOUT)
        remedy = f"{fraction:g} holds out {n:,} of the {len(digest):,}"
    return _too_few(
        store.manifest.settings.get("validation_fraction", "not recorded"), f"{held_out:,}", held_out == 1, remedy
    )


def _too_few(fraction: object, held_out: str, one: bool, remedy: str) -> str:
    return (
        f"data.validation_fraction {fraction}: {held_out} document{'s' * (not one)} held out; the standard errors of "
        f"losses, and of differences between shapes, need {FEWEST_HELDOUT} or more; {remedy}"
    )


def fraction_for(digest: NDArray[np.uint64], wanted: int) -> tuple[float, int]:
    """Fraction of fewest digits, two or more, that holds out ``wanted`` of these documents and not all of them, and the
    number that it holds out."""
    drawn = np.sort(digests.mix64(digest).astype(np.float64)) / 2.0**64  # draws below a fraction are held out
    for figures in range(2, 18):
        fraction = _rounded_up(float(drawn[wanted - 1]), figures)
        held_out = int((digests.validation_mark(digest, fraction) == digests.VALIDATION).sum())
        if fraction < 1 and wanted <= held_out < len(digest):
            return fraction, held_out
    raise AssertionError("two documents of one hash are one document")


def _rounded_up(fraction: float, figures: int = 2) -> float:
    """Next number of so many digits above a fraction."""
    step = 10.0 ** (math.floor(math.log10(fraction)) - figures + 1)
    return float(f"{(math.floor(fraction / step) + 1) * step:.{figures}g}")
