"""What ``dwsweep design`` says, for a terminal of 100 columns, and its figure."""

from __future__ import annotations

import math
from os import PathLike
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dwsweep import paths
from dwsweep.design.information import Errors, PairError
from dwsweep.design.study import Study
from dwsweep.report.terminal.folding import Folded
from dwsweep.text import format_count

NO_LAW = 10.0  # a relative error from here on stands for no law at all


def render(study: Study) -> Group:
    """Tables and sentences of :func:`dwsweep.design.study`."""
    errors = study.errors
    parts: list[Any] = [
        Text.assemble((study.spec.name, "bold"), f": {study.runs} runs to train, {_power(study.flops)} FLOPs"),
        *(_line(text) for text in study.prior.basis),
        Text("\nTransitions that this sweep would find", style="bold"),
        Folded(_pairs(errors)),
        Text(),
        Text.assemble(("Law and target:", "bold"), f" {law_text(errors)}"),
    ]
    if study.now is not None:
        parts.append(Text(f"With the finished runs alone: {law_text(study.now)}"))
    parts += [Text("\nWhat a change would buy", style="bold"), Folded(_alternatives(study)), Text(), _halving(study)]
    if study.proposals:
        parts += [
            Text("\nRuns to add, the most informative per FLOP first", style="bold"),
            Folded(_proposals(study), keys=2),
        ]
        parts += [Text(), *_proposed(study)]
    parts += [Text(), _legend()]
    return Group(*parts)


def law_text(errors: Errors) -> str:
    """One sentence on a, b and L*(target)."""
    if errors.se_a is None or errors.se_b is None:
        return "fewer than two transitions lie inside the sizes of both their depths: no law could be fitted"
    if errors.depth is None or errors.se_depth is None:
        return (
            f"a ± {errors.se_a:.3f}, b ± {errors.se_b:.2g}; the law has no best depth at {format_count(errors.target)}"
        )
    return (
        f"a ± {errors.se_a:.3f}, b ± {errors.se_b:.2g}; best depth at {format_count(errors.target)} parameters "
        f"{errors.depth:.1f} ± {errors.se_depth:.1f} layers ({errors.rms:.1%}, interpolation included)"
    )


def _pairs(errors: Errors) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("pair", "N", "width", "± ln N", "± width", "bias ln N", "P(crossed)"):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in errors.pairs:
        table.add_row(*_pair_cells(pair))
    return table


def _pair_cells(pair: PairError) -> list[str]:
    start = [f"{pair.shallow}/{pair.deep}", f"{pair.n_params:.2g}", f"{pair.width:,.0f}"]
    if pair.se_ln_n is None or pair.bias_ln_n is None or pair.power is None:
        return [*start, "outside the sizes", "", "", ""]
    half = 100 * (math.exp(pair.se_ln_n / 2) - 1)
    return [*start, f"{pair.se_ln_n:.3f}", f"{half:.1f} %", f"{pair.bias_ln_n:+.3f}", f"{pair.power:.0%}"]


def _alternatives(study: Study) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("change")
    for name in ("runs", "FLOPs", "a ±", "b ±", "best depth ±", "of as planned"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [("as planned", 0, 0, study.errors)]
    rows += [(f"+ {a.name}", a.runs, a.flops, a.errors) for a in study.alternatives]
    for name, runs, flops, errors in rows:
        known = errors.se_a is not None and errors.se_b is not None and errors.se_depth is not None
        comparable = known and study.errors.se_a is not None
        table.add_row(
            name,
            f"+{runs}" if runs else str(study.runs),
            f"+{_power(flops)}" if flops else _power(study.flops),
            f"{errors.se_a:.3f}" if known else "no law",
            f"{errors.se_b:.2g}" if known else "",
            f"{errors.se_depth:.2f}" if known else "",
            f"{errors.rms / study.errors.rms:.0%}" if comparable else "",
        )
    return table


def _halving(study: Study) -> Text:
    best = study.halving
    if best is None:
        return Text("None of these changes halves the error at the target.")
    what = "that halves the error at the target" if study.errors.se_a is not None else "that lets a law be fitted"
    return Text(f"The cheapest of these {what}: {best.name}, {_power(best.flops)} FLOPs more.")


def _proposals(study: Study) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("#", "L × d_x", "N", "seed", "FLOPs", "error at the target after it"):
        table.add_column(name, justify="right", no_wrap=True)
    has_law = study.errors.se_a is not None
    for number, item in enumerate(study.proposals, 1):
        table.add_row(
            str(number),
            f"{item.shape.depth} × {item.shape.width}",
            format_count(item.shape.n_params),
            str(item.seed),
            _power(item.flops),
            f"{item.rms_after:.2%}" if has_law and item.rms_after < NO_LAW else "no law yet",
        )
    return table


def _proposed(study: Study) -> list[Any]:
    spent = sum(item.flops for item in study.proposals)
    lines: list[Any] = []
    assert study.proposed is not None
    lines.append(Text(f"After them: {law_text(study.proposed)}"))
    uniform = uniform_at(study, spent)
    if uniform is not None and study.proposed.rms < NO_LAW:
        lines.append(
            Text(
                f"They cost {_power(spent)} FLOPs and leave {study.proposed.rms:.2%}; the same spent on further "
                f"seeds of every shape leaves {uniform:.2%}."
            )
        )
    return lines


def uniform_at(study: Study, flops: float) -> float | None:
    """Error that ``flops`` of further seeds on every shape leave, interpolated in FLOPs; None beyond what was tried."""
    import numpy as np

    if not study.uniform or flops > study.uniform[-1][0] or study.uniform[0][1] >= NO_LAW:
        return None
    return float(np.interp(flops, [f for f, _ in study.uniform], [rms for _, rms in study.uniform]))


def _power(value: float) -> str:
    return f"{value:.1e}".replace("e+", "e")


def _line(text: str) -> Padding:
    return Padding(Text(text, style="dim"), (0, 0, 0, 2))


def _legend() -> Padding:
    return _line(
        "N, width: of the transition that the prior law expects (width: the shallower net's). ± one standard "
        "deviation. bias: of interpolating between the sizes. P(crossed): chance that `fit` will call it crossed. "
        "Pairs outside the sizes count as unknown here, though `fit` also draws on one-sided ones. FLOPs: training, "
        "all learning rates. More widths lower the bias and hardly the noise: `fit` reads a crossing off the sizes "
        "next to it, and where one falls on a size, that size's noise counts whole, between two of them only 0.7 of it."
    )


def write_specs(study: Study, directory: str | PathLike[str]) -> list[Any]:
    """Write the proposals as specs that are ready for ``run``; returns their paths."""
    folder = paths.make_directory(paths.as_path(directory))
    written = []
    for fragment in study.fragments:
        path = folder / f"{fragment.name}.yaml"
        paths.write_atomic(
            path,
            f"# Proposed by `dwsweep design` for {study.spec.name}. Into the same sweep directory:\n"
            f"#   dwsweep run {path.name} --out runs/{study.spec.name}\n" + fragment.to_yaml(),
        )
        written.append(path)
    return written


def draw(study: Study, path: Any) -> Any:
    """The error at the target against FLOPs: the proposals, and further seeds on every shape. PNG or SVG by suffix."""
    from dwsweep.report.figures import style

    spent, flops, errors = 0, [0.0], [study.proposals[0].rms_before if study.proposals else study.errors.rms]
    for item in study.proposals:
        spent += item.flops
        flops.append(float(spent))
        errors.append(item.rms_after)
    reach = max(flops[-1] * 1.15, study.uniform[1][0] if len(study.uniform) > 1 else 0.0)
    uniform = [(f, rms) for f, rms in study.uniform if f <= 1.5 * reach]
    exponent = math.floor(math.log10(reach)) if reach > 0 else 0
    curves = (
        ("proposed runs", list(zip(flops, errors, strict=True)), "#0072B2", "o", "-"),
        ("further seeds on every shape", uniform, "#D55E00", "s", (0, (6, 1.5))),
    )
    with style.styled():
        figure = style.figure(5.6, 3.6)
        axes = figure.add_subplot()
        highest = 0.0
        for label, points, colour, marker, line in curves:
            known = [(f / 10.0**exponent, 100 * rms) for f, rms in points if rms < NO_LAW]
            if known:
                axes.plot(*zip(*known, strict=True), color=colour, marker=marker, linestyle=line, label=label)
                highest = max(highest, *(error for _, error in known))
        axes.set_ylim(0, 1.08 * highest or 1.0)
        axes.margins(x=0.04)
        axes.set_xlabel(f"training FLOPs added, units of $10^{{{exponent}}}$")
        axes.set_ylabel("error of the best depth, %")
        axes.set_title(f"{study.spec.name}: best depth at {format_count(study.errors.target)} parameters", loc="left")
        if highest:
            axes.legend(loc="lower left")
        else:
            style.says(axes, "no law could be fitted, before or after these runs")
        paths.make_directory(path.parent)
        paths.write_atomic(path, style.render(figure, path.suffix[1:]))
    return path
