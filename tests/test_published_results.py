"""The sweeps whose results are part of the project: anybody who fits them gets what is written there."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

import pytest
from shown import summary

from dwsweep import fit_table
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult

pytestmark = pytest.mark.usefixtures("whole_grids")

ROOT = Path(__file__).parents[1] / "sweeps" / "results"
SWEEPS = sorted(path.parent for path in ROOT.glob("*/results.csv"))


@cache
def fitted(sweep: Path) -> FitResult:
    return fit_table(sweep)


def test_fit_txt_is_what_a_fit_of_the_table_prints() -> None:
    """``dwsweep fit sweeps/results/laptop --out DIR`` prints it anew. Warnings name options as they were given, on the
    command line with dashes, and so may wrap otherwise: they are compared word by word."""
    written = (ROOT / "laptop" / "fit.txt").read_text("utf-8").rstrip("\n")
    printed = "\n".join(line.rstrip() for line in summary(fitted(ROOT / "laptop")).splitlines())
    assert written.partition("\nWarnings\n")[0] == printed.partition("\nWarnings\n")[0]
    assert written.replace("--", "").split() == printed.replace("--", "").split()


def test_readme_says_what_the_fit_says() -> None:
    """The crossing and the best depths under "What was found"."""
    (found_part,) = re.findall(
        r"\n## What was found\n(.*?)\n## ", (ROOT.parents[1] / "README.md").read_text("utf-8"), re.S
    )
    first = " ".join(found_part.split())
    found = fitted(ROOT / "laptop")
    (row,) = (row for row in found.transitions if row.estimator == "surface" and row.status == "crossed")
    sizes = (f"{1000 * round(n / 1000):,}" for n in (row.n_params, row.n_params_low, row.n_params_high) if n)
    assert "{} parameters** ({} to {})".format(*sizes) in first
    assert found.surface
    both = [row for row in found.surface.optima if row.depth and row.depth_low and row.depth_high]
    assert len(both) == 1
    for best in both:
        size = f"{1000 * round(best.n_params / 1000):,}"
        assert f"{best.depth:.1f} ({best.depth_low:.1f} to {best.depth_high:.1f}) at {size}" in first


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda path: path.name)
def test_guide_and_report_read_the_fit_that_is_written_there(sweep: Path) -> None:
    """A fit.json carries the hash of its text: an edit by hand makes every command refuse it."""
    assert fit_record.read_any(sweep / "fit" / "fit.json", "--fit").cells


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda path: path.name)
def test_a_fit_of_the_table_gives_the_transitions_that_are_written_there(sweep: Path) -> None:
    with (sweep / "fit" / "transitions.csv").open(encoding="utf-8", newline="") as stream:
        written = list(csv.DictReader(stream))
    found = [row.to_dict() for row in fitted(sweep).transitions]
    assert len(found) == len(written) > 0
    for own, row in zip(found, written, strict=True):
        for name, text in row.items():
            value = own[name]
            if isinstance(value, float) and text:
                # draws follow the last bits of a processor's matrix products: 1e-8 was seen between five of them
                assert float(text) == pytest.approx(value, rel=1e-5, abs=1e-9), name
            else:
                assert text == ("" if value is None else str(value)), name
