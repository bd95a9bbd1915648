"""Report of a fit: the answer in at most five lines, then its tables; and guideline.md."""

from __future__ import annotations

import re
import shlex
from itertools import groupby
from typing import Any

from rich.console import Group

from dwsweep import paths, published_law
from dwsweep.fit.answers.guideline import headline
from dwsweep.fit.answers.transitions import size_ratio
from dwsweep.fit.statistics.laws import FORMS
from dwsweep.guide.sources import PUBLIC
from dwsweep.interval import both_ends, layers
from dwsweep.records.answers import AnswerRow
from dwsweep.records.fit import FitResult, OtherFit, Surface, WidthLaw
from dwsweep.records.transitions import CHECKS, Transition
from dwsweep.report import console
from dwsweep.report.adjusted_report import adjusted_parts, at_budget, at_budgets
from dwsweep.report.document import (
    INTERVAL,
    Fold,
    Heading,
    Lines,
    Part,
    TextTable,
    estimate,
    label,
    markdown,
    number,
    shown,
)
from dwsweep.report.figures.style import evenly
from dwsweep.report.guide_report import net, sizes_table
from dwsweep.report.studies_report import along_parts, comparison_parts
from dwsweep.shapes import STANDARD, are_other_blocks
from dwsweep.text import SHORT, arm_letter, format_count, format_rate, join

NAMED_PAIRS = 6
ANSWER_LINES = 5
BUDGETS_SAID = 3  # most budgets in the answer
OWN = "own"  # prefix of a guideline row's law, as PUBLIC is
BUILD = "build: as `dwsweep guide --fit` builds, with the least worst waste over equal size, FLOPs and time on an H100"


FIRST = ("along", "comparison", "budgets", "depths", "transitions")  # sections, of which a brief text has the first


def render(result: FitResult, folder: Any = None) -> Group:
    """Output of ``dwsweep fit --full`` for a terminal; with a ``folder`` the brief one of ``dwsweep fit``."""
    return console.render(document(result, folder))


def _too_early(result: FitResult) -> list[str]:
    """Sentence on a table that cannot answer yet, as a list of one or none."""
    if result.surface and result.surface.has_three_depths:
        return []
    used = [row for row in result.cells if not row.excluded]
    depths, sizes = {row.depth for row in used}, {format_count(row.n_params or 0.0) for row in used}
    counts = (len(used), "shape"), (len(depths), "depth"), (len(sizes), "size")
    shapes, of_depths, of_sizes = (f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts)
    have = f"{shapes} of {of_depths} and {of_sizes}"
    return [f"Too early to ask for a best depth: {have}; it takes seven to nine shapes of three depths."]


def next_step(result: FitResult, folder: Any) -> str:
    """The next command."""
    if result.along_alone:
        return "`dwsweep fit` of the table without --along gives best depths"
    if result.surface is None or not result.surface.has_three_depths:
        return "`dwsweep design --hours 6 --device H100` writes a sweep that answers"
    rows = [row for row in result.surface.bounded if row.depth is not None]
    known = [row.place for row in rows if row.depth_interval.bounded] or [row.place for row in rows]
    if not known or result.axis != "n_params":
        table = shlex.quote(result.provenance.input)
        return f"`dwsweep design {table} --params N` names the runs that narrow a best depth most"
    size = format_count(known[-1])
    return f"`dwsweep guide {size} --fit {shlex.quote(str(folder))}` prices the shapes to build"


def document(result: FitResult, folder: Any = None) -> list[Part]:
    """Document of a fit: the answer, tables and warnings. folder: of a brief one, which ends in the next command."""
    every = sections(result)
    kinds = [anchor.partition("-")[0] for anchor, _, _ in every]
    first = next((kind for kind in FIRST if kind in kinds), "")
    parts: list[Part] = [
        Lines(answer(result)),
        Lines([*account(result), *_taken(result), _noise_line(result)], apart=True),
    ]
    for kind, (_, _, own) in zip(kinds, every, strict=True):
        parts += own if folder is None or kind == first else ()
    if result.warnings:
        parts += [Lines(["Warnings"], apart=True), Lines(result.warnings, listed=True)]
    if folder is not None:
        more = " --full also prints the other tables." if {*kinds} - {first} else ""
        parts.append(Lines([f"Next: {next_step(result, folder)}.{more}"], apart=True))
    return parts


def account(result: FitResult) -> list[str]:
    """Account of the table: rows used and left out, and the meaning assigned to its columns."""
    found = result.provenance.account
    doubt = [note for note in found.notes if note.startswith("THE LOSS")]
    first = "; ".join(filter(None, [found.sentence, found.one_variable, *doubt]))
    return [f"{first}.", *(f"{note}." for note in found.notes if note not in doubt)]


def _taken(result: FitResult) -> list[str]:
    """Lines on the columns found under other names, and on learning rates where shapes were trained at several."""
    names = result.provenance.columns_taken
    lines = [f"Columns taken: {', '.join(names)}."] if names else []
    if result.along_alone or result.adjusted:  # its own table has the rates
        return lines
    tried = {(row.depth, row.width) for row in result.rates}
    best = {row.learning_rate for row in result.cells if not row.excluded and (row.depth, row.width) in tried}
    if known := [rate for rate in best if rate is not None]:
        lines.append(f"Each shape counts at its best learning rate, {both_ends(known, format_rate)}.")
    return lines


def answer(result: FitResult) -> list[str]:
    """The answer in at most five sentences; of a comparison, which was asked for, first."""
    if result.along and result.along_alone:
        return list(result.along.answer[:ANSWER_LINES])
    compared = [one.answer[0] for one in result.comparisons]
    told, budgets = result.provenance.account, result.adjusted.at_budgets if result.adjusted else ()
    lines = [at_budget(row) for row in evenly(budgets, BUDGETS_SAID)]
    if told.one_variable:
        return [*compared, *(lines if any(row.n_params for row in budgets) else ())]
    if early := _too_early(result):
        return [*compared, *early, *filter(None, [_crossings(result)])]
    said = headline(result.surface, result.size_name) if result.surface else ""
    if said and (names := told.following_depth):
        follow = f"{join(names)}, which follow{'' if len(names) > 1 or names[0].endswith('s') else 's'} it here"
        said = f"Whether by depth or by {follow}: {said[0].lower()}{said[1:]}"
    lines.append(said or "Best depth: not known, these losses bound it at no size.")
    lines += [_crossings(result), _shape_matters(result)]
    return [*compared, *[line for line in lines if line][:ANSWER_LINES]]


def _crossings(result: FitResult) -> str:
    """Sentence on the verdict of each pair of depths; of many pairs, only the informative ones."""
    rows = result.verdicts
    told = rows if len(rows) <= NAMED_PAIRS else [row for row in rows if row.status != "undecided"][:NAMED_PAIRS]
    said = [f"{row.shallow}→{row.deep} {'at N = ' if row.n_params else ''}{_place(row)}" for row in told]
    if len(told) < len(rows):
        more = f"{len(rows) - len(told)} more of {len(rows)} pairs in the table"
        said.append(more if told else f"not known of any of {len(rows)} pairs")
    return f"Where the deeper net starts to win: {'; '.join(said)}." if said else ""


def sections(result: FitResult) -> list[tuple[str, str, list[Part]]]:
    """Sections (anchor, title, parts) of a fit's findings, in reading order."""
    found: list[tuple[str, str, list[Part]]] = []
    if result.along:
        said = ANSWER_LINES if result.along_alone else 0
        title = f"Loss along {result.along.column.replace('_', ' ')}"
        found.append(("along", title, along_parts(result.along, said)))
    if result.along_alone:
        return found
    size = result.size_name
    if result.adjusted and result.adjusted.at_budgets:
        found.append(("budgets", "Best net at each budget", at_budgets(result.adjusted)))
    if result.adjusted:
        found.append(("adjusted", "Adjusted for", adjusted_parts(result.adjusted, result.unit)))
    if result.surface and result.surface.optima:
        found.append(("depths", "Best depth at each size", _best_depths(result)))
    told = result.provenance.account
    if result.transitions and not told.one_variable:
        found.append(("transitions", "Transitions", _transitions(result)))
    for other in result.others:
        found.append(("others", f"Beside {other.name}", _other(result, other)))
    for k, one in enumerate(result.comparisons, start=1):
        title = f"Does it change the answer? {one.arm} against {one.base}"
        found.append((f"comparison-{k}", title, comparison_parts(one, arm_letter(k), size)))
    forms = (
        [Lines([_forms(result.surface, "runs" if result.adjusted else "shapes")], indent=2)] if result.surface else []
    )
    found.append(("law", "Width law", [*_law(result), *forms]))
    if any(row.law.startswith((OWN, f"{PUBLIC},")) for row in result.guideline):  # else none rests on these losses
        notes = Lines([f"{BUILD}."], indent=2)
        found.append(("guideline", "Guideline", [guideline(result), notes]))
    return found


def _noise_line(result: FitResult) -> str:
    noise, nats = result.noise, SHORT[result.unit]
    if adjusted := result.adjusted:
        of_run = f"scatter of a run about the surface {adjusted.scatter:.2g} {nats}"
        if adjusted.shared is None:
            return of_run
        return f"{of_run}; losses that differ in tokens alone share {adjusted.shared:.2g} {nats}"
    default = noise.shape_sd if noise.shape_source == "default" else None
    parts = ["noise not known" if noise.source == "none" else f"noise from {noise.source}"]
    if noise.sigma is not None:
        parts.append(f"σ of one run {noise.sigma:.2g} {nats}")
    if noise.tau is not None and default is None:
        parts.append(f"scatter between shapes τ {noise.tau:.2g} {nats}")
    if default:
        parts.append(f"scatter between shapes {default:.2g} {nats} by default (fewer than six sizes per depth)")
    if noise.documents:
        parts.append(f"documents {noise.documents}")
    return "; ".join(parts)


def _transitions(result: FitResult) -> list[Part]:
    level = round(100 * result.transitions[0].confidence)
    title = f"Transitions (where the deeper net overtakes, {level} % intervals)"
    table = TextTable(title, [number("pair"), label("status"), number("N"), INTERVAL, number("width"), INTERVAL])
    for row in result.verdicts:
        cells = [*estimate(row.n_params_interval, format_count), *estimate(row.width_interval, ".0f")]
        table.add(f"{row.shallow}→{row.deep}", _status(row), *cells)
    if not result.provenance.options.paper:
        return [table]
    estimators = [name for name in CHECKS if any(row.estimator == name for row in result.transitions)]
    checks = TextTable("", [number("pair"), *(one for name in estimators for one in (label(name), INTERVAL))])
    for (shallow, deep), rows in groupby(result.transitions, key=lambda row: (row.shallow, row.deep)):
        by = {row.estimator: estimate(row.n_params_interval, format_count, _status(row)) for row in rows}
        checks.add(f"{shallow}→{deep}", *(cell for name in estimators for cell in by.get(name, ["", ""])))
    return [table, Fold("As the paper does it: each pair by its own two curves alone", [checks])]


def _status(row: Transition) -> str:
    """Status of a row, with the reason if undecided."""
    return row.status.replace("_", " ") + (f": {row.cause}" if row.cause else "")


def _other(result: FitResult, other: OtherFit) -> list[Part]:
    """Table of the pairs that both fits have, with the distance of their transitions."""
    shared = [(row, found) for row in result.verdicts if (found := other.crossing(row))]
    if not shared:
        return [Lines([f"Beside {other.name}: no pair of neighbouring depths is in both fits"], apart=True)]
    table = TextTable(
        f"Beside {other.name} ({other.input})",
        [number("pair"), label("here"), label("there"), number("ratio"), INTERVAL],
    )
    for row, found in shared:
        ratio = estimate(size_ratio(row, found), ".2f")
        table.add(f"{row.shallow}→{row.deep}", _place(row), _place(found), *ratio)
    return [table]


def _place(row: Transition) -> str:
    """Crossing of a pair as text, with its interval, or its bound."""
    size = row.n_params_interval
    if size.value:
        return size.format(format_count)
    return _status(row) + ("" if size.unbounded else f" ({size.ends(format_count)})")


def _law(result: FitResult) -> list[Part]:
    """The law of the best depth, its alternatives, and below them the law of the pairs as a check."""
    law, check = result.width_law, Lines(())
    if law is not None or result.pairs_law:
        constants = f"; {_ends_of_constants(result.pairs_law)}" if result.pairs_law else ""
        first = "check by the pairs of depths, each at its shallower depth, half a step of the grid shallower:"
        check = Lines([first, result.law_check + constants], indent=2)
    rivals = []
    for row in (one for one in result.rivals if (one.form != law.form if law else one.bounded)):
        line = FORMS[row.form].sentence(f"{row.a or 0.0:.4g}", f"{row.b or 0.0:.4g}")
        equation = line if row.bounded else "no such line through the best depths"
        rivals.append(f"{row.form}, {row.verdict}: {equation}")
    if law is None:
        published = f"for reference, {published_law.NAME}: ln d_x = {published_law.A} + {published_law.B}·L"
        return [Lines([result.law_statement, published], apart=True), Lines(rivals, indent=2), check]
    span = f"{format_count(law.valid_from)} … {format_count(law.valid_to)}"
    more = [
        _ends_of_constants(law),
        f"its best depths span N = {span}; published: {published_law.A} + {published_law.B}·L",
    ]
    weights = result.nets.layer_weights
    if weights is not None and are_other_blocks(weights, STANDARD):
        more.append(
            f"these widths are of your nets' blocks, {published_law.NAME} is of blocks of {STANDARD:g}·d² weights"
        )
    return [Lines([f"Width law: {result.law_statement}"], apart=True), Lines([*more, *rivals], indent=2), check]


def _ends_of_constants(law: WidthLaw) -> str:
    """Intervals of the constants of a law, to the digits that their Monte-Carlo errors support."""
    a, b = (one.ends(".4g") for one in law.constants)
    return f"a {a}, b {b}"


def guideline(result: FitResult) -> TextTable:
    """Guideline table: best depth and width at each size, and the shape to build by a law."""
    laws = dict.fromkeys(re.split(": (?:refused|no optimum|no best)", row.law)[0] for row in result.guideline)
    build = {"build": lambda row: net(row.depth_int, row.width_int)}
    level = round(100 * result.confidence)
    return sizes_table(f"Guideline, {level} % intervals, {'; '.join(laws)}", result.guideline, build)


def write_guideline(result: FitResult, folder: Any) -> list[str]:
    """Write guideline.md beside guideline.csv if the fit has a guideline; returns its path."""
    if result.along_alone:
        return []
    path = paths.as_path(folder) / "guideline.md"
    title = Heading("Guideline: depth and width at a budget")
    paths.write_atomic(path, markdown([title, guideline(result), Lines(_guideline_notes(result), listed=True)]))
    return [str(path)]


def _guideline_notes(result: FitResult) -> list[str]:
    """Notes under the table of guideline.md."""
    return [
        f"Law: {result.law_statement}.",
        f"N counts non-embedding parameters, {result.nets.layer_weights or STANDARD:.3g}·L·d².",
        f"{BUILD[:1].upper()}{BUILD[1:]}.",
        "Inside the data these losses and public evidence answer together; far outside public evidence alone. "
        "Outside: times beyond the nearest sizes at which public or these losses compare shapes. Beyond 10 times "
        "no best depth can be named; the interval then holds the depths that waste at most 5 % of compute.",
        *(f"Warning: {line}" for line in result.warnings),
    ]


def _best_depths(result: FitResult) -> list[Part]:
    """Table of best depths at a few sizes, by the loss of all depths together; shown first, since it needs no law."""
    assert result.surface
    axis = result.size_name
    level = round(100 * result.surface.confidence)
    title = f"Best depth at each size (minimum of the loss of all depths together, {level} % intervals)"
    if not result.surface.bounded:
        return [Lines([title], apart=True), Lines(["not known: the data bound it at none of their sizes"], indent=2)]
    table = TextTable(title, [number(axis), number("depth"), INTERVAL, number("width")])
    for row in result.answers[: len(result.surface.optima)]:
        depth = row.depth_interval
        # an upper end of one layer only means that one layer is best
        empty = row.is_one_layer and (depth.texts(layers)[2] in (None, "1", "1.0"))
        table.add(
            format_count(row.place),
            depth.texts(layers)[0] or ("not known" if depth.unbounded else row.reason),
            "" if empty else depth.ends(layers),
            shown(row.width, ".0f") if axis == "N" else "",
        )
    return [table]


def _forms(surface: Surface, means: str) -> str:
    """Sentence on the forms over which the best depths average, and on ``means``, shapes or runs, predicted from all
    others."""
    weights = ", ".join(f"{row.form} {100 * row.weight:.0f} %" for row in surface.forms if not row.rejected)
    held = surface.held_out
    inside = f"; {held.inside} of {held.shapes} {means} lie in their 95 % intervals by all others" if held else ""
    return f"Weights of the forms of the effect of depth: {weights}{inside}."


def _shape_matters(result: FitResult) -> str:
    """Sentence on the loss of the worst depth tried against the best, at the smallest and the largest size; empty
    without a shown effect of depth."""
    shown = result.surface.optima if result.surface and not result.surface.flat else ()
    rows = [row for row in shown if row.worst_percent is not None]
    if not rows:
        return ""
    axis = result.size_name

    def said(row: AnswerRow) -> str:
        where = f"{axis} = {format_count(row.place)}"
        assert row.worst_depth is not None and row.worst_percent is not None
        ends = row.worst_percent_interval.ends("{:.2g}".format)
        worst = f"{row.worst_depth:g} layers lose" if row.worst_depth != 1 else "1 layer loses"
        return f"{worst} {row.worst_percent:.2g} % ({ends}) of the loss at {where}"

    both = dict.fromkeys((rows[0], rows[-1]))
    return f"Shape matters: of the depths tried, {', '.join(map(said, both))}."
