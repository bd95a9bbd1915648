"""Question to ``dwsweep guide``: sizes, a budget of training or shapes to judge, and the source that is to answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dwsweep import published_law
from dwsweep.errors import InputError
from dwsweep.fit.laws import AS_PRINTED
from dwsweep.guide.losses import Tokens
from dwsweep.guide.shapes import Options, named
from dwsweep.guide.sources import LARGEST, Source, fitted_source, public_source, published_source
from dwsweep.guide.training import Training
from dwsweep.shapes import LARGEST_SIZE
from dwsweep.text import format_count

LEAST_OF_A_FIT, LEAST_PUBLIC = 1e3, 1e5  # smallest budgets: with a fit, and with public evidence
MOST = 1e30
DEEPER_THAN_WIDE = 4  # ratio of depth to width above which a shape counts as exchanged
SIZED = ("params", "flops", "hours", "shapes")


@dataclass(frozen=True)
class Question:
    """Question, with all that it must meet.

    params: budgets. shapes: to be judged, such as ``96x12288``. flops, hours: budget of training on ``options.device``,
    which determines parameters and tokens. None of them: the GPT-3 sizes. fit: a fit's directory or fit.json; None:
    public evidence. law: ``levine2020``, the published law in place of the evidence. by_source: adds the answer of each
    public source. options: constraints on the shapes.

    Raises:
        InputError: numbers, shapes or combinations that cannot be; all errors at once.
    """

    params: Sequence[float] = ()
    shapes: Sequence[str] = ()
    flops: float | None = None
    hours: float | None = None
    fit: str | Path | None = None
    law: str | None = None
    by_source: bool = False
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        if errors := [*self._wrong_sizes(), *self._wrong_training(), *self._wrong_together(), *self._wrong_shapes()]:
            raise InputError(*errors)

    @property
    def training(self) -> Training | None:
        return None if self.flops is None and self.hours is None else Training(self.flops, self.hours)

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.options.tokens, self.options.tokens_per_param)

    def source(self) -> Source:
        """Source that answers.

        Raises:
            InputError: no fit at ``fit``.
        """
        if self.fit is not None:
            return fitted_source(self.fit, self.tokens)
        return published_source() if self.law else public_source(self.tokens)

    def check_size(self, n_params: float) -> None:
        """Refuse a size that a budget of training pays for.

        Raises:
            InputError: it is beyond all evidence.
        """
        if self._beyond(n_params):
            name, given = ("flops", self.flops) if self.flops is not None else ("hours", self.hours)
            raise InputError(_too_large(name, f"{given:g}"))

    def _beyond(self, n_params: float) -> bool:
        return self.law is None and n_params > LARGEST * AS_PRINTED

    def _wrong_sizes(self) -> Iterator[str]:
        least = LEAST_OF_A_FIT if self.fit is not None else LEAST_PUBLIC
        for value in self.params:
            if not least <= value <= MOST:
                allowed = f"at least {least:g} (and at most {MOST:g}) non-embedding parameters"
                yield f"{named('params')}: {value:g}; must be {allowed}"
            elif self._beyond(value):
                yield _too_large("params", format_count(value))
        if self.law not in (None, published_law.SHORT):
            yield f"{named('law')}: {self.law!r}; allowed: {published_law.SHORT}"
        elif self.law is not None and self.fit is not None:
            yield f"{named('law')}: {self.law}; stands in place of {named('fit')}; allowed: one of them"

    def _wrong_training(self) -> Iterator[str]:
        if self.flops is not None and self.hours is not None:
            yield f"{named('hours')}: a budget is in FLOPs or in hours; allowed: one of them"
        for name, value in (("flops", self.flops), ("hours", self.hours)):
            if value is not None and not 0.0 < value < math.inf:
                yield f"{named(name)}: {value:g}; must be above 0"
            elif value is not None and self.params:
                yield f"{named(name)}: {value:g}; stands in place of {named('params')}; allowed: one of them"

    def _wrong_together(self) -> Iterator[str]:
        sized = self.params or self.training
        if self.by_source and not sized:
            yield f"{named('sources')}: lists answers at a size; allowed with one of {_listed(SIZED[:3])}"
        if None not in (self.options.tokens, self.options.tokens_per_param):
            yield f"{named('tokens')}, {named('tokens_per_param')}: both determine the tokens; allowed: one of them"
        if not (sized or self.shapes) and (given := self.options.given):
            yield f"{_listed(given)}: has no effect without a size; allowed with one of {_listed(SIZED)}"

    def _wrong_shapes(self) -> Iterator[str]:
        for text in self.shapes:
            try:
                depth, width = parse_shape(text)
            except InputError as error:
                yield from error.templates
                continue
            if self._beyond(12.0 * depth * width**2):
                yield _too_large("shapes", f"{depth}x{width}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(named, names))


def _too_large(name: str, given: str) -> str:
    """Line that refuses a size beyond all evidence."""
    return (
        f"{named(name)}: {given}; must be at most {format_count(LARGEST)} non-embedding parameters: no "
        f"shapes were compared beyond 15B and no law was published beyond {format_count(LARGEST)}"
        + (f" (allowed: {named('law')} {published_law.SHORT}, to 1.2T)" if name == "params" else "")
    )


def parse_shape(text: str) -> tuple[int, int]:
    """Depth and width of a text such as ``96x12288``.

    Raises:
        InputError: the text is no shape, or a shape written the wrong way round.
    """
    refused = f"{named('shapes')}: {text[:40]!r}"
    found = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", text)
    # twelve digits exceed any net and keep 12·L·d_x² within the range of floats
    if not found or not all(len(part) <= 12 and int(part) for part in found.groups()):
        raise InputError(f"{refused}; allowed: DEPTHxWIDTH, such as 96x12288")
    depth, width = int(found[1]), int(found[2])
    if depth > DEEPER_THAN_WIDE * width and depth >= 128:
        raise InputError(f"{refused}; the depth comes first: did you mean {width}x{depth}?")
    if width > LARGEST_SIZE:
        raise InputError(f"{refused}; the width must be at most {LARGEST_SIZE:,.0f}")
    return depth, width
