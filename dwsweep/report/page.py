"""Page of a sweep, ``dwsweep report DIR``: the answer, figures, tables and their provenance in one file."""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.guide import LEAST_PUBLIC, answer, source_of
from dwsweep.records import fit as fit_record
from dwsweep.records.equal_budgets import EqualBudgets
from dwsweep.records.fit import AlongFit, Fit, FitResult
from dwsweep.records.record import to_dict
from dwsweep.records.run import FINAL, PENDING
from dwsweep.report import fit_report, guide_report, runs_table
from dwsweep.report.answers_box import MOST, answers_box, trained_sizes
from dwsweep.report.document import Figure, Fold, Heading, Line, Lines, Part, bullets
from dwsweep.report.figures import registry
from dwsweep.report.html_page import Section, box, page, placeholder
from dwsweep.report.logs import conditioning, logged, training_figure
from dwsweep.report.losses_chart import columns_of, losses_chart, run_point, training
from dwsweep.report.markup import html_of
from dwsweep.report.provenance import provenance_parts
from dwsweep.report.runs_table import RUN_COLUMNS, Row, all_runs, of_the_fit, ordered, rows_of
from dwsweep.report.status_report import parts_of
from dwsweep.sweep.snapshot import Snapshot, settle_results, snapshot
from dwsweep.text import format_count, printable

RELOAD_SECONDS = 10.0  # interval between reloads of a page that follows a sweep
HOW_TO_READ = (
    "Size N counts non-embedding parameters: 12·L·d² for the standard block, with L the depth and d the width. Losses "
    "are held-out, in nats per token unless another unit stands beside them.",
    "A transition is the size at which the deeper of two neighbouring depths starts to win. The verdict on a pair is "
    "the crossing of the losses of all depths together, where there is one, else the verdict of its own two curves: "
    "crossed, not reached (only the shallower net is ever significantly ahead), already crossed (only the deeper), "
    "undecided (neither) or ambiguous. The checks are the pair's own two curves and levine (biased to larger widths).",
    "Intervals are sets of sizes at which the two nets cannot be told apart: they may be lopsided or open at an end.",
    "The width law gives the width at which depth L stops being the better one. It is a statement about this model "
    "family, data, recipe and spacing of depths; the range of its transitions is its evidence, the rest extrapolates. "
    "A pair of depths belongs to its shallower one; the best depth itself comes from the loss of all depths together.",
)
WITHOUT_CHART = "With scripts allowed, a chart of every run stands here; the figures below show the same losses."


def follow(directory: str | PathLike[str], out: Any = None, seconds: float = RELOAD_SECONDS) -> Any:
    """Write the page of a sweep every ``seconds`` while it trains, and once more at the end; returns its path. The page
    reloads itself meanwhile.

    Raises:
        InputError: not a sweep directory, or ``write`` refuses it.
    """
    while (now := snapshot(directory)).is_live:
        write(directory, out, live=now)
        time.sleep(seconds)
    settle_results(directory, lambda _: None)
    return write(directory, out)


def write(directory: str | PathLike[str], out: Any = None, live: Snapshot | None = None) -> Any:
    """Write the page of a sweep directory, or of the folder that ``dwsweep fit`` wrote for a table; returns its path.

    The page of a table has cells instead of runs; the page of a sweep without a fit has no answer.

    Args:
        out: the file; ``report.html`` in the directory by default.
        live: snapshot of a training sweep: its progress comes first, an earlier fit is left out, and the page reloads
        itself.

    Raises:
        InputError: the directory is missing, holds neither a fit nor results, or its files cannot be read.
    """
    root = paths.as_path(directory)
    if not root.is_dir():
        raise InputError(f"DIR: {root}; must be an existing sweep directory, or the folder of a table's fit")
    folder = next((place for place in (root / "fit", root) if (place / "fit.json").exists()), None)
    # the folder of a sweep's fit: show the sweep
    if folder == root and (root.parent / "results.csv").exists():
        root = root.parent
    if live is not None:
        folder = None
    every: Sequence[Row] = rows_of(root / "results.csv")
    if live is not None:
        every = so_far(every, live)
    elif folder is None and not every:
        raise InputError(f"DIR: {root}; has no fit/fit.json and no fit.json; run `dwsweep fit {root}` first")
    path = paths.as_path(out or root / "report.html")
    if path.is_dir():
        raise InputError(f"--out: {path}; is a folder; allowed: a file, such as {path / 'report.html'}")
    fit = fit_record.read_any(folder / "fit.json", "DIR") if folder else None
    title, subtitle = _titles(fit, every, root)
    if live is not None:
        done = sum(run.state.state in FINAL for run in live.runs)
        title = f"{_name(root)}: {done:,} of {len(live.runs):,} runs finished"
        subtitle = f"The sweep is training; this page reloads every {RELOAD_SECONDS:g} s."
    sections, data = _content(fit, every, root, folder, live)
    content = page(title, subtitle, sections, data, reload=RELOAD_SECONDS if live is not None else None)
    paths.make_directory(path.parent)
    paths.write_atomic(path, content)
    return path


BEGUN = ("run_id", "depth", "width", "heads", "seed", "learning_rate", "n_params", "tokens", "flops")


def so_far(every: Sequence[Row], live: Snapshot) -> list[Row]:
    """Rows of results.csv, and a row without a loss for every other run that has begun."""
    there = {row.get("run_id") for row in every}
    begun = [run for run in live.runs if run.plan.run_id not in there and run.state.state != PENDING]
    plans = [to_dict(run.plan) | {"status": run.state.state} for run in begun]
    return [*every, *({name: row.get(name) for name in (*BEGUN, "status")} for row in plans)]


def _titles(fit: Fit | None, every: Sequence[Row], root: Any) -> tuple[str, str]:
    """Title and subtitle of a page."""
    name = _name(root)
    if fit is None:
        return f"{name}: how deep and how wide", f"{len(every):,} runs, not fitted."
    used = f"{fit.provenance.rows_used} runs used."
    if isinstance(fit, AlongFit):
        return f"{name}: loss along {fit.along.column}", used
    depths = sorted({cell.depth for cell in fit.cells if not cell.excluded})
    shapes = f"Depths {', '.join(map(str, depths)) or 'none'}; {len(fit.cells)} shapes; "
    return f"{name}: how deep and how wide", shapes + used


def _content(
    fit: Fit | None, every: Sequence[Row], root: Any, folder: Any, live: Snapshot | None = None
) -> tuple[list[Section], dict[str, Any] | None]:
    """Sections of a page, and the data of its script.

    fit: None for a sweep without a fit. A fit along a column has no sizes for ``guide`` to answer.
    """
    sized = fit if isinstance(fit, FitResult) else None
    shown = ordered(of_the_fit(every, sized) if sized else every)
    curves, conditions, left_out = logged(every, shown, root)
    figures = _figures(fit, folder) if fit else []
    warned = [] if live else _warnings(fit, every, root, left_out)
    budget = None
    if sized:
        budget = answers_box(sized, source_of(sized, folder / "fit.json"), folder / "fit.json", root)
    chart = _chart(fit, shown)
    sections = [
        Section("progress", "Progress", box("answer", parts_of(live)) if live else ""),
        Section("answer", "The answer", "" if live else _first_screen(fit, every, root, figures[:1])),
        Section("budget", "Your budget", budget.markup + html_of(_public(sized)) if budget and sized else ""),
        Section("warnings", "Warnings", box("warnings", bullets(warned))),
        *(Section(anchor, title, html_of(parts)) for anchor, title, parts in (fit_report.sections(fit) if fit else ())),
        Section(
            "losses",
            "Losses, run by run" if every else "Losses, shape by shape",
            placeholder("losses-chart", WITHOUT_CHART) if chart else "",
        ),
        Section("figures", "Figures", html_of(figures[1:])),
        Section("runs", "Runs" if every else "Shapes", html_of(_tables(fit, every, shown))),
        Section("training", "Training curves", html_of(training_figure(curves, shown))),
        Section("conditioning", "Conditioning of attention", html_of(conditioning(conditions))),
        Section("reading", "How to read it", html_of(bullets(HOW_TO_READ)) if fit else ""),
        Section("provenance", "Provenance", html_of(provenance_parts(fit, shown, root))),
    ]
    if not shown and chart is None and budget is None:
        return sections, None
    points = [run_point(row) for row in shown]
    data = {
        "guide": budget.data if budget else None,
        "columns": [name for name, _ in RUN_COLUMNS.values()],
        "runs": columns_of(points),
        "losses": chart and chart | {"points": None if points else columns_of(chart["points"])},
        "training": training(curves),
    }
    return sections, data


def _first_screen(fit: Fit | None, every: Sequence[Row], root: Any, figure: Sequence[Part]) -> str:
    """First screen: the answer, the next steps and one figure, side by side if they fit."""
    if fit is None:
        said: list[Line] = [f"{len(every):,} runs have a loss; they are not fitted yet."]
        read: list[str] = []
    else:
        read, said = fit_report.account(fit), list(fit_report.answer(fit))
        if not said or (len(read[:1]) and ";" in read[0]):  # a doubt about the table precedes the answer
            read, said = read[1:], [*read[:1], *said]
    steps = next_steps(fit, every, root)
    next_parts = [Heading("What to do next"), *bullets(steps), Lines(read, soft=True)]
    words = box("answer", [Lines(said)]) + html_of(next_parts)
    return f'<div class="first"><div>{words}</div>{html_of(figure)}</div>'


def next_steps(fit: Fit | None, every: Sequence[Row], root: Any) -> list[str]:
    """Next steps as commands: finish runs, fit, choose a shape, narrow the interval."""
    there, spec = printable(shlex.quote(str(root))), root / "spec.yaml"
    missing = sum((row.get("status") or "done") not in FINAL for row in every)
    steps = []
    if missing and spec.exists():
        runs = "1 run" if missing == 1 else f"{missing:,} runs"
        steps.append(f"Finish {runs}: `dwsweep run {printable(shlex.quote(str(spec)))} --out {there}`.")
    if fit is None:
        return [*steps, f"Fit the losses: `dwsweep fit {there}`."]
    if not isinstance(fit, FitResult):
        return steps
    largest = format_count(max(trained_sizes(fit)))
    steps.append(
        f"Choose a shape for your size, under Your budget or by `dwsweep guide --params {largest} --fit {there}`."
    )
    surface = fit.surface
    open_ended = surface is None or any(row.depth_low is None or row.depth_high is None for row in surface.optima[-1:])
    if spec.exists() and (open_ended or any(row.status != "crossed" for row in fit.verdicts)):
        steps.append(
            f"Find the runs that would narrow the answer: `dwsweep design {shlex.quote(str(spec))} --fit {there}`."
        )
    if fit.warnings:
        steps.append(
            f"Read the {len(fit.warnings)} warnings below." if len(fit.warnings) > 1 else "Read the warning below."
        )
    return steps


def _budgets(fit: FitResult) -> EqualBudgets | None:
    """Budgets of a fit that compares at equal compute only, where a shape has a cell per budget."""
    return None if fit.curves.depths else fit.equal_budgets


def _tables(fit: Fit | None, every: Sequence[Row], shown: Sequence[Row]) -> list[Part]:
    """Tables of runs and of cells; without runs the cells are unfolded."""
    if fit is None:
        return runs_table.runs(every)
    if isinstance(fit, AlongFit):
        return [all_runs(every)]
    budgets = _budgets(fit)
    cells = runs_table.cells(fit.cells, budgets.axis if budgets else "")
    means = Fold("Cells: the mean of each shape", [cells]) if every else cells
    return [*runs_table.runs(shown), means, *runs_table.other_runs(every, shown)]


def _chart(fit: Fit | None, shown: Sequence[Row]) -> dict[str, Any] | None:
    """Data of the chart of losses; a fit at equal compute uses size as its axis."""
    if fit is None:
        return losses_chart(shown)
    if isinstance(fit, AlongFit):
        return None
    axis = "n_params" if _budgets(fit) else fit.curves.axis
    return losses_chart(shown, fit.curves.confidence, axis, fit.curves.depths, fit.cells, fit.unit)


def _public(fit: FitResult) -> list[Part]:
    """Answers of the public sources at the largest size of a fit, folded; empty if none has an answer."""
    sizes = [cell.n_params for cell in fit.cells if not cell.excluded]
    if not sizes or not LEAST_PUBLIC <= max(sizes) <= MOST:
        return []
    (row,) = answer([float(max(sizes))], by_source=True).budgets
    title = f"Public sources at {format_count(max(sizes))}"
    return [Fold(title, [guide_report.forest(row)])] if row.by_source else []


def _name(root: Any) -> str:
    """Name of a sweep, from its spec, else from its directory."""
    from dwsweep.spec.bounded_yaml import load_yaml_file

    try:
        return printable(str(load_yaml_file(root / "spec.yaml")["name"]))
    except (OSError, InputError, KeyError, TypeError):
        return printable(str(root.name))


def _warnings(fit: Fit | None, every: Sequence[Row], root: Any, left_out: Sequence[str]) -> list[str]:
    """Warnings: runs without a result, a table that differs from the fitted one, logs that lack lines, and the fit's
    own warnings."""
    states = Counter(row.get("status") or "unknown" for row in every)
    missing = sum(number for state, number in states.items() if state not in FINAL)
    found = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    warned = [f"unfinished: {missing} of {len(every)} runs have no result ({found})"] if missing else []
    if fit is None:
        return [*warned, *left_out]
    with contextlib.suppress(FileNotFoundError):
        if hashlib.sha256(paths.read_bytes(root / "results.csv")).hexdigest() != fit.provenance.input_sha256:
            warned.append("stale: results.csv is not the one that was fitted; run `dwsweep fit` again")
    return [*warned, *(line for line in left_out if line not in fit.warnings), *fit.warnings]


def _figures(fit: Fit, folder: Any) -> list[Part]:
    """Figures of a fit, drawn again if fit.json is newer."""
    drawings = registry.drawings(fit)
    pictures = [folder / f"{drawing.name}.svg" for drawing in drawings]
    if not all(_newer(path, folder / "fit.json") for path in pictures):
        registry.draw(fit, folder)
    pairs = zip(pictures, drawings, strict=True)
    return [Figure(path.read_bytes(), drawing.title, drawing.caption) for path, drawing in pairs]


def _newer(path: Any, than: Any) -> bool:
    """Test that a file is at least as new as another; False if the file system has no times."""
    try:
        return bool(path.stat().st_mtime >= than.stat().st_mtime)
    except (OSError, AttributeError):
        return False
