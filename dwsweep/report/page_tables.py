"""The tables of the page. Runs come in as results.csv holds them, cells, transitions and guideline as records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dwsweep.records.transitions import Cell, GuidelineRow, Rival, TokenTransition, Transition
from dwsweep.report import page_words
from dwsweep.report.figures.style import plain
from dwsweep.report.html import details, paragraph, table, without_empty
from dwsweep.sweep.snapshot import KeptPromise
from dwsweep.text import format_count

Row = Mapping[str, Any]
Columns = Mapping[str, tuple[str, Callable[[Any], str]]]  # heading → key of the row, form


def show(value: Any, form: Callable[[Any], str] = str) -> str:
    """A cell: – for what is not there, otherwise ``form`` of it."""
    if value is None or value == "":
        return "–"
    try:
        return form(value)
    except (TypeError, ValueError):
        return str(value)


def number(digits: int) -> Callable[[Any], str]:
    """Fixed digits after the point."""
    return lambda value: f"{float(value):,.{digits}f}".replace("-", "−")


def significant(digits: int) -> Callable[[Any], str]:
    return lambda value: f"{float(value):.{digits}g}"


def whole(value: Any) -> str:
    return f"{float(value):,.0f}"


def short(value: Any) -> str:
    return format_count(float(value))


def spread(values: Sequence[Any], form: Callable[[Any], str]) -> str:
    """``5`` or ``5 … 9`` for several values; – for none."""
    known = sorted({float(value) for value in values if value not in (None, "")})
    if not known:
        return "–"
    return form(known[0]) if len(known) == 1 else f"{form(known[0])} … {form(known[-1])}"


def promises(kept: Sequence[KeptPromise]) -> str:
    """One row per shape: the device-seconds that a run of it was promised, and those that its runs took."""
    body = [
        [
            str(one.depth),
            str(one.width),
            whole(one.steps),
            f"{one.time_basis}, {one.device}",
            significant(4)(one.promised),
            spread(one.measured, significant(4)),
            number(2)(one.ratio),
            ", ".join(one.devices),
        ]
        for one in kept
    ]
    headings = ("L", "d", "steps", "rate", "promised, s", "measured, s", "ratio", "trained on")
    return table(headings, body, left=("rate", "trained on"))


def interval(low: float | None, high: float | None, form: Callable[[Any], str]) -> str:
    """``2M to 5M``, ``above 2M``, ``below 5M`` or –."""
    if low is None:
        return "–" if high is None else f"below {form(high)}"
    return f"above {form(low)}" if high is None else f"{form(low)} to {form(high)}"


def runs(rows: Sequence[Row]) -> str:
    """One row per shape, with its runs folded; all runs one by one behind a fold."""
    if not rows:
        return paragraph("results.csv is not there or empty: no table of runs.", "soft")
    shapes: dict[tuple[float, float], list[Row]] = defaultdict(list)
    for row in rows:
        shapes[float(row["depth"]), float(row["width"])].append(row)
    body = []
    for (depth, width), group in sorted(shapes.items()):
        done = [row for row in group if row.get("status") == "done" and row.get("loss")]
        states = Counter(str(row.get("status") or "unknown") for row in group)
        body.append(
            [
                plain(depth),
                plain(width),
                spread([row.get("n_params") for row in group], short),
                str(len({row.get("seed") for row in group})),
                spread([row.get("learning_rate") for row in group], significant(3)),
                spread([row.get("tokens") for row in group], short),
                spread([row.get("loss") for row in done], number(4)),
                ", ".join(
                    f"{n} {state}" for state, n in sorted(states.items(), key=lambda item: (item[0] != "done", item[0]))
                ),
                spread([row.get("tokens_per_second") for row in done], short),
                whole(sum(float(row.get("wall_seconds") or 0.0) for row in done)) if done else "–",
            ]
        )
    columns = ["depth", "width", "N", "seeds", "learning rate", "tokens", "loss", "status", "tokens/s", "seconds (sum)"]
    return table(columns, body, left=["status"]) + details(f"All {len(rows)} runs", all_runs(rows), "all-runs")


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The runs as the table of all runs has them."""
    return sorted(rows, key=lambda row: (float(row["depth"]), float(row["width"]), str(row.get("seed"))))


def all_runs(rows: Sequence[Row]) -> str:
    body = [[show(row.get(name), form) for name, form in RUN_COLUMNS.values()] for row in ordered(rows)]
    return table(list(RUN_COLUMNS), body, left=["run", "status"])


def plain_text(value: Any) -> str:
    return plain(float(value))


RUN_COLUMNS: Columns = {
    "run": ("run_id", str),
    "depth": ("depth", plain_text),
    "width": ("width", plain_text),
    "seed": ("seed", str),
    "learning rate": ("learning_rate", significant(3)),
    "N": ("n_params", short),
    "tokens": ("tokens", short),
    "loss": ("loss", number(5)),
    "± (documents)": ("loss_stderr", number(5)),
    "bits/byte": ("bits_per_byte", number(4)),
    "status": ("status", str),
}


def cells(rows: Sequence[Cell], axis: str = "") -> str:
    """axis: of ``axis_value``, where cells are told by it too."""
    columns: Columns = {
        **({axis: ("axis_value", short)} if axis else {}),
        "depth": ("depth", plain_text),
        "width": ("width", plain_text),
        "N": ("n_params", short),
        "mean loss": ("mean", number(5)),
        "± se": ("se", number(5)),
        "runs": ("n", str),
        "learning rate": ("learning_rate", significant(3)),
        "used": ("excluded", lambda excluded: "no" if excluded else "yes"),
        "remark": ("reason", str),
    }
    body = [[show(getattr(row, name), form) for name, form in columns.values()] for row in rows]
    return table(list(columns), body, left=["used"], long=["remark"])


def transitions(rows: Sequence[Transition]) -> str:
    """The pairs with their intervals; the tokens first where the rows have them."""
    body = [
        [
            *([short(row.tokens)] if isinstance(row, TokenTransition) else []),
            row.name,
            row.estimator,
            row.status.replace("_", " "),
            show(row.n_params, short),
            interval(row.n_params_low, row.n_params_high, short),
            show(row.width, plain_text),
            interval(row.width_low, row.width_high, plain_text),
            show(row.sup_t_left, number(1)),
            show(row.sup_t_right, number(1)),
            show(row.sigma, significant(2)),
            show(row.n_seeds),
            show(row.reason),
        ]
        for row in rows
    ]
    columns = [
        *(["tokens"] if rows and isinstance(rows[0], TokenTransition) else []),
        *("pair", "estimator", "status", "N", "interval of N", "width", "interval of width"),
        *("t left", "t right", "σ (nats)", "seeds", "remark"),
    ]
    return table(*without_empty(columns, body), left=["pair", "estimator", "status"], long=["remark"])


def guideline(rows: Sequence[GuidelineRow]) -> str:
    body = []
    for row in rows:
        factor, penalty = row.extrapolation_factor, "–"
        if row.loss_penalty is not None:
            penalty = f"{row.loss_penalty:.4f} ({interval(row.penalty_low, row.penalty_high, number(4))})"
        body.append(
            [
                row.name,
                format_count(row.n_params),
                _shape(row.trained_depth, row.trained_width),
                show(row.depth, number(1)),
                interval(row.depth_low, row.depth_high, number(1)),
                show(row.width, plain_text),
                interval(row.width_low, row.width_high, whole),
                _shape(row.depth_int, row.width_int),
                page_words.rivals(row) or "–",
                "inside" if factor <= 1 else f"{plain(factor)} × outside",
                penalty,
                row.law,
            ]
        )
    columns = [
        *("model", "N", "trained L × d", "best L", "interval", "best d", "interval of d", "build L × d", "rivals' L"),
        *("range of the law", "loss above the best (nats)", "law"),
    ]
    return table(*without_empty(columns, body), left=["model", "law"])


def _shape(depth: int | None, width: int | None) -> str:
    return "–" if depth is None or width is None else f"{depth} × {plain(width)}"


def rivals(rows: Sequence[Rival]) -> str:
    """The forms compared."""
    if not rows:
        return paragraph("No forms were compared: there is no law to hold them against.", "soft")
    names = ("form", "a", "b", "chi2", "df", "delta_chi2", "rejected", "winner", "bounded")
    body = [[_value(row[name]) for name in names] for row in rows]
    return table([name.replace("_", " ") for name in names], body, left=["form"])


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else show(value)
