"""Commands of the training: plan, prepare, run, status; and export of kept models. Heavy imports stand inside
them."""

from __future__ import annotations

import functools
import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dwsweep import paths, terminal
from dwsweep.cli.options import (
    AsJson,
    Command,
    CompileOnly,
    DeviceCounts,
    Distributed,
    Executor,
    OutDirectory,
    Overrides,
    PathValue,
    RayAddress,
    Retry,
    Shard,
    SpecFile,
    SpecOrNone,
    SweepDirectory,
    Takeover,
    Targets,
    Verify,
    folder_value,
    path_value,
    whole_numbers,
)
from dwsweep.errors import DONE, SOME_FAILED, InputError

if TYPE_CHECKING:
    from dwsweep.spec import Spec


commands = typer.Typer(rich_markup_mode="rich")
_command = functools.partial(commands.command, cls=Command)


def _default_directory(spec: PathValue, sweep: Spec) -> Any:
    """Default sweep directory: the given directory, else one by the spec's name."""
    given = paths.as_path(spec)
    return given if (given / "plan.csv").exists() else paths.as_path(f"runs/{sweep.name}")


@_command(epilog="Example: dwsweep plan sweeps/levine2020.yaml --set grid.seeds=1")
def plan(spec: SpecFile, json: AsJson = False, out: OutDirectory = None, set_: Overrides = None) -> None:
    """Show the runs: shape, parameters, FLOPs, memory, time, RUN / SKIP / DROP and why. Trains nothing."""
    from dwsweep.data.prepare import find
    from dwsweep.report import plan_report
    from dwsweep.spec import load_spec
    from dwsweep.sweep.work_queue import plan_of_rest, with_rates_fixed, write_plan

    sweep = load_spec(spec, set_ or ())
    planned = plan_of_rest(sweep, find(sweep.data), out or _default_directory(spec, sweep))
    if out is not None:
        planned = with_rates_fixed(planned, out)
    terminal.show(lambda: plan_report.render(planned), lambda: plan_report.to_json(planned), json)
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
        from dwsweep.data.inspection import inspect as inspect_store

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
    check(sweep, directory)  # report every error before the data is prepared
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


@_command(epilog="Example: dwsweep status runs/smoke --follow")
def status(
    directory: SweepDirectory,
    follow: Annotated[bool, typer.Option("--follow", help="Refresh until the sweep is finished.")] = False,
    json: AsJson = False,
) -> None:
    """Show the runs of a sweep: state, step, loss, tokens/s, reason of failure."""
    from dwsweep.report import status_report

    if follow and json:
        raise InputError("--json: prints one moment, --follow all of them; allowed: one of them")
    if follow:
        status_report.follow(directory, terminal.console())
    else:
        terminal.show(lambda: status_report.render(directory), lambda: status_report.to_json(directory), json)


@_command(epilog="Example: dwsweep verify runs/smoke")
def verify(directory: SweepDirectory, json: AsJson = False) -> int:
    """Compare every file of a sweep with its hash and rebuild derived files; exit status 1 if a file is lost."""
    from dwsweep.report import inventory_report
    from dwsweep.sweep import inventory

    with terminal.waiting("reading"):
        found = inventory.verify(directory)
    terminal.show(lambda: inventory_report.render(found), lambda: inventory_report.to_json(found), json)
    return DONE if found.is_whole else SOME_FAILED


@_command(
    epilog="Examples: dwsweep bench sweeps/smoke.yaml --out runs/smoke (then `plan` uses it) · "
    "dwsweep bench sweeps/levine-mini.yaml --compile-only --target H200 --target TPU-v5e:2x4 · "
    "dwsweep bench sweeps/levine2020.yaml --compile-only --devices 1,4,8 --set grid.depths=[48] · "
    "dwsweep bench --verify (a minute on a CPU; a report to mail)",
)
def bench(
    spec: SpecOrNone = None,
    out: OutDirectory = None,
    set_: Overrides = None,
    compile_only: CompileOnly = False,
    devices: DeviceCounts = "1",
    target: Targets = None,
    verify: Verify = False,
    json: AsJson = False,
) -> int | None:
    """Measure compile and step time, rate, MFU, memory and packing of each shape; or --verify this host's devices."""
    from rich.progress import track

    from dwsweep.data import prepare
    from dwsweep.plan import DataFacts, build
    from dwsweep.plan.lengths import with_nominal_length
    from dwsweep.records import bench as bench_record
    from dwsweep.records.record import plain
    from dwsweep.report import bench_report
    from dwsweep.spec import load_spec
    from dwsweep.sweep.local_executor import CPU_DEVICES, cores, each_core_a_device

    if verify:
        if spec is not None or compile_only or target or set_:
            given = spec or ("--compile-only" if compile_only else "--target" if target else "--set")
            raise InputError(f"--verify: not allowed with {given}: --verify trains shapes of its own")
        return _verify(out, json)
    if spec is None:
        raise InputError("SPEC: missing; give a sweep spec, or --verify for the checks of this host's devices")
    said = "allowed: numbers of devices from 1 to 4096, such as 1,4,8"
    counts = whole_numbers(devices, "--devices", 1, 4096, said)
    if target and not compile_only:
        raise InputError(
            f"--target: {target[0]!r}; this chip is not here, so nothing can be timed on it: add --compile-only"
        )
    asked = load_spec(spec, set_ or ())
    # only run lengths in seconds need rates; neither rates nor programs depend on the length
    sweep = with_nominal_length(asked)
    build(sweep)
    store = (prepare.find if compile_only else prepare.prepare)(sweep.data)  # compiling needs no text
    # JAX reads this when it is imported; only a CPU heeds it
    each = max(1, len(cores()) // (sweep.execution.workers or 1))  # cores of one worker of the sweep
    os.environ.update({CPU_DEVICES: str(max(counts))} if compile_only else each_core_a_device(each))
    planned = build(sweep, data=DataFacts.of(store) if store else None)
    shapes = len({(pack.shape, pack.train.optimizer) for pack in planned.packs})
    console = terminal.console(stderr=True)
    directory = out or _default_directory(spec, sweep)
    # imported late, since they bring JAX
    from dwsweep.train import bench as benchmark
    from dwsweep.train import compile_only as compiler
    from dwsweep.train import targets

    if compile_only:
        places = [*map(targets.elsewhere, target)] if target else targets.here(planned, counts)
        found = compiler.compile_only(planned, store, places, nominal_length=sweep is not asked)
        if target:
            found = bench_record.kept(found, directory)
        compiled = list(track(found, "compile", total=shapes * len(places), console=console))
        terminal.show(lambda: bench_report.render_compiled(compiled), lambda: plain(compiled), json)
        if target:
            print(f"wrote {bench_record.write_compiled(compiled, directory)}", file=sys.stderr)
        return None
    assert store is not None
    rows = list(track(benchmark.bench(planned, store), "benchmark", total=shapes, console=console))
    terminal.show(lambda: bench_report.render_bench(rows), lambda: plain(rows), json)
    print(f"wrote {bench_record.write(rows, directory)}", file=sys.stderr)
    return None


def _verify(out: PathValue | None, json: bool) -> int:
    """Check the training program on the devices here, and write the report."""
    from dwsweep import __version__
    from dwsweep.records import verification as record
    from dwsweep.records.record import to_dict
    from dwsweep.report import verification_report
    from dwsweep.sweep.local_executor import cores, each_core_a_device
    from dwsweep.sweep.worker import prepare_environment

    os.environ.update(each_core_a_device(len(cores())))
    prepare_environment()
    from dwsweep.train.verification import verify

    with terminal.waiting("verifying") as shown:
        found = verify(__version__, lambda name: shown.update(name))
    terminal.show(lambda: verification_report.render(found), lambda: to_dict(found), json)
    path = record.write_to(found, out or paths.as_path("runs/verification"))
    print(f"wrote {path}", file=sys.stderr)
    return SOME_FAILED if found.failed else DONE


Format = StrEnum("Format", ["hf"])


Trained = Annotated[
    PathValue,
    typer.Argument(
        metavar="RUN|DIR", parser=path_value, help="DIR/runs/<run_id>, or DIR: all its runs with parameters."
    ),
]


@_command(epilog="Example: dwsweep export runs/smoke --to hf models (a sweep run with execution.keep_params: best)")
def export(
    run: Trained,
    out: Annotated[
        PathValue,
        typer.Argument(
            metavar="OUT", parser=folder_value, help="Folder to write, with a folder in it for each of several runs."
        ),
    ],
    to: Annotated[Format, typer.Option(help="hf: files that transformers loads without our code.")] = Format.hf,
) -> None:
    """Write trained models for other tools: weights, configuration, tokenizer, model card."""
    from dwsweep.trained import huggingface, runs

    for place in huggingface.export(runs.find(run), out):
        print(place)
