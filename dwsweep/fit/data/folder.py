"""Folder of runs: one file a run, or one folder a run with its settings beside its losses.

runs/depth6_width264_seed0.csv           the name holds the shape, the rows are the curve
runs/a/config.json  runs/a/metrics.csv   settings, and the curve or one row (also args.json, hparams.json)
runs/a.json                              one object of settings and losses
runs/b/config.json  runs/b/trainer_state.json    the log of a Hugging Face Trainer
wandb/run-a/files/config.yaml  wandb/run-a/files/wandb-summary.json    runs of W&B on this disk
multirun/DATE/TIME/0/.hydra/config.yaml  multirun/DATE/TIME/0/metrics.csv    jobs of Hydra, at any depth
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dwsweep.errors import InputError
from dwsweep.fit.data.cell import of_rows
from dwsweep.fit.data.delimited import Cells
from dwsweep.fit.data.objects import flat, of_run
from dwsweep.records.record import each_key_once
from dwsweep.text import join, printable

HYDRA = ".hydra/config.yaml"
SETTINGS = ("config.json", "args.json", "hparams.json", "params.json", "config.yaml", "hparams.yaml", HYDRA)
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
STATE = "trainer_state.json"
WHOLE = (STATE, "wandb-summary.json", "all_results.json")  # files that stand for all others of a run
LATEST = "latest-run"  # W&B's link to one of the runs
MOST_RUNS = 20_000
RUN = "run"  # column of a run's name

Run = tuple[str, list[Path], Path]
"""Name, files of settings, table."""


def read(folder: Path, read_cells: Callable[[bytes, str, str], Cells]) -> tuple[Cells, str]:
    """(cells of all runs of ``folder``, SHA-256 of the files). read_cells: of the bytes of one file, how messages call
    it, and its name.

    Raises:
        InputError: it holds no runs, a run of several tables, or a file that cannot be read.
    """
    said = printable(str(folder))
    found = _runs(folder) or _of_hydra(folder)
    if not found:
        raise InputError(
            f"table: {said}; a directory needs a results.csv (a sweep directory of `dwsweep run`) or "
            f"a file or a folder for each run; files of runs end in {', '.join(TABLES)}"
        )
    if len(found) > MOST_RUNS:
        raise InputError(f"table: {said}; {len(found):,} runs; must be at most {MOST_RUNS:,}")
    digest = hashlib.sha256()
    rows: list[dict[str, Any]] = []
    separators = set()
    for name, settings, table in found:
        own: dict[str, Any] = {RUN: name}
        for file in settings:
            own |= flat(_object_of(file), "config.")
        content = table.read_bytes()
        for file, held in (*((file, file.read_bytes()) for file in settings), (table, content)):
            digest.update(f"{name}/{file.name}\n".encode() + held)
        if table.name == STATE:
            cells = _of_log(table)
        elif table.suffix.lower() == ".json" and (values := of_run(content)):
            cells = Cells(of_rows([values]))
        else:
            cells = read_cells(content, printable(str(table)), table.name)
        separators.add(cells.separator)
        rows += [
            dict(own, **dict(zip(cells.columns, row, strict=True))) for row in zip(*cells.columns.values(), strict=True)
        ]
    return Cells(of_rows(rows), separators.pop() if len(separators) == 1 else ""), digest.hexdigest()


def _runs(folder: Path) -> list[Run]:
    found: list[Run] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == LATEST:
            continue
        if path.is_file() and path.suffix.lower() in TABLES and path.name not in (*SETTINGS, STATE):
            found.append((path.stem, [], path))
        elif path.is_dir():
            found += _run(path.name, path) or _run(path.name, path / "files")
    return found


def _of_hydra(folder: Path) -> list[Run]:
    """Jobs of Hydra below ``folder``, of several launches too."""
    places = sorted(file.parent.parent for file in folder.rglob(HYDRA))
    return [run for place in places for run in _run(place.relative_to(folder).as_posix(), place)]


def _run(name: str, folder: Path) -> list[Run]:
    """The run of a folder, or none."""
    if not folder.is_dir():
        return []
    settings = [file for one in SETTINGS if (file := folder / one).is_file()]
    tables = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in TABLES and file.is_file()]
    tables = [file for file in tables if file.name not in SETTINGS]
    tables = next(([file] for one in WHOLE for file in tables if file.name == one), tables)
    if len(tables) > 1:
        names = join(printable(file.name) for file in tables)
        raise InputError(f"table: {printable(str(folder))}; {len(tables)} tables ({names}); must be one a run")
    return [(name, settings, table) for table in tables]


def _of_log(file: Path) -> Cells:
    """Cells of the log of a Trainer: its entries of one step joined, of the steps that have a held-out loss."""
    log = _object_of(file).get("log_history")
    if not isinstance(log, list) or not all(isinstance(entry, dict) for entry in log):
        raise InputError(f"table: {printable(str(file))}; must have a list of objects under 'log_history'")
    steps: dict[Any, dict[str, Any]] = {}
    for entry in log:
        steps.setdefault(entry.get("step"), {}).update(entry)
    rows = [entry for entry in steps.values() if any("eval" in str(key) for key in entry)] or list(steps.values())
    return Cells(of_rows(rows))


def _object_of(file: Path) -> dict[str, Any]:
    """Object of a JSON or YAML file."""
    from dwsweep.spec.bounded_yaml import load_yaml_file

    what = f"table: {printable(str(file))};"
    try:
        if file.suffix == ".yaml":
            found = load_yaml_file(file)
        else:
            found = json.loads(file.read_text("utf-8"), object_pairs_hook=each_key_once)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{what} not readable: {printable((str(error).splitlines() or ['?'])[0])}") from None
    if not isinstance(found, dict):
        raise InputError(f"{what} must be an object of settings")
    return found
