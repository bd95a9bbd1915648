"""Token group: the runs of one count of tokens, analysed up to the transitions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.answers.crossing import Crossing
from dwsweep.fit.answers.transitions import Pair, analyse_pairs, transition_rows
from dwsweep.fit.data.impossible import BadRun, without_bad_runs
from dwsweep.fit.data.one_variable import width_follows
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.runs import Selection, select_runs
from dwsweep.fit.data.table import Table
from dwsweep.fit.heap import Heap
from dwsweep.fit.statistics.ask import LossSurface, fit_loss_model
from dwsweep.fit.statistics.curves import Curves, build_curves
from dwsweep.fit.statistics.documents import Documents, document_covariance
from dwsweep.fit.statistics.scatter import judged
from dwsweep.fit.warnings import check_runs, confounds, left_out_line, noise_warnings, still_falling
from dwsweep.records.fit import FitOptions, NoiseSummary
from dwsweep.records.transitions import Cell, RateRun, Transition


@dataclass(frozen=True)
class TokenGroup:
    """The runs of one token count, analysed up to the transitions."""

    selection: Selection
    curves: Curves | None  # None if no run has a usable loss
    pairs: Mapping[Pair, Crossing]
    warnings: list[str]
    surface: LossSurface | None = None  # the joint model of all depths
    bad: Sequence[BadRun] = ()
    held_out: Documents | None = None
    rows: Sequence[Row] = ()
    tokens: float | None = None  # tokens of the runs, if the table holds several counts
    one_variable: str = ""  # reason for no statement about shape, if width follows from depth

    @classmethod
    def of(
        cls,
        data: Table,
        rows: list[Row],
        options: FitOptions,
        shorter: bool = False,
        pairs: bool = True,
        heap: Heap | None = None,
        surface: LossSurface | None = None,
    ) -> TokenGroup:
        """``shorter``: True if larger nets are known to have trained on less. ``pairs``: True to compare pairs of
        depths, by the ``surface`` of all depths; None: by one of these runs, where they are enough. ``heap``: that the
        rows are of."""
        if heap:
            selection, bad = heap.selected(rows)
        else:
            own = data.named, data.unit, data.settings
            selection, bad = without_bad_runs(select_runs(rows, options.axis, *own, theirs=data.theirs))
        runs = selection.runs
        warnings = [*data.doubts, *selection.warnings, *check_runs(runs, data, shorter)]
        if not runs:
            warnings = [*warnings, "no finished run with a usable loss: nothing to fit"]
            return cls(selection, None, {}, warnings, rows=rows)
        held_out = document_covariance(data.directory, runs) if options.documents and data.directory else None
        rng = np.random.default_rng(options.seed)
        curves = build_curves(runs, options.noise, rng, held_out, data.unit)
        if heap:
            curves = replace(curves, layer_weights=heap.layer_weights, paired=heap.paired)
        if held_out:
            warnings += held_out.warnings
        if data.directory:
            warnings += still_falling(data.directory, runs)
        one_variable = width_follows(runs)
        if not pairs or one_variable:
            surface = None
        elif surface is None and (record := fit_loss_model(curves, options.confidence, options.seed)):
            surface = LossSurface(record)
        curves = judged(curves, surface.posterior if surface else None)
        warnings += noise_warnings(curves, data.unit)
        if surface and (fitted := len(surface.record.cells.x)) < len(curves.x):
            warnings.append(f"surface: {fitted:,} of {len(curves.x):,} shapes, drawn at random, are fitted")
        warnings += confounds(runs, curves, selection.lost_rates)
        compared = analyse_pairs(curves, options.confidence, surface) if pairs else {}
        if bad:
            warnings.insert(0, left_out_line(bad))
        return cls(
            selection,
            curves,
            compared,
            warnings,
            surface,
            bad,
            held_out,
            rows,
            one_variable=one_variable,
        )

    def transitions(self, options: FitOptions) -> list[Transition]:
        return transition_rows(self.curves, self.pairs, options.confidence, options.paper) if self.curves else []

    def rates(self) -> list[RateRun]:
        """The runs of the shapes that were trained at several learning rates: the curves over the rate."""
        tried = Counter(shape for shape, _ in {(run.shape, run.learning_rate) for run in self.selection.runs})
        return [
            RateRun(
                parametrization=run.row.get("parametrization"),
                depth=run.depth,
                width=_whole(run.width),
                learning_rate=run.learning_rate,
                seed=run.seed,
                loss=run.loss,
            )
            for run in self.selection.runs
            if tried[run.shape] > 1
        ]

    def cells(self) -> list[Cell]:
        c, notes, sizes = self.curves, self.selection.notes, self.selection.sizes
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

    def noise(self) -> NoiseSummary:
        if not self.curves:
            return NoiseSummary(source="none")
        note = self.held_out.note if self.held_out else None
        return noise_summary(self.curves, note, self.selection.diverged_rule)


def noise_summary(curves: Curves, documents: str | None = None, diverged_rule: str | None = None) -> NoiseSummary:
    """Summary of the noise behind the errors of ``curves``. documents: how the held-out ones were used."""
    n, names = curves.noise, NoiseSummary.keys()
    shared = {name: value for name, value in vars(n).items() if name in names}
    own = {
        "df": n.df if math.isfinite(n.df) else None,
        "shape_sd": math.sqrt(n.shape_variance),
        "documents": documents,
        "diverged_rule": diverged_rule,
    }
    return NoiseSummary(**{**shared, **own})


def _whole(value: float) -> int | float:
    return round(value) if abs(value - round(value)) < 1e-6 else float(value)
