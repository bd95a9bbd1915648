"""Page of a sweep, ``dwsweep report DIR``: the shape to build, the answers, figures, runs and provenance in one file.

The first screen is the answer; all that is no answer is folded.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.guide import source_of
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import AlongFit, Fit, FitResult
from dwsweep.records.record import to_dict
from dwsweep.records.run import FINAL, PENDING
from dwsweep.report import fit_report, runs_table
from dwsweep.report.document import Figure, Fold, Heading, Lines, Part, bullets
from dwsweep.report.figures import registry, style
from dwsweep.report.html_page import Section, box, page
from dwsweep.report.logs import conditioning, logged, training_figure
from dwsweep.report.markup import html_of
from dwsweep.report.provenance import provenance_parts
from dwsweep.report.runs_table import Row, all_runs, of_the_fit, ordered, rows_of
from dwsweep.report.shapes_to_build import built
from dwsweep.report.status_report import parts_of
from dwsweep.sweep.results_table import settle_results
from dwsweep.sweep.snapshot import Snapshot, snapshot
from dwsweep.text import printable

RELOAD_SECONDS = 10.0  # interval between reloads of a page that follows a sweep
HOW_TO_READ = (
    "Size N counts non-embedding parameters: 12·L·d² for the standard block, with L the depth and d the width. Losses "
    "are held-out, in nats per token unless another unit stands beside them.",
    "A transition is the size at which the deeper of two neighbouring depths starts to win, by the losses of all "
    "depths together, else by its own two curves: crossed, not reached (only the shallower net is ever significantly "
    "ahead), already crossed (only the deeper), undecided (neither) or ambiguous. Its interval holds the sizes at "
    "which the two nets cannot be told apart, and may be open at an end.",
    "The width law gives the width at which depth L is the best one, for this model family, data and recipe, inside "
    "the sizes that it spans. The law of the pairs is a check, half a step of depths shallower.",
)


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
    sections = _content(fit, every, root, folder, live)
    content = page(title, subtitle, sections, reload=RELOAD_SECONDS if live is not None else None)
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


def _content(fit: Fit | None, every: Sequence[Row], root: Any, folder: Any, live: Snapshot | None) -> list[Section]:
    """Sections of a page. ``fit``: None for a sweep without a fit; one along a column has no sizes for ``guide``."""
    sized = fit if isinstance(fit, FitResult) else None
    shown = ordered(of_the_fit(every, sized) if sized else every)
    curves, conditions, left_out = logged(every, shown, root)
    drawings = registry.drawings(fit) if fit else []
    figures = [Figure(style.svg(partial(one.draw, fit)), one.title, one.caption) for one in drawings]
    warned = [] if live else _warnings(fit, every, root, left_out)
    file: Any = folder and folder / "fit.json"
    build, shapes = (sized and built(sized, source_of(sized, file), file, root)) or ([], [])
    found = fit_report.sections(fit) if fit else []
    findings = [
        Section(anchor, title, html_of(parts), open=k == 0)
        for k, (anchor, title, parts) in enumerate(found)
        if anchor != "guideline"  # the shapes to build repeat it
    ]
    return [
        Section("progress", "Progress", box("answer", parts_of(live)) if live else "", open=True),
        Section("answer", "The answer", "" if live else _first_screen(fit, build, every, root, figures[:1]), open=True),
        Section("warnings", "Warnings", box("warnings", bullets(warned)), open=True),
        Section("shapes", "Shapes to build", html_of(shapes), open=True),
        *findings,
        Section("figures", "Figures", box("figures", figures[1:])),
        Section("training", "Training curves", html_of(training_figure(curves, shown))),
        Section("conditioning", "Conditioning of attention", html_of(conditioning(conditions))),
        Section("runs", "Runs" if every else "Shapes trained", html_of(_tables(fit, every, shown))),
        Section("reading", "How to read it", html_of(bullets(HOW_TO_READ)) if fit else ""),
        Section("provenance", "Provenance", html_of(provenance_parts(fit, shown, root))),
    ]


def _first_screen(
    fit: Fit | None, build: Sequence[Part], every: Sequence[Row], root: Any, figure: Sequence[Part]
) -> str:
    """First screen: the shape to build, the answer, the next steps and one figure, side by side if they fit."""
    read, said = [], [f"{len(every):,} runs have a loss; they are not fitted yet."]
    if fit is not None:
        read, said = fit_report.account(fit), fit_report.answer(fit)
        if not said or (len(read[:1]) and ";" in read[0]):  # a doubt about the table precedes the answer
            read, said = read[1:], [*read[:1], *said]
    steps = [Heading("What to do next"), *bullets(next_steps(fit, every, root)), Lines(read, soft=True)]
    words = box("answer", [*build, Lines(said)]) + html_of(steps)
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
    steps.append(f"{printable(fit_report.next_step(fit, root))}.")
    if not isinstance(fit, FitResult):
        return steps
    surface = fit.surface
    open_ended = surface is None or any(row.depth_low is None or row.depth_high is None for row in surface.optima[-1:])
    if spec.exists() and (open_ended or any(row.status != "crossed" for row in fit.verdicts)):
        steps.append(
            f"Find the runs that would narrow the answer: `dwsweep design {shlex.quote(str(spec))} --fit {there}`."
        )
    return steps


def _tables(fit: Fit | None, every: Sequence[Row], shown: Sequence[Row]) -> list[Part]:
    """Tables of runs and of cells; a table of losses has cells only."""
    if not isinstance(fit, FitResult):
        return [all_runs(every)] if every else []
    cells = runs_table.cells(fit.cells)
    if not every:
        return [cells]
    return [all_runs(shown), Fold("Cells: the mean of each shape", [cells]), *runs_table.other_runs(every, shown)]


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
