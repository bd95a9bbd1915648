"""Attack: hostile tables. No command may end with a traceback or hang."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Command, in_this_process

pytestmark = pytest.mark.slow

PATIENCE = 120  # seconds for one command


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """A command in this process, which an alarm ends."""
    command = in_this_process(monkeypatch, capsys)
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the command hangs"))

    def ask(*arguments: Any) -> Any:
        signal.alarm(PATIENCE)
        done = command(*map(str, arguments))
        signal.alarm(0)
        assert "Traceback (most recent" not in done.stderr
        return done

    yield ask
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


MANY, DEEP = 100_000, "[" * 20_000
TABLES: dict[str, bytes] = {
    "100,000 columns.csv": (",".join(f"c{k}" for k in range(MANY)) + "\n" + ",".join("1" * MANY) + "\n").encode(),
    "100,000 columns.tsv": ("\t".join(f"c{k}" for k in range(MANY)) + "\n" + "\t".join("1" * MANY) + "\n").encode(),
    "100,000 equal columns.csv": (",".join("c" * MANY) + "\n" + ",".join("1" * MANY) + "\n").encode(),
    "100,000 columns.json": json.dumps([{f"c{k}": 1 for k in range(MANY)}]).encode(),
    "100,000 columns.jsonl": json.dumps({f"c{k}": 1 for k in range(MANY)}).encode(),
    "deep.json": DEEP.encode(),
    "deep.jsonl": DEEP.encode(),
    "not UTF-8.csv": b"depth,width,loss\n1,2,\xff\xfe\n",
    "NUL.csv": b"depth,width,loss\n1,2,3\x00\n",
    "one long cell.csv": b"depth,width,loss\n1,2," + b"9" * 3_000_000 + b"\n",
    "quotes.csv": b'depth,width,loss\n1,2,"' + b"x\n" * 200_000,
    "nothing.csv": b"",
    "no zip.xlsx": b"PK\x03\x04" + b"\x00" * 200,
    "no parquet.parquet": b"PAR1" + b"\xff" * 200 + b"PAR1",
    "no gzip.csv.gz": b"\x1f\x8b" + b"\xff" * 200,
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_hostile_table_is_refused(ask: Command, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    path.write_bytes(TABLES[kind])
    assert ask("fit", path, "--draws", "200", "--out", tmp_path / "fit").returncode == 2
    assert ask("design", path, "--params", "1e5", "--runs", "2").returncode == 2
