"""Random dialects of one table, against its truth: a reader may refuse a dialect in one line, and never misread it."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from dwsweep.errors import InputError
from dwsweep.fit.data.table import read_table

Truth = list[tuple[int, int, float, float | None]]  # depth, width, loss, tokens
NAMES = {
    "depth": ("depth", "n_layer", "num_layers", "Layers", "config.n_layer"),
    "width": ("width", "d_model", "n_embd", "hidden_size", "config/d_model"),
    "loss": ("loss", "val_loss", "eval/loss", "Validation Loss", "test_loss"),
    "tokens": ("tokens", "n_tokens", "tokens_M", "total tokens (B)", "train_tokens"),
}
UNITS = {"tokens_M": 1e6, "total tokens (B)": 1e9}
LETTERS = {"K": 1e3, "M": 1e6, "B": 1e9}
NOTES = ("ok", "resumed, twice", 'the "good" one', "", "-", "n/a", "3 nodes")


WAYS: dict[str, list[Any]] = {
    "kind": ["text"] * 6 + ["rows", "lines", "columns", "labels"],
    "separator": [",", ",", "\t", ";", "|"],
    "mark": [".", ","],  # before decimals
    "group": ["", "", "", " ", "other"],  # between thousands: none, a space or the mark that is not before decimals
    "letter": ["", "", "K", "M", "B"],  # of counts
    "digits": [2, 3, 4, 5],
    "quoted": [True] * 6 + [False],  # where a field holds the separator
    "encoding": ["utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252"],
    **{name: [True] + [False] * 9 for name in ("title", "comment", "packed")},
    **{name: [True] + [False] * 4 for name in ("spare", "crlf")},
    "notes": [True, True, False, False, False],
}
"""Ways to write a table, of which a dialect draws one each; and a name for each column."""


def dialect(rng: random.Random) -> SimpleNamespace:
    how = SimpleNamespace(**{name: rng.choice(ways) for name, ways in WAYS.items()})
    how.names = {ours: rng.choice(theirs) for ours, theirs in NAMES.items()}
    how.mark = how.mark if how.kind == "text" else "."
    how.group = how.group if how.group != "other" else "." if how.mark == "," else ","
    return how


def truth(rng: random.Random, digits: int) -> Truth:
    """Runs of a small sweep, with losses of ``digits`` decimals; tokens are whole thousands."""
    with_tokens = rng.random() < 0.6
    found = []
    for depth in rng.sample([2, 4, 6, 8, 12, 16, 24], 4):
        for width in rng.sample([64, 96, 128, 192, 256, 512, 768, 1024, 1536, 2048], rng.choice([3, 5])):
            tokens = 1000.0 * round(10 ** rng.uniform(3.0, 6.5)) if with_tokens else None
            found.append((depth, width, round(rng.uniform(2.3, 6.8), digits), tokens))
    return found


def grouped(number: int, group: str) -> str:
    return f"{number:,}".replace(",", group) if group else str(number)


def written(rows: Truth, how: SimpleNamespace, rng: random.Random) -> tuple[str, bytes]:
    """(name of a file, its content)."""
    table = [_fields(row, how, rng) for row in rows]
    names = [how.names[ours] for ours in ("depth", "width", "loss")]
    names += [how.names["tokens"]] if rows[0][3] is not None else []
    names += ["note"] if how.notes else []
    if how.kind == "text":
        name, content = "t.tsv" if how.separator == "\t" else "t.csv", _text(names, table, how)
    else:
        name, content = ("t.jsonl" if how.kind == "lines" else "t.json"), _json(names, table, how.kind, rng)
    held = content.encode(how.encoding)
    return (f"{name}.gz", gzip.compress(held)) if how.packed else (name, held)


def _fields(row: tuple[int, int, float, float | None], how: SimpleNamespace, rng: random.Random) -> list[str]:
    depth, width, loss, tokens = row
    fields = [str(depth), grouped(width, how.group), f"{loss:.{how.digits}f}".replace(".", how.mark)]
    if tokens is not None:
        unit = UNITS.get(how.names["tokens"], 1.0)
        if how.letter and unit in (1.0, LETTERS[how.letter]):
            fields.append(f"{tokens / LETTERS[how.letter]:.12g}".replace(".", how.mark) + how.letter)
        else:
            value = tokens / unit
            fields.append(grouped(int(value), how.group) if unit == 1.0 else f"{value:.12g}".replace(".", how.mark))
    return [*fields, rng.choice(NOTES)] if how.notes else fields


def _text(names: list[str], table: list[list[str]], how: SimpleNamespace) -> str:
    def field(text: str) -> str:
        needs = how.separator in text or '"' in text
        return '"' + text.replace('"', '""') + '"' if needs and (how.quoted or '"' in text) else text

    end = "\r\n" if how.crlf else "\n"
    lines = [how.separator.join([*map(field, row), *([""] if how.spare else [])]) for row in [names, *table]]
    if how.comment:
        lines.insert(0, "# exported on a Monday")
    if how.title:
        lines.insert(0, "Shape sweep" + how.separator * (len(names) - 1))
    return end.join(lines) + end


def _json(names: list[str], table: list[list[str]], kind: str, rng: random.Random) -> str:
    def value(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    rows = [dict(zip(names, map(value, row), strict=True)) for row in table]
    if kind == "rows":
        return json.dumps(rows)
    if kind == "lines":
        return "\n".join(map(json.dumps, rows))
    if kind == "columns":
        return json.dumps({name: [row[name] for row in rows] for name in names})
    order = {name: rng.sample(range(len(rows)), len(rows)) for name in names}
    return json.dumps({name: {str(k): rows[k][name] for k in order[name]} for name in names})


def outcome(rows: Truth, name: str, content: bytes, folder: Path) -> str:
    """``read``, ``refused``, or the misread value."""
    (folder / name).write_bytes(content)
    try:
        table = read_table(folder / name)
    except InputError:
        return "refused"
    # rows that repeat exactly are left out, in whatever order
    found = {(row["depth"], row["width"], row["loss"], row.get("tokens")) for row in table.rows}
    wanted = {(depth, width, loss, tokens) for depth, width, loss, tokens in rows}
    if table.n_read - ("exported" in content.decode("latin-1")) > len(rows) + 1:
        return f"{table.n_read} rows for {len(rows)}"
    close = all(any(_same(one, other) for other in found) for one in wanted) and len(found) == len(wanted)
    return "read" if close else f"{sorted(wanted)[0]} as {sorted(found, key=str)[0]}"


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(
        a == b or (isinstance(a, float) and isinstance(b, int | float) and abs(a - b) <= 1e-9 * abs(a))
        for a, b in zip(one, other, strict=True)
    )


def tried(count: int, seed: int = 0) -> tuple[Counter[str], list[tuple[str, bytes, SimpleNamespace]]]:
    """(outcomes of ``count`` dialects, the misread ones)."""
    outcomes: Counter[str] = Counter()
    misread = []
    with TemporaryDirectory() as folder:
        for k in range(count):
            rng = random.Random(f"{seed}-{k}")
            how = dialect(rng)
            rows = truth(rng, how.digits)
            if len({row[:2] for row in rows}) < len(rows):
                continue
            name, content = written(rows, how, rng)
            found = outcome(rows, name, content, Path(folder))
            outcomes[found if found in ("read", "refused") else "misread"] += 1
            if found not in ("read", "refused"):
                misread.append((found, content, how))
    return outcomes, misread
