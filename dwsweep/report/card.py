"""Data card, ``dwsweep report DIR --card``: a sweep or a published study as a data set of the Hugging Face Hub.

README.md, whose header the Hub reads, and results.parquet: one row per run, typed columns that carry their units.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records import fit as fit_record
from dwsweep.records.columns import COLUMNS, REQUIRED, Column
from dwsweep.records.run import DONE
from dwsweep.report import fit_report
from dwsweep.report.document import plain
from dwsweep.report.runs_table import Row, rows_of
from dwsweep.spec import load_spec
from dwsweep.text import format_count

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "results.parquet"
MARK = "<!-- written by `dwsweep report --card` -->"  # a README with this mark may be overwritten
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
UNKNOWN = "unknown"  # the Hub's name for an unstated licence
USE = f"""## Use

```python
from datasets import load_dataset

runs = load_dataset("OWNER/NAME", split="train").to_pandas()
```

`dwsweep fit {TABLE}` fits the losses: where a deeper net overtakes, and the best depth of each size."""
_BY_NAME = {column.name: column for column in COLUMNS}
_ROLES = {
    "size": "size of the net or of its training",
    "outcome": "result of the run",
    "recipe": "equal for all runs of a shape",
    "tuning": "setting of the training",
    "identity": "names the run",
}


def write(directory: Any, out: Any, licence: str | None = None) -> list[str]:
    """Write the card of the sweep in ``directory`` into the folder ``out``; returns the written files.

    licence: an identifier of the Hub, such as cc-by-4.0; None: the licence of the study's manifest, else unknown.

    Raises:
        InputError: there are no results, the licence is no identifier, or a README.md by another author exists.
    """
    source, manifest = directory / "results.csv", paths.read_json(directory / "manifest.json") or {}
    if not source.exists():
        raise InputError(
            f"DIR: {directory}; has no results.csv; give a sweep directory of `dwsweep run`, or a published study"
        )
    stated = licence or re.sub(r"\s+", "-", str(manifest.get("licence") or UNKNOWN).strip().lower())
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]{0,59}", stated):
        raise InputError(f"--license: {stated!r}; must be an identifier of the Hub, such as cc-by-4.0 or apache-2.0")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: {out}; is a file; allowed with --card: a folder")
    readme = out / "README.md"
    there = next((file for file in (readme, out / TABLE) if file.exists()), None)
    if there and not (readme.exists() and MARK in readme.read_text("utf-8", "replace")):
        raise InputError(f"--out: {there} is there already and is not a card of dwsweep; give another folder")
    rows = rows_of(source)
    if not rows:
        raise InputError(f"DIR: {directory}; its results.csv has no rows; give a sweep with finished runs")
    table = typed(rows)
    paths.make_directory(out)
    paths.write_atomic(out / TABLE, _parquet(table))
    paths.write_atomic(readme, _readme(directory, table, rows, manifest, stated))
    return [str(out / TABLE), str(readme)]


def typed(rows: Sequence[Row]) -> pa.Table:
    """Columns of the rows as int64, float64 or string; a blank field is null, an empty column is left out.

    A column's metadata has its unit and its meaning.
    """
    import pyarrow as pa

    fields, arrays = [], []
    for name in rows[0]:
        found = [row[name] for row in rows]
        known = [value for value in found if value is not None]
        if name not in REQUIRED and not known:
            continue
        column = _BY_NAME.get(name, Column(name, "tuning"))
        if any(isinstance(value, str) for value in known):
            kind = pa.string()
            found = [None if value is None else str(value) for value in found]
        elif all(isinstance(value, int) and abs(value) < 2**63 for value in known):  # FLOPs may exceed it
            kind = pa.int64()
        else:
            kind = pa.float64()
            found = [None if value is None else float(value) for value in found]
        values = pa.array(found, kind)
        notes = {"unit": column.unit, "meaning": _meaning(name)}
        fields.append(pa.field(name, kind, metadata={key: text for key, text in notes.items() if text}))
        arrays.append(values)
    return pa.table(arrays, schema=pa.schema(fields))


def _meaning(name: str) -> str:
    column = _BY_NAME.get(name)
    return (column.meaning or _ROLES[column.role]) if column else ""


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _readme(directory: Any, table: pa.Table, rows: Sequence[Row], manifest: Mapping[str, Any], licence: str) -> str:
    name = directory.resolve().name if hasattr(directory, "resolve") else directory.name
    spec_file = directory / "spec.yaml"
    spec = load_spec(spec_file) if spec_file.exists() else None
    title = spec.name if spec else name
    header = {
        "license": licence,
        "pretty_name": f"{title}: losses of a depth-width sweep",
        "tags": ["scaling-laws", "language-models", "depth", "width", "dwsweep"],
        "size_categories": [next((text for most, text in SIZES if len(rows) < most), "n>1M")],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": TABLE}]}],
    }
    parts = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---",
        f"{MARK}\n# {title}: losses of a depth-width sweep",
        _what(rows),
        *_found(directory),
        "## Columns\n\nOne row per run.\n\n" + _columns(table),
        USE,
        "## How it was made\n\n" + "\n".join(f"- {line}" for line in _made(rows, manifest)),
    ]
    if spec is not None:
        content = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"execution"})
        content.get("data", {}).pop("cache_dir", None)
        parts.append(f"The spec:\n\n```yaml\n{yaml.safe_dump(content, sort_keys=False)}```")
    if licence == UNKNOWN:
        parts.append("No licence was stated: set `license` in the header before you publish this.")
    return "\n\n".join(parts) + "\n"


def _what(rows: Sequence[Row]) -> str:
    shapes = {(row["depth"], row["width"], row.get("heads")) for row in rows}
    depths = sorted({int(row["depth"]) for row in rows})
    sizes = sorted(float(row["n_params"]) for row in rows if row.get("n_params"))
    seeds = {row["seed"] for row in rows if row.get("seed") is not None}
    states = Counter(row.get("status") or DONE for row in rows)
    ended = ", ".join(f"{n:,} {state}" for state, n in states.most_common())
    span = f", {format_count(sizes[0])} to {format_count(sizes[-1])} non-embedding parameters" if sizes else ""
    return (
        f"Decoder-only language models of {len(shapes)} shapes, trained with one recipe to ask how deep and how wide a "
        f"net should be: depths {', '.join(map(str, depths))}{span}, {len(seeds)} seed{'s' * (len(seeds) != 1)}. "
        f"Runs: {ended}."
    )


def _found(directory: Any) -> list[str]:
    """Findings of the fit beside the table, if there is one."""
    try:
        fit = fit_record.read_any(directory)
    except InputError:
        return []
    return ["## Findings of the fit\n\n" + "\n".join(f"- {plain(line)}" for line in fit_report.answer(fit))]


def _columns(table: pa.Table) -> str:
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for field in table.schema:
        notes = {key.decode(): text.decode() for key, text in (field.metadata or {}).items()}
        lines.append(f"| `{field.name}` | {field.type} | {notes.get('unit', '')} | {notes.get('meaning', '')} |")
    return "\n".join(lines)


def _made(rows: Sequence[Row], manifest: Mapping[str, Any]) -> list[str]:
    def distinct(name: str) -> str:
        return ", ".join(sorted({str(row[name]) for row in rows if row.get(name) is not None}))

    names = ("optimizer", "schedule", "parametrization", "precision", "batch_size", "seq_len", "vocab_size")
    lines = [f"{name.replace('_', ' ')}: {distinct(name)}" for name in (*names, "data_hash", "device_kind")]
    text = (manifest.get("data") or {}).get("text") if isinstance(manifest.get("data"), dict) else None
    commits = manifest.get("git_commits") or [call.get("git_commit") for call in manifest.get("calls") or ()]
    facts = {
        "text": text,
        "versions": ", ".join(f"{name} {version}" for name, version in (manifest.get("versions") or {}).items()),
        "code": ", ".join(dict.fromkeys(str(commit) for commit in commits if commit)),
    }
    return [line for line in lines if not line.endswith(": ")] + [
        f"{name}: {text}" for name, text in facts.items() if text
    ]
