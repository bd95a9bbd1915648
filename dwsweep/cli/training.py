"""Commands of the training: plan, prepare, run, status; and export of kept models. Heavy imports stand inside
them."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dwsweep import paths, terminal
from dwsweep.cli.options import (
    AsJson,
    Overrides,
    PathValue,
    SweepDirectory,
    folder_option,
    folder_value,
    path_value,
    switch,
    text_option,
)
from dwsweep.errors import DONE, SOME_FAILED, InputError

if TYPE_CHECKING:
    from dwsweep.spec import Spec

Executor = StrEnum("Executor", ["local", "ray"])
Retry = StrEnum("Retry", ["failed", "diverged"])
SpecFile = Annotated[
    PathValue, typer.Argument(metavar="SPEC", parser=path_value, help="Sweep spec, YAML.", show_default=False)
]
OutDirectory = Annotated[PathValue | None, folder_option("Sweep directory; default runs/<name of the spec>.")]

commands = typer.Typer(rich_markup_mode="rich")


def _default_directory(spec: PathValue, sweep: Spec) -> Any:
    """Default sweep directory: the given directory, else one by the spec's name."""
    given = paths.as_path(spec)
    return given if (given / "plan.csv").exists() else paths.as_path(f"runs/{sweep.name}")


@commands.command(epilog="Example: dwsweep plan sweeps/levine2020.yaml --set grid.seeds=1")
def plan(spec: SpecFile, json: AsJson = False, out: OutDirectory = None, set_: Overrides = None) -> None:
    """Show the runs: shape, parameters, FLOPs, memory, time, RUN / SKIP / DROP and why. Trains nothing."""
    from dwsweep.data.prepare import find
    from dwsweep.report import plan_report
    from dwsweep.spec import load_spec
    from dwsweep.sweep.work_queue import plan_of_rest, write_plan

    sweep = load_spec(spec, set_ or ())
    planned = plan_of_rest(sweep, find(sweep.data), out or _default_directory(spec, sweep))
    terminal.show(lambda: plan_report.render(planned), lambda: plan_report.to_json(planned), json)
    if out is not None:
        print(f"wrote {write_plan(planned, out)}", file=sys.stderr)


@commands.command(epilog="Example: dwsweep prepare sweeps/smoke.yaml --set data.source=text:'articles/*.txt'")
def prepare(spec: SpecFile, set_: Overrides = None) -> None:
    """Read the text source, train the BPE tokenizer, write the token store. Idempotent; prints where it is."""
    from dwsweep.data.prepare import prepare as prepare_store
    from dwsweep.spec import load_spec

    print(prepare_store(load_spec(spec, set_ or ()).data).path)


@commands.command(
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
            "firewall); default: a new cluster on loopback.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Train every N-th pack from the I-th on; `slurm`: by the array's environment."
        ),
    ] = None,
    retry: Annotated[list[Retry] | None, typer.Option(help="Train runs with this status again.")] = None,
    takeover: Annotated[
        bool,
        switch(
            "--takeover",
            help="Ask an owner to let go at a checkpoint; one that gives no sign of life is named, or its lease ends.",
        ),
    ] = False,
    distributed: Annotated[
        bool, switch("--distributed", help="Join the hosts that train each pack together (jax.distributed).")
    ] = False,
) -> int:
    """Train the runs marked RUN in the plan, in isolated workers; resume interrupted runs, skip finished ones."""
    from dwsweep.data.prepare import prepare as prepare_store
    from dwsweep.report.progress import ProgressView
    from dwsweep.spec import load_spec
    from dwsweep.sweep.runner import run_sweep
    from dwsweep.sweep.work_queue import check, parse_shard, plan_of_rest

    if address is not None and executor is not Executor.ray:
        raise InputError(f"--address: {address}; the address of a Ray cluster, allowed only with --executor ray")
    sweep = load_spec(spec, set_ or ())
    part = parse_shard(shard)
    directory = out or _default_directory(spec, sweep)
    check(sweep)  # report every error before the data is prepared
    store = prepare_store(sweep.data)
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


@commands.command(epilog="Example: dwsweep status runs/smoke --follow")
def status(
    directory: SweepDirectory,
    follow: Annotated[bool, switch("--follow", help="Refresh until the sweep is finished.")] = False,
    json: AsJson = False,
) -> None:
    """Show the runs of a sweep: state, step, loss, tokens/s, reason of failure."""
    from dwsweep.report import status_report
    from dwsweep.sweep.snapshot import snapshot

    if follow and json:
        raise InputError("--json: prints one moment, --follow all of them; allowed: one of them")
    if follow:
        status_report.follow(directory, terminal.console())
    else:
        now = snapshot(directory)
        terminal.show(lambda: status_report.render(now), lambda: status_report.to_json(now), json)


@commands.command(epilog="Example: dwsweep verify runs/smoke")
def verify(directory: SweepDirectory, json: AsJson = False) -> int:
    """Compare every file of a sweep with its hash; exit status 1 if a file is faulty."""
    from dwsweep.report import inventory_report
    from dwsweep.sweep import inventory

    with terminal.waiting("reading"):
        found = inventory.verify(directory)
    terminal.show(lambda: inventory_report.render(found), lambda: inventory_report.to_json(found), json)
    return SOME_FAILED if any(file.why for files in found.values() for file in files) else DONE


@commands.command(
    epilog="Examples: dwsweep bench sweeps/smoke.yaml --out runs/smoke (then `plan` uses it) · "
    "dwsweep bench sweeps/levine-mini.yaml --compile-only --target H200 --target TPU-v5e:2x4"
)
def bench(
    spec: SpecFile,
    out: OutDirectory = None,
    set_: Overrides = None,
    compile_only: Annotated[
        bool, switch("--compile-only", help="Compile and report memory and costs, without training or allocation.")
    ] = False,
    target: Annotated[
        list[str] | None,
        text_option("NAME", "With --compile-only: an absent device: H200, H200:4, TPU-v5e:2x4 …; may be repeated."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure compile and step time, rate, MFU and memory of each shape."""
    from rich.progress import track

    from dwsweep.data import prepare
    from dwsweep.plan import DataFacts, build
    from dwsweep.records import bench as bench_record
    from dwsweep.records.footing import cores
    from dwsweep.records.record import plain
    from dwsweep.report import bench_report
    from dwsweep.spec import load_spec
    from dwsweep.sweep.local_worker import CPU_DEVICES, each_core_a_device

    if target and not compile_only:
        raise InputError(
            f"--target: {target[0]!r}; this chip is not here, so nothing can be timed on it: add --compile-only"
        )
    sweep = load_spec(spec, set_ or ())
    build(sweep)
    store = (prepare.find if compile_only else prepare.prepare)(sweep.data)  # compiling needs no text
    # JAX reads this when it is imported; only a CPU heeds it
    each = max(1, len(cores()) // (sweep.execution.workers or 1))  # cores of one worker of the sweep
    os.environ.update({CPU_DEVICES: "1"} if compile_only else each_core_a_device(each))
    planned = build(sweep, data=DataFacts.of(store) if store else None)
    shapes = len(planned.pack_of_each_shape)
    console = terminal.console(stderr=True)
    # imported late, since they bring JAX
    from dwsweep.train import bench as benchmark
    from dwsweep.train import compile_only as compiler
    from dwsweep.train import targets

    if compile_only:
        places = [*map(targets.elsewhere, target)] if target else [targets.here(planned)]
        found = compiler.compile_only(planned, store, places)
        compiled = list(track(found, "compile", total=shapes * len(places), console=console))
        terminal.show(lambda: bench_report.render_compiled(compiled), lambda: plain(compiled), json)
        return
    assert store is not None
    rows = list(track(benchmark.bench(planned, store), "benchmark", total=shapes, console=console))
    terminal.show(lambda: bench_report.render_bench(rows), lambda: plain(rows), json)
    print(f"wrote {bench_record.write(rows, out or _default_directory(spec, sweep))}", file=sys.stderr)


@commands.command(epilog="Example: dwsweep export runs/smoke models (a sweep run with execution.keep_params: best)")
def export(
    run: Annotated[
        PathValue,
        typer.Argument(
            metavar="RUN|DIR", parser=path_value, help="DIR/runs/<run_id>, or DIR: all its runs with parameters."
        ),
    ],
    out: Annotated[
        PathValue,
        typer.Argument(
            metavar="OUT", parser=folder_value, help="Folder to write, with one in it for each of several runs."
        ),
    ],
) -> None:
    """Write trained models that transformers loads: weights, configuration, tokenizer, model card."""
    from dwsweep.trained import huggingface, runs

    for place in huggingface.export(runs.find(run), out):
        print(place)
