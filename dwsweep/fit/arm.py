"""Arm: runs of one recipe at one count of tokens, with the curves of their losses. A table of one recipe is one arm."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.data.impossible import BadRun, without_bad_runs
from dwsweep.fit.data.one_variable import width_follows
from dwsweep.fit.data.rows import LeftOut, Row
from dwsweep.fit.data.runs import Run, Selection, TableShape, select_runs
from dwsweep.fit.data.table import Table
from dwsweep.fit.heap import Heap
from dwsweep.fit.statistics.ask import LossSurface, fit_loss_model
from dwsweep.fit.statistics.curves import Curves, build_curves
from dwsweep.fit.statistics.documents import Documents, document_covariance
from dwsweep.fit.statistics.scatter import judged
from dwsweep.fit.warnings import check_runs, left_out_line, noise_warnings, rate_warnings, still_falling, width_warnings
from dwsweep.records.fit import FitOptions, NoiseSummary
from dwsweep.records.transitions import Cell, RateRun
from dwsweep.text import NATS, join


@dataclass(frozen=True)
class Arm:
    """label: empty for a table alone. losses: None if no run has a usable one. surface: the joint model of all depths.
    bad: impossible runs, which are out. held_out: documents, if every run has them. rows: all that were given. tokens:
    of the runs, if the table holds several counts. one_variable: reason for no statement about shape, if width follows
    from depth. unit: of the losses. lacks: settings of a heap that no run has, in words."""

    label: str
    selection: Selection
    losses: Curves | None
    warnings: Sequence[str] = ()
    surface: LossSurface | None = None
    bad: Sequence[BadRun] = ()
    held_out: Documents | None = None
    rows: Sequence[Row] = ()
    tokens: float | None = None
    one_variable: str = ""
    unit: str = NATS
    lacks: str = ""

    @property
    def runs(self) -> list[Run]:
        return self.selection.runs

    @property
    def curves(self) -> Curves:
        """Curves of the losses, of an arm with a run."""
        assert self.losses is not None
        return self.losses

    @property
    def left_out(self) -> Counter[LeftOut]:
        """Rows that are out, by reason."""
        bad = [(found.run.row["depth"], found.run.width, found.run.loss) for found in self.bad]
        shown = join((f"{depth:g}×{width:g}: {loss:.4g}" for depth, width, loss in bad), 3)
        return self.selection.account + Counter({(f"have an impossible loss ({shown})", ""): len(self.bad)})

    @property
    def diverged(self) -> str:
        """Number of diverged runs in words; empty if none diverged."""
        count = sum("diverged" in str(row.get("status")).lower() or row.get("loss") == math.inf for row in self.rows)
        return f"{count} of {len(self.rows)} runs diverged" if count else ""

    @property
    def ended(self) -> str:
        """Number of diverged runs and their treatment, in words; empty if none diverged."""
        return ": ".join(filter(None, (self.diverged, self.selection.diverged_rule)))

    @property
    def why_none(self) -> str:
        """Reasons why no shape counts, with the number of shapes."""
        reasons = Counter(self.selection.excluded.values()).most_common(3)
        shown = "; ".join(f"{reason} ({count} shapes)" for reason, count in reasons)
        return self.diverged or shown or "it has no finished run"

    @property
    def rates_tried(self) -> Counter[TableShape]:
        """Number of learning rates of each shape."""
        return Counter(shape for shape, _ in {(run.shape, run.learning_rate) for run in self.runs})

    def rates(self) -> list[RateRun]:
        """The runs of the shapes that were trained at several learning rates: the curves over the rate."""
        tried = self.rates_tried
        return [
            RateRun(
                parametrization=run.row.get("parametrization"),
                depth=run.depth,
                width=_whole(run.width),
                learning_rate=run.learning_rate,
                seed=run.seed,
                loss=run.loss,
            )
            for run in self.runs
            if tried[run.shape] > 1
        ]

    def cells(self) -> list[Cell]:
        c, notes, sizes = self.losses, self.selection.notes, self.selection.sizes
        rows = [
            Cell(
                depth=int(c.depth[k]),
                width=_whole(c.width[k]),
                n_params=_whole(c.n_params[k]),
                mean=float(c.mean[k]),
                se=float(c.se[k]) if c.noise.known else None,
                n=int(c.n[k]),
                learning_rate=c.learning_rate[k],
                excluded=False,
                reason=notes.get(c.shape(k), ""),
                axis_value=float(math.exp(c.x[k])),
                block=c.shape(k).block,
            )
            for k in range(len(c.mean) if c else 0)
            if c
        ]
        rows += [
            Cell(
                depth=shape.depth,
                width=_whole(shape.width),
                n_params=_whole(sizes.get(shape, 12.0 * shape.depth * shape.width**2)),
                excluded=True,
                reason=reason,
                block=shape.block,
            )
            for shape, reason in self.selection.excluded.items()
        ]
        return sorted(rows, key=lambda row: (row.depth, row.width))

    @property
    def noise(self) -> NoiseSummary:
        """Noise behind the errors of the curves."""
        if self.losses is None:
            return NoiseSummary(source="none")
        n, names = self.curves.noise, NoiseSummary.keys()
        shared = {name: value for name, value in vars(n).items() if name in names}
        own = {
            "df": n.df if math.isfinite(n.df) else None,
            "shape_sd": math.sqrt(n.shape_variance),
            "documents": self.held_out.note if self.held_out else None,
            "diverged_rule": self.selection.diverged_rule,
        }
        return NoiseSummary(**{**shared, **own})


def selected(data: Table, rows: Sequence[Row], options: FitOptions) -> Selection:
    """The runs of ``rows`` that count, of a table whose losses are adjusted for nothing."""
    return select_runs(list(rows), options.axis, data.named, data.unit, data.settings, theirs=data.theirs)


def analysed(
    data: Table,
    rows: Sequence[Row],
    options: FitOptions,
    label: str = "",
    shorter: bool = False,
    alone: bool = True,
    heap: Heap | None = None,
    surface: LossSurface | None = None,
    selection: Selection | None = None,
) -> Arm:
    """The arm of ``rows``, of one count of tokens. shorter: True if larger nets are known to have trained on less.
    alone: False for an arm that is compared, whose depths a surface of all arms answers. heap: that the rows are of.
    surface: the model of all depths; None: by these runs, where they are enough. selection: the runs that count, where
    the depth of a run is the number of its curve."""
    numbered = selection is not None
    if heap:
        selection, bad = heap.selected(rows)
    else:
        selection, bad = without_bad_runs(selection or selected(data, rows, options))
    runs = selection.runs
    warnings = [*data.doubts, *selection.warnings, *check_runs(runs, data, heap.shorter if heap else shorter)]
    if not runs:
        warnings = [*warnings, "no finished run with a usable loss: nothing to fit"]
        return Arm(label, selection, None, warnings, rows=rows, unit=data.unit)
    held_out = document_covariance(data.directory, runs) if options.documents and data.directory else None
    curves = build_curves(runs, options.noise, np.random.default_rng(options.seed), held_out, data.unit)
    if heap:
        curves = replace(curves, layer_weights=heap.layer_weights, paired=heap.paired)
    if held_out:
        warnings += held_out.warnings
    if data.directory:
        warnings += still_falling(data.directory, runs)
    if (why := width_follows(runs)) or not alone:
        surface = None
    elif surface is None and (record := fit_loss_model(curves, options.confidence, options.seed)):
        surface = LossSurface(record)
    curves = judged(curves, surface.posterior if surface else None)
    warnings += noise_warnings(curves, data.unit)
    if surface and (fitted := len(surface.record.cells.x)) < len(curves.x):
        warnings.append(f"surface: {fitted:,} of {len(curves.x):,} shapes, drawn at random, are fitted")
    if not numbered:  # these name depths
        warnings += [*rate_warnings(runs, curves, selection.lost_rates), *width_warnings(runs)]
    if bad:
        warnings.insert(0, left_out_line(bad))
    return Arm(label, selection, curves, warnings, surface, bad, held_out, rows, one_variable=why, unit=data.unit)


def _whole(value: float) -> int | float:
    return round(value) if abs(value - round(value)) < 1e-6 else float(value)
