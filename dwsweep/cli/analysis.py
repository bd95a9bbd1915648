"""Commands of the analysis: fit losses, choose a shape, design a sweep. None of them imports JAX."""

from __future__ import annotations

import sys
import warnings
from enum import StrEnum
from typing import Annotated, Any

import typer

from dwsweep import paths, terminal
from dwsweep.cli.options import (
    AsJson,
    Overrides,
    PathValue,
    SweepDirectory,
    count_option,
    count_value,
    folder_option,
    given,
    hours_option,
    layer_time_value,
    number_option,
    path_option,
    path_value,
    switch,
    text_option,
    whole_option,
)
from dwsweep.errors import InputError
from dwsweep.text import printable

Axis = StrEnum("Axis", ["n_params", "n_params_total", "flops", "device_seconds"])
Unit = StrEnum("Unit", ["nats", "bits", "bpb", "bpc"])
Mlp = StrEnum("Mlp", ["plain", "gated"])
Constraint = StrEnum("Constraint", ["balanced", "size", "flops", "time", "decode"])
Project = StrEnum("Project", ["hf", "nanochat"])

NEXT_RUNS, HEADS, DEVICE = 6, 2, "H100"  # defaults
TABLE, HELD, ERRORS = "The table", "Settings held", "Errors"  # panels of `fit --help`
BLOCK, TIME, OUTPUT = "The shapes", "Time", "Output"  # panels of `guide --help`
PLAN = "A spec to write"  # panel of `design --help`

commands = typer.Typer(rich_markup_mode="rich")


@commands.command(
    epilog="Examples: dwsweep fit runs/smoke · dwsweep fit runs/gpt2 runs/llama --compare · "
    "dwsweep fit runs/leaner --along heads · dwsweep fit my.csv --column loss=val_loss --where 'warmup == 400' · "
    "dwsweep fit mlfoundations --where 'warmup == 400 and heads == 4 and global_batch == 64'"
)
def fit(
    ctx: typer.Context,
    tables: Annotated[
        list[PathValue],
        typer.Argument(
            metavar="DIR|TABLE...",
            parser=path_value,
            help="Sweep; CSV, TSV, JSON(L), Parquet or Excel, also packed; - or a public one; wandb:ENTITY/PROJECT, "
            "mlflow:EXPERIMENT.",
        ),
    ],
    out: Annotated[
        PathValue | None,
        folder_option("Folder to write; default DIR/fit, table.csv: table-fit, a published table: ./NAME-fit."),
    ] = None,
    compare: Annotated[
        bool, switch("--compare", help="Compare each further table, or each arm of the sweep, with the first.")
    ] = False,
    along: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Fit the loss of one recipe along this column, such as heads or depth."),
    ] = None,
    beside: Annotated[
        list[PathValue] | None,
        typer.Option(
            "--with",
            metavar="DIR|TABLE",
            parser=path_value,
            help="Also fit this table, for comparison; may be repeated.",
        ),
    ] = None,
    axis: Annotated[Axis, typer.Option(help="Size at which depths are compared.")] = Axis.n_params,
    unit: Annotated[
        Unit | None,
        typer.Option(
            help="Unit of the losses: nats or bits per token, bits per byte; default: by their name.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    noise: Annotated[float | None, number_option("SIGMA", "Noise (sd) of one run's loss, in its unit.", ERRORS)] = None,
    column: Annotated[
        list[str] | None,
        text_option("OURS=THEIRS", "Read a column under our name, or the part that a pattern finds.", TABLE),
    ] = None,
    drop: Annotated[list[str] | None, text_option("COLUMN", "Ignore this column of the table.", TABLE)] = None,
    arm: Annotated[str | None, text_option("COLUMN", "Column that names a run's arm.", TABLE)] = None,
    adjust: Annotated[
        list[str] | None, text_option("COLUMN", "Adjust losses for this column, besides the usual settings.", HELD)
    ] = None,
    no_adjust: Annotated[
        list[str] | None, text_option("COLUMN", "Leave this column to follow depth as in the table.", HELD)
    ] = None,
    at: Annotated[
        list[str] | None,
        text_option("COLUMN=VALUE", "Answer for this value, such as batch=256; default the commonest.", HELD),
    ] = None,
    where: Annotated[
        list[str] | None, text_option("EXPR", "Keep rows such as 'warmup == 400', by the table's names or ours.", TABLE)
    ] = None,
    params: Annotated[list[float] | None, count_option("N", "Add this size to the guideline, such as 3B.")] = None,
    confidence: Annotated[
        float, number_option("SHARE", "Confidence level of every interval, from 0.5 to below 1.", ERRORS)
    ] = 0.95,
    at_tokens: Annotated[
        float | None,
        count_option("TOKENS", "Compare losses after this many tokens, such as 100B; default the commonest.", HELD),
    ] = None,
    tokens_per_param: Annotated[
        float | None, number_option("R", "Compare losses after this many tokens per non-embedding parameter.", HELD)
    ] = None,
    paper: Annotated[
        bool, switch("--paper", help="Also list each pair of depths by its own two curves, as the paper does.")
    ] = False,
    full: Annotated[bool, switch("--full", help="Print every table, not the answer alone.")] = False,
    json: AsJson = False,
) -> None:
    """Fit losses: cells, transitions, width law, alternative laws, guideline, warnings, figures."""
    from dwsweep.fit.warnings import check_fitted
    from dwsweep.records import fit as fit_record
    from dwsweep.report import fit_report
    from dwsweep.report.figures import registry
    from dwsweep.results import fit_table
    from dwsweep.sweep.results_table import settle_results

    table, *others = tables
    if others and not compare:
        raise InputError(f"DIR|TABLE: {others[0]}; a second table is allowed with --compare, or as --with {others[0]}")
    out = out or _fit_folder(table)
    fit_record.check_folder(out)
    for one in (*tables, *(beside or ())):
        settle_results(one, _note)
    keywords = given(ctx, fit_record.KEYWORDS)
    with terminal.waiting("fitting"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what was noted already
        result = fit_table(table, along=along, compare=others or compare, columns=column or (), **keywords)
        check_fitted(result)
        note = fit_record.replaced(result, out)
        written = fit_record.write(result, out) + fit_report.write_guideline(result, out)
        registry.clear(out)
    terminal.show(lambda: fit_report.render(result, None if full else out), result.to_dict, json)
    if note:
        print(f"note: {printable(note)}", file=sys.stderr)
    sys.stdout.flush()
    # the report takes as long as the fit: the answer need not wait for it
    with terminal.waiting("drawing"):
        written += map(str, registry.draw(result, out))
    print(
        printable(f"wrote {written[0]} and {len(written) - 1} more beside it"), file=sys.stderr if json else sys.stdout
    )


def _check_free(name: str, path: Any) -> None:
    """Refuse a path that is there, given as the parameter ``name``."""
    if path.exists():
        raise InputError(f"{name}: {path} is there already; allowed: a name that is free")


def _note(line: str) -> None:
    print(f"note: {printable(line)}", file=sys.stderr, flush=True)


def _fit_folder(table: PathValue) -> PathValue:
    """Default folder of a fit: in a sweep directory, or beside a table."""
    from dwsweep.fit.data import trackers
    from dwsweep.records import fit as fit_record

    if table.is_dir():  # a published table, in whose folder no sweep trains, stays unchanged
        own = "://" in str(table) or (table / "spec.yaml").exists() or not (table / "results.csv").exists()
        return table / "fit" if own else paths.as_path(f"fit-{table.name}")
    if str(table) == "-":
        return paths.as_path("stdin-fit")
    if trackers.tracker_of(str(table)):
        return paths.as_path(f"{trackers.name_of(str(table))}-fit")
    return fit_record.folder_beside(table)


@commands.command(
    epilog="Examples: dwsweep guide --params 3B --kv-heads 8 --mlp gated · dwsweep guide --shape 32x2816 · "
    "dwsweep guide --hours 24 --device H100:8 · dwsweep guide --fit runs/smoke --params 300K"
)
def guide(
    ctx: typer.Context,
    sizes: Annotated[
        list[float] | None,
        typer.Argument(metavar="[N]...", parser=count_value, help="Non-embedding parameters, such as 3B, as --params."),
    ] = None,
    params: Annotated[list[float] | None, count_option("N", "Non-embedding parameters, such as 3B.")] = None,
    flops: Annotated[float | None, number_option("C", "In place of N: FLOPs of training, such as 1e21.")] = None,
    hours: Annotated[float | None, hours_option("In place of N: hours of training on --device, such as 24h.")] = None,
    shape: Annotated[list[str] | None, typer.Option(metavar="LxD", help="Judge a shape, such as 96x12288.")] = None,
    at: Annotated[
        Constraint,
        typer.Option(
            help="Recommend the best shape at equal …, or the one that wastes little of size, flops and time."
        ),
    ] = Constraint.balanced,
    fit: Annotated[PathValue | None, path_option("PATH", "Your own fit (default: public evidence).")] = None,
    law: Annotated[str | None, typer.Option(metavar="levine2020", help="Use the published law instead.")] = None,
    sources: Annotated[bool, switch("--full", "--sources", help="Also list public sources and built models.")] = False,
    head_size: Annotated[int | None, whole_option("P", "Head size (default: 128, 96 or 64).", BLOCK)] = None,
    kv_heads: Annotated[int | None, whole_option("K", "Grouped key/value heads.", BLOCK)] = None,
    mlp: Annotated[Mlp, typer.Option(help="Kind of MLP.", rich_help_panel=BLOCK)] = Mlp.plain,
    mlp_ratio: Annotated[float | None, number_option("R", "Inner width / d_x.", BLOCK)] = None,
    mlp_multiple: Annotated[int | None, whole_option("M", "Inner widths must be multiples of M.", BLOCK)] = None,
    vocab_size: Annotated[int | None, whole_option("V", "Vocabulary (default: the fit's, else 50257).", BLOCK)] = None,
    context: Annotated[int | None, whole_option("T", "Positions (default: the fit's, else 2048).", BLOCK)] = None,
    tensor_parallel: Annotated[
        int, whole_option("N", "Tensor-parallel ranks; must divide heads and inner width.", BLOCK)
    ] = 1,
    device: Annotated[
        str | None,
        typer.Option(
            help="Device for time and latency, such as H100:8, or tflops=…,gb=…,gbps=… (default: H100).",
            rich_help_panel=TIME,
        ),
    ] = None,
    layer_time: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            parser=layer_time_value,
            help="Time of a layer per decoded token, such as 0.67ms; the default is assumed.",
            rich_help_panel=TIME,
        ),
    ] = 20e-6,
    latency: Annotated[
        PathValue | None, path_option("TABLE", "Measured latency: depth, width and ms per decoded token.", TIME)
    ] = None,
    tokens: Annotated[float | None, count_option("N", "Tokens of training, such as 60B; gives hours.", TIME)] = None,
    tokens_per_param: Annotated[
        float | None, number_option("R", "Tokens per parameter, without --tokens; default: 20, or by the fit.", TIME)
    ] = None,
    export: Annotated[
        Project | None, typer.Option(help="Print the recommended shape as a configuration of …", rich_help_panel=OUTPUT)
    ] = None,
    out: Annotated[PathValue | None, folder_option("Write the figures here.", OUTPUT)] = None,
    json: AsJson = False,
) -> None:
    """Recommend a shape for a budget, with costs of other shapes and trust; judge a shape."""
    from dwsweep.guide import Options, answer, exported
    from dwsweep.guide.latency import Latency
    from dwsweep.report import guide_report

    if export is not None and json:
        raise InputError("--json: prints the whole answer, --export a configuration; allowed: one of them")
    keywords = given(ctx, Options.__dataclass_fields__)
    keywords["latency"] = Latency.of(latency) if latency else None
    options = Options(layer_seconds=layer_time, **keywords)
    asked = given(ctx, ("fit", "law", "flops", "hours"))
    found = answer([*(sizes or ()), *(params or ())], shape or (), by_source=sources, options=options, **asked)
    if export is not None:
        print(exported(found, export))
    else:
        terminal.show(lambda: guide_report.render(found), found.to_dict, json)
    if out is not None:
        from dwsweep.report.figures import laws, style

        written = style.save(laws.figures(found), out)
        lines = [f"wrote {path}" for path in written] or ["nothing to draw: no budget with shapes"]
        print("\n".join(lines), file=sys.stderr)


@commands.command(
    epilog="Examples: dwsweep design sweeps/levine-mini.yaml --noise 0.003 · "
    "dwsweep design SPEC --fit runs/mini --target 1B · dwsweep design --hours 6 --device H100"
)
def design(
    spec: Annotated[
        PathValue | None, typer.Argument(metavar="[SPEC]", parser=path_value, help="Sweep spec, YAML; or --hours.")
    ] = None,
    hours: Annotated[float | None, hours_option("Write a spec that fills this time, such as 24h …", PLAN)] = None,
    device: Annotated[str, typer.Option(help="… on one device of this kind.", rich_help_panel=PLAN)] = DEVICE,
    out: Annotated[
        PathValue | None, path_option("FILE", "File of that spec; default DEVICE-HOURSh.yaml.", PLAN)
    ] = None,
    fit: Annotated[PathValue | None, path_option("PATH", "Finished sweep, for its noise, law and runs.")] = None,
    noise: Annotated[float | None, number_option("SIGMA", "Noise (sd) of one run's loss, in its unit.")] = None,
    target: Annotated[float | None, count_option("N", "Size whose best depth is estimated, such as 3B.")] = None,
    params: Annotated[
        float | None, count_option("N", "With a table in place of SPEC: propose runs for the best depth here.")
    ] = None,
    runs: Annotated[int, whole_option("K", "With --params: number of runs, 1 to 64.")] = NEXT_RUNS,
    set_: Overrides = None,
    json: AsJson = False,
) -> None:
    """Predict the errors that a sweep would leave on transitions and on the best depth, and the gain of changes."""
    from dwsweep.design import fill, study
    from dwsweep.design.prior import make_prior
    from dwsweep.report import design_report
    from dwsweep.spec import load_spec

    options = {"SPEC": spec, "--hours": hours, "--fit": fit, "--target": target, "--out": out, "--set": set_}
    options |= {"--device": device != DEVICE, "--runs": runs != NEXT_RUNS, "--noise": noise}
    way = "SPEC"
    excluded: tuple[str, ...] = ("--out", "--device", "--runs")
    if params is not None:
        way, excluded = "--params", ("--hours", "--fit", "--target", "--out", "--set", "--device")
    elif hours is not None:
        way, excluded = "--hours", ("SPEC", "--runs")
    elif spec is None:
        raise InputError("SPEC: missing; give a sweep spec, or --hours H to have one written")
    if wrong := [name for name in excluded if options[name]]:
        raise InputError(
            f"{', '.join(wrong)}: not allowed with {way}; allowed: {', '.join(sorted({*options} - {*excluded, way}))}"
        )
    if params is not None:
        _propose(spec, params, runs, noise, json)
        return
    if out is not None:
        _check_free("--out", out)  # at once: filling the time takes a while
    filled, file = None, out
    with terminal.waiting("judging"):
        if hours is not None:
            filled = fill(hours, device, make_prior(fit, noise)[0], set_ or ())
            file = out or paths.as_path(f"{filled.spec.name}.yaml")
            _check_free("--out", file)
        sweep = filled.spec if filled else load_spec(spec or "", set_ or ())
        found = study(sweep, fit=fit, noise=noise, target=target)
    if filled and file is not None:
        paths.make_directory(file.parent)
        paths.write_atomic(file, filled.text)
        print(f"wrote {file}", file=sys.stderr)
    terminal.show(lambda: design_report.render_design(found), found.to_dict, json)


def _propose(table: PathValue | None, params: float, runs: int, noise: Any, json: bool) -> None:
    """Print the next runs, which narrow a table's best depth at a size."""
    from dwsweep.fit.analysis import fit_table
    from dwsweep.fit.answers.next_runs import next_runs
    from dwsweep.report import adjusted_report, console

    if table is None:
        raise InputError("--params: needs a table or a sweep in place of SPEC, such as design runs.csv --params 300M")
    with terminal.waiting("fitting"):
        found = next_runs(fit_table(table, noise=noise), params, runs)
    terminal.show(lambda: console.render(adjusted_report.next_runs_parts(found)), found.to_dict, json)


@commands.command(epilog="Example: dwsweep report runs/smoke --out smoke.html")
def report(
    directory: SweepDirectory,
    out: Annotated[PathValue | None, path_option("FILE", "Page to write, default DIR/report.html.")] = None,
    follow: Annotated[
        bool, switch("--follow", help="Rewrite the page while the sweep trains; it reloads itself.")
    ] = False,
) -> None:
    """Write one self-contained HTML page with answer, figures and tables."""
    from dwsweep.report import page
    from dwsweep.sweep.results_table import settle_results

    settle_results(directory, _note)
    if follow and (directory / "plan.csv").exists():
        path = out or directory / "report.html"
        _note(f"{path}: written every {page.RELOAD_SECONDS:g} s while the sweep trains; Ctrl-C ends it")
    print(printable(str(page.follow(directory, out) if follow else page.write(directory, out))))


@commands.command(epilog="Example: dwsweep theory --width 1024 --depth 24 --heads 16")
def theory(
    width: Annotated[int, whole_option("D", "Width d_x.")],
    depth: Annotated[int | None, whole_option("L", "Depth.")] = None,
    heads: Annotated[int, whole_option("H", "Heads.")] = HEADS,
    json: AsJson = False,
) -> None:
    """Show separation-rank regime, threshold log_3 d_x, bounds and widths of shallower nets."""
    from dwsweep.report import theory_report
    from dwsweep.theory import separation_rank

    facts = separation_rank.summary(width=width, depth=depth, heads=heads)
    terminal.show(lambda: theory_report.render_theory(facts), lambda: facts, json)


@commands.command(epilog="Example: dwsweep schema > dwsweep.schema.json, for an editor that completes YAML")
def schema() -> None:
    """Print the JSON schema of a spec."""
    import json

    from dwsweep.spec import Spec

    print(json.dumps(Spec.model_json_schema(), indent=1))


@commands.command(epilog="Example: dwsweep init my-sweep.yaml")
def init(
    path: Annotated[PathValue, typer.Argument(metavar="FILE", parser=path_value, help="File to write.")] = "sweep.yaml",
    text: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Text to train on: 'mine/*.txt', or a data.source.")
    ] = None,
) -> None:
    """Write a first spec: every key with its default, its values and its meaning."""
    from dwsweep.spec import reference

    file = paths.as_path(path)
    _check_free("FILE", file)
    changes: dict[str, Any] = {}
    if text is not None:
        from dwsweep.data.sources import open_source
        from dwsweep.spec.sections import source_of

        changes = {"data.source": source_of(text)}
        open_source(changes["data.source"])
    paths.make_directory(file.parent)
    paths.write_atomic(file, reference.commented(str(path), changes))
    print(f"wrote {path}" + "".join(f", {key} {value}" for key, value in changes.items()))
