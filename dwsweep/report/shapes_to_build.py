"""Shapes to build on a page: the answer of ``guide`` at a fit's largest size, and the fit's guideline."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from typing import Any

from dwsweep.fit.one_thread import one_thread
from dwsweep.guide import Source, answer
from dwsweep.guide.guideline import completed
from dwsweep.records.fit import FitResult
from dwsweep.report import fit_report, guide_report
from dwsweep.report.document import Fold, Heading, Lines, Part
from dwsweep.text import format_count

LEAST = 1e3  # smallest size of an answer with a fit
FIRST = 3  # paragraphs of the answer on the first screen: the shape, the best depth, the risk


def built(fit: FitResult, source: Source, file: Any, directory: Any) -> tuple[list[Part], list[Part]]:
    """Shapes to build by a fit: at the largest trained size, for the first screen; and at every listed size.

    file: the fit.json of ``source``; directory: the reader's ``--fit``.
    """
    largest = max(LEAST, *trained_sizes(fit))
    with one_thread():
        at_largest = guide_report.document(answer([largest], fit=file, source=source))
        listed = fit_report.guideline(fit if any(row.law for row in fit.guideline) else completed(fit))
    size = format_count(largest)
    first: list[Part] = [Heading(f"Shape to build at {size}, the largest size trained"), *_begin(at_largest)]
    command = f"`dwsweep guide --params 3B --fit {shlex.quote(str(directory))}`"
    more = Lines([f"{command} answers at any size, with the price of other shapes."])
    return first, [listed, more, Fold(f"The whole answer at {size}", at_largest)]


def _begin(document: Sequence[Part]) -> list[Part]:
    """First paragraphs of an answer, and the reason before its heading where public evidence answers instead."""
    said: list[Part] = [part for part in document if isinstance(part, Lines)]
    before = sum(1 for _ in itertools.takewhile(lambda part: isinstance(part, Lines), document))
    return said[: before + FIRST]


def trained_sizes(fit: FitResult) -> list[float]:
    """Sizes of the fitted nets; else of the excluded nets; 1M without nets."""
    return [cell.n_params for cell in fit.cells if not cell.excluded] or [cell.n_params for cell in fit.cells] or [1e6]
