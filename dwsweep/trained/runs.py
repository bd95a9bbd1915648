"""Finished runs whose parameters were kept (``execution.keep_params``), read from a sweep directory."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from pydantic import ValidationError

from dwsweep import paths
from dwsweep.data.prepare import find as find_store
from dwsweep.data.token_store import Store
from dwsweep.errors import InputError
from dwsweep.model.parametrization import Scales, resolve
from dwsweep.records.run import RunConfig, RunResult
from dwsweep.shapes import Shape
from dwsweep.spec import DataSpec, ModelSpec, Section, TrainSpec
from dwsweep.spec.bounded_yaml import load_yaml_file
from dwsweep.sweep.directory import MOST_PARAMS_BYTES, SweepStore

Kind = TypeVar("Kind", bound=Section)
Arrays = dict[str, Any]
"""NumPy arrays by dotted name; arrays of the blocks have a leading layer axis."""


@dataclass(frozen=True)
class TrainedRun:
    """Finished run with kept parameters, which are read on first use."""

    sweep: SweepStore
    config: RunConfig
    result: RunResult

    @property
    def run_id(self) -> str:
        return self.config.run_id

    @property
    def shape(self) -> Shape:
        return self.config.shape

    @cached_property
    def scales(self) -> Scales:
        """Multipliers of the run's training."""
        model, train = self._section(ModelSpec, self.config.model), self._section(TrainSpec, self.config.train)
        return resolve(self.shape, model, train, self.config.learning_rate)

    def _section(self, kind: type[Kind], values: dict[str, Any]) -> Kind:
        """Section of the spec that planned the run."""
        try:
            return kind.model_validate(values)
        except ValidationError as error:  # spec of another version
            first = error.errors()[0]
            what = ".".join(map(str, first["loc"]))
            raise InputError(f"runs/{self.run_id}/config.json: {what}: {first['msg']}") from None

    def arrays(self) -> Arrays:
        """Parameters, float32.

        Raises:
            InputError: the file is missing or differs from the file that the run wrote.
        """
        from safetensors.numpy import load

        path = self.sweep.params_path(self.run_id)
        name = self.sweep.name_of(path)
        try:
            data = paths.read_bytes(path, MOST_PARAMS_BYTES)
        except FileNotFoundError:
            raise InputError(f"{name}: is not there; result.json says {self.result.params_bytes:,} bytes") from None
        if (found := hashlib.sha256(data).hexdigest()) != self.result.params_sha256:
            raise InputError(
                f"{name}: is damaged: its SHA-256 is {found[:12]}…, must be {str(self.result.params_sha256)[:12]}… as "
                "result.json says; remove the folder of the run and train it again"
            )
        return dict(load(data))

    def token_store(self) -> Store:
        """Token store of the run's training: tokens and tokenizer.

        Raises:
            InputError: the store is not prepared on this host, or differs.
        """
        spec = self.sweep.directory / "spec.yaml"
        try:
            cache = (load_yaml_file(spec).get("data") or {}).get("cache_dir")
        except (OSError, InputError, AttributeError):
            cache = None
        store = find_store(self._section(DataSpec, {**self.config.data, "cache_dir": cache}))
        if store is None:
            raise InputError(
                f"{self.run_id}: its tokenizer is with its data, {self.config.data.get('source')}, which is not "
                f"prepared here: run `dwsweep prepare {self.sweep.directory}` first"
            )
        if store.data_hash != self.config.data_hash:
            raise InputError(
                f"{self.run_id}: was trained on data {str(self.config.data_hash)[:12]}…; that of "
                f"{self.config.data.get('source')} on this host is {store.data_hash[:12]}…, with another tokenizer"
            )
        return store


def find(path: Any) -> list[TrainedRun]:
    """Runs that ``path`` names: one, ``DIR/runs/<run_id>``, or all runs with parameters in a sweep directory.

    Raises:
        InputError: the path is neither, or no run has parameters, or a result is damaged.
    """
    place = paths.as_path(paths.absolute(path))
    if (place / "config.json").exists() and place.parent.name == "runs":
        sweep = SweepStore(place.parent.parent)
        return [_trained(sweep, place.name)]
    sweep = SweepStore(place)
    names = sweep.run_ids()
    if not names:
        raise InputError(f"RUN|DIR: {os.fspath(path)}; must be a sweep directory, or a run in it: DIR/runs/<run_id>")
    done = [name for name in names if (result := sweep.read(RunResult, name)) and result.params_sha256]
    if not done:
        raise InputError(
            f"RUN|DIR: {os.fspath(path)}; none of its {len(names)} runs has parameters: only runs that are "
            "trained with `--set execution.keep_params=best` (or all) keep them, and a finished run is trained again "
            "by another --out alone"
        )
    return [_trained(sweep, name) for name in done]


def _trained(sweep: SweepStore, run_id: str) -> TrainedRun:
    config = sweep.read(RunConfig, run_id)
    result = sweep.read(RunResult, run_id)
    if config is None:
        raise InputError(f"RUN|DIR: {run_id}; has no config.json")
    if result is None:
        raise InputError(f"RUN|DIR: {run_id}; is {sweep.state(run_id).state}, only finished runs have parameters")
    if result.params_sha256 is None:
        raise InputError(
            f"RUN|DIR: {run_id}; its parameters were not kept: execution.keep_params was none, or best and another "
            "run of its pack had the lower loss"
        )
    return TrainedRun(sweep, config, result)
