"""The array script of dwsweep/sweep/README.md on a real Slurm, up to its limit of time and beyond."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slurm_cluster
from checkout import ROOT, environment
from engine_tools import arguments, losses, wait_for
from slurm_cluster import SlurmCluster

from dwsweep.sweep.directory import SweepStore

TASKS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := slurm_cluster.missing():
        pytest.skip(reason)
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm") / "cluster") as made:
        yield made


def script(folder: Path) -> Path:
    """README's script, for the small sweep in ``folder``."""
    text = (ROOT / "dwsweep" / "sweep" / "README.md").read_text("utf-8")
    (block,) = re.findall(r"## Slurm\n.*?```sh\n(.*?)```", text, re.DOTALL)
    assert "sweeps/levine2020.yaml" in block and "/shared/levine" in block
    small = shlex.join(arguments())
    block = block.replace("sweeps/levine2020.yaml", small).replace("/shared/levine", str(folder / "sweep"))
    path = folder / "array.sh"
    path.write_text(block)
    return path


def command(folder: Path) -> str:
    """A folder for PATH with a `dwsweep` in it."""
    path = folder / "bin" / "dwsweep"
    path.parent.mkdir()
    run = f'exec {shlex.join([sys.executable, "-m", "dwsweep"])} "$@"'
    path.write_text(f"#!/bin/bash\n{run}\n")
    path.chmod(0o755)
    return str(path.parent)


def submit(cluster: SlurmCluster, folder: Path, programs: str, *options: str) -> str:
    more = environment()
    more["PATH"] = f"{programs}:{more['PATH']}"
    log = f"--output={folder}/task-%a.log"
    return cluster.ask(*["sbatch", "--parsable", f"--array=0-{TASKS - 1}", log, *options, str(script(folder))], **more)


def states(cluster: SlurmCluster, job: str) -> list[dict[str, str]]:
    """The fields of each task as `scontrol show job` has them."""
    shown = cluster.ask("scontrol", "--oneliner", "show", "job", job).splitlines()
    return [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in shown]


def finished(cluster: SlurmCluster, job: str) -> Any:
    tasks = states(cluster, job)
    return tasks if all(task["JobState"] in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED") for task in tasks) else None


def logs(folder: Path) -> str:
    return "\n".join(path.read_text("utf-8", errors="replace") for path in sorted(folder.glob("task-*.log")))


def steps(directory: Path) -> list[int]:
    """The steps that each pack has come to."""
    store = SweepStore(directory)
    return [store.progress(name).step for name in store.pack_ids()] if directory.exists() else []


def test_the_array_script_is_requeued_before_its_limit_and_ends_with_a_local_runs_bits(
    cluster: SlurmCluster, tmp_path: Path, local: dict[str, str]
) -> None:
    job = submit(cluster, tmp_path, command(tmp_path))
    wait_for(lambda: min(steps(tmp_path / "sweep"), default=0) > 100, lambda: logs(tmp_path))
    # the end is now nearer than the script's 120 s, and Slurm looks every half minute
    minutes = 2 + max(int(task["RunTime"].split(":")[1]) for task in states(cluster, job))
    cluster.ask("scontrol", "update", f"jobid={job}", f"timelimit={minutes}")
    requeued = lambda: all(task["Restarts"] != "0" for task in states(cluster, job))  # noqa: E731
    wait_for(requeued, lambda: logs(tmp_path))
    cluster.ask("scontrol", "update", f"jobid={job}", "timelimit=240")
    tasks = wait_for(lambda: finished(cluster, job), lambda: logs(tmp_path))
    text = logs(tmp_path)
    assert [task["JobState"] for task in tasks] == ["COMPLETED"] * TASKS, text
    assert "interrupted (stopped by SIGTERM)" in text, text
    assert losses(tmp_path / "sweep") == local
