"""``dwsweep report DIR``: one self-contained page with the answer, the figures, the tables and where they come from."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.guide import LEAST_PUBLIC, answer, source_of
from dwsweep.records import fit as fit_record
from dwsweep.records import record as reader
from dwsweep.records.fit import AlongFit, Fit, FitResult
from dwsweep.records.record import Damaged, to_dict
from dwsweep.records.run import FINAL, PENDING, Sample
from dwsweep.records.studies import EqualBudgets
from dwsweep.report import fit_report, guide_report, runs_table
from dwsweep.report.answers_box import MOST, answers_box, trained_sizes
from dwsweep.report.document import Figure, Fold, Heading, Line, Lines, Part, Table, escaped, html_of, listed
from dwsweep.report.figures import registry, style
from dwsweep.report.figures import runs as run_figures
from dwsweep.report.figures.runs import Conditions, TrainingCurve
from dwsweep.report.losses_chart import columns_of, losses_chart, run_point, training
from dwsweep.report.progress import parts_of
from dwsweep.report.runs_table import RUN_COLUMNS, Row, all_runs, of_the_fit, ordered, rows_of
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import Snapshot, settle_results, snapshot, time_kept
from dwsweep.text import format_count, printable

RELOAD_SECONDS = 10.0  # of a page that follows a sweep
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
WITHOUT_CHART = "With scripts allowed, a chart of every run stands here; the figures below show the same losses."


def follow(directory: str | PathLike[str], out: Any = None, seconds: float = RELOAD_SECONDS) -> Any:
    """Write the page of a sweep again every ``seconds`` while it trains, and once more when nobody works on it; returns
    its path. The page reloads itself meanwhile.

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

    A table has no runs to show, only cells; a sweep that is not fitted has runs and no answer.

    Args:
        out: the file; ``report.html`` in the directory by default.
        live: the sweep while it trains: its progress comes first, an earlier fit is left out, and the page reloads
            itself.

    Raises:
        InputError: there is no such directory, or neither a fit nor results in it, or they cannot be read.
    """
    root = paths.as_path(directory)
    if not root.is_dir():
        raise InputError(f"DIR: {root}; must be an existing sweep directory, or the folder of a table's fit")
    folder = next((place for place in (root / "fit", root) if (place / "fit.json").exists()), None)
    if folder == root and (root.parent / "results.csv").exists():  # the fit of a sweep: the page is that of the sweep
        root = root.parent
    if live is not None:
        folder = None
    every = rows_of(root / "results.csv")
    if live is not None:
        every = so_far(every, live)
    elif folder is None and not every:
        raise InputError(f"DIR: {root}; it has no fit/fit.json nor fit.json, run `dwsweep fit {root}` first")
    path = paths.as_path(out or root / "report.html")
    if path.is_dir():
        raise InputError(f"--out: {path}; is a folder; allowed: a file, such as {path / 'report.html'}")
    fit = fit_record.read_any(folder / "fit.json", "DIR") if folder else None
    title, subtitle = _titles(fit, every, root)
    if live is not None:
        subtitle = f"The sweep trains; this page reads itself anew every {RELOAD_SECONDS:g} s."
    sections, data = _content(fit, every, root, folder, live)
    content = page(title, subtitle, sections, data, reload=RELOAD_SECONDS if live is not None else None)
    paths.make_directory(path.parent)
    paths.write_atomic(path, content)
    return path


BEGUN = ("run_id", "depth", "width", "heads", "seed", "learning_rate", "n_params", "tokens", "flops")


def so_far(every: Sequence[dict[str, str]], live: Snapshot) -> list[dict[str, str]]:
    """The rows of results.csv, and one without a loss for each other run that has begun."""
    there = {row.get("run_id") for row in every}
    begun = [run for run in live.runs if run.plan.run_id not in there and run.state.state != PENDING]
    plans = [to_dict(run.plan) | {"status": run.state.state} for run in begun]
    known = [{name: row.get(name) for name in (*BEGUN, "status")} for row in plans]
    return [*every, *({name: "" if one is None else str(one) for name, one in row.items()} for row in known)]


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
    fit: Fit | None, every: Sequence[dict[str, str]], root: Any, folder: Any, live: Snapshot | None = None
) -> tuple[list[Section], dict[str, Any] | None]:
    """The sections of a page, of which those without content are left out, and the data of its script.

    fit: None for a sweep without one. A fit along a column has no sizes that ``guide`` could answer.
    """
    sized = fit if isinstance(fit, FitResult) else None
    shown = ordered(of_the_fit(every, sized) if sized else every)
    curves, conditions = _logged(every, shown, root)
    kept = ""
    with contextlib.suppress(InputError):  # a page needs no plan.csv
        kept = time_kept(SweepStore(root), SweepStore(root).planned())
    figures = _figures(fit, folder) if fit else []
    budget = None
    if sized:
        budget = answers_box(sized, source_of(sized, folder / "fit.json"), folder / "fit.json", root)
    chart = _chart(fit, shown)
    sections = [
        Section("progress", "Progress", box("answer", parts_of(live)) if live else ""),
        Section("answer", "The answer", "" if live else _first_screen(fit, every, root, figures[:1])),
        Section("budget", "Your budget", budget.markup + html_of(_public(sized)) if budget and sized else ""),
        Section("warnings", "Warnings", box("warnings", listed([] if live else _warnings(fit, every, root)))),
        *(Section(anchor, title, html_of(parts)) for anchor, title, parts in (fit_report.sections(fit) if fit else ())),
        Section("losses", "Losses, run by run", placeholder("losses-chart", WITHOUT_CHART) if chart else ""),
        Section("figures", "Figures", html_of(figures[1:])),
        Section("runs", "Runs" if every else "Shapes", html_of(_tables(fit, every, shown))),
        Section("time", "Planned and measured time", html_of([Lines([f"{kept}."])]) if kept else ""),
        Section("training", "Training curves", html_of(_training_figure(curves, len(shown)))),
        Section("conditioning", "Conditioning of attention", html_of(_conditioning(conditions))),
        Section("samples", "Text by the models", html_of(_samples(root))),
        Section("reading", "How to read it", html_of(listed(HOW_TO_READ)) if fit else ""),
        Section("provenance", "Provenance", html_of(_provenance(fit, shown, root))),
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
    """The answer, the next steps and one figure, side by side where there is room."""
    if fit is None:
        said: list[Line] = [f"{len(every):,} runs have a loss; they are not fitted yet."]
        read: list[str] = []
    else:
        read, said = fit_report.account(fit), list(fit_report.answer(fit))
        if not said or (len(read[:1]) and ";" in read[0]):  # a doubt about the table comes before its answer
            read, said = read[1:], [*read[:1], *said]
    steps = next_steps(fit, every, root)
    words = box("answer", [Lines(said)]) + html_of([Heading("What to do next"), *listed(steps), Lines(read, soft=True)])
    return f'<div class="first"><div>{words}</div>{html_of(figure)}</div>'


def next_steps(fit: Fit | None, every: Sequence[Row], root: Any) -> list[str]:
    """Commands that continue from here: unfinished runs, a missing fit, a shape to build, a narrower interval."""
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
    """The budgets of a fit at equal compute alone, where a shape is a cell at each budget that it was trained at."""
    return None if fit.curves.depths else fit.equal_budgets


def _tables(fit: Fit | None, every: Sequence[Row], shown: Sequence[Row]) -> list[Part]:
    """The tables of runs and of cells; without runs the cells stand open."""
    if fit is None:
        return runs_table.runs(every)
    if isinstance(fit, AlongFit):
        return [all_runs(every)]
    budgets = _budgets(fit)
    cells = runs_table.cells(fit.cells, budgets.axis if budgets else "")
    means = Fold("Cells: the mean of each shape", [cells]) if every else cells
    return [*runs_table.runs(shown), means, *runs_table.other_runs(every, shown)]


def _chart(fit: Fit | None, shown: Sequence[Row]) -> dict[str, Any] | None:
    """The chart of losses against size; at equal compute losses are drawn against size."""
    if fit is None:
        return losses_chart(shown)
    if isinstance(fit, AlongFit):
        return None
    axis = "n_params" if _budgets(fit) else fit.curves.axis
    return losses_chart(shown, fit.curves.confidence, axis, fit.curves.depths, fit.cells, fit.unit)


MOST_TEXTS, MOST_CHARACTERS = 60, 4000  # of samples.json, and of each of its texts


def _samples(root: Any) -> list[Part]:
    """Texts that `dwsweep sample DIR` drew, by depth; nothing where there are none."""
    store = SweepStore(root)
    try:
        samples = reader.read(store.samples_path, list[Sample], "samples.json") or []
    except Damaged as error:
        return [Lines([str(error)], soft=True)]
    parts: list[Part] = []
    for (depth, width), group in itertools.groupby(samples[:MOST_TEXTS], key=lambda one: (one.depth, one.width)):
        texts = list(group)
        loss = f", loss {texts[0].loss:.3f}" if texts[0].loss is not None else ""
        parts += [Heading(f"{depth} × {width}{loss}"), Lines([_beginning(one) for one in texts], verbatim=True)]
    if len(samples) > MOST_TEXTS:
        parts.append(Lines([f"{len(samples) - MOST_TEXTS:,} more texts are in samples.json."], soft=True))
    return parts


def _beginning(sample: Sample) -> str:
    """Prompt and text, as far as a page shows them."""
    whole = sample.prompt + sample.text
    if len(whole) <= MOST_CHARACTERS:
        return whole
    return f"{whole[:MOST_CHARACTERS]}\n… {len(whole) - MOST_CHARACTERS:,} more characters are in samples.json"


def _public(fit: FitResult) -> list[Part]:
    """What each public source says at the largest size of a fit, folded; nothing where none speaks of it."""
    sizes = [cell.n_params for cell in fit.cells if not cell.excluded]
    if not sizes or not LEAST_PUBLIC <= max(sizes) <= MOST:
        return []
    (row,) = answer([float(max(sizes))], by_source=True).budgets
    title = f"What public sources say at {format_count(max(sizes))}"
    return [Fold(title, [guide_report.forest(row)])] if row.by_source else []


def _name(root: Any) -> str:
    """The sweep's name, from its spec; the directory's where there is none."""
    from dwsweep.spec.reading import load_yaml_file

    try:
        return printable(str(load_yaml_file(root / "spec.yaml")["name"]))
    except (OSError, InputError, KeyError, TypeError):
        return printable(str(root.name))


def _warnings(fit: Fit | None, every: Sequence[Row], root: Any) -> list[str]:
    """Warn of runs without a result, of a table of results that differs from the fitted one, and as the fit does."""
    states = Counter(row.get("status") or "unknown" for row in every)
    missing = sum(number for state, number in states.items() if state not in FINAL)
    found = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    warned = [f"unfinished: {missing} of {len(every)} runs have no result ({found})"] if missing else []
    if fit is None:
        return warned
    with contextlib.suppress(FileNotFoundError):
        if hashlib.sha256(paths.read_bytes(root / "results.csv")).hexdigest() != fit.provenance.input_sha256:
            warned.append("stale: results.csv is not the one that was fitted; run `dwsweep fit` again")
    return [*warned, *fit.warnings]


def _figures(fit: Fit, folder: Any) -> list[Part]:
    """Collect the figures, drawing them again where fit.json is newer."""
    drawings = registry.drawings(fit)
    pictures = [folder / f"{drawing.name}.svg" for drawing in drawings]
    if not all(_newer(path, folder / "fit.json") for path in pictures):
        registry.draw(fit, folder)
    pairs = zip(pictures, drawings, strict=True)
    return [Figure(path.read_bytes(), drawing.title, drawing.caption) for path, drawing in pairs]


def _newer(path: Any, than: Any) -> bool:
    """Compare times of change; False also where the file system has none."""
    try:
        return bool(path.stat().st_mtime >= than.stat().st_mtime)
    except (OSError, AttributeError):
        return False


def _logged(every: Sequence[Row], shown: Sequence[Row], root: Any) -> tuple[list[TrainingCurve], list[Conditions]]:
    """The training curves of those of the runs ``shown`` that are ``drawn``, and the conditioning that any run of
    ``every`` logged. No other log is read."""
    curves, conditions = [], []
    chosen = runs_table.drawn(shown)
    for row in every:
        run_id = row.get("run_id")
        if not run_id:
            continue
        path = root / "runs" / run_id / "metrics.jsonl"
        if run_id not in chosen and not _logs_conditioning(path):
            continue
        rows = list(paths.read_lines(path))
        if found := run_figures.conditions(row, rows):
            conditions.append(found)
        if run_id not in chosen:
            continue
        diverged = row.get("status") == "diverged"
        curve = run_figures.training_curve(run_id, int(float(row["depth"])), float(row["n_params"]), diverged, rows)
        if curve is not None:
            curves.append(curve)
    return curves, conditions


def _logs_conditioning(path: Any) -> bool:
    """Whether a log may hold conditioning, which its first row does then; a log in a bucket is to be read whole."""
    if paths.is_remote(path):
        return True
    try:
        paths.check_file(path)
        with open(path, "rb") as file:
            return b'"conditioning' in file.readline(1 << 20)
    except OSError:
        return False


def _conditioning(logged: Sequence[Conditions]) -> list[Part]:
    """The figure of a sweep whose runs logged it, all arms together."""
    if not logged:
        return []
    drawn = style.svg(lambda: run_figures.over_training(logged))
    caption = (
        "Condition number of what a block's heads put out, side by side, over the positions of a window: the ratio of "
        "its largest to its smallest singular value (geometric mean over held-out windows, layers and runs). Of each "
        "depth and number of heads the largest size; narrower nets have fewer columns, so compare at one width."
    )
    return [Figure(drawn, "Condition number of attention", caption)]


def _training_figure(curves: Sequence[TrainingCurve], runs: int) -> list[Part]:
    """The training curves; ``runs``: that the page is of."""
    if not curves:
        return []
    drawn = style.svg(lambda: run_figures.training_curves(curves))
    caption = "One thin line per run, averaged over bins of ln step; lighter is larger. Dashed with a cross: diverged."
    if runs > runs_table.MANY:
        caption += f" {len(curves):,} of {runs:,} runs: of each shape those of lowest held-out loss."
    return [Figure(drawn, "Training loss against step, one panel per depth", caption)]


def _provenance(fit: Fit | None, runs: Sequence[Row], root: Any) -> list[Part]:
    """The provenance of the numbers, folded: runs, sweep, last call, fit, spec."""
    manifest = to_dict(SweepStore(root).manifest)

    def distinct(name: str) -> str:
        values = sorted({row[name] for row in runs if row.get(name)}, key=lambda value: (len(value), value))
        return ", ".join(values) if len(values) <= 12 else f"{', '.join(values[:12])} and {len(values) - 12} more"

    names = (
        *("seed", "tokens", "steps", "batch_size", "seq_len", "vocab_size", "parametrization", "optimizer"),
        *("schedule", "precision", "attention_kernel", "device_kind", "data_hash"),
    )
    parts = _facts("Runs", {name.replace("_", " "): distinct(name) for name in names})
    if any(manifest.values()):
        parts += _facts("Sweep", {key: value for key, value in manifest.items() if key not in ("calls", "rates")})
        if calls := manifest.get("calls"):
            parts += _facts("Last call", calls[-1])
    if fit is not None:
        parts += _facts("Fit", {**fit.provenance.to_dict(), "noise": fit.noise.to_dict()})
    with contextlib.suppress(OSError, UnicodeDecodeError):
        spec = paths.read_text(root / "spec.yaml")
        parts.append(Fold("The spec", [Lines([spec], verbatim=True)]))
    return [Fold("What the numbers were made with", parts)]


def _facts(title: str, facts: Mapping[str, Any]) -> list[Part]:
    """A list of facts under its title; nothing without a fact."""
    table = Table("", "fact< value~", headed=False)
    for key, value in flat(facts).items():
        table.add(key, value)
    return [Heading(title), table] if table.rows else []


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested mappings as dotted keys; what is empty is left out."""
    out: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            out |= flat(item, f"{prefix}{key}.")
        elif item not in (None, "", [], ()):
            out[f"{prefix}{key}"] = " ".join(map(str, item)) if isinstance(item, (list, tuple)) else str(item)
    return out


STYLE_SHEET = "page.css"
SCRIPTS = (
    *("numbers.js", "dom.js", "plots.js"),
    *("answers_box.js", "losses_chart.js", "runs_filter.js", "runs_table.js", "page.js"),
)
# the browser itself is told that the page may load nothing: its own style sheet, script and images are in it
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {}; base-uri 'none'"


@dataclass(frozen=True)
class Section:
    """One titled part of the page; ``body`` is markup."""

    anchor: str
    title: str
    body: str


def box(kind: str, parts: Sequence[Part]) -> str:
    """The parts in a frame; nothing where there are none."""
    return f'<div class="{kind}">{html_of(parts)}</div>' if parts else ""


def placeholder(anchor: str, without: str) -> str:
    """Place that the script fills; ``without``: what a reader without scripts sees there."""
    return f'<div id="{escaped(anchor)}"></div><noscript><p class="soft">{escaped(without)}</p></noscript>'


@cache
def asset(name: str) -> str:
    """A file of ``assets``."""
    return (resources.files("dwsweep.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """All of the script, in a scope of its own."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS) + "})();\n"


def data_block(data: Mapping[str, Any]) -> str:
    """JSON in which no text can end the element or start another."""
    content = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and the like are escaped
    for sign in "<>&":
        content = content.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="data">{content}</script>'


def page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    data: Mapping[str, Any] | None = None,
    reload: float | None = None,
) -> str:
    """The whole document, without its empty sections; with ``data`` for its script.

    reload: seconds after which a browser reads the page anew.
    """
    sections = [section for section in sections if section.body]
    added, allowed = "", "'none'"
    if data is not None:
        allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script().encode()).digest()).decode('ascii')}'"
        added = f"{data_block(data)}\n<script>{script()}</script>"
    again = "" if reload is None else f'<meta http-equiv="refresh" content="{reload:g}">'
    links = "".join(f'<a href="#{escaped(s.anchor)}">{escaped(s.title)}</a>' for s in sections)
    body = "".join(f'<section id="{escaped(s.anchor)}"><h2>{escaped(s.title)}</h2>{s.body}</section>' for s in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(allowed)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{again}"
        f"<title>{escaped(title)}</title><style>{asset(STYLE_SHEET)}</style></head>\n"
        f'<body><header><h1>{escaped(title)}</h1><p class="soft">{escaped(subtitle)}</p><nav>{links}</nav></header>\n'
        f"<main>{body}</main>{added}</body></html>\n"
    )
