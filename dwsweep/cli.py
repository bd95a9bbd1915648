"""The command line: one thin function per command, heavy imports inside it."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dwsweep import exit_status, paths, terminal
from dwsweep.errors import InputError, options_named
from dwsweep.parameters import (
    AsJson,
    Axis,
    Command,
    CompileOnly,
    DeviceCounts,
    Distributed,
    Executor,
    Group,
    Mlp,
    Noise,
    OutDirectory,
    Overrides,
    PathValue,
    RayAddress,
    Retry,
    Shard,
    SpecFile,
    SweepDirectory,
    Takeover,
    Targets,
    count_option,
    device_counts,
    number_option,
    path_option,
    path_value,
    whole_option,
)

if TYPE_CHECKING:
    from dwsweep.spec import Spec

app = typer.Typer(
    name="dwsweep",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Depth-width sweeps of decoder-only language models: at my parameter budget, how deep and how wide?",
    epilog="Examples: dwsweep run sweeps/smoke.yaml · dwsweep fit runs/smoke · dwsweep report runs/smoke · "
    "dwsweep guide --params 3e9 (each COMMAND --help has its own).\n\n"
    "Exit status: 0 done; 1 some runs failed; 2 wrong spec, arguments or input; 3 interrupted, resumable.",
)


_command = functools.partial(app.command, cls=Command)


def main() -> None:
    """Entry point: every bad input is one clear line and exit status 2."""
    sys.exit(exit_status.of(lambda: typer.main.get_command(app).main(standalone_mode=False)))


def _waiting(what: str) -> Any:
    """A spinner while ``what`` is being done; nothing where the output is no terminal."""
    return terminal.console(stderr=True).status(what)


def _show(renderable: Any, as_json: Any, wants_json: bool) -> None:
    if wants_json:
        import json

        print(json.dumps(as_json, indent=1, allow_nan=False))
    else:
        terminal.console().print(renderable)


def _version(value: bool) -> None:
    if value:
        from dwsweep import __version__

        print(f"dwsweep {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _default_directory(sweep: Spec) -> Any:
    return paths.as_path(f"runs/{sweep.name}")


@_command(epilog="Example: dwsweep plan sweeps/levine2020.yaml --set grid.seeds=1")
def plan(spec: SpecFile, json: AsJson = False, out: OutDirectory = None, set_: Overrides = None) -> None:
    """Show the runs: shape, parameters, FLOPs, memory, time, RUN / SKIP / DROP and why. Trains nothing."""
    from dwsweep.data.prepare import find
    from dwsweep.report.terminal import plan_tables
    from dwsweep.spec import load_spec
    from dwsweep.sweep.sweep_directory import plan_of_rest, write_plan

    sweep = load_spec(spec, set_ or ())
    planned = plan_of_rest(sweep, find(sweep.data), out or _default_directory(sweep))
    _show(plan_tables.render(planned), plan_tables.to_json(planned), json)
    if out is not None:
        print(f"wrote {write_plan(planned, out)}", file=sys.stderr)


@_command(epilog="Example: dwsweep prepare sweeps/smoke.yaml --inspect --set data.source=text:'articles/*.txt'")
def prepare(
    spec: SpecFile,
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Show counts, a decoded sample and article lengths.")
    ] = False,
    set_: Overrides = None,
) -> None:
    """Read the text source, train the BPE tokenizer, write the token store. Idempotent; prints where it is."""
    from dwsweep.data.prepare import prepare as prepare_store
    from dwsweep.spec import load_spec

    store = prepare_store(load_spec(spec, set_ or ()).data)
    if inspect:
        from dwsweep.data.inspect import inspect as inspect_store

        terminal.console().print(inspect_store(store))
    print(store.path)


@_command(
    epilog="Examples: dwsweep run sweeps/smoke.yaml --set train.steps=5 · "
    "dwsweep run SPEC --shard 0/8 (every 8th pack) · dwsweep run SPEC --retry failed",
)
def run(
    spec: SpecFile,
    out: OutDirectory = None,
    set_: Overrides = None,
    executor: Annotated[Executor, typer.Option(help="Where packs train.")] = Executor.local,
    address: RayAddress = None,
    shard: Shard = None,
    retry: Annotated[list[Retry] | None, typer.Option(help="Train runs with this status again.")] = None,
    takeover: Takeover = False,
    distributed: Distributed = False,
) -> int:
    """Train what the plan says RUN, in isolated workers; resume what was interrupted, skip what is finished."""
    from dwsweep.data.prepare import prepare as prepare_store
    from dwsweep.plan import build
    from dwsweep.report.terminal.sweep_progress import ProgressView
    from dwsweep.spec import load_spec
    from dwsweep.sweep.runner import run_sweep
    from dwsweep.sweep.sweep_directory import plan_of_rest
    from dwsweep.sweep.work_queue import parse_shard

    sweep = load_spec(spec, set_ or ())
    part = parse_shard(shard)
    build(sweep)  # everything that is wrong is refused before the data is prepared
    store = prepare_store(sweep.data)
    directory = out or _default_directory(sweep)
    retries = {item.value for item in retry or ()}
    planned = plan_of_rest(sweep, store, directory, retries)
    return run_sweep(
        planned,
        store.path,
        directory,
        shard=part,
        retry=retries,
        takeover=takeover,
        executor=executor.value,
        address=address,
        distributed=distributed,
        view=ProgressView(terminal.console()),
    )


@_command(epilog="Example: dwsweep status runs/smoke --follow")
def status(
    directory: SweepDirectory,
    follow: Annotated[bool, typer.Option("--follow", help="Refresh until the sweep is finished.")] = False,
) -> None:
    """Counts and a table of runs: state, step, loss, tokens/s, reason of failure."""
    from dwsweep.report.terminal import sweep_status

    if follow:
        sweep_status.follow(directory, terminal.console())
    else:
        terminal.console().print(sweep_status.render(directory))


@_command(
    epilog="Examples: dwsweep bench sweeps/smoke.yaml --out runs/smoke (then `plan` uses it) · "
    "dwsweep bench sweeps/levine-mini.yaml --compile-only --target H200 --target TPU-v5e:2x4 · "
    "dwsweep bench sweeps/levine2020.yaml --compile-only --devices 1,4,8 --set grid.depths=[48]",
)
def bench(
    spec: SpecFile,
    out: OutDirectory = None,
    set_: Overrides = None,
    compile_only: CompileOnly = False,
    devices: DeviceCounts = "1",
    target: Targets = None,
    json: AsJson = False,
) -> None:
    """Compile seconds, step time, tokens/s, MFU and memory of each shape on this host, and the gain from packing."""
    from dataclasses import asdict

    from rich.progress import track

    from dwsweep.data import prepare as preparing
    from dwsweep.plan import DataFacts, build
    from dwsweep.records import bench_rows
    from dwsweep.report.terminal import bench_tables
    from dwsweep.spec import load_spec
    from dwsweep.sweep.core_shares import CPU_DEVICES, cores, each_core_a_device

    counts = device_counts(devices)
    if target and not compile_only:
        raise InputError(f"--target: {target[0]!r}; nothing can run on it here, add --compile-only")
    sweep = load_spec(spec, set_ or ())
    build(sweep)
    store = (preparing.find if compile_only else preparing.prepare)(sweep.data)  # compiling needs no text
    # JAX reads this when it is imported; only a CPU heeds it
    os.environ.update({CPU_DEVICES: str(max(counts))} if compile_only else each_core_a_device(len(cores())))
    planned = build(sweep, data=DataFacts.of(store) if store else None)
    shapes = len({pack.shape for pack in planned.packs})
    console, directory = terminal.console(stderr=True), out or _default_directory(sweep)
    if compile_only:
        from dwsweep.train import compile_only as compiling

        places = compiling.elsewhere(target) if target else compiling.here(planned, counts)
        found, total = compiling.compile_only(planned, store, places), shapes * len(places)
        found = bench_rows.kept(found, directory) if target else found
        compiled = list(track(found, "compile", total=total, console=console))
        _show(bench_tables.render_compiled(compiled), [asdict(row) for row in compiled], json)
        return print(f"wrote {bench_rows.write_compiled(compiled, directory)}", file=sys.stderr) if target else None
    from dwsweep.train import bench as benchmark

    assert store is not None
    rows = [*track(benchmark.bench(planned, store), "benchmark", total=shapes, console=console)]
    _show(bench_tables.render(rows), [asdict(row) for row in rows], json)
    print(f"wrote {bench_rows.write(rows, directory)}", file=sys.stderr)


@_command(epilog="Examples: dwsweep fit runs/smoke · dwsweep fit my.csv --column loss=val_loss --where 'warmup == 400'")
def fit(
    table: Annotated[
        PathValue, typer.Argument(metavar="DIR|TABLE", parser=path_value, help="Sweep, CSV, TSV, JSON(L) or Parquet.")
    ],
    out: Annotated[
        PathValue | None, path_option("--out", "DIR", "Folder to write; default DIR/fit, for table.csv table-fit.")
    ] = None,
    axis: Annotated[Axis, typer.Option(help="The size that is matched between depths.")] = Axis.n_params,
    noise: Noise = None,
    column: Annotated[list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Rename a column.")] = None,
    where: Annotated[list[str] | None, typer.Option(metavar="EXPR", help="Keep rows such as 'warmup == 400'.")] = None,
    params: Annotated[list[float] | None, count_option("N", "Add this size to the guideline, such as 3B.")] = None,
    confidence: Annotated[float, number_option("SHARE", "Of every interval, from 0.5 to below 1.")] = 0.95,
    draws: Annotated[int, whole_option("N", "Gaussian draws behind the errors, at least 100.")] = 2000,
    shape_noise: Annotated[float | None, number_option("SIGMA", "Noise that all seeds of a shape share, nats.")] = None,
) -> None:
    """Losses → cells, transitions, width law, rival laws, guideline, warnings, figures."""
    from dwsweep.fit import output
    from dwsweep.fit.analysis import fit_table
    from dwsweep.fit.misuse import check_fitted
    from dwsweep.report.figures import registry
    from dwsweep.report.terminal import fit_tables

    with _waiting("fitting") as waiting, options_named():
        result = fit_table(
            table,
            axis=axis.value,
            noise=noise,
            shape_noise=shape_noise,
            columns=column or (),
            where=where or (),
            draws=draws,
            confidence=confidence,
            params=params or (),
        )
        check_fitted(result)
        out = out or (table / "fit" if table.is_dir() else table.with_name(f"{table.stem}-fit"))
        waiting.update("drawing")
        written = [*output.write(result, out), *registry.draw(result, out)]
    terminal.console().print(fit_tables.render(result))
    print("\n".join(map(str, written)))


@_command(
    epilog="Examples: dwsweep guide --params 3e9 --width-multiple 128 · dwsweep guide --shape 96x12288 · "
    "dwsweep guide --fit runs/smoke --compare",
)
def guide(
    params: Annotated[list[float] | None, count_option("N", "Non-embedding parameters, such as 3B.")] = None,
    shape: Annotated[list[str] | None, typer.Option(metavar="LxD", help="Judge this shape, such as 96x12288.")] = None,
    fit: Annotated[PathValue | None, path_option("--fit", "PATH", "Your own fit (default: the published law).")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Compare your fit with the published law.")] = False,
    total: Annotated[bool, typer.Option("--total", help="The budget includes the embeddings.")] = False,
    width_multiple: Annotated[int | None, whole_option("M", "Widths must be multiples of M.")] = None,
    head_size: Annotated[int | None, whole_option("P", "Fixed head size.")] = None,
    kv_heads: Annotated[int | None, whole_option("K", "Grouped key/value heads.")] = None,
    mlp: Annotated[Mlp, typer.Option(help="Kind of MLP.")] = Mlp.plain,
    mlp_ratio: Annotated[float | None, number_option("R", "Inner width / d_x.")] = None,
    vocab_size: Annotated[int, whole_option("V", "Vocabulary.")] = 50_257,
    tied_embeddings: Annotated[bool, typer.Option("--tied-embeddings", help="Unembedding = embedding.")] = False,
    context: Annotated[int, whole_option("T", "Positions.")] = 2048,
    tensor_parallel: Annotated[int, whole_option("N", "Must divide the heads.")] = 1,
    pipeline_parallel: Annotated[int, whole_option("N", "Must divide the depth.")] = 1,
    device: Annotated[str, typer.Option(help="Device for hours and latency.")] = "H100",
    bench: Annotated[PathValue | None, path_option("--bench", "FILE", "Rates from `dwsweep bench`.")] = None,
    out: Annotated[PathValue | None, path_option("--out", "DIR", "Write the figure here.")] = None,
    json: AsJson = False,
) -> None:
    """Depth and width for a budget, with intervals and costs, or the verdict on a shape."""
    from dwsweep.cost.duration import Calibration
    from dwsweep.guide import Options, answer
    from dwsweep.report.figures import guide_costs
    from dwsweep.report.terminal import guide_tables

    if bench is not None and not bench.is_file():
        raise InputError(f"--bench: {bench}; no such file, `dwsweep bench` writes one")
    options = Options(
        width_multiple=width_multiple,
        head_size=head_size,
        kv_heads=kv_heads,
        mlp=mlp.value,
        mlp_ratio=mlp_ratio,
        vocab_size=vocab_size,
        tied_embeddings=tied_embeddings,
        context=context,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        total=total,
        device=device,
        calibration=Calibration.load(bench) if bench else None,
    )
    found = answer(params or (), shape or (), fit=fit, compare=compare, options=options)
    _show(guide_tables.render(found), found, json)
    if out is not None:
        print("\n".join(f"wrote {path}" for path in guide_costs.draw(found, out)), file=sys.stderr)


@_command(
    epilog="Examples: dwsweep design sweeps/levine-mini.yaml --noise 0.003 · "
    "dwsweep design SPEC --fit runs/mini --target 1B --out next",
)
def design(
    spec: SpecFile,
    fit: Annotated[
        PathValue | None, path_option("--fit", "PATH", "A finished round, for its noise, law and runs.")
    ] = None,
    noise: Noise = None,
    target: Annotated[float | None, count_option("N", "Size at which the best depth is wanted, such as 3B.")] = None,
    propose: Annotated[int, whole_option("N", "Says why no single runs are proposed.")] = 0,
    out: Annotated[PathValue | None, path_option("--out", "DIR", "Write the figure here.")] = None,
    set_: Overrides = None,
    json: AsJson = False,
) -> None:
    """The error a sweep would leave on each transition and on the best depth; what changes of its grid would buy."""
    from dwsweep.design import study
    from dwsweep.report.terminal import design_tables
    from dwsweep.spec import load_spec

    found = study(load_spec(spec, set_ or ()), fit=fit, noise=noise, target=target, proposals=propose)
    _show(design_tables.render(found), found.to_dict(), json)
    if out is not None:
        print(f"wrote {design_tables.draw(found, out / 'design.png')}", file=sys.stderr)


@_command(epilog="Example: dwsweep report runs/smoke")
def report(directory: SweepDirectory) -> None:
    """One self-contained HTML file with the answer, the figures and the tables."""
    from dwsweep.report.page import sweep_page

    print(sweep_page.write(directory))


@_command(epilog="Example: dwsweep theory --width 1024 --depth 24 --heads 16")
def theory(
    width: Annotated[int, whole_option("D", "Width d_x.")],
    depth: Annotated[int | None, whole_option("L", "Depth.")] = None,
    heads: Annotated[int, whole_option("H", "Heads.")] = 2,
    json: AsJson = False,
) -> None:
    """Separation-rank regime, threshold log_3 d_x, bounds, and the width a shallower net needs."""
    from dwsweep.report.terminal import theory_tables
    from dwsweep.theory import separation

    facts = separation.summary(width=width, depth=depth, heads=heads)
    _show(theory_tables.render(facts), facts, json)


if __name__ == "__main__":
    main()
