"""Page of a sweep, ``dwsweep report DIR``: the shape to build, the answers, figures, runs and provenance in one file.

The first screen is the answer; all that is no answer is folded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.fit.statistics.small_matrices import small_matrices
from dwsweep.guide import answer, source_of
from dwsweep.guide.guideline import answered
from dwsweep.guide.question import OF_A_FIT, OF_EVIDENCE
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult
from dwsweep.records.record import to_dict
from dwsweep.records.run import FINAL, PENDING
from dwsweep.report import fit_report, guide_report, runs_table
from dwsweep.report.document import Figure, Fold, Heading, Lines, Part
from dwsweep.report.figures import registry, style
from dwsweep.report.logs import logged
from dwsweep.report.markup import PageSection, box, html_of, page
from dwsweep.report.runs_table import Row, all_runs, ordered, rows_of
from dwsweep.report.status_report import parts_of
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.results_table import settle_results
from dwsweep.sweep.snapshot import Snapshot, snapshot
from dwsweep.text import format_count, join, printable

RELOAD_SECONDS = 10.0  # interval between reloads of a page that follows a sweep
FIRST = 3  # paragraphs of the answer on the first screen: the shape, the best depth, the risk
FACTS = (  # columns of the runs in the provenance
    *("seed", "tokens", "steps", "batch_size", "seq_len", "vocab_size", "parametrization", "optimizer", "schedule"),
    *("precision", "attention_kernel", "device_kind", "data_hash"),
)
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
    folder = next((place for place in (root / "fit", root) if not live and (place / "fit.json").exists()), None)
    # the folder of a sweep's fit: show the sweep
    if folder == root and (root.parent / "results.csv").exists():
        root = root.parent
    every: Sequence[Row] = rows_of(root / "results.csv")
    if live is not None:
        every = so_far(every, live)
    elif folder is None and not every:
        raise InputError(f"DIR: {root}; has no fit/fit.json and no fit.json; run `dwsweep fit {root}` first")
    path = paths.as_path(out or root / "report.html")
    if path.is_dir():
        raise InputError(f"--out: {path}; is a folder; allowed: a file, such as {path / 'report.html'}")
    fit = fit_record.read_any(folder / "fit.json", "DIR") if folder else None
    title, reload = f"{_name(root)}: how deep and how wide", None
    subtitle = f"{fit.provenance.account.used} runs used." if fit else f"{len(every):,} runs, not fitted."
    if live is not None:
        done, reload = sum(run.state.state in FINAL for run in live.runs), RELOAD_SECONDS
        title = f"{_name(root)}: {done:,} of {len(live.runs):,} runs finished"
        subtitle = f"The sweep is training; this page reloads every {RELOAD_SECONDS:g} s."
    content = page(title, subtitle, _content(fit, every, root, folder, live), reload)
    paths.make_directory(path.parent)
    paths.write_atomic(path, content)
    return path


def so_far(every: Sequence[Row], live: Snapshot) -> list[Row]:
    """Rows of results.csv, and a row without a loss for every other run that has begun."""
    there = {row.get("run_id") for row in every}
    begun = (run for run in live.runs if run.plan.run_id not in there and run.state.state != PENDING)
    return [*every, *(to_dict(run.plan) | {"status": run.state.state} for run in begun)]


def _content(
    fit: FitResult | None, every: Sequence[Row], root: Any, folder: Any, live: Snapshot | None
) -> list[PageSection]:
    """Sections of a page. ``fit``: None for a sweep without a fit; one along a column has no sizes for ``guide``."""
    curves, conditioning, left_out = logged(ordered(every), root)
    figures = [
        Figure(style.picture(partial(one.draw, fit)), one.title, one.caption)
        for one in (registry.drawings(fit) if fit else ())
    ]
    build, shapes = (fit and not fit.along_alone and built(fit, folder / "fit.json", root)) or ([], [])
    findings = [
        PageSection(anchor, title, html_of(parts), open=k == 0)
        for k, (anchor, title, parts) in enumerate(fit_report.sections(fit) if fit else ())
        if anchor != "guideline"  # the shapes to build repeat it
    ]
    first = [PageSection("progress", "Progress", box("answer", parts_of(live)), open=True)] if live else []
    if not live:
        screen = _first_screen(fit, build, every, root, figures[:1])
        warned = box("warnings", [Lines(_warnings(fit, every, root, left_out), listed=True)])
        first = [
            PageSection("answer", "The answer", screen, open=True),
            PageSection("warnings", "Warnings", warned, open=True),
        ]
    tables = [all_runs(every)] if every else []
    tables += [Fold("Cells: the mean of each shape", [runs_table.cells(fit)])] if fit and not fit.along_alone else []
    return [
        *first,
        PageSection("shapes", "Shapes to build", html_of(shapes), open=True),
        *findings,
        PageSection("figures", "Figures", box("figures", figures[1:])),
        PageSection("training", "Training curves", html_of(curves)),
        PageSection("conditioning", "Conditioning of attention", html_of(conditioning)),
        PageSection("runs", "Runs" if every else "Shapes trained", html_of(tables)),
        PageSection("reading", "How to read it", html_of([Lines(HOW_TO_READ, listed=True)]) if fit else ""),
        PageSection("provenance", "Provenance", html_of(_provenance(fit, every, root))),
    ]


def built(fit: FitResult, file: Any, root: Any) -> tuple[list[Part], list[Part]]:
    """Shapes to build by the fit of ``file``: at the largest trained size, for the first screen; and at every listed
    size."""
    sizes = [cell.n_params for cell in fit.cells if not cell.excluded] or [cell.n_params for cell in fit.cells] or [1e6]
    source = source_of(fit, file)
    largest = max((OF_A_FIT if source.own_at(max(sizes)) else OF_EVIDENCE)[0], *sizes)
    with small_matrices():
        whole = guide_report.document(answer([largest], fit=file, source=source))
        rows = fit.guideline if any(row.law for row in fit.guideline) else answered(fit, fit.guideline)
    listed = fit_report.guideline(replace(fit, guideline=rows))
    size, command = format_count(largest), f"dwsweep guide --params 3B --fit {shlex.quote(str(root))}"
    # before its heading stands the reason if public evidence answers instead
    before = sum(1 for _ in takewhile(lambda part: isinstance(part, Lines), whole))
    said = [part for part in whole if isinstance(part, Lines)][: before + FIRST]
    more = Lines([f"`{command}` answers at any size, with the price of other shapes."])
    trained = ", the largest size trained" if largest in sizes else ""
    heading = Heading(f"Shape to build at {size}{trained}")
    return [heading, *said], [listed, more, Fold(f"The whole answer at {size}", whole)]


def _first_screen(
    fit: FitResult | None, build: Sequence[Part], every: Sequence[Row], root: Any, figure: Sequence[Part]
) -> str:
    """First screen: the shape to build, the answer, the next steps and one figure, side by side if they fit."""
    said = [f"{len(every):,} runs have a loss; they are not fitted yet."]
    if fit is not None:
        said = [*fit_report.account(fit), *fit_report.answer(fit)]
    steps: list[Part] = [Heading("What to do next"), Lines(next_steps(fit, every, root), listed=True)]
    words = box("answer", [*build, Lines(said)]) + html_of(steps)
    return f'<div class="first"><div>{words}</div>{html_of(figure)}</div>'


def next_steps(fit: FitResult | None, every: Sequence[Row], root: Any) -> list[str]:
    """Next steps as commands: finish runs, then fit or choose a shape."""
    there, spec = printable(shlex.quote(str(root))), root / "spec.yaml"
    missing = sum((row.get("status") or "done") not in FINAL for row in every)
    steps = []
    if missing and spec.exists():
        runs = "1 run" if missing == 1 else f"{missing:,} runs"
        steps.append(f"Finish {runs}: `dwsweep run {printable(shlex.quote(str(spec)))} --out {there}`.")
    if fit is None:
        return [*steps, f"Fit the losses: `dwsweep fit {there}`."]
    return [*steps, f"{printable(fit_report.next_step(fit, root))}."]


def _provenance(fit: FitResult | None, runs: Sequence[Row], root: Any) -> list[Part]:
    """Provenance of the numbers: values of the runs, the sweep with its last call, the fit, the spec."""
    values = {name: sorted({str(row[name]) for row in runs if row.get(name) is not None}) for name in FACTS}
    facts: dict[str, Any] = {"runs": {name: join(found, 12) for name, found in values.items() if found}}
    manifest = {name: value for name, value in to_dict(SweepStore(root).manifest).items() if value and name != "rates"}
    facts |= {"sweep": manifest | {"calls": manifest["calls"][-1:]} if manifest.get("calls") else manifest}
    if fit is not None:
        facts |= {"fit": fit.provenance.to_dict(), "noise": fit.noise.to_dict()}
    parts = [Lines([json.dumps(facts, indent=1, ensure_ascii=False)], verbatim=True)]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        parts.append(Lines([paths.read_text(root / "spec.yaml")], verbatim=True))
    return [Fold("What the numbers were made with", parts)]


def _name(root: Any) -> str:
    """Name of a sweep, from its spec, else from its directory."""
    from dwsweep.spec.bounded_yaml import load_yaml_file

    try:
        return printable(str(load_yaml_file(root / "spec.yaml")["name"]))
    except (OSError, InputError, KeyError, TypeError):
        return printable(str(root.name))


def _warnings(fit: FitResult | None, every: Sequence[Row], root: Any, left_out: Sequence[str]) -> list[str]:
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
