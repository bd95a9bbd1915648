"""Runs of W&B and MLflow, read through stand-ins for their packages: no network, and nothing is imported before."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from dwsweep.errors import InputError
from dwsweep.fit.data.table import read_table

SHAPES = [(2, 64, 3.1), (4, 45, 3.0), (2, 128, 2.9), (4, 90, 2.7)]
CRASHED = (2, 32, 9.0)


def finished(table):
    """Depth, width and loss of the runs that count; the table has the crashed one too, to report it."""
    assert len(table.rows) == len(SHAPES) + 1
    return sorted((row["depth"], row["width"], row["loss"]) for row in table.rows if row["status"] == "done")


def wandb():
    """A module ``wandb`` whose project has the runs of SHAPES and one that crashed."""
    runs = [
        SimpleNamespace(
            name=f"run-{k}",
            state="finished" if k < len(SHAPES) else "crashed",
            config={"model": {"n_layer": depth, "d_model": width}, "loss": "cross", "tags": ["a"], "_wandb": {"t": 1}},
            summary={"loss": loss, "_runtime": 3.0, "_step": 500, "plot": {"_type": "image-file"}},
            sweep=SimpleNamespace(id="ab12") if k == 0 else None,
        )
        for k, (depth, width, loss) in enumerate([*SHAPES, CRASHED])
    ]

    def of(place):
        if place == "me/gone":
            raise ValueError("Could not find project gone")
        return {"me/depths": runs, "me/empty": []}[place]

    module = ModuleType("wandb")
    module.Api = lambda **_: SimpleNamespace(runs=of)
    return module


def mlflow():
    runs = [
        SimpleNamespace(
            info=SimpleNamespace(run_name=f"r{k}", status="FINISHED" if k else "FAILED"),
            data=SimpleNamespace(params={"n_layer": str(depth), "d_model": str(width)}, metrics={"val_loss": loss}),
        )
        for k, (depth, width, loss) in enumerate([CRASHED, *SHAPES])
    ]
    module = ModuleType("mlflow")
    module.get_experiment_by_name = {"depth study": SimpleNamespace(experiment_id="7")}.get
    module.get_tracking_uri = lambda: "file:///tracked"
    module.search_runs = lambda experiment_ids, output_format: runs if experiment_ids == ["7"] else []
    return module


@pytest.fixture
def both(monkeypatch):
    for make in (wandb, mlflow):
        monkeypatch.setitem(sys.modules, make.__name__, make())


@pytest.mark.usefixtures("both")
def test_runs_of_a_project_and_of_an_experiment_are_a_table():
    for name in ("wandb:me/depths", "mlflow:depth study"):
        table = read_table(name)
        assert finished(table) == sorted(SHAPES) and table.source == name
        assert not any("plot" in column or "_wandb" in column for column in table.roles)
    kept = read_table("wandb:me/depths", where=["sweep_id != 'ab12'"])
    assert [row["loss"] for row in kept.rows if row["status"] == "done"] == [loss for _, _, loss in SHAPES[1:]]


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("wandb:depths", r"^table: wandb:depths; must be wandb:ENTITY/PROJECT$"),
        ("wandb:me/gone", r"^table: wandb:me/gone; cannot be read \(Could not find project gone\)$"),
        ("wandb:me/empty", r"^table: wandb:me/empty; has no runs; "),
        ("mlflow:other", r"mlflow:other; no such experiment at file:///tracked"),
    ],
)
def test_what_a_tracker_lacks_is_one_line(name, line):
    with pytest.raises(InputError, match=line):
        read_table(name)


@pytest.mark.usefixtures("both")
def test_the_fit_of_a_project_is_written_beside_the_caller_and_a_package_that_lacks_is_named(
    dwsweep, monkeypatch, tmp_path
):
    done = dwsweep("fit", "wandb:me/depths", cwd=tmp_path)
    assert done.returncode == 0 and "4 used" in done.stdout, done
    for kind, name, needed in (("wandb", "wandb:a/b", "'.[wandb]'"), ("mlflow", "mlflow:a", "pip install mlflow")):
        monkeypatch.setitem(sys.modules, kind, None)
        done = dwsweep("fit", name, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert done.stderr.startswith(f"error: table: {name}; needs the package {kind}: ") and needed in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["depths-fit"]
