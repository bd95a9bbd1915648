"""The command line: one thin function a command, heavy imports inside it."""

from __future__ import annotations

import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dwsweep.errors import InputError

DONE, SOME_FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 3

app = typer.Typer(
    name="dwsweep",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Depth-width sweeps of decoder-only language models: at my parameter budget, how deep and how wide?",
    epilog="Examples: dwsweep run sweeps/smoke.yaml · dwsweep fit runs/smoke · dwsweep report runs/smoke · "
    "dwsweep guide --params 3e9 (each COMMAND --help has its own).\n\n"
    "Exit status: 0 done; 1 some runs failed; 2 wrong spec, arguments or input; 3 interrupted, resumable.",
)


class Axis(StrEnum):
    n_params = "n_params"
    n_params_total = "n_params_total"
    flops = "flops"
    device_seconds = "device_seconds"


class Executor(StrEnum):
    local = "local"
    ray = "ray"


class Mlp(StrEnum):
    plain = "plain"
    gated = "gated"


class Retry(StrEnum):
    failed = "failed"
    diverged = "diverged"


SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="Sweep spec, YAML.", show_default=False)]
SweepDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="Sweep directory.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a dotted key of the spec; may be repeated."),
]
OutDirectory = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Sweep directory; default runs/<name of the spec>.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def main() -> None:
    """Entry point: every bad input is one clear line and exit status 2."""
    try:
        code = typer.main.get_command(app).main(standalone_mode=False)
        if code == 128 + signal.SIGINT:  # typer's own status for Ctrl-C
            raise KeyboardInterrupt
    except InputError as error:
        for line in error.lines:
            _print_error(line)
        code = WRONG_INPUT
    except KeyboardInterrupt:
        _print_error("interrupted")
        code = INTERRUPTED
    except BrokenPipeError:  # `dwsweep plan … | head`
        sys.stderr.close()
        code = DONE
    except OSError as error:  # a folder that is a file, no right to write, a full disk
        if error.filename is None or error.strerror is None:
            raise
        _print_error(f"{error.filename}: {error.strerror}")
        code = WRONG_INPUT
    except Exception as error:
        # typer may bring its own click, so its usage errors are told by what they can do
        if not hasattr(error, "format_message"):
            if type(error).__name__ == "Abort":
                sys.exit(INTERRUPTED)
            raise
        if message := error.format_message():  # empty where the help was shown for want of arguments
            _print_error(message)
        code = WRONG_INPUT
    sys.exit(code or DONE)


def _print_error(line: str) -> None:
    print(f"error: {line}", file=sys.stderr)


def _console() -> Any:
    import os

    from rich.console import Console

    console = Console()
    # without a terminal rich assumes 80 columns; tables are made for 100 (and fold where there are fewer)
    return console if console.is_terminal or os.environ.get("COLUMNS", "").isdigit() else Console(width=100)


def _waiting(what: str) -> Any:
    """A spinner beside ``what`` is being done; nothing where the output is no terminal."""
    from rich.console import Console

    return Console(stderr=True).status(what)


def _show(renderable: Any, as_json: Any, wants_json: bool) -> None:
    if wants_json:
        import json

        print(json.dumps(as_json, indent=1, allow_nan=False))
    else:
        _console().print(renderable)


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


@app.command(epilog="Example: dwsweep plan sweeps/levine2020.yaml --set grid.seeds=1")
def plan(spec: SpecFile, json: AsJson = False, out: OutDirectory = None, set_: Overrides = None) -> None:
    """Show the runs: shape, parameters, FLOPs, memory, time, RUN / SKIP / DROP and why. Trains nothing."""
    from dwsweep.data.prepare import find
    from dwsweep.paths import as_path
    from dwsweep.plan import DataFacts, build
    from dwsweep.report import plan_table
    from dwsweep.spec import load_spec
    from dwsweep.sweep.store import SweepStore

    sweep = load_spec(spec, set_ or ())
    store = find(sweep.data)
    directory = out or Path("runs") / sweep.name
    planned = build(
        sweep,
        data=DataFacts.of(store) if store else None,
        finished=SweepStore(directory).finished() if as_path(directory).exists() else {},
        calibration=directory / "bench.json",
    )
    _show(plan_table.render(planned), plan_table.to_json(planned), json)
    if out is not None:
        path = plan_table.write_csv(planned, out)
        print(f"wrote {path}", file=sys.stderr)


@app.command(epilog="Example: dwsweep prepare sweeps/smoke.yaml --inspect --set data.source=text:'articles/*.txt'")
def prepare(
    spec: SpecFile,
    inspect: Annotated[bool, typer.Option("--inspect", help="Show counts, a decoded sample, article lengths.")] = False,
    set_: Overrides = None,
) -> None:
    """Read the text source, train the BPE tokenizer, write the token store. Idempotent; prints where it is."""
    from dwsweep.data.prepare import prepare as prepare_store
    from dwsweep.spec import load_spec

    store = prepare_store(load_spec(spec, set_ or ()).data)
    if inspect:
        from dwsweep.data.inspect import inspect as inspect_store

        _console().print(inspect_store(store))
    print(store.path)


@app.command(
    epilog="Examples: dwsweep run sweeps/smoke.yaml --set train.steps=5 · "
    "dwsweep run SPEC --shard 0/8 (every 8th pack) · dwsweep run SPEC --retry failed"
)
def run(
    spec: SpecFile,
    out: OutDirectory = None,
    set_: Overrides = None,
    executor: Annotated[Executor, typer.Option(help="Where packs train.")] = Executor.local,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="A",
            help="Ray cluster to join: HOST:PORT or auto (its ports listen on all interfaces: keep them behind a "
            "firewall); default: one of this machine, on loopback.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Every N-th pack from the I-th; `slurm`: from the array's environment."),
    ] = None,
    retry: Annotated[list[Retry] | None, typer.Option(help="Train runs of this status again.")] = None,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="Take the lock of a dead owner on another host.")
    ] = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="One process of several, each on a host (jax.distributed).")
    ] = False,
) -> int:
    """Train what the plan says RUN, in isolated workers; resume what was interrupted, skip what is finished."""
    from dwsweep.data.prepare import prepare as prepare_store
    from dwsweep.plan import DataFacts, build
    from dwsweep.spec import load_spec
    from dwsweep.sweep.runner import parse_shard, run_sweep
    from dwsweep.sweep.store import SweepStore

    sweep = load_spec(spec, set_ or ())
    part = parse_shard(shard)
    build(sweep)  # everything that is wrong is refused before the data is prepared
    store = prepare_store(sweep.data)
    directory = out or Path("runs") / sweep.name
    retries = {item.value for item in retry or ()}
    planned = build(sweep, data=DataFacts.of(store), finished=SweepStore(directory).finished(retry=retries))
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
        console=_console(),
    )


@app.command(epilog="Example: dwsweep status runs/smoke --follow")
def status(
    directory: SweepDirectory,
    follow: Annotated[bool, typer.Option("--follow", help="Refresh until the sweep is finished.")] = False,
) -> None:
    """Counts and a table of runs: state, step, loss, tokens/s, reason of failure."""
    from dwsweep.sweep import status as view

    if follow:
        view.follow(directory, _console())
    else:
        _console().print(view.render(directory))


@app.command(
    epilog="Examples: dwsweep bench sweeps/smoke.yaml --out runs/smoke (then `plan` uses it) · "
    "dwsweep bench sweeps/levine2020.yaml --compile-only --devices 1,4,8 --set grid.depths=[48] --set grid.seeds=1"
)
def bench(
    spec: SpecFile,
    out: OutDirectory = None,
    set_: Overrides = None,
    compile_only: Annotated[
        bool, typer.Option("--compile-only", help="Compile and report memory per device; trains and allocates nothing.")
    ] = False,
    devices: Annotated[
        str, typer.Option(metavar="N,N…", help="With --compile-only: for these numbers of devices (on a CPU virtual).")
    ] = "1",
    json: AsJson = False,
) -> None:
    """Compile seconds, step time, tokens/s, MFU and memory of each shape on this host, and the gain from packing."""
    from rich.console import Console
    from rich.progress import track

    from dwsweep.data.prepare import prepare as prepare_store
    from dwsweep.plan import DataFacts, build
    from dwsweep.report import bench_table
    from dwsweep.spec import load_spec
    from dwsweep.sweep.devices import CPU_DEVICES, cores, each_core_a_device

    counts = _counts(devices)
    # JAX reads this when it is imported; only a CPU heeds it
    os.environ.update({CPU_DEVICES: str(max(counts))} if compile_only else each_core_a_device(len(cores())))
    from dwsweep.train import bench as benchmark

    sweep = load_spec(spec, set_ or ())
    build(sweep)
    store = prepare_store(sweep.data)
    planned = build(sweep, data=DataFacts.of(store))
    shapes = len({pack.shape for pack in planned.packs})
    console = Console(stderr=True)
    if compile_only:
        total = shapes * len(counts)
        rows = list(track(benchmark.compile_only(planned, store, counts), "compile", total=total, console=console))
        _show(bench_table.render_compiled(rows), rows, json)
        return
    rows = list(track(benchmark.bench(planned, store), "benchmark", total=shapes, console=console))
    _show(bench_table.render(rows), rows, json)
    directory = out or Path("runs") / sweep.name
    print(f"wrote {bench_table.write_json(rows, directory)}", file=sys.stderr)


def _counts(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdigit() and 0 < int(part) <= 4096 for part in parts):
        raise InputError(f"--devices: {text!r}; allowed: numbers of devices from 1 to 4096, such as 1,4,8")
    return [int(part) for part in parts]


@app.command(
    epilog="Examples: dwsweep fit runs/smoke · dwsweep fit mine.csv --column loss=val_loss --where 'warmup == 400'"
)
def fit(
    table: Annotated[Path, typer.Argument(metavar="DIR|TABLE", help="Sweep directory, CSV, TSV, JSON(L) or Parquet.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the results go; default: fit/ beside the table.")
    ] = None,
    axis: Annotated[Axis, typer.Option(help="What is matched between depths.")] = Axis.n_params,
    noise: Annotated[float | None, typer.Option(metavar="SIGMA", help="Noise of one run's loss, nats.")] = None,
    column: Annotated[list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Rename a column.")] = None,
    where: Annotated[list[str] | None, typer.Option(metavar="EXPR", help="Keep rows, such as 'warmup == 400'.")] = None,
    params: Annotated[list[float] | None, typer.Option(metavar="N", help="Further sizes of the guideline.")] = None,
) -> None:
    """Losses → cells, transitions, width law, rival laws, guideline, warnings, figures."""
    from dwsweep.fit import files
    from dwsweep.fit.analysis import fit_table
    from dwsweep.report import plots

    with _waiting("fitting") as waiting:
        result = fit_table(
            table, axis=axis.value, noise=noise, columns=column or (), where=where or (), params=params or ()
        )
        if out is None:
            out = table / "fit" if table.is_dir() else table.with_name(f"{table.stem}-fit")
        waiting.update("drawing")
        paths = [*files.write(result, out), *plots.draw(files.read(out), out)]
    _console().print(result)
    print("\n".join(str(path) for path in paths))


@app.command(
    epilog="Examples: dwsweep guide --params 3e9 --width-multiple 128 · dwsweep guide --shape 96x12288 · "
    "dwsweep guide --fit runs/smoke --compare"
)
def guide(
    params: Annotated[list[float] | None, typer.Option(metavar="N", help="Non-embedding parameters.")] = None,
    shape: Annotated[list[str] | None, typer.Option(metavar="LxD", help="Judge this shape, such as 96x12288.")] = None,
    fit: Annotated[Path | None, typer.Option("--fit", metavar="PATH", help="Your own fit; default: published.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Your fit and the published law.")] = False,
    total: Annotated[bool, typer.Option("--total", help="The budget counts embeddings too.")] = False,
    width_multiple: Annotated[int | None, typer.Option(metavar="M", help="Widths are multiples of it.")] = None,
    head_size: Annotated[int | None, typer.Option(metavar="P", help="Fixed head size.")] = None,
    kv_heads: Annotated[int | None, typer.Option(metavar="K", help="Grouped key/value heads.")] = None,
    mlp: Annotated[Mlp, typer.Option(help="Kind of MLP.")] = Mlp.plain,
    mlp_ratio: Annotated[float | None, typer.Option(metavar="R", help="Inner width / d_x.")] = None,
    vocab_size: Annotated[int, typer.Option(metavar="V", help="Vocabulary.")] = 50_257,
    tied_embeddings: Annotated[bool, typer.Option("--tied-embeddings", help="Unembedding = embedding.")] = False,
    context: Annotated[int, typer.Option(metavar="T", help="Positions.")] = 2048,
    tensor_parallel: Annotated[int, typer.Option(metavar="N", help="Must divide the heads.")] = 1,
    pipeline_parallel: Annotated[int, typer.Option(metavar="N", help="Must divide the depth.")] = 1,
    device: Annotated[str, typer.Option(help="For hours and latency.")] = "H100",
    bench: Annotated[
        Path | None, typer.Option("--bench", metavar="FILE", exists=True, help="Rates from `dwsweep bench`.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where a figure goes.")] = None,
    json: AsJson = False,
) -> None:
    """Depth and width for a budget, with intervals and costs, or the verdict on a shape."""
    from dwsweep.cost.duration import Calibration
    from dwsweep.guide import Options, answer
    from dwsweep.report import guide_figure, guide_table

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
    _show(guide_table.render(found), found, json)
    if out is not None:
        print("\n".join(f"wrote {path}" for path in guide_figure.draw(found, out)), file=sys.stderr)


@app.command(
    epilog="Examples: dwsweep design sweeps/levine-mini.yaml --noise 0.003 · "
    "dwsweep design SPEC --fit runs/mini --propose 12 --out next"
)
def design(
    spec: SpecFile,
    fit: Annotated[
        Path | None, typer.Option("--fit", metavar="PATH", help="A finished round: noise, law, runs.")
    ] = None,
    noise: Annotated[float | None, typer.Option(metavar="SIGMA", help="Noise of one run's loss, nats.")] = None,
    target: Annotated[float | None, typer.Option(metavar="N", help="Size at which the best depth is wanted.")] = None,
    propose: Annotated[int, typer.Option(metavar="N", help="Runs that narrow the target most per FLOP.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where proposed specs and figure go.")
    ] = None,
    set_: Overrides = None,
    json: AsJson = False,
) -> None:
    """The error a sweep would leave on each transition and on the law; the runs that would narrow it most."""
    from dwsweep.design import study
    from dwsweep.report import design_table
    from dwsweep.spec import load_spec

    found = study(load_spec(spec, set_ or ()), fit=fit, noise=noise, target=target, proposals=propose)
    _show(design_table.render(found), found.to_dict(), json)
    if out is not None:
        paths = [*design_table.write_specs(found, out), design_table.draw(found, out / "design.png")]
        print("\n".join(f"wrote {path}" for path in paths), file=sys.stderr)


@app.command(epilog="Example: dwsweep report runs/smoke")
def report(directory: SweepDirectory) -> None:
    """One self-contained HTML file with the answer, the figures and the tables."""
    from dwsweep.report import html

    print(html.write(directory))


@app.command(epilog="Example: dwsweep theory --width 1024 --depth 24 --heads 16")
def theory(
    width: Annotated[int, typer.Option(metavar="D", help="Width d_x.")],
    depth: Annotated[int | None, typer.Option(metavar="L", help="Depth.")] = None,
    heads: Annotated[int, typer.Option(metavar="H", help="Heads.")] = 2,
    json: AsJson = False,
) -> None:
    """Separation-rank regime, threshold log_3 d_x, bounds, and the width a shallower net needs."""
    from dwsweep.theory import separation

    facts = separation.summary(width=width, depth=depth, heads=heads)
    _show(separation.render(facts), facts, json)


if __name__ == "__main__":
    main()
