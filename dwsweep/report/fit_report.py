"""A FitResult for people: one page of tables that fit 100 columns and fold where there are fewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dwsweep import published_law
from dwsweep.records.fit import FitResult, OtherFit
from dwsweep.records.transitions import Contrast, SizedOptimum, Transition, references
from dwsweep.terminal import plain_text
from dwsweep.text import arm_letter, format_count, format_factor
from dwsweep.text import format_range as _range

if TYPE_CHECKING:
    from rich.console import RenderableType


CONTRASTS_SHOWN = 12
_BRIEF = {"already_crossed": "already"}  # beside the reference estimator's status, where room is scarce


def to_text(result: FitResult) -> str:
    """The summary without colours, at most 100 columns wide."""
    return plain_text(render(result))


def render(result: FitResult) -> RenderableType:
    """Cells and noise in a sentence; best depth at each size; transitions; law and rivals; guideline; warnings."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from dwsweep.fit.guideline import joint_crossings
    from dwsweep.report import studies_report
    from dwsweep.report.terminal import Folded

    parts: list[Any] = [Text(_cells_line(result)), Text(_noise_line(result))]
    if result.along:
        parts += [Text(""), *studies_report.render_along(result.along)]
    if result.along_only:
        return Group(*parts, *_warnings(result))
    if result.equal_budgets:
        parts += [Text(""), *studies_report.render_budgets(result.equal_budgets)]
    if result.surface and result.surface.optima:
        parts += [Text(""), *_best_depths(result)]
    if result.transitions:
        parts += [
            Text(""),
            Folded(_transitions(result), beside="interval", optional=("levine", "surface"), file="transitions.csv"),
        ]
        if joint := joint_crossings(result.transitions):
            parts.append(Padding(Text(joint), (0, 0, 0, 2)))
    parts += [part for other in result.others for part in (Text(""), _other(result, other))]
    for number, found in enumerate(result.comparisons, start=1):
        parts += [Text(""), studies_report.render_comparison(found, arm_letter(number), result.curves.size_name)]
    if _uncrossed(result):
        parts += [Text(""), Folded(_contrasts(result), beside="interval")]
    if result.by_tokens:
        parts += [Text(""), Folded(_by_tokens(result))]
    parts += [
        Text(""),
        *_law(result),
        Text(""),
        Folded(_guideline(result), beside="interval", optional=("trained",), file="guideline.csv"),
    ]
    return Group(*parts, *_warnings(result))


def _warnings(result: FitResult) -> list[Any]:
    from rich.text import Text

    return [Text(""), Text("Warnings"), _list(result.warnings)] if result.warnings else []


def _list(lines: list[str]) -> Any:
    """Each line a paragraph that wraps beside its dot, not under it."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(2):
        grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("  ·", Text(line))
    return grid


def _cells_line(result: FitResult) -> str:
    if result.along_only and result.along:
        arms = f" of {len(result.along.arms)} arms" if len(result.along.arms) > 1 else ""
        return f"{result.provenance.rows_used} runs{arms}, compared along {result.along.column} at equal n_params"
    used = [row for row in result.cells if not row.excluded]
    depths = sorted({row.depth for row in used})
    excluded = len(result.cells) - len(used)
    axis = result.curves.axis
    return (
        f"{result.provenance.rows_used} runs, {len(used)} shapes, depths {', '.join(map(str, depths)) or 'none'}"
        + (f", {excluded} shape{'' if excluded == 1 else 's'} excluded (see cells.csv)" if excluded else "")
        + (f"; compared at equal {axis}" if axis != "n_params" else "")
        + (f"; columns taken: {', '.join(taken)}" if (taken := result.provenance.columns_taken) else "")
    )


def _noise_line(result: FitResult) -> str:
    noise = result.noise
    if noise.source == "none":
        return "noise: not known"
    sigmas = [s for s in (noise.sigma or {}).values() if s is not None]
    parts = [f"noise from {noise.source}"]
    if sigmas:
        low, high = min(sigmas), max(sigmas)
        spread = f"{low:.2g}" if high - low < 1e-12 else f"{low:.2g} … {high:.2g}"
        parts.append(f"σ of one run {spread} nats" + ("" if noise.pooled else " (differs by depth)"))
    if noise.tau is not None:
        parts.append(f"scatter of a cell mean about its curve τ {noise.tau:.2g} nats")
    if noise.shape_sd and noise.shape_source == "default":
        parts.append(f"luck of a shape {noise.shape_sd:.2g} nats by default (fewer than six sizes per depth)")
    if noise.documents:
        parts.append(f"documents {noise.documents}")
    return "; ".join(parts)


def _table(title: str, columns: str) -> Any:
    from dwsweep.report.terminal import empty_table

    return empty_table(title, columns)


def _transitions(result: FitResult) -> Any:
    level = round(100 * result.transitions[0].confidence)
    table = _table(
        f"Transitions (where the deeper net overtakes, {level} % intervals)",
        "pair> status< N> interval< width> interval< surface> levine>",
    )
    beside: dict[tuple[int, int], dict[str, str]] = {}
    for row in result.transitions:
        status = _BRIEF.get(row.status, row.status.replace("_", " "))
        text = format_count(row.n_params) if row.n_params else status
        beside.setdefault((row.shallow, row.deep), {})[row.estimator] = text
    for row in references(result.transitions):
        other = beside[row.shallow, row.deep]
        bounded = row.n_params_low is not None or row.n_params_high is not None
        table.add_row(
            f"{row.shallow}→{row.deep}",
            _status(row),
            format_count(row.n_params) if row.n_params else "–",
            _range(row.n_params_low, row.n_params_high, format_count) if bounded else "",
            f"{row.width:.0f}" if row.width else "–",
            _range(row.width_low, row.width_high, lambda v: f"{v:.0f}") if bounded else "",
            other.get("surface", "–"),
            other.get("levine", "–"),
        )
    return table


def _status(row: Transition) -> str:
    """With why it is undecided, and whether what is bounded ties beyond its bound."""
    status: str = row.status.replace("_", " ")
    if row.cause:
        status += f": {row.cause}"
    if row.tie_low is not None:
        status += ", then a tie" if row.status == "not_reached" else ", after a tie"
    return status


def _other(result: FitResult, other: OtherFit) -> Any:
    """The pairs that both have, and how far apart their transitions lie."""
    from rich.text import Text

    from dwsweep.fit.transitions import size_ratio
    from dwsweep.report.terminal import Folded

    shared = [(row, found) for row in references(result.transitions) if (found := other.crossing(row))]
    if not shared:
        return Text(f"Beside {other.name}: no two neighbouring depths that both have")
    table = _table(f"Beside {other.name} ({other.input})", "pair> here< there< ratio> interval<")
    for row, found in shared:
        ratio = size_ratio(row, found)
        table.add_row(
            f"{row.shallow}→{row.deep}",
            _place(row),
            _place(found),
            f"{ratio[0]:.2f}" if ratio else "–",
            _range(*ratio[1:], lambda v: f"{v:.2f}") if ratio else "",
        )
    return Folded(table, beside="interval")


def _place(row: Transition) -> str:
    """Where a pair crosses, with its interval, or the bound that it has."""
    bounded = row.n_params_low is not None or row.n_params_high is not None
    span = _range(row.n_params_low, row.n_params_high, format_count) if bounded else ""
    if row.n_params:
        return f"{format_count(row.n_params)} ({span})"
    return " ".join(filter(None, (_status(row), span)))


def _uncrossed(result: FitResult) -> list[Contrast]:
    """The contrasts of the neighbouring depths about which the transitions cannot say anything; none where the noise
    alone is why."""
    silent = {(row.shallow, row.deep) for row in references(result.transitions) if row.cause not in ("", "noise")}
    return [row for row in result.contrasts if (row.shallow, row.deep) in silent]


def _contrasts(result: FitResult) -> Any:
    rows = _uncrossed(result)
    table = _table(
        "Loss of the shallower − the deeper at equal size, nats (contrasts.csv has every two depths)",
        "pair> N> difference> interval< from<",
    )
    for row in rows[:CONTRASTS_SHOWN]:
        table.add_row(
            f"{row.shallow}→{row.deep}",
            format_count(row.n_params) if row.n_params else "–",
            f"{row.difference:+.4f}",
            _range(row.low, row.high, lambda v: f"{v:+.4f}"),
            row.rests_on,
        )
    return table


def _by_tokens(result: FitResult) -> Any:
    """N of each pair's transition against the tokens trained."""
    rows = [row for row in result.by_tokens if row.is_reference]
    pairs = list(dict.fromkeys((row.shallow, row.deep) for row in rows))
    table = _table("Transitions against tokens", "tokens> " + " ".join(f"{a}→{b}>" for a, b in pairs))
    for tokens in dict.fromkeys(row.tokens for row in rows):
        cells = {(row.shallow, row.deep): row for row in rows if row.tokens == tokens}
        texts = []
        for pair in pairs:
            row = cells.get(pair)
            n = row.n_params if row else None
            texts.append(format_count(n) if n else row.status.replace("_", " ") if row else "–")
        table.add_row(format_count(tokens), *texts)
    return table


def _law(result: FitResult) -> list[Any]:
    from rich.text import Text

    lines: list[Any] = []
    law = result.width_law
    if law is None:
        lines.append(Text(result.law_statement))
        lines.append(Text(f"for reference, {published_law.NAME}: ln d_x = {published_law.A} + {published_law.B}·L"))
    else:
        ends = [f"{low:.4g} … {high:.4g}" for low, high in (law.interval_a, law.interval_b)]
        quality = f"χ² {law.chi2:.2f} for {law.df} degrees of freedom"
        lines.append(Text(f"Width law: {result.law_statement}"))
        lines.append(Text(f"  a {ends[0]}, b {ends[1]}; {quality}"))
        span = f"{format_count(law.valid_from)} … {format_count(law.valid_to)}"
        lines.append(Text(f"  its transitions span N = {span}; published: {published_law.A} + {published_law.B}·L"))
    if second := _second_route(result):
        lines.append(Text(second))
    for row in result.rivals:
        verdict = "wins" if row.winner else "rejected" if row.rejected else "not rejected"
        held = row.held_out
        miss = ""
        if held and held.error_ln_x is not None:
            miss = f", misses the held-out pair {held.shallow}→{held.deep} by {held.error_ln_x:+.2f} in ln N"
        lines.append(Text(f"  {row.form:<11} Δχ² {row.delta_chi2:6.2f}  {verdict}{miss}"))
    return lines


def _second_route(result: FitResult) -> str:
    """The law that the loss surface has in it, beside the one from the crossings."""
    from dwsweep.fit.guideline import likely_law, own_guide

    guide = own_guide(result.surface) if result.curves.axis == "n_params" else None
    if guide is None:
        return ""
    law = likely_law(guide)
    left, right = {"exponential": ("ln d_x", "L"), "power": ("ln d_x", "ln L"), "linear": ("d_x", "L")}[law.form]
    low, high = law.region.min(axis=0), law.region.max(axis=0)
    ends = ", ".join(f"{name} {u:.4g} … {v:.4g}" for name, u, v in zip("ab", low, high, strict=True))
    return (
        f"  from the surface ({law.form} form; of the best depth, not of the shallower of two that cross): "
        f"{left} = {law.theta[0]:.4g} + {law.theta[1]:.4g}·{right}; {ends}"
    )


def _guideline(result: FitResult) -> Any:
    law = result.guideline[0].law.split(": refused")[0] if result.guideline else ""
    table = _table(
        f"Guideline, {law}",
        "model> N> trained> depth> interval< width> interval< rivals< outside>",
    )
    for row in result.guideline:
        refused = row.depth is None
        trained = f"{row.trained_depth}×{row.trained_width}" if row.trained_depth else "–"
        rivals = "–"
        if row.rival_depth_min is not None or row.rival_depth_max is not None:
            rivals = _range(row.rival_depth_min, row.rival_depth_max, lambda v: f"{v:.0f}")
        factor = row.extrapolation_factor
        table.add_row(
            row.name,
            format_count(row.n_params),
            trained,
            "refused" if refused and "refused" in row.law else "–" if refused else f"{row.depth:.1f}",
            "" if refused else _range(row.depth_low, row.depth_high, lambda v: f"{v:.1f}"),
            "–" if refused else f"{row.width:.0f}",
            "" if refused else _range(row.width_low, row.width_high, lambda v: f"{v:.0f}"),
            rivals,
            "inside" if factor <= 1 else f"{format_factor(factor)}×",
        )
    return table


def _best_depths(result: FitResult) -> list[Any]:
    """The minimum over depth of the loss of all depths together, at a few sizes: first, as it needs no law."""
    from rich.text import Text

    from dwsweep.fit.guideline import headline
    from dwsweep.report.terminal import Folded

    assert result.surface
    axis = result.curves.size_name
    level = round(100 * result.surface.confidence)
    title = f"Best depth at each size (minimum of the loss of all depths together, {level} % intervals)"
    known = result.surface.bounded
    if not known:
        return [Text(title), Text("  not known: the data bound it at none of their sizes"), *_shape(result)]
    table = _table(title, f"{axis}> depth> interval<" + (" width>" if axis == "N" else ""))
    for row in result.surface.optima:
        bounded = row in known
        width = f"{(row.n_params / 12 / row.depth) ** 0.5:.0f}" if row.depth and bounded else "–"
        table.add_row(
            format_count(row.n_params),
            "not known" if not bounded else f"{row.depth:.1f}" if row.depth else row.beyond,
            _range(row.depth_low, row.depth_high, lambda v: f"{v:.1f}"),
            *([width] if axis == "N" else []),
        )
    return [
        Text(headline(result.surface, axis), style="bold"),
        Text(""),
        Folded(table, beside="interval"),
        *_shape(result),
    ]


def _shape(result: FitResult) -> list[Any]:
    """Nothing where the runs have said it (``--along depth``)."""
    from rich.padding import Padding
    from rich.text import Text

    said = result.along is not None and result.along.column == "depth"
    return [] if said else [Padding(Text(shape_matters(result)), (0, 0, 0, 2))]


def shape_matters(result: FitResult) -> str:
    """How much the worst of the depths tried loses to the best one, at the smallest and at the largest size."""
    rows = [row for row in (result.surface.optima if result.surface else ()) if row.worst_percent is not None]
    if not rows:
        return ""
    from dwsweep.fit.along import loses

    axis = result.curves.size_name

    def said(row: SizedOptimum) -> str:
        where = f"{axis} = {format_count(row.n_params)}"
        assert row.worst_depth is not None and row.worst_percent is not None
        return loses(row.worst_depth, row.worst_percent, row.worst_percent_low, row.worst_percent_high, where)

    ends = [rows[0]] if len(rows) == 1 else [rows[0], rows[-1]]
    return "shape matters: of the depths tried, " + ", ".join(map(said, ends))
