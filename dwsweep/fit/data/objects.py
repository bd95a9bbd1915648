"""Objects: JSON and JSON lines as rows, columns, or runs under one key; and folders with one file or folder per run.

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dwsweep.errors import InputError
from dwsweep.fit.data.cell import Columns, RawCells, flat, of_rows
from dwsweep.records.columns import ALIASES, REQUIRED
from dwsweep.records.record import each_key_once
from dwsweep.text import join, printable

KEYS = ("results", "runs", "data", "rows", "records", "experiments", "trials")
"""Keys under which people keep the runs of a file."""
HYDRA = ".hydra/config.yaml"
SETTINGS = ("config.json", "args.json", "hparams.json", "params.json", "config.yaml", "hparams.yaml", HYDRA)
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
STATE = "trainer_state.json"
WHOLE = (STATE, "wandb-summary.json", "all_results.json")  # files that stand for all others of a run
LATEST, OF_WANDB = "latest-run", "files"  # W&B's link to one of the runs, and its folder of a run's files
MOST_RUNS = 20_000
KNOWN = {*REQUIRED, *(name for own in REQUIRED for name in ALIASES[own])}


def read(what: str, text: str) -> Columns:
    """Columns of JSON: a list of records, an object of columns or of named records, one of them under a key; or records
    line by line.

    what: begins the line of an error, ``table: runs.json;``.

    Raises:
        InputError: it holds something else. ValueError, RecursionError: it is no JSON.
    """
    try:
        found = json.loads(text, object_pairs_hook=each_key_once)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and "\n" in text.strip():
            return read_lines(what, text)
        raise
    for _ in range(3):  # {"data": {"runs": […]}}
        found = _inner(what, found)
    if isinstance(found, dict):
        return of_columns(what, found)
    if not isinstance(found, list) or not _all_objects(found):
        raise InputError(f"{what} must be a list of objects, one per run, or an object of columns")
    return of_rows(found)


def read_lines(what: str, text: str) -> Columns:
    """Columns of JSON lines, one object a run."""
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # only these line breaks: strings may hold the others
        if not line.strip():
            continue
        where = f"{what.removesuffix(';')}, line {number}: {line.strip()[:40]!r};"
        try:
            row = json.loads(line, object_pairs_hook=each_key_once)
        except ValueError as error:
            raise InputError(f"{where} not JSON: {getattr(error, 'msg', error)}") from None
        if not isinstance(row, dict):
            raise InputError(f"{where} must be a JSON object")
        rows.append(row)
    return of_rows(rows)


def of_columns(what: str, columns: Mapping[Any, Any]) -> Columns:
    """Columns of one length; a column is a sequence, or a dict by row label (what pandas writes as JSON), whose values
    stand under their labels, in whatever order these come."""
    labels = dict.fromkeys(label for values in columns.values() if isinstance(values, Mapping) for label in values)
    held: dict[str, list[Any]] = {}
    for name, values in columns.items():
        if isinstance(values, str) or not isinstance(values, Collection) or getattr(values, "shape", None) == ():
            raise InputError(f"{what} column {printable(str(name))!r} is one value; must be a list, one value per row")
        held[str(name)] = list(map(values.get, labels)) if isinstance(values, Mapping) else list(values)
    if len({*map(len, held.values())}) > 1:
        counts = join(f"{printable(name)!r} {len(values)}" for name, values in held.items())
        raise InputError(f"{what} columns of different lengths ({counts}); all columns need the same length")
    return held


def _inner(what: str, found: Any) -> Any:
    """The runs inside an object: under one key besides settings, by name, or as pandas splits a frame; anything else
    unchanged."""
    if not isinstance(found, dict):
        return found
    if {*found} - {"index"} == {"columns", "data"}:
        return [dict(zip(found["columns"], row, strict=True)) for row in found["data"]]
    values = list(found.values())
    if len(found) == 1 or not _same_keys(values):
        lists = [key for key, value in found.items() if isinstance(value, list) and value and _all_objects(value)]
        named = [key for key in found if key.lower() in KEYS and (key in lists or isinstance(found[key], dict))]
        keys = named or lists
        if len(keys) > 1:
            shown = join(repr(printable(key)) for key in keys)
            raise InputError(
                f"{what} has runs under {len(keys)} keys ({shown}); must be a list of objects, one per run"
            )
        if keys:
            return found[keys[0]]
    inside = {key.lower() for value in values if isinstance(value, dict) for key in value}
    by_name = _all_objects(values) and KNOWN & inside and not KNOWN & {key.lower() for key in found}
    return [{"run": name, **row} for name, row in found.items()] if by_name else found


def _same_keys(values: Sequence[Any]) -> bool:
    """True if all values are objects with the same keys: columns by row label, or records by name."""
    return _all_objects(values) and len({tuple(value) for value in values}) == 1


def _all_objects(values: Sequence[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)


# Folders of runs


def folder(place: Path, read_cells: Callable[[bytes, str, str], RawCells]) -> tuple[RawCells, str]:
    """(cells of all runs of a folder, SHA-256 of the files). read_cells: of the bytes of one file, how messages call
    it, and its name.

    Raises:
        InputError: it holds no runs, a run of several tables, or a file that cannot be read.
    """
    runs = list(_runs(place, place))
    if not 0 < len(runs) <= MOST_RUNS:
        raise InputError(
            f"table: {printable(str(place))}; {len(runs):,} runs, must be at most {MOST_RUNS:,}; a directory needs a "
            "results.csv (a sweep directory of `dwsweep run`) or a file or a folder for each run; files of runs end in "
            f"{', '.join(TABLES)}"
        )
    digest = hashlib.sha256()
    rows: list[dict[str, Any]] = []
    separators = set()
    for name, settings, table in runs:
        own: dict[str, Any] = {"run": name}
        for file in settings:
            own |= flat(_object_of(file), "config.")
        for file in (*settings, table):
            digest.update(f"{name}/{file.name}\n".encode() + file.read_bytes())
        if table.name == STATE:
            cells = _of_log(table)
        elif table.suffix.lower() == ".json" and (values := _of_one_run(table)):
            cells = RawCells(of_rows([values]))
        else:
            cells = read_cells(table.read_bytes(), printable(str(table)), table.name)
        separators.add(cells.separator)
        rows += [own | dict(zip(cells.columns, row, strict=True)) for row in zip(*cells.columns.values(), strict=True)]
    return RawCells(of_rows(rows), separators.pop() if len(separators) == 1 else ""), digest.hexdigest()


def _runs(top: Path, place: Path) -> Iterator[tuple[str, list[Path], Path]]:
    """(name, files of settings, table) of each run: of the files in ``top``, of the folders in it, and of deeper ones
    of W&B and of Hydra. Any other deeper folder is a checkpoint of a run, and no run."""
    inside = [path for path in sorted(place.iterdir()) if not path.name.startswith(".") and path.name != LATEST]
    tables = [path for path in inside if path.suffix.lower() in TABLES and path.name not in SETTINGS and path.is_file()]
    if place == top:
        yield from ((table.stem, [], table) for table in tables if table.name != STATE)
    elif tables and (place.parent == top or place.name == OF_WANDB or (place / HYDRA).is_file()):
        tables = next(([file] for one in WHOLE for file in tables if file.name == one), tables)
        if len(tables) > 1:
            names = join(printable(file.name) for file in tables)
            raise InputError(f"table: {printable(str(place))}; {len(tables)} tables ({names}); must be one a run")
        settings = [file for one in SETTINGS if (file := place / one).is_file()]
        yield place.relative_to(top).as_posix(), settings, tables[0]
        return
    for path in inside:
        if path.is_dir() and (place == top or not path.is_symlink()):
            yield from _runs(top, path)


def _of_one_run(file: Path) -> dict[str, Any] | None:
    """The run that a JSON object holds by itself, as ``{"config": {…}, "val_loss": 3.2}``; None if it holds several
    runs or points."""
    try:
        found = json.loads(file.read_bytes(), object_pairs_hook=each_key_once)
    except (ValueError, RecursionError):
        return None
    values = list(found.values()) if isinstance(found, dict) else []
    several = all(isinstance(value, dict | list) for value in values)
    return None if several and (not _all_objects(values) or _same_keys(values)) else found


def _of_log(file: Path) -> RawCells:
    """Cells of the log of a Trainer: its entries of one step joined, of the steps that have a held-out loss."""
    log = _object_of(file).get("log_history")
    if not isinstance(log, list) or not all(isinstance(entry, dict) for entry in log):
        raise InputError(f"table: {printable(str(file))}; must have a list of objects under 'log_history'")
    steps: dict[Any, dict[str, Any]] = {}
    for entry in log:
        steps.setdefault(entry.get("step"), {}).update(entry)
    rows = [entry for entry in steps.values() if any("eval" in str(key) for key in entry)] or list(steps.values())
    return RawCells(of_rows(rows))


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
