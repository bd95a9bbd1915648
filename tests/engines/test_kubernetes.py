"""The cluster examples in sweeps/clusters, by the schemas of the APIs that take them; no cluster runs them here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from checkout import SWEEPS

from dwsweep.sweep import multihost
from dwsweep.sweep.work_queue import parse_shard

CLUSTERS = SWEEPS / "clusters"


def example(name: str) -> dict[str, Any]:
    (content,) = yaml.safe_load_all((CLUSTERS / name).read_text("utf-8"))
    return content


@pytest.fixture
def check_job() -> Callable[[dict[str, Any]], Any]:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    return lambda content: kubernetes.validate(content, kubernetes.latest_version(), strict=True)


@pytest.fixture
def jobset() -> Any:
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="kubeflow-trainer-api is not installed")
    return models.JobsetV1alpha2JobSet


def dropped(given: Any, kept: Any) -> list[str]:
    """Keys that a model did not know and so left out: a misspelled one is no error there."""
    if isinstance(given, dict):
        unknown = [key for key in given if key not in kept]
        return unknown + [f"{key}.{below}" for key in given if key in kept for below in dropped(given[key], kept[key])]
    if isinstance(given, list):
        return [
            f"{k}.{below}" for k, (one, two) in enumerate(zip(given, kept, strict=True)) for below in dropped(one, two)
        ]
    return []


def test_the_indexed_job(check_job: Any) -> None:
    job = example("kubernetes-job.yaml")
    check_job(job)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    shard = container["command"][container["command"].index("--shard") + 1]
    count = job["spec"]["completions"]
    shards = [parse_shard(shard.replace("$(JOB_COMPLETION_INDEX)", str(index))) for index in range(count)]
    assert shards == [(index, count) for index in range(count)]
    job["spec"]["completionsMode"] = "Indexed"
    with pytest.raises(Exception, match="completionsMode"):
        check_job(job)


def test_the_job_set(check_job: Any, jobset: Any) -> None:
    content = example("kubernetes-jobset.yaml")
    assert dropped(content, jobset.from_dict(copy.deepcopy(content)).to_dict()) == []
    (replicated,) = content["spec"]["replicatedJobs"]
    # the job inside it by the core schemas, which know every key
    check_job({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hosts"}, **replicated["template"]})
    spec = replicated["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    given = {one["name"]: one.get("value", "0") for one in container["env"]}
    name, sub = content["metadata"]["name"], content["spec"]["network"]["subdomain"]
    assert multihost.settings(given) == {
        "coordinator_address": f"{name}-{replicated['name']}-0-0.{sub}:{container['ports'][0]['containerPort']}",
        "num_processes": spec["completions"],
        "process_id": 0,
    }
    content["spec"]["failurePolicy"]["restarts"] = 3
    assert dropped(content, jobset.from_dict(copy.deepcopy(content)).to_dict()) == ["spec.failurePolicy.restarts"]


def test_the_skypilot_task_names_a_shard_for_each_node() -> None:
    task = example("skypilot.yaml")
    shard = task["run"].split("--shard ", 1)[1].split()[0]
    for rank in range(task["num_nodes"]):
        filled = shard.replace("${SKYPILOT_NODE_RANK}", str(rank)).replace("${SKYPILOT_NUM_NODES}", "4")
        assert parse_shard(filled) == (rank, task["num_nodes"])
