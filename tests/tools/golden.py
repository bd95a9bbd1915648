"""Golden record of ``dwsweep fit``: made before a change and after it, and compared, so that each number that moves is
known.

    python tests/tools/golden.py make FOLDER [TABLES ...]    one file per table; tables that FOLDER has are skipped
    python tests/tools/golden.py compare OLD NEW             lists what moved; exit status 1 if anything did

TABLES: files, or folders of tables. The published sweeps and 69 simulated tables are always recorded. The tool runs
the ``dwsweep`` of the Python that runs it. It reads the files that a fit writes by the names of their columns: a column
or a file that one of two versions lacks is listed once, and not compared.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILES = {".csv", ".tsv", ".json", ".jsonl", ".md", ".gz", ".parquet", ".xlsx"}
NO_TABLES = {"README.md"}
# answers that need more than a table's name
OPTIONS = {
    "recipes.csv": ["--where", "mixer == 'softmax'"],
    "one_shape_arms.csv": ["--arm", "variant", "--compare"],
    "mlfoundations_grid.csv": ["--where", "warmup == 400 and heads == 4 and global_batch == 64"],
    "gemstones.csv": ["--at-tokens", "100B", "--where", "recipe == 'constant'"],
}
KEYS = ("question", "equal", "arm", "base", "column", "quantity", "shallow", "deep", "estimator", "name", "budget")
PLACES = ("n_params", "tokens", "cost", "at", "trained_depth")  # numbers that tell the rows of a file apart
SKIPPED_FILES = {"cells.csv", "contrasts.csv"}
UNLIKE = ("sup_t", "slope", "se_", "sigma", "df", "n_seeds", "sign_changes", "tie_", "_error", "decimals", "actual")
WITHIN = 2.0  # Monte-Carlo errors that a number may move
# shares of an interval's width in ln that its end and its value may move, where no error is stated: two errors of each
# in two records of 1,024 draws
OF_WIDTH, OF_VALUE = 0.06, 0.03
ALONE = 0.02  # relative move of a number without an interval
# the command without its figures, which take as long as the fit
RUN = """
import sys
from dwsweep.report.figures import registry
registry.draw = lambda *args, **options: []
from dwsweep.__main__ import main
sys.argv[0] = "dwsweep"
main()
"""


def simulated(folder: Path) -> list[Path]:
    """69 tables of fixed seeds, as CSV: 23 designs, three draws each."""
    import numpy as np

    sys.path.insert(0, str(ROOT))
    from tests.simulations import sweeps

    smooth = sweeps.SmoothTruth
    law, wide = sweeps.through_published_widths, tuple(np.geomspace(1.0e6, 6.0e8, 8))
    truths = {
        "exponential": smooth(),
        "linear": smooth(form="linear", theta=law("linear")),
        "power": smooth(form="power", theta=law("power")),
        "bent": smooth(bend=0.4),
        "bent_back": smooth(bend=0.4, phase=math.pi),
        "levels_off": smooth(level_off=2.0),
        "wiggly": smooth(wiggle=0.002),
        "no_effect": smooth(effect=0.0),
        "coarse": smooth(depths=(6, 12, 24, 48)),
        "deep_nets": smooth(depths=(24, 30, 36, 48, 60)),
        "shallow_nets": smooth(depths=(2, 3, 4, 6, 8)),
        "three_depths": smooth(depths=(6, 14, 30)),
    }
    designs: dict[str, Any] = {
        name: lambda rng, truth=truth: sweeps.draw(truth, rng, budgets=wide, seeds=2) for name, truth in truths.items()
    }
    base, doubled = smooth(), 2.0 ** np.arange(7)
    # the deep, or the shallow, nets alone reach the largest sizes, as where one list of widths serves all depths
    alone = {"deep": lambda L: 3.0e5 * L * doubled, "shallow": lambda L: 1.0e7 / L * doubled}
    designs |= {
        "one_seed": lambda rng: sweeps.draw(base, rng, budgets=wide, seeds=1, sigma=0.003),
        "noisy": lambda rng: sweeps.draw(base, rng, budgets=wide, seeds=2, sigma=0.01),
        "luck": lambda rng: sweeps.draw(base, rng, budgets=wide, seeds=2, shape_sd=0.003),
        "two_sizes": lambda rng: sweeps.draw(base, rng, budgets=(2.0e7, 2.0e8), seeds=3),
        "one_size": lambda rng: sweeps.draw(base, rng, budgets=(1.0e8,), seeds=3),
        "two_depths": lambda rng: sweeps.draw(smooth(depths=(8, 16)), rng, budgets=wide, seeds=2),
        "deep_alone_large": lambda rng: sweeps.draw(base, rng, budgets=alone["deep"], seeds=2),
        "shallow_alone_large": lambda rng: sweeps.draw(base, rng, budgets=alone["shallow"], seeds=2),
        "bad_run": lambda rng: [
            {**row, "loss": row["loss"] + 5.0 * (k == 40)} for k, row in enumerate(sweeps.draw(base, rng))
        ],
        "learning_rates": lambda rng: sweeps.draw(base, rng, rates=(0.0, 0.0, 0.0, 0.002, 0.01)),
        "missing_20_percent": lambda rng: [row for row in sweeps.draw(base, rng) if rng.random() >= 0.2],
    }
    made = []
    folder.mkdir(parents=True, exist_ok=True)
    for k, (name, design) in enumerate(designs.items()):
        for draw in range(3):
            rows = design(np.random.default_rng([k, draw]))
            made.append(folder / f"simulated-{name}-{draw}.csv")
            with made[-1].open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    return made


def tables(given: list[Path], folder: Path) -> dict[str, Path]:
    """Name of the record → table: of the folders given, of the published sweeps, and the simulated ones."""
    found = {}
    for one in given:
        inside = sorted(one.iterdir()) if one.is_dir() else [one]
        for path in inside:
            is_table = path.suffix in FILES if path.is_file() else not path.name.endswith("-fit")
            if is_table and path.name not in NO_TABLES:
                found[f"{one.name if one.is_dir() else one.parent.name}-{path.name}"] = path
    published = (path.parent for path in sorted((ROOT / "sweeps" / "results").glob("*/results.csv")))
    found |= {f"published-{path.name}": path for path in published}
    return found | {path.stem: path for path in simulated(folder / "tables")}


def record(name: str, table: Path, folder: Path) -> None:
    """Run the fit of one table and write what it answers to ``folder``/``name``.json."""
    with tempfile.TemporaryDirectory() as out:
        command = ["fit", str(table.resolve()), "--out", f"{out}/fit", *OPTIONS.get(table.name, [])]
        env = os.environ | {"COLUMNS": "400"}  # whole sentences; and no folder on Python's path that has a dwsweep
        done = subprocess.run(
            [sys.executable, "-c", RUN, *command], capture_output=True, text=True, check=False, env=env, cwd=out
        )
        rows = numbers(Path(out) / "fit")
    sha = hashlib.sha256(table.read_bytes()).hexdigest() if table.is_file() else ""
    text, stderr = (
        [line.replace(str(table.resolve()), table.name) for line in stream.splitlines() if line.strip()]
        for stream in (done.stdout, done.stderr)
    )
    known = {
        "table": sha,
        "exit": done.returncode,
        "error": stderr[0] if stderr and done.returncode else "",
        "text": text[:3],
        "rows": rows,
    }
    (folder / f"{name}.json").write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


def numbers(folder: Path) -> dict[str, dict[str, Any]]:
    """Row by its name → column → value, of the files of one fit."""
    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.csv")):
        if path.name in SKIPPED_FILES:
            continue
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                _add(rows, _name(path.stem, row), {key: _number(value) for key, value in row.items()})
    file = folder / "fit.json"
    fit = json.loads(file.read_text()) if file.exists() else {}
    for row in (fit.get("surface") or {}).get("optima") or ():
        _add(rows, f"best depth at {_digits(row['n_params'])}", row)
    laws = [fit.get("width_law"), fit.get("pairs_law")]
    of_best = any(law and law.get("of") == "best_depth" for law in laws)
    for row in [*laws, *(fit.get("rivals") or ())]:
        if row:
            flat = {key: value for key, value in row.items() if isinstance(value, int | float | str)}
            for side in "ab":
                if row.get(f"interval_{side}"):
                    flat[f"{side}_low"], flat[f"{side}_high"] = row[f"interval_{side}"]
            kind = "width law" if any(row is law for law in laws) else "form"
            of = row.get("of") or ("best_depth" if of_best else "pairs")  # earlier fits have laws of the pairs alone
            _add(rows, f"{kind}{' of the best depth' if of == 'best_depth' else ''} {row['form']}", flat)
    return rows


def _add(rows: dict[str, dict[str, Any]], name: str, row: dict[str, Any]) -> None:
    plain = {key: value for key, value in row.items() if value is None or isinstance(value, int | float | str)}
    while name in rows and rows[name].keys() == plain.keys():
        name += "'"
    rows[name] = plain | rows.get(name, {})


def _name(file: str, row: dict[str, str]) -> str:
    parts = [row[key] for key in KEYS if row.get(key)]
    # the size of a pair of depths is its answer, not its place
    places = [f"{key} {_digits(row[key])}" for key in PLACES if row.get(key) and not row.get("shallow")]
    return " ".join([file, *parts, *places])


def _digits(value: Any) -> str:
    number = _number(str(value))
    return f"{number:.3g}" if isinstance(number, float) else str(value)


def _number(text: str | None) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text


def moved(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """One line for each number of a table that moved by more than its tolerance, or for its words."""
    if old["table"] != new["table"]:
        yield "the table itself differs: nothing is compared"
        return
    for part in ("exit", "error", "text"):
        if old[part] != new[part]:
            yield f"{part}: {old[part]!r} → {new[part]!r}"
    for name, before in old["rows"].items():
        after = new["rows"].get(name)
        if after is None:
            yield f"{name}: has no row now"
            continue
        for column in sorted(before.keys() & after.keys()):
            if not any(part in column for part in UNLIKE) and (line := _change(column, before, after)):
                yield f"{name}: {column} {line}"
    yield from (f"{name}: a new row" for name in new["rows"] if name not in old["rows"])


def _change(column: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    """``old → new`` with the tolerance, if a value moved by more than it."""
    one, two = before[column], after[column]
    if one == two or (one in (None, "") and two in (None, "")):
        return ""
    if not (isinstance(one, int | float) and isinstance(two, int | float)):
        plain = [re.sub(r"\d[\d.]*", "#", str(value)) for value in (one, two)]
        return "" if plain[0] == plain[1] and None not in (one, two) else f"{one} → {two}"
    ln = one > 0 and two > 0
    step = abs(math.log(two / one)) if ln else abs(two - one)
    base = re.sub("_(low|high)$", "", column)
    errors = [_error(base, row, ln) for row in (before, after)]
    ends = before.get(f"{base}_low"), before.get(f"{base}_high")
    if any(errors):
        limit = WITHIN * math.hypot(*errors)
    elif all(isinstance(end, int | float) for end in ends):
        low, high = ends
        width = math.log(high / low) if ln and low > 0 and high > 0 else high - low
        limit = (OF_VALUE if base == column else OF_WIDTH) * width
    else:
        limit = ALONE * (1.0 if ln else abs(one))
    return "" if step <= max(limit, 1e-9) else f"{one:.5g} → {two:.5g} (moved {step:.2g}, allowed {limit:.2g})"


def _error(base: str, row: dict[str, Any], ln: bool) -> float:
    """Monte-Carlo error of a number and its ends, of its logarithm with ``ln``; 0 if none is stated."""
    known, value = row.get(f"{base}_error") or 0.0, row.get(base)
    if base in ("depth", "width") and not known:
        known, value = row.get("monte_carlo_error") or 0.0, row.get("depth")
    if not isinstance(value, int | float) or not value:
        return 0.0
    # the error of a size is one of its logarithm; a width has half the error of a depth at one size
    return known * (0.5 if base == "width" else 1.0) / (abs(value) if ln and base != "n_params" else 1.0)


def compare(old: Path, new: Path) -> int:
    """Print what moved between two records; the number of tables in which something did."""
    shared = sorted({path.name for path in old.glob("*.json")} & {path.name for path in new.glob("*.json")})
    changed, columns = 0, Counter[str]()
    for name in shared:
        before, after = (json.loads((folder / name).read_text()) for folder in (old, new))
        for row in before["rows"].keys() & after["rows"].keys():
            columns.update(f"{key} left" for key in before["rows"][row].keys() - after["rows"][row].keys())
            columns.update(f"{key} is new" for key in after["rows"][row].keys() - before["rows"][row].keys())
        if lines := list(moved(before, after)):
            changed += 1
            print(name.removesuffix(".json"), *(f"    {line}" for line in lines), sep="\n")
    alone = {path.name for path in (*old.glob("*.json"), *new.glob("*.json"))} - set(shared)
    print(f"{len(shared)} tables compared, {changed} with a difference; in one record alone: {len(alone)}")
    if columns:
        print("columns: " + ", ".join(f"{name} ({n} rows)" for name, n in sorted(columns.items())))
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("others", type=Path, nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="text in the names of the tables to record")
    given = parser.parse_args()
    if given.what == "compare":
        return 1 if compare(given.folder, given.others[0]) else 0
    given.folder.mkdir(parents=True, exist_ok=True)
    wanted = {name: path for name, path in tables(given.others, given.folder).items() if given.only in name}
    todo = [name for name in wanted if not (given.folder / f"{name}.json").exists()]
    with ThreadPoolExecutor(given.jobs) as pool:
        for k, _ in enumerate(pool.map(lambda name: record(name, wanted[name], given.folder), todo), start=1):
            print(f"{k} of {len(todo)}", end="\r", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
