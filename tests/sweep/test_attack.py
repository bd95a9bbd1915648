"""Attack: hostile tables, escapes and formulas. No command may end with a traceback or hang, and no text steers
a terminal, a page or a spreadsheet."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Command, in_this_process
from report_sweeps import rows as simulated
from sweep_tools import make_plan

from dwsweep.records.run import RunState
from dwsweep.sweep.directory import SweepStore

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


ESCAPES = (
    *("\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\x0eat\x0f", "\u202eevil", "\u2066x\u2069", "a\rb", "a\x08b", "\x7f"),
    *("=cmd|' /C calc'!A0", "+1+cmd|x", "-2+3+cmd|x", "@SUM(1)", "\t=1", "<script>alert(1)</script>", '"><img src=x>'),
    *("]]>", "[bold]x[/bold]", "{{7*7}}", "\ud800".encode("utf-16", "surrogatepass").decode("utf-16", "replace")),
)


def steers(text: str) -> bool:
    return any(not character.isprintable() and character not in "\n\t" for character in text)


@pytest.mark.parametrize("place", ["cause", "log_tail"])
def test_a_failure_in_hostile_words_steers_no_terminal(ask: Command, tmp_path: Path, place: str) -> None:
    plan, store = make_plan(), SweepStore(tmp_path / "sweep")
    store.write_plan(plan)
    for text in ESCAPES:
        store.write_state(plan.runs[0].run_id, RunState("failed", **{place: f"{text}\n{text}"}))
        done = ask("status", store.directory)
        assert done.returncode == 0 and not steers(done.stdout + done.stderr), text


@pytest.mark.parametrize("place", ["column", "cell", "arm"])
def test_a_table_in_hostile_words_steers_no_terminal_page_or_spreadsheet(
    ask: Command, tmp_path: Path, place: str
) -> None:
    rows = simulated(depths=(6, 12), sizes=5, low=1e6, high=3e7, seeds=2)
    for k, text in enumerate(ESCAPES):
        if place == "arm":
            table = [{**row, "arm": arm} for arm in ("base", text) for row in rows]
        else:
            table = [{**row, **({f"x{text}": 1} if place == "column" else {"optimizer": text})} for row in rows]
        path, out = tmp_path / "t.json", tmp_path / str(k)
        path.write_text(json.dumps(table))
        compare = ["--compare"] if place == "arm" else []
        done = ask("fit", path, "--draws", "200", "--out", out, *compare)
        said = done.stdout + done.stderr
        if done.returncode == 0:
            page = ask("report", out)
            said += page.stdout + page.stderr
        assert done.returncode in (0, 1, 2)
        tables = [one.read_text("utf-8") for one in out.glob("*.csv")]
        pages = [one.read_text("utf-8") for one in out.glob("*") if one.suffix in (".html", ".md")]
        shown = ["".join(c for c in one if c not in "\r\xa0\u00ad") for one in pages]
        assert not any(map(steers, [said, *tables, *shown])), text
        assert not any("<script>alert(1)" in one or "<img src=x>" in one for one in pages), text
        cells = [cell for one in tables for row in csv.reader(one.splitlines()) for cell in row]
        formulas = [cell for cell in cells if cell[:1] in tuple("=+-@\t") and not cell[1:2].isdigit()]
        assert set(formulas) <= {"-", "-inf"}, text
