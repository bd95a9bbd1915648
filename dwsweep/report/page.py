"""``dwsweep report DIR``: one self-contained page with the answer, the figures, the tables and where they come from;
and what its script looks up."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from threadpoolctl import threadpool_limits

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.guide import Source, answer, source_of
from dwsweep.guide.answers import CONSTRAINTS, SPOKEN, Answer
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult
from dwsweep.records.record import to_dict
from dwsweep.records.run import FINAL
from dwsweep.records.transitions import Cell, DepthCurve
from dwsweep.report import fit_report, guide_report
from dwsweep.report.document import Figure, Heading, Lines, Part, Table
from dwsweep.report.figures import registry, style
from dwsweep.report.figures import runs as run_figures
from dwsweep.report.figures.losses import AXIS_LABELS
from dwsweep.report.figures.runs import Conditions, TrainingCurve
from dwsweep.report.figures.style import plain
from dwsweep.report.html import (
    Section,
    body,
    box,
    bullets,
    definitions,
    details,
    page,
    paragraph,
    picture,
    placeholder,
    preformatted,
    table,
)
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import PlannedTime, planned_vs_measured, sentence
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
    made: list[dict[str, Any]] = []
    for part in guide_report.document(found):
        match part:
            case Heading():
                spans = [[text, bold] for text, bold in ((part.text, True), (part.more, False)) if text]
                made.append({"line": spans, "soft": False})
            case Lines():
                for line in part.lines:
                    said = [line] if isinstance(line, str) else line
                    spans = [[one, False] if isinstance(one, str) else [one[0], True] for one in said]
                    made.append({"line": spans, "soft": part.soft})
            case Table() if part.rows:
                rows = [[cell.strip() for cell in row] for row in part.rows]
                made.append(
                    {"head": [name.strip() for name in part.heads], "rows": rows, "chosen": sorted(part.strong)}
                )
    return made


Row = Mapping[str, Any]
Columns = Mapping[str, tuple[str, Callable[[Any], str]]]  # heading → key of the row, form


def show(value: Any, form: Callable[[Any], str] = str) -> str:
    """A cell: – for what is not there, otherwise ``form`` of it."""
    if value is None or value == "":
        return "–"
    try:
        return form(value)
    except (TypeError, ValueError):
        return str(value)


def number(digits: int) -> Callable[[Any], str]:
    """Fixed digits after the point."""
    return lambda value: f"{float(value):,.{digits}f}".replace("-", "−")


def significant(digits: int) -> Callable[[Any], str]:
    return lambda value: f"{float(value):.{digits}g}"


def whole(value: Any) -> str:
    return f"{float(value):,.0f}"


def short(value: Any) -> str:
    return format_count(float(value))


def spread(values: Sequence[Any], form: Callable[[Any], str]) -> str:
    """``5`` or ``5 … 9`` for several values; – for none."""
    known = sorted({float(value) for value in values if value not in (None, "")})
    if not known:
        return "–"
    return form(known[0]) if len(known) == 1 else f"{form(known[0])} … {form(known[-1])}"


def promised_times(kept: Sequence[PlannedTime]) -> str:
    """One row per shape: the device-seconds that a run of it was promised, and those that its runs took."""
    body = [
        [
            str(one.depth),
            str(one.width),
            whole(one.steps),
            f"{one.time_basis}, {one.device}",
            significant(4)(one.promised),
            spread(one.measured, significant(4)),
            number(2)(one.ratio),
            ", ".join(one.devices),
        ]
        for one in kept
    ]
    headings = ("L", "d", "steps", "rate", "promised, s", "measured, s", "ratio", "trained on")
    return table(headings, body, left=("rate", "trained on"))


def runs(rows: Sequence[Row]) -> str:
    """One row per shape, with its runs folded; all runs one by one behind a fold."""
    if not rows:
        return paragraph("results.csv is not there or empty: no table of runs.", "soft")
    shapes: dict[tuple[float, float], list[Row]] = defaultdict(list)
    for row in rows:
        shapes[float(row["depth"]), float(row["width"])].append(row)
    body = []
    for (depth, width), group in sorted(shapes.items()):
        done = [row for row in group if row.get("status") == "done" and row.get("loss")]
        states = Counter(str(row.get("status") or "unknown") for row in group)
        body.append(
            [
                plain(depth),
                plain(width),
                spread([row.get("n_params") for row in group], short),
                str(len({row.get("seed") for row in group})),
                spread([row.get("learning_rate") for row in group], significant(3)),
                spread([row.get("tokens") for row in group], short),
                spread([row.get("loss") for row in done], number(4)),
                ", ".join(
                    f"{n} {state}" for state, n in sorted(states.items(), key=lambda item: (item[0] != "done", item[0]))
                ),
                spread([row.get("tokens_per_second") for row in done], short),
                whole(sum(float(row.get("wall_seconds") or 0.0) for row in done)) if done else "–",
            ]
        )
    columns = ["depth", "width", "N", "seeds", "learning rate", "tokens", "loss", "status", "tokens/s", "seconds (sum)"]
    return table(columns, body, left=["status"]) + details(f"All {len(rows)} runs", all_runs(rows), "all-runs")


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The runs as the table of all runs has them."""
    return sorted(rows, key=lambda row: (float(row["depth"]), float(row["width"]), str(row.get("seed"))))


def all_runs(rows: Sequence[Row]) -> str:
    body = [[show(row.get(name), form) for name, form in RUN_COLUMNS.values()] for row in ordered(rows)]
    return table(list(RUN_COLUMNS), body, left=["run", "status"])


def plain_text(value: Any) -> str:
    return plain(float(value))


RUN_COLUMNS: Columns = {
    "run": ("run_id", str),
    "depth": ("depth", plain_text),
    "width": ("width", plain_text),
    "seed": ("seed", str),
    "learning rate": ("learning_rate", significant(3)),
    "N": ("n_params", short),
    "tokens": ("tokens", short),
    "loss": ("loss", number(5)),
    "± (documents)": ("loss_stderr", number(5)),
    "bits/byte": ("bits_per_byte", number(4)),
    "status": ("status", str),
}


def cells(rows: Sequence[Cell], axis: str = "") -> str:
    """axis: of ``axis_value``, where cells are told by it too."""
    columns: Columns = {
        **({axis: ("axis_value", short)} if axis else {}),
        "depth": ("depth", plain_text),
        "width": ("width", plain_text),
        "N": ("n_params", short),
        "mean loss": ("mean", number(5)),
        "± se": ("se", number(5)),
        "runs": ("n", str),
        "learning rate": ("learning_rate", significant(3)),
        "used": ("excluded", lambda excluded: "no" if excluded else "yes"),
        "remark": ("reason", str),
    }
    body = [[show(getattr(row, name), form) for name, form in columns.values()] for row in rows]
    return table(list(columns), body, left=["used"], long=["remark"])


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
    "are held-out, in nats per token where no other unit stands beside them.",
    "A transition is the size at which the deeper of two neighbouring depths starts to win. The verdict on a pair is "
    "the crossing of the losses of all depths together, where there is one, else what its own two curves say: crossed, "
    "not reached (only the shallower net is ever significantly ahead), already crossed (only the deeper), undecided "
    "(neither) or ambiguous. The checks are the pair's own two curves and levine (biased to larger widths).",
    "Intervals are sets of sizes at which the two nets cannot be told apart: they may be lopsided or open at an end.",
    "The width law gives the width at which depth L stops being the better one. It is a statement about this model "
    "family, data, recipe and spacing of depths; the range of its transitions is its evidence, the rest extrapolates. "
    "A pair of depths belongs to its shallower one; the best depth itself comes from the loss of all depths together.",
)
WITHOUT_BUDGET = (
    "With scripts allowed, this page shows its answers here; `dwsweep guide --params N --fit DIR` says the same."
)
WITHOUT_CHART = "With scripts allowed, a chart of every run stands here; the figures below show the same losses."


def write(directory: str | PathLike[str], out: Any = None) -> Any:
    """Write the page of a sweep directory, or of the folder that ``dwsweep fit`` wrote for a table; returns its path.

    A table has no runs to show, only cells; a sweep that is not fitted has runs and no answer.

    Args:
        out: the file; ``report.html`` in the directory by default.

    Raises:
        InputError: there is no such directory, or neither a fit nor results in it.
    """
    root = paths.as_path(directory)
    if not root.is_dir():
        raise InputError(f"DIR: {root}; must be an existing sweep directory, or the folder of a table's fit")
    folder = next((place for place in (root / "fit", root) if (place / "fit.json").exists()), None)
    if folder is None and (every := _read_csv(root / "results.csv")):
        return _write_page(out or root / "report.html", *_unfitted(root, every))
    if folder is None:
        raise InputError(f"DIR: {root}; it has no fit/fit.json nor fit.json, run `dwsweep fit {root}` first")
    if folder == root and (root.parent / "results.csv").exists():  # the fit of a sweep: the page is that of the sweep
        root = root.parent
    file = folder / "fit.json"
    fit = fit_record.read(file, "DIR")
    every = _read_csv(root / "results.csv")
    shown = every if fit.along_only else of_the_fit(every, fit)
    curves, conditions = _logged(every, shown, root)
    store = SweepStore(root)
    figures = _figures(fit, folder)
    stale = _stale(fit, root / "results.csv")
    # a shape that was trained at several budgets is a cell at each of them
    axis = fit.equal_budgets.axis if fit.equal_budgets and fit.equal_budgets.only else ""
    warned = [*_unfinished(every), *stale, *fit.warnings]
    cells_fold = details("Cells: the mean of each shape", cells(fit.cells, axis))
    run_tables = all_runs(shown) if fit.along_only else runs(shown) + cells_fold + other_runs(every, shown)
    sections = [
        Section("answer", "The answer", box("answer", body([Lines(fit_report.answer(fit))])) + body(figures[:1])),
        Section("budget", "Your budget", "" if fit.along_only else placeholder("answers-box", WITHOUT_BUDGET)),
        Section("warnings", "Warnings", box("warnings", bullets(warned)) if warned else ""),
        *(Section(anchor, title, body(parts)) for anchor, title, parts in fit_report.sections(fit)),
        Section("losses", "Losses, run by run", "" if fit.along_only else placeholder("losses-chart", WITHOUT_CHART)),
        Section("figures", "Figures", body(figures[1:])),
        Section("runs", "Runs", run_tables),
        *promises(planned_vs_measured(store, (row["run_id"] for row in shown if row.get("run_id")))),
        Section("training", "Training curves", _training_figure(curves)),
        Section("conditioning", "Conditioning of attention", _conditioning(conditions)),
        Section("reading", "How to read it", bullets(HOW_TO_READ)),
        Section(
            "provenance", "Provenance", details("What the numbers were made with", _provenance(fit, shown, store, root))
        ),
    ]
    sections = [section for section in sections if section.body]
    title = f"{_name(root)}: how deep and how wide"
    depths = sorted({cell.depth for cell in fit.cells if not cell.excluded})
    used = fit.provenance.rows_used
    subtitle = f"Depths {', '.join(map(str, depths)) or 'none'}; {len(fit['cells'])} shapes; {used} runs used."
    if fit.along_only and fit.along:
        title, subtitle = f"{_name(root)}: loss along {fit.along.column}", f"{used} runs used."
    source = None if fit.along_only else source_of(fit, file)
    data = collected(fit, ordered(shown), curves, source, file, root)
    return _write_page(out or root / "report.html", title, subtitle, sections, data)


def _write_page(path: Any, *content: Any) -> Any:
    path = paths.as_path(path)
    paths.make_directory(path.parent)
    paths.write_atomic(path, page(*content))
    return path


def _unfitted(root: Any, every: Sequence[dict[str, str]]) -> tuple[str, str, list[Section]]:
    """Title, subtitle and sections of a sweep without a fit: what was trained and how."""
    curves, conditions = _logged(every, every, root)
    store = SweepStore(root)
    unfitted = f"Not fitted yet: dwsweep fit {root}"
    warned = _unfinished(every)
    sections = [
        Section("answer", "The answer", box("answer", paragraph(html.escape(unfitted), "headline"))),
        Section("warnings", "Warnings", box("warnings", bullets(warned)) if warned else ""),
        Section("runs", "Runs", runs(every)),
        *promises(planned_vs_measured(store, (row["run_id"] for row in every if row.get("run_id")))),
        Section("training", "Training curves", _training_figure(curves)),
        Section("conditioning", "Conditioning of attention", _conditioning(conditions)),
        Section(
            "provenance",
            "Provenance",
            details("What the numbers were made with", _provenance(None, every, store, root)),
        ),
    ]
    sections = [section for section in sections if section.body]
    return f"{_name(root)}: how deep and how wide", f"{len(every)} runs, not fitted.", sections


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


def _unfinished(runs: Sequence[Mapping[str, str]]) -> list[str]:
    states = Counter(row.get("status") or "unknown" for row in runs)
    missing = sum(number for state, number in states.items() if state not in FINAL)
    found = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return [f"unfinished: {missing} of {len(runs)} runs have no result ({found})"] if missing else []


def _stale(fit: FitResult, results: Any) -> list[str]:
    """Whether the table of results is another than the fit read."""
    try:
        same = hashlib.sha256(results.read_bytes()).hexdigest() == fit.provenance.input_sha256
    except FileNotFoundError:
        return []
    return [] if same else ["stale: results.csv is not the one that was fitted; run `dwsweep fit` again"]


def _figures(fit: FitResult, folder: Any) -> list[Part]:
    """The figures; those that ``dwsweep fit`` drew, unless fit.json is newer."""
    drawings = registry.drawings(fit)
    pictures = [folder / f"{drawing.name}.svg" for drawing in drawings]
    if not all(_newer(path, folder / "fit.json") for path in pictures):
        registry.draw(fit, folder)
    pairs = zip(pictures, drawings, strict=True)
    return [Figure(path.read_bytes(), drawing.title, drawing.caption) for path, drawing in pairs]


def _newer(path: Any, than: Any) -> bool:
    """False also where the file system has no times to compare."""
    try:
        return bool(path.stat().st_mtime >= than.stat().st_mtime)
    except (OSError, AttributeError):
        return False


def promises(kept: Sequence[PlannedTime]) -> list[Section]:
    """Of a sweep whose runs are as long as ``train.seconds`` allow."""
    if not kept:
        return []
    return [Section("time", "Promised and measured time", paragraph(f"{sentence(kept)}.") + promised_times(kept))]


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


def _conditioning(logged: Sequence[Conditions]) -> str:
    """Of a sweep whose runs logged it; of all its arms."""
    if not logged:
        return ""
    with style.styled():
        drawn = style.render(run_figures.over_training(logged), "svg")
    caption = (
        "Condition number of what a block's heads put out, side by side, over the positions of a window: the ratio of "
        "its largest to its smallest singular value (geometric mean over held-out windows, layers and runs). Of each "
        "depth and number of heads the largest size; narrower nets have fewer columns, so compare at one width."
    )
    return picture(drawn, "Condition number of attention", caption)


def _training_figure(curves: Sequence[TrainingCurve]) -> str:
    if not curves:
        return ""
    with style.styled():
        drawn = style.render(run_figures.training_curves(curves), "svg")
    caption = "One thin line per run, averaged over bins of ln step; lighter is larger. Dashed with a cross: diverged."
    return picture(drawn, "Training loss against step, one panel per depth", caption)


def _provenance(fit: FitResult | None, runs: Sequence[Row], store: SweepStore, root: Any) -> str:
    """What the numbers were made with: of the runs, of the fit, of each call."""

    manifest = to_dict(store.manifest)

    def distinct(name: str) -> str:
        values = sorted({row[name] for row in runs if row.get(name)}, key=lambda value: (len(value), value))
        return ", ".join(values) if len(values) <= 12 else f"{', '.join(values[:12])} and {len(values) - 12} more"

    names = (
        *("seed", "tokens", "steps", "batch_size", "seq_len", "vocab_size", "parametrization", "optimizer"),
        *("schedule", "precision", "attention_kernel", "device_kind", "data_hash"),
    )
    found = {name.replace("_", " "): distinct(name) for name in names}
    made = "<h3>Runs</h3>" + definitions({key: value for key, value in found.items() if value})
    if any(manifest.values()):
        made += "<h3>Sweep</h3>" + definitions(flat({k: v for k, v in manifest.items() if k not in ("calls", "rates")}))
        calls = manifest.get("calls") or []
        if calls:
            made += "<h3>Last call</h3>" + definitions(flat(calls[-1]))
    if fit is not None:
        made += "<h3>Fit</h3>" + definitions(flat({**fit.provenance.to_dict(), "noise": fit.noise.to_dict()}))
    try:
        spec = (root / "spec.yaml").read_text("utf-8")
    except OSError:
        return made
    return made + details("The spec", preformatted(spec))


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested mappings as dotted keys; what is empty is left out."""
    out: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            out |= flat(item, f"{prefix}{key}.")
        elif item not in (None, "", [], ()):
            out[f"{prefix}{key}"] = " ".join(map(str, item)) if isinstance(item, (list, tuple)) else str(item)
    return out


def of_the_fit(every: Sequence[dict[str, str]], fit: FitResult) -> list[dict[str, str]]:
    """The runs that the fit is of: where a sweep has arms, those of the base."""
    arms = {row.get("arm") or "" for row in every}
    base = fit.comparisons[0].base if fit.comparisons else None
    return [row for row in every if len(arms) < 2 or base not in arms or row.get("arm") == base]


def other_runs(every: Sequence[Mapping[str, str]], shown: Sequence[Mapping[str, str]]) -> str:
    """The table of runs of each arm that the fit is not of."""
    left = [row for row in every if row not in shown]
    arms = dict.fromkeys(row.get("arm") or "" for row in left)
    return "".join(
        f"<h3>Of {html.escape(arm)}</h3>" + runs([row for row in left if (row.get("arm") or "") == arm]) for arm in arms
    )
