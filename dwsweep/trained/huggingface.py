"""A run as a directory that ``transformers`` loads without any code of ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from dwsweep import paths
from dwsweep.data.tokenizer import Tokenizer
from dwsweep.errors import InputError
from dwsweep.trained import architectures, tokenizer_json
from dwsweep.trained.architectures import Architecture
from dwsweep.trained.card import model_card
from dwsweep.trained.runs import TrainedRun

WEIGHTS = "model.safetensors"  # the first file of an export


def export(runs: Sequence[TrainedRun], out: Any) -> list[Any]:
    """Write each run into a directory, ``out`` itself of a single one and ``out/<run_id>`` of several; returns them.

    config.json comes last: a directory that has one is whole.

    Raises:
        InputError: an architecture has not all of a run's shape, an export is there already, the parameters are damaged
            or the tokenizer is not on this host. Nothing is written then, but what was whole before damaged parameters.
    """
    found = architectures_of(runs)
    stores = {run.config.data_hash: run.token_store() for run in runs}
    places = [out if len(runs) == 1 else out / run.run_id for run in runs]
    for place in places:
        if (place / "config.json").exists() or (place.exists() and not place.is_dir()):
            raise InputError(f"OUT: {place}; is there already; remove it or name another directory")
        if place.exists() and (others := _others(place)):
            raise InputError(f"OUT: {place}; holds other files, such as {others[0]}; name another directory")
    tokenizers = {data: Tokenizer.load(store.path) for data, store in stores.items()}
    files = {data: tokenizer_json.files(tokenizer) for data, tokenizer in tokenizers.items()}
    for run, architecture, place in zip(runs, found, places, strict=True):
        data = run.config.data_hash
        _write(run, architecture, tokenizers[data].end_token, files[data], place)
    return places


def _others(place: Any) -> list[str]:
    """Names in a folder that neither an export that was cut off left there, nor git."""
    names = sorted(path.name for path in place.iterdir() if not path.name.startswith("."))
    ours = {WEIGHTS, "tokenizer.json", "tokenizer_config.json", "generation_config.json", "README.md"}
    return [name for name in names if name not in ours or WEIGHTS not in names]


def architectures_of(runs: Sequence[TrainedRun]) -> list[Architecture]:
    """The architecture of each run.

    Raises:
        InputError: names what none has, and one of the runs that need it.
    """
    found = [architectures.of(run.shape) for run in runs]
    refused: dict[str, str] = {}
    for run, one in zip(runs, found, strict=True):
        for line in one if isinstance(one, list) else ():
            refused.setdefault(line, run.run_id)
    if refused:
        lines = (f"{line}; no architecture of transformers has it (runs/{name})" for line, name in refused.items())
        raise InputError(*lines)
    return [one for one in found if isinstance(one, Architecture)]


def _write(
    run: TrainedRun, architecture: Architecture, end_token: int, tokenizer_files: dict[str, str], place: Any
) -> None:
    shape = run.shape
    weights = architecture.weights(shape, run.scales, run.arrays())
    paths.make_directory(place)
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}
    paths.write_safetensors(place / WEIGHTS, arrays, format="pt")
    ends = {"bos_token_id": end_token, "eos_token_id": end_token}
    for name, text in {
        **tokenizer_files,
        "generation_config.json": json.dumps({**ends, "do_sample": True}, indent=1) + "\n",
        "README.md": model_card(run, architecture),
        "config.json": json.dumps({**architecture.config(shape), **ends}, indent=1) + "\n",
    }.items():
        paths.write_atomic(place / name, text)
