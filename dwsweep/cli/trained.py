"""The commands for finished runs whose parameters were kept: export, sample, eval. Heavy imports stand inside them."""

from __future__ import annotations

import functools
import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from dwsweep import paths, terminal
from dwsweep.cli.options import Command, PathValue, folder_value, number_option, path_option, path_value, whole_option
from dwsweep.errors import InputError
from dwsweep.text import printable

commands = typer.Typer(rich_markup_mode="rich")
_command = functools.partial(commands.command, cls=Command)


Format = StrEnum("Format", ["hf"])


Trained = Annotated[
    PathValue,
    typer.Argument(
        metavar="RUN|DIR", parser=path_value, help="DIR/runs/<run_id>, or DIR: all of its runs that have parameters."
    ),
]


@_command(epilog="Example: dwsweep export runs/smoke --to hf models (a sweep run with execution.keep_params: best)")
def export(
    run: Trained,
    out: Annotated[
        PathValue,
        typer.Argument(metavar="OUT", parser=folder_value, help="Folder to write; of several runs one in it for each."),
    ],
    to: Annotated[Format, typer.Option(help="hf: what transformers loads without code of ours.")] = Format.hf,
) -> None:
    """Write trained models for other tools: weights, configuration, tokenizer, model card."""
    from dwsweep.trained import huggingface, runs

    for place in huggingface.export(runs.find(run), out):
        print(place)


@_command(epilog="Example: dwsweep sample runs/smoke/runs/L6-d38-h2-lr0.002-s2-ff1981dc --prompt 'The list' --top-k 50")
def sample(
    run: Annotated[
        PathValue,
        typer.Argument(
            metavar="RUN|DIR",
            parser=path_value,
            help="DIR/runs/<run_id>, or DIR: two texts per depth, also for its page.",
        ),
    ],
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="What the text begins with.")] = "",
    max_tokens: Annotated[int, whole_option("N", "Tokens to write at most.")] = 100,
    temperature: Annotated[float, number_option("T", "1: as the model says; 0: the likeliest token.")] = 1.0,
    top_k: Annotated[int | None, whole_option("K", "Draw among the K likeliest tokens; default: all.")] = None,
    seed: Annotated[int, whole_option("S", "Seed of the draws.")] = 0,
) -> None:
    """Let trained models go on from a prompt, on the CPU: one, or the best of each depth of a sweep."""
    for name, value, least in (("--max-tokens", max_tokens, 1), ("--top-k", top_k, 1), ("--seed", seed, 0)):
        if value is not None and not least <= value < 2**31:
            raise InputError(f"{name}: {value}; must be from {least} to 2^31 - 1")
    if not 0 <= temperature <= 1e6:
        raise InputError(f"--temperature: {temperature:g}; must be from 0 to 1e6")
    from dwsweep.records.record import to_dict
    from dwsweep.records.run import Sample
    from dwsweep.sweep.worker import prepare_environment
    from dwsweep.trained import runs

    found = runs.find(run)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    prepare_environment()  # programs that were compiled before are read from the cache
    from dwsweep.trained.sample import sample as draw

    prompt = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # as the shell gave it

    def text(one: runs.TrainedRun, seed: int) -> str:
        return draw(one, prompt, max_tokens=max_tokens, temperature=temperature, top_k=top_k, seed=seed)

    if (run / "config.json").exists():
        print(printable(prompt + text(found[0], seed), keep="\n\t"))
        return
    samples = []
    for one in runs.best_of_each_depth(found):
        print(f"{one.shape.depth} × {one.shape.width}, loss {one.result.loss:.3f} ({one.run_id})")
        for place in (seed, seed + 1):
            with terminal.waiting("writing"):
                written = text(one, place)
            samples.append(
                Sample(
                    run_id=one.run_id,
                    depth=one.shape.depth,
                    width=one.shape.width,
                    loss=one.result.loss,
                    prompt=prompt,
                    seed=place,
                    text=written,
                )
            )
            print(f"\n{printable(prompt + written, keep=chr(10) + chr(9))}\n")
    path = found[0].sweep.samples_path
    paths.write_json(path, [to_dict(one) for one in samples])
    print(f"{path}: on the page of `dwsweep report`", file=sys.stderr)


@_command(
    name="eval",
    epilog="Examples: dwsweep eval runs/smoke --tasks lambada_openai,hellaswag --limit 200 · "
    "dwsweep fit runs/smoke --column loss=eval_hellaswag_error_norm",
)
def evaluate(
    directory: Trained,
    tasks: Annotated[str, typer.Option(metavar="T,T…", help="Tasks of lm-evaluation-harness.", show_default=False)],
    include: Annotated[PathValue | None, path_option("--include", "DIR", "Folder with task files of your own.")] = None,
    limit: Annotated[int | None, whole_option("N", "Examples per task at most; default: all.")] = None,
    shots: Annotated[int | None, whole_option("N", "Solved examples before each; default: as the task says.")] = None,
    batch_size: Annotated[int, whole_option("N", "Sequences per forward pass.")] = 16,
) -> None:
    """Run lm-evaluation-harness on trained models and add its numbers to results.csv, as columns eval_TASK_METRIC."""
    for name, value, least in (("--limit", limit, 1), ("--shots", shots, 0), ("--batch-size", batch_size, 1)):
        if value is not None and not least <= value <= 10**9:
            raise InputError(f"{name}: {value}; must be from {least} to 1e9")
    from dwsweep.trained import downstream, runs

    names = [name.strip() for name in tasks.split(",") if name.strip()]
    print(downstream.evaluate(runs.find(directory, "DIR"), names, include, limit, shots, batch_size))
