"""Report of ``dwsweep design``: expected errors, and gains of alternatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group

from dwsweep.report.console import render as rendered
from dwsweep.report.document import Heading, Lines, Part, TextTable, label, number, soft
from dwsweep.text import format_count

if TYPE_CHECKING:
    from dwsweep.design.judge import Errors
    from dwsweep.design.study import Study


def render_design(study: Study) -> Group:
    """Report of :func:`dwsweep.design.study`: tables and sentences."""
    errors = study.errors
    head = f": {study.runs} runs to train, {format_count(study.flops)} FLOPs"
    parts: list[Part] = [Heading(study.name, head), soft(*study.prior.basis)]
    parts += [Heading("Transitions that this sweep would find"), _pair_errors(errors)]
    lines = [(("Best depth:", "bold"), f" {depth_text(errors)}")]
    if errors.se_a is not None and errors.se_b is not None:
        law = study.prior.law.equation.sentence("a", "b")
        lines.append((("Law:", "bold"), f" {law}: a ± {errors.se_a:.2g}, b ± {errors.se_b:.2g}"))
    elif errors.known:
        lines.append((("Law:", "bold"), f" none: {errors.reason or 'too few sizes have a best depth inside'}"))
    parts.append(Lines(lines, apart=True))
    parts += [Heading("What a change would buy"), _alternatives(study)]
    return rendered([*parts, soft(LEGEND, apart=True)])


def depth_text(errors: Errors) -> str:
    """Sentences on the best depth at the target."""
    at = f"at {format_count(errors.target)} parameters"
    if errors.depth is None or errors.se_depth is None:
        return f"none {at}: {errors.reason}"
    error = errors.rms_ln_depth * errors.depth
    return (
        f"{errors.depth:.1f} layers {at}; `fit` would state ± {_layers(errors.se_depth)} and miss it by "
        f"{_layers(error)} ({errors.rms_ln_depth:.1%}) if the prior holds"
    )


def _layers(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _pair_errors(errors: Errors) -> TextTable:
    heads = ("pair", "N", "width", "± ln N", "± width", "bias ln N", "P(crossed)")
    table = TextTable("", [*map(number, heads)], ruled=False, apart=False)
    for pair in errors.pairs:
        cells = [f"{pair.shallow}/{pair.deep}", format_count(pair.n_params), f"{pair.width:,.0f}"]
        if pair.se_ln_n is None or pair.bias_ln_n is None or pair.power is None:
            table.add(*cells, "too few runs" if pair.inside else "outside the sizes")
            continue
        half = 100 * (math.exp(pair.se_ln_n / 2) - 1)
        table.add(*cells, f"{pair.se_ln_n:.3f}", f"{half:.1f} %", f"{pair.bias_ln_n:+.3f}", f"{pair.power:.0%}")
    return table


def _alternatives(study: Study) -> TextTable:
    heads = ("runs", "FLOPs", "best depth ±", "stated ±", "of as planned")
    table = TextTable("", [label("change"), *map(number, heads)], ruled=False, apart=False)
    for one in (study, *study.alternatives):
        errors, plus = one.errors, "" if one is study else "+"
        known = errors.depth is not None and errors.se_depth is not None
        table.add(
            f"+ {one.name}" if plus else "as planned",
            f"{plus}{one.runs}",
            f"{plus}{format_count(one.flops)}",
            f"{errors.rms_ln_depth * (errors.depth or 0.0):.2f}" if known else "none",
            f"{errors.se_depth:.2f}" if known else "",
            f"{errors.rms_ln_depth / study.errors.rms_ln_depth:.0%}" if known and study.errors.known else "",
        )
    return table


LEGEND = (
    "N, width: size and shallower net's width of the transition that the prior expects. ±: one standard deviation, "
    "bias: of the forms, P(crossed): chance of a crossing, all by the posterior of all losses, by which `fit` judges. "
    "Best depth ±: its error from noise and from forms of the law that these runs cannot reject, in layers; stated ±: "
    "half of the central 68 % that `fit` would give. FLOPs: training, all learning rates."
)
