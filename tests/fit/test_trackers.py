"""Runs of W&B and MLflow, read through stand-ins for their packages: no network, and nothing is imported before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from checkout import environment
from cli_tools import Command

from dwsweep.errors import InputError
from dwsweep.fit.data.table import Table, read_table

SHAPES = [(2, 64, 3.1), (4, 45, 3.0), (2, 128, 2.9), (4, 90, 2.7)]


def finished(table: Table) -> list[tuple[Any, ...]]:
    """Depth, width and loss of the runs that count; the table has the crashed one too, to report it."""
    assert len(table.rows) == len(SHAPES) + 1
    return [(row["depth"], row["width"], row["loss"]) for row in table.rows if row["status"] == "done"]


def wandb_of(asked: list[str]) -> Any:
    """A module ``wandb`` whose project has the runs of SHAPES and one that crashed."""
    runs = [
        SimpleNamespace(
            name=f"run-{k}",
            state="finished" if k < len(SHAPES) else "crashed",
            config={"model": {"n_layer": depth, "d_model": width}, "loss": "cross", "tags": ["a"], "_wandb": {"t": 1}},
            summary={"loss": loss, "_runtime": 3.0, "_step": 500, "plot": {"_type": "image-file"}},
            sweep=SimpleNamespace(id="ab12") if k == 0 else None,
        )
        for k, (depth, width, loss) in enumerate([*SHAPES, (2, 32, 9.0)])
    ]
    module: Any = ModuleType("wandb")

    class Api:
        def __init__(self, **_: Any) -> None: ...

        def runs(self, place: str) -> list[Any]:
            asked.append(place)
            if place == "me/gone":
                raise ValueError("Could not find project gone")
            return [] if place == "me/empty" else runs

    module.Api = Api
    return module


def mlflow_of() -> Any:
    module: Any = ModuleType("mlflow")
    runs = [
        SimpleNamespace(
            info=SimpleNamespace(run_name=f"r{k}", status="FINISHED" if k else "FAILED"),
            data=SimpleNamespace(params={"n_layer": str(depth), "d_model": str(width)}, metrics={"val_loss": loss}),
        )
        for k, (depth, width, loss) in enumerate([(2, 32, 9.0), *SHAPES])
    ]
    known = {"depth study": SimpleNamespace(experiment_id="7")}
    module.get_experiment_by_name = known.get
    module.get_tracking_uri = lambda: "file:///tracked"
    module.search_runs = lambda experiment_ids, output_format: runs if experiment_ids == ["7"] else []
    return module


def test_runs_of_a_project_are_a_table_and_those_of_a_sweep_are_left_out_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setitem(sys.modules, "wandb", wandb_of(asked))
    table = read_table("wandb:me/depths")
    assert not any("plot" in name or "_wandb" in name for name in table.columns)
    assert asked == ["me/depths"] and table.source == "wandb:me/depths"
    assert sorted(finished(table)) == sorted(SHAPES)
    kept = read_table("wandb:me/depths", where=["sweep_id != 'ab12'"])
    assert [row["loss"] for row in kept.rows if row["status"] == "done"] == [loss for _, _, loss in SHAPES[1:]]


def test_runs_of_an_experiment_are_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", mlflow_of())
    table = read_table("mlflow:depth study")
    assert sorted(finished(table)) == sorted(SHAPES)
    with pytest.raises(InputError, match=r"mlflow:other; no such experiment at file:///tracked"):
        read_table("mlflow:other")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("wandb:depths", r"^table: wandb:depths; must be wandb:ENTITY/PROJECT$"),
        ("wandb:me/gone", r"^table: wandb:me/gone; cannot be read \(Could not find project gone\)$"),
        ("wandb:me/empty", r"^table: wandb:me/empty; has no runs; "),
    ],
)
def test_what_a_tracker_lacks_is_one_line(monkeypatch: pytest.MonkeyPatch, name: str, line: str) -> None:
    monkeypatch.setitem(sys.modules, "wandb", wandb_of([]))
    with pytest.raises(InputError, match=line):
        read_table(name)


def test_without_its_package_the_command_names_it(
    dwsweep: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for kind, name, needed in (("wandb", "wandb:a/b", "'.[wandb]'"), ("mlflow", "mlflow:a", "pip install mlflow")):
        monkeypatch.setitem(sys.modules, kind, None)
        done = dwsweep("fit", name, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert done.stderr.startswith(f"error: table: {name}; needs the package {kind}: ") and needed in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_fit_of_a_project_is_written_beside_the_caller(
    dwsweep: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", wandb_of([]))
    done = dwsweep("fit", "wandb:me/depths", "--draws", "100", cwd=tmp_path)
    assert done.returncode == 0 and "4 used" in done.stdout, done
    assert [path.name for path in tmp_path.iterdir()] == ["depths-fit"]


def test_no_tracker_is_imported_by_the_fit_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("depth,width,loss\n2,64,3.1\n4,45,3.0\n", "utf-8")
    code = (
        "import sys; from dwsweep.fit.data.table import read_table; read_table(sys.argv[1]); "
        "print({'wandb', 'mlflow'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.csv")], capture_output=True, text=True, env=environment()
    )
    assert done.stdout == "set()\n", done.stderr
