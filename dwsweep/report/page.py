"""``dwsweep report DIR``: one self-contained page with the answer, the figures, the tables and where they come from;
and what its script looks up."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from threadpoolctl import threadpool_limits

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.fit.guideline import headline, joint_crossings
from dwsweep.guide import Source, answer, source_of
from dwsweep.guide.answers import CONSTRAINTS, SPOKEN, Answer
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult
from dwsweep.records.record import to_dict
from dwsweep.records.run import FINAL
from dwsweep.records.transitions import DepthCurve, references
from dwsweep.report import guide_report, page_along, page_budgets, page_comparison, page_tables, page_words
from dwsweep.report.figures import registry, style
from dwsweep.report.figures import runs as run_figures
from dwsweep.report.figures.losses import AXIS_LABELS
from dwsweep.report.figures.runs import Conditions, TrainingCurve
from dwsweep.report.html import (
    Section,
    box,
    bullets,
    definitions,
    details,
    page,
    paragraph,
    picture,
    placeholder,
    preformatted,
)
from dwsweep.report.page_tables import RUN_COLUMNS
from dwsweep.report.terminal import Folded
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import KeptPromise, kept_promises, sentence
from dwsweep.text import format_count

LEAST, MOST = 1e3, 1e12  # sizes; guide takes no smaller one of a fit
BELOW = 2.0  # times below the smallest net, where the list begins
# sizes of a decade: the first of these lists that asks for no more than so many answers
DECADES = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
# by one's own losses an answer takes 0.3 s of a CPU, by a law 0.1 s: a page is to take three seconds for them
MOST_BY_LOSSES, MOST_BY_LAW = 12, 24


def guide_answers(fit: FitResult, source: Source, file: Any, directory: Any) -> dict[str, Any]:
    """What the page's box looks up. ``file``: the fit.json that ``source`` was made from; ``directory``: what a reader
    passes to ``--fit``.

    blocks: every line and table once. answers: of each constraint and size, the numbers of its blocks.
    """
    asked = sizes(fit, source)
    found = _answered(asked, source, file)
    pool: dict[str, int] = {}
    answers = {
        at: [[pool.setdefault(json.dumps(one), len(pool)) for one in blocks(under(found[n], at))] for n in asked]
        for at in CONSTRAINTS
    }
    largest = max(_trained(fit))
    return {
        "constraints": [[at, SPOKEN[at]] for at in CONSTRAINTS],
        "sizes": [{"n": n, "label": format_count(n)} for n in asked],
        "start": min(range(len(asked)), key=lambda k: abs(math.log(asked[k] / largest))),
        "answers": answers,
        "blocks": [json.loads(one) for one in pool],
        "command": ["dwsweep guide --params ", " --at ", f" --fit {shlex.quote(str(directory))}"],
    }


def sizes(fit: FitResult, source: Source) -> list[float]:
    """Round sizes from a bit below the nets of the fit to ``MOST``, less those that guide refuses; but the refused one
    next to an answer is kept at either end, since it says where answers end."""
    low = max(LEAST, min(_trained(fit)) / BELOW)
    listed: list[float] = []
    for digits in DECADES:
        decades = range(math.floor(math.log10(low)), round(math.log10(MOST)) + 1)
        every = [float(f"{digit}e{power}") for power in decades for digit in digits]
        every = [n for n in every if low <= n <= MOST]
        guides = [source.at(n) for n in every]
        spoken = [k for k, n in enumerate(every) if not guides[k].refuses(n)]
        listed = every[max(0, spoken[0] - 1) : spoken[-1] + 2] if spoken else every[:1]
        if len(spoken) <= MOST_BY_LAW and sum(guides[k].surface is not None for k in spoken) <= MOST_BY_LOSSES:
            break
    return listed


def _trained(fit: FitResult) -> list[float]:
    """Sizes of the nets that were fitted; that of the law where there are none."""
    return [cell.n_params for cell in fit.cells if not cell.excluded] or [cell.n_params for cell in fit.cells] or [1e6]


def _answered(asked: Sequence[float], source: Source, file: Any) -> dict[float, Answer]:
    """The answer of each size as if it had been asked alone. Sizes that one source guides are asked together, which
    reads the fit once for all of them."""
    found: dict[float, Answer] = {}
    for own in (True, False):
        group = [n for n in asked if (source.at(n).surface is not None) == own]
        if group:
            whole = answer(group, fit=file)
            found |= {n: replace(whole, budgets=(row,)) for n, row in zip(group, whole.budgets, strict=True)}
    return found


def under(found: Answer, at: str) -> Answer:
    """The answer under another constraint: what is compared and what it costs is the same under all of them."""
    return replace(found, budgets=tuple(replace(row, at=at) for row in found.budgets))


def blocks(found: Answer) -> list[dict[str, Any]]:
    """The lines and tables that the terminal prints, as parts of a page: ``{"line": [[text, bold], …], "soft"}`` or
    ``{"head", "rows", "chosen"}``."""
    return list(_blocks(guide_report.render(found).renderables))


def _blocks(parts: Sequence[RenderableType]) -> Iterator[dict[str, Any]]:
    for part in parts:
        inner = part.renderable if isinstance(part, Padding) else part
        if isinstance(inner, Folded):
            yield _answer_table(inner.table)
        elif isinstance(inner, Text) and inner.plain:
            yield {"line": _spans(inner), "soft": inner.style == "dim"}


def _spans(said: Text) -> list[list[Any]]:
    """[[text, whether it is bold], …]"""
    bold = [span for span in said.spans if span.style == "bold"]
    whole = said.style == "bold"
    stops = sorted({0, len(said), *(span.start for span in bold), *(span.end for span in bold)})
    return [
        [said.plain[start:stop], whole or any(span.start <= start and stop <= span.end for span in bold)]
        for start, stop in itertools.pairwise(stops)
    ]


def _answer_table(table: Table) -> dict[str, Any]:
    columns = [[str(cell).strip() for cell in column.cells] for column in table.columns]
    return {
        "head": [str(column.header).strip() for column in table.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "chosen": [k for k, row in enumerate(table.rows) if row.style == "bold"],
    }


# columns of results.csv by what the script calls them
NUMBERS = {
    "depth": "depth",
    "width": "width",
    "seed": "seed",
    "learning_rate": "learning_rate",
    "n_params": "n",
    "n_params_total": "total",
    "flops": "flops",
    "device_seconds": "seconds",
    "tokens": "tokens",
    "loss": "loss",
    "loss_stderr": "stderr",
    "bits_per_byte": "bits",
}
WORDS = {"run_id": "id", "status": "status"}
DIGITS = 7
HALF_TURN = ((-0.574, 1.430, 0.144), (0.426, 0.430, 0.144), (0.426, 1.430, -0.856))  # hue-rotate(180deg)


def collected(
    fit: FitResult,
    runs: Sequence[Mapping[str, str]],
    curves: Sequence[TrainingCurve],
    source: Source | None,
    file: Any,
    directory: Any,
) -> dict[str, Any]:
    """All of it. ``runs``: rows of results.csv in the order of the page's table of runs; ``source``: what guides, made
    from the fit.json ``file``; None: a page without answers. ``directory``: what holds the fit, for a reader."""
    guide = None
    if source is not None:
        # small matrices: more threads only wait for each other
        with threadpool_limits(1, user_api="blas"):
            guide = guide_answers(fit, source, file, directory)
    return {"guide": guide, "losses": _losses(fit, runs), "training": _training(curves)}


def _losses(fit: FitResult, runs: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    by_depth = {curve.depth: curve for curve in fit.curves.depths}
    depths = sorted({*by_depth, *(int(float(row["depth"])) for row in runs)})
    looks = style.depth_styles(depths)
    level = fit.curves.confidence
    # where every shape was trained to one value of the axis, the losses stand over their size
    over_size = fit.equal_budgets is not None and fit.equal_budgets.only
    axis = "n_params" if over_size else fit.curves.axis
    return {
        "axis_label": AXIS_LABELS.get(axis, fit.curves.axis_label),
        "level": f"{100 * level:.0f} %",
        "columns": [{**NUMBERS, **WORDS}[name] for name, _ in RUN_COLUMNS.values()],
        "depths": [
            {
                "depth": depth,
                "on_light": looks[depth]["color"],
                "on_dark": on_dark(looks[depth]["color"]),
                "curve": _curve(by_depth[depth], level) if depth in by_depth else None,
            }
            for depth in depths
        ],
        "cells": [
            {
                "depth": cell.depth,
                "width": cell.width,
                "fitted": cell.n_params if over_size else cell.axis_value,
                "loss": cell.mean,
                "half": None if cell.se is None else float(style.half_band([cell.se], level)[0]),
            }
            for cell in fit.cells
            if not cell.excluded
        ],
        "runs": [_run(row, axis) for row in runs],
    }


def on_dark(colour: str) -> str:
    """A colour as the style sheet turns the figures over in the dark: invert(0.92) hue-rotate(180deg) brightness(1.25),
    by the matrices of the W3C's Filter Effects, so that a depth has one colour in all drawings of a theme."""
    inverted = [0.92 - 0.84 * int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    turned = [sum(a * b for a, b in zip(row, inverted, strict=True)) for row in HALF_TURN]
    return "#" + "".join(f"{round(255 * min(max(1.25 * value, 0.0), 1.0)):02x}" for value in turned)


def _run(row: Mapping[str, str], axis: str) -> dict[str, Any]:
    values: dict[str, Any] = {name: row.get(column) or None for column, name in WORDS.items()}
    values |= {name: _number(row.get(column)) for column, name in NUMBERS.items()}
    # what a run that is not finished has lost is no loss of its shape
    if values["status"] not in (None, "done"):
        values["loss"] = None
    return {**values, "fitted": _number(row.get(axis))}


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "nan")
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _curve(curve: DepthCurve, level: float) -> dict[str, Any] | None:
    """The loss of a depth along its sizes, with half its interval."""
    smooth = curve.smooth
    if smooth is None:
        return None
    half = None if smooth.se is None else style.half_band(smooth.se, level)
    return {"x": _short(smooth.x), "mean": _short(smooth.mean), "half": None if half is None else _short(half)}


def _training(curves: Sequence[TrainingCurve]) -> dict[str, Any]:
    """{run: [which steps, losses]}; runs that were logged alike share their steps."""
    steps: dict[tuple[float | None, ...], int] = {}
    found = {}
    for curve in curves:
        at = tuple(_short(curve.step, 4))
        found[curve.run_id] = [steps.setdefault(at, len(steps)), _short(curve.loss, 5)]
    return {"steps": [list(at) for at in steps], "curves": found}


def _short(values: Any, digits: int = DIGITS) -> list[float | None]:
    """With so many significant digits; None for what is not finite."""
    numbers = style.floats(values)
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in numbers]


HOW_TO_READ = (
    "Size N counts non-embedding parameters: 12·L·d² for the standard block, with L the depth and d the width. Losses "
    "are held-out nats per token.",
    "A transition is the size at which the deeper of two neighbouring depths starts to win. Its status is crossed, not "
    "reached (only the shallower net is ever significantly ahead), already crossed (only the deeper), undecided "
    "(neither) or ambiguous. A size is given only for crossed pairs; the others give a bound or nothing.",
    "Intervals are sets of sizes at which the two nets cannot be told apart, so they may be lopsided or open at an "
    "end. The estimator pchip is the reference; surface (all depths together), power and levine stand by it, the last "
    "two with known biases, and pchip>0.001 is where the deeper net is ahead by more than 0.001 nats.",
    "The width law gives the width at which depth L stops being the better one. It is a statement about this model "
    "family, data, recipe and spacing of depths; the range of its transitions is its evidence, the rest extrapolates.",
    "At a transition the two depths tie, so the best depth at that size lies between them; the surface says where.",
)
WITHOUT_BUDGET = (
    "With scripts allowed, this page shows its answers here; `dwsweep guide --params N --fit DIR` says the same."
)
WITHOUT_CHART = "With scripts allowed, a chart of every run stands here; the figures below show the same losses."


def write(directory: str | PathLike[str]) -> Any:
    """Write ``report.html`` into a sweep directory that ``dwsweep fit`` has been run on, or into the folder that it
    wrote for a table; returns its path. Of a table there are no runs to show, only their cells.

    Raises:
        InputError: there is no such directory, or no fit in it.
    """
    root = paths.as_path(directory)
    if not root.is_dir():
        raise InputError(f"DIR: {root}; must be an existing sweep directory, or the folder of a table's fit")
    folder = next((place for place in (root / "fit", root) if (place / "fit.json").exists()), None)
    if folder is None:
        raise InputError(f"DIR: {root}; it has no fit/fit.json nor fit.json, run `dwsweep fit {root}` first")
    if folder == root and (root.parent / "results.csv").exists():  # the fit of a sweep: the page is that of the sweep
        root = root.parent
    file = folder / "fit.json"
    fit = fit_record.read(file, "DIR")
    every = _read_csv(root / "results.csv")
    runs = every if fit.along_only else page_comparison.of_the_fit(every, fit)
    curves, conditions = _logged(every, runs, root)
    store = SweepStore(root)
    manifest = to_dict(store.manifest)
    # a shape that was trained at several budgets is a cell at each of them
    axis = fit.equal_budgets.axis if fit.equal_budgets and fit.equal_budgets.only else ""
    sections = [
        Section("answer", "The answer", _answer(fit)),
        *page_along.sections(fit),
        *page_comparison.sections(fit),
        Section("budget", "Your budget", placeholder("answers-box", WITHOUT_BUDGET)),
        Section("warnings", "Warnings", _warnings([*_stale(every, root, folder), *fit.warnings])),
        Section("losses", "Losses, run by run", placeholder("losses-chart", WITHOUT_CHART)),
        Section("figures", "Figures", _figures(fit, folder)),
        Section("transitions", "Transitions", _transitions(fit)),
        Section("guideline", "Guideline", _guideline(fit)),
        Section(
            "runs",
            "Runs",
            page_tables.all_runs(runs)
            if fit.along_only
            else page_tables.runs(runs)
            + details("Cells: the mean of each shape", page_tables.cells(fit.cells, axis))
            + page_comparison.other_runs(every, runs),
        ),
        *promises(kept_promises(store, (row["run_id"] for row in runs if row.get("run_id")))),
        Section("training", "Training curves", _training_figure(curves)),
        *_conditioning(conditions),
        Section("provenance", "Provenance", _provenance(fit, runs, manifest, root)),
        Section("reading", "How to read it", bullets(HOW_TO_READ)),
    ]
    title = f"{_name(root)}: how deep and how wide"
    depths = sorted({cell.depth for cell in fit.cells if not cell.excluded})
    used = fit.provenance.rows_used
    subtitle = f"Depths {', '.join(map(str, depths)) or 'none'}; {len(fit['cells'])} shapes; {used} runs used."
    if fit.along_only and fit.along:
        sections = [section for section in sections if section.anchor not in page_along.LEFT_OUT]
        title, subtitle = f"{_name(root)}: loss along {fit.along.column}", f"{used} runs used."
    path = root / "report.html"
    source = source_of(fit, file) if any(section.anchor == "budget" for section in sections) else None
    script_data = collected(fit, page_tables.ordered(runs), curves, source, file, root)
    paths.write_atomic(path, page(title, subtitle, sections, script_data))
    return path


def _name(root: Any) -> str:
    """The sweep's name, from its spec; the directory's where there is none."""
    import yaml

    try:
        spec = yaml.safe_load((root / "spec.yaml").read_text("utf-8"))
        return str(spec["name"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return str(root.name)


def _read_csv(path: Any) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
    except FileNotFoundError:
        return []


def _answer(fit: FitResult) -> str:
    if fit.equal_budgets and fit.equal_budgets.only:
        body = f"<h3>Best depth at equal {html.escape(fit.equal_budgets.axis)}</h3>"
        return box("answer", body + bullets([*page_budgets.best_shapes(fit.equal_budgets), *page_words.law(fit)]))
    pairs = [page_words.transition(row, fit.curves.axis) for row in references(fit.transitions)]
    joint = joint_crossings(fit.transitions)
    pairs += [f"{joint[:1].upper()}{joint[1:]}."] if joint else []
    said = headline(fit.surface, fit.curves.size_name) if fit.surface else ""
    body = paragraph(said, "headline") if said else ""
    body += "<h3>Best depth at each size</h3>" + bullets(page_words.best_depths(fit))
    body += "<h3>Where the deeper net starts to win</h3>" + (
        bullets(pairs) if pairs else paragraph("Fewer than two depths: there is no pair to compare.")
    )
    body += "<h3>Width law</h3>" + bullets(page_words.law(fit))
    whose = "this sweep's own losses" if fit.guideline_law else "the published law"
    body += f"<h3>How deep and how wide, by {whose}</h3>" + bullets(page_words.guideline(fit.guideline))
    return box("answer", body)


def _warnings(lines: Sequence[str]) -> str:
    return box("warnings", bullets(lines)) if lines else paragraph("None.")


def _stale(runs: Sequence[Mapping[str, str]], root: Any, folder: Any) -> list[str]:
    """What is missing from the sweep, or has changed since the fit."""
    lines = []
    states = Counter(row.get("status") or "unknown" for row in runs)
    missing = sum(number for state, number in states.items() if state not in FINAL)
    if missing:
        found = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        lines.append(f"unfinished: {missing} of {len(runs)} runs have no result ({found})")
    if runs and not _newer(folder / "fit.json", root / "results.csv"):
        lines.append("stale: results.csv is newer than the fit; run `dwsweep fit` again")
    return lines


def _figures(fit: FitResult, folder: Any) -> str:
    """The figures; those that ``dwsweep fit`` drew, unless fit.json is newer."""
    drawings = registry.drawings(fit)
    pictures = [folder / f"{drawing.name}.svg" for drawing in drawings]
    if not all(_newer(path, folder / "fit.json") for path in pictures):
        registry.draw(fit, folder)
    return "".join(
        picture(path.read_bytes(), drawing.title, drawing.caption)
        for path, drawing in zip(pictures, drawings, strict=True)
    )


def _newer(path: Any, than: Any) -> bool:
    """False also where the file system has no times to compare."""
    try:
        return bool(path.stat().st_mtime >= than.stat().st_mtime)
    except (OSError, AttributeError):
        return False


def _transitions(fit: FitResult) -> str:
    rows, budgets = fit.transitions, fit.equal_budgets
    at_budgets = ("<h3>Best size of each depth</h3>" + page_budgets.depths(budgets)) if budgets else ""
    if not rows:
        none = fit.law_statement.capitalize() if budgets and budgets.only else "Fewer than two depths: no pair"
        return paragraph(f"{none}.") + at_budgets
    reference = references(rows)
    body = page_tables.transitions(reference)
    if len(rows) > len(reference):
        body += details("With the thresholds and the other estimators", page_tables.transitions(rows))
    if fit.by_tokens:
        by_tokens = [row for row in fit.by_tokens if row.is_reference]
        body += "<h3>Against training tokens</h3>" + page_tables.transitions(by_tokens)
    for other in fit.others:
        body += f"<h3>Of {html.escape(other.name)}, for comparison</h3>" + page_tables.transitions(other.transitions)
    return body + at_budgets


def _guideline(fit: FitResult) -> str:
    body = page_tables.guideline(fit.guideline)
    body += "<h3>The forms of law compared</h3>" + page_tables.rivals(fit.rivals)
    if not fit.guideline_law:
        why = "this sweep shows no best depth that carries beyond its sizes"
        if fit.equal_budgets and fit.equal_budgets.only:
            why = f"this sweep's own answer is not by size but by {fit.equal_budgets.axis}, above"
        body = paragraph(f"These rows follow the published law, since {why}.") + body
    return body


def promises(kept: Sequence[KeptPromise]) -> list[Section]:
    """Of a sweep whose runs are as long as ``train.seconds`` allow."""
    if not kept:
        return []
    return [Section("time", "Promised and measured time", paragraph(f"{sentence(kept)}.") + page_tables.promises(kept))]


def _logged(
    every: Sequence[Mapping[str, str]], shown: Sequence[Mapping[str, str]], root: Any
) -> tuple[list[TrainingCurve], list[Conditions]]:
    """The training curves of the runs ``shown``, and the conditioning that any run of ``every`` logged; each log is
    read once."""
    curves, conditions = [], []
    drawn = {row.get("run_id") for row in shown}
    for row in every:
        run_id = row.get("run_id")
        if not run_id:
            continue
        rows = list(paths.read_lines(root / "runs" / run_id / "metrics.jsonl"))
        if found := run_figures.conditions(row, rows):
            conditions.append(found)
        if run_id not in drawn:
            continue
        diverged = row.get("status") == "diverged"
        curve = run_figures.training_curve(run_id, int(float(row["depth"])), float(row["n_params"]), diverged, rows)
        if curve is not None:
            curves.append(curve)
    return curves, conditions


def _conditioning(runs: Sequence[Conditions]) -> list[Section]:
    """Of a sweep whose runs logged it; of all its arms."""
    if not runs:
        return []
    with style.styled():
        drawn = style.render(run_figures.over_training(runs), "svg")
    caption = (
        "Condition number of what a block's heads put out, side by side, over the positions of a window: the ratio of "
        "its largest to its smallest singular value (geometric mean over held-out windows, layers and runs). Of each "
        "depth and number of heads the largest size; narrower nets have fewer columns, so compare at one width."
    )
    return [
        Section("conditioning", "Conditioning of attention", picture(drawn, "Condition number of attention", caption))
    ]


def _training_figure(curves: Sequence[TrainingCurve]) -> str:
    if not curves:
        return paragraph("No run has logged a training loss: nothing to draw.", "soft")
    with style.styled():
        drawn = style.render(run_figures.training_curves(curves), "svg")
    caption = "One thin line per run, averaged over bins of ln step; lighter is larger. Dashed with a cross: diverged."
    return picture(drawn, "Training loss against step, one panel per depth", caption)


def _provenance(fit: FitResult, runs: Sequence[Mapping[str, str]], manifest: Mapping[str, Any], root: Any) -> str:
    """What the numbers were made with: of the runs, of the fit, of each call."""

    def distinct(name: str) -> str:
        values = sorted({row[name] for row in runs if row.get(name)}, key=lambda value: (len(value), value))
        return ", ".join(values) if len(values) <= 12 else f"{', '.join(values[:12])} and {len(values) - 12} more"

    names = (
        *("seed", "tokens", "steps", "batch_size", "seq_len", "vocab_size", "parametrization", "optimizer"),
        *("schedule", "precision", "attention_kernel", "device_kind", "data_hash"),
    )
    found = {name.replace("_", " "): distinct(name) for name in names}
    body = "<h3>Runs</h3>" + definitions({key: value for key, value in found.items() if value})
    if any(manifest.values()):
        body += "<h3>Sweep</h3>" + definitions(flat({k: v for k, v in manifest.items() if k not in ("calls", "rates")}))
        calls = manifest.get("calls") or []
        if calls:
            body += "<h3>Last call</h3>" + definitions(flat(calls[-1]))
    body += "<h3>Fit</h3>" + definitions(flat({**fit.provenance.to_dict(), "noise": fit.noise.to_dict()}))
    try:
        spec = (root / "spec.yaml").read_text("utf-8")
    except OSError:
        return body
    return body + details("The spec", preformatted(spec))


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested mappings as dotted keys; what is empty is left out."""
    out: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            out |= flat(item, f"{prefix}{key}.")
        elif item not in (None, "", [], ()):
            out[f"{prefix}{key}"] = " ".join(map(str, item)) if isinstance(item, (list, tuple)) else str(item)
    return out
