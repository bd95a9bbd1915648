"""Question to ``dwsweep guide``: sizes, a budget of training or shapes to judge, and the source that is to answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dwsweep import published_law
from dwsweep.errors import InputError
from dwsweep.fit.statistics.laws import AS_PRINTED, EXTRAPOLATION_LIMIT
from dwsweep.guide.own import OWN_REACH
from dwsweep.guide.shapes import Options, named
from dwsweep.guide.sources import Source, fitted_source, public_source, published_source
from dwsweep.guide.training import SMALLEST, SMALLEST_OF_FIT, Training
from dwsweep.text import format_count

# smallest and largest sizes: with a fit, by public evidence, and by the law, from one layer on
OF_A_FIT, OF_EVIDENCE = (SMALLEST_OF_FIT, 1e12), (SMALLEST, 1e12)
OF_THE_LAW = published_law.transition_n_params(1.0), published_law.TRAINED_N_PARAMS[1] * EXTRAPOLATION_LIMIT
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
        if errors := list(self._wrong()):
            raise InputError(*errors)

    @property
    def training(self) -> Training | None:
        return None if self.flops is None and self.hours is None else Training(self.flops, self.hours)

    def source(self) -> Source:
        """Source that answers.

        Raises:
            InputError: no fit at ``fit``.
        """
        if self.fit is not None:
            return fitted_source(self.fit, self.options.trained)
        return published_source() if self.law else public_source(self.options.trained)

    def unanswered(self, n_params: float, name: str, given: str, source: Source | None = None) -> Iterator[str]:
        """Line that refuses a size without any evidence, which the argument ``name`` asks for."""
        of_a_fit = self.fit is not None and (source is None or source.own_at(n_params))
        least, most = OF_THE_LAW if self.law else OF_A_FIT if of_a_fit else OF_EVIDENCE
        if not least / AS_PRINTED <= n_params <= most * AS_PRINTED:
            why = ""
            if n_params > most and not self.law:
                why = ": no shapes were compared beyond 15B and no law was published beyond 1T"
            elif n_params < least and self.law:
                why = ": the law has less than one layer below"
            elif n_params < least and self.fit is not None and not of_a_fit:
                why = f", or within {OWN_REACH:g} times of the sizes of your own losses"
            allowed = f"from {format_count(least)} to {format_count(most)} non-embedding parameters"
            yield f"{named(name)}: {given}; must be {allowed}{why}"

    def out_of_reach(self, source: Source | None = None) -> Iterator[str]:
        """Lines that refuse sizes without any evidence; of ``source``, where the question's source is known."""
        for value in self.params:
            yield from self.unanswered(value, "params", format_count(value) if value >= 1.0 else f"{value:g}", source)
        for text in self.shapes:
            try:
                depth, width = parse_shape(text)
                yield from self.unanswered(12.0 * depth * width**2, "shapes", f"{depth}x{width}", source)
            except InputError as error:
                yield from error.templates

    def _wrong(self) -> Iterator[str]:
        sized, several = self.params or self.training, "allowed: one of them"
        yield from self.out_of_reach()
        if self.law not in (None, published_law.SHORT):
            yield f"{named('law')}: {self.law!r}; allowed: {published_law.SHORT}"
        elif self.law is not None and self.fit is not None:
            yield f"{named('law')}: {self.law}; stands in place of {named('fit')}; {several}"
        if self.flops is not None and self.hours is not None:
            yield f"{named('hours')}: a budget is in FLOPs or in hours; {several}"
        for name, budget in (("flops", self.flops), ("hours", self.hours)):
            if budget is not None and not 0.0 < budget < math.inf:
                yield f"{named(name)}: {budget:g}; must be above 0"
            elif budget is not None and self.params:
                yield f"{named(name)}: {budget:g}; stands in place of {named('params')}; {several}"
        if self.by_source and not sized:
            yield f"{named('sources')}: lists answers at a size; allowed with one of {_listed(SIZED[:3])}"
        if None not in (self.options.tokens, self.options.tokens_per_param):
            yield f"{named('tokens')}, {named('tokens_per_param')}: both determine the tokens; {several}"
        if not (sized or self.shapes) and (given := self.options.given):
            yield f"{_listed(given)}: has no effect without a size; allowed with one of {_listed(SIZED)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(named, names))


def parse_shape(text: str) -> tuple[int, int]:
    """Depth and width of a text such as ``96x12288``.

    Raises:
        InputError: the text is no shape.
    """
    # seven digits exceed any net and keep 12·L·d_x² within the range of floats
    found = re.fullmatch(r"\s*0*([1-9]\d{0,6})\s*[xX×]\s*0*([1-9]\d{0,6})\s*", text)
    if not found:
        raise InputError(f"{named('shapes')}: {text[:40]!r}; allowed: DEPTHxWIDTH, such as 96x12288")
    return int(found[1]), int(found[2])
