"""Attack: a sweep with its store, fit, checkpoints and parameters is damaged, replaced by things that block, and fed
with hostile texts; no command may end with a traceback, hang, or answer otherwise than before without a word.

`pytest -m slow -s tests/sweep/test_attack.py` prints the table of what was done and how it ended. ``ATTACK_SEED=S``
chooses the places.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from cli_tools import Command, in_this_process
from report_sweeps import rows as simulated
from spec_tools import filled
from train_support import TINY, tree

from dwsweep import jsonl, paths
from dwsweep.data.prepare import prepare
from dwsweep.model.transformer import build
from dwsweep.plan import DataFacts
from dwsweep.plan import build as build_plan
from dwsweep.records.documents import _fault_of_documents
from dwsweep.records.run import RunResult
from dwsweep.spec import parse_spec
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import rebuild_results
from dwsweep.train.checkpoint import Checkpoints
from dwsweep.trained import runs

pytestmark = pytest.mark.slow

PATIENCE = 120  # seconds for one command
SAME, SAID, REFUSED = "same answer", "said", "refused"  # and verify finds it
SILENT, HANG, TRACEBACK = "SILENT", "HANG", "TRACEBACK"
OUTCOMES = (SAME, SAID, REFUSED, SILENT, HANG, TRACEBACK)
RUN, OUT = "{run}", "{out}"


@dataclass
class Table:
    """Outcomes by what was attacked."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def add(self, what: str, outcome: str, detail: str) -> None:
        self.counts.setdefault(what, Counter())[outcome] += 1
        if outcome in (SILENT, HANG, TRACEBACK):
            self.bad.append(f"{what}: {outcome}: {detail}")

    def show(self, title: str) -> None:
        total = sum((Counter(found) for found in self.counts.values()), Counter())
        lines = [f"\n{title:<24}" + "".join(f"{name:>13}" for name in ("cases", *OUTCOMES))]
        for what, found in [*self.counts.items(), ("all", total)]:
            lines.append(f"{what:<24}" + "".join(f"{n:>13}" for n in (found.total(), *(found[o] for o in OUTCOMES))))
        print("\n".join(lines), flush=True)
        assert not self.bad, "\n".join(self.bad[:20])


class TooLong(BaseException):
    """A command did not end in time."""


@contextmanager
def limited() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str
    fault: str = ""  # HANG or TRACEBACK


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    command: Command = in_this_process(monkeypatch, capsys)
    monkeypatch.setenv("COLUMNS", "200")

    def ask(*arguments: Any) -> Answer:
        _fault_of_documents.cache_clear()
        try:
            with limited():
                done = command(*map(str, arguments))
        except TooLong:
            capsys.readouterr()
            return Answer(-1, "", f"{arguments[0]} hangs", HANG)
        except BaseException:
            capsys.readouterr()
            return Answer(-1, "", f"{arguments[0]}: {traceback.format_exc()[-600:]}", TRACEBACK)
        fault = TRACEBACK if "Traceback (most recent" in done.stderr else ""
        return Answer(done.returncode, done.stdout, done.stderr, fault)

    return ask


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of twelve runs whose losses are invented and whose first runs keep parameters, with its store,
    its fit and a checkpoint."""
    root = tmp_path_factory.mktemp("attack")
    words = np.random.default_rng(0).choice(["deep", "wide", "and", "net", "loss", "of", "the", "a", "shape"], 30_000)
    (root / "text").mkdir()
    for k in range(30):
        (root / "text" / f"{k}.txt").write_text(" ".join(words[k * 1000 : (k + 1) * 1000]))
    grid = {"widths": {1: [16, 24, 32], 2: [16, 24, 32]}, "seeds": 2}
    data = {
        **{"source": f"text:{root}/text/*.txt", "vocab_size": 300, "validation_fraction": 0.15, "workers": 1},
        "cache_dir": str(root / "cache"),
    }
    spec = parse_spec(filled(TINY, grid=grid, data=data))
    store = prepare(spec.data, progress=False)
    plan = build_plan(spec, data=DataFacts.of(store))
    sweep = SweepStore(root / "sweep")
    sweep.write_plan(plan)
    sweep.update_manifest(lambda manifest: manifest.with_call())
    rng = np.random.default_rng(0)
    for pack in plan.packs:
        sweep.write_pack(pack)
    for run in plan.runs:
        loss = 4.0 - 0.1 * np.log(run.shape.depth * run.shape.width**2) + rng.normal(0, 0.001)
        documents = np.array([[loss * 10, 10.0], [loss * 20, 20.0]])
        loss = float(documents[:, 0].sum() / documents[:, 1].sum())
        lines = jsonl.LineWriter(sweep.metrics_path(run.run_id))
        lines.append({"step": k + 1, "loss": 5.0 - k * 0.1, "grad_norm": 1.0} for k in range(12))
        params = None
        if run.shape.width == 16 and run.seed == 0:
            config = sweep.config(run.run_id)
            assert config is not None
            model = build(run.shape, runs.TrainedRun(sweep, config, RunResult(1.0)).scales)
            leaves = jax.tree_util.tree_leaves_with_path(model.init(jax.random.key(run.shape.depth)))
            params = {".".join(key.key for key in path): np.asarray(leaf) for path, leaf in leaves}
        sweep.finish(run.run_id, run.pack_id, RunResult(loss, steps=12, heldout_tokens=30), documents, params)
    rebuild_results(sweep)
    checkpoints = Checkpoints(root / "checkpoints", keep=2, note=print)
    for value in (1, 2):
        checkpoints.save(tree(value), {"phase": 0, "tick": value, "seconds": 12.5, "value": value})
    checkpoints.close()
    (store_folder,) = [path.parent for path in (root / "cache").rglob("tokenizer.model")]
    (root / "store").symlink_to(store_folder)
    return root


class Target:
    """The sweep, and what its commands answer while it is whole."""

    def __init__(self, root: Path, ask: Callable[..., Answer], folder: Path) -> None:
        self.root, self.ask, self.folder = root, ask, folder
        self.sweep = root / "sweep"
        kept = next(run for run in sorted((self.sweep / "runs").iterdir()) if (run / "params.safetensors").exists())
        self.names = {"sweep": self.sweep, "run": kept, "fit": self.sweep / "fit", "out": folder / "out"}
        if not (self.sweep / "fit" / "fit.json").exists():
            done = ask("fit", self.sweep, "--draws", "200")
            assert done.code == 0, done.err
        self._whole: dict[tuple[str, ...], Answer] = {}
        assert ask("verify", self.sweep).code == 0

    def run(self, command: tuple[str, ...]) -> Answer:
        out = Path(self.names["out"])
        for path in (out, out.with_suffix(".html")):
            paths.remove(path)
        return self.ask(*(part.format(**self.names) for part in command))

    def whole(self, command: tuple[str, ...]) -> Answer:
        if command not in self._whole:
            self._whole[command] = self.run(command)
            assert self._whole[command].code == 0, self._whole[command]
        return self._whole[command]

    def files(self, name: str) -> list[Path]:
        if name in ("tokenizer.model", "pieces.json", "store/manifest.json"):
            return [self.root / "store" / Path(name).name]
        if name == "manifest.json":
            return [self.sweep / name]
        return sorted(path for path in self.sweep.rglob(name) if "locks" not in path.parts)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Everything as it was, afterwards: verify and fit write damaged files again."""
        folders = [self.sweep, (self.root / "store").resolve()]
        copies = [self.folder / f"copy-{k}" for k in range(len(folders))]
        for folder, copy in zip(folders, copies, strict=True):
            shutil.copytree(folder, copy)
        try:
            yield
        finally:
            for folder, copy in zip(folders, copies, strict=True):
                shutil.rmtree(folder)
                shutil.copytree(copy, folder)  # with other times, as after a copy
                shutil.rmtree(copy)

    def outcome(self, name: str, path: Path, command: tuple[str, ...]) -> tuple[str, str]:
        """(outcome, detail) of a damaged file: of the command that reads it, then of ``verify``."""
        answer = self.run(command) if command else None
        found = self.ask("verify", self.sweep)
        for one in filter(None, (answer, found)):
            if one.fault:
                return one.fault, one.err
        known = found.code == 1 or "rebuilt" in found.out or path.name in found.out + found.err
        if answer is not None and answer.code != 0:
            return REFUSED, ""
        if answer is not None and _words(answer) != _words(self.whole(command)):
            said = path.name in answer.err + answer.out or "damaged" in answer.err + answer.out
            return (SAID, "") if said else (SILENT, f"{command[0]} answers otherwise")
        return (SAME if command else SAID, "") if known else (SILENT, f"verify: {found.out[-300:]}")


def _words(answer: Answer) -> list[str]:
    return (answer.out + answer.err).split()


@pytest.fixture
def target(made: Path, ask: Callable[..., Answer], tmp_path: Path) -> Target:
    return Target(made, ask, tmp_path)


def changed(whole: bytes, chance: random.Random, trial: int) -> bytes:
    """A bit flipped, another digit, a cut, nothing, or a piece twice."""
    place = chance.randrange(len(whole))
    data = bytearray(whole)
    kind = trial % 5
    if kind == 0:
        data[place] ^= 1 << chance.randrange(8)
    elif kind in (1, 2):
        digits = [i for i, byte in enumerate(whole) if chr(byte).isdigit()]
        place = chance.choice(digits) if digits else place
        data[place] = ord("0") + (data[place] - ord("0") + chance.randrange(1, 10)) % 10
    elif kind == 3:
        data = data[: place if trial % 10 == 3 else 0]
    else:
        data = data[:place] + data[max(0, place - 40) :]
    return bytes(data)


def test_meta_data_of_a_checkpoint(made: Path, tmp_path: Path) -> None:
    table, chance = Table(), random.Random(7)

    def like(meta: Any) -> Any:
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), tree(0))

    for trial in range(20):
        folder = tmp_path / str(trial)
        shutil.copytree(made / "checkpoints", folder)
        path = folder / "2" / "meta" / "metadata"
        whole = path.read_bytes()
        while (other := changed(whole, chance, trial)) == whole:
            pass
        path.write_bytes(other)
        notes: list[str] = []
        try:
            checkpoints = Checkpoints(folder, keep=2, note=notes.append)
            found = checkpoints.restore(like)
            checkpoints.close()
        except Exception:
            table.add("checkpoint meta", TRACEBACK, traceback.format_exc()[-600:])
            continue
        passed = found is not None and found[1]["value"] == 1 and "checkpoint 2 cannot be used" in notes[0]
        same = found is not None and found[1] == {"phase": 0, "tick": 2, "seconds": 12.5, "value": 2}
        table.add("checkpoint meta", SAID if passed else SAME if same else SILENT, f"{found and found[1]} {notes}")
    table.show("checkpoints")


DEEP = "[" * 20_000
SPECS: dict[str, bytes] = {
    "not UTF-8": b"name: \xff\xfe\n",
    "UTF-16": "name: x\n".encode("utf-16"),
    "NUL": b"name: a\x00b\n",
    "deep lists": b"name: " + DEEP.encode(),
    "deep mappings": ("{a: " * 5_000).encode(),
    "deep indents": "".join(f"{' ' * k}a:\n" for k in range(2_000)).encode(),
    "bomb": b"a: &a [1,1]\n"
    + b"".join(
        f"{b}: &{b} [*{a},*{a}]\n".encode()
        for a, b in zip("abcdefghijklmnopqrstuv", "bcdefghijklmnopqrstuvw", strict=True)
    ),
    "itself": b"&a [*a]\n",
    "object": b"name: !!python/object/apply:os.system ['true']\n",
    "sexagesimal": b"name: x\ngrid: {depths: [1], budgets: [1e5], seeds: 2:30}\ntrain: {steps: 5}\n",
    "underscores": b"name: x\ngrid: {depths: [1], budgets: [1e5], seeds: 1__0}\ntrain: {steps: 5}\n",
    "octal": b"name: x\ngrid: {depths: [1], budgets: [1e5], seeds: 0o7777777777777777}\ntrain: {steps: 5}\n",
    "list": b"- 1\n- 2\n",
    "nothing": b"",
    "long line": b"name: " + b"x" * 3_000_000,
    "many documents": b"---\nname: a\n" * 1_000,
}
MANY = 100_000
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
    "twelve rows.csv": b"depth,width,loss\n"
    + b"".join(f"{d},{w},{1000 if (d, w) == (1, 16) else 3.0}\n".encode() for d in (1, 2, 3) for w in (16, 24, 32, 40)),
}


@pytest.mark.parametrize("kind", SPECS)
def test_hostile_specs(target: Target, kind: str) -> None:
    """A hostile text as the spec of a plan, in a finished sweep, and as its run's record."""
    table = Table()
    path = target.folder / "spec.yaml"
    path.write_bytes(SPECS[kind])
    done = target.ask("plan", path)
    table.add("plan", done.fault or (REFUSED if done.code == 2 else SILENT), f"{kind}: {done.code} {done.err[:200]}")
    with target.restored():
        (target.sweep / "spec.yaml").write_bytes(SPECS[kind])
        for command in ("status", "report"):
            done = target.ask(
                command, target.sweep, *(["--out", target.folder / "page.html"] if command == "report" else [])
            )
            fine = done.code in (0, 2) and len(done.err) < 2_000
            table.add(command, done.fault or (SAME if fine else SILENT), f"{kind}: {done.code} {done.err[:200]}")
        table.add("verify", *target.outcome("spec.yaml", target.sweep / "spec.yaml", ()))
    table.show(f"specs: {kind}")


@pytest.mark.parametrize("kind", TABLES)
def test_hostile_tables(target: Target, kind: str) -> None:
    table = Table()
    path = target.folder / kind
    path.write_bytes(TABLES[kind])
    for command in (
        ("fit", path, "--draws", "200", "--out", target.folder / "fit"),
        ("design", path, "--params", "1e5", "--runs", "2"),
    ):
        done = target.ask(*command)
        fine = done.code == 2 or (done.code in (0, 1) and kind.startswith("twelve"))
        table.add(command[0], done.fault or (REFUSED if fine else SILENT), f"{kind}: {done.code} {done.err[:300]}")
    table.show(f"tables: {kind}")


assert 4 * len(SPECS) + 2 * len(TABLES) == 96

ESCAPES = (
    *("\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\x0eat\x0f", "\u202eevil", "\u2066x\u2069", "a\rb", "a\x08b", "\x7f"),
    *("=cmd|' /C calc'!A0", "+1+cmd|x", "-2+3+cmd|x", "@SUM(1)", "\t=1", "<script>alert(1)</script>", '"><img src=x>'),
    *("]]>", "[bold]x[/bold]", "{{7*7}}", "\ud800".encode("utf-16", "surrogatepass").decode("utf-16", "replace")),
)
PLACES = ("cause", "log_tail", "column", "cell", "arm")
assert len(ESCAPES) * len(PLACES) == 100


def steers(text: str) -> bool:
    return any(not character.isprintable() and character not in "\n\t" for character in text)


@pytest.mark.parametrize("place", PLACES)
def test_escapes(target: Target, place: str) -> None:
    table = Table()
    for text in ESCAPES:
        with target.restored():
            done, tables, pages = in_place(target, place, text)
        outputs = [done.out, done.err, *tables, *pages]
        active = any("<script>alert(1)" in one or "<img src=x>" in one for one in pages)
        formula = any(
            cell[:1] in tuple("=+-@\t") and not cell[1:2].isdigit() and cell not in ("-", "-inf")
            for one in tables
            for row in csv.reader(one.splitlines())
            for cell in row
        )
        wrong = "steers" if any(map(steers, outputs)) else "active" if active else "formula" if formula else ""
        fine = done.code in (0, 1, 2) and not wrong
        outcome = done.fault or ((REFUSED if done.code == 2 else SAID) if fine else SILENT)
        table.add(place, outcome, f"{text!r}: {wrong} {done.code} {done.err[:300]}")
    table.show("escapes")


def in_place(target: Target, place: str, text: str) -> tuple[Answer, list[str], list[str]]:
    """(the answer of a command, the tables that it wrote, the pages that it wrote)."""
    out = target.folder / "escapes"
    paths.remove(out)
    if place in ("cause", "log_tail"):
        store = SweepStore(target.sweep)
        run_id = store.run_ids()[0]
        state = {"state": "failed", "step": 3, "pack_id": None, "run_id": run_id, place: f"{text}\n{text}"}
        store.path_of(RunResult, run_id).unlink()
        (target.sweep / "runs" / run_id / "status.json").write_text(json.dumps(state))
        return target.ask("status", target.sweep), [], []
    table = simulated(depths=(6, 12), sizes=5, low=1e6, high=3e7, seeds=2)
    for row in table:
        if place == "column":
            row[f"x{text}"] = 1
        elif place == "cell":
            row["optimizer"] = text
    if place == "arm":
        table = [{**row, "arm": arm} for arm in ("base", text) for row in table]
    path = target.folder / "t.json"
    path.write_text(json.dumps(table))
    compare = ["--compare"] if place == "arm" else []
    done = target.ask("fit", path, "--draws", "200", "--out", out, *compare)
    if done.code == 0 and not done.fault:
        page = target.ask("report", out)
        done = Answer(page.code, done.out + page.out, done.err + page.err, page.fault)
    tables = [one.read_text("utf-8") for one in sorted(out.glob("*.csv"))]
    pages = [one.read_text("utf-8") for one in sorted(out.glob("*")) if one.suffix in (".html", ".md")]
    return done, tables, ["".join(c for c in one if c not in "\r\xa0\u00ad") for one in pages]
