"""``dwsweep report DIR``: one self-contained page with the answer, the figures, the tables and where they come from."""

from __future__ import annotations

import csv
import hashlib
import html
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.fit.guideline import headline, joint_crossings
from dwsweep.guide import source_of
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult
from dwsweep.records.record import to_dict
from dwsweep.records.run import FINAL
from dwsweep.records.transitions import references
from dwsweep.report.figures import registry, style
from dwsweep.report.figures import runs as run_figures
from dwsweep.report.figures.runs import Conditions, TrainingCurve
from dwsweep.report.page import along_section, budget_words, comparison_section, page_data, page_tables, words
from dwsweep.report.page.html import (
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
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import PlannedTime, planned_vs_measured, sentence

HOW_TO_READ = (
    "Size N counts non-embedding parameters: 12·L·d² for the standard block, with L the depth and d the width. Losses "
    "are held-out nats per token.",
    "A transition is the size at which the deeper of two neighbouring depths starts to win. Its status is crossed, not "
    "reached (only the shallower net is ever significantly ahead), already crossed (only the deeper), undecided "
    "(neither) or ambiguous. A size is given only for crossed pairs; the others give a bound or nothing.",
    "Intervals are sets of sizes at which the two nets cannot be told apart, so they may be lopsided or open at an "
    "end. The estimator pchip is the reference; surface (all depths together) and levine (the two-width rule, "
    "biased to larger widths) stand by it.",
    "The width law gives the width at which depth L stops being the better one. It is a statement about this model "
    "family, data, recipe and spacing of depths; the range of its transitions is its evidence, the rest extrapolates.",
    "At a transition the two depths tie, so the best depth at that size lies between them; the surface says where.",
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
    runs = every if fit.along_only else comparison_section.of_the_fit(every, fit)
    curves, conditions = _logged(every, runs, root)
    store = SweepStore(root)
    manifest = to_dict(store.manifest)
    stale = _stale(fit, root / "results.csv")
    # a shape that was trained at several budgets is a cell at each of them
    axis = fit.equal_budgets.axis if fit.equal_budgets and fit.equal_budgets.only else ""
    sections = [
        Section("answer", "The answer", _answer(fit)),
        *along_section.sections(fit),
        *comparison_section.sections(fit),
        Section("budget", "Your budget", placeholder("answers-box", WITHOUT_BUDGET)),
        Section("warnings", "Warnings", _warnings([*_unfinished(every), *stale, *fit.warnings])),
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
            + comparison_section.other_runs(every, runs),
        ),
        *promises(planned_vs_measured(store, (row["run_id"] for row in runs if row.get("run_id")))),
        Section("training", "Training curves", _training(curves)),
        *_conditioning(conditions),
        Section("provenance", "Provenance", _provenance(fit, runs, manifest, root)),
        Section("reading", "How to read it", bullets(HOW_TO_READ)),
    ]
    title = f"{_name(root)}: how deep and how wide"
    depths = sorted({cell.depth for cell in fit.cells if not cell.excluded})
    used = fit.provenance.rows_used
    subtitle = f"Depths {', '.join(map(str, depths)) or 'none'}; {len(fit['cells'])} shapes; {used} runs used."
    if fit.along_only and fit.along:
        sections = [section for section in sections if section.anchor not in along_section.LEFT_OUT]
        title, subtitle = f"{_name(root)}: loss along {fit.along.column}", f"{used} runs used."
    source = source_of(fit, file) if any(section.anchor == "budget" for section in sections) else None
    data = page_data.collected(fit, page_tables.ordered(runs), curves, source, file, root)
    return _write_page(out or root / "report.html", title, subtitle, sections, data)


def _write_page(path: Any, *content: Any) -> Any:
    path = paths.as_path(path)
    paths.make_directory(path.parent)
    paths.write_atomic(path, page(*content))
    return path


def _unfitted(root: Any, runs: Sequence[Mapping[str, str]]) -> tuple[str, str, list[Section]]:
    """Title, subtitle and sections of a sweep without a fit: what was trained and how."""
    curves, conditions = _logged(runs, runs, root)
    store = SweepStore(root)
    unfitted = f"Not fitted yet: dwsweep fit {root}"
    sections = [
        Section("answer", "The answer", box("answer", paragraph(html.escape(unfitted), "headline"))),
        Section("warnings", "Warnings", _warnings(_unfinished(runs))),
        Section("runs", "Runs", page_tables.runs(runs)),
        *promises(planned_vs_measured(store, (row["run_id"] for row in runs if row.get("run_id")))),
        Section("training", "Training curves", _training(curves)),
        *_conditioning(conditions),
        Section("provenance", "Provenance", _provenance(None, runs, to_dict(store.manifest), root)),
    ]
    return f"{_name(root)}: how deep and how wide", f"{len(runs)} runs, not fitted.", sections


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
        return box("answer", body + bullets([*budget_words.best_shapes(fit.equal_budgets), *words.law(fit)]))
    pairs = [words.transition(row, fit.curves.axis) for row in references(fit.transitions)]
    joint = joint_crossings(fit.transitions)
    pairs += [f"{joint[:1].upper()}{joint[1:]}."] if joint else []
    said = headline(fit.surface, fit.curves.size_name) if fit.surface else ""
    body = paragraph(said, "headline") if said else ""
    body += "<h3>Best depth at each size</h3>" + bullets(words.best_depths(fit))
    body += "<h3>Where the deeper net starts to win</h3>" + (
        bullets(pairs) if pairs else paragraph("Fewer than two depths: there is no pair to compare.")
    )
    body += "<h3>Width law</h3>" + bullets(words.law(fit))
    whose = "this sweep's own losses" if fit.guideline_law else "the published law"
    body += f"<h3>How deep and how wide, by {whose}</h3>" + bullets(words.guideline(fit.guideline))
    return box("answer", body)


def _warnings(lines: Sequence[str]) -> str:
    return box("warnings", bullets(lines)) if lines else paragraph("None.")


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
    at_budgets = ("<h3>Best size of each depth</h3>" + budget_words.depths(budgets)) if budgets else ""
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


def promises(kept: Sequence[PlannedTime]) -> list[Section]:
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


def _training(curves: Sequence[TrainingCurve]) -> str:
    if not curves:
        return paragraph("No run has logged a training loss: nothing to draw.", "soft")
    with style.styled():
        drawn = style.render(run_figures.training_curves(curves), "svg")
    caption = "One thin line per run, averaged over bins of ln step; lighter is larger. Dashed with a cross: diverged."
    return picture(drawn, "Training loss against step, one panel per depth", caption)


def _provenance(
    fit: FitResult | None, runs: Sequence[Mapping[str, str]], manifest: Mapping[str, Any], root: Any
) -> str:
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
    if fit is not None:
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
