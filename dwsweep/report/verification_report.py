"""The table of ``dwsweep bench --verify``: each check with its value and tolerance, the rates, a line per failure."""

from __future__ import annotations

from typing import Any

from dwsweep.records.verification import Check, ShapeRate, Verification
from dwsweep.report.console import render as rendered
from dwsweep.report.document import MISSING, Line, Lines, Table, label, number

_MARKS = {True: "ok", False: "FAILED", None: "not judged"}


def render(found: Verification) -> Any:
    """The tables and lines, to be printed by rich."""
    checks = Table(
        "",
        [label("check"), label("result"), number("value"), number("at most"), label("unit")],
        ruled=False,
        apart=False,
    )
    for check in found.checks:
        numbers = (_number(check.value), _number(check.tolerance))
        checks.add(check.name, _MARKS[check.passed], *numbers, check.unit or MISSING, strong=check.passed is False)
    devices = f"{found.devices} × {found.device_kind}" if found.devices > 1 else found.device_kind
    driver = f"; driver {found.driver}" if found.driver else ""
    versions = ", ".join(f"{name} {value}" for name, value in found.versions.items())
    head: list[Line] = [[(f"{devices}; {found.backend}{driver}", "bold")], f"dwsweep {found.dwsweep}, {versions}"]
    passed = sum(check.passed is True for check in found.checks)
    open_ = [check for check in found.checks if check.passed is None]
    below: list[Line] = [[(f"failed: {check.name}: {_why(check)}", "red")] for check in found.failed]
    below += [f"not judged: {check.name}: {check.said}" for check in open_]
    below.append(
        f"{passed} checks passed, {len(found.failed)} failed, {len(open_)} not judged, in {found.seconds:,.0f} s"
    )
    return rendered([Lines(head), checks, *_rates(found.rates), Lines(below, apart=True)])


def _rates(rates: tuple[ShapeRate, ...]) -> list[Any]:
    if not rates:
        return []
    table = Table(
        "",
        [*map(number, ("L", "d_x", "batch", "step", "tokens/s", "MFU", "A100")), label("kernel")],
        keys=2,
        ruled=False,
    )
    for row in rates:
        table.add(
            str(row.depth),
            str(row.width),
            f"{row.batch_size} × {row.seq_len}",
            f"{1000 * row.step_seconds:.1f} ms",
            f"{row.tokens_per_second:,.0f}",
            f"{row.mfu:.1%}",
            MISSING if row.published_mfu is None else f"{row.published_mfu:.0%}",
            row.attention_kernel or MISSING,
        )
    first = rates[0]
    legend = (
        f"{first.precision}, one seed; MFU over {first.peak_flops:.3g} FLOP/s, {first.peak_basis}. {first.published}."
    )
    return [table, Lines([legend], soft=True)]


def _why(check: Check) -> str:
    if check.value is None or check.tolerance is None:
        return check.said
    return f"{check.value:.3g} {check.unit}, tolerance {check.tolerance:.3g}: {check.said}"


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2g}"
